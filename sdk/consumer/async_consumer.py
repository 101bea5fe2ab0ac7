"""The asyncio consumer."""

import asyncio
import inspect
import logging
import random as random_module
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import Record
from kraftlog.proto.seams import Clock, Connector, Random
from kraftlog.sdk.clock import LoopClock
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer.commits import normalized
from kraftlog.sdk.consumer.core import CLOSE_TIMEOUT_MS, ConsumerCore, ListenerCall
from kraftlog.sdk.consumer.listener import ConsumerRebalanceListener
from kraftlog.sdk.consumer.state import Batch
from kraftlog.sdk.offsets import EARLIEST, LATEST
from kraftlog.sdk.options import ConsumerOptions
from kraftlog.sdk.producer.async_producer import close_quietly_after, default_connector
from kraftlog.sdk.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("kraftlog.sdk")

ARROW_MAX_BYTES = 4 * 1024 * 1024  # what one poll_arrow returns by default

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KraftlogError | None], object]


class AsyncConsumer:
    """Reads records, alone or as a member of a group. Used from one event loop, by one reader at a time.

    Options are those of `ConsumerConfig`, as keywords or as a mapping with Kafka's dotted names. Only records of
    committed transactions are seen unless isolation_level="read_uncommitted".

        async with AsyncConsumer(group_id="billing", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            async for record in consumer:
                print(record.offset, record.value)
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
        self._clock = clock or LoopClock()
        self._core = ConsumerCore(
            self.config,
            connector=connector or default_connector(self.config),
            clock=self._clock,
            random=random or random_module.Random(),
        )
        self._background: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_quietly_after(self.close, error)

    # -- choosing

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Share topics with the group: `topics` by name, or all whose whole name matches `pattern`. Call in the loop."""
        self._core.subscribe(names_of(topics), pattern, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's sharing. Call in the loop."""
        self._core.assign(partitions)

    async def unsubscribe(self) -> None:
        """Give up topics or partitions; leaves the group."""
        await self._core.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return frozenset(self._core.subscribed_topics())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read at present."""
        return frozenset(self._core.subscriptions.partitions)

    # -- reading

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> dict[TopicPartition, list[Record]]:
        """Records by partition; empty if none came within `timeout_ms`, or if a position only passed gaps or aborted records.

        Returns at most `max_records` (None: max_poll_records). With auto commit, what the poll before returned counts
        as done from here on. Raises `NoOffsetForPartitionError` and `OffsetOutOfRangeError` with
        auto_offset_reset="none", `CorruptRecordError`, authorization errors, and what a listener raised.
        """
        limit = self.config.max_poll_records if max_records is None else max_records
        batches = await self._poll(lambda: self._core.take_records(limit), timeout_ms)
        return by_partition(cast("list[Batch] | None", batches))

    getmany = poll  # aiokafka's name

    async def getone(self) -> Record:
        """The next record; waits for one. The record before it counts as done."""
        core = self._core
        while True:
            with core.lock:
                record = None if core.needs_loop else core.cursor.next()
            if record is None:
                record = cast("Record | None", await self._poll(self._first, None))
            if record is not None:
                return record

    async def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int = ARROW_MAX_BYTES, columns: Sequence[str] | None = None
    ) -> "pyarrow.Table":
        """Like `poll`, as one Arrow table with the columns of Spark's Kafka source; `headers` only by `columns`."""
        self._core.end_iteration()
        batches = await self._poll(lambda: self._core.take_arrow(max_bytes, columns), timeout_ms)
        return to_table(cast("list[pyarrow.RecordBatch] | None", batches), columns)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        return await self.getone()

    # -- positions

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record for the application."""
        return await self._core.position(partition, self.config.default_api_timeout_ms)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from `offset`. What is buffered of the partition is dropped."""
        self._core.seek(partition, offset)

    def stop_at(self, partition: TopicPartition, end_offset: int) -> None:
        """Hand out nothing of a partition from `end_offset` on, until the next `seek`. Its `position` tells the end."""
        self._core.stop_at(partition, end_offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read from the first record on; no arguments: all assigned partitions."""
        self._core.seek_to(partitions, "earliest")

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read what comes from here on; no arguments: all assigned partitions."""
        self._core.seek_to(partitions, "latest")

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; the group membership goes on."""
        self._core.pause(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._core.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        return paused(self._core)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._core.list_offsets(partitions, EARLIEST, self.config.default_api_timeout_ms)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; with read_committed, after the last stable one."""
        return await self._core.list_offsets(partitions, LATEST, self.config.default_api_timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each timestamp in milliseconds; None if there is none."""
        return await self._core.offsets_for_times(timestamps, self.config.default_api_timeout_ms)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch."""
        return self._core.subscriptions.state(TopicPartition(*partition)).high_watermark

    def lag(self) -> dict[TopicPartition, int]:
        """Records that each assigned partition still has for this consumer, as of the last fetch; without unknown ones."""
        return self._core.lag()

    # -- committing

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Commit offsets of the next records to read; None: everything that was handed out, the batch in hand too.

        Raises `CommitFailedError` if the partitions went to other members, `RebalanceInProgressError` (poll, then
        commit again), or the last reason after default_api_timeout_ms.
        """
        await self._core.commit(offsets, self.config.default_api_timeout_ms)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit in the background, after the commits before; without a callback a failure is logged."""
        start_commit(self._core, offsets, callback, self._background, self.config.default_api_timeout_ms)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The group's committed offset of a partition; None: nothing committed."""
        found = await self._core.committed([partition], self.config.default_api_timeout_ms)
        offset = found.get(TopicPartition(*partition))
        return None if offset is None else offset.offset

    async def close(self, timeout: float | None = None) -> None:
        """Commit what is done (with auto commit), leave the group, disconnect; at most `timeout` seconds (None: 30).

        The batch in hand is not committed: call `commit` first if it is done. May be repeated.
        """
        call = None if self._core.is_closed else self._core.revocation_call()
        if call is not None:
            await self._call(call)
        limit_ms = CLOSE_TIMEOUT_MS if timeout is None else timeout * 1000
        await self._core.close(limit_ms)
        for task in list(self._background):
            task.cancel()

    # -- inside

    async def _poll(self, take: Callable[[], object], timeout_ms: float | None) -> object:
        core = self._core
        core.begin_poll()
        deadline_ms = float("inf") if timeout_ms is None else self._clock.monotonic_ms() + timeout_ms
        try:
            while True:
                taken, call = await core.next_step(take, deadline_ms)
                if call is None:
                    return taken
                await self._call(call)
        finally:
            core.end_poll()

    def _first(self) -> Record | None:
        core = self._core
        record = core.cursor.next()
        if record is None and core.cursor.load(self.config.max_poll_records):
            record = core.cursor.next()
        return record

    async def _call(self, call: ListenerCall) -> None:
        answer = call.method(call.partitions)
        if inspect.isawaitable(answer):
            await answer


def names_of(topics: str | Iterable[str]) -> list[str]:
    """Topic names as a list; one name may be given by itself."""
    return [topics] if isinstance(topics, str) else list(topics)


def by_partition(batches: list[Batch] | None) -> dict[TopicPartition, list[Record]]:
    return {state.tp: records for state, records, _ in batches or ()}


def paused(core: ConsumerCore) -> frozenset[TopicPartition]:
    return frozenset(tp for tp, state in core.subscriptions.partitions.items() if state.is_paused)


def to_table(batches: "list[pyarrow.RecordBatch] | None", columns: Sequence[str] | None) -> "pyarrow.Table":
    import pyarrow

    from kraftlog.proto.records.arrow import schema

    return pyarrow.Table.from_batches(batches or [], schema=batches[0].schema if batches else schema(columns))


def start_commit(
    core: ConsumerCore,
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
    callback: CommitCallback | None,
    tasks: "set[asyncio.Task[None]]",
    timeout_ms: float,
) -> None:
    """Commit the present positions in a task. Called on the loop."""
    core.check_open()
    frozen = core.commits.positions() if offsets is None else normalized(offsets)

    async def run() -> None:
        error: KraftlogError | None = None
        try:
            await core.commit(frozen, timeout_ms)
        except KraftlogError as failure:
            error = failure
        if callback is not None:
            try:
                callback(frozen, error)
            except Exception:
                log.exception("a commit callback raised")
        elif error is not None:
            log.warning("commit_async failed: %s", error)

    task = asyncio.get_running_loop().create_task(run(), name="commit_async")
    tasks.add(task)
    task.add_done_callback(tasks.discard)
