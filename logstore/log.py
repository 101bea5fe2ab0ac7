"""`Log`: one partition's log on disk.

One writer, the node's event loop, calls everything except `flush` and `read`, which may run in other threads at the
same time. Offsets: `log_start_offset` <= `flushed_end_offset` <= `log_end_offset`, ends exclusive.

The order of effects that recovery relies on (`recovery`):
- an append is visible (`log_end_offset`) when its bytes are in the file; it is durable when `flush` has returned;
- a roll creates the next segment before it seals the last one; neither is synced;
- `flush` syncs sealed segments (log, indexes, snapshot), then the directory, then has the flushed end recorded, and only
  then syncs the growing segment and reports its data as flushed;
- a truncation has the recorded flushed end lowered before it touches a file, and is durable when it returns;
- a deletion at the front is seen by nobody before the new log start offset is recorded (`retention`).

A failed fsync, or any failed write but for a full disk, ends the log's life as a writer: every later append and flush
raises `StorageError`. What was not synced must be taken as lost, so nothing is retried into success.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from kraftlog.logstore.append import Placement, check_leader_append, place_as_follower, place_as_leader
from kraftlog.logstore.checkpoints import write_epoch_checkpoint
from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.errors import DiskFullError, is_disk_full, storage_error, storage_errors
from kraftlog.logstore.filesystem import FileSystem, remove_flat_directory
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.layout import CLEANED_FILE_SUFFIX, LEADER_EPOCH_FILE, LOG_SUFFIX, SWAP_FILE_SUFFIX
from kraftlog.logstore.observer import SILENT, LogObserver, Recovery
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.reading import ReadableLog, Segments, segment_number
from kraftlog.logstore.recovery import LoadedLog, load_log
from kraftlog.logstore.replay import apply_to_producers, replay_producers
from kraftlog.logstore.retention import RetentionPlan, expired
from kraftlog.logstore.segment import Segment, TornAppendError
from kraftlog.logstore.swaps import finish_swap
from kraftlog.proto.errors import CorruptRecordError, IllegalStateError, OffsetOutOfRangeError, StorageError
from kraftlog.proto.records import BatchHeader, TimestampType, validate_batches
from kraftlog.proto.seams import Buffer

logger = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """Where records went. For a repeated batch: where they went the first time, with `is_duplicate`."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless message.timestamp.type=LogAppendTime."""
    log_start_offset: int
    size_bytes: int
    record_count: int
    is_duplicate: bool = False


class RecoveryPoints(Protocol):
    """Keeps the flushed ends of logs on disk: the recovery points. Safe from any thread."""

    def advance(self) -> None:
        """Record the flushed ends as they are. Raises `OSError`."""
        ...

    def retreat(self, log: "Log") -> None:
        """The log is about to be cut: see to it that no offset on disk is beyond what it says by now."""
        ...


