"""Schedules that random runs rarely meet, each the classic for one rule. Every one takes an engine and gives the verdict:
None for the core, a violation for the mutant that breaks the rule."""

import pickle
from dataclasses import replace

from kraftlog.kraft.raft import NO_OFFSET, AppendRequest, AppendResponse, SnapshotRequest, VoteRequest, VoteResponse
from kraftlog.testing.raft_sim.core_engine import key_of
from kraftlog.testing.raft_sim.lab import DATAGRAMS, LOSSY, NEVER, QUIET, Lab
from kraftlog.testing.raft_sim.modes import Mode
from kraftlog.testing.raft_sim.world import EngineFactory

OBSERVED = replace(QUIET, has_observers=True)


def figure_8(engine: EngineFactory, mode: Mode = QUIET, seed: int = 1) -> str | None:
    """Raft figure 8, W01: an entry of an old term on a majority is not committed yet."""
    lab = Lab(engine, 5, mode=mode, seed=seed)
    a = lab.elect("n0")
    lab.go(4 * mode.delay)  # everybody has the entry that begins term 1
    b, _, _, e = lab.others(a)
    lab.cut([a, b])
    lab.put(a, 1)  # on a and b only, term 1
    lab.go(2 + mode.delay)
    lab.crash(a)
    lab.only(e)
    stop_losing = lab.drop(lambda src, dst, message: src == e and isinstance(message, AppendRequest))
    assert lab.go(200, lambda: lab.hosts[e].running.is_leader)  # e has its own entry of term 2, nobody else has
    lab.crash(e)
    lab.heal()
    lab.start(a)
    lab.only(a)
    stop_losing()

    def only_old_entries(src: str, dst: str, message: object) -> object:
        """What a appends in its new term gets lost; the old entry of term 1 arrives."""
        if src == a and isinstance(message, AppendRequest):
            return message._replace(entries=tuple(entry for entry in message.entries if entry.term == 1))
        return message

    stop_filter = lab.rewrite(only_old_entries)
    assert lab.go(200, lambda: lab.hosts[a].running.is_leader)
    lab.go(4 + 6 * mode.delay)  # the entry of term 1 is on a, b, c, d
    lab.crash(a)
    stop_filter()
    lab.start(e)
    lab.only(e)  # its last term, 2, is newer than the 1 of b, c and d
    lab.go(200, lambda: lab.hosts[e].running.is_leader)
    lab.go(5 + 4 * mode.delay)
    return lab.verdict()


