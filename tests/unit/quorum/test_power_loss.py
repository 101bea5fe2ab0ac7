"""QuorumNode over a real log on a disk that loses power: what was answered is there after the restart."""

import asyncio
import random

import pytest

from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS
from kraftlog.logstore import Log, LogConfig
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.server.quorum import QuorumConfig, QuorumNode
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.quorum.fakes import FakeClock, GateExecutor

DIRECTORY = "/data/__cluster_metadata-0"
ROUNDS = 6


def open_log(fs: SimFileSystem, clock: FakeClock) -> Log:
    return Log(
        fs,
        DIRECTORY,
        topic="__cluster_metadata",
        partition=0,
        config=LogConfig.from_configs({**METADATA_LOG_CONFIGS, "segment.bytes": "2000"}),
        now_ms=clock.wall_ms(),
    )


def make_node(fs: SimFileSystem, log: Log, clock: FakeClock, seed: int) -> QuorumNode:
    return QuorumNode(
        config=QuorumConfig(node_id=1, cluster_id="test"),
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
        found = {name: topic.topic_id for name, topic in node.image.topics.items()}
        lost = sorted(name for name, topic_id in self.created.items() if found.get(name) != topic_id)
        assert not lost, "acknowledged topics are gone"
        risen = sorted(found.keys() - self.created.keys() - self.unknown)
        assert not risen, "acknowledged deletions are undone"
        assert node.image.next_producer_id >= self.next_producer_id
        assert node.metadata_leader_epoch > self.term
        self.term = node.metadata_leader_epoch


async def some_work(node: QuorumNode, history: History, rng: random.Random) -> None:
    epoch = await node.register_broker(1, rng.randbytes(16), "localhost", 9092)
    await node.heartbeat(1, epoch)
    for _ in range(rng.randrange(12)):
        kind = rng.randrange(4)
        if kind == 0 and history.created:
            name = rng.choice(sorted(history.created))
            topic_id = history.created.pop(name)
            history.unknown.add(name)
            await node.delete_topics(DeleteTopicsRequest(names=[name]))
            history.unknown.discard(name)
            assert topic_id
        elif kind == 1:
            first, count = await node.allocate_producer_ids(1, epoch, 10)
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
    response = await node.create_topics(CreateTopicsRequest(topics=[topic]))
    return name, response.topics[0].topic_id


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
async def test_nothing_acknowledged_is_lost_when_the_power_goes(seed: int) -> None:
    """Stop at a random disk operation, lose what was not synced, start again; several times on one disk."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    fs, clock, history = SimFileSystem(), FakeClock(), History()
    fs.mkdir(DIRECTORY)
    fs.fsync_dir("/data")
    fs.fsync_dir("/")
    for round_ in range(ROUNDS):
        node = None
        fs.stop_after(rng.randrange(5, 150))
        try:
            node = make_node(fs, open_log(fs, clock), clock, seed * 100 + round_)
            await node.start()
            history.check(node)
            await some_work(node, history, rng)
        except (SimulatedPowerLoss, KraftlogError):
            pass  # the power went, in the call itself or under an operation that waited for it
        finally:
            fs.crash(rng)
            if node is not None:
                await node.stop()
    log = open_log(fs, clock)
    node = make_node(fs, log, clock, seed)
    await node.start()
    history.check(node)
    await node.stop()
    log.close()


async def test_damaged_metadata_log_is_refused() -> None:
    """What it lacks may have been counted towards a commit."""
    fs, clock = SimFileSystem(), FakeClock()
    fs.mkdir(DIRECTORY)
    log = open_log(fs, clock)
    log.damage = CorruptRecordError("__cluster_metadata-0: batch at position 0 is damaged")
    with pytest.raises(CorruptRecordError, match="is damaged"):
        await make_node(fs, log, clock, 1).start()
