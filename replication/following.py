"""What a follower broker does with one leader broker: the state of one replica stream, at the follower's end.

    follow ──► Follow sent ──► records appended, ends reported ──► ...
                   │  Divergence: cut the log, then follow again
                   │  OFFSET_OUT_OF_RANGE: begin again where the leader's log starts, then follow again
                   └─ any other refusal: follow again after a pause, or when the metadata have changed

Records are appended as they come, undecoded, at the log's own end: a gap or a damaged batch ends the `follow_id`, and the
partition is asked for again. The credit for records is given back when they are in the log, so that no more than a window
of them is ever on the way. Of partitions that are throttled here (`quota`) only so much is asked for as the rate allows: they
need a second credit, which is granted in turns.

What takes the disk (cutting a log) is handed out as a job; nothing is appended to that partition meanwhile.

Pure: time comes in as `now_ms`. Used from one event loop.
"""

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass

from kraftlog.logstore import DiskFullError
from kraftlog.proto.errors import ErrorCode, InvalidRequestError, KraftlogError, StorageError
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
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.quota import ReplicationQuota

logger = logging.getLogger("kraftlog.replication")

WINDOW_BYTES = 8 << 20  # of records that one leader may have on the way
CREDIT_STEP_BYTES = WINDOW_BYTES // 8  # granted together: a frame for each batch would cost more than it gives
RETRY_MS = 100.0
RETRY_MAX_MS = 1_000.0
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)


@dataclass(slots=True)
class _Following:
    follow_id: int
    partition: Partition
    leader_epoch: int
    told_ends: tuple[int, int, int]
    """(log end, flushed end, log start) as the leader knows them."""
    is_throttled: bool = False
    """As the leader knows it."""


Job = Callable[[], None]
"""Work that blocks, for one partition."""


@dataclass(slots=True)
class Truncation:
    """A log that has to be cut before it can go on."""

    partition: Partition
    leader_epoch: int
    run: Job


