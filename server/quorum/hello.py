"""Who is at the other end: the first frames of a stream between two nodes of the quorum.

The dialler says which cluster and node it is, and whom it expects; the other end refuses with an error that says what is
wrong, or answers with who it is. Both check: a wrong address must never join two clusters, and a node with an empty
directory must not be taken for the one that it replaces (KIP-853).
"""

from dataclasses import dataclass

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import NO_DIRECTORY, ReplicaKey
from kraftlog.proto.errors import InconsistentClusterIdError, InvalidRequestError, InvalidVoterKeyError
from kraftlog.proto.raft_frames import RaftBody, RaftHello, RaftHelloAnswer, RaftLeaderHint

ANYBODY = -1
NOBODY = -1
MAX_TEXT_LENGTH = 255  # of a cluster id or a host


class WrongNodeError(InvalidVoterKeyError):
    """The dialler wanted to reach another node."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a node says of itself."""

    cluster_id: str
    key: ReplicaKey
    endpoint: Endpoint | None
    """Where others reach it; None: nowhere, it only dials."""

    def hello(self, expected: ReplicaKey | None, *, is_voter: bool) -> RaftHello:
        """`expected`: None takes whoever is there."""
        host, port = self.endpoint or ("", 0)
        to_node, to_directory = expected or (ANYBODY, b"")
        return RaftHello(self.cluster_id, *self.key, to_node, to_directory, host, port, is_voter)

    def answer(self) -> RaftHelloAnswer:
        host, port = self.endpoint or ("", 0)
        return RaftHelloAnswer(*self.key, host, port)

    def check_hello(self, body: RaftBody | None) -> tuple[ReplicaKey, Endpoint | None]:
        """Who dials. Raises what the dialler is told."""
        if not isinstance(body, RaftHello):
            raise InvalidRequestError("the stream does not begin with a hello")
        key, endpoint = key_of(body), endpoint_of(body)
        if len(body.cluster_id) > MAX_TEXT_LENGTH:
            raise InvalidRequestError(f"a cluster id of {len(body.cluster_id)} characters")
        if body.cluster_id != self.cluster_id:
            raise InconsistentClusterIdError(
                f"node {key.node_id} is of cluster {body.cluster_id!r}, node {self.key.node_id} is of cluster"
                f" {self.cluster_id!r}: check controller.quorum.bootstrap.servers"
            )
        if key.node_id == self.key.node_id and key != self.key:
            raise InvalidVoterKeyError(f"node id {key.node_id} is in use by another node: give each its own node.id")
        self._check_expectation(body)
        return key, endpoint

    def _check_expectation(self, hello: RaftHello) -> None:
        if hello.to_node_id not in (ANYBODY, self.key.node_id):
            raise WrongNodeError(
                f"this is node {self.key.node_id}, not node {hello.to_node_id}, which node {hello.node_id} wants to reach"
            )
        if hello.to_node_id != ANYBODY and bytes(hello.to_directory_id) not in (b"", self.key.directory_id):
            raise InvalidVoterKeyError(
                f"node {self.key.node_id} has directory {self.key.directory_id.hex()}, not"
                f" {bytes(hello.to_directory_id[:16]).hex()}: its disk was replaced; remove the old voter and add the new"
            )

    def check_answer(self, body: RaftBody | None, expected: ReplicaKey | None) -> tuple[ReplicaKey, Endpoint | None]:
        """Who was reached; may be this node itself, if nobody in particular was expected."""
        if not isinstance(body, RaftHelloAnswer):
            raise InvalidRequestError("the hello was not answered with a hello")
        key = key_of(body)
        if expected is not None and key != expected:
            raise InvalidVoterKeyError(f"node {key.node_id} answered instead of node {expected.node_id}")
        return key, endpoint_of(body)


def leader_hint(term: int, leader: ReplicaKey | None, endpoint: Endpoint | None) -> RaftLeaderHint:
    host, port = endpoint or ("", 0)
    return RaftLeaderHint(term, *(leader or (NOBODY, NO_DIRECTORY)), host, port)


def key_of(body: RaftHello | RaftHelloAnswer | RaftLeaderHint) -> ReplicaKey:
    if body.node_id < 0 or len(body.directory_id) != len(NO_DIRECTORY):
        raise InvalidRequestError(f"node id {body.node_id} with a directory id of {len(body.directory_id)} bytes")
    return ReplicaKey(body.node_id, bytes(body.directory_id))


def endpoint_of(body: RaftHello | RaftHelloAnswer | RaftLeaderHint) -> Endpoint | None:
    if not body.host:
        return None
    if len(body.host) > MAX_TEXT_LENGTH or not 0 < body.port < 1 << 16:
        raise InvalidRequestError(f"an endpoint with a host of {len(body.host)} characters and port {body.port}")
    return Endpoint(body.host, body.port)
