"""Where the quorum keeps what must survive: the metadata log and the quorum state. The only module here that knows
`logstore`.

`__cluster_metadata-0` is an ordinary log with `flush.policy=ack`. Beside its segments lies `quorum-state`, a JSON object
with Kafka's fields (QuorumStateData version 0, and the directory id of the vote, KIP-853):

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftlog.kraft.raft import NO_DIRECTORY, Entry, HardState, ReplicaKey, Voters
from kraftlog.kraft.records import entry_of
from kraftlog.logstore.filesystem import FileSystem, atomic_write, read_file
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, InconsistentClusterIdError, StorageError
from kraftlog.proto.records import iter_headers
from kraftlog.proto.seams import Buffer

QUORUM_STATE_FILE = "quorum-state"
METADATA_LOG_CONFIGS = {
    "flush.policy": "ack",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
"""Topic configs of the metadata log: what it drops, snapshots decide."""

_READ_BYTES = 4 * 1024 * 1024  # per read while loading
_NOBODY = -1


class ReadRecords(Protocol):
    """What `BatchLog.read` returns."""

    @property
    def records(self) -> Buffer: ...

    @property
    def next_offset(self) -> int: ...


class BatchLog(Protocol):
    """The part of `logstore.Log` that the quorum uses. `flush` may run in another thread beside the others."""

    @property
    def directory(self) -> str: ...

    @property
    def damage(self) -> CorruptRecordError | None:
        """Why the log cannot be trusted, if recovery found that out."""
        ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append_as_follower(self, records: Buffer) -> object:
        """Append whole batches with the offsets and epochs that they have."""
        ...

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True) -> ReadRecords: ...

    def truncate_to(self, offset: int) -> object:
        """`offset` becomes the log end."""
        ...

    def flush(self) -> int: ...


@dataclass(frozen=True, slots=True)
class LoadedState:
    hard_state: HardState
    entries: list[Entry]


class MetadataLog:
    """Used only by the quorum driver, one call at a time."""

    def __init__(self, log: BatchLog, fs: FileSystem, *, cluster_id: str, voters: Voters, node_id: int) -> None:
        self._log = log
        self._fs = fs
        self._cluster_id = cluster_id
        self._voters = voters
        self._node_id = node_id
        self._state_path = os.path.join(log.directory, QUORUM_STATE_FILE)

    # --- loading ------------------------------------------------------------------------------------------------

    def load(self) -> LoadedState:
        """Everything that an earlier process of this node has made durable. Blocks.

        A damaged log is refused: what it lacks may have been counted towards a commit, and a voter that forgot it
        could elect a leader without it.
        """
        if self._log.damage is not None:
            raise self._log.damage
        if self._log.log_start_offset != 0:
            raise StorageError(
                f"{self._log.directory}: the metadata log starts at offset {self._log.log_start_offset},"
                " but there is no snapshot of what came before"
            )
        entries = [entry_of(batch) for batch in self._batches()]
        hard_state = self._load_hard_state()
        if hard_state is None:
            if entries:
                raise StorageError(
                    f"{self._state_path} is missing although the metadata log has entries: the vote of this node is"
                    " lost; restore the file, or let the node join again with an empty directory"
                )
            hard_state = HardState(0, None)
        return LoadedState(hard_state, entries)

    def _batches(self) -> Iterable[bytes]:
        offset, end = 0, self._log.log_end_offset
        while offset < end:
            read = self._log.read(offset, _READ_BYTES, end_offset=end)
            if read.next_offset <= offset:
                raise StorageError(
                    f"{self._log.directory}: nothing can be read at offset {offset}, before the end {end}"
                )
            with memoryview(read.records) as view:
                for position, header in iter_headers(view):
                    yield bytes(view[position : position + header.size_bytes])
            offset = read.next_offset

    def _load_hard_state(self) -> HardState | None:
        if self._fs.size(self._state_path) is None:
            return None
        try:
            state = json.loads(read_file(self._fs, self._state_path))
            cluster_id, term, voted_id = state["clusterId"], state["leaderEpoch"], state["votedId"]
            directory = base64.b64decode(state.get("votedDirectoryId", ""), b"-_", validate=True) or NO_DIRECTORY
            if not (isinstance(term, int) and isinstance(voted_id, int) and term >= 0 and len(directory) == 16):
                raise ValueError("a field has an impossible value")
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            raise StorageError(
                f"{self._state_path} cannot be read ({error}): the vote of this node is lost; restore the file"
            ) from None
        except OSError as error:
            raise StorageError(f"{self._state_path}: {error}") from error
        if cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f"{self._state_path} is of cluster {cluster_id!r}, this node is of cluster {self._cluster_id!r}"
            )
        return HardState(term, None if voted_id == _NOBODY else ReplicaKey(voted_id, directory))

    # --- effects, in the order that `Ready` gives ---------------------------------------------------------------

    def write_hard_state(self, hard_state: HardState) -> None:
        """Durable on return. Blocks."""
        vote = hard_state.vote
        state = {
            "clusterId": self._cluster_id,
            "leaderId": vote.node_id if vote is not None and vote.node_id == self._node_id else _NOBODY,
            "leaderEpoch": hard_state.term,
            "votedId": _NOBODY if vote is None else vote.node_id,
            "votedDirectoryId": _base64(NO_DIRECTORY if vote is None else vote.directory_id),
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter.node_id} for voter in sorted(self._voters)],
            "data_version": 0,
        }
        try:
            atomic_write(self._fs, self._state_path, json.dumps(state).encode())
        except OSError as error:
            raise StorageError(f"{self._state_path}: {error}") from error

    def truncate_to(self, last_offset: int) -> None:
        """Cut every batch after `last_offset`; durable on return. Blocks."""
        self._log.truncate_to(last_offset + 1)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write, not yet durable."""
        if entries[0].base_offset != self._log.log_end_offset:
            raise IllegalStateError(
                f"entry at offset {entries[0].base_offset} does not follow the log end {self._log.log_end_offset}"
            )
        self._log.append_as_follower(b"".join(entry.data for entry in entries))

    def flush(self) -> None:
        """All that was written before is durable on return. Blocks; runs in another thread than the rest."""
        self._log.flush()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode()
