"""Seeds: a node with its clients under crashes, broken connections and partitions keeps every rule, and then progresses.

`make test` runs the first 100 seeds, `make test-deep` those up to KRAFTLOG_SEEDS. A seed that fails prints its last
events; `make sim SEED=n ARGS=--trace` replays it.
"""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from kraftlog.testing.sim import SimulationResult, simulate

SEEDS = 100
DEEP_SEEDS = int(os.environ.get("KRAFTLOG_SEEDS", "2000"))
SEEDS_PER_TEST = 10
ACKED_MIN = 200  # a run without load proves nothing
COMPACTED_MIN = 500  # in ten seeds, of which some have a compacted topic
CRASHES_MIN = 2  # the last one, which every run ends with, and one in its midst


def _check(result: SimulationResult) -> None:
    print(result)
    if result.violation is not None:
        print("\n".join(result.lines))
        pytest.fail(f"seed {result.seed}: {result.violation} (make sim SEED={result.seed} ARGS=--trace)")
    assert result.acked >= ACKED_MIN, f"seed {result.seed}: only {result.acked} records were acknowledged"
    assert result.counters.power_losses + result.counters.kills >= CRASHES_MIN, f"seed {result.seed}: no crash"


def _check_all(seeds: range, record_property: Callable[[str, object], None]) -> int:
    """How many records were compacted."""
    results = []
    for seed in seeds:
        results.append(simulate(seed))
        _check(results[-1])
    record_property("simulated_seeds", len(results))
    record_property("simulated_cpu_seconds", sum(result.cpu_seconds for result in results))
    record_property("simulated_virtual_seconds", sum(result.virtual_seconds for result in results))
    return sum(result.compacted for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds(first: int, record_property: Callable[[str, object], None]) -> None:
    """I-01 to I-07 and liveness (see `kraftlog.testing.sim.history` and `.wire`), ten seeds a test."""
    assert _check_all(range(first, first + SEEDS_PER_TEST), record_property) >= COMPACTED_MIN


@pytest.mark.deep
@pytest.mark.parametrize("first", range(SEEDS + 1, DEEP_SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds_for_many_seeds(first: int, record_property: Callable[[str, object], None]) -> None:
    """The same, for the seeds from 101 on."""
    _check_all(range(first, min(first + SEEDS_PER_TEST, DEEP_SEEDS + 1)), record_property)


def _trace_hash(seed: int, hash_seed: int) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "kraftlog.testing.sim", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_one_seed_is_one_run_in_every_process(seed: int) -> None:
    """The same trace hash in two processes with different PYTHONHASHSEED, and in this one."""
    expected = f"trace hash {simulate(seed).digest}"
    assert [_trace_hash(seed, hash_seed) for hash_seed in (0, 4_711)] == [expected, expected]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3, 23))
def test_one_seed_is_one_run_for_many_seeds(seed: int) -> None:
    """The same for twenty more seeds."""
    assert _trace_hash(seed, 1) == _trace_hash(seed, 2)


@pytest.mark.slow
def test_another_seed_is_another_run() -> None:
    """The hash sees the run."""
    assert simulate(1).digest != simulate(2).digest
