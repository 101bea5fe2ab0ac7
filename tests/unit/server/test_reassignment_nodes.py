"""Reassignments between whole nodes, under load: records follow the replicas, and no acknowledged one is lost."""

import asyncio
import random

import pytest

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import NoReassignmentInProgressError
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.types import NewTopic, PartitionDescription, TopicPartition
from kraftlog.testing.clock import SimClock
from tests.unit.server.nodes import Nodes, voters_of, with_nodes

TOPIC = "moved"
PARTITION = TopicPartition(TOPIC, 0)
PATIENCE_S = 60


class Clients:
    """A producer that goes on all the time, and an admin."""

    def __init__(self, nodes: Nodes, brokers: tuple[int, ...]) -> None:
        addresses = ",".join(f"n{number}:9092" for number in brokers)
        network, clock = nodes.network.host("client"), SimClock(nodes.loop)
        self.nodes = nodes
        self.admin = AsyncAdmin(bootstrap_servers=addresses, connector=network, clock=clock, random=random.Random(2))
        self.producer = AsyncProducer(
            bootstrap_servers=addresses, linger_ms=0, connector=network, clock=clock, random=random.Random(3)
        )
        self.consumer = AsyncConsumer(
            bootstrap_servers=addresses,
            auto_offset_reset="earliest",
            connector=network,
            clock=clock,
            random=random.Random(4),
        )
        self.acknowledged: list[bytes] = []
        self.is_done = False
        self._progress = asyncio.Event()

    async def until_acknowledged(self, count: int) -> None:
        while len(self.acknowledged) < count:
            self._progress.clear()
            await self._progress.wait()

    async def write(self) -> None:
        """One record after the other, until `is_done`; any failed one ends the test."""
        async with self.producer:
            while not self.is_done:
                value = b"%d" % len(self.acknowledged)
                await self.producer.send_and_wait(TOPIC, value, partition=0)
                self.acknowledged.append(value)
                self._progress.set()

    async def read_all(self) -> list[bytes]:
        values: list[bytes] = []
        async with self.consumer:
            self.consumer.assign([PARTITION])
            while len(values) < len(self.acknowledged):
                for records in (await self.consumer.getmany(timeout_ms=1000)).values():
                    values += [record.value or b"" for record in records]
        return values

    async def described(self) -> PartitionDescription:
        return (await self.admin.describe_topics([TOPIC]))[0].partitions[0]

    async def reassign(self, *replicas: int) -> PartitionDescription:
        """Ask, and wait until it is done and all are in sync."""
        await self.admin.alter_partition_reassignments({PARTITION: replicas})
        deadline = self.nodes.loop.time() + PATIENCE_S
        while await self.admin.list_partition_reassignments():
            assert self.nodes.loop.time() < deadline, await self.described()
            await asyncio.sleep(0.1)
        return await self.described()


async def four_brokers(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3))
    nodes.add(4, "broker", voters={})
    await nodes.start(1, 2, 3, 4)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_partition_moves_under_load_without_losing_or_failing_a_record(seed: int) -> None:
    """From one replica to three, then to other brokers with the leader among those that go, and back to one: the clients
    follow the leader, and the logs of brokers that have no replica any more are deleted."""

    async def work(nodes: Nodes) -> None:
        await four_brokers(nodes)
        clients = Clients(nodes, (1, 2, 3, 4))
        async with clients.admin as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
            (first,) = (await clients.described()).replicas
            writing = asyncio.ensure_future(clients.write())
            second, third, fourth = (number for number in (1, 2, 3, 4) if number != first)
            raised = await clients.reassign(first, second, third)
            assert set(raised.in_sync_replicas) == {first, second, third}
            moved = await clients.reassign(fourth, second, third)
            assert moved.replicas == (fourth, second, third)
            assert moved.leader_id != first
            lowered = await clients.reassign(fourth)
            assert (lowered.leader_id, lowered.in_sync_replicas) == (fourth, (fourth,))
            count = len(clients.acknowledged)
            await clients.until_acknowledged(count + 10)
            clients.is_done = True
            await writing
            assert await clients.read_all() == clients.acknowledged
            held = {
                log_dir.node_id
                for log_dir in await admin.describe_log_dirs()
                for log in log_dir.logs
                if log.topic == TOPIC
            }
            assert held == {fourth}
            with pytest.raises(NoReassignmentInProgressError):
                await admin.alter_partition_reassignments({PARTITION: None})

    print(f"seed {seed}")
    with_nodes(work, seed=seed)


def test_a_reassignment_goes_on_when_the_controller_and_the_new_replica_fail() -> None:
    async def work(nodes: Nodes) -> None:
        await four_brokers(nodes)
        clients = Clients(nodes, (1, 2, 3, 4))
        async with clients.admin as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
            (first,) = (await clients.described()).replicas
            leader = (await nodes.quorum(first)).leader_id
            target = next(number for number in (1, 2, 3) if number not in (first, leader))
            writing = asyncio.ensure_future(clients.write())
            nodes.kill(target)
            await admin.alter_partition_reassignments({PARTITION: [target, first]})
            assert PARTITION in await admin.list_partition_reassignments([TOPIC])
            if leader != first:
                nodes.kill(leader)
                await nodes.start(target)
                await nodes.start(leader)
            else:
                await nodes.start(target)
            moved = await clients.reassign(target, first)
            assert set(moved.in_sync_replicas) == {target, first}
            clients.is_done = True
            await writing
            assert await clients.read_all() == clients.acknowledged

    with_nodes(work)


def test_offsets_of_groups_outlive_the_first_broker_of_a_cluster_that_has_grown() -> None:
    """`__consumer_offsets` was made with one replica, and has three soon after the others have joined."""

    async def work(nodes: Nodes) -> None:
        nodes.add(1, "broker,controller", voters=voters_of(1))
        for number in (2, 3):
            nodes.add(number, "broker", voters={})
        await nodes.start(1)
        await nodes.call(
            "n1:9092",
            "/kraftlog.v1.Group/FindCoordinator",
            group_pb2.FindCoordinatorRequest(key="readers"),
            group_pb2.FindCoordinatorResponse,
        )

        async def offsets() -> list[PartitionDescription]:
            async with Clients(nodes, (1,)).admin as admin:
                return list((await admin.describe_topics(["__consumer_offsets"]))[0].partitions)

        assert all(each.replicas == (1,) for each in await offsets())
        await nodes.start(2, 3)
        deadline = nodes.loop.time() + PATIENCE_S
        while not all(sorted(each.in_sync_replicas) == [1, 2, 3] for each in await offsets()):
            assert nodes.loop.time() < deadline, await offsets()
            await asyncio.sleep(0.5)
        assert {each.target_replicas[0] for each in await offsets()} == {1, 2, 3}

    with_nodes(work)
