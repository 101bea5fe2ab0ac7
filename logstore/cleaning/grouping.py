"""Which neighbouring segments become one: as many as fit in one segment by size, indexes and relative offsets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentSizes:
    """A segment to be compacted, before it is."""

    segment: Segment
    end_offset: int
    """Where the next segment begins."""
    size_bytes: int
    index_bytes: int
    """Of the larger of its two indexes."""

    @classmethod
    def of(cls, segment: Segment, end_offset: int) -> "SegmentSizes":
        indexes = segment.indexes
        return cls(segment, end_offset, segment.size_bytes, max(indexes.offsets.size_bytes, indexes.times.size_bytes))


def group_segments(
    segments: Iterable[SegmentSizes], *, segment_bytes: int, index_bytes: int
) -> Iterator[list[SegmentSizes]]:
    """Groups in order, none empty; a segment that is too large already is a group of its own."""
    group: list[SegmentSizes] = []
    for candidate in segments:
        if group and (
            sum(it.size_bytes for it in group) + candidate.size_bytes > segment_bytes
            or sum(it.index_bytes for it in group) + candidate.index_bytes > index_bytes
            or candidate.end_offset - 1 - group[0].segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            yield group
            group = []
        group.append(candidate)
    if group:
        yield group
