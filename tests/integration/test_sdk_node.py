"""The SDK against a real node: real gRPC, real disk, real processes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    KraftlogError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kraftlog.testing import Cluster, NodeProcess, cluster

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture
def topic(node: Cluster, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=3)])
    return name


def take(consumer: Consumer, count: int, timeout_s: float = 30) -> list:
    deadline = time.monotonic() + timeout_s
    got: list = []
    while len(got) < count:
        assert time.monotonic() < deadline, f"{len(got)} of {count} records"
        for records in consumer.poll(200).values():
            got += records
    return got


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_sent_comes_back(node: Cluster, topic: str, compression: str) -> None:
    """Keys, values, headers, timestamps and order, by record and by Arrow, with every codec."""
    sent = [(b"key %d" % (i % 10), b"value %d" % i, [("n", b"%d" % i), ("none", None)]) for i in range(3_000)]
    with Producer(bootstrap_servers=node.bootstrap_servers, compression_type=compression) as producer:
        futures = [
            producer.send(topic, value, key, headers, timestamp_ms=1_000 + i)
            for i, (key, value, headers) in enumerate(sent)
        ]
        producer.send(topic, None, key=b"tombstone")
        metadata = [future.result(30) for future in futures]
    assert {m.durability for m in metadata} == {"quorum-fsync"}
    with Consumer(bootstrap_servers=node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        tps = [TopicPartition(topic, p) for p in range(3)]
        consumer.assign(tps)
        records = take(consumer, 3_001)
        by_place = {(r.partition, r.offset): r for r in records}
        for (key, value, headers), m in zip(sent, metadata, strict=True):
            record = by_place[m.partition, m.offset]
            assert (record.key, record.value, list(record.headers)) == (key, value, headers)
            assert record.timestamp == m.timestamp
        consumer.seek_to_beginning()
        rows = 0
        while rows < 3_001:
            table = consumer.poll_arrow(500, columns=["partition", "offset", "value", "headers"])
            rows += table.num_rows
            for row in table.to_pylist():
                assert by_place[row["partition"], row["offset"]].value == row["value"]
        assert consumer.end_offsets(tps) == {tp: consumer.position(tp) for tp in tps}


def test_a_group_of_three_shares_rebalances_and_resumes(node: Cluster, topic: str) -> None:
    """Members come and go; every record is read at least once, committed ones are not read again."""
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for i in range(900):
            producer.send(topic, b"%d" % i, partition=i % 3)
    seen: set[tuple[int, int]] = set()
    owned: dict[int, frozenset[TopicPartition]] = {}
    joined = [threading.Event() for _ in range(3)]
    stop = threading.Event()
    errors: list[BaseException] = []

    def member(number: int) -> None:
        try:
            with Consumer(
                bootstrap_servers=node.bootstrap_servers,
                group_id=topic,
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
                session_timeout_ms=6_000,
                auto_commit_interval_ms=100,
            ) as consumer:
                consumer.subscribe([topic])
                while not stop.is_set():
                    for records in consumer.poll(100).values():
                        seen.update((r.partition, r.offset) for r in records)
                    owned[number] = consumer.assignment()
                    if owned[number]:
                        joined[number].set()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=member, args=(n,)) for n in range(3)]
    for thread, has_joined in zip(threads, joined, strict=True):
        thread.start()
        assert has_joined.wait(20), errors  # so that each later one takes partitions from members at work
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (
        len(seen) == 900 and [len(owned.get(n, ())) for n in range(3)] == [1, 1, 1]
    ):
        time.sleep(0.1)
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        (group,) = admin.describe_groups([topic])
        assert group.state == "Stable"
        assert sorted(tp for m in group.members for tp in m.assignment) == [TopicPartition(topic, p) for p in range(3)]
        assert topic in [g.group_id for g in admin.list_groups()]
        shares = list(owned.values())  # before the first that leaves sets off a rebalance
        stop.set()
        for thread in threads:
            thread.join(20)
        assert not errors
        assert len(seen) == 900
        assert len(frozenset.union(*shares)) == 3
        offsets = admin.list_group_offsets(topic)
        assert [(o.partition, o.offset, o.lag) for o in offsets] == [(p, 300, 0) for p in range(3)]
        with pytest.raises(GroupIdNotFoundError):
            admin.describe_groups(["nobody"])
    with Consumer(bootstrap_servers=node.bootstrap_servers, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(2_000) == {}


def test_offsets_can_be_committed_looked_up_and_found_by_time(node: Cluster, topic: str) -> None:
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for i in range(100):
            producer.send(topic, b"%d" % i, partition=0, timestamp_ms=5_000 + i)
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=node.bootstrap_servers, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        assert consumer.committed(tp) is None
        with pytest.raises(KraftlogError, match="no committed offset"):
            consumer.poll(2_000)
        consumer.commit({tp: OffsetAndMetadata(40, "by hand")})
        assert consumer.committed(tp) == 40
        consumer.unsubscribe()
        consumer.assign([tp])
        assert next(consumer).offset == 40
        found = consumer.offsets_for_times({tp: 5_090, TopicPartition(topic, 1): 0})
        assert found[tp] is not None
        assert found[tp].offset == 90
        assert found[TopicPartition(topic, 1)] is None
        consumer.seek(tp, 1_000)
        with pytest.raises(OffsetOutOfRangeError, match=r"offset 1000 is not in the log \(0 to 100\)"):
            consumer.poll(2_000)


def test_topics_grow_and_change(node: Cluster, topic: str) -> None:
    """More partitions, with leaders when the call returns; configs that the log obeys, one by one, and refusals."""
    with (
        Admin(bootstrap_servers=node.bootstrap_servers) as admin,
        Producer(bootstrap_servers=node.bootstrap_servers) as producer,
    ):
        admin.create_partitions({topic: 5}, validate_only=True)
        admin.create_partitions({topic: 5}, assignments={topic: [[1], [1]]})
        (described,) = admin.describe_topics([topic])
        assert [(p.partition, p.leader_id) for p in described.partitions] == [(n, 1) for n in range(5)]
        assert producer.send(topic, b"x", partition=4).result(10).offset == 0
        with pytest.raises(InvalidPartitionsError, match="it has 5"):
            admin.create_partitions({topic: 5})
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            admin.create_partitions({"nowhere": 5})
        admin.alter_configs(
            topic, set={"retention.ms": 5_000, "max.message.bytes": 200}, append={"cleanup.policy": "compact"}
        )
        (described,) = admin.describe_topics([topic])
        expected = {"retention.ms": "5000", "max.message.bytes": "200", "cleanup.policy": "delete,compact"}
        assert described.configs == expected
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, b"x" * 500, key=b"k", partition=4).result(10)
        admin.alter_configs(topic, delete=["max.message.bytes", "retention.ms"], subtract={"cleanup.policy": "compact"})
        producer.send(topic, b"x" * 500, partition=4).result(10)
        with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
            admin.alter_configs(topic, set={"retenton.ms": 5})
        (described,) = admin.describe_topics([topic])
        assert described.configs == {"cleanup.policy": "delete"}


def test_mistakes_are_one_clear_error(node: Cluster, topic: str) -> None:
    """Wrong names, sizes, configurations and addresses: the right class, one line, no wait."""
    servers = node.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin:
        for name in ("..", "a/b", "x" * 250, ""):
            with pytest.raises(InvalidTopicError):
                admin.create_topics([name])
        with pytest.raises(TopicAlreadyExistsError, match=topic):
            admin.create_topics([topic])
        with pytest.raises(InvalidConfigError, match="retention"):
            admin.create_topics([NewTopic(name="t", configs={"retention.mss": "1"})])
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            admin.describe_topics(["nowhere"])
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            admin.delete_topics(["nowhere"])
        assert {e.name for e in admin.describe_configs(topic=topic)} >= {"retention.ms", "segment.bytes"}
    with Producer(bootstrap_servers=servers, max_block_ms=500) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist: create it"):
            producer.send("nowhere", b"x")
        with pytest.raises(InvalidTopicError):
            producer.send("a/b", b"x")
        with pytest.raises(RecordTooLargeError, match="exceeds"):
            producer.send(topic, b"x" * (2 << 20))
        with pytest.raises(UnknownTopicOrPartitionError, match="partition 3, but it has partitions 0 to 2"):
            producer.send(topic, b"x", partition=3)
    with (
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300) as producer,
        pytest.raises(BrokerNotAvailableError, match=r"127.0.0.1:1.*is the cluster running\? kraftctl cluster"),
    ):
        producer.send(topic, b"x")


def test_deleted_records_are_out_of_range_and_the_earliest_offset_follows(node: Cluster, topic: str) -> None:
    servers = node.bootstrap_servers
    tp = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        for number in range(5):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush()
        assert admin.delete_records({tp: 3}, validate_only=True) == {tp: 3}
        assert admin.list_offsets([tp], "earliest") == {tp: 0}
        assert admin.delete_records({tp: 3}) == {tp: 3}
        assert admin.list_offsets([tp], "earliest") == {tp: 3}
        with pytest.raises(OffsetOutOfRangeError, match="high watermark 5"):
            admin.delete_records({tp: 6})
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_records({TopicPartition(topic, 9): 0})
        with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 2)
            with pytest.raises(OffsetOutOfRangeError):
                take(consumer, 1)
            consumer.seek(tp, 3)
            assert [record.value for record in take(consumer, 2)] == [b"3", b"4"]
        assert admin.delete_records({tp: -1}) == {tp: 5}


def test_a_topic_limit_is_honoured_by_the_batches(node: Cluster) -> None:
    with Admin(bootstrap_servers=node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name="small", num_partitions=1, configs={"max.message.bytes": "2000"})])
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        futures = [producer.send("small", b"x" * 300) for _ in range(100)]
        assert [future.result(30).offset for future in futures] == list(range(100))
        with pytest.raises(RecordTooLargeError, match=r"the topic's max.message.bytes=2000 \(topic 'small'\)"):
            producer.send("small", b"x" * 3_000)


async def test_the_asyncio_clients_do_the_same(node: Cluster) -> None:
    servers = node.bootstrap_servers
    async with AsyncAdmin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(name="aio", num_partitions=2)])
    async with AsyncProducer(bootstrap_servers=servers) as producer:
        futures = [await producer.send("aio", b"%d" % i, key=b"%d" % (i % 5)) for i in range(2_000)]
        await producer.flush()
        assert all(future.succeeded() for future in futures)
    async with AsyncConsumer(bootstrap_servers=servers, group_id="aio", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["aio"])
        got = []
        async with asyncio.timeout(30):
            async for record in consumer:
                got.append(record.value)
                if len(got) == 2_000:
                    break
        await consumer.commit()
    assert sorted(map(int, got)) == list(range(2_000))


@pytest.mark.slow
def test_a_restart_in_the_middle_is_survived_by_both_sides(tmp_path: Path) -> None:
    """kill -9 and start again, twice, while sending and reading: acknowledged once and in order, nothing missed."""
    with NodeProcess(tmp_path / "node", config={"group.initial.rebalance.delay.ms": "0"}) as process:
        servers = process.start()
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(name="t", num_partitions=1)])
        futures = []
        with (
            Producer(bootstrap_servers=servers, linger_ms=1) as producer,
            Consumer(
                bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=300
            ) as consumer,
        ):
            consumer.subscribe(["t"])
            got: list = []
            for i in range(1_500):
                futures.append(producer.send("t", b"%d" % i))
                time.sleep(0.002)
                if i in (500, 1_000):
                    process.kill9()
                    process.start()
                if i % 50 == 0:
                    for records in consumer.poll(20).values():
                        got += records
            offsets = [future.result(60).offset for future in futures]
            got += take(consumer, 1_500 - len(got), timeout_s=60)
        assert offsets == list(range(1_500))
        assert [r.value for r in got] == [b"%d" % i for i in range(1_500)]


def test_a_producer_creates_its_topic_where_the_node_allows_it(node: Cluster, tmp_path: Path) -> None:
    """auto.create.topics.enable: producers always ask, consumers by their own option, the node decides."""
    config = {"auto.create.topics.enable": "true", "num.partitions": "2"}
    with NodeProcess(tmp_path / "node", config=config) as process:
        servers = process.start()
        with Consumer(bootstrap_servers=servers, group_id="timid") as consumer:
            consumer.subscribe(["new"])
            assert consumer.poll(500) == {}
        with Admin(bootstrap_servers=servers) as admin:
            assert admin.list_topics() == []
        with Producer(bootstrap_servers=servers) as producer:
            assert producer.send("new", b"x").result(20).offset == 0
            assert producer.partitions_for("new") == {0, 1}
        with Consumer(bootstrap_servers=servers, group_id="bold", allow_auto_create_topics=True) as consumer:
            consumer.subscribe(["newer"])
            while len(consumer.assignment()) < 2:
                consumer.poll(100)
    with (
        Producer(bootstrap_servers=node.bootstrap_servers, max_block_ms=500) as producer,
        pytest.raises(UnknownTopicOrPartitionError),
    ):
        producer.send("new", b"x").result(20)


@pytest.mark.slow
def test_a_stopped_node_bounds_every_close(tmp_path: Path) -> None:
    """L01 with SIGSTOP: close(2) of each client returns, and the producer reports what it lost."""
    with NodeProcess(tmp_path / "node") as process:
        servers = process.start()
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(name="t", num_partitions=1)])
        producer = Producer(bootstrap_servers=servers)
        producer.send("t", b"x").result(10)
        consumer = Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
        consumer.subscribe(["t"])
        take(consumer, 1)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            producer.send("t", b"lost")
            started = time.monotonic()
            with pytest.raises(KraftlogError, match=r"1 record\(s\) were not delivered"):
                producer.close(2)
            assert time.monotonic() - started < 3.5
            started = time.monotonic()
            consumer.close(2)
            assert time.monotonic() - started < 3.5
        finally:
            os.kill(process.pid, signal.SIGCONT)


@pytest.mark.slow
def test_no_thread_of_grpc_lives_when_the_process_forks(node: Cluster, topic: str) -> None:
    """Neither asyncio's poller nor one of the core, which end later: a child that is born beside them hangs now and then."""
    script = """
import os, sys
from kraftlog import Producer
from kraftlog.sdk import transport
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=0)
quiet, found = transport.quiet_this_loop, []
async def look(timeout_s):
    is_quiet = await quiet(timeout_s)
    found.append(transport.native_threads() if is_quiet else ["not quiet"])
    return is_quiet
transport.quiet_this_loop = look
for _ in range(15):
    producer.send(sys.argv[2], b"x").result(20)
    assert transport.native_threads(), "else their names are others"
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
producer.close(10)
print(found)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, node.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout == f"{[[]] * 15}\n", done.stderr


@pytest.mark.slow
def test_a_forked_child_works_beside_its_parent(node: Cluster, topic: str) -> None:
    """With real gRPC: the child's clients connect anew, the parent's go on with what was under way."""
    script = """
import os, sys, traceback
from kraftlog import Admin, Consumer, Producer, TopicPartition
servers, topic = sys.argv[1:]
producer = Producer(bootstrap_servers=servers, linger_ms=100)
admin = Admin(bootstrap_servers=servers)
reader = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
reader.assign([TopicPartition(topic, 0)])
producer.send(topic, b"before", partition=0).result(20)
assert next(reader).value == b"before"
future = producer.send(topic, b"parent", partition=0)
child = os.fork()
if child == 0:
    code = 1
    try:
        assert topic in admin.list_topics()
        producer.send(topic, b"child", partition=0).result(20)
        producer.close(10)
        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as own:
            own.assign([TopicPartition(topic, 0)])
            assert next(own).value == b"before"
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
future.result(20)
_, status = os.waitpid(child, 0)
assert status == 0, status
values = sorted(next(reader).value for _ in range(2))
assert values == [b"child", b"parent"], values
producer.close(10); reader.close(10); admin.close()
print("fine")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, node.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout == "fine\n", done.stderr
