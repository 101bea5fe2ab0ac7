"""Deleting records of replicated partitions, between whole nodes."""

import asyncio
import errno
import random
from collections.abc import Mapping

import pytest

from kraftlog.replication.replica_manager import DISK_FULL_RETRY_MS
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.types import NewTopic, TopicPartition
from kraftlog.testing.clock import SimClock
from tests.unit.server.nodes import Nodes, voters_of, with_nodes

TOPIC = "shortened"
PARTITION = TopicPartition(TOPIC, 0)


async def three_nodes(nodes: Nodes, config: Mapping[str, str] | None = None) -> AsyncAdmin:
    for number in (1, 2, 3):
        nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3), more=config)
    await nodes.start(1, 2, 3)
    return AsyncAdmin(
        bootstrap_servers="n1:9092,n2:9092,n3:9092",
        connector=nodes.network.host("client"),
        clock=SimClock(nodes.loop),
        random=random.Random(2),
    )


async def write(nodes: Nodes, count: int) -> None:
    """Records in one batch."""
    async with AsyncProducer(
        bootstrap_servers="n1:9092,n2:9092,n3:9092",
        linger_ms=50,
        connector=nodes.network.host("client"),
        clock=SimClock(nodes.loop),
        random=random.Random(3),
    ) as producer:
        futures = [await producer.send(TOPIC, b"%d" % number, partition=0) for number in range(count)]
        for future in futures:
            await future


async def values(nodes: Nodes) -> list[bytes | None]:
    async with AsyncConsumer(
        bootstrap_servers="n1:9092,n2:9092,n3:9092",
        connector=nodes.network.host("client"),
        clock=SimClock(nodes.loop),
        random=random.Random(4),
    ) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning(PARTITION)
        (end,) = (await consumer.end_offsets([PARTITION])).values()
        found: list[bytes | None] = []
        while await consumer.position(PARTITION) < end:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found += [record.value for record in records]
        return found


@pytest.mark.parametrize("start_offset", [1, 7, 9, 10])
def test_a_new_replica_copies_a_log_that_starts_in_the_midst_of_a_batch(start_offset: int) -> None:
    """Batches are copied as they are: the copy begins with the batch that holds the first record, and starts where the
    leader's log does (seed 1 of the simulated clusters: the follower asked for the start, and refused the batch for ever)."""

    async def work(nodes: Nodes) -> None:
        async with await three_nodes(nodes) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=1)])
            (first,) = (await admin.describe_topics([TOPIC]))[0].partitions[0].replicas
            await write(nodes, 10)
            assert await admin.delete_records({PARTITION: start_offset}) == {PARTITION: start_offset}
            others = [number for number in (1, 2, 3) if number != first]
            await admin.alter_partition_reassignments({PARTITION: [*others, first]})
            await nodes.until(first, TOPIC, lambda partition: set(partition.in_sync_replicas) == {1, 2, 3})
            assert [_start_of(nodes, number) for number in others] == [start_offset, start_offset]
            await write(nodes, 5)
            await admin.alter_partition_reassignments({PARTITION: others})
            await nodes.until(first, TOPIC, lambda partition: set(partition.in_sync_replicas) == set(others))
            assert await values(nodes) == [b"%d" % number for number in [*range(start_offset, 10), *range(5)]]

    with_nodes(work)


@pytest.mark.parametrize("seed", range(1, 4))
def test_deleted_records_stay_deleted_when_the_leader_dies_right_after_the_answer(seed: int) -> None:
    """Whoever leads next starts there: the answer waits until every replica in sync does."""

    async def work(nodes: Nodes) -> None:
        async with await three_nodes(nodes) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)])
            await write(nodes, 10)
            leader = (await admin.describe_topics([TOPIC]))[0].partitions[0].leader_id
            assert await admin.delete_records({PARTITION: 7}) == {PARTITION: 7}
            nodes.kill(leader)
            left = next(number for number in (1, 2, 3) if number != leader)
            await nodes.until(left, TOPIC, lambda partition: partition.leader_id not in (-1, leader))
            assert await values(nodes) == [b"7", b"8", b"9"]

    with_nodes(work, seed=seed)


def test_a_follower_whose_disk_was_full_takes_over_the_start_later() -> None:
    """Nobody says it twice, and nobody comes in sync without it."""

    async def work(nodes: Nodes) -> None:
        async with await three_nodes(nodes) as admin:
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)])
            await write(nodes, 10)
            leader = (await admin.describe_topics([TOPIC]))[0].partitions[0].leader_id
            followers = [number for number in (1, 2, 3) if number != leader]
            for number in followers:
                nodes.machines[number].fs.fail(
                    "pwritev", errno.ENOSPC, path_part="log-start-offset-checkpoint", times=2
                )
            began = nodes.loop.time()
            assert await admin.delete_records({PARTITION: 7}) == {PARTITION: 7}
            assert nodes.loop.time() - began > DISK_FULL_RETRY_MS / 1000
            assert [_start_of(nodes, number) for number in followers] == [7, 7]

    with_nodes(work)


def test_a_replica_comes_in_sync_again_after_retention_without_a_new_record() -> None:
    """It says where its log starts by now, and is told where the leader's does (`make test-deep`, cluster seed 913)."""

    async def work(nodes: Nodes) -> None:
        async with await three_nodes(nodes, {"log.retention.check.interval.ms": "1000"}) as admin:
            configs = {"segment.bytes": "200", "retention.bytes": "100"}
            await admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=3, configs=configs)])
            leader = (await admin.describe_topics([TOPIC]))[0].partitions[0].leader_id
            controller = (await nodes.quorum(1)).leader_id
            assert controller != leader, "take another seed"
            (follower,) = {1, 2, 3} - {controller, leader}
            await write(nodes, 10)
            nodes.network.partition(f"n{follower}", f"n{controller}")
            await nodes.until(leader, TOPIC, lambda partition: set(partition.in_sync_replicas) == {leader, controller})
            await write(nodes, 10)  # in the next segment
            await _all_start_at(nodes, 10)
            nodes.network.heal()
            await nodes.until(leader, TOPIC, lambda partition: set(partition.in_sync_replicas) == {1, 2, 3})
            await _all_start_at(nodes, 10)

    with_nodes(work)


async def _all_start_at(nodes: Nodes, offset: int) -> None:
    for _ in range(30):
        starts = [_start_of(nodes, number) for number in (1, 2, 3)]
        if starts == [offset] * 3:
            return
        await asyncio.sleep(1)
    raise AssertionError(starts)


def _start_of(nodes: Nodes, number: int) -> int:
    node = nodes.machines[number].node
    assert node is not None
    partition = node.partitions.get((TOPIC, 0))
    return -1 if partition is None else partition.log.log_start_offset
