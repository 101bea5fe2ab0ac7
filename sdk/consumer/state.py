"""What a consumer knows of its partitions: positions, buffers, pauses. Plain objects; caller holds the consumer's lock."""

import re
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kraftlog.proto.errors import IllegalStateError, KraftlogError
from kraftlog.proto.records import Record
from kraftlog.sdk.consumer.chunks import Chunk
from kraftlog.sdk.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kraftlog.sdk.consumer.fetch_stream import FetchStream


class PartitionState:
    """One assigned partition.

    `position` is the next offset for the application, `fetch_offset` the next one for the broker; between them lies
    `buffer`. A change of position raises `generation`, and chunks of an older one are dropped.
    """

    __slots__ = (
        "buffer",
        "done",
        "error",
        "fetch_offset",
        "generation",
        "high_watermark",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "leader_until_ms",
        "log_start_offset",
        "moves",
        "position",
        "read_epoch",
        "read_replica",
        "read_replica_until_ms",
        "reset_to",
        "retry_at_ms",
        "stop_offset",
        "stream",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position: int | None = None
        """None: to be found from the committed offset or by `reset_to`."""
        self.reset_to: str | None = None
        """`earliest`, `latest` or `by_duration:…` for an asked or forced reset; None: committed offset, then policy."""
        self.done: int | None = None
        """What auto commit may commit: the application has come back for more after everything below it."""
        self.moves = 0
        """Counts changes of position other than by reading, and the end of the assignment."""
        self.is_paused = False
        self.generation = 0
        self.fetch_offset = -1
        self.buffer: deque[Chunk] = deque()
        self.stream: FetchStream | None = None
        """The stream that holds its position; None: not being fetched."""
        self.read_replica: int | None = None
        """The broker that its leader has named to read from (KIP-392); None: the leader."""
        self.read_epoch = -1
        """The leader epoch in which it did."""
        self.read_replica_until_ms = 0.0
        self.leader_until_ms = 0.0
        """Until then only the leader is asked: the follower failed."""
        self.retry_at_ms = 0.0
        self.error: KraftlogError | None = None
        """A failure for `poll` to raise or to act on, once the buffer before it is used up."""
        self.stop_offset: int | None = None
        """Nothing from here on is fetched or handed out; None: no such end."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        self.leader_epoch = -1
        """Epoch of the last record handed out."""

    @property
    def is_fetchable(self) -> bool:
        if self.position is None or self.is_paused or self.error is not None:
            return False
        return self.stop_offset is None or self.fetch_offset < self.stop_offset


class Subscriptions:
    """The consumer's choice of topics or partitions, and the state of what is assigned."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self.is_manual = False
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.filled: OrderedDict[TopicPartition, PartitionState] = OrderedDict()
        """Partitions with a buffer, in turn."""
        self._generation = 0

    @property
    def is_empty(self) -> bool:
        return not (self.topics or self.pattern or self.is_manual)

    @property
    def uses_group(self) -> bool:
        return bool(self.topics or self.pattern)

    def subscribe(self, topics: Iterable[str], pattern: str | re.Pattern[str] | None) -> None:
        if self.is_manual:
            raise IllegalStateError("this consumer has partitions by assign(): unsubscribe() before subscribe()")
        self.topics = tuple(dict.fromkeys(topics))
        self.pattern = re.compile(pattern) if isinstance(pattern, str) else pattern

    def assign_manually(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Take exactly `partitions`; those kept keep their state. Returns the states of what was dropped."""
        if self.uses_group:
            raise IllegalStateError("this consumer has topics by subscribe(): unsubscribe() before assign()")
        self.is_manual = True
        return self.replace(partitions)

    def replace(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        wanted = dict.fromkeys(partitions)
        dropped = [state for tp, state in self.partitions.items() if tp not in wanted]
        for state in dropped:
            self.filled.pop(state.tp, None)
        self.partitions = {tp: self.partitions.get(tp) or PartitionState(tp) for tp in wanted}
        return dropped

    def state(self, tp: TopicPartition) -> PartitionState:
        state = self.partitions.get(tp)
        if state is None:
            raise IllegalStateError(f"{tp} is not assigned to this consumer: assigned are {self._names()}")
        return state

    def next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def add_chunk(self, state: PartitionState, chunk: Chunk) -> None:
        state.buffer.append(chunk)
        self.filled[state.tp] = state

    def clear_buffer(self, state: PartitionState) -> list[Chunk]:
        """Drop what is buffered; the caller returns its credit."""
        chunks = list(state.buffer)
        state.buffer.clear()
        self.filled.pop(state.tp, None)
        return chunks

    def _names(self) -> str:
        names = [str(tp) for tp in self.partitions]
        return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "") if names else "none"


Batch = tuple[PartitionState, list[Record], int]
"""(partition, records, the position after them)"""
ArrowBatch = tuple[PartitionState, "pyarrow.RecordBatch", int]


class Taker:
    """Hands out buffered records; makes no call per record. Caller holds the consumer's lock."""

    def __init__(self, subscriptions: Subscriptions, *, check_crcs: bool) -> None:
        self._subscriptions = subscriptions
        self._check_crcs = check_crcs
        self.used_up: list[Chunk] = []
        """Chunks whose credit is to be returned."""

    def take(self, max_records: int) -> list[Batch]:
        """Up to `max_records`; partitions take turns."""
        batches: list[Batch] = []
        left = max_records
        filled = self._subscriptions.filled
        turns = len(filled)
        while left > 0 and turns > 0 and filled:
            turns -= 1
            tp, state = next(iter(filled.items()))
            try:
                records = self._take_from(state, left)
            except KraftlogError:
                filled.move_to_end(tp)
                if batches:
                    break  # the error comes when this partition is next in turn
                raise
            if records:
                left -= len(records)
                assert state.position is not None
                batches.append((state, records, state.position))
            if state.buffer:
                filled.move_to_end(tp)
            else:
                del filled[tp]
        return batches

    def _take_from(self, state: PartitionState, count: int) -> list[Record]:
        taken: list[Record] = []
        while state.buffer and len(taken) < count:
            chunk = state.buffer[0]
            assert state.position is not None
            try:
                records, is_used_up = chunk.take(
                    state.tp, state.position, count - len(taken), check_crcs=self._check_crcs
                )
            except KraftlogError:
                if taken:
                    break  # raised by the next take
                raise
            if is_used_up:
                state.position = chunk.next_offset
                state.buffer.popleft()
                self.used_up.append(chunk)
            elif records:
                state.position = records[-1].offset + 1
            if records:
                state.leader_epoch = records[-1].leader_epoch
            taken = taken + records if taken else records
        return taken

    def take_arrow(self, max_bytes: int, columns: Sequence[str] | None) -> "list[ArrowBatch]":
        """Whole chunks, at least one if there is any, up to about `max_bytes`; partitions take turns."""
        batches: list[ArrowBatch] = []
        size_bytes = 0
        filled = self._subscriptions.filled
        while size_bytes < max_bytes and filled:
            tp, state = next(iter(filled.items()))
            chunk = state.buffer[0]
            assert state.position is not None
            filled.move_to_end(tp)
            try:
                batch, is_used_up = chunk.take_arrow(tp, state.position, columns, check_crcs=self._check_crcs)
            except KraftlogError:
                if batches:
                    break  # raised by the next take
                raise
            if is_used_up:
                state.position = chunk.next_offset
                state.buffer.popleft()
                self.used_up.append(chunk)
                if not state.buffer:
                    del filled[tp]
            else:  # the good part of a damaged chunk
                state.position = chunk.position_after_good(state.position)
            batches.append((state, batch, state.position))
            size_bytes += chunk.size_bytes
        return batches
