"""What a follower does with one leader, where the simulated partition does not reach: a disk without room."""

from kraftlog.proto.errors import ErrorCode
from kraftlog.proto.replica_frames import ReplicaFollow, ReplicaRefusal
from kraftlog.replication.following import RETRY_MS, LeaderFollowing
from kraftlog.replication.partition import Partition
from kraftlog.replication.quota import ReplicationQuota
from tests.unit.replication.fake_replica_log import FakeLog

LEADER = 2


def test_a_log_that_cannot_be_cut_for_now_is_asked_for_again_after_a_pause() -> None:
    """A full disk passes: neither is the partition given up, nor is the leader asked without end."""
    following = LeaderFollowing(
        LEADER, quota=ReplicationQuota.of_follower(1), append=lambda *_: None, progress=lambda *_: None
    )
    partition = Partition("orders", 0, FakeLog(), node_id=1)
    partition.become_follower(leader_id=LEADER, leader_epoch=3, partition_epoch=0)
    following.connected()
    following.follow(partition)
    (first,) = [frame for frame in following.poll(0.0) if isinstance(frame, ReplicaFollow)]
    following.receive(ReplicaRefusal(first.follow_id, int(ErrorCode.OFFSET_OUT_OF_RANGE), "gone", 7), 0.0)
    (truncation,) = following.truncations
    following.truncated(truncation, is_cut=False, now_ms=0.0)
    assert following.poll(RETRY_MS - 1) == []
    assert following.next_deadline_ms == RETRY_MS
    (again,) = following.poll(RETRY_MS)
    assert isinstance(again, ReplicaFollow)
    assert again.follow_id > first.follow_id