class LeaderFollowing:
    """See the module's text. `follow`, `unfollow`, `receive` and `ends_changed` take input; `poll` says what to send,
    `truncations` what to do, `next_deadline_ms` when to call `poll` again at the latest."""

    def __init__(
        self,
        leader_id: int,
        *,
        quota: ReplicationQuota,
        append: Callable[[Partition, ReplicaRecords], None],
        progress: Callable[[Partition, int, int], None],
    ) -> None:
        """`quota`: this broker's as follower. `append` puts records into the log and begins to make them durable; it raises what stands in the way.
        `progress(partition, high watermark, log start)`: where the leader is."""
        self.leader_id = leader_id
        self._quota = quota
        self._append = append
        self._progress = progress
        self._partitions: dict[TopicPartition, Partition] = {}
        """All that are to be followed."""
        self._following: dict[int, _Following] = {}
        self._by_key: dict[TopicPartition, _Following] = {}
        self._to_follow: dict[TopicPartition, None] = {}
        self._to_unfollow: list[int] = []
        self._changed: dict[TopicPartition, None] = {}
        """Partitions whose ends the leader may not know."""
        self._retries: list[tuple[float, TopicPartition]] = []
        self._failures: dict[TopicPartition, int] = {}
        """Refusals in a row."""
        self._truncating: set[TopicPartition] = set()
        self._last_id = 0
        self._credit_to_grant = 0
        self._to_throttle: dict[TopicPartition, None] = {}
        """Partitions of which the leader may not know whether they are throttled."""
        self._throttled: set[int] = set()
        """Those of which it knows that they are, by follow_id."""
        self._throttled_credit = 0
        """Granted for them and not used; below 0: overdrawn."""
        self._turn_ms: float | None = None
        """When more of it may be granted; None: it was not asked since the last time."""
        self.truncations: list[Truncation] = []
        """To be taken out and done; `truncated` then."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to follow."""
        return not self._partitions

    # --- what is wanted

    def follow(self, partition: Partition) -> None:
        """Follow a partition from its log's end, or again in a new leader epoch."""
        self._partitions[partition.key] = partition
        self._failures.pop(partition.key, None)
        self._ask_again(partition.key)

    def unfollow(self, key: TopicPartition) -> None:
        """Its leader is another one now, or it is gone: what it was to be cut to is nothing to go by any more."""
        self._partitions.pop(key, None)
        self._to_follow.pop(key, None)
        self._failures.pop(key, None)
        self._drop(key)
        left = [truncation for truncation in self.truncations if truncation.partition.key != key]
        if len(left) < len(self.truncations):
            self.truncations = left
            self._truncating.discard(key)

    def connected(self) -> None:
        """A new stream: nothing has been said on it."""
        self._following.clear()
        self._by_key.clear()
        self._to_unfollow.clear()
        self._changed.clear()
        self._retries.clear()
        self._failures.clear()
        self._to_follow = dict.fromkeys(self._partitions)
        self._last_id = 0
        self._credit_to_grant = WINDOW_BYTES
        self._to_throttle.clear()
        self._throttled.clear()
        self._throttled_credit = 0
        self._turn_ms = None

    def ends_changed(self, key: TopicPartition) -> bool:
        """A log was flushed or appended to; returns whether the leader has to be told."""
        if key not in self._by_key:
            return False
        self._changed[key] = None
        return True

    def throttle_changed(self, key: TopicPartition | None = None) -> bool:
        """A list of throttled replicas is another one; None: the rate is. Returns whether the leader may have to be told."""
        keys = self._by_key.keys() if key is None else self._by_key.keys() & {key}
        self._to_throttle.update(dict.fromkeys(keys))
        self._turn_ms = None
        return bool(keys)

    def truncated(self, truncation: Truncation, *, is_cut: bool, now_ms: float) -> None:
        """The log is cut, or could not be cut for now: then the leader is asked again after a pause."""
        key = truncation.partition.key
        self._truncating.discard(key)
        if key not in self._partitions:
            return
        if is_cut:
            self._to_follow[key] = None
        else:
            self._retry(key, now_ms)

    # --- what comes

    def receive(self, body: ReplicaBody, now_ms: float) -> None:
        """Take one frame. Raises `InvalidRequestError`, which ends the stream."""
        match body:
            case ReplicaRecords():
                self._credit_to_grant += len(body.records)
                if body.throttled:
                    self._take_throttled(len(body.records), now_ms)
                self._on_records(body, now_ms)
            case ReplicaProgress():
                following = self._following.get(body.follow_id)
                if following is not None:
                    self._progress(following.partition, body.high_watermark, body.log_start_offset)
            case ReplicaDivergence():
                following = self._end(body.follow_id)
                if following is not None:
                    self._on_divergence(following, body)
            case ReplicaRefusal():
                following = self._end(body.follow_id)
                if following is not None:
                    self._on_refusal(following, body, now_ms)
            case _:
                raise InvalidRequestError(f"a leader sent {type(body).__name__}, which is a follower's to send")

    def _take_throttled(self, size_bytes: int, now_ms: float) -> None:
        """The credit was paid for when it was granted, what goes beyond it is now."""
        self._throttled_credit -= size_bytes
        if self._throttled_credit < 0:
            self._quota.throttle.spend(min(size_bytes, -self._throttled_credit), now_ms)

    def _on_records(self, body: ReplicaRecords, now_ms: float) -> None:
        following = self._following.get(body.follow_id)
        if following is None:
            return
        partition = following.partition
        try:
            self._append(partition, body)
        except KraftlogError as error:
            if not isinstance(error, StorageError) or isinstance(error, DiskFullError):
                logger.warning("%s: what broker %d sent is not appended: %s", partition, self.leader_id, error)
            self._end(body.follow_id)
            self._to_unfollow.append(body.follow_id)
            if partition.failure is None:
                self._retry(partition.key, now_ms)
            return
        self._failures.pop(partition.key, None)
        self._changed[partition.key] = None
        self._progress(partition, body.high_watermark, body.log_start_offset)

    def _on_divergence(self, following: _Following, body: ReplicaDivergence) -> None:
        partition = following.partition
        end = max(partition.truncation_for(body.epoch, body.end_offset), 0)
        logger.info(
            "%s: the history parts from broker %d's in epoch %d at offset %d: cutting the log from %d to %d%s",
            partition,
            self.leader_id,
            body.epoch,
            body.end_offset,
            partition.log.log_end_offset,
            end,
            ""
            if end >= partition.high_watermark
            else f", below the high watermark {partition.high_watermark}: the leader was elected uncleanly",
        )
        self._truncate(following, lambda: partition.truncate_to(end))

    def _on_refusal(self, following: _Following, body: ReplicaRefusal, now_ms: float) -> None:
        partition = following.partition
        if body.error_code == _OUT_OF_RANGE:
            start = body.log_start_offset
            logger.warning(
                "%s: broker %d has no offset %d any more, its log starts at %d: beginning again there",
                partition,
                self.leader_id,
                partition.log.log_end_offset,
                start,
            )
            self._truncate(following, lambda: partition.start_again_at(start))
            return
        logger.info("%s: broker %d refuses: %s", partition, self.leader_id, body.error_message)
        self._retry(partition.key, now_ms)

    def _truncate(self, following: _Following, run: Job) -> None:
        self._truncating.add(following.partition.key)
        self.truncations.append(Truncation(following.partition, following.leader_epoch, run))

    def _end(self, follow_id: int) -> _Following | None:
        following = self._following.pop(follow_id, None)
        if following is not None:
            del self._by_key[following.partition.key]
            self._throttled.discard(follow_id)
        return following

    def _drop(self, key: TopicPartition) -> None:
        following = self._by_key.get(key)
        if following is not None:
            self._end(following.follow_id)
            self._to_unfollow.append(following.follow_id)

    def _ask_again(self, key: TopicPartition) -> None:
        self._drop(key)
        self._to_follow[key] = None

    def _retry(self, key: TopicPartition, now_ms: float) -> None:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause_ms = min(RETRY_MS * 2 ** min(failures - 1, 10), RETRY_MAX_MS)
        heapq.heappush(self._retries, (now_ms + pause_ms, key))

    # --- what goes

    @property
    def next_deadline_ms(self) -> float | None:
        """When `poll` has something to say even if nothing happens."""
        retry_ms = self._retries[0][0] if self._retries else None
        if self._turn_ms is None or not self._needs_throttled_credit:
            return retry_ms
        return self._turn_ms if retry_ms is None else min(retry_ms, self._turn_ms)

    @property
    def _needs_throttled_credit(self) -> bool:
        return bool(self._throttled) and self._throttled_credit < self._quota.piece_bytes

    def poll(self, now_ms: float) -> list[ReplicaBody]:
        """The next frames; empty: there is nothing to say now."""
        while self._retries and self._retries[0][0] <= now_ms:
            _, key = heapq.heappop(self._retries)
            if key in self._partitions and key not in self._by_key:
                self._to_follow[key] = None
        frames: list[ReplicaBody] = [ReplicaUnfollow(follow_id) for follow_id in self._to_unfollow]
        self._to_unfollow = []
        for key in [key for key in self._to_follow if key not in self._truncating]:
            del self._to_follow[key]
            frames.append(self._begin(self._partitions[key]))
            self._to_throttle[key] = None
        for key in self._to_throttle:
            following = self._by_key.get(key)
            if following is not None and self._quota.holds_for(following.partition) != following.is_throttled:
                frames.append(self._throttle(following))
        self._to_throttle = {}
        for key in self._changed:
            following = self._by_key.get(key)
            if following is not None and (ends := _ends(following.partition)) != following.told_ends:
                following.told_ends = ends
                frames.append(ReplicaReport(following.follow_id, *ends))
        self._changed = {}
        throttled_credit = self._throttled_credit_to_grant(now_ms)
        if throttled_credit or self._credit_to_grant >= CREDIT_STEP_BYTES:
            frames.append(ReplicaCredit(self._credit_to_grant, throttled_credit))
            self._credit_to_grant = 0
        return frames

    def _throttle(self, following: _Following) -> ReplicaThrottle:
        follow_id, is_throttled = following.follow_id, not following.is_throttled
        following.is_throttled = is_throttled
        if is_throttled:
            self._throttled.add(follow_id)
        else:
            self._throttled.discard(follow_id)
        return ReplicaThrottle(follow_id, is_throttled)

    def _throttled_credit_to_grant(self, now_ms: float) -> int:
        """A piece when it is this stream's turn, and what was overdrawn and has been paid for since."""
        if not self._needs_throttled_credit:
            return 0
        if self._turn_ms is None:
            self._turn_ms = self._quota.throttle.free_at_ms(now_ms)
        if now_ms < self._turn_ms:
            return 0
        piece_bytes = self._quota.piece_bytes
        self._quota.throttle.spend(piece_bytes, self._turn_ms)
        self._turn_ms = None
        granted = piece_bytes - min(self._throttled_credit, 0)
        self._throttled_credit += granted
        return granted

    def _begin(self, partition: Partition) -> ReplicaFollow:
        self._last_id += 1
        ends = _ends(partition)
        following = _Following(self._last_id, partition, partition.leader_epoch, ends)
        self._following[self._last_id] = self._by_key[partition.key] = following
        return ReplicaFollow(
            follow_id=self._last_id,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader_epoch=partition.leader_epoch,
            log_end_offset=ends[0],
            last_epoch=partition.last_epoch,
            flushed_end_offset=ends[1],
            log_start_offset=ends[2],
        )


def _ends(partition: Partition) -> tuple[int, int, int]:
    log = partition.log
    return log.log_end_offset, min(log.flushed_end_offset, log.log_end_offset), log.log_start_offset
