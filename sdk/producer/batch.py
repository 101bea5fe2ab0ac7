"""A producer's batch and the futures of its records.

A future is a light pair (batch, index): completing a batch settles all of its futures at once, whatever their number.
Whoever changes a batch's state holds the accumulator's lock; a future may be read from any thread.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self

from kraftlog.proto.errors import IllegalStateError, KraftlogError, RequestTimedOutError
from kraftlog.proto.records import NO_SEQUENCE, BatchBuilder, CompressionType
from kraftlog.sdk.failures import again
from kraftlog.sdk.latch import WAIT_SLICE_S, Latch
from kraftlog.sdk.types import RecordMetadata

if TYPE_CHECKING:
    from kraftlog.sdk.producer.accumulator import PartitionQueue


class ProducerBatch:
    """Records of one partition that travel together.

    Life: open (takes records) -> waiting (closed, in line) -> in flight -> done; a retry goes back to waiting. `records`
    is built when the batch is first sent, and the builder is dropped then. Once a sequence is assigned, the batch keeps
    it until the broker is known not to have the batch: that is what makes a retry safe.
    """

    __slots__ = (
        "_count",
        "attempts",
        "base_offset",
        "base_sequence",
        "builder",
        "callbacks",
        "created_ms",
        "durability",
        "error",
        "is_done",
        "is_due",
        "last_error",
        "latch",
        "limit",
        "log_append_time_ms",
        "number",
        "order",
        "producer_epoch",
        "producer_id",
        "queue",
        "records",
        "report",
        "reserved_bytes",
        "size",
        "stamp",
        "unread",
        "was_sent",
    )

    def __init__(
        self,
        queue: "PartitionQueue",
        number: int,
        created_ms: float,
        compression: CompressionType,
        builder: BatchBuilder | None = None,
    ) -> None:
        """An open batch, or with `builder` one that has its records already."""
        self.queue = queue
        self.number = number
        """Order of creation; batches of a partition are sent in this order."""
        self.created_ms = created_ms
        active = BatchBuilder(compression_type=compression) if builder is None else builder
        self.builder: BatchBuilder | None = active
        self.size = active.size_bytes
        """Bytes so far, before compression."""
        self._count = 0
        self.is_due = False
        """Whether an open batch may be sent as it is."""
        self.limit = 0
        """`size` up to which memory is reserved."""
        self.reserved_bytes = 0
        self.records: bytes | None = None
        self.stamp: tuple[int, int, int] = (-1, -1, NO_SEQUENCE)
        """Producer id, epoch and sequence in `records`."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.order = -1
        """Place among the partition's batches with a sequence; -1: it has none."""
        self.attempts = 0
        self.was_sent = False
        """Whether an attempt may have reached a broker."""
        self.last_error: KraftlogError | None = None
        """Why the last attempt did not settle it."""
        self.is_done = False
        self.error: KraftlogError | None = None
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.durability = ""
        self.unread = 0
        """Records of a failed batch whose failure nobody has been told."""
        self.report = 0
        self.callbacks: list[Callable[[], object]] | None = None
        self.latch: Latch | None = None

    @property
    def count(self) -> int:
        """Records. Counted by the builder alone: Ctrl-C may end a `send` between any two of its steps."""
        builder = self.builder  # once: the loop drops it while others look
        return self._count if builder is None else builder.record_count

    def drop_builder(self) -> None:
        """It takes no more records, and its bytes are built or not needed."""
        self._count, self.builder = self.count, None

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        return RecordMetadata(
            self.queue.topic,
            self.queue.partition,
            self.base_offset + index if self.base_offset >= 0 else -1,
            timestamp if self.log_append_time_ms < 0 else self.log_append_time_ms,
            self.durability,
        )


