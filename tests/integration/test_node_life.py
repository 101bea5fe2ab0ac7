"""The life of a node: restart finds everything, stop answers who waits, and mistakes are one clear line."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from kraftlog.kraft.snapshot import SnapshotId, decode_snapshot
from kraftlog.logstore import Log
from kraftlog.logstore.observer import SilentObserver
from kraftlog.proto import admin_pb2, broker_pb2, group_pb2, hotpath
from kraftlog.proto.errors import BrokerNotAvailableError, ErrorCode, KraftlogError, NetworkError
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC
from kraftlog.proto.properties import format_properties
from kraftlog.proto.seams import CallContext, Handlers, Payload
from kraftlog.server.seams import ThreadExecutor
from kraftlog.testing.filesystem import SimFileSystem
from tests.integration.node_harness import (
    CapturingNetwork,
    batch,
    client_of,
    format_directory,
    latest,
    make_node,
    position,
    produce_request,
    running_node,
    values_of,
)


async def test_metadata_starts_from_snapshots(tmp_path: Path) -> None:
    """On a real disk: two of Kafka's checkpoint files beside the metadata log, and the next start has all topics."""
    path, often = tmp_path / "data", {"metadata.log.max.record.bytes.between.snapshots": "400"}
    names = [f"topic-{n}" for n in range(12)]
    for _ in range(2):
        async with running_node(path, often) as node, client_of(node) as client:
            for name in names:
                if (name, 0) not in node.partitions:
                    await client.create_topic(name)
            await client.call("Broker/ListOffsets", latest(names[-1]), broker_pb2.ListOffsetsResponse)
            assert {name for name, _ in node.partitions} >= set(names)
    checkpoints = sorted((path / f"{CLUSTER_METADATA_TOPIC}-0").glob("*.checkpoint"))
    assert len(checkpoints) in (2, 3), "the oldest goes when the stop leaves time for it"
    for each in checkpoints:
        snapshot_id = SnapshotId.parse(each.name)
        assert snapshot_id is not None
        assert decode_snapshot(each.read_bytes(), snapshot_id).image.offset == snapshot_id.end_offset - 1
    assert set(decode_snapshot(each.read_bytes(), snapshot_id).image.topics) >= set(names)
    command = [sys.executable, "-m", "kraftlog.sdk.cli.main", "log", "verify", str(path)]
    verified = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


async def test_idle_records_expire_and_stay_gone(tmp_path: Path) -> None:
    """K03 on a whole node: one record, then nothing; the periodic check rolls and deletes it, and forgets its producer."""
    often = {
        "log.retention.check.interval.ms": "10",
        "producer.id.expiration.check.interval.ms": "10",
        "producer.id.expiration.ms": "1",
    }
    earliest = latest("orders", timestamp=-2)
    first = batch(b"a", producer_id=0, producer_epoch=0, base_sequence=0)
    async with running_node(tmp_path / "data", often) as node, client_of(node) as client:
        await client.create_topic("orders", retention_ms="1")
        await client.produce(produce_request("orders", first))
        offset, producers = 0, 1
        while offset == 0 or producers:
            answer = await client.call("Broker/ListOffsets", earliest, broker_pb2.ListOffsetsResponse)
            offset = answer.partitions[0].offset
            producers = len(cast(Log, node.partitions["orders", 0].log).producers.entries)
        assert offset == 1
        again = await client.produce(produce_request("orders", first))
        assert again.base_offset == 1, "the producer is forgotten: a repetition is a new batch"
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        answer = await client.call("Broker/ListOffsets", earliest, broker_pb2.ListOffsetsResponse)
        assert answer.partitions[0].offset >= 1


async def test_an_observer_hears_what_the_log_store_does(tmp_path: Path) -> None:
    """Appends and flushes of users' topics and of the node's own, in whatever thread they happen."""
    heard: list[tuple[str, str, int]] = []

    class Listener(SilentObserver):
        def seconds(self) -> float:
            return time.monotonic()

        def on_append(self, topic: str, partition: int, batches: int, records: int, size_bytes: int) -> None:
            heard.append(("append", topic, records))

        def on_flush(self, topic: str, partition: int, seconds: float, records: int) -> None:
            assert seconds > 0
            heard.append(("flush", topic, records))

    async with running_node(tmp_path / "data", log_observer=Listener()) as node, client_of(node) as client:
        await client.create_topic("orders")
        await client.produce(produce_request("orders", batch(b"a", b"b", b"c")))
    assert [call for call in heard if call[1] == "orders"] == [("append", "orders", 3), ("flush", "orders", 3)]
    assert any(call[1] == CLUSTER_METADATA_TOPIC for call in heard)


