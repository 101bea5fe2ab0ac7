"""The asyncio producer."""

import asyncio
import datetime
import logging
import random as random_module
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kraftlog.proto.errors import ClientClosedError, KraftlogError, RequestTimedOutError
from kraftlog.proto.records import BatchBuilder
from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.clock import LoopClock
from kraftlog.sdk.config import ClientConfig, ProducerConfig
from kraftlog.sdk.metadata import Cluster, check_topic_name
from kraftlog.sdk.options import ProducerOptions
from kraftlog.sdk.producer.accumulator import Accumulator, PartitionQueue
from kraftlog.sdk.producer.base import RecordIntake
from kraftlog.sdk.producer.batch import AsyncSendFuture, ProducerBatch
from kraftlog.sdk.producer.sender import Sender
from kraftlog.sdk.types import Headers, RecordMetadata

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("kraftlog.sdk")

CLOSE_TIMEOUT_S = 30.0  # of `close` without an argument


class AsyncProducer:
    """Writes records; batches, retries and orders them in the background. Used from one event loop.

    Options are those of `ProducerConfig`, as keywords or as a mapping with Kafka's dotted names. `connector`, `clock`
    and `random` replace the network, time and chance, for tests.

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send_and_wait("orders", b"value", key=b"key")
    """

    def __init__(
        self,
        config: Mapping[str, Any] | ProducerConfig | None = None,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.config = config if isinstance(config, ProducerConfig) else ProducerConfig.of(config, **options)
        self._clock = clock or LoopClock()
        self._random = random or random_module.Random()
        self._cluster = Cluster(
            self.config,
            connector=connector or default_connector(self.config),
            clock=self._clock,
            random=self._random,
            allow_auto_topic_creation=True,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tick_pending = False
        self._memory_waiters: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._accumulator = make_accumulator(
            self.config, wake=self._wake, on_memory=self._on_memory, run_callbacks=self._run_callbacks
        )
        self._intake = RecordIntake(
            self.config, self._accumulator, AsyncSendFuture, clock=self._clock, random=self._random
        )
        self._sender: Sender | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_quietly_after(self.close, error)

    async def start(self) -> None:
        """Bind to the running loop. Optional: the first `send` does it. Does not wait for brokers."""
        self._bind()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncSendFuture:
        """Hand a record over and return its future; waits up to max_block_ms for metadata or memory.

        Raises `BufferExhaustedError` when no memory came free (safe to retry), `RecordTooLargeError`,
        `SerializationFailedError`, `InvalidTopicError`, `UnknownTopicOrPartitionError`, or why no broker answers.
        Await the future for the outcome:

            future = await producer.send("orders", b"value")
            metadata = await future
        """
        future = self._intake.try_send(topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            future = await self._send_slowly(topic, value, key, headers, partition, timestamp_ms)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """`send`, then wait for the acknowledgment. Raises why the record failed."""
        return await (await self.send(topic, value, key, headers, partition, timestamp_ms))

    def send_nowait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> AsyncSendFuture:
        """`send` that never waits: raises `BufferExhaustedError` without memory.

        The topic must be known: from an earlier `send`, or by `await partitions_for(topic)`.
        """
        future = self._intake.try_send(topic, value, key, headers, partition, timestamp_ms)
        if future is None:
            self._bind()
            self._intake.check_open()
            future = self._append(topic, value, key, headers, partition, timestamp_ms)
            if future is None:
                raise self._intake.exhausted(0)
        return future

    async def send_batch(
        self, topic: str, data: "pyarrow.Table | pyarrow.RecordBatch", partition: int | None = None
    ) -> list[AsyncSendFuture]:
        """Send the rows of an Arrow table; one future per record batch, whose `record_count` says for how many rows.

        Columns: `value` and `key` (binary or string), `headers`, `timestamp`, `partition`; others are ignored. Rows go
        to `partition` if given, else to their column `partition`, else where their key belongs. A future's metadata
        are those of its first row. Waits for memory and raises like `send`; what was handed over before an error is
        sent nevertheless.
        """
        from kraftlog.sdk.producer.arrow_batches import batches_of

        await self._ensure_topic(topic, self.config.max_block_ms)
        queues, futures = self._intake.topics[topic], []
        for portion in batches_of(data, queues, partition, self._clock.wall_ms()):
            for queue, builder in portion:
                futures.append(await self._with_memory(partial(self._append_built, topic, queue, builder)))
        return futures

    async def partitions_for(self, topic: str) -> frozenset[int]:
        """The partitions of a topic; waits up to max_block_ms for its metadata."""
        await self._ensure_topic(topic, self.config.max_block_ms)
        return frozenset(range(self._intake.topics[topic].count))

    async def flush(self, timeout: float | None = None) -> None:
        """Send what is buffered now and wait for it; `timeout` in seconds (None: the delivery time-out bounds it).

        Raises what failed since the last flush unless it was read from its future, and `RequestTimedOutError` if
        records are still unsettled after `timeout`.
        """
        await self._flush(timeout)
        error = self._intake.unread_failure()
        if error is not None:
            raise error

    async def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds (None: 30), give up the rest, disconnect.

        Raises what failed and nobody has read. May be repeated and called from several tasks.
        """
        if self._closing is not None and self._closing.done():
            return
        if self._closing is None:
            limit = CLOSE_TIMEOUT_S if timeout is None else timeout
            self._closing = asyncio.get_running_loop().create_task(self._close(limit), name="producer close")
        await asyncio.shield(self._closing)

    # -- inside

    def _bind(self) -> None:
        if self._sender is None and not self._intake.is_closed:
            self._loop = asyncio.get_running_loop()
            self._sender = Sender(self.config, self._accumulator, self._cluster, clock=self._clock, random=self._random)
            self._cluster.add_listener(self._intake.on_metadata)

    def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> AsyncSendFuture | None:
        if topic not in self._intake.topics:
            check_topic_name(topic)
            raise self._unknown(topic)
        with self._accumulator.lock:
            now_ms = self._clock.monotonic_ms()
            return self._intake.append(topic, value, key, headers, partition, timestamp_ms, now_ms)

    def _unknown(self, topic: str) -> KraftlogError:
        return RequestTimedOutError(f"topic {topic!r} is not known yet: await partitions_for({topic!r}) first")

    async def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> AsyncSendFuture:
        started_ms = self._clock.monotonic_ms()
        await self._ensure_topic(topic, self.config.max_block_ms)
        return await self._with_memory(
            lambda: self._append(topic, value, key, headers, partition, timestamp_ms), started_ms
        )

    async def _with_memory(
        self, append: Callable[[], AsyncSendFuture | None], started_ms: float | None = None
    ) -> AsyncSendFuture:
        """What `append` returns as soon as there is memory for it, first come, first served."""
        deadline_ms = (self._clock.monotonic_ms() if started_ms is None else started_ms) + self.config.max_block_ms
        has_waited = False
        while True:
            self._intake.check_open()
            if has_waited or not self._memory_waiters:
                future = append()
                if future is not None:
                    self._pass_memory_on()
                    return future
            if self._clock.monotonic_ms() >= deadline_ms:
                self._pass_memory_on()
                raise self._intake.exhausted(self.config.max_block_ms)
            await self._wait_for_memory(deadline_ms, at_front=has_waited)
            has_waited = True

    def _append_built(self, topic: str, queue: PartitionQueue | None, builder: BatchBuilder) -> AsyncSendFuture | None:
        with self._accumulator.lock:
            return self._intake.append_built(topic, queue, builder, self._clock.monotonic_ms())

    async def _ensure_topic(self, topic: str, timeout_ms: float) -> None:
        self._bind()
        self._intake.check_open()
        if topic not in self._intake.topics:
            check_topic_name(topic)
            self._intake.on_topic(await self._cluster.wait_for_topic(topic, timeout_ms))
            self._intake.check_open()

    async def _wait_for_memory(self, deadline_ms: float, *, at_front: bool) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._memory_waiters[waiter] = None
        if at_front:
            self._memory_waiters.move_to_end(waiter, last=False)
        timer = loop.call_later(max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000, _release, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self._pass_memory_on()
            raise
        finally:
            timer.cancel()
            self._memory_waiters.pop(waiter, None)

    def _pass_memory_on(self) -> None:
        """Let the next waiting `send` look for memory; one at a time, so that nobody wakes for nothing."""
        while self._memory_waiters:
            waiter, _ = self._memory_waiters.popitem(last=False)
            if not waiter.done():
                waiter.set_result(None)
                return

    def _on_memory(self) -> None:
        self._pass_memory_on()

    def _wake(self) -> None:
        if not self._tick_pending and self._loop is not None:
            self._tick_pending = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._tick_pending = False
        if self._sender is not None:
            self._sender.tick()

    def _run_callbacks(self, batch: ProducerBatch, callbacks: list[Callable[[], object]]) -> None:
        run_callbacks(callbacks)
        self._accumulator.release(batch)

    async def _flush(self, timeout: float | None) -> None:
        with self._accumulator.lock:
            batches = list(self._accumulator.incomplete)
            self._accumulator.make_all_due()
        if not batches:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        left = len(batches)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                _release(waiter)

        for batch in batches:
            self._accumulator.add_callback(batch, one_done)
        timer = None if timeout is None else loop.call_later(timeout, _release, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
        if left:
            raise RequestTimedOutError(f"flush: {unsettled(batches)} within {timeout} s")

    async def _close(self, timeout: float) -> None:
        self._intake.close()
        while self._memory_waiters:
            _release(self._memory_waiters.popitem(last=False)[0])
        try:
            await self._flush(timeout)
        except RequestTimedOutError as error:
            log.warning("close of a producer: %s", error)
        if self._sender is not None:
            await self._sender.close()
        self._intake.fail_rest(ClientClosedError(f"not acknowledged when the producer was closed after {timeout} s"))
        await self._cluster.close()
        failure = self._intake.unread_failure()
        if failure is not None:
            raise failure


def make_accumulator(config: ProducerConfig, **hooks: Any) -> Accumulator:
    return Accumulator(
        batch_size=config.batch_size,
        linger_ms=config.linger_ms,
        buffer_memory=config.buffer_memory,
        delivery_timeout_ms=config.delivery_timeout_ms,
        max_in_flight=config.max_in_flight_requests_per_connection,
        is_idempotent=config.is_idempotent,
        **hooks,
    )


def run_callbacks(callbacks: list[Callable[[], object]]) -> None:
    """Run the users' callbacks; what one raises is logged and does not keep the others from running."""
    for callback in callbacks:
        try:
            callback()
        except Exception:
            log.exception("a delivery callback raised")


def unsettled(batches: list[ProducerBatch]) -> str:
    """What is missing, for an error text."""
    left = [batch for batch in batches if not batch.is_done]
    reason = next((f"; last error: {batch.last_error}" for batch in left if batch.last_error is not None), "")
    return f"{sum(batch.count for batch in left)} record(s) not acknowledged{reason}"


async def close_quietly_after(close: Callable[[], Any], error: BaseException | None) -> None:
    """Close at the end of a `with` block; a failure does not hide the error that ended the block."""
    try:
        await close()
    except KraftlogError as failure:
        if error is None:
            raise
        log.error("close after %s: %s", type(error).__name__, failure)


def default_connector(config: ClientConfig) -> Connector:
    """gRPC; imported only when nothing else was given. Blocks where `config` names files with certificates."""
    from kraftlog.sdk.tls import client_security
    from kraftlog.sdk.transport import GrpcConnector

    return GrpcConnector(security=client_security(config, datetime.datetime.now(datetime.UTC)))


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
