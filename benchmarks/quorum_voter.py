"""One voter of a metadata quorum as a process: real disk, real gRPC, no broker around it; driven by lines of JSON.

    python benchmarks/quorum_voter.py DIRECTORY NODE_ID PORT PORT...    the ports of the voters 1, 2, ...

Every line on standard input is a call, `["method", argument, ...]` of `Voter`, every line on standard output its result.
What is measured is measured here, where the operation starts: no client's round trip is in it. `Voters` is the parent's
end: all voters of a quorum.
"""

import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kraftlog.proto import malloc

malloc.tune()  # as a node does

from kraftlog.kraft.controller import BrokerRegistration, ControllerConfig  # noqa: E402
from kraftlog.kraft.endpoints import AddressBook, Endpoint  # noqa: E402
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS, METADATA_TOPIC_ID  # noqa: E402
from kraftlog.kraft.raft import ReplicaKey  # noqa: E402
from kraftlog.logstore import LogConfig, LogDir, RealFileSystem  # noqa: E402
from kraftlog.proto.admin_pb2 import CreateTopicsRequest, NewTopic  # noqa: E402
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC  # noqa: E402
from kraftlog.proto.seams import CallContext, Handlers, Server  # noqa: E402
from kraftlog.proto.uuids import uuid_to_text  # noqa: E402
from kraftlog.server.grpc import GrpcNetwork  # noqa: E402
from kraftlog.server.quorum import Peers, QuorumConfig, QuorumNode, SnapshotConfig  # noqa: E402
from kraftlog.server.seams import SystemClock, ThreadExecutor  # noqa: E402
from kraftlog.server.storage import format_node_directory  # noqa: E402
from kraftlog.testing.processes import free_ports  # noqa: E402

ECHO = "/kraftlog.benchmarks/Echo"
CLUSTER = "quorum-benchmark"
RECORD_BYTES = 200  # of a batch with one record
PATIENCE_MS = 60_000.0
SESSION_MS = 86_400_000  # its brokers send no heartbeats
HERE = Path(__file__)


class Voter:
    """Used from one event loop."""

    def __init__(self, directory: Path, node_id: int, ports: list[int]) -> None:
        self._directory, self._node_id = directory, node_id
        self._endpoints = {_key(number): Endpoint("127.0.0.1", port) for number, port in enumerate(ports, 1)}
        self._executor = ThreadExecutor()
        self._network = GrpcNetwork()
        self._broker_epoch = -1
        self._server: Server | None = None
        self._node: QuorumNode | None = None

    @property
    def node(self) -> QuorumNode:
        assert self._node is not None, "open it first"
        return self._node

    async def open(self, snapshot_bytes: int) -> None:
        """Listen, load and take part. `snapshot_bytes`: after so many bytes of the log a snapshot is taken."""
        clock, fs, key = SystemClock(), RealFileSystem(), _key(self._node_id)
        format_node_directory(
            str(self._directory),
            fs,
            cluster_id=CLUSTER,
            node_id=self._node_id,
            directory_id=uuid_to_text(key.directory_id),
            voters=self._endpoints,
            timestamp_ms=clock.wall_ms(),
        )
        log_dir = LogDir.open(
            str(self._directory), fs=fs, node_id=self._node_id, cluster_id=CLUSTER, now_ms=clock.wall_ms()
        )
        log = log_dir.logs.get((CLUSTER_METADATA_TOPIC, 0)) or log_dir.create_log(
            CLUSTER_METADATA_TOPIC,
            0,
            METADATA_TOPIC_ID,
            LogConfig.from_configs(METADATA_LOG_CONFIGS),
            now_ms=clock.wall_ms(),
        )
        peers = Peers(
            cluster_id=CLUSTER,
            key=key,
            connector=self._network,
            clock=clock,
            random=random.Random(os.urandom(8)),
            addresses=AddressBook(tuple(self._endpoints.values())),
            endpoint=self._endpoints[key],
        )
        handlers = peers.handlers()
        self._server = await self._network.serve(
            str(self._endpoints[key]), Handlers(unary={**handlers.unary, ECHO: _echo}, streams=handlers.streams)
        )
        self._node = QuorumNode(
            config=QuorumConfig(
                node_id=self._node_id,
                cluster_id=CLUSTER,
                directory_id=key.directory_id,
                needs_genesis=True,
                controller=ControllerConfig(broker_session_timeout_ms=SESSION_MS),
                snapshots=SnapshotConfig(max_record_bytes_between_snapshots=snapshot_bytes),
            ),
            log=log,
            fs=fs,
            clock=clock,
            random=random.Random(os.urandom(8)),
            executor=self._executor,
            validate_topic_configs=lambda configs: None,
            peers=peers,
        )
        await self._node.start()
        gc.freeze()  # as a node does

    async def join(self) -> int:
        """Wait for the newest metadata; who leads then."""
        await self.node.read_barrier(PATIENCE_MS)
        return self.node.leader_id or 0

    async def register(self) -> None:
        """Brokers with this voter's and the others' ids, that only the metadata know."""
        for key in self._endpoints:
            registration = BrokerRegistration(
                node_id=key.node_id, incarnation_id=os.urandom(16), host="127.0.0.1", port=9
            )
            epoch = await self.node.controller.register_broker(registration)
            await self.node.controller.heartbeat(key.node_id, epoch, metadata_offset=self.node.image.offset)
            if key.node_id == self._node_id:
                self._broker_epoch = epoch

    async def commits(self, count: int) -> dict[str, list[float]]:
        """Seconds, one after the other, of: an operation of one record until it is answered; an fdatasync of as many bytes
        on this disk; an empty call to each other voter."""
        channels = [self._network.connect(str(place)) for key, place in self._endpoints.items() if key != self._own]
        seconds: dict[str, list[float]] = {"commit": [], "sync": [], "round_trip": []}
        fd = os.open(self._directory / "probe", os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, RECORD_BYTES * count)
        os.fsync(fd)
        for number in range(count):
            started = time.perf_counter()
            await self.node.controller.allocate_producer_ids(self._node_id, self._broker_epoch, 1)
            seconds["commit"].append(time.perf_counter() - started)
            os.pwrite(fd, bytes(RECORD_BYTES), RECORD_BYTES * number)
            started = time.perf_counter()
            os.fdatasync(fd)
            seconds["sync"].append(time.perf_counter() - started)
            started = time.perf_counter()
            await channels[number % len(channels)].unary(ECHO, b"", timeout_ms=PATIENCE_MS)
            seconds["round_trip"].append(time.perf_counter() - started)
        os.close(fd)
        for channel in channels:
            await channel.close()
        return seconds

    @property
    def _own(self) -> ReplicaKey:
        return _key(self._node_id)

    async def create_partitions(self, topics: int, partitions: int) -> float:
        """Seconds from the first request until the last answer; three replicas each, where there are three brokers."""
        started = time.perf_counter()
        for number in range(topics):
            topic = NewTopic(name=f"topic-{number}", num_partitions=partitions, replication_factor=len(self._endpoints))
            answer = await self.node.controller.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
            assert answer.topics[0].error_code == 0, answer
        return time.perf_counter() - started

    async def snapshot(self) -> int:
        """Wait until the newest snapshot on disk has all topics; its size in bytes."""
        offset = self.node.image.offset
        while True:
            files = sorted(self._directory.glob(f"{CLUSTER_METADATA_TOPIC}-0/*.checkpoint"))
            if files and int(files[-1].name.split("-")[0]) > offset - 100:
                return files[-1].stat().st_size
            await asyncio.sleep(0.01)

    async def load(self) -> dict[str, float]:
        """`open`, timed, and how many partitions are known before any other voter was heard."""
        started = time.perf_counter()
        await self.open(1 << 30)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "partitions": self.partitions()}

    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.node.image.topics.values())

    async def close(self) -> None:
        await self.node.stop()
        self._executor.close()


