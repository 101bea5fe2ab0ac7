"""The sending side of a producer: from ready batches to produce streams and back to outcomes. Used only on the loop."""

import asyncio
import logging
import math
import struct
from dataclasses import dataclass

import crc32c

from kraftlog.proto import broker_pb2
from kraftlog.proto.errors import (
    DuplicateSequenceNumberError,
    ErrorCode,
    KraftlogError,
    LeaderNotAvailableError,
    NetworkError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceNumberError,
    RequestTimedOutError,
    UnknownProducerIdError,
    UnknownServerError,
    error_class,
    error_for,
)
from kraftlog.proto.hotpath import (
    PartitionRecords,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    decode_produce_response,
    encode,
)
from kraftlog.proto.seams import Clock, Random, Stream
from kraftlog.sdk.config import ProducerConfig
from kraftlog.sdk.metadata import Cluster, ClusterMetadata
from kraftlog.sdk.producer.accumulator import Accumulator, PartitionQueue
from kraftlog.sdk.producer.batch import ProducerBatch
from kraftlog.sdk.types import NodeInfo
from kraftlog.sdk.waiting import Backoff, Tasks, Wakeup, backoff_ms, sleep_ms

log = logging.getLogger("kraftlog.sdk")

PRODUCE_METHOD = "/kraftlog.v1.Broker/ProduceStream"
INIT_PRODUCER_ID_METHOD = "/kraftlog.v1.Broker/InitProducerId"
STREAM_WINDOW_BYTES = 64 * 1024 * 1024  # the protocol's: unanswered bytes of one stream
LEADER_SEARCH_MAX_MS = 250.0  # longest pause between two looks for a new leader: what a producer adds to an election
ANSWER_GRACE_MS = 1_000  # the broker's own time-out answer may come so late
LEADER_DOUBT_MS = 1_000.0  # of an unanswered request; then metadata are asked for as often

_PRODUCER_STATE = struct.Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_STATE_POSITION = 43  # in a record batch v2
_CRC_POSITION = 17
_CRC_START = 21


@dataclass(slots=True)
class _Request:
    correlation_id: int
    batches: dict[tuple[str, int], ProducerBatch]
    size_bytes: int
    sent_at_ms: float


