"""The core under random faults: no safety rule is ever broken, and after healing everybody converges.

A failing seed is replayed and made smaller by
`python -m tests.sim.raft.runs core MODE SEED --nodes N --minimise`.
"""

import hashlib
import os
import subprocess
import sys

import pytest

from tests.sim.raft.core_engine import CoreEngine
from tests.sim.raft.modes import MODES
from tests.sim.raft.runs import run_seed, seed_count

SEEDS = 70  # for each whole share: 1,000 in all
CONFIGURATIONS = [  # mode, voters, spare nodes, share of the seeds
    ("clean", 3, 0, 0.2),
    ("tcp", 3, 0, 1),
    ("tcp-compact", 3, 0, 1),
    ("midcrash-compact", 3, 0, 1),
    ("power", 3, 0, 1),
    ("power-compact", 3, 0, 1.5),
    ("power-compact", 5, 0, 0.5),
    ("zombie", 3, 0, 1),
    ("reorder", 3, 0, 1),
    ("duplicate", 5, 0, 0.5),
    ("chaos", 3, 0, 2),
    ("chaos", 5, 0, 0.7),
    ("voters", 3, 2, 1.5),
    ("power-compact", 1, 1, 1),
    ("chaos", 1, 1, 1),
    ("voters", 2, 2, 0.5),
    ("observers", 3, 2, 0.7),
    ("observers", 1, 1, 0.5),
    ("observers-chaos", 3, 2, 0.7),
    ("observers-voters", 3, 2, 0.7),
]


def run_seeds(mode: str, nodes: int, extra: int, seeds: range) -> None:
    bad = []
    acked = 0
    for seed in seeds:
        run = run_seed(CoreEngine, MODES[mode], seed, nodes=nodes, extra=extra)
        acked += run.world.checker.stats["acked"]
        if run.is_bad:
            bad.append(run.describe())
    assert not bad, "\n".join(bad)
    assert acked, "the runs did nothing"


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "nodes", "extra", "share"), CONFIGURATIONS)
def test_no_seed_breaks_a_rule(mode: str, nodes: int, extra: int, share: float) -> None:
    """The invariants of `checker`, soft ones too, after every event of every seed."""
    run_seeds(mode, nodes, extra, range(int(share * SEEDS)))


@pytest.mark.deep
@pytest.mark.parametrize(("mode", "nodes", "extra", "share"), CONFIGURATIONS)
def test_no_further_seed_breaks_a_rule(mode: str, nodes: int, extra: int, share: float) -> None:
    """The same with KRAFTLOG_SEEDS seeds for each whole share."""
    run_seeds(mode, nodes, extra, range(SEEDS, SEEDS + int(share * seed_count(1000))))


def trace_hash(mode: str, seed: int) -> str:
    run = run_seed(CoreEngine, MODES[mode], seed, trace=True)
    return hashlib.sha256("\n".join(run.world.trace_lines).encode()).hexdigest()


@pytest.mark.slow
def test_same_seed_gives_the_same_run_in_another_process() -> None:
    """Whatever PYTHONHASHSEED is: a seed that failed on one machine fails on every other."""
    script = "from tests.sim.raft.test_core_seeds import trace_hash; print(trace_hash('chaos', 7))"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=60
    )
    assert other.stdout.strip() == trace_hash("chaos", 7)
