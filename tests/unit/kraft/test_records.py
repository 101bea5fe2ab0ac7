"""Metadata records as batches, and Kafka's bytes for the quorum's own control records."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.kraft.control_records import (
    check_kraft_version,
    check_snapshot_footer,
    decode_snapshot_header,
    decode_voter_endpoints,
    decode_voters,
    encode_kraft_version,
    encode_leader_change,
    encode_snapshot_footer,
    encode_snapshot_header,
    encode_voters,
)
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import EntryKind, ReplicaKey
from kraftlog.kraft.records import (
    VERSIONS,
    ControlBatches,
    decode_records,
    entry_of,
    voter_endpoints_of,
)
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from kraftlog.proto.metadata_pb2 import (
    ConfigRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kraftlog.proto.records import BatchBuilder, ControlType, control_key, decode_batch, read_header
from tests.unit.kraft.batches import encode_records

DIRECTORY = bytes(range(16))
VOTERS = frozenset({ReplicaKey(3, DIRECTORY), ReplicaKey(1)})


def topic(name: str) -> MetadataRecord:
    return MetadataRecord(topic=TopicRecord(name=name, topic_id=bytes(16)))


def test_operation_becomes_one_batch_and_comes_back() -> None:
    """Offsets are consecutive from the base; records have no key and their type's version."""
    records = [
        topic("a"),
        MetadataRecord(config=ConfigRecord(resource_type=2, resource_name="a", key="k", value="v")),
        MetadataRecord(config=ConfigRecord(resource_type=2, resource_name="a", key="gone")),
        MetadataRecord(register_broker=RegisterBrokerRecord(node_id=1, log_dirs=[DIRECTORY])),
        MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=2**63 - 1)),
    ]
    batch = encode_records(records, base_offset=40, leader_epoch=7, timestamp_ms=1234)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.is_control) == (40, 44, 7, False)
    decoded = decode_records(batch)
    assert [record.offset for record in decoded] == [40, 41, 42, 43, 44]
    assert [record.record for record in decoded] == records
    assert all(record.record.version == 1 for record in decoded)
    assert not decoded[2].record.config.HasField("value"), "no value and an empty value differ"
    assert all(record.key is None for record in decode_batch(batch))


def test_entry_of_a_batch_is_at_its_last_offset() -> None:
    """A Raft entry's index is its last offset."""
    batch = encode_records([topic("a"), topic("b")], base_offset=5, leader_epoch=2, timestamp_ms=0)
    entry = entry_of(batch)
    assert (entry.base_offset, entry.last_offset, entry.term, entry.record_count) == (5, 6, 2, 2)
    assert (entry.kind, entry.data, entry.voters) == (EntryKind.DATA, batch, None)


def test_every_record_type_has_a_version() -> None:
    """Framing records (KIP-868) are not written by this version, so they have none and are refused when read."""
    fields = {field.name for field in MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields}
    assert fields - VERSIONS.keys() == {"begin_transaction", "end_transaction", "abort_transaction"}


def raw_batch(*values: bytes | None) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    return builder.build()


@pytest.mark.parametrize(
    "record",
    [
        MetadataRecord(version=2, topic=TopicRecord(name="a")),
        MetadataRecord(version=1),
        MetadataRecord.FromString(b"\xfa\x07\x02\x08\x01"),  # field 127: a record type of a later version
    ],
)
def test_record_of_a_later_version_is_refused(record: MetadataRecord) -> None:
    """Metadata that is only half understood would be wrong metadata."""
    with pytest.raises(UnsupportedVersionError, match="start that version"):
        decode_records(raw_batch(record.SerializeToString()))


def test_garbage_is_refused() -> None:
    """With the offset, and without a traceback of the parser."""
    with pytest.raises(CorruptRecordError, match="offset 1"):
        decode_records(raw_batch(MetadataRecord(version=1, topic=TopicRecord()).SerializeToString(), b"\xff\xff\xff"))


def test_leader_change_has_kafkas_bytes() -> None:
    """KIP-595, LeaderChangeMessage version 1: what kafka-dump-log prints as LeaderChange."""
    value = encode_leader_change(ReplicaKey(3, DIRECTORY), VOTERS)
    assert value == (
        bytes.fromhex("0001 00000003 03")  # version, leader, two voters
        + bytes.fromhex("00000001")
        + bytes(16)
        + b"\x00"
        + bytes.fromhex("00000003")
        + DIRECTORY
        + b"\x00"
        + bytes.fromhex("01 00")  # no granting voters, no tagged fields
    )
    batch = ControlBatches(lambda: 99).leader_change(12, 4, ReplicaKey(3, DIRECTORY), VOTERS)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch, header.is_control) == (12, 12, 4, True)
    (record,) = decode_batch(batch)
    assert (record.key, record.value, record.timestamp) == (control_key(ControlType.LEADER_CHANGE), value, 99)
    assert entry_of(batch).kind is EntryKind.LEADER_CHANGE


