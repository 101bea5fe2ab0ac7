"""Images are immutable, share what did not change, and deltas tell exactly what did."""

import pytest

from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ReplicaList,
    TopicRecord,
    UnregisterBrokerRecord,
)


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def topic_records(name: str, number: int, partitions: int = 2) -> list[MetadataRecord]:
    records = [MetadataRecord(topic=TopicRecord(name=name, topic_id=topic_id(number)))]
    return records + [
        MetadataRecord(
            partition=PartitionRecord(
                topic_id=topic_id(number), partition=p, replicas=[1, 2], in_sync_replicas=[1, 2], leader_id=1
            )
        )
        for p in range(partitions)
    ]


def election(number: int, partition: int, leader_id: int) -> MetadataRecord:
    change = PartitionChangeRecord(topic_id=topic_id(number), partition=partition, leader_id=leader_id)
    return MetadataRecord(partition_change=change)


def remove(number: int) -> MetadataRecord:
    return MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic_id(number)))


def config(name: str, key: str, value: str | None) -> MetadataRecord:
    return MetadataRecord(config=ConfigRecord(resource_type=2, resource_name=name, key=key, value=value))


def apply(image: MetadataImage, *records: MetadataRecord) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for index, record in enumerate(records):
        delta.replay(record, image.offset + 1 + index)
    return delta, delta.apply(image.offset + len(records), 1)


def names(topics: tuple[object, ...]) -> list[str]:
    return [topic.name for topic in topics]  # type: ignore[attr-defined] # TopicImages


def test_delta_tells_created_changed_and_deleted_topics() -> None:
    """Each topic in the list that a publisher acts on."""
    _, first = apply(EMPTY_IMAGE, *topic_records("a", 1), *topic_records("b", 2), *topic_records("c", 3))
    delta, second = apply(first, *topic_records("d", 4), election(2, 1, 2), remove(3))
    assert names(delta.created_topics) == ["d"]
    assert names(delta.changed_topics) == ["b"]
    assert names(delta.deleted_topics) == ["c"]
    (changed,) = delta.changed_topics
    assert [p.partition for p in delta.changed_partitions(changed)] == [1]
    partition = second.topics["b"].partitions[1]
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (2, 1, 1)
    assert list(second.topics) == ["a", "b", "d"]
    assert second.topic_by_id(topic_id(3)) is None
    assert second.topic_by_id(topic_id(4)) is second.topics["d"]


def test_image_before_is_untouched_and_shared() -> None:
    """Immutable: readers keep theirs; what did not change is the same object."""
    _, first = apply(EMPTY_IMAGE, *topic_records("a", 1), *topic_records("b", 2))
    _, second = apply(first, election(1, 0, 2))
    assert first.topics["a"].partitions[0].leader_id == 1
    assert second.topics["a"].partitions[0].leader_id == 2
    assert second.topics["a"].partitions[1] is first.topics["a"].partitions[1]
    assert second.topics["b"] is first.topics["b"]
    assert second.brokers is first.brokers


def test_topic_deleted_and_created_again_in_one_delta_is_both() -> None:
    """Another id: the old log goes, a new one comes."""
    _, first = apply(EMPTY_IMAGE, *topic_records("a", 1), config("a", "retention.ms", "1"))
    delta, second = apply(first, remove(1), *topic_records("a", 9, partitions=1))
    assert names(delta.deleted_topics) == ["a"]
    assert delta.deleted_topics[0].topic_id == topic_id(1)
    assert names(delta.created_topics) == ["a"]
    assert second.topics["a"].topic_id == topic_id(9)
    assert second.topic_by_id(topic_id(1)) is None
    assert not second.configs(2, "a"), "the configs went with the old topic"


def test_topic_created_and_deleted_in_one_delta_is_neither() -> None:
    """Nothing to do for anybody."""
    delta, image = apply(EMPTY_IMAGE, *topic_records("a", 1), config("a", "retention.ms", "1"), remove(1))
    assert (delta.created_topics, delta.changed_topics, delta.deleted_topics) == ((), (), ())
    assert not image.topics
    assert not image.resource_configs


def test_isr_change_keeps_the_leader_epoch() -> None:
    """Only an election fences the followers; every change counts in the partition epoch."""
    _, first = apply(EMPTY_IMAGE, *topic_records("a", 1))
    shrink = PartitionChangeRecord(topic_id=topic_id(1), partition=0, in_sync_replicas=ReplicaList(replicas=[1]))
    _, second = apply(first, MetadataRecord(partition_change=shrink))
    partition = second.topics["a"].partitions[0]
    assert partition.in_sync_replicas == (1,)
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (1, 0, 1)
    _, third = apply(second, election(1, 0, 1))
    assert third.topics["a"].partitions[0].leader_epoch == 1


def test_brokers_come_change_and_go() -> None:
    """changed_brokers has the registration after the delta, or None."""
    register = MetadataRecord(
        register_broker=RegisterBrokerRecord(node_id=1, broker_epoch=0, host="h", port=1, fenced=True)
    )
    change = BrokerRegistrationChangeRecord(node_id=1, broker_epoch=0, fenced=False)
    delta, first = apply(EMPTY_IMAGE, register, MetadataRecord(broker_registration_change=change))
    assert delta.changed_brokers == {1: first.brokers[1]}
    assert not first.brokers[1].is_fenced
    gone = MetadataRecord(unregister_broker=UnregisterBrokerRecord(node_id=1, broker_epoch=0))
    delta, second = apply(first, gone)
    assert delta.changed_brokers == {1: None}
    assert not second.brokers
    with pytest.raises(IllegalStateError):
        apply(first, gone, MetadataRecord(broker_registration_change=change))


def test_configs_are_set_and_taken_back() -> None:
    """Absent: back to the default. Nothing set: no entry left."""
    _, first = apply(EMPTY_IMAGE, config("a", "x", "1"), config("a", "y", ""))
    assert dict(first.configs(2, "a")) == {"x": "1", "y": ""}
    delta, second = apply(first, config("a", "x", None))
    assert dict(delta.changed_configs[2, "a"]) == {"y": ""}
    _, third = apply(second, config("a", "y", None), config("a", "never", None))
    assert not third.resource_configs


def test_delta_of_everything_gives_the_same_image() -> None:
    """What a late publisher hears is what it would have heard from the start."""
    _, image = apply(
        EMPTY_IMAGE,
        *topic_records("a", 1),
        *topic_records("b", 2),
        config("a", "x", "1"),
        MetadataRecord(register_broker=RegisterBrokerRecord(node_id=1, host="h", port=1)),
    )
    delta = MetadataDelta.of_everything(image)
    assert delta.apply(image.offset, image.leader_epoch) == image
    assert names(delta.created_topics) == ["a", "b"]
    assert delta.changed_topics == ()


def test_empty_delta_says_so() -> None:
    """A batch of the quorum's own changes nothing but the offset."""
    delta, image = apply(EMPTY_IMAGE)
    assert delta.is_empty
    assert image.topics is EMPTY_IMAGE.topics


@pytest.mark.parametrize("record", [election(7, 0, 1), remove(7), MetadataRecord()])
def test_record_that_does_not_fit_is_refused(record: MetadataRecord) -> None:
    """Loudly: the image would be wrong from here on."""
    with pytest.raises(IllegalStateError):
        MetadataDelta().replay(record, 0)


def test_partition_of_a_topic_that_was_just_removed_is_refused() -> None:
    """Order matters within one delta, too."""
    _, image = apply(EMPTY_IMAGE, *topic_records("a", 1))
    with pytest.raises(IllegalStateError):
        apply(image, remove(1), election(1, 0, 2))
