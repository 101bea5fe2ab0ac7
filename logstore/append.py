"""What a batch must satisfy to enter a log, and how it is written: pure, no file is touched here."""

from collections.abc import Sequence
from dataclasses import dataclass

from kraftlog.logstore.config import LogConfig
from kraftlog.proto.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordListTooLargeError,
)
from kraftlog.proto.records import (
    BatchHeader,
    TimestampType,
    batch_prefix,
    read_header,
    set_log_append_time,
    validate_batches,
)
from kraftlog.proto.seams import Buffer

_PREFIX_BYTES = 16  # base offset, length, leader epoch: what the leader rewrites, outside the CRC
_ANY_SIZE = (1 << 31) - 1


@dataclass(slots=True)
class Placement:
    """Batches with their offsets in this log, and the buffers that put them there (client's bytes, not copied)."""

    first_offset: int
    last_offset: int
    batches: list[tuple[BatchHeader, int, Buffer]]
    """(header, last offset in this log, bytes of the batch as they came)"""
    buffers: list[Buffer]
    size_bytes: int
    record_count: int


def check_leader_append(config: LogConfig, headers: Sequence[BatchHeader], now_ms: int, where: str) -> None:
    """The topic's own rules, for batches that are sound in themselves (`validate_batches`)."""
    size_bytes = 0
    stamps_are_checked = config.message_timestamp_type is TimestampType.CREATE_TIME
    for header in headers:
        size_bytes += header.size_bytes
        if header.is_control:
            continue
        if config.compression_type is not None and header.compression_type is not config.compression_type:
            raise InvalidRecordError(
                f"{where}: batch compressed with {header.compression_type.label}, but the topic has "
                f"compression.type={config.compression_type.label}; set the producer's compression_type"
            )
        if stamps_are_checked:
            _check_timestamps(config, header, now_ms, where)
    if size_bytes > config.segment_bytes:
        raise RecordListTooLargeError(
            f"{where}: {size_bytes} bytes of batches exceed segment.bytes={config.segment_bytes}"
        )


def _check_timestamps(config: LogConfig, header: BatchHeader, now_ms: int, where: str) -> None:
    # Kafka looks at every record; we look at the first record's timestamp and the largest. A record older than both
    # passes here and does no harm: retention goes by the largest timestamp.
    ahead = header.max_timestamp - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"{where}: timestamp {header.max_timestamp} lies {ahead} ms ahead of the broker's clock, more than "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms}"
        )
    behind = now_ms - header.base_timestamp
    if behind > config.message_timestamp_before_max_ms and header.base_timestamp >= 0:
        raise InvalidTimestampError(
            f"{where}: timestamp {header.base_timestamp} lies {behind} ms behind the broker's clock, more than "
            f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms}"
        )


def place_as_leader(
    records: Buffer,
    batches: Sequence[tuple[int, BatchHeader]],
    *,
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> Placement:
    """Give consecutive offsets from `first_offset` on; with `append_time_ms` also that timestamp (on a copy)."""
    if append_time_ms is not None:
        records, batches = _stamp(records, batches, append_time_ms)
    view = memoryview(records)
    placement = Placement(first_offset, first_offset - 1, [], [], 0, 0)
    buffers, placed = placement.buffers, placement.batches
    for position, header in batches:
        size = header.size_bytes
        batch = view[position : position + size]
        buffers.append(batch_prefix(first_offset, batch, leader_epoch))
        buffers.append(batch[_PREFIX_BYTES:])
        last_offset = first_offset + header.last_offset_delta
        placed.append((header, last_offset, batch))
        placement.last_offset = last_offset
        placement.size_bytes += size
        placement.record_count += header.record_count
        first_offset = last_offset + 1
    return placement


def _stamp(
    records: Buffer, batches: Sequence[tuple[int, BatchHeader]], append_time_ms: int
) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    copy = bytearray(records)
    for position, _ in batches:
        set_log_append_time(copy, position, append_time_ms)
    return copy, [(position, read_header(copy, position)) for position, _ in batches]


def place_as_follower(records: Buffer, log_end_offset: int, where: str) -> list[Placement]:
    """Check what a leader sent; one placement per batch. Offsets and epochs stay; offsets may jump ahead, never back."""
    view = memoryview(records)
    placements: list[Placement] = []
    for position, header in validate_batches(view, max_batch_bytes=_ANY_SIZE, full=False, allow_control=True):
        if header.base_offset < log_end_offset:
            raise CorruptRecordError(
                f"{where}: batch with offset {header.base_offset} from the leader, but the log ends at {log_end_offset}"
            )
        size, last_offset = header.size_bytes, header.last_offset
        batch = view[position : position + size]
        placed: list[tuple[BatchHeader, int, Buffer]] = [(header, last_offset, batch)]
        placements.append(Placement(header.base_offset, last_offset, placed, [batch], size, header.record_count))
        log_end_offset = last_offset + 1
    return placements