async def test_a_second_start_finds_everything(tmp_path: Path) -> None:
    """Topics with their ids and configs, records, producer state and committed offsets survive an orderly restart."""
    group = group_pb2.FindCoordinatorRequest(key="readers")
    commit = group_pb2.OffsetCommitRequest(
        group_id="readers",
        generation_id=-1,
        partitions=[group_pb2.OffsetCommitPartition(topic="orders", partition=0, offset=2, leader_epoch=-1)],
    )
    fetch = group_pb2.OffsetFetchRequest(
        group_id="readers", partitions=[group_pb2.GroupTopicPartition(topic="orders", partition=0)]
    )
    first = batch(b"a", b"b", producer_id=0, producer_epoch=0, base_sequence=0)
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        created = await client.create_topic("orders", partitions=2, retention_ms="1234")
        await client.produce(produce_request("orders", first))
        await client.produce(produce_request("orders", batch(b"z"), partition=1))
        found = await client.call("Group/FindCoordinator", group, group_pb2.FindCoordinatorResponse)
        assert (found.error_code, f"{found.host}:{found.port}") == (0, node.address)
        committed = await client.call("Group/OffsetCommit", commit, group_pb2.OffsetCommitResponse)
        assert [part.error_code for part in committed.partitions] == [0]
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        topics = await client.call(
            "Admin/DescribeTopics", admin_pb2.DescribeTopicsRequest(names=["orders"]), admin_pb2.DescribeTopicsResponse
        )
        [topic] = topics.topics
        assert (topic.topic_id, dict(topic.configs), len(topic.partitions)) == (
            created.topic_id,
            {"retention.ms": "1234"},
            2,
        )
        assert all(part.leader_id == 1 and list(part.in_sync_replicas) == [1] for part in topic.partitions)
        again = await client.produce(produce_request("orders", first))
        assert (again.error_code, again.base_offset) == (0, 0)
        [chunk] = (await client.fetch(hotpath.FetchRequest(partitions=[position("orders")]))).partitions
        assert values_of(chunk) == [b"a", b"b"]
        found = await client.call("Group/FindCoordinator", group, group_pb2.FindCoordinatorResponse)
        assert found.error_code == 0
        while True:
            offsets = await client.call("Group/OffsetFetch", fetch, group_pb2.OffsetFetchResponse)
            if offsets.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                break
        assert [part.offset for part in offsets.partitions] == [2]


