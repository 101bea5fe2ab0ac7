"""Three QuorumNodes on virtual time with messages that get lost: the same facade as with one voter, and what changes when
leadership does. (The cluster's transport is not part of this: messages go from hand to hand.)"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.kraft.controller import BrokerRegistration
from kraftlog.kraft.image import MetadataDelta, MetadataImage, TopicImage
from kraftlog.kraft.log_adapter import SnapshotFiles
from kraftlog.kraft.raft import Message, ReplicaKey, SnapshotRequest
from kraftlog.kraft.snapshot import SnapshotId, encode_snapshot
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, NewTopic
from kraftlog.proto.errors import ErrorCode, KraftlogError, NotControllerError
from kraftlog.server.quorum import QuorumConfig, QuorumNode
from kraftlog.server.quorum.snapshots import SnapshotConfig
from kraftlog.testing.clock import SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.filesystem import SimFileSystem
from kraftlog.testing.loop import SimProcess, VirtualLoop, run_virtual
from tests.unit.quorum.fakes import FakeLog

VOTERS = frozenset(ReplicaKey(number) for number in (1, 2, 3))
Work = Callable[["Quorum"], Coroutine[Any, Any, None]]


class Heard:
    """A publisher; every update must follow the one before, and name all that changed."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.topics: dict[bytes, TopicImage] = {}
        self.updates = 0

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert delta.image is self.image or delta.image.offset == -1
        for topic in delta.deleted_topics:
            del self.topics[topic.topic_id]
        assert not self.topics.keys() & {topic.topic_id for topic in delta.created_topics}
        self.topics |= {topic.topic_id: topic for topic in (*delta.created_topics, *delta.changed_topics)}
        assert self.topics == {topic.topic_id: topic for topic in image.topics.values()}
        self.image = image
        self.updates += 1


class Quorum:
    """Three nodes and the wires between them."""

    def __init__(self, loop: VirtualLoop, seed: int, snapshot_bytes: int) -> None:
        self.loop = loop
        self.snapshots = SnapshotConfig(max_record_bytes_between_snapshots=snapshot_bytes)
        self.random = random.Random(seed)
        self.disks = {number: (SimFileSystem(), FakeLog(f"/data/{number}")) for number in (1, 2, 3)}
        self.nodes: dict[int, QuorumNode] = {}
        self.processes: dict[int, SimProcess] = {}
        self.cut: set[int] = set()

    async def start(self, number: int) -> None:
        fs, log = self.disks[number]
        fs.mkdir(log.directory)
        fs.fsync_dir("/data")
        fs.fsync_dir("/")
        process = self.processes[number] = SimProcess(f"node {number}")
        node = QuorumNode(
            config=QuorumConfig(node_id=number, cluster_id="c", voters=VOTERS, snapshots=self.snapshots),
            log=log,
            fs=fs,
            clock=SimClock(self.loop),
            random=random.Random(self.random.getrandbits(32)),
            executor=SimExecutor(self.loop, random.Random(self.random.getrandbits(32))),
            validate_topic_configs=lambda configs: None,
            send=self.send,
        )
        self.nodes[number] = node
        await self.loop.spawn(process, node.start())

    def power_off(self, number: int) -> None:
        """Nothing of the process runs again, and what it had not synced is gone."""
        del self.nodes[number]
        fs, log = self.disks[number]
        self.loop.kill(self.processes[number])
        log.crash()
        fs.crash(self.random)
        self.processes[number].bury()

    def send(self, message: Message) -> None:
        if not {message.src.node_id, message.dst.node_id} & self.cut:
            self.loop.call_later(self.random.uniform(0.0005, 0.02), self.deliver, message)

    def deliver(self, message: Message) -> None:
        node = self.nodes.get(message.dst.node_id)
        if node is not None and not {message.src.node_id, message.dst.node_id} & self.cut:
            node.receive(message)

    async def leader(self, *, other_than: QuorumNode | None = None) -> QuorumNode:
        for _ in range(200):
            leaders = [node for node in self.nodes.values() if node.is_leader and node is not other_than]
            if leaders:
                return max(leaders, key=lambda node: node.metadata_leader_epoch)
            await asyncio.sleep(0.05)
        raise AssertionError("no leader")

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()


def with_quorum(work: Work, seed: int = 1, snapshot_bytes: int = 1 << 20) -> None:
    async def main(loop: VirtualLoop) -> None:
        quorum = Quorum(loop, seed, snapshot_bytes)
        for number in (1, 2, 3):
            await quorum.start(number)
        try:
            await work(quorum)
        finally:
            await quorum.stop()

    loop = VirtualLoop()
    run_virtual(main(loop), loop=loop, max_seconds=600)


async def live_broker(node: QuorumNode, number: int = 7) -> int:
    epoch = await node.controller.register_broker(
        BrokerRegistration(node_id=number, incarnation_id=bytes([number]) * 16, host="localhost", port=9092)
    )
    reply = await node.controller.heartbeat(number, epoch, metadata_offset=node.image.offset)
    assert not reply.is_fenced
    return epoch


