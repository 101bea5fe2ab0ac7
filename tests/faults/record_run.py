"""Three nodes under verifiable load, for tests that then break something: producers, readers and a watcher in processes of
their own, what was promised by whom, and the judgment at the end.

A run counts only if its load was real: whoever breaks something waits for acknowledgments before, during and after it, and
says what was seen to take effect (`took_effect`).
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from kraftlog.testing import NodeProcess
from tests.checker.records import History, find_violations
from tests.faults.amounts import Kind
from tests.faults.node_output import traceback_in
from tests.faults.record_clients import ASSIGNED, FINAL, GROUP, PRODUCER, REPLICAS, WATCHER, Plan
from tests.faults.record_process import WAIT_S, RecordProcess, Seen

NODES = 3
TOPIC = "verified"
PARTITIONS = 3
SESSION_S = 1.5  # where a fault strikes many times
CONFIG = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",  # who leads changes by what is done here, not by the time of day
}
SHORT_TIMEOUTS = {
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "3000",
}
STEADY_LOAD_PER_S = 200
CALM, FAULTY = 200, 100  # acknowledgments that are waited for while all is well, and while something is broken


class Run:
    """Used from one thread."""

    def __init__(
        self,
        nodes: Sequence[NodeProcess],
        directory: Path,
        seed: int,
        *,
        command_prefix: Sequence[str] = (),
        topic_configs: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.random = random.Random(seed)
        self.effects: Counter[Kind] = Counter()
        """Faults that were seen to take effect."""
        self._forgiven: dict[int, int] = {}
        """How much of what a node has said is not looked at for tracebacks."""
        self._directory = directory
        self._prefix = command_prefix
        self._topic_configs = dict(topic_configs or {})
        self._stack = ExitStack()

    @contextmanager
    def load(self) -> Iterator["Run"]:
        """With all clients at work, and every replica in sync at the beginning."""
        with self._stack:
            self.watcher = self._client(WATCHER, "watcher")
            self.wait_for_in_sync()
            self.producers = [self._client(PRODUCER, f"p{number}") for number in range(2)]
            self.readers = [self._client(ASSIGNED, "reader"), *(self._client(GROUP, f"member{n}") for n in range(2))]
            self.began_at = time.monotonic()
            yield self

    def client_of(self, role: str, name: str, servers: Collection[NodeProcess]) -> RecordProcess:
        """One more, that knows these nodes alone at first."""
        plan = Plan(
            role=role,
            name=name,
            bootstrap_servers=",".join(node.address for node in servers),
            topic=TOPIC,
            partitions=PARTITIONS,
            configs=self._topic_configs,
        )
        return self._stack.enter_context(RecordProcess(plan, self._directory, self._prefix))

    def acknowledge(self, count: int) -> None:
        """Wait until each producer has had so many more acknowledgments."""
        for producer in self.producers:
            producer.wait_for_acknowledgments(count)

    def load_in_peace(self, seconds: float) -> None:
        """Wait until the load has been what it must be for a run to count, for as long as this."""
        deadline = time.monotonic() + WAIT_S
        per_s = 0.0
        while per_s < STEADY_LOAD_PER_S:
            assert time.monotonic() < deadline, f"void: {per_s:.0f} acknowledgments per second in peace"
            before, begin = self._acknowledged_of(range(PARTITIONS)), time.monotonic()
            time.sleep(seconds)  # how long the load is measured
            per_s = (self._acknowledged_of(range(PARTITIONS)) - before) / (time.monotonic() - begin)

    def took_effect(self, kind: Kind) -> None:
        self.effects[kind] += 1
        print(
            f"{time.monotonic() - self.began_at:6.1f} s: {kind.name}, {self.effects[kind]} of {kind.times}", flush=True
        )

    def partition(self, number: int) -> Seen:
        with self.watcher.changed:
            return self.watcher.told.partitions[number]

    def leader(self, partition: int) -> NodeProcess:
        """Once there is load."""
        self.acknowledge(CALM)
        return self.nodes[self.partition(partition).leader]

    def any_leader(self) -> NodeProcess:
        return self.leader(self.random.randrange(PARTITIONS))

    @property
    def addresses(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    def shuffled_nodes(self) -> list[NodeProcess]:
        return self.random.sample(list(self.nodes.values()), len(self.nodes))

    def wait_for_partitions(self, is_wanted: Callable[[int, Seen], bool], what: str) -> None:
        """Wait until the newest that is known of every partition is as wanted."""

        def wanted(partitions: dict[int, Seen]) -> bool:
            return len(partitions) == PARTITIONS and all(is_wanted(*each) for each in partitions.items())

        self.watcher.wait(lambda told: wanted(told.partitions), what)

    def wait_for_leaders_other_than(self, *nodes: int) -> None:
        self.wait_for_partitions(lambda _, seen: seen.leader not in (-1, *nodes), f"leaders other than {nodes}")

    def wait_for_isr_without(self, *nodes: int) -> None:
        self.wait_for_partitions(lambda _, seen: not seen.isr & set(nodes), f"in-sync replicas without {nodes}")

    def wait_for_in_sync(self) -> None:
        self.wait_for_partitions(
            lambda _, seen: len(seen.isr) == REPLICAS and seen.leader >= 0, "ISR with all replicas"
        )

    def wait_for_silence(self, seconds: float, partitions: Collection[int] = range(PARTITIONS)) -> None:
        """Wait until nothing more is acknowledged of these for as long as this: what was on its way comes first."""
        deadline = time.monotonic() + WAIT_S
        begin, end = -1, self._acknowledged_of(partitions)
        while begin != end:
            assert time.monotonic() < deadline, f"{end - begin} acknowledgments in {seconds} s"
            time.sleep(seconds)  # how long the silence lasts
            begin, end = end, self._acknowledged_of(partitions)

    def wait_until_said(self, node: NodeProcess, text: str) -> None:
        """By this node, at any time since it was first started."""
        deadline = time.monotonic() + WAIT_S
        while text not in node.output:
            assert time.monotonic() < deadline, f"node {node.node_id} has not said {text!r}: {node.output[-3000:]}"
            self.watcher.wait_for_news(0.1)

    def forgive(self, node: NodeProcess) -> None:
        """What it has said so far: its disk was made to fail."""
        self._forgiven[node.node_id] = len(node.output)

    def finish(self, *kinds: Kind) -> None:
        """The faults have taken effect as often as they are to, all replicas are in sync again, the load ended, and what
        happened is judged."""
        assert {kind: self.effects[kind] for kind in kinds} == {kind: kind.times for kind in kinds}
        self.acknowledge(CALM)
        self.wait_for_in_sync()
        for producer in self.producers:
            producer.finish()
            assert not producer.told.failed, f"{len(producer.told.failed)} failed, {producer.told.failed[:3]}"
        seconds = time.monotonic() - self.began_at
        replicas = {number: self.partition(number).isr for number in range(PARTITIONS)}
        final = self.client_of(FINAL, "final", list(self.nodes.values()))
        final.wait(lambda told: told.has_ended, "end of the final reader")
        final.finish()
        self._drain(final.told.ends)
        self._judge(final, seconds)
        self._compare_replicas(replicas)

    def _acknowledged_of(self, partitions: Collection[int]) -> int:
        told = 0
        for producer in self.producers:
            with producer.changed:
                told += sum(each.partition in partitions for each in producer.told.acknowledged)
        return told

    def _client(self, role: str, name: str) -> RecordProcess:
        return self.client_of(role, name, list(self.nodes.values()))

    def _drain(self, ends: dict[int, int]) -> None:
        """Until each reader, and the members of the group together, have come to the end."""
        lone, *members = self.readers
        lone.wait(lambda told: told.ends == ends, f"end {ends}")
        for partition, end in ends.items():
            deadline = time.monotonic() + WAIT_S
            while max(member.told.ends.get(partition, 0) for member in members) < end:
                assert time.monotonic() < deadline, f"the group did not come to {end} of partition {partition}"
                members[0].wait_for_news(0.1)
        for reader in self.readers:
            reader.finish()

    def _judge(self, final: RecordProcess, seconds: float) -> None:
        acknowledged = [each for producer in self.producers for each in producer.told.acknowledged]
        sent = {producer.plan.name: producer.told.sent or 0 for producer in self.producers}
        sessions = [session for reader in self.readers for session in reader.sessions()]
        last = {session.partition: session.records for session in final.sessions()}
        print(
            f"{sum(sent.values())} sent, {len(acknowledged)} acknowledged in {seconds:.1f} s, {len(sessions)} sessions, "
            f"longest pause {max(map(longest_pause, self.producers)):.2f} s"
        )
        assert len(acknowledged) == sum(sent.values())
        findings = find_violations(History(sent, acknowledged, sessions, last))
        assert not findings, "\n".join(map(str, findings))

    def _compare_replicas(self, replicas: Mapping[int, Collection[int]]) -> None:
        """Every replica has the same bytes, once all nodes have stopped in order."""
        for node in self.nodes.values():
            assert node.stop() == 0, node.output[-3000:]
            complaint = traceback_in(node.output[self._forgiven.get(node.node_id, 0) :])
            assert not complaint, complaint
        for partition, numbers in replicas.items():
            logs = {number: log_bytes(self.nodes[number], partition) for number in numbers}
            sizes = {number: len(data) for number, data in logs.items()}
            assert len(set(logs.values())) == 1, f"the replicas of partition {partition} differ; bytes {sizes}"
            assert min(sizes.values()) > 0


def longest_pause(producer: RecordProcess) -> float:
    """Between two acknowledgments."""
    at = producer.told.acknowledged_at
    return max((later - earlier for earlier, later in pairwise(at)), default=0.0)


def log_bytes(node: NodeProcess, partition: int) -> bytes:
    folder = node.log_dir / f"{TOPIC}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def launch(nodes: Collection[NodeProcess]) -> None:
    """Together: they wait for each other."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()


@contextmanager
def started(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        launch(nodes)
        yield
