"""One compaction of one log, in steps of bounded work.

First the keys of the dirty segments go into the offset map, until the end or until the map is full; then all segments
up to there are written anew without what the map replaces, group by group. A group counts from the moment when the
log's writer takes it (`commit`): a pass may be given up after any step, and a repeated one finds the same.

`step` and `finish_commit` block and run in any thread, one at a time; `commit` is for the log's writer.
"""

import enum
from collections.abc import Generator, Iterator, Sequence

from kraftlog.logstore.batches import ScannedBatch, scan_batches
from kraftlog.logstore.cleaning.batch_cleaner import BatchCleaner, Remembered, control_type_of
from kraftlog.logstore.cleaning.dirtiness import Dirtiness, SegmentEnds
from kraftlog.logstore.cleaning.grouping import SegmentSizes, group_segments
from kraftlog.logstore.cleaning.transactions import CleanedTransactions
from kraftlog.logstore.errors import storage_errors
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.layout import LOG_SUFFIX
from kraftlog.logstore.log import Log
from kraftlog.logstore.log_dir import LogDir
from kraftlog.logstore.observer import CleanerPass
from kraftlog.logstore.segment import Segment, SegmentGoneError
from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.proto.records import read_header
from kraftlog.proto.records.compaction import OffsetMap, is_placeholder, placeholder
from kraftlog.proto.seams import Buffer

STEP_BYTES = 1 << 20
"""Read in one step: some 2 ms of work, of which the hops between threads are 4 %. With four times as much a pass is no
faster, and the garbage collector finds so many batches alive that it goes through the whole process's objects."""


class Step(enum.Enum):
    """What `CleaningPass.step` came to."""

    WORKED = enum.auto()
    """There is more to do: call `step` again."""
    COMMIT = enum.auto()
    """A group is ready: call `commit`, then `finish_commit` if it was taken, then `step`."""
    DONE = enum.auto()
    """The log is compacted up to `end_offset`."""
    VOID = enum.auto()
    """The log changed meanwhile: nothing of what was not committed counts, and the pass is over."""


