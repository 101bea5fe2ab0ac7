"""Cases of the fault list that take several brokers and their clients: whole nodes, on virtual time."""

import asyncio
import itertools

import pytest

from kraftlog.proto import admin_pb2, hotpath
from kraftlog.proto.errors import CorruptRecordError, ErrorCode, NotLeaderOrFollowerError
from kraftlog.proto.records import decode_records
from kraftlog.proto.seams import Stream
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.node import Node
from tests.unit.server.nodes import Nodes, with_nodes
from tests.unit.server.test_returning_brokers import (
    BROKER,
    Client,
    caught_up,
    create,
    damage,
    delete,
    fill,
    folders,
    other_than,
    read,
    remove_log,
    stored,
    three_nodes,
)

CREDIT = 1 << 20


def position(topic: str, *, epoch: int = -1, generation: int = 1, offset: int = 0) -> hotpath.FetchPosition:
    return hotpath.FetchPosition(
        topic, 0, offset, generation, current_leader_epoch=epoch, last_fetched_epoch=-1, max_bytes=CREDIT
    )


def replicas_of(nodes: Nodes, number: int) -> ReplicaManager:
    broker = running(nodes, number)._broker
    assert broker is not None
    return broker.replicas


async def elect_preferred(nodes: Nodes, asked: int) -> None:
    await nodes.ask(
        asked,
        "ElectLeaders",
        admin_pb2.ElectLeadersRequest(timeout_ms=30_000),
        admin_pb2.ElectLeadersResponse,
    )


async def open_stream(client: Client, *positions: hotpath.FetchPosition) -> Stream:
    stream = client.channel.stream(BROKER + "FetchStream")
    params = hotpath.FetchRequest(max_wait_ms=500, min_bytes=1)
    control = hotpath.FetchControl(params=params, set=list(positions), credit_bytes=CREDIT)
    await stream.send(hotpath.encode(control))
    return stream


async def chunks(stream: Stream) -> list[hotpath.PartitionChunk]:
    message = await stream.receive()
    assert message is not None
    return hotpath.decode_fetch_chunk(message).partitions


def newest_values(batches: bytes) -> dict[bytes, bytes]:
    """What a compacted log says, by key."""
    return {record.key: record.value for record in decode_records(batches) if record.key and record.value}


def running(nodes: Nodes, number: int) -> Node:
    node = nodes.machines[number].node
    assert node is not None
    return node


# F01 (KAFKA-9338, 8052, 7109): fetch sessions lost the leader epoch, used an old session epoch, or leaked. A fetch stream is
# the session here.


def test_f01_a_stream_over_a_leader_change_is_fenced_and_goes_on_where_it_is_set_again() -> None:
    """The position ends with an error, the others of the stream do not; the epoch of before is refused by the next leader, one
    that it does not know yet too; and an old generation sets nothing."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        before = await create(nodes, "moves", factor=3)
        old = before.leader_id
        topics = [f"stays-{number}" for number in range(6)]
        leaders = {topic: (await create(nodes, topic, factor=3)).leader_id for topic in topics}
        stays = next(topic for topic, leader in leaders.items() if leader == old)
        await fill(nodes, old, "moves", 1)
        client = Client(nodes, old)
        stream = await open_stream(client, position("moves", epoch=before.leader_epoch), position(stays))
        (chunk,) = await chunks(stream)
        assert (chunk.topic, chunk.error_code, chunk.next_offset) == ("moves", 0, 1)
        new = other_than(old)
        target = admin_pb2.ReplicaAssignment(replicas=[number for number in (1, 2, 3) if number != old])
        moves = [admin_pb2.PartitionReassignment(topic="moves", partition=0, target=target)]
        await nodes.ask(
            old,
            "AlterPartitionReassignments",
            admin_pb2.AlterPartitionReassignmentsRequest(partitions=moves, timeout_ms=30_000),
            admin_pb2.AlterPartitionReassignmentsResponse,
        )
        (chunk,) = await chunks(stream)
        assert (chunk.topic, chunk.error_code) == ("moves", ErrorCode.FENCED_LEADER_EPOCH), "it hands over first"
        await nodes.until(new, "moves", lambda now: old not in now.replicas)
        await fill(nodes, old, stays, 1)
        (chunk,) = await chunks(stream)
        assert (chunk.topic, chunk.error_code, chunk.next_offset) == (stays, 0, 1)
        await stream.send(hotpath.encode(hotpath.FetchControl(set=[position(stays, offset=0)])))  # an old generation
        await fill(nodes, old, stays, 1)
        (chunk,) = await chunks(stream)
        assert (chunk.topic, chunk.next_offset) == (stays, 2), "not from 0 again"

        after = await nodes.partition(new, "moves")
        other = Client(nodes, after.leader_id)
        epochs = (before.leader_epoch, after.leader_epoch + 1, after.leader_epoch)
        answers = []
        for epoch in epochs:
            again = await open_stream(other, position("moves", epoch=epoch))
            answers += [ErrorCode(chunk.error_code) for chunk in await chunks(again)]
            again.cancel()
        assert answers == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NONE]
        stream.cancel()
        await client.channel.close()
        await other.channel.close()

    with_nodes(work)


def test_f01_streams_that_end_leave_nothing_behind() -> None:
    """A thousand, ended in every way: by the client in order, by a cancellation, and with the connection."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "read", factor=3)).leader_id
        replicas = replicas_of(nodes, leader)
        listeners = dict(replicas._listeners)
        waiting = len(replicas.timers)
        for number in range(1_000):
            client = Client(nodes, leader)
            stream = await open_stream(client, position("read"))
            if number % 50 == 0:  # it is there
                await fill(nodes, leader, "read", 1)
                assert (await chunks(stream))[0].error_code == 0
            if number % 3 == 0:
                await stream.finish()
            elif number % 3 == 1:
                stream.cancel()
            await client.channel.close()
        await asyncio.sleep(5)
        assert replicas._listeners == listeners
        assert replicas.fetch_purgatory.waiting == 0
        assert len(replicas.timers) <= waiting

    with_nodes(work)


