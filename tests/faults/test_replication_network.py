"""As `test_replication_processes`, with a network that is cut in one or two directions, or loses, delays, doubles and
reorders frames."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from kraftlog.testing import NodeProcess
from tests.faults.amounts import Kind
from tests.faults.frame_switch import FrameSwitch, Treatment, switched_namespaces
from tests.faults.namespaces import NetworkNamespaces, nodes_in
from tests.faults.record_process import Seen
from tests.faults.record_run import FAULTY, NODES, PARTITIONS, Run, started

pytestmark = [pytest.mark.processes, pytest.mark.slow]

CLIENTS = "clients"
MEMBERS = ("node1", "node2", "node3", CLIENTS)
SHAPED_S = 15.0  # how long frames are lost, late and so on


# --- cuts ---------------------------------------------------------------------------------------------------------


def member(node: NodeProcess) -> str:
    return f"node{node.node_id}"


def others(name: str) -> list[str]:
    return [other for other in MEMBERS if other != name]


def cut_a_leader_off(
    run: Run, network: NetworkNamespaces, kind: Kind, *, hears: bool = False, is_heard: bool = False
) -> None:
    """From the other nodes and the clients, until others lead."""
    node = run.any_leader()
    cut(network, member(node), others(member(node)), hears=hears, is_heard=is_heard)
    run.wait_for_leaders_other_than(node.node_id)
    run.acknowledge(FAULTY)
    run.took_effect(kind)
    network.heal()
    run.wait_for_in_sync()


def cut(
    network: NetworkNamespaces, name: str, rest: Sequence[str], *, hears: bool = False, is_heard: bool = False
) -> None:
    if not is_heard:
        network.cut([name], rest)
    if not hears:
        network.cut(rest, [name])


def test_a_leader_that_is_cut_off(run_in_network: Run, network: NetworkNamespaces) -> None:
    cut_a_leader_off(run_in_network, network, Kind.CUT_OFF)
    run_in_network.finish()


@pytest.mark.deep
def test_leaders_that_are_cut_off(run_in_network: Run, network: NetworkNamespaces) -> None:
    run_in_network.load_in_peace(4.0)
    for _ in range(Kind.CUT_OFF.times):
        cut_a_leader_off(run_in_network, network, Kind.CUT_OFF)
    run_in_network.finish(Kind.CUT_OFF)


@pytest.mark.deep
def test_leaders_that_do_not_hear(run_in_network: Run, network: NetworkNamespaces) -> None:
    run_in_network.load_in_peace(4.0)
    for _ in range(Kind.CUT_DEAF.times):
        cut_a_leader_off(run_in_network, network, Kind.CUT_DEAF, is_heard=True)
    run_in_network.finish(Kind.CUT_DEAF)


@pytest.mark.deep
def test_leaders_that_are_not_heard(run_in_network: Run, network: NetworkNamespaces) -> None:
    run_in_network.load_in_peace(4.0)
    for _ in range(Kind.CUT_MUTE.times):
        cut_a_leader_off(run_in_network, network, Kind.CUT_MUTE, hears=True)
    run_in_network.finish(Kind.CUT_MUTE)


@pytest.mark.deep
def test_leaders_that_only_clients_reach(run_in_network: Run, network: NetworkNamespaces) -> None:
    """They acknowledge nothing alone, and clients are led to the others."""
    run = run_in_network
    run.load_in_peace(4.0)
    for _ in range(Kind.CUT_FROM_NODES.times):
        node = run.any_leader()
        cut(network, member(node), [name for name in others(member(node)) if name != CLIENTS])
        run.wait_for_leaders_other_than(node.node_id)
        run.acknowledge(FAULTY)
        run.took_effect(Kind.CUT_FROM_NODES)
        network.heal()
        run.wait_for_in_sync()
    run.finish(Kind.CUT_FROM_NODES)


@pytest.mark.deep
def test_two_nodes_that_do_not_reach_each_other(run_in_network: Run, network: NetworkNamespaces) -> None:
    """Each has a majority with the third one: the follower falls out of the in-sync replicas of what the leader leads, or is
    not the controller's any more, and comes back."""
    run = run_in_network
    run.load_in_peace(4.0)
    for _ in range(Kind.CUT_RING.times):
        leader = run.any_leader()
        follower = run.random.choice([node for node in run.nodes.values() if node is not leader])
        cut(network, member(leader), [member(follower)])
        pair = {leader.node_id, follower.node_id}

        def are_apart(_: int, seen: Seen, pair: set[int] = pair) -> bool:
            return not pair <= seen.isr or seen.leader not in pair

        run.wait_for_partitions(are_apart, "ISR without one of the two")
        run.acknowledge(FAULTY)
        run.took_effect(Kind.CUT_RING)
        network.heal()
        run.wait_for_in_sync()
    run.finish(Kind.CUT_RING)


