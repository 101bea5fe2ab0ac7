"""The synchronous producer: the same accumulator and sender, with the sender on the process's background loop."""

import atexit
import logging
import random as random_module
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kraftlog.proto.errors import ClientClosedError, IllegalStateError, KraftlogError, RequestTimedOutError
from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.background import background_loop, register_client
from kraftlog.sdk.clock import SystemClock
from kraftlog.sdk.config import ProducerConfig
from kraftlog.sdk.latch import WAIT_SLICE_S, Latch
from kraftlog.sdk.metadata import Cluster, TopicMetadata, check_topic_name
from kraftlog.sdk.options import ProducerOptions
from kraftlog.sdk.producer.async_producer import CLOSE_TIMEOUT_S, default_connector, make_accumulator, unsettled
from kraftlog.sdk.producer.base import RECORD_OVERHEAD_BYTES, RecordIntake
from kraftlog.sdk.producer.batch import ProducerBatch, ThreadSendFuture
from kraftlog.sdk.producer.callbacks import CallbackThread
from kraftlog.sdk.producer.sender import Sender
from kraftlog.sdk.types import Headers

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("kraftlog.sdk")

EXIT_TIMEOUT_S = 10.0  # flush of a producer that was not closed before the interpreter ends
STOP_TIMEOUT_S = 2.0  # disconnecting, after the flush


