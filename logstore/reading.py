"""The reading half of a log: batches by offset, records by time, epochs' ends, aborted transactions."""

import bisect
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.errors import storage_error
from kraftlog.logstore.indexes import NO_TIMESTAMP
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerStateManager
from kraftlog.logstore.segment import RecordPosition, Segment, SegmentGoneError
from kraftlog.proto.errors import OffsetOutOfRangeError, StorageError

Segments = tuple[Segment, ...]
Result = TypeVar("Result")


class ReadResult(NamedTuple):
    """Whole batches, the first of which holds the offset asked for (and may start before it)."""

    records: bytes
    next_offset: int
    """Where to read on: the offset after the last batch, or after a gap that holds no records."""


def segment_number(segments: Segments, offset: int) -> int:
    """Which segment holds `offset`; the first one if it lies before all."""
    return max(0, bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


class ReadableLog:
    """Changes nothing. `read` may be called from any thread, the rest from the log's writer.

    Invariant: log_start_offset <= log_end_offset; the end is exclusive.
    """

    topic: str
    partition: int
    directory: str
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    _segments: Segments
    """Ascending, never empty. Replaced, never changed: readers in other threads keep theirs."""
    _peaks: tuple[Segments, list[int]] | None = None
    """Of which segments, and the largest timestamp from the first of them up to each, as far as was asked."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def latest_epoch(self) -> int:
        """-1 while there is none."""
        return self.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def segment_base_offsets(self) -> list[int]:
        return [segment.base_offset for segment in self._segments]

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True) -> ReadResult:
        """Whole batches from the one that holds `offset` on, of those that start below `end_offset`.

        At most `max_bytes`; the first batch is returned whatever its size with `at_least_one_batch`. An answer may be
        shorter than it could be (it does not cross segments). Nothing to read: empty, with where to go on.
        Raises `OffsetOutOfRangeError` for an offset outside of [log_start_offset, log_end_offset], `StorageError`.
        """

        def look(segments: Segments, log_end_offset: int) -> ReadResult:
            if not self.log_start_offset <= offset <= log_end_offset:
                raise OffsetOutOfRangeError(
                    f"{self.name}: offset {offset} is outside of the log, {self.log_start_offset} to {log_end_offset}"
                )
            end = min(end_offset, log_end_offset)
            if offset >= end:
                return ReadResult(b"", offset)
            for number in range(segment_number(segments, offset), len(segments)):
                is_below_end = number + 1 < len(segments) and segments[number + 1].base_offset <= end
                found = segments[number].read(offset, max_bytes, None if is_below_end else end, at_least_one_batch)
                if found is not None:
                    return ReadResult(*found)
                if not is_below_end:
                    break
            return ReadResult(b"", end)

        return self._look(look)

    def offset_for_time(self, timestamp_ms: int) -> RecordPosition | None:
        """(offset, timestamp, leader epoch) of the first record with a timestamp >= `timestamp_ms`.

        Of equal timestamps the lowest offset; None after the last one.
        """

        def look(segments: Segments, _: int) -> RecordPosition | None:
            start = self.log_start_offset
            number = max(segment_number(segments, start), self._first_that_reaches(segments, timestamp_ms))
            for segment in segments[number:]:
                found = segment.offset_for_time(timestamp_ms, start)
                if found is not None:
                    return found
            return None

        return self._look(look)

    def max_timestamp(self) -> RecordPosition | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp; None without records."""

        def look(segments: Segments, _: int) -> int:
            start = self.log_start_offset
            looked_at = segments[segment_number(segments, start) :]
            return max((segment.largest_timestamp_from(start) for segment in looked_at), default=NO_TIMESTAMP)

        def look_closely(segments: Segments, _: int) -> int:
            start = self.log_start_offset
            return max(s.largest_record_timestamp(start) for s in segments[segment_number(segments, start) :])

        largest = self._look(look)
        if largest < 0:
            return None
        found = self.offset_for_time(largest)
        if found is None:  # compaction took the record and left its batch's header
            found = self.offset_for_time(self._look(look_closely))
        return found

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its exclusive end); (-1, -1) if it is newer than all known ones."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch that wrote `offset`; -1 where it is not known: before the log's start, in an empty log."""
        return self.epochs.epoch_for(offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Exclusive end of what read_committed may see: the high watermark, or the first open transaction's start.

        Never below the log start offset, which may have moved into the open transaction.
        """
        unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with data in [`start_offset`, `end_offset`), by first offset."""

        def look(segments: Segments, _: int) -> list[AbortedTransaction]:
            found: list[AbortedTransaction] = []
            for segment in segments[segment_number(segments, start_offset) :]:
                for transaction in segment.aborted:
                    if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                        found.append(transaction)
                    if transaction.last_stable_offset >= end_offset:
                        return found
            return found

        return sorted(self._look(look), key=lambda t: t.first_offset)

    def _first_that_reaches(self, segments: Segments, timestamp_ms: int) -> int:
        """Number of the first segment with a timestamp >= `timestamp_ms`; the last one's if no sealed one has any.

        By the largest timestamp up to each sealed segment, which ascends whatever order the timestamps have. Segments
        behind the one that is found are not asked: that may mean to load their indexes.
        """
        peaks = self._peaks
        stamps = peaks[1] if peaks is not None and peaks[0] is segments else []
        if len(stamps) < len(segments) - 1 and (not stamps or stamps[-1] < timestamp_ms):
            stamps, peak = list(stamps), stamps[-1] if stamps else NO_TIMESTAMP
            for segment in segments[len(stamps) : -1]:
                peak = max(peak, segment.largest.timestamp)
                stamps.append(peak)
                if peak >= timestamp_ms:
                    break
            self._peaks = segments, stamps
        return bisect.bisect_left(stamps, timestamp_ms)

    def _look(self, look: Callable[[Segments, int], Result]) -> Result:
        """What `look` finds in the segments below the log's end; anew if one was deleted or replaced meanwhile."""
        while True:
            log_end_offset = self.log_end_offset  # first: the segments read after it hold everything below
            segments = self._segments
            try:
                return look(segments, log_end_offset)
            except SegmentGoneError as e:
                if self._segments is segments:  # the whole log was deleted
                    raise storage_error("read", self.directory, e) from e
            except OSError as e:
                raise self._unreadable(e) from e

    def _unreadable(self, error: OSError) -> StorageError:
        """The error to raise for one of the disk."""
        return storage_error("read", self.directory, error)
