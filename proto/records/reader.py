"""Reading batches: into records, for consumers and coordinators, and checking them, for the leader that takes them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraftlog.proto.errors import InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from kraftlog.proto.records import backend
from kraftlog.proto.records.compression import MAX_DECOMPRESSED_BYTES, decompress
from kraftlog.proto.records.format import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    next_header,
    read_header,
)

if TYPE_CHECKING:
    from kraftlog.proto.records._reference import Record


_TIMESTAMP_TYPES = (TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME)


def record_section(
    buffer: Buffer, position: int, header: BatchHeader, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Buffer:
    """The decompressed records of the batch at `position`: a view of `buffer` if it is not compressed."""
    section = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    codec = header.attributes & COMPRESSION_MASK
    if not codec or not (section or header.record_count):
        return section  # compaction leaves empty batches, whatever their codec bits say
    return decompress(codec, section, max_decompressed_bytes)


def _decode(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    topic: str,
    partition: int,
    min_offset: int,
    max_decompressed_bytes: int,
) -> list["Record"]:
    timestamp_type = header.timestamp_type
    try:
        return backend.current.decode_records(
            record_section(buffer, position, header, max_decompressed_bytes),
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if timestamp_type else None,
            min_offset,
            topic,
            partition,
            timestamp_type,
            header.leader_epoch,
        )
    except InvalidRecordError as error:
        raise InvalidRecordError(f"{topic}-{partition}, batch at offset {header.base_offset}: {error}") from None


def decode_batch(
    buffer: Buffer,
    position: int = 0,
    *,
    topic: str = "",
    partition: int = -1,
    check: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list["Record"]:
    """The records of the one batch at `position`, control records too; `check` compares the CRC first.

    The records may keep `buffer` alive: while one of them lives, a bytearray cannot be resized.
    """
    header = read_header(buffer, position)
    if check:
        check_crc(buffer, position, header)
    return _decode(buffer, position, header, topic, partition, 0, max_decompressed_bytes)


def decode_records(
    buffer: Buffer,
    *,
    topic: str = "",
    partition: int = -1,
    min_offset: int = 0,
    check: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list["Record"]:
    """The records from `min_offset` on of all complete batches in `buffer`, as fetch answers need it.

    Control batches are skipped, and so are records before `min_offset`: a fetch may start inside a batch. The records
    may keep `buffer` alive, as in `decode_batch`: copy what is to be kept long.
    """
    records, position = backend.current.decode_run(buffer, 0, min_offset, check, topic, partition, _TIMESTAMP_TYPES)
    while (header := next_header(buffer, position)) is not None:
        if not header.is_control and header.last_offset >= min_offset:
            if check:
                check_crc(buffer, position, header)
            records += _decode(buffer, position, header, topic, partition, min_offset, max_decompressed_bytes)
        run, position = backend.current.decode_run(
            buffer, position + header.size_bytes, min_offset, check, topic, partition, _TIMESTAMP_TYPES
        )
        records += run
    return records


def validate_batches(
    buffer: Buffer,
    *,
    max_batch_bytes: int,
    full: bool = True,
    allow_control: bool = False,
    require_keys: bool = False,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[tuple[int, BatchHeader]]:
    """What a leader checks before it appends; (position, header) of each batch, which fill `buffer` exactly.

    Without `full` the records are not looked at. `allow_control` is for batches from within the cluster: the rules for
    clients (no control batches, no broker's fields, consecutive offsets) are not applied. `require_keys` refuses records
    without a key, as compacted topics must; it implies `full`.

    Raises `CorruptRecordError` (retriable: damage on the way), `RecordTooLargeError`, `InvalidRecordError`,
    `InvalidTimestampError`, `UnsupportedCompressionTypeError` or `UnsupportedForMessageFormatError`.
    """
    batches: list[tuple[int, BatchHeader]] = []
    for position, header in _whole_batches(buffer):
        if header.size_bytes > max_batch_bytes:
            raise RecordTooLargeError(f"batch of {header.size_bytes} bytes exceeds max_message_bytes={max_batch_bytes}")
        check_crc(buffer, position, header)
        if not allow_control:
            _check_client_header(header)
        codec = header.compression_type
        if full or require_keys:
            largest = backend.current.validate_records(
                record_section(buffer, position, header, max_decompressed_bytes),
                header.record_count,
                header.last_offset_delta,
                header.base_timestamp,
                not allow_control,
                require_keys,
            )
            if not allow_control and largest != header.max_timestamp:
                raise InvalidRecordError(
                    f"max timestamp {header.max_timestamp} of a batch ({codec.label}) whose records go to {largest}"
                )
        batches.append((position, header))
    return batches


def _whole_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """As `iter_headers`, but a cut batch or an empty buffer is a `CorruptRecordError`."""
    position, end = 0, len(buffer)
    while position < end or not end:
        header = read_header(buffer, position)
        yield position, header
        position += header.size_bytes


def _check_client_header(header: BatchHeader) -> None:
    """The header rules of Kafka's `LogValidator.validateBatch` for batches that clients send."""
    if header.last_offset_delta < 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"batch of {header.record_count} records with last offset delta {header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecordError("control batch from a client: only coordinators write markers")
    if header.has_delete_horizon:
        raise InvalidRecordError("delete horizon set by a client: only the log cleaner sets it")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecordError(f"producer {header.producer_id}: base sequence {header.base_sequence} is negative")
    if header.is_transactional and not header.has_producer_id:
        raise InvalidRecordError("transactional batch without a producer id")
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("timestamp type LogAppendTime set by a client: only the broker sets it")
