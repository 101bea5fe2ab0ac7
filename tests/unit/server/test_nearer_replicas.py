"""Consumers read from the replica in their own rack (KIP-392): whole nodes, on virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.proto import hotpath
from kraftlog.proto.errors import ErrorCode
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.types import TopicPartition
from kraftlog.testing.clock import SimClock
from tests.unit.server.nodes import Nodes, voters_of, with_nodes
from tests.unit.server.test_returning_brokers import BROKER, Client, create, fill

BROKERS = (1, 2, 3)
DATA = TopicPartition("data", 0)
FETCH_STREAM = "/kraftlog.v1.Broker/FetchStream"


async def three_racks(nodes: Nodes, **more: str) -> None:
    """Broker n stands in rack r<n>; the network can be split between any two."""
    configs = {"replica.lag.time.max.ms": "1000", **{key.replace("_", "."): value for key, value in more.items()}}
    for number in BROKERS:
        config = {"broker.rack": f"r{number}", **configs}
        nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3), more=config)
    await nodes.start(*BROKERS)


class Reader:
    """A consumer in a rack, and who has sent it records."""

    def __init__(self, nodes: Nodes, rack: str) -> None:
        self.served: Counter[str] = Counter()
        self.values: list[bytes] = []
        self._consumer = AsyncConsumer(
            bootstrap_servers=",".join(f"n{number}:9092" for number in BROKERS),
            auto_offset_reset="earliest",
            client_rack=rack,
            connector=nodes.network.host("reader"),
            clock=SimClock(nodes.loop),
            random=random.Random(4),
        )
        nodes.network.taps.append(self._tap)

    def _tap(self, source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int) -> None:
        if method == FETCH_STREAM and not is_request and target == "reader":
            for chunk in hotpath.decode_fetch_chunk(message).partitions:
                self.served[source] += len(chunk.records) > 0

    async def __aenter__(self) -> "Reader":
        await self._consumer.__aenter__()
        self._consumer.assign([DATA])
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._consumer.close()

    async def read(self, count: int) -> None:
        """Until it has so many."""
        while len(self.values) < count:
            for records in (await self._consumer.getmany(timeout_ms=1000)).values():
                self.values += [record.value or b"" for record in records]

    def take_served(self) -> set[str]:
        """Since the last time."""
        served, self.served = self.served, Counter()
        return {source for source, count in served.items() if count}


def with_racks(work: Callable[[Nodes], Coroutine[Any, Any, None]], **more: str) -> None:
    async def main(nodes: Nodes) -> None:
        await three_racks(nodes, **more)
        await work(nodes)

    with_nodes(main)


def test_a_reader_gets_its_records_from_the_follower_in_its_rack() -> None:
    """Old ones and new ones: the follower wakes readers when it hears of the high watermark."""

    async def work(nodes: Nodes) -> None:
        described = await create(nodes, "data", factor=3)
        leader, near = described.replicas[:2]
        values = await fill(nodes, leader, "data", 5)
        async with Reader(nodes, f"r{near}") as reader:
            await reader.read(5)
            assert reader.take_served() == {f"n{near}"}
            values += await fill(nodes, leader, "data", 5)
            await reader.read(10)
            assert reader.take_served() == {f"n{near}"}
            assert reader.values == values

    with_racks(work)


@pytest.mark.parametrize("rack", ["leader's", "of nobody", ""])
def test_other_readers_stay_with_the_leader(rack: str) -> None:
    async def work(nodes: Nodes) -> None:
        leader = (await create(nodes, "data", factor=3)).leader_id
        values = await fill(nodes, leader, "data", 5)
        async with Reader(nodes, f"r{leader}" if rack == "leader's" else rack) as reader:
            await reader.read(5)
            assert reader.take_served() == {f"n{leader}"}
            assert reader.values == values

    with_racks(work)


def test_leaders_send_nobody_away_where_that_is_configured() -> None:
    """replica.selector.class, which in Kafka has to be set for the contrary."""

    async def work(nodes: Nodes) -> None:
        leader, near = (await create(nodes, "data", factor=3)).replicas[:2]
        await fill(nodes, leader, "data", 5)
        async with Reader(nodes, f"r{near}") as reader:
            await reader.read(5)
            assert reader.take_served() == {f"n{leader}"}

    with_racks(work, replica_selector_class="LeaderSelector")


def test_a_reader_goes_on_with_the_leader_when_its_follower_goes_and_comes_back_with_it() -> None:
    """Nothing is missed and nothing is read twice."""

    async def work(nodes: Nodes) -> None:
        leader, near = (await create(nodes, "data", factor=3)).replicas[:2]
        values = await fill(nodes, leader, "data", 5)
        async with Reader(nodes, f"r{near}") as reader:
            await reader.read(5)
            nodes.kill(near)
            values += await fill(nodes, leader, "data", 5)
            await reader.read(10)
            assert f"n{leader}" in reader.take_served()
            await nodes.start(near)
            await nodes.until(leader, "data", lambda now: near in now.in_sync_replicas)
            await asyncio.sleep(10)  # it asks the leader again
            reader.take_served()
            values += await fill(nodes, leader, "data", 5)
            await reader.read(15)
            assert reader.take_served() == {f"n{near}"}
            assert reader.values == values

    with_racks(work)


def test_a_follower_that_leaves_the_isr_sends_its_readers_to_the_leader() -> None:
    """It does not hear of its leader's records any more, but of the metadata."""

    async def work(nodes: Nodes) -> None:
        leader, near, _ = (await create(nodes, "data", factor=3)).replicas
        await nodes.until(near, "data", lambda now: len(now.in_sync_replicas) == 3)
        values = await fill(nodes, leader, "data", 5)
        async with Reader(nodes, f"r{near}") as reader:
            await reader.read(5)
            reader.take_served()
            nodes.network.partition(f"n{leader}", f"n{near}")
            values += await fill(nodes, leader, "data", 5)
            await reader.read(10)
            assert f"n{near}" not in reader.take_served()
            assert reader.values == values
            nodes.network.heal()

    with_racks(work)


def test_a_follower_serves_who_asks_for_any_replica_as_far_as_it_knows() -> None:
    """Long polls there end with the first record; an offset that it does not have is its leader's matter; and who did not ask
    for it is sent away."""

    async def work(nodes: Nodes) -> None:
        leader, near = (await create(nodes, "data", factor=3)).replicas[:2]
        await fill(nodes, leader, "data", 2)
        client = Client(nodes, near)

        async def fetch(offset: int, *, any_replica: bool = True) -> hotpath.PartitionChunk:
            at = hotpath.FetchPosition(
                "data", 0, offset, 1, current_leader_epoch=-1, last_fetched_epoch=-1, any_replica=any_replica
            )
            request = hotpath.FetchRequest(
                max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, partitions=[at], rack=f"r{near}"
            )
            answer = await client.channel.unary(BROKER + "Fetch", hotpath.encode(request), timeout_ms=20_000)
            return hotpath.decode_fetch_chunk(answer).partitions[0]

        poll = asyncio.ensure_future(fetch(2))
        await asyncio.sleep(1)
        assert not poll.done()
        before = nodes.loop.time()
        await fill(nodes, leader, "data", 1)
        chunk = await poll
        assert (chunk.error_code, chunk.next_offset, chunk.high_watermark) == (0, 3, 3)
        assert nodes.loop.time() - before < 1
        assert (await fetch(4)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(0, any_replica=False)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await client.channel.close()

    with_racks(work)