# F03 (KAFKA-17240): one parked request that threw kept the others from completing.


def test_f03_a_long_poll_outlives_others_that_end_badly() -> None:
    """Three wait for one partition, each together with another one: the first is cancelled, the topic of the second is
    deleted; the third has its record as soon as there is one."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "gone", factor=1)).leader_id
        topics = [f"data-{number}" for number in range(6)]
        leaders = {topic: (await create(nodes, topic, factor=3)).leader_id for topic in topics}
        data = next(topic for topic, each in leaders.items() if each == leader)
        client = Client(nodes, leader)

        async def poll(*topics: str) -> list[hotpath.PartitionChunk]:
            request = hotpath.FetchRequest(
                max_wait_ms=60_000, min_bytes=1, partitions=[position(topic) for topic in topics]
            )
            answer = await client.channel.unary(BROKER + "Fetch", hotpath.encode(request), timeout_ms=90_000)
            return hotpath.decode_fetch_chunk(answer).partitions

        polls = [asyncio.ensure_future(poll(data, *more)) for more in ((), ("gone",), ())]
        replicas = replicas_of(nodes, leader)
        await asyncio.sleep(1)
        assert replicas.fetch_purgatory.waiting == 3
        polls[0].cancel()
        await delete(nodes, leader, "gone")
        (chunk, gone) = await polls[1]
        assert (chunk.error_code, gone.error_code != 0) == (0, True)
        started = nodes.loop.time()
        await fill(nodes, leader, data, 1)
        (chunk,) = await polls[2]
        assert (chunk.error_code, chunk.next_offset) == (0, 1)
        assert nodes.loop.time() - started < 1
        assert replicas.fetch_purgatory.waiting == 0, "neither the cancelled one"
        await client.channel.close()

    with_nodes(work)


# R03 (nats-server #7549): a flipped bit on one node lost acknowledged records. See test_returning_brokers for one that is found
# at the start.


@pytest.mark.parametrize("is_leader", [True, False])
def test_r03_a_flipped_bit_in_a_closed_segment_is_found_by_the_first_reader_and_made_good(is_leader: bool) -> None:
    """After a clean stop no segment is checked at the start. The broker leads, a consumer or a follower reads: nothing damaged
    is sent, another replica takes over, and the log is fetched again from it."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        victim = (await create(nodes, "data", factor=3, segment_bytes="4096")).leader_id
        values = await fill(nodes, victim, "data", 20)
        await nodes.stop(victim)
        damage(nodes, victim, "data")
        await nodes.start(victim)
        left = other_than(victim)
        await caught_up(nodes, left, "data")
        if is_leader:
            await elect_preferred(nodes, left)
            assert (await nodes.partition(left, "data")).leader_id == victim
            client = Client(nodes, victim)
            with pytest.raises(NotLeaderOrFollowerError, match="damaged here, another replica takes over"):
                await client.values("data")
            await client.channel.close()
        else:
            # A third one that has to fetch everything makes the damaged replica, which leads by then, read it.
            await elect_preferred(nodes, left)
            third = other_than(victim, left)
            nodes.kill(third)
            remove_log(nodes, third, "data")
            await nodes.start(third)
        await nodes.until(left, "data", lambda now: now.leader_id not in (-1, victim))
        led_by = (await nodes.partition(left, "data")).leader_id
        await caught_up(nodes, left, "data")
        assert await read(nodes, led_by, "data") == values
        assert any(name.endswith("-damaged") for name in folders(nodes, victim, "data"))
        values += await fill(nodes, led_by, "data", 3)
        logs = [running(nodes, number).partitions["data", 0].log for number in (1, 2, 3)]
        assert stored(logs[0]) == stored(logs[1]) == stored(logs[2])
        assert await read(nodes, led_by, "data") == values

    with_nodes(work)


