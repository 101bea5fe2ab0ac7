"""One simulated cluster: the loop, the links, the machines under the nemesis, and what all of them say.

A cluster of one node is alone, as a node that knows of no other; of several nodes each is a broker and a voter.
"""

import asyncio
import logging
import traceback
import zlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.server.node import Node
from kraftlog.testing.filesystem import SimulatedPowerLoss
from kraftlog.testing.loop import SimProcess, SimTask, VirtualLoop, current_process
from kraftlog.testing.network import LinkConfig, SimNetwork
from kraftlog.testing.randomness import SeedSource
from kraftlog.testing.sim.history import History
from kraftlog.testing.sim.machine import Counters, Machine, NodeFactory, Site
from kraftlog.testing.sim.node_checks import ClusterChecks
from kraftlog.testing.sim.trace import Trace
from kraftlog.testing.sim.wire import WireChecks

BROKER_PORT = 9092
CONTROLLER_PORT = 9093


class World:
    """See the module's docstring. Used from its own virtual loop."""

    def __init__(
        self,
        seeds: SeedSource,
        trace: Trace,
        *,
        node_config: Mapping[str, str],
        nodes: int = 1,
        node_factory: NodeFactory = Node,
        link_config: LinkConfig | None = None,
        is_user_topic: Callable[[str], bool],
        checks_node: bool = True,
        is_compacted: bool = False,
    ) -> None:
        """`is_compacted`: whether superseded records of the users' topics may vanish."""
        self._checks_node = checks_node
        self._is_user_topic = is_user_topic
        self.seeds = seeds
        self.trace = trace
        self.loop = VirtualLoop(after_event=self._after_event)
        self.loop.set_exception_handler(self._on_loop_error)
        self.history = History(is_compacted=is_compacted, is_replicated=nodes > 1)
        self.network = SimNetwork(self.loop, seeds.stream("network"), link_config)
        self.counters = Counters()
        self.checks = ClusterChecks(self.history, has_replicas=nodes > 1, is_user_topic=is_user_topic)
        self._dying: list[Machine] = []
        site = Site(
            self.loop,
            seeds,
            self.network,
            self.history,
            self.counters,
            self.checks,
            node_factory,
            self.note,
            self._dying,
        )
        numbers = range(1, nodes + 1)
        self.machines = [Machine(site, number, {**_listeners(number, nodes), **node_config}) for number in numbers]
        self.address = ",".join(f"node-{number}:{BROKER_PORT}" for number in numbers)
        """Of all brokers, as clients are told."""
        self.network.on_event = self.note
        self.network.taps.append(self._trace_message)
        self.network.taps.append(WireChecks(self.history, self.machines, is_user_topic))
        self.is_over = False

    # --- the nodes

    @property
    def machine(self) -> Machine:
        """The only one, or the first of several."""
        return self.machines[0]

    def format(self) -> None:
        """Lay out empty log directories, durably."""
        if len(self.machines) == 1:
            return self.machine.format_alone()
        voters = {machine.key: Endpoint(machine.host, CONTROLLER_PORT) for machine in self.machines}
        for machine in self.machines:
            machine.format(voters)

    def start(self) -> None:
        """Start the nodes that do not run."""
        for machine in self.machines:
            machine.start()

    def leaders(self) -> list[Machine]:
        """The nodes that lead the partitions of the users' topics, as far as they know, in the order of partitions."""
        found = {
            where: machine
            for machine in self.machines
            if machine.node is not None
            for where, partition in machine.node.partitions.items()
            if partition.is_leader and self._is_user_topic(where[0])
        }
        return [machine for _, machine in sorted(found.items(), key=lambda item: item[0])]

    def out_of_sync(self) -> str:
        """What is wanting until every replica of what users and groups keep is in sync; empty: nothing."""
        for machine in self.machines:
            if not machine.is_up or machine.node is None:
                return f"{machine.host} is not up"
        wanted = {machine.number for machine in self.machines}
        for where in sorted({where for machine in self.machines for where in _partitions(machine)}):
            replicas = [(machine, _partitions(machine).get(where)) for machine in self.machines]
            leader = max(
                (each for _, each in replicas if each is not None and each.is_leader),
                key=lambda each: each.leader_epoch,
                default=None,
            )
            if leader is None:
                return f"{where} has no leader"
            if leader.in_sync_replicas != wanted and self._keeps(where[0]):
                return f"{where} has the in-sync replicas {sorted(leader.in_sync_replicas)}"
        return ""

    def _keeps(self, topic: str) -> bool:
        return topic == CONSUMER_OFFSETS_TOPIC or self._is_user_topic(topic)

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
        self.trace.add(f"{self.loop.now:.6f} {line}")

    def on_log(self, record: logging.LogRecord) -> None:
        """A component logged something. ERROR and above from a living process is a violation."""
        if self.is_over:
            return
        process = current_process()
        name = process.name if process is not None else "-"
        line = f"{self.loop.now:.6f} log {name} {record.levelname} {record.name}: {record.getMessage()}"
        self.trace.comment(line)
        if record.exc_info:
            self.trace.comment("".join(traceback.format_exception(*record.exc_info)))
        is_dying = process is not None and (not process.is_alive or self._has_lost_power(process))
        if record.levelno >= logging.ERROR and not is_dying:
            self.history.violate("LOG", f"{record.name}: {record.getMessage()}")

    def _trace_message(
        self, source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int
    ) -> None:
        arrow = "->" if is_request else "<-"
        name = method[method.rfind("/") + 1 :]
        self.note(f"{source} {arrow} {target} {name} #{call_id} {len(message)} {zlib.crc32(message):08x}")

    def _has_lost_power(self, process: SimProcess) -> bool:
        return any(machine.is_power_lost and machine.process is process for machine in self.machines)

    def _after_event(self) -> None:
        if self._dying:
            for machine in self._dying:
                machine.finish_power_loss()
            self._dying.clear()
        ran = self.loop.ran
        if ran is not None and ran.check is not None and ran.is_alive and self._checks_node:
            ran.check()
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
        for machine in self.machines:
            machine.end()
        self.loop.after_event = None
        self.loop.abandon_all()
        self.loop.close()


def _partitions(machine: Machine) -> Mapping[TopicPartition, Partition]:
    return {} if machine.node is None else machine.node.partitions


def _listeners(number: int, nodes: int) -> dict[str, str]:
    """Where a node listens, and where it finds the others."""
    broker = f"PLAINTEXT://node-{number}:{BROKER_PORT}"
    if nodes == 1:
        return {"listeners": broker}
    others = ",".join(f"node-{other}:{CONTROLLER_PORT}" for other in range(1, nodes + 1))
    return {
        "listeners": f"{broker},CONTROLLER://node-{number}:{CONTROLLER_PORT}",
        "controller.listener.names": "CONTROLLER",
        "broker.rack": f"rack-{number}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": others,
    }
