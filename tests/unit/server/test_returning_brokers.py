"""Brokers that return: what they claim of their replicas after a clean stop, an unclean one, with damage, without a log; and
what becomes of logs that are nobody's any more. Whole nodes, on virtual time."""

import asyncio
from typing import cast

import pytest

from kraftlog.proto import admin_pb2, hotpath
from kraftlog.proto.errors import ErrorCode, code_of, error_for
from kraftlog.proto.records import BatchBuilder, decode_records
from kraftlog.proto.seams import Channel
from kraftlog.replication.partition import PartitionLog
from tests.unit.server.nodes import LOG_DIR, Nodes, voters_of, with_nodes

BROKER = "/kraftlog.v1.Broker/"
BATCH_BYTES = 1000


async def three_nodes(nodes: Nodes) -> None:
    for number in (1, 2, 3):
        nodes.add(number, "broker,controller", voters=voters_of(1, 2, 3))
    await nodes.start(1, 2, 3)


async def create(
    nodes: Nodes, name: str, *, factor: int, asked: int = 1, **configs: str
) -> admin_pb2.PartitionDescription:
    """One partition; configs are given in snake case."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    topic = admin_pb2.NewTopic(name=name, num_partitions=1, replication_factor=factor, configs=dotted)
    request = admin_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    response = await nodes.ask(asked, "CreateTopics", request, admin_pb2.CreateTopicsResponse)
    assert response.topics[0].error_code == 0, response
    return await nodes.partition(asked, name)


async def delete(nodes: Nodes, asked: int, name: str) -> None:
    request = admin_pb2.DeleteTopicsRequest(names=[name], timeout_ms=30_000)
    response = await nodes.ask(asked, "DeleteTopics", request, admin_pb2.DeleteTopicsResponse)
    assert response.topics[0].error_code == 0, response


class Client:
    """One producer and reader of partition 0 of a topic, over one connection."""

    def __init__(self, nodes: Nodes, number: int) -> None:
        self.channel: Channel = nodes.network.host("client").connect(f"n{number}:9092")

    async def produce(
        self, topic: str, *values: bytes, key: bytes | None = None, acks: int = -1, timeout_ms: int = 10_000
    ) -> hotpath.ProduceResult:
        builder = BatchBuilder()
        for value in values:
            builder.append(1, key, value)
        part = hotpath.PartitionRecords(topic, 0, builder.build())
        request = hotpath.ProduceRequest(correlation_id=0, acks=acks, timeout_ms=timeout_ms, partitions=[part])
        answer = await self.channel.unary(BROKER + "Produce", hotpath.encode(request), timeout_ms=20_000)
        [result] = hotpath.decode_produce_response(answer).partitions
        return result

    async def values(self, topic: str, *, since: int = 0) -> list[bytes | None]:
        """All that a consumer may read."""
        values: list[bytes | None] = []
        offset = since
        while True:
            at = hotpath.FetchPosition(topic, 0, offset, 1, current_leader_epoch=-1, last_fetched_epoch=-1)
            request = hotpath.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, partitions=[at])
            answer = await self.channel.unary(BROKER + "Fetch", hotpath.encode(request), timeout_ms=20_000)
            [chunk] = hotpath.decode_fetch_chunk(answer).partitions
            if chunk.error_code:
                raise error_for(chunk.error_code, chunk.error_message)
            decoded = decode_records(bytes(cast(bytes, chunk.records)))  # one buffer
            found = [record for record in decoded if record.offset >= offset]
            if not found:
                return values
            values += [record.value for record in found]
            offset = found[-1].offset + 1


async def fill(nodes: Nodes, leader: int, topic: str, count: int) -> list[bytes | None]:
    """Records of about `BATCH_BYTES`, one in a batch, each acknowledged."""
    client = Client(nodes, leader)
    values: list[bytes | None] = []
    for number in range(count):
        value = b"%d" % number + bytes(BATCH_BYTES)
        error_code = (await client.produce(topic, value)).error_code
        if error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await asyncio.sleep(1)  # the broker has not heard yet of what the controller has made
            error_code = (await client.produce(topic, value)).error_code
        assert error_code == 0
        values.append(value)
    await client.channel.close()
    return values


async def read(nodes: Nodes, leader: int, topic: str) -> list[bytes | None]:
    client = Client(nodes, leader)
    try:
        return await client.values(topic)
    finally:
        await client.channel.close()


def folders(nodes: Nodes, number: int, topic: str) -> list[str]:
    return [name for name in nodes.machines[number].fs.listdir(LOG_DIR) if name.startswith(f"{topic}-0")]


def damage(nodes: Nodes, number: int, topic: str) -> None:
    """Flip a bit in the middle of the log, of whatever is there by now."""
    nodes.machines[number].fs.flip(f"{LOG_DIR}/{topic}-0/00000000000000000000.log", 3 * BATCH_BYTES)


def remove_log(nodes: Nodes, number: int, topic: str) -> None:
    fs, folder = nodes.machines[number].fs, f"{LOG_DIR}/{topic}-0"
    for name in fs.listdir(folder):
        fs.unlink(f"{folder}/{name}")
    fs.rmdir(folder)


def stored(log: PartitionLog) -> bytes:
    """All bytes of a log, whatever its segments are."""
    found, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        found, offset = found + bytes(result.records), result.next_offset
    return found


async def caught_up(nodes: Nodes, number: int, topic: str) -> None:
    """Until all three replicas are in sync."""
    await nodes.until(number, topic, lambda now: len(now.in_sync_replicas) == 3)


def other_than(*numbers: int) -> int:
    return next(number for number in (1, 2, 3) if number not in numbers)


def test_a_clean_stop_keeps_the_place_and_an_unclean_one_does_not() -> None:
    """flush.policy=interval: the marker of the clean stop says in which broker epoch that was (KIP-966). All others are
    away, so the one that returns leads if it has kept its place in the ELR."""

    async def work(nodes: Nodes) -> None:
        for number in (1, 2, 3):
            nodes.add(number, "controller", voters=voters_of(1, 2, 3))
        nodes.add(4, "broker", voters={})
        nodes.add(5, "broker", voters={})
        await nodes.start(1, 2, 3, 4, 5)
        await create(nodes, "kept", factor=2, asked=4, flush_policy="interval", min_insync_replicas="2")
        await nodes.stop(4)
        await nodes.until(5, "kept", lambda now: list(now.in_sync_replicas) == [5])
        await nodes.stop(5)
        await nodes.start(4)
        await nodes.until(4, "kept", lambda now: now.leader_id == 4)
        nodes.kill(4)
        await nodes.start(4)
        described = await nodes.partition(4, "kept")
        assert (described.leader_id, list(described.in_sync_replicas)) == (-1, [])
        assert list(described.last_known_elr) == [4]
        await nodes.start(5)
        await nodes.until(4, "kept", lambda now: now.leader_id == 5 and len(now.in_sync_replicas) == 2)

    with_nodes(work)


@pytest.mark.parametrize("is_leader", [False, True])
def test_a_damaged_replica_is_fetched_again_and_nothing_is_lost(is_leader: bool) -> None:
    """R03: a flipped bit on one of three nodes. The broker registers the replica as lost, so nobody follows or elects it, and
    copies it anew; the damaged bytes stay beside it."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        described = await create(nodes, "data", factor=3)
        leader = described.leader_id
        values = await fill(nodes, leader, "data", 10)
        victim = leader if is_leader else other_than(leader)
        nodes.kill(victim)
        damage(nodes, victim, "data")
        if not is_leader:
            values += await fill(nodes, leader, "data", 5)
        await nodes.start(victim)
        left = other_than(victim)
        await caught_up(nodes, left, "data")
        assert any(name.endswith("-damaged") for name in folders(nodes, victim, "data"))
        node = nodes.machines[victim].node
        assert node is not None
        log = node.partitions["data", 0].log
        assert log.log_end_offset == len(values)
        described = await nodes.partition(victim, "data")
        assert await read(nodes, described.leader_id, "data") == values

    with_nodes(work)


