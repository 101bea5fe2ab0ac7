"""Histories of metadata: batches of records that a controller might have written, one after the other."""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, PartitionImage
from kraftlog.kraft.image.partition_state import changed_partition, new_partition
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.metadata_pb2 import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    CompletedOperationRecord,
    ConfigRecord,
    DirectoryList,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaList,
    TopicRecord,
    UnregisterBrokerRecord,
)

Batch = list[MetadataRecord]

_NODES = st.integers(1, 4)
_REPLICAS = st.lists(_NODES, unique=True, min_size=1, max_size=4)
_NAMES = st.sampled_from(["a", "b", "orders", "x" * 249, "__consumer_offsets"])
_KEYS = st.sampled_from(["retention.ms", "cleanup.policy"])
_VALUES = st.none() | st.text(max_size=5)
_KINDS = st.sampled_from(
    ["topic", "topic", "grow", "change", "change", "remove", "config", "broker", "broker_change", "unregister", "ids"]
    + ["feature", "operation"]
)


@dataclass
class _World:
    """What the records so far have made."""

    topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    partitions: dict[tuple[bytes, int], PartitionImage] = field(default_factory=dict)
    brokers: dict[int, int] = field(default_factory=dict)
    next_topic: int = 1
    next_producer_id: int = 0
    offset: int = 0


@st.composite
def histories(draw: DrawFn, max_batches: int = 25) -> list[Batch]:
    """Legal ones, of every type of record."""
    world, batches = _World(), list[Batch]()
    for kind in draw(st.lists(_KINDS, max_size=max_batches)):
        batch = _batch(draw, world, kind)
        if batch:
            batches.append(batch)
            world.offset += len(batch)
    return batches


def _batch(draw: DrawFn, world: _World, kind: str) -> Batch:
    match kind:
        case "topic":
            return _create(draw, world)
        case "grow" | "change" | "remove" if world.topics:
            return _alter(draw, world, kind)
        case "config":
            resource_type, name = draw(st.tuples(st.just(4), st.just("1")) | st.tuples(st.just(2), _NAMES))
            if resource_type == 2 and name not in world.topics:
                return []
            record = ConfigRecord(resource_type=resource_type, resource_name=name, key=draw(_KEYS), value=draw(_VALUES))
            return [MetadataRecord(config=record)]
        case "broker":
            return [_register(draw, world)]
        case "broker_change" | "unregister" if world.brokers:
            return [_change_broker(draw, world, kind)]
        case "ids":
            world.next_producer_id += draw(st.integers(1, 1000))
            return [MetadataRecord(producer_ids=ProducerIdsRecord(next_producer_id=world.next_producer_id))]
        case "operation":
            completed = CompletedOperationRecord(
                request_id=world.offset.to_bytes(16, "big"),
                kind=draw(st.sampled_from(["create_topics", "unregister_broker"])),
                response=draw(st.binary(max_size=5)),
                timestamp_ms=world.offset * 100_000,  # so that some grow too old
            )
            return [MetadataRecord(completed_operation=completed)]
        case "feature":
            return [MetadataRecord(feature_level=FeatureLevelRecord(name="metadata.version", level=1))]
        case _:
            return []


def _partition(draw: DrawFn, topic_id: bytes, number: int) -> MetadataRecord:
    """In any state that can be: as a snapshot may have it."""
    replicas = draw(_REPLICAS)
    states = draw(st.lists(st.integers(0, 3), min_size=len(replicas), max_size=len(replicas)))
    in_state = [[replica for replica, state in zip(replicas, states, strict=True) if state == n] for n in range(4)]
    moves = list(zip(replicas[1:], draw(st.lists(st.integers(0, 2), min_size=3, max_size=3)), strict=False))
    leader_id = draw(st.sampled_from([-1, *in_state[0]]))
    is_recovering = len(in_state[0]) == 1 and draw(st.booleans())
    return MetadataRecord(
        partition=PartitionRecord(
            topic_id=topic_id,
            partition=number,
            replicas=replicas,
            in_sync_replicas=in_state[0],
            removing_replicas=[replica for replica, move in moves if move == 1],
            adding_replicas=[replica for replica, move in moves if move == 2],
            eligible_leader_replicas=in_state[1],
            last_known_elr=in_state[2],
            leader_id=leader_id,
            leader_epoch=draw(st.integers(0, 3)),
            partition_epoch=draw(st.integers(0, 3)),
            leader_recovery_state=int(is_recovering),
            directories=[bytes([replica]) * 16 for replica in replicas] if draw(st.booleans()) else [],
        )
    )