async def create(node: QuorumNode, name: str) -> CreateTopicsResponse:
    topic = NewTopic(name=name, num_partitions=1, replication_factor=1)
    return await node.controller.create_topics(CreateTopicsRequest(topics=[topic]))


@pytest.mark.parametrize("seed", range(5))
def test_what_the_leader_answers_is_on_every_node(seed: int) -> None:
    """Followers have the same image and publish it; they refuse operations and know the leader."""

    async def work(quorum: Quorum) -> None:
        leader = await quorum.leader()
        await live_broker(leader)
        publishers = {number: Heard() for number in quorum.nodes}
        for number, node in quorum.nodes.items():
            node.add_publisher(publishers[number])
        await asyncio.gather(*(create(leader, f"t{n}") for n in range(20)))
        await asyncio.sleep(1)
        assert len(leader.image.topics) == 20
        for number, node in quorum.nodes.items():
            assert node.image == leader.image
            assert publishers[number].image == leader.image
            assert node.leader_id == leader.leader_id
            assert node.high_watermark == leader.high_watermark == node.log_end_offset
            if node is not leader:
                with pytest.raises(NotControllerError):
                    await create(node, "x")

    with_quorum(work, seed)


@pytest.mark.parametrize("seed", range(5))
def test_operation_of_a_deposed_leader_fails_and_its_state_goes_back(seed: int) -> None:
    """Cut off, it appends but cannot commit; the next leader decides without it, and the name is still free."""

    async def work(quorum: Quorum) -> None:
        old = await quorum.leader()
        await live_broker(old)
        await create(old, "kept")
        await asyncio.sleep(1)
        assert old.leader_id is not None
        quorum.cut = {old.leader_id}
        lost = asyncio.ensure_future(create(old, "lost"))
        new = await quorum.leader(other_than=old)
        await live_broker(new, 8)
        await create(new, "new")
        quorum.cut = set()
        with pytest.raises(NotControllerError):
            await lost
        await asyncio.sleep(2)
        for node in quorum.nodes.values():
            assert list(node.image.topics) == ["kept", "new"]
        assert not old.is_leader
        created = await create(await quorum.leader(), "lost")
        assert created.topics[0].error_code == 0

    with_quorum(work, seed)


@pytest.mark.parametrize("is_deposed", [False, True])
def test_a_refusal_needs_a_majority(is_deposed: bool) -> None:
    """It rests on what this node knows: a leader that is cut off must not say that there is a topic, for another leader may
    have deleted it. Nor may one say so whose cut has healed, before it has learnt what happened."""

    async def work(quorum: Quorum) -> None:
        old = await quorum.leader()
        await live_broker(old)
        await create(old, "t")
        await asyncio.sleep(1)
        assert old.leader_id is not None
        quorum.cut = {old.leader_id}
        repeated = asyncio.ensure_future(create(old, "t"))
        missing = asyncio.ensure_future(old.controller.delete_topics(DeleteTopicsRequest(names=["other"])))
        if is_deposed:
            await quorum.leader(other_than=old)
            quorum.cut = set()
        for answer in (repeated, missing):
            with pytest.raises(NotControllerError):
                await answer
        quorum.cut = set()
        assert (await create(await quorum.leader(), "t")).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    with_quorum(work)


def test_silent_broker_is_fenced_on_time() -> None:
    """The controller's timer: after a session timeout without heartbeats, and not long after."""

    async def work(quorum: Quorum) -> None:
        leader = await quorum.leader()
        await live_broker(leader)
        await asyncio.sleep(2.5)
        assert not leader.image.brokers[7].is_fenced
        await asyncio.sleep(1)
        assert leader.image.brokers[7].is_fenced

    with_quorum(work)


async def delete(node: QuorumNode, name: str) -> None:
    response = await node.controller.delete_topics(DeleteTopicsRequest(names=[name]))
    assert response.topics[0].error_code == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_node_that_fell_behind_a_snapshot_catches_up(is_restarted: bool) -> None:
    """The leader has forgotten what the node lacks: it gets the snapshot, its log starts there, and its publishers hear what
    came and what went. A node that starts again goes on from it."""

    async def work(quorum: Quorum) -> None:
        leader = await quorum.leader()
        await live_broker(leader)
        for name in ("kept", "deleted", "again"):
            await create(leader, name)
        await asyncio.sleep(1)
        (behind, *_) = (node for node in quorum.nodes.values() if node is not leader)
        number = next(number for number, node in quorum.nodes.items() if node is behind)
        heard = Heard()
        behind.add_publisher(heard)
        quorum.cut = {number}
        await delete(leader, "deleted")
        await delete(leader, "again")
        await create(leader, "again")
        for n in range(40):
            await create(leader, f"new{n}")
        await asyncio.sleep(1)
        start_offset = leader._core.log.snapshot.last_offset + 1
        assert start_offset > behind.log_end_offset
        if is_restarted:
            quorum.power_off(number)
            await quorum.start(number)
            behind = quorum.nodes[number]
        updates = heard.updates
        quorum.cut = set()
        await asyncio.sleep(3)
        assert behind.image == leader.image
        _, log = quorum.disks[number]
        assert log.log_start_offset >= start_offset
        if not is_restarted:
            assert heard.image is behind.image
            assert heard.updates <= updates + 3, "once for the snapshot, not for each record that it stands for"
        quorum.power_off(number)
        await quorum.start(number)
        assert quorum.nodes[number].image.offset + 1 >= log.log_start_offset, "the snapshot is loaded at once"
        await live_broker(leader, 8)
        await create(leader, "last")
        await asyncio.sleep(2)
        assert quorum.nodes[number].image == leader.image
        assert "last" in leader.image.topics

    with_quorum(work, snapshot_bytes=1_000)


