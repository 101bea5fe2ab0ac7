"""Seeds: three nodes with their clients, every partition on all of them, min.insync.replicas 2.

Nodes lose power alone and together, are killed, stopped, cut off from each other in one direction or both, have slow disks
and lose whole disks; clocks run slow and fast, and jump; partitions are given other replicas, records are deleted on
request and by short retention, and the topic has another configuration. What was acknowledged is never lost, changed,
duplicated or reordered; when all has healed every replica is in sync and every partition has acknowledged another record
within 30 virtual seconds. `make test` runs the first seeds, `make test-deep` those up to KRAFTLOG_SEEDS. A seed that fails prints its last events and how it is replayed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftlog.logstore import retention, segmented_log
from kraftlog.logstore.retention import Ageing, Reason
from kraftlog.replication.in_sync import InSync
from kraftlog.replication.returning import ReturningBroker
from kraftlog.testing.sim import SimulationConfig, simulate
from kraftlog.testing.sim.__main__ import FIRST_SOAKED_SEED, SOAK_GOAL, main
from tests.sim.seeds import RecordProperty, first_violation, run_seeds, trace_hash

SEEDS = 120  # of 200 virtual seconds each under faults
DEEP_SEEDS = int(os.environ.get("KRAFTLOG_SEEDS", "2000"))
SEEDS_PER_TEST = 10
CONFIG = SimulationConfig(nodes=3)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds(first: int, record_property: RecordProperty) -> None:
    """See `kraftlog.testing.sim.history`, `.wire` and `.node_checks` for the rules."""
    run_seeds(range(first, first + SEEDS_PER_TEST), CONFIG, record_property)


@pytest.mark.deep
@pytest.mark.parametrize("first", range(SEEDS + 1, DEEP_SEEDS + 1, SEEDS_PER_TEST))
def test_every_rule_holds_for_many_seeds(first: int, record_property: RecordProperty) -> None:
    """The same, for all other seeds."""
    run_seeds(range(first, min(first + SEEDS_PER_TEST, DEEP_SEEDS + 1)), CONFIG, record_property)


@pytest.mark.slow
def test_one_seed_is_one_run_in_every_process() -> None:
    """Whatever PYTHONHASHSEED is."""
    expected = f"trace hash {simulate(1, CONFIG).digest}"
    assert trace_hash(1, 4_711, nodes=3) == expected


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3, 23))
def test_one_seed_is_one_run_for_many_seeds(seed: int) -> None:
    assert trace_hash(seed, 1, nodes=3) == trace_hash(seed, 2, nodes=3)


def test_the_tally_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whichever way the runs were ended; a committed one is added to by `make soak`."""
    file = tmp_path / "tally.csv"
    for number in (1, 2):
        assert main(["--tally", str(file), "--seeds", str(number), "--duration", "3"]) == 0
    heading, first, second = file.read_text().splitlines()
    assert heading == "date,commit,first_seed,seeds,seeds_per_cpu_second,virtual_seconds,bad_seeds"
    assert [line.split(",")[2:4] for line in (first, second)] == [
        [str(FIRST_SOAKED_SEED), "1"],
        [str(FIRST_SOAKED_SEED + 1), "2"],
    ]
    assert int(first.split(",")[5]) > 0
    assert f"3 of {SOAK_GOAL} seeds in {file}" in capsys.readouterr().out


# --- the simulation sees: rules switched off one at a time


@pytest.mark.slow
def test_a_leader_that_does_not_wait_for_the_others_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high watermark without the in-sync replicas: an acknowledgment covers what one disk has."""
    monkeypatch.setattr(InSync, "end", lambda self, own_end, *, flushed: own_end)
    violation = first_violation(range(1, 10), CONFIG).violation
    assert violation is not None
    assert violation.rule in {"ACK", "I-06"}


@pytest.mark.deep
def test_a_leader_with_an_empty_disk_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process before it led is led again before the controller has seen its disk (seed 3)."""
    monkeypatch.setattr(ReturningBroker, "may_lead", lambda self, *partition_and_epoch: True)
    violation = first_violation(range(3, 30), CONFIG).violation
    assert violation is not None
    assert violation.rule == "W-4"


@pytest.mark.deep
def test_retention_that_takes_a_segment_too_many_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is to go for its age or for the size of the log."""

    def expired(segments: Sequence[Ageing], **options: Any) -> list[Reason]:
        reasons = retention.expired(segments, **options)
        return [*reasons, Reason.TIME] if 0 < len(reasons) < len(segments) - 1 else reasons

    monkeypatch.setattr(segmented_log, "expired", expired)
    violation = first_violation(range(1, 80), CONFIG).violation
    assert violation is not None
    assert violation.rule == "I-01"
