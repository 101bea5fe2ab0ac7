"""Scripted runs: a world without a nemesis in which a test plays the faults by hand.

lab = Lab(nodes=3)
leader = lab.elect("n0")
lab.cut([leader])
lab.put(leader, 7)
lab.go(20)
assert lab.end() is None
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kraftlog.testing.raft_sim.checker import Checker, Violation
from kraftlog.testing.raft_sim.core_engine import CoreEngine
from kraftlog.testing.raft_sim.engine import Command
from kraftlog.testing.raft_sim.modes import MODES, Mode
from kraftlog.testing.raft_sim.world import EngineFactory, World

QUIET = replace(MODES["clean"], delay=0)
DATAGRAMS = replace(QUIET, is_fifo=False)
LOSSY = replace(QUIET, is_lossy=True)
NEVER = 10**6

Rule = Callable[[str, str, Any], bool]


class _Recording(Checker):
    """Notes a violation and goes on: the script shows the harm to its end."""

    first: Violation | None = None

    def fail(self, kind: str, **details: Any) -> None:
        self.first = self.first or Violation(kind, {"step": self.step, **details})


class Lab(World):
    def __init__(
        self,
        engine: EngineFactory = CoreEngine,
        nodes: int = 3,
        *,
        mode: Mode = QUIET,
        seed: int = 1,
        extra: int = 0,
        starts: bool = True,
    ) -> None:
        super().__init__(seed, nodes, mode, engine, steps=0, events=[], extra=extra)
        self.checker = self.recording = _Recording(self.ids, is_lossy=mode.is_lossy)
        self.checker.hosts = self.hosts  # type: ignore[assignment] # a Host is a CheckedHost
        self._rules: list[Callable[[str, str, Any], Any]] = []
        self.sent: list[tuple[str, str, Any]] = []
        """Every message that left a node, before the rules."""
        if starts:
            for nid in self.pool:
                self.boot(self.hosts[nid])

    # --- time ---------------------------------------------------------------------------------------------------

    def go(self, steps: int, until: Callable[[], object] | None = None) -> bool:
        """Whether `until` came true; without it, True."""
        for _ in range(steps):
            self.one_step()
            if until is not None and until():
                return True
        return until is None

    def elect(self, nid: str | None = None) -> str:
        """The leader, after its first own entry is committed. With `nid` only that node campaigns."""
        if nid is not None:
            self.only(nid)
        assert self.go(100, lambda: self.leader(nid) is not None), "no leader"
        self.go(3)
        leader = self.leader(nid)
        assert leader is not None
        return leader

    def leader(self, nid: str | None = None) -> str | None:
        leaders = [host for host in self.running_hosts() if host.running.is_leader and nid in (None, host.nid)]
        return max(leaders, key=lambda host: host.running.term).nid if leaders else None

    def only(self, nid: str | None) -> None:
        """Only this node campaigns from now on, and soon; None: nobody."""
        for host in self.running_hosts():
            engine = host.running
            assert isinstance(engine, CoreEngine)
            engine.core._timeout_ticks = 1 if host.nid == nid else NEVER

    def core(self, nid: str) -> Any:
        engine = self.hosts[nid].running
        assert isinstance(engine, CoreEngine)
        return engine.core

    # --- clients ------------------------------------------------------------------------------------------------

    def put(self, nid: str, *commands: Command) -> None:
        for command in commands:
            host = self.hosts[nid]
            self.guard(
                host,
                host.running.propose,
                command,
                lambda outcome, command=command: self.checker.on_result(command, outcome),
            )

    def read(self, nid: str) -> list[frozenset[Command]]:
        """A read that must contain what is acknowledged or was read by now. The list gets the answer when there is one."""
        answers: list[frozenset[Command]] = []
        known = self.checker.must_be_read()

        def answer(got: frozenset[Command]) -> None:
            answers.append(got)
            self.checker.on_read(nid, known, got)

        self.guard(self.hosts[nid], self.hosts[nid].running.read, answer)
        return answers

    # --- faults -------------------------------------------------------------------------------------------------

    def others(self, *nids: str) -> list[str]:
        return [nid for nid in self.ids if nid not in nids]

    def cut(self, side: list[str]) -> None:
        """Cut `side` off from everybody else, both ways."""
        self.on_partition(side, "both")

    def heal(self) -> None:
        self.network.heal()

    def crash(self, nid: str) -> None:
        """It stays down until `start`."""
        self.kill(self.hosts[nid], NEVER)

    def fail_at(self, nid: str, operations: int) -> None:
        """It dies, and stays down, before it has done so many further operations on its disk and one more."""
        self.restart_at[nid] = NEVER
        self.hosts[nid].disk.operations_left = operations

    def start(self, nid: str) -> None:
        self.restart_at.pop(nid, None)
        self.boot(self.hosts[nid])

    def drop(self, rule: Rule) -> Callable[[], None]:
        """Lose the messages for which `rule(src, dst, message)` holds; call the answer to stop."""
        return self.rewrite(lambda src, dst, message: None if rule(src, dst, message) else message)

    def rewrite(self, change: Callable[[str, str, Any], Any]) -> Callable[[], None]:
        """Pass every message through `change(src, dst, message)`; None loses it. Call the answer to stop."""
        self._rules.append(change)
        return lambda: self._rules.remove(change)

    def send(self, src: str, dst: str, message: Any) -> bool:
        self.sent.append((src, dst, message))
        for change in list(self._rules):
            message = change(src, dst, message)
            if message is None:
                return True
        return super().send(src, dst, message)

    # --- the end ------------------------------------------------------------------------------------------------

    def verdict(self) -> str | None:
        """The kind of the first violation so far, hard ones first."""
        if self.recording.first is not None:
            return self.recording.first.kind
        return next(iter(self.checker.soft), None)

    def end(self) -> str | None:
        """Heal, converge, and the verdict."""
        self._rules.clear()
        self.finish()
        return self.verdict()