def unverified_tail(engine: EngineFactory) -> str | None:
    """The leader's commit offset says nothing about what a follower has beyond the verified prefix."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    b, _ = lab.others(a)
    lab.cut([a])
    lab.put(a, *range(900, 906))  # a's own tail, on no other node
    lab.go(2)
    lab.drop(lambda src, dst, message: dst == a and isinstance(message, AppendRequest) and len(message.entries) > 0)
    lab.only(b)
    assert lab.go(40, lambda: lab.hosts[b].running.is_leader)
    lab.heal()
    for command in (3, 6, 9, 12):  # the entries get lost, the news of their commit arrives
        lab.go(3)
        lab.put(b, command)
    lab.go(3)
    return lab.verdict()


def repeated_votes(engine: EngineFactory) -> str | None:
    """Votes are collected, not counted: each answer twice makes no majority of two in five."""
    lab = Lab(engine, 5, mode=DATAGRAMS)
    lab.cut(["n0", "n1"])

    def twice(src: str, dst: str, message: object) -> object:
        if isinstance(message, VoteResponse):
            lab.network.send(src, dst, message)
        return message

    lab.rewrite(twice)
    lab.go(120)
    minority_leads = any(leaders & {"n0", "n1"} for leaders in lab.checker.leaders.values())
    return lab.verdict() or ("minority-leads" if minority_leads else None)


def acknowledgement_of_an_earlier_leadership(engine: EngineFactory) -> str | None:
    """An answer counts only in the term that it was given in: what it acknowledged may have been cut since (W03)."""
    lab = Lab(engine, 5)
    a = lab.elect("n0")
    b, c, _, e = lab.others(a)
    lab.cut([a, b])
    lab.drop(lambda src, dst, message: (src, dst) == (b, a) and message.term == 1)
    lab.put(a, *range(99, 129, 3))  # on a and b only; of one record each, so that an entry ends at each offset
    lab.go(1)
    kept = [message for src, dst, message in lab.sent if (src, dst) == (b, a) and isinstance(message, AppendResponse)]
    kept = [message for message in kept if message.match_offset == lab.core(a).log.last_offset]
    assert kept, "b has acknowledged the tail"
    lab.only(c)
    assert lab.go(40, lambda: lab.hosts[c].running.is_leader)
    lab.heal()
    lab.go(20)  # a and b have cut their tails
    lab.crash(c)
    lab.only(a)
    assert lab.go(40, lambda: lab.hosts[a].running.is_leader)
    lab.drop(lambda src, dst, message: src == a and dst in (b, e))  # the new leadership reaches only d
    lab.put(a, *range(201, 231, 3))
    lab.deliver(b, a, kept[-1])
    lab.go(3)
    return lab.verdict()


def two_voter_changes(engine: EngineFactory) -> str | None:
    """Two uncommitted changes in a row have majorities that do not overlap."""
    lab = Lab(engine, 3, extra=2)
    a = lab.elect("n0")
    b, c = lab.others(a)
    for peer in ("n3", "n4"):  # the first call makes an observer of it
        lab.hosts[a].running.change_voter("add", peer)
        lab.hosts[a].running._wanted_changes.clear()  # type: ignore[attr-defined]
    lab.go(6)
    lab.cut([b, c])
    for peer in ("n3", "n4"):
        lab.guard(lab.hosts[a], lab.hosts[a].running.change_voter, "add", peer)
        lab.hosts[a].running._wanted_changes.clear()  # type: ignore[attr-defined]
    lab.put(a, 1)
    lab.go(2)
    lab.only(b)
    lab.go(40, lambda: lab.hosts[b].running.is_leader)
    if lab.hosts[b].running.is_leader:
        lab.put(b, 2)
    lab.go(6)
    return lab.verdict()


def read_from_a_deposed_leader(engine: EngineFactory) -> str | None:
    """W10: a leader that is cut off does not know yet that another one has acknowledged writes."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    b, _ = lab.others(a)
    lab.core(a).leadership._ticks_since_check = 0
    lab.cut([a])
    lab.only(b)
    assert lab.go(12, lambda: lab.hosts[b].running.is_leader)
    lab.go(1)
    lab.put(b, 7)
    lab.go(1)
    assert 7 in lab.checker.acked
    assert lab.hosts[a].running.is_leader, "the old leader does not know yet"
    lab.read(a)
    lab.read(a)  # and again: the retry of a client that got no answer
    lab.go(3)
    lab.heal()
    lab.go(20)
    return lab.verdict()


def late_snapshot(engine: EngineFactory) -> str | None:
    """W09: a snapshot that was overtaken by appends replaces nothing."""
    lab = Lab(engine, 3, mode=DATAGRAMS)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([c])
    lab.put(a, 0, 3, 6)
    lab.go(3)
    lab.guard(lab.hosts[a], lab.hosts[a].running.compact)
    held: list[object] = []

    def hold_snapshots(src: str, dst: str, message: object) -> object:
        if isinstance(message, SnapshotRequest):
            held.append(message)
        return message

    lab.rewrite(hold_snapshots)
    lab.heal()
    lab.go(20, lambda: lab.core(c).commit_offset == lab.core(a).commit_offset)
    assert held, "c needed a snapshot"
    lab.put(a, 9, 12)
    lab.go(5)
    lab.crash(b)
    lab.put(a, 15)
    lab.go(3)
    for message in held:
        lab.deliver(a, c, message)
    return lab.verdict()


def power_cut_after_the_acknowledgement(engine: EngineFactory) -> str | None:
    """What was acknowledged is on the disks of a majority, and not only written."""
    lab = Lab(engine, 3, mode=LOSSY)
    lab.put(lab.elect("n0"), *range(0, 30, 3))
    lab.go(3)
    assert len(lab.checker.acked) == 10
    for nid in lab.ids:
        lab.crash(nid)
    for nid in lab.ids:
        lab.start(nid)
    return lab.end()


