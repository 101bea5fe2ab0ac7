"""Three real nodes under real faults and verifiable load: no acknowledged record is lost, changed, doubled or out of order, no
reader is misled, and all replicas are equal in the end.

acks=all, three replicas, min.insync.replicas=2. Each fault is seen to have taken effect: another leader, in-sync replicas
without the node that is missing, nothing acknowledged while a majority is.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import psutil
import pytest

from kraftlog.testing import NodeProcess
from kraftlog.testing.local_cluster import nodes_of
from tests.faults.loop_device import LOG_DROPPED, LOG_FLUSHED, LoopDevice, loop_device
from tests.faults.namespaces import NetworkNamespaces, network_namespaces, nodes_in
from tests.faults.record_process import Seen
from tests.faults.record_run import CALM, FAULTY, PARTITIONS, Run, launch, started

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NODES = 3
DISK_MB = 128
CONFIG = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",  # who leads changes by what is done here, not by the time of day
}


@pytest.fixture
def seed() -> int:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


@pytest.fixture
def run(tmp_path: Path, seed: int) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, NODES, config=CONFIG)
    with started(nodes), Run(nodes, tmp_path, seed).load() as run:
        yield run


# --- faults of processes ------------------------------------------------------------------------------------------


def any_leader(run: Run) -> NodeProcess:
    return run.leader(run.random.randrange(PARTITIONS))


def kill_a_leader(run: Run) -> None:
    """kill -9; its partitions get other leaders; it comes back into the in-sync replicas."""
    node = any_leader(run)
    node.kill9()
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    assert node.pid is None
    node.start()
    run.wait_for_in_sync()


def pause_a_leader(run: Run) -> None:
    """SIGSTOP until others lead; then it goes on where it was, and still believes that it leads."""
    node = any_leader(run)
    node.pause()
    run.wait_for_leaders_other_than(node.node_id)
    run.acknowledge(FAULTY)
    assert node.pid is not None
    assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
    node.resume()
    run.wait_for_in_sync()


def pause_for_a_moment(run: Run) -> None:
    """SIGSTOP for less than a session or more, and each node once."""
    run.acknowledge(CALM)
    for node in run.shuffled_nodes():
        node.pause()
        time.sleep(run.random.uniform(0.2, 5.0))  # how long the fault lasts
        node.resume()
        run.acknowledge(FAULTY)


def kill_a_majority(run: Run) -> None:
    """kill -9 of all but one: nothing is acknowledged until they are back."""
    run.acknowledge(CALM)
    killed = run.shuffled_nodes()[1:]
    for node in killed:
        node.kill9()
    run.wait_for_silence(3.0)
    launch(killed)
    run.acknowledge(CALM)


def kill_all(run: Run) -> None:
    """kill -9 of every node, one right after the other."""
    run.acknowledge(CALM)
    for node in run.shuffled_nodes():
        node.kill9()
    run.wait_for_silence(0.5)
    launch(list(run.nodes.values()))
    run.acknowledge(CALM)


def stop_a_leader(run: Run) -> None:
    """SIGTERM: its partitions are led by others before it is gone."""
    node = any_leader(run)
    assert node.stop() == 0
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    node.start()
    run.wait_for_in_sync()


def restart_one_by_one(run: Run) -> None:
    """In order; each comes back into the in-sync replicas before the next one goes."""
    for node in run.shuffled_nodes():
        run.acknowledge(CALM)
        assert node.stop() == 0
        run.wait_for_isr_without(node.node_id)
        run.acknowledge(FAULTY)
        node.start()
        run.wait_for_in_sync()


PROCESS_FAULTS = [
    kill_a_leader,
    pause_a_leader,
    pause_for_a_moment,
    kill_a_majority,
    kill_all,
    stop_a_leader,
    restart_one_by_one,
]


def test_a_killed_and_a_paused_leader(run: Run) -> None:
    kill_a_leader(run)
    pause_a_leader(run)
    run.finish()


@pytest.mark.deep
@pytest.mark.parametrize("fault", PROCESS_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_processes_again_and_again(run: Run, fault: Callable[[Run], None]) -> None:
    for _ in range(3):
        fault(run)
    run.finish()


# --- faults of the network ----------------------------------------------------------------------------------------


@pytest.fixture
def network() -> Iterator[NetworkNamespaces]:
    with network_namespaces("node1", "node2", "node3", "clients") as network:
        yield network


@pytest.fixture
def run_in_network(tmp_path: Path, seed: int, network: NetworkNamespaces) -> Iterator[Run]:
    nodes = nodes_in(network, tmp_path, NODES, config=CONFIG)
    prefix = network.command_prefix("clients")
    with started(nodes), Run(nodes, tmp_path, seed, command_prefix=prefix).load() as run:
        yield run


def member(node: NodeProcess) -> str:
    return f"node{node.node_id}"


def others(name: str) -> list[str]:
    return [other for other in ("node1", "node2", "node3", "clients") if other != name]


def cut_a_leader_off(run: Run, network: NetworkNamespaces, *, hears: bool, is_heard: bool) -> None:
    """From the other nodes and the clients, until others lead."""
    node = any_leader(run)
    if not is_heard:
        network.cut([member(node)], others(member(node)))
    if not hears:
        network.cut(others(member(node)), [member(node)])
    run.wait_for_leaders_other_than(node.node_id)
    run.acknowledge(FAULTY)
    network.heal()
    run.wait_for_in_sync()


def cut_a_leader_from_a_follower(run: Run, network: NetworkNamespaces) -> None:
    """Both are well otherwise, and the third node reaches both: the follower falls out of the in-sync replicas of what the
    leader leads, or is not the controller's any more, and comes back."""
    leader = any_leader(run)
    follower = run.random.choice([node for node in run.nodes.values() if node is not leader])
    network.cut([member(leader)], [member(follower)])
    network.cut([member(follower)], [member(leader)])

    def are_apart(_: int, seen: Seen) -> bool:
        return not {leader.node_id, follower.node_id} <= seen.isr or seen.leader not in (
            leader.node_id,
            follower.node_id,
        )

    run.wait_for_partitions(are_apart, "ISR without one of the two")
    run.acknowledge(FAULTY)
    network.heal()
    run.wait_for_in_sync()


