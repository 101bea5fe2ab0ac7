"""What the asynchronous and the synchronous producer share: taking records in, and reporting what failed.

`try_send` is the hot path: it runs under one lock, makes one future, and returns None for everything out of the
ordinary (unknown topic, no open batch, no memory), which `append` does at leisure.
"""

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kraftlog.proto.errors import (
    BufferExhaustedError,
    ClientClosedError,
    KraftlogError,
    RecordTooLargeError,
    SerializationFailedError,
    error_class,
)
from kraftlog.proto.records import BatchBuilder, CompressionType
from kraftlog.proto.seams import Clock, Random
from kraftlog.sdk.config import ProducerConfig
from kraftlog.sdk.metadata import ClusterMetadata, TopicMetadata
from kraftlog.sdk.producer.accumulator import Accumulator, PartitionQueue
from kraftlog.sdk.producer.batch import ProducerBatch, SendFuture
from kraftlog.sdk.producer.partitioners import TopicQueues
from kraftlog.sdk.types import Headers

log = logging.getLogger("kraftlog.sdk")

F = TypeVar("F", bound=SendFuture)

RECORD_OVERHEAD_BYTES = 32  # bound of a record's lengths, attributes, timestamp and offset deltas as varints
HEADER_OVERHEAD_BYTES = 10  # bound of one header's two lengths


