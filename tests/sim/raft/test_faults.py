"""Public bug reports of other Raft implementations, played on the core.

| case | what went wrong there | test |
|---|---|---|
| W01 | replicas of entries of older terms were counted (PySyncObj #169, #110; goraft #27) | `test_w01_…`, `schedules.figure_8` |
| W03 | commit or match index went back (PySyncObj #166, #167; raftos #25) | `test_w03_…`, `schedules.late_append` |
| W05 | a node that was isolated or removed deposed the leader (etcd #9333; hashicorp/raft #526; logcabin #56) | `test_w05_…` |
| W07 | a snapshot kept a conflicting tail, and was sent for ever (hashicorp/raft #697, #704) | `test_w07_…` |
| W09 | a late, old snapshot cut newer entries that match (etcd #1763; camunda #6092) | `test_w09_…`, `schedules.late_snapshot` |
| W10 | a repeated read request was matched to an old answer (etcd #20418; etcd-io/raft #397) | `test_w10_…` |
| W13 | the high watermark was told before the leader's own first record was committed (KAFKA-12619) | `test_w13_…` |
| W15 | a restarted leader told its state machine that it leads (KAFKA-17333) | `test_w15_…` |
| W17 | the metadata log was cut below its high watermark (KAFKA-12460) | `test_w17_…` |
| W19 | two processes worked on one directory (KAFKA-14557) | `test_w19_…` in tests/unit/logstore/test_log_dir.py |
"""

from dataclasses import replace

import pytest

from kraftlog.kraft.raft import (
    NO_OFFSET,
    AppendRequest,
    BusyError,
    Entry,
    EntryKind,
    NotLeaderError,
    RaftCore,
    ReplicaKey,
    SnapshotRequest,
)
from kraftlog.proto.errors import IllegalStateError
from kraftlog.testing.raft_sim.core_engine import CoreEngine, key_of
from kraftlog.testing.raft_sim.disk import Disk, LogItem
from kraftlog.testing.raft_sim.lab import DATAGRAMS, NEVER, Lab
from kraftlog.testing.raft_sim.world import World
from tests.sim.raft.mutants import CommitsOldTerms, TakesOldSnapshots
from tests.sim.raft.schedules import figure_8, late_snapshot

ELECTION_TICKS = 7


def terms(lab: Lab) -> list[int]:
    return [lab.core(nid).term for nid in lab.ids]


SHUFFLED = replace(DATAGRAMS, delay=2)


@pytest.mark.slow
def test_w01_old_entries_are_committed_only_through_one_of_the_own_term() -> None:
    """Raft figure 8 with five nodes, in a hundred orders of the messages. Each of them would show the fault."""
    for seed in range(100):
        assert figure_8(CoreEngine, SHUFFLED, seed) is None, f"seed {seed}"
        assert figure_8(CommitsOldTerms, SHUFFLED, seed) == "leader-incomplete", f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_w03_commit_and_match_offsets_only_grow(seed: int) -> None:
    """Every request and every answer comes twice, late, and in another order."""
    lab = Lab(nodes=5, mode=replace(DATAGRAMS, delay=4, duplicate=1.0), seed=seed)
    lab.elect()
    matched: dict[tuple[str, int, ReplicaKey], int] = {}
    for step in range(100):
        leader = lab.leader()
        if leader is not None and step < 60:
            lab.put(leader, 2 * step, 2 * step + 1)
        if step == 30:
            lab.only(lab.others(str(leader))[0])  # its successor starts from other offsets
        lab.go(1)
        for nid in lab.ids:
            core: RaftCore = lab.core(nid)
            for peer, progress in (core.leadership.progress if core.leadership is not None else {}).items():
                key = (nid, core.term, peer)
                assert progress.match_offset >= matched.get(key, NO_OFFSET)
                matched[key] = progress.match_offset
    assert "commit-regress" not in lab.checker.soft
    assert len(lab.checker.acked) > 50
    assert lab.end() is None


