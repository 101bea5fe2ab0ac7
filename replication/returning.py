"""What a broker has lost of its replicas, and which logs are nobody's: found in its log directory when it returns, and damage
also later.

*Lost* is a replica whose log is damaged, or had synced records and is not there any more, or has records and does not say
of which topic. (Not so a new log of which nothing was flushed yet: a power loss may take all or part of it, and what it
leaves is removed, see `LogDir`.) The broker registers it as lost, which takes it out of ISR and ELR (KIP-966), and touches
nothing before the metadata say so: until then the replica counts as one that has every acknowledged record. After that

    another broker leads    the log is set aside with its bytes, and everything is fetched from the leader
    this broker leads       nobody else had more: a damaged log stays, readable up to the damage and closed to writes;
                            one without a topic id is taken for the partition's; a missing one begins anew
    nobody leads            wait

Damage that is met later, by a read, is told with the heartbeats. Such a replica is not in the way of writes, and leads on
if nobody else has every acknowledged record. It keeps its log until another leader epoch shows that the controller knows:
the leader may be about to take it into the ISR by what it has reported of that log.

*Stray* is a log of a topic that was deleted, or of a replica that was moved away, while the broker was down. It goes when
the metadata are known to be those of this directory: they know the directory's id from before this start, and the broker
epoch in which it was stopped. Else it is only set aside, because metadata that were lost or restored know no topics either.

A leader epoch of an earlier process is not led again: this one may have less than that had acknowledged, and replicas
that follow it in that epoch would cut off what they have more. The registration makes the controller elect anew.

Decisions only; the replica manager acts on them. Used from its event loop.
"""

import logging
from collections.abc import Collection, Iterable
from enum import Enum

from kraftlog.kraft.image import NO_LEADER, MetadataImage
from kraftlog.logstore import LogDir
from kraftlog.logstore.log_dir import NO_BROKER_EPOCH, NO_TOPIC_ID
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC
from kraftlog.replication.partition import NO_EPOCH, TopicPartition

logger = logging.getLogger("kraftlog.replication")


class Remedy(Enum):
    """What to do about a lost replica."""

    WAIT = "wait"
    MAKE = "make"
    """There is no log: make one."""
    ADOPT = "adopt"
    """Write the topic id into the log."""
    FETCH_AGAIN = "fetch again"
    """Set the log aside, make another one and follow."""
    FORGET = "forget"
    """There is no such replica any more."""


