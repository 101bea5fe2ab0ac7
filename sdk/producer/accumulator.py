"""Records that wait to be acknowledged: batches per partition, their memory, order and sequence numbers.

A plain object without I/O: it is told the time and what brokers answered, and says which batch may be sent next. Every
method needs the caller to hold `lock`, except those that say otherwise. Ctrl-C may end what an application's thread does
here after any call, so steps are in an order that leaves nothing behind that is never sent.

Order and duplicates (idempotent producers):
- Brokers remember the last five batches of a producer in a partition. So a batch is not sent before the one that is
  max_in_flight places before it is answered, even if later ones are answered already.
- A batch gets its sequence when it is first sent and is sent again with the same identity (producer id, epoch,
  sequence) while its outcome is unknown, so that a broker that has it recognises it.
- After a failed attempt the partition *recovers*: nothing more is sent until all batches under way are answered; then
  they are sent again in their first order.
- A leader that does not know the producer takes any sequence, and may refuse the first batch of several only because it
  does not lead yet. So nothing follows a batch before it is answered, unless its leader is known to remember the
  producer: it has acknowledged a batch of the same identity in the same leader epoch, not long ago, and refused none since.
- A batch that is refused as out of order with no earlier batch unsettled is known not to be in the log (the broker
  looks for duplicates first). Only then the epoch is raised (locally, as Kafka's client does for producers without a
  transactional id) and the partition's batches are numbered from 0 again. Other partitions take the raised epoch when
  they have no batch with an older one left (KAFKA-12152).
"""

import threading
from collections import deque
from collections.abc import Callable

from kraftlog.proto.errors import KraftlogError, RequestTimedOutError
from kraftlog.proto.records import NO_SEQUENCE, BatchBuilder, CompressionType
from kraftlog.sdk.latch import Latch
from kraftlog.sdk.producer.batch import ProducerBatch

RESERVE_STEP_BYTES = 16 * 1024  # memory is taken in such steps, so that `send` does not count every record
MAX_PRODUCER_EPOCH = 32_767
REMEMBERED_MS = 10_000.0  # of silence; brokers remember for producer.id.expiration.ms, a day by default
SEQUENCE_MASK = 0x7FFF_FFFF  # sequences wrap from 2^31 - 1 to 0