def test_a_leader_that_is_cut_off(run_in_network: Run, network: NetworkNamespaces) -> None:
    cut_a_leader_off(run_in_network, network, hears=False, is_heard=False)
    run_in_network.finish()


@pytest.mark.deep
def test_a_leader_that_does_not_hear(run_in_network: Run, network: NetworkNamespaces) -> None:
    for _ in range(3):
        cut_a_leader_off(run_in_network, network, hears=False, is_heard=True)
    run_in_network.finish()


@pytest.mark.deep
def test_a_leader_that_is_not_heard(run_in_network: Run, network: NetworkNamespaces) -> None:
    for _ in range(3):
        cut_a_leader_off(run_in_network, network, hears=True, is_heard=False)
    run_in_network.finish()


@pytest.mark.deep
def test_a_leader_and_a_follower_that_do_not_reach_each_other(run_in_network: Run, network: NetworkNamespaces) -> None:
    for _ in range(3):
        cut_a_leader_from_a_follower(run_in_network, network)
    run_in_network.finish()


# --- faults at the same time --------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("episode", range(8))
def test_an_episode_of_faults_at_the_same_time(run_in_network: Run, network: NetworkNamespaces, episode: int) -> None:
    """Load at 200 records/s or more in peace; 20 s in which nodes are killed, stopped, frozen and cut off, whichever is left,
    two or three at a time; then all is mended, and the load goes on."""
    run = run_in_network
    run.acknowledge(2_000)
    end = time.monotonic() + 20.0
    while time.monotonic() < end:
        for node in run.shuffled_nodes()[: run.random.randrange(1, 3)]:
            break_it(run.random.randrange(4), node, network, run)
        time.sleep(run.random.uniform(0.2, 4.0))  # how long the faults last
        network.heal()
        mend(run)
    mend(run)
    run.wait_for_in_sync()
    run.acknowledge(2_000)
    run.finish()


