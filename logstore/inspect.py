"""Reading a partition's files as they lie, without opening a `Log` and without changing anything.

For `kraftctl log inspect` and for tests. Works on a stopped node's directory, and on the sealed files of a running one.

    fs = RealFileSystem()
    partition = inspect_directory(fs, "/var/kraftlog/orders-0")     # PartitionInfo: segments, epochs, snapshots, topic id
    for segment in partition.segments:
        for batch in iter_batches(fs, segment.path):                # BatchInfo per batch
            for record in read_records(fs, segment.path, batch): ...  # kraftlog.proto.records.Record, control ones too
        segment.tail                                                # what follows the last batch, or None
    for entry in iter_offset_index(fs, path_of_index): ...          # OffsetPosition(offset, position)
    for entry in iter_time_index(fs, path_of_timeindex): ...        # TimestampOffset(timestamp, offset)
    for entry in read_transaction_index(fs, path_of_txnindex): ...  # AbortedTransaction
    for entry in read_snapshot(fs, path_of_snapshot): ...           # ProducerEntry

All raise `OSError` for files that cannot be read, `CorruptRecordError` or `ValueError` for a snapshot or transaction
index that is damaged. A damaged `.log` raises nothing: its batches say whether their CRC holds, and its tail says what is
wrong. `to_dict` turns any of the dataclasses into JSON types.
"""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kraftlog.logstore.batches import find_valid_batch, is_zero, unpack_header
from kraftlog.logstore.checkpoints import read_epoch_checkpoint, read_partition_metadata
from kraftlog.logstore.filesystem import File, FileSystem, read_file
from kraftlog.logstore.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from kraftlog.logstore.layout import (
    INDEX_SUFFIX,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    parse_log_directory,
    parse_segment_file,
)
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerEntry
from kraftlog.logstore.snapshots import decode_snapshot
from kraftlog.logstore.transaction_index import decode_aborted
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import HEADER_BYTES, Record, check_crc, decode_batch, read_header
from kraftlog.proto.uuids import uuid_to_text


class TailKind(Enum):
    """What the bytes after the last batch are."""

    PREALLOCATED = "preallocated"
    """Zeros: room for batches to come. Only in the last segment of a running or killed node."""
    TORN = "torn"
    """No batch, and none after it: a write that a crash interrupted. Recovery cuts it."""
    DAMAGED = "damaged"
    """No batch, but there is a valid one after it: recovery refuses to cut this."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The bytes from `position` to the end of a `.log` file."""

    kind: TailKind
    position: int
    size_bytes: int
    next_valid_position: int | None = None
    """Where the next valid batch starts, if `kind` is DAMAGED."""


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch: its header, where it lies and whether its bytes match its CRC. Offsets are inclusive."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    crc: int
    is_crc_valid: bool
    compression: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One `.log` file, its batches summed up. Index counts are None where there is no such file."""

    path: str
    base_offset: int
    next_offset: int
    """The offset after the last batch; `base_offset` if there is none."""
    batch_count: int
    record_count: int
    size_bytes: int
    """Bytes of batches."""
    max_timestamp: int
    """-1 if there is none."""
    invalid_batch_count: int
    """Batches whose CRC does not match."""
    tail: Tail | None
    offset_index_entries: int | None
    time_index_entries: int | None
    aborted_transactions: int | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's folder."""

    path: str
    topic: str
    partition: int
    topic_id: str
    """22 characters; empty if the folder does not say."""
    segments: tuple[SegmentInfo, ...]
    leader_epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), ascending."""
    snapshot_paths: tuple[str, ...]
    other_files: tuple[str, ...]
    """Names that are not part of a log."""


def inspect_directory(fs: FileSystem, directory: str) -> PartitionInfo:
    """Everything in a partition's folder; reads every batch."""
    topic, partition = parse_log_directory(os.path.basename(os.path.abspath(directory))) or ("", -1)
    segments, snapshots, others = [], [], []
    for name in fs.listdir(directory):
        parsed = parse_segment_file(name)
        if parsed is None:
            if name not in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE):
                others.append(name)
        elif parsed[1] == LOG_SUFFIX:
            segments.append(inspect_segment(fs, os.path.join(directory, name)))
        elif parsed[1] == SNAPSHOT_SUFFIX:
            snapshots.append(os.path.join(directory, name))
    topic_id = read_partition_metadata(fs, os.path.join(directory, PARTITION_METADATA_FILE))
    epochs = read_epoch_checkpoint(fs, os.path.join(directory, LEADER_EPOCH_FILE))
    return PartitionInfo(
        path=directory,
        topic=topic,
        partition=partition,
        topic_id=uuid_to_text(topic_id) if topic_id else "",
        segments=tuple(segments),
        leader_epochs=tuple(epochs or ()),
        snapshot_paths=tuple(snapshots),
        other_files=tuple(others),
    )