def test_a_deposed_leader_cuts_a_tail_that_filled_its_segment() -> None:
    """I03 (KAFKA-6492): what it wrote alone lies in segments of its own. After the cut its log goes on as any: segments with
    different bases, indexes that grow, and the same records as the leader's."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=3, segment_bytes="4096")).leader_id
        values = await fill(nodes, leader, "data", 5)
        nodes.cut_off(leader)
        client = Client(nodes, leader)
        for number in range(12):
            assert (await client.produce("data", b"alone %d" % number + bytes(BATCH_BYTES), acks=1)).error_code == 0
        await client.channel.close()
        left = other_than(leader)
        await nodes.until(left, "data", lambda now: now.leader_id not in (-1, leader))
        led_by = (await nodes.partition(left, "data")).leader_id
        values += await fill(nodes, led_by, "data", 2)
        nodes.network.heal()
        await caught_up(nodes, left, "data")
        values += await fill(nodes, led_by, "data", 12)
        logs = []
        for machine in nodes.machines.values():
            assert machine.node is not None
            logs.append(machine.node.partitions["data", 0].log)
        assert [log.log_end_offset for log in logs] == [len(values)] * 3
        assert len({stored(log) for log in logs}) == 1
        segments = [name for name in nodes.machines[leader].fs.listdir(f"{LOG_DIR}/data-0") if name.endswith(".log")]
        assert len(segments) == len(set(segments)) > 3
        assert await read(nodes, led_by, "data") == values

    with_nodes(work)


def test_damage_that_nobody_can_make_good_closes_the_partition_to_writes() -> None:
    """The only replica: what is before the damage can be read, and the error says where the damage is and what to do."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "single", factor=1)).leader_id
        values = await fill(nodes, leader, "single", 10)
        nodes.kill(leader)
        damage(nodes, leader, "single")
        await nodes.start(leader)
        await nodes.until(other_than(leader), "single", lambda now: now.leader_id == leader)
        client = Client(nodes, leader)
        result = await client.produce("single", b"more")
        assert result.error_code == ErrorCode.CORRUPT_MESSAGE
        for part in (f"{LOG_DIR}/single-0/00000000000000000000.log", "position ", "kraftctl log repair"):
            assert part in result.error_message
        readable = await client.values("single")
        assert readable
        assert readable == values[: len(readable)]
        await client.channel.close()
        assert folders(nodes, leader, "single") == ["single-0"]

    with_nodes(work)


