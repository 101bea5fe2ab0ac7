"""What a partition may acknowledge and show: the rules of durability, high watermark, roles and failure."""

from dataclasses import dataclass

import pytest

from kraftlog.logstore import FlushPolicy, LogConfig
from kraftlog.proto.errors import (
    FencedLeaderEpochError,
    InvalidRequiredAcksError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownLeaderEpochError,
)
from kraftlog.replication.in_sync import ReplicaEnds
from kraftlog.replication.partition import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    HOT_BYTES,
    HOT_MARK_BYTES,
    NO_EPOCH,
    Durability,
    Partition,
    check_acks,
    wait_error,
)
from tests.unit.replication.fake_replica_log import FakeLog

ME, OTHER, THIRD = 1, 2, 3


@dataclass(frozen=True)
class Live:
    """What the metadata say of a broker that lives."""

    broker_epoch: int
    is_fenced: bool = False
    in_controlled_shutdown: bool = False


INTERVAL = LogConfig(flush_policy=FlushPolicy.INTERVAL)


def leader(log: FakeLog, *, replicas: tuple[int, ...] = (ME,), epoch: int = 0) -> Partition:
    partition = Partition("orders", 3, log, node_id=ME)
    partition.become_leader(leader_epoch=epoch, partition_epoch=0, replicas=replicas, in_sync_replicas=replicas)
    return partition


def append(partition: Partition, acks: int = ACKS_ALL) -> int:
    return partition.append(b"batch", acks=acks, now_ms=0).first_offset


def test_with_ack_nothing_counts_before_the_flush() -> None:
    """flush.policy=ack: neither acks=1 nor acks=all nor a reader sees what is not on disk."""
    log = FakeLog()
    partition = leader(log)
    append(partition)
    assert partition.needs_flush
    assert (partition.acknowledged_end(ACKS_LEADER), partition.acknowledged_end(ACKS_ALL)) == (0, 0)
    assert partition.visible_end(read_committed=False) == 0
    log.flush()
    assert partition.on_flushed()
    assert (partition.acknowledged_end(ACKS_LEADER), partition.acknowledged_end(ACKS_ALL)) == (1, 1)
    assert not partition.needs_flush


def test_with_interval_memory_counts() -> None:
    """flush.policy=interval is Kafka's way: acknowledged from the page cache, and the answer says so."""
    partition = leader(FakeLog(config=INTERVAL))
    append(partition)
    assert partition.high_watermark == 1
    assert not partition.needs_flush
    assert partition.durability(ACKS_LEADER) is Durability.LEADER_MEMORY
    assert partition.durability(ACKS_ALL) is Durability.QUORUM_MEMORY


def test_the_acknowledgment_carries_the_policy() -> None:
    """The durability field is what held, not what was hoped for."""
    partition = leader(FakeLog())
    assert partition.durability(ACKS_NONE) is Durability.NONE
    assert partition.durability(ACKS_LEADER) is Durability.LEADER_FSYNC
    assert partition.durability(ACKS_ALL) is Durability.QUORUM_FSYNC


def test_the_high_watermark_is_the_minimum_of_the_flushed_ends() -> None:
    """With `ack` a follower counts with its flushed end, and the leader is one of those that count."""
    log = FakeLog()
    partition = leader(log, replicas=(ME, OTHER, THIRD))
    for _ in range(5):
        append(partition)
    partition.on_follower_ends(OTHER, 0, ReplicaEnds(log_end_offset=5, flushed_end_offset=4))
    partition.on_follower_ends(THIRD, 0, ReplicaEnds(log_end_offset=5, flushed_end_offset=2))
    assert partition.high_watermark == 0
    log.flush()
    assert partition.on_flushed()
    assert partition.high_watermark == 2
    assert partition.acknowledged_end(ACKS_LEADER) == 5
    assert partition.on_follower_ends(THIRD, 0, ReplicaEnds(5, 5))
    assert partition.high_watermark == 4


def test_the_high_watermark_never_moves_back_in_an_epoch() -> None:
    """A late report cannot take back what was shown."""
    partition = leader(FakeLog(config=INTERVAL), replicas=(ME, OTHER))
    append(partition)
    append(partition)
    partition.on_follower_ends(OTHER, 0, ReplicaEnds(2, 2))
    assert partition.high_watermark == 2
    assert not partition.on_follower_ends(OTHER, 0, ReplicaEnds(1, 1))
    assert partition.high_watermark == 2


def test_a_late_report_of_a_replica_that_went_and_came_back_is_void() -> None:
    """KIP-455: its log was deleted in between, and the leader epoch has grown with its going."""
    partition = leader(FakeLog(config=INTERVAL), replicas=(ME, OTHER))
    append(partition)
    partition.on_follower_ends(OTHER, 0, ReplicaEnds(1, 1))
    assert partition.high_watermark == 1
    partition.become_leader(leader_epoch=1, partition_epoch=1, replicas=(ME,), in_sync_replicas=(ME,))
    partition.become_leader(
        leader_epoch=1, partition_epoch=2, replicas=(ME, OTHER), adding_replicas=(OTHER,), in_sync_replicas=(ME,)
    )
    partition.on_follower_ends(OTHER, 0, ReplicaEnds(1, 1))
    brokers = {node_id: Live(broker_epoch=-1) for node_id in (ME, OTHER)}
    assert partition.propose_isr(max_lag_ms=1, monotonic_ms=0, brokers=brokers) is None


