"""Seeds: a node with its clients under crashes, broken connections and partitions keeps every rule, and then progresses.

`make test` runs the first 100 seeds, `make test-deep` those up to KRAFTLOG_SEEDS. A seed that fails prints its last
events and how it is replayed.
"""

import os

import pytest

from kraftlog.testing.sim import SimulationConfig, simulate
from tests.sim.seeds import RecordProperty, run_seeds, trace_hash

SEEDS = 100
DEEP_SEEDS = int(os.environ.get("KRAFTLOG_SEEDS", "2000"))
SEEDS_PER_TEST = 10
COMPACTED_MIN = 500  # in ten seeds, of which some have a compacted topic
CONFIG = SimulationConfig(nodes=1)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds(first: int, record_property: RecordProperty) -> None:
    """I-01 to I-07 and liveness (see `kraftlog.testing.sim.history` and `.wire`), ten seeds a test."""
    results = run_seeds(range(first, first + SEEDS_PER_TEST), CONFIG, record_property)
    assert sum(result.compacted for result in results) >= COMPACTED_MIN


@pytest.mark.deep
@pytest.mark.parametrize("first", range(SEEDS + 1, DEEP_SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds_for_many_seeds(first: int, record_property: RecordProperty) -> None:
    """The same, for the seeds from 101 on."""
    run_seeds(range(first, min(first + SEEDS_PER_TEST, DEEP_SEEDS + 1)), CONFIG, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_one_seed_is_one_run_in_every_process(seed: int) -> None:
    """The same trace hash in two processes with different PYTHONHASHSEED, and in this one."""
    expected = f"trace hash {simulate(seed, CONFIG).digest}"
    assert [trace_hash(seed, hash_seed, nodes=1) for hash_seed in (0, 4_711)] == [expected, expected]


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3, 23))
def test_one_seed_is_one_run_for_many_seeds(seed: int) -> None:
    """The same for twenty more seeds."""
    assert trace_hash(seed, 1, nodes=1) == trace_hash(seed, 2, nodes=1)


@pytest.mark.slow
def test_another_seed_is_another_run() -> None:
    """The hash sees the run."""
    assert simulate(1, CONFIG).digest != simulate(2, CONFIG).digest
