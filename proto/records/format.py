"""Kafka's record batch, format v2: the header and the fields that a broker rewrites.

A batch is a 61-byte header and a record section. Integers are big-endian, offsets are byte positions in the batch.

    position  width  field
    0         8      base_offset          written by the leader, outside the CRC
    8         4      batch_length         bytes after this field: 49 + length of the record section
    12        4      leader_epoch         written by the leader, outside the CRC
    16        1      magic                2
    17        4      crc                  CRC-32C of everything from `attributes` to the end of the batch
    21        2      attributes           bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    23        4      last_offset_delta
    27        8      base_timestamp       ms; with bit 6 the delete horizon (records' deltas still count from it)
    35        8      max_timestamp        ms; with bit 3 the append time of every record
    43        8      producer_id          -1: none
    51        2      producer_epoch
    53        4      base_sequence
    57        4      record_count
    61        ...    records, compressed as one block by the codec of bits 0-2

A record; `varint` is a zig-zag varint of 32 bits (at most 5 bytes), `varlong` one of 64 bits (at most 10):

    varint length of what follows | int8 attributes (unused) | varlong timestamp_delta | varint offset_delta |
    varint key length (-1: null) | key | varint value length (-1: null) | value | varint header count |
    per header: varint key length | key (UTF-8) | varint value length (-1: null) | value

A batch is valid if its length fits in the buffer, its CRC matches and its records fill the (decompressed) section
exactly. Legacy message sets (magic 0 and 1) are recognised and refused.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import cast

from kraftlog.proto.errors import CorruptRecordError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError
from kraftlog.proto.records import backend

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
MAX_OFFSET = (1 << 63) - (1 << 31)
"""Largest base offset: adding any offset delta stays within 64 bits."""

MAX_BATCH_LENGTH = (1 << 31) - 1
SEQUENCE_COUNT = 1 << 31
"""Sequence numbers run from 0 to 2^31 - 1 and start again at 0."""

LENGTH_OFFSET = 8
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35

_LOG_OVERHEAD = 12  # base_offset and batch_length, which batch_length does not count
_LENGTH_OF_EMPTY = HEADER_BYTES - _LOG_OVERHEAD
_LENGTH_OF_LEGACY = 14  # the smallest legacy message: CRC, magic, attributes, key and value length

COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

HEADER_HEAD = struct.Struct(">qiibI")
HEADER_TAIL = struct.Struct(">hiqqqhii")
_PREFIX = struct.Struct(">qii")
_LENGTH = struct.Struct(">i")


class CompressionType(IntEnum):
    """Codec of a record section; the values are the attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in configs: "none", "gzip", ..."""
        return self.name.lower()

    @classmethod
    def from_name(cls, name: str) -> "CompressionType":
        """The codec of a config value; `UnsupportedCompressionTypeError` names the choices."""
        try:
            return cls[name.upper()]
        except KeyError:
            choices = ", ".join(codec.label for codec in cls)
            raise UnsupportedCompressionTypeError(f"compression type {name!r} is none of {choices}") from None


_CODECS = tuple(CompressionType)


class TimestampType(IntEnum):
    """Who stamped a batch's records; the value is attribute bit 3."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The 61 bytes before the records, as read: nothing here has been checked against the records.

    The C twin fills the slots by name: a field that is added or renamed here must be there too.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return _LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """Inclusive. Compaction keeps it even where it removed the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without sequences. Wraps at 2^31 as Kafka's does."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_COUNT

    @property
    def compression_type(self) -> CompressionType:
        codec = self.attributes & COMPRESSION_MASK
        if codec >= len(_CODECS):
            raise UnsupportedCompressionTypeError(f"batch at offset {self.base_offset}: unknown codec {codec}")
        return _CODECS[codec]

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the cleaner may drop the batch's tombstones (KIP-534); None if it has not been set."""
        return self.base_timestamp if self.has_delete_horizon else None


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`, wrapping at 2^31."""
    return (sequence + count) % SEQUENCE_COUNT


def _claimed_size(buffer: Buffer, position: int) -> int:
    """Size of the batch that starts at `position`, from its length field; the field and the magic are checked.

    Needs 17 bytes; the caller compares the size with what is there.
    """
    length: int = _LENGTH.unpack_from(buffer, position + LENGTH_OFFSET)[0]
    if length < _LENGTH_OF_LEGACY:
        raise CorruptRecordError(f"batch at position {position}: length {length} is below the minimum")
    magic = buffer[position + MAGIC_OFFSET]
    if magic != MAGIC:
        if magic < MAGIC:
            raise UnsupportedForMessageFormatError(
                f"batch at position {position}: message format v{magic} is not supported, only v2"
            )
        raise CorruptRecordError(f"batch at position {position}: magic {magic} is unknown")
    if length < _LENGTH_OF_EMPTY:
        raise CorruptRecordError(f"batch at position {position}: length {length} is below the header's")
    return _LOG_OVERHEAD + length


def next_header(buffer: Buffer, position: int) -> BatchHeader | None:
    """The header of the whole batch at `position`, None if the buffer ends before the batch does.

    Checks magic and size claims, not the CRC. Raises as `read_header`, but for a batch that is cut.
    """
    available = len(buffer) - position
    if available <= MAGIC_OFFSET or _claimed_size(buffer, position) > available:
        return None
    header = cast(BatchHeader, backend.current.parse_header(BatchHeader, buffer, position))
    if not 0 <= header.base_offset <= MAX_OFFSET:
        raise CorruptRecordError(f"batch at position {position}: base offset {header.base_offset} is out of range")
    return header


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the whole batch at `position`; checks magic and size claims, not the CRC.

    Raises `CorruptRecordError` if the batch is cut or its length is nonsense, `UnsupportedForMessageFormatError` for
    a legacy message set.
    """
    header = next_header(buffer, position)
    if header is None:
        available = max(len(buffer) - position, 0)
        claim = f", {_claimed_size(buffer, position)} claimed" if available > MAGIC_OFFSET else ""
        raise CorruptRecordError(f"batch at position {position} is cut: {available} bytes{claim}")
    return header


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each complete batch from `position` on.

    A batch cut by the buffer's end ends the iteration silently, as fetch answers may; nonsense raises as in
    `read_header`. CRCs are not checked.
    """
    while (header := next_header(buffer, position)) is not None:
        yield position, header
        position += _LOG_OVERHEAD + header.batch_length


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise `CorruptRecordError` unless the CRC-32C of the batch at `position` is the one in its header."""
    computed = backend.current.batch_crc(buffer, position, header.size_bytes)
    if computed != header.crc:
        raise CorruptRecordError(
            f"batch at position {position}, offset {header.base_offset}: "
            f"CRC is {header.crc:08x}, its bytes give {computed:08x}"
        )


def check_crcs(buffer: Buffer) -> None:
    """`check_crc` of each complete batch; nonsense in a header raises as in `read_header`."""
    for position, header in iter_headers(buffer):
        check_crc(buffer, position, header)


def batch_prefix(base_offset: int, header_slice: Buffer, leader_epoch: int | None = None) -> bytes:
    """The first 16 bytes of a batch, with a new base offset and, if given, leader epoch.

    `header_slice` starts with the old ones. Lets a log write `(prefix, batch[16:])` without copying the batch.
    """
    _, length, old_epoch = _PREFIX.unpack_from(header_slice, 0)
    return _PREFIX.pack(base_offset, length, old_epoch if leader_epoch is None else leader_epoch)


def rewrite_header(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set the two fields outside the CRC, in place."""
    (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_OFFSET)
    _PREFIX.pack_into(buffer, position, base_offset, length, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamp a batch with the broker's time, in place: timestamp type, max timestamp and, for both, the CRC."""
    header = read_header(buffer, position)
    struct.pack_into(">h", buffer, position + ATTRIBUTES_OFFSET, header.attributes | TIMESTAMP_TYPE_BIT)
    struct.pack_into(">q", buffer, position + MAX_TIMESTAMP_OFFSET, timestamp_ms)
    crc = backend.current.batch_crc(buffer, position, header.size_bytes)
    struct.pack_into(">I", buffer, position + CRC_OFFSET, crc)
