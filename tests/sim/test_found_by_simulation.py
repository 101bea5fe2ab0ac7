"""Faults that a seed or a kill has found in the program, each as a small run of its own."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from kraftlog.proto.errors import NotLeaderOrFollowerError, OffsetOutOfRangeError
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.producer.accumulator import REMEMBERED_MS, Accumulator, PartitionQueue
from kraftlog.sdk.types import NewTopic, TopicPartition
from kraftlog.testing.loop import run_virtual
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.trace import Trace
from kraftlog.testing.sim.workload import Client, Observer
from kraftlog.testing.sim.world import World

TOPIC = "orders"
PARTITIONS = 3


def _with_node(body: Callable[[Client, dict[str, Any]], Coroutine[Any, Any, None]]) -> None:
    """Run `body(client, options)` against a node with a topic; `options` are what every client's constructor takes."""
    world = World(SeedSource(1), Trace(), node_config={}, is_user_topic=lambda topic: topic == TOPIC)
    world.format()

    async def main() -> None:
        world.start()
        client = Client(world, "client")
        options = {
            "bootstrap_servers": world.address,
            "connector": client.network,
            "clock": client.clock,
            "random": client.random,
        }
        async with AsyncAdmin(**options) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=PARTITIONS)])
        await body(client, options)
        await world.machine.stop(down_ms=1e9)

    run_virtual(main(), loop=world.loop)
    world.end()
    assert world.history.violation is None


def test_a_key_stays_in_its_partition_when_the_batch_there_is_full() -> None:
    """Only a record without a key may move to another partition when the sticky one's batch is full (seed 1)."""

    async def body(client: Client, options: dict[str, Any]) -> None:
        async with AsyncProducer(batch_size=200, linger_ms=1_000, **options) as producer:
            for number in range(200):
                key = b"key-%d" % (number % 7)
                future = await producer.send(TOPIC, bytes(50), key=key)
                assert future.partition == partition_for_key(key, PARTITIONS)

    _with_node(body)


def test_no_more_batches_are_sent_than_the_broker_remembers() -> None:
    """Answers may overtake each other: the sixth batch waits for the first, even if the fifth is answered (seed 38).

    A broker remembers five batches. With more on their way since the first, its retry after a crash would not be
    recognised, and it would be stored twice.
    """
    accumulator, queue = _with_batches(9)
    with accumulator.lock:
        known = accumulator.take(queue, 1, now_ms=0)
        assert known is not None
        accumulator.complete(known, base_offset=0)
        sent = [accumulator.take(queue, 1, now_ms=0) for _ in range(6)]
        first, second, *_, fifth, sixth = sent
        assert first is not None
        assert second is not None
        assert fifth is not None
        assert sixth is None
        accumulator.complete(fifth, base_offset=5)
        accumulator.complete(second, base_offset=2)
        assert accumulator.take(queue, 1, now_ms=0) is None
        accumulator.complete(first, base_offset=1)
        assert accumulator.take(queue, 1, now_ms=0) is not None


def test_the_first_batch_goes_alone() -> None:
    """The next ones wait until one is acknowledged, in a raised epoch too: a broker that knows nothing of a producer takes any
    sequence. One that did not lead yet refused the first batch, led, and took the second (cluster seed 1783)."""
    accumulator, queue = _with_batches(4)
    with accumulator.lock:
        for epoch in range(2):
            first = accumulator.take(queue, 1, now_ms=0)
            assert first is not None
            assert (first.producer_epoch, first.base_sequence) == (epoch, 0)
            assert accumulator.take(queue, 1, now_ms=0) is None
            accumulator.retry(first, NotLeaderOrFollowerError(), retry_at_ms=0)
            assert accumulator.take(queue, 2, now_ms=0) is first
            assert accumulator.take(queue, 2, now_ms=0) is None
            accumulator.complete(first, base_offset=0)
            second = accumulator.take(queue, 2, now_ms=0)
            assert second is not None
            accumulator.complete(second, base_offset=1)
            accumulator.raise_epoch()


@pytest.mark.parametrize(
    ("node_id", "leader_epoch", "now_ms"),
    [(2, 1, 0.0), (1, 1, 0.0), (1, 0, REMEMBERED_MS + 1)],
    ids=["another leader", "another leader epoch", "a long silence"],
)
def test_the_first_batch_to_a_leader_that_may_not_remember_goes_alone(
    node_id: int, leader_epoch: int, now_ms: float
) -> None:
    """A replica may have copied the log when the records that told of the producer were deleted already, and brokers forget who
    is silent for long."""
    accumulator, queue = _with_batches(4)
    with accumulator.lock:
        known = accumulator.take(queue, 1, now_ms=0, leader_epoch=0)
        assert known is not None
        accumulator.complete(known, base_offset=0)
        first = accumulator.take(queue, node_id, now_ms=now_ms, leader_epoch=leader_epoch)
        assert first is not None
        assert accumulator.take(queue, node_id, now_ms=now_ms, leader_epoch=leader_epoch) is None
        accumulator.complete(first, base_offset=1)
        for _ in range(2):
            assert accumulator.take(queue, node_id, now_ms=now_ms, leader_epoch=leader_epoch) is not None


