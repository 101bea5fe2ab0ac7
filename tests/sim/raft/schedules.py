"""Schedules that random runs rarely meet, each the classic for one rule. Every one takes an engine and gives the verdict:
None for the core, a violation for the mutant that breaks the rule."""

from kraftlog.kraft.raft import AppendRequest, AppendResponse, SnapshotRequest, VoteResponse
from kraftlog.testing.raft_sim.lab import DATAGRAMS, Lab
from kraftlog.testing.raft_sim.world import EngineFactory


def figure_8(engine: EngineFactory) -> str | None:
    """Raft figure 8, W01: an entry of an old term on a majority is not committed yet."""
    lab = Lab(engine, 5)
    a = lab.elect("n0")
    b, _, _, e = lab.others(a)
    lab.cut([a, b])
    lab.put(a, 1)  # on a and b only, term 1
    lab.go(2)
    lab.crash(a)
    lab.only(e)
    stop_losing = lab.drop(lambda src, dst, message: src == e and isinstance(message, AppendRequest))
    assert lab.go(40, lambda: lab.hosts[e].running.is_leader)  # e has its own entry of term 2, nobody else has
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
    assert lab.go(60, lambda: lab.hosts[a].running.is_leader)
    lab.go(4)  # the entry of term 1 is on a, b, c, d
    lab.crash(a)
    stop_filter()
    lab.start(e)
    lab.only(e)  # its last term, 2, is newer than the 1 of b, c and d
    lab.go(60, lambda: lab.hosts[e].running.is_leader)
    lab.go(5)
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


SCHEDULES = [
    figure_8,
    unverified_tail,
    repeated_votes,
    acknowledgement_of_an_earlier_leadership,
    two_voter_changes,
    read_from_a_deposed_leader,
    late_snapshot,
]
