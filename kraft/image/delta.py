"""The changes between two images, collected record by record."""

from collections.abc import Mapping
from dataclasses import replace

from kraftlog.kraft.image.broker_state import changed_broker, new_broker
from kraftlog.kraft.image.completed_operations import CompletedOperation, new_completed
from kraftlog.kraft.image.image import (
    EMPTY_IMAGE,
    RESOURCE_TOPIC,
    BrokerImage,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from kraftlog.kraft.image.partition_state import changed_partition, new_partition
from kraftlog.kraft.image.persistent import PersistentMap
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.metadata_pb2 import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)


class MetadataDelta:
    """Built by the quorum's node; publishers only read it.

    A topic that was deleted and created again within one delta is in both `deleted_topics` and `created_topics`.
    """

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        """What the changes are relative to."""
        self._topics: dict[bytes, TopicImage] = {}
        self._partitions: dict[bytes, dict[int, PartitionImage]] = {}
        self._deleted: dict[bytes, TopicImage] = {}
        self._brokers: dict[int, BrokerImage | None] = {}
        self._configs: dict[tuple[int, str], PersistentMap[str, str]] = {}
        self._features: dict[str, int] = {}
        self._next_producer_id = image.next_producer_id
        self._completed_before = image.completed_operations
        self._completed: list[CompletedOperation] = []

    @classmethod
    def of_everything(cls, image: MetadataImage) -> "MetadataDelta":
        """From the empty image to `image`: what a publisher that joins late has missed."""
        return cls.between(EMPTY_IMAGE, image)

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> "MetadataDelta":
        """What differs, for an image that comes from a snapshot: nobody has the records in between.

        `apply` gives an image that equals `after` and shares with `before` what did not change. A topic that was deleted
        and created again has another id, so it is in both `deleted_topics` and `created_topics`.
        """
        delta = cls(before)
        for topic in before.topics.values():
            if topic.topic_id not in after.topic_names:
                delta._deleted[topic.topic_id] = topic
        for topic in after.topics.values():
            known = before.topic_by_id(topic.topic_id)
            changed = topic if known is None else _changed_topic(known, topic)
            if changed is not None:
                delta._topics[topic.topic_id] = changed
        delta._brokers = {n: broker for n, broker in after.brokers.items() if before.brokers.get(n) != broker}
        delta._brokers |= {n: None for n in before.brokers if n not in after.brokers}
        delta._configs = {
            key: configs
            for key, configs in after.resource_configs.items()
            if before.resource_configs.get(key) != configs
        }
        delta._configs |= {key: PersistentMap() for key in before.resource_configs if key not in after.resource_configs}
        delta._features = {name: v for name, v in after.features.items() if before.features.get(name) != v}
        delta._next_producer_id = after.next_producer_id
        if before.completed_operations != after.completed_operations:
            delta._completed_before = after.completed_operations
        return delta

    # --- what changed -------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not (
            self._topics
            or self._deleted
            or self._brokers
            or self._configs
            or self._features
            or self._next_producer_id != self.image.next_producer_id
            or self._completed
            or self._completed_before is not self.image.completed_operations
        )

    @property
    def created_topics(self) -> tuple[TopicImage, ...]:
        """Topics that did not exist, as they are after the delta."""
        return tuple(topic for topic_id, topic in self._current() if topic_id not in self.image.topic_names)

    @property
    def changed_topics(self) -> tuple[TopicImage, ...]:
        """Topics that existed and have other partitions or partition states, as they are after the delta."""
        return tuple(topic for topic_id, topic in self._current() if topic_id in self.image.topic_names)

    @property
    def deleted_topics(self) -> tuple[TopicImage, ...]:
        """Topics that existed before the delta, as they were."""
        return tuple(self._deleted.values())

    @property
    def changed_brokers(self) -> Mapping[int, BrokerImage | None]:
        """Registrations that are new or other than before; None: unregistered."""
        return self._brokers

    @property
    def changed_configs(self) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """(resource type, name) -> all that is set there after the delta; empty for a deleted topic."""
        return self._configs

    def changed_partitions(self, topic: TopicImage) -> tuple[PartitionImage, ...]:
        """Those of a created or changed topic that are new or other than before."""
        before = self.image.topic_by_id(topic.topic_id)
        known: Mapping[int, PartitionImage] = {} if before is None else before.partitions
        return tuple(p for number, p in topic.partitions.items() if known.get(number) is not p)

    # --- building -----------------------------------------------------------------------------------------------

    def replay(self, record: MetadataRecord, offset: int) -> None:
        """Add one committed record. Raises `IllegalStateError` for one that does not fit: the log is not ours."""
        kind = record.WhichOneof("record")
        match kind:
            case "topic":
                self._topic(record.topic)
            case "partition":
                self._partition(record.partition)
            case "partition_change":
                self._partition_change(record.partition_change)
            case "remove_topic":
                self._remove_topic(record.remove_topic.topic_id)
            case "config":
                self._config(record.config)
            case "register_broker":
                self._brokers[record.register_broker.node_id] = new_broker(record.register_broker)
            case "unregister_broker":
                self._brokers[record.unregister_broker.node_id] = None
            case "broker_registration_change":
                self._broker_change(record.broker_registration_change)
            case "producer_ids":
                self._next_producer_id = record.producer_ids.next_producer_id
            case "feature_level":
                self._features[record.feature_level.name] = record.feature_level.level
            case "completed_operation":
                self._completed.append(new_completed(record.completed_operation))
            case "begin_transaction" | "end_transaction" | "abort_transaction" | None:
                raise IllegalStateError(f"metadata record {kind} at offset {offset} is not supported here")

    def apply(self, offset: int, leader_epoch: int) -> MetadataImage:
        """The next image, which stands at `offset`."""
        before = self.image
        current = dict(self._current())
        gone = self.deleted_topics
        return MetadataImage(
            offset=offset,
            leader_epoch=leader_epoch,
            topics=before.topics.updated({t.name: t for t in current.values()}, [topic.name for topic in gone]),
            topic_names=before.topic_names.updated(
                {t.topic_id: t.name for t in current.values() if t.topic_id not in before.topic_names},
                [topic.topic_id for topic in gone],
            ),
            brokers=before.brokers.updated(
                {node_id: broker for node_id, broker in self._brokers.items() if broker is not None},
                [node_id for node_id, broker in self._brokers.items() if broker is None],
            ),
            resource_configs=before.resource_configs.updated(
                {key: configs for key, configs in self._configs.items() if configs},
                [key for key, configs in self._configs.items() if not configs],
            ),
            features=before.features.updated(self._features),
            next_producer_id=self._next_producer_id,
            completed_operations=self._completed_before.followed_by(self._completed),
        )

    def _current(self) -> list[tuple[bytes, TopicImage]]:
        """Created and changed topics with their changed partitions put in."""
        for topic_id, changes in self._partitions.items():
            topic = self._topics[topic_id]
            partitions = topic.partitions
            assert isinstance(partitions, PersistentMap)
            self._topics[topic_id] = replace(topic, partitions=partitions.updated(changes))
        self._partitions = {}
        return list(self._topics.items())

    def _topic(self, record: TopicRecord) -> None:
        self._topics[record.topic_id] = TopicImage(
            name=record.name, topic_id=record.topic_id, partitions=PersistentMap()
        )

    def _touched(self, topic_id: bytes) -> dict[int, PartitionImage]:
        if topic_id not in self._topics:
            topic = self.image.topic_by_id(topic_id)
            if topic is None or topic_id in self._deleted:
                raise IllegalStateError(f"metadata record for topic id {topic_id.hex()}, which does not exist")
            self._topics[topic_id] = topic
        return self._partitions.setdefault(topic_id, {})

    def _partition(self, record: PartitionRecord) -> None:
        self._touched(record.topic_id)[record.partition] = new_partition(record)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        changes = self._touched(record.topic_id)
        partition = changes.get(record.partition) or self._topics[record.topic_id].partitions[record.partition]
        changes[record.partition] = changed_partition(partition, record)

    def _remove_topic(self, topic_id: bytes) -> None:
        self._partitions.pop(topic_id, None)
        pending = self._topics.pop(topic_id, None)
        existing = self.image.topic_by_id(topic_id)
        if existing is not None:
            self._deleted[topic_id] = existing
        topic = pending or existing
        if topic is None:
            raise IllegalStateError(f"metadata removes topic id {topic_id.hex()}, which does not exist")
        key = (RESOURCE_TOPIC, topic.name)
        if key in self._configs or key in self.image.resource_configs:
            self._configs[key] = PersistentMap()

    def _config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        configs = self._configs.get(key)
        if configs is None:
            configs = self.image.resource_configs.get(key, PersistentMap[str, str]())
        if record.HasField("value"):
            self._configs[key] = configs.updated({record.key: record.value})
        else:
            self._configs[key] = configs.updated({}, [record.key])

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        known = self._brokers if record.node_id in self._brokers else self.image.brokers
        self._brokers[record.node_id] = changed_broker(known.get(record.node_id), record)


def _changed_topic(before: TopicImage, after: TopicImage) -> TopicImage | None:
    """`after` with the partitions of `before` that are equal; None: all are, and there are no others."""
    known = before.partitions
    same = {n: known[n] for n, partition in after.partitions.items() if n in known and known[n] == partition}
    if len(same) == len(after.partitions) == len(known):
        return None
    return replace(after, partitions=PersistentMap({**after.partitions, **same}))