class Producer:
    """Writes records; batches, retries and orders them in the background. Safe from any thread.

    Options are those of `ProducerConfig`, as keywords or as a mapping with Kafka's dotted names.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("orders", b"value", key=b"key")
            print(future.result().offset)

    After a fork the child's copy is empty and connects anew; records handed over before belong to the parent.
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
        self._clock = clock or SystemClock()
        self._time_ns = time.time_ns if isinstance(self._clock, SystemClock) else self._clock_ns
        self._random = random or random_module.Random()
        self._connector = connector or default_connector(self.config)
        self._close_lock = threading.Lock()
        self._set_up()
        register_client(self)
        _open_producers.add(self)

    def _set_up(self) -> None:
        """Everything that belongs to one process."""
        self._background = background_loop()
        self._tick_pending = False
        self._is_shut = False
        accumulator = make_accumulator(
            self.config,
            wake=self._wake,
            on_memory=self._on_memory,
            run_callbacks=self._run_callbacks,
            is_own_thread=self._is_inside_callback,
        )
        self._accumulator = accumulator
        self._callbacks = CallbackThread()
        self._memory_freed: Latch | None = None
        """What threads wait on that found no memory."""
        self._cluster = Cluster(
            self.config,
            connector=self._connector,
            clock=self._clock,
            random=self._random,
            allow_auto_topic_creation=True,
        )
        self._intake = RecordIntake(self.config, accumulator, ThreadSendFuture, clock=self._clock, random=self._random)
        self._lock = accumulator.lock
        self._fast_topics = {} if self._intake.serializes else self._intake.topics
        self._sender = Sender(self.config, accumulator, self._cluster, clock=self._clock, random=self._random)
        self._cluster.add_listener(self._intake.on_metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Ctrl-C must end the program: what is buffered gets one moment, not the whole time-out
            self.close(STOP_TIMEOUT_S if isinstance(error, KeyboardInterrupt) else None)
        except KraftlogError as failure:
            if error is None:
                raise
            log.error("close after %s: %s", type(error).__name__, failure)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ThreadSendFuture:
        """Hand a record over and return its future; waits up to max_block_ms for metadata or memory.

        `value` and `key` are bytes or None, unless serializers are set; `headers` a sequence of (name, bytes);
        `partition` None lets the partitioner choose; `timestamp_ms` None is the present.

        Raises `BufferExhaustedError` when no memory came free (safe to retry), `RecordTooLargeError`,
        `SerializationFailedError`, `InvalidTopicError`, `UnknownTopicOrPartitionError`, or why no broker answers.
        The record itself fails or succeeds by its future:

            producer.send("orders", b"value").result()
        """
        if headers is None and partition is None:
            # The hot path, without a call of our own: a record for an open batch that has room for it. All that is out
            # of the ordinary raises or falls through to the slow path, which looks at everything.
            timestamp = self._time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            try:
                need = RECORD_OVERHEAD_BYTES + len(value)
                with self._lock:
                    if key is None:
                        batch = self._fast_topics[topic].sticky.open  # type: ignore[union-attr]  # None: the slow path
                    else:
                        need += len(key)
                        batch = self._fast_topics[topic].choose(key, value).open
                    if batch.size + need <= batch.limit:  # type: ignore[union-attr]
                        builder = batch.builder  # type: ignore[union-attr]
                        batch.size = builder.append(timestamp, key, value)  # type: ignore[union-attr]
                        index = builder.record_count - 1  # type: ignore[union-attr]
                        return ThreadSendFuture(batch, index, timestamp)  # type: ignore[arg-type]
            except (KeyError, TypeError, AttributeError):
                pass  # the slow path says what is wrong, if anything is
        return self._send_slowly(topic, value, key, headers, partition, timestamp_ms)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        on_delivery: Callable[[KraftlogError | None, ThreadSendFuture], object] | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """`send` for code that was written for confluent-kafka; `on_delivery(error or None, future)` needs no poll."""
        future = self.send(topic, value, key, headers, partition, timestamp)
        if on_delivery is not None:
            notify = on_delivery
            future.add_done_callback(lambda done: notify(done.exception(), done))

    def send_batch(
        self, topic: str, data: "pyarrow.Table | pyarrow.RecordBatch", partition: int | None = None
    ) -> list[ThreadSendFuture]:
        """Send the rows of an Arrow table; one future per record batch, whose `record_count` says for how many rows.

        Columns: `value` and `key` (binary or string), `headers`, `timestamp`, `partition`; others are ignored. Rows go
        to `partition` if given, else to their column `partition`, else where their key belongs. A future's metadata
        are those of its first row. Waits for memory and raises like `send`; what was handed over before an error is
        sent nevertheless.

            producer.send_batch("orders", pyarrow.table({"key": [b"a"], "value": [b"1"]}))
        """
        from kraftlog.sdk.producer.arrow_batches import batches_of

        self._ensure_topic(topic, self.config.max_block_ms)
        queues, futures = self._intake.topics[topic], []
        for portion in batches_of(data, queues, partition, self._clock.wall_ms()):
            for queue, builder in portion:
                futures.append(self._with_memory(partial(self._intake.append_built, topic, queue, builder)))
        return futures

    def partitions_for(self, topic: str) -> frozenset[int]:
        """The partitions of a topic; waits up to max_block_ms for its metadata."""
        self._ensure_topic(topic, self.config.max_block_ms)
        return frozenset(range(self._intake.topics[topic].count))

    def flush(self, timeout: float | None = None) -> None:
        """Send what is buffered now and wait for it; `timeout` in seconds (None: the delivery time-out bounds it).

        Raises what failed since the last flush unless it was read from its future, and `RequestTimedOutError` if
        records are still unsettled after `timeout`.
        """
        self._flush(timeout)
        error = self._intake.unread_failure()
        if error is not None:
            raise error

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds (None: 30), give up the rest, disconnect.

        Raises what failed and nobody has read. May be repeated and called from any thread, in a callback too: then it
        does not wait, what is left is given up.
        """
        limit = 0.0 if self._is_inside_callback() else CLOSE_TIMEOUT_S if timeout is None else timeout
        deadline = time.monotonic() + limit
        self._intake.close()
        with self._accumulator.lock:
            self._on_memory()
        try:
            self._flush(limit)
        except RequestTimedOutError as error:
            log.warning("close of a producer: %s", error)
        self._shut(deadline)
        failure = self._intake.unread_failure()
        if failure is not None:
            raise failure

    # -- inside

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> ThreadSendFuture:
        started_ms = self._clock.monotonic_ms()
        self._ensure_topic(topic, self.config.max_block_ms)
        append = partial(self._intake.append, topic, value, key, headers, partition, timestamp_ms)
        return self._with_memory(append, started_ms)

    def _with_memory(
        self, append: Callable[[float], ThreadSendFuture | None], started_ms: float | None = None
    ) -> ThreadSendFuture:
        """What `append(now_ms)` returns as soon as there is memory for it."""
        future = self._wait_for_memory(append, self._clock.monotonic_ms() if started_ms is None else started_ms)
        if self._tick_pending:
            # Let the loop have the interpreter lock once a batch: it would get it after 5 ms only from a thread that
            # sends without pause, and then batches would pile up to buffer_memory before the first one leaves.
            time.sleep(0)
        return future

    def _wait_for_memory(
        self, append: Callable[[float], ThreadSendFuture | None], started_ms: float
    ) -> ThreadSendFuture:
        while True:
            with self._accumulator.lock:
                self._intake.check_open()
                now_ms = self._clock.monotonic_ms()
                future = append(now_ms)
                if future is not None:
                    return future
                remaining_ms = started_ms + self.config.max_block_ms - now_ms
                if remaining_ms <= 0 or self._is_inside_callback() or self._background.is_own_thread():
                    raise self._intake.exhausted(now_ms - started_ms)
                if self._memory_freed is None:
                    self._memory_freed = Latch()
                freed = self._memory_freed
            freed.wait(min(WAIT_SLICE_S, remaining_ms / 1000))

    def _ensure_topic(self, topic: str, timeout_ms: float) -> None:
        self._intake.check_open()
        if topic not in self._intake.topics:
            check_topic_name(topic)
            self._intake.on_topic(self._background.run(partial(self._find_topic, topic, timeout_ms)))
            self._intake.check_open()

    async def _find_topic(self, topic: str, timeout_ms: float) -> TopicMetadata:
        return await self._cluster.wait_for_topic(topic, timeout_ms)

    def _flush(self, timeout: float | None) -> None:
        with self._accumulator.lock:
            batches = list(self._accumulator.incomplete)
            self._accumulator.make_all_due()
        if batches and (self._is_inside_callback() or self._background.is_own_thread()) and timeout != 0:
            raise IllegalStateError("flush inside of a delivery callback would wait for itself")
        deadline = None if timeout is None else time.monotonic() + timeout
        for batch in batches:
            latch = self._accumulator.latch_of(batch)
            while not latch.is_open:
                slice_s = WAIT_SLICE_S if deadline is None else min(WAIT_SLICE_S, deadline - time.monotonic())
                if slice_s <= 0:
                    raise RequestTimedOutError(f"flush: {unsettled(batches)} within {timeout} s")
                latch.wait(slice_s)

    def _shut(self, deadline: float) -> None:
        """Stop the sender and settle what is left; once."""
        with self._close_lock:
            if self._is_shut:
                return
            self._is_shut = True
        _open_producers.discard(self)
        if not self._background.is_own_thread():
            try:
                self._background.run(self._disconnect, STOP_TIMEOUT_S)
            except RequestTimedOutError as error:
                log.warning("close of a producer: the connections did not close: %s", error)
        self._intake.fail_rest(ClientClosedError("not acknowledged when the producer was closed"))
        if not self._callbacks.close(max(STOP_TIMEOUT_S, deadline - time.monotonic())):
            log.warning("close of a producer: delivery callbacks are still running")

    async def _disconnect(self) -> None:
        await self._sender.close()
        await self._cluster.close()

    def _clock_ns(self) -> int:
        return self._clock.wall_ms() * 1_000_000

    def _is_inside_callback(self) -> bool:
        return self._callbacks.is_own_thread()

    def _wake(self) -> None:
        if not self._tick_pending:
            self._tick_pending = True
            try:
                self._background.call_soon(self._tick)
            except KeyboardInterrupt:  # before or after the loop was woken
                self._background.call_soon(self._tick)
                raise

    def _tick(self) -> None:
        self._tick_pending = False
        self._sender.tick()

    def _on_memory(self) -> None:
        """Let those look again who wait for memory. Caller holds the lock."""
        freed, self._memory_freed = self._memory_freed, None
        if freed is not None:
            freed.open()

    def _run_callbacks(self, batch: ProducerBatch, callbacks: list[Callable[[], object]]) -> None:
        self._callbacks.submit(batch, callbacks)

    def after_fork_in_child(self) -> None:
        """Start empty: what was handed over before the fork is the parent's to send, under its own producer id."""
        old, was_closed = self._accumulator, self._intake.is_closed
        self._close_lock = threading.Lock()
        error = IllegalStateError("handed over before fork(): only the parent process knows the outcome")
        for batch in list(old.incomplete):
            batch.error, batch.is_done = error, True
            batch.latch = None
        old.lock = threading.Lock()
        self._callbacks = CallbackThread()  # the parent's thread is not here
        if not was_closed:
            self._set_up_lazily()

    def _set_up_lazily(self) -> None:
        """The child may never use the producer: start its loop only when it does."""
        self._intake = _Unstarted(self)  # type: ignore[assignment]  # replaced by the real one at first use
        self._lock = threading.Lock()
        self._fast_topics = {}


class _Unstarted:
    """Stands for the intake of a producer in a forked child until its first use."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        self._producer._set_up()
        return getattr(self._producer._intake, name)


_open_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def _close_all() -> None:
    for producer in list(_open_producers):
        try:
            producer.close(EXIT_TIMEOUT_S)
        except KraftlogError as error:
            log.error("a producer that was not closed before exit: %s", error)


atexit.register(_close_all)
