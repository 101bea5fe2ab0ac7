"""What happens to whole segments of a log: new ones are started, old ones go, others are replaced by compacted ones.

The segments are one tuple that only the log's writer replaces. Slow work on files (looking at many segments, deleting,
cleaning) runs in any thread on what was planned; the writer's step is short and first checks that the plan still holds.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence

from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.errors import is_disk_full, is_out_of_descriptors, storage_error
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.logstore.layout import CLEANED_FILE_SUFFIX, LOG_SUFFIX, SWAP_FILE_SUFFIX
from kraftlog.logstore.observer import LogObserver
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.producer_state import ProducerEntry
from kraftlog.logstore.reading import ReadableLog, Segments, segment_number
from kraftlog.logstore.retention import RetentionPlan, expired
from kraftlog.logstore.segment import Segment, TornAppendError
from kraftlog.logstore.snapshot_store import SnapshotStore
from kraftlog.logstore.swaps import finish_swap
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, OffsetOutOfRangeError, StorageError

logger = logging.getLogger(__name__)


class SegmentedLog(ReadableLog, ABC):
    """See the module. The attributes are set when the log is loaded (`Log`)."""

    config: LogConfig
    observer: LogObserver
    failure: StorageError | None
    damage: CorruptRecordError | None
    truncations: int
    """How often the end was cut. What was planned before such a cut is void."""
    _fs: FileSystem
    _open_segments: OpenSegments
    _snapshots: SnapshotStore
    _deletion_lock: threading.Lock
    """Held while files of detached or replaced segments are removed or renamed: not by name, once the log is closed and
    may be replaced. Taken after the flush lock."""
    _unsynced: deque[tuple[Segment, int]]
    """Sealed segments that are not synced, oldest first, each with the offset after it."""
    _swapped: deque[tuple[Segment, Segments]]
    """Compacted segments that count already, each with those that it replaces: see `finish_replacements`."""
    _active_since_ms: int
    _loaded_base_offset: int
    _is_closed: bool

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # Starting a segment.

    def roll(self, now_ms: int | None = None) -> bool:
        """Start a new segment at the log's end; False if the growing one is empty. Nothing is synced."""
        self._check_writable()
        if not self._active.size_bytes:
            return False
        self._start_segment(self.log_end_offset)
        if now_ms is not None:
            self._active_since_ms = now_ms
        return True

    def _start_segment(self, base_offset: int) -> None:
        """All or nothing: after an error the old segment goes on."""
        sealed, path = self._active, self.directory
        try:
            self._snapshots.write(base_offset, self.producers)
            segment = self._new_segment(base_offset)
            try:
                sealed.seal()
            except OSError:
                segment.delete_files()
                self._fs.fsync_dir(path)  # the log goes on beyond it: with a power loss it must not be back
                raise
        except OSError as e:
            raise self._failed("start a new segment in", path, e) from e
        self._unsynced.append(
            (sealed, base_offset)
        )  # before the segments change: a flush that sees the new one sees this
        self._segments = (*self._segments, segment)
        self._snapshots.retain({s.base_offset for s in self._segments})
        self.observer.on_roll(self.topic, self.partition, base_offset)

    def _new_segment(self, base_offset: int, name_end: str = "") -> Segment:
        interval_bytes = self.config.index_interval_bytes
        return Segment.create(
            self._fs, self.directory, base_offset, interval_bytes, self._open_segments, name_end=name_end
        )

    def _age_ms(self, timestamp: int, now_ms: int) -> int:
        """Age of the growing segment at a batch of that timestamp: by its first batch's, else by the clock (as Kafka)."""
        first = self._active.first_timestamp()
        return timestamp - first if first is not None and first >= 0 else now_ms - self._active_since_ms

    # Deleting.

    def advance_log_start_offset(self, offset: int) -> bool:
        """Records below `offset` are gone for readers; their segments go with retention. False if they were already.

        Only in memory. For a start that no power loss takes back, have it recorded first: `LogDir.record_log_starts`.
        """
        if offset <= self.log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self.name}: cannot delete up to {offset}, the log ends at {self.log_end_offset}"
            )
        self.log_start_offset = offset
        self.epochs.advance_start(offset)
        return True

    # Retention: plan (any thread), begin (writer), flush and record the new start (any thread), detach (writer), delete.

    def plan_retention(self, *, now_ms: int, high_watermark: int) -> RetentionPlan | None:
        """What should go or be rolled now; None: nothing, or the log takes no changes. Any thread; reads files."""
        if self.failure is not None or self.damage is not None or self._is_closed:
            return None

        def look(segments: Segments, log_end_offset: int) -> RetentionPlan | None:
            reasons = expired(
                segments,
                log_start_offset=self.log_start_offset,
                log_end_offset=log_end_offset,
                high_watermark=high_watermark,
                config=self.config,
                now_ms=now_ms,
            )
            count = len(reasons)
            all_go = count == len(segments)
            start_offset = log_end_offset if all_go else segments[count].base_offset
            rolls = all_go or self._has_outlived_segment_ms(segments[-1], now_ms)
            if not count and not rolls:
                return None
            return RetentionPlan(segments[:count], tuple(reasons), start_offset, rolls, log_end_offset)

        return self._look(look)

    def _has_outlived_segment_ms(self, active: Segment, now_ms: int) -> bool:
        """Whether the growing segment is old enough to be sealed although nothing is appended.

        Its age counts by the clock, from its first append by this process; for a segment that was loaded, from its first
        record, if that has a sensible timestamp.
        """
        if not active.size_bytes:
            return False
        since_ms = self._active_since_ms
        if active.base_offset == self._loaded_base_offset:
            first = active.first_timestamp()
            if first is not None and 0 <= first < since_ms:
                since_ms = first
        return now_ms - since_ms > self.config.roll_ms

    def begin_retention(self, plan: RetentionPlan, now_ms: int) -> bool:
        """Roll if the plan needs it; False if the log was appended to or cut meanwhile, so that the plan is void."""
        if not plan.rolls:
            return True
        if self.log_end_offset != plan.log_end_offset:
            return False
        self.roll(now_ms)
        return True

    def needs_flush_before_deletion(self, plan: RetentionPlan) -> bool:
        """Whether a segment of the plan is not synced, or that is not recorded, as after a start on a full disk.

        It must be: recovery begins at the recovery point, and what lies between that and the log's start must be there.
        """
        unsynced = {segment for segment, _ in tuple(self._unsynced)}
        return not unsynced.isdisjoint(plan.segments) or self._synced_end() < plan.start_offset

    @abstractmethod
    def _synced_end(self) -> int:
        """Up to where the log is on disk by what is recorded there."""

    def detach(self, plan: RetentionPlan) -> bool:
        """Let the log start without the plan's segments, in memory; False (and nothing happens) if the plan is void.

        The new start must have been recorded: else a power loss that undoes the deletion brings the segments' records back,
        which is only for where nothing but the deletion makes room to record it. `delete_detached` comes next.
        """
        count = len(plan.segments)
        if (
            not count
            or count >= len(self._segments)
            or self._segments[:count] != plan.segments
            or self.needs_flush_before_deletion(plan)
        ):
            return False
        # The start first: a reader that meets the new segments must know that what lies before them is gone.
        if plan.start_offset > self.log_start_offset:
            self.log_start_offset = plan.start_offset
            self.epochs.advance_start(plan.start_offset)
        self._segments = self._segments[count:]
        self._snapshots.forget_below(plan.start_offset)
        return True

    def delete_detached(self, plan: RetentionPlan) -> None:
        """Remove the files of detached segments, oldest first, durably. Any thread; slow.

        What a crash leaves of them lies below the log start offset and goes with the next retention. Raises
        `StorageError`.
        """
        with self._deletion_lock:
            if self._is_closed:
                return
            try:
                for segment in plan.segments:
                    segment.delete_files()
                    self._snapshots.delete_forgotten(segment.base_offset)
                self._fs.fsync_dir(self.directory)
            except OSError as e:
                raise self._failed("delete segments in", self.directory, e) from e
        for deletion in plan.deletions():
            self.observer.on_deletion(self.topic, self.partition, deletion)

    # Compaction.

    def sealed_segments(self, end_offset: int) -> list[tuple[Segment, int]]:
        """Segments that grow no more and end at or below `end_offset`, each with the offset where the next begins.

        Any thread may read them; they change only under `truncations`, and go only from the front.
        """
        segments = self._segments
        ends = (following.base_offset for following in segments[1:])
        return [(segment, end) for segment, end in zip(segments[:-1], ends, strict=True) if end <= end_offset]

    def replace_segments(self, replaced: Sequence[Segment], segment: Segment, truncations: int) -> bool:
        """Let a compacted segment (`.cleaned`, sealed and synced) stand for consecutive ones; see `swaps`.

        False, and nothing has happened: the log was cut since `truncations`, or they are not there any more, or not
        synced. Readers see it at once; `finish_replacements` must follow, in another thread. Raises `StorageError`.
        """
        self._check_writable()
        segments, count = self._segments, len(replaced)
        first = segment_number(segments, segment.base_offset)
        unsynced = {entry[0] for entry in self._unsynced}
        if (
            self.truncations != truncations
            or segments[first : first + count] != tuple(replaced)
            or first + count >= len(segments)
            or not unsynced.isdisjoint(replaced)
        ):
            return False
        try:
            segment.rename_files(SWAP_FILE_SUFFIX, (LOG_SUFFIX,))
        except OSError as e:
            raise self._failed("replace segments in", self.directory, e) from e
        self._swapped.append((segment, tuple(replaced)))
        self._segments = (*segments[:first], segment, *segments[first + count :])
        for old in replaced:
            old.retire()
        self._snapshots.retain({s.base_offset for s in self._segments})
        return True

    def finish_replacements(self) -> None:
        """Make what `replace_segments` did durable and delete the replaced segments. Any thread. Raises `StorageError`."""
        try:
            self._finish_swaps()
        except OSError as e:
            raise self._failed("replace segments in", self.directory, e) from e

    def producers_at(self, base_offset: int) -> list[ProducerEntry] | None:
        """What the log knew of producers where a segment begins; None if that is lost. Any thread. Raises `OSError`."""
        return self._snapshots.read(base_offset)

    def new_cleaned_segment(self, base_offset: int) -> Segment:
        """An empty segment for the cleaner to fill, seal, sync and hand to `replace_segments`. Raises `OSError`."""
        return self._new_segment(base_offset, CLEANED_FILE_SUFFIX)

    def sync_directory(self) -> None:
        """Make the names of new files durable. Raises `OSError`."""
        self._fs.fsync_dir(self.directory)

    def _finish_swaps(self) -> None:
        with self._deletion_lock:
            while self._swapped and self.failure is None and not self._is_closed:  # else loading completes them
                finish_swap(self._fs, self.directory, *self._swapped[0])
                self._swapped.popleft()

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise StorageError(f"{self.name} takes no more writes until the node restarts: {self.failure}")
        if self.damage is not None:
            raise CorruptRecordError(str(self.damage))
        if self._is_closed:
            raise IllegalStateError(f"{self.name} is closed")

    def _unreadable(self, error: OSError) -> StorageError:
        """As Kafka: a disk that cannot be read is not to be written either. What can be read of the log still is.

        Unlike there, a process without descriptors only fails the read.
        """
        if self._is_closed or is_out_of_descriptors(error):
            return storage_error("read", self.directory, error)
        return self._failed("read", self.directory, error)

    def _failed(self, doing: str, path: str, error: OSError) -> StorageError:
        """The error to raise; unless the disk is only full, the log is done for."""
        failure = storage_error(doing, path, error)
        if not is_disk_full(error) or isinstance(error, TornAppendError):
            self.failure = failure
            logger.error("%s has failed: %s", self.name, failure)
        return failure
