"""New topics and partitions are answered when they are committed. Until a broker has made its replicas, whoever asks for them
waits, and nobody hears that there is no such thing. Whole nodes, on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from kraftlog.kraft.image import MetadataImage, TopicImage
from kraftlog.proto import admin_pb2, broker_pb2, hotpath
from kraftlog.proto.errors import ErrorCode
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.types import TopicPartition
from kraftlog.testing.clock import SimClock
from tests.unit.server.nodes import Nodes, with_nodes
from tests.unit.server.test_returning_brokers import BROKER, Client, delete, three_nodes

TOPIC = "data"
MAKING_S = 5.0


@pytest.fixture(autouse=True)
def _slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker takes its time to make the logs of the topic."""
    make = ReplicaManager._make_partitions

    async def make_slowly(
        self: ReplicaManager, missing: Sequence[tuple[TopicImage, int]], image: MetadataImage
    ) -> None:
        if any(topic.name == TOPIC for topic, _ in missing):
            await asyncio.sleep(MAKING_S)
        await make(self, missing, image)

    monkeypatch.setattr(ReplicaManager, "_make_partitions", make_slowly)


def run(work: Callable[[Nodes], Coroutine[Any, Any, None]]) -> None:
    async def on_three_nodes(nodes: Nodes) -> None:
        await three_nodes(nodes)
        await work(nodes)

    with_nodes(on_three_nodes)


async def create(nodes: Nodes, *, partitions: int = 3, factor: int = 3) -> float:
    """Through node 1; when that was."""
    at = nodes.loop.time()
    assert await nodes.create(1, TOPIC, partitions=partitions, factor=factor) == 0
    assert nodes.loop.time() - at < MAKING_S / 2
    return at


async def metadata(nodes: Nodes, number: int) -> broker_pb2.TopicInfo:
    request = broker_pb2.MetadataRequest(topics=[TOPIC])
    answer = await nodes.call(f"n{number}:9092", BROKER + "Metadata", request, broker_pb2.MetadataResponse)
    return answer.topics[0]


async def produce(nodes: Nodes, number: int) -> int:
    """One record to partition 0; the error code."""
    client = Client(nodes, number)
    try:
        return (await client.produce(TOPIC, b"value")).error_code
    finally:
        await client.channel.close()


async def latest(nodes: Nodes, number: int) -> broker_pb2.ListOffsetsResult:
    asked = broker_pb2.ListOffsetsPartition(topic=TOPIC, timestamp=-1, current_leader_epoch=-1)
    request = broker_pb2.ListOffsetsRequest(partitions=[asked])
    answer = await nodes.call(f"n{number}:9092", BROKER + "ListOffsets", request, broker_pb2.ListOffsetsResponse)
    return answer.partitions[0]


async def fetch(nodes: Nodes, number: int) -> hotpath.PartitionChunk:
    """A long poll of partition 0."""
    at = hotpath.FetchPosition(TOPIC, 0, 0, 1, current_leader_epoch=-1, last_fetched_epoch=-1)
    request = hotpath.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, partitions=[at])
    channel = nodes.network.host("client").connect(f"n{number}:9092")
    try:
        answer = await channel.unary(BROKER + "Fetch", hotpath.encode(request), timeout_ms=120_000)
    finally:
        await channel.close()
    return hotpath.decode_fetch_chunk(answer).partitions[0]


