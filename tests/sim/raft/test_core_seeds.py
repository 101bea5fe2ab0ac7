"""The core under random faults: no safety rule is ever broken, and after healing everybody converges.

`make test` runs the first 1,000 seeds, `make test-deep` those up to KRAFTLOG_QUORUM_SEEDS. A seed chooses its faults and the
number of voters (`plan_of`); `make sim SIM=quorum SEED=n ARGS='--trace --minimise'` replays one and makes it smaller.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kraftlog.testing.raft_sim import MODES, plan_of, run_plan
from kraftlog.testing.raft_sim.plans import PLANS

SEEDS = 1000
DEEP_SEEDS = int(os.environ.get("KRAFTLOG_QUORUM_SEEDS", "20000"))
SEEDS_PER_TEST = 50
DEEP_SEEDS_PER_TEST = 500
RecordProperty = Callable[[str, object], None]


def run_seeds(seeds: range, record_property: RecordProperty) -> None:
    bad = []
    done: Counter[str] = Counter()
    started = time.process_time()
    for seed in seeds:
        run = run_plan(seed)
        done.update(run.world.checker.stats)
        if run.is_bad:
            bad.append(run.describe())
    record_property("quorum_seeds", len(seeds))
    record_property("quorum_cpu_seconds", time.process_time() - started)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {dict(done)}")
    assert not bad, "\n".join(bad)
    assert all(done.values()), "the runs did not do everything"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_no_seed_breaks_a_rule(first: int, record_property: RecordProperty) -> None:
    """The invariants of `checker`, soft ones too, after every event of every seed."""
    run_seeds(range(first, first + SEEDS_PER_TEST), record_property)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(SEEDS + 1, DEEP_SEEDS + 1, DEEP_SEEDS_PER_TEST))
def test_no_further_seed_breaks_a_rule(first: int, record_property: RecordProperty) -> None:
    """The same for the seeds from 1,001 on."""
    run_seeds(range(first, min(first + DEEP_SEEDS_PER_TEST, DEEP_SEEDS + 1)), record_property)


def test_the_seeds_choose_every_plan() -> None:
    """All faults, with three voters and with five, and voters that change: among the seeds of `make test` already."""
    chosen = Counter(plan_of(seed) for seed in range(1, SEEDS + 1))
    assert chosen.keys() == set(PLANS)
    assert {plan.mode for plan in chosen} == MODES.keys()
    assert sum(count for plan, count in chosen.items() if plan.voters == 3) >= 400
    assert sum(count for plan, count in chosen.items() if plan.voters == 5) >= 100
    changes_voters = {name for name, mode in MODES.items() if mode.voters or mode.lost_disk}
    assert sum(count for plan, count in chosen.items() if plan.mode in changes_voters) >= 200


def trace_hash(seed: int, hash_seed: int) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "kraftlog.testing.raft_sim", "--seed", str(seed)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()[-1]


def one_seed_of(mode: str) -> int:
    return next(seed for seed in range(1, SEEDS + 1) if plan_of(seed).mode == mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["observers-voters", "disks-chaos"])
def test_one_seed_is_one_run_in_every_process(mode: str) -> None:
    """The same trace in two processes with different PYTHONHASHSEED, and in this one: a seed that failed on one machine
    fails on every other."""
    seed = one_seed_of(mode)
    expected = f"trace hash {run_plan(seed, trace=True).digest}"
    assert [trace_hash(seed, hash_seed) for hash_seed in (0, 4_711)] == [expected, expected]


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES)
def test_one_seed_is_one_run_in_every_mode(mode: str) -> None:
    """The same for each mode."""
    seed = one_seed_of(mode)
    assert trace_hash(seed, 1) == trace_hash(seed, 2)


def test_another_seed_is_another_run() -> None:
    """The hash sees the run."""
    plan = plan_of(1)
    assert run_plan(1, plan, trace=True).digest != run_plan(2, plan, trace=True).digest
