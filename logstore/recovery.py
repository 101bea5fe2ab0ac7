"""Opening a log: from its files to segments, producer state and epochs, after a clean stop or a crash.

After a clean stop the files are taken as they are. After a crash everything from the segment that holds the recovery
point on is read and checked byte by byte, and indexes, producer state and epochs are made anew from it. What comes
before the recovery point was synced and is trusted.

Damage is not a torn tail. A crash may cut off what was never synced: a file's tail may be missing, zero (preallocated)
or half a batch, and later segments may exist without it. That is cut, and the log says so. But an invalid batch is
*damage*, never cut silently, if

- records below the recovery point (the recorded flushed end) are invalid or missing, or
- a valid batch follows it in its file, and each of its own sectors was written: the system may write the pages of what
  was not synced in any order, so that a later batch reaches the disk without an earlier one. What tells the two apart
  is a sector of nothing but zeros, which is how preallocated space reads (`find_unwritten_sector`).

A batch that was synced but not yet recorded as flushed, and then lost a whole sector to zeros, is taken for a torn one;
so recovery points are recorded often (`log.flush.offset.checkpoint.interval.ms`).

Why a later segment after a torn one is no damage: `Log.flush` syncs a sealed segment and records the flushed end before
it reports anything of the next segment as flushed. So beyond the recorded flushed end, nothing in a later segment has
been acknowledged unless the earlier ones are whole.

A damaged log is readable up to the damage; nothing in it is changed.
"""

import logging
import os
from dataclasses import dataclass, field

from kraftlog.logstore.batches import (
    find_unwritten_sector,
    find_valid_batch,
    is_zero,
    scan_batches,
    starts_in_unwritten_sector,
)
from kraftlog.logstore.checkpoints import read_epoch_checkpoint
from kraftlog.logstore.epochs import EpochEntries, LeaderEpochCache
from kraftlog.logstore.filesystem import TEMPORARY_SUFFIX, FileSystem, unlink_if_exists
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.layout import (
    DELETED_FILE_SUFFIX,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
)
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.producer_state import ProducerStateManager
from kraftlog.logstore.replay import apply_to_producers, replay_epochs, replay_producers
from kraftlog.logstore.segment import Segment
from kraftlog.logstore.snapshot_store import SnapshotStore
from kraftlog.logstore.swaps import complete_swaps
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import BatchHeader

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLog:
    """What `Log` is made of. The last segment grows, all others are sealed."""

    segments: list[Segment]
    log_end_offset: int
    snapshots: SnapshotStore
    producers: ProducerStateManager = field(default_factory=ProducerStateManager)
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    saved_epochs: EpochEntries | None = None
    """What the epoch checkpoint holds; None if that is nothing sound."""
    unsynced: list[Segment] = field(default_factory=list)
    """Sealed segments that recovery went through: to be synced before the next one counts as flushed."""
    needs_sync: bool = False
    """Recovery changed files, or found data beyond the recovery point."""
    was_recovered: bool = False
    """The files were not taken as they are, but checked from the recovery point on."""
    checked_bytes: int = 0
    cut_bytes: int = 0
    """See `observer.Recovery`."""
    damage: CorruptRecordError | None = None


def load_log(
    fs: FileSystem,
    directory: str,
    *,
    index_interval: int,
    recovery_point: int,
    log_start_offset: int,
    is_clean: bool,
    open_segments: OpenSegments,
    is_settled: bool = True,
) -> LoadedLog:
    """Load the log in an existing directory. Raises `OSError`; damage is in the result.

    `is_settled`: false if a first segment need not be durable (`Log.settle`).
    """
    # Where records below the recovery point have all been deleted since, none of them can be missing.
    required_end = recovery_point if recovery_point > log_start_offset else 0
    if set(fs.listdir(directory)) <= {PARTITION_METADATA_FILE}:  # new: there is nothing to look at
        segment = Segment.create(fs, directory, log_start_offset, index_interval, open_segments)
        if is_settled:
            fs.fsync_dir(directory)
        return _start_empty(directory, SnapshotStore(fs, directory, ()), segment, required_end)
    complete_swaps(fs, directory)
    _remove_leftovers(fs, directory)
    segments = _find_segments(fs, directory, index_interval, open_segments)
    snapshots = SnapshotStore(fs, directory)
    if not segments:
        snapshots.remove_above(-1)
        fs.fsync_dir(directory)  # before there is a segment that they would seem to belong to
        segment = Segment.create(fs, directory, log_start_offset, index_interval, open_segments)
        if is_settled:
            fs.fsync_dir(directory)
        return _start_empty(directory, snapshots, segment, required_end)
    loaded = LoadedLog(segments, segments[0].base_offset, snapshots)
    _load_epochs(loaded, fs, directory)
    if not (is_clean and _load_clean(loaded, required_end)):
        _Recovery(loaded, fs, directory, recovery_point, log_start_offset, required_end).run()
    snapshots.retain({segment.base_offset for segment in loaded.segments})
    return loaded


