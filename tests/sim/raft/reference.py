"""Stock pysyncobj 0.3.17 in the simulated world: the reference engine that the checker must keep convicting.

Nothing of it is repaired here. The adapter replaces what touches the real world: clock, random source, sockets, and the
journal and dump files, which go to the simulated disk with FileJournal's habits (in place, never synced). The checker
reads name-mangled attributes.
"""

import logging
import types
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pysyncobj.serializer
import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.journal import Journal
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from kraftlog.testing.raft_sim.disk import Crash, Disk, LogItem
from kraftlog.testing.raft_sim.engine import Command, Engine, Outcome, State

if TYPE_CHECKING:
    from kraftlog.testing.raft_sim.world import World

CLOCK_READ_SECONDS = 0.0005  # a send loop in pysyncobj ends only because time passes while it runs

logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)


class _Here:
    """The world whose node is running. pysyncobj takes clock, files and random numbers from its modules."""

    world: "World"


class _Random:
    @staticmethod
    def random() -> float:
        return _Here.world.engine_random.random()


class _NoPoller:
    def poll(self, timeout: float) -> None: ...

    def subscribe(self, *arguments: Any) -> None: ...

    def unsubscribe(self, *arguments: Any) -> None: ...


def _clock() -> float:
    world = _Here.world
    world.drift += CLOCK_READ_SECONDS
    return world.now + world.drift


def _disk_of(path: str) -> tuple[Disk, str]:
    nid, name = path.split(":")
    return _Here.world.hosts[nid].disk, name


class _WrittenAtClose(BytesIO):
    def __init__(self, disk: Disk, name: str) -> None:
        super().__init__()
        self._target = (disk, name)

    def close(self) -> None:
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._target[0].file_write(self._target[1], content)


def _open(path: str, mode: str) -> BytesIO:
    disk, name = _disk_of(path)
    if "w" in mode:
        return _WrittenAtClose(disk, name)
    content = disk.file(name).current
    if content is None:
        raise FileNotFoundError(path)
    return BytesIO(content)


def _rename(source: str, target: str) -> None:
    disk, name = _disk_of(source)
    disk.file_write(_disk_of(target)[1], disk.file(name).current)


def _is_file(path: str) -> bool:
    disk, name = _disk_of(path)
    return disk.file(name).current is not None


class SimJournal(Journal):  # type: ignore[misc] # pysyncobj is not typed
    """FileJournal's semantics: entries go to the unsynced file at once and in place, compaction rewrites in place, the
    commit index is saved once a second, term and vote are written but not synced."""

    def __init__(self, disk: Disk, nid: str) -> None:
        self._disk, self._nid = disk, nid
        self._meta = dict(disk.meta.current)

    def add(self, command: Any, idx: int, term: int) -> None:
        log = self._disk.log.current
        item = LogItem(idx, term, bytes(command))
        _Here.world.checker.on_entry(self._nid, item, log[-1].term if log else None)
        self._disk.log_add(item)

    def clear(self) -> None:
        self._disk.log_cut(0)

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        self._disk.log_cut(entryFrom)

    def deleteEntriesTo(self, entryTo: int) -> None:
        keep = self._disk.log.current[entryTo:]
        self._disk.log_cut(0)
        for item in keep:
            self._disk.log_add(item)

    def __getitem__(self, index: Any) -> Any:
        found = self._disk.log.current[index]
        if isinstance(found, LogItem):
            return found.payload, found.offset, found.term
        return [(item.payload, item.offset, item.term) for item in found]

    def __len__(self) -> int:
        return len(self._disk.log.current)

    def _destroy(self) -> None: ...

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        self._meta["commit"] = raftCommitIndex

    def getRaftCommitIndex(self) -> int:
        return int(self._meta.get("commit", 1))

    def setCurrentTerm(self, term: int, votedForNodeId: Any) -> None:
        self._meta["term"], self._meta["vote"] = term, votedForNodeId
        self._disk.meta_write(**self._meta)

    def getCurrentTerm(self) -> int:
        return int(self._meta.get("term", 0))

    def getVotedForNodeId(self) -> Any:
        return self._meta.get("vote")

    def onOneSecondTimer(self) -> None:
        if self._meta != self._disk.meta.current:
            self._disk.meta_write(**self._meta)


class SimNode(Node):  # type: ignore[misc] # pysyncobj is not typed
    def __hash__(self) -> int:  # hashes of strings differ between processes
        return int(self._id[1:])


class SimTransport(Transport):  # type: ignore[misc] # pysyncobj is not typed
    def __init__(self, sync_obj: Any, self_node: Any, other_nodes: Any, world: "World", nid: str) -> None:
        super().__init__(sync_obj, self_node, other_nodes)
        self._world, self._nid = world, nid
        self._nodes = {node.id: node for node in other_nodes}
        self._connected: set[str] = set()

    def addNode(self, node: Any) -> None:
        self._nodes[node.id] = node
        if self._world.network.is_connected(self._nid, node.id):
            self.up(node.id)

    def dropNode(self, node: Any) -> None:
        self._nodes.pop(node.id, None)

    def up(self, peer: str) -> None:
        if peer in self._nodes:
            self._connected.add(peer)
            self._onNodeConnected(self._nodes[peer])

    def down(self, peer: str) -> None:
        if peer in self._connected:
            self._connected.discard(peer)
            self._onNodeDisconnected(self._nodes[peer])

    def send(self, node: Any, message: Any) -> bool:
        if self._world.hosts[self._nid].disk.is_dead:
            raise Crash
        return node.id in self._connected and self._world.send(self._nid, node.id, message)

    def receive(self, src: str, message: Any) -> None:
        if src in self._nodes:
            self._onMessageReceived(self._nodes[src], dict(message))

    def destroy(self) -> None: ...


