"""One partition on some brokers: the real cores of log, partition and replica stream, and the real controller, with every
message, disk, clock and crash in the hands of one random number generator. No event loop: a step is a call.

What it holds against the cores after every step:

- *acknowledged stays*: what a leader acknowledged (acks=all) is at its offset in the log of every replica that the controller
  would let lead without calling it unclean (ISR and ELR) and that is up, on its disk where acknowledgments wait for the disk;
- *deleted stays*: below where records were deleted, with an answer, such a replica has nothing;
- *one history*: two logs that have the same epoch at an offset have the same record there;
- *the high watermark* of a leader epoch never goes back, and below it all replicas of the ISR agree.

An unclean election takes the history of the one that it elects: what that one lacks is lost, and known to be; from then on
the same holds again. In the end everything heals, and all replicas must become equal and hold all that was acknowledged.

With `cleanup.policy=compact` every record has one of a few keys, each replica is compacted for itself, and for all this a
record may be missing where a later acknowledged one has its key.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, cast

from kraftlog.kraft.controller import BrokerRegistration, ControllerConfig, IsrChange
from kraftlog.kraft.image import RESOURCE_TOPIC, MetadataImage, PartitionImage
from kraftlog.logstore import Log, LogConfig, LogDir
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    ConfigChange,
    ConfigResource,
    ElectionTopic,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    NewTopic,
    PartitionReassignment,
    ReplicaAssignment,
)
from kraftlog.proto.errors import DuplicateBrokerRegistrationError, KraftlogError
from kraftlog.proto.records import BatchBuilder, iter_headers
from kraftlog.proto.records.compaction import is_placeholder
from kraftlog.proto.replica_frames import ReplicaBody, ReplicaRecords
from kraftlog.proto.seams import Buffer
from kraftlog.replication.delayed import PendingDeletion
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.following import LeaderFollowing, Truncation
from kraftlog.replication.isr_updates import SETTLE_MS, IsrOutcome, PendingChange, PendingChanges
from kraftlog.replication.partition import ACKS_ALL, Partition
from kraftlog.replication.quota import ReplicationQuota
from kraftlog.replication.returning import Remedy, ReturningBroker
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.kraft.controllers import Harness

TOPIC = "t"
DIRECTORY = "/data/t-0"
LAG_MS = 10_000.0
SESSION_MS = 3_000
BATCH_HEADER_BYTES = 61
KEY_POSITION = 5  # in a short record
KEYS = b"abc"


class Fate(Enum):
    """What becomes of a request for another ISR."""

    ANSWERED = "answered"
    REQUEST_LOST = "the request is lost"
    REQUEST_LATE = "the request is late"
    ANSWER_LOST = "the answer is lost"
    UNDONE = "the controller fails before it is committed"


class Violation(AssertionError):
    """A promise is broken."""


@dataclass(frozen=True, slots=True)
class LateRequest:
    """A request for another ISR that its sender has given up."""

    node_id: int
    broker_epoch: int
    changes: list[IsrChange]
    until_ms: float
    """No request is longer on its way."""


@dataclass(slots=True)
class Stream:
    """From one follower to one leader; both queues are in order, and break together."""

    follower: "Node"
    leader: "Node"
    following: LeaderFollowing
    feed: FollowerFeed
    to_leader: deque[ReplicaBody] = field(default_factory=deque)
    to_follower: deque[ReplicaBody] = field(default_factory=deque)


class Node:
    """A broker: a disk, and while it is up a log, a partition and its view of the metadata."""

    def __init__(self, node_id: int, world: "World") -> None:
        self.node_id = node_id
        self.world = world
        self.disks = 0
        self.lives = 0
        self.clock_rate = 1.0
        self.is_up = False
        self.clean_epoch = -1
        """Broker epoch in which it last stopped in order."""
        self.make_disk()

    def lose_disk(self, rng: random.Random) -> None:
        self.crash(rng, loses_unsynced=True)
        self.make_disk()

    def make_disk(self) -> None:
        self.disks += 1
        self.disk_id = bytes([self.node_id, self.disks]) * 8
        self.fs = SimFileSystem()
        self.recorded_start = 0
        """Of the log, in the checkpoint of its directory."""
        self.fs.mkdir("/data")
        self.fs.mkdir(DIRECTORY)
        self.fs.fsync_dir("/data")
        self.fs.fsync_dir("/")

    @property
    def now_ms(self) -> float:
        """By its own clock."""
        return self.world.now_ms * self.clock_rate

    def start(self) -> None:
        self.is_up = True
        self.image: MetadataImage | None = None
        self._open()
        self.changes = PendingChanges(lambda key: None)
        self.followings: dict[int, LeaderFollowing] = {}
        self.cut: tuple[LeaderFollowing, Truncation] | None = None
        """What the disk is at."""
        self.applied = -1
        self.broker_epoch = -1
        self.returning = ReturningBroker(self.node_id, b"", self.disk_id, cast(LogDir, self))
        self.asked: tuple[list[PendingChange], list[Any]] | None = None

    def _open(self) -> None:
        world, image = self.world, self.image
        self.log = Log(
            self.fs,
            DIRECTORY,
            topic=TOPIC,
            partition=0,
            config=LogConfig.from_configs(
                world.topic_configs if image is None else image.configs(RESOURCE_TOPIC, TOPIC)
            ),
            now_ms=int(world.now_ms),
            log_start_offset=self.recorded_start,
        )
        self.partition = Partition(TOPIC, 0, self.log, node_id=self.node_id, topic_id=world.topic_id)

    @property
    def logs(self) -> dict[tuple[str, int], Log]:
        """What `ReturningBroker` looks at of a log directory."""
        return {self.partition.key: self.log}

    @property
    def damaged_replicas(self) -> frozenset[tuple[bytes, int]]:
        """What its heartbeats say."""
        return frozenset() if not self.is_up or self.image is None else self.returning.damaged_replicas(self.image)

    def find_damage(self) -> None:
        """As a reader that meets a wrong CRC (`ReplicaManager.report_damage`)."""
        key = self.partition.key
        if self.image is None or key in self.returning.lost:
            return
        self.world.note(f"{self.node_id} finds its log damaged")
        self.returning.damaged(key, self.partition.leader_epoch)
        for following in self.followings.values():
            following.unfollow(key)

    def _restore_damaged(self, image: PartitionImage) -> None:
        """As `ReplicaManager._restore_lost`."""
        assert self.image is not None
        for key in list(self.returning.lost):
            remedy = self.returning.remedy(key, self.image)
            if remedy is Remedy.WAIT:
                continue
            self.returning.found(key)
            if remedy is Remedy.FETCH_AGAIN:
                self._delete()
                self._take_role(image)

    def _delete(self) -> None:
        """It is no replica any more, or begins again: the log goes, and nothing is left of what the partition was."""
        self._unfollow()
        self.partition.retire()
        self.log.close()
        for name in self.fs.listdir(DIRECTORY):
            self.fs.unlink(f"{DIRECTORY}/{name}")
        self.fs.fsync_dir(DIRECTORY)
        self.recorded_start = 0
        self._open()
        self.world.note(f"{self.node_id} deletes its log")

    def crash(self, rng: random.Random, *, loses_unsynced: bool) -> None:
        self.is_up = False
        if loses_unsynced:
            self.fs.crash(rng)
        else:
            self.fs.kill()
        self.clean_epoch = -1

    def stop_in_order(self) -> None:
        self.log.flush()
        self.log.close()
        self.clean_epoch = self.broker_epoch
        self.is_up = False

    # --- metadata

    def apply_next(self, count: int = 1) -> bool:
        """Take the next version of the metadata, if there is one; or as many in one step, of which only the last is seen."""
        versions = self.world.versions
        if self.applied + 1 >= len(versions):
            return False
        if self.applied < 0:
            self.applied = len(versions) - 2  # a start takes the newest at once
        self.applied = min(self.applied + count, len(versions) - 1)
        self.image = versions[self.applied]
        self.log.config = LogConfig.from_configs(self.image.configs(RESOURCE_TOPIC, TOPIC))
        found = self.image.partition(TOPIC, 0)
        if found is not None:
            self._take_role(found)
            self._restore_damaged(found)
        self.partition.on_flushed()
        return True

    def _take_role(self, image: PartitionImage) -> None:
        partition = self.partition
        if self.node_id not in image.replicas:
            if partition.leader_epoch >= 0 or partition.log.log_end_offset > 0:
                self._delete()
            return
        if image.leader_id == self.node_id:
            self._unfollow()
            partition.become_leader(
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                replicas=image.replicas,
                in_sync_replicas=image.in_sync_replicas,
                adding_replicas=image.adding_replicas,
                is_recovering=image.is_recovering,
                is_flushed=image.is_flushed,
                monotonic_ms=self.now_ms,
            )
            return
        if (image.leader_id, image.leader_epoch) != (partition.leader_id, partition.leader_epoch):
            self._unfollow()
        changed = partition.become_follower(
            leader_id=image.leader_id,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            is_flushed=image.is_flushed,
        )
        if changed and image.leader_id >= 0 and partition.key not in self.returning.lost:
            self.following(image.leader_id).follow(partition)

    def _unfollow(self) -> None:
        for following in self.followings.values():
            following.unfollow(self.partition.key)
        self.end_cut()

    def following(self, leader_id: int) -> LeaderFollowing:
        if leader_id not in self.followings:
            self.followings[leader_id] = LeaderFollowing(
                leader_id,
                quota=ReplicationQuota.of_follower(self.node_id),
                append=self._append,
                progress=self._progress,
            )
        return self.followings[leader_id]

    def _append(self, partition: Partition, body: ReplicaRecords) -> None:
        records = body.records
        assert isinstance(records, memoryview), "it was decoded"
        partition.append_as_follower(cast(Buffer, records), now_ms=int(self.world.now_ms))

    def _progress(self, partition: Partition, high_watermark: int, log_start_offset: int) -> None:
        partition.follow_high_watermark(high_watermark)
        self.advance_start(min(log_start_offset, partition.high_watermark))

    def advance_start(self, offset: int) -> None:
        """As `Retention.advance_starts`."""
        if offset > self.log.log_start_offset:
            self.recorded_start = offset
            self.log.advance_log_start_offset(offset)
            for following in self.followings.values():
                following.ends_changed(self.partition.key)

    def begin_cut(self) -> None:
        """The disk begins to cut the log, if somebody asked for it."""
        for following in self.followings.values():
            if following.truncations and self.cut is None:
                self.cut = (following, following.truncations.pop())
                self.partition.is_being_cut = True

    def end_cut(self) -> None:
        """The disk has done what it was at, if anything."""
        if self.cut is not None:
            (following, truncation), self.cut = self.cut, None
            if not self.partition.is_leader and self.partition.leader_epoch == truncation.leader_epoch:
                truncation.run()
                self.recorded_start = self.log.log_start_offset
            self.partition.is_being_cut = False
            following.truncated(truncation, is_cut=True, now_ms=self.world.now_ms)

    # --- records

    def records(self) -> dict[int, tuple[int, bytes]]:
        """Offset -> (epoch, value) of all that is in the log."""
        return self.world.records_of(self.log)


class World:
    """See the module."""

    def __init__(
        self, seed: int, *, nodes: int = 3, replicas: int | None = None, configs: dict[str, str] | None = None
    ) -> None:
        """`replicas` of the partition at first; None: one on each node."""
        self.random = random.Random(seed)
        self.now_ms = 1_000.0
        self.trace: list[str] = []
        self.topic_configs = {"min.insync.replicas": "2", "flush.policy": "ack", **(configs or {})}
        self.is_compacted = self.topic_configs.get("cleanup.policy") == "compact"
        self.harness = Harness(
            ControllerConfig(broker_session_timeout_ms=SESSION_MS, auto_leader_rebalance_enable=False)
        ).lead()
        self.topic_id = bytes(16)
        self.nodes = {node_id: Node(node_id, self) for node_id in range(1, nodes + 1)}
        self.versions: list[MetadataImage] = []
        self.streams: dict[tuple[int, int], Stream] = {}
        self.next_value = 0
        self.acknowledged: dict[int, bytes] = {}
        """Offset -> value of what a leader answered at acks=all, or showed to consumers."""
        self.waiting: list[tuple[Node, Partition, int, int, bytes]] = []
        """(leader, its replica, epoch, offset, value) of writes without an answer yet."""
        self.deletions: list[tuple[Node, PendingDeletion]] = []
        """Without an answer yet."""
        self.deleted_start = 0
        """Below it records have been deleted, with an answer."""
        self.marks: dict[tuple[int, int], int] = {}
        """(node, leader epoch) -> high watermark."""
        self.late_requests: list[LateRequest] = []
        self.unclean_epoch = -1
        """The last leader epoch that an unclean election began."""
        self.shown_end = 0
        """Below it consumers may have read: what is left there is among what was acknowledged."""
        self.history_due: int | None = None
        """Who was elected uncleanly, and has not started since."""
        for node in self.nodes.values():
            self.register(node)
        for node in self.nodes.values():
            self.heartbeat(node)
        topic = NewTopic(
            name=TOPIC,
            num_partitions=-1,
            replication_factor=-1,
            configs=self.topic_configs,
            assignments=[ReplicaAssignment(replicas=list(self.nodes)[:replicas])],
        )
        assert self.harness.create(topic).topics[0].error_code == 0
        self.topic_id = self.harness.image.topics[TOPIC].topic_id
        self.publish()
        for node in self.nodes.values():
            epoch = node.broker_epoch
            node.start()
            node.broker_epoch = epoch
            node.apply_next()

    # --- the controller

    @property
    def state(self) -> PartitionImage:
        found = self.harness.image.partition(TOPIC, 0)
        assert found is not None
        return found

    def publish(self) -> None:
        self.versions.append(self.harness.image)
        elections, self.harness.unclean_elections[:] = list(self.harness.unclean_elections), []
        if elections and self.state.leader_id >= 0:  # else a later controller tells of it again
            self._take_history_of(self.nodes[self.state.leader_id])

    def _take_history_of(self, node: Node) -> None:
        """It was elected uncleanly: what its disk does not have is lost."""
        self.unclean_epoch = max(self.unclean_epoch, self.state.leader_epoch)
        self.history_due = None if node.is_up else node.node_id
        if not node.is_up:
            return  # its disk is read when it starts
        records = self.records_of(node.log)
        end = node.log.flushed_end_offset
        self.shown_end = min(self.shown_end, end)
        self.deleted_start = min(self.deleted_start, node.log.log_start_offset)
        self.acknowledged = {
            offset: value
            for offset, value in self.acknowledged.items()
            if offset < end and records.get(offset, (0, value))[1] == value
        }
        self.note(f"{node.node_id} is elected uncleanly: {len(self.acknowledged)} acknowledged records are left")

    def register(self, node: Node) -> None:
        registration = BrokerRegistration(
            node_id=node.node_id,
            incarnation_id=bytes([node.node_id]) + node.lives.to_bytes(15, "big"),
            host="h",
            port=node.node_id,
            log_dirs=(node.disk_id,),
            previous_broker_epoch=node.clean_epoch,
        )
        controller = self.harness.controller
        node.broker_epoch = self.harness.run(lambda: controller.register_broker(registration, now_ms=self.now_ms))

    def heartbeat(self, node: Node) -> None:
        controller, image = self.harness.controller, self.harness.image
        self.harness.now_ms = self.now_ms
        self.harness.run(
            lambda: controller.heartbeat(
                node.node_id,
                node.broker_epoch,
                metadata_offset=image.offset,
                want_fence=False,
                want_shut_down=False,
                now_ms=self.now_ms,
                lost_replicas=node.damaged_replicas,
            )
        )

    def poll_controller(self) -> None:
        self.harness.controller.poll(now_ms=self.now_ms, wall_ms=0)
        self.harness.commit()
        self._publish_if_new()

    def _publish_if_new(self) -> None:
        if self.harness.image.offset != self.versions[-1].offset:
            self.publish()

    def propose(self, node: Node, fate: Fate = Fate.ANSWERED) -> None:
        """Ask the controller for the ISR that is due; answers come later, or never."""
        assert node.image is not None
        proposal = node.partition.propose_isr(max_lag_ms=LAG_MS, monotonic_ms=node.now_ms, brokers=node.image.brokers)
        if proposal is not None:
            node.changes.add(node.partition, proposal)
        batch = node.changes.batch(node.now_ms)
        if not batch or node.asked is not None:
            return
        members = [replica for replica, _ in batch[0].proposal.in_sync_replicas]
        what = "says that all is flushed in the ISR" if batch[0].proposal.has_flushed else "asks for the ISR"
        asks = f"{node.node_id} {what} {members}"
        request = LateRequest(
            node.node_id, node.broker_epoch, [waiting.change for waiting in batch], self.now_ms + SETTLE_MS / 2
        )
        if fate in (Fate.REQUEST_LOST, Fate.REQUEST_LATE, Fate.UNDONE):
            node.changes.unanswered(batch, node.now_ms)
            self.note(f"{asks}: {fate.value}")
            if fate is Fate.REQUEST_LATE:
                self.late_requests.append(request)
            if fate is Fate.UNDONE:
                self.fail_over(request)
            return
        outcomes = self._alter(request)
        if outcomes is None or fate is Fate.ANSWER_LOST:
            node.changes.unanswered(batch, node.now_ms)
            self.note(f"{asks}: {fate.value if outcomes else 'refused altogether'}")
            return
        self.note(f"{asks}: {outcomes[0].error or 'done'}")
        node.asked = (batch, outcomes)

    def _alter(self, request: LateRequest) -> list[IsrOutcome] | None:
        controller = self.harness.controller
        try:
            answers = self.harness.run(
                lambda: controller.alter_partition(request.node_id, request.broker_epoch, request.changes)
            )
        except KraftlogError:
            return None
        self._publish_if_new()
        return [
            IsrOutcome(-1 if answer.partition is None else answer.partition.partition_epoch, answer.error)
            for answer in answers
        ]

    def late_request_arrives(self, index: int = 0) -> None:
        """One that was given up, if it is not too old."""
        if self.late_requests:
            request = self.late_requests.pop(index % len(self.late_requests))
            if self.now_ms < request.until_ms:
                outcomes = self._alter(request)
                what = "refused altogether" if outcomes is None else str(outcomes[0].error or "done")
                self.note(f"the late request of {request.node_id} arrives: {what}")

    def fail_over(self, undone: LateRequest | None = None) -> None:
        """Another controller takes over; `undone`: what the old one had begun, and is nowhere."""
        controller = self.harness.controller
        if undone is not None:
            self.harness.submit(lambda: controller.alter_partition(undone.node_id, undone.broker_epoch, undone.changes))
        self.harness.lose_leadership()
        self.harness.now_ms = self.now_ms
        self.harness.lead()
        self._publish_if_new()
        self.note("another controller takes over")

    def take_answer(self, node: Node) -> None:
        if node.asked is not None:
            batch, outcomes = node.asked
            node.asked = None
            node.changes.settle(batch, outcomes, node.now_ms)

    def elect_preferred(self) -> None:
        """The first replica leads again, if it may."""
        topic = ElectionTopic(name=TOPIC, partitions=[0])
        request = ElectLeadersRequest(type=ElectLeadersRequest.PREFERRED, topics=[topic])
        self.harness.run(lambda: self.harness.controller.elect_leaders(request))
        self._publish_if_new()
        self.note(f"preferred election: leader {self.state.leader_id}, epoch {self.state.leader_epoch}")

    def elect_uncleanly(self) -> None:
        """As an operator who takes what there is."""
        topic = ElectionTopic(name=TOPIC, partitions=[0])
        request = ElectLeadersRequest(type=ElectLeadersRequest.UNCLEAN, topics=[topic])
        self.harness.run(lambda: self.harness.controller.elect_leaders(request))
        self._publish_if_new()
        self.note(f"unclean election: {self.state}")

    def reassign(self, target: list[int] | None) -> None:
        """None: cancel. It may be refused."""
        wanted = PartitionReassignment(topic=TOPIC, partition=0)
        if target is not None:
            wanted.target.replicas.extend(target)
        request = AlterPartitionReassignmentsRequest(partitions=[wanted])
        response = self.harness.run(lambda: self.harness.controller.alter_partition_reassignments(request))
        self._publish_if_new()
        self.note(f"reassignment to {target}: {response.partitions[0].error_message or self.state}")

    def set_config(self, name: str, value: str) -> None:
        """By an operator."""
        change = ConfigChange(name=name, operation=ConfigChange.SET, value=value)
        topic = AlterConfigsResource(resource=ConfigResource(type=RESOURCE_TOPIC, name=TOPIC), changes=[change])
        request = IncrementalAlterConfigsRequest(resources=[topic])
        self.harness.run(lambda: self.harness.controller.alter_configs(request))
        self._publish_if_new()
        self.note(f"{name}={value}")

    # --- life

    def start(self, node: Node) -> None:
        """With a new disk it has to wait for the end of its last session."""
        node.lives += 1
        try:
            self.register(node)
        except DuplicateBrokerRegistrationError:
            return
        epoch = node.broker_epoch
        node.start()
        node.broker_epoch = epoch
        if self.history_due == node.node_id:
            self._take_history_of(node)
        self._publish_if_new()
        while node.apply_next():
            pass
        self.note(f"start {node.node_id}")

    def drop_streams(self, node: Node) -> None:
        for key in [key for key in self.streams if node.node_id in key]:
            del self.streams[key]

    def connect(self, follower: Node, leader: Node) -> None:
        following = follower.following(leader.node_id)
        if following.is_idle:
            return
        feed = FollowerFeed(
            follower.node_id,
            follower.broker_epoch,
            partition_of=lambda topic_id, number: self._partition_at(leader),
            quota=ReplicationQuota.of_leader(leader.node_id),
            on_ends=lambda partition, moved: None,
            on_unreadable=lambda partition: None,
        )
        following.connected()
        self.streams[follower.node_id, leader.node_id] = Stream(follower, leader, following, feed)

    @staticmethod
    def _partition_at(leader: Node) -> Partition:
        return leader.partition

    # --- clients

    def delete_records(self, node: Node, before: int) -> None:
        try:
            end = node.partition.deletion_end(before)
        except KraftlogError as error:
            self.note(f"{node.node_id} deletes nothing: {error}")
            return
        node.advance_start(end)
        self.deletions.append((node, PendingDeletion(node.partition, node.partition.leader_epoch, end)))
        self.note(f"{node.node_id} deletes the records before {end}")

    def produce(self, node: Node, value: bytes | None = None, *, acks: int = ACKS_ALL) -> None:
        key: bytes | None = None
        if value is None:
            value = b"%c%d" % (self.random.choice(KEYS) if self.is_compacted else ord("v"), self.next_value)
        if self.is_compacted:
            key = value[:1]
        builder = BatchBuilder()
        builder.append(1, key, value)
        self.next_value += 1
        batch = builder.build()
        payload = batch[BATCH_HEADER_BYTES:]
        partition = node.partition
        try:
            info = partition.append(batch, acks=acks, now_ms=int(self.now_ms), monotonic_ms=node.now_ms)
        except KraftlogError as error:
            self.note(f"{node.node_id} refuses a write: {type(error).__name__}")
            return
        if acks == ACKS_ALL:
            self.waiting.append((node, partition, partition.leader_epoch, info.last_offset, payload))
        self.note(f"{node.node_id} appends {readable(payload)} at {info.last_offset} in epoch {partition.leader_epoch}")

    def acknowledge(self) -> None:
        left = []
        for write in self.waiting:
            node, partition, epoch, offset, value = write
            if not node.is_up or node.partition is not partition:
                continue  # nobody answers any more: the process has ended, or the replica was deleted
            leads = partition.is_leader and partition.leader_epoch == epoch
            if not leads and not partition.may_commit_later(epoch, offset + 1):
                continue
            if epoch < self.unclean_epoch:
                continue  # the history goes on without it
            if partition.acknowledged_end(ACKS_ALL) > offset:
                if self.acknowledged.setdefault(offset, value) != value:
                    raise Violation(f"offset {offset} was acknowledged for {self.acknowledged[offset]!r} and {value!r}")
                self.note(f"{node.node_id} acknowledges {readable(value)} at {offset}")
            else:
                left.append(write)
        self.waiting = left
        self._acknowledge_deletions()

    def _acknowledge_deletions(self) -> None:
        left = []
        for node, deletion in self.deletions:
            if not node.is_up or node.partition is not deletion.partition:
                continue
            if not deletion.check():
                left.append((node, deletion))
            elif deletion.error is None and deletion.leader_epoch >= self.unclean_epoch:
                self.deleted_start = max(self.deleted_start, deletion.start_offset)
                self.note(f"{node.node_id} acknowledges the deletion of the records before {deletion.start_offset}")
        self.deletions = left

    # --- checks

    def check(self) -> None:
        """What costs little."""
        self.acknowledge()
        self._check_marks()
        last = max(self.acknowledged, default=-1)
        for node in self.nodes.values():
            if node.is_up and self.may_lead(node):
                end = durable_end(node)
                if end <= last:
                    raise Violation(f"node {node.node_id} may lead, but ends at {end}: {last} was acknowledged")
                if (start := node.log.log_start_offset) < self.deleted_start:
                    raise Violation(
                        f"node {node.node_id} may lead, but starts at {start}: all below {self.deleted_start} was deleted"
                    )

    def _check_marks(self) -> None:
        for node in self.nodes.values():
            if not node.is_up:
                continue
            partition, log = node.partition, node.log
            if not log.log_start_offset <= partition.high_watermark <= log.log_end_offset:
                raise Violation(
                    f"node {node.node_id}: high watermark {partition.high_watermark} in a log from"
                    f" {log.log_start_offset} to {log.log_end_offset}"
                )
            if partition.is_leader:
                mark = self.marks.setdefault((node.node_id, partition.leader_epoch), 0)
                if partition.high_watermark < mark:
                    raise Violation(f"node {node.node_id}: the high watermark went back from {mark}")
                self.marks[node.node_id, partition.leader_epoch] = partition.high_watermark
                self._show(node)

    def _show(self, node: Node) -> None:
        """Consumers may read what is below the high watermark of a leader."""
        end = min(node.partition.high_watermark, durable_end(node))
        if node.partition.leader_epoch < self.unclean_epoch or end <= self.shown_end:
            return
        for offset, (_, payload) in self.records_of(node.log, self.shown_end).items():
            if offset < end:
                self.acknowledged.setdefault(offset, payload)
        self.shown_end = end

    def may_lead(self, node: Node) -> bool:
        """Whether the controller takes it to have everything."""
        return node.node_id in (*self.state.in_sync_replicas, *self.state.eligible_leader_replicas)

    def check_contents(self) -> None:
        """More costly: what is in the logs."""
        seen: dict[tuple[int, int], bytes] = {}
        for node in self.nodes.values():
            if not node.is_up:
                continue
            records = node.records()
            for offset, (epoch, value) in records.items():
                if seen.setdefault((epoch, offset), value) != value:
                    raise Violation(f"two records at offset {offset} in epoch {epoch}")
            if self.may_lead(node):
                self._check_holds_acknowledged(node, records)

    def _check_holds_acknowledged(self, node: Node, records: dict[int, tuple[int, bytes]]) -> None:
        newest = {key_of(value): offset for offset, value in sorted(self.acknowledged.items()) if offset in records}
        for offset, value in self.acknowledged.items():
            if self.is_compacted and offset not in records and offset < newest.get(key_of(value), -1):
                continue
            if offset >= node.log.log_start_offset and records.get(offset, (0, b""))[1] != value:
                raise Violation(
                    f"node {node.node_id} may lead: {readable(value)} was acknowledged at {offset}, where it has"
                    f" {records.get(offset)}"
                )

    @property
    def replicas(self) -> list[Node]:
        """As the controller has them."""
        return [self.nodes[node_id] for node_id in self.state.replicas]

    def check_equal(self) -> None:
        """All logs, from where the last of them starts, and all that was acknowledged. Of compacted ones: what is left."""
        logs = {node.node_id: node.records() for node in self.replicas}
        start = max(node.log.log_start_offset for node in self.replicas)
        first, *others = [{o: r for o, r in records.items() if o >= start} for records in logs.values()]
        if self.is_compacted:
            first, *others = [_newest(records) for records in (first, *others)]
        if any(other != first for other in others):
            raise Violation(f"the logs differ: {logs}")
        for node in self.replicas:
            self._check_holds_acknowledged(node, logs[node.node_id])

    @staticmethod
    def records_of(log: Log, start_offset: int = 0) -> dict[int, tuple[int, bytes]]:
        found: dict[int, tuple[int, bytes]] = {}
        offset = max(start_offset, log.log_start_offset)
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
            view = memoryview(bytes(read.records))
            for position, header in iter_headers(view):
                if is_placeholder(header):
                    continue
                batch = bytes(view[position : position + header.size_bytes])
                found[header.base_offset] = (header.leader_epoch, batch[BATCH_HEADER_BYTES:])
            offset = read.next_offset
        return found

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms:9.0f} {text}")


def durable_end(node: Node) -> int:
    """Of what counts: on the disk, where the controller takes that to have all."""
    return node.log.flushed_end_offset if node.world.state.is_flushed else node.log.log_end_offset


def key_of(payload: bytes) -> bytes:
    """Of the record in a batch that `World.produce` made."""
    length = payload[KEY_POSITION - 1] // 2  # a varint, of one byte; without a key 1
    return payload[KEY_POSITION : KEY_POSITION + length]


def readable(payload: bytes) -> str:
    """The value of that record."""
    return payload[KEY_POSITION + len(key_of(payload)) + 1 : -1].decode()


def _newest(records: dict[int, tuple[int, bytes]]) -> dict[bytes, tuple[int, tuple[int, bytes]]]:
    """By key: offset, epoch and payload."""
    return {key_of(record[1]): (offset, record) for offset, record in sorted(records.items())}
