"""What a leader broker sends to one follower broker: the state of one replica stream, at the leader's end.

Rules:

- A `Follow` is checked once: leader epoch, membership, and by the epoch of its last record that its history is the
  leader's up to there (KIP-101, 320). From then on the records follow each other, so nothing has to be checked again; when
  the leader's epoch ends, so does every `follow_id` of it.
- Records go out only within the credit that the follower granted. Credit may be overdrawn by one batch, because a batch is
  never cut. Partitions take turns.
- Where a throttle holds (`quota`), the leader's or the follower's, records wait in a line for a turn or for the credit of
  throttled partitions, and those of other partitions pass by. Nothing is throttled for which the high watermark waits.
- The high watermark and the log's start travel with records, and by themselves when there are none to send.
- Reports count for the leader epoch in which the `follow_id` was begun, and never go back.

Pure: partitions are looked up through a callable, time comes in as `now_ms`. Used from one event loop.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kraftlog.proto.errors import (
    ErrorCode,
    InvalidRequestError,
    KraftlogError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    StorageError,
    code_of,
)
from kraftlog.proto.records import read_header
from kraftlog.proto.replica_frames import (
    ReplicaBody,
    ReplicaCredit,
    ReplicaDivergence,
    ReplicaFollow,
    ReplicaProgress,
    ReplicaRecords,
    ReplicaRefusal,
    ReplicaReport,
    ReplicaThrottle,
    ReplicaUnfollow,
)
from kraftlog.replication.cold_reads import ColdRange
from kraftlog.replication.in_sync import ReplicaEnds
from kraftlog.replication.partition import NO_EPOCH, Partition, TopicPartition
from kraftlog.replication.quota import ReplicationQuota

MAX_FOLLOWS = 100_000  # of one stream
MAX_CREDIT_BYTES = 1 << 40  # more is a mistake, and sums stay small
MAX_READ_BYTES = 1 << 20  # of one partition before the next has its turn
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)


@dataclass(slots=True)
class _Follow:
    follow_id: int
    partition: Partition
    leader_epoch: int
    next_offset: int
    told_high_watermark: int = -1
    told_start_offset: int = -1
    is_throttled: bool = False
    """By the follower."""

    @property
    def is_cold(self) -> bool:
        """Whether its next records may have to come from the disk."""
        return self.partition.log.log_end_offset > self.next_offset and self.next_offset < self.partition.hot_offset


class _Brakes(NamedTuple):
    """Which throttles hold for a partition on this stream."""

    by_leader: bool
    by_follower: bool


_FREE = _Brakes(by_leader=False, by_follower=False)

PartitionOf = Callable[[bytes, int], Partition]
"""(topic id, number) -> the replica. Raises a `KraftlogError`."""


class FollowerFeed:
    """See the module's text. `receive` and `data_available` take input; `poll` says what to send."""

    def __init__(
        self,
        follower_id: int,
        broker_epoch: int,
        *,
        partition_of: PartitionOf,
        quota: ReplicationQuota,
        on_ends: Callable[[Partition, bool], None],
        on_unreadable: Callable[[Partition], None],
    ) -> None:
        """`quota`: this broker's as leader. `on_ends`: a follower's ends have changed; true: the high watermark has moved. `on_unreadable`: the disk did not
        give back what is in the log."""
        self.follower_id = follower_id
        self.broker_epoch = broker_epoch
        self._partition_of = partition_of
        self._quota = quota
        self._on_ends = on_ends
        self._on_unreadable = on_unreadable
        self._follows: dict[int, _Follow] = {}
        self._by_key: dict[TopicPartition, _Follow] = {}
        self._last_id = 0
        self._ready: OrderedDict[int, None] = OrderedDict()  # the line of partitions to look at
        self._held: OrderedDict[int, None] = OrderedDict()
        """The line of those that wait for a turn."""
        self._turn_ms: float | None = None
        """When the next of them may go on; None: nobody has asked since the last turn."""
        self._short: OrderedDict[int, None] = OrderedDict()
        """The line of those that wait for the credit of throttled partitions."""
        self._answers: list[ReplicaBody] = []
        self.credit_bytes = 0
        self.throttled_credit_bytes = 0

    @property
    def keys(self) -> frozenset[TopicPartition]:
        """The partitions that are followed."""
        return frozenset(self._by_key)

    def receive(self, body: ReplicaBody, now_ms: float) -> None:
        """Take one frame. Raises `InvalidRequestError`, which ends the stream."""
        match body:
            case ReplicaReport():
                self._report(body, now_ms)
            case ReplicaCredit():
                self.credit_bytes = min(self.credit_bytes + body.bytes, MAX_CREDIT_BYTES)
                self.throttled_credit_bytes = min(self.throttled_credit_bytes + body.throttled_bytes, MAX_CREDIT_BYTES)
            case ReplicaFollow():
                self._begin(body, now_ms)
            case ReplicaThrottle():
                self._throttle(body)
            case ReplicaUnfollow():
                self._drop(body.follow_id)
            case _:
                raise InvalidRequestError(f"a follower sent {type(body).__name__}, which is a leader's to send")

    def data_available(self, key: TopicPartition) -> bool:
        """Something changed on a partition: look at it in the next poll; returns whether it is followed."""
        follow = self._by_key.get(key)
        if follow is None:
            return False
        self._ready[follow.follow_id] = None
        return True

    def throttle_changed(self) -> None:
        """The leader's rate is another one: look at what waits for it in the next poll."""
        self._turn_ms = None
        self._ready.update(self._held)
        self._held.clear()

    def cold_ranges(self, now_ms: float) -> list[ColdRange]:
        """What the next poll may have to read from the disk: to be read before, off the loop."""
        if self.credit_bytes <= 0:
            return []
        line = self._open_line(now_ms)
        heads = [] if line is None else [next(iter(line))]
        found: list[ColdRange] = []
        for follow in (self._follows[follow_id] for follow_id in dict.fromkeys([*heads, *self._ready])):
            if follow.is_cold and self._line_for(brakes := self._brakes(follow), now_ms) is None:
                partition, size_bytes = follow.partition, self._read_bytes(brakes)
                found.append(
                    ColdRange(
                        partition,
                        max(follow.next_offset, partition.log.log_start_offset),
                        size_bytes,
                        partition.log.log_end_offset,
                    )
                )
        return found

    @property
    def next_deadline_ms(self) -> float | None:
        """When `poll` has something to say even if nothing happens."""
        return self._turn_ms if self._held and self.credit_bytes > 0 else None

    def poll(self, now_ms: float, max_bytes: int) -> list[ReplicaBody]:
        """The next frames, with records of about `max_bytes` in all; empty: there is nothing to say now."""
        frames, self._answers = self._answers, []
        starved: list[int] = []
        size_bytes = 0
        while size_bytes < max_bytes and (follow_id := self._next(now_ms)) is not None:
            follow = self._follows[follow_id]
            try:
                self._check_leads(follow)
                if follow.next_offset < follow.partition.log.log_end_offset:
                    brakes = self._brakes(follow)
                    if self.credit_bytes <= 0:
                        starved.append(follow_id)  # what it lacks comes when there is credit
                    elif (line := self._line_for(brakes, now_ms)) is not None:
                        line.setdefault(follow_id, None)
                    else:
                        size_bytes += self._read(follow, frames, brakes, now_ms)
                        continue
                frames += self._progress(follow)  # where the leader is, now
            except KraftlogError as error:
                if isinstance(error, StorageError):
                    self._on_unreadable(follow.partition)
                self._drop(follow_id)
                frames.append(_refusal(follow_id, error, follow.partition))
        for follow_id in starved:
            self._ready[follow_id] = None
        return frames

    # --- following

    def _begin(self, body: ReplicaFollow, now_ms: float) -> None:
        if body.follow_id <= self._last_id:
            raise InvalidRequestError(f"follow_id {body.follow_id} is not above the last one, {self._last_id}")
        self._last_id = body.follow_id
        try:
            partition = self._partition_of(bytes(body.topic_id), body.partition)
        except KraftlogError as error:
            self._answers.append(_refusal(body.follow_id, error, None))
            return
        former = self._by_key.get(partition.key)
        if former is not None:
            self._drop(former.follow_id)
        elif len(self._follows) >= MAX_FOLLOWS:
            raise InvalidRequestError(f"a replica stream follows at most {MAX_FOLLOWS} partitions")
        try:
            self._check_follow(partition, body)
            begin_offset = _begin_offset(partition, body)
        except KraftlogError as error:
            self._answers.append(_refusal(body.follow_id, error, partition))
            return
        if begin_offset < body.log_end_offset:
            message = (
                f"broker {partition.node_id}, {partition}: offset {body.log_end_offset} lies in the midst of the batch at "
                f"{begin_offset}, which is copied as a whole"
            )
            self._answers.append(ReplicaRefusal(body.follow_id, _OUT_OF_RANGE, message, begin_offset))
            return
        diverging = partition.diverging_epoch(body.last_epoch, body.log_end_offset)
        if diverging is not None:
            self._answers.append(ReplicaDivergence(body.follow_id, *diverging))
            return
        follow = _Follow(body.follow_id, partition, partition.leader_epoch, body.log_end_offset)
        self._follows[body.follow_id] = self._by_key[partition.key] = follow
        self._ready[body.follow_id] = None
        self._take_ends(follow, body, now_ms)

    def _check_follow(self, partition: Partition, body: ReplicaFollow) -> None:
        partition.check_leader(body.leader_epoch)
        if self.follower_id not in partition.replicas:
            raise NotLeaderOrFollowerError(
                f"broker {partition.node_id}: broker {self.follower_id} has no replica of {partition}, as far as is known"
            )
        log = partition.log
        if not 0 <= body.flushed_end_offset <= body.log_end_offset:
            raise InvalidRequestError(
                f"{partition}: flushed end {body.flushed_end_offset} of a log that ends at {body.log_end_offset}"
            )
        is_beyond = body.log_end_offset > log.log_end_offset and body.last_epoch < 0
        is_before = body.log_end_offset < log.log_start_offset and body.log_end_offset != _first_batch_offset(partition)
        if is_before or is_beyond:
            raise OffsetOutOfRangeError(
                f"broker {partition.node_id}, {partition}: offset {body.log_end_offset} is outside of "
                f"[{log.log_start_offset}, {log.log_end_offset}]"
            )
        if body.log_end_offset <= log.log_start_offset:
            self._check_last_record(partition, body)

    @staticmethod
    def _check_last_record(partition: Partition, body: ReplicaFollow) -> None:
        """Where all that the follower has was deleted here, its last record must be the one that was there: else it has what was
        never committed, and would take a producer's retry for one that is stored. It begins again, as a new replica does."""
        epoch = partition.epoch_before(body.log_end_offset)
        if body.last_epoch not in (NO_EPOCH, epoch):
            raise OffsetOutOfRangeError(
                f"broker {partition.node_id}, {partition}: a last record of epoch {body.last_epoch} before offset "
                f"{body.log_end_offset}, where this log starts, is not known here"
            )

    def _throttle(self, body: ReplicaThrottle) -> None:
        follow = self._follows.get(body.follow_id)
        if follow is not None and follow.is_throttled != body.throttled:
            follow.is_throttled = body.throttled
            self._short.pop(follow.follow_id, None)
            self._ready[follow.follow_id] = None

    def _check_leads(self, follow: _Follow) -> None:
        partition = follow.partition
        partition.check_leader(follow.leader_epoch)
        if self.follower_id not in partition.replicas:
            raise NotLeaderOrFollowerError(f"broker {self.follower_id} has no replica of {partition} any more")

    def _drop(self, follow_id: int) -> None:
        follow = self._follows.pop(follow_id, None)
        for line in (self._ready, self._held, self._short):
            line.pop(follow_id, None)
        if follow is not None and self._by_key.get(follow.partition.key) is follow:
            del self._by_key[follow.partition.key]

    def _report(self, body: ReplicaReport, now_ms: float) -> None:
        follow = self._follows.get(body.follow_id)
        if follow is None:
            return
        if not 0 <= body.flushed_end_offset <= body.log_end_offset <= follow.next_offset:
            raise InvalidRequestError(
                f"{follow.partition}: broker {self.follower_id} reports the ends {body.log_end_offset} and "
                f"{body.flushed_end_offset}, but was sent records up to {follow.next_offset}"
            )
        self._take_ends(follow, body, now_ms)

    def _take_ends(self, follow: _Follow, body: ReplicaFollow | ReplicaReport, now_ms: float) -> None:
        ends = ReplicaEnds(body.log_end_offset, body.flushed_end_offset, body.log_start_offset)
        has_moved = follow.partition.on_follower_ends(
            self.follower_id, follow.leader_epoch, ends, broker_epoch=self.broker_epoch, monotonic_ms=now_ms
        )
        self._on_ends(follow.partition, has_moved)

    # --- sending

    def _next(self, now_ms: float) -> int | None:
        """Whom to look at: who has waited for what is there now, else who has something new."""
        line = self._open_line(now_ms) or self._ready
        return line.popitem(last=False)[0] if line else None

    def _open_line(self, now_ms: float) -> OrderedDict[int, None] | None:
        if self.credit_bytes <= 0:
            return None
        if self._held and self._is_turn(now_ms):
            return self._held
        return self._short if self._short and self.throttled_credit_bytes > 0 else None

    def _is_turn(self, now_ms: float) -> bool:
        if self._turn_ms is None:
            self._turn_ms = self._quota.throttle.free_at_ms(now_ms)
        return now_ms >= self._turn_ms

    def _brakes(self, follow: _Follow) -> _Brakes:
        by_leader = self._quota.holds_for(follow.partition)
        if not (by_leader or follow.is_throttled) or follow.partition.waits_for(self.follower_id):
            return _FREE
        return _Brakes(by_leader, follow.is_throttled)

    def _line_for(self, brakes: _Brakes, now_ms: float) -> OrderedDict[int, None] | None:
        """Where a partition has to wait; None: it need not."""
        if brakes.by_follower and self.throttled_credit_bytes <= 0:
            return self._short
        if brakes.by_leader and not self._is_turn(now_ms):
            return self._held
        return None

    def _read_bytes(self, brakes: _Brakes) -> int:
        size_bytes = self._quota.piece_bytes if brakes.by_leader else MAX_READ_BYTES
        return min(size_bytes, self.throttled_credit_bytes) if brakes.by_follower else size_bytes

    def _read(self, follow: _Follow, frames: list[ReplicaBody], brakes: _Brakes, now_ms: float) -> int:
        """Add what comes next of one partition, of which there is some; how many bytes of records."""
        log = follow.partition.log
        end = log.log_end_offset
        offset = follow.next_offset
        if offset < log.log_start_offset and offset == _first_batch_offset(follow.partition):
            offset = log.log_start_offset  # in the midst of that batch, which goes as a whole
        found = log.read(offset, self._read_bytes(brakes), end_offset=end)
        follow.next_offset = found.next_offset
        if not found.records:
            frames += self._progress(follow)
            return 0
        size_bytes = len(found.records)
        self.credit_bytes -= size_bytes
        if brakes.by_follower:
            self.throttled_credit_bytes -= size_bytes
        if brakes.by_leader:
            self._quota.throttle.spend(size_bytes, now_ms if self._turn_ms is None else self._turn_ms)
            self._turn_ms = None
        follow.told_high_watermark = follow.partition.high_watermark
        follow.told_start_offset = log.log_start_offset
        frames.append(
            ReplicaRecords(
                follow.follow_id,
                found.records,
                follow.told_high_watermark,
                follow.told_start_offset,
                throttled=brakes.by_follower,
            )
        )
        if follow.next_offset < end:
            self._ready[follow.follow_id] = None
        return size_bytes

    def _progress(self, follow: _Follow) -> list[ReplicaBody]:
        """Where the leader is, if the follower does not know it yet."""
        high_watermark, start_offset = follow.partition.high_watermark, follow.partition.log.log_start_offset
        if (high_watermark, start_offset) == (follow.told_high_watermark, follow.told_start_offset):
            return []
        follow.told_high_watermark, follow.told_start_offset = high_watermark, start_offset
        return [ReplicaProgress(follow.follow_id, high_watermark, start_offset)]


