"""Throttled replication between whole nodes, in virtual time: moves take as long as the rate says, and nobody waits for them."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from kraftlog.proto.errors import InvalidConfigError, KraftlogError
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.types import NewTopic, ReplicationThrottle, TopicPartition
from kraftlog.testing.clock import SimClock
from tests.unit.server.nodes import Nodes, voters_of, with_nodes

MOVED, OTHER = "moved", "other"
PARTITION = TopicPartition(MOVED, 0)
RECORD = bytes(10_000)
RECORDS = 40
SIZE_BYTES = RECORDS * len(RECORD)
RATE = 40_000
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
PATIENCE_S = 120


class Move:
    """A partition of `SIZE_BYTES` on broker 1 that is to be on broker 4, too, or on it alone."""

    def __init__(self, nodes: Nodes) -> None:
        parts: dict[str, Any] = {
            "bootstrap_servers": "n1:9092,n2:9092,n3:9092,n4:9092",
            "connector": nodes.network.host("client"),
            "clock": SimClock(nodes.loop),
        }
        self.nodes = nodes
        self.admin = AsyncAdmin(random=random.Random(2), **parts)
        self.producer = AsyncProducer(linger_ms=0, batch_size=len(RECORD), random=random.Random(3), **parts)

    def now_s(self) -> float:
        return self.nodes.loop.time()

    async def begin(self, *replicas: int) -> None:
        """Four brokers; the partition on `replicas`, filled."""
        nodes = self.nodes
        for number in (1, 2, 3):
            nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3))
        nodes.add(4, "broker", voters={})
        await nodes.start(1, 2, 3, 4)
        await self.admin.create_topics([NewTopic(name=MOVED, num_partitions=1, replication_factor=1)])
        await self.reassign(*replicas)
        await self.write(MOVED, RECORDS)

    async def write(self, topic: str, count: int) -> None:
        for future in [await self.producer.send(topic, RECORD, partition=0) for _ in range(count)]:
            await future

    async def reassign(self, *replicas: int, topic: str = MOVED) -> float:
        """Ask, and wait until it is done; how long that took."""
        begun_s = self.now_s()
        await self.admin.alter_partition_reassignments({TopicPartition(topic, 0): replicas})
        await self.done()
        return self.now_s() - begun_s

    async def done(self) -> None:
        deadline = self.now_s() + PATIENCE_S
        while await self.admin.list_partition_reassignments():
            assert self.now_s() < deadline, self.held(4)
            await asyncio.sleep(0.1)

    async def add(self, rate: int = RATE) -> ReplicationThrottle:
        """Begin to add broker 4, throttled."""
        moves = {PARTITION: (1, 4)}
        throttle = await self.admin.throttle_reassignments(moves, rate)
        await self.admin.alter_partition_reassignments(moves)
        return throttle

    async def until_held(self, size_bytes: int) -> None:
        deadline = self.now_s() + PATIENCE_S
        while self.held(4) < size_bytes:
            assert self.now_s() < deadline, self.held(4)
            await asyncio.sleep(0.1)

    def held(self, number: int) -> int:
        node = self.nodes.machines[number].node
        partition = None if node is None else node.partitions.get((MOVED, 0))
        return 0 if partition is None else partition.log.size_bytes  # type: ignore[attr-defined]


def run(work: Callable[[Move], Coroutine[Any, Any, None]], *replicas: int) -> None:
    async def main(nodes: Nodes) -> None:
        move = Move(nodes)
        async with move.admin, move.producer:
            await move.begin(*(replicas or (1,)))
            await work(move)

    with_nodes(main)


def test_a_move_takes_as_long_as_its_rate_says_and_others_go_on() -> None:
    """Another partition on the same replica stream is acknowledged as ever, by the follower that is being filled."""

    async def work(move: Move) -> None:
        await move.admin.create_topics([NewTopic(name=OTHER, num_partitions=1, replication_factor=1)])
        await move.reassign(1, 4, topic=OTHER)
        throttle = await move.add()
        begun_s, longest_s = move.now_s(), 0.0
        while await move.admin.list_partition_reassignments():
            sent_s = move.now_s()
            await move.write(OTHER, 1)
            longest_s = max(longest_s, move.now_s() - sent_s)
            await asyncio.sleep(0.1)
        assert move.now_s() - begun_s == pytest.approx(SIZE_BYTES / RATE, rel=0.15)
        assert longest_s < 0.5
        assert move.held(4) == move.held(1)
        assert await move.admin.remove_replication_throttle(throttle) == throttle
        assert not await move.admin.describe_replication_throttle()
        for topic in await move.admin.describe_topics():
            assert not any("throttled" in key for key in topic.configs)

    run(work)


@pytest.mark.parametrize("key", [LEADER_RATE, FOLLOWER_RATE])
@pytest.mark.parametrize("is_common", [False, True], ids=["of one broker", "of all"])
def test_one_side_throttles_alone_by_a_list_or_a_star(key: str, is_common: bool) -> None:
    async def work(move: Move) -> None:
        if is_common:
            await move.admin.alter_configs(all_brokers=True, set={key: RATE})
            await move.admin.alter_configs(MOVED, set={key.replace("rate", "replicas"): "*"})
        else:
            broker = 1 if key == LEADER_RATE else 4
            await move.admin.alter_configs(broker=broker, set={key: RATE})
            await move.admin.alter_configs(MOVED, set={key.replace("rate", "replicas"): f"0:{broker}"})
        assert await move.reassign(1, 4) == pytest.approx(SIZE_BYTES / RATE, rel=0.15)
        sources = {entry.name: entry.source for entry in await move.admin.describe_configs(broker=4)}
        assert sources[key] == ("dynamic default" if is_common else "default" if key == LEADER_RATE else "dynamic")

    run(work)


def test_replicas_in_sync_are_never_throttled() -> None:
    async def work(move: Move) -> None:
        await move.admin.alter_configs(all_brokers=True, set={LEADER_RATE: 1000, FOLLOWER_RATE: 1000})
        lists = {key.replace("rate", "replicas"): "*" for key in (LEADER_RATE, FOLLOWER_RATE)}
        await move.admin.alter_configs(MOVED, set=lists)
        begun_s = move.now_s()
        await move.write(MOVED, RECORDS)
        assert move.now_s() - begun_s < 5
        described = (await move.admin.describe_topics([MOVED]))[0].partitions[0]
        assert set(described.in_sync_replicas) == {1, 4}

    run(work, 1, 4)


def test_another_rate_holds_in_the_middle_and_without_one_the_move_ends_at_once() -> None:
    async def work(move: Move) -> None:
        first = await move.add(RATE // 4)
        await move.until_held(SIZE_BYTES // 8)
        held, begun_s = move.held(4), move.now_s()
        second = await move.admin.throttle_reassignments({PARTITION: (1, 4)}, RATE)
        assert second.leader_rates == {1: RATE, 4: RATE}
        assert second.follower_replicas == first.follower_replicas, "they go with the move all the same"
        await move.until_held(SIZE_BYTES // 2)
        assert (move.held(4) - held) / (move.now_s() - begun_s) == pytest.approx(RATE, rel=0.25)
        begun_s = move.now_s()
        assert await move.admin.remove_replication_throttle() == ReplicationThrottle(), "the move needs it"
        for broker in (1, 4):
            await move.admin.alter_configs(broker=broker, delete=[LEADER_RATE, FOLLOWER_RATE])
        await move.done()
        assert move.now_s() - begun_s < 2

    run(work)


def test_a_new_leader_goes_on_at_its_rate() -> None:
    async def work(move: Move) -> None:
        moves = {PARTITION: (1, 2, 4)}
        await move.admin.throttle_reassignments(moves, RATE)
        begun_s = move.now_s()
        await move.admin.alter_partition_reassignments(moves)
        await move.until_held(SIZE_BYTES // 4)
        move.nodes.kill(1)
        await move.done()
        assert SIZE_BYTES / RATE - 1 < move.now_s() - begun_s < SIZE_BYTES / RATE + 10
        assert move.held(4) == move.held(2)

    run(work, 1, 2)


@pytest.mark.parametrize("number", [1, 4], ids=["the leader", "the follower"])
def test_a_throttle_outlives_a_restart(number: int) -> None:
    """Each side by itself: the rate of the broker that stays is taken away."""

    async def work(move: Move) -> None:
        await move.add()
        await move.until_held(SIZE_BYTES // 4)
        key = FOLLOWER_RATE if number == 1 else LEADER_RATE
        await move.nodes.stop(number)
        await move.admin.alter_configs(broker=5 - number, delete=[key])
        await move.nodes.start(number)
        held, begun_s = move.held(4), move.now_s()
        await move.done()
        assert (SIZE_BYTES - held) / RATE - 1 < move.now_s() - begun_s < (SIZE_BYTES - held) / RATE + 5

    run(work)


def test_a_move_that_is_cancelled_leaves_nothing() -> None:
    async def work(move: Move) -> None:
        throttle = await move.add()
        await move.until_held(SIZE_BYTES // 4)
        await move.admin.alter_partition_reassignments({PARTITION: None})
        await move.admin.remove_replication_throttle(throttle)
        assert not await move.admin.describe_replication_throttle()
        assert move.held(4) == 0
        assert await move.reassign(1, 4) < 5, "the next one is free"

    run(work)


def test_what_was_set_by_hand_is_not_overwritten() -> None:
    async def work(move: Move) -> None:
        admin = move.admin
        await admin.alter_configs(broker=4, set={FOLLOWER_RATE: 123})
        with pytest.raises(InvalidConfigError, match=f"broker 4 has {FOLLOWER_RATE}=123, which was set by hand"):
            await admin.alter_partition_reassignments({PARTITION: (1, 4)}, throttle_bytes_per_second=RATE)
        assert not await admin.list_partition_reassignments()
        await admin.alter_configs(broker=4, set={FOLLOWER_RATE: RATE})
        await admin.alter_configs(MOVED, set={"leader.replication.throttled.replicas": "*"})
        throttle = await move.add()
        assert throttle.follower_rates == {1: RATE}
        assert throttle.leader_replicas == {}
        await move.done()
        assert await admin.remove_replication_throttle(throttle) == throttle
        kept = await admin.describe_replication_throttle()
        assert kept == ReplicationThrottle(follower_rates={4: RATE}, leader_replicas={MOVED: ("*",)})
        assert await admin.remove_replication_throttle() == kept

    run(work)


REFUSED: list[tuple[dict[str, Any], Mapping[str, object], str]] = [
    ({"broker": 1}, {LEADER_RATE: 0}, "is below the minimum 1"),
    ({"broker": 1}, {LEADER_RATE: "fast"}, "is not an integer"),
    ({"broker": 1}, {"leader.replication.throttled.rates": 1}, f"did you mean '{LEADER_RATE}'"),
    ({"broker": 9}, {LEADER_RATE: 1}, "broker 9"),
    ({"topic": MOVED}, {"leader.replication.throttled.replicas": "0"}, "use partition:broker"),
    ({}, {LEADER_RATE: 1}, "needs one of a topic, a broker and all_brokers"),
]


def test_what_is_no_throttle_is_refused_in_words() -> None:
    async def work(move: Move) -> None:
        for where, values, text in REFUSED:
            with pytest.raises(KraftlogError, match=text):
                await move.admin.alter_configs(**where, set=values)
        await move.admin.alter_configs(MOVED, append={"follower.replication.throttled.replicas": "0:1,0:2"})
        await move.admin.alter_configs(MOVED, subtract={"follower.replication.throttled.replicas": "0:1"})
        [topic] = await move.admin.describe_topics([MOVED])
        assert topic.configs["follower.replication.throttled.replicas"] == "0:2"
        await move.admin.alter_configs(MOVED, subtract={"follower.replication.throttled.replicas": "0:2"})
        [topic] = await move.admin.describe_topics([MOVED])
        assert "follower.replication.throttled.replicas" not in topic.configs

    run(work)
