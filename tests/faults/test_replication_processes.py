"""Three real nodes under real faults and verifiable load: no acknowledged record is lost, changed, doubled or out of order, no
reader is misled, and all replicas are equal in the end.

acks=all, three replicas, min.insync.replicas=2. Each fault is seen to have taken effect: another leader, in-sync replicas
without the node that is missing, nothing acknowledged while a majority is.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kraftlog.testing.local_cluster import nodes_of
from tests.faults.record_run import FAULTY, Run, started

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NODES = 3
CONFIG = {
    "replica.lag.time.max.ms": "2000",
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


def kill_a_leader(run: Run) -> None:
    """kill -9; its partitions get other leaders; it comes back into the in-sync replicas."""
    node = run.leader(run.random.randrange(3))
    node.kill9()
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    assert node.pid is None
    node.start()
    run.wait_for_in_sync()


def pause_a_leader(run: Run) -> None:
    """SIGSTOP until others lead; then it goes on where it was, and still believes that it leads."""
    node = run.leader(run.random.randrange(3))
    node.pause()
    run.wait_for_leaders_other_than(node.node_id)
    run.acknowledge(FAULTY)
    assert node.pid is not None
    assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
    node.resume()
    run.wait_for_in_sync()


def test_a_killed_and_a_paused_leader(run: Run) -> None:
    kill_a_leader(run)
    pause_a_leader(run)
    run.finish()