def test_everybody_knows_a_topic_whose_logs_are_being_made() -> None:
    """Whichever broker is asked, and whatever for."""

    async def work(nodes: Nodes) -> None:
        at = await create(nodes)
        for number in (1, 2, 3):
            topic = await metadata(nodes, number)
            assert topic.error_code == 0, f"node {number}: {topic}"
            assert all(partition.leader_id in (1, 2, 3) for partition in topic.partitions)
            assert TOPIC in await nodes.topics(number)
        assert nodes.loop.time() - at < MAKING_S / 2
        leader = topic.partitions[0].leader_id
        others = [number for number in (1, 2, 3) if number != leader]
        codes = await asyncio.gather(*(produce(nodes, number) for number in (leader, *others)))
        assert codes == [0, *[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2]
        assert nodes.loop.time() - at >= MAKING_S
        assert (await latest(nodes, leader)).offset == 1

    run(work)


def test_questions_of_a_partition_wait_for_it() -> None:
    async def work(nodes: Nodes) -> None:
        at = await create(nodes, partitions=1)
        leader = (await metadata(nodes, 1)).partitions[0].leader_id
        deletion = admin_pb2.DeleteRecordsRequest(partitions=[admin_pb2.DeleteRecordsPartition(topic=TOPIC)])
        found, deleted, described = await asyncio.gather(
            latest(nodes, leader),
            nodes.ask(leader, "DeleteRecords", deletion, admin_pb2.DeleteRecordsResponse),
            nodes.ask(
                leader,
                "DescribeLogDirs",
                admin_pb2.DescribeLogDirsRequest(topics=[TOPIC]),
                admin_pb2.DescribeLogDirsResponse,
            ),
        )
        assert (found.error_code, found.offset) == (0, 0)
        assert deleted.partitions[0].error_code == 0
        assert [log.topic for log in described.log_dirs[0].logs] == [TOPIC]
        assert nodes.loop.time() - at >= MAKING_S

    run(work)


def test_a_write_that_cannot_wait_so_long_is_told_to_come_again() -> None:
    """Bounded by the request's time-out, and not unknown to the broker."""

    async def work(nodes: Nodes) -> None:
        await create(nodes, partitions=1)
        leader = (await metadata(nodes, 1)).partitions[0].leader_id
        client = Client(nodes, leader)
        at = nodes.loop.time()
        result = await client.produce(TOPIC, b"value", timeout_ms=1000)
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert 1.0 <= nodes.loop.time() - at < 2.0
        assert (await client.produce(TOPIC, b"value")).error_code == 0
        await client.channel.close()

    run(work)


def test_a_consumer_and_a_producer_of_a_topic_that_is_being_made() -> None:
    """Streams: the fetch stream is open before the log is there, the produce stream queues what comes."""

    async def work(nodes: Nodes) -> None:
        await create(nodes, partitions=1)
        consumer = AsyncConsumer(
            bootstrap_servers="n2:9092",
            connector=nodes.network.host("client"),
            clock=SimClock(nodes.loop),
            random=nodes.random,
        )
        async with consumer, nodes.producer() as producer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek(TopicPartition(TOPIC, 0), 0)
            reading = asyncio.ensure_future(consumer.poll(timeout_ms=60_000))
            sent = [await producer.send(TOPIC, b"%d" % number) for number in range(20)]
            assert [(await each).offset for each in sent] == list(range(20))
            assert (await reading)[TopicPartition(TOPIC, 0)][0].value == b"0"

    run(work)


def test_added_partitions_are_answered_when_they_are_committed() -> None:
    async def work(nodes: Nodes) -> None:
        await create(nodes, partitions=1)
        assert await produce(nodes, (await metadata(nodes, 1)).partitions[0].leader_id) == 0
        at = nodes.loop.time()
        growth = admin_pb2.CreatePartitionsRequest(timeout_ms=30_000)
        growth.topics.add(name=TOPIC, total_count=3)
        answer = await nodes.ask(1, "CreatePartitions", growth, admin_pb2.CreatePartitionsResponse)
        assert answer.topics[0].error_code == 0
        for number in (1, 2, 3):
            described = await nodes.ask(
                number,
                "DescribeTopics",
                admin_pb2.DescribeTopicsRequest(names=[TOPIC]),
                admin_pb2.DescribeTopicsResponse,
            )
            assert len(described.topics[0].partitions) == 3
        assert nodes.loop.time() - at < MAKING_S / 2

    run(work)


def test_a_node_that_dies_before_it_has_made_its_logs_makes_them_at_the_next_start() -> None:
    async def work(nodes: Nodes) -> None:
        await create(nodes, partitions=1, factor=1)
        leader = (await metadata(nodes, 1)).partitions[0].leader_id
        assert not [name for name in nodes.machines[leader].fs.listdir("/data") if name.startswith(TOPIC)]
        nodes.kill(leader)
        await nodes.start(leader)
        await nodes.until(leader, TOPIC, lambda partition: partition.leader_id == leader)
        assert await produce(nodes, leader) == 0
        assert (await latest(nodes, leader)).offset == 1

    run(work)


def test_a_broker_that_is_behind_learns_of_a_topic_before_it_denies_it() -> None:
    async def work(nodes: Nodes) -> None:
        for other in (1, 2):
            nodes.network.partition(f"n{other}", "n3")
        assert await nodes.create(1, TOPIC, factor=1) == 0
        nodes.network.heal()
        assert (await metadata(nodes, 3)).error_code == 0

    run(work)


def test_without_a_quorum_a_broker_says_soon_what_it_knows() -> None:
    async def work(nodes: Nodes) -> None:
        nodes.cut_off(3)
        at = nodes.loop.time()
        assert (await metadata(nodes, 3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert nodes.loop.time() - at < 1.0

    run(work)


def test_a_fetch_waits_for_the_partition_and_then_for_records() -> None:
    """At the leader; where the broker will only follow, the fetch is answered so when that is known."""

    async def work(nodes: Nodes) -> None:
        at = await create(nodes, partitions=1)
        leader = (await metadata(nodes, 1)).partitions[0].leader_id
        fetches = {number: asyncio.ensure_future(fetch(nodes, number)) for number in (1, 2, 3)}
        for number in {1, 2, 3} - {leader}:
            assert (await fetches[number]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert MAKING_S <= nodes.loop.time() - at < 2 * MAKING_S
        assert not fetches[leader].done()
        assert await produce(nodes, leader) == 0
        chunk = await fetches[leader]
        assert (chunk.error_code, chunk.next_offset) == (0, 1)

    run(work)


def test_nothing_is_written_to_a_topic_that_was_deleted_and_made_anew() -> None:
    """Of the same name: the log that is about to go takes no more records, the next one takes them."""

    async def work(nodes: Nodes) -> None:
        await create(nodes, partitions=1, factor=1)
        leader = (await metadata(nodes, 1)).partitions[0].leader_id
        assert await produce(nodes, leader) == 0
        await delete(nodes, leader, TOPIC)
        while True:
            assert await nodes.create(1, TOPIC, factor=1) == 0
            if (await metadata(nodes, 1)).partitions[0].leader_id == leader:
                break
            await delete(nodes, 1, TOPIC)
        assert await produce(nodes, leader) == 0
        assert (await latest(nodes, leader)).offset == 1

    run(work)
