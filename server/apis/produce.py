"""Producing: check the batches, append them at the leader, and answer when what `acks` asked for holds.

Requests of one stream take effect in the order in which they were sent and are answered as they become safe, matched by
correlation id. Large requests are validated in the executor while later ones arrive; they are still appended in order.

A stream has a byte window of `WINDOW_BYTES`: a request takes its encoded size from it and its answer gives the same
back (`credit_bytes`). A client that sends beyond its window is cut off. Requests with acks=0 are not answered and take
nothing; if one of them fails, the stream ends with its error, as Kafka closes the connection, so that the client
refreshes its metadata.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from kraftlog.logstore import LogConfig
from kraftlog.proto.errors import (
    InvalidRequestError,
    InvalidTopicError,
    KraftlogError,
    UnsupportedVersionError,
    error_for,
)
from kraftlog.proto.hotpath import (
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    Records,
    decode_produce_request,
    encode,
)
from kraftlog.proto.names import is_internal_topic
from kraftlog.proto.records import BatchHeader, validate_batches
from kraftlog.proto.seams import BlockingExecutor, Buffer, CallContext, Stream
from kraftlog.replication.delayed import PendingWrite
from kraftlog.replication.partition import ACKS_ALL, ACKS_NONE, Durability, TopicPartition, check_acks
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.lifecycle import Lifecycle
from kraftlog.server.apis.limits import check_entries

WINDOW_BYTES = 64 << 20  # the stream's initial credit, as broker.proto says
INLINE_VALIDATION_BYTES = 64 << 10  # below it, checking costs less than a trip through the executor
MAX_UNAPPENDED_BYTES = 16 << 20  # of one stream, received but not appended: reading pauses above
DEFAULT_TIMEOUT_MS = 30_000  # for timeout_ms 0: Kafka's request.timeout.ms

Batches = list[tuple[int, BatchHeader]]
Verdict = Batches | KraftlogError
"""What validation of one partition's records found."""


@dataclass(slots=True)
class _Pending:
    """A request between its append and its answer."""

    response: ProduceResponse
    writes: list[tuple[ProduceResult, PendingWrite]]


