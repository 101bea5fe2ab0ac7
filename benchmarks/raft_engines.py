"""kraftlog's Raft core and pysyncobj's, each as a whole group in one process: the same commands over the same transport,
a queue in memory without loss.

What is proposed at once is gathered into record batches as the controller's operations are (`GatheringLog`). `as_bytes`:
what goes into the queue is what each of them puts on a network: our frames with the checks at the other end, pysyncobj's
pickles compressed by zlib. Otherwise messages are handed over as objects, and the figure is that of the bare cores. Nothing is written to a disk; every replica decodes and applies every command. pysyncobj runs
unchanged by its public interface, on a clock of ours, so that it never waits.
"""

import abc
import pickle
import zlib
from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from kraftlog.kraft.gathering import GatheringLog
from kraftlog.kraft.raft import (
    NO_OFFSET,
    Entry,
    EntryKind,
    HardState,
    Message,
    RaftConfig,
    RaftCore,
    ReplicaKey,
    Snapshot,
)
from kraftlog.kraft.records import ControlBatches
from kraftlog.kraft.wire import from_wire, to_wire
from kraftlog.proto.raft_frames import RAFT_FRAMES
from kraftlog.proto.records import decode_batch

NEVER = 10**9
TURNS_MAX = 100  # of an election; a group that needs more is stuck


class Group(abc.ABC):
    """Some voters, one of which leads when the constructor returns."""

    @property
    @abc.abstractmethod
    def applied(self) -> list[int]:
        """Commands that each replica has applied."""

    @abc.abstractmethod
    def commit(self, commands: Sequence[str]) -> None:
        """Propose all of them at once; on return the leader has answered each."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Until every replica has applied what is committed."""


class KraftlogGroup(Group):
    """The driver of each replica carries out the Ready in the documented order; only the disk is missing."""

    def __init__(self, voters: int, *, as_bytes: bool) -> None:
        keys = sorted(ReplicaKey(node_id) for node_id in range(voters))
        self._as_bytes = as_bytes
        self._states = {key: _State() for key in keys}
        self._bus: deque[tuple[ReplicaKey, ReplicaKey, Any]] = deque()
        self._answered = 0
        random = Random(1)
        self._cores = {
            key: RaftCore(
                key,
                config=RaftConfig(),
                random=random,
                control=ControlBatches(lambda: 0),
                hard_state=HardState(0, None),
                snapshot=Snapshot(NO_OFFSET, 0, frozenset(keys), b""),
            )
            for key in keys
        }
        self._leader = self._cores[keys[0]]
        self._leader.campaign()
        self._pump(self._leader)
        self.settle()
        assert self._leader.is_leader
        self._log = GatheringLog(self._leader)

    @property
    def applied(self) -> list[int]:
        return [state.count for state in self._states.values()]

    def commit(self, commands: Sequence[str]) -> None:
        self._answered = 0
        for command in commands:
            self._log.append([command.encode()], 0)
        self._log.close()
        self._pump(self._leader)
        while self._answered < len(commands):
            self._deliver()

    def settle(self) -> None:
        while self._bus:
            self._deliver()

    def _deliver(self) -> None:
        """All that is under way; then each receiver does what follows from it."""
        under_way, self._bus = self._bus, deque()
        for source, target, sent in under_way:
            if not self._as_bytes:
                self._cores[target].step(sent)
                continue
            for body in RAFT_FRAMES.decode(sent):
                message = from_wire(body, source, target)
                assert message is not None
                self._cores[target].step(message)
        for key in dict.fromkeys(target for _, target, _ in under_way):
            self._pump(self._cores[key])

    def _send(self, message: Message) -> None:
        sent = b"".join(RAFT_FRAMES.encode(to_wire(message))) if self._as_bytes else message
        self._bus.append((message.src, message.dst, sent))

    def _pump(self, core: RaftCore) -> None:
        while core.has_ready():
            ready = core.ready()
            for message in (*ready.early_messages, *ready.messages):
                self._send(message)
            for entry in ready.committed:
                if entry.kind is EntryKind.DATA:
                    self._apply(core, entry)
            core.advance(ready)

    def _apply(self, core: RaftCore, entry: Entry) -> None:
        put = self._states[core.key].put
        for record in decode_batch(entry.data):
            put((record.value or b"").decode())
        if core is self._leader:
            self._answered += entry.record_count


