"""The synchronous consumer: the same core on the process's background loop; buffered records are taken without it."""

import asyncio
import atexit
import logging
import os
import random as random_module
import re
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from kraftlog.proto.errors import IllegalStateError, KraftlogError, RequestTimedOutError
from kraftlog.proto.records import Record
from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.background import background_loop, register_client
from kraftlog.sdk.clock import SystemClock
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer.async_consumer import (
    ARROW_MAX_BYTES,
    CommitCallback,
    by_partition,
    names_of,
    paused,
    start_commit,
    to_table,
)
from kraftlog.sdk.consumer.chunks import Chunk
from kraftlog.sdk.consumer.core import CLOSE_TIMEOUT_MS, ConsumerCore, ListenerCall
from kraftlog.sdk.consumer.listener import ConsumerRebalanceListener
from kraftlog.sdk.consumer.state import Batch
from kraftlog.sdk.offsets import EARLIEST, LATEST
from kraftlog.sdk.options import ConsumerOptions
from kraftlog.sdk.producer.async_producer import default_connector
from kraftlog.sdk.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("kraftlog.sdk")

T = TypeVar("T")

CREDIT_STEP_BYTES = 256 * 1024  # credit goes back to the loop in such steps: waking it costs some 20 µs
CLOSE_GRACE_S = 1.0
EXIT_TIMEOUT_S = 2.0  # of a consumer that was not closed before the interpreter ends
FOREVER_MS = 1e12


