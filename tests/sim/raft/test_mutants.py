"""Does the checker see? Each safety rule is switched off in turn. A schedule that is made for the rule convicts the broken
engine, and so do random seeds, which know nothing of it; the core itself passes every schedule."""

import pytest

from kraftlog.testing.raft_sim import CoreEngine, Plan, run_plan
from kraftlog.testing.raft_sim.runs import STEPS
from tests.sim.raft.mutants import MUTANTS
from tests.sim.raft.schedules import SCHEDULES

SCHEDULE_BY_NAME = {schedule.__name__: schedule for schedule in SCHEDULES}
CONVICTED_BY_SCHEDULE = {
    "accepts-old-answers": "acknowledgement_of_an_earlier_leadership",
    "asks-nobody": "isolated_node",
    "campaigns-without-vote": "observer_without_a_leader",
    "changes-at-commit": "restart_after_voter_changes",
    "commits-old-terms": "figure_8",
    "commits-unverified": "unverified_tail",
    "counts-observers": "majority_of_observers",
    "counts-unwritten": "acknowledgement_by_one_disk",
    "counts-votes": "repeated_votes",
    "cuts-matching": "late_append",
    "drops-tail": "snapshot_inside_the_log",
    "forgets-vote": "two_candidates",
    "keeps-conflicts": "deposed_leader_with_a_tail",
    "many-changes": "two_voter_changes",
    "no-fsync": "power_cut_after_the_acknowledgement",
    "reads-at-once": "read_from_a_deposed_leader",
    "reads-early": "read_before_the_own_term",
    "saves-no-vote": "two_candidates_and_a_restart",
    "sends-first": "disk_fails_at_the_write",
    "stays-with-its-leader": "observer_of_a_lost_leader",
    "takes-old-snapshots": "late_snapshot",
    "trusts-damage": "damaged_disk",
    "votes-for-all": "candidate_that_lacks_entries",
}


CONVICTED_BY_SEEDS = {
    "accepts-old-answers": Plan("replay"),
    "asks-nobody": Plan("zombie"),
    "campaigns-without-vote": Plan("voters", 3, 2),
    "changes-at-commit": Plan("observers-voters", 3, 2),
    "commits-old-terms": Plan("doomed"),
    "commits-unverified": Plan("doomed", 5),
    "counts-observers": Plan("observers-voters", 3, 2),
    "counts-unwritten": Plan("power-compact", 1, 1),
    "counts-votes": Plan("duplicate", 5),
    "cuts-matching": Plan("duplicate", 5),
    "drops-tail": Plan("replay-compact"),
    "forgets-vote": Plan("chaos", 5),
    "keeps-conflicts": Plan("zombie"),
    "many-changes": Plan("voters-often", 2, 2),
    "no-fsync": Plan("power-compact"),
    "reads-at-once": Plan("observers-voters", 3, 2),
    "reads-early": Plan("observers-chaos", 3, 2),
    "saves-no-vote": Plan("tcp"),
    "sends-first": Plan("power-compact"),
    "stays-with-its-leader": Plan("observers", 3, 2),
    "takes-old-snapshots": Plan("voters", 3, 2),
    "trusts-damage": Plan("disks", 5),
    "votes-for-all": Plan("tcp"),
}
MAX_SEEDS = 500  # the rarest ones are met within 200
LONG = {"accepts-old-answers": 800}
"""Mutants that seldom find their chance in a run of the usual length -> steps."""


def test_every_mutant_has_its_convictions() -> None:
    """A new mutant without a schedule, or without a plan of random seeds, would be decoration."""
    assert CONVICTED_BY_SCHEDULE.keys() == CONVICTED_BY_SEEDS.keys() == MUTANTS.keys()


@pytest.mark.parametrize("schedule", SCHEDULE_BY_NAME)
def test_core_passes_the_schedule(schedule: str) -> None:
    """The rule that the schedule is made for holds."""
    assert SCHEDULE_BY_NAME[schedule](CoreEngine) is None


@pytest.mark.parametrize(("mutant", "schedule"), CONVICTED_BY_SCHEDULE.items())
def test_schedule_convicts_the_mutant(mutant: str, schedule: str) -> None:
    """The checker sees the one rule that the mutant breaks."""
    assert SCHEDULE_BY_NAME[schedule](MUTANTS[mutant]) is not None


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "plan"), CONVICTED_BY_SEEDS.items())
def test_some_seed_convicts_the_mutant(mutant: str, plan: Plan) -> None:
    """The random runs are sharp enough to break each rule, though some of them rarely."""
    steps = LONG.get(mutant, STEPS)
    assert any(run_plan(seed, plan, factory=MUTANTS[mutant], steps=steps).is_bad for seed in range(MAX_SEEDS))
