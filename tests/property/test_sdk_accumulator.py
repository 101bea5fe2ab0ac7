"""The accumulator against a model broker that loses answers, refuses, restarts and forgets: no loss, no duplicate."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.proto.errors import NetworkError, NotEnoughReplicasError, OutOfOrderSequenceNumberError
from kraftlog.sdk.producer.accumulator import REMEMBERED_MS, Accumulator, PartitionQueue
from kraftlog.sdk.producer.batch import ProducerBatch

_WEIGHTS = {
    "append": 10,
    "close": 4,
    "send": 8,
    "answer": 8,
    "lose answer": 1,
    "lose request": 1,
    "refuse": 1,
    "fail": 1,
    "break": 1,
    "wait": 3,
    "expire": 1,
    "move": 1,
    "fall silent": 1,
}
STEPS = st.lists(
    st.tuples(st.sampled_from([name for name, weight in _WEIGHTS.items() for _ in range(weight)]), st.integers(0, 9)),
    min_size=40,
    max_size=150,
)


class Broker:
    """One partition's producer state as a broker keeps it: the last five batches of the newest epoch."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.epoch = -1
        self.batches: deque[tuple[int, int]] = deque(maxlen=5)
        self.next_sequence = 0

    def append(self, batch: ProducerBatch, values: list[int]) -> bool:
        """Whether the batch is in the log now; False: out of order."""
        if batch.producer_epoch < self.epoch:
            raise AssertionError("a batch of an old epoch was sent after one of a newer epoch was accepted")
        if self.epoch < 0:  # nothing is known: any sequence may start
            self.epoch, self.next_sequence = batch.producer_epoch, batch.base_sequence
        if batch.producer_epoch > self.epoch:
            if batch.base_sequence != 0:
                return False
            self.epoch, self.next_sequence = batch.producer_epoch, 0
            self.batches.clear()
        if (batch.base_sequence, batch.count) in self.batches:
            return True
        if batch.base_sequence != self.next_sequence:
            return False
        self.batches.append((batch.base_sequence, batch.count))
        self.next_sequence += batch.count
        self.log += values
        return True

    def forget(self) -> None:
        self.epoch = -1
        self.batches.clear()