class PartitionQueue:
    """One partition's batches. Caller holds the accumulator's lock."""

    __slots__ = (
        "accumulator",
        "batch_limit",
        "compression",
        "in_flight",
        "is_known",
        "is_recovering",
        "leader_epoch",
        "needs_new_epoch",
        "next_sequence",
        "node_id",
        "open",
        "partition",
        "producer_epoch",
        "producer_id",
        "refusals",
        "retry_at_ms",
        "seeks_leader",
        "sent_at_ms",
        "sequenced_count",
        "topic",
        "waiting",
    )

    def __init__(self, accumulator: "Accumulator", topic: str, partition: int) -> None:
        self.accumulator = accumulator
        self.topic = topic
        self.partition = partition
        self.compression = CompressionType.NONE
        self.batch_limit = accumulator.batch_size
        """Size that a batch of more than one record does not exceed."""
        self.open: ProducerBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.node_id = -1
        """Where the batches under way were sent."""
        self.leader_epoch = -1
        """The epoch in which `node_id` led when the last batch was sent, as far as was known."""
        self.sent_at_ms = 0.0
        """When that was."""
        self.seeks_leader = False
        """The last attempt failed in a way that asks for another leader; until the next attempt."""
        self.is_recovering = False
        self.needs_new_epoch = False
        self.retry_at_ms = 0.0
        self.refusals = 0
        """How many times in a row its leader has refused what it was sent: the pause before the next time grows with it."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.is_known = False
        """`node_id` remembers this identity in `leader_epoch`: it refuses a batch that comes before its predecessor."""
        self.next_sequence = 0
        self.sequenced_count = 0
        """Batches that were given a sequence so far."""

    def depth(self) -> int:
        """Batches that are not settled."""
        return len(self.waiting) + len(self.in_flight) + (self.open is not None)

    def has_sequenced(self) -> bool:
        """Whether a batch with a sequence is unsettled."""
        return bool(self.in_flight) or (bool(self.waiting) and self.waiting[0].base_sequence != NO_SEQUENCE)


class Accumulator:
    """All partitions' queues of one producer."""

    def __init__(
        self,
        *,
        batch_size: int,
        linger_ms: float,
        buffer_memory: int,
        delivery_timeout_ms: float,
        max_in_flight: int,
        is_idempotent: bool,
        wake: Callable[[], None] = lambda: None,
        on_memory: Callable[[], None] = lambda: None,
        run_callbacks: Callable[[ProducerBatch, list[Callable[[], object]]], None] | None = None,
        is_own_thread: Callable[[], bool] = lambda: False,
    ) -> None:
        """`wake` is called, under the lock, when there may be something to send earlier than was said before;
        `on_memory`, under the lock, when memory came free; `run_callbacks` without it, and must `release` the batch.
        """
        self.lock = threading.Lock()
        self.batch_size = batch_size
        self.linger_ms = linger_ms
        self.buffer_memory = buffer_memory
        self.delivery_timeout_ms = delivery_timeout_ms
        self.max_in_flight = max_in_flight
        self.is_idempotent = is_idempotent
        self.is_own_thread = is_own_thread
        self._wake = wake
        self._on_memory = on_memory
        self._run_callbacks = run_callbacks or self._run_at_once
        self.used_bytes = 0
        """Memory of batches that are unsettled or whose callbacks have not run. A record gets in only while this is at
        most buffer_memory; callbacks that are added late may take it above."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.ready: dict[PartitionQueue, None] = {}
        """Queues that have a batch to send, in turn."""
        self.incomplete: dict[ProducerBatch, None] = {}
        """Unsettled batches in order of creation."""
        self._lingering: deque[ProducerBatch] = deque()
        self._next_number = 0
        self.unread_failures = 0
        """Records that failed without anybody having been told."""
        self.first_failure: KraftlogError | None = None
        self._report = 0
        """Numbers the reports of unread failures; what failed before the last one is told."""

    # -- records go in

    def make_room(self, queue: PartitionQueue, need: int, now_ms: float) -> ProducerBatch | None:
        """An open batch of `queue` with memory for `need` more bytes; None if there is no memory."""
        batch = queue.open
        if batch is not None:
            wanted = batch.size + need
            if wanted <= queue.batch_limit:
                grown = min(max(wanted, batch.reserved_bytes + RESERVE_STEP_BYTES), queue.batch_limit)
                if self._reserve(batch, grown):
                    return batch
                return None
            self.close_open(queue)
        batch = ProducerBatch(queue, self._next_number, now_ms, queue.compression)
        self._next_number += 1
        self.incomplete[batch] = None
        queue.open = batch
        first = batch.size + need
        if not self._reserve(batch, max(first, min(RESERVE_STEP_BYTES, queue.batch_limit))):
            self.drop_empty(queue)
            return None
        self._lingering.append(batch)
        if len(self._lingering) > 2 * len(self.incomplete) + 64:
            self._lingering = deque(b for b in self._lingering if b.queue.open is b)
        if len(self._lingering) == 1 or self.linger_ms == 0:
            self._wake()
        return batch

    def drop_empty(self, queue: PartitionQueue) -> None:
        """Forget an open batch that has no record: the one that room was made for was not put in."""
        batch = queue.open
        if batch is not None and not batch.count:
            queue.open = None
            if self._lingering and self._lingering[-1] is batch:
                self._lingering.pop()
            self.incomplete.pop(batch, None)
            self._release(batch)
            self._wake()

    def add_built(self, queue: PartitionQueue, builder: BatchBuilder, now_ms: float) -> ProducerBatch | None:
        """Put a full batch in line behind what the queue has; None if there is no memory."""
        self.close_open(queue)
        batch = ProducerBatch(queue, self._next_number, now_ms, queue.compression, builder)
        self._next_number += 1
        self.incomplete[batch] = None
        self.ready[queue] = None
        queue.waiting.append(batch)
        if not self._reserve(batch, batch.size):
            queue.waiting.pop()
            del self.incomplete[batch]
            return None
        self._wake()
        return batch

    def _reserve(self, batch: ProducerBatch, total: int) -> bool:
        """Bring the batch's memory to `total` bytes; if there is none, everything open becomes due."""
        more = total - batch.reserved_bytes
        if self.used_bytes + more > self.buffer_memory:
            self.make_all_due()
            return False
        self.used_bytes += more
        batch.reserved_bytes = batch.limit = total
        return True

    def close_open(self, queue: PartitionQueue) -> None:
        """Take no more records into the open batch."""
        batch = queue.open
        if batch is not None:
            self.ready[queue] = None
            queue.open = None
            queue.waiting.append(batch)
            self._wake()

    def make_all_due(self) -> None:
        """Send every open batch without waiting for linger_ms."""
        for batch in self._lingering:
            self._make_due(batch)
        self._lingering.clear()
        self._wake()

    def _make_due(self, batch: ProducerBatch) -> None:
        if batch.queue.open is batch:
            batch.is_due = True
            self.ready[batch.queue] = None

    # -- batches go out

    def expire_linger(self, now_ms: float) -> None:
        """Make batches due that have waited for linger_ms."""
        lingering = self._lingering
        while lingering and (
            lingering[0].created_ms + self.linger_ms <= now_ms  # as `next_deadline_ms` has it, to the last bit
            or lingering[0].queue.open is not lingering[0]
        ):
            self._make_due(lingering.popleft())

    def take(
        self, queue: PartitionQueue, node_id: int, now_ms: float, *, leader_epoch: int = -1
    ) -> ProducerBatch | None:
        """The next batch that may go to `node_id`, the leader of that epoch, as in flight; None if the queue has to wait."""
        if (node_id, leader_epoch) != (queue.node_id, queue.leader_epoch) or now_ms > queue.sent_at_ms + REMEMBERED_MS:
            queue.is_known = False
        if not self._may_send(queue, node_id, now_ms):
            return None
        if not queue.waiting:
            self._close_due(queue)
        if not queue.waiting:
            del self.ready[queue]
            return None
        batch = queue.waiting[0]
        if self.is_idempotent and batch.base_sequence == NO_SEQUENCE:
            if not self._adopt_identity(queue) or not self._is_within_memory(queue):
                return None
            batch.order = queue.sequenced_count
            queue.sequenced_count += 1
            batch.producer_id, batch.producer_epoch = queue.producer_id, queue.producer_epoch
            batch.base_sequence = queue.next_sequence
            queue.next_sequence = (queue.next_sequence + batch.count) & SEQUENCE_MASK
        queue.waiting.popleft()
        queue.in_flight.append(batch)
        queue.node_id = node_id
        queue.leader_epoch = leader_epoch
        queue.sent_at_ms = now_ms
        queue.seeks_leader = False
        batch.attempts += 1
        batch.was_sent = True
        del self.ready[queue]
        if queue.waiting or (queue.open is not None and queue.open.is_due):
            self.ready[queue] = None  # at the end of the line
        return batch

    def _may_send(self, queue: PartitionQueue, node_id: int, now_ms: float) -> bool:
        if len(queue.in_flight) >= self.max_in_flight or now_ms < queue.retry_at_ms:
            return False
        if not queue.in_flight:
            if queue.is_recovering:
                self._end_recovery(queue)
            return True
        return not queue.is_recovering and queue.node_id == node_id and (queue.is_known or not self.is_idempotent)

    def _is_within_memory(self, queue: PartitionQueue) -> bool:
        """Whether brokers would still know the oldest unanswered batch after one more.

        They remember the last batches of a producer, answered or not, and answers may overtake each other.
        """
        return not queue.in_flight or (
            queue.sequenced_count - min(batch.order for batch in queue.in_flight) < self.max_in_flight
        )

    def _close_due(self, queue: PartitionQueue) -> None:
        batch = queue.open
        if batch is not None and batch.is_due:
            queue.open = None
            queue.waiting.append(batch)

    def _end_recovery(self, queue: PartitionQueue) -> None:
        """All is answered: number again from 0 in a raised epoch if a batch is known to be refused."""
        queue.is_recovering = False
        if not queue.needs_new_epoch:
            return
        queue.needs_new_epoch = False
        if (queue.producer_id, queue.producer_epoch) == (self.producer_id, self.producer_epoch):
            self.raise_epoch()
        for batch in queue.waiting:
            batch.base_sequence = NO_SEQUENCE
        queue.producer_id = queue.producer_epoch = -1

    def _adopt_identity(self, queue: PartitionQueue) -> bool:
        """Number the next batch in the producer's present epoch; False if that is not possible yet."""
        if self.producer_id < 0:
            return False
        if (queue.producer_id, queue.producer_epoch) != (self.producer_id, self.producer_epoch):
            if queue.has_sequenced():
                return False
            queue.producer_id, queue.producer_epoch = self.producer_id, self.producer_epoch
            queue.is_known = False
            queue.next_sequence = 0
        return True

    def raise_epoch(self) -> None:
        """Go on in a new epoch; with the last one used up a new producer id is needed."""
        if self.producer_epoch >= MAX_PRODUCER_EPOCH:
            self.producer_id = self.producer_epoch = -1
            self._wake()
        else:
            self.producer_epoch += 1

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id has to be fetched before anything can be sent."""
        return self.is_idempotent and self.producer_id < 0

    # -- answers come in

    def complete(
        self, batch: ProducerBatch, base_offset: int, *, log_append_time_ms: int = -1, durability: str = ""
    ) -> None:
        """The batch is acknowledged. Then call `settle` without the lock."""
        if not batch.is_done:
            batch.base_offset = base_offset
            batch.log_append_time_ms = log_append_time_ms
            batch.durability = durability
            batch.queue.refusals = 0
            batch.queue.is_known = not batch.queue.is_recovering
            self._finish(batch, None)

    def fail(self, batch: ProducerBatch, error: KraftlogError) -> None:
        """The batch is given up. Then call `settle` without the lock."""
        if not batch.is_done:
            batch.unread = batch.count
            batch.report = self._report
            self.unread_failures += batch.count
            if self.first_failure is None:
                self.first_failure = error
            self._finish(batch, error)

    def retry(self, batch: ProducerBatch, error: KraftlogError, retry_at_ms: float) -> None:
        """Send the batch again at `retry_at_ms`, in its place."""
        if batch.is_done:
            return
        batch.last_error = error
        queue = batch.queue
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
            position = 0
            while position < len(queue.waiting) and queue.waiting[position].number < batch.number:
                position += 1
            queue.waiting.insert(position, batch)
        queue.is_recovering = True
        queue.is_known = False
        queue.retry_at_ms = max(queue.retry_at_ms, retry_at_ms)
        queue.seeks_leader |= error.refresh_metadata
        self.ready[queue] = None

    def leader_known(self, queue: PartitionQueue, leader_epoch: int) -> None:
        """The newest metadata have a leader of that epoch: if it is a newer one than that which failed, try it at once."""
        if queue.seeks_leader and leader_epoch > queue.leader_epoch:
            queue.seeks_leader = False
            queue.retry_at_ms = 0.0
            queue.refusals = 0

    def out_of_order(self, batch: ProducerBatch, error: KraftlogError, retry_at_ms: float) -> bool:
        """The broker refused the sequence: retry, in a raised epoch if the batch is known not to be in the log.

        Returns whether it is.
        """
        queue = batch.queue
        earlier = [*queue.in_flight, *queue.waiting]
        is_first = not any(other.number < batch.number and other.base_sequence != NO_SEQUENCE for other in earlier)
        if is_first and not batch.is_done:
            queue.needs_new_epoch = True
        self.retry(batch, error, retry_at_ms)
        return is_first

    def _finish(self, batch: ProducerBatch, error: KraftlogError | None) -> None:
        batch.error = error
        batch.is_done = True
        batch.drop_builder()
        batch.records = None
        queue = batch.queue
        if queue.open is batch:
            queue.open = None
        elif batch in queue.in_flight:
            queue.in_flight.remove(batch)
        elif batch in queue.waiting:
            queue.waiting.remove(batch)
        del self.incomplete[batch]
        if queue.waiting or (queue.open is not None and queue.open.is_due):
            self.ready[queue] = None
        else:
            self.ready.pop(queue, None)
        if batch.callbacks is None:
            self._release(batch)

    def settle(self, batch: ProducerBatch) -> None:
        """Wake those who wait for a finished batch and run its callbacks. Caller must not hold the lock."""
        if batch.latch is not None and not batch.latch.is_open:
            batch.latch.open()
        callbacks, batch.callbacks = batch.callbacks, None
        if callbacks:
            self._run_callbacks(batch, callbacks)

    def release(self, batch: ProducerBatch) -> None:
        """Give back the memory of a batch whose callbacks have run. Takes the lock itself."""
        with self.lock:
            self._release(batch)

    def _release(self, batch: ProducerBatch) -> None:
        self.used_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0
        self._on_memory()

    def _run_at_once(self, batch: ProducerBatch, callbacks: list[Callable[[], object]]) -> None:
        for callback in callbacks:
            callback()
        self.release(batch)

    # -- time

    def expired(self, now_ms: float) -> list[ProducerBatch]:
        """Batches whose delivery time-out has passed, failed here; `settle` each without the lock."""
        late: list[ProducerBatch] = []
        for batch in self.incomplete:
            if batch.created_ms + self.delivery_timeout_ms > now_ms:
                break
            late.append(batch)
        for batch in late:
            self.fail(batch, self._expiry_error(batch))
        return late

    def _expiry_error(self, batch: ProducerBatch) -> KraftlogError:
        queue = batch.queue
        what = f"{queue.topic}-{queue.partition}: {batch.count} record(s) not acknowledged within "
        what += f"delivery_timeout_ms={self.delivery_timeout_ms:.0f} after {batch.attempts} attempt(s)"
        state = "the outcome is unknown: they may have been written" if batch.was_sent else "they were never sent"
        reason = f"; last error: {batch.last_error}" if batch.last_error is not None else ""
        return RequestTimedOutError(f"{what}; {state}{reason}")

    def next_deadline_ms(self, now_ms: float) -> float | None:
        """When to look again if nothing happens before: linger, delivery time-out or the end of a pause."""
        deadlines = [queue.retry_at_ms for queue in self.ready if queue.retry_at_ms > now_ms]
        if self._lingering:
            deadlines.append(self._lingering[0].created_ms + self.linger_ms)
        if self.incomplete:
            deadlines.append(next(iter(self.incomplete)).created_ms + self.delivery_timeout_ms)
        return min(deadlines, default=None)

    # -- futures

    def add_callback(self, batch: ProducerBatch, callback: Callable[[], object]) -> None:
        """Run `callback` when the batch is done; at once if it is. Takes the lock itself.

        One that comes after the batch is done takes the memory of a record again until it has run: against a fast
        broker that is every callback, and slow ones would pile up without a bound.
        """
        with self.lock:
            if not batch.is_done:
                if batch.callbacks is None:
                    batch.callbacks = []
                batch.callbacks.append(callback)
                return
            late_bytes = batch.size // max(1, batch.count)
            batch.reserved_bytes += late_bytes
            self.used_bytes += late_bytes
        self._run_callbacks(batch, [callback])

    def latch_of(self, batch: ProducerBatch) -> Latch:
        """What a thread waits on for the batch. Takes the lock itself."""
        with self.lock:
            if batch.latch is None:
                batch.latch = Latch(is_open=batch.is_done)
            return batch.latch

    def failure_read(self, batch: ProducerBatch) -> None:
        """Somebody has been told that one record of a failed batch failed. Takes the lock itself."""
        with self.lock:
            if batch.unread and batch.report == self._report:
                batch.unread -= 1
                self.unread_failures -= 1
                if not self.unread_failures:
                    self.first_failure = None

    def take_unread_failure(self) -> tuple[int, KraftlogError] | None:
        """(records, first error) of what failed unreported; from here on it counts as reported. Takes the lock."""
        with self.lock:
            count, error = self.unread_failures, self.first_failure
            self.unread_failures, self.first_failure = 0, None
            self._report += 1
        return (count, error) if count and error is not None else None
