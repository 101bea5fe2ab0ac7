"""Random runs of one partition's replication: nothing that was acknowledged is lost, in any mode."""

import os
import time

import pytest

from tests.sim.replicas.runs import MODES, Mode, Run


def run_seeds(mode: Mode, seeds: range) -> int:
    """How many records were acknowledged."""
    acknowledged = 0
    began = time.process_time()
    for seed in seeds:
        run = Run(seed, mode)
        try:
            run.run()
        except BaseException:
            print(f"mode {mode.name}, seed {seed}")
            print("\n".join(run.world.trace[-80:]))
            raise
        acknowledged += len(run.world.acknowledged)
    print(f"replicas, {mode.name}: {len(seeds) / max(time.process_time() - began, 1e-9):.1f} seeds per CPU second")
    return acknowledged


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_nothing_acknowledged_is_lost(mode: Mode) -> None:
    assert run_seeds(mode, range(12)) > 20


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_nothing_is_lost_with_more_seeds(mode: Mode) -> None:
    run_seeds(mode, range(1_000, 1_000 + int(os.environ.get("KRAFTLOG_SEEDS", "1000"))))