def _create(draw: DrawFn, world: _World) -> Batch:
    name = draw(_NAMES)
    if name in world.topics:
        return []
    topic_id, count = world.next_topic.to_bytes(16, "big"), draw(st.integers(0, 4))
    world.next_topic += 1
    world.topics[name] = (topic_id, count)
    topic = MetadataRecord(topic=TopicRecord(name=name, topic_id=topic_id))
    return [topic, *(_new_partition(draw, world, topic_id, number) for number in range(count))]


def _new_partition(draw: DrawFn, world: _World, topic_id: bytes, number: int) -> MetadataRecord:
    record = _partition(draw, topic_id, number)
    world.partitions[topic_id, number] = new_partition(record.partition)
    return record


def _alter(draw: DrawFn, world: _World, kind: str) -> Batch:
    name = draw(st.sampled_from(sorted(world.topics)))
    topic_id, count = world.topics[name]
    if kind == "remove":
        del world.topics[name]
        return [MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic_id))]
    if kind == "grow":
        world.topics[name] = (topic_id, count + 1)
        return [_new_partition(draw, world, topic_id, count)]
    if not count:
        return []
    return [MetadataRecord(partition_change=_legal_change(draw, world, topic_id, draw(st.integers(0, count - 1))))]


def _legal_change(draw: DrawFn, world: _World, topic_id: bytes, number: int) -> PartitionChangeRecord:
    """What was drawn if it is legal, else an election of the leader there is."""
    before = world.partitions[topic_id, number]
    change = PartitionChangeRecord(topic_id=topic_id, partition=number)
    if draw(st.booleans()):
        change.leader_id = draw(st.sampled_from([-1, *before.in_sync_replicas, *before.eligible_leader_replicas]))
    if draw(st.booleans()):
        members = st.lists(st.sampled_from(before.replicas), unique=True)
        change.in_sync_replicas.CopyFrom(ReplicaList(replicas=draw(members)))
    for name in ("eligible_leader_replicas", "last_known_elr"):
        if draw(st.booleans()):
            getattr(change, name).CopyFrom(ReplicaList())
    if draw(st.booleans()):
        change.leader_recovery_state = draw(st.integers(0, 1))
    try:
        after = changed_partition(before, change)
    except IllegalStateError:
        change = PartitionChangeRecord(topic_id=topic_id, partition=number, leader_id=before.leader_id)
        after = changed_partition(before, change)
    world.partitions[topic_id, number] = after
    return change


def _register(draw: DrawFn, world: _World) -> MetadataRecord:
    node_id = draw(_NODES)
    world.brokers[node_id] = world.offset
    return MetadataRecord(
        register_broker=RegisterBrokerRecord(
            node_id=node_id,
            incarnation_id=draw(st.binary(min_size=16, max_size=16)),
            broker_epoch=world.offset,
            host=draw(st.text(max_size=5)),
            port=draw(st.integers(1, 65535)),
            rack=draw(st.text(max_size=2)),
            fenced=draw(st.booleans()),
            log_dirs=draw(st.lists(st.binary(min_size=16, max_size=16), max_size=2)),
            features=[FeatureRange(name="metadata.version", min_level=1, max_level=draw(st.integers(1, 3)))],
            endpoints=[
                BrokerEndpoint(listener=name, host="h", port=draw(st.integers(1, 65535)))
                for name in draw(st.lists(st.sampled_from(("PLAINTEXT", "SSL")), unique=True))
            ],
        )
    )


def _change_broker(draw: DrawFn, world: _World, kind: str) -> MetadataRecord:
    node_id = draw(st.sampled_from(sorted(world.brokers)))
    epoch = world.brokers[node_id]
    if kind == "unregister":
        del world.brokers[node_id]
        return MetadataRecord(unregister_broker=UnregisterBrokerRecord(node_id=node_id, broker_epoch=epoch))
    change = BrokerRegistrationChangeRecord(
        node_id=node_id, broker_epoch=epoch, fenced=draw(st.booleans()), in_controlled_shutdown=draw(st.booleans())
    )
    if draw(st.booleans()):
        change.log_dirs.CopyFrom(DirectoryList(directories=draw(st.lists(st.just(bytes(16)), max_size=1))))
    return MetadataRecord(broker_registration_change=change)


def replayed(batches: list[Batch], image: MetadataImage = EMPTY_IMAGE, *, leader_epoch: int = 1) -> MetadataImage:
    """The image after those batches, each applied by itself."""
    for batch in batches:
        delta, offset = MetadataDelta(image), image.offset
        for record in batch:
            offset += 1
            delta.replay(record, offset)
        image = delta.apply(offset, leader_epoch)
    return image