@pytest.mark.parametrize("mode", ["both", "in", "out"])
def test_w05_isolated_node_does_not_depose_the_leader(mode: str) -> None:
    """Pre-vote and stickiness: isolated for 50 election timeouts, healed; same leader, same term. Also when it only
    hears nothing, or is only not heard."""
    lab = Lab()
    leader = lab.elect()
    outsider = lab.others(leader)[0]
    before = lab.core(leader).term
    lab.on_partition([outsider], mode)
    lab.go(50 * ELECTION_TICKS)
    lab.heal()
    lab.go(40)
    assert lab.leader() == leader
    assert terms(lab) == [before] * 3
    assert lab.end() is None


def test_w05_removed_node_does_not_depose_the_leader() -> None:
    """Removed while it was cut off, it still believes that it is a voter when it comes back."""
    lab = Lab(nodes=4)
    leader = lab.elect()
    removed = lab.others(leader)[0]
    before = lab.core(leader).term
    lab.cut([removed])
    lab.guard(lab.hosts[leader], lab.hosts[leader].running.change_voter, "remove", removed)
    lab.go(50 * ELECTION_TICKS)
    assert key_of(removed) not in lab.core(leader).voters
    assert key_of(removed) in lab.core(removed).voters
    lab.heal()
    lab.go(60)
    assert lab.leader() == leader
    assert lab.core(leader).term == before
    assert lab.verdict() is None


def test_w07_snapshot_inside_a_conflicting_log_is_installed_once() -> None:
    """A follower with an unacknowledged tail gets a snapshot that ends inside its log: the tail goes, the next append
    is accepted, and there is one download."""
    lab = Lab(mode=DATAGRAMS)
    first = lab.elect("n0")
    second, _ = lab.others(first)
    lab.cut([first])
    lab.put(first, *range(900, 940))
    lab.only(second)
    assert lab.go(40, lambda: lab.hosts[second].running.is_leader)
    lab.put(second, *range(0, 30, 3))
    lab.go(3)
    lab.guard(lab.hosts[second], lab.hosts[second].running.compact)
    assert lab.core(first).log.last_offset > lab.core(second).log.snapshot.last_offset
    lab.heal()
    lab.go(30)
    lab.put(second, 33)
    lab.go(5)
    assert lab.core(first).applied_offset == lab.core(second).applied_offset
    downloads = [m for _, _, m in lab.sent if isinstance(m, SnapshotRequest) and m.dst == key_of(first) and m.is_last]
    assert len(downloads) == 1
    assert lab.end() is None


def test_w07_snapshot_inside_a_matching_log_keeps_the_tail() -> None:
    """The entries behind the snapshot may be the only other copy of what is acknowledged."""
    lab = Lab(mode=DATAGRAMS)
    leader = lab.elect("n0")
    follower, other = lab.others(leader)
    lab.put(leader, 0, 3, 6, 9)
    lab.go(3)
    core: RaftCore = lab.core(follower)
    end = core.log.last_offset
    snapshot = lab.core(other).compact(core.applied_offset - 2, b"")
    request = SnapshotRequest(
        src=key_of(leader),
        dst=key_of(follower),
        term=core.term,
        last_offset=snapshot.last_offset,
        last_term=snapshot.term,
        voters=snapshot.voters,
        position=0,
        data=b"",
        is_last=True,
        round=0,
    )
    lab.deliver(leader, follower, request)
    assert lab.core(follower).log.last_offset == end


def test_w09_late_snapshot_replaces_nothing() -> None:
    """Delayed until appends have passed it, and delivered again and again."""
    assert late_snapshot(CoreEngine) is None
    assert late_snapshot(TakesOldSnapshots) is not None


@pytest.mark.parametrize("is_repeated", [False, True])
def test_w10_read_of_a_leader_that_was_paused_is_not_stale(is_repeated: bool) -> None:
    """The process stops while a read waits (and the client repeats it), another leader is elected and takes a write, the
    process goes on: the reads fail, or return the write."""
    lab = Lab(mode=DATAGRAMS)
    paused = lab.elect("n0")
    successor, _ = lab.others(paused)
    lab.put(paused, 3)
    lab.go(2)
    answers = lab.read(paused)
    lab.on_stall(paused, 40)
    lab.only(successor)
    assert lab.go(30, lambda: lab.leader() == successor)
    lab.go(2)
    lab.put(successor, 6)
    lab.go(2)
    assert 6 in lab.checker.acked
    lab.hosts[paused].stalled_until = lab.step
    repeated = lab.read(paused) if is_repeated else []  # before it has heard of anything
    lab.go(20)
    assert all(6 in answer for answer in repeated)
    assert len(answers) <= 1, "an answer to the first read, at most"
    assert lab.end() is None