class Sender:
    """Drives the accumulator: sends what is due to the partitions' leaders and settles what comes back."""

    def __init__(
        self, config: ProducerConfig, accumulator: Accumulator, cluster: Cluster, *, clock: Clock, random: Random
    ) -> None:
        self.config = config
        self.accumulator = accumulator
        self.cluster = cluster
        self.clock = clock
        self.random = random
        self.tasks = Tasks()
        self._connections: dict[int, _Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = float("inf")
        first_ms = min(config.retry_backoff_ms, LEADER_SEARCH_MAX_MS)
        self._search_backoff = Backoff(first_ms, min(config.retry_backoff_max_ms, LEADER_SEARCH_MAX_MS), random)
        self._search_at_ms = 0.0
        self._fetching_identity = False
        self._is_closed = False
        cluster.add_listener(self._on_metadata)

    def tick(self) -> None:
        """Look at everything: what became due, what is late, who can send. Cheap enough to be called on any event."""
        if self._is_closed:
            return
        accumulator, now_ms = self.accumulator, self.clock.monotonic_ms()
        with accumulator.lock:
            accumulator.expire_linger(now_ms)
            late = accumulator.expired(now_ms)
            is_searching = self._meet_leaders()
            ready = [queue for queue in accumulator.ready if queue.retry_at_ms <= now_ms]
        for batch in late:
            accumulator.settle(batch)
        if ready:
            self._dispatch(ready)
        self._search(is_searching, now_ms)
        for connection in list(self._connections.values()):
            connection.check_timeout(now_ms)
            connection.check_leaders(now_ms)
        if self.cluster.is_stale(now_ms):
            self.cluster.refresh_soon()
        self._arm_next(now_ms)

    def arm(self, at_ms: float) -> None:
        """Tick at `at_ms` at the latest. A timer that fires too early does no harm: it looks and arms the next one."""
        if at_ms >= self._timer_at_ms or self._is_closed:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(0.0, at_ms - self.clock.monotonic_ms())
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._on_timer)

    async def close(self) -> None:
        """Stop sending. Batches that are left stay unsettled; the owner fails them."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in self._connections.values():
            connection.close()
        await self.tasks.cancel()

    def _dispatch(self, ready: list[PartitionQueue]) -> None:
        if self.accumulator.needs_identity:
            self._fetch_identity()
            return
        for queue in ready:
            leader = self.cluster.metadata.leader(queue.topic, queue.partition)
            if leader is None:
                _note_leaderless(queue)
            else:
                self._connection(leader).wake()

    def _meet_leaders(self) -> bool:
        """End the pauses of partitions that have a new leader; whether others wait for one. Caller holds the lock."""
        is_searching = False
        metadata = self.cluster.metadata
        for queue in self.accumulator.ready:
            if metadata.leader(queue.topic, queue.partition) is None:
                is_searching = True
            elif queue.seeks_leader:
                known = metadata.partition(queue.topic, queue.partition)
                self.accumulator.leader_known(queue, -1 if known is None else known.leader_epoch)
                is_searching |= queue.seeks_leader
        return is_searching

    def _search(self, is_searching: bool, now_ms: float) -> None:
        """Ask for metadata at short intervals while a partition waits for a leader: nobody tells when it has one."""
        if not is_searching:
            self._search_backoff.reset()
            self._search_at_ms = 0.0
        elif now_ms >= self._search_at_ms:
            self._search_at_ms = now_ms + self._search_backoff.next_ms()
            self.cluster.refresh_soon()

    def _connection(self, node: NodeInfo) -> "_Connection":
        connection = self._connections.get(node.node_id)
        if connection is None:
            connection = self._connections[node.node_id] = _Connection(self, node.node_id)
        return connection

    def _arm_next(self, now_ms: float) -> None:
        with self.accumulator.lock:
            deadlines = [self.accumulator.next_deadline_ms(now_ms)]
        if self._search_at_ms:
            deadlines.append(self._search_at_ms)
        deadlines += [connection.deadline_ms() for connection in self._connections.values()]
        self.arm(min((deadline for deadline in deadlines if deadline is not None), default=float("inf")))

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at_ms = float("inf")
        self.tick()

    def _on_metadata(self, _: ClusterMetadata) -> None:
        if self.accumulator.needs_identity and not self._is_closed:
            self._fetch_identity()  # before the first batch is ready
        self.tick()

    # -- the producer id

    def _fetch_identity(self) -> None:
        if not self._fetching_identity:
            self._fetching_identity = True
            self.tasks.start(self._init_producer_id(), "InitProducerId")

    async def _init_producer_id(self) -> None:
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.random)
        request = broker_pb2.InitProducerIdRequest(producer_id=-1, producer_epoch=-1).SerializeToString()
        try:
            while self.accumulator.needs_identity:
                try:
                    timeout_ms = self.config.request_timeout_ms
                    node = await self.cluster.any_node(timeout_ms)
                    data = await self.cluster.call(node, INIT_PRODUCER_ID_METHOD, request, timeout_ms=timeout_ms)
                    answer = broker_pb2.InitProducerIdResponse.FromString(data)
                    if answer.error_code:
                        raise error_for(answer.error_code, answer.error_message)
                except KraftlogError as error:
                    if not (error.retriable or isinstance(error, UnknownServerError)):
                        self._fail_all(error)
                        return
                    self._note_all(error)
                    await sleep_ms(backoff.next_ms())
                else:
                    with self.accumulator.lock:
                        self.accumulator.producer_id = answer.producer_id
                        self.accumulator.producer_epoch = answer.producer_epoch
        finally:
            self._fetching_identity = False
        self.tick()

    def _fail_all(self, error: KraftlogError) -> None:
        with self.accumulator.lock:
            batches = list(self.accumulator.incomplete)
            for batch in batches:
                self.accumulator.fail(batch, error)
        for batch in batches:
            self.accumulator.settle(batch)

    def _note_all(self, error: KraftlogError) -> None:
        with self.accumulator.lock:
            for batch in self.accumulator.incomplete:
                batch.last_error = error


class _Connection:
    """The produce stream to one broker: a writer, and a reader per stream. Used only on the loop."""

    def __init__(self, sender: Sender, node_id: int) -> None:
        self._sender = sender
        self._accumulator = sender.accumulator
        self._config = sender.config
        self._node_id = node_id
        self._wakeup = Wakeup()
        self._stream: Stream | None = None
        self._in_flight: dict[int, _Request] = {}
        self._unanswered_bytes = 0
        self._next_correlation_id = 1
        self._paused_until_ms = 0.0
        self._doubt_at_ms = 0.0
        self._backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, sender.random)
        sender.tasks.start(self._write(), f"producer to broker {node_id}")

    def wake(self) -> None:
        self._wakeup.set()

    def deadline_ms(self) -> float | None:
        """When the oldest unanswered request is given up, or its leader in doubt, or when a throttle ends."""
        if not self._in_flight:
            return self._paused_until_ms if self._paused_until_ms > self._sender.clock.monotonic_ms() else None
        return min(self._give_up_at_ms(), self._next_doubt_ms())

    def _give_up_at_ms(self) -> float:
        return self._oldest.sent_at_ms + self._config.request_timeout_ms + ANSWER_GRACE_MS

    def _next_doubt_ms(self) -> float:
        return max(self._doubt_at_ms, self._oldest.sent_at_ms + LEADER_DOUBT_MS)

    @property
    def _oldest(self) -> _Request:
        return next(iter(self._in_flight.values()))

    def check_leaders(self, now_ms: float) -> None:
        """A broker that hangs says nothing, least of all that another one leads: ask the others, and go on there."""
        if not self._in_flight or now_ms < self._oldest.sent_at_ms + LEADER_DOUBT_MS:
            return
        if self._is_deposed():
            waited_ms = now_ms - self._oldest.sent_at_ms
            text = f"broker {self._node_id} has not answered for {waited_ms:.0f} ms, and another one leads by now"
            self._broken(self._stream, NotLeaderOrFollowerError(text))
        elif now_ms >= self._next_doubt_ms():
            self._doubt_at_ms = now_ms + LEADER_DOUBT_MS
            self._sender.cluster.avoid(self._node_id)
            self._sender.cluster.refresh_soon()

    def _is_deposed(self) -> bool:
        metadata = self._sender.cluster.metadata
        return any(
            (known := metadata.partition(topic, partition)) is not None
            and known.leader_epoch > batch.queue.leader_epoch
            and (leader := metadata.leader(topic, partition)) is not None
            and leader.node_id != self._node_id
            for request in self._in_flight.values()
            for (topic, partition), batch in request.batches.items()
        )

    def check_timeout(self, now_ms: float) -> None:
        if self._in_flight and self._give_up_at_ms() <= now_ms:
            text = (
                f"broker {self._node_id} did not answer a produce request within {self._config.request_timeout_ms} ms"
            )
            self._broken(self._stream, RequestTimedOutError(text))

    def close(self) -> None:
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None

    # -- writing

    async def _write(self) -> None:
        while True:
            await self._wakeup.wait()
            while (request := self._collect()) is not None:
                await self._send(request)

    def _collect(self) -> list[ProducerBatch] | None:
        """Take what may be sent now: at most one batch a partition, up to max_request_size."""
        now_ms = self._sender.clock.monotonic_ms()
        if self._unanswered_bytes >= STREAM_WINDOW_BYTES or now_ms < self._paused_until_ms:
            return None
        metadata = self._sender.cluster.metadata
        batches: list[ProducerBatch] = []
        size_bytes = 0
        with self._accumulator.lock:
            if self._accumulator.needs_identity:
                return None
            for queue in tuple(self._accumulator.ready):
                known = metadata.partition(queue.topic, queue.partition)
                if known is None or known.leader_id != self._node_id:
                    continue
                batch = self._accumulator.take(queue, self._node_id, now_ms, leader_epoch=known.leader_epoch)
                if batch is not None:
                    batches.append(batch)
                    size_bytes += batch.size
                    if size_bytes >= self._config.max_request_size:
                        break
        return batches or None

    async def _send(self, batches: list[ProducerBatch]) -> None:
        partitions = [
            PartitionRecords(batch.queue.topic, batch.queue.partition, records)
            for batch in batches
            if (records := encoded(batch)) is not None
        ]
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        message = encode(
            ProduceRequest(
                correlation_id=correlation_id,
                acks=self._config.wire_acks,
                timeout_ms=self._config.request_timeout_ms,
                partitions=partitions,
            )
        )
        by_partition = {(batch.queue.topic, batch.queue.partition): batch for batch in batches}
        size_bytes = sum(map(len, message))
        request = _Request(correlation_id, by_partition, size_bytes, self._sender.clock.monotonic_ms())
        is_answered = self._config.wire_acks != 0
        if is_answered:
            self._in_flight[correlation_id] = request
            self._unanswered_bytes += size_bytes
            if len(self._in_flight) == 1:
                self._sender.arm(self._next_doubt_ms())
        stream = None
        try:
            stream = self._open()
            await stream.send(message)
        except KraftlogError as error:
            if not is_answered:
                self._retry(request, error)
            self._broken(stream, error)
        else:
            if not is_answered:
                self._settle([(batch, None) for batch in batches])

    def _open(self) -> Stream:
        if self._stream is None:
            node = self._sender.cluster.node(self._node_id)
            if node is None:
                raise NetworkError(f"broker {self._node_id} is no longer part of the cluster")
            self._stream = self._sender.cluster.channel(node).stream(PRODUCE_METHOD)
            self._sender.tasks.start(self._read(self._stream), f"answers of broker {self._node_id}")
        return self._stream

    # -- reading

    async def _read(self, stream: Stream) -> None:
        try:
            while True:
                data = await stream.receive()
                if data is None:
                    raise NetworkError(f"broker {self._node_id} ended the produce stream")
                self._answered(decode_produce_response(data))
        except KraftlogError as error:
            self._broken(stream, error)

    def _answered(self, response: ProduceResponse) -> None:
        if response.throttle_time_ms:
            self._paused_until_ms = self._sender.clock.monotonic_ms() + response.throttle_time_ms
        request = self._in_flight.pop(response.correlation_id, None)
        if request is None:
            return
        self._unanswered_bytes -= request.size_bytes
        self._backoff.reset()
        results = {(result.topic, result.partition): result for result in response.partitions}
        self._settle([(batch, results.get(key) or _missing(key)) for key, batch in request.batches.items()])

    def _settle(self, outcomes: list[tuple[ProducerBatch, ProduceResult | None]]) -> None:
        refresh = False
        needs_tick = False
        metadata = self._sender.cluster.metadata
        with self._accumulator.lock:
            for batch, result in outcomes:
                if result is None:
                    self._accumulator.complete(batch, -1, durability="none")
                elif result.error_code == 0:
                    self._accumulator.complete(
                        batch,
                        result.base_offset,
                        log_append_time_ms=result.log_append_time_ms or -1,
                        durability=result.durability,
                    )
                else:
                    refresh |= self._failed(batch, result)
                    needs_tick = True  # a pause has to end
                if batch.queue in self._accumulator.ready:
                    leader = metadata.leader(batch.queue.topic, batch.queue.partition)
                    needs_tick |= leader is None or leader.node_id != self._node_id  # another connection goes on
        for batch, _ in outcomes:
            if batch.is_done:
                self._accumulator.settle(batch)
        if refresh:
            self._sender.cluster.refresh_soon()
        if needs_tick:
            self._sender.tick()
        self.wake()

    def _failed(self, batch: ProducerBatch, result: ProduceResult) -> bool:
        """Decide on a refused batch; whether metadata must be fetched. Caller holds the accumulator's lock."""
        error = error_for(result.error_code, self._text(batch, result))
        retry_at_ms = self._retry_at_ms(batch.queue, error)
        if isinstance(error, DuplicateSequenceNumberError):
            self._accumulator.complete(batch, -1, durability=result.durability)
        elif isinstance(error, OutOfOrderSequenceNumberError | UnknownProducerIdError) and batch.producer_id >= 0:
            if self._accumulator.out_of_order(batch, error, retry_at_ms):
                log.warning("%s; sent again in a new producer epoch", error)
        elif error.retriable or (isinstance(error, UnknownServerError) and self._config.is_idempotent):
            # an unexpected error may have come after the append: the same sequence makes the retry safe
            self._accumulator.retry(batch, error, retry_at_ms)
        else:
            self._accumulator.fail(batch, error)
        return error.refresh_metadata

    def _retry_at_ms(self, queue: PartitionQueue, error: KraftlogError) -> float:
        """When the partition's batches are sent again: those that were under way together are refused one after the other,
        and pause together. A leader that does not know yet that it leads will know soon."""
        now_ms = self._sender.clock.monotonic_ms()
        if queue.retry_at_ms > now_ms:
            return queue.retry_at_ms
        config = self._config
        last_ms = min(config.retry_backoff_max_ms, LEADER_SEARCH_MAX_MS if error.refresh_metadata else math.inf)
        first_ms = min(config.retry_backoff_ms, last_ms)
        queue.refusals += 1
        return now_ms + backoff_ms(queue.refusals - 1, first_ms, last_ms, self._sender.random)

    def _text(self, batch: ProducerBatch, result: ProduceResult) -> str:
        name = error_class(result.error_code).code.name
        place = f"broker {self._node_id}, {batch.queue.topic}-{batch.queue.partition}"
        return f"{place}: {result.error_message or name}"

    # -- failing

    def _broken(self, stream: Stream | None, error: KraftlogError) -> None:
        """The stream is gone: what was under way has an unknown outcome and is sent again."""
        if stream is not self._stream and stream is not None:
            return
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        log.debug("produce stream to broker %d: %s", self._node_id, error)
        requests, self._in_flight = list(self._in_flight.values()), {}
        self._unanswered_bytes = 0
        pause_ms = self._backoff.next_ms()
        for request in requests:
            self._retry(request, error, pause_ms)
        self._sender.cluster.avoid(self._node_id)
        self._sender.cluster.refresh_soon()
        self._sender.tick()

    def _retry(self, request: _Request, error: KraftlogError, pause_ms: float = 0.0) -> None:
        retry_at_ms = self._sender.clock.monotonic_ms() + pause_ms
        is_final = not error.retriable and not isinstance(error, UnknownServerError)
        batches = list(request.batches.values())
        with self._accumulator.lock:
            for batch in batches:
                if is_final:
                    self._accumulator.fail(batch, error)
                else:
                    self._accumulator.retry(batch, error, retry_at_ms)
        for batch in batches:
            if batch.is_done:
                self._accumulator.settle(batch)


