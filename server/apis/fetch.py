"""Fetching: one-off long polls and streams, over the same look at a partition.

A unary fetch ends by the broker's deadline (`max_wait_ms`); a stream is described in `fetch_session`. Records that may
have to come from the disk are read once in the executor first (and thrown away), so that the read on the event loop
finds them in the page cache.
"""

import asyncio
from collections.abc import Sequence

from kraftlog.proto.errors import InvalidRequestError, KraftlogError, StorageError
from kraftlog.proto.hotpath import (
    AbortedTransaction,
    FetchChunk,
    FetchRequest,
    PartitionChunk,
    decode_fetch_control,
    encode,
)
from kraftlog.proto.seams import CallContext, Clock, Stream
from kraftlog.replication.cold_reads import ColdRange
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.purgatory import DelayedOperation
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.fetch_session import (
    READ_COMMITTED,
    FetchSession,
    PartitionRead,
    StreamPosition,
)
from kraftlog.server.apis.lifecycle import Lifecycle
from kraftlog.server.apis.limits import check_entries
from kraftlog.server.apis.nearer_replica import nearer_replica

MAX_WARMED = 16  # partitions of a unary fetch that are read ahead; more do not fit in a message of usual size
MAX_WAIT_MS = 300_000  # a longer poll would outlive every proxy on the way; the client polls again


class FetchHandler:
    """Answers fetch requests. Used from one event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        lifecycle: Lifecycle,
        *,
        max_message_bytes: int,
        reads_by_rack: bool = True,
    ) -> None:
        """`reads_by_rack`: whether leaders send readers to replicas in their own rack."""
        self._reads_by_rack = reads_by_rack
        self._replicas = replicas
        self._clock = clock
        self.lifecycle = lifecycle
        self._max_message_bytes = max_message_bytes

    async def fetch(self, request: FetchRequest, context: CallContext) -> FetchChunk:
        """One message: at least `min_bytes` if they come within `max_wait_ms`, else what there is."""
        check_fetch(request)
        await self.warm([StreamPosition.of(position) for position in request.partitions[:MAX_WARMED]])
        done: asyncio.Future[FetchChunk] = asyncio.get_running_loop().create_future()
        operation = _DelayedFetch(self, request, self._clock.monotonic_ms(), self._max_message_bytes, done)
        keys = [(position.topic, position.partition) for position in request.partitions]
        with self.lifecycle.on_stopping(operation.force_complete):
            self._replicas.wait_for_data(operation, keys)
            try:
                return await done
            finally:
                operation.force_complete()  # also where the client has gone

    async def fetch_stream(self, stream: Stream, context: CallContext) -> None:
        """Serve one fetch stream until the client ends it."""
        first = await stream.receive()
        if first is None:
            return
        control = decode_fetch_control(first)
        if control.params is None:
            raise InvalidRequestError("the first message of a fetch stream must set params")
        check_fetch(control.params)
        session = FetchSession(control.params, max_message_bytes=self._max_message_bytes)
        await _FetchStream(self, self._replicas, self._clock, stream, session).run(first)

    async def warm(self, positions: Sequence[StreamPosition]) -> None:
        """Have the disk do its part off the loop, for those positions that are not known to be in the page cache."""
        cold = [
            ColdRange(partition, position.fetch_offset, position.max_bytes, partition.high_watermark)
            for position in positions
            if (partition := self._replicas.partitions.get(position.key)) is not None
            and position.fetch_offset < partition.hot_offset
        ]
        await self._replicas.cold_reads.read(cold)

    def read(
        self,
        position: StreamPosition,
        max_bytes: int,
        at_least_one_batch: bool,
        *,
        read_committed: bool,
        rack: str = "",
    ) -> PartitionRead:
        """Look at one partition. Errors are codes in the chunk. `rack`: the reader's."""
        topic, number = position.key
        chunk = PartitionChunk(topic=topic, partition=number, generation=position.generation, diverging_epoch=-1)
        chunk.next_offset = position.fetch_offset
        try:
            if self._replicas.is_being_made(topic, number):
                return PartitionRead(chunk, 0, 0)  # nothing yet: whoever watches it is told when it is here
            partition = self._replicas.partition(topic, number)
            partition.check_readable(position.current_leader_epoch, from_follower=position.any_replica)
            self._replicas.check_sound(partition)
            _describe(chunk, partition)
            nearer = self._nearer(partition, position, rack)
            if nearer is not None:
                chunk.preferred_read_replica = nearer + 1
                return PartitionRead(chunk, 0, chunk.high_watermark, is_final=True)
            diverging = partition.diverging_epoch(position.last_fetched_epoch, position.fetch_offset)
            if diverging is not None:
                chunk.diverging_epoch, chunk.diverging_end_offset = diverging
                return PartitionRead(chunk, 0, chunk.high_watermark, is_final=True)
            return _read_records(chunk, partition, position, max_bytes, at_least_one_batch, read_committed)
        except KraftlogError as error:
            if isinstance(error, StorageError):
                self._replicas.look_at_failure(self._replicas.partition(topic, number))
            chunk.error_code = int(error.code)
            chunk.error_message = error.message
            return PartitionRead(chunk, 0, 0, is_final=True)

    def _nearer(self, partition: Partition, position: StreamPosition, rack: str) -> int | None:
        if not (rack and position.any_replica and partition.is_leader and self._reads_by_rack):
            return None
        return nearer_replica(partition, self._replicas.image.brokers, rack, position.fetch_offset)


