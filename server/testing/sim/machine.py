"""One machine of a simulated cluster: its disk, its clock, and the lives of the node that runs on it.

A life is a `SimProcess`. It ends by power loss (what was not synced is lost or torn), by kill (the page cache lives), by an
orderly stop, or with its disk, of which nothing is left; the machine starts the node again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kraftlog.kraft.raft import ReplicaKey
from kraftlog.logstore import format_log_dir
from kraftlog.proto.seams import BlockingExecutor, Clock, Network, Random
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.replication.partition import Partition
from kraftlog.server.config import NodeConfig
from kraftlog.server.storage import Voters, format_node_directory
from kraftlog.testing.clock import EPOCH_MS, SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from kraftlog.testing.loop import START_SECONDS, SimProcess, SimTask, VirtualLoop
from kraftlog.testing.network import SimNetwork
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.durable import CachedLogs, DurableLogs, DurableOffsets
from kraftlog.testing.sim.history import History, TopicPartition
from kraftlog.testing.sim.node_checks import ClusterChecks, NodeChecks

LOG_DIR = "/data"
CLUSTER_ID = "simulated-cluster"
STOP_TIMEOUT_S = 120.0  # virtual


class RunningNode(Protocol):
    """The part of `kraftlog.server.node.Node` that a machine drives."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait_failed(self) -> Exception: ...

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The partitions of the node; empty before it has loaded them."""
        ...


class NodeFactory(Protocol):
    """Makes a node from its seams; the default is `Node` itself."""

    def __call__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        random: Random,
        fs: SimFileSystem,
        network: Network,
        executor: BlockingExecutor,
    ) -> RunningNode: ...


@dataclass(slots=True)
class Counters:
    """What happened to the nodes of a cluster."""

    power_losses: int = 0
    kills: int = 0
    stops: int = 0
    starts: int = 0
    torn_operations: int = 0
    disk_losses: int = 0
    clock_rates: int = 0
    """How often a clock began to run slow or fast."""
    drift_ms: float = 0.0
    """How far clocks have come from the true time by that."""


@dataclass(frozen=True, slots=True)
class Site:
    """What the machines of one cluster share."""

    loop: VirtualLoop
    seeds: SeedSource
    network: SimNetwork
    history: History
    counters: Counters
    checks: ClusterChecks
    node_factory: NodeFactory
    note: Callable[[str], None]
    dying: "list[Machine]"
    """Whose power went in the midst of the operation that is on the stack."""


@dataclass(slots=True)
class _Life:
    """One life of the node's process."""

    process: SimProcess
    node: RunningNode
    starting: SimTask[None]
    executor: SimExecutor
    checks: NodeChecks
    ended: asyncio.Future[None]
    """Done when the process is dead."""
    is_stopping: bool = False