class RecordIntake(Generic[F]):
    """Puts records into the accumulator. Safe from any thread: state changes under the accumulator's lock."""

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: Accumulator,
        future_class: Callable[[ProducerBatch, int, int], F],
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        self.config = config
        self.accumulator = accumulator
        self.topics: dict[str, TopicQueues] = {}
        self.is_closed = False
        self._lock = accumulator.lock
        self._future_class = future_class
        self._clock = clock
        self._wall_ms = clock.wall_ms
        self._random = random
        self.serializes = config.key_serializer is not None or config.value_serializer is not None
        self._compression = CompressionType.from_name(config.compression_type)

    def try_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> F | None:
        """Append to a batch that is open and has room; None: call `append`."""
        if headers or self.serializes or partition is not None:
            return None
        timestamp = self._wall_ms() if timestamp_ms is None else timestamp_ms
        try:
            need = RECORD_OVERHEAD_BYTES
            if value is not None:
                need += len(value)
            with self._lock:
                queues = self.topics[topic]
                if key is None and queues.uses_sticky:
                    batch = queues.sticky.open  # type: ignore[union-attr]  # drawn with the first metadata
                else:
                    if key is not None:
                        need += len(key)
                    batch = queues.choose(key, value).open
                if batch is None or batch.size + need > batch.limit:
                    return None
                batch.size = batch.builder.append(timestamp, key, value)  # type: ignore[union-attr]  # open ones have it
                index = batch.builder.record_count - 1  # type: ignore[union-attr]
        except (KeyError, TypeError):
            return None  # `append` says what is wrong
        return self._future_class(batch, index, timestamp)

    def append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
        now_ms: float,
    ) -> F | None:
        """Append with all checks; None: there is no memory. The topic must be known. Caller holds the lock."""
        queues = self.topics[topic]
        value = self._bytes("value", value, self.config.value_serializer)
        key = self._bytes("key", key, self.config.key_serializer)
        pairs = _headers(headers)
        need = RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
        need += sum(HEADER_OVERHEAD_BYTES + len(name.encode()) + len(data or b"") for name, data in pairs)
        self._check_size(queues, need)
        if partition is not None:
            queue = queues.at(partition, "asked for")
        else:
            queue = queues.choose(key, value)
            if queues.is_free_to_move(key) and not self._fits(queue.open, need, queue.batch_limit):
                queue = queues.next_sticky()
        timestamp = self._wall_ms() if timestamp_ms is None else timestamp_ms
        try:
            batch = self.accumulator.make_room(queue, need, now_ms)
            if batch is None:
                return None
            batch.size = batch.builder.append(timestamp, key, value, pairs)  # type: ignore[union-attr]  # open ones have it
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializationFailedError(f"topic {topic!r}: the record cannot be encoded: {error}") from error
        finally:
            self.accumulator.drop_empty(queue)
        return self._future_class(batch, batch.count - 1, timestamp)

    def append_built(self, topic: str, queue: PartitionQueue | None, builder: BatchBuilder, now_ms: float) -> F | None:
        """Append a whole batch; None: there is no memory. Caller holds the lock."""
        if queue is None:
            queue = self.topics[topic].next_sticky()
        batch = self.accumulator.add_built(queue, builder, now_ms)
        return None if batch is None else self._future_class(batch, 0, builder.base_timestamp)

    def on_topic(self, metadata: TopicMetadata) -> None:
        """Make a topic usable, or take over its changes."""
        with self._lock:
            if self.is_closed:
                return
            queues = self.topics.get(metadata.name)
            if queues is None:
                queues = TopicQueues(metadata.name, self.accumulator, self.config.partitioner, self._random)
            queues.update(metadata, self._compression)
            self.topics[metadata.name] = queues

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        for name in list(self.topics):
            known = metadata.topics.get(name)
            if known is not None and not known.error_code and known.partitions:
                self.on_topic(known)

    def close(self) -> None:
        """Take no more records: from here on every `send` raises."""
        with self._lock:
            self.is_closed = True
            self.topics.clear()

    def check_open(self) -> None:
        if self.is_closed:
            raise ClientClosedError("the producer is closed: make a new one")

    def exhausted(self, waited_ms: float) -> KraftlogError:
        used = self.accumulator.used_bytes
        return BufferExhaustedError(
            f"{used} of buffer_memory={self.config.buffer_memory} bytes wait for acknowledgment and none came free within "
            f"{waited_ms:.0f} ms (max_block_ms={self.config.max_block_ms}): the brokers are slower than the sends"
        )

    # -- failures

    def unread_failure(self) -> KraftlogError | None:
        """What failed without anybody having been told, as one error of the first one's class."""
        unread = self.accumulator.take_unread_failure()
        if unread is None:
            return None
        count, first = unread
        error = error_class(int(first.code))(f"{count} record(s) were not delivered; the first: {first}")
        error.__cause__ = first
        return error

    def fail_rest(self, error: KraftlogError) -> None:
        """Give up every unsettled record."""
        with self._lock:
            batches = list(self.accumulator.incomplete)
            for batch in batches:
                self.accumulator.fail(batch, error)
        for batch in batches:
            self.accumulator.settle(batch)

    # -- checks

    def _check_size(self, queues: TopicQueues, need: int) -> None:
        limit, name = self.config.max_request_size, "max_request_size"
        if 0 < queues.max_message_bytes < limit:
            limit, name = queues.max_message_bytes, "the topic's max.message.bytes"
        if need > limit:
            raise RecordTooLargeError(f"record of {need} bytes exceeds {name}={limit} (topic {queues.name!r})")

    @staticmethod
    def _fits(batch: ProducerBatch | None, need: int, limit: int) -> bool:
        return batch is not None and batch.size + need <= limit

    @staticmethod
    def _bytes(what: str, data: Any, serialize: Callable[[Any], bytes | None] | None) -> bytes | None:
        if serialize is not None:
            try:
                data = serialize(data)
            except Exception as error:
                raise SerializationFailedError(f"{what}_serializer failed: {type(error).__name__}: {error}") from error
        if data is None or isinstance(data, bytes):
            return data
        if isinstance(data, bytearray | memoryview):
            return bytes(data)
        raise SerializationFailedError(
            f"{what} is a {type(data).__name__}, not bytes or None: encode it or set {what}_serializer"
        )


def _headers(headers: Headers | None) -> Headers:
    if not headers:
        return ()
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
            raise SerializationFailedError(f"header {item!r} is not a tuple (name, bytes or None)")
        if not (item[1] is None or isinstance(item[1], bytes | bytearray | memoryview)):
            raise SerializationFailedError(f"header {item[0]!r} is a {type(item[1]).__name__}, not bytes or None")
    return headers
