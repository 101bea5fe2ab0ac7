"""`__cluster_metadata-0` with its snapshots: what the Raft core finds at a start, and what its driver has written.

Order of effects, each durable before the next begins, so that a crash between any two leaves a log that opens with all
that was promised:

    taking a snapshot      the file; the flushed end of the log is recorded; the log is trimmed to the end of the one
                           before (its new start is recorded before a segment goes); older snapshots are removed
    installing a received  the file; what the log has beyond the snapshot is cut; the log is emptied and starts at the
                           snapshot's end; other snapshots are removed

So a snapshot that the log does not continue is an installation that a crash cut short: loading completes it. A log that
starts above the newest sound snapshot has lost one, and is refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import MetadataImage
from kraftlog.kraft.log_adapter.quorum_state import QuorumStateFile
from kraftlog.kraft.log_adapter.snapshot_files import SnapshotFiles
from kraftlog.kraft.raft import NO_OFFSET, Entry, EntryKind, HardState, ReplicaKey, Snapshot, Voters
from kraftlog.kraft.records import entry_of
from kraftlog.kraft.snapshot import SnapshotContents, SnapshotId, decode_snapshot, encode_snapshot
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, StorageError
from kraftlog.proto.records import iter_headers, read_header
from kraftlog.proto.seams import Buffer

METADATA_LOG_CONFIGS = {
    "flush.policy": "ack",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
}
"""Topic configs of the metadata log: what it drops, snapshots decide. Only whole segments go, and after a crash the last
one is checked: so they are smaller than what lies between two snapshots. Kafka's have 1 GiB (metadata.log.segment.bytes)."""

KEPT_SNAPSHOTS = 2  # the log goes back to the older one, which so can take the place of a damaged newest one
_READ_BYTES = 4 * 1024 * 1024  # per read while loading


class ReadRecords(Protocol):
    """What `BatchLog.read` returns."""

    @property
    def records(self) -> Buffer: ...

    @property
    def next_offset(self) -> int: ...


class BatchLog(Protocol):
    """The part of `logstore.Log` that the quorum uses. `flush` and `record_flushed_end` may run in other threads beside
    the others."""

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
        """`offset` becomes the log end; durable on return."""
        ...

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log is empty, starts and ends at `offset`; durable on return."""
        ...

    def trim_to(self, offset: int, *, now_ms: int) -> object:
        """The log starts at `offset`; durable on return. Segments below are gone."""
        ...

    def flush(self) -> int: ...

    def record_flushed_end(self) -> None:
        """What is missing below the flushed end is damage from now on."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedState:
    hard_state: HardState
    snapshot: Snapshot
    """Without a file: of nothing, with the voters that the configuration names."""
    contents: SnapshotContents | None
    """What is in it; None: there is no file."""
    entries: list[Entry]
    """Those after the snapshot."""


