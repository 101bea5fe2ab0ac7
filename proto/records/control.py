"""Control batches: records that steer readers and are never handed to applications.

A control record's key is int16 version (0), int16 type. Types 0 and 1 end a transaction (KIP-98): their value is int16
version (0), int32 coordinator epoch. Types from 2 on belong to the Raft log (KIP-595, KIP-630, KIP-853): their values
are the quorum's own.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.records.builder import BatchBuilder

if TYPE_CHECKING:
    from kraftlog.proto.records._reference import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlType(IntEnum):
    """What a control record says; numbers as in Kafka's `ControlRecordType`."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition."""

    is_commit: bool
    coordinator_epoch: int


def control_key(control_type: ControlType) -> bytes:
    return _KEY.pack(0, control_type)


def read_control_type(record: "Record") -> ControlType | None:
    """What a control record says; None for a type of a later version, which readers must ignore.

    Raises `InvalidRecordError` if the key is too short or its version negative.
    """
    key = record.key
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(f"control record at offset {record.offset}: no control key in {key!r}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record at offset {record.offset}: key version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def read_end_transaction_marker(record: "Record") -> EndTransactionMarker:
    """The marker in a control record of type COMMIT or ABORT; `InvalidRecordError` for anything else.

    Versions above 0 may append fields and are read by their first ones.
    """
    control_type = read_control_type(record)
    value = record.value
    if control_type not in (ControlType.COMMIT, ControlType.ABORT):
        raise InvalidRecordError(f"control record at offset {record.offset} does not end a transaction")
    if value is None or len(value) < _MARKER.size:
        raise InvalidRecordError(f"control record at offset {record.offset}: no marker in {value!r}")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"control record at offset {record.offset}: marker version {version}")
    return EndTransactionMarker(control_type is ControlType.COMMIT, coordinator_epoch)


def control_batch(
    records: Iterable[tuple[bytes, bytes]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """A control batch of (key, value) records; keys come from `control_key`."""
    builder = BatchBuilder(is_transactional=is_transactional, is_control=True)
    for key, value in records:
        builder.append(timestamp_ms, key, value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def end_transaction_marker(
    commit: bool, coordinator_epoch: int, *, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """The batch that commits or aborts a producer's open transaction."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    return control_batch(
        [(key, _MARKER.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )
