"""Stock pysyncobj in the same world: it must be convicted, or the checker has gone blind (docs/adr/0001)."""

from typing import Any

import pytest

from kraftlog.testing.raft_sim.disk import LogItem
from kraftlog.testing.raft_sim.lab import DATAGRAMS, Lab
from kraftlog.testing.raft_sim.modes import MODES
from kraftlog.testing.raft_sim.runs import run_seed

pytest.importorskip("pysyncobj")
from tests.sim.raft.reference import ReferenceEngine, SimNode


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


def reference(**conf: object) -> type[ReferenceEngine]:
    """Stock, with other settings."""
    return type("Configured", (ReferenceEngine,), {"conf": conf})


class Growing(ReferenceEngine):
    """With voters that change."""

    conf = {"dynamicMembershipChange": True}  # noqa: RUF012

    def change_voter(self, operation: str, replica: str) -> None:
        assert operation == "add"
        self.node.addNodeToCluster(SimNode(replica), callback=lambda result, error: None)

    def voters(self) -> frozenset[str]:
        return frozenset({self.nid, *(node.id for node in self.node._SyncObj__otherNodes)})


def elected(lab: Lab) -> tuple[str, list[str]]:
    """The leader, when its first entry is committed, and the others."""
    assert lab.go(60, lambda: lab.leader() and lab.hosts[str(lab.leader())].running.commit_index >= 2)
    leader = str(lab.leader())
    lab.go(10)
    return leader, lab.others(leader)


def test_reference_commits_a_foreign_tail_after_a_compaction() -> None:
    """No crash: a former leader comes back, and a message with a part of the dump carries a commit index, which it
    believes for its own tail. Ten clients hear SUCCESS. (The core: `schedules.unverified_tail`.)"""
    lab = Lab(reference(logCompactionBatchSize=100))
    former, others = elected(lab)
    lab.put(former, *range(5))
    lab.go(10)
    lab.cut([former])
    lab.put(former, *range(900, 910))
    assert lab.go(62, lambda: lab.leader() in others)
    leader = str(lab.leader())
    lab.put(leader, *range(10, 60))
    lab.go(30)
    for nid in others:
        lab.hosts[nid].running.compact()
    lab.go(4)

    def delay_later_parts(src: str, dst: str, message: Any) -> Any:
        lab.network.slow.clear()
        if message.get("serialized") and not message["serialized"][1]:
            lab.network.slow[src, dst] = 3
        return message

    lab.rewrite(delay_later_parts)
    lab.heal()
    lab.go(60)
    assert [command for command in range(900, 910) if lab.checker.results.get(command) == "ok"]
    assert not [command for _, command in lab.hosts[leader].running.state() if command >= 900]
    assert lab.verdict() == "commit-mismatch"


def test_reference_throws_an_acknowledged_tail_away_at_a_restart() -> None:
    """kill -9 between the dump's rename and the cut of the journal, the disk intact; then the leader dies. (The core:
    `test_crash_between_snapshot_and_log_keeps_the_tail`.)"""
    lab = Lab(ReferenceEngine)
    leader, (follower, other) = elected(lab)
    lab.put(leader, *range(10))
    lab.go(10)
    lab.cut([other])
    lab.put(leader, 100)
    assert lab.go(20, lambda: 100 in lab.checker.acked)
    had = lab.hosts[follower].running.last_index
    lab.hosts[follower].running.compact()
    lab.hosts[follower].running.tick()  # writes the dump; the next one would cut the journal
    lab.crash(follower)
    lab.crash(leader)
    lab.heal()
    lab.start(follower)
    lab.go(1)
    assert lab.hosts[follower].running.last_index < had
    lab.go(60)
    survivor = str(lab.leader())
    assert 100 not in {command for _, command in lab.hosts[survivor].running.state()}


