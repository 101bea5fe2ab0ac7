"""What must hold after every event. A hard violation ends the run; a soft one is a broken rule that has done no harm
yet, and is noted."""

from typing import Any, Protocol

from tests.sim.raft.disk import Disk, LogItem
from tests.sim.raft.engine import Command, Engine, Outcome, State


class Violation(Exception):
    """A safety rule is broken."""

    def __init__(self, kind: str, details: dict[str, Any]) -> None:
        super().__init__(kind, details)
        self.kind = kind
        self.details = details


class CheckedHost(Protocol):
    """What the checker sees of a node."""

    nid: str
    disk: Disk
    last_leader_term: int | None
    last_commit: int
    last_applied: int

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
        self.acked: dict[Command, int] = {}
        """Command -> step at which its client got ok."""
        self.results: dict[Command, Outcome] = {}
        self.stats = {"elections": 0, "acked": 0, "reads": 0, "messages": 0, "crashes": 0, "voter_changes": 0}

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

    def on_read(self, nid: str, must_contain: frozenset[Command], got: frozenset[Command]) -> None:
        """`must_contain` was acknowledged before the read was asked for."""
        self.stats["reads"] += 1
        missing = sorted(must_contain - got)
        if missing:
            self.fail("stale-linearizable-read", node=nid, missing=missing[:3])

    # --- what nodes do ------------------------------------------------------------------------------------------

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
            self._on_elected(host.nid, engine)
        self._check_commit(host, engine)
        if engine.applied_index < host.last_applied:
            self.note("applied-regress", node=host.nid, was=host.last_applied, now=engine.applied_index)
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
            self.note("commit-regress", node=host.nid, was=host.last_commit, now=commit)
        elif commit > host.last_commit:
            after = max(host.last_commit, engine.first_index - 1)
            items = engine.entries(after, commit)
            if commit > after and (not items or items[-1].offset != commit):
                self.note("commit-beyond-log", node=host.nid, commit=commit)
            for item in items:
                self._on_committed(host.nid, engine, item)
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

    def _holds(self, nid: str, item: LogItem) -> bool:
        disk = self.hosts[nid].disk
        log = disk.log.durable if self._is_lossy else disk.log.current
        if not log or item.offset < log[0].offset:
            return bool(log)  # below the first index: inside of the node's snapshot
        return any(known.offset == item.offset and known.term == item.term for known in reversed(log))