def test_a_replica_whose_log_is_gone_claims_nothing() -> None:
    """Its folder was removed while the broker was down: the same disk, without the records that were acknowledged."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=3)).leader_id
        values = await fill(nodes, leader, "data", 10)
        await nodes.stop(leader)
        remove_log(nodes, leader, "data")
        left = other_than(leader)
        await nodes.start(leader)
        await caught_up(nodes, left, "data")
        described = await nodes.partition(left, "data")
        assert await read(nodes, described.leader_id, "data") == values

    with_nodes(work)


def test_a_leader_that_is_back_at_once_does_not_have_its_followers_cut_their_logs() -> None:
    """flush.policy=interval: a power loss took the leader's records, and it returns before its session has expired. It may not
    lead in the epoch in which it had them: its followers, who have all that was acknowledged, would follow it to its end."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=3, flush_policy="interval")).leader_id
        values = await fill(nodes, leader, "data", 10)
        nodes.kill(leader)
        await nodes.start(leader)
        left = other_than(leader)
        await caught_up(nodes, left, "data")
        described = await nodes.partition(left, "data")
        assert await read(nodes, described.leader_id, "data") == values

    with_nodes(work)


def test_a_topic_deleted_while_a_broker_is_down_is_gone_there_too() -> None:
    """Also one that was made anew under the same name, and what a crash has left of a new log, without its topic id."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        for name in ("gone", "anew", "stays"):
            await create(nodes, name, factor=3)
        leader = (await nodes.partition(1, "stays")).leader_id
        values = await fill(nodes, leader, "stays", 3)
        await fill(nodes, (await nodes.partition(1, "anew")).leader_id, "anew", 3)
        await nodes.stop(2)
        await delete(nodes, 1, "gone")
        await delete(nodes, 1, "anew")
        await create(nodes, "anew", factor=2)
        assert folders(nodes, 2, "gone") == ["gone-0"]
        nodes.machines[2].fs.mkdir(f"{LOG_DIR}/begun-0")
        await nodes.start(2)
        assert folders(nodes, 2, "begun") == []
        assert folders(nodes, 2, "gone") == []
        assert folders(nodes, 2, "anew") == []
        await caught_up(nodes, 2, "stays")
        leader = (await nodes.partition(1, "stays")).leader_id
        assert await read(nodes, leader, "stays") == values

    with_nodes(work)


def test_logs_that_strange_metadata_do_not_know_are_kept() -> None:
    """The metadata log is gone, as after a wrong restore: no topic is known, which is no reason to delete a record."""

    async def work(nodes: Nodes) -> None:
        machine = nodes.add(
            1, "broker,controller", voters=voters_of(1), more={"controller.quorum.bootstrap.servers": ""}
        )
        nodes.format_without_voters(machine)
        await nodes.start(1)
        await create(nodes, "data", factor=1)
        await fill(nodes, 1, "data", 3)
        await nodes.stop(1)
        fs = machine.fs
        for name in fs.listdir(LOG_DIR):
            if name.startswith("__cluster_metadata-0"):
                for file in fs.listdir(f"{LOG_DIR}/{name}"):
                    fs.unlink(f"{LOG_DIR}/{name}/{file}")
                fs.rmdir(f"{LOG_DIR}/{name}")
        nodes.format(machine, voters_of(1))
        await nodes.start(1)
        [kept] = folders(nodes, 1, "data")
        assert kept.endswith("-stray")
        assert fs.size(f"{LOG_DIR}/{kept}/00000000000000000000.log")

    with_nodes(work)


def test_a_failed_disk_is_told_at_once_and_others_take_over() -> None:
    """The broker says with its last heartbeat that its directory is offline; nobody waits for the end of its session."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        described = await create(nodes, "data", factor=3)
        leader = described.leader_id
        values = await fill(nodes, leader, "data", 3)
        machine = nodes.machines[leader]
        machine.fs.fail("fdatasync", path_part="data-0")
        client = Client(nodes, leader)
        failing = asyncio.ensure_future(client.produce("data", b"lost"))
        node = machine.node
        assert node is not None
        await node.wait_failed()
        failed_at = nodes.loop.time()
        stopping = asyncio.ensure_future(nodes.stop(leader))
        left = other_than(leader)
        await nodes.until(left, "data", lambda now: now.leader_id not in (-1, leader))
        assert nodes.loop.time() - failed_at < 3.0  # the session time-out
        await stopping
        result = (await asyncio.gather(failing, return_exceptions=True))[0]
        assert isinstance(result, BaseException) or result.error_code
        await client.channel.close()
        leader_now = (await nodes.partition(left, "data")).leader_id
        assert (await read(nodes, leader_now, "data"))[:3] == values

    with_nodes(work)


def test_leaders_move_before_a_stopping_broker_refuses_requests() -> None:
    """A producer that follows the metadata sees refusals that say who leads, and never a broker that is not there."""

    async def work(nodes: Nodes) -> None:
        await three_nodes(nodes)
        leader = (await create(nodes, "data", factor=3)).leader_id
        await fill(nodes, leader, "data", 3)
        client = Client(nodes, leader)
        refusals: list[ErrorCode] = []

        async def produce_until_refused() -> None:
            while True:
                try:
                    result = await client.produce("data", b"x")
                except Exception as error:  # whatever it is, it is what the test asks about
                    refusals.append(code_of(error))
                    return
                if result.error_code:
                    refusals.append(ErrorCode(result.error_code))
                    return

        producing = asyncio.ensure_future(produce_until_refused())
        started = nodes.loop.time()
        await nodes.stop(leader)
        assert nodes.loop.time() - started < 3.0
        await producing
        assert refusals == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        left = other_than(leader)
        described = await nodes.partition(left, "data")
        assert described.leader_id not in (-1, leader)
        await client.channel.close()

    with_nodes(work)
