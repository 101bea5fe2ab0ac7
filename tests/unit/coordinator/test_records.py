"""The bytes in `__consumer_offsets` are Kafka's."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import CorruptRecordError, InvalidRequestError, KraftlogError
from kraftlog.server.coordinator import records
from kraftlog.server.coordinator.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_group_metadata,
    decode_key,
    decode_offset_commit,
    encode_key,
    group_metadata_record,
    offset_commit_record,
)

MEMBER = MemberMetadata(
    member_id="m",
    group_instance_id=None,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"\x01\x02",
    assignment=b"\x03",
)
GENERATION = GroupMetadataValue(
    protocol_type="consumer",
    generation_id=7,
    protocol_name="range",
    leader="m",
    current_state_timestamp_ms=1,
    members=(MEMBER,),
)


def test_an_offset_commit_is_key_v1_and_value_v3() -> None:
    """OffsetCommitKey.json and OffsetCommitValue.json: fields in order, big endian, int16 lengths."""
    record = offset_commit_record(OffsetCommitKey("g", "t", 5), OffsetCommitValue(258, -1, "me", 1_000))
    assert record.key.hex() == "000100016700017400000005"
    assert record.value is not None
    assert record.value.hex() == "00030000000000000102ffffffff00026d6500000000000003e8"


def test_a_generation_is_key_v2_and_value_v3() -> None:
    """GroupMetadataKey.json and GroupMetadataValue.json; a null instance id has length -1."""
    record = group_metadata_record("g", GENERATION)
    assert record.key.hex() == "0002000167"
    assert record.value is not None
    assert record.value.hex() == (
        "0003"
        "0008" + b"consumer".hex() + "00000007"
        "0005" + b"range".hex() + "00016d"
        "0000000000000001"
        "00000001"
        "00016d"
        "ffff"
        "000163"
        "00022f68"
        "0000ea60"
        "00002710"
        "00000002"
        "0102"
        "00000001"
        "03"
    )


def test_an_empty_group_has_null_protocol_and_leader() -> None:
    """Kafka writes an empty group with null protocol and leader and no members."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation_id=8,
        protocol_name=None,
        leader=None,
        current_state_timestamp_ms=2,
        members=(),
    )
    encoded = group_metadata_record("g", value).value
    assert encoded is not None
    assert encoded.hex() == "00030008" + b"consumer".hex() + "00000008ffffffff000000000000000200000000"
    assert decode_group_metadata(encoded) == value


def test_tombstones_have_no_value() -> None:
    assert offset_commit_record(OffsetCommitKey("g", "t", 5), None).value is None
    assert group_metadata_record("g", None).value is None


@pytest.mark.parametrize(
    ("encoded", "leader_epoch"),
    [
        ("0000000000000000000500000000000000000009", -1),
        ("0001000000000000000500000000000000000009000000000000000a", -1),
        ("0002000000000000000500000000000000000009", -1),
        ("000300000000000000050000000200000000000000000009", 2),
    ],
)
def test_older_offset_values_are_read(encoded: str, leader_epoch: int) -> None:
    """A `__consumer_offsets` that Kafka wrote years ago loads: versions 0 to 3."""
    assert decode_offset_commit(bytes.fromhex(encoded)) == OffsetCommitValue(5, leader_epoch, "", 9)


def test_older_generations_are_read() -> None:
    """Version 0 has one timeout for both, version 1 no timestamp, version 2 no instance ids."""
    head = "0008" + b"consumer".hex() + "000000070005" + b"range".hex() + "00016d"
    member = "00016d00016300022f68"
    tail = "0000000000000000"
    v0 = decode_group_metadata(bytes.fromhex("0000" + head + "00000001" + member + "00002710" + tail))
    assert (v0.members[0].rebalance_timeout_ms, v0.members[0].session_timeout_ms) == (10_000, 10_000)
    assert v0.current_state_timestamp_ms == -1
    v1 = decode_group_metadata(bytes.fromhex("0001" + head + "00000001" + member + "0000ea6000002710" + tail))
    assert (v1.members[0].rebalance_timeout_ms, v1.members[0].session_timeout_ms) == (60_000, 10_000)
    v2 = decode_group_metadata(
        bytes.fromhex("0002" + head + "000000000000000300000001" + member + "0000ea6000002710" + tail)
    )
    assert (v2.current_state_timestamp_ms, v2.members[0].group_instance_id) == (3, None)