def break_it(how: int, node: NodeProcess, network: NetworkNamespaces, run: Run) -> None:
    print(f"{time.monotonic():.1f} node {node.node_id}: {('kill -9', 'SIGSTOP', 'SIGTERM', 'cut')[how]}")
    match how:
        case 0:
            node.kill9()
        case 1:
            node.pause()
        case 2:
            assert node.stop() == 0
        case _:
            sources, destinations = [member(node)], others(member(node))
            if run.random.random() < 0.5:
                sources, destinations = destinations, sources
            network.cut(sources, destinations)
            if run.random.random() < 0.5:
                network.cut(destinations, sources)


def mend(run: Run) -> None:
    for node in run.nodes.values():
        node.resume()
    launch([node for node in run.nodes.values() if node.pid is None])


# --- faults of disks ----------------------------------------------------------------------------------------------


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[dict[int, LoopDevice]]:
    """One for each node, at the place of its log directory."""
    with ExitStack() as stack:
        devices = {}
        for number in range(1, NODES + 1):
            folder, node = tmp_path / f"disk-{number}", tmp_path / f"node-{number}"
            folder.mkdir()
            node.mkdir()
            devices[number] = stack.enter_context(loop_device(folder, size_mb=DISK_MB))
            data = devices[number].path / "data"
            data.mkdir()
            (node / "data").symlink_to(data)
        yield devices


@pytest.fixture
def run_on_disks(tmp_path: Path, seed: int, disks: dict[int, LoopDevice]) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, NODES, config=CONFIG)
    with started(nodes), Run(nodes, tmp_path, seed).load() as run:
        yield run


def lose_power(run: Run, disks: Mapping[int, LoopDevice], nodes: Sequence[NodeProcess]) -> None:
    """Of these nodes at once. They are frozen in the middle of what they do before the power goes, so that nobody hears a sync
    that reports, after that, what is not true (see `test_power_loss`)."""
    for node in nodes:
        node.pause()
    for node in nodes:
        disks[node.node_id].cut_power(run.random.choice([LOG_FLUSHED, LOG_DROPPED]))
    for node in nodes:
        node.kill9()
        disks[node.node_id].unmount()


def return_power(disks: Mapping[int, LoopDevice], nodes: Sequence[NodeProcess]) -> None:
    for node in nodes:
        disks[node.node_id].mount()
    launch(nodes)


def lose_the_power_of_one(run: Run, disks: Mapping[int, LoopDevice]) -> None:
    node = any_leader(run)
    lose_power(run, disks, [node])
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    return_power(disks, [node])
    run.wait_for_in_sync()


def lose_the_power_of_all(run: Run, disks: Mapping[int, LoopDevice]) -> None:
    run.acknowledge(CALM)
    nodes = run.shuffled_nodes()
    lose_power(run, disks, nodes)
    run.wait_for_silence(0.5)
    return_power(disks, nodes)
    run.acknowledge(CALM)
    run.wait_for_in_sync()


def test_power_that_one_and_then_all_nodes_lose(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    lose_the_power_of_one(run_on_disks, disks)
    lose_the_power_of_all(run_on_disks, disks)
    run_on_disks.finish()


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_power_that_is_lost_again_and_again(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    for _ in range(8):
        run_on_disks.random.choice([lose_the_power_of_one, lose_the_power_of_all])(run_on_disks, disks)
    run_on_disks.finish()


@pytest.mark.deep
def test_a_full_disk(run_on_disks: Run, disks: dict[int, LoopDevice]) -> None:
    """Of a node that leads and follows. Its replicas fall out of what others lead, which goes on; what it leads itself waits
    for space. When there is some again, it catches up by itself, and nothing was lost."""
    run = run_on_disks
    node = any_leader(run)
    filler = disks[node.node_id].path / "filler"
    with filler.open("wb") as file:
        fill(file)

    def is_out(_: int, seen: Seen) -> bool:
        return seen.leader == node.node_id or node.node_id not in seen.isr

    run.wait_for_partitions(is_out, f"ISR without node {node.node_id} where others lead")
    run.acknowledge(FAULTY)
    assert node.pid is not None
    assert "disk full" in node.output
    filler.unlink()
    run.wait_for_in_sync()
    run.finish()


def fill(file: IO[bytes]) -> None:
    """To the last block."""
    for size in (1 << 20, 4096):
        with contextlib.suppress(OSError):
            while True:
                file.write(bytes(size))
                file.flush()
