"""Three real nodes under real faults and verifiable load: no acknowledged record is lost, changed, doubled or out of order, no
reader is misled, and all replicas are equal in the end. Here: processes that are killed, paused, stopped, and moves under way.

acks=all, three replicas, min.insync.replicas=2. Each fault is seen to have taken effect: another leader, in-sync replicas
without the node that is missing, nothing acknowledged while a majority is. How often each strikes is in `amounts`.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from kraftlog import Admin, TopicPartition
from kraftlog.testing import NodeProcess
from kraftlog.testing.local_cluster import nodes_of
from tests.faults.amounts import Kind
from tests.faults.record_process import Seen
from tests.faults.record_run import CALM, FAULTY, PARTITIONS, SESSION_S, TOPIC, Run, launch, started

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 3.0  # session time-outs


# --- kill -9 ------------------------------------------------------------------------------------------------------


def kill_a_leader(run: Run) -> None:
    """Its partitions get other leaders; it comes back into the in-sync replicas."""
    node = run.any_leader()
    node.kill9()
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    assert node.pid is None
    run.took_effect(Kind.KILL_ONE)
    node.start()
    run.wait_for_in_sync()


def kill_a_majority(run: Run) -> None:
    """Of all but one: nothing is acknowledged until they are back."""
    run.acknowledge(FAULTY)
    killed = run.shuffled_nodes()[1:]
    for node in killed:
        node.kill9()
    run.wait_for_silence(1.0)
    run.took_effect(Kind.KILL_MAJORITY)
    launch(killed)
    run.acknowledge(FAULTY)


def kill_all(run: Run) -> None:
    """One right after the other."""
    run.acknowledge(FAULTY)
    for node in run.shuffled_nodes():
        node.kill9()
    run.wait_for_silence(0.5)
    run.took_effect(Kind.KILL_ALL)
    launch(list(run.nodes.values()))
    run.acknowledge(FAULTY)


@pytest.mark.deep
def test_kills_of_a_leader(run: Run) -> None:
    run.load_in_peace(4.0)
    for _ in range(Kind.KILL_ONE.times):
        kill_a_leader(run)
    run.finish(Kind.KILL_ONE)


@pytest.mark.deep
def test_kills_of_a_majority(run: Run) -> None:
    run.load_in_peace(4.0)
    for _ in range(Kind.KILL_MAJORITY.times):
        kill_a_majority(run)
    run.finish(Kind.KILL_MAJORITY)


@pytest.mark.deep
def test_kills_of_all(run: Run) -> None:
    run.load_in_peace(4.0)
    for _ in range(Kind.KILL_ALL.times):
        kill_all(run)
    run.finish(Kind.KILL_ALL)


# --- SIGSTOP ------------------------------------------------------------------------------------------------------


def assert_stopped(node: NodeProcess) -> None:
    assert node.pid is not None
    assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED


def pause_a_leader(run: Run) -> None:
    """Until others lead; then it goes on where it was, and still believes that it leads."""
    node = run.any_leader()
    node.pause()
    run.wait_for_leaders_other_than(node.node_id)
    run.acknowledge(FAULTY)
    assert_stopped(node)
    run.took_effect(Kind.PAUSE_LEADER)
    node.resume()
    run.wait_for_in_sync()


def some_pause_s(run: Run) -> float:
    return SESSION_S * run.random.uniform(SHORTEST_PAUSE, LONGEST_PAUSE)


@pytest.mark.deep
def test_pauses(run: Run) -> None:
    """Shorter and longer than the session."""
    run.load_in_peace(4.0)
    for _ in range(Kind.PAUSE.times // len(run.nodes)):
        for node in run.shuffled_nodes():
            node.pause()
            time.sleep(some_pause_s(run))  # how long the fault lasts
            assert_stopped(node)
            node.resume()
            run.took_effect(Kind.PAUSE)
            run.acknowledge(FAULTY)
    run.finish(Kind.PAUSE)


@pytest.mark.deep
def test_pauses_of_a_leader(run: Run) -> None:
    run.load_in_peace(4.0)
    for _ in range(Kind.PAUSE_LEADER.times):
        pause_a_leader(run)
    run.finish(Kind.PAUSE_LEADER)


@pytest.mark.deep
def test_pauses_of_all(run: Run) -> None:
    """The whole cluster stands still, and finds every time-out over when it goes on."""
    run.load_in_peace(4.0)
    for _ in range(Kind.PAUSE_ALL.times):
        run.acknowledge(FAULTY)
        for node in run.shuffled_nodes():
            node.pause()
        run.wait_for_silence(some_pause_s(run) / 2)
        for node in run.shuffled_nodes():
            assert_stopped(node)
            node.resume()
        run.took_effect(Kind.PAUSE_ALL)
    run.finish(Kind.PAUSE_ALL)


def test_a_killed_and_a_paused_leader(run: Run) -> None:
    kill_a_leader(run)
    pause_a_leader(run)
    run.finish()


# --- what operators do --------------------------------------------------------------------------------------------


@pytest.mark.deep
def test_stops_of_a_leader(run: Run) -> None:
    """SIGTERM: its partitions are led by others before it is gone."""
    run.load_in_peace(4.0)
    for _ in range(Kind.CLEAN_STOP.times):
        node = run.any_leader()
        assert node.stop() == 0
        run.wait_for_leaders_other_than(node.node_id)
        run.wait_for_isr_without(node.node_id)
        run.acknowledge(FAULTY)
        run.took_effect(Kind.CLEAN_STOP)
        node.start()
        run.wait_for_in_sync()
    run.finish(Kind.CLEAN_STOP)


@pytest.mark.deep
def test_a_rolling_restart(run: Run) -> None:
    """Each node comes back into the in-sync replicas before the next one goes."""
    run.load_in_peace(4.0)
    for node in run.shuffled_nodes():
        run.acknowledge(CALM)
        assert node.stop() == 0
        run.wait_for_isr_without(node.node_id)
        run.acknowledge(FAULTY)
        node.start()
        run.wait_for_in_sync()
    run.took_effect(Kind.ROLLING_RESTART)
    run.finish(Kind.ROLLING_RESTART)


@pytest.mark.deep
def test_elections(run: Run) -> None:
    """In turn: the partitions' preferred leaders after a stop, and another leader of the quorum."""
    run.load_in_peace(4.0)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Admin(bootstrap_servers=run.addresses) as admin:
        for _ in range(Kind.ELECTION.times // 2):
            node = run.any_leader()
            assert node.restart() == node.address
            run.wait_for_in_sync()
            elected = admin.elect_leaders(partitions)
            assert node.node_id in elected.values()
            run.wait_for_partitions(
                lambda number, seen, elected=elected: seen.leader == elected.get(partitions[number], seen.leader),
                f"leaders as in {elected}",
            )
            run.acknowledge(FAULTY)
            run.took_effect(Kind.ELECTION)
            leader = admin.describe_metadata_quorum().leader_id
            other = run.random.choice([number for number in run.nodes if number != leader])
            assert admin.transfer_quorum_leadership(other) == other
            run.acknowledge(FAULTY)
            run.took_effect(Kind.ELECTION)
    run.finish(Kind.ELECTION)


@pytest.fixture
def run_of_four(tmp_path: Path, seed: int, config: Mapping[str, str]) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, 4, config=config)
    with started(nodes), Run(nodes, tmp_path, seed).load() as run:
        yield run


@pytest.mark.deep
def test_moves(run_of_four: Run) -> None:
    """Of one replica at a time, that of the leader too, to the node that has none of the partition."""
    run = run_of_four
    run.load_in_peace(4.0)
    with Admin(bootstrap_servers=run.addresses) as admin:
        for _ in range(Kind.MOVE.times):
            move_a_replica(run, admin)
            run.acknowledge(FAULTY)
            run.took_effect(Kind.MOVE)
    run.finish(Kind.MOVE)


def move_a_replica(run: Run, admin: Admin) -> None:
    moved = run.random.randrange(PARTITIONS)
    (topic,) = admin.describe_topics([TOPIC])
    replicas = list(topic.partitions[moved].replicas)
    (newcomer,) = set(run.nodes) - set(replicas)
    replicas[run.random.randrange(len(replicas))] = newcomer
    admin.alter_partition_reassignments({TopicPartition(TOPIC, moved): replicas})

    def is_moved(number: int, seen: Seen) -> bool:
        return number != moved or seen.isr == set(replicas)

    run.wait_for_partitions(is_moved, f"partition {moved} on {replicas}")
    assert not admin.list_partition_reassignments([TOPIC])