async def test_a_deleted_topic_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    """Deletion removes the records; a topic of the same name starts at offset 0 with another id."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        first = await client.create_topic("orders")
        await client.produce(produce_request("orders", batch(b"a")))
        stream = client.stream("FetchStream")
        control = hotpath.FetchControl(params=hotpath.FetchRequest(), set=[position("orders", 1)], credit_bytes=1 << 20)
        await stream.send(hotpath.encode(control))
        deleted = await client.call(
            "Admin/DeleteTopics", admin_pb2.DeleteTopicsRequest(names=["orders"]), admin_pb2.DeleteTopicsResponse
        )
        assert deleted.topics[0].error_code == 0
        message = await stream.receive()
        assert message is not None
        [chunk] = hotpath.decode_fetch_chunk(message).partitions
        assert chunk.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refused = await client.produce(produce_request("orders", batch(b"b")))
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        second = await client.create_topic("orders")
        assert (second.error_code, second.topic_id != first.topic_id) == (0, True)
        answer = await client.produce(produce_request("orders", batch(b"c")))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        await stream.finish()


async def test_a_stop_answers_those_who_wait(tmp_path: Path) -> None:
    """Long polls get what there is, streams end with a retriable error after all answers, new requests are refused."""
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders", partitions=2)
        idle = position("orders", partition=1)
        poll = hotpath.FetchRequest(max_wait_ms=60_000, min_bytes=1, partitions=[idle])
        waiting = asyncio.create_task(client.fetch(poll))
        fetch = client.stream("FetchStream")
        control = hotpath.FetchControl(params=hotpath.FetchRequest(), set=[position("orders")], credit_bytes=1 << 20)
        await fetch.send(hotpath.encode(control))
        produce = client.stream("ProduceStream")
        await produce.send(hotpath.encode(produce_request("orders", batch(b"x"), correlation_id=3)))
        received = await fetch.receive()
        assert received is not None
        stopping = asyncio.create_task(node.stop())
        answer = await produce.receive()
        assert answer is not None
        assert hotpath.decode_produce_response(answer).correlation_id == 3
        for stream in (produce, fetch):
            with pytest.raises((BrokerNotAvailableError, NetworkError)):
                await stream.receive()
        [chunk] = (await waiting).partitions
        assert chunk.error_code == 0
        await stopping
        with pytest.raises(KraftlogError) as caught:
            await client.produce(produce_request("orders", batch(b"y")))
        assert caught.value.retriable


async def test_requests_wait_for_the_start_and_are_refused_after_the_stop(tmp_path: Path) -> None:
    """The listener is open before the broker is registered: an early request gets the answer of a ready node."""
    path = tmp_path / "data"
    format_directory(path)
    request = broker_pb2.MetadataRequest().SerializeToString()
    early: list[asyncio.Task[Payload]] = []

    def on_serve(handlers: Handlers) -> None:
        call = handlers.unary["/kraftlog.v1.Broker/Metadata"](request, CallContext())
        early.append(asyncio.ensure_future(call))

    network = CapturingNetwork(on_serve)
    executor = ThreadExecutor(1)
    node = make_node(path, executor, network=network)
    await node.start()
    [task] = early
    answer = broker_pb2.MetadataResponse.FromString(bytes(cast(bytes, await task)))
    assert [(broker.node_id, broker.fenced) for broker in answer.brokers] == [(1, False)]
    await node.stop()
    with pytest.raises(BrokerNotAvailableError):
        await network.handlers.unary["/kraftlog.v1.Broker/Metadata"](request, CallContext())
    assert await network.handlers.unary["/grpc.health.v1.Health/Check"](b"", CallContext()) == b"\x08\x02"
    executor.close()


async def test_topics_are_created_on_first_use_only_if_told(tmp_path: Path) -> None:
    """auto.create.topics.enable is off by default: a misspelt name makes no topic."""
    internal = ["__consumer_offsets", "__cluster_metadata"]
    request = broker_pb2.MetadataRequest(topics=["orders", "a/b", *internal], allow_auto_topic_creation=True)
    for enabled, code in (("false", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("true", ErrorCode.NONE)):
        more = {"auto.create.topics.enable": enabled, "num.partitions": "3"}
        async with running_node(tmp_path / enabled, more) as node, client_of(node) as client:
            response = await client.call("Broker/Metadata", request, broker_pb2.MetadataResponse)
            assert [topic.error_code for topic in response.topics] == [
                code,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert len(response.topics[0].partitions) == (3 if enabled == "true" else 0)


async def test_the_cluster_describes_itself(tmp_path: Path) -> None:
    """Cluster id, controller, the node with its bound port, config sources, health."""
    async with running_node(tmp_path / "data", {"flush.policy": "interval"}) as node, client_of(node) as client:
        cluster = await client.call(
            "Admin/DescribeCluster", admin_pb2.DescribeClusterRequest(), admin_pb2.DescribeClusterResponse
        )
        assert (cluster.cluster_id, cluster.controller_id) == ("test-cluster", 1)
        assert [f"{each.host}:{each.port}" for each in cluster.nodes] == [node.address]
        assert 0 < cluster.metadata_high_watermark <= cluster.metadata_log_end_offset
        await client.create_topic("orders", retention_ms="5")
        resources = [
            admin_pb2.ConfigResource(type=2, name="orders"),
            admin_pb2.ConfigResource(type=4, name="1"),
            admin_pb2.ConfigResource(type=2, name="absent"),
            admin_pb2.ConfigResource(type=4, name="9"),
            admin_pb2.ConfigResource(type=7, name="x"),
        ]
        described = await client.call(
            "Admin/DescribeConfigs",
            admin_pb2.DescribeConfigsRequest(resources=resources),
            admin_pb2.DescribeConfigsResponse,
        )
        topic = {entry.name: (entry.value, entry.source) for entry in described.resources[0].entries}
        assert topic["retention.ms"] == ("5", "topic")
        assert topic["flush.policy"] == ("interval", "broker")
        assert topic["cleanup.policy"] == ("delete", "default")
        broker = {entry.name: (entry.value, entry.source) for entry in described.resources[1].entries}
        assert broker["node.id"] == ("1", "default")
        assert [resource.error_code for resource in described.resources] == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.RESOURCE_NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
        ]
        health = await client.channel.unary("/grpc.health.v1.Health/Check", b"", timeout_ms=5000)
        assert health == b"\x08\x01"


async def test_a_failed_disk_is_told_and_ends_the_node(tmp_path: Path) -> None:
    """EIO at fdatasync: the write is refused, nothing later is acknowledged, and the process is told to stop."""
    fs = SimFileSystem()
    async with running_node(Path("/data"), fs=fs) as node, client_of(node) as client:
        await client.create_topic("orders")
        assert (await client.produce(produce_request("orders", batch(b"a")))).error_code == 0
        fs.fail("fdatasync", path_part="orders-0")
        refused = await client.produce(produce_request("orders", batch(b"b")))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0" in refused.error_message
        fs.heal()
        again = await client.produce(produce_request("orders", batch(b"c"), acks=1))
        assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0" in str(await asyncio.wait_for(node.wait_failed(), 5))
    assert ".kafka_cleanshutdown" not in fs.listdir("/data")


@pytest.mark.parametrize("operation", ["pread", "pwritev", "create"])
async def test_a_disk_that_cannot_be_read_or_written_takes_every_partition_offline(operation: str) -> None:
    """EIO at a fetch, a lookup by time, an append or a roll. As in Kafka the directory fails, with all that is in it."""
    fs = SimFileSystem()
    small = {"log.segment.bytes": "1048576"}
    async with running_node(Path("/data"), small, fs=fs) as node, client_of(node) as client:
        for topic in ("orders", "others"):
            await client.create_topic(topic)
            assert (await client.produce(produce_request(topic, batch(bytes(900_000))))).error_code == 0
        fs.fail(operation, path_part="orders-0", times=1000)
        if operation == "pread":
            request = hotpath.FetchRequest(partitions=[position("orders")], max_wait_ms=10, max_bytes=1000)
            [refused] = (await client.fetch(request)).partitions
            looked_up = await client.call(
                "Broker/ListOffsets", latest("orders", timestamp=1), broker_pb2.ListOffsetsResponse
            )
            assert looked_up.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        else:
            refused = await client.produce(produce_request("orders", batch(bytes(900_000))))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-0" in refused.error_message
        assert "Input/output error" in refused.error_message
        assert "Input/output error" in str(await asyncio.wait_for(node.wait_failed(), 5))
        fs.heal()
        for topic in ("orders", "others"):
            again = await client.produce(produce_request(topic, batch(b"c"), acks=1))
            assert again.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert ".kafka_cleanshutdown" not in fs.listdir("/data")
    fs.kill()
    async with running_node(Path("/data"), fs=fs) as node, client_of(node) as client:
        answer = await client.call("Broker/ListOffsets", latest("orders"), broker_pb2.ListOffsetsResponse)
        assert answer.partitions[0].offset == 1


async def test_a_full_disk_refuses_records_serves_reads_and_takes_records_again() -> None:
    """ENOSPC is an answer, also where only a state file has no room: nothing goes offline, the same request works later."""
    fs = SimFileSystem()
    async with running_node(Path("/data"), fs=fs) as node, client_of(node) as client:
        await client.create_topic("orders")
        assert (await client.produce(produce_request("orders", batch(b"a")))).error_code == 0
        fs.capacity_bytes = 0
        large = produce_request("orders", batch(bytes(100_000)))
        for acks in (-1, 1):
            refused = await client.produce(produce_request("orders", batch(bytes(100_000)), acks=acks))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "disk full; free space" in refused.error_message
        assert (await client.create_topic("others")).error_code == 0, "there is room for that in the metadata log"
        assert ("others", 0) not in node.partitions
        request = hotpath.FetchRequest(partitions=[position("orders")], max_wait_ms=10, max_bytes=1000)
        [chunk] = (await client.fetch(request)).partitions
        assert (chunk.error_code, values_of(chunk)) == (0, [b"a"])
        fs.capacity_bytes = None
        taken = await client.produce(large)
        assert (taken.error_code, taken.base_offset) == (0, 1)
        assert node.partitions["orders", 0].failure is None
        others = produce_request("others", batch(b"b"))
        while (await client.produce(others)).error_code:  # it is made a second later
            assert node.partitions["orders", 0].failure is None
    assert ".kafka_cleanshutdown" in fs.listdir("/data")


async def test_streams_that_end_leave_nothing_behind(tmp_path: Path) -> None:
    """Clients that come and go, in order or not: no subscription, no waiting request and no task stays."""
    async with running_node(tmp_path / "data") as node:
        async with client_of(node) as client:
            await client.create_topic("orders")
        idle = asyncio.all_tasks()
        for number in range(30):
            async with client_of(node) as client:
                fetch = client.stream("FetchStream")
                control = hotpath.FetchControl(
                    params=hotpath.FetchRequest(), set=[position("orders")], credit_bytes=1 << 20
                )
                await fetch.send(hotpath.encode(control))
                produce = client.stream("ProduceStream")
                await produce.send(hotpath.encode(produce_request("orders", batch(b"x"))))
                assert await produce.receive() is not None
                assert await fetch.receive() is not None
                if number % 3 == 0:
                    await fetch.finish()
                    await produce.finish()
                elif number % 3 == 1:
                    fetch.cancel()
        tasks = [task for task in asyncio.all_tasks() - idle if "_request_call" not in repr(task)]
        if tasks:  # all but the one with which grpc waits for the next call
            _, left = await asyncio.wait(tasks, timeout=10)
            assert not left
        assert node.waiting_requests == 0


class Process:
    """A node process whose output is kept."""

    def __init__(self, directory: Path, **more: str) -> None:
        pairs = {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory / "data"),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        self.config = directory / "server.properties"
        self.config.write_text(format_properties(pairs))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kraftlog.server.main", "--config", str(self.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ready_address(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("kraftlog node 1 ready on "), line
        return line.split()[-1]

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """(exit code, rest of stdout, stderr); sends a signal first if one is given."""
        if number is not None:
            self.process.send_signal(number)
        try:
            out, err = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_process_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """One READY line, exit code 0, the clean-shutdown marker, and the next start is clean."""
    format_directory(tmp_path / "data")
    for _ in range(2):
        process = Process(tmp_path)
        process.ready_address()
        code, out, err = process.end(number)
        assert (code, out) == (0, "")
        assert "Traceback" not in err
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.processes
def test_no_thread_keeps_a_stopped_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC's may do that: once the logs are closed, the process ends without waiting for any."""
    code = "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    format_directory(tmp_path / "data")
    process = Process(tmp_path)
    process.ready_address()
    assert process.end(signal.SIGTERM)[:2] == (0, "")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert "num.partitons" in one_error(Process(tmp_path, num_partitons="3"))