class ProduceHandler:
    """Answers produce requests. Used from one event loop."""

    def __init__(self, replicas: ReplicaManager, executor: BlockingExecutor, lifecycle: Lifecycle) -> None:
        self._replicas = replicas
        self._executor = executor
        self.lifecycle = lifecycle

    async def produce(self, request: ProduceRequest, context: CallContext) -> ProduceResponse:
        """One request, answered when it is acknowledged; at once with acks=0."""
        verdicts = self.validate_inline(request)
        if verdicts is None:
            verdicts = await self.validate_later(request)
        done: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()

        def completed(response: ProduceResponse) -> None:
            if not done.done():
                done.set_result(response)

        self.append(request, verdicts, completed)
        return await done

    async def produce_stream(self, stream: Stream, context: CallContext) -> None:
        """Serve one pipelined stream until the client ends it."""
        await _ProduceStream(self, stream).run()

    # checking

    def validate_inline(self, request: ProduceRequest) -> list[Verdict] | None:
        """The verdicts, or None if they have to wait: for a partition that is being made, or because the request is so
        large that the executor should find them."""
        check_acks(request.acks)
        check_entries("partitions", request.partitions)
        if request.transactional_id:
            raise UnsupportedVersionError("transactional producing is not available on this broker")
        if self._replicas.is_making(_keys(request)):
            return None
        if sum(len(_buffer(part.records)) for part in request.partitions) > INLINE_VALIDATION_BYTES:
            return None
        return _validate(request, self._configs(request))

    async def validate_later(self, request: ProduceRequest) -> list[Verdict]:
        """As `validate_inline`, when all of its partitions are here, and in the executor."""
        await self._replicas.wait_made(_keys(request), request.timeout_ms or DEFAULT_TIMEOUT_MS)
        configs = self._configs(request)
        return await self._executor.run(lambda: _validate(request, configs))

    def _configs(self, request: ProduceRequest) -> list[LogConfig | KraftlogError]:
        return [self._config(part) for part in request.partitions]

    def _config(self, part: PartitionRecords) -> LogConfig | KraftlogError:
        try:
            if is_internal_topic(part.topic):
                raise InvalidTopicError(f"topic {part.topic} is internal: only the cluster writes to it")
            return self._replicas.leader(part.topic, part.partition).log.config
        except KraftlogError as error:
            return error

    # appending

    def append(
        self, request: ProduceRequest, verdicts: Sequence[Verdict], completed: Callable[[ProduceResponse], None]
    ) -> None:
        """Append now; `completed` is called once, perhaps at once, with the answer."""
        pending = _Pending(ProduceResponse(correlation_id=request.correlation_id), [])
        for part, verdict in zip(request.partitions, verdicts, strict=True):
            self._append_partition(request, part, verdict, pending)
        if request.acks == ACKS_NONE or not pending.writes:
            completed(pending.response)
            return

        def acknowledged() -> None:
            for result, write in pending.writes:
                if write.error is None:
                    result.durability = str(write.durability)
                else:
                    _set_error(result, write.error)
            completed(pending.response)

        self._replicas.acknowledge(
            [write for _, write in pending.writes],
            timeout_ms=request.timeout_ms or DEFAULT_TIMEOUT_MS,
            completed=acknowledged,
        )

    def _append_partition(
        self, request: ProduceRequest, part: PartitionRecords, verdict: Verdict, pending: _Pending
    ) -> None:
        result = ProduceResult(topic=part.topic, partition=part.partition)
        pending.response.partitions.append(result)
        try:
            if isinstance(verdict, KraftlogError):
                raise verdict
            partition = self._replicas.leader(part.topic, part.partition)
            info = self._replicas.append(partition, _buffer(part.records), acks=request.acks, batches=verdict)
        except KraftlogError as error:
            _set_error(result, error)
            return
        result.base_offset = info.first_offset
        result.log_append_time_ms = info.log_append_time_ms
        result.log_start_offset = info.log_start_offset
        result.durability = str(Durability.NONE)
        if request.acks != ACKS_NONE:
            write = PendingWrite(
                partition,
                partition.leader_epoch,
                info.last_offset + 1,
                request.acks,
                outlives_leadership=request.acks == ACKS_ALL,
            )
            pending.writes.append((result, write))


