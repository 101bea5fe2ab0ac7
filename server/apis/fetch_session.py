"""The state of one fetch stream: positions, their generations, byte credit, and what to send next.

A stream is pull: the client grants credit in bytes of records, the broker sends messages as data come, without a round
trip per message. Each message carries many partitions, at most `max_bytes` together, and partitions take turns: one
that was served goes to the end of the line, so that a busy partition cannot starve the others.

Rules:

- A position has a generation. A `set` with a generation that is not above the present one is void. Chunks repeat the
  generation, so that a client drops those of a position that it gave up meanwhile.
- Nothing is sent without credit. Credit may be overdrawn by one batch, because a batch is never cut.
- After an error, a divergence, the name of a nearer replica or the end of its range a position is gone until the client sets
  it again.
- With fewer than `min_bytes` at hand the session waits up to `max_wait_ms` from the moment it first had something.

Pure: the log is read through a callable, time comes in as `now_ms`, the next deadline goes out.
Used from one event loop.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.hotpath import FetchChunk, FetchControl, FetchPosition, FetchRequest, PartitionChunk

TopicPartition = tuple[str, int]

DEFAULT_PARTITION_MAX_BYTES = 1 << 20  # Kafka's max.partition.fetch.bytes
MAX_POSITIONS = 10_000  # of one stream; a control message for all of them stays below 1 MB
MAX_CREDIT_BYTES = 1 << 40  # more is a mistake, and sums stay small
READ_COMMITTED = 1


@dataclass(slots=True)
class StreamPosition:
    """Where one partition of the stream is read; the fields of `FetchPosition`, moving on as chunks are sent."""

    key: TopicPartition
    fetch_offset: int
    generation: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    end_offset: int
    """Exclusive; 0: none."""
    any_replica: bool = False
    """Whether the reader takes another replica than the leader (KIP-392)."""

    @classmethod
    def of(cls, position: FetchPosition) -> "StreamPosition":
        return cls(
            key=(position.topic, position.partition),
            fetch_offset=position.fetch_offset,
            generation=position.generation,
            max_bytes=position.max_bytes or DEFAULT_PARTITION_MAX_BYTES,
            current_leader_epoch=position.current_leader_epoch,
            last_fetched_epoch=position.last_fetched_epoch,
            end_offset=position.end_offset,
            any_replica=position.any_replica,
        )

    def is_finished(self, next_offset: int) -> bool:
        """Whether the asked range ends at or before `next_offset`."""
        return 0 < self.end_offset <= next_offset


@dataclass(slots=True)
class PartitionRead:
    """What one look at a partition gave."""

    chunk: PartitionChunk
    size_bytes: int
    """Bytes of `chunk.records`."""
    visible_end: int
    """Exclusive end of what this reader may see now; a reader that is there has nothing more to get for the moment."""
    is_final: bool = False
    """An error, a divergence or another replica to read from: the position ends with this chunk."""


ReadPartition = Callable[[StreamPosition, int, bool], PartitionRead]
"""(position, max_bytes, at_least_one_batch) -> what is there. Errors are codes in the chunk, never raised."""


class FetchSession:
    """See the module's text. `control` and `data_available` take input; `poll` says what to send."""

    def __init__(self, params: FetchRequest, *, max_message_bytes: int) -> None:
        self._min_bytes = max(1, params.min_bytes)
        self._max_wait_ms = params.max_wait_ms
        self._max_bytes = min(params.max_bytes or max_message_bytes, max_message_bytes)
        self.read_committed = params.isolation_level == READ_COMMITTED
        self.rack = params.rack
        self._positions: dict[TopicPartition, StreamPosition] = {}
        self._ready: OrderedDict[TopicPartition, None] = OrderedDict()  # the line of partitions to look at
        self._held_since_ms: float | None = None
        self.credit_bytes = 0
        """What may be sent yet; below zero after a batch that was larger than what was left."""
        self.next_deadline_ms: float | None = None
        """When `poll` must be called again even if nothing happens; None: only an event changes anything."""

    @property
    def keys(self) -> frozenset[TopicPartition]:
        """The partitions that have a position."""
        return frozenset(self._positions)

    def control(self, message: FetchControl) -> None:
        """Take a client's message: positions given up, positions set, credit granted, in this order."""
        for named in message.forget:
            key = (named.topic, named.partition)
            self._positions.pop(key, None)
            self._ready.pop(key, None)
        for position in message.set:
            self._set(position)
        self.credit_bytes = min(self.credit_bytes + message.credit_bytes, MAX_CREDIT_BYTES)

    def data_available(self, key: TopicPartition) -> bool:
        """Something changed on a partition: look at it in the next poll; returns whether it has a position."""
        if key not in self._positions:
            return False
        self._ready[key] = None
        return True

    def upcoming(self) -> list[StreamPosition]:
        """The positions that the next poll may read, first things first."""
        found: list[StreamPosition] = []
        size_bytes = 0
        budget = min(self._max_bytes, self.credit_bytes)
        for key in self._ready:
            if size_bytes >= budget:
                break
            found.append(self._positions[key])
            size_bytes += found[-1].max_bytes
        return found

    def poll(self, read: ReadPartition, now_ms: float) -> FetchChunk | None:
        """The next message, or None if there is none now; then see `next_deadline_ms`."""
        self.next_deadline_ms = None
        if self.credit_bytes <= 0:
            return None
        budget = min(self._max_bytes, self.credit_bytes)
        served, size_bytes = self._collect(read, budget)
        if not served:
            self._held_since_ms = None
            return None
        if size_bytes < min(self._min_bytes, budget) and not any(found.is_final for _, found in served):
            if self._held_since_ms is None:
                self._held_since_ms = now_ms
            deadline_ms = self._held_since_ms + self._max_wait_ms
            if now_ms < deadline_ms:
                self.next_deadline_ms = deadline_ms
                for position, _ in reversed(served):
                    self._enqueue_first(position.key)
                return None
        self._held_since_ms = None
        self.credit_bytes -= size_bytes
        for position, found in served:
            self._advance(position, found)
        return FetchChunk(partitions=[found.chunk for _, found in served])

    def _collect(self, read: ReadPartition, budget: int) -> tuple[list[tuple[StreamPosition, PartitionRead]], int]:
        """Look at the partitions in line until the message is full; those that have nothing leave the line."""
        served: list[tuple[StreamPosition, PartitionRead]] = []
        size_bytes = 0
        while self._ready and size_bytes < budget:
            key, _ = self._ready.popitem(last=False)
            position = self._positions[key]
            found = read(position, min(position.max_bytes, budget - size_bytes), size_bytes == 0)
            next_offset = found.chunk.next_offset
            found.is_final = found.is_final or position.is_finished(next_offset)
            if found.size_bytes or found.is_final:
                found.chunk.generation = position.generation
                served.append((position, found))
                size_bytes += found.size_bytes
            elif next_offset > position.fetch_offset:
                position.fetch_offset = next_offset  # a gap that holds no records
                if next_offset < found.visible_end:
                    self._enqueue_first(key)
            elif next_offset < found.visible_end:
                self._enqueue_first(key)  # its next batch does not fit in what is left of this message
                break
        return served, size_bytes

    def _advance(self, position: StreamPosition, found: PartitionRead) -> None:
        if found.is_final:
            del self._positions[position.key]
            return
        position.fetch_offset = found.chunk.next_offset
        position.last_fetched_epoch = -1  # checked once: from here on the reader's history is this log's
        if position.fetch_offset < found.visible_end:
            self._ready[position.key] = None

    def _set(self, position: FetchPosition) -> None:
        key = (position.topic, position.partition)
        present = self._positions.get(key)
        if present is not None and position.generation <= present.generation:
            return
        if present is None and len(self._positions) >= MAX_POSITIONS:
            raise InvalidRequestError(f"a fetch stream holds at most {MAX_POSITIONS} positions: open another stream")
        self._positions[key] = StreamPosition.of(position)
        self._ready[key] = None

    def _enqueue_first(self, key: TopicPartition) -> None:
        self._ready[key] = None
        self._ready.move_to_end(key, last=False)