def _refusal(follow_id: int, error: KraftlogError, partition: Partition | None) -> ReplicaRefusal:
    start_offset = 0
    if partition is not None and isinstance(error, OffsetOutOfRangeError):
        start_offset = _first_batch_offset(partition)
    return ReplicaRefusal(follow_id, int(code_of(error)), error.message, start_offset)


def _begin_offset(partition: Partition, body: ReplicaFollow) -> int:
    """Where the follower's copy has to go on: at its end, unless that lies in the midst of a batch here.

    So may the end of a log that is empty: its start was recorded, and a power loss took the batch in which it lies. Of others
    the last record is known, and is the last of its batch here, too. Looking costs a read, so only those are looked at.
    """
    offset, log = body.log_end_offset, partition.log
    if body.last_epoch >= 0 or not max(log.log_start_offset, 1) <= offset < log.log_end_offset:
        return offset
    return _batch_offset(partition, offset)


def _first_batch_offset(partition: Partition) -> int:
    """Where a copy of the log begins: with the batch that holds its first record. That is below the log's start if records in
    the midst of a batch were deleted; batches are copied as they are."""
    start_offset = partition.log.log_start_offset
    return 0 if start_offset == 0 else _batch_offset(partition, start_offset)


def _batch_offset(partition: Partition, offset: int) -> int:
    """Where the batch begins that holds `offset`; `offset` itself if none does."""
    log = partition.log
    found = log.read(offset, 0, end_offset=log.log_end_offset)
    return min(offset, read_header(found.records).base_offset) if found.records else offset
