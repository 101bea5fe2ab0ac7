"""Writes under way while the leadership moves: who has appended them says whether they are committed. Whole nodes, on virtual
time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectionTopic,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionReassignment,
)
from kraftlog.proto.errors import BrokerNotAvailableError, ErrorCode
from tests.unit.server.nodes import Nodes, voters_of, with_nodes
from tests.unit.server.test_returning_brokers import Client, create, read

BROKERS = (1, 2, 3, 4)
WRITERS = 5

Move = Callable[[Nodes, int, tuple[int, ...]], Awaitable[None]]
"""(nodes, leader, its followers): take the leadership from it."""


async def reassign(nodes: Nodes, leader: int, followers: tuple[int, ...]) -> None:
    fourth = next(number for number in BROKERS if number not in (leader, *followers))
    wanted = PartitionReassignment(topic="data", partition=0)
    wanted.target.replicas.extend((fourth, *followers))
    request = AlterPartitionReassignmentsRequest(partitions=[wanted], timeout_ms=30_000)
    response = await nodes.ask(fourth, "AlterPartitionReassignments", request, AlterPartitionReassignmentsResponse)
    assert response.partitions[0].error_code == 0
    await nodes.until(fourth, "data", lambda now: not now.removing_replicas and leader not in now.replicas)


async def elect(nodes: Nodes, leader: int, followers: tuple[int, ...]) -> None:
    """Away with a restart, and back to the preferred leader."""
    await nodes.stop(leader)
    await nodes.start(leader)
    await nodes.until(leader, "data", lambda now: len(now.in_sync_replicas) == 3)
    request = ElectLeadersRequest(topics=[ElectionTopic(name="data", partitions=[0])], timeout_ms=30_000)
    response = await nodes.ask(leader, "ElectLeaders", request, ElectLeadersResponse)
    assert response.partitions[0].error_code == 0


async def stop(nodes: Nodes, leader: int, followers: tuple[int, ...]) -> None:
    await nodes.stop(leader)
    await nodes.start(leader)


@pytest.mark.parametrize("move", [reassign, elect, stop])
def test_no_write_that_was_appended_is_left_without_an_answer(move: Move) -> None:
    """No producer has to ask itself whether its write is there: it is acknowledged, once, or it was refused at once, or the
    answer says that it is not stored."""

    async def work(nodes: Nodes) -> None:
        for number in (1, 2, 3):
            nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3))
        nodes.add(4, "broker", voters={})
        await nodes.start(*BROKERS)
        described = await create(nodes, "data", factor=3)
        acknowledged: list[bytes] = []
        refused: list[bytes] = []
        doubtful: list[str] = []
        is_over = asyncio.Event()
        leader, other = described.replicas[:2]

        async def write(writer: int) -> None:
            number, at = 0, leader
            while not is_over.is_set():
                client = Client(nodes, at)
                while not is_over.is_set():
                    value = b"%d-%d" % (writer, number)
                    number += 1
                    try:
                        result = await client.produce("data", value)
                    except BrokerNotAvailableError:  # refused: the node stops, or has stopped
                        break
                    if result.error_code == ErrorCode.NONE:
                        acknowledged.append(value)
                    elif not any(reason in result.error_message for reason in ("is not the leader", "is not stored")):
                        doubtful.append(result.error_message)
                    else:
                        refused.append(value)
                    if result.error_code:
                        break
                await client.channel.close()
                await asyncio.sleep(0.02)
                at = max((await nodes.partition(other, "data")).leader_id, 1)

        writers = [asyncio.ensure_future(write(number)) for number in range(WRITERS)]
        await asyncio.sleep(0.2)
        await move(nodes, leader, tuple(number for number in described.replicas if number != leader))
        await asyncio.sleep(0.2)
        is_over.set()
        await asyncio.gather(*writers)
        assert doubtful == []
        stored = await read(nodes, (await nodes.partition(other, "data")).leader_id, "data")
        assert sorted(value for value in stored if value in set(acknowledged)) == sorted(acknowledged)
        assert len(stored) == len(set(stored))
        assert not set(stored) & set(refused)

    with_nodes(work)
