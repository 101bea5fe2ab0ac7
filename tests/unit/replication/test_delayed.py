"""Writes that wait: several partitions of one request, ended by acknowledgment, loss, time or force."""

import pytest

from kraftlog.proto.errors import NotLeaderOrFollowerError, RequestTimedOutError
from kraftlog.replication.delayed import DelayedProduce, PendingWrite
from kraftlog.replication.partition import Partition
from kraftlog.replication.purgatory import Purgatory
from kraftlog.replication.timer import TimerQueue
from tests.unit.replication.fake_replica_log import FakeLog


def written(number: int) -> tuple[Partition, PendingWrite]:
    """A partition with one record that is not flushed, and the write that waits for it."""
    log = FakeLog()
    partition = Partition("orders", number, log, node_id=1)
    partition.become_leader(leader_epoch=0, partition_epoch=0, replicas=(1,), in_sync_replicas=(1,))
    partition.append(b"batch", acks=-1, now_ms=0)
    return partition, PendingWrite(partition, 0, 1, acks=-1)


def flush(partition: Partition) -> None:
    partition.log.flush()
    partition.on_flushed()


def test_a_request_is_complete_when_all_its_partitions_are() -> None:
    """One answer for the request, after the last of its partitions."""
    timers = TimerQueue()
    purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
    pairs = [written(number) for number in range(2)]
    answers: list[bool] = []
    operation = DelayedProduce(
        [write for _, write in pairs], now_ms=0, timeout_ms=100, completed=lambda: answers.append(True)
    )
    purgatory.try_complete_else_watch(operation, [partition.key for partition, _ in pairs])
    flush(pairs[1][0])
    purgatory.check_and_complete(pairs[1][0].key)
    assert answers == []
    flush(pairs[0][0])
    purgatory.check_and_complete(pairs[0][0].key)
    assert answers == [True]
    assert [write.error for _, write in pairs] == [None, None]


def test_an_expired_request_tells_which_partitions_were_acknowledged() -> None:
    """Only what did not come in time is an error."""
    timers = TimerQueue()
    purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
    pairs = [written(number) for number in range(2)]
    operation = DelayedProduce([write for _, write in pairs], now_ms=0, timeout_ms=100, completed=lambda: None)
    purgatory.try_complete_else_watch(operation, [partition.key for partition, _ in pairs])
    flush(pairs[1][0])
    purgatory.check_and_complete(pairs[1][0].key)
    timers.advance(100)
    assert isinstance(pairs[0][1].error, RequestTimedOutError)
    assert pairs[1][1].error is None


def test_an_end_by_force_is_never_a_success() -> None:
    """A stop or a deletion answers who waits, with an error for what is not acknowledged by then."""
    timers = TimerQueue()
    purgatory: Purgatory[tuple[str, int]] = Purgatory(timers)
    partition, write = written(0)
    answers: list[bool] = []
    operation = DelayedProduce([write], now_ms=0, timeout_ms=100, completed=lambda: answers.append(True))
    purgatory.try_complete_else_watch(operation, [partition.key])
    purgatory.complete_all(partition.key)
    assert answers == [True]
    assert isinstance(write.error, NotLeaderOrFollowerError)


def handed_over() -> tuple[Partition, PendingWrite]:
    """A write with acks=all whose leader has lost the leadership before it was acknowledged."""
    partition, _ = written(0)
    write = PendingWrite(partition, 0, 1, acks=-1, outlives_leadership=True)
    partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1)
    return partition, write


def test_successor_may_commit_what_was_under_way() -> None:
    """Its high watermark passes the record, which is there in the epoch in which it was written."""
    partition, write = handed_over()
    assert not write.check()
    partition.follow_high_watermark(1)
    assert write.check()
    assert write.error is None


@pytest.mark.parametrize("epoch_there", [None, 1, 0])
def test_what_the_successor_never_had_is_lost(epoch_there: int | None) -> None:
    """Its record was cut off the log, and perhaps another one took its offset; or none did, of a successor that has compacted
    what it wrote there, and the offset seems to belong to the epoch before the first record that is left."""
    partition, write = handed_over()
    partition.truncate_to(0)
    if epoch_there is not None:
        partition.log.assign_epoch(epoch_there)
        partition.append_as_follower(b"other", now_ms=0)
        partition.follow_high_watermark(1)
    assert write.check()
    assert isinstance(write.error, NotLeaderOrFollowerError)


def test_who_begins_again_cannot_say_what_became_of_a_write() -> None:
    """It may have been committed, and deleted since; what takes its offset later is another record."""
    partition, write = handed_over()
    partition.start_again_at(1)
    partition.follow_high_watermark(1)
    assert write.check()
    assert isinstance(write.error, NotLeaderOrFollowerError)
    assert "not stored" not in write.error.message


def test_a_cut_takes_what_was_written_before_it_and_behind_it() -> None:
    """Of the writes of two epochs in which the replica led: the deeper of two cuts counts, and none before the write."""
    partition, first = handed_over()
    partition.truncate_to(0)
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(1, 2), in_sync_replicas=(1, 2))
    for _ in range(3):
        partition.append(b"x", acks=1, now_ms=0)
    writes = [PendingWrite(partition, 2, end, acks=-1, outlives_leadership=True) for end in (1, 2, 3)]
    partition.become_follower(leader_id=2, leader_epoch=3, partition_epoch=3)
    partition.truncate_to(2)
    partition.append_as_follower(b"other", now_ms=0)
    partition.follow_high_watermark(3)
    for write in (first, *writes):
        assert write.check()
    assert [write.error is None for write in (first, *writes)] == [False, True, True, False]


def test_nobody_waits_long_for_a_successor() -> None:
    """Clients ask it themselves; nor for the end of a replica that goes."""
    for give_up in (lambda its: setattr(its, "given_up_epoch", 0), Partition.retire):
        partition, write = handed_over()
        assert not write.check()
        give_up(partition)
        assert write.check()
        assert isinstance(write.error, NotLeaderOrFollowerError)


def test_whoever_leads_again_knows_by_itself() -> None:
    """In a later epoch: the record is still the one that was written."""
    partition, write = handed_over()
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(1,), in_sync_replicas=(1,))
    partition.log.assign_epoch(0)  # of the record: this log knows one epoch for all
    assert not write.check()
    flush(partition)
    assert write.check()
    assert write.error is None


def test_a_fate_is_fixed_by_the_first_event_that_decides_it() -> None:
    """A write that was lost stays lost, even if the high watermark passes it while the request waits for others."""
    partition, write = written(0)
    partition.become_follower(leader_id=2, leader_epoch=1, partition_epoch=1)
    assert write.check()
    partition.become_leader(leader_epoch=2, partition_epoch=2, replicas=(1,), in_sync_replicas=(1,))
    flush(partition)
    assert write.check()
    assert isinstance(write.error, NotLeaderOrFollowerError)
