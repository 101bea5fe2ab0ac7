"""Three nodes under verifiable load, for tests that then break something: producers, readers and a watcher in processes of
their own, what was promised by whom, and the judgment at the end.

A run counts only if its load was real: whoever breaks something waits for acknowledgments before, during and after it.
"""

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from kraftlog.testing import NodeProcess
from tests.checker.records import History, find_violations
from tests.faults.record_clients import ASSIGNED, FINAL, GROUP, PRODUCER, REPLICAS, WATCHER, Plan
from tests.faults.record_process import WAIT_S, RecordProcess, Seen

TOPIC = "verified"
PARTITIONS = 3
ON_ITS_WAY_S = 1.0
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
        flush_policy: str = "ack",
    ) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.random = random.Random(seed)
        self._directory = directory
        self._prefix = command_prefix
        self._flush_policy = flush_policy
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
            flush_policy=self._flush_policy,
        )
        return self._stack.enter_context(RecordProcess(plan, self._directory, self._prefix))

    def acknowledge(self, count: int) -> None:
        """Wait until each producer has had so many more acknowledgments."""
        for producer in self.producers:
            producer.wait_for_acknowledgments(count)

    def partition(self, number: int) -> Seen:
        with self.watcher.changed:
            return self.watcher.told.partitions[number]

    def leader(self, partition: int) -> NodeProcess:
        """Once there is load."""
        self.acknowledge(CALM)
        return self.nodes[self.partition(partition).leader]

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

    def wait_for_silence(self, seconds: float) -> None:
        """Without a majority nothing is acknowledged, for as long as this: but for what was on its way."""
        time.sleep(ON_ITS_WAY_S)
        begin = [len(producer.told.acknowledged) for producer in self.producers]
        time.sleep(seconds)
        assert [len(producer.told.acknowledged) for producer in self.producers] == begin

    def finish(self) -> None:
        """All replicas in sync again, the load ended, and what happened judged."""
        self.acknowledge(CALM)
        self.wait_for_in_sync()
        for producer in self.producers:
            producer.finish()
            assert not producer.told.failed, f"{len(producer.told.failed)} failed, {producer.told.failed[:3]}"
        seconds = time.monotonic() - self.began_at
        final = self.client_of(FINAL, "final", list(self.nodes.values()))
        final.wait(lambda told: told.has_ended, "end of the final reader")
        final.finish()
        self._drain(final.told.ends)
        self._judge(final, seconds)
        self._compare_replicas()

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

    def _compare_replicas(self) -> None:
        """Every replica has the same bytes, once all nodes have stopped in order."""
        for node in self.nodes.values():
            assert node.stop() == 0, node.output[-3000:]
            assert "Traceback" not in node.output, node.output[node.output.index("Traceback") - 500 :][:3000]
        for partition in range(PARTITIONS):
            logs = {number: log_bytes(node, partition) for number, node in self.nodes.items()}
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