class Log(ReadableLog):
    """See the module. `failure` and `damage` say why the log takes no more appends."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        *,
        topic: str,
        partition: int,
        config: LogConfig,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        is_clean: bool = False,
        recovery_points: RecoveryPoints | None = None,
        observer: LogObserver = SILENT,
        open_segments: OpenSegments | None = None,
    ) -> None:
        """Load the log of an existing directory (an empty one gives an empty log) and recover it unless `is_clean`.

        What recovery had to touch is synced when this returns. A damaged log loads too: see `damage`.
        """
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.config = config
        self.failure: StorageError | None = None
        self._fs = fs
        self._recovery_points = recovery_points
        self.observer = observer
        self._open_segments = open_segments or OpenSegments()
        self._flush_lock = threading.Lock()
        """Held by a running flush, and by what changes files that a flush may be syncing."""
        self._deletion_lock = threading.Lock()
        """Held while files of detached or replaced segments are removed or renamed: not by name, once the log is closed
        and may be replaced. Taken after the flush lock."""
        self._is_closed = False
        began = observer.seconds()
        with storage_errors("load", directory):
            loaded = load_log(
                fs,
                directory,
                index_interval=config.index_interval_bytes,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                is_clean=is_clean,
                open_segments=self._open_segments,
            )
        self.damage: CorruptRecordError | None = loaded.damage
        self._segments = tuple(loaded.segments)
        self._unsynced: deque[tuple[Segment, int]] = deque(
            (segment, following.base_offset)
            for segment, following in zip(self._segments, self._segments[1:], strict=False)
            if segment in loaded.unsynced
        )
        """Sealed segments that are not synced, oldest first, each with the offset after it."""
        self._swapped: deque[tuple[Segment, Segments]] = deque()
        """Compacted segments that count already, each with those that it replaces: see `finish_replacements`."""
        self.truncations = 0
        """How often the end was cut. What was planned before such a cut is void."""
        self._snapshots = loaded.snapshots
        self.producers = loaded.producers
        self.producers.see_all(now_ms)
        self.epochs = loaded.epochs
        self._saved_epochs = loaded.epochs.entries if loaded.epochs.entries == loaded.saved_epochs else None
        self._active_since_ms = now_ms
        self._loaded_base_offset = self._active.base_offset if self._active.size_bytes else -1
        self.log_end_offset = loaded.log_end_offset
        self.log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self.epochs.advance_start(self.log_start_offset)
        self.flushed_end_offset = self.log_end_offset
        self._recorded_end = recovery_point
        self._make_sound(loaded)
        if loaded.was_recovered:
            seconds = observer.seconds() - began
            recovery = Recovery(seconds, loaded.checked_bytes, loaded.cut_bytes, self.damage is not None)
            observer.on_recovery(topic, partition, recovery)

    def _make_sound(self, loaded: LoadedLog) -> None:
        """Sync what recovery changed."""
        if self.damage is not None:
            return
        if self.log_end_offset < self.log_start_offset:
            self._go_on_at_start()
        elif loaded.needs_sync or self._unsynced:
            self.flushed_end_offset = min(self._recorded_end, self.log_end_offset)
            self.flush()

    def _go_on_at_start(self) -> None:
        """A power loss took records that had been deleted anyway. What is left of the others goes with retention.

        Kafka empties the log here, and so forgets the producers of records that were flushed.
        """
        start_offset = self.log_start_offset
        self.flushed_end_offset = min(self._recorded_end, self.log_end_offset)
        try:
            self._jump_to(start_offset)
        except DiskFullError:
            self.truncate_fully_and_start_at(start_offset)

    @property
    def recovery_point(self) -> int:
        """What to record on disk as flushed: for a damaged log what was recorded before, so that it stays damaged."""
        return self.flushed_end_offset if self.damage is None else self._recorded_end

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    # Appending.

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        batches: list[tuple[int, BatchHeader]] | None = None,
        allow_control: bool = False,
    ) -> AppendInfo:
        """Check batches, give them offsets and write them as one unit; all or nothing.

        `batches`: what `validate_batches` returned for `records`, if the caller has it already. `allow_control` admits
        control batches (from coordinators, not from clients). Repeated batches of an idempotent producer are not
        written again; the answer holds their first offsets.

        Raises what `validate_batches` raises, `RecordListTooLargeError`, `InvalidRecordError`, `InvalidTimestampError`,
        `OutOfOrderSequenceNumberError`, `InvalidProducerEpochError`, `InvalidTxnStateError`; `StorageError` if the disk
        is full (the log is unchanged and goes on) or has failed.
        """
        self._check_writable()
        config = self.config
        self.producers.now_ms = now_ms
        if batches is None:
            batches = validate_batches(
                records,
                max_batch_bytes=config.max_message_bytes,
                full=config.validate_records_fully,
                allow_control=allow_control,
                require_keys=config.is_compacted and not allow_control,
            )
        headers = [header for _, header in batches]
        check_leader_append(config, headers, now_ms, self.name)
        duplicates = self.producers.check(headers)
        append_time = now_ms if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else None
        if duplicates:
            stamped = -1 if append_time is None else duplicates[0].timestamp
            first, last = duplicates[0].first_offset, duplicates[-1].last_offset
            return AppendInfo(first, last, stamped, self.log_start_offset, len(records), last - first + 1, True)
        placement = place_as_leader(
            records,
            batches,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            append_time_ms=append_time,
        )
        self._write(placement, now_ms)
        self.epochs.assign(leader_epoch, placement.first_offset)
        return AppendInfo(
            placement.first_offset,
            placement.last_offset,
            -1 if append_time is None else append_time,
            self.log_start_offset,
            placement.size_bytes,
            placement.record_count,
        )

    def append_as_follower(self, records: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        """Write a leader's batches as they are: offsets, epochs, bytes. CRCs are checked first, of all of them.

        `now_ms`: for the age of idle segments and producers; without it the batches' timestamps stand in.

        Raises `CorruptRecordError` for a bad batch or one that starts below the log's end, `StorageError` as
        `append_as_leader`; the batches before a full disk are kept.
        """
        self._check_writable()
        placements = place_as_follower(records, self.log_end_offset, self.name)
        for placement in placements:
            header = placement.batches[0][0]
            if now_ms is not None:
                self.producers.now_ms = now_ms
            self._write(placement, header.max_timestamp if now_ms is None else now_ms)
            self.epochs.assign(header.leader_epoch, header.base_offset)
        return AppendInfo(
            placements[0].first_offset,
            placements[-1].last_offset,
            -1,
            self.log_start_offset,
            sum(placement.size_bytes for placement in placements),
            sum(placement.record_count for placement in placements),
        )

    def assign_epoch(self, leader_epoch: int) -> None:
        """This node leads from now on: the epoch starts at the log's end (before it has a batch)."""
        self.epochs.assign(leader_epoch, self.log_end_offset)

    def _write(self, placement: Placement, now_ms: int) -> None:
        segment = self._segment_for(placement, now_ms)
        if not segment.size_bytes:
            self._active_since_ms = now_ms
        try:
            position = segment.append(placement.buffers, placement.size_bytes)
        except OSError as e:
            raise self._failed("append to", segment.path(LOG_SUFFIX), e) from e
        for header, last_offset, batch in placement.batches:
            segment.note_batch(position, header, last_offset)
            position += header.size_bytes
            if header.producer_id >= 0:
                first_offset = last_offset - header.last_offset_delta
                aborted = apply_to_producers(self.producers, header, first_offset, batch)
                if aborted is not None:
                    segment.indexes.aborted.append(aborted)
        self.log_end_offset = placement.last_offset + 1
        self.observer.on_append(
            self.topic, self.partition, len(placement.batches), placement.record_count, placement.size_bytes
        )

    def _segment_for(self, placement: Placement, now_ms: int) -> Segment:
        """The growing segment, after a roll if these batches do not belong in it."""
        active, config = self._active, self.config
        if placement.last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
            if placement.last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET or not active.size_bytes:
                self._jump_to(placement.first_offset)
            else:
                self.roll(now_ms)
        elif active.size_bytes and (
            active.size_bytes + placement.size_bytes > config.segment_bytes
            or not active.indexes.has_room(config.segment_index_bytes)
            or self._age_ms(placement.batches[0][0].max_timestamp, now_ms) > config.roll_ms
        ):
            self.roll(now_ms)
        return self._active

    def _age_ms(self, timestamp: int, now_ms: int) -> int:
        """Age of the growing segment at a batch of that timestamp: by its first batch's, else by the clock (as Kafka)."""
        first = self._active.first_timestamp()
        return timestamp - first if first is not None and first >= 0 else now_ms - self._active_since_ms

    # Segments.

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

    def _jump_to(self, offset: int) -> None:
        """Let the log go on at an offset beyond its end, in a segment of its own.

        Recovery takes a gap before a segment for a loss, unless the segment starts at or below the recovery point; so
        everything is synced and recorded here, which is slow and rare (a gap of 2^31, a truncation into a gap).
        """
        self.flush()
        self._start_segment(offset)
        self.log_end_offset = offset
        self.flush()

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on, durably; a batch that holds `offset` goes as a whole. False: nothing to do.

        The log then ends at `offset`, or at the start of that batch.
        """
        self._check_writable()
        if offset >= self.log_end_offset:
            return False
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        number = segment_number(self._segments, offset)
        with self._flush_lock, self._truncating():
            active = self._segments[number]
            position = active.position_of(offset)
            batch_start = active.base_offset_at(position)
            end_offset = offset if batch_start is None else max(min(offset, batch_start), self.log_start_offset)
            _, data_end = active.end(before=position)  # not past it: the recorded end promises records
            self._announce_end(min(self.flushed_end_offset, data_end))
            self._keep_segments(number + 1)
            active.unseal()
            active.truncate_to_position(position)
            self._finish_truncation(end_offset)
        if active.end()[1] < end_offset:
            self._jump_to(end_offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything, durably; the log is empty and starts and ends at `offset`."""
        self._check_writable()
        with self._flush_lock, self._truncating():
            self.log_start_offset = min(self.log_start_offset, offset)
            self._announce_end(0)
            self._keep_segments(0)
            self._snapshots.remove_above(-1)
            self._segments = (self._new_segment(offset),)
            self.epochs.clear()
            self._finish_truncation(offset)
            self.flushed_end_offset = self.log_start_offset = offset

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
        """Whether a segment of the plan is not synced. It must be: the recovery point lies at or below its end."""
        unsynced = {segment for segment, _ in tuple(self._unsynced)}
        return not unsynced.isdisjoint(plan.segments)

    def detach(self, plan: RetentionPlan) -> bool:
        """Let the log start without the plan's segments, in memory; False (and nothing happens) if the plan is void.

        The new start must have been recorded. `delete_detached` comes next.
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

    def _announce_end(self, flushed_end_offset: int) -> None:
        self.flushed_end_offset = flushed_end_offset
        if self._recovery_points is not None:
            self._recovery_points.retreat(self)

    @contextmanager
    def _truncating(self) -> Iterator[None]:
        """An error in between leaves files that no longer are what this object says: the log has failed."""
        self.truncations += 1
        try:
            self._finish_swaps()
            yield
        except OSError as e:
            self.failure = storage_error("truncate", self.directory, e)
            raise self.failure from e
        except CorruptRecordError as e:  # what is left holds no sense from which to make producer state
            self.failure = StorageError(str(e))
            raise

    def _keep_segments(self, count: int) -> None:
        """Delete the others, last first, so that a crash leaves a log that merely ends earlier."""
        kept, dropped = self._segments[:count], self._segments[count:]
        sealed = set(kept[:-1])
        self._unsynced = deque(entry for entry in self._unsynced if entry[0] in sealed)
        self._segments = kept
        for segment in reversed(dropped):
            segment.delete_files()

    def _finish_truncation(self, end_offset: int) -> None:
        self._snapshots.remove_above(end_offset)
        self._fs.fsync_dir(self.directory)
        self._active.sync_data()
        self.log_end_offset = end_offset
        self.epochs.truncate_to(end_offset)
        start = self._snapshots.load_latest(end_offset, self.producers)
        for segment in self._segments[segment_number(self._segments, start or 0) :]:
            replay_producers(self.producers, segment, max(start or 0, segment.base_offset))

    # Durability and the end.

    def flush(self) -> int:
        """Make everything appended so far durable; the new `flushed_end_offset`. Any thread; one runs at a time.

        Raises `StorageError`. A failed sync fails the log for good; a full disk (no room for a state file) does not.
        """
        with self._flush_lock:
            if self.failure is not None or self._is_closed:
                raise self.failure or StorageError(f"{self.name} is closed")
            target = self.log_end_offset  # read first: whatever is appended from here on waits for the next flush
            flushed = self.flushed_end_offset
            if target > flushed or self._unsynced:
                began = self.observer.seconds()
                try:
                    self._sync_up_to(target)
                except OSError as e:
                    raise self._failed("sync", self.directory, e) from e
                seconds = self.observer.seconds() - began
                self.observer.on_flush(self.topic, self.partition, seconds, self.flushed_end_offset - flushed)
            return self.flushed_end_offset

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a segment that grows no more waits for a flush."""
        return bool(self._unsynced)

    def _sync_up_to(self, target: int) -> None:
        active = self._active  # read before the sealed ones: if it is sealed meanwhile, it is synced once more later
        self._save_epochs()
        sealed = list(self._unsynced)
        for segment, end_offset in sealed:
            segment.sync()
            self._snapshots.sync(end_offset)
        if sealed:
            self._fs.fsync_dir(self.directory)
            self.flushed_end_offset = max(self.flushed_end_offset, min(sealed[-1][1], target))
            if self._recovery_points is not None:
                self._recovery_points.advance()
            for _ in sealed:
                self._unsynced.popleft()
        active.sync_data()
        self.flushed_end_offset = max(self.flushed_end_offset, target)

    def _save_epochs(self) -> None:
        entries = self.epochs.entries
        if entries is not self._saved_epochs:
            write_epoch_checkpoint(self._fs, os.path.join(self.directory, LEADER_EPOCH_FILE), entries)
            self._saved_epochs = entries

    def close(self, clean: bool = True) -> bool:
        """Let go of the files. With `clean`, sync all records and leave the files exactly as Kafka does.

        Indexes, snapshot and the trim of the last segment are not synced: loading checks them, and makes anew what a
        power loss took. Only a lost transaction index could not be noticed.
        Whether the log may be opened as cleanly stopped: False for one that is damaged or has failed. May be repeated.
        """
        if self._is_closed:
            return False
        is_sound = clean and self.failure is None and self.damage is None
        try:
            if is_sound:
                self.flush()
                with self._flush_lock, storage_errors("close", self.directory):
                    self._save_epochs()
                    self._finish_swaps()
                    if self.log_end_offset not in self._snapshots.offsets:
                        # One that is there may be all that is left of producers whose records were deleted: it is synced
                        # and stays as it is.
                        self._snapshots.write(self.log_end_offset, self.producers)
                    self._snapshots.retain({segment.base_offset for segment in self._segments})
                    has_changed = not self._active.has_saved_indexes
                    self._active.seal()
                    if has_changed and self._active.sync_transaction_index():
                        self._fs.fsync_dir(self.directory)
        finally:
            with self._flush_lock, self._deletion_lock:
                self._is_closed = True
                for segment in self._segments:
                    segment.close()
        return is_sound

    def abandon(self) -> None:
        """Close the log before its directory goes. Readers that come late get a `StorageError`, and never the files of a
        log that takes its place."""
        self.close(clean=False)
        for segment in self._segments:
            segment.retire()

    def delete(self) -> None:
        """Close and remove the log's directory with everything in it."""
        self.abandon()
        with storage_errors("delete", self.directory):
            remove_flat_directory(self._fs, self.directory)

    def _check_writable(self) -> None:
        if self.failure is not None:
            raise StorageError(f"{self.name} takes no more writes until the node restarts: {self.failure}")
        if self.damage is not None:
            raise CorruptRecordError(str(self.damage))
        if self._is_closed:
            raise IllegalStateError(f"{self.name} is closed")

    def _failed(self, doing: str, path: str, error: OSError) -> StorageError:
        """The error to raise; unless the disk is only full, the log is done for."""
        failure = storage_error(doing, path, error)
        if not is_disk_full(error) or isinstance(error, TornAppendError):
            self.failure = failure
            logger.error("%s has failed: %s", self.name, failure)
        return failure
