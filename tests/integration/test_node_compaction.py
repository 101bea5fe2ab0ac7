"""Compaction in a real node: what it leaves for producers, readers and the group coordinator that start anew."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from kraftlog import AsyncConsumer, TopicPartition
from kraftlog.logstore import Log
from kraftlog.proto import admin_pb2, group_pb2, hotpath
from kraftlog.proto.records import BatchBuilder, Record, decode_records, iter_headers
from kraftlog.sdk.ranges import RangeReader
from kraftlog.server.coordinator.records import GroupMetadataKey, OffsetCommitKey, decode_key
from kraftlog.server.node import Node
from kraftlog.server.seams import SystemClock
from tests.integration.node_harness import RawClient, client_of, produce_request, running_node

pytestmark = pytest.mark.slow

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1500",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "20",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.cleaner.delete.retention.ms": "0",
}
KEY = ("__consumer_offsets", 0)
TIMEOUT_S = 30.0

Committed = Mapping[tuple[str, int], tuple[int, str]]
"""(topic, partition) -> (offset, metadata)"""


class MovableClock(SystemClock):
    """The wall clock, which somebody may set forward."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


def log_of(node: Node, key: tuple[str, int] = KEY) -> Log:
    log = node.partitions[key].log
    assert isinstance(log, Log)
    return log


def batches_of(log: Log) -> bytes:
    found = b""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        records, offset = log.read(offset, 1 << 20, end_offset=end)
        found += records
    return found


def records_of(log: Log) -> list[Record]:
    return decode_records(batches_of(log))


def is_known(log: Log, key: OffsetCommitKey | GroupMetadataKey) -> bool:
    """Whether the log says anything about it, if only that it is gone."""
    return any(record.key is not None and decode_key(record.key) == key for record in records_of(log))


async def commit(client: RawClient, group: str, topic: str, partition: int, offset: int) -> None:
    request = group_pb2.OffsetCommitRequest(
        group_id=group,
        generation_id=-1,
        partitions=[
            group_pb2.OffsetCommitPartition(
                topic=topic, partition=partition, offset=offset, leader_epoch=-1, metadata=f"at {offset}"
            )
        ],
    )
    [result] = (await client.call("Group/OffsetCommit", request, group_pb2.OffsetCommitResponse)).partitions
    assert result.error_code == 0, result.error_message


async def committed(client: RawClient, group: str) -> Committed:
    request = group_pb2.OffsetFetchRequest(group_id=group, all_partitions=True)
    response = await client.call("Group/OffsetFetch", request, group_pb2.OffsetFetchResponse)
    assert response.error_code == 0, response.error_message
    return {(each.topic, each.partition): (each.offset, each.metadata) for each in response.partitions}


async def test_commits_are_compacted_and_what_was_forgotten_leaves_the_log(tmp_path: Path) -> None:
    """Hundreds of commits, a group that expires, a topic that is deleted: their tombstones too leave the log. What a
    restarted coordinator finds over the gaps is exactly what was committed last."""
    clock = MovableClock()
    groups = ["billing", "shipping", "search"]
    expected: dict[str, dict[tuple[str, int], tuple[int, str]]] = {group: {} for group in groups}
    async with running_node(tmp_path, CONFIG, clock=clock) as node, client_of(node) as client:
        await client.create_topic("orders", 4)
        await client.create_topic("doomed")
        find = group_pb2.FindCoordinatorRequest(key="billing")
        await client.call("Group/FindCoordinator", find, group_pb2.FindCoordinatorResponse)
        await commit(client, "retired", "orders", 0, 7)
        await commit(client, "billing", "doomed", 0, 8)
        clock.ahead_ms = 3_600_000
        for number in range(300):
            group, partition = groups[number % 3], number % 4
            await commit(client, group, "orders", partition, number)
            expected[group]["orders", partition] = (number, f"at {number}")
        await client.call(
            "Admin/DeleteTopics", admin_pb2.DeleteTopicsRequest(names=["doomed"]), admin_pb2.DeleteTopicsResponse
        )
        gone = [
            OffsetCommitKey("retired", "orders", 0),
            GroupMetadataKey("retired"),
            OffsetCommitKey("billing", "doomed", 0),
        ]
        log, number, deadline = log_of(node), 300, time.monotonic() + TIMEOUT_S
        while any(is_known(log, key) for key in gone) or len(records_of(log)) > 50:
            assert time.monotonic() < deadline, [(r.offset, decode_key(r.key or b""), r.value) for r in records_of(log)]
            await commit(client, "search", "orders", 0, number)  # so that the records before are in closed segments
            expected["search"]["orders", 0] = (number, f"at {number}")
            number += 1
        assert log.log_start_offset == 0, "compaction only makes gaps"
        assert log.log_end_offset > 300
        headers = [header for _, header in iter_headers(batches_of(log))]
        assert [header for header in headers if header.record_count == 0], "an empty batch for the coordinator to pass"
        assert {group: await committed(client, group) for group in groups} == expected
    for _ in range(2):
        async with running_node(tmp_path, CONFIG, clock=clock) as node, client_of(node) as client:
            assert {group: await committed(client, group) for group in groups} == expected
            assert await committed(client, "retired") == {}
            listed = await client.call("Group/ListGroups", group_pb2.ListGroupsRequest(), group_pb2.ListGroupsResponse)
            assert sorted(each.group_id for each in listed.groups) == sorted(groups)
            await commit(client, "billing", "orders", 0, 10_000)
            expected["billing"]["orders", 0] = (10_000, "at 10000")


