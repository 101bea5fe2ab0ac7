"""The partitions of one broker: made and removed as the metadata say, appended to, read, flushed, and waited for.

Metadata updates are applied one after the other by one task, because making logs is blocking work. `published` is the
newest one, which clients are told; `image` the last one that is fully applied. A request to a partition that is published
and not here yet is no mistake of the client: see `wait_made`.

Used from one event loop. Blocking work (fsync, making and deleting logs) runs in the executor.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import cast

from kraftlog.kraft.image import NO_LEADER, RESOURCE_TOPIC, MetadataDelta, MetadataImage, PartitionImage, TopicImage
from kraftlog.logstore import NO_TOPIC_ID, AppendInfo, DiskFullError, Log, LogConfig, LogDir, ThrottledReplicas
from kraftlog.logstore.layout import DAMAGED_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX
from kraftlog.proto.errors import (
    CorruptRecordError,
    KraftlogError,
    NotLeaderOrFollowerError,
    StorageError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.names import display
from kraftlog.proto.records import BatchHeader
from kraftlog.proto.replica_frames import ReplicaRecords
from kraftlog.proto.seams import BlockingExecutor, Buffer, Clock, Random
from kraftlog.replication.cleaner import DEFAULT_LIMITS, Cleaner, CleanerLimits
from kraftlog.replication.cold_reads import ColdReads
from kraftlog.replication.delayed import DelayedDeletion, DelayedProduce, PendingDeletion, PendingWrite
from kraftlog.replication.fetchers import ReplicaFetchers
from kraftlog.replication.flusher import Flusher, FlushQueue
from kraftlog.replication.loop_timers import LoopTimers
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.purgatory import DelayedOperation, Purgatory
from kraftlog.replication.retention import Retention
from kraftlog.replication.returning import Remedy, ReturningBroker
from kraftlog.replication.timer import TimerEntry

logger = logging.getLogger("kraftlog.replication")

MAKERS = 4  # pieces of work that make logs at the same time: each waits for the disk, which serves them together
NEVER_MS = 1 << 62  # Kafka's default of flush.ms is Long.MAX_VALUE: the operating system decides
HAND_OVER_MS = 500  # for a successor to say that writes under way are committed; then clients ask it themselves
DISK_FULL_RETRY_MS = 1_000  # between attempts to flush, to make a log or to record its start, while the disk is full

Listener = Callable[[TopicPartition], None]
LeadershipListener = Callable[[Partition], None]


class ReplicaManager:
    """See the module's text. Call `start` first and `stop` at the end."""

    def __init__(
        self,
        *,
        node_id: int,
        log_dir: LogDir,
        clock: Clock,
        executor: BlockingExecutor,
        random: Random,
        topic_defaults: Mapping[str, str],
        high_watermarks: Mapping[TopicPartition, int],
        on_leadership: LeadershipListener,
        on_storage_failure: Callable[[StorageError], None],
        cleaner_limits: CleanerLimits = DEFAULT_LIMITS,
        incarnation_id: bytes = b"",
        directory_id: bytes = b"",
    ) -> None:
        """`high_watermarks`: as `replication-offset-checkpoint` had them. `incarnation_id` and `directory_id`: what the broker
        registers with. `on_leadership` is called when a partition has begun to lead an epoch or has ceased to lead;
        `on_storage_failure` once, when the log directory has failed and every partition of it is offline."""
        self.node_id = node_id
        self.clock = clock
        self.timers = LoopTimers(clock)
        self.produce_purgatory: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.deletions: Purgatory[TopicPartition] = Purgatory(self.timers)
        """Requests to delete records, which wait for the other replicas."""
        self.fetch_purgatory: Purgatory[TopicPartition] = Purgatory(self.timers)
        self.image = MetadataImage()
        """The last metadata image whose partitions are all here."""
        self.published = MetadataImage()
        """The last metadata image that the quorum has published."""
        self.failure: StorageError | None = None
        """Why the log directory is offline, None while it works."""
        self._log_dir = log_dir
        self._returning = ReturningBroker(node_id, incarnation_id, directory_id, log_dir)
        self._executor = executor
        self._topic_defaults = dict(topic_defaults)
        self._checkpointed = dict(high_watermarks)
        self._on_leadership = on_leadership
        self._on_storage_failure = on_storage_failure
        self._partitions: dict[TopicPartition, Partition] = {}
        self._deleted: set[str] = set()  # topics that `image` still has, while their deletion is being applied
        self._flush_queue = FlushQueue(executor)
        self._flushers: dict[TopicPartition, Flusher] = {}
        self._flush_timers: dict[TopicPartition, TimerEntry] = {}
        self._listeners: dict[TopicPartition, dict[Listener, None]] = {}
        self._log_listeners: dict[TopicPartition, dict[Listener, None]] = {}
        self._fetchers: ReplicaFetchers | None = None
        self._on_switching: Callable[[Partition], None] | None = None
        self._starts_to_follow: dict[TopicPartition, int] = {}
        """Where leaders' logs start by now, and those of this broker's replicas should."""
        self._following_starts: asyncio.Task[None] | None = None
        self._updates: deque[tuple[MetadataDelta | None, MetadataImage]] = deque()
        """What to apply; no delta: `_postponed` is due."""
        self._postponed: set[TopicPartition] = set()
        """Partitions whose logs the full disk had no room for."""
        self._will_retry = False
        self._applying: asyncio.Task[None] | None = None
        self._applied_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._is_stopped = False
        self.cold_reads = ColdReads(executor, on_damage=self.report_damage)
        self.retention = Retention(
            self._partitions,
            log_dir,
            executor,
            clock,
            on_flushed=self._on_flushed,
            on_start=self._on_start,
            on_failed=self.fail,
        )
        self.cleaner = Cleaner(
            self._partitions,
            log_dir,
            executor,
            clock,
            random,
            cleaner_limits,
            on_flushed=self._on_flushed,
            on_failed=self.fail,
            on_damage=self.report_damage,
        )

    def replicate_with(self, fetchers: ReplicaFetchers) -> None:
        """Follow other brokers through these; before the first metadata."""
        self._fetchers = fetchers

    def report_switches_to(self, on_switching: Callable[[Partition], None]) -> None:
        """Call this whenever a leader that has to tell the controller of its switch to flush.policy=ack may have flushed."""
        self._on_switching = on_switching

    @property
    def lost_replicas(self) -> frozenset[tuple[bytes, int]]:
        """(topic id, partition) of those that lack records, as the registration has to say."""
        return self._returning.lost_replicas(self.image)

    @property
    def damaged_replicas(self) -> frozenset[tuple[bytes, int]]:
        """(topic id, partition) of those that were found to be damaged while in use, as the heartbeats have to say."""
        return self._returning.damaged_replicas(self.published)

    # metadata

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Called by the quorum in offset order; the work follows soon, see `wait_applied`."""
        if self._is_stopped:
            return
        self._updates.append((delta, image))
        self.published = image
        if self._applying is None:
            self._applying = asyncio.get_running_loop().create_task(self._apply_updates())

    async def wait_applied(self) -> None:
        """Return when all metadata that the quorum has published so far have taken effect here."""
        if self._applying is not None:
            await self._applied()

    def _applied(self) -> "asyncio.Future[None]":
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._applied_waiters.append((self.published.offset, waiter))
        return waiter

    async def wait_made(self, keys: Iterable[TopicPartition], timeout_ms: float) -> None:
        """Return when those of these partitions are here that this broker is making, or the time is up."""
        if self.is_making(keys):
            await asyncio.wait([self._applied()], timeout=timeout_ms / 1000)

    def is_making(self, keys: Iterable[TopicPartition]) -> bool:
        """Whether one of these partitions is being made."""
        return self._applying is not None and any(self.is_being_made(*key) for key in keys)

    def is_being_made(self, topic: str, number: int) -> bool:
        """Whether the quorum has given this broker a replica that is not here yet, and comes as soon as it is made."""
        if self._applying is None or self.failure is not None:
            return False
        key, published = (topic, number), self.published.partition(topic, number)
        if published is None or self.node_id not in published.replicas:
            return False
        found = self._partitions.get(key)
        if found is not None and found.topic_id == self.published.topics[topic].topic_id:
            return not found.has_role
        return key not in self._postponed and key not in self._returning.lost

    async def _apply_updates(self) -> None:
        try:
            while self._updates:
                delta, image = self._updates.popleft()
                try:
                    if delta is None:
                        image = self.image
                        await self._make_postponed(image)
                    else:
                        await self._apply(delta, image)
                except StorageError as error:
                    self.fail(error)
                self.image = image
                self._deleted = set()
                self._release_waiters()
        finally:
            self._applying = None

    def _release_waiters(self) -> None:
        left: list[tuple[int, asyncio.Future[None]]] = []
        for offset, waiter in self._applied_waiters:
            if offset > self.image.offset:
                left.append((offset, waiter))
            elif not waiter.done():
                waiter.set_result(None)
        self._applied_waiters = left

    async def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._returning.meet(image)
        self._deleted = {topic.name for topic in delta.deleted_topics}
        for topic in delta.deleted_topics:
            await self._remove_topic(topic)
        changes = [
            (topic, partition)
            for topic in (*delta.created_topics, *delta.changed_topics)
            for partition in delta.changed_partitions(topic)
        ]
        configs = {
            name: self.log_config(name, image)
            for resource, name in delta.changed_configs
            if resource == RESOURCE_TOPIC and name in image.topics
        }
        await self._take_partitions(changes, image, configs)
        if self._returning.is_registered(image):
            await self._restore_lost(image)
            await self._remove_strays(image)
        for name, config in configs.items():
            self._reconfigure(image.topics[name], config)
        if self._fetchers is not None:
            self._fetchers.addresses_changed()

    async def _take_partitions(
        self,
        changes: Sequence[tuple[TopicImage, PartitionImage]],
        image: MetadataImage,
        configs: Mapping[str, LogConfig] | None = None,
    ) -> None:
        """`configs`: of the topics that have other ones now."""
        missing = [
            (topic, partition.partition)
            for topic, partition in changes
            if self.node_id in partition.replicas and (topic.name, partition.partition) not in self._partitions
        ]
        await self._make_partitions(missing, image)
        gone = [
            (topic.name, partition.partition)
            for topic, partition in changes
            if self.node_id not in partition.replicas and (topic.name, partition.partition) in self._partitions
        ]
        await self._remove_partitions(gone)
        for topic, partition in changes:
            await self._take_role(topic, partition, None if configs is None else configs.get(topic.name))

    async def _make_postponed(self, image: MetadataImage) -> None:
        """Try again to make what the full disk had no room for."""
        postponed, self._postponed = sorted(self._postponed), set()
        changes = [
            (image.topics[name], partition)
            for name, number in postponed
            if (partition := image.partition(name, number)) is not None
        ]
        await self._take_partitions(changes, image)

    def _retry_postponed(self) -> None:
        self._will_retry = False
        if not self._is_stopped and self.failure is None:
            self._updates.append((None, self.image))
            if self._applying is None:
                self._applying = asyncio.get_running_loop().create_task(self._apply_updates())

    async def _restore_lost(self, image: MetadataImage) -> None:
        """Do for the lost replicas what can be done by now."""
        for key in sorted(self._returning.lost):
            remedy = self._returning.remedy(key, image)
            if remedy is Remedy.WAIT:
                continue
            self._returning.found(key)
            if remedy is Remedy.FORGET:
                continue
            if remedy is Remedy.ADOPT:
                logger.warning(
                    "%s-%d did not say of which topic it is, and is the only one left of its partition", *key
                )
                topic_id = image.topics[key[0]].topic_id
                await self._executor.run(partial(self._log_dir.adopt_log, *key, topic_id))
                continue
            if remedy is Remedy.FETCH_AGAIN:
                logger.warning("%s-%d has lost records here and is fetched again from its leader", *key)
                await self._remove_partitions([key], ending=DAMAGED_DIRECTORY_SUFFIX)
            partition = image.partition(*key)
            assert partition is not None, "else it would be forgotten"
            await self._take_partitions([(image.topics[key[0]], partition)], image)

    async def _remove_strays(self, image: MetadataImage) -> None:
        """Remove the logs of what was deleted or moved away while the broker was down."""
        strays = self._returning.take_strays(image, self._partitions)
        if not strays:
            return
        is_known, log_dir = self._returning.is_known, self._log_dir

        def remove() -> None:
            for key in strays:
                if is_known:
                    logger.warning(
                        "removing %s-%d: it was deleted, or moved to other brokers, while this one was down", *key
                    )
                    log_dir.delete_log(*key)
                else:
                    log_dir.set_aside_log(*key, STRAY_DIRECTORY_SUFFIX)

        await self._executor.run(remove)

    async def _make_partitions(self, missing: Sequence[tuple[TopicImage, int]], image: MetadataImage) -> None:
        """Open or create the logs in the executor, then put the partitions in place. Where the log is lost, there is none
        before the controller knows that."""
        if not missing or self.failure is not None:
            return
        for topic, number in missing:
            if self._returning.look_at((topic.name, number), image):
                self.progressed((topic.name, number))
        lost, logs = self._returning.lost, self._log_dir.logs
        configs = {topic.name: self.log_config(topic.name, image) for topic, _ in missing}
        wanted = [
            (topic, number, configs[topic.name])
            for topic, number in missing
            if (key := (topic.name, number)) not in lost or key in logs
        ]
        if not wanted:
            return
        shares = [wanted[start::MAKERS] for start in range(min(MAKERS, len(wanted)))]
        made = await asyncio.gather(*(self._executor.run(partial(self._make_logs, share)) for share in shares))
        for (topic, number, _), log in zip(chain(*shares), chain(*made), strict=True):
            if log is None:
                self._postponed.add((topic.name, number))
                self.progressed((topic.name, number))
            else:
                self._add(topic, number, log)
        if self._postponed and not self._will_retry:
            self._will_retry = True
            self.timers.add(self.clock.monotonic_ms() + DISK_FULL_RETRY_MS, lambda _now: self._retry_postponed())

    def _make_logs(self, wanted: Sequence[tuple[TopicImage, int, LogConfig]]) -> list[Log | None]:
        """Runs in the executor, for different logs at the same time. None: the disk has no room.

        Not durable on return: a log is with its first flush. One that a power loss leaves out, or leaves without its topic
        id, held nothing that was flushed; it is made anew when the metadata are applied again at the next start.
        """
        made: list[Log | None] = []
        for topic, number, config in wanted:
            try:
                made.append(self._make_log(topic, number, config))
            except DiskFullError as error:
                logger.warning("%s-%d has to wait: %s", topic.name, number, error)
                made.append(None)
        return made

    def _make_log(self, topic: TopicImage, number: int, config: LogConfig) -> Log:
        """Runs in the executor. A log of the same name that belonged to a deleted topic is replaced."""
        key = (topic.name, number)
        log = self._log_dir.logs.get(key)
        if log is not None and self._log_dir.topic_id(*key) != topic.topic_id and key not in self._returning.lost:
            logger.warning(
                "%s-%d: the log on disk is of a topic that was deleted, or was never finished: removing it", *key
            )
            if (
                self._returning.is_known or self._log_dir.topic_id(*key) == NO_TOPIC_ID
            ):  # and it is empty, or it would be lost
                self._log_dir.delete_log(*key)
            else:
                self._log_dir.set_aside_log(*key, STRAY_DIRECTORY_SUFFIX)
            log = None
        if log is None:
            now_ms = self.clock.wall_ms()
            return self._log_dir.create_log(*key, topic.topic_id, config, now_ms=now_ms, settles=False)
        log.config = config
        return log

    def _add(self, topic: TopicImage, number: int, log: Log) -> None:
        partition = Partition(
            topic.name,
            number,
            log,
            node_id=self.node_id,
            topic_id=topic.topic_id,
            high_watermark=self._checkpointed.pop((topic.name, number), 0),  # what has the name next begins anew
        )
        self._partitions[partition.key] = partition
        self._flushers[partition.key] = Flusher(
            log,
            self._flush_queue,
            on_flushed=lambda: self._on_flushed(partition),
            on_failed=self.fail,
            on_full=lambda error: self._on_disk_full(partition, error),
        )

    async def _take_role(self, topic: TopicImage, image: PartitionImage, config: LogConfig | None) -> None:
        partition = self._partitions.get((topic.name, image.partition))
        if partition is None:
            return
        fetchers, leader_id = self._fetchers, image.leader_id
        led_epoch = partition.leader_epoch if partition.is_leader else None
        was_in_sync = partition.is_in_sync
        if leader_id == self.node_id and not self._returning.may_lead(
            topic.topic_id, image.partition, image.leader_epoch
        ):
            leader_id = NO_LEADER
        is_new = (leader_id, image.leader_epoch) != (partition.leader_id, partition.leader_epoch)
        if fetchers is not None and (is_new or leader_id == self.node_id):
            # A cut that the former leader asked for must have ended before the next one hears where this log ends.
            fetchers.unfollow(partition.key)
            await fetchers.wait_unchanging(partition.key)
        self._set_config(partition, config)
        if leader_id == self.node_id:
            changed = partition.become_leader(
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                replicas=image.replicas,
                in_sync_replicas=image.in_sync_replicas,
                adding_replicas=image.adding_replicas,
                is_recovering=image.is_recovering,
                is_flushed=image.is_flushed,
                monotonic_ms=self.clock.monotonic_ms(),
            )
            self.progressed(partition.key)  # the high watermark may have moved with the in-sync replicas
        else:
            changed = partition.become_follower(
                leader_id=leader_id,
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                is_flushed=image.is_flushed,
                is_in_sync=self.node_id in image.in_sync_replicas,
            )
            can_follow = leader_id != NO_LEADER and partition.key not in self._returning.lost
            if fetchers is not None and changed and can_follow:
                fetchers.follow(partition)
        self._flush_as_promised(partition)
        if partition.is_in_sync != was_in_sync:
            self.progressed(partition.key)  # who reads here has to ask the leader
        if led_epoch is not None and not partition.is_leader:
            deadline_ms = self.clock.monotonic_ms() + HAND_OVER_MS
            self.timers.add(deadline_ms, lambda _now: self._give_up_writes(partition, led_epoch))
        if changed:
            self.progressed(partition.key)
            self._on_leadership(partition)

    def _give_up_writes(self, partition: Partition, leader_epoch: int) -> None:
        """Its successor has not said in time that they are committed; whoever leads again knows by itself."""
        if not partition.is_leader:
            partition.given_up_epoch = max(partition.given_up_epoch, leader_epoch)
            self.produce_purgatory.check_and_complete(partition.key)

    async def _remove_topic(self, topic: TopicImage) -> None:
        keys = [(topic.name, number) for number in topic.partitions]
        await self._remove_partitions([key for key in keys if key in self._partitions])
        for key in keys:
            self._returning.found(key)  # what has the name next has lost nothing

    async def _remove_partitions(self, keys: Sequence[TopicPartition], *, ending: str = "") -> None:
        """Their topic is deleted, or their replica here is one no longer. `ending`: of the folders in which the logs stay."""
        fetchers = self._fetchers
        for key in keys:
            partition = self._partitions.pop(key)
            if fetchers is not None:
                fetchers.unfollow(key)
                await fetchers.wait_unchanging(key)
            partition.retire()
            self._cancel_flush_timer(key)
            self.progressed(key)
            self.deletions.complete_all(key)
            self.produce_purgatory.complete_all(key)
            self.fetch_purgatory.complete_all(key)
            self._on_leadership(partition)
        for key in keys:
            await self._flushers.pop(key).close()
            await self.cleaner.leave(key)

        def delete() -> None:
            for key in keys:
                if ending:
                    self._log_dir.set_aside_log(*key, ending)
                else:
                    self._log_dir.delete_log(*key)

        if keys:
            await self._executor.run(delete)

    def _reconfigure(self, topic: TopicImage, config: LogConfig) -> None:
        for number in topic.partitions:
            partition = self._partitions.get((topic.name, number))
            if partition is not None:
                self._set_config(partition, config)
                if partition.is_leader:  # min.insync.replicas may be lower
                    partition.on_flushed()
                    self.progressed(partition.key)
                self._flush_as_promised(partition)

    def _set_config(self, partition: Partition, config: LogConfig | None) -> None:
        """None: it has not changed. At once with the role that the same metadata give: what is committed follows from both, so
        that a raised min.insync.replicas must hold for the ISR that has shrunk since, and a lowered one not for a leader that
        was replaced."""
        if config is None:
            return
        former = partition.log.config
        self._log_dir.logs[partition.key].config = config
        if _throttled(config) != _throttled(former):
            self._throttle_changed(partition.key)

    def _throttle_changed(self, key: TopicPartition) -> None:
        """What its streams hold back may go on, or the other way round."""
        self._notify(self._log_listeners, key)
        if self._fetchers is not None:
            self._fetchers.throttle_changed(key)

    def _flush_as_promised(self, partition: Partition) -> None:
        """What was not flushed under another role or flush.policy is due now."""
        if partition.needs_flush:
            self._flushers[partition.key].request()
        elif partition.is_switching_to_ack and self._on_switching is not None:
            self._on_switching(partition)

    def log_config(self, topic: str, image: MetadataImage | None = None) -> LogConfig:
        """The topic's configs over this node's defaults."""
        image = image or self.image
        return LogConfig.from_configs({**self._topic_defaults, **image.configs(RESOURCE_TOPIC, topic)})

    # partitions

    def partition(self, topic: str, partition: int) -> Partition:
        """The replica on this broker. Raises `UnknownTopicOrPartitionError` or `NotLeaderOrFollowerError`."""
        found = self._partitions.get((topic, partition))
        if found is not None and (self._applying is None or self._is_current(found)):
            return found
        if self.is_being_made(topic, partition):
            raise NotLeaderOrFollowerError(f"broker {self.node_id} is making {topic}-{partition}: try again")
        image = self.image.partition(topic, partition)
        if image is not None and topic not in self._deleted:
            raise NotLeaderOrFollowerError(
                f"broker {self.node_id} has no replica of {topic}-{partition} (leader {image.leader_id}): "
                "refresh the metadata"
            )
        if topic in self.image.topics and topic not in self._deleted:
            count = len(self.image.topics[topic].partitions)
            raise UnknownTopicOrPartitionError(
                f"broker {self.node_id}: topic {topic} has {count} partitions, no partition {partition}"
            )
        raise UnknownTopicOrPartitionError(
            f"broker {self.node_id}: topic {display(topic)} does not exist: create it first (kraftctl topic create)"
        )

    def _is_current(self, partition: Partition) -> bool:
        """Whether the topic was not deleted meanwhile: what a record is acknowledged in must not be about to go."""
        topic = self.published.topics.get(partition.topic)
        return topic is not None and topic.topic_id == partition.topic_id

    def partition_by_id(self, topic_id: bytes, number: int) -> Partition:
        """As `partition`. Raises `UnknownTopicIdError` for a topic that this broker does not know (yet)."""
        name = self.image.topic_names.get(topic_id)
        if name is None:
            raise UnknownTopicIdError(f"broker {self.node_id} knows no topic with id {topic_id.hex()}: try again")
        return self.partition(name, number)

    def leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """As `partition`, and it leads in the epoch that the caller knows."""
        found = self.partition(topic, partition)
        found.check_leader(current_leader_epoch)
        return found

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """All replicas of this broker."""
        return self._partitions

    # writing

    def append(
        self,
        partition: Partition,
        records: Buffer,
        *,
        acks: int,
        batches: list[tuple[int, BatchHeader]] | None = None,
    ) -> AppendInfo:
        """Append at the leader and begin to make it durable. Not acknowledged yet: see `acknowledge`."""
        high_watermark = partition.high_watermark
        try:
            info = partition.append(
                records,
                acks=acks,
                now_ms=self.clock.wall_ms(),
                monotonic_ms=self.clock.monotonic_ms(),
                batches=batches,
            )
        except StorageError:
            self.look_at_failure(partition)
            raise
        if partition.needs_flush:
            self._flushers[partition.key].request()
        elif not partition.flushes_before_ack:
            self._schedule_flush(partition)
        if partition.high_watermark != high_watermark:
            self.progressed(partition.key)
        else:
            self._notify(self._log_listeners, partition.key)
        return info

    # following

    def append_as_follower(self, partition: Partition, body: ReplicaRecords) -> None:
        """Put what a leader sent into the log, and begin to make it durable. Raises what stands in the way."""
        records = cast(Buffer, body.records)  # it was decoded: one buffer
        try:
            partition.append_as_follower(records, now_ms=self.clock.wall_ms())
        except StorageError:
            self.look_at_failure(partition)
            raise
        if partition.needs_flush:
            self._flushers[partition.key].request()
        elif not partition.flushes_before_ack:
            self._schedule_flush(partition)

    def follow_progress(self, partition: Partition, high_watermark: int, log_start_offset: int) -> None:
        """The leader's high watermark and log start."""
        if partition.follow_high_watermark(high_watermark):
            self.progressed(partition.key)
        if log_start_offset > partition.log.log_start_offset:
            self._starts_to_follow[partition.key] = min(log_start_offset, partition.high_watermark)
            if self._following_starts is None:
                self._following_starts = asyncio.get_running_loop().create_task(self._follow_starts())

    async def _follow_starts(self) -> None:
        try:
            while self._starts_to_follow and not self._is_stopped:
                starts, self._starts_to_follow = self._starts_to_follow, {}
                here = {self._partitions[key]: start for key, start in starts.items() if key in self._partitions}
                try:
                    await self.retention.advance_starts(
                        {p: s for p, s in here.items() if not p.is_leader}, of_leader=False
                    )
                except DiskFullError:
                    # Without these starts no replica comes in sync, and the leader says them only once.
                    self._starts_to_follow = {**starts, **self._starts_to_follow}
                    await asyncio.sleep(DISK_FULL_RETRY_MS / 1000)
                    continue
        except StorageError as error:
            self.fail(error)
        finally:
            self._following_starts = None

    def acknowledge(self, writes: Sequence[PendingWrite], *, timeout_ms: float, completed: Callable[[], None]) -> None:
        """Call `completed` once, when every write is acknowledged, failed or timed out; perhaps at once."""
        operation = DelayedProduce(writes, now_ms=self.clock.monotonic_ms(), timeout_ms=timeout_ms, completed=completed)
        try:
            self.produce_purgatory.try_complete_else_watch(operation, [write.partition.key for write in writes])
        except KraftlogError as error:
            for write in writes:
                write.refuse(error)
            operation.force_complete()

    async def wait_deleted(
        self, starts: Mapping[Partition, int], *, timeout_ms: float
    ) -> dict[Partition, KraftlogError | None]:
        """Return when no replica that may come to lead has anything below these starts any more; why that is not known, else."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def completed() -> None:
            if not done.done():
                done.set_result(None)

        waits = [PendingDeletion(partition, partition.leader_epoch, start) for partition, start in starts.items()]
        operation = DelayedDeletion(waits, now_ms=self.clock.monotonic_ms(), timeout_ms=timeout_ms, completed=completed)
        self.deletions.try_complete_else_watch(operation, [partition.key for partition in starts])
        await done
        return {wait.partition: wait.error for wait in waits}

    async def wait_committed(self, partition: Partition, leader_epoch: int, end_offset: int) -> None:
        """Return when the high watermark has reached `end_offset`; raise when it never will in that epoch."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write = PendingWrite(partition, leader_epoch, end_offset, acks=-1)

        def completed() -> None:
            if not done.done():
                done.set_result(None)

        self.acknowledge([write], timeout_ms=math.inf, completed=completed)
        await done
        if write.error is not None:
            raise write.error

    # flushing

    def _on_flushed(self, partition: Partition) -> None:
        self._cancel_flush_timer(partition.key)
        if partition.is_switching_to_ack and self._on_switching is not None:
            self._on_switching(partition)
        if partition.on_flushed() or (partition.flushes_before_ack and partition.is_leader):
            self.progressed(partition.key)
        self._tell_leader(partition)

    def _on_start(self, partition: Partition) -> None:
        """The log starts later: followers and the leader should know, even if there are no records to send, or nobody comes in
        sync again."""
        self._notify(self._log_listeners, partition.key)
        self._tell_leader(partition)

    def _tell_leader(self, partition: Partition) -> None:
        """Where this replica's log starts and ends, if it follows."""
        if self._fetchers is not None and not partition.is_leader:
            self._fetchers.ends_changed(partition.key)

    def _schedule_flush(self, partition: Partition) -> None:
        """`flush.policy=interval`: flush after `flush.messages` records or `flush.ms`, whichever comes first.

        As in Kafka also after a roll: recovery then has one segment to check, and no more files than that stay open.
        """
        log = partition.log
        config = log.config
        if log.log_end_offset - log.flushed_end_offset >= config.flush_messages or log.has_unsynced_segments:
            self._flushers[partition.key].request()
        elif config.flush_ms < NEVER_MS and partition.key not in self._flush_timers:
            self._flush_timers[partition.key] = self.timers.add(
                self.clock.monotonic_ms() + config.flush_ms, lambda _now: self._flush_due(partition.key)
            )

    def _on_disk_full(self, partition: Partition, error: DiskFullError) -> None:
        """Nothing was synced. Whoever waits goes on waiting until there is space or the time is up."""
        logger.warning("%s cannot be flushed: %s", partition, error)
        key = partition.key
        self._cancel_flush_timer(key)
        self._flush_timers[key] = self.timers.add(
            self.clock.monotonic_ms() + DISK_FULL_RETRY_MS, lambda _now: self._flush_due(key)
        )

    def _flush_due(self, key: TopicPartition) -> None:
        self._flush_timers.pop(key, None)
        flusher = self._flushers.get(key)
        if flusher is not None:
            flusher.request()

    def _cancel_flush_timer(self, key: TopicPartition) -> None:
        entry = self._flush_timers.pop(key, None)
        if entry is not None:
            self.timers.cancel(entry)

    def fail(self, error: Exception) -> None:
        """The log directory failed: all of its partitions go offline, and no waiting write is acknowledged."""
        if self.failure is not None:
            return
        self.failure = error if isinstance(error, StorageError) else StorageError(f"{self._log_dir.path}: {error}")
        logger.critical("the log directory %s failed and is offline", self._log_dir.path, exc_info=error)
        for partition in self._partitions.values():
            partition.fail(error)
        for key in {*self._partitions, *self._listeners}:
            self.progressed(key)
        self._on_storage_failure(self.failure)

    def look_at_failure(self, partition: Partition) -> None:
        """A request met an error of the disk. If it is more than a full disk, the directory fails soon, as in Kafka: a
        disk that does not give back one log, or does not take it, is not to be trusted with the others."""
        failure = partition.log.failure
        if failure is not None and self.failure is None:
            asyncio.get_running_loop().call_soon(self.fail, failure)  # not now: whoever waits is answered within

    def report_damage(self, partition: Partition, error: CorruptRecordError) -> None:
        """The log is not what was written. The controller hears of it with the next heartbeat: another replica leads, if one
        can, and this one is fetched again."""
        key = partition.key
        if self._partitions.get(key) is not partition or key in self._returning.lost:
            return
        logger.critical("%s is damaged: %s", partition, error)
        self._returning.damaged(key, partition.leader_epoch)
        if self._fetchers is not None and not partition.is_leader:
            self._fetchers.unfollow(key)

    def check_sound(self, partition: Partition) -> None:
        """Raise `NotLeaderOrFollowerError` where damage was found and another replica can take over. Without one, readers get
        what there is, and meet the damage by its CRC."""
        if not self._returning.is_damaged(partition.key):
            return
        image = self.image.partition(*partition.key)
        if image is not None and {*image.in_sync_replicas, *image.eligible_leader_replicas} - {self.node_id}:
            raise NotLeaderOrFollowerError(
                f"broker {self.node_id}: the log of {partition} is damaged here, another replica takes over: refresh the"
                " metadata"
            )

    # waiting

    def subscribe(self, key: TopicPartition, listener: Listener) -> None:
        """Call `listener(key)` whenever more of the partition can be read, or its role or state changed."""
        self._listeners.setdefault(key, {})[listener] = None

    def unsubscribe(self, key: TopicPartition, listener: Listener) -> None:
        """End a subscription; nothing to do if there is none."""
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listeners[key]

    def watch_log(self, key: TopicPartition, listener: Listener) -> None:
        """As `subscribe`, and also whenever the log has more records, which only replicas may read yet."""
        self._log_listeners.setdefault(key, {})[listener] = None

    def unwatch_log(self, key: TopicPartition, listener: Listener) -> None:
        listeners = self._log_listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._log_listeners[key]

    def wait_for_data(self, operation: DelayedOperation, keys: Sequence[TopicPartition]) -> None:
        """Park a fetch until it can complete."""
        self.fetch_purgatory.try_complete_else_watch(operation, keys)

    @property
    def waiting(self) -> int:
        """Parked requests and subscriptions."""
        subscriptions = sum(len(listeners) for listeners in self._listeners.values())
        return self.produce_purgatory.waiting + self.fetch_purgatory.waiting + self.deletions.waiting + subscriptions

    def progressed(self, key: TopicPartition) -> None:
        """The high watermark, the flushed end, the role or the state of a partition changed."""
        self.produce_purgatory.check_and_complete(key)
        self.deletions.check_and_complete(key)
        self.fetch_purgatory.check_and_complete(key)
        self._notify(self._listeners, key)
        self._notify(self._log_listeners, key)

    @staticmethod
    def _notify(listeners: Mapping[TopicPartition, Mapping[Listener, None]], key: TopicPartition) -> None:
        for listener in tuple(listeners.get(key, ())):
            listener(key)

    # the end

    async def stop(self) -> None:
        """Take no more updates, answer what waits, and let running flushes end. The log directory is the caller's."""
        self._is_stopped = True
        self._updates.clear()
        if self._applying is not None:
            await asyncio.wait((self._applying,))
        if self._fetchers is not None:
            await self._fetchers.close()
        if self._following_starts is not None:
            await asyncio.wait((self._following_starts,))
        await self.cleaner.stop()
        for flusher in list(self._flushers.values()):
            await flusher.close()
        for key in list(self._partitions):
            self.deletions.complete_all(key)
            self.produce_purgatory.complete_all(key)
            self.fetch_purgatory.complete_all(key)
        for _, waiter in self._applied_waiters:
            waiter.cancel()
        self.timers.close()

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What `replication-offset-checkpoint` should hold. Any thread."""
        return {key: partition.high_watermark for key, partition in list(self._partitions.items())}


def _throttled(config: LogConfig) -> tuple[ThrottledReplicas, ThrottledReplicas]:
    return config.leader_replication_throttled_replicas, config.follower_replication_throttled_replicas