class CleaningPass:
    """See the module."""

    def __init__(self, log: Log, dirtiness: Dirtiness, *, now_ms: int, map_bytes: int, sip_key: bytes) -> None:
        """To be made by the log's writer. `now_ms`: the wall clock, for delete horizons. `map_bytes`: bound of the offset
        map. `sip_key`: 16 random bytes."""
        self.log = log
        self._dirtiness = dirtiness
        self._producers = frozenset(log.producers.entries)
        self._now_ms = now_ms
        self._map_bytes = map_bytes
        self._sip_key = sip_key
        self.end_offset = dirtiness.first_dirty_offset
        """Where the dirty part begins when the pass is done: the end of what was planned, or where the map was full."""
        self._work: Generator[Step, None, None] = self._run()
        self._began = log.observer.seconds()
        self._output: Segment | None = None
        self._ready: tuple[Sequence[SegmentSizes], Segment] | None = None
        self._taken_to = 0
        """Up to here the log has what this pass has written."""
        self._cleaner: BatchCleaner | None = None
        self._is_complete = False
        self._is_closed = False
        self.read_bytes = 0
        self.written_bytes = 0

    def step(self) -> Step:
        """Work for a moment.

        Raises `StorageError` (the disk; a full one may have space later), `CorruptRecordError` or `InvalidRecordError`
        (the log cannot be compacted as it is). After an error the pass is over.
        """
        try:
            with storage_errors("compact", self.log.directory):
                try:
                    return next(self._work)
                except SegmentGoneError:
                    return Step.VOID
        except KraftlogError:
            if not self._is_log_as_planned():
                return Step.VOID  # what was read was being cut
            raise

    def commit(self) -> bool:
        """The writer takes the group that is ready; False: the pass is void, and over. Raises `StorageError`."""
        assert self._ready is not None, "step did not answer COMMIT"
        group, segment = self._ready
        self._ready = None
        if not self.log.replace_segments([it.segment for it in group], segment, self._dirtiness.truncations):
            return False
        self._output = None
        self._taken_to = group[-1].end_offset
        return True

    def finish_commit(self) -> None:
        """Make a taken group durable. Raises `StorageError`."""
        self.log.finish_replacements()

    def record_end(self, log_dir: LogDir) -> None:
        """After `DONE`: let the next pass begin where this one ended. Raises `StorageError`."""
        log_dir.record_cleaned_to(self.log, self.end_offset, self._dirtiness.truncations)

    def close(self) -> None:
        """The end, after whatever result or error: what was written and not taken is removed. May be repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        self._work.close()
        if self._output is not None:
            with storage_errors("compact", self.log.directory):
                self._output.delete_files()
        cleaner, observer = self._cleaner, self.log.observer
        observer.on_cleaner_pass(
            self.log.topic,
            self.log.partition,
            CleanerPass(
                observer.seconds() - self._began,
                self.read_bytes,
                self.written_bytes,
                cleaner.read_records if cleaner else 0,
                cleaner.kept_records if cleaner else 0,
                self._is_complete,
            ),
        )

    def _is_log_as_planned(self) -> bool:
        dirtiness = self._dirtiness
        to_come = (segment for segment, _ in dirtiness.segments if segment.base_offset >= self._taken_to)
        return self.log.truncations == dirtiness.truncations and not any(segment.is_gone for segment in to_come)

    # The work.

    def _run(self) -> Generator[Step, None, None]:
        log, dirtiness = self.log, self._dirtiness
        log.flush()  # what is not synced is not compacted
        first_dirty = dirtiness.first_dirty_offset
        dirty = [it for it in dirtiness.segments if it[1] > first_dirty]
        key_count = sum(end - max(segment.base_offset, first_dirty) for segment, end in dirty)
        offset_map = OffsetMap(min(self._map_bytes, OffsetMap.bytes_for(key_count)), self._sip_key)
        yield from self._fill(offset_map, dirty)
        # A segment in which the map was full is gone through whole, so its transactions must be known whole.
        touched = [it for it in dirtiness.segments if it[0].base_offset < offset_map.end_offset]
        self._cleaner = BatchCleaner(
            offset_map,
            log.aborted_transactions(touched[0][0].base_offset, touched[-1][1]),
            self._remembered_at(touched[-1][1]),
            now_ms=self._now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        groups = group_segments(
            [SegmentSizes.of(segment, end_offset) for segment, end_offset in touched],
            segment_bytes=log.config.segment_bytes,
            index_bytes=log.config.segment_index_bytes,
        )
        for group in groups:
            yield from self._clean(group, self._cleaner)
        self.end_offset = offset_map.end_offset
        self._is_complete = True
        yield Step.DONE

    def _remembered_at(self, end_offset: int) -> Remembered:
        """Of the producers that are not forgotten: by the snapshot that each segment begins with."""
        entries = self.log.producers_at(end_offset)
        if entries is None:
            return dict.fromkeys(self._producers)
        return {entry.producer_id: entry for entry in entries if entry.producer_id in self._producers}

    def _open_at(self, base_offset: int) -> list[int] | None:
        """Producers with a transaction that is open where a segment begins; None: not known."""
        entries = self.log.producers_at(base_offset)
        if entries is None:
            return [] if base_offset == self.log.segment_base_offsets[0] else None
        return [entry.producer_id for entry in entries if entry.transaction_first_offset is not None]

    def _fill(self, offset_map: OffsetMap, dirty: SegmentEnds) -> Iterator[Step]:
        """Put the dirty keys into the map; `offset_map.end_offset` is up to where they are."""
        start = offset_map.end_offset = self._dirtiness.first_dirty_offset
        transactions = CleanedTransactions(self.log.aborted_transactions(start, dirty[-1][1]))
        for segment, end_offset in dirty:
            position = segment.position_of(max(start, segment.base_offset))
            for chunk in self._chunks(segment, position):
                for _, header, batch in chunk:
                    if header.is_control:
                        transactions.end(header, control_type_of(header, batch))
                    elif not transactions.is_aborted(header) and not offset_map.add(batch, header, start):
                        return
                yield Step.WORKED
            offset_map.end_offset = end_offset

    def _clean(self, group: Sequence[SegmentSizes], cleaner: BatchCleaner) -> Iterator[Step]:
        output = self._output = self.log.new_cleaned_segment(group[0].segment.base_offset)
        cleaner.begin_segment(self._open_at(output.base_offset))
        is_changed = len(group) > 1
        # A gap that no segment can hold may follow: nothing of what is replaced begins in it.
        end_offset = output.base_offset
        group_end = min(group[-1].end_offset, output.base_offset + MAX_RELATIVE_OFFSET + 1)
        timestamp = -1
        for segment in (it.segment for it in group):
            for chunk in self._chunks(segment, 0):
                kept: list[Buffer] = []
                for _, header, batch in chunk:
                    timestamp = header.max_timestamp
                    if is_placeholder(header) and header.next_offset == group_end:
                        cleaned: Buffer | None = batch
                        aborted = None
                    else:
                        cleaned, aborted = cleaner.clean(header, batch)
                    is_changed |= cleaned is not batch
                    if cleaned is not None:
                        kept.append(cleaned)
                        end_offset = header.next_offset
                    if aborted is not None:
                        output.indexes.aborted.append(aborted)
                self._write(output, kept)
                yield Step.WORKED
        if not is_changed:
            output.delete_files()
            self._output = None
            return
        if end_offset < group_end:  # so that loading knows what it replaces (`swaps`)
            leader_epoch = self.log.epochs.epoch_for(group_end - 1)
            self._write(output, [placeholder(group_end - 1, leader_epoch, timestamp)])
        self._seal(output)
        self._ready = (group, output)
        yield Step.COMMIT

    def _chunks(self, segment: Segment, position: int) -> Iterator[list[ScannedBatch]]:
        """The segment's batches, checked, at most `STEP_BYTES` (or one batch) at a time."""
        if segment.is_gone:
            raise SegmentGoneError(0, "segment is gone", segment.path(LOG_SUFFIX))
        size_bytes, file = segment.size_bytes, segment.file
        batches = scan_batches(file, position, size_bytes)
        while position < size_bytes:
            chunk: list[ScannedBatch] = []
            chunk_bytes = 0
            for batch in batches:
                chunk.append(batch)
                chunk_bytes += batch.header.size_bytes
                if chunk_bytes >= STEP_BYTES:
                    break
            if not chunk:
                raise CorruptRecordError(f"{segment.path(LOG_SUFFIX)}: no valid batch at position {position}")
            position += chunk_bytes
            self.read_bytes += chunk_bytes
            yield chunk

    def _write(self, output: Segment, batches: Sequence[Buffer]) -> None:
        size_bytes = sum(map(len, batches))
        if not size_bytes:
            return
        position = output.append(batches, size_bytes)
        for batch in batches:
            header = read_header(batch)
            output.note_batch(position, header, header.last_offset)
            position += header.size_bytes
        self.written_bytes += size_bytes

    def _seal(self, output: Segment) -> None:
        output.seal()
        output.ensure_transaction_index()
        output.sync()
        self.log.sync_directory()
