"""QuorumNode over a real log on a disk that loses power: what was answered is there after the restart."""

import asyncio
import errno
import random

import pytest

from kraftlog.kraft.controller import BrokerRegistration
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS, MetadataLog, SnapshotFiles, format_metadata_log
from kraftlog.kraft.raft import EntryKind, ReplicaKey, Voters
from kraftlog.kraft.records import voter_endpoints_of
from kraftlog.kraft.snapshot import GENESIS, SnapshotId
from kraftlog.logstore import Log, LogConfig, LogDir, format_log_dir
from kraftlog.logstore.filesystem import atomic_write
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import iter_headers
from kraftlog.server.quorum import QuorumConfig, QuorumNode
from kraftlog.server.quorum.snapshots import SnapshotConfig
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.quorum.fakes import FakeClock, GateExecutor

KEY = ("__cluster_metadata", 0)
ROUNDS = 6
ME = ReplicaKey(1)


HERE = {ME: Endpoint("here", 9093)}


def formatted(voters: Voters = frozenset({ME})) -> SimFileSystem:
    fs = SimFileSystem()
    format_metadata_log(
        fs, "/data", voters=voters, endpoints=HERE, feature_levels={"metadata.version": 1}, timestamp_ms=0
    )
    format_log_dir("/data", fs, cluster_id="test", node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAA")
    return fs


def open_log_dir(fs: SimFileSystem, clock: FakeClock) -> LogDir:
    return LogDir.open(
        "/data",
        fs=fs,
        node_id=1,
        cluster_id="test",
        now_ms=clock.wall_ms(),
        config=LogConfig.from_configs({**METADATA_LOG_CONFIGS, "segment.bytes": "2000"}),
    )


def open_log(fs: SimFileSystem, clock: FakeClock) -> Log:
    return open_log_dir(fs, clock).logs[KEY]


def make_node(fs: SimFileSystem, log: Log, clock: FakeClock, seed: int, snapshot_bytes: int = 1 << 20) -> QuorumNode:
    """`seed`: of the node's own randomness. A snapshot is due after `snapshot_bytes`."""
    return QuorumNode(
        config=QuorumConfig(
            node_id=1,
            cluster_id="test",
            snapshots=SnapshotConfig(max_record_bytes_between_snapshots=snapshot_bytes),
        ),
        log=log,
        fs=fs,
        clock=clock,
        random=random.Random(seed),
        executor=GateExecutor(),
        validate_topic_configs=lambda configs: None,
    )


class History:
    """What the client knows."""

    def __init__(self) -> None:
        self.created: dict[str, bytes] = {}
        self.unknown: set[str] = set()
        self.next_producer_id = 0
        self.term = 0
        self.next_name = 0

    def check(self, node: QuorumNode) -> None:
        self.check_topics(node)
        assert node.metadata_leader_epoch > self.term
        self.term = node.metadata_leader_epoch

    def check_topics(self, node: QuorumNode) -> None:
        found = {name: topic.topic_id for name, topic in node.image.topics.items()}
        lost = sorted(name for name, topic_id in self.created.items() if found.get(name) != topic_id)
        assert not lost, "acknowledged topics are gone"
        risen = sorted(found.keys() - self.created.keys() - self.unknown)
        assert not risen, "acknowledged deletions are undone"
        assert node.image.next_producer_id >= self.next_producer_id


async def some_work(node: QuorumNode, history: History, rng: random.Random) -> None:
    epoch = await node.controller.register_broker(
        BrokerRegistration(
            node_id=1, incarnation_id=rng.randbytes(16), host="localhost", port=9092, log_dirs=(bytes(range(16)),)
        )
    )
    await node.controller.heartbeat(1, epoch, metadata_offset=node.image.offset)
    for _ in range(rng.randrange(12)):
        kind = rng.randrange(4)
        if kind == 0 and history.created:
            name = rng.choice(sorted(history.created))
            topic_id = history.created.pop(name)
            history.unknown.add(name)
            await node.controller.delete_topics(DeleteTopicsRequest(names=[name]))
            history.unknown.discard(name)
            assert topic_id
        elif kind == 1:
            first, count = await node.controller.allocate_producer_ids(1, epoch, 10)
            assert first >= history.next_producer_id, "a producer id was given out twice"
            history.next_producer_id = first + count
        else:
            names = [f"topic-{history.next_name + i}" for i in range(rng.randrange(1, 4))]
            history.next_name += len(names)
            history.unknown.update(names)
            for response in await asyncio.gather(*(create(node, name) for name in names)):
                history.created[response[0]] = response[1]
                history.unknown.discard(response[0])


async def create(node: QuorumNode, name: str) -> tuple[str, bytes]:
    topic = NewTopic(name=name, num_partitions=2, replication_factor=1)
    response = await node.controller.create_topics(CreateTopicsRequest(topics=[topic]))
    return name, response.topics[0].topic_id


async def settled() -> None:
    """What goes on in the background has ended."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.slow
@pytest.mark.parametrize("snapshot_bytes", [1 << 20, 700])
@pytest.mark.parametrize("seed", range(20))
async def test_nothing_acknowledged_is_lost_when_the_power_goes(seed: int, snapshot_bytes: int) -> None:
    """Stop at a random disk operation, lose what was not synced, start again; several times on one disk. With and without
    a snapshot every few operations."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    fs, clock, history = formatted(), FakeClock(), History()
    for round_ in range(ROUNDS):
        node = None
        fs.stop_after(rng.randrange(5, 250))
        try:
            node = make_node(fs, open_log(fs, clock), clock, seed * 100 + round_, snapshot_bytes)
            await node.start()
            history.check(node)
            await some_work(node, history, rng)
        except (SimulatedPowerLoss, KraftlogError):
            pass  # the power went, in the call itself or under an operation that waited for it
        finally:
            fs.crash(rng)
            if node is not None:
                await node.stop()
    log_dir = open_log_dir(fs, clock)
    node = make_node(fs, log_dir.logs[KEY], clock, seed)
    await node.start()
    history.check(node)
    await node.stop()
    log_dir.close()


async def test_restart_from_a_snapshot_and_the_log_after_it() -> None:
    """The state is the same, the log before the older snapshot is gone, and the genesis with it."""
    fs, clock, history, rng = formatted(), FakeClock(), History(), random.Random(1)
    log_dir = open_log_dir(fs, clock)
    node = make_node(fs, log_dir.logs[KEY], clock, 1, snapshot_bytes=1500)
    await node.start()
    for _ in range(10):
        await some_work(node, history, rng)
        await settled()
    image = node.image
    await node.stop()
    log_dir.close()

    log_dir = open_log_dir(fs, clock)
    log = log_dir.logs[KEY]
    older, newer = SnapshotFiles(fs, log.directory).ids()
    assert 0 < older.end_offset == log.log_start_offset < newer.end_offset <= image.offset + 1
    assert log.segment_base_offsets[0] > 0
    node = make_node(fs, log, clock, 2)
    await node.start()
    history.check(node)
    assert (node.image.topics, node.image.brokers) == (image.topics, image.brokers)
    assert node.is_leader, "the genesis said who votes; then the snapshots do"
    await some_work(node, history, rng)
    history.check_topics(node)
    await node.stop()
    log_dir.close()


async def test_snapshots_come_by_time_too() -> None:
    """An hour after the last one, if anything is new; a quiet cluster writes nothing."""
    fs, clock = formatted(), FakeClock()
    log_dir = open_log_dir(fs, clock)
    log = log_dir.logs[KEY]
    files = SnapshotFiles(fs, log.directory)
    node = make_node(fs, log, clock, 1)
    await node.start()
    epoch = await node.controller.register_broker(
        BrokerRegistration(node_id=1, incarnation_id=bytes(16), host="localhost", port=9092)
    )
    await settled()
    assert files.ids() == [GENESIS]
    clock.now_ms += 3_599_000
    await node.controller.allocate_producer_ids(1, epoch)
    await settled()
    assert files.ids() == [GENESIS]
    clock.now_ms += 1_001
    await node.controller.allocate_producer_ids(1, epoch)
    await settled()
    taken = SnapshotId.of(node.image)
    assert files.ids() == [GENESIS, taken]
    clock.now_ms += 3_600_001
    await node.controller.allocate_producer_ids(1, epoch)
    await settled()
    assert files.ids() == [taken, SnapshotId.of(node.image)]
    await node.stop()


async def test_full_disk_costs_only_the_snapshot() -> None:
    """It is tried again when there is room; the log goes on."""
    fs, clock, history, rng = formatted(), FakeClock(), History(), random.Random(3)
    log = open_log(fs, clock)
    files = SnapshotFiles(fs, log.directory)
    node = make_node(fs, log, clock, 1, snapshot_bytes=1500)
    await node.start()
    fs.fail("pwritev", errno.ENOSPC, path_part=".part", times=1000)
    for _ in range(4):
        await some_work(node, history, rng)
        await settled()
    assert files.ids() == [GENESIS]
    history.check_topics(node)
    fs.heal()
    for _ in range(4):
        await some_work(node, history, rng)
        await settled()
    assert GENESIS not in files.ids()
    await node.stop()


async def test_first_leader_writes_the_feature_levels_of_the_genesis() -> None:
    """So that whoever joins later has them from the log."""
    fs, clock = formatted(), FakeClock()
    node = make_node(fs, open_log(fs, clock), clock, 1)
    await node.start()
    epoch = await node.controller.register_broker(
        BrokerRegistration(node_id=1, incarnation_id=bytes(16), host="localhost", port=9092)
    )
    assert epoch > 0
    assert dict(node.image.features) == {"metadata.version": 1}
    await node.stop()


async def test_first_leader_writes_the_voters_of_the_genesis() -> None:
    """Once, with their endpoints (KIP-853): also for whoever joins without a genesis of its own."""
    fs, clock = formatted(), FakeClock()
    for _ in range(2):
        log_dir = open_log_dir(fs, clock)
        node = make_node(fs, log_dir.logs[KEY], clock, 1)
        await node.start()
        await node.controller.register_broker(
            BrokerRegistration(
                node_id=1, incarnation_id=bytes(16), host="localhost", port=9092, log_dirs=(bytes(range(16)),)
            )
        )
        await node.stop()
        log_dir.close()
    loaded = MetadataLog(open_log(fs, clock), fs, cluster_id="test", voters=frozenset(), node_id=1).load()
    (entry,) = (each for each in loaded.entries if each.kind is EntryKind.VOTERS)
    assert (entry.voters, voter_endpoints_of(entry)) == ({ME}, HERE)


async def test_node_that_was_formatted_without_voters_waits_to_be_fed() -> None:
    """It neither votes for itself nor leads; without a genesis it would think that it is alone."""
    fs, clock = formatted(frozenset()), FakeClock()
    node = make_node(fs, open_log(fs, clock), clock, 1)
    await node.start()
    for _ in range(100):
        node._tick()
        await settled()
    assert (node.voters, node.leader_id, node.term, node.log_end_offset) == (frozenset(), None, 0, 0)
    await node.stop()


@pytest.mark.slow
async def test_damage_below_the_recorded_flushed_end_stops_the_node() -> None:
    """What is missing there may have been counted towards a commit: it is no torn tail. A bit in each batch of what the
    newest snapshot does not cover, with the process killed: so the log is recovered."""
    fs, clock, history, rng = formatted(), FakeClock(), History(), random.Random(1)
    log_dir = open_log_dir(fs, clock)
    log = log_dir.logs[KEY]
    node = make_node(fs, log, clock, 1)
    await node.start()
    for _ in range(4):
        await some_work(node, history, rng)
    await node.stop()
    log.record_flushed_end()
    segments = [f"{log.directory}/{base:020d}.log" for base in log.segment_base_offsets]
    fs.kill()
    recorded = "/data/recovery-point-offset-checkpoint"
    flushed_end = fs.contents(recorded)
    assert len(segments) > 1
    for path in segments:
        for position, header in iter_headers(fs.contents(path)):
            where, bit = position + rng.randrange(header.size_bytes), 1 << rng.randrange(8)
            fs.flip(path, where, bit)
            with pytest.raises(KraftlogError, match=r"no valid batch|CRC|cannot be read|is damaged|magic") as refusal:
                await make_node(fs, open_log(fs, clock), clock, 2).start()
            print(where, bit, refusal.value)
            fs.kill()
            fs.flip(path, where, bit)
            atomic_write(fs, recorded, flushed_end)  # recovery may have believed an offset
    node = make_node(fs, open_log(fs, clock), clock, 3)
    await node.start()
    history.check(node)
    await node.stop()