class Harness:
    """Records are numbers; attempts travel in order per partition, answers come back in any order."""

    def __init__(self) -> None:
        self.accumulator = Accumulator(
            batch_size=200,
            linger_ms=5,
            buffer_memory=4_000,
            delivery_timeout_ms=10_000,
            max_in_flight=5,
            is_idempotent=True,
        )
        self.accumulator.producer_id, self.accumulator.producer_epoch = 7, 0
        self.queues = [PartitionQueue(self.accumulator, "t", partition) for partition in range(2)]
        self.brokers = [Broker(), Broker()]
        self.leader_epochs = [0, 0]
        self.now_ms = 1_000.0
        self.next_value = 0
        self.values: dict[ProducerBatch, list[int]] = {}
        self.wire: list[tuple[ProducerBatch, bool | None]] = []
        """Attempts under way: (batch, whether the broker took it; None: it is refused for a while)"""

    def run(self, name: str, number: int) -> None:
        """One step; the number's parity names the partition, the rest is the step's own."""
        with self.accumulator.lock:
            getattr(self, "do_" + name.replace(" ", "_"))(number // 2, self.queues[number % 2])
            self.check()

    def do_append(self, count: int, queue: PartitionQueue) -> None:
        for _ in range(count + 1):
            batch = self.accumulator.make_room(queue, 60, self.now_ms)
            if batch is None:
                return
            assert batch.builder is not None
            batch.size = batch.builder.append(1, None, b"%050d" % self.next_value)
            self.values.setdefault(batch, []).append(self.next_value)
            self.next_value += 1

    def do_close(self, _: int, queue: PartitionQueue) -> None:
        self.accumulator.close_open(queue)

    def do_send(self, _: int, queue: PartitionQueue) -> None:
        self.accumulator.expire_linger(self.now_ms)
        while (batch := self.take(queue)) is not None:
            self.wire.append((batch, self.brokers[queue.partition].append(batch, self.values[batch])))

    def take(self, queue: PartitionQueue) -> ProducerBatch | None:
        if queue not in self.accumulator.ready:
            return None
        leader_epoch = self.leader_epochs[queue.partition]
        return self.accumulator.take(queue, leader_epoch % 2 + 1, self.now_ms, leader_epoch=leader_epoch)

    def do_answer(self, index: int, _: PartitionQueue) -> None:
        if not self.wire:
            return
        batch, accepted = self.wire.pop(index % len(self.wire))
        if accepted:
            self.accumulator.complete(batch, 0)
        elif accepted is None:
            self.accumulator.retry(batch, NotEnoughReplicasError(), self.now_ms + 1)
        else:
            self.accumulator.out_of_order(batch, OutOfOrderSequenceNumberError(), self.now_ms + 1)

    def do_lose_answer(self, index: int, _: PartitionQueue) -> None:
        """The answer says nothing about what happened: a time-out of the broker's, or an unexpected error."""
        if self.wire:
            batch, _accepted = self.wire.pop(index % len(self.wire))
            self.accumulator.retry(batch, NetworkError(), self.now_ms + 1)

    def do_lose_request(self, _: int, queue: PartitionQueue) -> None:
        """The next batch never arrives; later ones on the same stream would not either, so the stream breaks."""
        batch = self.take(queue)
        if batch is not None:
            self.do_break(0, queue)
            self.accumulator.retry(batch, NetworkError(), self.now_ms + 1)

    def do_refuse(self, _: int, queue: PartitionQueue) -> None:
        """The next batch is refused for a while, before the append."""
        batch = self.take(queue)
        if batch is not None:
            self.wire.append((batch, None))

    def do_fail(self, _: int, queue: PartitionQueue) -> None:
        """The next batch is refused for good, before the append."""
        batch = self.take(queue)
        if batch is not None:
            self.accumulator.fail(batch, NetworkError("refused"))

    def do_break(self, _: int, _queue: PartitionQueue) -> None:
        attempts, self.wire = self.wire, []
        for batch, _accepted in attempts:
            self.accumulator.retry(batch, NetworkError(), self.now_ms + 1)

    def do_wait(self, count: int, _: PartitionQueue) -> None:
        self.now_ms += 5 * (count + 1)

    def do_expire(self, _: int, _queue: PartitionQueue) -> None:
        self.now_ms += 10_001
        self.accumulator.expired(self.now_ms)

    def do_move(self, count: int, queue: PartitionQueue) -> None:
        """Another leader, whose copy of the log may be younger than the records that told of the producer. It refuses the first
        `count` batches that come: it does not know yet that it leads."""
        self.leader_epochs[queue.partition] += 1
        self.maybe_forget(queue)
        for _ in range(count):
            self.do_refuse(0, queue)
        self.do_send(0, queue)

    def do_fall_silent(self, count: int, queue: PartitionQueue) -> None:
        """For so long that the leader forgets the producer; then it has no room for a while."""
        self.now_ms += REMEMBERED_MS + 1
        self.maybe_forget(queue)
        for _ in range(count):
            self.do_refuse(0, queue)
        self.do_send(0, queue)

    def maybe_forget(self, queue: PartitionQueue) -> None:
        """Not while a batch may be sent again that is in the log: it would be stored once more, wherever it is asked."""
        broker = self.brokers[queue.partition]
        log = set(broker.log)
        unsettled = (batch for batch in self.accumulator.incomplete if batch.queue is queue)
        if not any(log.intersection(self.values.get(batch, ())) for batch in unsettled):
            broker.forget()

    def check(self) -> None:
        accumulator = self.accumulator
        unsettled: list[ProducerBatch] = []
        for queue in self.queues:
            unsettled += [*queue.in_flight, *queue.waiting, *([queue.open] if queue.open else [])]
            assert [b.number for b in queue.waiting] == sorted(b.number for b in queue.waiting)
            assert len(queue.in_flight) <= 5
            has_work = bool(queue.waiting) or (queue.open is not None and queue.open.is_due)
            assert (queue in accumulator.ready) == has_work
        assert sorted(b.number for b in unsettled) == [b.number for b in accumulator.incomplete]
        assert accumulator.used_bytes == sum(b.reserved_bytes for b in unsettled) <= 4_000

    def settle(self) -> None:
        """Heal: from here on every attempt is answered; everything must come to an end."""
        self.run("break", 0)
        for number in (0, 1):
            self.run("close", number)
        for _ in range(300):
            if not self.accumulator.incomplete:
                return
            self.now_ms += 20
            for number in (0, 1):
                self.run("send", number)
            while self.wire:
                self.run("answer", 0)
        raise AssertionError(f"{len(self.accumulator.incomplete)} batches never end")


@settings(max_examples=300)
@given(STEPS)
def test_every_acknowledged_record_is_in_the_log_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """I-01, I-03, I-04 per partition: whatever is lost, refused, repeated or given up."""
    harness = Harness()
    for name, number in steps:
        harness.run(name, number)
    harness.settle()
    for queue, broker in zip(harness.queues, harness.brokers, strict=True):
        batches = {b: values for b, values in harness.values.items() if b.queue is queue}
        acknowledged = [v for b, values in batches.items() if b.error is None for v in values]
        log = broker.log
        assert len(log) == len(set(log)), "a record is in the log twice"
        assert set(acknowledged) <= set(log), "an acknowledged record is not in the log"
        assert log == sorted(log), "the log is out of order"
    assert harness.accumulator.used_bytes == 0
