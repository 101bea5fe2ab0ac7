"""A world for the group coordinator: two coordinators over one log, model consumers, faults, and what must hold.

Each node sees the log through a `LogView`. The one that leads appends to it; the other may still believe that it leads
(a zombie): its appends land in a tail of its own that never commits, as on a leader that was fenced. Consumers are
small models of a client; they ask whichever node they know, and look for the other when they are refused.

What is checked, while it runs and at its end:
- within one generation a partition has one owner, whoever answers SyncGroup (a static member is its instance id);
- in the log, offsets of a partition go back only when a later generation, or an operator while the group is empty,
  commits so (I-10);
- an acknowledged commit is in the log, and a fetch never answers anything older than what was seen or acknowledged;
- every request is answered exactly once;
- the state rebuilt from the log equals the kept one (I-14);
- after the faults end, everybody is in one stable generation and every partition has an owner.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import ErrorCode, NotEnoughReplicasError, NotLeaderOrFollowerError
from kraftlog.proto.seams import CallContext
from kraftlog.server.coordinator import GroupConfig, GroupCoordinator
from kraftlog.server.coordinator.effects import GroupState
from kraftlog.server.coordinator.records import OffsetCommitKey, decode_key, decode_offset_commit
from kraftlog.testing.clock import SimClock
from tests.unit.coordinator.harness import FakeLog, Read, batch_records

T = TypeVar("T")

GROUP = "orders"
TOPIC = "t"
PARTITIONS = 5
SESSION_MS = 6_000
REBALANCE_MS = 8_000
CONTEXT = CallContext(peer="ipv4:10.0.0.1:1")
RETRY_ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class LogView:
    """What one node sees of the log. While it does not lead, its appends go nowhere."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.leads = False
        self._tail = 0
        self._lost: list[asyncio.Future[None]] = []

    def append(self, topic: str, partition: int, records: bytes) -> int:
        if self.leads:
            return self.log.append(topic, partition, records)
        self._tail += 100
        return self._tail

    async def wait_committed(self, topic: str, partition: int, offset: int) -> None:
        if self.leads:
            await self.log.wait_committed(topic, partition, offset)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost.append(future)
        await future

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Read:
        return self.log.read(topic, partition, offset, max_bytes)

    def log_start_offset(self, topic: str, partition: int) -> int:
        return 0

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self.log.log_end_offset(topic, partition)

    def lose_leadership(self) -> None:
        if self.leads:
            self._tail = self.log.log_end_offset("", 0)
        self.leads = False

    def fail_waiters(self) -> None:
        lost, self._lost = self._lost, []
        for future in lost:
            if not future.done():
                future.set_exception(NotLeaderOrFollowerError("fenced"))


@dataclass
class Fault:
    """One thing that happens to the world after `delay_ms`."""

    delay_ms: int
    action: str
    index: int


