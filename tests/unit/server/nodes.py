"""Whole nodes of one cluster in one process, on virtual time, a simulated network and disks of their own."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import Message

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto import admin_pb2
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.server.config import NodeConfig
from kraftlog.server.node import Node
from kraftlog.server.storage import Voters, format_node_directory
from kraftlog.testing.clock import SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.filesystem import SimFileSystem
from kraftlog.testing.loop import SimProcess, SimTask, VirtualLoop, run_virtual
from kraftlog.testing.network import LinkConfig, SimNetwork

Response = TypeVar("Response", bound=Message)
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
ADMIN = "/kraftlog.v1.Admin/"
LOG_DIR = "/data"


@dataclass(slots=True)
class Machine:
    number: int
    config: Mapping[str, str]
    directory_id: bytes
    fs: SimFileSystem = field(default_factory=SimFileSystem)
    process: SimProcess | None = None
    node: Node | None = None
    starting: SimTask[None] | None = None

    @property
    def host(self) -> str:
        return f"n{self.number}"

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.number, self.directory_id)


class Nodes:
    """`add` machines, `format` them, `start` some."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.network = SimNetwork(loop, random.Random(seed + 1), LinkConfig(spike_probability=0))
        self.machines: dict[int, Machine] = {}

    def add(self, number: int, roles: str, *, voters: Voters, more: Mapping[str, str] | None = None) -> Machine:
        """A formatted machine: controllers listen on n<number>:9093, brokers on n<number>:9092."""
        is_broker, is_controller = "broker" in roles, "controller" in roles
        listeners = [f"PLAINTEXT://n{number}:9092"] if is_broker else []
        listeners += [f"CONTROLLER://n{number}:9093"] if is_controller else []
        machine = self.machines[number] = Machine(
            number,
            {
                "node.id": str(number),
                "process.roles": roles,
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
                "controller.quorum.bootstrap.servers": "n1:9093,n2:9093,n3:9093",
                "log.dirs": LOG_DIR,
                "num.recovery.threads.per.data.dir": "1",
                "offsets.topic.num.partitions": "3",
                **(more or {}),
            },
            directory_of(number),
        )
        self.format(machine, voters)
        return machine

    def format_without_voters(self, machine: Machine) -> None:
        """As a node that is alone."""
        self.format(machine, None)

    def format(self, machine: Machine, voters: Voters | None) -> None:
        format_node_directory(
            LOG_DIR,
            machine.fs,
            cluster_id=CLUSTER_ID,
            node_id=machine.number,
            directory_id=uuid_to_text(machine.directory_id),
            voters=voters,
            timestamp_ms=1,
        )

    # --- life

    def launch(self, *numbers: int) -> None:
        for number in numbers:
            machine = self.machines[number]
            machine.process = SimProcess(machine.host)
            machine.node = Node(
                NodeConfig.from_properties(machine.config),
                clock=SimClock(self.loop),
                random=random.Random(self.random.getrandbits(32)),
                fs=machine.fs,
                network=self.network.host(machine.host),
                executor=SimExecutor(self.loop, random.Random(self.random.getrandbits(32))),
            )
            machine.starting = self.loop.spawn(machine.process, machine.node.start())

    async def ready(self, *numbers: int) -> None:
        for number in numbers:
            starting = self.machines[number].starting
            assert starting is not None
            await starting

    async def start(self, *numbers: int) -> None:
        self.launch(*numbers)
        await self.ready(*numbers)

    async def stop(self, number: int) -> None:
        machine = self.machines[number]
        assert machine.node is not None
        assert machine.process is not None
        await self.loop.spawn(machine.process, machine.node.stop())
        machine.node = machine.process = None

    def kill(self, number: int) -> None:
        """Power loss."""
        machine = self.machines[number]
        assert machine.process is not None
        self.loop.kill(machine.process)
        self.network.crash(machine.host)
        machine.fs.crash(self.random)
        machine.process.bury()
        machine.node = machine.process = None

    async def stop_all(self) -> None:
        for number, machine in self.machines.items():
            if machine.node is not None:
                await self.stop(number)

    def cut_off(self, number: int) -> None:
        for other in self.machines:
            if other != number:
                self.network.partition(self.machines[number].host, self.machines[other].host)

    # --- asking

    async def ask(
        self, number: int, method: str, request: Message, response: type[Response], *, timeout_ms: float = 60_000
    ) -> Response:
        """A client's call of the service Admin of one broker."""
        return await self.call(f"n{number}:9092", ADMIN + method, request, response, timeout_ms=timeout_ms)

    async def call(
        self, address: str, method: str, request: Message, response: type[Response], *, timeout_ms: float = 60_000
    ) -> Response:
        channel = self.network.host("client").connect(address)
        try:
            data = await channel.unary(method, request.SerializeToString(), timeout_ms=timeout_ms)
        finally:
            await channel.close()
        answer = response()
        answer.ParseFromString(data)
        return answer

    def producer(self) -> AsyncProducer:
        """A client that sends at once and wants every in-sync replica."""
        return AsyncProducer(
            bootstrap_servers=",".join(f"{machine.host}:9092" for machine in self.machines.values()),
            acks="all",
            linger_ms=0,
            connector=self.network.host("client"),
            clock=SimClock(self.loop),
            random=random.Random(self.random.getrandbits(32)),
        )

    async def create(self, number: int, name: str, *, partitions: int = 1, factor: int = 1) -> int:
        """Create a topic through a broker; the error code."""
        topic = admin_pb2.NewTopic(name=name, num_partitions=partitions, replication_factor=factor)
        response = await self.ask(
            number,
            "CreateTopics",
            admin_pb2.CreateTopicsRequest(topics=[topic], timeout_ms=30_000),
            admin_pb2.CreateTopicsResponse,
        )
        return response.topics[0].error_code

    async def topics(self, number: int, *, allow_stale: bool = False) -> list[str]:
        response = await self.ask(
            number,
            "DescribeTopics",
            admin_pb2.DescribeTopicsRequest(allow_stale=allow_stale),
            admin_pb2.DescribeTopicsResponse,
        )
        assert response.stale == allow_stale
        return [topic.name for topic in response.topics]

    async def partition(self, number: int, topic: str) -> admin_pb2.PartitionDescription:
        """The only partition of a topic, as a broker sees it."""
        response = await self.ask(
            number,
            "DescribeTopics",
            admin_pb2.DescribeTopicsRequest(names=[topic], allow_stale=True),
            admin_pb2.DescribeTopicsResponse,
        )
        return response.topics[0].partitions[0]

    async def until(
        self, number: int, topic: str, is_true: Callable[[admin_pb2.PartitionDescription], bool], seconds: float = 30
    ) -> None:
        """Ask again and again, in virtual time."""
        deadline = self.loop.time() + seconds
        while not is_true(described := await self.partition(number, topic)):
            assert self.loop.time() < deadline, described
            await asyncio.sleep(0.1)

    async def quorum(self, number: int, *, allow_stale: bool = False) -> admin_pb2.DescribeQuorumResponse:
        return await self.ask(
            number,
            "DescribeQuorum",
            admin_pb2.DescribeQuorumRequest(allow_stale=allow_stale),
            admin_pb2.DescribeQuorumResponse,
        )


def directory_of(number: int, life: int = 0) -> bytes:
    return bytes([number, life]) + bytes(14)


def voters_of(*numbers: int) -> dict[ReplicaKey, Endpoint]:
    return {ReplicaKey(number, directory_of(number)): Endpoint(f"n{number}", 9093) for number in numbers}


def with_nodes(work: Callable[[Nodes], Coroutine[Any, Any, None]], *, seed: int = 1, max_seconds: float = 600) -> None:
    """Run `work` with a cluster of which nothing is started, and stop what is left."""

    async def main(loop: VirtualLoop) -> None:
        nodes = Nodes(loop, seed)
        try:
            await work(nodes)
        finally:
            nodes.network.heal()
            await nodes.stop_all()

    loop = VirtualLoop()
    run_virtual(main(loop), loop=loop, max_seconds=max_seconds)