def test_keys_of_other_versions_are_recognised_as_such() -> None:
    """Kafka's newer groups write keys 3 and up into the same topic; they are not ours to read."""
    assert decode_key(bytes.fromhex("0003000167")) == UnknownKey(3)


@pytest.mark.parametrize("version", ["ffff", "0004"])
def test_unknown_value_versions_are_refused(version: str) -> None:
    """A value that cannot be understood is not silently dropped: the offset it holds would be lost."""
    with pytest.raises(CorruptRecordError, match="version"):
        decode_offset_commit(bytes.fromhex(version + "00" * 30))
    with pytest.raises(CorruptRecordError, match="version"):
        decode_group_metadata(bytes.fromhex(version + "00" * 30))


def test_text_that_no_int16_can_count_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="32767"):
        encode_key(GroupMetadataKey("x" * 40_000))


TEXT = st.text(max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    MemberMetadata,
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=INT32,
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)
GENERATIONS = st.builds(
    GroupMetadataValue,
    protocol_type=TEXT,
    generation_id=INT32,
    protocol_name=st.none() | TEXT,
    leader=st.none() | TEXT,
    current_state_timestamp_ms=INT64,
    members=st.lists(MEMBERS, max_size=4).map(tuple),
)


@given(TEXT, TEXT, INT32, INT64, INT32, TEXT, INT64)
def test_offset_commits_survive_the_round_trip(
    group_id: str, topic: str, partition: int, offset: int, epoch: int, metadata: str, timestamp_ms: int
) -> None:
    key = OffsetCommitKey(group_id, topic, partition)
    value = OffsetCommitValue(offset, epoch, metadata, timestamp_ms)
    record = offset_commit_record(key, value)
    assert record.value is not None
    assert (decode_key(record.key), decode_offset_commit(record.value)) == (key, value)


@given(TEXT, GENERATIONS)
def test_generations_survive_the_round_trip(group_id: str, value: GroupMetadataValue) -> None:
    record = group_metadata_record(group_id, value)
    assert record.value is not None
    assert (decode_key(record.key), decode_group_metadata(record.value)) == (GroupMetadataKey(group_id), value)


@given(st.data())
def test_the_short_way_and_the_careful_way_read_the_same(data: st.DataObject) -> None:
    """Nearly every record is read in one go; what that refuses, and what it accepts, the cursor reads alike."""
    record = offset_commit_record(
        OffsetCommitKey(data.draw(TEXT), data.draw(TEXT), 5), OffsetCommitValue(6, -1, data.draw(TEXT), 7)
    )
    for whole, short, decode in (
        (record.key, "_usual_offset_key", decode_key),
        (record.value or b"", "_usual_offset_value", decode_offset_commit),
    ):
        encoded = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 2))):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
        damaged = bytes(encoded[: data.draw(st.integers(0, len(encoded)))] if data.draw(st.booleans()) else encoded)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, short, lambda data: None)
            careful = _outcome(decode, damaged)
        assert _outcome(decode, damaged) == careful


def _outcome(decode: Callable[[bytes], object], data: bytes) -> object:
    try:
        return decode(data)
    except CorruptRecordError:
        return CorruptRecordError


@given(st.data())
def test_damaged_bytes_are_refused_by_name(data: st.DataObject) -> None:
    """Cut or altered bytes give a value or a `KraftlogError`, never another exception."""
    encoded = bytearray(group_metadata_record("g", GENERATION).value or b"")
    for _ in range(data.draw(st.integers(0, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
    for decode in (decode_group_metadata, decode_offset_commit, decode_key):
        with contextlib.suppress(KraftlogError):
            decode(cut)
