"""An image as the records that make it from nothing: what a snapshot holds.

Every fact of the image is in it, once. A field that is added to an image and not written here would be lost with the
first snapshot; `tests/property/test_snapshots.py` holds the two equal, field by field.
"""

from collections.abc import Iterator

from kraftlog.kraft.image.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from kraftlog.proto.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

_NOBODY = -1


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """In an order in which they can be replayed; the same records for equal images."""
    for name, level in image.features.items():
        yield MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))
    for broker in image.brokers.values():
        yield from _broker(broker)
    for topic in image.topics.values():
        yield from _topic(topic)
    for (resource_type, resource_name), configs in image.resource_configs.items():
        for key, value in configs.items():
            yield MetadataRecord(
                config=ConfigRecord(resource_type=resource_type, resource_name=resource_name, key=key, value=value)
            )
    if image.next_producer_id:
        producer_ids = ProducerIdsRecord(node_id=_NOBODY, broker_epoch=_NOBODY, next_producer_id=image.next_producer_id)
        yield MetadataRecord(producer_ids=producer_ids)


def _broker(broker: BrokerImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(
        register_broker=RegisterBrokerRecord(
            node_id=broker.node_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.broker_epoch,
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            fenced=broker.is_fenced,
            log_dirs=broker.log_dirs,
        )
    )
    if broker.in_controlled_shutdown:
        yield MetadataRecord(
            broker_registration_change=BrokerRegistrationChangeRecord(
                node_id=broker.node_id,
                broker_epoch=broker.broker_epoch,
                fenced=broker.is_fenced,
                in_controlled_shutdown=True,
            )
        )


def _topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic.topic_id))
    for partition in topic.partitions.values():
        yield MetadataRecord(partition=_partition(topic.topic_id, partition))


def _partition(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition=partition.partition,
        replicas=partition.replicas,
        in_sync_replicas=partition.in_sync_replicas,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas,
    )
