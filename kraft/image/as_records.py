"""An image as the records that make it from nothing: what a snapshot holds.

Every fact of the image is in it, once. A field that is added to an image and not written here would be lost with the
first snapshot; `tests/property/test_snapshots.py` holds the two equal, field by field.
"""

from collections.abc import Iterator

from kraftlog.kraft.image.broker_state import broker_record
from kraftlog.kraft.image.completed_operations import completed_record
from kraftlog.kraft.image.image import MetadataImage, TopicImage
from kraftlog.kraft.image.partition_state import partition_record
from kraftlog.proto.metadata_pb2 import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
)

_NOBODY = -1


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """In an order in which they can be replayed; the same records for equal images."""
    for name, level in image.features.items():
        yield MetadataRecord(feature_level=FeatureLevelRecord(name=name, level=level))
    for broker in image.brokers.values():
        yield MetadataRecord(register_broker=broker_record(broker))
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
    for operation in image.completed_operations:
        yield MetadataRecord(completed_operation=completed_record(operation))


def _topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic.topic_id))
    for partition in topic.partitions.values():
        yield MetadataRecord(partition=partition_record(topic.topic_id, partition))
