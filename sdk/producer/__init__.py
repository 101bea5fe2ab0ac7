"""The producer: batches per partition, idempotent and in order, over pipelined produce streams."""

from kraftlog.sdk.producer.async_producer import AsyncProducer
from kraftlog.sdk.producer.batch import AsyncSendFuture, SendFuture, ThreadSendFuture
from kraftlog.sdk.producer.sync_producer import Producer

__all__ = ["AsyncProducer", "AsyncSendFuture", "Producer", "SendFuture", "ThreadSendFuture"]