class ReturningBroker:
    """See the module's text."""

    def __init__(self, node_id: int, incarnation_id: bytes, directory_id: bytes, log_dir: LogDir) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._directory_id = directory_id
        self._log_dir = log_dir
        self._is_known: bool | None = None
        self._former_epochs: dict[tuple[bytes, int], int] = {}
        """(topic id, partition) -> those in which the controller has elected the process before this one: up to the metadata
        that show this one's registration, because nobody is elected who has not seen its own."""
        self._has_met_itself = False
        self._lost: set[TopicPartition] = set()
        self._damaged: dict[TopicPartition, int] = {}
        """Of the lost ones, those that were found while they were in use, and in which leader epoch."""
        self._has_looked_for_strays = False

    def meet(self, image: MetadataImage) -> None:
        """The next metadata, before anything is done about them. Those after the registration change nothing."""
        broker = image.brokers.get(self._node_id)
        if self._is_known is None:
            epoch = self._log_dir.clean_broker_epoch
            self._is_known = (
                broker is not None
                and self._directory_id in broker.log_dirs
                and epoch in (NO_BROKER_EPOCH, broker.broker_epoch)
            )
        if broker is None or self._has_met_itself:
            return
        self._has_met_itself = broker.incarnation_id == self._incarnation_id
        self._former_epochs |= {
            (topic.topic_id, number): partition.leader_epoch
            for topic in image.topics.values()
            for number, partition in topic.partitions.items()
            if partition.leader_id == self._node_id
        }

    @property
    def is_known(self) -> bool:
        """Whether the metadata are those that this directory was used with."""
        return self._is_known is True

    def may_lead(self, topic_id: bytes, number: int, leader_epoch: int) -> bool:
        """Whether this broker was elected as the process that it is."""
        return leader_epoch > self._former_epochs.get((topic_id, number), -1)

    def is_registered(self, image: MetadataImage) -> bool:
        """Whether the controller has heard what is lost, and this image says what follows from it."""
        broker = image.brokers.get(self._node_id)
        return broker is not None and broker.incarnation_id == self._incarnation_id

    # --- lost replicas

    @property
    def lost(self) -> Collection[TopicPartition]:
        return self._lost

    def lost_replicas(self, image: MetadataImage) -> frozenset[tuple[bytes, int]]:
        """For the registration: (topic id, partition)."""
        return _with_ids(self._lost, image)

    def damaged_replicas(self, image: MetadataImage) -> frozenset[tuple[bytes, int]]:
        """For the heartbeats, likewise, as long as the controller has to do something about them."""
        return _with_ids((key for key in self._damaged if self.remedy(key, image) is Remedy.WAIT), image)

    def look_at(self, key: TopicPartition, image: MetadataImage) -> bool:
        """Whether the replica, whose partition is about to be made, is lost."""
        log = self._log_dir.logs.get(key)
        if log is None:
            is_lost = key in self._log_dir.missing_logs and not self.is_registered(image)
        else:
            is_nameless = self._log_dir.topic_id(*key) == NO_TOPIC_ID
            is_lost = log.damage is not None or (is_nameless and log.log_end_offset > 0)
        if is_lost:
            self._lost.add(key)
        return is_lost

    def damaged(self, key: TopicPartition, leader_epoch: int) -> None:
        """Its log is not what was written. It has reported to no leader of a later epoch."""
        self._lost.add(key)
        self._damaged[key] = leader_epoch

    def is_damaged(self, key: TopicPartition) -> bool:
        """Whether that was found while it was in use."""
        return key in self._damaged

    def found(self, key: TopicPartition) -> None:
        """The replica is as good as any from now on."""
        self._lost.discard(key)
        self._damaged.pop(key, None)

    def remedy(self, key: TopicPartition, image: MetadataImage) -> Remedy:
        """What to do now; `image` shows the registration."""
        partition = image.partition(*key)
        if partition is None or self._node_id not in partition.replicas:
            return Remedy.FORGET
        log = self._log_dir.logs.get(key)
        if log is None:
            return Remedy.MAKE
        if partition.leader_id == self._node_id:
            return Remedy.ADOPT if log.damage is None and key not in self._damaged else Remedy.WAIT
        claims = (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
        if partition.leader_id == NO_LEADER or self._node_id in claims:
            return Remedy.WAIT
        if partition.leader_epoch <= self._damaged.get(key, NO_EPOCH):
            return Remedy.WAIT
        return Remedy.FETCH_AGAIN

    # --- stray logs

    def take_strays(self, image: MetadataImage, in_use: Collection[TopicPartition]) -> list[TopicPartition]:
        """The logs that are nobody's; once, when `image` shows the registration."""
        if self._has_looked_for_strays:
            return []
        self._has_looked_for_strays = True
        return [
            key
            for key in self._log_dir.logs
            if key[0] != CLUSTER_METADATA_TOPIC and key not in in_use and self._is_stray(key, image)
        ]

    def _is_stray(self, key: TopicPartition, image: MetadataImage) -> bool:
        topic_id = self._log_dir.topic_id(*key)
        if topic_id == NO_TOPIC_ID and self._log_dir.logs[key].log_end_offset == 0:
            partition = image.partition(*key)  # what a crash left of a new log, and it is not wanted any more
            return partition is None or self._node_id not in partition.replicas
        if topic_id == NO_TOPIC_ID:
            logger.warning("%s-%d is left alone: its folder does not say of which topic it is", *key)
            return False
        topic = image.topic_by_id(topic_id)
        if topic is None:
            return True
        partition = topic.partitions.get(key[1])
        if topic.name != key[0] or partition is None:
            logger.warning(
                "%s-%d is left alone: its topic id is that of %s, which has no such partition", *key, topic.name
            )
            return False
        return self._node_id not in partition.replicas


def _with_ids(keys: Iterable[TopicPartition], image: MetadataImage) -> frozenset[tuple[bytes, int]]:
    return frozenset((image.topics[name].topic_id, number) for name, number in keys if name in image.topics)