class Consumer:
    """Reads records, alone or as a member of a group. Used from one thread at a time.

    Options are those of `ConsumerConfig`, as keywords or as a mapping with Kafka's dotted names. Only records of
    committed transactions are seen unless isolation_level="read_uncommitted".

        with Consumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.offset, record.value)

    A consumer does not survive a fork: make one in the child.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | ConsumerConfig | None = None,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self.config = config if isinstance(config, ConsumerConfig) else ConsumerConfig.of(config, **options)
        self._clock = clock or SystemClock()
        self._pid = os.getpid()
        self._background = background_loop()
        self._core = ConsumerCore(
            self.config,
            connector=connector or default_connector(self.config),
            clock=self._clock,
            random=random or random_module.Random(),
        )
        self._commits: set[asyncio.Task[None]] = set()
        self._used_up: list[Chunk] = []
        self._used_bytes = 0
        register_client(self)
        _open_consumers.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close(CLOSE_GRACE_S if isinstance(error, KeyboardInterrupt) else None)
        except KraftlogError as failure:
            if error is None:
                raise
            log.error("close after %s: %s", type(error).__name__, failure)

    # -- choosing

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Share topics with the group: `topics` by name, or all whose whole name matches `pattern`."""
        names = names_of(topics)
        self._do(lambda: self._core.subscribe(names, pattern, listener))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's sharing."""
        wanted = list(partitions)
        self._do(lambda: self._core.assign(wanted))

    def unsubscribe(self) -> None:
        """Give up topics or partitions; leaves the group."""
        self._run(self._core.unsubscribe)

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._core.subscribed_topics())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read at present."""
        return frozenset(self._core.subscriptions.partitions)

    # -- reading

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Records by partition; empty if none came within `timeout_ms`, or if a position only passed gaps or aborted records.

        Returns at most `max_records` (None: max_poll_records). With auto commit, what the poll before returned counts
        as done from here on. Raises `NoOffsetForPartitionError` and `OffsetOutOfRangeError` with
        auto_offset_reset="none", `CorruptRecordError`, authorization errors, and what a listener raised.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        batches = cast("list[Batch]", self._take(lambda: self._core.take_records(limit), timeout_ms))
        return by_partition(batches)

    def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int = ARROW_MAX_BYTES, columns: Sequence[str] | None = None
    ) -> "pyarrow.Table":
        """Like `poll`, as one Arrow table with the columns of Spark's Kafka source; `headers` only by `columns`."""
        if not self._core.cursor.is_empty:
            self._do(self._core.end_iteration)
        batches = self._take(lambda: self._core.take_arrow(max_bytes, columns), timeout_ms)
        return to_table(cast("list[pyarrow.RecordBatch] | None", batches), columns)

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        core = self._core
        with core.lock:
            record = None if core.needs_loop else self._first()
        if record is not None:
            core.touch()
            self._return_credit()
        while record is None:
            record = cast("Record | None", self._poll(self._first, None) or None)
        return record

    # -- positions

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record for the application."""
        return self._run(lambda: self._core.position(partition, self.config.default_api_timeout_ms))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from `offset`. What is buffered of the partition is dropped."""
        self._do(lambda: self._core.seek(partition, offset))

    def stop_at(self, partition: TopicPartition, end_offset: int) -> None:
        """Hand out nothing of a partition from `end_offset` on, until the next `seek`. Its `position` tells the end."""
        self._do(lambda: self._core.stop_at(partition, end_offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read from the first record on; no arguments: all assigned partitions."""
        self._do(lambda: self._core.seek_to(partitions, "earliest"))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read what comes from here on; no arguments: all assigned partitions."""
        self._do(lambda: self._core.seek_to(partitions, "latest"))

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; the group membership goes on."""
        self._do(lambda: self._core.pause(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        self._do(lambda: self._core.resume(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        return paused(self._core)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._run(lambda: self._core.list_offsets(partitions, EARLIEST, self.config.default_api_timeout_ms))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with read_committed, after the last stable one."""
        return self._run(lambda: self._core.list_offsets(partitions, LATEST, self.config.default_api_timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp in milliseconds; None if there is none."""
        return self._run(lambda: self._core.offsets_for_times(timestamps, self.config.default_api_timeout_ms))

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch."""
        return self._core.subscriptions.state(TopicPartition(*partition)).high_watermark

    def lag(self) -> dict[TopicPartition, int]:
        """Records that each assigned partition still has for this consumer, as of the last fetch; without unknown ones."""
        return self._core.lag()

    # -- committing

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit offsets of the next records to read; None: everything that was handed out, the batch in hand too.

        Raises `CommitFailedError` if the partitions went to other members, `RebalanceInProgressError` (poll, then
        commit again), or the last reason after default_api_timeout_ms.
        """
        self._run(lambda: self._core.commit(offsets, self.config.default_api_timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit in the background, after the commits before; without a callback a failure is logged.

        The callback runs on the event loop's thread: it must be quick and not call blocking methods.
        """
        timeout_ms = self.config.default_api_timeout_ms
        self._do(lambda: start_commit(self._core, offsets, callback, self._commits, timeout_ms))

    def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition; None: nothing committed."""
        found = self._run(lambda: self._core.committed([partition], self.config.default_api_timeout_ms))
        offset = found.get(TopicPartition(*partition))
        return None if offset is None else offset.offset

    def close(self, timeout: float | None = None) -> None:
        """Commit what is done (with auto commit), leave the group, disconnect; at most `timeout` seconds (None: 30).

        The batch in hand is not committed: call `commit` first if it is done. May be repeated.
        """
        if self._pid != os.getpid():
            return
        _open_consumers.discard(self)
        call = None if self._core.is_closed else self._core.revocation_call()
        if call is not None:
            call.method(call.partitions)
        limit_ms = CLOSE_TIMEOUT_MS if timeout is None else timeout * 1000
        try:
            self._background.run(lambda: self._core.close(limit_ms), limit_ms / 1000 + CLOSE_GRACE_S)
        except RequestTimedOutError:
            log.warning("close of a consumer: not done within %.0f ms, dropped", limit_ms)

    def after_fork_in_child(self) -> None:
        """The child must not act as this member."""
        self._core.needs_loop = True

    # -- inside

    def _take(self, take: Callable[[], "list[Any]"], timeout_ms: float) -> object:
        """What is buffered, without the loop; else a poll."""
        taken = self._core.try_take(take)
        if not taken and not self._core.taker.used_up:
            return self._poll(take, timeout_ms)
        self._return_credit()
        return taken

    def _poll(self, take: Callable[[], object], timeout_ms: float | None) -> object:
        """Rounds on the loop; listener calls are made here, in the application's thread."""
        core = self._core
        self._return_credit(least_bytes=0)
        deadline_ms = self._clock.monotonic_ms() + (FOREVER_MS if timeout_ms is None else timeout_ms)
        step = self._first_step
        try:
            while True:
                taken, call = self._run(partial(step, take, deadline_ms))
                if call is None:
                    return taken or []
                _make(call)
                step = core.next_step
        finally:
            self._background.call_soon(core.end_poll)

    async def _first_step(self, take: Callable[[], object], deadline_ms: float) -> tuple[object, ListenerCall | None]:
        self._core.begin_poll()
        return await self._core.next_step(take, deadline_ms)

    def _first(self) -> Record | None:
        """The next record of the iteration. Caller holds the lock."""
        core = self._core
        record = core.cursor.next()
        if record is None and core.cursor.load(self.config.max_poll_records):
            record = core.cursor.next()
        return record

    def _return_credit(self, least_bytes: int = CREDIT_STEP_BYTES) -> None:
        used_up = self._core.take_used_up()
        if used_up:
            self._used_up += used_up
            self._used_bytes += sum(chunk.size_bytes for chunk in used_up)
        if self._used_up and self._used_bytes >= least_bytes:
            chunks, self._used_up, self._used_bytes = self._used_up, [], 0
            self._background.call_soon(self._core.after_take, chunks)

    def _do(self, step: Callable[[], object]) -> None:
        """Run something quick on the loop."""

        async def run() -> None:
            step()

        self._run(run)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._pid != os.getpid():
            raise IllegalStateError("this consumer was made before fork(): make a new one in the child process")
        return self._background.run(work)


def _make(call: ListenerCall) -> None:
    answer = call.method(call.partitions)
    if asyncio.iscoroutine(answer):
        answer.close()
        raise IllegalStateError("a listener of the synchronous Consumer must not be a coroutine function")


_open_consumers: "weakref.WeakSet[Consumer]" = weakref.WeakSet()


def _close_all() -> None:
    """Leave the groups, so that the others need not wait for a session time-out."""
    for consumer in list(_open_consumers):
        try:
            consumer.close(EXIT_TIMEOUT_S)
        except Exception as error:  # a listener's too: nobody is left to catch it
            log.error("a consumer that was not closed before exit: %s: %s", type(error).__name__, error)


atexit.register(_close_all)