def test_the_first_batch_after_a_refusal_goes_alone() -> None:
    """The topic may have been made again under its name, and its leader know nothing: what is acknowledged of the batches that
    were under way with the refused one says nothing about that."""
    accumulator, queue = _with_batches(6)
    with accumulator.lock:
        known = accumulator.take(queue, 1, now_ms=0)
        assert known is not None
        accumulator.complete(known, base_offset=0)
        for is_last in (True, False):
            first, second = (accumulator.take(queue, 1, now_ms=0) for _ in range(2))
            assert first is not None
            assert second is not None
            if is_last:
                accumulator.complete(first, base_offset=1)
            accumulator.retry(second, NotLeaderOrFollowerError(), retry_at_ms=0)
            if not is_last:
                accumulator.complete(first, base_offset=1)
            assert accumulator.take(queue, 1, now_ms=0) is second
            assert accumulator.take(queue, 1, now_ms=0) is None
            accumulator.complete(second, base_offset=2)


def _with_batches(count: int) -> tuple[Accumulator, PartitionQueue]:
    """An idempotent producer's, with one record each."""
    accumulator = Accumulator(
        batch_size=1, linger_ms=0, buffer_memory=1 << 20, delivery_timeout_ms=1e6, max_in_flight=5, is_idempotent=True
    )
    accumulator.producer_id = accumulator.producer_epoch = 0
    queue = PartitionQueue(accumulator, TOPIC, 0)
    with accumulator.lock:
        for _ in range(count):
            batch = accumulator.make_room(queue, 100, now_ms=0)
            assert batch is not None
            assert batch.builder is not None
            batch.builder.append(0, None, b"value")
            accumulator.close_open(queue)
    return accumulator, queue


def test_a_batch_is_due_at_the_deadline_that_was_told() -> None:
    """The time for which a timer is set and the time at which it acts must not differ by rounding (seed 358).

    Else the producer's timer fires, finds nothing due, is set for the same moment, and so on for ever.
    """
    created_ms = 1_048_571.259_999_999_9  # plus 5 it passes 2**20, where the distance of two numbers doubles
    assert created_ms > (created_ms + 5) - 5
    accumulator = Accumulator(
        batch_size=100,
        linger_ms=5,
        buffer_memory=1 << 20,
        delivery_timeout_ms=1e6,
        max_in_flight=5,
        is_idempotent=False,
    )
    queue = PartitionQueue(accumulator, TOPIC, 0)
    with accumulator.lock:
        assert accumulator.make_room(queue, 10, created_ms) is not None
        deadline_ms = accumulator.next_deadline_ms(created_ms)
        assert deadline_ms is not None
        accumulator.expire_linger(deadline_ms)
        assert queue in accumulator.ready


def test_a_seek_wins_over_a_look_up_that_is_under_way() -> None:
    """`assign` begins to look for the end; `seek_to_beginning` right after it must not be undone by that answer."""

    async def body(client: Client, options: dict[str, Any]) -> None:
        async with AsyncProducer(**options) as producer:
            await producer.send_and_wait(TOPIC, b"first", partition=0)
        partition = TopicPartition(TOPIC, 0)
        async with AsyncConsumer(**options) as consumer:
            await consumer.end_offsets([partition])  # connected: the look-up is on its way at once
            consumer.assign([partition])
            await asyncio.sleep(0.000_1)
            consumer.seek_to_beginning(partition)
            assert await consumer.position(partition) == 0

    _with_node(body)


def test_a_stop_that_the_end_of_the_process_interrupts_is_over_then() -> None:
    """Of the simulator itself: the faults that are planned behind a stop must not wait for its time-out (seed 50027)."""
    world = World(SeedSource(1), Trace(), node_config={}, is_user_topic=lambda topic: topic == TOPIC)
    world.format()

    async def main() -> None:
        world.start()
        await asyncio.sleep(10)
        assert world.machine.is_up
        began_s = world.loop.now
        world.loop.call_later(0.001, world.machine.lose_power, 10)
        await world.machine.stop(down_ms=10)
        assert world.counters.power_losses == 1
        assert world.loop.now - began_s < 1

    run_virtual(main(), loop=world.loop)
    world.end()
    assert world.history.violation is None


def test_the_observer_reads_nothing_twice_where_only_a_follower_has_deleted() -> None:
    """One partition's next record is gone, another's is in its leader's log: the first goes on later, the second where it
    was (seed 1605 of three nodes, a fault of the simulation: it said that records were stored twice)."""

    class Behind:
        def __init__(self) -> None:
            self.sought: dict[int, int] = {}

        async def poll(self, *, timeout_ms: float) -> None:
            raise OffsetOutOfRangeError("orders-0: offset 0 is not in the log (458 to 505)")

        async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return {where: (458, 0)[where.partition] for where in partitions}

        def seek(self, where: TopicPartition, offset: int) -> None:
            self.sought[where.partition] = offset

    world = World(SeedSource(1), Trace(), node_config={}, is_user_topic=lambda topic: topic == TOPIC)
    for partition, start in ((0, 458), (1, 540)):
        world.history.on_delete_asked((TOPIC, partition), start)
        world.history.on_log_start("a follower", (TOPIC, partition), start, size_bytes=0, now_ms=0)
    observer, consumer = Observer(world, "observer", TOPIC, 2), Behind()
    observer.positions[TOPIC, 1] = 36
    assert run_virtual(observer._read(cast(AsyncConsumer, consumer)), loop=world.loop) == []
    assert consumer.sought == {0: 458, 1: 36}
    world.end()
    assert world.history.violation is None
