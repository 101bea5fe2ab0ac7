"""kraftlog: a partitioned, replicated log with Kafka's semantics. Users start here.

The public names load on first use (PEP 562): `import kraftlog` itself imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlog.proto import errors
    from kraftlog.proto.errors import KraftlogError
    from kraftlog.proto.records import codec
    from kraftlog.sdk.admin import Admin, AsyncAdmin
    from kraftlog.sdk.consumer import AsyncConsumer, CommitFailedError, Consumer, ConsumerRebalanceListener
    from kraftlog.sdk.producer import AsyncProducer, Producer
    from kraftlog.sdk.types import (
        ConsumerRecord,
        NewTopic,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

__version__ = "0.1.0"

_PUBLIC = {
    "Admin": "kraftlog.sdk.admin",
    "AsyncAdmin": "kraftlog.sdk.admin",
    "Consumer": "kraftlog.sdk.consumer",
    "AsyncConsumer": "kraftlog.sdk.consumer",
    "CommitFailedError": "kraftlog.sdk.consumer",
    "ConsumerRebalanceListener": "kraftlog.sdk.consumer",
    "Producer": "kraftlog.sdk.producer",
    "AsyncProducer": "kraftlog.sdk.producer",
    "KraftlogError": "kraftlog.proto.errors",
    "ConsumerRecord": "kraftlog.sdk.types",
    "NewTopic": "kraftlog.sdk.types",
    "OffsetAndMetadata": "kraftlog.sdk.types",
    "OffsetAndTimestamp": "kraftlog.sdk.types",
    "RecordMetadata": "kraftlog.sdk.types",
    "TopicPartition": "kraftlog.sdk.types",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "CommitFailedError",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "KraftlogError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
    "codec",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "codec":  # which record codec is active: "c" or "python"
        return import_module("kraftlog.proto.records").codec
    if name == "errors":  # one exception class for each of Kafka's error codes
        return import_module("kraftlog.proto.errors")
    try:
        module = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module 'kraftlog' has no attribute {name!r}") from None
    return getattr(import_module(module), name)
