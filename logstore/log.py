"""`Log`: one partition's log on disk.

One writer, the node's event loop, calls everything except `flush` and `read`, which may run in other threads at the
same time. Offsets: `log_start_offset` <= `flushed_end_offset` <= `log_end_offset`, ends exclusive.

The order of effects that recovery relies on (`recovery`):
- a log may be made without a sync (`LogDir.create_log`); its names and topic id are synced (`settle`) before anything of
  it counts as durable: a flush, a recorded start, a second segment;
- an append is visible (`log_end_offset`) when its bytes are in the file; it is durable when `flush` has returned;
- a roll creates the next segment before it seals the last one; neither is synced, but the log is settled by then;
- `flush` syncs sealed segments (log, indexes, snapshot), then the directory, then has the flushed end recorded, and only
  then syncs the growing segment and reports its data as flushed;
- a truncation has the recorded flushed end lowered before it touches a file, and is durable when it returns;
- a deletion at the front is seen by nobody before the new log start offset is recorded (`retention`);
- compacted segments count from one rename on, and replace what was synced only (`swaps`).

A failed fsync, or any failed read or write but for a full disk, ends the log's life as a writer: every later append and
flush raises `StorageError`. What was not synced must be taken as lost, so nothing is retried into success.
"""

import os
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from kraftlog.logstore.append import Placement, check_leader_append, place_as_follower, place_as_leader
from kraftlog.logstore.checkpoints import write_epoch_checkpoint
from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.errors import DiskFullError, is_disk_full, storage_error, storage_errors
from kraftlog.logstore.filesystem import FileSystem, remove_flat_directory
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.layout import LEADER_EPOCH_FILE, LOG_SUFFIX
from kraftlog.logstore.observer import SILENT, LogObserver, Recovery
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.reading import segment_number
from kraftlog.logstore.recovery import LoadedLog, load_log
from kraftlog.logstore.replay import apply_to_producers, replay_epochs, replay_producers
from kraftlog.logstore.retention import RetentionPlan
from kraftlog.logstore.segment import Segment
from kraftlog.logstore.segmented_log import SegmentedLog
from kraftlog.proto.errors import CorruptRecordError, StorageError
from kraftlog.proto.records import BatchHeader, TimestampType, validate_batches
from kraftlog.proto.seams import Buffer


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
    """Keeps the flushed ends of logs on disk, the recovery points, and where they start. Safe from any thread."""

    def settle(self, log: "Log") -> None:
        """Make the names of a new log and its topic id durable. Raises `OSError`."""
        ...

    def advance(self) -> None:
        """Record the flushed ends as they are. Raises `OSError`."""
        ...

    def retreat(self, log: "Log", end_offset: int) -> None:
        """The log is about to be cut at `end_offset`: see to it that no offset on disk is beyond what it says by now, and no
        high watermark beyond that."""
        ...

    def record_log_starts(self, starts: "Mapping[Log, int]") -> None:
        """Record where logs are about to start, durably. Raises `StorageError`."""
        ...

    def synced_end(self, log: "Log") -> int:
        """Up to where the log is on disk by what is recorded there."""
        ...


