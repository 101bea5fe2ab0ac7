"""A deterministic Raft world: virtual time in steps of 0.1 s, faulty links, disks that crash, a nemesis, a checker.

One thread; every decision comes from random sources seeded by the run's seed, so a seed is a run. The world knows no
Raft implementation: one plugs in as a factory of `Engine`s that keep everything durable on their `Disk`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.sim.raft.checker import Checker, Violation
from tests.sim.raft.disk import Crash, Disk
from tests.sim.raft.engine import Command, Engine
from tests.sim.raft.modes import Event, Mode, schedule
from tests.sim.raft.network import Network

STEP_SECONDS = 0.1
SETTLE_STEPS = 100


@dataclass
class Host:
    nid: str
    disk: Disk = field(default_factory=Disk)
    engine: Engine | None = None
    stalled_until: int = -1
    last_leader_term: int | None = None
    last_commit: int = -1
    last_applied: int = -1
    incarnation: int = 0

    @property
    def running(self) -> Engine:
        assert self.engine is not None, f"{self.nid} is down"
        return self.engine


EngineFactory = Callable[["World", str, Disk], Engine]


class World:
    def __init__(
        self,
        seed: int,
        node_count: int,
        mode: Mode,
        factory: EngineFactory,
        *,
        steps: int = 200,
        events: list[Event] | None = None,
        extra: int = 0,
        stops_at_soft: bool = False,
        trace: bool = False,
    ) -> None:
        self.seed, self.mode, self.steps = seed, mode, steps
        self._factory = factory
        self.ids = [f"n{i}" for i in range(node_count)]
        """The first voters."""
        self.pool = [f"n{i}" for i in range(node_count + extra)]
        self.events = schedule(seed, mode, node_count, steps, extra) if events is None else events
        self.random = Random(f"network-{seed}")
        self.engine_random = Random(f"engine-{seed}")
        self.step = 0
        self.now = 100.0
        self.drift = 0.0
        """Virtual seconds that passed within this step, for engines that read the clock."""
        self.hosts = {nid: Host(nid) for nid in self.pool}
        self.network = Network(mode, self.random, self)
        self.checker = Checker(self.ids, is_lossy=mode.is_lossy, stops_at_soft=stops_at_soft)
        self.checker.hosts = self.hosts  # type: ignore[assignment] # a Host is a CheckedHost
        self.restart_at: dict[str, int] = {}
        self._later: list[Event] = []
        self._traces = trace
        self.trace_lines: list[str] = []

    # --- for engines --------------------------------------------------------------------------------------------

    def send(self, src: str, dst: str, message: Any) -> bool:
        self.checker.stats["messages"] += 1
        return self.network.send(src, dst, message)

    # --- for the network ----------------------------------------------------------------------------------------

    def is_up(self, nid: str) -> bool:
        return self.hosts[nid].engine is not None

    def is_stalled(self, nid: str) -> bool:
        return self.step <= self.hosts[nid].stalled_until

    def link_changed(self, nid: str, peer: str, is_up: bool) -> None:
        host = self.hosts[nid]
        if host.engine is not None:
            self.guard(host, host.engine.on_connected if is_up else host.engine.on_disconnected, peer)

    def deliver(self, src: str, dst: str, message: Any) -> None:
        host = self.hosts[dst]
        if host.engine is not None:
            self.trace("receive", dst, "from", src, message)
            self.guard(host, host.engine.receive, src, message)

    # --- processes ----------------------------------------------------------------------------------------------

    def running_hosts(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.engine is not None]

    def guard(self, host: Host, work: Callable[..., None], *arguments: Any) -> None:
        """Run a handler of a node; a Crash out of its disk kills the node. Then check the node."""
        try:
            work(*arguments)
        except Crash:
            pass  # the disk knows
        except Violation:
            raise
        except Exception as error:
            # a dead process may stumble on (a bare except in the engine); a live one logs and goes on
            if not host.disk.is_dead:
                self.checker.note("handler-exception", node=host.nid, error=repr(error))
        if host.engine is not None and host.disk.is_dead:
            self.kill(host)
        elif host.engine is not None:
            self.checker.check(host)

    def boot(self, host: Host) -> None:
        host.incarnation += 1
        host.last_leader_term, host.last_commit, host.last_applied = None, -1, -1
        self.trace("boot", host.nid)
        try:
            host.engine = self._factory(self, host.nid, host.disk)
        except Crash:
            host.engine = None
        except Exception as error:
            self.checker.fail("cannot-start", node=host.nid, error=repr(error))
        if host.engine is None or host.disk.is_dead:
            self.kill(host)
            return
        self.network.booted(host.nid, [peer for peer in self.pool if peer != host.nid and self.is_up(peer)])

    def kill(self, host: Host, restart_after: int | None = None) -> None:
        self.trace("crash", host.nid)
        self.checker.stats["crashes"] += 1
        host.engine = None
        host.disk.crash(is_lossy=self.mode.is_lossy, random=self.random)
        self.restart_at.setdefault(host.nid, self.step + (restart_after or self.random.randint(1, 20)))
        self.network.killed(host.nid, [peer for peer in self.pool if peer != host.nid])

    # --- events -------------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        _, kind, *arguments = event
        self.trace("event", kind, *arguments)
        getattr(self, f"on_{kind}")(*arguments)

    def _ready(self, nid: str) -> Host | None:
        host = self.hosts[nid]
        return host if host.engine is not None and not self.is_stalled(nid) else None

    def on_propose(self, nid: str, command: Command) -> None:
        engine = self.hosts[nid].engine
        hint = engine.leader_hint if engine is not None else None
        host = self._ready(hint if hint is not None and self.is_up(hint) else nid)
        if host is not None:
            self.guard(host, host.running.propose, command, lambda outcome: self.checker.on_result(command, outcome))

    def on_partition(self, side: Sequence[str], direction: str) -> None:
        for a in self.pool:
            for b in self.pool:
                crosses = (a in side) != (b in side)
                if crosses and (direction == "both" or (direction == "out") == (a in side)):
                    self.network.block(a, b)

    def on_heal(self) -> None:
        self.network.heal()

    def on_break(self, a: str, b: str, keeps_bytes: bool, redial_after: int) -> None:
        if self.mode.is_fifo and self.network.is_connected(a, b):
            self.network.break_link(a, b, keeps_bytes=keeps_bytes, redial_after=redial_after)

    def on_slow(self, a: str, b: str, lag: int, duration: int) -> None:
        self.network.slow[a, b] = lag
        self._later.append((self.step + duration, "unslow", a, b))

    def on_unslow(self, a: str, b: str) -> None:
        self.network.slow.pop((a, b), None)

    def on_crash(self, nid: str, restart_after: int) -> None:
        if self.is_up(nid):
            self.kill(self.hosts[nid], restart_after)

    def on_midcrash(self, nid: str, operations: int) -> None:
        if self.is_up(nid) and self.hosts[nid].disk.operations_left is None:
            self.hosts[nid].disk.operations_left = operations

    def on_all_crash(self, restart_after: int) -> None:
        for host in self.running_hosts():
            self.kill(host, restart_after)

    def on_stall(self, nid: str, duration: int) -> None:
        self.hosts[nid].stalled_until = self.step + duration

    def on_compact(self, nid: str, _: str) -> None:
        host = self.hosts[nid]
        if host.engine is not None:
            self.guard(host, host.engine.compact)

    def on_transfer(self, nid: str, peer: str) -> None:
        host = self.hosts[nid]
        if host.engine is not None:
            self.guard(host, host.engine.transfer, peer)

    def on_voters(self, operation: str, peer: str) -> None:
        for host in self.running_hosts():
            if host.engine is not None and host.engine.is_leader and not self.is_stalled(host.nid):
                self.guard(host, host.engine.change_voter, operation, peer)

    def on_forget(self, nid: str, peer: str) -> None:
        host = self.hosts[nid]
        if host.engine is not None:
            self.guard(host, host.engine.forget, peer)

    def on_read(self, nid: str, _: str) -> None:
        host = self._ready(nid)
        if host is not None:
            acked = frozenset(self.checker.acked)
            self.guard(host, host.running.read, lambda got: self.checker.on_read(nid, acked, got))

    # --- running ------------------------------------------------------------------------------------------------

    def one_step(self, events: Sequence[Event] = ()) -> None:
        self.step += 1
        self.network.step = self.checker.step = self.step
        self.now, self.drift = self.now + STEP_SECONDS, 0.0
        due = [event for event in self._later if event[0] <= self.step]
        self._later = [event for event in self._later if event[0] > self.step]
        for event in [*events, *due]:
            self.event(event)
        for nid, at in list(self.restart_at.items()):
            if at <= self.step:
                del self.restart_at[nid]
                if not self.is_up(nid):
                    self.boot(self.hosts[nid])
        self.network.run_step()
        hosts = self.running_hosts()
        self.random.shuffle(hosts)
        for host in hosts:
            if host.engine is not None and not self.is_stalled(host.nid):
                self.guard(host, host.engine.tick)
                if self.mode.is_lossy and self.random.random() < 0.1:
                    host.disk.background_flush(self.random)

    def run(self) -> Violation | None:
        """The whole run; raises only programming errors."""
        try:
            for nid in self.pool:
                self.boot(self.hosts[nid])
            upcoming = 0
            while self.step < self.steps:
                start = upcoming
                while upcoming < len(self.events) and self.events[upcoming][0] <= self.step + 1:
                    upcoming += 1
                self.one_step(self.events[start:upcoming])
            self.finish()
        except Violation as violation:
            return violation
        return None

    def finish(self) -> None:
        """Heal, let it settle; then all is equal everywhere and every acknowledged command is there."""
        self.mode = self.network.mode = replace(self.mode, drop=0, duplicate=0, delay=1)
        self.network.heal()
        self.network.slow.clear()
        self._later = []
        for host in self.hosts.values():
            host.disk.operations_left = None
            host.stalled_until = -1
            if host.engine is None:
                self.restart_at.setdefault(host.nid, self.step + 1)
        for settled in range(SETTLE_STEPS):
            self.one_step()
            if settled > 20 and settled % 10 == 0 and self.has_converged():
                break
        else:
            if not self.has_converged():
                self.checker.note("stuck", nodes={host.nid: _summary(host.running) for host in self.members()})
        for host in self.members():
            self.checker.on_state(host.nid, host.running.state())
        best = max(self.members(), key=lambda host: host.running.applied_index)
        have = {command for _, command in best.running.state()}
        lost = [command for command in self.checker.acked if command not in have]
        if lost and "stuck" in self.checker.soft:
            self.checker.note("acked-missing-while-stuck", lost=lost[:5])
        elif lost:
            self.checker.fail("acked-lost", lost=lost[:5], count=len(lost), node=best.nid)

    def members(self) -> list[Host]:
        """Who must converge: the running voters, as the newest leader sees them, and the observers."""
        hosts = self.running_hosts()
        if self.mode.has_observers:
            return hosts
        leaders = [host for host in hosts if host.running.is_leader]
        voters = max(leaders, key=lambda host: host.running.term).running.voters() if leaders else None
        wanted = voters or self.ids
        return [host for host in hosts if host.nid in wanted] or hosts

    def has_converged(self) -> bool:
        """Everybody has applied the whole log. Equal commit indexes alone are not enough: a fresh leader has not yet
        committed its first entry, and all of them may be low."""
        hosts = self.members()
        if not any(host.running.is_leader for host in hosts):
            return False
        summaries = {_summary(host.running)[2:] for host in hosts}
        return len(summaries) == 1 and hosts[0].running.applied_index == hosts[0].running.last_index

    def trace(self, *words: Any) -> None:
        if self._traces:
            self.trace_lines.append(f"{self.step:4} {' '.join(map(_render, words))}")


def _summary(engine: Engine) -> tuple[int, bool, int, int, int]:
    return engine.term, engine.is_leader, engine.commit_index, engine.applied_index, engine.last_index


def _render(value: object) -> str:
    """One word of a trace line; the same whatever the hashes are."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(_render, value))) + "}"
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields is not None:
        inside = ", ".join(f"{name}={_render(part)}" for name, part in zip(fields, value, strict=True))
        return f"{type(value).__name__}({inside})"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_render, value)) + ")"
    return str(value)
