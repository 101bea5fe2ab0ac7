"""Offset and time index of one segment: sparse, sorted, fixed-width entries, in Kafka's format (big-endian).

Offset index (`.index`), 8 bytes an entry: int32 last offset of a batch minus the segment's base offset, int32 position
of that batch in the `.log` file.

Time index (`.timeindex`), 12 bytes an entry: int64 timestamp, int32 relative offset. The timestamp is the largest in
the segment up to there, the offset the last one of the first batch that reached it. Both columns ascend.

An index is a hint to where reading starts: losing entries makes lookups slower, never wrong. Its file is written when
the segment is sealed (while it grows, the entries are in memory and a crash rebuilds them), so a file is complete or
damaged, and whoever follows an entry checks that it leads to the batch that it names.
"""

import bisect
import struct
from typing import NamedTuple

from kraftlog.proto.seams import Buffer

MAX_RELATIVE_OFFSET = (1 << 31) - 1
NO_TIMESTAMP = -1

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_RELATIVE = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")


class OffsetPosition(NamedTuple):
    """`offset`: last of the batch that starts at `position`."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    """`offset`: last of the first batch whose largest timestamp is `timestamp`."""

    timestamp: int
    offset: int


class OffsetIndex:
    """Entries in a bytearray while the segment grows, or in a copy of the file."""

    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: Buffer) -> None:
        self.base_offset = base_offset
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // _OFFSET_ENTRY.size

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def entry(self, number: int) -> OffsetPosition:
        relative, position = _OFFSET_ENTRY.unpack_from(self.data, number * _OFFSET_ENTRY.size)
        return OffsetPosition(self.base_offset + relative, position)

    def append(self, offset: int, position: int) -> None:
        assert isinstance(self.data, bytearray), "the segment is sealed"
        self.data += _OFFSET_ENTRY.pack(offset - self.base_offset, position)

    def lookup(self, offset: int) -> OffsetPosition | None:
        """The last entry whose offset is <= `offset`; None: read from the segment's start."""
        relative = offset - self.base_offset
        number = bisect.bisect_right(range(len(self)), relative, key=self._relative)
        return self.entry(number - 1) if number else None

    def lookup_position(self, position: int) -> OffsetPosition | None:
        """The last entry whose position is <= `position`; None: walk from the segment's start."""
        number = bisect.bisect_right(range(len(self)), position, key=self._position)
        return self.entry(number - 1) if number else None

    def truncate_to_position(self, position: int) -> None:
        """Forget the batches at and after `position`."""
        assert isinstance(self.data, bytearray), "the segment is sealed"
        keep = bisect.bisect_left(range(len(self)), position, key=self._position)
        del self.data[keep * _OFFSET_ENTRY.size :]

    def is_plausible(self, size_bytes: int) -> bool:
        """Whether this can be the index of a segment of so many bytes: whole entries, the last one inside and the highest.

        It is not in a file that ends with zeros, which Kafka leaves after a crash: it has room for entries to come.
        """
        if len(self.data) % _OFFSET_ENTRY.size:
            return False
        if not len(self):
            return True
        last = self.entry(len(self) - 1)
        is_highest = len(self) == 1 or last.position > self.entry(0).position
        return is_highest and last.offset >= self.base_offset and 0 <= last.position < size_bytes

    def _relative(self, number: int) -> int:
        return int(_RELATIVE.unpack_from(self.data, number * _OFFSET_ENTRY.size)[0])

    def _position(self, number: int) -> int:
        return int(_RELATIVE.unpack_from(self.data, number * _OFFSET_ENTRY.size + _RELATIVE.size)[0])


class TimeIndex:
    """As `OffsetIndex`, by timestamp."""

    __slots__ = ("base_offset", "data")

    def __init__(self, base_offset: int, data: Buffer) -> None:
        self.base_offset = base_offset
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // _TIME_ENTRY.size

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def entry(self, number: int) -> TimestampOffset:
        timestamp, relative = _TIME_ENTRY.unpack_from(self.data, number * _TIME_ENTRY.size)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def last(self) -> TimestampOffset | None:
        return self.entry(len(self) - 1) if len(self) else None

    def maybe_append(self, timestamp: int, offset: int) -> bool:
        """Add an entry unless the last one has this timestamp or a larger one already."""
        assert isinstance(self.data, bytearray), "the segment is sealed"
        last = self.last()
        if timestamp <= (last.timestamp if last else NO_TIMESTAMP):
            return False
        self.data += _TIME_ENTRY.pack(timestamp, offset - self.base_offset)
        return True

    def lookup(self, timestamp: int) -> TimestampOffset | None:
        """The last entry with a timestamp < `timestamp`: nothing up to its offset can match. None: no such entry."""
        number = bisect.bisect_left(range(len(self)), timestamp, key=self._timestamp)
        return self.entry(number - 1) if number else None

    def truncate_to(self, end_offset: int) -> None:
        """Forget entries of batches that end at or after `end_offset`."""
        assert isinstance(self.data, bytearray), "the segment is sealed"
        keep = bisect.bisect_left(range(len(self)), end_offset - self.base_offset, key=self._relative)
        del self.data[keep * _TIME_ENTRY.size :]

    def is_plausible(self, size_bytes: int) -> bool:
        """Whether this can be the index of a segment of so many bytes: whole entries, one if there is any batch."""
        if len(self.data) % _TIME_ENTRY.size:
            return False
        last = self.last()
        return last is None or (size_bytes > 0 and last.offset >= self.base_offset and last.timestamp >= 0)

    def _timestamp(self, number: int) -> int:
        return int(_TIMESTAMP.unpack_from(self.data, number * _TIME_ENTRY.size)[0])

    def _relative(self, number: int) -> int:
        return int(_RELATIVE.unpack_from(self.data, number * _TIME_ENTRY.size + _TIMESTAMP.size)[0])
