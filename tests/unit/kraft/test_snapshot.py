"""The bytes of snapshots: batches as Kafka's, and nothing but a sound file is read."""

import pytest

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.kraft.snapshot import (
    GENESIS,
    MAX_BATCH_BYTES,
    SnapshotId,
    decode_snapshot,
    encode_records_as_snapshot,
    encode_snapshot,
)
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from kraftlog.proto.metadata_pb2 import ConfigRecord, MetadataRecord, RemoveTopicRecord, TopicRecord
from kraftlog.proto.records import BatchBuilder, ControlType, control_batch, control_key, decode_batch, iter_headers
from tests.unit.kraft.batches import encode_records

VOTERS = frozenset({ReplicaKey(1, bytes(range(16)))})
ENDPOINTS = {ReplicaKey(1, bytes(range(16))): Endpoint("localhost", 9093)}


def image_of(*records: MetadataRecord, epoch: int = 3) -> MetadataImage:
    delta = MetadataDelta()
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    return delta.apply(len(records) - 1, epoch)


def topics(count: int) -> list[MetadataRecord]:
    return [
        MetadataRecord(topic=TopicRecord(name=f"t{number:09}", topic_id=number.to_bytes(16, "big")))
        for number in range(count)
    ]


def encoded(image: MetadataImage) -> bytes:
    return b"".join(encode_snapshot(image, VOTERS, ENDPOINTS, timestamp_ms=77))


def test_layout_is_kafkas() -> None:
    """Header, kraft.version and voters in the first batch, the footer in the last; offsets from 0; the epoch in each."""
    data = encoded(image_of(*topics(2)))
    batches = list(iter_headers(data))
    assert [(h.base_offset, h.last_offset, h.leader_epoch, h.is_control, h.max_timestamp) for _, h in batches] == [
        (0, 2, 3, True, 77),
        (3, 4, 3, False, 77),
        (5, 5, 3, True, 77),
    ]
    keys = [record.key for position, _ in (batches[0], batches[2]) for record in decode_batch(data, position)]
    assert keys == [
        control_key(control_type)
        for control_type in (
            ControlType.SNAPSHOT_HEADER,
            ControlType.KRAFT_VERSION,
            ControlType.KRAFT_VOTERS,
            ControlType.SNAPSHOT_FOOTER,
        )
    ]


@pytest.mark.slow
def test_batches_have_a_bound() -> None:
    """They are written one by one, so that a large image is never held twice."""
    value = "v" * 32_000
    configs = [
        MetadataRecord(config=ConfigRecord(resource_type=2, resource_name="t", key=f"k{n:03}", value=value))
        for n in range(200)
    ]
    image = image_of(*topics(30_000), *configs)
    batches = list(encode_snapshot(image, VOTERS, ENDPOINTS, timestamp_ms=0))
    assert len(batches) > 8
    assert max(map(len, batches)) <= MAX_BATCH_BYTES
    assert decode_snapshot(b"".join(batches), SnapshotId.of(image)).image == image


def test_names_are_kafkas() -> None:
    """End offset and epoch; the empty image's is the genesis."""
    assert SnapshotId(42, 7).file_name == "00000000000000000042-0000000007.checkpoint"
    assert SnapshotId.parse("00000000000000000042-0000000007.checkpoint") == SnapshotId(42, 7)
    assert SnapshotId.of(image_of(*topics(2))) == SnapshotId(2, 3)
    assert SnapshotId.of(EMPTY_IMAGE) == GENESIS
    assert GENESIS.file_name == "00000000000000000000-0000000000.checkpoint"
    for name in ("00000000000000000042-0000000007.checkpoint.part", "42-7.checkpoint", "quorum-state"):
        assert SnapshotId.parse(name) is None


@pytest.mark.slow
def test_every_bit_counts() -> None:
    """Also where no CRC is: offset, length, epoch, magic."""
    image = image_of(*topics(1))
    sound = encoded(image)
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptRecordError, UnsupportedVersionError)):
            decode_snapshot(bytes(damaged), SnapshotId.of(image))


def test_every_cut_is_noticed() -> None:
    """Between batches too: the footer is missing then."""
    image = image_of(*topics(1))
    sound = encoded(image)
    for size in range(len(sound)):
        with pytest.raises(CorruptRecordError):
            decode_snapshot(sound[:size], SnapshotId.of(image))
    with pytest.raises(CorruptRecordError, match=r"follows its footer|has offset"):
        decode_snapshot(sound + sound, SnapshotId.of(image))


def test_snapshot_of_another_name_is_refused() -> None:
    """A file that was renamed, or copied to the wrong place: the epoch says so."""
    with pytest.raises(CorruptRecordError, match="epoch 3"):
        decode_snapshot(encoded(image_of(*topics(1))), SnapshotId(1, 4))


def test_what_is_no_snapshot_is_refused() -> None:
    """A part of the log, control batches alone, records that do not fit together."""
    log = encode_records(topics(1), base_offset=0, leader_epoch=3, timestamp_ms=0)
    with pytest.raises(CorruptRecordError, match="is not SNAPSHOT_HEADER"):
        decode_snapshot(log, SnapshotId(1, 3))
    leader_change = control_batch([(control_key(ControlType.LEADER_CHANGE), b"")], timestamp_ms=0, leader_epoch=3)
    with pytest.raises(CorruptRecordError, match="is not SNAPSHOT_HEADER"):
        decode_snapshot(leader_change, SnapshotId(1, 3))
    nonsense = [MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=bytes(16)))]
    data = b"".join(encode_records_as_snapshot(SnapshotId(1, 3), nonsense, VOTERS, {}, timestamp_ms=0))
    with pytest.raises(CorruptRecordError, match="does not exist"):
        decode_snapshot(data, SnapshotId(1, 3))


def test_records_of_a_later_version_are_refused() -> None:
    """By the word that tells what to do."""
    head, foot = encode_records_as_snapshot(SnapshotId(1, 3), [], VOTERS, {}, timestamp_ms=0)
    builder = BatchBuilder()
    builder.append(0, None, b"\xfa\x07\x02\x08\x01")  # field 127
    later = builder.build(base_offset=3, leader_epoch=3)
    with pytest.raises(UnsupportedVersionError, match="start that version"):
        decode_snapshot(head + later + foot, SnapshotId(1, 3))
