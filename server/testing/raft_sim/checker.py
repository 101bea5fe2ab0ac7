"""What must hold after every event. A hard violation ends the run; a soft one is a broken rule that has done no harm
yet, and is noted.

| rule | kinds of violation |
|---|---|
| one leader in a term; only voters lead | two-leaders, elected-without-vote |
| one vote of a replica in a term, durable before it is told | two-votes, vote-not-durable |
| pre-vote: a term begins only where a majority would vote, or the old leader asks for it | campaign-without-pre-vote |
| log matching: index and term name one entry and one predecessor | log-matching |
| leader completeness | leader-incomplete, committed-behind-leader |
| what is committed never changes, and a majority had it on disk | commit-mismatch, commit-regress, commit-beyond-log, phantom-commit |
| state-machine safety | apply-mismatch, state-mismatch, state-order, applied-regress |
| what is acknowledged is applied, and never lost | ack-not-applied, acked-lost |
| reads are linearizable | stale-linearizable-read, read-of-nothing |
| a damaged disk is not trusted, any other one is | starts-on-damage, cannot-start |
| once healed, all members have the whole log and every lost voter has its place again | stuck |
"""

from typing import Any, Protocol

from kraftlog.testing.raft_sim.disk import Disk, LogItem, is_damaged
from kraftlog.testing.raft_sim.engine import Command, Engine, Outcome, State, node_of


class Violation(Exception):
    """A safety rule is broken."""

    def __init__(self, kind: str, details: dict[str, Any]) -> None:
        super().__init__(kind, details)
        self.kind = kind
        self.details = details


class CheckedHost(Protocol):
    """What the checker sees of a node."""

    disk: Disk
    last_leader_term: int | None
    last_commit: int
    last_applied: int

    @property
    def replica(self) -> str: ...

    @property
    def running(self) -> Engine: ...


