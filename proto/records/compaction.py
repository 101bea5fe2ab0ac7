"""Compaction of single batches: the map from keys to their latest offsets, and what a batch becomes under it.

The rules are Kafka's (`Cleaner`, `MemoryRecords.filterTo`, KIP-534): offsets never change, a batch keeps its base
offset, last offset delta, producer fields and codec; a batch that loses nothing stays byte for byte.
"""

import contextlib
import mmap
from dataclasses import dataclass

from kraftlog.proto.records import backend, compression
from kraftlog.proto.records._reference_compact import SIP_KEY_BYTES, SLOT_BYTES
from kraftlog.proto.records.format import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_HEAD,
    HEADER_TAIL,
    MAGIC,
    BatchHeader,
    Buffer,
    TimestampType,
)
from kraftlog.proto.records.reader import record_section

LOAD_FACTOR = 0.9  # Kafka's log.cleaner.io.buffer.load.factor; probes stay short
_EMPTY_LENGTH = HEADER_BYTES - 12


class OffsetMap:
    """The latest offset of each key, in fixed memory. Used by one thread at a time."""

    def __init__(self, max_bytes: int, sip_key: bytes) -> None:
        """At most `max_bytes` (at least one slot). `sip_key`: 16 random bytes."""
        assert len(sip_key) == SIP_KEY_BYTES
        slots = max(2, max_bytes // SLOT_BYTES)
        self.table = _zeros(slots * SLOT_BYTES)
        self.sip_key = sip_key
        self.max_keys = max(1, int(slots * LOAD_FACTOR))
        self.key_count = 0
        self.end_offset = 0
        """Exclusive end of what was looked at: records from here on are not in the map."""

    @staticmethod
    def bytes_for(key_count: int) -> int:
        """Memory that so many keys need."""
        return SLOT_BYTES * (int(key_count / LOAD_FACTOR) + 2)

    def add(self, batch: Buffer, header: BatchHeader, min_offset: int) -> bool:
        """Note a data batch's keys from `min_offset` on; False if the map is full: `end_offset` is where it stopped.

        Batches come in the order of their offsets. Raises `InvalidRecordError` for records that cannot be read.
        """
        self.key_count, stopped_at = backend.current.add_keys(
            self.table,
            self.sip_key,
            record_section(batch, 0, header),
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            min_offset,
            self.key_count,
            self.max_keys,
        )
        self.end_offset = header.next_offset if stopped_at < 0 else header.base_offset + stopped_at
        return stopped_at < 0


def _zeros(size_bytes: int) -> memoryview:
    """Memory of its own, zero, that the system provides when it is first touched.

    A bytearray holds all threads up while it is filled (128 MiB: 70 ms) and again while it is freed (20 ms; with huge
    pages 1 ms).
    """
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a batch became."""

    data: Buffer
    record_count: int
    max_timestamp: int


def clean_batch(
    batch: Buffer, header: BatchHeader, offset_map: OffsetMap, *, now_ms: int, delete_retention_ms: int
) -> Cleaned | None:
    """A data batch without what later records replace; None if no record is left.

    Tombstones stay until the batch's delete horizon, which is set when the cleaner first meets them. A batch that
    reaches beyond the map gets none yet. Raises `InvalidRecordError`.
    """
    may_set = not header.has_delete_horizon and header.next_offset <= offset_map.end_offset
    drops = header.has_delete_horizon and header.base_timestamp <= now_ms
    return _filter(
        batch,
        header,
        offset_map,
        offset_map.end_offset,
        drops,
        now_ms + delete_retention_ms if may_set else None,
        False,
    )


def with_delete_horizon(batch: Buffer, header: BatchHeader, offset_map: OffsetMap, horizon_ms: int) -> Cleaned:
    """A control batch, whole, with the time from which it may go."""
    cleaned = _filter(batch, header, offset_map, 0, False, horizon_ms, True)
    assert cleaned is not None, "nothing was filtered"
    return cleaned


def _filter(
    batch: Buffer,
    header: BatchHeader,
    offset_map: OffsetMap,
    end_offset: int,
    drop_tombstones: bool,
    horizon: int | None,
    force_horizon: bool,
) -> Cleaned | None:
    kept, largest, has_horizon, section = backend.current.filter_records(
        offset_map.table,
        offset_map.sip_key,
        record_section(batch, 0, header),
        header.record_count,
        header.last_offset_delta,
        header.base_offset,
        header.base_timestamp,
        end_offset,
        drop_tombstones,
        horizon,
        force_horizon,
    )
    if not kept:
        return None
    if section is None:
        return Cleaned(batch, header.record_count, header.max_timestamp)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        largest = header.max_timestamp  # the time of every record
    codec = header.attributes & COMPRESSION_MASK
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if has_horizon:
        assert horizon is not None
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, horizon
    packed = compression.compress(codec, section) if codec else section
    return Cleaned(_encode(header, attributes, base_timestamp, largest, kept, packed), kept, largest)


def emptied(header: BatchHeader) -> bytes:
    """The batch without records, kept for what its header says of its producer (as Kafka's `writeEmptyHeader`)."""
    return _encode(header, header.attributes, header.base_timestamp, header.max_timestamp, 0, b"")


def placeholder(offset: int, leader_epoch: int, max_timestamp: int) -> bytes:
    """A batch without records at `offset`, of no producer: it says only that the log goes up to there."""
    header = BatchHeader(offset, 0, leader_epoch, MAGIC, 0, 0, 0, max_timestamp, max_timestamp, -1, -1, -1, 0)
    return emptied(header)


def is_placeholder(header: BatchHeader) -> bool:
    """Whether a batch says nothing but that the log goes up to its last offset."""
    return not header.record_count and not header.has_producer_id


def _encode(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, section: Buffer
) -> bytes:
    tail = HEADER_TAIL.pack(
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    crc = backend.current.crc32c(section, backend.current.crc32c(tail))
    head = HEADER_HEAD.pack(header.base_offset, _EMPTY_LENGTH + len(section), header.leader_epoch, MAGIC, crc)
    return b"".join((head, tail, section))