class _ProduceStream:
    """One client's stream: a receiver, an appender and a writer, joined by two queues.

    The receiver appends small requests itself while nothing waits before them; otherwise they queue behind large ones
    that are being validated.
    """

    def __init__(self, handler: ProduceHandler, stream: Stream) -> None:
        self._handler = handler
        self._stream = stream
        self._unappended: deque[_Unappended] = deque()
        self._unappended_bytes = 0
        self._outstanding_bytes = 0
        self._outstanding = 0
        self._answers: deque[ProduceResponse] = deque()
        self._has_room = asyncio.Event()  # for the receiver
        self._to_append = asyncio.Event()  # for the appender
        self._to_write = asyncio.Event()  # for the writer
        self._is_received = False
        self._is_appended = False
        self._refusal: KraftlogError | None = None

    async def run(self) -> None:
        """Serve until all that was received is answered; raises what went wrong first."""
        loop = asyncio.get_running_loop()
        receiver = loop.create_task(self._receive())
        tasks = [receiver, loop.create_task(self._append()), loop.create_task(self._write())]
        try:
            with self._handler.lifecycle.on_stopping(receiver.cancel):
                await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            validations = [each.verdicts for each in self._unappended if isinstance(each.verdicts, asyncio.Task)]
            for task in (*tasks, *validations):
                task.cancel()
            results = await asyncio.gather(*tasks, *validations, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error
        if self._refusal is not None:
            raise self._refusal

    async def _receive(self) -> None:
        lifecycle = self._handler.lifecycle
        try:
            while (message := await self._stream.receive()) is not None:
                self._accept(message)
                while self._unappended_bytes > MAX_UNAPPENDED_BYTES:
                    self._has_room.clear()
                    await self._has_room.wait()
        except asyncio.CancelledError:
            if not lifecycle.is_stopping:
                raise
            self._refusal = lifecycle.refusal()
        self._is_received = True
        self._to_append.set()

    def _accept(self, message: bytes) -> None:
        request = decode_produce_request(message)
        size_bytes = len(message)
        if request.acks != ACKS_NONE:
            self._outstanding += 1
            self._outstanding_bytes += size_bytes
            if self._outstanding_bytes > WINDOW_BYTES:
                raise InvalidRequestError(
                    f"the produce stream has {self._outstanding_bytes} unanswered bytes, above its credit of "
                    f"{WINDOW_BYTES}: wait for answers"
                )
        verdicts = self._handler.validate_inline(request)
        if verdicts is not None and not self._unappended:
            self._take_effect(request, size_bytes, verdicts)
            return
        found: list[Verdict] | asyncio.Task[list[Verdict]]
        if verdicts is None:
            found = asyncio.get_running_loop().create_task(self._handler.validate_later(request))
        else:
            found = verdicts
        self._unappended.append(_Unappended(request, size_bytes, found))
        self._unappended_bytes += size_bytes
        self._to_append.set()

    async def _append(self) -> None:
        while True:
            while self._unappended:
                waiting = self._unappended[0]
                verdicts = waiting.verdicts
                if isinstance(verdicts, asyncio.Task):
                    verdicts = await verdicts
                self._take_effect(waiting.request, waiting.size_bytes, verdicts)
                self._unappended.popleft()
                self._unappended_bytes -= waiting.size_bytes
                self._has_room.set()
            if self._is_received:
                break
            self._to_append.clear()
            await self._to_append.wait()
        self._is_appended = True
        self._to_write.set()

    def _take_effect(self, request: ProduceRequest, size_bytes: int, verdicts: Sequence[Verdict]) -> None:
        if request.acks == ACKS_NONE:
            self._handler.append(request, verdicts, _raise_first_error)
        else:
            self._handler.append(request, verdicts, lambda response: self._answer(response, size_bytes))

    def _answer(self, response: ProduceResponse, size_bytes: int) -> None:
        response.credit_bytes = size_bytes
        self._outstanding -= 1
        self._outstanding_bytes -= size_bytes
        self._answers.append(response)
        self._to_write.set()

    async def _write(self) -> None:
        while True:
            while self._answers:
                await self._stream.send(encode(self._answers.popleft()))
            if self._is_appended and not self._outstanding:
                return
            self._to_write.clear()
            await self._to_write.wait()


@dataclass(slots=True)
class _Unappended:
    """A request that was received and must wait for its validation or for those before it."""

    request: ProduceRequest
    size_bytes: int
    verdicts: "list[Verdict] | asyncio.Task[list[Verdict]]"


def _keys(request: ProduceRequest) -> Iterator[TopicPartition]:
    return ((part.topic, part.partition) for part in request.partitions)


def _validate(request: ProduceRequest, configs: Sequence[LogConfig | KraftlogError]) -> list[Verdict]:
    """Pure; runs in the executor for large requests."""
    return [
        config if isinstance(config, KraftlogError) else _verdict(part, config)
        for part, config in zip(request.partitions, configs, strict=True)
    ]


def _verdict(part: PartitionRecords, config: LogConfig) -> Verdict:
    """Whether the batches are sound in themselves; what the topic asks of them, the log checks."""
    try:
        batches = validate_batches(
            _buffer(part.records),
            max_batch_bytes=config.max_message_bytes,
            full=config.validate_records_fully,
            require_keys=config.is_compacted,
        )
        if any(header.is_transactional for _, header in batches):
            raise UnsupportedVersionError("transactional producing is not available on this broker")
    except KraftlogError as error:
        return type(error)(f"{part.topic}-{part.partition}: {error.message}")
    return batches


def _set_error(result: ProduceResult, error: KraftlogError) -> None:
    result.error_code = int(error.code)
    result.error_message = error.message
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.durability = str(Durability.NONE)


def _raise_first_error(response: ProduceResponse) -> None:
    """End the stream with the error of a request that is not answered."""
    for result in response.partitions:
        if result.error_code:
            raise error_for(result.error_code, result.error_message)


def _buffer(records: Records) -> Buffer:
    """Decoded records are one view; requests that were made in process may hold pieces."""
    if isinstance(records, bytes | bytearray | memoryview):
        return cast(Buffer, records)  # pyright takes a sequence of buffers for a possible memoryview of them
    return b"".join(records)