async def _echo(data: bytes, context: CallContext) -> bytes:
    return data


def _key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, bytes([node_id]) * 16)


async def _serve(voter: Voter) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        method, *arguments = json.loads(line)
        result = getattr(voter, method)(*arguments)
        print(json.dumps(await result if asyncio.iscoroutine(result) else result), flush=True)
        if method == "close":
            os._exit(0)  # the parent has its answer; nothing here is worth an orderly end


class Voters:
    """The parent's end: the processes of one quorum, by node id. Used from one thread."""

    def __init__(self, directory: Path, count: int) -> None:
        self._ports = [str(port) for port in free_ports(count)]
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def launch(self, *node_ids: int) -> None:
        for node_id in node_ids:
            command = [sys.executable, str(HERE), str(self._directory / str(node_id)), str(node_id), *self._ports]
            self._processes[node_id] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )

    def call(self, node_id: int, method: str, *arguments: object) -> Any:
        self.tell(node_id, method, *arguments)
        return self.answer(node_id)

    def tell(self, node_id: int, method: str, *arguments: object) -> None:
        """A call whose `answer` is taken later."""
        pipe = self._processes[node_id].stdin
        assert pipe is not None
        pipe.write(json.dumps([method, *arguments]) + "\n")
        pipe.flush()

    def answer(self, node_id: int) -> Any:
        pipe = self._processes[node_id].stdout
        assert pipe is not None
        line = pipe.readline()
        if not line:
            raise RuntimeError(f"voter {node_id} ended with exit code {self._processes[node_id].wait()}")
        return json.loads(line)

    def open(self, snapshot_bytes: int = 1 << 30) -> int:
        """Start all of them, wait for a leader that has committed, and return its id."""
        node_ids = range(1, len(self._ports) + 1)
        self.launch(*node_ids)
        for node_id in node_ids:
            self.tell(node_id, "open", snapshot_bytes)
        for node_id in node_ids:
            self.answer(node_id)
        return int(self.call(1, "join"))

    def close(self) -> None:
        """End every voter in order, so that each has all on its disk."""
        for node_id, process in self._processes.items():
            self.call(node_id, "close")
            process.communicate()
        self._processes.clear()


if __name__ == "__main__":
    asyncio.run(_serve(Voter(Path(sys.argv[1]), int(sys.argv[2]), [int(port) for port in sys.argv[3:]])))
