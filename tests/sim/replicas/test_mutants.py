"""Does the checker see? Each rule of replication is switched off in turn. A scenario that is made for the rule breaks then,
and so do random runs, which know nothing of it; with all rules in force every scenario passes (tests/scenarios/isr)."""

from itertools import product

import pytest

from tests.scenarios.isr.runner import FOLDER, replay
from tests.sim.replicas.mutants import MUTANTS
from tests.sim.replicas.runs import MODES, Run
from tests.sim.replicas.world import Violation

CONVICTED_BY_SCENARIO = {
    "acknowledges-below-any-high-watermark": "handed_over_writes",
    "answers-any-epoch": "stale_follower",
    "answers-deletions-below-min-isr": "log_start",
    "begins-epochs-at-what-is-left": "compacted_copy",
    "counts-only-itself": "high_watermark",
    "counts-only-the-committed-isr": "expansion",
    "counts-reports-of-any-epoch": "late_report",
    "counts-unflushed": "high_watermark",
    "counts-unflushed-followers": "high_watermark",
    "enters-before-the-epoch-start": "epoch_start",
    "enters-below-the-high-watermark": "expansion",
    "enters-unflushed": "expansion",
    "enters-with-any-broker-epoch": "restarted_follower",
    "gives-up-what-is-unanswered": "expansion",
    "gives-up-what-was-refused-once": "late_requests",
    "keeps-the-epoch-of-a-damaged-replica": "damaged_replica",
    "keeps-unwritten-epochs": "unwritten_epoch",
    "moves-below-min-isr": "min_isr",
    "never-diverges": "divergence",
    "never-truncates": "divergence",
    "switches-to-ack-at-once": "policy_switch",
    "switches-to-ack-with-the-leader": "policy_switch",
    "switches-with-eligible-leaders": "policy_switch",
    "switches-without-a-partition-epoch": "policy_switch",
    "takes-any-member": "restarted_follower",
    "takes-any-partition-epoch": "overtaken_requests",
    "throws-a-damaged-log-away-at-once": "damaged_replica",
    "truncates-by-the-leaders-epoch-alone": "divergence_in_several_epochs",
    "truncates-to-the-high-watermark": "divergence",
    "trusts-lost-disks": "lost_disk",
    "trusts-what-it-has-deleted": "handed_over_writes",
}
TOO_RARE = {
    "begins-epochs-at-what-is-left",
    "counts-reports-of-any-epoch",
    "enters-with-any-broker-epoch",
    "gives-up-what-was-refused-once",
    "keeps-unwritten-epochs",
    "switches-with-eligible-leaders",
    "switches-without-a-partition-epoch",
    "takes-any-member",
    "throws-a-damaged-log-away-at-once",
}
"""What random runs did not break within 25 seeds of each mode."""
MAX_SEEDS = 100


def test_every_mutant_has_its_scenario() -> None:
    """A new mutant without one would be decoration."""
    assert CONVICTED_BY_SCENARIO.keys() == MUTANTS.keys()


@pytest.mark.parametrize(("mutant", "scenario"), CONVICTED_BY_SCENARIO.items())
def test_scenario_convicts_the_mutant(mutant: str, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise is broken, and not only another trace written."""
    MUTANTS[mutant](monkeypatch)
    assert "BROKEN" in replay((FOLDER / f"{scenario}.txt").read_text())


@pytest.mark.deep
@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - TOO_RARE))
def test_some_seed_convicts_the_mutant(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The random runs are sharp enough to break the rule."""
    MUTANTS[mutant](monkeypatch)
    for seed, mode in product(range(MAX_SEEDS), MODES):
        try:
            Run(seed, mode).run()
        except Violation as violation:
            print(f"mode {mode.name}, seed {seed}: {violation}")
            return
    pytest.fail(f"{mutant} survived {MAX_SEEDS} seeds of each mode")
