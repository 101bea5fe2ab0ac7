"""One led partition of `__consumer_offsets`: its shard, its runtime, the requests that wait, and its timer.

States: loading → active → closed. A request that comes while it loads is refused with COORDINATOR_LOAD_IN_PROGRESS;
whoever waits when it closes is answered NOT_COORDINATOR. Carries out the shard's effects: gives answers, appends
generations, and tells the group what became of them.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from kraftlog.proto.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    IllegalStateError,
    KraftlogError,
    NotCoordinatorError,
    code_of,
)
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.seams import Clock
from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.members import Answer, JoinRequest, SyncRequest, Ticket
from kraftlog.server.coordinator.records import CoordinatorRecord
from kraftlog.server.coordinator.runtime import CoordinatorLog, PartitionRuntime
from kraftlog.server.coordinator.shard import GroupShard, Refusal, ShardEffects, ShardWrite

COMMIT_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""What a member hears of a log error, which it would take for one of its own topics (Kafka's table)."""

GROUP_ERRORS = {
    **COMMIT_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The same for JoinGroup, SyncGroup and LeaveGroup: an assignment that is too large is nothing a member can retry."""


class PartitionState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class GroupPartition:
    """Used only from the event loop. One object for one leader epoch of one partition."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        config: GroupConfig,
        log: CoordinatorLog,
        clock: Clock,
        on_failed: Callable[["GroupPartition", KraftlogError], None],
        cause: str = "",
    ) -> None:
        """`on_failed` is called at most once, when the log failed this object while the node still leads. `cause`
        says why the partition must be loaded again, to who asks meanwhile."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = PartitionState.LOADING
        self.shard = GroupShard(config)
        self._clock = clock
        self._on_failed = on_failed
        self._cause = cause
        self._runtime = PartitionRuntime(
            topic=CONSUMER_OFFSETS_TOPIC,
            partition=partition,
            machine=self.shard,
            log=log,
            clock=clock,
            max_pending_batches=config.max_pending_batches_per_partition,
            load_buffer_bytes=config.offsets_load_buffer_size,
            on_failed=self._runtime_failed,
        )
        self._waiting: dict[Ticket, asyncio.Future[Answer]] = {}
        self._next_ticket = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: float | None = None

    def __str__(self) -> str:
        return f"{CONSUMER_OFFSETS_TOPIC}-{self.partition} at leader epoch {self.leader_epoch}"

    async def load(self) -> None:
        """Replay the log, then serve. Raises what the log raises; then the owner closes this object."""
        await self._runtime.load()
        if self.state is not PartitionState.LOADING:
            return
        self.state = PartitionState.ACTIVE
        with self._down_on_bug():
            self._apply(self.shard.on_loaded(self.now_ms()))

    def close(self, error: KraftlogError) -> None:
        """Answer everybody who waits with `error`. May be repeated."""
        if self.state is PartitionState.CLOSED:
            return
        self.state = PartitionState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._runtime.close(error)
        try:
            self._give(self.shard.kill_all(error.code, error.message))
        finally:  # after a bug a request may wait that no group knows of
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_exception(error)

    def check_active(self) -> None:
        """Raise unless requests can be served."""
        if self.state is PartitionState.LOADING:
            after = f" after an error ({self._cause})" if self._cause else ""
            raise CoordinatorLoadInProgressError(
                f"{CONSUMER_OFFSETS_TOPIC}-{self.partition} is being loaded{after}: try again in a moment"
            )
        if self.state is PartitionState.CLOSED:
            raise NotCoordinatorError(
                f"{CONSUMER_OFFSETS_TOPIC}-{self.partition} is not led here: ask for the group's coordinator"
            )

    def now_ms(self) -> float:
        return self._clock.monotonic_ms()

    @property
    def read_offset(self) -> int | None:
        """The version of the shard that is committed, for its read methods."""
        return self._runtime.read_offset

    @property
    def waiting(self) -> int:
        """Requests that are parked."""
        return len(self._waiting)

    # Requests -------------------------------------------------------------------------------------------------------

    def join(self, group_id: str, request: JoinRequest, fresh_member_id: str) -> "asyncio.Future[Answer]":
        """The future is completed when the join phase ends."""
        with self._down_on_bug():
            ticket, answer = self._park()
            self._apply(self.shard.join(group_id, request, ticket, fresh_member_id, self.now_ms()))
            return answer

    def sync(self, request: SyncRequest) -> "asyncio.Future[Answer]":
        """The future is completed when the assignment is committed."""
        with self._down_on_bug():
            ticket, answer = self._park()
            self._apply(self.shard.sync(request, ticket, self.now_ms()))
            return answer

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> Refusal:
        with self._down_on_bug():
            return self.shard.heartbeat(group_id, member_id, group_instance_id, generation_id, self.now_ms())

    def leave(
        self, group_id: str, member_id: str, group_instance_id: str | None
    ) -> "tuple[Refusal, list[asyncio.Future[KraftlogError | None]]]":
        """The futures say when the group's emptiness is committed, or why not."""
        with self._down_on_bug():
            refusal, effects = self.shard.leave(group_id, member_id, group_instance_id, self.now_ms())
            return refusal, self._apply(effects)

    def append(self, records: Sequence[CoordinatorRecord]) -> "asyncio.Future[KraftlogError | None]":
        """Append `records` as one batch; the future says that it is committed, or why not."""
        return self._append(records, lambda: None, lambda error: None)

    def expire_offsets(self) -> None:
        """Write the tombstones of what retention no longer keeps, and what the log refused earlier."""
        with self._down_on_bug():
            self._apply(self.shard.unwritten_empty())
            for _group_id, records in self.shard.expired(self._clock.wall_ms()):
                self.append(records)

    def delete_topics(self, topics: frozenset[str]) -> None:
        """Write the tombstones of all offsets of these topics."""
        with self._down_on_bug():
            for _group_id, records in self.shard.offsets_of_topics(topics):
                self.append(records)

    # Effects --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _down_on_bug(self) -> Iterator[None]:
        """Whatever is raised inside is a bug, and the state is no longer to be trusted: the partition goes down and is
        built again from the log."""
        try:
            yield
        except Exception as error:
            self._runtime_failed(IllegalStateError(f"{self}: {error!r}"))
            raise

    def _park(self) -> "tuple[Ticket, asyncio.Future[Answer]]":
        """A ticket for a request, and the future that its answer completes."""
        ticket = Ticket(self._next_ticket)
        self._next_ticket += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        return ticket, future

    def _apply(self, effects: ShardEffects) -> "list[asyncio.Future[KraftlogError | None]]":
        """Carry out `effects`; the futures say when each write is committed, or why not."""
        self._give(effects)
        futures = [self._write_generation(write) for write in effects.writes]
        self._arm_timer()
        return futures

    def _give(self, effects: ShardEffects) -> None:
        for ticket, answer in effects.answers:
            future = self._waiting.pop(ticket)  # a KeyError here is an answer given twice
            if not future.done():  # cancelled: the caller is gone
                future.set_result(answer)

    def _append(
        self,
        records: Sequence[CoordinatorRecord],
        on_committed: Callable[[], None],
        on_failed: Callable[[KraftlogError], None],
    ) -> "asyncio.Future[KraftlogError | None]":
        done: asyncio.Future[KraftlogError | None] = asyncio.get_running_loop().create_future()

        def finish(error: KraftlogError | None) -> None:
            if not done.done():
                done.set_result(error)

        def committed() -> None:
            on_committed()
            finish(None)

        def failed(error: KraftlogError) -> None:
            on_failed(error)
            finish(error)

        try:
            self._runtime.append(records, committed, failed)
        except KraftlogError as error:
            failed(error)
        return done

    def _write_generation(self, write: ShardWrite) -> "asyncio.Future[KraftlogError | None]":
        def committed() -> None:
            self._apply(self.shard.write_committed(write, self.now_ms()))

        def failed(error: KraftlogError) -> None:
            if self.state is PartitionState.ACTIVE:
                code = GROUP_ERRORS.get(error.code, error.code)
                message = f"the assignment could not be written: {error.message}"
                self._apply(self.shard.write_failed(write, code, message, self.now_ms()))

        try:
            record = self.shard.record_of(write, self._clock.wall_ms())
        except KraftlogError as error:
            failed(error)
            future: asyncio.Future[KraftlogError | None] = asyncio.get_running_loop().create_future()
            future.set_result(error)
            return future
        return self._append([record], committed, failed)

    def _runtime_failed(self, error: KraftlogError) -> None:
        self.close(moved(self.partition, error))
        self._on_failed(self, error)

    # Time -------------------------------------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        deadline_ms = self.shard.next_deadline_ms() if self.state is PartitionState.ACTIVE else None
        if self._timer is not None:
            if self._timer_ms == deadline_ms:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            self._timer_ms = deadline_ms
            self._timer = asyncio.get_running_loop().call_at(deadline_ms / 1000, self._on_timer, deadline_ms)

    def _on_timer(self, deadline_ms: float) -> None:
        self._timer = None
        # The loop may call a hair early; what was due then is due now.
        with self._down_on_bug():
            self._apply(self.shard.poll(max(self.now_ms(), deadline_ms)))


def moved(partition: int, cause: KraftlogError | None = None) -> NotCoordinatorError:
    """The answer for whoever waits on a partition that this node no longer coordinates."""
    why = f" ({code_of(cause).name}: {cause.message})" if cause is not None else ""
    return NotCoordinatorError(
        f"{CONSUMER_OFFSETS_TOPIC}-{partition} is not coordinated here any more{why}: ask for the group's coordinator"
    )