class Log(SegmentedLog):
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
        is_settled: bool = True,
        recovery_points: RecoveryPoints | None = None,
        observer: LogObserver = SILENT,
        open_segments: OpenSegments | None = None,
    ) -> None:
        """Load the log of an existing directory (an empty one gives an empty log) and recover it unless `is_clean`.

        What recovery had to touch is synced when this returns. A damaged log loads too: see `damage`. Unless `is_settled`,
        nothing in or of the directory is synced yet: see `settle`.
        """
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.config = config
        self.failure = None
        self._fs = fs
        self._recovery_points = recovery_points
        self._is_settled = is_settled
        self.observer = observer
        self._open_segments = open_segments or OpenSegments()
        self._flush_lock = threading.Lock()
        """Held by a running flush, and by what changes files that a flush may be syncing."""
        self._deletion_lock = threading.Lock()
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
                is_settled=is_settled,
            )
        self.damage = loaded.damage
        self._segments = tuple(loaded.segments)
        self._unsynced = deque(
            (segment, following.base_offset)
            for segment, following in zip(self._segments, self._segments[1:], strict=False)
            if segment in loaded.unsynced
        )
        self._swapped = deque()
        self.has_new_gap = False
        """Loading went on beyond a loss: the next start takes what follows for lost unless the recovery point says else."""
        self.truncations = 0
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
        self.has_new_gap = True
        try:
            self._jump_to(start_offset)
        except DiskFullError:
            self.truncate_fully_and_start_at(start_offset)

    @property
    def recovery_point(self) -> int:
        """What to record on disk as flushed: for a damaged log what was recorded before, so that it stays damaged."""
        return self.flushed_end_offset if self.damage is None else self._recorded_end

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

        What compaction has left out before a batch counts as of its epoch: the one before may have ended there, and must not
        seem to have gone on, or a replica that wrote there in that epoch would keep what nobody else has.

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
            former_end = self.log_end_offset
            self._write(placement, header.max_timestamp if now_ms is None else now_ms)
            self.epochs.assign(header.leader_epoch, former_end)
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

    def forget_unwritten_epochs(self) -> None:
        """This node leads no longer: epochs in which it wrote nothing are not the history of this log."""
        self.epochs.truncate_to(self.log_end_offset)

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

    def _start_segment(self, base_offset: int) -> None:
        """In a log that is settled: else a power loss could keep the name of the second segment and take that of the
        first, and the log would seem to begin with the second."""
        self.settle()
        super()._start_segment(base_offset)

    # The end of the log moves.

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
            self._announce_end(min(self.flushed_end_offset, data_end), end_offset)
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
        self.settle()
        with self._flush_lock, self._truncating():
            start_offset, self.log_start_offset = self.log_start_offset, min(self.log_start_offset, offset)
            try:
                self._announce_end(0, offset)
            except DiskFullError:
                self.log_start_offset = start_offset
                raise
            self._keep_segments(0)
            self._snapshots.remove_above(-1)
            # Else a power loss may leave old snapshots, of the new segment as it seems.
            self._fs.fsync_dir(self.directory)
            self._segments = (self._new_segment(offset),)
            self.epochs.clear()
            self._finish_truncation(offset)
            self.flushed_end_offset = self.log_start_offset = offset

    def _announce_end(self, flushed_end_offset: int, end_offset: int) -> None:
        """Before any file is touched: if the disk is too full to record it, nothing has happened."""
        before, self.flushed_end_offset = self.flushed_end_offset, flushed_end_offset
        try:
            if self._recovery_points is not None:
                self._recovery_points.retreat(self, end_offset)
        except OSError as e:
            if not is_disk_full(e):
                raise
            self.flushed_end_offset = before
            raise storage_error("truncate", self.directory, e) from e

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
        replay_epochs(self.epochs, self._segments)
        self.epochs.advance_start(self.log_start_offset)
        start = self._snapshots.load_latest(end_offset, self.producers)
        for segment in self._segments[segment_number(self._segments, start or 0) :]:
            replay_producers(self.producers, segment, max(start or 0, segment.base_offset))

    # The front, for a log that somebody else decides about (the metadata log: snapshots).

    def trim_to(self, offset: int, *, now_ms: int) -> int:
        """Let the log start at `offset`, durably, and delete the segments that lie wholly below; how many went.

        All of retention's steps at once, for a writer that waits meanwhile. Raises `StorageError`; on a full disk nothing
        has moved, and the call may be repeated.
        """
        self._check_writable()
        if self.has_unsynced_segments:
            self.flush()
        if offset > self.log_start_offset and self._recovery_points is not None:
            self._recovery_points.record_log_starts({self: offset})
        self.advance_log_start_offset(offset)
        plan = self.plan_retention(now_ms=now_ms, high_watermark=self.log_start_offset)
        if plan is None or not self.begin_retention(plan, now_ms) or not plan.segments:
            return 0
        if self.needs_flush_before_deletion(plan):
            self.flush_before_deletion(plan)
        if not self.detach(plan):
            return 0
        self.delete_detached(plan)
        return len(plan.segments)

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
            if target > flushed or self._unsynced or not self._is_settled:
                began = self.observer.seconds()
                try:
                    self._sync_up_to(target)
                except OSError as e:
                    raise self._failed("sync", self.directory, e) from e
                seconds = self.observer.seconds() - began
                self.observer.on_flush(self.topic, self.partition, seconds, self.flushed_end_offset - flushed)
            return self.flushed_end_offset

    def settle(self) -> None:
        """If the log was made without a sync, make it durable, without its records. Any thread.

        Before that a power loss may leave it out, or leave a part of it, with or without its topic id; nothing of it was
        acknowledged, and whoever made it makes it anew. Raises `StorageError`.
        """
        if self._is_settled:
            return
        with self._flush_lock:
            if self._is_closed:
                return  # it is about to go
            if self.failure is not None:
                raise self.failure
            try:
                self._settle()
            except OSError as e:
                raise self._failed("sync", self.directory, e) from e

    def _settle(self) -> None:
        if not self._is_settled:
            if self._recovery_points is not None:
                self._recovery_points.settle(self)
            self._is_settled = True

    def record_flushed_end(self) -> None:
        """Record how far the log is flushed: what is missing below is damage from then on, and no torn tail. Any thread.

        Raises `StorageError`. Each flush after a roll does it, and the log directory from time to time.
        """
        if self._recovery_points is not None:
            with storage_errors("record the flushed end of", self.directory):
                self._recovery_points.advance()

    def flush_before_deletion(self, plan: RetentionPlan) -> None:
        """See to it that the plan's segments may be deleted. Any thread. Raises `StorageError`, as `flush` does."""
        self.flush()
        if self.needs_flush_before_deletion(plan):  # all was synced before, when it could not be recorded
            self.record_flushed_end()

    def _synced_end(self) -> int:
        return self.flushed_end_offset if self._recovery_points is None else self._recovery_points.synced_end(self)

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether a segment that grows no more waits for a flush."""
        return bool(self._unsynced)

    def _sync_up_to(self, target: int) -> None:
        active = self._active  # read before the sealed ones: if it is sealed meanwhile, it is synced once more later
        self._settle()
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
        power loss took. Only a transaction index that was lost, or came back, could not be noticed.
        Whether the log may be opened as cleanly stopped: False for one that is damaged or has failed. May be repeated.
        """
        if self._is_closed:
            return False
        is_sound = clean and self.failure is None and self.damage is None
        try:
            if is_sound:
                if self._is_settled or self.log_end_offset:  # else there is nothing of it to keep
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
                    had_transaction_index = self._active.has_transaction_index  # an old one may go: durably
                    self._active.seal()
                    if has_changed and (self._active.sync_transaction_index() or had_transaction_index):
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