class Machine:
    """See the module's docstring. Used from the loop of its world."""

    def __init__(self, site: Site, number: int, config: Mapping[str, str]) -> None:
        """`config`: of the node, but for what the machine adds to it."""
        self.site = site
        self.number = number
        self.host = f"node-{number}"
        self.clock = SimClock(site.loop)
        self.is_whole = True
        """Whether it has, since it lost its disk, everything again that the cluster may rely on."""
        self.is_power_lost = False
        """The power went in the midst of an operation that is still on the stack."""
        self._config = dict(config)
        self._disk_random = site.seeds.stream("disk" if number == 1 else f"disk {number}")
        self._disk_count = 0
        self._new_disk()
        self._life: _Life | None = None
        self._lives = 0
        self._graves: list[SimProcess] = []
        self._down_ms = 0.0
        self._again_after = 0
        self._disk_slowness = 1.0

    def _new_disk(self) -> None:
        self._disk_count += 1
        self.fs = SimFileSystem(on_power_loss=self._on_power_loss)
        self.fs.wall_ms = self.clock.wall_ms
        self.durable = DurableLogs(self.fs, LOG_DIR)
        self.durable_offsets = DurableOffsets(self.fs, LOG_DIR)
        self.directory_id = f"disk {self._disk_count:4d} of {self.number:3d}".encode()

    # --- who it is

    @property
    def key(self) -> ReplicaKey:
        """Of the node as a voter, with the disk that it has."""
        return ReplicaKey(self.number, self.directory_id)

    @property
    def node(self) -> RunningNode | None:
        """The node, while its process lives."""
        return self._life.node if self._life is not None else None

    @property
    def process(self) -> SimProcess | None:
        """The node's process, while it lives."""
        return self._life.process if self._life is not None else None

    @property
    def is_up(self) -> bool:
        """Whether the node has started and is not stopping."""
        life = self._life
        return life is not None and life.starting.done() and not life.is_stopping

    # --- lives

    def format_alone(self) -> None:
        """Lay out an empty log directory of a cluster of one node, durably."""
        self.fs.mkdir(LOG_DIR)
        self.fs.fsync_dir("/")
        directory_id = uuid_to_text(self.directory_id)
        format_log_dir(LOG_DIR, self.fs, cluster_id=CLUSTER_ID, node_id=self.number, directory_id=directory_id)

    def format(self, voters: Voters) -> None:
        """Lay out an empty log directory of one node of several, durably. No voters: it joins those that there are."""
        format_node_directory(
            LOG_DIR,
            self.fs,
            cluster_id=CLUSTER_ID,
            node_id=self.number,
            directory_id=uuid_to_text(self.directory_id),
            voters=voters,
            timestamp_ms=1,
        )
        self.fs.fsync_dir("/")

    def start(self) -> None:
        """Begin a new life of the node; nothing to do if one is running."""
        if self._life is not None:
            return
        site = self.site
        site.counters.starts += 1
        self._lives += 1
        if self._again_after:
            self.fs.stop_after(self._again_after)
            self._again_after = 0
        name = f"{self.host}#{self._lives}"
        site.note(f"start {name}")
        process = SimProcess(name)
        process.timeline = self.clock.timeline
        pairs = {
            "node.id": str(self.number),
            "process.roles": "broker,controller",
            "log.dirs": LOG_DIR,
            "num.recovery.threads.per.data.dir": "1",  # real threads would run in an order of their own
            **self._config,
        }
        executor = SimExecutor(site.loop, site.seeds.stream(f"{name}/executor"), slowness=self._disk_slowness)
        node = site.node_factory(
            NodeConfig.from_properties(pairs),
            clock=self.clock,
            random=site.seeds.stream(name),
            fs=self.fs,
            network=site.network.host(self.host),
            executor=executor,
        )
        starting = site.loop.spawn(process, node.start(), name=f"start {name}")
        logs = CachedLogs(self.fs, LOG_DIR)
        checks = NodeChecks(site.history, site.checks, node_id=self.number, logs=logs, wall_ms=self._latest_wall_ms)
        process.check = lambda: checks.check(node.partitions)
        self._life = _Life(process, node, starting, executor, checks, site.loop.create_future())
        starting.add_done_callback(self._on_started)

    def _latest_wall_ms(self) -> int:
        """By which the node may judge an age: its clock may have been ahead when it looked, and behind when it stamped."""
        behind_ms, ahead_ms = self.clock.wall_bounds_ms()
        return round(EPOCH_MS + 1000 * (self.site.loop.now - START_SECONDS) + ahead_ms - behind_ms)

    def _on_started(self, starting: "asyncio.Task[None]") -> None:
        life, site = self._life, self.site
        if life is None or life.starting is not starting or starting.cancelled():
            return
        error = starting.exception()
        if error is None:
            site.note(f"ready {life.process.name}")
            life.process.check = partial(
                life.checks.check, life.node.partitions
            )  # they are the same object from here on
            site.loop.spawn(life.process, life.node.wait_failed()).add_done_callback(self._on_failed)
        elif not isinstance(error, SimulatedPowerLoss):
            site.history.violate("START", f"{life.process.name} did not start: {type(error).__name__}: {error}")

    def _on_failed(self, waiting: "asyncio.Task[Exception]") -> None:
        if not waiting.cancelled():
            error = waiting.result()
            self.site.history.violate("NODE", f"{self.host} gave up: {type(error).__name__}: {error}")

    # --- faults

    def lose_power(self, down_ms: float, *, again_after: int = 0) -> None:
        """The machine dies now and comes back after `down_ms`.

        `again_after`: it dies again at that disk operation of its next start; 0: it does not.
        """
        if self._life is None:
            return
        self._again_after = again_after
        self.site.counters.power_losses += 1
        self.site.note(f"power loss {self.host}")
        self._die()
        self.fs.crash(self._disk_random)
        self.durable.forget()
        self.durable_offsets.forget()
        self._restart_later(down_ms)

    def lose_power_in_operation(self, operations: int, down_ms: float) -> None:
        """Lose power at the disk operation after `operations` more."""
        if self._life is not None:
            self._down_ms = down_ms
            self.fs.stop_after(operations)

    def finish_power_loss(self) -> None:
        """The operation in which the power went is off the stack: what is left of the process dies."""
        self.site.counters.torn_operations += 1
        self.lose_power(self._down_ms)

    def lose_disk(self, down_ms: float) -> None:
        """The machine dies, and comes back with an empty disk, which nobody knows yet."""
        self.site.counters.disk_losses += 1
        self.site.note(f"disk loss {self.host}")
        if self._life is not None:
            self._die()
            self._restart_later(down_ms)
        self.is_whole = False
        self._new_disk()
        self.format({})

    def set_clock_rate(self, rate: float) -> None:
        """From here on the machine's clock runs at `rate`, and with it all timers of the node."""
        site, timeline = self.site, self.clock.timeline
        site.note(f"clock rate {self.host} {rate:g}")
        if timeline is None and rate == 1:
            return
        if timeline is not None:
            site.counters.drift_ms += timeline.drift_ms
        site.counters.clock_rates += rate != 1
        self.clock.run_at(rate)
        if self._life is not None:
            self._life.process.timeline = self.clock.timeline

    def slow_disk(self, factor: float) -> None:
        """From here on all blocking work takes `factor` times as long as usual."""
        self.site.note(f"disk slowness {self.host} {factor:g}")
        self._disk_slowness = factor
        if self._life is not None:
            self._life.executor.slowness = factor

    def kill(self, down_ms: float) -> None:
        """kill -9: what was written is kept by the operating system."""
        if self._life is None:
            return
        self.site.counters.kills += 1
        self.site.note(f"kill {self.host}")
        self._die()
        self.fs.kill()
        self._restart_later(down_ms)

    async def stop(self, down_ms: float) -> None:
        """An orderly stop; a crash on the way is possible."""
        life, site = self._life, self.site
        if life is None or not self.is_up or life.starting.exception() is not None:
            return
        site.counters.stops += 1
        site.note(f"stop {self.host}")
        life.is_stopping = True
        stopping = site.loop.spawn(life.process, life.node.stop(), name=f"stop {life.process.name}")
        await asyncio.wait([stopping, life.ended], timeout=STOP_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._life is not life:
            return
        if not stopping.done():
            site.history.violate("STOP", f"{life.process.name} did not stop within {STOP_TIMEOUT_S:.0f} s")
            return
        error = stopping.exception()
        if error is not None:
            site.history.violate("STOP", f"{life.process.name} did not stop in order: {type(error).__name__}: {error}")
        site.note(f"stopped {self.host}")
        self._die()
        self.fs.kill()
        self._restart_later(down_ms)

    def _die(self) -> None:
        life = self._life
        assert life is not None
        self._life = None
        if not life.ended.done():
            life.ended.set_result(None)
        self.is_power_lost = False
        self.fs.stop_after(None)
        self.site.loop.kill(life.process)
        self.site.network.crash(self.host)
        self._graves.append(life.process)

    def _restart_later(self, down_ms: float) -> None:
        self.site.loop.call_later(down_ms / 1000, self.start)

    def _on_power_loss(self) -> None:
        if not self.is_power_lost:
            self.is_power_lost = True
            self.site.dying.append(self)

    def end(self) -> None:
        """Let go of everything, wherever it stands."""
        if self._life is not None:
            self._die()
        self.fs.kill()
        for process in self._graves:
            process.bury()
        self._graves.clear()