class _Application(SyncObj):  # type: ignore[misc] # pysyncobj is not typed
    def __init__(self, engine: "ReferenceEngine", node: Any, others: Any, conf: Any, transport_class: Any) -> None:
        self._engine = engine
        super().__init__(node, others, conf, transportClass=transport_class)
        self.data: State = []

    @replicated  # type: ignore[untyped-decorator] # pysyncobj is not typed
    def put(self, command: Command, padding: str = "") -> None:
        index = self.raftLastApplied + 1
        self._engine.world.checker.on_apply(self._engine.nid, index, command)
        self.data.append((index, command))


def _install() -> None:
    syncobj: Any = pysyncobj.syncobj
    serializer: Any = pysyncobj.serializer
    syncobj.monotonicTime = _clock
    syncobj.random = _Random
    syncobj.createPoller = lambda kind: _NoPoller()
    syncobj.os = types.SimpleNamespace(path=types.SimpleNamespace(isfile=_is_file))
    syncobj.createJournal = lambda path: SimJournal(_disk_of(path)[0], path.split(":")[0])
    serializer.open = _open
    serializer.atomicReplace = _rename


_install()


class ReferenceEngine(Engine):
    conf: dict[str, Any] = {}  # noqa: RUF012 - overridden by scripted runs

    def __init__(self, world: "World", nid: str, disk: Disk) -> None:
        self.world, self.nid, self.disk = world, nid, disk
        _Here.world = world
        is_small = world.seed % 2 == 0
        conf: dict[str, Any] = {
            "autoTick": False,
            "raftMinTimeout": 0.31,
            "raftMaxTimeout": 0.8,
            "appendEntriesPeriod": 0.09,
            "connectionTimeout": 0.8,
            "leaderFallbackTimeout": 1.0,
            "journalFile": f"{nid}:log",
            "fullDumpFile": f"{nid}:dump",
            "useFork": False,
            "logCompactionMinEntries": 10**9,
            "logCompactionMinTime": 10**9,
            "commandsWaitLeader": False,
            "appendEntriesBatchSizeBytes": 130 if is_small else 2**16,
            "logCompactionBatchSize": 200 if is_small else 2**16,
            **self.conf,
        }
        others = [SimNode(i) for i in world.ids if i != nid]
        application: Any = _Application  # pysyncobj is not typed
        self.node: Any = application(
            self,
            SimNode(nid),
            others,
            SyncObjConf(**conf),
            lambda sync_obj, self_node, others: SimTransport(sync_obj, self_node, others, world, nid),
        )
        self._transport: SimTransport = self.node._SyncObj__transport
        self._state_id = id(self.node.data)

    def _watch(self) -> None:
        if id(self.node.data) != self._state_id:  # a dump was loaded
            self._state_id = id(self.node.data)
            self.world.checker.on_state(self.nid, self.node.data)

    def tick(self) -> None:
        self.node.doTick(0)
        self._watch()

    def receive(self, src: str, message: Any) -> None:
        self._transport.receive(src, message)
        self._watch()

    def on_connected(self, peer: str) -> None:
        self._transport.up(peer)

    def on_disconnected(self, peer: str) -> None:
        self._transport.down(peer)

    def propose(self, command: Command, answer: Callable[[Outcome], None]) -> None:
        refused = (
            FAIL_REASON.MISSING_LEADER,
            FAIL_REASON.NOT_LEADER,
            FAIL_REASON.DISCARDED,
            FAIL_REASON.REQUEST_DENIED,
            FAIL_REASON.QUEUE_FULL,
        )

        def done(_: Any, error: int) -> None:
            answer("ok" if error == FAIL_REASON.SUCCESS else "no" if error in refused else "unknown")

        self.node.put(command, "x" * 20, callback=done)

    def compact(self) -> None:
        self.node.forceLogCompaction()

    @property
    def term(self) -> int:  # type: ignore[override] # read-only here
        return int(self.node._SyncObj__raftCurrentTerm)

    @property
    def is_leader(self) -> bool:  # type: ignore[override]
        return bool(self.node._SyncObj__raftState == 2)

    @property
    def commit_index(self) -> int:  # type: ignore[override]
        commit = int(self.node._SyncObj__raftCommitIndex)
        return commit if commit > 1 else -1  # entry 1 is built in

    @property
    def applied_index(self) -> int:  # type: ignore[override]
        return int(self.node._SyncObj__raftLastApplied)

    @property
    def first_index(self) -> int:  # type: ignore[override]
        return self.disk.log.current[0].offset

    @property
    def last_index(self) -> int:  # type: ignore[override]
        return self.disk.log.current[-1].offset

    def entries(self, after: int, through: int) -> list[LogItem]:
        return [item for item in self.disk.log.current if after < item.offset <= through and item.term > 0]

    def state(self) -> State:
        state: State = self.node.data
        return state
