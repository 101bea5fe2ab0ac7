"""Who votes first: what `kraftctl storage format` makes of its options, with Kafka's words (KIP-853).

A new cluster begins with the voters that each of its controllers was formatted with, the same on all of them. Whoever
comes later was formatted without voters, follows the quorum as an observer, and is given a vote by `quorum add-voter`.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.uuids import uuid_from_text, uuid_to_text
from kraftlog.server.config import MAX_NODE_ID, NodeConfig
from kraftlog.server.directory_id import directory_id_bytes
from kraftlog.server.storage import Voters

STANDALONE = "--standalone"
INITIAL_CONTROLLERS = "--initial-controllers"
NO_INITIAL_CONTROLLERS = "--no-initial-controllers"


@dataclass(frozen=True, slots=True)
class FirstVoters:
    """What a log directory is formatted with."""

    directory_id: str
    """Of the directory itself."""
    voters: Voters
    """Empty: the node joins a quorum that exists, or never votes."""


def parse_initial_controllers(text: str) -> dict[ReplicaKey, Endpoint]:
    """`1@host:port:DIRECTORY_ID,2@...`. Raises `InvalidConfigError`."""
    voters: dict[ReplicaKey, Endpoint] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, endpoint = _parse_controller(part)
        if any(key.node_id == other.node_id for other in voters):
            raise InvalidConfigError(f"{INITIAL_CONTROLLERS} has node {key.node_id} twice")
        if any(key.directory_id == other.directory_id for other in voters):
            raise InvalidConfigError(
                f"{INITIAL_CONTROLLERS} has directory {uuid_to_text(key.directory_id)} twice: "
                "each log directory needs an id of its own (kraftctl storage random-uuid)"
            )
        if endpoint in voters.values():
            raise InvalidConfigError(f"{INITIAL_CONTROLLERS} has {endpoint} twice: each controller has its own address")
        voters[key] = endpoint
    if not voters:
        raise InvalidConfigError(f"{INITIAL_CONTROLLERS} names nobody: write 1@HOST:PORT:DIRECTORY_ID,...")
    return voters


def format_initial_controllers(voters: Mapping[ReplicaKey, Endpoint]) -> str:
    """What `parse_initial_controllers` reads back."""
    return ",".join(
        f"{key.node_id}@{endpoint}:{uuid_to_text(key.directory_id)}" for key, endpoint in sorted(voters.items())
    )


def _parse_controller(text: str) -> tuple[ReplicaKey, Endpoint]:
    node, at, rest = text.partition("@")
    address, _, directory = rest.rpartition(":")
    if not at or not node.isascii() or not node.isdigit() or int(node) > MAX_NODE_ID:
        raise InvalidConfigError(f"{INITIAL_CONTROLLERS}: {text!r} is not NODE_ID@HOST:PORT:DIRECTORY_ID")
    try:
        endpoint = Endpoint.parse(address)
    except ValueError as error:
        raise InvalidConfigError(f"{INITIAL_CONTROLLERS}: {text!r}: {error}") from None
    return ReplicaKey(int(node), _parse_directory_id(directory)), endpoint


def _parse_directory_id(text: str) -> bytes:
    """Only Kafka's spelling: any other would be another id in a node's meta.properties."""
    with contextlib.suppress(ValueError):
        directory_id = uuid_from_text(text)
        if any(directory_id) and uuid_to_text(directory_id) == text:
            return directory_id
    raise InvalidConfigError(
        f"{INITIAL_CONTROLLERS}: {text!r} is no directory id of 22 characters: make one with kraftctl storage random-uuid"
    )


def choose_first_voters(
    config: NodeConfig,
    *,
    fresh_directory_id: str,
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
) -> FirstVoters:
    """What the node of `config` is formatted with. Raises `InvalidConfigError`.

    Without any of the three: a controller that knows of no other is alone, and a node that is only a broker never votes.
    """
    if standalone + no_initial_controllers + (initial_controllers is not None) > 1:
        raise InvalidConfigError(
            f"{STANDALONE}, {INITIAL_CONTROLLERS} and {NO_INITIAL_CONTROLLERS} exclude each other: give one"
        )
    if not config.is_controller:
        if standalone:
            raise InvalidConfigError(f"{STANDALONE}: node {config.node_id} is no controller (process.roles)")
        if initial_controllers is not None:
            parse_initial_controllers(initial_controllers)  # the same text may go to every node of the cluster
        return FirstVoters(fresh_directory_id, {})
    if initial_controllers is not None:
        return _own_part(config, parse_initial_controllers(initial_controllers))
    if no_initial_controllers:
        return FirstVoters(fresh_directory_id, {})
    if standalone or not config.controller_quorum_bootstrap_servers:
        key = ReplicaKey(config.node_id, directory_id_bytes(fresh_directory_id))
        return FirstVoters(fresh_directory_id, {key: None})
    raise InvalidConfigError(
        f"node {config.node_id} is a controller, and controller.quorum.bootstrap.servers names others: say who votes first. "
        f"{STANDALONE}: only this node. {INITIAL_CONTROLLERS}: those named, of which it is one. "
        f"{NO_INITIAL_CONTROLLERS}: it joins a quorum that exists"
    )


def _own_part(config: NodeConfig, voters: dict[ReplicaKey, Endpoint]) -> FirstVoters:
    own = next((key for key in voters if key.node_id == config.node_id), None)
    if own is None:
        raise InvalidConfigError(
            f"node {config.node_id} is a controller and not in {INITIAL_CONTROLLERS}: name it there, or use "
            f"{NO_INITIAL_CONTROLLERS} if it joins later"
        )
    return FirstVoters(uuid_to_text(own.directory_id), voters)
