"""QuorumNode with one voter: it leads itself, answers when durable, and finds everything again."""

import asyncio
import random
from collections.abc import Mapping

import pytest

from kraftlog.kraft.controller import BrokerRegistration
from kraftlog.kraft.image import NO_LEADER, MetadataDelta, MetadataImage
from kraftlog.kraft.raft import AppendRequest, ReplicaKey, VoteRequest
from kraftlog.proto import controller_pb2
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from kraftlog.proto.errors import (
    ErrorCode,
    IllegalStateError,
    InconsistentClusterIdError,
    InvalidConfigError,
    NotControllerError,
    StaleBrokerEpochError,
    StorageError,
)
from kraftlog.proto.seams import CallContext
from kraftlog.server.controller.service import BROKER_HEARTBEAT, ControllerService
from kraftlog.server.quorum import QuorumConfig, QuorumNode
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.quorum.fakes import FakeClock, FakeLog, GateExecutor

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
DIRECTORY = bytes(range(16))


def validate(configs: Mapping[str, str]) -> None:
    for key in configs:
        if key != "retention.ms":
            raise InvalidConfigError(f"unknown config key {key!r}: did you mean 'retention.ms'?")


class Host:
    """The durable things of one node, and its processes one after the other."""

    def __init__(self) -> None:
        self.fs = SimFileSystem()
        self.log = FakeLog()
        self.fs.mkdir(self.log.directory)
        self.clock = FakeClock()
        self.executor = GateExecutor()
        self.starts = 0

    def node(self, cluster_id: str = CLUSTER) -> QuorumNode:
        self.starts += 1
        return QuorumNode(
            config=QuorumConfig(node_id=1, cluster_id=cluster_id, directory_id=DIRECTORY),
            log=self.log,
            fs=self.fs,
            clock=self.clock,
            random=random.Random(self.starts),
            executor=self.executor,
            validate_topic_configs=validate,
        )


async def started(host: Host) -> tuple[QuorumNode, int]:
    """A running node with its own broker registered and unfenced; and the broker epoch."""
    node = host.node()
    await node.start()
    epoch = await node.controller.register_broker(
        BrokerRegistration(
            node_id=1, incarnation_id=bytes([host.starts]) * 16, host="localhost", port=9092, log_dirs=(DIRECTORY,)
        )
    )
    await node.controller.heartbeat(1, epoch, metadata_offset=node.image.offset)
    return node, epoch


def new_topics(*topics: NewTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, validate_only=validate_only)


class Recorder:
    def __init__(self) -> None:
        self.updates: list[tuple[MetadataDelta, MetadataImage]] = []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.updates.append((delta, image))


async def test_single_voter_leads_itself_when_started() -> None:
    """With one voter the pre-vote and the vote are its own: no election timeout is waited for."""
    host = Host()
    node = host.node()
    await node.start()
    assert node.is_leader
    assert (node.leader_id, node.metadata_leader_epoch) == (1, 1)
    assert node.high_watermark >= 1  # the leader-change batch is committed
    await node.stop()


async def test_a_node_that_has_not_loaded_yet_refuses_what_brokers_ask() -> None:
    """Its listener is open before it knows of any leader (seed 2008 of the simulated cluster)."""
    host = Host()
    node = host.node()
    handler = ControllerService(node).handlers().unary[BROKER_HEARTBEAT]
    request = controller_pb2.BrokerHeartbeatRequest(node_id=1)
    with pytest.raises(NotControllerError, match="not known"):
        await handler(request.SerializeToString(), CallContext(peer="test"))


async def test_created_topic_is_durable_and_published_when_the_call_returns() -> None:
    """Answers come after the fsync and after the publishers."""
    host = Host()
    node, _ = await started(host)
    recorder = Recorder()
    node.add_publisher(recorder)
    response = await node.controller.create_topics(
        new_topics(NewTopic(name="orders", num_partitions=3, replication_factor=1, configs={"retention.ms": "1000"}))
    )
    assert response.topics[0].error_code == ErrorCode.NONE
    assert host.log.flushed == host.log.batches
    topic = node.image.topics["orders"]
    assert topic.topic_id == response.topics[0].topic_id
    assert [(p.partition, p.leader_id, p.in_sync_replicas, p.leader_epoch) for p in topic.partitions.values()] == [
        (0, 1, (1,), 0),
        (1, 1, (1,), 0),
        (2, 1, (1,), 0),
    ]
    assert dict(node.image.configs(2, "orders")) == {"retention.ms": "1000"}
    delta, image = recorder.updates[-1]
    assert [t.name for t in delta.created_topics] == ["orders"]
    assert image is node.image
    await node.stop()


async def test_restart_finds_everything_in_a_new_term() -> None:
    """The log and quorum-state carry the whole state; leader epochs never repeat; producer ids go on."""
    host = Host()
    node, epoch = await started(host)
    await node.controller.create_topics(new_topics(NewTopic(name="orders", num_partitions=2, replication_factor=1)))
    assert await node.controller.allocate_producer_ids(1, epoch) == (0, 1000)
    before = node.image
    await node.stop()
    host.log.crash()

    again = host.node()
    await again.start()
    assert again.metadata_leader_epoch == 2
    assert again.image.topics["orders"].topic_id == before.topics["orders"].topic_id
    assert again.image.next_producer_id == 1000
    with pytest.raises(StaleBrokerEpochError):
        await again.controller.allocate_producer_ids(1, epoch - 1)
    new_epoch = await again.controller.register_broker(
        BrokerRegistration(node_id=1, incarnation_id=b"\x09" * 16, host="localhost", port=9093, log_dirs=(DIRECTORY,))
    )
    assert new_epoch > epoch
    assert again.image.topics["orders"].partitions[0].leader_id == NO_LEADER
    await again.controller.heartbeat(1, new_epoch, metadata_offset=again.image.offset)
    partition = again.image.topics["orders"].partitions[0]
    assert (partition.leader_id, partition.leader_epoch) == (1, 2)
    assert await again.controller.allocate_producer_ids(1, new_epoch) == (1000, 1000)
    await again.stop()