def _start_empty(directory: str, snapshots: SnapshotStore, segment: Segment, required_end: int) -> LoadedLog:
    start_offset = segment.base_offset
    loaded = LoadedLog([segment], start_offset, snapshots)
    if required_end:
        loaded.damage = _damage(segment, 0, start_offset, directory, f"offsets up to {required_end} were synced")
    return loaded


def _remove_leftovers(fs: FileSystem, directory: str) -> None:
    """What a crash left of unfinished work, and indexes without their segment."""
    names = fs.listdir(directory)
    for name in names:
        parsed = parse_segment_file(name)
        if parsed is not None:
            base_offset, suffix = parsed
            useless = suffix not in (LOG_SUFFIX, SNAPSHOT_SUFFIX) and f"{base_offset:020d}{LOG_SUFFIX}" not in names
        else:
            useless = name.endswith((TEMPORARY_SUFFIX, DELETED_FILE_SUFFIX))
        if useless:
            logger.info("removing the leftover file %s", os.path.join(directory, name))
            unlink_if_exists(fs, os.path.join(directory, name))


def _find_segments(fs: FileSystem, directory: str, index_interval: int, open_segments: OpenSegments) -> list[Segment]:
    segments = []
    for name in fs.listdir(directory):
        parsed = parse_segment_file(name)
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            size = fs.size(os.path.join(directory, name)) or 0
            segments.append(Segment(fs, directory, parsed[0], size, index_interval, open_segments))
    return segments


def _load_epochs(loaded: LoadedLog, fs: FileSystem, directory: str) -> None:
    """From the checkpoint; if it is no help, `replay_epochs` is."""
    entries = read_epoch_checkpoint(fs, os.path.join(directory, LEADER_EPOCH_FILE))
    if entries is not None:
        loaded.epochs = LeaderEpochCache(entries)
        loaded.saved_epochs = loaded.epochs.entries
        loaded.epochs.advance_start(loaded.segments[0].base_offset)


def _load_clean(loaded: LoadedLog, required_end: int) -> bool:
    """Take the files as a clean stop left them; False if they are not like that."""
    last = loaded.segments[-1]
    end_position, end_offset = last.end()
    if end_position != last.size_bytes or end_offset < required_end:
        logger.warning("%s is not as a clean stop leaves it: recovering the log", last.path(LOG_SUFFIX))
        return False
    loaded.log_end_offset = end_offset
    try:
        _replay(loaded, loaded.snapshots.load_latest(end_offset, loaded.producers), loaded.segments)
    except CorruptRecordError as e:
        logger.warning("recovering a log that was stopped cleanly: %s", e)
        return False
    replay_epochs(loaded.epochs, loaded.segments)
    loaded.epochs.truncate_to(end_offset + 1)  # an epoch without batches may start at the end
    last.unseal()
    return True


def _replay(loaded: LoadedLog, from_offset: int | None, segments: list[Segment]) -> None:
    """Bring producer state from a snapshot at `from_offset` (None: from nothing) to the end of `segments`."""
    start = -1 if from_offset is None else from_offset
    for number, segment in enumerate(segments):
        if number + 1 == len(segments) or segments[number + 1].base_offset > start:
            replay_producers(loaded.producers, segment, max(start, segment.base_offset))


def _damage(segment: Segment, position: int, offset: int, directory: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"{segment.path(LOG_SUFFIX)}: no valid batch at position {position} (offset {offset}), but {reason}; fetch the "
        f"partition from another replica, or stop the node and run: kraftctl log repair {directory}"
    )