def check_fetch(request: FetchRequest) -> None:
    """Raise `InvalidRequestError` for parameters that make no sense."""
    check_entries("positions", request.partitions)
    if request.max_wait_ms > MAX_WAIT_MS:
        raise InvalidRequestError(f"max_wait_ms={request.max_wait_ms} exceeds the maximum {MAX_WAIT_MS}")
    if request.isolation_level not in (0, READ_COMMITTED):
        raise InvalidRequestError(f"isolation_level={request.isolation_level} is not valid: use 0 or 1")


def _describe(chunk: PartitionChunk, partition: Partition) -> None:
    chunk.high_watermark = partition.high_watermark
    chunk.last_stable_offset = partition.last_stable_offset
    chunk.log_start_offset = partition.log.log_start_offset


def _read_records(
    chunk: PartitionChunk,
    partition: Partition,
    position: StreamPosition,
    max_bytes: int,
    at_least_one_batch: bool,
    read_committed: bool,
) -> PartitionRead:
    visible_end = partition.visible_end(read_committed=read_committed)
    found = partition.read(
        position.fetch_offset,
        max_bytes,
        read_committed=read_committed,
        end_offset=position.end_offset or None,
        at_least_one_batch=at_least_one_batch,
    )
    chunk.records = found.records
    chunk.next_offset = found.next_offset
    if read_committed and found.records:
        chunk.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in partition.log.aborted_transactions(position.fetch_offset, found.next_offset)
        ]
    return PartitionRead(chunk, len(found.records), visible_end)


class _DelayedFetch(DelayedOperation):
    """A unary fetch that waits for `min_bytes`."""

    def __init__(
        self,
        handler: FetchHandler,
        request: FetchRequest,
        now_ms: float,
        max_message_bytes: int,
        done: "asyncio.Future[FetchChunk]",
    ) -> None:
        super().__init__(now_ms + request.max_wait_ms)
        self._handler = handler
        self._positions = [StreamPosition.of(position) for position in request.partitions]
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._rack = request.rack
        self._max_bytes = min(request.max_bytes or max_message_bytes, max_message_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._done = done
        self._found: Sequence[PartitionRead] | None = None

    def try_complete(self) -> bool:
        found = self._read()
        enough = sum(read.size_bytes for read in found) >= self._min_bytes
        if not (enough or not found or any(read.is_final for read in found)):
            return False
        self._found = found
        return self.force_complete()

    def on_complete(self) -> None:
        if not self._done.done():
            found = self._read() if self._found is None else self._found
            self._done.set_result(FetchChunk(partitions=[read.chunk for read in found]))

    def on_failure(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def _read(self) -> Sequence[PartitionRead]:
        found: list[PartitionRead] = []
        size_bytes = 0
        for position in self._positions:
            room = max(0, min(position.max_bytes, self._max_bytes - size_bytes))
            read = self._handler.read(
                position, room, size_bytes == 0, read_committed=self._read_committed, rack=self._rack
            )
            size_bytes += read.size_bytes
            found.append(read)
        return found


class _FetchStream:
    """Drives one session: controls in, messages out, partitions watched."""

    def __init__(
        self, handler: FetchHandler, replicas: ReplicaManager, clock: Clock, stream: Stream, session: FetchSession
    ) -> None:
        self._handler = handler
        self._replicas = replicas
        self._clock = clock
        self._stream = stream
        self._session = session
        self._watched: set[TopicPartition] = set()
        self._wake = asyncio.Event()
        self._is_finished = False

    async def run(self, first: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._control(first)
        receiver = loop.create_task(self._receive())
        sender = loop.create_task(self._send())
        tasks = [receiver, sender]
        try:
            with self._handler.lifecycle.on_stopping(self._wake.set):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._watch(frozenset())  # before anything is awaited: a second cancellation would end this block there
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error

    async def _receive(self) -> None:
        while (message := await self._stream.receive()) is not None:
            self._control(message)

    def _control(self, message: bytes) -> None:
        self._session.control(decode_fetch_control(message))
        self._watch(self._session.keys)
        self._wake.set()

    def _watch(self, keys: frozenset[TopicPartition]) -> None:
        for key in sorted(self._watched - keys):
            self._replicas.unsubscribe(key, self._on_progress)
        for key in sorted(keys - self._watched):
            self._replicas.subscribe(key, self._on_progress)
        self._watched = set(keys)

    def _on_progress(self, key: TopicPartition) -> None:
        if self._session.data_available(key):
            self._wake.set()

    def _read(self, position: StreamPosition, max_bytes: int, at_least_one_batch: bool) -> PartitionRead:
        session = self._session
        return self._handler.read(
            position, max_bytes, at_least_one_batch, read_committed=session.read_committed, rack=session.rack
        )

    async def _send(self) -> None:
        lifecycle = self._handler.lifecycle
        while not lifecycle.is_stopping:
            await self._handler.warm(self._session.upcoming())
            chunk = self._session.poll(self._read, self._clock.monotonic_ms())
            if chunk is not None:
                await self._stream.send(encode(chunk))
                continue
            self._wake.clear()
            await self._wait(self._session.next_deadline_ms)
        raise lifecycle.refusal()

    async def _wait(self, deadline_ms: float | None) -> None:
        if deadline_ms is None:
            await self._wake.wait()
            return
        timer = self._replicas.timers.add(deadline_ms, lambda _now: self._wake.set())
        try:
            await self._wake.wait()
        finally:
            self._replicas.timers.cancel(timer)