def test_voters_come_back() -> None:
    """KIP-853, type 6."""
    batch = ControlBatches(lambda: 0).voters(7, 2, VOTERS)
    entry = entry_of(batch)
    assert (entry.kind, entry.voters, entry.last_offset, entry.term) == (EntryKind.VOTERS, VOTERS, 7, 2)
    (record,) = decode_batch(batch)
    assert record.key == b"\x00\x00\x00\x06"


def test_voters_endpoints_have_kafkas_bytes_and_come_back() -> None:
    """KIP-853, VotersRecord version 0: one endpoint of the listener CONTROLLER, or none where it is not known."""
    endpoints = {ReplicaKey(3, DIRECTORY): Endpoint("c3.example", 9093), ReplicaKey(9): Endpoint("no-voter", 1)}
    value = encode_voters(VOTERS, endpoints)
    feature = bytes.fromhex("0000 0001 00 00")
    assert value == (
        bytes.fromhex("0000 03 00000001")
        + bytes(16)
        + b"\x01"  # no endpoints
        + feature
        + bytes.fromhex("00000003")
        + DIRECTORY
        + b"\x02"
        + b"\x0bCONTROLLER"
        + b"\x0bc3.example"
        + bytes.fromhex("2385 00")
        + feature
        + b"\x00"
    )
    assert decode_voters(value) == VOTERS
    assert decode_voter_endpoints(value) == {ReplicaKey(3, DIRECTORY): Endpoint("c3.example", 9093)}
    entry = entry_of(ControlBatches(lambda: 0, lambda voters: endpoints).voters(7, 2, VOTERS))
    assert (entry.voters, voter_endpoints_of(entry)) == (VOTERS, decode_voter_endpoints(value))


def test_address_that_does_not_fit_is_refused_when_written() -> None:
    """What could not be read again is not written."""
    with pytest.raises(ValueError, match="255"):
        encode_voters(VOTERS, {ReplicaKey(1): Endpoint("h" * 256, 1)})


def test_snapshot_records_have_kafkas_bytes() -> None:
    """KIP-630 and KIP-853: header, footer, kraft.version."""
    assert encode_snapshot_header(258) == bytes.fromhex("0000 0000000000000102 00")
    assert encode_snapshot_footer() == bytes.fromhex("0000 00")
    assert encode_kraft_version() == bytes.fromhex("0000 0001 00")
    assert decode_snapshot_header(encode_snapshot_header(258)) == 258
    check_snapshot_footer(encode_snapshot_footer())
    check_kraft_version(encode_kraft_version())


@pytest.mark.parametrize("read", [decode_snapshot_header, check_snapshot_footer, check_kraft_version])
@pytest.mark.parametrize("value", [None, b"", b"\x00", bytes(30), b"\x00\x00\x00\x01\x01"])
def test_bad_snapshot_records_are_refused(read: Callable[[bytes | None], object], value: bytes | None) -> None:
    """Cut, longer than they should be, with tagged fields."""
    with pytest.raises(CorruptRecordError, match="cannot be read"):
        read(value)


def test_later_snapshot_records_are_refused() -> None:
    """What they mean for the log is not known."""
    with pytest.raises(UnsupportedVersionError, match=r"kraft\.version 2"):
        check_kraft_version(bytes.fromhex("0000 0002 00"))
    with pytest.raises(UnsupportedVersionError, match="version 1"):
        check_snapshot_footer(bytes.fromhex("0001 00"))


@given(st.binary(max_size=60))
def test_hostile_voters_are_refused(value: bytes) -> None:
    """Cut, lying counts, unknown versions: one error class, no allocation by a claimed size."""
    try:
        voters = decode_voters(value)
    except (CorruptRecordError, UnsupportedVersionError):
        return
    assert decode_voters(encode_voters(voters)) == voters


@given(st.integers(0, 200))
def test_cut_voters_are_refused(size: int) -> None:
    """Every prefix."""
    whole = encode_voters(VOTERS)
    if size < len(whole) - 1:
        with pytest.raises((CorruptRecordError, UnsupportedVersionError)):
            decode_voters(whole[:size])


def test_unknown_control_record_is_refused() -> None:
    """A snapshot header or a later type does not belong into this log."""
    builder = BatchBuilder(is_control=True)
    builder.append(0, control_key(ControlType.SNAPSHOT_HEADER), b"")
    with pytest.raises(UnsupportedVersionError):
        entry_of(builder.build())


def test_damaged_batch_is_refused() -> None:
    """The CRC is checked once more when the log is loaded."""
    batch = bytearray(encode_records([topic("abc")], base_offset=0, leader_epoch=1, timestamp_ms=0))
    batch[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        entry_of(bytes(batch))
