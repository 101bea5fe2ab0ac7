"""`__consumer_offsets` on a real node: compaction leaves what the coordinator needs, and nothing of what it forgot."""

import time
from collections.abc import Mapping
from pathlib import Path

from kraftlog.logstore import Log
from kraftlog.proto import admin_pb2, group_pb2
from kraftlog.proto.records import Record, decode_records, iter_headers
from kraftlog.server.coordinator.records import GroupMetadataKey, OffsetCommitKey, decode_key
from kraftlog.server.node import Node
from kraftlog.server.seams import SystemClock
from tests.integration.node_harness import RawClient, client_of, running_node

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


def log_of(node: Node) -> Log:
    log = node.partitions[KEY].log
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
