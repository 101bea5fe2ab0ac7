"""`quorum-state`: the term of this node and its vote in it, a JSON object with Kafka's fields (QuorumStateData version 0,
and the directory id of the vote, KIP-853):

    {"clusterId": "...", "leaderId": 1, "leaderEpoch": 5, "votedId": 1, "votedDirectoryId": "<base64url>",
     "appliedOffset": 0, "currentVoters": [{"voterId": 1}], "data_version": 0}

`leaderEpoch` is the term and `votedId` the vote (-1: none) in it; `leaderId` (-1: unknown), `appliedOffset` and
`currentVoters` are for people. The file is replaced in one step and is durable before any answer that rests on it. A
quorum state that cannot be read stops the node: a forgotten vote can make two leaders.
"""

import base64
import binascii
import json
import os

from kraftlog.kraft.raft import NO_DIRECTORY, HardState, ReplicaKey, Voters
from kraftlog.logstore.errors import storage_errors
from kraftlog.logstore.filesystem import FileSystem, atomic_write, read_file
from kraftlog.proto.errors import InconsistentClusterIdError, StorageError

QUORUM_STATE_FILE = "quorum-state"
_NOBODY = -1


class QuorumStateFile:
    """Blocks. Used by one thread at a time."""

    def __init__(self, fs: FileSystem, directory: str, *, cluster_id: str, node_id: int) -> None:
        self.path = os.path.join(directory, QUORUM_STATE_FILE)
        self._fs = fs
        self._cluster_id = cluster_id
        self._node_id = node_id

    def read(self) -> HardState | None:
        """None if there is no file. Raises `StorageError`, `InconsistentClusterIdError`."""
        if self._fs.size(self.path) is None:
            return None
        try:
            state = json.loads(read_file(self._fs, self.path))
            cluster_id, term, voted_id = state["clusterId"], state["leaderEpoch"], state["votedId"]
            directory = base64.b64decode(state.get("votedDirectoryId", ""), b"-_", validate=True) or NO_DIRECTORY
            if not (isinstance(term, int) and isinstance(voted_id, int) and term >= 0 and len(directory) == 16):
                raise ValueError("a field has an impossible value")
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            raise StorageError(
                f"{self.path} cannot be read ({error}): the vote of this node is lost; restore the file"
            ) from None
        except OSError as error:
            raise StorageError(f"{self.path}: {error}") from error
        if cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f"{self.path} is of cluster {cluster_id!r}, this node is of cluster {self._cluster_id!r}"
            )
        return HardState(term, None if voted_id == _NOBODY else ReplicaKey(voted_id, directory))

    def write(self, hard_state: HardState, voters: Voters) -> None:
        """Durable on return."""
        vote = hard_state.vote
        state = {
            "clusterId": self._cluster_id,
            "leaderId": vote.node_id if vote is not None and vote.node_id == self._node_id else _NOBODY,
            "leaderEpoch": hard_state.term,
            "votedId": _NOBODY if vote is None else vote.node_id,
            "votedDirectoryId": _base64(NO_DIRECTORY if vote is None else vote.directory_id),
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter.node_id} for voter in sorted(voters)],
            "data_version": 0,
        }
        with storage_errors("write", self.path):
            atomic_write(self._fs, self.path, json.dumps(state).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