def encoded(batch: ProducerBatch) -> bytes | None:
    """The batch's bytes with its present identity; None if it was settled meanwhile."""
    stamp = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
    builder, records = batch.builder, batch.records
    if records is None:
        if builder is None:
            return None
        records = builder.build(producer_id=stamp[0], producer_epoch=stamp[1], base_sequence=stamp[2])
        batch.drop_builder()
    elif batch.stamp != stamp:
        records = restamped(records, *stamp)
    batch.records, batch.stamp = records, stamp
    return records


def restamped(records: bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
    """A copy of one record batch with another producer id, epoch and sequence, and the CRC that belongs to them."""
    copy = bytearray(records)
    _PRODUCER_STATE.pack_into(copy, _PRODUCER_STATE_POSITION, producer_id, producer_epoch, base_sequence)
    struct.pack_into(">I", copy, _CRC_POSITION, crc32c.crc32c(memoryview(copy)[_CRC_START:]))
    return bytes(copy)


def _missing(key: tuple[str, int]) -> ProduceResult:
    code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    return ProduceResult(key[0], key[1], code, "the broker's answer does not name this partition")


def _note_leaderless(queue: PartitionQueue) -> None:
    batch = queue.waiting[0] if queue.waiting else queue.open
    if batch is not None:
        batch.last_error = LeaderNotAvailableError(f"{queue.topic}-{queue.partition} has no known leader")