def test_reference_commits_with_two_of_five() -> None:
    """Acknowledgements carry no term: those of an earlier leadership count, for entries that were cut since. (The core:
    `schedules.acknowledgement_of_an_earlier_leadership`.)"""
    lab = Lab(ReferenceEngine, 5)
    former, (follower, *rest) = elected(lab)
    lab.cut([former, follower])
    lab.network.slow[follower, former] = 200  # its answers wait in the connection
    lab.put(former, *range(100, 110))
    lab.go(3)
    assert lab.go(40, lambda: lab.leader() in rest)
    leader = str(lab.leader())
    lab.heal()
    lab.go(12)  # the new leader cuts both tails
    lab.crash(leader)
    for nid in lab.others(former, leader):
        lab.hosts[nid].running.node._SyncObj__raftElectionDeadline = lab.now + 5  # type: ignore[attr-defined]
    lab.hosts[former].running.node._SyncObj__raftElectionDeadline = 0  # type: ignore[attr-defined]
    assert lab.go(8, lambda: lab.hosts[former].running.is_leader)
    silent = lab.others(former, follower, leader)[1]
    lab.network.blocked |= {(former, follower), (former, silent)}  # they get nothing of the new term
    waiting = lab.network.queues[follower, former]
    for index, (_, message) in enumerate(list(waiting)):
        waiting[index] = (lab.step, message)
    lab.put(former, 500)
    lab.go(5)
    assert lab.checker.results.get(500) == "ok"
    assert "phantom-commit" in lab.checker.soft


def test_reference_has_two_leaders_after_repeated_votes() -> None:
    """It counts answers and not voters: two of five elect a leader. (The core: `schedules.repeated_votes`.)"""
    lab = Lab(ReferenceEngine, 5, mode=DATAGRAMS)

    def twice(src: str, dst: str, message: Any) -> Any:
        if message.get("type") == "response_vote":
            lab.network.send(src, dst, message)
        return message

    lab.rewrite(twice)
    lab.cut(["n0", "n1"])
    lab.go(60)
    assert any(leaders & {"n0", "n1"} for leaders in lab.checker.leaders.values())


def test_reference_obeys_an_old_connection() -> None:
    """Bytes of a connection that its peer has given up come late: one append with an old entry cuts what was acknowledged
    on the next connection. (The core: `schedules.late_append`.)"""
    lab = Lab(ReferenceEngine)
    leader, (follower, other) = elected(lab)
    lab.cut([other])
    lab.put(leader, 1)
    lab.go(3)
    old = [m for src, dst, m in lab.sent if dst == follower and m.get("entries")][-1]
    lab.put(leader, 2, 3, 4)
    lab.go(5)
    assert {2, 3, 4} <= lab.checker.acked.keys()
    lab.deliver(leader, follower, old)
    lab.crash(leader)
    lab.heal()
    lab.go(60)
    assert lab.verdict() == "leader-incomplete"


def test_reference_has_disjoint_majorities_after_two_voter_changes() -> None:
    """That one change waits for the other is dead code there. (The core: `schedules.two_voter_changes`.)"""
    lab = Lab(Growing, 3, extra=2)
    former, others = elected(lab)
    lab.cut(others)
    for peer in ("n3", "n4"):
        lab.hosts[former].running.change_voter("add", peer)
    lab.go(4)
    lab.put(former, 1)
    lab.go(8)
    assert lab.go(40, lambda: any(lab.hosts[nid].running.is_leader for nid in others))
    leader = next(nid for nid in others if lab.hosts[nid].running.is_leader)
    lab.put(leader, 2)
    lab.go(8)
    assert lab.checker.results.get(1) == lab.checker.results.get(2) == "ok", "each side has a majority of its own"


def test_reference_forgets_a_voter_change_at_a_restart() -> None:
    """It is in the log and acknowledged, but counts only when it is applied. (The core:
    `schedules.restart_after_voter_changes`.)"""
    lab = Lab(Growing, 3, extra=1)
    leader, (follower, _) = elected(lab)
    lab.hosts[leader].running.change_voter("add", "n3")
    assert lab.go(10, lambda: "n3" in (lab.hosts[follower].running.voters() or ()))
    had = lab.hosts[follower].running.last_index
    lab.crash(follower)
    lab.cut([follower])
    lab.start(follower)
    assert lab.hosts[follower].running.last_index == had
    assert "n3" not in (lab.hosts[follower].running.voters() or ())


def test_reference_loses_acknowledged_entries_with_plain_links_and_one_crash() -> None:
    """An early acknowledgement makes the leader send a pipelined burst again; the first message of the repetition cuts
    the follower's acknowledged tail, although it matches; the leader dies right then."""
    lab = Lab(reference(appendEntriesBatchSizeBytes=130))
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
