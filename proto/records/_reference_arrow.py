"""Arrow's buffers in pure Python: the reference of `_codec_arrow.h`. Knows Arrow's layout, not pyarrow.

A column of variable width is int32 ends after a leading 0, one validity bit a row (lowest bit first) and the bytes.
"""

from array import array
from collections.abc import Iterator
from typing import Any

from kraftlog.proto.errors import RecordTooLargeError
from kraftlog.proto.records._reference import Buffer, RecordAppender, murmur2, record_timestamp, walk

_MAX_COLUMN_BYTES = (1 << 31) - 1  # int32 offsets
_MAX_MS = ((1 << 63) - 1) // 1000

BinaryPart = tuple[int, int, Any, Any, Any]
"""Rows, nulls, validity or None, offsets, data of a finished column."""

BinaryParts = tuple[int, int, Any, Any, Any]
"""Rows, first row, validity or None, int64 offsets, data or None of a large_binary array."""


class _Binary:
    """A growing column of variable width."""

    def __init__(self) -> None:
        self.count = 0
        self.null_count = 0
        self.offsets = array("i", [0])
        self.data = bytearray()
        self._validity = bytearray()

    def add(self, value: bytes | None) -> None:
        if value is not None:
            if len(self.data) + len(value) > _MAX_COLUMN_BYTES:
                raise RecordTooLargeError("an Arrow column of more than 2 GiB: decode fewer batches at a time")
            self.data += value
        self.add_end(len(self.data), value is not None)

    def add_end(self, end: int, is_valid: bool) -> None:
        if not self.count & 7:
            self._validity.append(0)
        if is_valid:
            self._validity[-1] |= 1 << (self.count & 7)
        else:
            self.null_count += 1
        self.count += 1
        self.offsets.append(end)

    def finish(self) -> BinaryPart:
        validity = self._validity if self.null_count else None
        return self.count, self.null_count, validity, self.offsets, self.data


class ArrowColumns:
    """Collects the records of any number of batches as Arrow buffers; which columns is said at the start."""

    def __init__(
        self, key: bool, value: bool, offset: bool, timestamp: bool, timestamp_type: bool, headers: bool, /
    ) -> None:
        self._key = _Binary() if key else None
        self._value = _Binary() if value else None
        self._offsets = array("q") if offset else None
        self._timestamps = array("q") if timestamp else None
        self._timestamp_types = array("i") if timestamp_type else None
        self._headers = _Binary() if headers else None
        self._header_keys = _Binary()
        self._header_values = _Binary()
        self._is_ascii = True
        self._count = 0

    def add(
        self,
        section: Buffer,
        record_count: int,
        last_offset_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        min_offset: int,
        end_offset: int,
        timestamp_type: int,
        /,
    ) -> int:
        """Add a batch's records with min_offset <= offset < end_offset; return the records so far.

        After an error the columns hold a part of the batch and must be thrown away.
        """
        for delta, timestamp_delta, key, value, headers in walk(section, record_count, last_offset_delta):
            timestamp = record_timestamp(base_timestamp, timestamp_delta, delta)
            if not min_offset <= base_offset + delta < end_offset:
                continue
            if self._key is not None:
                self._key.add(key)
            if self._value is not None:
                self._value.add(value)
            if self._headers is not None:
                self._add_headers(headers)
            if self._offsets is not None:
                self._offsets.append(base_offset + delta)
            if self._timestamps is not None:
                self._timestamps.append(_to_microseconds(timestamp if append_time is None else append_time))
            if self._timestamp_types is not None:
                self._timestamp_types.append(timestamp_type)
            self._count += 1
        return self._count

    def add_run(self, buffer: Buffer, position: int, min_offset: int, end_offset: int, check: bool, /) -> int:
        """Add the batches from `position` on that need no detour; where they end. See `decode_run`."""
        return position

    def _add_headers(self, headers: tuple[tuple[bytes, bytes | None], ...]) -> None:
        """A record's headers as one list; none at all is a null, as Spark's Kafka source has it."""
        assert self._headers is not None
        for key, value in headers:
            self._is_ascii = self._is_ascii and key.isascii()
            self._header_keys.add(key)
            self._header_values.add(value)
        self._headers.add_end(self._header_keys.count, bool(headers))

    def finish(self) -> dict[str, Any]:
        """The buffers by column name; the object is not to be used again."""
        columns: dict[str, Any] = {"count": self._count, "is_ascii": self._is_ascii}
        for name, column in (("key", self._key), ("value", self._value), ("headers", self._headers)):
            if column is not None:
                columns[name] = column.finish()
        if self._headers is not None:
            columns["header_key"] = self._header_keys.finish()
            columns["header_value"] = self._header_values.finish()
        for name, numbers in (
            ("offset", self._offsets),
            ("timestamp", self._timestamps),
            ("timestampType", self._timestamp_types),
        ):
            if numbers is not None:
                columns[name] = numbers
        return columns


def _to_microseconds(ms: int) -> int:
    """Milliseconds as Arrow's microseconds; clamped, because a hostile timestamp must not stop a reader."""
    return max(-_MAX_MS, min(ms, _MAX_MS)) * 1000


def _rows(parts: BinaryParts | None) -> Iterator[bytes | None]:
    """The values of a large_binary array; endless nulls for None."""
    if parts is None:
        while True:
            yield None
    count, first, validity, offsets, data = parts
    ends = memoryview(offsets).cast("B").cast("q")
    bits = None if validity is None else memoryview(validity).cast("B")
    content = memoryview(b"" if data is None else data)
    for row in range(first, first + count):
        if bits is not None and not bits[row >> 3] >> (row & 7) & 1:
            yield None
        else:
            yield bytes(content[ends[row] : ends[row + 1]])


def append_columns(
    appender: RecordAppender,
    row: int,
    end_row: int,
    max_bytes: int,
    timestamps: Any,
    key: BinaryParts | None,
    value: BinaryParts | None,
    header_ends: Any,
    header_key: BinaryParts | None,
    header_value: BinaryParts | None,
    /,
) -> int:
    """Append rows from `row` on until `end_row` or until the batch would pass `max_bytes`; the first row not appended.

    `timestamps` are int64 ms per row, `header_ends` the int64 number of headers up to and including each row's.
    """
    times = memoryview(timestamps).cast("B").cast("q")
    ends = None if header_ends is None else memoryview(header_ends).cast("B").cast("q")
    headers = [] if ends is None else list(zip(_rows(header_key), _rows(header_value), strict=False))
    if any(name is None for name, _ in headers):
        raise ValueError("a header without a key")
    keys, values = _rows(key), _rows(value)
    for _ in range(row):
        next(keys)
        next(values)
    while row < end_row:
        mine = [] if ends is None else headers[ends[row - 1] if row else 0 : ends[row]]
        if not appender.append_within(max_bytes, times[row], next(keys), next(values), mine):  # type: ignore[arg-type] # no key is None
            break
        row += 1
    return row


def partition_column(length: int, keys: BinaryParts | None, partition_count: int, /) -> Any:
    """int32 partitions of the keys, -1 for nulls."""
    partitions = array("i")
    for _, key in zip(range(length), _rows(keys), strict=False):
        partitions.append(-1 if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count)
    return partitions
