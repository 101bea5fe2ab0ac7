"""Does the checker see? Each broken core is convicted, by its classic schedule or by some seed of a random mode; the
core itself passes the same schedules."""

import pytest

from kraftlog.testing.raft_sim.core_engine import CoreEngine
from kraftlog.testing.raft_sim.modes import MODES
from kraftlog.testing.raft_sim.runs import run_seed
from tests.sim.raft.mutants import MUTANTS
from tests.sim.raft.schedules import SCHEDULES

SCHEDULE_BY_NAME = {schedule.__name__: schedule for schedule in SCHEDULES}
CONVICTED_BY_SCHEDULE = {
    "commits-old-terms": "figure_8",
    "commits-unverified": "unverified_tail",
    "counts-votes": "repeated_votes",
    "accepts-old-answers": "acknowledgement_of_an_earlier_leadership",
    "many-changes": "two_voter_changes",
    "reads-at-once": "read_from_a_deposed_leader",
    "takes-old-snapshots": "late_snapshot",
}
CONVICTED_BY_SEEDS = {  # mode, voters, spare nodes
    "no-fsync": ("power-compact", 3, 0),
    "sends-first": ("power-compact", 3, 0),
    "cuts-matching": ("reorder", 5, 0),
    "votes-for-all": ("power-compact", 3, 0),
    "forgets-vote": ("reorder", 5, 0),
    "keeps-conflicts": ("duplicate", 5, 0),
    "reads-early": ("chaos", 3, 0),
    "counts-unwritten": ("power-compact", 1, 1),
    "counts-observers": ("observers-chaos", 3, 2),
    "campaigns-without-vote": ("observers", 3, 2),
    "stays-with-its-leader": ("observers-chaos", 3, 2),
}
SEEDS = 60


def test_every_mutant_has_its_conviction() -> None:
    """A new mutant without a schedule or a mode would be decoration."""
    assert CONVICTED_BY_SCHEDULE.keys() | CONVICTED_BY_SEEDS.keys() == MUTANTS.keys()


@pytest.mark.parametrize("schedule", SCHEDULE_BY_NAME)
def test_core_passes_the_schedule(schedule: str) -> None:
    """The rule that the schedule is made for holds."""
    assert SCHEDULE_BY_NAME[schedule](CoreEngine) is None


@pytest.mark.parametrize(("mutant", "schedule"), CONVICTED_BY_SCHEDULE.items())
def test_schedule_convicts_the_mutant(mutant: str, schedule: str) -> None:
    """The checker sees the one rule that the mutant breaks."""
    assert SCHEDULE_BY_NAME[schedule](MUTANTS[mutant]) is not None


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "configuration"), CONVICTED_BY_SEEDS.items())
def test_some_seed_convicts_the_mutant(mutant: str, configuration: tuple[str, int, int]) -> None:
    """The random runs are sharp enough for the common mistakes."""
    mode, nodes, extra = configuration
    assert any(run_seed(MUTANTS[mutant], MODES[mode], seed, nodes=nodes, extra=extra).is_bad for seed in range(SEEDS))
