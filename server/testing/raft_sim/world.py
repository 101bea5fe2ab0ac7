"""A deterministic Raft world: virtual time in steps of 0.1 s, faulty links, disks that crash, a nemesis, a checker.

One thread; every decision comes from random sources seeded by the run's seed, so a seed is a run. The world knows no
Raft implementation: one plugs in as a factory of `Engine`s that keep everything durable on their `Disk`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kraftlog.testing.raft_sim.checker import Checker, Violation
from kraftlog.testing.raft_sim.disk import Crash, Disk, DiskDamagedError
from kraftlog.testing.raft_sim.engine import Command, Engine, node_of, replica_name
from kraftlog.testing.raft_sim.modes import Event, Mode, schedule
from kraftlog.testing.raft_sim.network import Network

STEP_SECONDS = 0.1
SETTLE_STEPS = 100  # without anything applied anywhere, after which a healed cluster is stuck
SETTLE_STEPS_MAX = 400  # voters are changed one after the other, and the smallest bounds move few entries a step
REPAIR_STEPS = 5  # how often the operator looks for lost disks


@dataclass
class Host:
    nid: str
    disk: Disk = field(default_factory=Disk)
    directory: int = 0
    """How many disks it has lost."""
    damage: str | None = None
    """What bits have flipped in on the disk that it has."""
    engine: Engine | None = None
    rate: float = 1.0
    """Ticks of its clock per step."""
    owed_ticks: float = 0.0
    last_voters: frozenset[str] = frozenset()
    """Of its engine, when that died."""
    stalled_until: int = -1
    messages_left: int | None = None
    """It dies before it sends one more than these; None: it does not."""
    last_leader_term: int | None = None
    last_commit: int = -1
    last_applied: int = -1
    incarnation: int = 0
    last_traced: str = ""

    @property
    def replica(self) -> str:
        return replica_name(self.nid, self.directory)

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
        self.to_restore: set[str] = set()
        """Nodes that had a vote when they lost their disks."""
        self._later: list[Event] = []
        self._doom: int | None = None
        """How many messages the next leader sends, besides those that come with its election, before it dies."""
        self._traces = trace
        self.trace_lines: list[str] = []

    # --- for engines --------------------------------------------------------------------------------------------

    def send(self, src: str, dst: str, message: Any) -> bool:
        self.checker.stats["messages"] += 1
        host = self.hosts[src]
        if host.messages_left is not None:
            host.messages_left -= 1
            if host.messages_left < 0:
                host.messages_left, host.disk.is_dead = None, True
                raise Crash
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
            if self._traces:
                self.trace(f"{src} -> {dst}", host.engine.render(message))
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
            if self._traces:
                self._trace_state(host)
            elections = self.checker.stats["elections"]
            self.checker.check(host)
            if self.checker.stats["elections"] != elections:
                host.messages_left, self._doom = self._doom, None

    def boot(self, host: Host) -> None:
        host.incarnation += 1
        host.last_leader_term, host.last_commit, host.last_applied = None, -1, -1
        self.trace("boot", host.nid)
        try:
            host.engine = self._factory(self, host.nid, host.disk)
        except Crash:
            host.engine = None
        except DiskDamagedError as error:
            self.trace("refuses to start", host.nid, error)
            if host.damage is None:
                self.checker.fail("cannot-start", node=host.nid, error=repr(error))
            self._replace_disk(host)
            self.restart_at[host.nid] = self.step + self.random.randint(1, 20)
            return
        except Exception as error:
            self.checker.fail("cannot-start", node=host.nid, error=repr(error))
        if host.engine is None or host.disk.is_dead:
            self.kill(host)
            return
        if host.damage is not None:
            self.checker.note("starts-on-damage", node=host.nid, damage=host.damage)
        self.network.booted(host.nid, [peer for peer in self.pool if peer != host.nid and self.is_up(peer)])

    def kill(self, host: Host, restart_after: int | None = None) -> None:
        self.trace("crash", host.nid)
        self.checker.stats["crashes"] += 1
        if host.engine is not None:
            host.last_voters = self._voters_of(host)
        host.engine, host.messages_left = None, None
        host.disk.crash(is_lossy=self.mode.is_lossy, random=self.random, torn=self.mode.torn)
        self.restart_at.setdefault(host.nid, self.step + (restart_after or self.random.randint(1, 20)))
        self.network.killed(host.nid, [peer for peer in self.pool if peer != host.nid])

    # --- disks --------------------------------------------------------------------------------------------------

    def _voters_of(self, host: Host) -> frozenset[str]:
        """Whom this node takes for the voters. A node that has no log yet, and no genesis, knows none."""
        voters = host.last_voters if host.engine is None else host.engine.voters()
        return voters or frozenset(self.ids if host.replica in self.ids else ())

    def _is_gone(self, replica: str) -> bool:
        host = self.hosts[node_of(replica)]
        return host.replica != replica or host.damage is not None

    def can_lose(self, nid: str) -> bool:
        """Whether the quorum can bear it: by every node's idea of who votes, a majority keeps its disks."""
        replica = self.hosts[nid].replica
        for host in self.hosts.values():
            voters = self._voters_of(host)
            gone = sum(map(self._is_gone, voters))
            if replica in voters and gone + 1 > (len(voters) - 1) // 2:
                return False
        return self.hosts[nid].damage is None

    def _replace_disk(self, host: Host) -> None:
        """An operator gives the node an empty disk."""
        self.trace("gets an empty disk", host.nid)
        host.disk, host.directory, host.damage, host.last_voters = Disk(), host.directory + 1, None, frozenset()

    def _on_lost(self, host: Host) -> None:
        """What it had counts as had; and if it had a vote, the operator will give it one again."""
        self.checker.lost_logs[host.replica] = host.disk.log.durable
        if any(host.replica in self._voters_of(each) for each in self.hosts.values()):
            self.to_restore.add(host.nid)
        self.checker.stats["lost_disks"] += 1

    def _repair_quorum(self) -> None:
        """What an operator does about lost disks: the replica that is gone loses its vote, the new one gets it."""
        for host in self.running_hosts():
            if host.engine is None or not host.engine.is_leader or self.is_stalled(host.nid):
                continue
            voters = self._voters_of(host)
            gone = [replica for replica in sorted(voters) if self._is_gone(replica)]
            self.to_restore -= {nid for nid in self.to_restore if self.hosts[nid].replica in voters and not gone}
            missing = [nid for nid in sorted(self.to_restore) if self.hosts[nid].replica not in voters]
            if gone:
                self.guard(host, host.engine.change_voter, "remove", gone[0])
            elif missing:
                self.guard(host, host.engine.change_voter, "add", self.hosts[missing[0]].replica)

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

    def on_doom(self, messages: int) -> None:
        self._doom = messages

    def on_midcrash(self, nid: str, operations: int) -> None:
        if self.is_up(nid) and self.hosts[nid].disk.operations_left is None:
            self.hosts[nid].disk.operations_left = operations

    def on_all_crash(self, restart_after: int) -> None:
        for host in self.running_hosts():
            self.kill(host, restart_after)

    def on_lost_disk(self, nid: str, restart_after: int) -> None:
        host = self.hosts[nid]
        if self.can_lose(nid):
            if host.engine is not None:
                self.kill(host, restart_after)
            self._on_lost(host)
            self._replace_disk(host)

    def on_damage(self, nid: str, where: float, restart_after: int) -> None:
        host = self.hosts[nid]
        if self.can_lose(nid):
            if host.engine is not None:
                self.kill(host, restart_after)
            self._on_lost(host)
            host.damage = host.disk.flip_bits(where)
            self.trace("bits flip", nid, host.damage)
            if host.damage is None:
                self._replace_disk(host)

    def on_clock(self, nid: str, rate: float, duration: int) -> None:
        self.hosts[nid].rate = rate
        self._later.append((self.step + duration, "clock_again", nid))

    def on_clock_again(self, nid: str) -> None:
        self.hosts[nid].rate = 1.0

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
        """Not while a voter's disk is gone: to remove another one then can leave no majority at all."""
        if self.to_restore:
            return
        for host in self.running_hosts():
            if host.engine is not None and host.engine.is_leader and not self.is_stalled(host.nid):
                self.guard(host, host.engine.change_voter, operation, self.hosts[peer].replica)

    def on_forget(self, nid: str, peer: str) -> None:
        host = self.hosts[nid]
        if host.engine is not None:
            self.guard(host, host.engine.forget, peer)

    def on_read(self, nid: str, _: str) -> None:
        """Asked of this node, and of everybody who believes that it leads: one of them may be wrong."""
        for host in self.running_hosts():
            if (host.nid == nid or host.running.is_leader) and self._ready(host.nid) is not None:
                self._read(host)

    def _read(self, host: Host) -> None:
        known = self.checker.must_be_read()
        self.guard(host, host.running.read, lambda got: self.checker.on_read(host.nid, known, got))

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
        if self.to_restore and self.step % REPAIR_STEPS == 0:
            self._repair_quorum()
        self.network.run_step()
        hosts = self.running_hosts()
        self.random.shuffle(hosts)
        for host in hosts:
            if host.engine is not None and not self.is_stalled(host.nid):
                host.owed_ticks += host.rate
                while host.owed_ticks >= 1 and host.engine is not None:
                    host.owed_ticks -= 1
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
        self.mode = self.network.mode = replace(
            self.mode, drop=0, duplicate=0, delay=1, replay=0, sync_steps=min(self.mode.sync_steps, 1)
        )
        self.network.heal()
        self.network.slow.clear()
        self._later, self._doom = [], None
        for host in self.hosts.values():
            host.disk.operations_left = host.messages_left = None
            host.stalled_until = -1
            host.rate = 1.0
            if host.engine is None:
                self.restart_at.setdefault(host.nid, self.step + 1)
        settled, moved_at, applied = 0, 0, -1
        while settled - moved_at < SETTLE_STEPS and settled < SETTLE_STEPS_MAX:
            self.one_step()
            if settled > 20 and settled % 10 == 0 and self.has_converged():
                break
            now_applied = sum(host.running.applied_index for host in self.running_hosts())
            if now_applied > applied:
                applied, moved_at = now_applied, settled
            settled += 1
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
        return [host for host in hosts if host.replica in wanted] or hosts

    def has_converged(self) -> bool:
        """Everybody has applied the whole log. Equal commit indexes alone are not enough: a fresh leader has not yet
        committed its first entry, and all of them may be low."""
        hosts = self.members()
        if self.to_restore or not any(host.running.is_leader for host in hosts):
            return False
        summaries = {_summary(host.running)[2:] for host in hosts}
        return len(summaries) == 1 and hosts[0].running.applied_index == hosts[0].running.last_index

    def trace(self, *words: Any) -> None:
        if self._traces:
            self.trace_lines.append(f"{self.step:4} {' '.join(map(str, words))}")

    def _trace_state(self, host: Host) -> None:
        engine = host.running
        role = "leads" if engine.is_leader else "follows"
        state = f"{role} in term {engine.term}, log to {engine.last_index}, committed to {engine.commit_index}"
        if state != host.last_traced:
            host.last_traced = state
            self.trace("    ", host.replica, state)


def _summary(engine: Engine) -> tuple[int, bool, int, int, int]:
    return engine.term, engine.is_leader, engine.commit_index, engine.applied_index, engine.last_index
