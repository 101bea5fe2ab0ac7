"""Snapshots say what the log says: any metadata, any moment."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.kraft.controller import ConfigSchema, Controller, ControllerConfig
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import (
    BrokerEndpoint,
    BrokerImage,
    CompletedOperation,
    CompletedOperations,
    MetadataDelta,
    MetadataImage,
    PartitionImage,
    PersistentMap,
    TopicImage,
)
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.kraft.records import OffsetRecord
from kraftlog.kraft.snapshot import SnapshotContents, SnapshotId, decode_snapshot, encode_snapshot
from kraftlog.kraft.timeline import TimelineDict, TimelineValue
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from tests.property.metadata_histories import Batch, histories, replayed

VOTERS = frozenset({ReplicaKey(1), ReplicaKey(2, bytes(range(16)))})
ENDPOINTS = {ReplicaKey(1): Endpoint("localhost", 9093)}
TOPIC_ID = bytes(range(16))


def encoded(image: MetadataImage) -> bytes:
    return b"".join(encode_snapshot(image, VOTERS, ENDPOINTS, timestamp_ms=5))


def through_a_snapshot(image: MetadataImage) -> SnapshotContents:
    return decode_snapshot(encoded(image), SnapshotId.of(image))


def full_image() -> MetadataImage:
    """No field has its default."""
    partition = PartitionImage(
        partition=3,
        replicas=(1, 2, 3),
        in_sync_replicas=(2,),
        leader_id=2,
        leader_epoch=4,
        partition_epoch=5,
        removing_replicas=(1,),
        adding_replicas=(3,),
        eligible_leader_replicas=(1,),
        last_known_elr=(3,),
        is_recovering=True,
        directories=(bytes(16), TOPIC_ID, TOPIC_ID),
        is_flushed=True,
    )
    broker = BrokerImage(
        node_id=2,
        incarnation_id=TOPIC_ID,
        broker_epoch=7,
        host="h",
        port=9092,
        rack="r",
        is_fenced=True,
        in_controlled_shutdown=True,
        log_dirs=(TOPIC_ID,),
        features=PersistentMap({"metadata.version": (1, 2)}),
        endpoints=(BrokerEndpoint("SSL", "h", 9093),),
    )
    operation = CompletedOperation(request_id=TOPIC_ID, kind="create_topics", response=b"r", timestamp_ms=7)
    return MetadataImage(
        offset=40,
        leader_epoch=3,
        topics=PersistentMap({"t": TopicImage(name="t", topic_id=TOPIC_ID, partitions=PersistentMap({3: partition}))}),
        topic_names=PersistentMap({TOPIC_ID: "t"}),
        brokers=PersistentMap({2: broker}),
        resource_configs=PersistentMap({(2, "t"): PersistentMap({"k": "v"}), (4, "1"): PersistentMap({"k": ""})}),
        features=PersistentMap({"metadata.version": 1}),
        next_producer_id=1000,
        completed_operations=CompletedOperations().followed_by([operation]),
    )


def test_every_field_of_an_image_is_in_its_snapshot() -> None:
    """A field that is new in an image must be set in `full_image`, or this fails; and be in the snapshot, or it is lost."""
    image = full_image()
    values = [image, image.brokers[2], image.topics["t"], image.topics["t"].partitions[3]]
    for value in values:
        for each in dataclasses.fields(value):
            default = each.default_factory() if callable(each.default_factory) else each.default
            assert getattr(value, each.name) != default, f"{type(value).__name__}.{each.name} is not set"
    assert through_a_snapshot(image).image == image


@given(histories())
def test_image_comes_back_from_its_snapshot(history: list[Batch]) -> None:
    """With the voters, and the same bytes for the same image."""
    image = replayed(history)
    contents = through_a_snapshot(image)
    assert contents.image == image
    assert (contents.voters, contents.endpoints, contents.timestamp_ms) == (VOTERS, ENDPOINTS, 5)
    assert encoded(contents.image) == encoded(image)


@given(histories(), st.integers(0, 100))
def test_snapshot_and_the_log_after_it_give_what_the_whole_log_gives(history: list[Batch], where: int) -> None:
    """At any point of the log."""
    where %= len(history) + 1
    start = through_a_snapshot(replayed(history[:where])).image
    assert replayed(history[where:], start) == replayed(history)


def controller() -> Controller:
    return Controller(
        node_id=100,
        config=ControllerConfig(),
        random=random.Random(1),
        topic_configs=ConfigSchema(names=(), validate=lambda configs: None, list_defaults={}),
    )


def state_of(value: object, name: str = "", depth: int = 3) -> dict[str, object]:
    """Whatever the managers keep in versioned structures, by where it is; empty ones are as good as none."""
    found: dict[str, object] = {}
    if isinstance(value, TimelineDict):
        found[name] = dict(value)
    elif isinstance(value, TimelineValue):
        found[name] = value.get()
    elif isinstance(value, dict) or (hasattr(value, "__dict__") and depth):
        parts = value if isinstance(value, dict) else vars(value)
        for key, part in parts.items():
            found |= state_of(part, f"{name}.{key}", depth - 1)
    return {where: each for where, each in found.items() if each not in ({}, 0)}


@given(histories(), st.integers(0, 100), st.integers(0, 100))
def test_controller_that_starts_from_a_snapshot_is_as_one_that_replayed_the_log(
    history: list[Batch], where: int, others: int
) -> None:
    """Whatever it knew before."""
    where %= len(history) + 1

    def commit(to: Controller, batches: list[Batch]) -> None:
        for batch in batches:
            offset = to.committed_offset + 1
            to.commit(offset + len(batch) - 1, [OffsetRecord(offset + n, record) for n, record in enumerate(batch)])

    one, other = controller(), controller()
    commit(one, history)
    commit(other, history[: others % (where + 1)])
    image = replayed(history[:where])
    if image.offset >= 0:
        other.load_snapshot(image.offset, through_a_snapshot(image).records)
    commit(other, history[where:] if image.offset >= 0 else history[others % (where + 1) :])
    assert other.committed_offset == one.committed_offset
    assert other.last_offset == one.last_offset
    assert state_of(other) == state_of(one)
    assert state_of(one) or not replayed(history).topics, "the state is looked at where it is"


@given(histories(), st.integers(0, 100), st.booleans())
def test_delta_between_two_images_says_what_differs(history: list[Batch], where: int, is_backwards: bool) -> None:
    """As publishers need it when a snapshot replaces the image; what is equal is the same object afterwards. Backwards:
    images that are no successors have nothing in common by chance."""
    before, target = replayed(history[: where % (len(history) + 1)]), replayed(history)
    if is_backwards:
        before, target = target, before
    after = through_a_snapshot(target).image
    delta = MetadataDelta.between(before, after)
    image = delta.apply(after.offset, after.leader_epoch)
    if not is_backwards:  # a feature, once set, stays
        assert image == after
    old, new = {t.topic_id: t for t in before.topics.values()}, {t.topic_id: t for t in after.topics.values()}
    assert {t.topic_id for t in delta.created_topics} == new.keys() - old.keys()
    assert {t.topic_id for t in delta.deleted_topics} == old.keys() - new.keys()
    assert {t.topic_id for t in delta.changed_topics} == {i for i in new.keys() & old.keys() if new[i] != old[i]}
    for topic in (*delta.created_topics, *delta.changed_topics):
        known = old[topic.topic_id].partitions if topic.topic_id in old else {}
        assert {p.partition for p in delta.changed_partitions(topic)} == {
            n for n, partition in topic.partitions.items() if known.get(n) != partition
        }
    assert {n: image.brokers.get(n) for n in delta.changed_brokers} == dict(delta.changed_brokers)
    assert delta.changed_brokers.keys() == {
        n for n in before.brokers.keys() | after.brokers.keys() if before.brokers.get(n) != after.brokers.get(n)
    }
    assert {key: dict(configs) for key, configs in delta.changed_configs.items()} == {
        key: dict(after.resource_configs.get(key, {}))
        for key in before.resource_configs.keys() | after.resource_configs.keys()
        if before.resource_configs.get(key) != after.resource_configs.get(key)
    }
    same = MetadataDelta.between(image, through_a_snapshot(image).image)
    assert same.is_empty


@given(histories(max_batches=8), st.data())
def test_no_damaged_snapshot_is_read(history: list[Batch], data: st.DataObject) -> None:
    """A bit, a cut, a part that is written twice or missing."""
    image = replayed(history)
    sound = encoded(image)
    start, end = sorted((data.draw(st.integers(0, len(sound))), data.draw(st.integers(0, len(sound)))))
    bit = data.draw(st.integers(0, 8 * len(sound) - 1))
    flipped = bytearray(sound)
    flipped[bit // 8] ^= 1 << bit % 8
    for damaged in (bytes(flipped), sound[:start], sound[:start] + sound[end:], sound[:end] + sound[start:]):
        if damaged != sound:
            with pytest.raises((CorruptRecordError, UnsupportedVersionError)):
                decode_snapshot(damaged, SnapshotId.of(image))
