"""The hot loops in pure Python: what the C twin (`_codec.c`) must do, said as plainly as speed allows.

A record section is the bytes after a batch's header, decompressed; `format` describes them. Every length is compared
with what is left before it is used, and each way in which a section can be wrong is an `InvalidRecordError`.
"""

import operator
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from crc32c import crc32c as _crc32c

from kraftlog.proto.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from kraftlog.proto.records import _snappy
from kraftlog.proto.varint import UNSIGNED, encode_zigzag, read_zigzag

NAME = "python"

Buffer = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]

HEADER_BYTES = 61
MIN_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths and the header count, one byte each
MAX_RECORD_BYTES = (1 << 31) - 1  # the length field is a 32-bit varint
MAX_TIMESTAMP = (1 << 63) - 2  # its difference to -1 (no timestamp) still fits in 64 bits
_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_SMALL = len(UNSIGNED) // 2  # zig-zag doubles what is not negative

snappy_compress = _snappy.compress
snappy_decompress = _snappy.decompress


def crc32c(data: Buffer, value: int = 0, /) -> int:
    """CRC-32C (Castagnoli) of `data`, continued from `value`."""
    return _crc32c(data, value)


def murmur2(data: Buffer, /) -> int:
    """Kafka's murmur2 (seed 0x9747b28c) as an unsigned 32-bit number."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    size = len(data)
    digest = 0x9747B28C ^ size
    aligned = size - size % 4
    for position in range(0, aligned, 4):
        word = int.from_bytes(data[position : position + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        digest = (digest * multiplier & mask) ^ word
    if aligned < size:
        digest = (digest ^ int.from_bytes(data[aligned:], "little")) * multiplier & mask
    digest = (digest ^ digest >> 13) * multiplier & mask
    return digest ^ digest >> 15


_HEADER = struct.Struct(">qiibIhiqqqhii")
_COVERED = 21  # position of the attributes, where the CRC's cover begins


def parse_header(header_class: Any, buffer: Buffer, position: int, /) -> Any:
    """A `BatchHeader` of the 61 bytes at `position`, which are there."""
    return header_class(*_HEADER.unpack_from(buffer, position))


def batch_crc(buffer: Buffer, position: int, size: int, /) -> int:
    """The CRC-32C that the bytes of the batch at `position` give."""
    with memoryview(buffer) as view, view[position + _COVERED : position + size] as covered:
        return _crc32c(covered)


class Record:
    """One record as a consumer sees it. Immutable by convention; safe from any thread."""

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] = (),
        leader_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers if type(headers) is tuple else tuple(headers)
        self.leader_epoch = leader_epoch

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key, -1 for None."""
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value, -1 for None."""
        return -1 if self.value is None else len(self.value)

    def _fields(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.headers,
            self.leader_epoch,
        )

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Record) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self) -> tuple[Any, ...]:
        from kraftlog.proto.records import make_record  # the reader's process may run the other twin

        return make_record, self._fields()

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={_excerpt(self.key)}, value={_excerpt(self.value)}, "
            f"headers={len(self.headers)})"
        )


def _excerpt(data: bytes | None) -> str:
    """At most 32 bytes of a key or value, for display."""
    if data is None or len(data) <= 32:
        return repr(data)
    return f"{data[:32]!r}+{len(data) - 32} bytes"


class RecordAppender:
    """Collects records into a record section. Not safe for concurrent use.

    Offset deltas count from 0; timestamps are stored as differences to the first record's.
    """

    __slots__ = ("_section", "base_timestamp", "max_timestamp", "record_count")

    def __init__(self) -> None:
        self._section = bytearray()
        self.record_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1

    @property
    def size_bytes(self) -> int:
        """Size of the uncompressed batch so far, header included."""
        return HEADER_BYTES + len(self._section)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
    ) -> int:
        """Add one record; return `size_bytes`. After an error the appender is as before.

        Raises `InvalidTimestampError` below -1, `RecordTooLargeError` only above what the format can express (2 GiB).
        """
        timestamp_ms = operator.index(timestamp_ms)  # a float is an error
        self._commit(timestamp_ms, self.encode(timestamp_ms, key, value, _raw_headers(headers) if headers else ()))
        return HEADER_BYTES + len(self._section)

    def encode(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[bytes, Buffer | None]],
    ) -> bytes:
        """The bytes that `append` would add for the same arguments; header keys are UTF-8 already."""
        if not -1 <= timestamp_ms <= MAX_TIMESTAMP:
            raise InvalidTimestampError(f"timestamp {timestamp_ms} ms is out of range: give -1 (none) or more")
        count = self.record_count
        delta = timestamp_ms - self.base_timestamp if count else 0
        body = b"\0%b%b%b%b%b" % (
            UNSIGNED[delta << 1] if 0 <= delta < _SMALL else encode_zigzag(delta),
            UNSIGNED[count << 1] if count < _SMALL else encode_zigzag(count),
            _blob(key),
            _blob(value),
            _encode_headers(headers) if headers else b"\0",
        )
        size = len(body)
        if size > MAX_RECORD_BYTES:
            raise RecordTooLargeError(f"record of {size} bytes exceeds {MAX_RECORD_BYTES}, the format's limit")
        return b"%b%b" % (UNSIGNED[size << 1] if size < _SMALL else encode_zigzag(size), body)

    def _commit(self, timestamp_ms: int, encoded: bytes) -> None:
        self._section += encoded
        if not self.record_count:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.record_count += 1

    def append_within(
        self,
        max_bytes: int,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[bytes, Buffer | None]],
    ) -> bool:
        """Append unless the batch would pass `max_bytes`; `RecordTooLargeError` if the record alone would."""
        encoded = self.encode(timestamp_ms, key, value, headers)
        total = HEADER_BYTES + len(self._section) + len(encoded)
        if total > max_bytes:
            if self.record_count:
                return False
            raise RecordTooLargeError(f"batch of {total} bytes exceeds max_batch_bytes={max_bytes}")
        self._commit(timestamp_ms, encoded)
        return True

    def section(self) -> bytes:
        """The records so far, uncompressed."""
        return bytes(self._section)


def _blob(data: Buffer | None) -> bytes:
    if data is None:
        return b"\x01"
    if type(data) is not bytes:
        data = bytes(memoryview(data))  # a number or str is an error, not a size
    size = len(data)
    return b"%b%b" % (UNSIGNED[size << 1] if size < _SMALL else encode_zigzag(size), data)


def _raw_headers(headers: Iterable[tuple[str, Buffer | None]]) -> list[tuple[bytes, Buffer | None]]:
    headers = tuple(headers)
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError("a header is a tuple of str and bytes or None")
    return [(key.encode(), value) for key, value in headers]


def _encode_headers(headers: Sequence[tuple[bytes, Buffer | None]]) -> bytes:
    parts = [encode_zigzag(len(headers))]
    for key, value in headers:
        parts += (_blob(key), _blob(value))
    return b"".join(parts)


def validate_records(
    section: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    is_consecutive: bool,
    require_keys: bool,
    /,
) -> int:
    """Check a decompressed section; return its largest timestamp (-1 if it is empty).

    Offset deltas must be 0, 1, 2 ... if `is_consecutive`, else ascend and not pass `last_offset_delta`.
    """
    largest = -1
    for index, fields in enumerate(walk(section, record_count, last_offset_delta)):
        delta, timestamp_delta, key, _, _ = fields
        timestamp = record_timestamp(base_timestamp, timestamp_delta, delta)
        if is_consecutive and delta != index:
            raise InvalidRecordError(f"record {index}: offset delta is {delta}")
        if require_keys and key is None:
            raise InvalidRecordError(f"record {index}: compacted topics need a key")
        if timestamp > largest or not index:
            largest = timestamp
    return largest


def record_timestamp(base_timestamp: int, timestamp_delta: int, offset_delta: int) -> int:
    timestamp = base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise InvalidRecordError(f"record {offset_delta}: timestamp {timestamp} does not fit in 64 bits")
    return timestamp


def decode_records(
    section: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    min_offset: int,
    topic: str,
    partition: int,
    timestamp_type: int,
    leader_epoch: int,
    /,
) -> list[Record]:
    """The records of a decompressed section from `min_offset` on.

    `append_time` is every record's timestamp if given. The whole section is checked, also what is skipped. Header keys
    that are not UTF-8 get replacement characters, as in Kafka.
    """
    records: list[Record] = []
    for delta, timestamp_delta, key, value, raw_headers in walk(section, record_count, last_offset_delta):
        timestamp = record_timestamp(base_timestamp, timestamp_delta, delta)
        offset = base_offset + delta
        if offset < min_offset:
            continue
        if append_time is not None:
            timestamp = append_time
        headers = tuple((name.decode("utf-8", "replace"), content) for name, content in raw_headers)
        records.append(Record(topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch))
    return records


def decode_run(
    buffer: Buffer,
    position: int,
    min_offset: int,
    check: bool,
    topic: str,
    partition: int,
    timestamp_types: tuple[int, int],
    /,
) -> tuple[list[Record], int]:
    """The records of the batches from `position` on that need no detour, and where those batches end.

    A shortcut of the C twin for whole, uncompressed, undamaged batches. The caller goes on batch by batch from there,
    so the shortest run will do.
    """
    return [], position


RawHeader = tuple[bytes, bytes | None]
Fields = tuple[int, int, bytes | None, bytes | None, tuple[RawHeader, ...]]
"""offset delta, timestamp delta, key, value, headers"""


def walk(section: Buffer, record_count: int, last_offset_delta: int) -> Iterator[Fields]:
    """The records of a section in order; raises `InvalidRecordError` where it departs from the format.

    Varints of one byte are read in line, because nearly all are; IndexError means that one lies past the end.
    """
    data = section if type(section) is bytes else bytes(section)
    end = len(data)
    if record_count < 0 or record_count * MIN_RECORD_BYTES > end:
        raise InvalidRecordError(f"{record_count} records do not fit in {end} bytes")
    position = 0
    previous = -1
    index = 0
    try:
        for index in range(record_count):
            size = data[position]
            if size < 0x80:
                size = (size >> 1) ^ -(size & 1)
                position += 1
            else:
                size, position = read_zigzag(data, position, end, 32)
            if not MIN_RECORD_BYTES - 1 <= size <= end - position:
                raise InvalidRecordError(f"record {index}: {size} bytes claimed, {end - position} left")
            stop = position + size
            position += 1
            timestamp_delta = data[position]
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                position += 1
            else:
                timestamp_delta, position = read_zigzag(data, position, stop)
            offset_delta, position = read_zigzag(data, position, stop, 32)
            if not previous < offset_delta <= last_offset_delta:
                raise InvalidRecordError(
                    f"record {index}: offset delta {offset_delta} after {previous}, last is {last_offset_delta}"
                )
            previous = offset_delta
            key, position = _read_blob(data, position, stop)
            value, position = _read_blob(data, position, stop)
            if data[position] == 0 and position + 1 == stop:
                headers: tuple[RawHeader, ...] = ()
                position = stop
            else:
                headers, position = _read_headers(data, position, stop)
                if position != stop:
                    raise InvalidRecordError(f"record {index}: {stop - position} bytes after its headers")
            yield offset_delta, timestamp_delta, key, value, headers
    except (ValueError, IndexError) as error:
        raise InvalidRecordError(f"record {index}: {error}") from None
    if position != end:
        raise InvalidRecordError(f"{end - position} bytes after the last of {record_count} records")


def _read_blob(data: bytes, position: int, stop: int) -> tuple[bytes | None, int]:
    """(bytes or None, next position)."""
    size = data[position]
    if size < 0x80:
        size = (size >> 1) ^ -(size & 1)
        position += 1
    else:
        size, position = read_zigzag(data, position, stop, 32)
    if size < 0:
        if size != -1:
            raise ValueError(f"negative length {size}")
        return None, position
    if size > stop - position:
        raise ValueError(f"{size} bytes claimed, {stop - position} left")
    return data[position : position + size], position + size


def _read_headers(data: bytes, position: int, stop: int) -> tuple[tuple[RawHeader, ...], int]:
    """(headers with their keys as bytes, next position)."""
    count, position = read_zigzag(data, position, stop, 32)
    if not 0 <= count <= (stop - position) // 2:
        raise ValueError(f"{count} headers do not fit in {stop - position} bytes")
    headers: list[RawHeader] = []
    for _ in range(count):
        key, position = _read_blob(data, position, stop)
        if key is None:
            raise ValueError("a header without a key")
        value, position = _read_blob(data, position, stop)
        headers.append((key, value))
    return tuple(headers), position
