"""Running seeds of the whole simulation in tests, and what each run must have had to prove anything."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from kraftlog.testing.sim import SimulationConfig, SimulationResult, simulate

ACKED_MIN = 200  # a run without load proves nothing
CRASHES_MIN = 2  # the last one, which every run ends with, and one in its midst

RecordProperty = Callable[[str, object], None]


def run_seeds(seeds: range, config: SimulationConfig, record_property: RecordProperty) -> list[SimulationResult]:
    """Fails at the first seed that breaks a rule, and says how it is replayed."""
    results = []
    for seed in seeds:
        results.append(simulate(seed, config))
        _check(results[-1], config)
    seconds = sum(result.cpu_seconds for result in results)
    virtual_seconds = sum(result.virtual_seconds for result in results)
    print(f"{len(results) / seconds:.2f} seeds and {virtual_seconds / seconds:.0f} virtual seconds per second of CPU")
    record_property("simulated_seeds", len(results))
    record_property("simulated_cpu_seconds", seconds)
    record_property("simulated_virtual_seconds", virtual_seconds)
    return results


def _check(result: SimulationResult, config: SimulationConfig) -> None:
    print(result)
    if result.violation is not None:
        print("\n".join(result.lines))
        replay = f'make sim SEED={result.seed} ARGS="--nodes {config.nodes} --trace"'
        pytest.fail(f"seed {result.seed}: {result.violation} ({replay})")
    assert result.acked >= ACKED_MIN, f"seed {result.seed}: only {result.acked} records were acknowledged"
    assert result.counters.power_losses + result.counters.kills >= CRASHES_MIN, f"seed {result.seed}: no crash"


def first_violation(seeds: Sequence[int], config: SimulationConfig) -> SimulationResult:
    """Of the first seed that finds something."""
    for seed in seeds:
        result = simulate(seed, config)
        print(result)
        if result.violation is not None:
            return result
    pytest.fail(f"none of the seeds {seeds[0]} to {seeds[-1]} finds the planted bug")


def trace_hash(seed: int, hash_seed: int, nodes: int) -> str:
    """The last line of a process of its own with that PYTHONHASHSEED."""
    run = subprocess.run(
        [sys.executable, "-m", "kraftlog.testing.sim", "--seed", str(seed), "--nodes", str(nodes)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()[-1]
