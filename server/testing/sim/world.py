"""One simulated cluster: the loop, the disk, the links, and the life of the node under the nemesis.

The node is a `SimProcess` on a host of its own. It dies by power loss (what was not synced is lost or torn), by kill (the
page cache lives), or stops in order; the world starts it again. Planted bugs come in through `NodeFactory`.
"""

import asyncio
import logging
import traceback
import zlib
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kraftlog.logstore import format_log_dir
from kraftlog.proto.seams import BlockingExecutor, Clock, Network, Random
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.replication.partition import Partition
from kraftlog.server.config import NodeConfig
from kraftlog.server.node import Node
from kraftlog.testing.clock import SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from kraftlog.testing.loop import SimProcess, SimTask, VirtualLoop, current_process
from kraftlog.testing.network import LinkConfig, SimNetwork
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.durable import DurableLogs, DurableOffsets
from kraftlog.testing.sim.history import History, TopicPartition
from kraftlog.testing.sim.node_checks import NodeChecks
from kraftlog.testing.sim.trace import Trace
from kraftlog.testing.sim.wire import WireChecks

LOG_DIR = "/data"
NODE_HOST = "node-1"
NODE_ADDRESS = "node-1:9092"
CLUSTER_ID = "simulated-cluster"
DIRECTORY_ID = b"simulated disk 1"


class RunningNode(Protocol):
    """The part of `kraftlog.server.node.Node` that the world drives."""

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
    """What happened to the node."""

    power_losses: int = 0
    kills: int = 0
    stops: int = 0
    starts: int = 0
    torn_operations: int = 0


@dataclass(slots=True)
class _Life:
    """One life of the node's process."""

    process: SimProcess
    node: RunningNode
    starting: SimTask[None]
    checks: NodeChecks
    executor: SimExecutor
    is_stopping: bool = False


