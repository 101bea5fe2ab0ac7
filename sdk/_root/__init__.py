"""kraftlog: a partitioned, replicated log with Kafka's semantics. Users start here.

The public names load on first use (PEP 562): `import kraftlog` itself imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlog.proto.records import codec
    from kraftlog.sdk.admin import Admin, AsyncAdmin
    from kraftlog.sdk.consumer import AsyncConsumer, Consumer
    from kraftlog.sdk.producer import AsyncProducer, Producer
    from kraftlog.sdk.types import ConsumerRecord, OffsetAndMetadata, RecordMetadata, TopicPartition

__version__ = "0.1.0"

_PUBLIC = {
    "Admin": "kraftlog.sdk.admin",
    "AsyncAdmin": "kraftlog.sdk.admin",
    "Consumer": "kraftlog.sdk.consumer",
    "AsyncConsumer": "kraftlog.sdk.consumer",
    "Producer": "kraftlog.sdk.producer",
    "AsyncProducer": "kraftlog.sdk.producer",
    "ConsumerRecord": "kraftlog.sdk.types",
    "OffsetAndMetadata": "kraftlog.sdk.types",
    "RecordMetadata": "kraftlog.sdk.types",
    "TopicPartition": "kraftlog.sdk.types",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
    "__version__",
    "codec",
]


def __getattr__(name: str) -> Any:
    if name == "codec":  # which record codec is active: "c" or "python"
        return import_module("kraftlog.proto.records").codec
    try:
        module = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module 'kraftlog' has no attribute {name!r}") from None
    return getattr(import_module(module), name)
