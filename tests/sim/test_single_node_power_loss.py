"""One node, one producer that waits for every acknowledgment, and power losses: when its topic is new, and in a loop."""

import asyncio

import pytest

from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.types import NewTopic, TopicPartition
from kraftlog.testing.loop import run_virtual
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.trace import Trace
from kraftlog.testing.sim.workload import Client
from kraftlog.testing.sim.world import World

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
ACKED_A_CYCLE = 4


class PowerLosses:
    """Cycles of: send, be acknowledged, lose power; then read what the node has, from the oldest unread offset on."""

    def __init__(self, seed: int) -> None:
        config = {"metadata.log.max.record.bytes.between.snapshots": "500"} if seed % 2 else {}
        self.world = World(SeedSource(seed), Trace(), node_config=config, is_user_topic=lambda topic: topic == TOPIC)
        self.acked: dict[int, bytes] = {}
        self._random = self.world.seeds.stream("test")
        self._count = 0

    def run(self, cycles: int) -> None:
        self.world.format()
        run_virtual(self._run(cycles), loop=self.world.loop)
        self.world.end()
        assert self.world.history.violation is None

    async def _run(self, cycles: int) -> None:
        world = self.world
        world.start()
        client = Client(world, "client")
        common = {
            "bootstrap_servers": world.address,
            "connector": client.network,
            "clock": client.clock,
            "random": client.random,
        }
        async with AsyncAdmin(**common) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, configs={"segment.bytes": "2000"})])
        world.machine.lose_power(down_ms=20)  # nothing of the log was synced
        options = {**common, "request_timeout_ms": 500, "retry_backoff_ms": 10}
        async with AsyncConsumer(**common) as consumer, AsyncProducer(acks="all", linger_ms=1, **options) as producer:
            consumer.assign([PARTITION])
            consumer.seek_to_beginning(PARTITION)
            await self._send(producer)
            world.machine.lose_power(down_ms=20)  # after the first acknowledged record
            await self._read(consumer)
            for _ in range(cycles):
                await self._send_until_the_power_goes(producer)
                await self._read(consumer)
            await world.machine.stop(down_ms=1e9)

    async def _send_until_the_power_goes(self, producer: AsyncProducer) -> None:
        """Some records are on their way then: they may be there afterwards or not, before the producer sends them again."""
        losses = self.world.counters.power_losses
        for _ in range(ACKED_A_CYCLE):
            await self._send(producer)
        if self._random.random() < 0.5:
            self.world.machine.lose_power_in_operation(self._random.randrange(1, 12), down_ms=20)
            while self.world.counters.power_losses == losses:
                await self._send(producer)
        else:
            sending = [asyncio.ensure_future(self._send(producer)) for _ in range(self._random.randrange(4))]
            await asyncio.sleep(self._random.random() * 0.01)
            self.world.machine.lose_power(down_ms=20)
            await asyncio.gather(*sending)

    async def _send(self, producer: AsyncProducer) -> None:
        value = b"%d" % self._count * self._random.randrange(1, 30)
        self._count += 1
        told = await producer.send_and_wait(TOPIC, value, partition=0)
        assert told.offset not in self.acked
        self.acked[told.offset] = value

    async def _read(self, consumer: AsyncConsumer) -> None:
        """Everything acknowledged so far that was not read yet is there, at its offset."""
        position = await consumer.position(PARTITION)
        wanted = {offset: value for offset, value in self.acked.items() if offset >= position}
        found: dict[int, bytes | None] = {}
        while not wanted.keys() <= found.keys():
            for records in (await consumer.poll(timeout_ms=1000)).values():
                found |= {record.offset: record.value for record in records}
        assert {offset: found[offset] for offset in wanted} == wanted


def lose_power(cycles: int, seed: int) -> None:
    losses = PowerLosses(seed)
    losses.run(cycles)
    assert losses.world.counters.power_losses >= cycles
    assert losses.world.counters.torn_operations > cycles // 4
    assert len(losses.acked) >= ACKED_A_CYCLE * cycles


@pytest.mark.slow
def test_r11_a_single_node_acknowledges_what_its_own_disk_has() -> None:
    """etcd #14370: a cluster of one acknowledged before its own disk had the entry."""
    lose_power(cycles=80, seed=11)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20))
def test_r11_a_single_node_acknowledges_what_its_own_disk_has_for_many_seeds(seed: int) -> None:
    lose_power(cycles=200, seed=seed)