class _State:
    """What a replica's state machine is on both sides."""

    count = 0

    def put(self, command: str) -> None:
        self.count += 1


class _Clock:
    now = 0.0


class _NoPoller:
    def poll(self, timeout: float) -> None: ...

    def subscribe(self, *arguments: Any) -> None: ...

    def unsubscribe(self, *arguments: Any) -> None: ...


def _take_over_time() -> None:
    module: Any = pysyncobj.syncobj
    module.monotonicTime = lambda: _Clock.now
    module.createPoller = lambda kind: _NoPoller()
    module.PIPE_NOTIFIER_ENABLED = False  # it would wake the poller


_take_over_time()


class PysyncobjGroup(Group):
    def __init__(self, voters: int, *, as_bytes: bool, waits_for_batches: bool) -> None:
        """`waits_for_batches`: its option appendEntriesUseBatch, with which it sends once a period; without, each command
        goes out by itself and at once."""
        self._period = 0.1 if waits_for_batches else 0.0
        self._queue: deque[tuple[Any, Any, Any]] = deque()
        self._as_bytes = as_bytes
        self._answered = 0
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=waits_for_batches,
            logCompactionMinEntries=NEVER,
            logCompactionMinTime=NEVER,
        )
        self._buses: dict[Any, _Bus] = {}
        nodes = [Node(f"n{number}") for number in range(voters)]
        self._replicas: list[Any] = [self._replica(node, nodes, conf) for node in nodes]
        for bus in self._buses.values():
            bus.connect()
        self._leader, *self._followers = self._replicas
        _Clock.now += 10  # past every election timeout; the first one to notice leads
        for _ in range(TURNS_MAX):
            self._turn()
            if self._leader.isReady():
                return
        raise AssertionError("no leader")

    def _replica(self, own: Any, nodes: Sequence[Any], conf: Any) -> Any:
        def transport(replica: Any, node: Any, others: Any) -> "_Bus":
            self._buses[node] = _Bus(replica, node, others, self._queue, self._as_bytes)
            return self._buses[node]

        replica: Any = _Replica  # pysyncobj is not typed
        return replica(own, [node for node in nodes if node is not own], conf, transportClass=transport)

    @property
    def applied(self) -> list[int]:
        return [replica.applied for replica in self._replicas]

    def commit(self, commands: Sequence[str]) -> None:
        self._answered = 0
        for command in commands:
            self._leader.put(command, callback=self._count)
        while self._answered < len(commands):
            self._turn()

    def settle(self) -> None:
        while len(set(self.applied)) > 1:
            self._turn()

    def _count(self, result: Any, error: Any) -> None:
        assert error == FAIL_REASON.SUCCESS, error
        self._answered += 1

    def _turn(self) -> None:
        _Clock.now += 1.01 * self._period
        self._leader.doTick(0)
        self._deliver()
        for follower in self._followers:
            follower.doTick(0)
        self._deliver()

    def _deliver(self) -> None:
        while self._queue:
            source, target, sent = self._queue.popleft()
            message = pickle.loads(zlib.decompress(sent)) if self._as_bytes else sent
            self._buses[target].receive(source, message)


class _Bus(Transport):  # type: ignore[misc] # pysyncobj is not typed
    """Of one replica: what it sends goes to the queue of the group."""

    def __init__(self, replica: Any, own: Any, others: Any, queue: deque[tuple[Any, Any, Any]], as_bytes: bool) -> None:
        super().__init__(replica, own, others)
        self._own, self._others, self._queue, self._as_bytes = own, others, queue, as_bytes

    def send(self, node: Any, message: Any) -> bool:
        sent = zlib.compress(pickle.dumps(message), 3) if self._as_bytes else message  # as its TcpConnection does
        self._queue.append((self._own, node, sent))
        return True

    def connect(self) -> None:
        for node in self._others:
            self._onNodeConnected(node)

    def receive(self, source: Any, message: Any) -> None:
        self._onMessageReceived(source, message)


class _Replica(SyncObj):  # type: ignore[misc] # pysyncobj is not typed
    applied = 0

    @replicated  # type: ignore[untyped-decorator] # pysyncobj is not typed
    def put(self, command: str) -> None:
        self.applied += 1