def test_no_snapshot_is_taken_of_what_a_received_one_replaces() -> None:
    """The core starts again from a received snapshot at once; the image follows when that is on disk. One that is due in
    between has no place any more."""

    async def work(quorum: Quorum) -> None:
        leader = await quorum.leader()
        await live_broker(leader)
        await create(leader, "t")
        await asyncio.sleep(1)
        behind = next(node for node in quorum.nodes.values() if node is not leader)
        number = next(number for number, node in quorum.nodes.items() if node is behind)
        image, core = behind.image, behind._core
        quorum.cut = {number}
        for n in range(5):
            await create(leader, f"t{n}")
        data = b"".join(encode_snapshot(leader.image, leader.voters, {}, timestamp_ms=0))
        offset, term = leader.image.offset, leader.image.leader_epoch
        assert core.log.last_offset < offset
        quorum.cut = set()
        behind.receive(
            SnapshotRequest(
                leader._core.key, core.key, leader.term, offset, term, leader.voters, 0, data, is_last=True, round=0
            )
        )
        assert (behind.image, core.log.snapshot.last_offset) == (image, offset)
        fs, log = quorum.disks[number]
        await behind._take_snapshot()
        assert SnapshotFiles(fs, log.directory).ids() in ([], [SnapshotId(offset + 1, term)])
        await asyncio.sleep(1)
        assert behind.image == leader.image
        assert SnapshotFiles(fs, log.directory).ids() == [SnapshotId(offset + 1, term)]

    with_quorum(work)


def test_node_that_was_brought_up_by_a_snapshot_can_lead() -> None:
    """Its controller has the whole state: it decides as the old one would have."""

    async def work(quorum: Quorum) -> None:
        old = await quorum.leader()
        epoch = await live_broker(old)
        await asyncio.sleep(1)
        others = [number for number, node in quorum.nodes.items() if node is not old]
        quorum.cut = {others[0]}
        for n in range(40):
            await create(old, f"t{n}")
        first = await old.controller.allocate_producer_ids(7, epoch)
        quorum.cut = set()
        await asyncio.sleep(2)
        new = quorum.nodes[others[0]]
        old._core.transfer(new._core.key)
        await asyncio.sleep(1)
        assert new.is_leader
        assert len(new.image.topics) == 40
        assert await new.controller.allocate_producer_ids(7, epoch) == (first[0] + first[1], first[1])
        assert (await create(new, "t7")).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        await delete(new, "t7")
        await live_broker(new, 8)
        assert (await create(new, "t7")).topics[0].error_code == ErrorCode.NONE

    with_quorum(work, snapshot_bytes=1_000)


@pytest.mark.slow
@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 1_000])
@pytest.mark.parametrize("seed", range(8))
def test_nothing_acknowledged_is_lost_over_crashes_and_cuts(seed: int, snapshot_bytes: int) -> None:
    """Power losses and partitions at random; in the end all nodes have every acknowledged topic, and the same image."""
    print(f"seed {seed}")

    async def work(quorum: Quorum) -> None:
        acknowledged: list[str] = []
        for round_ in range(25):
            fault = quorum.random.randrange(4)
            number = quorum.random.randrange(1, 4)
            if fault == 0:
                quorum.cut = {number}
            elif fault == 1:
                quorum.cut = set()
            elif fault == 2:
                quorum.power_off(number)
                await quorum.start(number)
            await asyncio.sleep(quorum.random.uniform(0, 3))
            leaders = [node for node in quorum.nodes.values() if node.is_leader]
            if not leaders:
                continue
            names = [f"round{round_}-{n}" for n in range(quorum.random.randrange(1, 4))]
            answers = await asyncio.gather(*(try_create(leaders[-1], name) for name in names))
            acknowledged += [name for name in answers if name]
        quorum.cut = set()
        await asyncio.sleep(5)
        images = [node.image for node in quorum.nodes.values()]
        assert images[0] == images[1] == images[2]
        assert not set(acknowledged) - images[0].topics.keys()
        assert acknowledged

    async def try_create(node: QuorumNode, name: str) -> str:
        try:
            async with asyncio.timeout(2):
                await live_broker(node)
                response = await create(node, name)
        except (KraftlogError, TimeoutError):
            return ""
        return name if response.topics[0].error_code == 0 else ""

    with_quorum(work, seed, snapshot_bytes)
