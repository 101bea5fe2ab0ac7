"""kraftlog's core in the simulated world, with a driver that does its effects in the documented order.

The driver may take its time: on some seeds an fsync lasts up to three steps, in some modes longer, while messages and ticks go on reaching
the core, as they do in `server/quorum/driver.py`.
"""

import pickle
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from kraftlog.kraft.raft import (
    NO_DIRECTORY,
    NO_OFFSET,
    BusyError,
    Entry,
    EntryKind,
    HardState,
    Message,
    NotLeaderError,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    Snapshot,
    VoteRequest,
    VoteResponse,
    Voters,
)
from kraftlog.testing.raft_sim.disk import Disk, DiskDamagedError, LogItem
from kraftlog.testing.raft_sim.engine import Command, Engine, Outcome, State, node_of, replica_name

if TYPE_CHECKING:
    from kraftlog.testing.raft_sim.world import World

SNAPSHOT = "snapshot"
SLOW_SYNC_STEPS = 3  # on every third seed
FLUSHED_END_STEPS = 7  # how often the log store records how far it has synced


class Observe:
    """A node that knows no leader asks another one for the log, as the transport does by connecting. A voter does so too:
    it may have been removed without having heard of it."""

    def __str__(self) -> str:
        return "observe"


OBSERVE = Observe()


def key_of(replica: str) -> ReplicaKey:
    nid, _, directory = replica.partition("#")
    return ReplicaKey(int(nid[1:]), int(directory or 0).to_bytes(16, "big"))


def replica_of(key: ReplicaKey) -> str:
    return replica_name(nid_of(key), int.from_bytes(key.directory_id, "big"))


def nid_of(key: ReplicaKey) -> str:
    return f"n{key.node_id}"


class PlainControl:
    """Control entries without an encoding."""

    def leader_change(self, offset: int, term: int, leader: ReplicaKey, voters: Voters) -> bytes:
        return b"leader %d" % leader.node_id

    def voters(self, offset: int, term: int, voters: Voters) -> bytes:
        return b"voters"


def raft_config(seed: int) -> RaftConfig:
    """Every other seed has bounds so small that each of them is reached."""
    if seed % 2:
        return RaftConfig(election_ticks=7, heartbeat_ticks=1, fetch_ticks=10)
    return RaftConfig(
        election_ticks=7,
        heartbeat_ticks=1,
        fetch_ticks=10,
        max_append_bytes=6,
        max_inflight_bytes=20,
        max_apply_bytes=10,
        max_snapshot_chunk_bytes=64,
        max_uncommitted_bytes=200,
    )


def item_of(entry: Entry) -> LogItem:
    return LogItem(entry.last_offset, entry.term, entry)