def test_replicas_that_are_being_added_do_not_count_for_min_insync_replicas() -> None:
    """KIP-455: a partition of one replica takes writes while it is raised to three."""
    config = LogConfig(flush_policy=FlushPolicy.INTERVAL, min_insync_replicas=2)
    partition = leader(FakeLog(config=config))
    both = (OTHER, THIRD)
    replicas = (ME, *both)
    partition.become_leader(
        leader_epoch=0, partition_epoch=1, replicas=replicas, adding_replicas=both, in_sync_replicas=(ME,)
    )
    append(partition)
    assert partition.high_watermark == 1
    partition.become_leader(leader_epoch=0, partition_epoch=2, replicas=replicas, in_sync_replicas=(ME,))
    with pytest.raises(NotEnoughReplicasError):
        append(partition)


def test_reports_of_another_epoch_or_a_stranger_are_void() -> None:
    """KIP-320: a report names the leader epoch and is ignored if it differs."""
    partition = leader(FakeLog(config=INTERVAL), replicas=(ME, OTHER), epoch=5)
    append(partition)
    assert not partition.on_follower_ends(OTHER, 4, ReplicaEnds(1, 1))
    assert not partition.on_follower_ends(THIRD, 5, ReplicaEnds(1, 1))
    assert partition.high_watermark == 0


def test_below_min_insync_replicas_acks_all_is_refused_and_nothing_is_committed() -> None:
    """acks=all is checked before the append; the high watermark rests while the ISR is too small, for all acks."""
    log = FakeLog(config=LogConfig(flush_policy=FlushPolicy.INTERVAL, min_insync_replicas=2))
    partition = Partition("orders", 3, log, node_id=ME)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(ME, OTHER), in_sync_replicas=(ME,))
    with pytest.raises(NotEnoughReplicasError):
        append(partition)
    assert log.log_end_offset == 0
    append(partition, ACKS_LEADER)
    assert partition.high_watermark == 0


def test_below_min_insync_replicas_no_deletion_is_known_to_last() -> None:
    """Who has left the ISR may be eligible, and brings back what it has; with enough replicas in sync nobody else is."""
    log = FakeLog(config=LogConfig(min_insync_replicas=2))
    partition = leader(log, replicas=(ME, OTHER, THIRD))
    append(partition)
    log.log_start_offset = 1
    for replica in (OTHER, THIRD):
        partition.on_follower_ends(replica, 0, ReplicaEnds(1, 1, replica - 2))
    assert partition.deleted_end == 0, "one of them has it"
    isr = {"leader_epoch": 0, "replicas": (ME, OTHER, THIRD)}
    partition.become_leader(partition_epoch=1, in_sync_replicas=(ME, THIRD), **isr)
    assert partition.deleted_end == 1
    partition.become_leader(partition_epoch=2, in_sync_replicas=(ME,), **isr)
    assert partition.deleted_end == 0


def test_min_insync_replicas_never_exceeds_the_replicas() -> None:
    """A topic with one replica and min.insync.replicas=2 stays writable."""
    partition = leader(FakeLog(config=LogConfig(flush_policy=FlushPolicy.INTERVAL, min_insync_replicas=2)))
    append(partition)
    assert partition.high_watermark == 1


def test_only_the_leader_of_the_callers_epoch_answers() -> None:
    """NOT_LEADER, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH tell the client what to do next."""
    partition = leader(FakeLog(), epoch=5)
    partition.check_leader()
    partition.check_leader(5)
    with pytest.raises(FencedLeaderEpochError):
        partition.check_leader(4)
    with pytest.raises(UnknownLeaderEpochError):
        partition.check_leader(6)
    partition.become_follower(leader_id=OTHER, leader_epoch=6, partition_epoch=1)
    with pytest.raises(NotLeaderOrFollowerError):
        append(partition)


def test_an_overtaken_update_changes_nothing() -> None:
    """Leader epochs only grow."""
    partition = leader(FakeLog(), epoch=5)
    assert not partition.become_follower(leader_id=OTHER, leader_epoch=4, partition_epoch=9)
    assert partition.is_leader


def test_a_new_leader_does_not_answer_for_its_predecessor_too_early() -> None:
    """KIP-207: until the high watermark has reached the start of the epoch the latest offset is not available."""
    log = FakeLog(end=3)
    partition = Partition("orders", 3, log, node_id=ME, high_watermark=1)
    partition.become_leader(leader_epoch=2, partition_epoch=0, replicas=(ME, OTHER), in_sync_replicas=(ME, OTHER))
    with pytest.raises(OffsetNotAvailableError):
        partition.latest_offset(read_committed=False)
    partition.on_follower_ends(OTHER, 2, ReplicaEnds(3, 3))
    assert partition.latest_offset(read_committed=False) == 3


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    """An open transaction hides what follows it, and never shows more than the high watermark."""
    log = FakeLog(config=INTERVAL)
    partition = leader(log)
    for _ in range(5):
        append(partition)
    log.first_unstable_offset = 2
    assert partition.visible_end(read_committed=True) == 2
    assert partition.visible_end(read_committed=False) == 5
    log.first_unstable_offset = 9
    assert partition.visible_end(read_committed=True) == 5


