"""Lookups over the segments of a log. Nothing here changes anything; any thread may call it with its own tuple."""

import bisect
from typing import NamedTuple

from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.segment import RecordPosition, Segment

Segments = tuple[Segment, ...]


class ReadResult(NamedTuple):
    """Whole batches, the first of which holds the offset asked for (and may start before it)."""

    records: bytes
    next_offset: int
    """Where to read on: the offset after the last batch, or after a gap that holds no records."""


def segment_number(segments: Segments, offset: int) -> int:
    """Which segment holds `offset`; the first one if it lies before all."""
    return max(0, bisect.bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def read_batches(
    segments: Segments, offset: int, max_bytes: int, end_offset: int, at_least_one_batch: bool
) -> ReadResult:
    """Batches of one segment from the one that holds `offset` on, of those that start below `end_offset`."""
    for number in range(segment_number(segments, offset), len(segments)):
        is_below_end = number + 1 < len(segments) and segments[number + 1].base_offset <= end_offset
        found = segments[number].read(offset, max_bytes, None if is_below_end else end_offset, at_least_one_batch)
        if found is not None:
            return ReadResult(*found)
        if not is_below_end:
            break
    return ReadResult(b"", end_offset)


def offset_for_time(segments: Segments, timestamp: int, start_offset: int) -> RecordPosition | None:
    """The first record from `start_offset` on with a timestamp >= `timestamp`; of equal ones the lowest offset."""
    for segment in segments[segment_number(segments, start_offset) :]:
        found = segment.offset_for_time(timestamp, start_offset)
        if found is not None:
            return found
    return None


def max_timestamp(segments: Segments, start_offset: int) -> RecordPosition | None:
    """The first record that has the largest timestamp of all."""
    later = segments[segment_number(segments, start_offset) :]
    largest = max((segment.largest_timestamp_from(start_offset) for segment in later), default=-1)
    return offset_for_time(segments, largest, start_offset) if largest >= 0 else None


def aborted_transactions(segments: Segments, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Transactions with data in [`start_offset`, `end_offset`) that were aborted, by first offset."""
    found = []
    for segment in segments[segment_number(segments, start_offset) :]:
        for transaction in segment.indexes.aborted:
            if transaction.last_offset >= start_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return sorted(found, key=lambda t: t.first_offset)
    return sorted(found, key=lambda t: t.first_offset)
