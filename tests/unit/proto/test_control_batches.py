"""Control batches: transaction markers and the Raft log's own records."""

import struct
from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.records import ControlType, EndTransactionMarker


def control_record(key: bytes | None, value: bytes | None = b"") -> records.Record:
    return records.Record("t", 0, 0, 0, 0, key, value)


@pytest.mark.parametrize("commit", [True, False])
def test_marker_equals_kafkas_bytes(commit: bool, twin: Any) -> None:
    """control-commit and control-abort of the vectors: key v0 and type, value v0 and coordinator epoch 79."""
    batch = records.end_transaction_marker(
        commit, 79, producer_id=4001, producer_epoch=3, timestamp_ms=1_700_000_000_000
    )
    crc, kind = ("0e5a7c06", "01") if commit else ("fa64aa4e", "00")
    assert batch.hex() == (
        f"000000000000000000000042ffffffff02{crc}0030000000000000018bcfe568000000018bcfe56800"
        f"0000000000000fa10003ffffffff000000012000000008000000{kind}0c00000000004f00"
    )
    header = records.read_header(batch)
    assert header.is_control
    assert header.is_transactional
    (record,) = records.decode_batch(batch)
    assert records.read_control_type(record) is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert records.read_end_transaction_marker(record) == EndTransactionMarker(commit, 79)


def test_raft_control_batch_keeps_its_records(twin: Any) -> None:
    """Leader change, snapshot header and footer: types 2 to 4 of KIP-595 and KIP-630."""
    types = [ControlType.LEADER_CHANGE, ControlType.SNAPSHOT_HEADER, ControlType.SNAPSHOT_FOOTER]
    batch = records.control_batch(
        [(records.control_key(control_type), b"body %d" % control_type) for control_type in types],
        timestamp_ms=5,
        base_offset=40,
        leader_epoch=6,
    )
    header = records.read_header(batch)
    assert header.is_control
    assert not header.is_transactional
    assert (header.base_offset, header.leader_epoch, header.producer_id) == (40, 6, -1)
    decoded = records.decode_batch(batch)
    assert [records.read_control_type(record) for record in decoded] == types
    assert [record.value for record in decoded] == [b"body 2", b"body 3", b"body 4"]
    assert records.validate_batches(batch, max_batch_bytes=1000, allow_control=True) == [(0, header)]


def test_control_types_have_kafkas_numbers() -> None:
    """org.apache.kafka.common.record.ControlRecordType."""
    assert [control_type.value for control_type in ControlType] == [0, 1, 2, 3, 4, 5, 6]
    assert records.control_key(ControlType.KRAFT_VOTERS) == bytes((0, 0, 0, 6))


def test_types_of_later_versions_are_unknown_not_errors() -> None:
    """A reader must skip control records that it does not know."""
    assert records.read_control_type(control_record(struct.pack(">hh", 0, 99))) is None
    assert records.read_control_type(control_record(struct.pack(">hh", 7, 1))) is ControlType.COMMIT
    later = control_record(struct.pack(">hh", 1, 1), struct.pack(">hi", 1, 5) + b"more")
    assert records.read_end_transaction_marker(later) == EndTransactionMarker(True, 5)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_bad_control_key_is_invalid(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        records.read_control_type(control_record(key))


@pytest.mark.parametrize(
    ("kind", "value"), [(1, None), (1, b"\0\0\0\0\0"), (1, b"\xff\xff\0\0\0\1"), (2, b"\0\0\0\0\0\1"), (99, b"\0" * 6)]
)
def test_what_does_not_end_a_transaction_is_invalid(kind: int, value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError):
        records.read_end_transaction_marker(control_record(struct.pack(">hh", 0, kind), value))
