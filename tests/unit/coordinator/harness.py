"""A coordinator on virtual time over a log in memory whose commits the test controls."""

import asyncio
import itertools
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import KraftlogError, NotLeaderOrFollowerError, RecordTooLargeError
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.records import decode_records, iter_headers, rewrite_header
from kraftlog.proto.seams import CallContext
from kraftlog.server.coordinator import GroupConfig, GroupCoordinator
from kraftlog.server.coordinator.records import CoordinatorRecord, decode_group_metadata, decode_key
from kraftlog.server.coordinator.shard import GroupShard
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import run_virtual

T = TypeVar("T")
PARTITIONS = 1
CONTEXT = CallContext(peer="ipv4:127.0.0.1:50000")


@dataclass(frozen=True)
class Read:
    records: bytes
    next_offset: int


class FakeLog:
    """Partitions of `__consumer_offsets` as lists of batches. `hold()` stops commits until `release()`."""

    def __init__(self, *, max_batch_bytes: int = 1_000_000) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.max_batch_bytes = max_batch_bytes
        self.append_error: KraftlogError | None = None
        self.commit_delay_ms = 0.0
        self._held = False
        self._truncations = 0
        self._committed: dict[int, int] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def append(self, topic: str, partition: int, records: bytes) -> int:
        assert topic == CONSUMER_OFFSETS_TOPIC
        if self.append_error is not None:
            raise self.append_error
        if len(records) > self.max_batch_bytes:
            raise RecordTooLargeError(f"batch of {len(records)} bytes exceeds max.message.bytes={self.max_batch_bytes}")
        (position, header), *more = iter_headers(records)
        assert position == 0
        assert not more, "one operation is one batch"
        batch = bytearray(records)
        base_offset = self.log_end_offset(topic, partition)
        rewrite_header(batch, 0, base_offset=base_offset, leader_epoch=0)
        self.batches.setdefault(partition, []).append(bytes(batch))
        self.ends[partition] = base_offset + header.record_count
        if not self._held:
            if self.commit_delay_ms:
                loop = asyncio.get_running_loop()
                loop.call_later(
                    self.commit_delay_ms / 1000, self._commit, partition, self.ends[partition], self._truncations
                )
            else:
                self._commit(partition, self.ends[partition])
        return self.ends[partition] - 1

    async def wait_committed(self, topic: str, partition: int, offset: int) -> None:
        if self._committed.get(partition, 0) > offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((partition, offset, future))
        await future

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Read:
        taken: list[bytes] = []
        next_offset = offset
        for batch in self.batches.get(partition, []):
            ((_, header),) = iter_headers(batch)
            if header.next_offset <= offset:
                continue
            if taken and sum(map(len, taken)) + len(batch) > max_bytes:
                break
            taken.append(batch)
            next_offset = header.next_offset
        return Read(b"".join(taken), next_offset)

    def log_start_offset(self, topic: str, partition: int) -> int:
        return 0

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self.ends.get(partition, 0)

    # What a test does ------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        for partition, end in self.ends.items():
            self._commit(partition, end)

    def fail_waiters(self, error: KraftlogError | None = None) -> None:
        """Leadership is lost under who waits."""
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(error or NotLeaderOrFollowerError("no longer the leader"))

    def truncate_uncommitted(self) -> None:
        """What a fail-over does to batches that never were committed."""
        self._truncations += 1
        for partition, batches in self.batches.items():
            committed = self._committed.get(partition, 0)
            kept = [batch for batch in batches if next(iter_headers(batch))[1].next_offset <= committed]
            self.batches[partition] = kept
            self.ends[partition] = committed

    def records(self, partition: int = 0) -> list[CoordinatorRecord]:
        return [record for batch in self.batches.get(partition, []) for record in batch_records(batch)]

    def committed_batches(self, partition: int = 0, skip: int = 0) -> list[bytes]:
        """The batches that are committed, without the first `skip` of them."""
        end = self._committed.get(partition, 0)
        batches = self.batches.get(partition, [])[skip:]
        return list(itertools.takewhile(lambda batch: next(iter_headers(batch))[1].next_offset <= end, batches))

    def shard(self, config: GroupConfig, partition: int = 0) -> GroupShard:
        """What a restart makes of the log."""
        shard = GroupShard(config)
        for record in self.records(partition):
            shard.replay(record)
        return shard

    def generations(self, group_id: str = "g") -> list[tuple[int, dict[str, bytes]]]:
        """The generations that were written, with their assignments."""
        found = []
        for record in self.records():
            if getattr(decode_key(record.key), "topic", None) is None and record.value is not None:
                value = decode_group_metadata(record.value)
                found.append((value.generation_id, {m.member_id: m.assignment for m in value.members}))
        return found

    def _commit(self, partition: int, end: int, truncations: int | None = None) -> None:
        if self._held or truncations not in (None, self._truncations):
            return
        self._committed[partition] = max(end, self._committed.get(partition, 0))
        for waiter in list(self._waiters):
            waiting_partition, offset, future = waiter
            if waiting_partition == partition and offset < self._committed[partition]:
                self._waiters.remove(waiter)
                if not future.done():
                    future.set_result(None)


def batch_records(batch: bytes) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(record.key or b"", record.value) for record in decode_records(batch)]