class SendFuture:
    """The outcome of one `send`. Safe from any thread.

    A failure counts as reported once it was read here (also by a callback) or raised by `flush` or `close`.
    """

    __slots__ = ("_batch", "_index", "_seen", "_timestamp")

    def __init__(self, batch: ProducerBatch, index: int, timestamp: int) -> None:
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    @property
    def topic(self) -> str:
        return self._batch.queue.topic

    @property
    def partition(self) -> int:
        return self._batch.queue.partition

    @property
    def record_count(self) -> int:
        """Records that travel in the same batch so far; with `send_batch`, those that this future stands for."""
        return self._batch.count

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.is_done

    def succeeded(self) -> bool:
        """Whether the record is acknowledged."""
        return self._batch.is_done and self._batch.error is None

    def failed(self) -> bool:
        """Whether the record failed; looking counts as having been told."""
        return self._batch.is_done and self._failure() is not None

    def add_done_callback(self, callback: Callable[[Self], object]) -> Self:
        """Call `callback(future)` when the outcome is known; at once if it is. What it raises is logged."""
        self._batch.queue.accumulator.add_callback(self._batch, lambda: callback(self))
        return self

    def add_callback(self, callback: Callable[[RecordMetadata], object]) -> Self:
        """Call `callback(metadata)` on success (kafka-python's way)."""
        return self.add_done_callback(lambda future: callback(future._outcome()) if future.succeeded() else None)

    def add_errback(self, errback: Callable[[KraftlogError], object]) -> Self:
        """Call `errback(error)` on failure (kafka-python's way)."""

        def call(future: SendFuture) -> None:
            error = future._failure()
            if error is not None:
                errback(error)

        return self.add_done_callback(call)

    def _failure(self) -> KraftlogError | None:
        """The error of a done batch, marked as read."""
        error = self._batch.error
        if error is not None and not hasattr(self, "_seen"):
            self._seen = True
            self._batch.queue.accumulator.failure_read(self._batch)
        return None if error is None else again(error)

    def _outcome(self) -> RecordMetadata:
        error = self._failure()
        if error is not None:
            raise error
        return self._batch.metadata(self._index, self._timestamp)

    def __repr__(self) -> str:
        state = "pending" if not self._batch.is_done else "failed" if self._batch.error else "acknowledged"
        return f"<{type(self).__name__} {self.topic}-{self.partition} {state}>"


class ThreadSendFuture(SendFuture):
    """What `Producer.send` returns."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the outcome; `timeout` in seconds (None: the delivery time-out bounds it).

        Raises why the record failed, or `RequestTimedOutError` if the outcome is not known in time: the record may
        still be written; do not send it again, wait again.
        """
        self._wait(timeout)
        return self._outcome()

    get = result  # kafka-python's name

    def exception(self, timeout: float | None = None) -> KraftlogError | None:
        """Wait like `result`; the failure, or None for an acknowledged record."""
        self._wait(timeout)
        return self._failure()

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if batch.is_done:
            return
        accumulator = batch.queue.accumulator
        if accumulator.is_own_thread():
            raise IllegalStateError("waiting for a record inside of a delivery callback would wait for itself")
        latch = accumulator.latch_of(batch)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not batch.is_done:
            remaining = WAIT_SLICE_S if deadline is None else min(WAIT_SLICE_S, deadline - time.monotonic())
            if remaining <= 0:
                raise RequestTimedOutError(
                    f"{self.topic}-{self.partition}: not acknowledged within {timeout} s; the record may still be "
                    "written: wait on the same future, do not send again"
                )
            latch.wait(remaining)


class AsyncSendFuture(SendFuture):
    """What `AsyncProducer.send` returns; `await` it for the outcome."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.is_done:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._batch.queue.accumulator.add_callback(self._batch, lambda: _settle(waiter))
            yield from waiter
        return self._outcome()

    def exception(self) -> KraftlogError | None:
        """The failure of a done future, None for success. Raises `IllegalStateError` while it is pending."""
        if not self._batch.is_done:
            raise IllegalStateError("the outcome is not known yet: await the future")
        return self._failure()

    def result(self) -> RecordMetadata:
        """The outcome of a done future. Raises `IllegalStateError` while it is pending."""
        if not self._batch.is_done:
            raise IllegalStateError("the outcome is not known yet: await the future")
        return self._outcome()


def _settle(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