def disk_fails_at_the_write(engine: EngineFactory) -> str | None:
    """A follower whose process dies at the write of an entry has not acknowledged it."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([c])
    lab.fail_at(b, 0)
    lab.put(a, 3)
    lab.go(3)
    return lab.verdict()


def late_append(engine: EngineFactory) -> str | None:
    """A repeated message knows less than the log, and cuts nothing of it that matches (W03)."""
    lab = Lab(engine, 3, mode=DATAGRAMS)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([c])
    lab.drop(lambda src, dst, message: dst == b and isinstance(message, AppendRequest) and not message.entries)
    lab.put(a, 0, 3, 6)
    lab.go(2)
    assert {0, 3, 6} <= lab.checker.acked.keys()
    first = next(m for _, dst, m in lab.sent if dst == b and isinstance(m, AppendRequest) and _brings(m, b"0"))
    lab.crash(a)
    lab.deliver(a, b, first)
    lab.heal()
    lab.only(c)
    lab.go(40, lambda: lab.hosts[c].running.is_leader)
    lab.only(b)
    lab.go(60, lambda: lab.hosts[b].running.is_leader)
    lab.go(5)
    return lab.verdict()


def candidate_that_lacks_entries(engine: EngineFactory) -> str | None:
    """Raft §5.4.1: who has a newer log does not vote for an older one."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    _, c = lab.others(a)
    lab.cut([c])
    lab.put(a, 3)
    lab.go(3)
    assert 3 in lab.checker.acked
    lab.crash(a)
    lab.heal()
    lab.only(c)
    lab.go(60, lambda: lab.hosts[c].running.is_leader)
    lab.go(3)
    return lab.verdict()


def two_candidates(engine: EngineFactory) -> str | None:
    """One vote in a term: the second candidate of it gets none."""
    lab = Lab(engine, 3)
    lab.only(None)
    for candidate in ("n0", "n1"):
        lab.deliver(candidate, "n2", _vote_request(candidate, "n2"))
    return lab.verdict()


def two_candidates_and_a_restart(engine: EngineFactory) -> str | None:
    """Nor does it if the voter restarts in between."""
    lab = Lab(engine, 3)
    lab.only(None)
    lab.deliver("n0", "n2", _vote_request("n0", "n2"))
    lab.crash("n2")
    lab.start("n2")
    lab.deliver("n1", "n2", _vote_request("n1", "n2"))
    return lab.verdict()


def _vote_request(src: str, dst: str) -> VoteRequest:
    return VoteRequest(key_of(src), key_of(dst), 1, NO_OFFSET, 0, is_pre_vote=False, is_forced=False)


def deposed_leader_with_a_tail(engine: EngineFactory) -> str | None:
    """What conflicts with the new leader's log goes before anything behind it is acknowledged."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([a])
    lab.put(a, *range(900, 906))
    lab.go(2)
    lab.only(b)
    assert lab.go(40, lambda: lab.hosts[b].running.is_leader)
    lab.put(b, 3)
    lab.go(3)
    lab.heal()
    lab.go(5)
    lab.crash(c)
    lab.put(b, 6, 9)
    lab.go(10)
    return lab.verdict()


def read_before_the_own_term(engine: EngineFactory) -> str | None:
    """W13: a new leader does not know how far the quorum had committed until an entry of its own term is."""
    lab = Lab(engine, 3, mode=DATAGRAMS)
    a = lab.elect("n0")
    b, _ = lab.others(a)
    lab.drop(lambda src, dst, message: dst == b and isinstance(message, AppendRequest) and not message.entries)
    lab.put(a, 3)
    lab.go(2)
    assert 3 in lab.checker.acked
    lab.crash(a)
    lab.drop(lambda src, dst, message: isinstance(message, AppendRequest) and len(message.entries) > 0)
    lab.only(b)
    assert lab.go(60, lambda: lab.hosts[b].running.is_leader)
    lab.read(b)
    lab.go(3)
    return lab.verdict()


def acknowledgement_by_one_disk(engine: EngineFactory) -> str | None:
    """The only voter answers when its disk has the entry, and not while it writes."""
    lab = Lab(engine, 1, mode=LOSSY, seed=3)  # a seed with a slow disk
    a = lab.elect("n0")
    for command in range(0, 30, 3):
        lab.put(a, command)
        lab.go(1)
    return lab.verdict()


def majority_of_observers(engine: EngineFactory) -> str | None:
    """KIP-853: who has no vote does not count towards a commit."""
    lab = Lab(engine, 3, extra=2, mode=OBSERVED)
    a = lab.elect("n0")
    lab.go(20)
    lab.cut(lab.others(a))
    lab.put(a, 3)
    lab.go(3)
    return lab.verdict()


def observer_without_a_leader(engine: EngineFactory) -> str | None:
    """KIP-595: who has no vote does not stand for election."""
    lab = Lab(engine, 3, extra=1, mode=OBSERVED)
    a = lab.elect("n0")
    lab.go(20)
    lab.crash(a)
    lab.only("n3")
    lab.go(60)
    return lab.verdict()


def observer_of_a_lost_leader(engine: EngineFactory) -> str | None:
    """An observer whose leader is gone looks for the next one among the voters."""
    lab = Lab(engine, 3, extra=1, mode=OBSERVED)
    a = lab.elect("n0")
    b, _ = lab.others(a)
    lab.go(20)
    lab.crash(a)
    lab.only(b)
    assert lab.go(60, lambda: lab.hosts[b].running.is_leader)
    lab.put(b, 3)
    return lab.end()


def isolated_node(engine: EngineFactory) -> str | None:
    """W05: who was cut off for long comes back in the term that it left, and the leader stays."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    term = lab.hosts[a].running.term
    lab.cut(lab.others(a)[:1])
    lab.go(100)
    lab.heal()
    lab.go(40)
    is_disturbed = lab.leader() != a or lab.hosts[a].running.term != term
    return lab.verdict() or ("deposed" if is_disturbed else None)