def inspect_segment(fs: FileSystem, path: str) -> SegmentInfo:
    """Sum up one `.log` file."""
    base_offset = _base_offset(path)
    batch_count = record_count = invalid = end = 0
    next_offset, max_timestamp = base_offset, -1
    for batch in iter_batches(fs, path):
        batch_count += 1
        record_count += batch.record_count
        invalid += not batch.is_crc_valid
        next_offset, end = batch.last_offset + 1, batch.position + batch.size_bytes
        max_timestamp = max(max_timestamp, batch.max_timestamp)
    return SegmentInfo(
        path=path,
        base_offset=base_offset,
        next_offset=next_offset,
        batch_count=batch_count,
        record_count=record_count,
        size_bytes=end,
        max_timestamp=max_timestamp,
        invalid_batch_count=invalid,
        tail=_tail(fs, path, end, next_offset),
        offset_index_entries=_count(fs, path, INDEX_SUFFIX, 8),
        time_index_entries=_count(fs, path, TIME_INDEX_SUFFIX, 12),
        aborted_transactions=_count(fs, path, TXN_INDEX_SUFFIX, 34),
    )


def iter_batches(fs: FileSystem, path: str) -> Iterator[BatchInfo]:
    """The batches of a `.log` file up to the first bytes that are none. One with a bad CRC is told, not skipped."""
    file = fs.open(path)
    try:
        position, end = 0, file.size()
        while (batch := _batch_at(file, position, end)) is not None:
            yield batch
            position += batch.size_bytes
    finally:
        file.close()


def read_records(fs: FileSystem, path: str, batch: BatchInfo) -> list[Record]:
    """The records of a batch that `iter_batches` found. Raises `CorruptRecordError`, `InvalidRecordError`."""
    file = fs.open(path)
    try:
        return decode_batch(file.pread(batch.size_bytes, batch.position))
    finally:
        file.close()


def iter_offset_index(fs: FileSystem, path: str) -> Iterator[OffsetPosition]:
    """Whole entries of an `.index` file; offsets are absolute."""
    index = OffsetIndex(_base_offset(path), read_file(fs, path))
    return (index.entry(number) for number in range(len(index)))


def iter_time_index(fs: FileSystem, path: str) -> Iterator[TimestampOffset]:
    """Whole entries of a `.timeindex` file; offsets are absolute."""
    index = TimeIndex(_base_offset(path), read_file(fs, path))
    return (index.entry(number) for number in range(len(index)))


def read_transaction_index(fs: FileSystem, path: str) -> list[AbortedTransaction]:
    """The entries of a `.txnindex` file. `ValueError` if it is damaged."""
    return list(decode_aborted(read_file(fs, path)))


def read_snapshot(fs: FileSystem, path: str) -> list[ProducerEntry]:
    """The producers of a `.snapshot` file. `CorruptRecordError` if it is damaged."""
    return decode_snapshot(read_file(fs, path), path)


def to_dict(value: Any) -> Any:
    """Dataclasses, enums and tuples as dicts, strings and lists, for JSON."""
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value):
        return {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if (as_dict := getattr(value, "_asdict", None)) is not None:  # a NamedTuple
        return {name: to_dict(item) for name, item in as_dict().items()}
    if isinstance(value, str | bytes | int | float | None):
        return value
    return [to_dict(item) for item in value]


def _batch_at(file: File, position: int, end: int) -> BatchInfo | None:
    header = unpack_header(file.pread(HEADER_BYTES, position))
    if header is None or position + header.size_bytes > end:
        return None
    data = file.pread(header.size_bytes, position)
    try:
        check_crc(data, 0, read_header(data))
        is_crc_valid, compression = True, header.compression_type.label
    except KraftlogError:
        is_crc_valid, compression = False, "unknown"
    return BatchInfo(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        leader_epoch=header.leader_epoch,
        crc=header.crc,
        is_crc_valid=is_crc_valid,
        compression=compression,
        timestamp_type=header.timestamp_type.name,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
    )


def _tail(fs: FileSystem, path: str, position: int, next_offset: int) -> Tail | None:
    file = fs.open(path)
    try:
        size = file.size()
        if position == size:
            return None
        if is_zero(file, position, size):
            return Tail(TailKind.PREALLOCATED, position, size - position)
        following = find_valid_batch(file, position, size, next_offset)
        kind = TailKind.TORN if following is None else TailKind.DAMAGED
        return Tail(kind, position, size - position, following)
    finally:
        file.close()


def _base_offset(path: str) -> int:
    parsed = parse_segment_file(os.path.basename(path))
    if parsed is None:
        raise ValueError(f"{path} is not named like a file of a segment")
    return parsed[0]


def _count(fs: FileSystem, log_path: str, suffix: str, entry_bytes: int) -> int | None:
    size = fs.size(log_path.removesuffix(LOG_SUFFIX) + suffix)
    return None if size is None else size // entry_bytes