class World:
    """See the module's docstring. Used from its own virtual loop."""

    def __init__(
        self,
        seeds: SeedSource,
        trace: Trace,
        *,
        node_config: Mapping[str, str],
        node_factory: NodeFactory = Node,
        link_config: LinkConfig | None = None,
        is_user_topic: Callable[[str], bool],
        checks_node: bool = True,
        is_compacted: bool = False,
    ) -> None:
        """`is_compacted`: whether superseded records of the users' topics may vanish."""
        self._checks_node = checks_node
        self.seeds = seeds
        self.trace = trace
        self.loop = VirtualLoop(after_event=self._after_event)
        self.loop.set_exception_handler(self._on_loop_error)
        self.history = History(is_compacted=is_compacted)
        self.fs = SimFileSystem(on_power_loss=self._on_power_loss)
        self.durable = DurableLogs(self.fs, LOG_DIR)
        self.durable_offsets = DurableOffsets(self.fs, LOG_DIR)
        self.network = SimNetwork(self.loop, seeds.stream("network"), link_config)
        self.network.on_event = self.note
        self.network.taps.append(self._trace_message)
        self.network.taps.append(WireChecks(self.history, self.durable, self.durable_offsets, is_user_topic))
        self.clock = SimClock(self.loop)
        self.fs.wall_ms = self.clock.wall_ms
        self.counters = Counters()
        self.address = NODE_ADDRESS
        self._node_config = dict(node_config)
        self._node_factory = node_factory
        self._disk_random = seeds.stream("disk")
        self._life: _Life | None = None
        self._graves: list[SimProcess] = []
        self._power_is_lost = False
        self._down_ms = 0.0
        self._again_after = 0
        self._disk_slowness = 1.0
        self.is_over = False

    # --- the node

    def format(self) -> None:
        """Lay out an empty log directory, durably."""
        self.fs.mkdir(LOG_DIR)
        self.fs.fsync_dir("/")
        format_log_dir(LOG_DIR, self.fs, cluster_id=CLUSTER_ID, node_id=1, directory_id=uuid_to_text(DIRECTORY_ID))

    @property
    def node(self) -> RunningNode | None:
        """The node, while its process lives."""
        return self._life.node if self._life is not None else None

    @property
    def is_up(self) -> bool:
        """Whether the node has started and is not stopping."""
        life = self._life
        return life is not None and life.starting.done() and not life.is_stopping

    def start_node(self) -> None:
        """Begin a new life of the node; nothing to do if one is running."""
        if self._life is not None:
            return
        self.counters.starts += 1
        if self._again_after:
            self.fs.stop_after(self._again_after)
            self._again_after = 0
        name = f"{NODE_HOST}#{self.counters.starts}"
        self.note(f"start {name}")
        process = SimProcess(name)
        pairs = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{NODE_ADDRESS}",
            "log.dirs": LOG_DIR,
            "num.recovery.threads.per.data.dir": "1",  # real threads would run in an order of their own
            **self._node_config,
        }
        executor = SimExecutor(self.loop, self.seeds.stream(f"{name}/executor"), slowness=self._disk_slowness)
        node = self._node_factory(
            NodeConfig.from_properties(pairs),
            clock=self.clock,
            random=self.seeds.stream(name),
            fs=self.fs,
            network=self.network.host(NODE_HOST),
            executor=executor,
        )
        starting = self.loop.spawn(process, node.start(), name=f"start {name}")
        self._life = _Life(process, node, starting, NodeChecks(self.history), executor)
        starting.add_done_callback(self._on_started)

    def _on_started(self, starting: "asyncio.Task[None]") -> None:
        life = self._life
        if life is None or life.starting is not starting or starting.cancelled():
            return
        error = starting.exception()
        if error is None:
            self.note(f"ready {life.process.name}")
            self.loop.spawn(life.process, life.node.wait_failed()).add_done_callback(self._on_failed)
        elif not isinstance(error, SimulatedPowerLoss):
            self.history.violate("START", f"{life.process.name} did not start: {type(error).__name__}: {error}")

    def _on_failed(self, waiting: "asyncio.Task[Exception]") -> None:
        if not waiting.cancelled():
            error = waiting.result()
            self.history.violate("NODE", f"the node gave up: {type(error).__name__}: {error}")

    def lose_power(self, down_ms: float, *, again_after: int = 0) -> None:
        """The node's machine dies now and comes back after `down_ms`.

        `again_after`: it dies again at that disk operation of its next start; 0: it does not.
        """
        if self._life is None:
            return
        self._again_after = again_after
        self.counters.power_losses += 1
        self.note("power loss")
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

    def slow_disk(self, factor: float) -> None:
        """From here on all blocking work takes `factor` times as long as usual."""
        self.note(f"disk slowness {factor:g}")
        self._disk_slowness = factor
        if self._life is not None:
            self._life.executor.slowness = factor

    def kill_node(self, down_ms: float) -> None:
        """kill -9: what was written is kept by the operating system."""
        if self._life is None:
            return
        self.counters.kills += 1
        self.note("kill")
        self._die()
        self.fs.kill()
        self._restart_later(down_ms)

    async def stop_node(self, down_ms: float) -> None:
        """An orderly stop; a crash on the way is possible."""
        life = self._life
        if life is None or not self.is_up or life.starting.exception() is not None:
            return
        self.counters.stops += 1
        self.note("stop")
        life.is_stopping = True
        stopping = self.loop.spawn(life.process, life.node.stop(), name=f"stop {life.process.name}")
        await asyncio.wait([stopping], timeout=120)
        if self._life is not life:
            return
        if not stopping.done():
            self.history.violate("STOP", f"{life.process.name} did not stop within 120 s")
            return
        error = stopping.exception()
        if error is not None:
            self.history.violate("STOP", f"{life.process.name} did not stop in order: {type(error).__name__}: {error}")
        self.note("stopped")
        self._die()
        self.fs.kill()
        self._restart_later(down_ms)

    def _die(self) -> None:
        life = self._life
        assert life is not None
        self._life = None
        self._power_is_lost = False
        self.fs.stop_after(None)
        self.loop.kill(life.process)
        self.network.crash(NODE_HOST)
        self._graves.append(life.process)

    def _restart_later(self, down_ms: float) -> None:
        self.loop.call_later(down_ms / 1000, self.start_node)

    def _on_power_loss(self) -> None:
        self._power_is_lost = True

    # --- clients

    def spawn_client(self, process: SimProcess, work: Coroutine[Any, Any, None], *, name: str) -> SimTask[None]:
        """Run a client's task in its process; an exception that leaves it is a violation."""
        task = self.loop.spawn(process, work, name=name)
        task.add_done_callback(self._on_client_done)
        return task

    def _on_client_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self.history.violate("CLIENT", f"{task.get_name()} failed: {type(error).__name__}: {error}")

    # --- observation

    def note(self, line: str) -> None:
        """Add a line to the trace, with the virtual time."""
        self.trace.add(f"{self.loop.time():.6f} {line}")

    def on_log(self, record: logging.LogRecord) -> None:
        """A component logged something. ERROR and above from a living process is a violation."""
        if self.is_over:
            return
        process = current_process()
        name = process.name if process is not None else "-"
        line = f"{self.loop.time():.6f} log {name} {record.levelname} {record.name}: {record.getMessage()}"
        self.trace.comment(line)
        if record.exc_info:
            self.trace.comment("".join(traceback.format_exception(*record.exc_info)))
        is_dying = self._power_is_lost or (process is not None and not process.is_alive)
        if record.levelno >= logging.ERROR and not is_dying:
            self.history.violate("LOG", f"{record.name}: {record.getMessage()}")

    def _trace_message(
        self, source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int
    ) -> None:
        arrow = "->" if is_request else "<-"
        name = method.rpartition("/")[2]
        self.note(f"{source} {arrow} {target} {name} #{call_id} {len(message)} {zlib.crc32(message):08x}")

    def _after_event(self) -> None:
        if self._power_is_lost:
            self.counters.torn_operations += 1
            self.lose_power(self._down_ms)
        elif self._checks_node and self._life is not None:
            self._life.checks.check(self._life.node.partitions)
        if self.history.violation is not None:
            raise self.history.violation

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback or an unobserved task failed. In a living process that is a bug of the program under test."""
        if self.is_over:
            return
        error = context.get("exception")
        source = context.get("task") or context.get("future")
        process = getattr(source, "process", None)
        if isinstance(error, SimulatedPowerLoss) or (process is not None and not process.is_alive):
            return
        if error is not None:
            self.trace.comment("".join(traceback.format_exception(error)))
        self.history.violate("ERROR", f"{context.get('message')}: {type(error).__name__}: {error}")

    # --- the end

    def end(self) -> None:
        """Let go of everything, wherever it stands; what `finally` blocks do here says nothing any more."""
        self.is_over = True
        if self._life is not None:
            self._die()
        self.fs.kill()
        for process in self._graves:
            process.bury()
        self._graves.clear()
        self.loop.after_event = None
        self.loop.abandon_all()
        self.loop.close()
