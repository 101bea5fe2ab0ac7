"""Three real nodes under real faults, while clients create, delete, alter and describe topics through all of them: what
they saw has an order that one single cluster could have given, and the cluster goes on.

A run counts only if the fault took effect and clients were answered before, during and after it; both are asserted. At
the end every topic is described through every node, so that nothing that was acknowledged can be missing unseen.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from kraftlog.testing import NodeProcess
from kraftlog.testing.local_cluster import nodes_of
from tests.checker.linearizability import find_violation
from tests.checker.topics import Create, Describe, Outcome, TopicModel
from tests.faults.client_process import ClientProcess, LeaderSeen
from tests.faults.namespaces import NetworkNamespaces, network_namespaces, nodes_in
from tests.faults.node_output import traceback_in
from tests.faults.topic_clients import Plan, TopicOperation

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NODES = 3
TOPICS = 24
OPERATIONS = 2_000
CALM, FAULTY = 60, 25  # answers that are waited for while all is well, and while a node is missing
ATTEMPT_TIMEOUT_MS = 1_000


class Run:
    """A cluster and its clients. Used from one thread."""

    def __init__(self, nodes: Sequence[NodeProcess], clients: ClientProcess, directory: Path, seed: int) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.directory = directory
        self.clients = clients
        self.random = random.Random(seed)
        self.seen_elsewhere: list[TopicOperation] = []
        """By clients that have ended."""
        self._processes = 1
        self.outages: list[tuple[float, float]] = []
        """From when until when no majority was there: nothing that was asked in between was answered in between."""

    def leader(self) -> LeaderSeen:
        """Who leads, once the clients have work done."""
        self.clients.wait_for_answers(CALM)
        return self.clients.wait_for_leader()

    def next_leader(self, old: LeaderSeen) -> LeaderSeen:
        """Another node in a later epoch, that clients work with."""
        seen = self.clients.wait_for_leader(lambda seen: seen.epoch > old.epoch and seen.leader != old.leader)
        self.clients.wait_for_answers(FAULTY)
        return seen

    def clients_of(
        self,
        node: NodeProcess,
        *,
        clients: int,
        readers: int = 0,
        attempt_timeout_ms: float = ATTEMPT_TIMEOUT_MS,
        command_prefix: Sequence[str] = (),
    ) -> ClientProcess:
        """Some that know this node alone."""
        self._processes += 1
        beside = replace(
            self.clients.plan,
            name=f"m{self._processes}-",
            number=self._processes,
            seed=self.random.getrandbits(32),
            addresses=(node.address,),
            clients=clients,
            readers=readers,
            attempt_timeout_ms=attempt_timeout_ms,
        )
        return ClientProcess(beside, self.directory, command_prefix)

    def follower(self, leader: LeaderSeen) -> NodeProcess:
        return self.nodes[self.random.choice([number for number in self.nodes if number != leader.leader])]

    def finish(self) -> list[TopicOperation]:
        """What all clients saw."""
        self.clients.wait_for_answers(CALM)
        history = self.clients.finish()
        for node in self.nodes.values():
            complaint = traceback_in(node.output)
            assert not complaint, complaint
        for begin, end in self.outages:
            assert not [each for each in history if begin < each.called_at and (each.returned_at or end) < end]
        return history + self.seen_elsewhere


def plan(seed: int, nodes: Iterable[NodeProcess]) -> Plan:
    return Plan(
        name="c",
        number=1,
        seed=seed,
        addresses=tuple(node.address for node in nodes),
        clients=8,
        readers=0,
        topics=TOPICS,
        operations=OPERATIONS,
        pause_ms_max=150,
        attempt_timeout_ms=ATTEMPT_TIMEOUT_MS,
        operation_timeout_ms=10_000,
    )


def check(history: Sequence[TopicOperation]) -> None:
    """Linearizable; and not for want of operations."""
    counts = Counter(
        f"{type(each.call).__name__.lower()}: {each.answer if isinstance(each.answer, Outcome) else bool(each.answer)}"
        for each in history
    )
    print(f"{len(history)} operations: {dict(sorted(counts.items()))}")
    violation = find_violation(history, TopicModel())
    assert violation is None, str(violation)
    assert sum(isinstance(each.call, Create) and each.answer is Outcome.DONE for each in history) >= TOPICS / 2
    final = [each for each in history if each.client.startswith("c@") and isinstance(each.call, Describe)]
    assert len(final) == TOPICS * NODES, "not every topic was described through every node at the end"


@pytest.fixture
def seed() -> int:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


@pytest.fixture
def run(tmp_path: Path, seed: int) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, NODES)
    with started(nodes), ClientProcess(plan(seed, nodes), tmp_path) as clients:
        yield Run(nodes, clients, tmp_path, seed)


@contextmanager
def started(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        launch(nodes)
        yield


def launch(nodes: Collection[NodeProcess]) -> None:
    """Together: they wait for each other."""
    for node in nodes:
        node.launch()
    for node in nodes:
        node.wait_ready()


# --- faults of processes ------------------------------------------------------------------------------------------


def kill_the_leader(run: Run) -> None:
    """kill -9; another one leads; the old one comes back."""
    old = run.leader()
    node = run.nodes[old.leader]
    node.kill9()
    run.next_leader(old)
    assert node.pid is None
    node.start()


def kill_a_follower(run: Run) -> None:
    """kill -9; the others go on; it comes back."""
    node = run.follower(run.leader())
    node.kill9()
    run.clients.wait_for_answers(FAULTY)
    assert node.pid is None
    node.start()


def pause_the_leader(run: Run) -> None:
    """SIGSTOP until another one leads; then the old one goes on where it was, and still believes that it leads. Clients that
    know no other node have sent it requests meanwhile, which it finds before any news."""
    old = run.leader()
    node = run.nodes[old.leader]
    with run.clients_of(node, clients=6, attempt_timeout_ms=30_000) as waiting:
        waiting.wait_for_answers(CALM // 3)
        node.pause()
        run.next_leader(old)
        assert node.pid is not None
        assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
        node.resume()
        waiting.wait_for_answers(CALM // 3)
        run.seen_elsewhere += waiting.finish()


def kill_a_majority(run: Run) -> None:
    """kill -9 of all but the leader, which cannot know that nobody else leads: nothing is answered until they are back."""
    leader = run.leader()
    others = [node for number, node in run.nodes.items() if number != leader.leader]
    for node in others:
        node.kill9()
    killed_at = time.monotonic()
    run.clients.wait_for_failures(2 * FAULTY)
    run.outages.append((killed_at, time.monotonic()))
    launch(others)


def kill_all(run: Run) -> None:
    """kill -9 of every node at once, and all of them come back."""
    run.leader()
    for node in run.nodes.values():
        node.kill9()
    run.clients.wait_for_failures(FAULTY)
    launch(run.nodes.values())


def restart_one_by_one(run: Run) -> None:
    """In order, the leader last."""
    leader = run.leader()
    others = [number for number in run.nodes if number != leader.leader]
    run.random.shuffle(others)
    for number in (*others, leader.leader):
        assert run.nodes[number].stop() == 0
        run.clients.wait_for_answers(FAULTY)
        run.nodes[number].start()
        run.clients.wait_for_answers(CALM)
    run.next_leader(leader)


def test_a_killed_and_a_paused_leader(run: Run) -> None:
    kill_the_leader(run)
    pause_the_leader(run)
    check(run.finish())


@pytest.mark.deep
def test_a_rolling_restart(run: Run) -> None:
    restart_one_by_one(run)
    check(run.finish())


@pytest.mark.deep
@pytest.mark.parametrize("round_", range(6))
def test_one_fault_after_another(run: Run, round_: int) -> None:
    """In an order of chance, as many as the operations last for."""
    faults = [kill_the_leader, kill_a_follower, kill_a_majority, kill_all, pause_the_leader, restart_one_by_one]
    for fault in run.random.sample(faults, 3):
        print(fault.__name__)
        fault(run)
    check(run.finish())


# --- faults of the network ----------------------------------------------------------------------------------------


@pytest.fixture
def network() -> Iterator[NetworkNamespaces]:
    with network_namespaces("node1", "node2", "node3", "clients") as network:
        yield network


def cut_the_leader_off(run: Run, network: NetworkNamespaces, *, hears: bool, is_heard: bool) -> list[TopicOperation]:
    """Until another one leads, with clients on both sides. Returns what those beside the old leader were answered from the
    moment at which the new one was seen until the cut was healed, which must be nothing."""
    old = run.leader()
    member = f"node{old.leader}"
    rest = [other for other in ("node1", "node2", "node3", "clients") if other != member]
    prefix = network.command_prefix(member)
    with run.clients_of(run.nodes[old.leader], clients=1, readers=2, command_prefix=prefix) as minority:
        minority.wait_for_answers(CALM // 3)
        if not is_heard:
            network.cut([member], rest)
        if not hears:
            network.cut(rest, [member])
        new = run.next_leader(old)
        healed_at = time.monotonic()
        network.heal()
        minority.wait_for_answers(CALM // 3)
        seen = minority.finish()
    answered = [each for each in seen if each.called_at > new.at and (each.returned_at or healed_at) < healed_at]
    run.seen_elsewhere += seen
    return answered


@pytest.fixture
def run_in_network(tmp_path: Path, seed: int, network: NetworkNamespaces) -> Iterator[Run]:
    nodes = nodes_in(network, tmp_path, NODES)
    prefix = network.command_prefix("clients")
    with started(nodes), ClientProcess(plan(seed, nodes), tmp_path, prefix) as clients:
        yield Run(nodes, clients, tmp_path, seed)


def test_a_leader_that_is_cut_off(run_in_network: Run, network: NetworkNamespaces) -> None:
    """In both directions."""
    answered = cut_the_leader_off(run_in_network, network, hears=False, is_heard=False)
    check(run_in_network.finish())
    assert not answered


@pytest.mark.deep
def test_a_leader_that_does_not_hear(run_in_network: Run, network: NetworkNamespaces) -> None:
    """Its heartbeats arrive for as long as TCP goes on without acknowledgments: it has to resign by itself."""
    answered = cut_the_leader_off(run_in_network, network, hears=False, is_heard=True)
    check(run_in_network.finish())
    assert not answered


@pytest.mark.deep
def test_a_leader_that_is_not_heard(run_in_network: Run, network: NetworkNamespaces) -> None:
    """It learns of its successor, and must not come back as the leader of its own term."""
    answered = cut_the_leader_off(run_in_network, network, hears=True, is_heard=False)
    check(run_in_network.finish())
    assert not answered