def test_w13_high_watermark_waits_for_the_first_entry_of_the_term() -> None:
    """A new leader does not commit, serve reads or change voters before an entry of its own term is on a majority,
    although everybody has the older entries."""
    lab = Lab(mode=DATAGRAMS)
    first = lab.elect("n0")
    second, third = lab.others(first)
    lab.drop(lambda src, dst, message: dst != third and isinstance(message, AppendRequest) and bool(message.entries))
    stop = lab.drop(lambda src, dst, message: dst == first)  # no acknowledgement: nothing commits
    lab.put(first, 3)
    lab.go(2)
    stop()
    lab.crash(first)
    lab.only(third)
    lab.drop(lambda src, dst, message: src == third and isinstance(message, AppendRequest))
    assert lab.go(40, lambda: lab.hosts[third].running.is_leader)
    core: RaftCore = lab.core(third)
    assert core.leadership is not None
    old_end = core.leadership.first_offset - 1
    core.leadership.progress[key_of(second)].matched(old_end)  # second has everything up to the start of the term
    core.leadership.maybe_commit()
    assert core.commit_offset < old_end
    with pytest.raises(NotLeaderError):
        core.read_index(None)
    with pytest.raises(BusyError):
        core.change_voter(remove=key_of(first))


def test_w15_restarted_leader_is_a_follower() -> None:
    """It has to be elected again before it acts, whatever it was when it died."""
    lab = Lab()
    leader = lab.elect()
    lab.put(leader, 1)
    lab.go(3)
    lab.crash(leader)
    lab.start(leader)
    core: RaftCore = lab.core(leader)
    assert not core.is_leader
    assert core.leader is None
    with pytest.raises(NotLeaderError):
        core.propose(b"2")
    lab.go(60)
    assert lab.end() is None


def test_w17_difference_below_the_high_watermark_stops_the_node() -> None:
    """Committed metadata of a follower differs from the leader's: a loud stop, and nothing is cut."""
    lab = Lab()
    leader = lab.elect()
    follower = lab.others(leader)[0]
    lab.put(leader, 3, 6)
    lab.go(5)
    core: RaftCore = lab.core(follower)
    before = core.log.last_offset
    assert core.commit_offset == before
    planted = Entry(before, core.term + 1, EntryKind.DATA, b"999", 1)
    request = AppendRequest(
        key_of(leader), core.key, core.term + 1, before - 1, core.log.term_at(before - 1) or 0, (planted,), before, 1
    )
    with pytest.raises(IllegalStateError, match="committed metadata of this node and of its leader disagree"):
        core.step(request)
    assert core.log.last_offset == before
    refused = request._replace(prev_offset=before, prev_term=core.term + 5, entries=())
    with pytest.raises(IllegalStateError, match="committed metadata of this node and of its leader disagree"):
        core.step(refused)
    assert core.log.last_offset == before


def test_deposed_leader_with_a_long_tail_is_repaired_in_few_rounds() -> None:
    """Conflict-term back-off: one probe per term and not per entry (stock pysyncobj takes 20 s for 200 entries)."""
    lab = Lab()
    first = lab.elect("n0")
    second, _ = lab.others(first)
    lab.cut([first])
    lab.put(first, *range(1000, 1200))
    lab.go(2)
    lab.only(second)
    assert lab.go(40, lambda: lab.hosts[second].running.is_leader)
    lab.put(second, *range(0, 600, 3))
    lab.go(5)
    lab.heal()
    assert lab.go(6, lambda: lab.core(first).applied_offset == lab.core(second).applied_offset)
    assert lab.end() is None