@dataclass
class History:
    """What clients were told, for the checks."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    """(generation, partition) -> identity of the owner."""
    acknowledged: set[str] = field(default_factory=set)
    """Stamps of commits that were answered without error."""
    floor: dict[int, str] = field(default_factory=dict)
    """Per partition the newest stamp that was fetched or acknowledged."""

    def assigned(self, generation: int, partitions: list[int], identity: str) -> None:
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), identity)
            assert owner == identity, f"generation {generation} partition {partition}: {owner} and {identity}"


class World:
    def __init__(self, seed: int, *, clients: int, static: int, delay_ms: int) -> None:
        self.random = random.Random(seed)
        self.config = GroupConfig(
            group_initial_rebalance_delay_ms=self.random.choice((0, 200)),
            load_retry_backoff_ms=100,
            offsets_load_buffer_size=500,
        )
        self.log = FakeLog()
        self.views = [LogView(self.log), LogView(self.log)]
        self.coordinators = [self._coordinator(view, seed + index) for index, view in enumerate(self.views)]
        self.leader = 0
        self.epoch = 0
        self.history = History()
        self.calls = 0
        self.answered = 0
        self.delay_ms = delay_ms
        self.clients = [
            Client(self, f"c{index}", instance=f"i{index}" if index < static else "") for index in range(clients)
        ]
        self.processes = list(self.clients)
        """All clients that ever were, older twins included."""
        self.tasks: list[asyncio.Task[None]] = []
        self.commits: list[tuple[int, str, int]] = []
        """The committed offsets in the order of the log: (partition, stamp, offset)."""
        self.positions: dict[tuple[int, str], int] = {}
        """(partition, stamp) -> place in `commits`."""
        self._batches_read = 0

    def _coordinator(self, view: LogView, seed: int) -> GroupCoordinator:
        return GroupCoordinator(
            config=self.config,
            log=view,
            clock=SimClock(asyncio.get_running_loop()),
            random=random.Random(seed),
            node_id=seed,
            partition_count=lambda: 1,
        )

    async def run(self, faults: list[Fault]) -> None:
        for coordinator in self.coordinators:
            await coordinator.start()
        self.log.commit_delay_ms = self.delay_ms
        self.elect(0)
        for client in self.clients:
            client.start()
        for fault in faults:
            await asyncio.sleep(fault.delay_ms / 1000)
            self.apply(fault)
            for pause_ms in (0, 1, 20):
                await asyncio.sleep(pause_ms / 1000)
                await self.look()
        await self.heal()
        await self.check_progress()
        await self.stop()
        self.check_log()

    # Faults -----------------------------------------------------------------------------------------------------------

    def apply(self, fault: Fault) -> None:
        client = self.clients[fault.index % len(self.clients)]
        match fault.action:
            case "crash":
                client.crash()
            case "start":
                client.start()
            case "pause":
                client.pause(SESSION_MS * 2)
            case "leave":
                client.leaving = True
            case "twin" if client.instance and client.is_running:
                # A second process with the same instance id, while the first goes on until it hears of it.
                twin = Client(self, client.name, instance=client.instance)
                self.clients[fault.index % len(self.clients)] = twin
                self.processes.append(twin)
                twin.start()
            case "twin":
                pass
            case "reset":
                self.spawn(self.operator_reset(fault.index))
            case "move":
                self.elect(fault.index % 2)
            case "zombie":
                self.elect(1 - self.leader, tell_old=False)
            case "hold":
                self.log.hold()
            case "release":
                self.log.release()
            case "refuse":
                self.log.append_error = NotEnoughReplicasError("1 of 2")
            case "accept":
                self.log.append_error = None
            case _:
                raise AssertionError(fault.action)

    def elect(self, index: int, *, tell_old: bool = True) -> None:
        """A new leader epoch on node `index`; the former leader hears of it now, or stays a zombie for a while."""
        self.epoch += 1
        old = self.leader
        for view in self.views:
            view.lose_leadership()
        self.log.fail_waiters()  # of a zombie, too: its batches are not those that commit
        if self.random.random() < 0.5:
            self.log.truncate_uncommitted()  # else the new leader has them, and they will commit under it
        self.leader = index
        self.views[index].leads = True
        if tell_old or old == index:
            self.resign(old)
        else:
            asyncio.get_running_loop().call_later(3, self._end_zombie, old, self.epoch)
        self.coordinators[index].on_elected(0, self.epoch)

    def resign(self, index: int) -> None:
        self.views[index].fail_waiters()
        self.coordinators[index].on_resigned(0)

    def _end_zombie(self, index: int, epoch: int) -> None:
        if not self.views[index].leads:
            self.resign(index)

    async def heal(self) -> None:
        self.log.append_error = None
        self.log.release()
        await asyncio.sleep(2 * SESSION_MS / 1000)  # whoever is paused goes on, and hears whether it is fenced
        for client in self.clients:
            if not any(other.is_running and other.instance == client.instance != "" for other in self.processes):
                client.start()
        await asyncio.sleep(60)
        for task in self.tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def stop(self) -> None:
        for client in self.processes:
            client.stopping = True
        await asyncio.sleep(5)
        for client in self.processes:
            client.crash()
        for coordinator in self.coordinators:
            await coordinator.stop()
        await asyncio.sleep(1)
        for task in self.tasks:
            if not task.cancelled():
                task.result()
        assert self.calls == self.answered, f"{self.calls - self.answered} requests were never answered"

    # Requests ---------------------------------------------------------------------------------------------------------

    def spawn(self, work: Awaitable[object]) -> None:
        async def wrapped() -> None:
            await work

        asyncio.get_running_loop().create_task(wrapped())

    async def counted(self, call: Awaitable[T]) -> T:
        """Every request must end by an answer, also one whose caller is gone."""
        self.calls += 1
        result = await call
        self.answered += 1
        return result

    async def operator_reset(self, partition: int) -> None:
        """Commit 0 from outside. Accepted only while the group is empty."""
        coordinator = self.coordinators[self.leader]
        request = group_pb2.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=-1,
            partitions=[
                group_pb2.OffsetCommitPartition(
                    topic=TOPIC,
                    partition=partition % PARTITIONS,
                    offset=0,
                    leader_epoch=-1,
                    metadata=f"op-{self.calls}",
                )
            ],
        )
        await self.counted(coordinator.offset_commit(request, CONTEXT))

    async def look(self) -> None:
        """Somebody from outside asks where the group stands."""
        request = group_pb2.OffsetFetchRequest(group_id=GROUP, all_partitions=True)
        fetched = await self.counted(self.coordinators[self.leader].offset_fetch(request, CONTEXT))
        if fetched.error_code == 0:
            self.saw({found.partition: found.metadata for found in fetched.partitions}, acknowledged=False)
            missing = self.history.floor.keys() - {found.partition for found in fetched.partitions}
            assert not missing, f"nothing committed for {missing}, which is wrong"

    # Checks -----------------------------------------------------------------------------------------------------------

    def read_log(self) -> None:
        """Take over what has been committed since the last call."""
        for batch in self.log.committed_batches(skip=self._batches_read):
            self._batches_read += 1
            for record in batch_records(batch):
                key = decode_key(record.key)
                if isinstance(key, OffsetCommitKey) and record.value is not None:
                    value = decode_offset_commit(record.value)
                    self.positions[key.partition, value.metadata] = len(self.commits)
                    self.commits.append((key.partition, value.metadata, value.offset))

    def saw(self, told: dict[int, str], *, acknowledged: bool) -> None:
        """A client was told that these stamps are committed: by a fetch, or as the answer to its own commit."""
        self.read_log()
        positions = self.positions
        for partition, stamp in told.items():
            assert (partition, stamp) in positions, f"partition {partition}: {stamp} is not committed"
            before = self.history.floor.get(partition, stamp)
            is_newer = positions[partition, stamp] >= positions[partition, before]
            assert is_newer or acknowledged, f"partition {partition} went back from {before} to {stamp}"
            if is_newer:
                self.history.floor[partition] = stamp

    def check_log(self) -> None:
        self.read_log()
        last: dict[int, tuple[int, int]] = {}
        newest = 0
        fenced_below = 0
        for partition, stamp, offset in self.commits:
            if stamp.startswith("op-"):
                fenced_below = newest + 1  # the group was empty: whoever comes is of a later generation
                last.pop(partition, None)
                continue
            generation = int(stamp.split("/")[1])
            assert generation >= fenced_below, f"{stamp} is of a generation that had ended"
            newest = max(newest, generation)
            if partition in last:
                assert (generation, offset) >= last[partition], f"partition {partition} went back by {stamp}"
            last[partition] = (generation, offset)
        stamps = {stamp for _, stamp, _ in self.commits}
        assert self.history.acknowledged <= stamps, "an acknowledged commit is lost"

    async def check_progress(self) -> None:
        """Everybody is back in one stable generation, and the kept state equals the replayed one."""
        held = self.coordinators[self.leader]._partitions[0]
        group = held.shard.groups[GROUP]
        assert group.state is GroupState.STABLE
        here = [client for client in self.processes if client.is_running]
        assert here
        assert {client.generation for client in here} == {group.generation_id}
        owned = sorted(partition for client in here for partition in client.owned)
        assert owned == list(range(PARTITIONS))
        rebuilt = self.log.shard(self.config)
        assert rebuilt.facts() == held.shard.facts()
        metadata = rebuilt.facts()[0][GROUP]
        assert metadata.generation_id == group.generation_id
        kept = {member.member_id: member.assignment for member in group.members}
        assert {member.member_id: member.assignment for member in metadata.members} == kept


class Client:
    """A consumer: joins, assigns if it leads, sends heartbeats, commits what it owns, and rejoins when told so."""

    def __init__(self, world: World, name: str, *, instance: str = "") -> None:
        self.world = world
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.fenced = False
        self.leaving = False
        self.stopping = False
        self._offsets: dict[int, int] = {}
        self._known = 0
        self._stamps = 0
        self._paused_until = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """A fresh process of this client, unless one runs."""
        if not self.is_running:
            self.member_id = ""
            self.fenced = self.leaving = False
            self._reset()
            self._task = asyncio.get_running_loop().create_task(self._run())
            self.world.tasks.append(self._task)

    def crash(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._reset()

    def pause(self, milliseconds: float) -> None:
        self._paused_until = asyncio.get_running_loop().time() + milliseconds / 1000

    def _reset(self) -> None:
        self.generation = -1
        self.owned = []

    async def _run(self) -> None:
        while not self.fenced and not self.stopping:
            if await self._join_group():
                await self._consume()
            await self._sleep(0.05)

    # The rounds of the protocol -----------------------------------------------------------------------------------------

    async def _join_group(self) -> bool:
        joined = await self._ask(
            lambda c: c.join_group(
                group_pb2.JoinGroupRequest(
                    group_id=GROUP,
                    member_id=self.member_id,
                    group_instance_id=self.instance,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    client_id=self.name,
                    protocol_type="consumer",
                    protocols=[group_pb2.GroupProtocol(name="range", metadata=b"subscription")],
                ),
                CONTEXT,
            )
        )
        if joined is None or not self._accept(joined.error_code):
            if joined is not None and joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            return False
        self.member_id = joined.member_id
        self._reset()
        assignments = []
        if joined.members and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            assignments = [
                group_pb2.GroupAssignment(member_id=m, assignment=bytes(range(n, PARTITIONS, len(members))))
                for n, m in enumerate(members)
            ]
        synced = await self._ask(
            lambda c: c.sync_group(
                group_pb2.SyncGroupRequest(
                    group_id=GROUP,
                    member_id=joined.member_id,
                    group_instance_id=self.instance,
                    generation_id=joined.generation_id,
                    assignments=assignments,
                ),
                CONTEXT,
            )
        )
        if synced is None or not self._accept(synced.error_code):
            return False
        owned = list(synced.assignment)
        self.world.history.assigned(joined.generation_id, owned, self.instance or self.member_id)
        self.generation, self.owned = joined.generation_id, owned
        return await self._fetch()

    async def _fetch(self) -> bool:
        """Start where the group stands."""
        while True:
            fetched = await self._ask(
                lambda c: c.offset_fetch(
                    group_pb2.OffsetFetchRequest(
                        group_id=GROUP,
                        partitions=[group_pb2.GroupTopicPartition(topic=TOPIC, partition=p) for p in self.owned],
                    ),
                    CONTEXT,
                ),
                only_leader=True,
            )
            if fetched is not None and fetched.error_code == 0:
                break
            await self._sleep(0.1)
        told = {found.partition: found.metadata for found in fetched.partitions if found.offset >= 0}
        self.world.saw(told, acknowledged=False)
        for found in fetched.partitions:
            if found.offset < 0:
                assert found.partition not in self.world.history.floor, "-1 although an offset is committed"
            self._offsets[found.partition] = max(found.offset, 0)
        return True

    async def _consume(self) -> None:
        while not self.stopping:
            if self.leaving:
                await self._leave()
                return
            beat = await self._ask(
                lambda c: c.heartbeat(
                    group_pb2.HeartbeatRequest(
                        group_id=GROUP,
                        member_id=self.member_id,
                        generation_id=self.generation,
                        group_instance_id=self.instance,
                    ),
                    CONTEXT,
                )
            )
            if beat is None or beat.error_code in RETRY_ELSEWHERE:
                await self._sleep(0.2)
                continue
            if not await self._commit() or not self._accept(beat.error_code):
                return
            await self._sleep(self.world.random.choice((0.1, 0.5, 1.0)))

    async def _commit(self) -> bool:
        """Commit one step further on what is owned. False if told to rejoin."""
        if not self.owned:
            return True
        partitions = []
        for partition in self.owned:
            self._offsets[partition] += 1
            self._stamps += 1
            stamp = f"{self.member_id}/{self.generation}/{self._stamps}"
            partitions.append(
                group_pb2.OffsetCommitPartition(
                    topic=TOPIC,
                    partition=partition,
                    offset=self._offsets[partition],
                    leader_epoch=-1,
                    metadata=stamp,
                )
            )
        request = group_pb2.OffsetCommitRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            partitions=partitions,
        )
        answer = await self._ask(lambda c: c.offset_commit(request, CONTEXT))
        if answer is None:
            return True
        codes = {partition.error_code for partition in answer.partitions}
        assert len(codes) == 1
        (code,) = codes
        if code == 0:
            self.world.history.acknowledged.update(partition.metadata for partition in partitions)
            self.world.saw({p.partition: p.metadata for p in partitions}, acknowledged=True)
        return code in (0, *RETRY_ELSEWHERE) or self._accept(code)

    async def _leave(self) -> None:
        await self._ask(
            lambda c: c.leave_group(group_pb2.LeaveGroupRequest(group_id=GROUP, member_id=self.member_id), CONTEXT)
        )
        self.stopping = True
        self._reset()
        self.member_id = ""
        self.stopping = False
        self.leaving = False
        await self._sleep(2)

    # Below the protocol -------------------------------------------------------------------------------------------------

    def _accept(self, code: int) -> bool:
        """What an error code asks of a client."""
        if code == 0:
            return True
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self._reset()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            self._reset()
        else:
            assert code in (*RETRY_ELSEWHERE, *REJOIN, ErrorCode.MEMBER_ID_REQUIRED), ErrorCode(code)
        return False

    async def _ask(self, call: Callable[[GroupCoordinator], Awaitable[T]], *, only_leader: bool = False) -> T | None:
        """Send one request; None if its answer was lost. A refusal makes the client look for the coordinator."""
        await self._sleep(0)
        node = self.world.leader if only_leader else self._known
        task = asyncio.get_running_loop().create_task(self.world.counted(call(self.world.coordinators[node])))
        answer = await asyncio.shield(task)
        response: Any = answer
        codes = (
            [response.error_code] if hasattr(response, "error_code") else [p.error_code for p in response.partitions]
        )
        code = codes[0] if codes else 0
        if code in RETRY_ELSEWHERE:
            self._known = 1 - self._known
            await self._sleep(0.1)
        if self.world.random.random() < 0.03:
            return None
        return answer

    async def _sleep(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        await asyncio.sleep(max(seconds, self._paused_until - now))