class Node:
    """One coordinator with all partitions, and short forms of its requests."""

    def __init__(self, *, log: FakeLog | None = None, seed: int = 1, **config: int) -> None:
        self.log = log or FakeLog()
        self.config = GroupConfig(**config)
        self.clock = SimClock(asyncio.get_running_loop())
        self.coordinator = GroupCoordinator(
            config=self.config,
            log=self.log,
            clock=self.clock,
            random=random.Random(seed),
            node_id=1,
            partition_count=lambda: PARTITIONS,
        )
        self.epoch = 0

    async def start(self) -> "Node":
        await self.coordinator.start()
        self.elect()
        await self.coordinator.wait_loaded()
        return self

    def elect(self) -> None:
        self.epoch += 1
        self.coordinator.on_elected(0, self.epoch)

    async def fail_over(self) -> None:
        """Resign and load again, as another node would."""
        self.coordinator.on_resigned(0)
        self.elect()
        await self.coordinator.wait_loaded()

    async def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance: str = "",
        protocols: dict[str, bytes] | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        client_id: str = "client",
        protocol_type: str = "consumer",
    ) -> group_pb2.JoinGroupResponse:
        request = group_pb2.JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            client_id=client_id,
            protocols=[
                group_pb2.GroupProtocol(name=name, metadata=metadata)
                for name, metadata in ({"range": b"topics"} if protocols is None else protocols).items()
            ],
        )
        return await self.coordinator.join_group(request, CONTEXT)

    async def new_member_id(self, **options: Any) -> str:
        response = await self.join(**options)
        assert response.error_code == 79, response
        return response.member_id

    async def sync(
        self,
        joined: group_pb2.JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance: str = "",
        generation: int | None = None,
        protocol_name: str = "",
    ) -> group_pb2.SyncGroupResponse:
        return await self.coordinator.sync_group(
            group_pb2.SyncGroupRequest(
                group_id=group_id,
                member_id=joined.member_id,
                group_instance_id=instance,
                generation_id=joined.generation_id if generation is None else generation,
                protocol_name=protocol_name,
                assignments=[
                    group_pb2.GroupAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
            ),
            CONTEXT,
        )

    async def heartbeat(self, member_id: str, generation: int, *, group_id: str = "g", instance: str = "") -> int:
        response = await self.coordinator.heartbeat(
            group_pb2.HeartbeatRequest(
                group_id=group_id, member_id=member_id, generation_id=generation, group_instance_id=instance
            ),
            CONTEXT,
        )
        return response.error_code

    async def leave(self, member_id: str = "", *, group_id: str = "g", instance: str = "") -> int:
        request = group_pb2.LeaveGroupRequest(group_id=group_id, member_id=member_id, group_instance_id=instance)
        return (await self.coordinator.leave_group(request, CONTEXT)).error_code

    async def commit(
        self,
        offsets: dict[int, int],
        member_id: str = "",
        generation: int = -1,
        *,
        group_id: str = "g",
        instance: str = "",
        topic: str = "t",
        metadata: str = "",
    ) -> list[int]:
        response = await self.coordinator.offset_commit(
            group_pb2.OffsetCommitRequest(
                group_id=group_id,
                member_id=member_id,
                generation_id=generation,
                group_instance_id=instance,
                partitions=[
                    group_pb2.OffsetCommitPartition(
                        topic=topic, partition=partition, offset=offset, leader_epoch=-1, metadata=metadata
                    )
                    for partition, offset in offsets.items()
                ],
            ),
            CONTEXT,
        )
        return [partition.error_code for partition in response.partitions]

    async def fetch(self, *partitions: int, group_id: str = "g") -> dict[int, int]:
        response = await self.coordinator.offset_fetch(
            group_pb2.OffsetFetchRequest(
                group_id=group_id,
                all_partitions=not partitions,
                partitions=[group_pb2.GroupTopicPartition(topic="t", partition=p) for p in partitions],
            ),
            CONTEXT,
        )
        assert response.error_code == 0, response.error_message
        return {found.partition: found.offset for found in response.partitions}

    async def describe(self, group_id: str = "g") -> group_pb2.GroupDescription:
        response = await self.coordinator.describe_groups(
            group_pb2.DescribeGroupsRequest(group_ids=[group_id]), CONTEXT
        )
        return response.groups[0]

    @property
    def parked(self) -> int:
        return sum(partition.waiting for partition in self.coordinator._partitions.values())

    async def stable_group(self, count: int, **options: Any) -> list[group_pb2.JoinGroupResponse]:
        """`count` dynamic members in a stable generation, the leader first; each is assigned its own id."""
        ids = [await self.new_member_id(**options) for _ in range(count)]
        joins = await asyncio.gather(*(self.join(member_id, **options) for member_id in ids))
        joins.sort(key=lambda joined: joined.member_id != joined.leader)
        assert [joined.error_code for joined in joins] == [0] * count
        assignments = {member_id: member_id.encode() for member_id in ids}
        syncs = await asyncio.gather(*(self.sync(joined, assignments) for joined in joins))
        assert [synced.error_code for synced in syncs] == [0] * count
        return list(joins)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test's body on virtual time, an hour of it at most."""
    return run_virtual(main, max_seconds=3_600)