def write(producer_id: int, sequence: int, padding: bytes = b"") -> hotpath.ProduceRequest:
    """One record of the only key."""
    builder = BatchBuilder()
    builder.append(SystemClock().wall_ms(), b"key", b"%d" % sequence + padding)
    return produce_request("orders", builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))


async def test_empty_batches_keep_sequences_and_hold_up_no_reader(tmp_path: Path) -> None:
    """C03: the batches of 20 producers are superseded by another one's. The last of each stays, without its record: after
    a restart its repetition is answered with the old offset and the producer goes on. Readers get over answers with
    nothing else in them."""
    config = {"log.cleaner.backoff.ms": "10"}
    async with running_node(tmp_path, config) as node, client_of(node) as client:
        await client.create_topic(
            "orders", cleanup_policy="compact", segment_bytes="200", min_cleanable_dirty_ratio="0"
        )
        for sequence in range(5):
            assert (await client.produce(write(0, sequence))).base_offset == sequence
        for producer_id in range(1, 20):
            await client.produce(write(producer_id, 0))
        for sequence in range(2):  # a batch fills a segment more than by half: the last one is in the growing segment
            await client.produce(write(20, sequence, padding=b"-" * 100))
        log, deadline = log_of(node, ("orders", 0)), time.monotonic() + TIMEOUT_S
        while len(decode_records(batches_of(log))) > 2:
            assert time.monotonic() < deadline
            await asyncio.sleep(0)
        empty = {header.producer_id: header for _, header in iter_headers(batches_of(log)) if not header.record_count}
        assert {number: empty[number].last_offset for number in range(20)} == {0: 4, **{n: n + 4 for n in range(1, 20)}}
    async with running_node(tmp_path, {"log.cleaner.enable": "false"}) as node, client_of(node) as client:
        for producer_id, offset in ((0, 4), (7, 11)):
            last = 4 if producer_id == 0 else 0
            assert (await client.produce(write(producer_id, last))).base_offset == offset
            assert (await client.produce(write(producer_id, last + 1))).error_code == 0
        log = log_of(node, ("orders", 0))
        left = [record.offset for record in decode_records(batches_of(log))]
        assert left == [24, 25, 26, 27], "the two of the last producer, and two that were accepted after the restart"
        tp = TopicPartition("orders", 0)
        for fetch_bytes in (1, 150, 1 << 20):
            options = {"bootstrap_servers": node.address, "max_partition_fetch_bytes": fetch_bytes}
            async with AsyncConsumer(auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
                consumer.assign([tp])
                for as_arrow in (False, True):
                    consumer.seek(tp, 0)
                    found: list[int] = []
                    async with asyncio.timeout(TIMEOUT_S):
                        while await consumer.position(tp) < log.log_end_offset:
                            if as_arrow:
                                found += (await consumer.poll_arrow(200)).column("offset").to_pylist()
                            else:
                                found += [record.offset for record in (await consumer.poll(200)).get(tp, ())]
                    assert found == left
            assert await asyncio.to_thread(read_range, options, 0, log.log_end_offset) == left
            assert await asyncio.to_thread(read_range, options, 3, 20) == []


def read_range(options: Mapping[str, object], start: int, end: int) -> list[int]:
    with RangeReader(options, columns=["offset"]) as reader:
        return [offset for batch in reader.read([("orders", 0, start, end)]) for offset in batch["offset"].to_pylist()]