def one_error(process: Process) -> str:
    """The only line that starts with the program's name; no traceback, exit code 1, nothing on stdout."""
    code, out, err = process.end()
    assert (code, out) == (1, "")
    assert "Traceback" not in err
    [line] = [line for line in err.splitlines() if line.startswith("kraftlog: error: ")]
    return line.removeprefix("kraftlog: error: ")


@pytest.mark.processes
def test_mistakes_are_one_clear_line(tmp_path: Path) -> None:
    """A directory that is absent, foreign or in use, a taken port, an unknown key: cause, place and next step."""
    data = tmp_path / "data"
    assert "does not exist: run kraftctl storage format" in one_error(Process(tmp_path))
    data.mkdir()
    assert "is not a log dir of kraftlog" in one_error(Process(tmp_path))
    format_directory(data)
    assert "belongs to cluster 'test-cluster', not to 'other'" in one_error(Process(tmp_path, cluster_id="other"))
    assert "belongs to node '1', not to node 2" in one_error(Process(tmp_path, node_id="2"))
    assert "did you mean 'num.partitions'?" in one_error(Process(tmp_path, num_partitons="3"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = one_error(Process(tmp_path, listeners=f"PLAINTEXT://{address}"))
        assert address in line
        assert "in use" in line
    running = Process(tmp_path)
    running.ready_address()
    try:
        assert "is in use by another process" in one_error(Process(tmp_path))
    finally:
        assert running.end(signal.SIGTERM)[0] == 0


@pytest.mark.processes
def test_a_missing_configuration_is_one_clear_line(tmp_path: Path) -> None:
    """The file is named."""
    process = Process(tmp_path)
    process.end()
    os.unlink(process.config)
    again = subprocess.run(
        [sys.executable, "-m", "kraftlog.server.main", "--config", str(process.config)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert again.returncode == 1
    assert again.stderr.startswith(f"kraftlog: error: {process.config}: cannot read the configuration")


async def test_a_bad_request_is_refused_and_a_good_one_follows(tmp_path: Path) -> None:
    """Malformed bytes, unknown topics, bad names, oversized and damaged batches: each is named, none harms the next."""
    good = produce_request("orders", batch(b"good"))
    damaged = bytearray(batch(b"bad" * 10))
    damaged[-1] ^= 1
    cases: list[tuple[hotpath.ProduceRequest, ErrorCode]] = [
        (produce_request("absent", batch(b"x")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request("orders", batch(b"x"), partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request("orders", batch(b"x"), partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request("../x", batch(b"x")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (produce_request("__consumer_offsets", batch(b"x")), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (produce_request("orders", bytes(damaged)), ErrorCode.CORRUPT_MESSAGE),
        (produce_request("orders", b"nonsense"), ErrorCode.CORRUPT_MESSAGE),
        (produce_request("orders", b""), ErrorCode.CORRUPT_MESSAGE),
        (produce_request("orders", batch(b"x")[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (produce_request("orders", batch(bytes(2 << 20))), ErrorCode.MESSAGE_TOO_LARGE),
    ]
    async with running_node(tmp_path / "data") as node, client_of(node) as client:
        await client.create_topic("orders")
        offset = 0
        for request, code in cases:
            refused = await client.produce(request)
            assert refused.error_code == code, refused.error_message
            assert "\n" not in refused.error_message
            answer = await client.produce(good)
            assert (answer.error_code, answer.base_offset) == (0, offset)
            offset += 1
        for method in ("Broker/Produce", "Broker/Fetch", "Broker/Metadata", "Group/JoinGroup", "Admin/CreateTopics"):
            with pytest.raises(KraftlogError) as caught:
                await client.channel.unary("/kraftlog.v1." + method, b"\xff\xff\xff", timeout_ms=5000)
            assert caught.value.code == ErrorCode.INVALID_REQUEST
        request = produce_request("orders", batch(b"x"), acks=5)
        with pytest.raises(KraftlogError) as caught:
            await client.produce(request)
        assert caught.value.code == ErrorCode.INVALID_REQUIRED_ACKS
        flood = hotpath.ProduceRequest(acks=1, partitions=[hotpath.PartitionRecords("orders", 0)] * 10_001)
        with pytest.raises(KraftlogError, match="10001 partitions in one request exceed the limit"):
            await client.produce(flood)
        for name in ("..", "a/b", "", "x" * 250, "__consumer_offsets"):
            created = await client.create_topic(name)
            assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown_config = await client.create_topic("other", retentoin_ms="5")
        assert unknown_config.error_code == ErrorCode.INVALID_CONFIG
        assert "retention.ms" in unknown_config.error_message
        response = await client.call("Broker/ListOffsets", latest("orders"), broker_pb2.ListOffsetsResponse)
        assert response.partitions[0].offset == offset
