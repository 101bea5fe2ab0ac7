"""Nodes of the quorum with real gRPC on loopback, real disks and real time."""

import asyncio
import random
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftlog.kraft.controller import BrokerRegistration
from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS
from kraftlog.kraft.raft import RaftConfig, ReplicaKey
from kraftlog.logstore import Log, LogConfig, RealFileSystem
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, NewTopic
from kraftlog.proto.errors import NotControllerError
from kraftlog.proto.seams import Server
from kraftlog.server.grpc import GrpcNetwork
from kraftlog.server.quorum import Peers, PeersConfig, QuorumConfig, QuorumNode
from kraftlog.server.quorum.snapshots import SnapshotConfig
from kraftlog.server.seams import SystemClock, ThreadExecutor

TICK_MS = 100  # the default: a loaded machine must not cost the leader its leadership
FETCH_MS = 2_000.0
PATIENCE_S = 60.0  # for what takes a second or two


class Member:
    """One node, over several lives on one directory."""

    def __init__(self, number: int, path: Path) -> None:
        self.key = ReplicaKey(number, bytes([number] * 16))
        self.directory = path / str(number) / "__cluster_metadata-0"
        self.directory.mkdir(parents=True)
        self.endpoint: Endpoint | None = None
        self.executor = ThreadExecutor(2)

    async def start(self, members: list["Member"], voters: frozenset[ReplicaKey], book: AddressBook) -> None:
        network = GrpcNetwork()
        clock = SystemClock()
        peers = Peers(
            cluster_id="c",
            key=self.key,
            connector=network,
            clock=clock,
            random=random.Random(secrets.randbits(32)),
            addresses=book,
            config=PeersConfig(silence_timeout_ms=FETCH_MS, keep_alive_ms=500),
        )
        address = "127.0.0.1:0" if self.endpoint is None else str(self.endpoint)
        self.server: Server = await network.serve(address, peers.handlers())
        self.endpoint = Endpoint.parse(self.server.address)
        peers.advertise(self.endpoint)
        self.log = Log(
            RealFileSystem(),
            str(self.directory),
            topic="__cluster_metadata",
            partition=0,
            config=LogConfig.from_configs(METADATA_LOG_CONFIGS),
            now_ms=clock.wall_ms(),
        )
        self.node = QuorumNode(
            config=QuorumConfig(
                node_id=self.key.node_id,
                cluster_id="c",
                directory_id=self.key.directory_id,
                voters=voters,
                tick_ms=TICK_MS,
                raft=RaftConfig(fetch_ticks=int(FETCH_MS / TICK_MS)),
                snapshots=SnapshotConfig(max_record_bytes_between_snapshots=5_000),
            ),
            log=self.log,
            fs=RealFileSystem(),
            clock=clock,
            random=random.Random(secrets.randbits(32)),
            executor=self.executor,
            validate_topic_configs=lambda configs: None,
            peers=peers,
        )
        members.append(self)

    async def stop(self) -> None:
        await self.node.stop()
        await self.server.stop(1_000)
        self.log.close()


async def until(is_true: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S * 100)):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within {PATIENCE_S} s")


async def create(node: QuorumNode, name: str) -> None:
    topic = NewTopic(name=name, num_partitions=1, replication_factor=1)
    response = await node.controller.create_topics(CreateTopicsRequest(topics=[topic]))
    assert response.topics[0].error_code == 0


@pytest.mark.slow
async def test_three_voters_and_an_observer_over_grpc(tmp_path: Path) -> None:
    """Election, commits, an observer, reads everywhere, a leader that stops in order, its return, growth."""
    members = [Member(number, tmp_path) for number in (1, 2, 3, 4)]
    voters = frozenset(member.key for member in members[:3])
    books = [AddressBook() for _ in members]
    running: list[Member] = []
    try:
        for member, book in zip(members, books, strict=True):
            await member.start(running, voters, book)
        endpoints = {member.key: member.endpoint for member in members[:3] if member.endpoint is not None}
        for member, book in zip(members, books, strict=True):
            book.record(endpoints)
            await member.node.start()

        await until(lambda: any(member.node.is_leader for member in running))
        (leader,) = (member for member in running if member.node.is_leader)
        epoch = await leader.node.controller.register_broker(
            BrokerRegistration(node_id=7, incarnation_id=bytes(16), host="localhost", port=9092)
        )
        await leader.node.controller.heartbeat(7, epoch, metadata_offset=leader.node.image.offset)
        await asyncio.gather(*(create(leader.node, f"t{number}") for number in range(60)))
        for member in running:
            await member.node.read_barrier(PATIENCE_S * 1_000)
            assert len(member.node.image.topics) == 60
        assert [state.key for state in leader.node.describe().observers] == [members[3].key]

        await leader.stop()
        running.remove(leader)
        await until(lambda: any(member.node.is_leader for member in running))
        (successor,) = (member for member in running if member.node.is_leader)
        assert successor in members[:3]
        with pytest.raises(NotControllerError):
            await create(members[3].node, "x")
        await create(successor.node, "after")
        await members[3].node.read_barrier(PATIENCE_S * 1_000)
        assert "after" in members[3].node.image.topics

        await leader.start(running, voters, books[members.index(leader)])
        await leader.node.start()
        await until(lambda: leader.node.image == successor.node.image)
        assert successor.node.is_leader, "a node that comes back deposes nobody"
        await successor.node.add_voter(members[3].key)
        await until(lambda: all(len(member.node.voters) == 4 for member in running))
    finally:
        for member in running:
            await member.stop()
        for member in members:
            member.executor.close()
