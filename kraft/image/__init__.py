"""What the quorum has committed, as immutable values for everybody else in the node.

`MetadataDelta` collects committed records on top of a `MetadataImage` and makes the next one; publishers get both.
Nothing here decides anything.
"""

from kraftlog.kraft.image.as_records import records_of
from kraftlog.kraft.image.completed_operations import CompletedOperation, CompletedOperations
from kraftlog.kraft.image.delta import MetadataDelta
from kraftlog.kraft.image.image import (
    EMPTY_IMAGE,
    NO_DIRECTORY,
    NO_LEADER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    BrokerEndpoint,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftlog.kraft.image.persistent import PersistentMap
from kraftlog.kraft.image.publisher import MetadataPublisher

__all__ = [
    "EMPTY_IMAGE",
    "NO_DIRECTORY",
    "NO_LEADER",
    "RESOURCE_BROKER",
    "RESOURCE_TOPIC",
    "BrokerEndpoint",
    "BrokerImage",
    "CompletedOperation",
    "CompletedOperations",
    "MetadataDelta",
    "MetadataImage",
    "MetadataPublisher",
    "PartitionImage",
    "PersistentMap",
    "TopicImage",
    "records_of",
]