async def test_proposals_during_an_fsync_share_the_next_one() -> None:
    """Group commit falls out of the driver: one flush for whatever came while the last one ran."""
    host = Host()
    node, _ = await started(host)
    host.executor.hold()
    first = asyncio.ensure_future(
        node.controller.create_topics(new_topics(NewTopic(name="t0", num_partitions=1, replication_factor=1)))
    )
    await host.executor.entered.wait()
    later = [
        asyncio.ensure_future(
            node.controller.create_topics(new_topics(NewTopic(name=f"t{n}", num_partitions=1, replication_factor=1)))
        )
        for n in range(1, 20)
    ]
    for _ in range(10):
        await asyncio.sleep(0)
    runs = host.executor.runs
    assert not first.done()
    host.executor.let_go()
    await asyncio.gather(first, *later)
    assert host.executor.runs == runs + 2
    await node.stop()


async def test_same_topic_twice_at_once_is_created_once() -> None:
    """The second request is decided against the first one's uncommitted state, and answered after it."""
    host = Host()
    node, _ = await started(host)
    request = new_topics(NewTopic(name="orders", num_partitions=1, replication_factor=1))
    first, second = await asyncio.gather(node.controller.create_topics(request), node.controller.create_topics(request))
    assert first.topics[0].error_code == ErrorCode.NONE
    assert second.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    await node.stop()


async def test_failing_disk_fails_the_operation_and_the_node() -> None:
    """An fsync error is fatal: nothing that waited is answered as if it were durable, and nothing more is taken."""
    host = Host()
    node, _ = await started(host)
    host.log.flush_error = StorageError("/data: input/output error")
    with pytest.raises(StorageError):
        await node.controller.create_topics(new_topics(NewTopic(name="orders", num_partitions=1, replication_factor=1)))
    assert isinstance(await node.wait_failed(), StorageError)
    assert "orders" not in node.image.topics
    with pytest.raises(StorageError):
        await node.controller.delete_topics(DeleteTopicsRequest(names=["orders"]))
    await node.stop()


async def test_stop_fails_what_waits_and_what_follows() -> None:
    """A caller never hangs on a stopped node."""
    host = Host()
    node, _ = await started(host)
    host.executor.hold()
    waiting = asyncio.ensure_future(
        node.controller.create_topics(new_topics(NewTopic(name="a", num_partitions=1, replication_factor=1)))
    )
    late = asyncio.ensure_future(
        node.controller.create_topics(new_topics(NewTopic(name="b", num_partitions=1, replication_factor=1)))
    )
    await host.executor.entered.wait()
    stopping = asyncio.ensure_future(node.stop())
    await asyncio.sleep(0)
    host.executor.let_go()
    await stopping
    results = await asyncio.gather(waiting, late, return_exceptions=True)
    assert all(isinstance(result, NotControllerError) for result in results)
    with pytest.raises(NotControllerError):
        await node.controller.create_topics(new_topics(NewTopic(name="c", num_partitions=1, replication_factor=1)))
    assert await node.wait_failed() is None


async def test_foreign_and_broken_quorum_state_is_refused() -> None:
    """A forgotten vote can make two leaders, so it is never taken for "no vote"."""
    host = Host()
    node, _ = await started(host)
    await node.stop()
    with pytest.raises(InconsistentClusterIdError):
        await host.node("other").start()
    path = host.log.directory + "/quorum-state"
    file = host.fs.open(path)
    file.truncate(7)
    with pytest.raises(StorageError, match="quorum-state cannot be read"):
        await host.node().start()
    host.fs.unlink(path)
    with pytest.raises(StorageError, match="is missing although the metadata log has entries"):
        await host.node().start()


async def test_late_publisher_hears_of_everything() -> None:
    """The first call carries the delta from the empty image."""
    host = Host()
    node, _ = await started(host)
    await node.controller.create_topics(new_topics(NewTopic(name="orders", num_partitions=1, replication_factor=1)))
    recorder = Recorder()
    node.add_publisher(recorder)
    ((delta, image),) = recorder.updates
    assert image is node.image
    assert [t.name for t in delta.created_topics] == ["orders"]
    assert list(delta.changed_brokers) == [1]
    await node.stop()


async def test_messages_of_others_do_no_harm_before_and_after() -> None:
    """A voter that starts or has stopped loses what is sent to it."""
    host = Host()
    node = host.node()
    vote = VoteRequest(ReplicaKey(2), ReplicaKey(1, DIRECTORY), 9, 5, 5, is_pre_vote=False, is_forced=True)
    node.receive(vote)
    await node.start()
    await node.stop()
    node.receive(vote)
    assert node.metadata_leader_epoch == 1


async def test_broken_invariant_in_a_message_stops_the_node() -> None:
    """W17: loudly, and not only in the task that received the message."""
    host = Host()
    node, _ = await started(host)
    me, end = ReplicaKey(1, DIRECTORY), node.high_watermark - 1
    node.receive(AppendRequest(ReplicaKey(2), me, 9, end, 8, (), end, 1))
    assert isinstance(await node.wait_failed(), IllegalStateError)
    with pytest.raises(IllegalStateError):
        await node.controller.allocate_producer_ids(1, 0)
    await node.stop()
