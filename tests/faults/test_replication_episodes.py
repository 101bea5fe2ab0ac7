"""As `test_replication_processes`, with several faults at the same time."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kraftlog.testing import NodeProcess
from tests.faults.amounts import Kind
from tests.faults.namespaces import NetworkNamespaces, nodes_in
from tests.faults.record_run import NODES, PARTITIONS, Run, launch, started
from tests.faults.shim import Shim, compile_shim, preload
from tests.faults.test_replication_calls import HOUR_S, TOPIC_CONFIGS
from tests.faults.test_replication_network import cut, member, others

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PEACE_S, FAULTS_S = 20.0, 20.0
SLOW_SYNC_MS = 300
BREAKS = ("kill -9", "SIGSTOP", "SIGTERM", "cut", "slow disk", "wall clock")
EPISODES = Kind.EPISODE.runs


@pytest.fixture
def nodes(tmp_path: Path, config: Mapping[str, str], network: NetworkNamespaces) -> list[NodeProcess]:
    return nodes_in(network, tmp_path, NODES, config=config)


@pytest.fixture
def shims(tmp_path: Path, nodes: list[NodeProcess]) -> dict[int, Shim]:
    return preload(compile_shim(tmp_path), nodes)


@pytest.fixture
def run_with_everything(
    tmp_path: Path, seed: int, network: NetworkNamespaces, nodes: list[NodeProcess], shims: dict[int, Shim]
) -> Iterator[Run]:
    prefix = network.command_prefix("clients")
    run = Run(nodes, tmp_path, seed, command_prefix=prefix, topic_configs=TOPIC_CONFIGS)
    with started(nodes), run.load():
        yield run


@pytest.mark.deep
@pytest.mark.parametrize("episode", range(EPISODES))
def test_an_episode_of_faults_at_the_same_time(
    run_with_everything: Run, network: NetworkNamespaces, shims: dict[int, Shim], episode: int
) -> None:
    """20 s of peace; 20 s in which nodes are killed, stopped, frozen, cut off, slow and out of time, two or three of that at
    once; then all is mended, all are in sync, and 20 s of peace again."""
    run = run_with_everything
    run.load_in_peace(PEACE_S)
    before = leader_epochs(run)
    end = time.monotonic() + FAULTS_S
    while time.monotonic() < end or leader_epochs(run) == before:
        nodes = run.shuffled_nodes()
        for number in range(run.random.randrange(2, 4)):
            strike(run.random.choice(BREAKS), nodes[number % 2], network, shims, run)
        time.sleep(run.random.uniform(0.2, 4.0))  # how long the faults last
        mend(run, network, shims)
    run.wait_for_in_sync()
    run.took_effect(Kind.EPISODE)
    run.load_in_peace(PEACE_S)
    run.finish(Kind.EPISODE)


def leader_epochs(run: Run) -> list[int]:
    return [run.partition(number).leader_epoch for number in range(PARTITIONS)]


def strike(how: str, node: NodeProcess, network: NetworkNamespaces, shims: Mapping[int, Shim], run: Run) -> None:
    """On two nodes at most, so that one is left; a node that does not run has nothing more to lose."""
    print(f"{time.monotonic() - run.began_at:6.1f} s: node {node.node_id}: {how}")
    if node.pid is None:
        return
    match how:
        case "kill -9":
            node.kill9()
        case "SIGSTOP":
            node.pause()
        case "SIGTERM":
            node.resume()
            assert node.stop() == 0
        case "cut":
            hears, is_heard = run.random.choice([(False, False), (True, False), (False, True)])
            cut(network, member(node), others(member(node)), hears=hears, is_heard=is_heard)
        case "slow disk":
            shims[node.node_id].slow_syncs(SLOW_SYNC_MS)
        case _:
            shims[node.node_id].set_wall_clock(run.random.choice([-HOUR_S, HOUR_S]))


def mend(run: Run, network: NetworkNamespaces, shims: Mapping[int, Shim]) -> None:
    network.heal()
    for node in run.nodes.values():
        shims[node.node_id].slow_syncs(0)
        node.resume()
    launch([node for node in run.nodes.values() if node.pid is None])
