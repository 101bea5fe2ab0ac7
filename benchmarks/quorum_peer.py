"""The same use of kraftlog and of Apache Kafka, one and three nodes, each with its own nodes and its own admin client.

Both sides are formatted before the clock starts, and their client is up and tries to reach them. Every node is broker and
voter. kraftlog and Kafka run in turn, in fresh directories; Kafka has the heap that its start script gives it (1 GiB).
"""

import json
import statistics
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from peers.kafka import KafkaAdmin, peer, performance

from kraftlog import Admin, Producer
from kraftlog.proto.errors import InvalidReplicationFactorError
from kraftlog.sdk.types import NewTopic, PartitionDescription
from kraftlog.testing.local_cluster import nodes_of
from kraftlog.testing.processes import NodeProcess, free_ports

SETTLE_S = 5.0  # after which a node is idle
PATIENCE_S = 120.0
WORKERS = Path(__file__).with_name("workers.py")


class Side(ABC):
    """A cluster that is formatted and not started, and a client that waits for it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def start(self) -> None:
        """Start the nodes and return at once."""

    @abstractmethod
    def create(self, topic: str, partitions: int, replicas: int = 1) -> None:
        """Return when every partition has a leader. Acknowledged from the page cache on both sides."""

    @abstractmethod
    def write(self, topic: str, partitions: int) -> None:
        """A record to each partition; return when all are acknowledged."""

    @abstractmethod
    def produce(self, topic: str, count: int, size_bytes: int) -> float:
        """Records per second of one client with acks=all, batches of 1 MB and linger 5."""

    @abstractmethod
    def latency(self, topic: str, count: int, size_bytes: int) -> tuple[float, float]:
        """p50 and p99 in ms, at 1,000 records a second with acks=all and linger 5."""

    @abstractmethod
    def kill_leader(self) -> None:
        """kill -9 the leader of the metadata quorum."""

    @abstractmethod
    def kill_all(self) -> None:
        """kill -9 every node; `start` brings them back."""

    @abstractmethod
    def pids(self) -> list[int]: ...

    @abstractmethod
    def close(self) -> None: ...


class KraftlogSide(Side):
    def __init__(self, directory: Path, nodes: int) -> None:
        home = directory / "kraftlog"
        if nodes == 1:
            (port,) = free_ports(1)
            home.mkdir(parents=True, exist_ok=True)
            self._nodes = [NodeProcess(home, cluster_id=str(uuid.uuid4()), address=f"127.0.0.1:{port}")]
        else:
            self._nodes = nodes_of(home, nodes)
        self.servers = ",".join(node.address for node in self._nodes)
        self._admin = Admin(  # the pauses of `AdminClient.java`
            bootstrap_servers=self.servers,
            retry_backoff_ms=10,
            retry_backoff_max_ms=50,
            default_api_timeout_ms=120_000,
        )

    def start(self) -> None:
        for node in self._nodes:
            node.launch()

    def create(self, topic: str, partitions: int, replicas: int = 1, policy: str = "interval") -> None:
        configs = {"flush.policy": policy, "min.insync.replicas": str(1 + replicas // 2)}
        new = NewTopic(name=topic, num_partitions=partitions, replication_factor=replicas, configs=configs)
        while True:
            try:
                self._admin.create_topics([new])
            except (
                InvalidReplicationFactorError
            ):  # not all brokers have registered yet; `AdminClient.java` does the same
                time.sleep(0.01)
            else:
                return

    def write(self, topic: str, partitions: int) -> None:
        with Producer(bootstrap_servers=self.servers, linger_ms=0) as producer:
            sent = [producer.send(topic, bytes(100), partition=partition) for partition in range(partitions)]
            for each in sent:
                each.result(PATIENCE_S)

    def kill_leader(self) -> None:
        leader_id = self._admin.describe_cluster().controller_id
        self.node(leader_id).kill9()

    def kill_all(self) -> None:
        for node in self._nodes:
            node.kill9()

    def node(self, node_id: int) -> NodeProcess:
        return next(node for node in self._nodes if node.node_id == node_id)

    def partition(self, topic: str) -> PartitionDescription:
        """The only one of a topic."""
        (described,) = self._admin.describe_topics([topic])
        return described.partitions[0]

    def produce(self, topic: str, count: int, size_bytes: int) -> float:
        return count / self._worker("produce", topic, count, size_bytes)["seconds"]

    def latency(self, topic: str, count: int, size_bytes: int) -> tuple[float, float]:
        found = self._worker("latency", topic, count, size_bytes)
        return found["p50_ms"], found["p99_ms"]

    def _worker(self, what: str, topic: str, count: int, size_bytes: int) -> dict[str, float]:
        command = [sys.executable, str(WORKERS), what, "--bootstrap", self.servers, "--topic", topic]
        command += ["--count", str(count), "--size", str(size_bytes)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr[-2000:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def pids(self) -> list[int]:
        return [node.pid for node in self._nodes if node.pid is not None]

    def close(self) -> None:
        self._admin.close()
        for node in self._nodes:
            node.close()


class KafkaSide(Side):
    def __init__(self, directory: Path, nodes: int) -> None:
        self._environment = {"KAFKA_DATA": str(directory / "kafka")}
        self._peer("format", nodes)
        self._admin = KafkaAdmin(self._peer("bootstrap"))

    def _peer(self, *arguments: object) -> str:
        return peer(*arguments, env=self._environment)

    def start(self) -> None:
        self._peer("up")

    def create(self, topic: str, partitions: int, replicas: int = 1) -> None:
        self._admin.ask(f"create {topic} {partitions} {replicas}")

    def write(self, topic: str, partitions: int) -> None:
        self._admin.ask(f"write {topic} {partitions}")

    def kill_leader(self) -> None:
        self._peer("kill9", self._admin.ask("leader"))

    def kill_all(self) -> None:
        for line in self._peer("pids").splitlines():
            self._peer("kill9", line.split()[0])
        while self._peer("pids"):  # a JVM gives its memory back before it is gone
            time.sleep(0.01)

    def produce(self, topic: str, count: int, size_bytes: int) -> float:
        return performance(self._peer("bootstrap"), topic, count, size_bytes, "all").records_per_second

    def latency(self, topic: str, count: int, size_bytes: int) -> tuple[float, float]:
        found = performance(self._peer("bootstrap"), topic, count, size_bytes, "all", rate=1_000)
        return found.p50_ms, found.p99_ms

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self._peer("pids").splitlines()]

    def close(self) -> None:
        self._admin.close()
        self._peer("stop")


def compare(scratch: Path, *, rounds: int, partitions: int) -> Iterator[tuple[str, float, float, str]]:
    """(what, kraftlog's figure, Kafka's, unit): medians of the rounds."""
    peer("setup")
    for nodes in (1, 3):
        ours: list[dict[str, float]] = []
        peers: list[dict[str, float]] = []
        for number in range(rounds):
            directory = scratch / f"{nodes}-{number}"
            with KraftlogSide(directory, nodes) as side:
                ours.append(_figures(side, nodes, partitions))
            with KafkaSide(directory, nodes) as side:
                peers.append(_figures(side, nodes, partitions))
        for what in ours[0]:
            unit = "MiB" if "memory" in what else "s"
            yield (
                f"{what}, {nodes} node{'s' if nodes > 1 else ''}",
                statistics.median(figures[what] for figures in ours),
                statistics.median(figures[what] for figures in peers),
                unit,
            )


def _figures(side: Side, nodes: int, partitions: int) -> dict[str, float]:
    figures = {"start to first topic": seconds_of(lambda: (side.start(), side.create("first", 1)))}
    time.sleep(SETTLE_S)
    figures["resident memory of an idle node"] = resident_mib(side)
    created = figures[f"{partitions:,} partitions created"] = seconds_of(lambda: side.create("many", partitions))
    written = created + seconds_of(lambda: side.write("many", partitions))  # Kafka makes the logs behind its answer
    figures[f"{partitions:,} partitions created, and a record acknowledged in each"] = written
    time.sleep(SETTLE_S)
    figures[f"resident memory of a node after {partitions:,} partitions"] = resident_mib(side)
    if nodes > 1:
        side.create("before", 1)
        side.kill_leader()
        figures["controller failover, kill -9 to the next topic"] = seconds_of(lambda: side.create("after", 1))
    return figures


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def resident_mib(side: Side) -> float:
    """The mean of the nodes."""
    sizes = []
    for pid in side.pids():
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            sizes.append(next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024)
    return statistics.mean(sizes)
