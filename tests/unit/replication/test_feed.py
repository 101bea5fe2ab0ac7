"""A leader's stream to one follower, where the simulated partition does not reach: batches of several records."""

import random
from typing import cast

import pytest

from kraftlog.logstore import Log, LogConfig, LogDir, format_log_dir
from kraftlog.proto.records import BatchBuilder
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaRecords
from kraftlog.proto.seams import Buffer
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.following import LeaderFollowing
from kraftlog.replication.partition import Partition
from kraftlog.replication.quota import ReplicationQuota
from kraftlog.testing.filesystem import SimFileSystem

LEADER, FOLLOWER = 1, 2
TOPIC_ID = bytes(15) + b"\x07"
CONFIG = LogConfig.from_configs({"min.insync.replicas": "1", "flush.policy": "ack"})


class Disk:
    """A broker's, with its log of the partition."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.fs = SimFileSystem()
        format_log_dir("/data", self.fs, cluster_id="c", node_id=node_id, directory_id="d")
        self.open()
        self.log_dir.create_log("t", 0, TOPIC_ID, CONFIG, now_ms=0)

    def open(self) -> None:
        self.log_dir = LogDir.open("/data", fs=self.fs, node_id=self.node_id, cluster_id="c", now_ms=0, config=CONFIG)

    def partition(self) -> Partition:
        return Partition("t", 0, self.log, node_id=self.node_id, topic_id=TOPIC_ID)

    @property
    def log(self) -> Log:
        return self.log_dir.logs["t", 0]

    def start_at(self, offset: int) -> None:
        self.log_dir.record_log_starts({self.log: offset})
        self.log.advance_log_start_offset(offset)

    def lose_power(self) -> None:
        self.fs.crash(_Pessimist())
        self.open()


class _Pessimist(random.Random):
    """Draws the lowest numbers: nothing stays that was not synced."""

    def random(self) -> float:
        return 0.0

    def getrandbits(self, k: int, /) -> int:
        return 0


def batch(count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(1, None, b"%d" % number)
    return builder.build()


def copy(leader: Partition, follower: Partition) -> None:
    """Follow on a new stream, until both are silent."""

    def append(partition: Partition, body: ReplicaRecords) -> None:
        partition.append_as_follower(cast(Buffer, body.records), now_ms=1)

    def progress(partition: Partition, high_watermark: int, log_start_offset: int) -> None:
        partition.follow_high_watermark(high_watermark)

    following = LeaderFollowing(LEADER, quota=ReplicationQuota.of_follower(FOLLOWER), append=append, progress=progress)
    feed = FollowerFeed(
        FOLLOWER,
        1,
        partition_of=lambda topic_id, number: leader,
        quota=ReplicationQuota.of_leader(LEADER),
        on_ends=lambda partition, has_moved: None,
        on_unreadable=lambda partition: None,
    )
    follower.become_follower(leader_id=LEADER, leader_epoch=0, partition_epoch=0, is_flushed=True)
    following.follow(follower)
    following.connected()
    for _ in range(10):
        for body in following.poll(0.0):
            feed.receive(body, 0.0)
        for body in feed.poll(0.0, 1 << 20):
            for arrived in REPLICA_FRAMES.decode(b"".join(REPLICA_FRAMES.encode(body))):
                following.receive(arrived, 0.0)
        truncations, following.truncations = following.truncations, []
        for truncation in truncations:
            truncation.run()
            following.truncated(truncation, is_cut=True, now_ms=0.0)


@pytest.mark.parametrize("leader_start", [55, 40], ids=["the leader starts there", "the leader starts before"])
def test_a_follower_whose_empty_log_starts_in_the_midst_of_a_batch_begins_again_with_it(leader_start: int) -> None:
    """It had recorded where the leader's log starts, and lost power before the batch was on its disk. Asked for that offset, the
    leader sent the batch as a whole, and the follower refused it, for ever."""
    leader_disk, follower_disk = Disk(LEADER), Disk(FOLLOWER)
    leader = leader_disk.partition()
    leader.become_leader(
        leader_epoch=0, partition_epoch=0, replicas=(LEADER, FOLLOWER), in_sync_replicas=(LEADER,), is_flushed=True
    )
    for count in (40, 10):
        leader.append(batch(count), acks=1, now_ms=1)
    copy(leader, follower_disk.partition())
    follower_disk.log.flush()
    leader.append(batch(10), acks=1, now_ms=1)
    copy(leader, follower_disk.partition())
    follower_disk.start_at(55)
    leader_disk.start_at(leader_start)
    follower_disk.lose_power()
    assert (follower_disk.log.log_start_offset, follower_disk.log.log_end_offset) == (55, 55)
    copy(leader, follower_disk.partition())
    assert (follower_disk.log.log_start_offset, follower_disk.log.log_end_offset) == (50, 60)
    assert follower_disk.log.read(55, 1 << 20, end_offset=60) == leader_disk.log.read(55, 1 << 20, end_offset=60)