def restart_after_voter_changes(engine: EngineFactory) -> str | None:
    """The newest voter set in the log is in force, also after a restart, when nothing is known to be committed. By the
    former one, two of the first three would be a majority beside three of five."""
    lab = Lab(engine, 3, extra=2)
    a = lab.elect("n0")
    b = lab.others(a)[0]
    for peer in ("n3", "n4"):
        lab.guard(lab.hosts[a], lab.hosts[a].running.change_voter, "add", peer)
        lab.go(20)
    assert len(lab.core(a).voters) == 5
    for nid in (a, b):
        lab.crash(nid)
    lab.cut([a, b])
    lab.start(a)
    lab.start(b)
    lab.only(a)
    lab.go(30)
    lab.only("n3")
    assert lab.go(60, lambda: lab.hosts["n3"].running.is_leader)
    lab.put("n3", 3)
    lab.go(5)
    return lab.verdict()


def snapshot_inside_the_log(engine: EngineFactory) -> str | None:
    """W07: the entries behind a snapshot that matches may be the only other copy of what is acknowledged."""
    lab = Lab(engine, 3, mode=DATAGRAMS)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([c])
    lab.drop(lambda src, dst, message: dst == b and isinstance(message, AppendRequest) and not message.entries)
    lab.put(a, 0, 3, 6)
    lab.go(2)
    assert 6 in lab.checker.acked
    end = lab.core(a).applied_offset - 1  # before the last one
    state = pickle.dumps([pair for pair in lab.hosts[a].running.state() if pair[0] <= end])
    snapshot = lab.core(a).compact(end, state)
    lab.crash(a)
    lab.deliver(
        a,
        b,
        SnapshotRequest(
            src=key_of(a),
            dst=key_of(b),
            term=lab.core(b).term,
            last_offset=snapshot.last_offset,
            last_term=snapshot.term,
            voters=snapshot.voters,
            position=0,
            data=snapshot.data,
            is_last=True,
            round=0,
        ),
    )
    lab.heal()
    lab.only(b)
    assert lab.go(60, lambda: lab.hosts[b].running.is_leader)
    lab.go(5)
    return lab.verdict()


def damaged_disk(engine: EngineFactory) -> str | None:
    """A voter that cannot read what it had acknowledged does not vote: with the one that never had it, it would be a
    majority. It comes back as another replica."""
    lab = Lab(engine, 3)
    a = lab.elect("n0")
    b, c = lab.others(a)
    lab.cut([c])
    lab.put(a, *range(0, 30, 3))
    lab.go(8)
    assert len(lab.checker.acked) == 10
    lab.crash(b)
    lab.on_damage(b, 0.15, NEVER)
    assert lab.hosts[b].damage is not None
    lab.crash(a)
    lab.heal()
    lab.start(b)
    lab.only(c)
    lab.go(60, lambda: lab.hosts[c].running.is_leader)
    lab.start(a)
    return lab.end()


def _brings(request: AppendRequest, data: bytes) -> bool:
    return any(entry.data == data for entry in request.entries)


SCHEDULES = [
    power_cut_after_the_acknowledgement,
    disk_fails_at_the_write,
    late_append,
    candidate_that_lacks_entries,
    two_candidates,
    two_candidates_and_a_restart,
    deposed_leader_with_a_tail,
    read_before_the_own_term,
    acknowledgement_by_one_disk,
    majority_of_observers,
    observer_without_a_leader,
    observer_of_a_lost_leader,
    isolated_node,
    restart_after_voter_changes,
    snapshot_inside_the_log,
    damaged_disk,
    figure_8,
    unverified_tail,
    repeated_votes,
    acknowledgement_of_an_earlier_leadership,
    two_voter_changes,
    read_from_a_deposed_leader,
    late_snapshot,
]