class Checker:
    """The history of one run and the rules over it."""

    def __init__(self, first_voters: list[str], *, is_lossy: bool, stops_at_soft: bool = False) -> None:
        self.step = 0
        self.hosts: dict[str, CheckedHost] = {}
        self._first_voters = first_voters
        self._is_lossy = is_lossy
        self._stops_at_soft = stops_at_soft
        self.soft: dict[str, dict[str, Any]] = {}
        self.leaders: dict[int, set[str]] = {}
        """Term -> who led in it."""
        self._leader_logs: dict[int, tuple[str, int, dict[int, int]]] = {}
        """Term -> (leader, first index, index -> term) when it was elected."""
        self.committed: dict[int, tuple[LogItem, int]] = {}
        """Index -> (entry, term of the node that first called it committed)."""
        self._applied_at: dict[int, Command] = {}
        self._entry_of: dict[tuple[int, int], tuple[Any, int | None]] = {}
        self._applied_commands: set[Command] = set()
        self._votes: dict[tuple[str, int], str] = {}
        """(replica, term) -> whom it voted for."""
        self._pre_votes: dict[tuple[str, int], set[str]] = {}
        """(candidate, term) -> who would vote for it."""
        self.lost_logs: dict[str, list[LogItem]] = {}
        """Replica -> what its disk had when it was lost or damaged. What the replica had acknowledged it had."""
        self.seen: set[Command] = set()
        """What reads have returned: later ones must return it too."""
        self.acked: dict[Command, int] = {}
        """Command -> step at which its client got ok."""
        self.results: dict[Command, Outcome] = {}
        self.stats = {
            "elections": 0,
            "acked": 0,
            "reads": 0,
            "messages": 0,
            "crashes": 0,
            "voter_changes": 0,
            "lost_disks": 0,
        }

    def fail(self, kind: str, **details: Any) -> None:
        raise Violation(kind, {"step": self.step, **details})

    def note(self, kind: str, **details: Any) -> None:
        self.soft.setdefault(kind, {"step": self.step, **details})
        if self._stops_at_soft:
            self.fail(kind, **details)

    # --- what clients see ---------------------------------------------------------------------------------------

    def on_result(self, command: Command, outcome: Outcome) -> None:
        if self.results.get(command) == "ok":
            return
        self.results[command] = outcome
        if outcome == "ok":
            self.acked[command] = self.step
            self.stats["acked"] += 1
            if command not in self._applied_commands:
                self.fail("ack-not-applied", command=command)

    def must_be_read(self) -> frozenset[Command]:
        """What a read that is asked for now has to return: all that is acknowledged, or was returned to somebody."""
        return frozenset(self.acked.keys() | self.seen)

    def on_read(self, nid: str, must_contain: frozenset[Command], got: frozenset[Command]) -> None:
        """`must_contain`: `must_be_read` when the read was asked for."""
        self.stats["reads"] += 1
        missing = sorted(must_contain - got)
        if missing:
            self.fail("stale-linearizable-read", node=nid, missing=missing[:3])
        if not got <= self._applied_commands:
            self.fail("read-of-nothing", node=nid, surplus=sorted(got - self._applied_commands)[:3])
        self.seen |= got

    # --- what nodes do ------------------------------------------------------------------------------------------

    def on_pre_vote(self, replica: str, term: int, candidate: str) -> None:
        """`replica` says that it would vote for `candidate` in this term."""
        self._pre_votes.setdefault((candidate, term), {candidate}).add(replica)

    def on_campaign(self, candidate: str, term: int, voters: set[str]) -> None:
        """It begins this term unasked."""
        would_vote = self._pre_votes.get((candidate, term), {candidate})
        if 2 * len(would_vote & voters) <= len(voters):
            self.note("campaign-without-pre-vote", node=candidate, term=term, would_vote=sorted(would_vote))

    def on_vote(self, replica: str, disk: Disk, term: int, candidate: str) -> None:
        """The vote leaves the node, or the node asks for votes and so has given its own."""
        first = self._votes.setdefault((replica, term), candidate)
        if first != candidate:
            self.fail("two-votes", replica=replica, term=term, candidates=[first, candidate])
        saved = disk.meta.durable if self._is_lossy else disk.meta.current
        if saved.get("term", 0) < term or (saved["term"] == term and saved.get("vote") is None):
            self.fail("vote-not-durable", replica=replica, term=term, on_disk=saved)

    def on_entry(self, nid: str, item: LogItem, prev_term: int | None) -> None:
        """Log matching: (index, term) names one entry and one predecessor."""
        key = (item.offset, item.term)
        payload, known_prev = self._entry_of.setdefault(key, (item.payload, prev_term))
        if payload != item.payload or (None not in (prev_term, known_prev) and known_prev != prev_term):
            self.fail("log-matching", node=nid, index=item.offset, term=item.term, old=(payload, known_prev))
        if known_prev is None and prev_term is not None:
            self._entry_of[key] = (payload, prev_term)

    def on_apply(self, nid: str, index: int, command: Command) -> None:
        known = self._applied_at.setdefault(index, command)
        if known != command:
            self.fail("apply-mismatch", node=nid, index=index, here=command, elsewhere=known)
        self._applied_commands.add(command)

    def on_state(self, nid: str, state: State) -> None:
        """A node replaced its state by a snapshot: compare it with what was applied one by one."""
        last = -1
        for index, command in state:
            if index <= last:
                self.fail("state-order", node=nid, index=index, last=last)
            last = index
            if self._applied_at.get(index) != command:
                self.fail("state-mismatch", node=nid, index=index, here=command, elsewhere=self._applied_at.get(index))

    # --- after every event --------------------------------------------------------------------------------------

    def check(self, host: CheckedHost) -> None:
        engine = host.running
        if engine.is_leader and host.last_leader_term != engine.term:
            host.last_leader_term = engine.term
            self._on_elected(host.replica, engine)
        self._check_commit(host, engine)
        if engine.applied_index < host.last_applied:
            self.note("applied-regress", node=host.replica, was=host.last_applied, now=engine.applied_index)
        host.last_applied = engine.applied_index

    def _on_elected(self, nid: str, engine: Engine) -> None:
        """Election safety and leader completeness (Raft figure 3)."""
        term, first = engine.term, engine.first_index
        self.stats["elections"] += 1
        voters = engine.voters()
        if voters is not None and nid not in voters:
            self.fail("elected-without-vote", term=term, node=nid, voters=sorted(voters))
        leaders = self.leaders.setdefault(term, set())
        leaders.add(nid)
        if len(leaders) > 1:
            self.fail("two-leaders", term=term, nodes=sorted(leaders))
        view = {item.offset: item.term for item in engine.entries(first - 1, engine.last_index)}
        self._leader_logs[term] = (nid, first, view)
        for index, (item, commit_term) in self.committed.items():
            if commit_term < term and index >= first and view.get(index) != item.term:
                self.fail("leader-incomplete", leader=nid, term=term, index=index, has=view.get(index))

    def _check_commit(self, host: CheckedHost, engine: Engine) -> None:
        commit = engine.commit_index
        if commit < host.last_commit:
            self.note("commit-regress", node=host.replica, was=host.last_commit, now=commit)
        elif commit > host.last_commit:
            after = max(host.last_commit, engine.first_index - 1)
            items = engine.entries(after, commit)
            if commit > after and (not items or items[-1].offset != commit):
                self.note("commit-beyond-log", node=host.replica, commit=commit)
            for item in items:
                self._on_committed(host.replica, engine, item)
        host.last_commit = commit

    def _on_committed(self, nid: str, engine: Engine, item: LogItem) -> None:
        known = self.committed.get(item.offset)
        if known is not None:
            if known[0] != item:
                self.fail("commit-mismatch", node=nid, index=item.offset, here=item, elsewhere=known[0])
            return
        self.committed[item.offset] = (item, engine.term)
        for term, (leader, first, view) in self._leader_logs.items():
            if term > engine.term and item.offset >= first and view.get(item.offset) != item.term:
                self.fail("committed-behind-leader", node=nid, index=item.offset, leader=leader, leader_term=term)
        voters = engine.voters() or frozenset(self._first_voters)
        holders = [voter for voter in sorted(voters) if self._holds(voter, item)]
        if 2 * len(holders) <= len(voters):
            self.note(
                "phantom-commit", node=nid, index=item.offset, term=item.term, holders=holders, voters=len(voters)
            )

    def _holds(self, replica: str, item: LogItem) -> bool:
        log = self.lost_logs.get(replica)
        if log is None:
            disk = self.hosts[node_of(replica)].disk
            log = disk.log.durable if self._is_lossy else disk.log.current
        if not log or item.offset < log[0].offset:
            return bool(log)  # below the first index: inside of the node's snapshot
        return any(
            known.offset == item.offset and known.term == item.term and not is_damaged(known) for known in reversed(log)
        )