def test_node_that_lost_its_disk_is_not_the_old_voter() -> None:
    """KIP-853: an empty disk has another directory id; a vote from it could elect a leader without committed entries."""

    class Replaced(CoreEngine):
        """n1 comes back with an empty disk and so with a new directory id."""

        def __init__(self, world: World, nid: str, disk: Disk) -> None:
            super().__init__(world, nid, disk)
            if nid == "n1" and world.hosts[nid].incarnation > 1:
                self.core.key = self.core.key._replace(directory_id=b"\x01" * 16)

    lab = Lab(Replaced)
    leader = lab.elect("n0")
    lab.cut(["n2"])
    lab.put(leader, 3)
    lab.go(3)
    assert 3 in lab.checker.acked  # on n0 and n1
    lab.crash("n1")
    lab.hosts["n1"].disk.log.write(("set", ()))
    lab.hosts["n1"].disk.meta.write({"term": 0, "vote": None})
    lab.hosts["n1"].disk.sync()
    lab.crash("n0")
    lab.heal()
    lab.start("n1")
    lab.go(100)
    assert lab.leader() is None, "n2 lacks the entry and must not be elected by the empty n1"
    lab.start("n0")
    lab.go(60)
    assert lab.leader() == "n0"
    assert lab.verdict() is None


def test_leader_that_is_cut_off_steps_down() -> None:
    """Check-quorum: within two election timeouts it knows, and its reads and proposals fail instead of waiting."""
    lab = Lab()
    leader = lab.elect()
    lab.cut([leader])
    answers = lab.read(leader)
    assert lab.go(2 * ELECTION_TICKS + 1, lambda: not lab.hosts[leader].running.is_leader)
    assert not answers
    with pytest.raises(NotLeaderError):
        lab.core(leader).propose(b"1")
    assert lab.end() is None


def test_transfer_hands_over_within_a_few_steps() -> None:
    """No election timeout passes: the target campaigns at once, and stickiness does not hold it up."""
    lab = Lab()
    leader = lab.elect()
    target = lab.others(leader)[0]
    lab.put(leader, 3)
    lab.go(2)
    lab.hosts[leader].running.transfer(target)
    with pytest.raises(NotLeaderError):
        lab.core(leader).propose(b"1")
    assert lab.go(4, lambda: lab.leader() == target)
    assert lab.end() is None


def test_transfer_to_a_dead_node_is_given_up() -> None:
    """The leader takes proposals again after an election timeout."""
    lab = Lab()
    leader = lab.elect()
    target = lab.others(leader)[0]
    lab.crash(target)
    lab.put(leader, 3)
    lab.hosts[leader].running.transfer(target)
    lab.go(ELECTION_TICKS + 2)
    lab.put(leader, 6)
    lab.go(3)
    assert 6 in lab.checker.acked
    assert lab.end() is None


def test_voter_is_added_only_when_it_has_caught_up() -> None:
    """KIP-853: first an observer, then a voter; an empty voter would stop commits until it has caught up."""
    lab = Lab(nodes=3, extra=1)
    leader = lab.elect()
    lab.put(leader, *range(0, 60, 3))
    lab.go(3)
    core: RaftCore = lab.core(leader)
    with pytest.raises(BusyError, match="observes from now on"):
        core.change_voter(add=key_of("n3"))
    lab.go(5)
    entry = core.change_voter(add=key_of("n3"))
    assert entry is not None
    assert entry.kind is EntryKind.VOTERS
    assert core.voters == {key_of(nid) for nid in lab.pool}, "in force when it is appended"
    with pytest.raises(BusyError, match="is not committed yet"):
        core.change_voter(remove=key_of("n3"))
    lab.go(5)
    assert core.change_voter(add=key_of("n3")) is None, "it is so already"
    assert lab.end() is None


def test_leader_that_removes_itself_steps_down_after_the_commit() -> None:
    """It replicates its own removal, does not count itself, and leaves when it is committed."""
    lab = Lab(nodes=3)
    leader = lab.elect()
    lab.core(leader).change_voter(remove=key_of(leader))
    assert lab.go(6, lambda: not lab.hosts[leader].running.is_leader)
    assert lab.go(60, lambda: lab.leader() not in (None, leader))
    assert lab.core(str(lab.leader())).voters == {key_of(nid) for nid in lab.others(leader)}
    assert lab.end() is None


