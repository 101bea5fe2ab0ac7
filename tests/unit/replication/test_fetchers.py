"""A follower between two leaders: the streams to both, over a real log whose disk is slow."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from kraftlog.proto import metadata_pb2
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.replica_frames import (
    REPLICA_FRAMES,
    ReplicaAlive,
    ReplicaBody,
    ReplicaDivergence,
    ReplicaFollow,
    ReplicaHello,
    ReplicaHelloAnswer,
)
from kraftlog.proto.seams import Payload
from kraftlog.replication.exchange import joined
from kraftlog.replication.fetchers import ReplicaFetchers
from kraftlog.replication.partition import Partition
from kraftlog.replication.quota import ReplicationQuota
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.replication.fake_replica_log import settle
from tests.unit.replication.test_replica_manager import TOPIC, Broker, batch

TOPIC_ID = bytes(15) + b"\x07"
COUNT = 10


class LoopClock:
    """The event loop's, so that no time passes for the streams."""

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000


class Leader:
    """Another broker: it greets, keeps what it is told, and says what the test wants it to say."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.heard: list[ReplicaBody] = []
        self._to_say: asyncio.Queue[bytes] = asyncio.Queue()

    @property
    def follows(self) -> list[ReplicaFollow]:
        return [body for body in self.heard if isinstance(body, ReplicaFollow)]

    async def say(self, body: ReplicaBody) -> None:
        self._to_say.put_nowait(b"".join(joined([body])))
        await settle()

    # the far end of the channel and of its only stream

    def connect(self, address: str) -> "Leader":
        return self

    def stream(self, method: str) -> "Leader":
        return self

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        raise NotImplementedError

    async def send(self, message: Payload) -> None:
        for body in REPLICA_FRAMES.decode(message if isinstance(message, bytes) else b"".join(message)):
            if isinstance(body, ReplicaHello):
                await self.say(ReplicaHelloAnswer(self.node_id, 1))
            elif not isinstance(body, ReplicaAlive):
                self.heard.append(body)

    async def receive(self) -> bytes:
        return await self._to_say.get()

    async def finish(self) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""


class Leaders(dict[str, Leader]):
    def connect(self, address: str) -> Leader:
        return self[address]


class Follower(Broker):
    """Broker 1, which led in epoch 0 and has written ten records; brokers 2 and 3 lead after it."""

    def __init__(self) -> None:
        super().__init__(SimFileSystem())
        self.leaders = Leaders({"2": Leader(2), "3": Leader(3)})
        self.fetchers = ReplicaFetchers(
            node_id=1,
            cluster_id="c",
            connector=self.leaders,
            clock=LoopClock(),
            random=random.Random(1),
            executor=self.executor,
            address_of=str,
            quota=ReplicationQuota.of_follower(1),
            append=self.replicas.append_as_follower,
            progress=self.replicas.follow_progress,
            on_storage_failure=self.replicas.fail,
        )
        self.replicas.replicate_with(self.fetchers)
        self.fetchers.begin(1)

    def leader(self, node_id: int) -> Leader:
        return self.leaders[str(node_id)]

    async def lead_ten(self) -> Partition:
        await self.publish(
            MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=TOPIC_ID)),
            MetadataRecord(
                partition=metadata_pb2.PartitionRecord(
                    topic_id=TOPIC_ID, replicas=[1, 2, 3], in_sync_replicas=[1, 2, 3], leader_id=1
                )
            ),
        )
        partition = self.replicas.leader(TOPIC, 0)
        for _ in range(COUNT):
            self.replicas.append(partition, batch(), acks=-1)
        await settle()
        return partition

    def publish_leader(self, node_id: int) -> "asyncio.Task[None]":
        change = metadata_pb2.PartitionChangeRecord(topic_id=TOPIC_ID, partition=0, leader_id=node_id)
        change.in_sync_replicas.replicas.extend((2, 3))
        return asyncio.get_running_loop().create_task(self.publish(MetadataRecord(partition_change=change)))

    async def diverge(self, end_offset: int) -> None:
        """Broker 2 leads, and says that the history parts there."""
        await self.publish_leader(2)
        await eventually(lambda: bool(self.leader(2).follows))
        (follow,) = self.leader(2).follows
        await self.leader(2).say(ReplicaDivergence(follow.follow_id, epoch=0, end_offset=end_offset))


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(100):
        if condition():
            return
        await settle()
    raise AssertionError("it did not come about")


@pytest.fixture
async def follower() -> AsyncIterator[Follower]:
    follower = Follower()
    yield follower
    follower.executor.is_gated = False
    while follower.executor.waiting:
        await follower.executor.release()
    await follower.fetchers.close()
    assert not follower.failures


async def test_the_next_leader_hears_where_the_log_ends_when_it_is_cut_for_the_one_before(follower: Follower) -> None:
    """Else it would count records as replicated that are about to go."""
    partition = await follower.lead_ten()
    follower.executor.is_gated = True
    await follower.diverge(8)
    assert len(follower.executor.waiting) == 1
    assert partition.is_being_cut
    published = follower.publish_leader(3)
    for _ in range(20):
        await settle()
    assert not published.done()
    assert not follower.leader(3).follows
    await follower.executor.release()
    follower.executor.is_gated = False
    await published
    await eventually(lambda: bool(follower.leader(3).follows))
    assert [follow.log_end_offset for follow in follower.leader(3).follows] == [8]
    assert not partition.is_being_cut


async def test_a_cut_that_has_not_begun_is_not_made_where_the_partition_is_gone(follower: Follower) -> None:
    """The log is closed, which would look like a failing disk."""
    partition = await follower.lead_ten()
    await follower.publish_leader(2)
    await eventually(lambda: bool(follower.leader(2).follows))
    following = follower.fetchers._fetchers[2].following
    following.receive(ReplicaDivergence(follower.leader(2).follows[0].follow_id, epoch=0, end_offset=8), 0.0)
    assert [truncation.partition for truncation in following.truncations] == [partition]
    await follower.delete()
    for _ in range(20):
        await settle()
    assert not follower.failures
    assert not following.truncations


async def test_retention_and_the_cleaner_leave_a_log_alone_that_is_being_cut(follower: Follower) -> None:
    """A roll in the midst of it would leave a segment behind the log's end, and what is appended next would vanish in it."""
    partition = await follower.lead_ten()
    for key, value in (("segment.ms", "1"), ("cleanup.policy", "compact,delete")):
        config = metadata_pb2.ConfigRecord(resource_type=2, resource_name=TOPIC, key=key, value=value)
        await follower.publish(MetadataRecord(config=config))
    log = follower.log_dir.logs[TOPIC, 0]
    follower.clock.now_ms += 1e9
    follower.executor.is_gated = True
    retention = asyncio.get_running_loop().create_task(follower.replicas.retention.run())
    await settle()  # it looks at the log
    await follower.diverge(5)
    look, cut = follower.executor.waiting
    follower.executor.waiting = [look]
    await follower.executor.release()
    assert await retention == 0
    assert log.segment_base_offsets == [0]
    assert follower.replicas.retention.expire_producers(0) == 0
    assert follower.replicas.cleaner._partition_of(log) is None
    follower.executor.waiting = [cut]
    await follower.executor.release()
    assert log.log_end_offset == 5
    follower.executor.is_gated = False
    await follower.replicas.retention.run()
    assert log.segment_base_offsets == [0, 5]
    assert follower.replicas.cleaner._partition_of(log) is partition


async def test_damage_is_told_until_the_metadata_show_that_the_controller_knows(follower: Follower) -> None:
    """Not until they are applied, which takes the disk: each report begins another leader epoch."""
    partition = await follower.lead_ten()
    await follower.publish_leader(2)
    follower.replicas.report_damage(partition, CorruptRecordError("a flipped bit"))
    assert follower.replicas.damaged_replicas == {(TOPIC_ID, 0)}
    published = follower.publish_leader(2)
    await asyncio.sleep(0)
    assert partition.leader_epoch == 1, "not applied yet"
    assert not follower.replicas.damaged_replicas
    await published