class _Recovery:
    """One pass over the segments from the recovery point on. Invariant: `_end_offset` is where the valid log ends."""

    def __init__(
        self,
        loaded: LoadedLog,
        fs: FileSystem,
        directory: str,
        recovery_point: int,
        log_start_offset: int,
        required_end: int,
    ) -> None:
        self._loaded = loaded
        self._fs = fs
        self._directory = directory
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._required_end = required_end
        self._end_offset = 0

    def run(self) -> None:
        loaded = self._loaded
        loaded.was_recovered = True
        # The segment that holds the last synced record: its data are safe, but it may have been sealed after that.
        first = max((n for n, s in enumerate(loaded.segments) if s.base_offset < self._recovery_point), default=0)
        try:
            self._start_at(first)
        except CorruptRecordError as e:
            logger.error("checking all of %s, because what was synced long ago is damaged: %s", self._directory, e)
            first = 0
            self._start_at(first)
        for number in range(first, len(loaded.segments)):
            segment = loaded.segments[number]
            base_offset = segment.base_offset
            if base_offset != self._end_offset:
                lies_in_deleted = self._end_offset < base_offset <= self._log_start_offset
                if base_offset > self._recovery_point and not lies_in_deleted:
                    self._drop_from(number)
                    break
                self._end_offset = base_offset  # made on purpose and recorded (`Log._jump_to`), or nothing to be seen
            if number > first:
                self._pass_boundary(loaded.segments[number - 1])
            if not self._recover(segment):
                del loaded.segments[number + 1 :]
                break
        last = loaded.segments[-1]
        if loaded.damage is None and self._end_offset < self._required_end:
            self._mark_damaged(last, last.size_bytes, f"offsets up to {self._required_end} were synced")
        loaded.log_end_offset = self._end_offset
        loaded.needs_sync |= self._end_offset != self._recovery_point
        # For good: what was removed here, or cut off before by a process that was killed, might else be back with the next
        # power loss.
        if loaded.damage is None:
            last.sync_data()
        self._fs.fsync_dir(self._directory)

    def _start_at(self, number: int) -> None:
        """Bring epochs and producers to the start of a segment. `CorruptRecordError`: batches before it make no sense."""
        loaded = self._loaded
        start_offset = self._end_offset = loaded.segments[number].base_offset
        loaded.epochs.truncate_to(start_offset)
        replay_epochs(loaded.epochs, loaded.segments[:number])
        synced = {s.base_offset for s in loaded.segments if s.base_offset <= self._recovery_point}
        loaded.snapshots.remove_above(start_offset, synced)
        _replay(loaded, loaded.snapshots.load_latest(start_offset, loaded.producers), loaded.segments[:number])

    def _pass_boundary(self, sealed: Segment) -> None:
        """The snapshot where the next segment begins may be there already, and know of producers whose records are deleted.

        At or below the recovery point it speaks of what was synced, and is sound or makes no sense at all.
        """
        loaded, end_offset = self._loaded, self._end_offset
        sealed.seal()
        loaded.unsynced.append(sealed)
        known = loaded.snapshots.read(end_offset) if end_offset <= self._recovery_point else None
        if known is None:
            loaded.snapshots.write(end_offset, loaded.producers)
        else:
            loaded.producers.restore(known)

    def _recover(self, segment: Segment) -> bool:
        """Check one segment and make its indexes; False if it is damaged."""
        loaded, size, end_position = self._loaded, segment.size_bytes, 0
        highest_offset = segment.base_offset + MAX_RELATIVE_OFFSET
        loaded.checked_bytes += size
        segment.grow_from_scratch()
        misplaced: BatchHeader | None = None
        for position, header, batch in scan_batches(segment.file, 0, size):
            if not self._end_offset <= header.base_offset <= header.last_offset <= highest_offset:
                misplaced = header
                break
            segment.note_batch(position, header, header.last_offset)
            aborted = apply_to_producers(loaded.producers, header, header.base_offset, batch)
            if aborted is not None:
                segment.indexes.aborted.append(aborted)
            loaded.epochs.assign(header.leader_epoch, self._end_offset)  # as `append_as_follower` has it
            self._end_offset = header.next_offset
            end_position = position + header.size_bytes
        if end_position == size:
            return True
        reason = self._find_damage(segment, end_position, size, misplaced)
        if reason is not None:
            return self._mark_damaged(segment, end_position, reason)
        self._cut_tail(segment, end_position, size)
        return True

    def _find_damage(self, segment: Segment, position: int, size: int, misplaced: BatchHeader | None) -> str | None:
        """Why what is at `position` is no torn tail; None if it may be cut.

        `misplaced`: the batch there, if it is sound in itself, but its offset is not right.
        """
        file, end_offset = segment.file, self._end_offset
        if misplaced is not None and (
            misplaced.base_offset >= end_offset or not starts_in_unwritten_sector(file, position)
        ):
            return f"one with offset {misplaced.base_offset} is there"
        if end_offset < self._required_end:
            return f"offsets up to {self._required_end} were synced"
        if misplaced is not None or is_zero(file, position, size):
            return None
        following = find_valid_batch(file, position, size, end_offset)
        if following is None or find_unwritten_sector(file, position, following, end_offset) is not None:
            return None
        return f"a valid batch follows at position {following}"

    def _cut_tail(self, segment: Segment, position: int, size: int) -> None:
        if not is_zero(segment.file, position, size):
            logger.warning(
                "%s: cutting the torn tail of %d bytes at position %d, offset %d",
                segment.path(LOG_SUFFIX),
                size - position,
                position,
                self._end_offset,
            )
            self._loaded.cut_bytes += size - position
        segment.cut_file(position)
        self._loaded.needs_sync = True

    def _drop_from(self, number: int) -> None:
        """Remove segments that continue something lost: nobody was told that they are safe (see the module). Or that
        begin within what is there: the log was about to start over, and has not.
        """
        for segment in reversed(self._loaded.segments[number:]):
            logger.warning(
                "%s: removed, because the log ends at offset %d: records in between were never synced, or a cut not done",
                segment.path(LOG_SUFFIX),
                self._end_offset,
            )
            self._loaded.cut_bytes += segment.size_bytes
            segment.delete_files()
        del self._loaded.segments[number:]
        self._loaded.needs_sync = True

    def _mark_damaged(self, segment: Segment, position: int, reason: str) -> bool:
        segment.size_bytes = position
        self._loaded.damage = _damage(segment, position, self._end_offset, self._directory, reason)
        return False
