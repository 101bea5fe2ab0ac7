"""One replica of one partition on this broker: role, leader epoch, high watermark, and what may be read or answered.

Decisions only; the replica manager runs the flushes and wakes the waiters. Used from one event loop.

Rules (DESIGN "Durability is stated, not implied", KIP-101, KIP-966):

- With `flush.policy=ack` a replica counts with its *flushed* end, with `interval` with its log end. The high watermark
  is the minimum over the in-sync replicas, this leader included (`in_sync`), and never moves back within a leader epoch.
- A follower takes what its leader sends at its own log end, in the epoch in which it asked. Its high watermark is the
  leader's, as far as it has the records. It truncates where its history parts from the leader's, never merely to the
  high watermark (KIP-101, 279).
- acks=1 is answered when the leader itself has the records (flushed with `ack`), acks=all when the high watermark has
  passed them, acks=0 never. Whoever has lost the leadership hears of the high watermark from its successor: an offset and an
  epoch name one record, so what it wrote itself is committed when its log has it, in that epoch, below the high watermark.
- A failed fsync fails the partition for good: nothing written before it is ever acknowledged by a later, lucky one.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from kraftlog.kraft.image.partition_state import effective_min_in_sync
from kraftlog.logstore import AppendInfo, FlushPolicy, LogConfig, ReadResult
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.segment import RecordPosition
from kraftlog.proto.errors import (
    FencedLeaderEpochError,
    InvalidRequiredAcksError,
    KraftlogError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    StorageError,
    UnknownLeaderEpochError,
)
from kraftlog.proto.records import BatchHeader
from kraftlog.proto.seams import Buffer
from kraftlog.replication.in_sync import BrokerState, InSync, IsrProposal, ReplicaEnds

HOT_BYTES = 256 << 20  # of one partition's newest records: taken to be in the page cache
HOT_MARK_BYTES = 16 << 20  # distance of the marks that tell where they begin

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
NO_EPOCH = -1
HIGH_WATERMARK = -1
"""As offset of a deletion: everything that is committed."""

TopicPartition = tuple[str, int]


class Durability(StrEnum):
    """What an acknowledgment promises; travels in `ProduceResult.durability`."""

    NONE = "none"
    LEADER_MEMORY = "leader-memory"
    LEADER_FSYNC = "leader-fsync"
    QUORUM_MEMORY = "quorum-memory"
    QUORUM_FSYNC = "quorum-fsync"


class PartitionLog(Protocol):
    """The part of `kraftlog.logstore.Log` that a partition uses."""

    @property
    def config(self) -> LogConfig: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...

    @property
    def failure(self) -> StorageError | None: ...

    @property
    def has_unsynced_segments(self) -> bool: ...

    @property
    def size_bytes(self) -> int: ...

    def assign_epoch(self, leader_epoch: int) -> None: ...

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        batches: list[tuple[int, BatchHeader]] | None = None,
    ) -> AppendInfo: ...

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True) -> ReadResult: ...

    def offset_for_time(self, timestamp_ms: int) -> RecordPosition | None: ...

    def max_timestamp(self) -> RecordPosition | None: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...

    def epoch_of(self, offset: int) -> int: ...

    def forget_unwritten_epochs(self) -> None: ...

    def append_as_follower(self, records: Buffer, *, now_ms: int | None = None) -> AppendInfo: ...

    def truncate_to(self, offset: int) -> bool: ...

    def truncate_fully_and_start_at(self, offset: int) -> None: ...

    def last_stable_offset(self, high_watermark: int) -> int: ...

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]: ...

    def flush(self) -> int: ...


class Partition:
    """See the module's text. Roles: none -> leader or follower of an epoch -> ... -> failed (final)."""

    def __init__(
        self,
        topic: str,
        partition: int,
        log: PartitionLog,
        *,
        node_id: int,
        topic_id: bytes = bytes(16),
        high_watermark: int = 0,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.node_id = node_id
        self.key: TopicPartition = (topic, partition)
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = 0
        self._former_epoch = NO_EPOCH
        """Of the record before that."""
        self._last_known_epoch = log.epoch_of(log.log_end_offset - 1)
        """Of the last record, also when it is deleted; NO_EPOCH: it was before this process began, or this is a new copy."""
        self.partition_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        """Those of `replicas` that a reassignment is filling (KIP-455)."""
        self.is_recovering = False
        """Elected uncleanly, and not said to be ready yet."""
        self.is_in_sync = False
        """While it follows: whether the metadata have it in the ISR."""
        self.is_flushed = False
        """As the metadata say: each replica in ISR and ELR has on disk all that was acknowledged."""
        self.given_up_epoch = NO_EPOCH
        """The last leader epoch of whose writes it is not waited any more for a successor to commit them."""
        self._cuts: list[tuple[int, int]] = []
        """(leader epoch in which the log was cut, where), both rising."""
        self.failure: StorageError | None = None
        self.is_being_cut = False
        """The disk's thread is at it: the event loop leaves the log's segments, start and producers alone."""
        self._switched: tuple[int, int] | None = None
        """(partition epoch, log end) when this leader found flush.policy=ack without `is_flushed`."""
        self._in_sync: InSync | None = None
        """While it leads."""
        self._hot_marks: deque[int] = deque([log.log_end_offset], maxlen=HOT_BYTES // HOT_MARK_BYTES)
        self._bytes_since_mark = 0
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        """Exclusive end of what every in-sync replica has. Never moves back within a leader epoch.

        Invariant: log_start_offset <= high_watermark <= log_end_offset.
        """

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    # roles

    def become_leader(
        self,
        *,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        in_sync_replicas: Sequence[int],
        adding_replicas: Sequence[int] = (),
        is_recovering: bool = False,
        is_flushed: bool = False,
        monotonic_ms: float = 0.0,
    ) -> bool:
        """Lead from `leader_epoch` on, or take new replicas within it; returns whether the epoch is a new one."""
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            return False  # an update that was overtaken
        is_new = leader_epoch > self.leader_epoch or not self.is_leader
        if is_new:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self._former_epoch = self._last_known_epoch
            self.log.assign_epoch(leader_epoch)
        if is_new or self._in_sync is None:
            self._in_sync = InSync(self.node_id, replicas, monotonic_ms)
        else:
            self._in_sync.set_replicas(replicas, monotonic_ms)
        self._in_sync.commit(in_sync_replicas, partition_epoch)
        self.is_leader = True
        self.leader_id = self.node_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.replicas = tuple(replicas)
        self.adding_replicas = tuple(adding_replicas)
        self.is_recovering = is_recovering
        self.is_flushed = is_flushed
        self._maybe_advance_high_watermark()
        return is_new

    def become_follower(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        is_flushed: bool = False,
        is_in_sync: bool = False,
    ) -> bool:
        """Follow `leader_id` (-1: none yet); returns whether anything changed."""
        if leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        changed = self.is_leader or leader_epoch > self.leader_epoch or leader_id != self.leader_id
        self.is_leader = False
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.is_flushed = is_flushed
        self.is_in_sync = is_in_sync
        self._in_sync = None
        self.log.forget_unwritten_epochs()  # what comes may be of an older epoch than the one in which it led
        return changed

    def retire(self) -> None:
        """The topic is deleted: acknowledge nothing any more."""
        self.is_leader = False
        self.leader_id = -1
        self.given_up_epoch = self.leader_epoch
        self.is_in_sync = False
        self._in_sync = None

    @property
    def in_sync_replicas(self) -> frozenset[int]:
        """The committed ISR; empty where this replica does not lead."""
        return frozenset() if self._in_sync is None else self._in_sync.committed

    def waits_for(self, replica: int) -> bool:
        """Whether the high watermark waits for this follower: it is in sync, or may be by now."""
        return self._in_sync is not None and replica in self._in_sync.maximal

    def fail(self, error: BaseException) -> StorageError:
        """The disk failed under the partition: refuse everything from here on; returns the error that is answered."""
        if self.failure is None:
            self.failure = StorageError(
                f"broker {self.node_id}, {self}: its log failed and is offline ({error}): "
                "check the disk, then restart the broker"
            )
            self.failure.__cause__ = error
        return self.failure

    @property
    def has_role(self) -> bool:
        """Whether the metadata have said whom it follows, or that it leads."""
        return self.leader_epoch != NO_EPOCH

    @property
    def follower_ends(self) -> Mapping[int, ReplicaEnds]:
        """How far each follower has come; empty where this replica does not lead."""
        followers = {} if self._in_sync is None else self._in_sync.followers
        return {replica: follower.ends for replica, follower in followers.items()}

    def check_readable(self, current_leader_epoch: int, *, from_follower: bool) -> None:
        """As `check_leader`; with `from_follower` a follower that is in sync will do (KIP-392)."""
        if self.is_leader or not (from_follower and self.is_in_sync):
            self.check_leader(current_leader_epoch)
        else:
            self._check_epoch(current_leader_epoch)

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this replica leads and the caller's view of the epoch, if given, is the same (KIP-320)."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise NotLeaderOrFollowerError(
                f"broker {self.node_id} is not the leader of {self} (leader {self.leader_id}, epoch "
                f"{self.leader_epoch}): refresh the metadata"
            )

    def _check_epoch(self, current_leader_epoch: int) -> None:
        if self.failure is not None:
            raise self.failure
        if self.log.failure is not None:
            raise self.fail(self.log.failure)
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(
                    f"broker {self.node_id}, {self}: leader epoch {current_leader_epoch} is older than "
                    f"{self.leader_epoch}: refresh the metadata"
                )
            raise UnknownLeaderEpochError(
                f"broker {self.node_id}, {self}: leader epoch {current_leader_epoch} is newer than "
                f"{self.leader_epoch}, which this broker knows: try again"
            )

    # writing

    def append(
        self,
        records: Buffer,
        *,
        acks: int,
        now_ms: int,
        monotonic_ms: float = 0.0,
        batches: list[tuple[int, BatchHeader]] | None = None,
    ) -> AppendInfo:
        """Append as leader. A failed write fails the partition; a full disk or bad records only raise."""
        self.check_leader()
        if acks == ACKS_ALL:
            self.check_min_in_sync_replicas()
        end_before = self.log.log_end_offset
        try:
            info = self.log.append_as_leader(records, leader_epoch=self.leader_epoch, now_ms=now_ms, batches=batches)
        except StorageError as error:
            if self.log.failure is None:
                raise  # a full disk: nothing was written
            raise self.fail(error) from error
        self._note_appended(info)
        if self._in_sync is not None and self._in_sync.followers:
            self._in_sync.on_append(end_before, flushed=self.flushes_before_ack, now_ms=monotonic_ms)
        self._maybe_advance_high_watermark()
        return info

    def _note_appended(self, info: AppendInfo) -> None:
        if self.log.log_end_offset > self.log.log_start_offset:
            self._last_known_epoch = self.last_epoch
        self._bytes_since_mark += info.size_bytes
        if self._bytes_since_mark >= HOT_MARK_BYTES:
            self._bytes_since_mark = 0
            self._hot_marks.append(info.last_offset + 1)

    def check_min_in_sync_replicas(self) -> None:
        """Raise `NotEnoughReplicasError` if an acks=all write could not be held by enough replicas."""
        wanted = self.effective_min_in_sync_replicas
        if len(self.in_sync_replicas) < wanted:
            raise NotEnoughReplicasError(
                f"broker {self.node_id}, {self}: {len(self.in_sync_replicas)} in-sync replicas are fewer than "
                f"min.insync.replicas={wanted}: wait for a replica to catch up"
            )

    @property
    def effective_min_in_sync_replicas(self) -> int:
        """Of the replicas without those that are being added."""
        count = len(self.replicas) - len(self.adding_replicas)
        return effective_min_in_sync(self.log.config.min_insync_replicas, count)

    @property
    def flushes_before_ack(self) -> bool:
        """Whether acknowledgments wait for fsync: also as long as the metadata count on it."""
        return self.is_flushed or self.log.config.flush_policy is FlushPolicy.ACK

    @property
    def is_switching_to_ack(self) -> bool:
        """Whether this leader has to tell the controller when what was acknowledged from memory is flushed."""
        return self.is_leader and not self.is_flushed and self.log.config.flush_policy is FlushPolicy.ACK

    @property
    def needs_flush(self) -> bool:
        """Whether an acknowledgment may wait for a flush that has not happened."""
        return self.flushes_before_ack and self.log.flushed_end_offset < self.log.log_end_offset

    def acknowledged_end(self, acks: int) -> int:
        """Exclusive end of what may be acknowledged to a producer that asked for `acks`."""
        if acks == ACKS_ALL:
            return self.high_watermark
        return self._own_end()

    def may_commit_later(self, leader_epoch: int, end_offset: int) -> bool:
        """Whether what this replica appended as the leader of an earlier epoch, as the last record below `end_offset`, is there
        still, and a successor (perhaps this replica again) may say that it is committed."""
        return (
            self.given_up_epoch < leader_epoch < self.leader_epoch
            and self.failure is None
            and self._has_kept(leader_epoch, end_offset)
        )

    def has_cut(self, leader_epoch: int, end_offset: int) -> bool:
        """Whether what it appended like that is no more: it went with the history of a successor that never had it."""
        return leader_epoch < self.leader_epoch and not self._has_kept(leader_epoch, end_offset)

    def _has_kept(self, leader_epoch: int, end_offset: int) -> bool:
        """The epochs of what lies there now do not tell: of a compacted successor come only some of its records, and the first
        of them may lie behind the place of those that were cut."""
        cut = next((offset for epoch, offset in self._cuts if epoch > leader_epoch), end_offset)
        return end_offset <= min(cut, self.log.log_end_offset)

    def durability(self, acks: int) -> Durability:
        """What an acknowledgment for `acks` promises."""
        if acks == ACKS_NONE:
            return Durability.NONE
        if acks == ACKS_LEADER:
            return Durability.LEADER_FSYNC if self.flushes_before_ack else Durability.LEADER_MEMORY
        return Durability.QUORUM_FSYNC if self.flushes_before_ack else Durability.QUORUM_MEMORY

    def on_flushed(self) -> bool:
        """The log's flushed end may have moved; returns whether the high watermark did."""
        return self._maybe_advance_high_watermark()

    def on_follower_ends(
        self, replica: int, leader_epoch: int, ends: ReplicaEnds, *, broker_epoch: int = -1, monotonic_ms: float = 0.0
    ) -> bool:
        """A follower reported its ends; returns whether the high watermark moved. Reports of another epoch are void."""
        if self._in_sync is None or leader_epoch != self.leader_epoch:
            return False
        self._in_sync.on_report(
            replica,
            ends,
            broker_epoch,
            leader_end=self.log.log_end_offset,
            flushed=self.flushes_before_ack,
            now_ms=monotonic_ms,
        )
        return self._maybe_advance_high_watermark()

    def propose_isr(
        self, *, max_lag_ms: float, monotonic_ms: float, brokers: Mapping[int, BrokerState]
    ) -> IsrProposal | None:
        """The change of the ISR that is due; it is under way until a newer partition epoch or `refuse_isr`."""
        if self._in_sync is None or self.failure is not None:
            return None
        return self._in_sync.proposal(
            partition_epoch=self.partition_epoch,
            leader_start=self.log.log_start_offset,
            leader_end=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            epoch_start_offset=self.leader_epoch_start_offset,
            flushed=self.flushes_before_ack,
            is_recovering=self.is_recovering,
            max_lag_ms=max_lag_ms,
            now_ms=monotonic_ms,
            brokers=brokers,
            end_to_flush=self._end_to_flush(),
        )

    def _end_to_flush(self) -> int | None:
        """Where the log ended at the switch to flush.policy=ack, once this leader itself has flushed that much.

        Each switch is a partition epoch of its own, so whatever was acknowledged from memory is below the end that is
        found in this one. Below min.insync.replicas there may be eligible leaders, of whom nothing is heard.
        """
        if not self.is_switching_to_ack or len(self.in_sync_replicas) < self.effective_min_in_sync_replicas:
            return None
        if self._switched is None or self._switched[0] != self.partition_epoch:
            self._switched = (self.partition_epoch, self.log.log_end_offset)
        end = self._switched[1]
        return end if self.log.flushed_end_offset >= end else None

    @property
    def pending_isr(self) -> IsrProposal | None:
        """The change of the ISR that is under way."""
        return None if self._in_sync is None else self._in_sync.pending

    def refuse_isr(self, proposal: IsrProposal) -> bool:
        """The controller will never do it; returns whether the high watermark moved."""
        if self._in_sync is None or not self._in_sync.refuse(proposal):
            return False
        return self._maybe_advance_high_watermark()

    def _own_end(self) -> int:
        return self.log.flushed_end_offset if self.flushes_before_ack else self.log.log_end_offset

    def _maybe_advance_high_watermark(self) -> bool:
        in_sync = self._in_sync
        if in_sync is None or self.failure is not None:
            return False
        if len(in_sync.committed) < self.effective_min_in_sync_replicas:
            return False
        end = in_sync.end(self._own_end(), flushed=self.flushes_before_ack)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    # following

    @property
    def last_epoch(self) -> int:
        """Of the last record; -1: it is not known, as in an empty log."""
        return self.log.epoch_of(self.log.log_end_offset - 1)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendInfo:
        """Append what the leader sent, as it is. Raises `CorruptRecordError` for what is damaged or not at the log's end; a
        failed write fails the partition, a full disk only raises."""
        if self.failure is not None:
            raise self.failure
        try:
            info = self.log.append_as_follower(records, now_ms=now_ms)
        except StorageError as error:
            if self.log.failure is None:
                raise
            raise self.fail(error) from error
        self._note_appended(info)
        return info

    def follow_high_watermark(self, high_watermark: int) -> bool:
        """The leader's, as far as the records are here; returns whether it moved."""
        end = min(high_watermark, self.log.log_end_offset)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def truncation_for(self, epoch: int, end_offset: int) -> int:
        """Where this log has to end, given the leader's last epoch that is not above this log's, and where it ends there
        (KIP-320): what both have of that epoch stays, or of the one before it here, about which is asked next."""
        own_epoch, own_end = self.log.end_offset_for_epoch(epoch)
        if own_epoch < 0:
            return min(end_offset, self.log.log_end_offset)
        return min(own_end, end_offset) if own_epoch == epoch else min(own_end, self.log.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        """Cut the log, durably, and with it the high watermark. Blocks; nothing may be appended meanwhile."""
        self._note_cut(offset)
        self.high_watermark = min(self.high_watermark, offset)  # first: it may be recorded meanwhile
        self.log.truncate_to(offset)
        self._last_known_epoch = self.last_epoch
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def start_again_at(self, offset: int) -> None:
        """Everything goes; the log is empty and starts at `offset`. Whether what it held is committed nobody will say. Blocks, as
        `truncate_to`."""
        self.given_up_epoch = max(self.given_up_epoch, self.leader_epoch - 1)
        self.high_watermark = min(self.high_watermark, offset)
        self.log.truncate_fully_and_start_at(offset)
        self._last_known_epoch = NO_EPOCH
        self.high_watermark = offset

    def _note_cut(self, offset: int) -> None:
        """A deeper cut stands for those before it, and nobody asks for what is given up. The list is replaced in one step: the
        event loop may look at it while the disk's thread cuts."""
        before = [cut for cut in self._cuts if cut[1] < offset and cut[0] > self.given_up_epoch]
        self._cuts = [*before, (self.leader_epoch, offset)]

    # deleting

    def deletion_end(self, before_offset: int) -> int:
        """Where the log would start if the records below `before_offset` were deleted; -1: all that may be.

        Raises `OffsetOutOfRangeError` beyond the high watermark, `PolicyViolationError` for a topic that is only
        compacted, and what `check_leader` raises.
        """
        self.check_leader()
        if "delete" not in self.log.config.cleanup_policy:
            raise PolicyViolationError(
                f"broker {self.node_id}, {self}: cleanup.policy={','.join(sorted(self.log.config.cleanup_policy))} keeps "
                "the latest record of each key: delete records by tombstones, or add delete to cleanup.policy"
            )
        if before_offset == HIGH_WATERMARK:
            before_offset = self.high_watermark
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"broker {self.node_id}, {self}: cannot delete the records before {before_offset}: only those below the "
                f"high watermark {self.high_watermark} may go"
            )
        return max(before_offset, self.log.log_start_offset)

    @property
    def deleted_end(self) -> int:
        """Below this the records are deleted on every replica that may come to lead; as far as a leader knows. That is nothing
        below min.insync.replicas: who has left the ISR may be eligible, and has what it had."""
        start_offset = self.log.log_start_offset
        if self._in_sync is None:
            return start_offset
        if len(self._in_sync.committed) < self.effective_min_in_sync_replicas:
            return 0
        return self._in_sync.start(start_offset)

    # reading

    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of what a read_committed reader may see: below it no transaction is open."""
        return self.log.last_stable_offset(self.high_watermark)

    def visible_end(self, *, read_committed: bool) -> int:
        """Exclusive end of what a consumer may read."""
        return self.last_stable_offset if read_committed else self.high_watermark

    def latest_offset(self, *, read_committed: bool) -> int:
        """The visible end for clients that ask for the latest offset.

        Raises `OffsetNotAvailableError` until a new leader's high watermark has reached the start of its epoch: before
        that it might answer less than its predecessor did (KIP-207).
        """
        if self.high_watermark < self.leader_epoch_start_offset:
            raise OffsetNotAvailableError(
                f"broker {self.node_id}, {self}: the high watermark {self.high_watermark} has not reached the start "
                f"{self.leader_epoch_start_offset} of leader epoch {self.leader_epoch}: try again"
            )
        return self.visible_end(read_committed=read_committed)

    def epoch_before(self, offset: int) -> int:
        """Of the last record below `offset`, also where it was deleted, as far as this leader knows; NO_EPOCH: it does not."""
        if offset > self.log.log_start_offset:
            return self.log.epoch_of(offset - 1)
        if offset > self.leader_epoch_start_offset:
            return self.leader_epoch
        return self._former_epoch if offset == self.leader_epoch_start_offset else NO_EPOCH

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) where a reader's history leaves this log's, None if it does not (KIP-320, KIP-595)."""
        if last_fetched_epoch == NO_EPOCH:
            return None
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    @property
    def hot_offset(self) -> int:
        """From here on records were written by this process not long ago, so that reading them does not wait for the
        disk; what is older may have to come from there."""
        return self._hot_marks[0]

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        end_offset: int | None = None,
        at_least_one_batch: bool = True,
    ) -> ReadResult:
        """Whole batches from the one that contains `offset`, below the visible end, that start below `end_offset`.

        Raises `OffsetOutOfRangeError` outside of [log start, log end], a follower `OffsetNotAvailableError`: its leader knows;
        between the visible end and the log end the result is empty.
        """
        if not self.is_leader and not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise OffsetNotAvailableError(
                f"broker {self.node_id}, {self}: this follower has the offsets [{self.log.log_start_offset}, "
                f"{self.log.log_end_offset}], not {offset}: ask the leader"
            )
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise OffsetOutOfRangeError(
                f"broker {self.node_id}, {self}: offset {offset} is outside of "
                f"[{self.log.log_start_offset}, {self.log.log_end_offset}]: seek to an offset that exists"
            )
        end = self.visible_end(read_committed=read_committed)
        if end_offset is not None:
            end = min(end, end_offset)
        return self.log.read(offset, max_bytes, end_offset=end, at_least_one_batch=at_least_one_batch)


def check_acks(acks: int) -> None:
    """Raise `InvalidRequiredAcksError` unless `acks` is 0, 1 or -1 (all)."""
    if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        raise InvalidRequiredAcksError(f"acks={acks} is not valid: use 0, 1 or -1 (all)")


def wait_error(partition: Partition, leader_epoch: int, end_offset: int) -> KraftlogError | None:
    """Why a write of `leader_epoch` that ends at `end_offset` can no longer be acknowledged, None while it can."""
    if partition.failure is not None:
        return partition.failure
    if partition.has_cut(leader_epoch, end_offset):
        return NotLeaderOrFollowerError(
            f"broker {partition.node_id} lost the leadership of {partition} before another replica had the write: it is not "
            "stored: refresh the metadata and send it again"
        )
    if not partition.is_leader or partition.leader_epoch != leader_epoch:
        return NotLeaderOrFollowerError(
            f"broker {partition.node_id} lost the leadership of {partition} before the write was acknowledged: "
            "refresh the metadata and send it again"
        )
    return None