class CoreEngine(Engine):
    core_class: type[RaftCore] = RaftCore
    syncs = True

    def __init__(self, world: "World", nid: str, disk: Disk) -> None:
        self.world, self.nid, self.disk = world, nid, disk
        self.replica = world.hosts[nid].replica
        self._check_disk()
        first_voters = frozenset(map(key_of, world.ids)) if self.replica in world.ids else frozenset()
        snapshot = disk.file(SNAPSHOT).current or Snapshot(NO_OFFSET, 0, first_voters, pickle.dumps([]))
        self._load_log(snapshot)
        self._random: Random = world.engine_random
        self.core = self.core_class(
            key_of(self.replica),
            config=raft_config(world.seed),
            random=self._random,
            control=PlainControl(),
            hard_state=HardState(disk.meta.current.get("term", 0), disk.meta.current.get("vote")),
            snapshot=snapshot,
            entries=[item.payload for item in disk.log.current[1:]],
        )
        self._slow_steps = SLOW_SYNC_STEPS if world.seed % 3 == 0 else 0
        self._in_flight: tuple[Ready, int] | None = None
        self._state: State = pickle.loads(snapshot.data)
        self._pending: dict[int, tuple[int, Callable[[Outcome], None]]] = {}
        self._wanted_changes: list[tuple[str, str, int]] = []
        self._ticks_without_leader = 0
        world.checker.on_state(nid, self._state)

    def _check_disk(self) -> None:
        damage = self.disk.find_damage()
        if damage is not None:
            raise DiskDamagedError(damage)

    def _load_log(self, snapshot: Snapshot) -> None:
        """The log on disk starts with a marker for its snapshot; they differ after a crash between the two writes."""
        log = self.disk.log.current
        if not log:
            self._reset_log(snapshot)
        elif log[0].offset < snapshot.last_offset:
            at = bisect_left(log, snapshot.last_offset, key=lambda item: item.offset)
            matches = at < len(log) and log[at].offset == snapshot.last_offset and log[at].term == snapshot.term
            self._reset_log(snapshot, log[at + 1 :] if matches else [])

    def _reset_log(self, snapshot: Snapshot, keep: list[LogItem] | None = None) -> None:
        self.disk.log_set([LogItem(snapshot.last_offset, snapshot.term, None), *(keep or [])])

    # --- the driver ---------------------------------------------------------------------------------------------

    def pump(self) -> None:
        while self._in_flight is None and self.core.has_ready():
            ready = self.core.ready()
            self._write(ready)
            slowest = self.world.mode.sync_steps or self._slow_steps
            lasts = self._random.randint(0, slowest) if slowest and ready.must_sync else 0
            if lasts:
                self._in_flight = (ready, self.world.step + lasts)
            else:
                self._complete(ready)

    def _write(self, ready: Ready) -> None:
        if ready.hard_state is not None:
            self.disk.meta_write(term=ready.hard_state.term, vote=ready.hard_state.vote)
            if self.syncs:
                self.disk.meta.sync()
        if ready.snapshot is not None:
            self.disk.file_write(SNAPSHOT, ready.snapshot)
            self.disk.file(SNAPSHOT).sync()
            self._reset_log(ready.snapshot)
        if ready.truncate_to is not None:
            if ready.truncate_to < self.disk.flushed_end:
                self.disk.record_flushed_end(ready.truncate_to)
            self.disk.log_cut(bisect_right(self.disk.log.current, ready.truncate_to, key=lambda item: item.offset))
        for entry in ready.entries:
            last = self.disk.log.current[-1]
            assert entry.base_offset == last.offset + 1, f"the log ends at {last.offset}, the driver got {entry}"
            self.world.checker.on_entry(self.nid, item_of(entry), last.term)
            self.disk.log_add(item_of(entry))
        for message in ready.early_messages:
            self.send(message)

    def _complete(self, ready: Ready) -> None:
        if self.syncs and ready.must_sync:
            self.disk.sync()
            if self.world.step % FLUSHED_END_STEPS == 0:
                self.disk.record_flushed_end(self.disk.log.durable[-1].offset)
        self._tell_campaigns(ready)
        for message in ready.messages:
            self.send(message)
        if ready.snapshot is not None:
            self._load_snapshot(ready.snapshot)
        for entry in ready.committed:
            self._apply(entry)
        for read in ready.reads:
            if read.offset is not None:
                assert callable(read.context)
                read.context(frozenset(command for _, command in self._state))
        self.core.advance(ready)

    def _tell_campaigns(self, ready: Ready) -> None:
        """Who is asked for votes is who had one when the campaign began; the voters may have changed since."""
        asked: dict[int, set[str]] = {}
        for message in ready.messages:
            if isinstance(message, VoteRequest) and not message.is_pre_vote and not message.is_forced:
                asked.setdefault(message.term, {self.replica}).add(replica_of(message.dst))
        for term, voters in asked.items():
            self.world.checker.on_campaign(self.replica, term, voters)

    def send(self, message: Message) -> None:
        match message:
            case VoteResponse(is_granted=True, is_pre_vote=False):
                self.world.checker.on_vote(self.replica, self.disk, message.term, replica_of(message.dst))
            case VoteResponse(is_granted=True):
                self.world.checker.on_pre_vote(self.replica, message.term, replica_of(message.dst))
            case VoteRequest(is_pre_vote=False):
                self.world.checker.on_vote(self.replica, self.disk, message.term, self.replica)
            case _:
                pass
        self.world.send(self.nid, nid_of(message.dst), message)

    def _load_snapshot(self, snapshot: Snapshot) -> None:
        self._state = pickle.loads(snapshot.data)
        self.world.checker.on_state(self.nid, self._state)
        for offset in [offset for offset in self._pending if offset <= snapshot.last_offset]:
            self._pending.pop(offset)[1]("unknown")

    def _apply(self, entry: Entry) -> None:
        if entry.kind is EntryKind.DATA:
            command = int(entry.data)
            self.world.checker.on_apply(self.nid, entry.last_offset, command)
            self._state.append((entry.last_offset, command))
        term, answer = self._pending.pop(entry.last_offset, (0, None))
        if answer is not None:
            answer("ok" if term == entry.term else "no")

    # --- inputs -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        if self._in_flight is not None and self.world.step >= self._in_flight[1]:
            ready = self._in_flight[0]
            self._in_flight = None
            self._complete(ready)
        self.core.tick()
        has_lost_its_vote = self.replica != self.nid  # nobody knows the new disk
        if self.core.leader is None and (self.world.mode.has_observers or has_lost_its_vote):
            self._look_for_leader()
        wanted, self._wanted_changes = self._wanted_changes, []
        for operation, peer, tries in wanted:
            self._change_voter(operation, peer, tries - 1)
        self.pump()

    def _look_for_leader(self) -> None:
        """One node after the other, in turns that are long enough for an answer."""
        self._ticks_without_leader += 1
        if self._ticks_without_leader % 5 == 1:
            others = [nid for nid in self.world.pool if nid != self.nid]
            self.world.send(self.nid, others[self._ticks_without_leader // 5 % len(others)], OBSERVE)

    def receive(self, src: str, message: Message | Observe) -> None:
        if isinstance(message, Observe):
            self.core.observe(self._key_now(src))
        else:
            self.core.step(message)
        self.pump()

    def on_disconnected(self, peer: str) -> None:
        self.forget(peer)

    def forget(self, peer: str) -> None:
        self.core.forget_observer(self._key_now(peer))
        self.pump()

    def _key_now(self, nid: str) -> ReplicaKey:
        """A connection tells which of its directories a node has."""
        return key_of(self.world.hosts[nid].replica)

    def propose(self, command: Command, answer: Callable[[Outcome], None]) -> None:
        try:
            entry = self.core.propose(b"%d" % command, 1 + command % 3)
        except (NotLeaderError, BusyError):
            answer("no")
            return
        self._pending[entry.last_offset] = (entry.term, answer)
        self.pump()

    def read(self, answer: Callable[[frozenset[Command]], None]) -> None:
        try:
            self.core.read_index(answer)
        except (NotLeaderError, BusyError):
            return
        self.pump()

    def compact(self) -> None:
        core = self.core
        if core.applied_offset <= core.log.snapshot.last_offset or self._in_flight is not None:
            return
        snapshot = core.compact(core.applied_offset, pickle.dumps(self._state))
        keep = [item for item in self.disk.log.current if item.offset > snapshot.last_offset]
        self.disk.file_write(SNAPSHOT, snapshot)
        self.disk.file(SNAPSHOT).sync()
        self._reset_log(snapshot, keep)
        self.disk.sync()

    def transfer(self, peer: str) -> None:
        self.core.transfer(key_of(peer))
        self.pump()

    def change_voter(self, operation: str, replica: str) -> None:
        self._change_voter(operation, replica, 25)
        self.pump()

    def _change_voter(self, operation: str, peer: str, tries: int) -> None:
        """Nobody shrinks the quorum below two but for a voter whose disk is gone."""
        if operation == "remove" and len(self.core.voters) <= 2 and node_of(peer) not in self.world.to_restore:
            return
        try:
            if operation == "add":
                entry = self.core.change_voter(add=key_of(peer))
            else:
                entry = self.core.change_voter(remove=key_of(peer))
        except NotLeaderError:
            return
        except BusyError:
            if tries > 0 and operation == "add":
                self._wanted_changes.append((operation, peer, tries))
            return
        if entry is not None:
            self.world.checker.stats["voter_changes"] += 1

    # --- what the world sees ------------------------------------------------------------------------------------

    @property
    def leader_hint(self) -> str | None:  # type: ignore[override] # read-only here
        return None if self.core.leader is None else nid_of(self.core.leader)

    @property
    def term(self) -> int:  # type: ignore[override]
        return self.core.term

    @property
    def is_leader(self) -> bool:  # type: ignore[override]
        return self.core.is_leader

    @property
    def commit_index(self) -> int:  # type: ignore[override]
        return self.core.commit_offset

    @property
    def applied_index(self) -> int:  # type: ignore[override]
        return self.core.applied_offset

    @property
    def first_index(self) -> int:  # type: ignore[override]
        return self.core.log.snapshot.last_offset + 1

    @property
    def last_index(self) -> int:  # type: ignore[override]
        return self.core.log.last_offset

    def entries(self, after: int, through: int) -> list[LogItem]:
        return [item_of(entry) for entry in self.core.log.between(after, through)]

    def render(self, message: Message | Observe) -> str:
        return str(message) if isinstance(message, Observe) else _render_message(message)

    def state(self) -> State:
        return self._state

    def voters(self) -> frozenset[str] | None:
        return frozenset(map(replica_of, self.core.voters)) or None


def _render_message(message: Message) -> str:
    """`AppendRequest term=2 prev_offset=3 prev_term=1 entries=[5/2] ...`; who sent it to whom says the line."""
    words = [type(message).__name__]
    if (message.src.directory_id, message.dst.directory_id) != (NO_DIRECTORY, NO_DIRECTORY):
        words.append(f"{replica_of(message.src)}->{replica_of(message.dst)}")
    words += [
        f"{name}={_render_value(value)}" for name, value in message._asdict().items() if name not in ("src", "dst")
    ]
    return " ".join(words)


def _render_value(value: object) -> str:
    match value:
        case Entry():
            mark = {EntryKind.LEADER_CHANGE: "L", EntryKind.VOTERS: "V"}.get(value.kind, "")
            return f"{value.last_offset}/{value.term}{mark}"
        case tuple():
            return "[" + " ".join(map(_render_value, value)) + "]"
        case frozenset():
            return "{" + " ".join(sorted(map(replica_of, value))) + "}"
        case bytes():
            return f"<{len(value)} bytes>"
        case _:
            return str(value)