def test_r03_the_only_replica_serves_what_is_sound_and_takes_records() -> None:
    """Nobody could take over: the reader meets the damage by its CRC, and what comes after it can be read."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=1, segment_bytes="4096")).leader_id
        values = await fill(nodes, leader, "data", 20)
        await nodes.stop(leader)
        damage(nodes, leader, "data")
        await nodes.start(leader)
        client = Client(nodes, leader)
        with pytest.raises(CorruptRecordError):
            await client.values("data")
        values += await fill(nodes, leader, "data", 1)
        assert await client.values("data", since=10) == values[10:]
        await asyncio.sleep(10)
        assert (await nodes.partition(leader, "data")).leader_id == leader
        await client.channel.close()

    with_nodes(work)


# S05 (KAFKA-14296): during a controlled stop leaders were not demoted until the end.


@pytest.mark.parametrize("seed", range(1, 4))
def test_s05_a_leader_that_is_stopped_under_load_fails_no_record_and_leaves_no_gap(seed: int) -> None:
    """Records go on being acknowledged, none waits two seconds, and none is there twice."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=3)).leader_id
        acknowledged: list[tuple[float, bytes]] = []
        is_over = False

        async def write() -> None:
            async with nodes.producer() as producer:
                while not is_over:
                    value = b"%d" % len(acknowledged)
                    await producer.send_and_wait("data", value, partition=0)
                    acknowledged.append((nodes.loop.time(), value))
                    await asyncio.sleep(0.005)

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(2)
        await nodes.stop(leader)
        count = len(acknowledged)
        await asyncio.sleep(3)
        is_over = True
        await writing
        times = [time for time, _ in acknowledged]
        assert len(acknowledged) > count > 100
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 2
        left = other_than(leader)
        client = Client(nodes, (await nodes.partition(left, "data")).leader_id)
        assert await client.values("data") == [value for _, value in acknowledged]
        await client.channel.close()

    with_nodes(work, seed=seed)


# C09 (redpanda #5991, #5979), with the replicas it is about: see tests/faults/test_compaction_cases.py for the log alone.


@pytest.mark.parametrize("seed", range(1, 4))
def test_c09_a_deposed_leader_of_a_compacted_topic_cuts_its_log_while_it_is_compacted(seed: int) -> None:
    """It has records of its own, and gaps that compaction left, when the history turns out to be another; in the end the
    three have the same records, whatever each of them has compacted."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        described = await create(
            nodes,
            "keyed",
            factor=3,
            cleanup_policy="compact",
            segment_bytes="2048",
            min_cleanable_dirty_ratio="0.01",
            max_compaction_lag_ms="1000",
        )
        old = described.leader_id
        client = Client(nodes, old)
        for number in range(60):
            result = await client.produce("keyed", b"old %d" % number + bytes(200), key=b"k%d" % (number % 5))
            assert result.error_code == 0
        await asyncio.sleep(20)  # compacted, with gaps
        nodes.cut_off(old)
        for number in range(60):
            result = await client.produce("keyed", b"alone %d" % number + bytes(200), key=b"k%d" % (number % 5), acks=1)
            assert result.error_code == 0
        await client.channel.close()
        left = other_than(old)
        await nodes.until(left, "keyed", lambda now: now.leader_id not in (-1, old))
        new = (await nodes.partition(left, "keyed")).leader_id
        client = Client(nodes, new)
        for number in range(5):
            assert (await client.produce("keyed", b"new %d" % number, key=b"k%d" % number)).error_code == 0
        nodes.network.heal()
        await caught_up(nodes, left, "keyed")
        for number in range(60):
            assert (await client.produce("keyed", b"last %d" % number + bytes(200), key=b"k0")).error_code == 0
        await asyncio.sleep(60)  # all compact what they have
        logs = [running(nodes, number).partitions["keyed", 0].log for number in (1, 2, 3)]
        assert len({log.log_end_offset for log in logs}) == 1
        newest = [newest_values(stored(log)) for log in logs]
        assert newest[0] == newest[1] == newest[2]
        assert newest[0][b"k3"] == b"new 3"
        assert not any(b"alone" in value for value in newest[0].values())
        assert all(len(stored(log)) < 60 * 200 for log in logs), "it was compacted"
        await client.channel.close()

    with_nodes(work, seed=seed)
