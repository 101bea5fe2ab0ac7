"""Stock pysyncobj in the same world: it must be convicted, or the checker has gone blind (docs/adr/0001)."""

import pytest

from kraftlog.testing.raft_sim.disk import LogItem
from kraftlog.testing.raft_sim.lab import Lab
from kraftlog.testing.raft_sim.modes import MODES
from kraftlog.testing.raft_sim.runs import run_seed

pytest.importorskip("pysyncobj")
from tests.sim.raft.reference import ReferenceEngine


def hard_violations(mode: str, seeds: int) -> list[str]:
    runs = [run_seed(ReferenceEngine, MODES[mode], seed) for seed in range(seeds)]
    return [run.violation.kind for run in runs if run.violation is not None]


@pytest.mark.slow
def test_reference_is_clean_without_faults() -> None:
    """The adapter itself breaks nothing: no fault, no finding."""
    for seed in range(10):
        run = run_seed(ReferenceEngine, MODES["clean"], seed)
        assert not run.is_bad, run.describe()


@pytest.mark.slow
def test_reference_loses_committed_entries_at_a_power_cut() -> None:
    """It never calls fsync."""
    assert len(hard_violations("power-compact", 14)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["tcp-compact", "midcrash-compact", "reorder"])
def test_reference_breaks_safety_without_losing_power(mode: str) -> None:
    """FIFO links and intact disks are not enough for it either."""
    assert hard_violations(mode, 30)


def test_reference_loses_acknowledged_entries_with_plain_links_and_one_crash() -> None:
    """An early acknowledgement makes the leader send a pipelined burst again; the first message of the repetition cuts
    the follower's acknowledged tail, although it matches; the leader dies right then."""

    class SmallBatches(ReferenceEngine):
        conf = {"appendEntriesBatchSizeBytes": 130}  # noqa: RUF012

    lab = Lab(SmallBatches)
    assert lab.go(60, lambda: lab.leader() and lab.hosts[str(lab.leader())].running.commit_index >= 2)
    leader = str(lab.leader())
    lab.go(5)
    follower, behind = lab.others(leader)[1], lab.others(leader)[0]
    lab.cut([behind])
    before = lab.hosts[follower].running.last_index
    lab.network.slow[follower, leader] = 50
    lab.put(leader, *range(100, 112))
    assert lab.go(6, lambda: lab.hosts[follower].running.last_index == before + 12)
    answers = lab.network.queues[follower, leader]
    while answers[0][1]["next_node_idx"] <= before + 1:
        answers.popleft()
    for index, (_, message) in enumerate(list(answers)):  # the first one is a little ahead of the others
        answers[index] = (lab.step + (2 if index else 0), message)
    lab.network.queues[leader, follower].clear()
    lab.network.slow[leader, follower] = 9
    lab.go(4)
    acked = sorted(lab.checker.acked)
    assert len(acked) >= 10
    repeated = lab.network.queues[leader, follower]
    while not repeated[0][1].get("entries"):
        repeated.popleft()
    lab.deliver(leader, follower, repeated[0][1])  # the rest dies with the leader
    repeated.clear()
    lab.crash(leader)
    lab.heal()
    lab.go(60)
    kept = [item for item in lab.hosts[follower].disk.log.current if isinstance(item, LogItem)]
    assert kept[-1].offset < before + 12
    lab.restart_at[leader] = lab.step + 500
    survivor = str(lab.leader())
    have = {command for _, command in lab.hosts[survivor].running.state()}
    assert set(acked) - have, "acknowledged commands are gone"
