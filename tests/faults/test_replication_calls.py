"""As `test_replication_processes`, with system calls that lie, wait or fail (`node_shim.c`): a wall clock that jumps, a disk
that is slow, a disk that fails."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kraftlog.testing import NodeProcess
from kraftlog.testing.local_cluster import nodes_of
from tests.faults.amounts import Kind
from tests.faults.record_run import CALM, FAULTY, NODES, Run, started
from tests.faults.shim import Shim, compile_shim, preload

pytestmark = [pytest.mark.processes, pytest.mark.slow]

HOUR_S, YEAR_S = 3_600, 365 * 86_400
STROBES = 20
FAULT_S = 10.0  # how long a disk is slow
TOPIC_CONFIGS = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
"""Brokers' clocks go wrong here, those of the producers do not: their records are neither refused nor expired for that."""


@pytest.fixture
def nodes(tmp_path: Path, config: Mapping[str, str]) -> list[NodeProcess]:
    return nodes_of(tmp_path, NODES, config=config)


@pytest.fixture
def shims(tmp_path: Path, nodes: list[NodeProcess]) -> dict[int, Shim]:
    return preload(compile_shim(tmp_path), nodes)


@pytest.fixture
def run_on_shims(tmp_path: Path, seed: int, nodes: list[NodeProcess], shims: dict[int, Shim]) -> Iterator[Run]:
    with started(nodes), Run(nodes, tmp_path, seed, topic_configs=TOPIC_CONFIGS).load() as run:
        yield run


# --- clocks -------------------------------------------------------------------------------------------------------


def there_and_back(ahead_s: int) -> Callable[[Run, Mapping[int, Shim]], None]:
    """On a node that leads."""

    def jump(run: Run, shims: Mapping[int, Shim]) -> None:
        node = run.any_leader()
        for seconds in (ahead_s, 0):
            shims[node.node_id].set_wall_clock(seconds)
            run.acknowledge(CALM)
            assert f"shim: wall clock {seconds}" in node.output

    return jump


def to_and_fro(run: Run, shims: Mapping[int, Shim]) -> None:
    """Many times, on all nodes."""
    for number in range(STROBES):
        for shim in shims.values():
            shim.set_wall_clock(run.random.choice([-HOUR_S, HOUR_S]) * (number + 1))
        run.acknowledge(10)
    assert all(node.output.count("shim: wall clock") >= STROBES / 2 for node in run.nodes.values())


def another_on_each(run: Run, shims: Mapping[int, Shim]) -> None:
    """And a leader that is killed goes on with its own."""
    for number, shim in shims.items():
        shim.set_wall_clock(number * -YEAR_S)
    run.acknowledge(CALM)
    node = run.any_leader()
    node.kill9()
    run.wait_for_leaders_other_than(node.node_id)
    node.start()
    run.wait_for_in_sync()
    assert all("shim: wall clock" in node.output for node in run.nodes.values())


JUMPS = {
    "an hour ahead": there_and_back(HOUR_S),
    "an hour behind": there_and_back(-HOUR_S),
    "ten years ahead": there_and_back(10 * YEAR_S),
    "ten years behind": there_and_back(-10 * YEAR_S),
    "to and fro": to_and_fro,
    "another on each node": another_on_each,
}


@pytest.mark.deep
@pytest.mark.parametrize("jump", list(JUMPS))
def test_a_wall_clock_that_jumps(run_on_shims: Run, shims: dict[int, Shim], jump: str) -> None:
    """Nobody is fenced for it and nobody loses leadership: what is timed here is timed by monotonic clocks."""
    run = run_on_shims
    run.load_in_peace(4.0)
    JUMPS[jump](run, shims)
    run.took_effect(Kind.CLOCK_JUMP)
    run.finish(Kind.CLOCK_JUMP)


# --- disks --------------------------------------------------------------------------------------------------------


@pytest.mark.deep
@pytest.mark.parametrize("ms", [50, 5_000])
def test_a_slow_disk(run_on_shims: Run, shims: dict[int, Shim], ms: int) -> None:
    """What is acknowledged is on the disks of all that are in sync: the load waits for a disk that is slow, or goes on without
    the replica, and all are in sync again when the disk is well."""
    run = run_on_shims
    run.load_in_peace(4.0)
    node = run.any_leader()
    shims[node.node_id].slow_syncs(ms)
    time.sleep(FAULT_S)  # how long the fault lasts
    if ms < 1_000:
        run.acknowledge(FAULTY)
    shims[node.node_id].slow_syncs(0)
    assert f"shim: slow sync {ms}" in node.output
    run.acknowledge(FAULTY)
    run.wait_for_in_sync()
    run.took_effect(Kind.SLOW_SYNC)
    run.finish(Kind.SLOW_SYNC)


@pytest.mark.deep
@pytest.mark.parametrize("call", ["fdatasync", "pwritev", "pread"])
def test_a_disk_that_fails(run_on_shims: Run, shims: dict[int, Shim], call: str) -> None:
    """The node says so and gives up what is on it; others lead. With a disk that is well again, it comes back."""
    run = run_on_shims
    run.load_in_peace(4.0)
    node = run.any_leader()
    shims[node.node_id].fail(call)
    run.wait_for_leaders_other_than(node.node_id)
    run.wait_for_isr_without(node.node_id)
    run.acknowledge(FAULTY)
    assert f"shim: failed {call}" in node.output
    run.took_effect(Kind.EIO)
    shims[node.node_id].fail("")
    if node.pid is not None:
        node.kill9()
    run.forgive(node)
    node.start()
    run.wait_for_in_sync()
    run.finish(Kind.EIO)
