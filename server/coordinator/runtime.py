"""One led partition of an internal topic, by rule 3: decide, append one batch, replay it at once, answer on commit.

The machine decides against its present state and hands over records. `append` puts them as one atomic batch on the
log, replays them into the machine's versioned state, and remembers who waits. When the log has committed the batch's
last offset, the waiters are called in the order of their appends, and what was readable as the committed state moves
up. If the log says that it cannot commit (leadership lost, storage failed), every waiter fails once, and this object
is finished: the owner builds a new machine by replaying the log again, if this node still leads.

`load` replays the log up to its end and then waits until that end is committed: a new leader may hold batches of its
predecessor that are not, and nobody may read or act on them before they are.

Order of effects: append, replay, (commit), answer. Used only from the event loop; no threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftlog.kraft.timeline import SnapshotRegistry
from kraftlog.proto.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    IllegalStateError,
    KraftlogError,
    NotCoordinatorError,
)
from kraftlog.proto.records import BatchBuilder, decode_records
from kraftlog.proto.seams import Buffer, Clock
from kraftlog.server.coordinator.records import CoordinatorRecord

FORGET_EVERY = 64  # forgetting walks over all versions that are kept, so it is not done for each of many


class LogRead(Protocol):
    """What a read of the log gives."""

    @property
    def records(self) -> Buffer:
        """Whole batches, the first of which holds the offset asked for."""
        ...

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        ...


class CoordinatorLog(Protocol):
    """The partitions of internal topics that this node leads. The node implements it over its replica manager."""

    def append(self, topic: str, partition: int, records: bytes) -> int:
        """Append one batch as the leader, now; its last offset. Raises a `KraftlogError` and appends nothing."""
        ...

    async def wait_committed(self, topic: str, partition: int, offset: int) -> None:
        """Return when the high watermark is above `offset`; raise if this node will not see that as the leader."""
        ...

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> LogRead:
        """Read up to the log's end, at least one batch if there is one."""
        ...

    def log_start_offset(self, topic: str, partition: int) -> int: ...

    def log_end_offset(self, topic: str, partition: int) -> int: ...


class Machine(Protocol):
    """State that only `replay` changes. `registry` holds its versions."""

    registry: SnapshotRegistry

    def replay(self, record: CoordinatorRecord) -> None: ...


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch that is appended and not committed. Exactly one of the two is called, once."""

    last_offset: int
    on_committed: Callable[[], None]
    on_failed: Callable[[KraftlogError], None]


class PartitionRuntime:
    """The log side of one partition's machine for one leader epoch."""

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        machine: Machine,
        log: CoordinatorLog,
        clock: Clock,
        max_pending_batches: int,
        load_buffer_bytes: int,
        on_failed: Callable[[KraftlogError], None],
    ) -> None:
        """`on_failed` is called at most once, when the log can no longer commit; it must call `close`."""
        self.topic = topic
        self.partition = partition
        self._machine = machine
        self._log = log
        self._clock = clock
        self._max_pending_batches = max_pending_batches
        self._load_buffer_bytes = load_buffer_bytes
        self._on_failed = on_failed
        self._pending: deque[_Pending] = deque()
        self._committer: asyncio.Task[None] | None = None
        self._last_written_offset = -1
        self._committed_offset = -1
        self._closed = False

    @property
    def read_offset(self) -> int | None:
        """Which version of the machine's state is committed; None: the present one."""
        return self._committed_offset if self._pending else None

    @property
    def pending_batches(self) -> int:
        return len(self._pending)

    async def load(self) -> None:
        """Replay the log into the (fresh) machine; return when all that was replayed is committed."""
        end_offset = self._log.log_end_offset(self.topic, self.partition)
        offset = self._log.log_start_offset(self.topic, self.partition)
        while offset < end_offset:
            read = self._log.read(self.topic, self.partition, offset, self._load_buffer_bytes)
            for record in decode_records(read.records, topic=self.topic, partition=self.partition, min_offset=offset):
                if record.key is None:
                    raise CorruptRecordError(f"{self.topic}-{self.partition} offset {record.offset} has no key")
                self._machine.replay(CoordinatorRecord(record.key, record.value))
            if read.next_offset <= offset:
                raise IllegalStateError(
                    f"{self.topic}-{self.partition}: nothing to read at {offset} below {end_offset}"
                )
            offset = read.next_offset
            await asyncio.sleep(0)  # other partitions and requests get their turn
        if end_offset > 0:
            await self._log.wait_committed(self.topic, self.partition, end_offset - 1)
        self._last_written_offset = self._committed_offset = end_offset - 1

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        on_committed: Callable[[], None],
        on_failed: Callable[[KraftlogError], None],
    ) -> None:
        """Append `records` as one batch and replay them. Later one of the callables is called, once.

        Raises, with nothing appended or changed, what the log raises, and `CoordinatorNotAvailableError` when
        `max_pending_batches` batches wait for their commit.
        """
        if self._closed:
            raise NotCoordinatorError(f"{self.topic}-{self.partition} is no longer led here: find the coordinator")
        if len(self._pending) >= self._max_pending_batches:
            raise CoordinatorNotAvailableError(
                f"{self.topic}-{self.partition}: {len(self._pending)} batches wait for their commit: try again"
            )
        builder = BatchBuilder()
        timestamp_ms = self._clock.wall_ms()
        for record in records:
            builder.append(timestamp_ms, record.key, record.value)
        last_offset = self._log.append(self.topic, self.partition, builder.build())
        try:
            self._replay(records, last_offset)
        except BaseException as error:
            # A bug: the log has the batch and the state has not. Nothing may be decided on such a state.
            self._on_failed(IllegalStateError(f"{self.topic}-{self.partition}: replay of {last_offset}: {error!r}"))
            raise
        self._pending.append(_Pending(last_offset, on_committed, on_failed))
        if self._committer is None:
            self._committer = asyncio.get_running_loop().create_task(self._commit_pending())

    def _replay(self, records: Sequence[CoordinatorRecord], last_offset: int) -> None:
        if last_offset <= self._last_written_offset:
            raise IllegalStateError(f"the log gave offset {last_offset} after {self._last_written_offset}")
        # The state before this batch stays readable while it is the committed one, or one that will be.
        self._machine.registry.register(self._last_written_offset)
        for record in records:
            self._machine.replay(record)
        self._last_written_offset = last_offset

    def close(self, error: KraftlogError) -> None:
        """Fail who waits, and append nothing more. May be repeated."""
        self._closed = True
        if self._committer is not None:
            self._committer.cancel()
            self._committer = None
        while self._pending:
            self._pending.popleft().on_failed(error)

    async def _commit_pending(self) -> None:
        """Follow the log's commits while there are batches to wait for."""
        try:
            while self._pending:
                await self._log.wait_committed(self.topic, self.partition, self._pending[0].last_offset)
                self._advance()
        except KraftlogError as error:
            self._committer = None
            self._on_failed(error)
        except Exception as error:
            self._committer = None
            self._on_failed(IllegalStateError(f"{self.topic}-{self.partition}: after a commit: {error!r}"))
            raise
        else:
            self._committer = None

    def _advance(self) -> None:
        done = self._pending.popleft()
        self._committed_offset = done.last_offset
        if not self._pending:
            self._machine.registry.forget_all()
        elif len(self._pending) % FORGET_EVERY == 0:
            self._machine.registry.forget_before(self._committed_offset)
        done.on_committed()