def test_rolled_back_voter_change_is_not_in_force() -> None:
    """A change that was appended by a deposed leader and cut leaves the former voter set."""
    lab = Lab(nodes=4)
    first = lab.elect("n0")
    second = lab.others(first)[0]
    lab.cut([first])
    lab.core(first).change_voter(remove=key_of("n3"))
    assert key_of("n3") not in lab.core(first).voters
    lab.only(second)
    assert lab.go(40, lambda: lab.hosts[second].running.is_leader)
    lab.put(second, 3)
    lab.heal()
    lab.go(20)
    assert lab.core(first).voters == {key_of(nid) for nid in lab.ids}
    assert lab.end() is None


def test_snapshot_transfer_survives_newer_snapshots_of_the_leader() -> None:
    """A transfer that is slower than the snapshot interval goes on instead of starting again for ever."""
    lab = Lab(seed=2, mode=DATAGRAMS)  # an even seed: chunks of 64 bytes
    leader = lab.elect("n0")
    behind = lab.others(leader)[1]
    lab.cut([behind])
    for command in range(0, 150, 3):
        lab.put(leader, command)
        lab.go(1)
    lab.guard(lab.hosts[leader], lab.hosts[leader].running.compact)
    first = lab.core(leader).log.snapshot
    assert len(first.data) > 3 * 64
    lab.heal()
    for command in range(150, 210, 3):
        lab.put(leader, command)
        lab.go(1)
        lab.guard(lab.hosts[leader], lab.hosts[leader].running.compact)
    assert lab.go(30, lambda: lab.core(behind).applied_offset == lab.core(leader).applied_offset)
    sent = [m for _, _, m in lab.sent if isinstance(m, SnapshotRequest) and m.last_offset == first.last_offset]
    assert [m.position for m in sent] == sorted({m.position for m in sent}), "every chunk once"
    assert sent[-1].is_last
    assert lab.end() is None


def test_crash_between_snapshot_and_log_keeps_the_tail() -> None:
    """The snapshot is durable, the log not yet cut: the acknowledged entries behind the snapshot stay."""
    lab = Lab()
    leader = lab.elect()
    follower, other = lab.others(leader)
    lab.put(leader, 3, 6, 9)
    lab.go(4)
    lab.cut([other])
    lab.put(leader, 12)
    lab.go(3)
    assert 12 in lab.checker.acked
    host = lab.hosts[follower]
    end = host.running.last_index
    core: RaftCore = lab.core(follower)
    offset = [item.offset for item in host.disk.log.current if isinstance(item, LogItem)][-2]
    host.disk.file_write("snapshot", core.compact(offset, lab_state(lab, follower, offset)))
    host.disk.file("snapshot").sync()
    lab.crash(follower)
    lab.start(follower)
    assert lab.hosts[follower].running.last_index == end
    lab.crash(leader)
    lab.heal()
    lab.go(80)
    lab.restart_at.pop(leader, NEVER)
    lab.start(leader)
    assert lab.end() is None


@pytest.mark.parametrize("cut_to", [2, 3, 4, 5])
def test_entries_that_are_cut_while_the_disk_writes_them_are_written_once(cut_to: int) -> None:
    """A new leader cuts a part of what a slow disk is just writing: the next Ready cuts there and goes on behind it, and
    neither repeats what stays nor leaves out what is gone."""
    lab = Lab()
    core: RaftCore = lab.core("n0")
    old = tuple(Entry(offset, 1, EntryKind.DATA, b"%d" % offset, 1) for offset in range(6))
    core.step(AppendRequest(key_of("n1"), core.key, 1, NO_OFFSET, 0, old, NO_OFFSET, 1))
    first = core.ready()
    new = Entry(cut_to + 1, 2, EntryKind.LEADER_CHANGE, b"leader 2", 1)
    core.step(AppendRequest(key_of("n2"), core.key, 2, cut_to, 1, (new,), NO_OFFSET, 1))
    core.advance(first)
    second = core.ready()
    assert [entry.last_offset for entry in first.entries] == list(range(6))
    assert second.truncate_to == (cut_to if cut_to < 5 else None)
    assert second.entries == (new,)


def lab_state(lab: Lab, nid: str, through: int) -> bytes:
    import pickle

    return pickle.dumps([pair for pair in lab.hosts[nid].running.state() if pair[0] <= through])