class MetadataLog:
    """Used only by the quorum driver, one call at a time, but for `write_snapshot`. Everything but `append` blocks."""

    def __init__(
        self,
        log: BatchLog,
        fs: FileSystem,
        *,
        cluster_id: str,
        voters: Voters,
        node_id: int,
        needs_genesis: bool = False,
    ) -> None:
        """`voters`: where neither log nor snapshot says who they are. With `needs_genesis`, an empty log that nobody has
        formatted with the first voters is refused."""
        self._log = log
        self._voters = voters
        self._needs_genesis = needs_genesis
        self._snapshots = SnapshotFiles(fs, log.directory)
        self._state = QuorumStateFile(fs, log.directory, cluster_id=cluster_id, node_id=node_id)

    # --- loading ------------------------------------------------------------------------------------------------

    def load(self) -> LoadedState:
        """Everything that an earlier process of this node has made durable.

        A damaged log is refused: what it lacks may have been counted towards a commit, and a voter that forgot it
        could elect a leader without it.
        """
        if self._log.damage is not None:
            raise self._log.damage
        self._snapshots.remove_leftovers()
        hard_state = self._state.read()
        snapshot, contents = self._load_snapshot()
        self._voters = snapshot.voters
        entries = [entry_of(batch) for batch in self._batches(snapshot.last_offset + 1)]
        if hard_state is None:
            if entries or snapshot.last_offset != NO_OFFSET:
                raise StorageError(
                    f"{self._state.path} is missing although the metadata log has entries: the vote of this node is"
                    " lost; restore the file, or let the node join again with an empty directory"
                )
            if contents is None and self._needs_genesis:
                raise StorageError(
                    f"{self._log.directory} does not say who the first voters of its cluster are: format the log directory"
                    " with kraftctl storage format and --initial-controllers, --standalone or --no-initial-controllers"
                )
            hard_state = HardState(0, None)
        self._check(snapshot, entries, hard_state)
        self._remove_old_snapshots()
        return LoadedState(hard_state, snapshot, contents, entries)

    def _check(self, snapshot: Snapshot, entries: Sequence[Entry], hard_state: HardState) -> None:
        """Offsets and epochs are under no CRC, because leaders write them late. They follow from each other: entries
        leave no gap, and a term begins with its leader-change entry and is never above the node's own."""
        last_offset, last_term = snapshot.last_offset, snapshot.term
        for entry in entries:
            begins_term = entry.kind is EntryKind.LEADER_CHANGE
            if entry.base_offset != last_offset + 1 or (
                entry.term <= last_term if begins_term else entry.term != last_term
            ):
                raise CorruptRecordError(
                    f"{self._log.directory}: the metadata log is damaged: a batch of offsets {entry.base_offset} to"
                    f" {entry.last_offset} and epoch {entry.term} ({entry.kind.name.lower()}) follows offset {last_offset}"
                    f" and epoch {last_term}"
                )
            last_offset, last_term = entry.last_offset, entry.term
        if last_term > hard_state.term:
            raise CorruptRecordError(
                f"{self._log.directory}: the metadata log goes up to epoch {last_term}, but {self._state.path} only to"
                f" {hard_state.term}: one of them is damaged"
            )

    def _load_snapshot(self) -> tuple[Snapshot, SnapshotContents | None]:
        found = self._snapshots.load_newest()
        end_offset = found[0].end_offset if found is not None else 0
        if self._log.log_start_offset > end_offset:
            raise StorageError(
                f"{self._log.directory}: the metadata log starts at offset {self._log.log_start_offset},"
                f" but there is no sound snapshot of what came before ({end_offset} is the end of the newest); restore"
                " it from a backup, or let the node join again with an empty directory"
            )
        if found is None:
            return Snapshot(NO_OFFSET, 0, self._voters, b""), None
        snapshot_id, data, contents = found
        if not self._continues(snapshot_id):
            self._start_log_at(end_offset)
        return Snapshot(end_offset - 1, snapshot_id.epoch, contents.voters, data), contents

    def _continues(self, snapshot_id: SnapshotId) -> bool:
        """Whether the log goes on where the snapshot ends, with a batch of the same epoch before it."""
        end_offset = snapshot_id.end_offset
        if self._log.log_start_offset == end_offset:
            return True
        if self._log.log_end_offset < end_offset:
            return False
        last = read_header(self._log.read(end_offset - 1, 1, end_offset=end_offset).records)
        return (last.next_offset, last.leader_epoch) == snapshot_id

    def _batches(self, offset: int) -> Iterator[bytes]:
        end = self._log.log_end_offset
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

    # --- effects, in the order that `Ready` gives ---------------------------------------------------------------

    def write_hard_state(self, hard_state: HardState) -> None:
        """Durable on return."""
        self._state.write(hard_state, self._voters)

    def install_snapshot(self, snapshot: Snapshot) -> SnapshotContents:
        """Let a received snapshot take the place of the log. Durable on return.

        It is checked first: `CorruptRecordError` if it is not sound, and nothing has happened.
        """
        snapshot_id = SnapshotId(snapshot.last_offset + 1, snapshot.term)
        contents = decode_snapshot(snapshot.data, snapshot_id)
        if contents.voters != snapshot.voters:
            raise CorruptRecordError(f"snapshot {snapshot_id.file_name} has other voters than its leader said")
        self._snapshots.write(snapshot_id, [snapshot.data])
        self._start_log_at(snapshot_id.end_offset)
        self._log.record_flushed_end()
        self._snapshots.remove(each for each in self._snapshots.ids() if each < snapshot_id)
        self._voters = contents.voters
        return contents

    def _start_log_at(self, offset: int) -> None:
        """Empty the log. Its end goes first: were a segment beyond `offset` all that a crash leaves, the log would start
        above its snapshot."""
        if self._log.log_end_offset > offset:
            self._log.truncate_to(offset)
        self._log.truncate_fully_and_start_at(offset)

    def truncate_to(self, last_offset: int) -> None:
        """Cut every batch after `last_offset`; durable on return."""
        self._log.truncate_to(last_offset + 1)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write, not yet durable."""
        if entries[0].base_offset != self._log.log_end_offset:
            raise IllegalStateError(
                f"entry at offset {entries[0].base_offset} does not follow the log end {self._log.log_end_offset}"
            )
        self._log.append_as_follower(b"".join(entry.data for entry in entries))

    def flush(self) -> None:
        """All that was written before is durable on return. Runs in another thread than the rest."""
        self._log.flush()

    # --- snapshots of its own -----------------------------------------------------------------------------------

    def write_snapshot(
        self,
        image: MetadataImage,
        voters: Voters,
        endpoints: Mapping[ReplicaKey, Endpoint],
        *,
        timestamp_ms: int,
    ) -> bytes:
        """Make the image durable as a snapshot; its bytes. Any thread, beside everything else: it takes no file of
        another, and nothing rests on it before `trim`. Raises `StorageError`; a full disk leaves things as they were."""
        batches: list[bytes] = []

        def kept() -> Iterator[bytes]:
            for batch in encode_snapshot(image, voters, endpoints, timestamp_ms=timestamp_ms):
                batches.append(batch)
                yield batch

        self._snapshots.write(SnapshotId.of(image), kept())
        self._log.record_flushed_end()
        return b"".join(batches)

    def trim(self, *, now_ms: int) -> None:
        """Drop what snapshots have made needless: the log below the older one that is kept, and those before it."""
        kept = self._snapshots.ids()[-KEPT_SNAPSHOTS:]
        if len(kept) == KEPT_SNAPSHOTS and kept[0].end_offset > self._log.log_start_offset:
            self._log.trim_to(kept[0].end_offset, now_ms=now_ms)
        self._remove_old_snapshots()

    def _remove_old_snapshots(self) -> None:
        self._snapshots.remove(self._snapshots.ids()[:-KEPT_SNAPSHOTS])
