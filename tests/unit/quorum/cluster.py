"""QuorumNodes in one process on virtual time, with their transport over the simulated network."""

import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from kraftlog.kraft.controller import BrokerRegistration
from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS
from kraftlog.kraft.raft import RaftConfig, ReplicaKey
from kraftlog.logstore import Log, LogConfig
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from kraftlog.proto.seams import Server
from kraftlog.server.quorum import Peers, PeersConfig, QuorumConfig, QuorumNode
from kraftlog.server.quorum.snapshots import SnapshotConfig
from kraftlog.testing.clock import SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.filesystem import SimFileSystem
from kraftlog.testing.loop import SimProcess, VirtualLoop, run_virtual
from kraftlog.testing.network import LinkConfig, SimNetwork

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
PORT = 9093
DIRECTORY = "/data/__cluster_metadata-0"
LOG_CONFIGS = {**METADATA_LOG_CONFIGS, "segment.bytes": "4000"}
ELECTION_MS = 1_000.0
FETCH_MS = 2_000.0

Work = Callable[["Cluster"], Coroutine[Any, Any, None]]


def directory_of(number: int, life: int = 0) -> bytes:
    return bytes([number, life]) + bytes(14)


def host_of(number: int) -> str:
    return f"n{number}"


def endpoint_of(number: int) -> Endpoint:
    return Endpoint(host_of(number), PORT)


