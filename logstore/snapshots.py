"""Producer snapshot files, Kafka's format version 1 (big-endian):

    position  width  field
    0         2      version            1
    2         4      crc                CRC-32C of everything from position 6 on
    6         4      number of entries
    10        46     each entry: int64 producer id, int16 producer epoch, int32 last sequence, int64 last offset,
                     int32 offset delta (last minus first offset of the last batch), int64 timestamp,
                     int32 coordinator epoch, int64 first offset of the open transaction (-1: none)

`<offset>.snapshot` is the state after every batch below that offset. It is valid if version and checksum are right and the
entries fill the file exactly; a damaged one is removed, and the state is made from an earlier one and the batches since.
Written to a temporary file that is renamed: when a segment is sealed (synced by the flush that follows) and at a clean
stop.

Kafka keeps one batch of each producer. We keep up to five, so that a restart forgets nothing: a producer has one entry
per retained batch, oldest first, and only the last one carries the open transaction. Kafka's reader takes an id's last
entry, which is what it would have written itself.
"""

import struct
from collections.abc import Iterable

from kraftlog.logstore.producer_state import BatchMetadata, ProducerEntry
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import NO_SEQUENCE, next_sequence
from kraftlog.proto.records.backend import current as codec

VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_OFFSET = -1


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's bytes; producers in the order of their ids."""
    rows = [row for entry in sorted(entries, key=lambda e: e.producer_id) for row in _rows(entry)]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, codec.crc32c(body)) + body


def _rows(entry: ProducerEntry) -> Iterable[bytes]:
    open_transaction = _NO_OFFSET if entry.transaction_first_offset is None else entry.transaction_first_offset
    if not entry.batches:
        yield _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            NO_SEQUENCE,
            _NO_OFFSET,
            0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            open_transaction,
        )
        return
    last = len(entry.batches) - 1
    for number, batch in enumerate(entry.batches):
        yield _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            entry.last_timestamp if number == last else batch.timestamp,
            entry.coordinator_epoch,
            open_transaction if number == last else _NO_OFFSET,
        )


def decode_snapshot(data: bytes, path: str = "") -> list[ProducerEntry]:
    """Inverse of `encode_snapshot`; reads Kafka's files too. `CorruptRecordError` for anything damaged."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptRecordError(f"{path}: {len(data)} bytes are no producer snapshot")
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION:
        raise CorruptRecordError(f"{path}: producer snapshot of version {version} instead of {VERSION}")
    if codec.crc32c(body) != crc:
        raise CorruptRecordError(f"{path}: CRC of the producer snapshot does not match its bytes")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptRecordError(f"{path}: {len(body)} bytes do not hold {count} producer entries")
    entries: dict[int, ProducerEntry] = {}
    for row in _ENTRY.iter_unpack(body[_COUNT.size :]):
        _add(entries, row)
    return list(entries.values())


def _add(entries: dict[int, ProducerEntry], row: tuple[int, ...]) -> None:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_transaction = row
    entry = entries.setdefault(producer_id, ProducerEntry(producer_id))
    entry.producer_epoch = epoch
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = None if open_transaction == _NO_OFFSET else open_transaction
    if last_offset != _NO_OFFSET:
        first_sequence = next_sequence(last_sequence, -delta)
        entry.remember(BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