@pytest.mark.deep
def test_clients_that_do_not_reach_a_leader(run_in_network: Run, network: NetworkNamespaces) -> None:
    """It goes on leading, since the nodes reach each other: what it leads waits, and comes when the cut is healed."""
    run = run_in_network
    run.load_in_peace(4.0)
    for _ in range(Kind.CUT_CLIENTS.times):
        node = run.any_leader()
        led = [number for number in range(PARTITIONS) if run.partition(number).leader == node.node_id]
        cut(network, member(node), [CLIENTS])
        run.wait_for_silence(2.0, led)
        assert all(run.partition(number).leader == node.node_id for number in led)
        run.took_effect(Kind.CUT_CLIENTS)
        network.heal()
        run.acknowledge(FAULTY)
    run.finish(Kind.CUT_CLIENTS)


# --- frames -------------------------------------------------------------------------------------------------------


@pytest.fixture
def switched() -> Iterator[tuple[NetworkNamespaces, FrameSwitch]]:
    with switched_namespaces(*MEMBERS) as switched:
        yield switched


@pytest.fixture
def switch(switched: tuple[NetworkNamespaces, FrameSwitch]) -> FrameSwitch:
    return switched[1]


@pytest.fixture
def switched_run(
    tmp_path: Path, seed: int, config: Mapping[str, str], switched: tuple[NetworkNamespaces, FrameSwitch]
) -> Iterator[Run]:
    network, _ = switched
    nodes = nodes_in(network, tmp_path, NODES, config=config)
    prefix = network.command_prefix(CLIENTS)
    with started(nodes), Run(nodes, tmp_path, seed, command_prefix=prefix).load() as run:
        yield run


def shape(run: Run, switch: FrameSwitch, treatment: Treatment) -> Counter[str]:
    """For some time. Returns what happened to the frames."""
    run.load_in_peace(4.0)
    switch.treat(treatment)
    time.sleep(SHAPED_S)  # how long the fault lasts
    counts = switch.treat(Treatment())
    print(dict(counts))
    run.acknowledge(FAULTY)
    run.wait_for_in_sync()
    return counts


@pytest.mark.deep
@pytest.mark.parametrize("loss", [0.01, 0.1, 0.3])
def test_frames_that_are_lost(switched_run: Run, switch: FrameSwitch, loss: float) -> None:
    """At 30 % there is no telling who is still in sync; nothing is lost all the same."""
    counts = shape(switched_run, switch, Treatment(loss=loss))
    assert counts["lost"] > loss / 2 * counts["frames"] > 0
    switched_run.took_effect(Kind.LOSS)
    switched_run.finish(Kind.LOSS)


@pytest.mark.deep
def test_narrow_links(switched_run: Run, switch: FrameSwitch) -> None:
    """Frames queue up on them, and are dropped where the queue is too long."""
    counts = shape(switched_run, switch, Treatment(bytes_per_s=50_000))
    assert counts["late"] > 0
    switched_run.took_effect(Kind.NARROW)
    switched_run.finish(Kind.NARROW)


DISORDERS = {
    "late": Treatment(delay_ms=50.0),
    "at different times": Treatment(jitter_ms=100.0),
    "held back": Treatment(held_back=0.25, held_ms=50.0),
    "twice": Treatment(twice=0.2),
    "all of it": Treatment(delay_ms=10.0, jitter_ms=30.0, held_back=0.1, twice=0.1, loss=0.02),
    "one node far away": Treatment(members=(1,), delay_ms=200.0, jitter_ms=50.0),
}


@pytest.mark.deep
@pytest.mark.parametrize("disorder", list(DISORDERS))
def test_frames_in_disorder(switched_run: Run, switch: FrameSwitch, disorder: str) -> None:
    treatment = DISORDERS[disorder]
    counts = shape(switched_run, switch, treatment)
    assert not treatment.twice or counts["twice"] > 0
    assert not (treatment.jitter_ms or treatment.held_back) or counts["overtaken"] > 0
    assert not (treatment.delay_ms or treatment.jitter_ms or treatment.held_back) or counts["late"] > 0
    switched_run.took_effect(Kind.DISORDER)
    switched_run.finish(Kind.DISORDER)