class Machine:
    """One host: what is on its disk, and the process that runs on it, if one does."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.disk_life = 0
        self.replace_disk()
        self.process = SimProcess(host_of(number))
        self.node: QuorumNode | None = None
        self.peers: Peers | None = None
        self.server: Server | None = None

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.number, directory_of(self.number, self.disk_life))

    def replace_disk(self) -> None:
        self.disk_life += 1
        self.fs = SimFileSystem()
        self.fs.mkdir(DIRECTORY)
        self.fs.fsync_dir("/data")
        self.fs.fsync_dir("/")
        self.log: Log | None = None

    def open_log(self, now_ms: int) -> Log:
        self.log = Log(
            self.fs,
            DIRECTORY,
            topic="__cluster_metadata",
            partition=0,
            config=LogConfig.from_configs(LOG_CONFIGS),
            now_ms=now_ms,
        )
        return self.log


class Cluster:
    """`voters` are the first ones; the other machines observe."""

    def __init__(self, loop: VirtualLoop, seed: int, voters: Iterable[int], bootstrap: Iterable[int]) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.network = SimNetwork(loop, random.Random(seed + 1), LinkConfig(spike_probability=0))
        self.machines: dict[int, Machine] = {}
        self.first_voters = frozenset(self.machine(number).key for number in voters)
        self.bootstrap = [endpoint_of(number) for number in bootstrap]
        self.cluster_ids: dict[int, str] = {}
        self.hidden: set[int] = set()
        """Nodes that can dial, but that nobody can dial."""
        self.raft = RaftConfig()
        self.snapshots = SnapshotConfig()

    def machine(self, number: int) -> Machine:
        if number not in self.machines:
            self.machines[number] = Machine(number)
        return self.machines[number]

    def node(self, number: int) -> QuorumNode:
        node = self.machines[number].node
        assert node is not None, f"node {number} is down"
        return node

    def peers(self, number: int) -> Peers:
        peers = self.machines[number].peers
        assert peers is not None, f"node {number} is down"
        return peers

    @property
    def running(self) -> list[QuorumNode]:
        return [machine.node for machine in self.machines.values() if machine.node is not None]

    # --- processes ----------------------------------------------------------------------------------------------

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            machine = self.machine(number)
            machine.process = SimProcess(host_of(number))
            await self.loop.spawn(machine.process, self._start(machine))

    async def _start(self, machine: Machine) -> None:
        host = self.network.host(host_of(machine.number))
        clock = SimClock(self.loop)
        peers = Peers(
            cluster_id=self.cluster_ids.get(machine.number, CLUSTER),
            key=machine.key,
            connector=host,
            clock=clock,
            random=self._random(),
            addresses=AddressBook(self.bootstrap),
            endpoint=None if machine.number in self.hidden else endpoint_of(machine.number),
            config=PeersConfig(silence_timeout_ms=FETCH_MS),
        )
        machine.server = await host.serve(str(endpoint_of(machine.number)), peers.handlers())
        machine.peers = peers
        machine.node = QuorumNode(
            config=QuorumConfig(
                node_id=machine.number,
                cluster_id=CLUSTER,
                directory_id=machine.key.directory_id,
                voters=self.first_voters,
                raft=self.raft,
                snapshots=self.snapshots,
            ),
            log=machine.open_log(clock.wall_ms()),
            fs=machine.fs,
            clock=clock,
            random=self._random(),
            executor=SimExecutor(self.loop, self._random()),
            validate_topic_configs=lambda configs: None,
            peers=peers,
        )
        await machine.node.start()

    def _random(self) -> random.Random:
        return random.Random(self.random.getrandbits(32))

    def kill(self, number: int) -> None:
        """Power loss: nothing of the process runs again, and what it had not synced is gone."""
        machine = self.machines[number]
        machine.node = machine.peers = machine.server = None
        self.loop.kill(machine.process)
        self.network.crash(host_of(number))
        machine.fs.crash(self.random)
        machine.process.bury()

    async def stop(self, number: int) -> None:
        """In order."""
        machine = self.machines[number]
        node, server = machine.node, machine.server
        assert node is not None
        assert server is not None
        await node.stop()
        await server.stop(1_000)
        assert machine.log is not None
        machine.log.close()
        machine.node = machine.peers = machine.server = None

    async def stop_all(self) -> None:
        for number, machine in self.machines.items():
            if machine.node is not None:
                await self.stop(number)

    # --- faults -------------------------------------------------------------------------------------------------

    def cut_off(self, number: int) -> None:
        for other in self.machines:
            if other != number:
                self.network.partition(host_of(number), host_of(other))

    # --- waiting ------------------------------------------------------------------------------------------------

    async def until(self, is_true: Callable[[], bool], seconds: float = 10) -> float:
        """Virtual seconds that it took; the condition is looked at after every event."""
        begin = self.loop.time()
        came_true = self.loop.create_future()

        def look() -> None:
            if not came_true.done() and is_true():
                came_true.set_result(None)

        self.loop.after_event = look
        deadline = self.loop.call_later(seconds, lambda: came_true.done() or came_true.cancel())
        try:
            await came_true
        except BaseException:
            raise AssertionError(f"not within {seconds} s: {self.summary()}") from None
        finally:
            self.loop.after_event = None
            deadline.cancel()
        return self.loop.time() - begin

    async def leader(self, *, other_than: int | None = None, seconds: float = 10) -> QuorumNode:
        def leaders() -> list[QuorumNode]:
            return [
                machine.node
                for machine in self.machines.values()
                if machine.node is not None and machine.node.is_leader and machine.number != other_than
            ]

        await self.until(lambda: bool(leaders()), seconds)
        return max(leaders(), key=lambda node: node.term)

    async def converge(self, seconds: float = 10) -> None:
        """All that run have the same image, and the whole log."""

        def have_converged() -> bool:
            nodes = self.running
            return len({(node.image.offset, node.high_watermark, node.log_end_offset) for node in nodes}) == 1 and all(
                node.leader is not None for node in nodes
            )

        await self.until(have_converged, seconds)
        images = [node.image for node in self.running]
        assert all(image == images[0] for image in images)

    def summary(self) -> object:
        return {
            number: machine.node and (machine.node.leader_id, machine.node.term, machine.node.log_end_offset)
            for number, machine in self.machines.items()
        }


def number_of(node: QuorumNode) -> int:
    return node.describe().node_id


def with_cluster(
    work: Work, *, voters: Iterable[int] = (1, 2, 3), bootstrap: Iterable[int] = (1, 2, 3), seed: int = 1
) -> None:
    """Run `work` with a cluster of which nothing is started, and stop what is left."""

    async def main(loop: VirtualLoop) -> None:
        cluster = Cluster(loop, seed, voters, bootstrap)
        try:
            await work(cluster)
        finally:
            cluster.network.heal()
            await cluster.stop_all()

    loop = VirtualLoop()
    run_virtual(main(loop), loop=loop, max_seconds=600)


async def live_broker(node: QuorumNode, number: int = 7) -> int:
    epoch = await node.controller.register_broker(
        BrokerRegistration(node_id=number, incarnation_id=bytes([number]) * 16, host="localhost", port=9092)
    )
    await node.controller.heartbeat(number, epoch, metadata_offset=node.image.offset)
    return epoch


async def create(node: QuorumNode, name: str) -> CreateTopicsResponse:
    topic = NewTopic(name=name, num_partitions=1, replication_factor=1)
    return await node.controller.create_topics(CreateTopicsRequest(topics=[topic]))