def test_offsets_outside_of_the_log_are_named() -> None:
    """Out of range means outside of [log start, log end]; between the high watermark and the end there is a wait."""
    log = FakeLog()
    partition = leader(log)
    append(partition)
    assert partition.read(1, 100, read_committed=False) == (b"", 1)
    with pytest.raises(OffsetOutOfRangeError, match=r"orders-3: offset 2 is outside of \[0, 1\]"):
        partition.read(2, 100, read_committed=False)


def test_a_failure_is_final() -> None:
    """After a failed fsync nothing is acknowledged any more, whatever a later flush says."""
    log = FakeLog()
    partition = leader(log)
    append(partition)
    partition.fail(StorageError("EIO"))
    log.flush()
    assert not partition.on_flushed()
    assert partition.high_watermark == 0
    with pytest.raises(StorageError):
        append(partition)
    assert isinstance(wait_error(partition, 0, 1), StorageError)


def test_a_leader_knows_the_epoch_of_the_last_record_that_was_deleted() -> None:
    """If it wrote it itself, or all that there was when it was elected; else it does not."""
    log = FakeLog(end=5)
    log.epoch = 3
    partition = leader(log, epoch=4)
    log.log_start_offset = 4
    assert partition.epoch_before(4) == NO_EPOCH
    log.log_start_offset = 5
    assert partition.epoch_before(5) == 3
    log.log_start_offset = log.log_end_offset = 6
    assert partition.epoch_before(6) == 4


def test_a_leader_whose_log_is_empty_knows_the_epoch_of_its_last_record() -> None:
    """Retention runs at different times: what it has deleted here, followers in sync may still have, and what they know of
    producers."""
    log = FakeLog(end=2)
    partition = leader(log, epoch=3)
    partition.append(b"x", acks=ACKS_LEADER, now_ms=0)
    for epoch in (4, 5):
        log.log_start_offset, log.epoch = 3, NO_EPOCH
        partition.become_leader(leader_epoch=epoch, partition_epoch=epoch, replicas=(ME,), in_sync_replicas=(ME,))
        assert partition.epoch_before(3) == 3
    partition.become_follower(leader_id=2, leader_epoch=6, partition_epoch=6)
    partition.start_again_at(3)
    partition.become_leader(leader_epoch=7, partition_epoch=7, replicas=(ME,), in_sync_replicas=(ME,))
    assert partition.epoch_before(3) == NO_EPOCH


def test_a_write_is_vouched_for_only_by_its_own_epoch() -> None:
    """A leader that lost and regained the leadership cannot acknowledge what it appended before."""
    partition = leader(FakeLog())
    assert wait_error(partition, 0, 1) is None
    partition.become_follower(leader_id=OTHER, leader_epoch=1, partition_epoch=1)
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(ME,), in_sync_replicas=(ME,))
    assert isinstance(wait_error(partition, 0, 1), NotLeaderOrFollowerError)
    assert wait_error(partition, 2, 1) is None


@pytest.mark.parametrize("acks", [-2, 2, 127])
def test_acks_are_0_1_or_all(acks: int) -> None:
    """Anything else is the caller's mistake."""
    with pytest.raises(InvalidRequiredAcksError):
        check_acks(acks)


@pytest.mark.parametrize("starts_again", [False, True])
def test_the_high_watermark_is_lowered_before_the_log_is_cut(starts_again: bool) -> None:
    """A checkpoint may record it at any time, and must not say that what comes in place of the rest is committed."""

    class Watched(FakeLog):
        def truncate_to(self, offset: int) -> bool:
            seen.append(partition.high_watermark)
            return super().truncate_to(offset)

        def truncate_fully_and_start_at(self, offset: int) -> None:
            seen.append(partition.high_watermark)
            super().truncate_fully_and_start_at(offset)

    seen: list[int] = []
    partition = Partition("t", 0, Watched(end=5), node_id=ME, high_watermark=4)
    (partition.start_again_at if starts_again else partition.truncate_to)(3)
    assert (seen, partition.high_watermark, partition.log.log_end_offset) == ([3], 3, 3)


def test_what_this_process_wrote_lately_is_hot() -> None:
    """Records from before the start, and those with more than HOT_BYTES after them, may have to come from the disk."""
    log = FakeLog(end=7, config=INTERVAL)
    partition = leader(log)
    assert partition.hot_offset == 7
    marks = HOT_BYTES // HOT_MARK_BYTES
    for _ in range(marks - 1):
        partition.append(bytes(HOT_MARK_BYTES), acks=ACKS_LEADER, now_ms=0)
    assert partition.hot_offset == 7
    for _ in range(3):
        partition.append(bytes(HOT_MARK_BYTES), acks=ACKS_LEADER, now_ms=0)
    assert partition.hot_offset == 10
