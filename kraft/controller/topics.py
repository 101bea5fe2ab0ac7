"""Topics and their partitions: creation, deletion, and who leads."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import (
    MAX_PARTITIONS_PER_REQUEST,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_REPLICATION_FACTOR,
    MAX_TOPICS_PER_REQUEST,
    ControllerConfig,
)
from kraftlog.kraft.controller.configs import ConfigManager
from kraftlog.kraft.controller.placement import place
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.kraft.image.partition_state import changed_partition, new_partition
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.admin_pb2 import (
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewTopic,
)
from kraftlog.proto.errors import (
    IllegalStateError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KraftlogError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    code_of,
)
from kraftlog.proto.metadata_pb2 import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from kraftlog.proto.names import display, is_internal_topic, validate_topic_name
from kraftlog.proto.seams import Random

PartitionKey = tuple[bytes, int]


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    topic_id: bytes
    partition_count: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """Partitions and replicas of a topic that is to be created, after defaults."""

    partition_count: int
    replication_factor: int


class TopicManager:
    """Used only by the controller."""

    def __init__(
        self,
        registry: SnapshotRegistry,
        *,
        config: ControllerConfig,
        random: Random,
        brokers: BrokerManager,
        configs: ConfigManager,
    ) -> None:
        self._config = config
        self._random = random
        self._brokers = brokers
        self._configs = configs
        self._topics: TimelineDict[bytes, _Topic] = TimelineDict(registry)
        self._ids: TimelineDict[str, bytes] = TimelineDict(registry)
        self._collisions: TimelineDict[str, frozenset[str]] = TimelineDict(registry)
        """Names with `.` written as `_` -> the topics that look like this."""
        self._partitions: TimelineDict[PartitionKey, PartitionImage] = TimelineDict(registry)
        self._registry = registry
        self._led_by: dict[int, TimelineDict[PartitionKey, None]] = {}
        """Leader, or NO_LEADER -> its partitions: what a broker's failure or return concerns. A set per leader; empty
        ones stay."""

    def topic_id(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def partition(self, topic_id: bytes, partition: int) -> PartitionImage | None:
        return self._partitions.get((topic_id, partition))

    # --- creation -----------------------------------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, *, allow_internal: bool = False
    ) -> Result[CreateTopicsResponse]:
        """Each topic succeeds or fails alone; those that succeed are created in one batch.

        Topics of the cluster's own are created only from inside (`allow_internal`).
        """
        if len(request.topics) > MAX_TOPICS_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(request.topics)} topics in one request exceed the limit {MAX_TOPICS_PER_REQUEST}: send several"
            )
        response, records = CreateTopicsResponse(), list[MetadataRecord]()
        times_named = Counter(topic.name for topic in request.topics)
        pending_names: set[str] = set()
        partitions_left = MAX_PARTITIONS_PER_REQUEST
        for topic in request.topics:
            try:
                if times_named[topic.name] > 1:
                    raise InvalidRequestError(f"topic {display(topic.name)} is named twice in the request")
                shape = self._check_new(topic, pending_names, allow_internal)
                if shape.partition_count > partitions_left:
                    raise PolicyViolationError(
                        f"topic {topic.name}: more than {MAX_PARTITIONS_PER_REQUEST} partitions in one request:"
                        " send several"
                    )
            except KraftlogError as error:
                response.topics.add(name=topic.name, error_code=code_of(error), error_message=str(error))
                continue
            partitions_left -= shape.partition_count
            pending_names.add(topic.name)
            result = CreateTopicResult(
                name=topic.name,
                num_partitions=shape.partition_count,
                replication_factor=shape.replication_factor,
            )
            if not request.validate_only:
                result.topic_id = self._new_topic_id()
                records += self._creation_records(topic, result.topic_id, shape)
            response.topics.append(result)
        return Result(response, records)

    def _check_new(self, topic: NewTopic, pending_names: set[str], allow_internal: bool) -> _Shape:
        validate_topic_name(topic.name)
        if is_internal_topic(topic.name) and not allow_internal:
            raise InvalidTopicError(f"topic {topic.name} is the cluster's own: it is created when it is needed")
        if topic.name in self._ids:
            raise TopicAlreadyExistsError(f"topic {topic.name} exists already")
        twins = self._collisions.get(_collision_key(topic.name), frozenset[str]()) | {
            name for name in pending_names if _collision_key(name) == _collision_key(topic.name)
        }
        if twins:
            raise InvalidTopicError(
                f"topic {topic.name} differs from {min(twins)} only in '.' and '_', which metrics cannot tell apart"
            )
        shape = _Shape(self._partition_count(topic), self._replication_factor(topic))
        self._configs.check_topic_configs(topic.configs)
        return shape

    def _partition_count(self, topic: NewTopic) -> int:
        if topic.num_partitions == -1:
            return self._config.num_partitions
        if not 1 <= topic.num_partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidPartitionsError(
                f"topic {topic.name}: {topic.num_partitions} partitions are not within 1..{MAX_PARTITIONS_PER_TOPIC}"
                " (-1: the default)"
            )
        return topic.num_partitions

    def _replication_factor(self, topic: NewTopic) -> int:
        live = len(self._brokers.usable_racks())
        factor = topic.replication_factor
        if factor == -1:
            factor = self._config.default_replication_factor or max(min(3, live), 1)
        if not 1 <= factor <= MAX_REPLICATION_FACTOR:
            raise InvalidReplicationFactorError(
                f"topic {topic.name}: replication factor {factor} is not within 1..{MAX_REPLICATION_FACTOR}"
                " (-1: the default)"
            )
        if factor > live:
            raise InvalidReplicationFactorError(
                f"topic {topic.name}: replication factor {factor} is larger than the number of live brokers, {live}"
            )
        return factor

    def _new_topic_id(self) -> bytes:
        """A random UUID of version 4, as Kafka's. Ids that start with a dash in base64 are hard to type: not those."""
        while True:
            bits = self._random.getrandbits(128)
            bits = bits & ~(0xF << 76) | 4 << 76
            bits = bits & ~(0x3 << 62) | 2 << 62
            if bits >> 122 != 0b111110:
                return bits.to_bytes(16, "big")

    def _creation_records(self, topic: NewTopic, topic_id: bytes, shape: _Shape) -> list[MetadataRecord]:
        racks = self._brokers.usable_racks()
        placed = place(racks, shape.partition_count, shape.replication_factor, self._random.randrange(len(racks)))
        records = [MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic_id))]
        records += self._configs.records_for_topic(topic.name, topic.configs)
        records += [
            MetadataRecord(
                partition=PartitionRecord(
                    topic_id=topic_id,
                    partition=partition,
                    replicas=replicas,
                    in_sync_replicas=replicas,
                    leader_id=replicas[0],
                )
            )
            for partition, replicas in enumerate(placed)
        ]
        return records

    # --- deletion -----------------------------------------------------------------------------------------------

    def delete_topics(
        self, request: DeleteTopicsRequest, *, allow_internal: bool = False
    ) -> Result[DeleteTopicsResponse]:
        if len(request.names) > MAX_TOPICS_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(request.names)} topics in one request exceed the limit {MAX_TOPICS_PER_REQUEST}: send several"
            )
        response, records = DeleteTopicsResponse(), list[MetadataRecord]()
        times_named = Counter(request.names)
        for name in request.names:
            result = DeleteTopicResult(name=name)
            try:
                if times_named[name] > 1:
                    raise InvalidRequestError(f"topic {display(name)} is named twice in the request")
                if is_internal_topic(name) and not allow_internal:
                    raise InvalidTopicError(f"topic {name} is the cluster's own and cannot be deleted")
                topic_id = self._ids.get(name)
                if topic_id is None:
                    raise UnknownTopicOrPartitionError(f"topic {display(name)} does not exist")
            except KraftlogError as error:
                result.error_code, result.error_message = code_of(error), str(error)
            else:
                result.topic_id = topic_id
                records.append(MetadataRecord(remove_topic=RemoveTopicRecord(topic_id=topic_id)))
            response.topics.append(result)
        return Result(response, records)

    # --- leadership ---------------------------------------------------------------------------------------------

    def leads(self, node_id: int) -> int:
        """How many partitions this broker leads."""
        return len(self._led_by.get(node_id, ()))

    def move_leaders_from(self, node_id: int, *, may_leave_offline: bool) -> list[MetadataRecord]:
        """New leaders for what `node_id` leads: the first in-sync replica, in replica order, whose broker is usable.

        Where none is left the partition gets no leader; without `may_leave_offline` it keeps its leader instead.
        The in-sync replicas stay as they are: only they hold every acknowledged record.
        """
        usable = self._brokers.usable_racks().keys() - {node_id}
        records = []
        for topic_id, partition in sorted(self._led_by.get(node_id, ())):
            leader = _first_leader(self._partitions[topic_id, partition], usable)
            if leader != NO_LEADER or may_leave_offline:
                records.append(_election(topic_id, partition, leader))
        return records

    def elect_where_missing(self, node_id: int) -> list[MetadataRecord]:
        """Leadership for `node_id`, which becomes usable, of the partitions without a leader that it is in sync with."""
        usable = self._brokers.usable_racks().keys() | {node_id}
        records = []
        for topic_id, partition in sorted(self._led_by.get(NO_LEADER, ())):
            leader = _first_leader(self._partitions[topic_id, partition], usable)
            if leader != NO_LEADER:
                records.append(_election(topic_id, partition, leader))
        return records

    # --- replay -------------------------------------------------------------------------------------------------

    def replay_topic(self, record: TopicRecord) -> None:
        if record.topic_id in self._topics or record.name in self._ids:
            raise IllegalStateError(f"a record creates topic {record.name}, which exists")
        self._topics[record.topic_id] = _Topic(record.name, record.topic_id, 0)
        self._ids[record.name] = record.topic_id
        key = _collision_key(record.name)
        self._collisions[key] = self._collisions.get(key, frozenset[str]()) | {record.name}

    def replay_partition(self, record: PartitionRecord) -> None:
        topic = self._known(record.topic_id)
        self._put((record.topic_id, record.partition), new_partition(record))
        if record.partition >= topic.partition_count:
            self._topics[topic.topic_id] = _Topic(topic.name, topic.topic_id, record.partition + 1)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition)
        before = self._partitions.get(key)
        if before is None:
            raise IllegalStateError(f"a record changes partition {record.partition} of topic {record.topic_id.hex()}")
        self._put(key, changed_partition(before, record))

    def replay_remove(self, record: RemoveTopicRecord) -> None:
        topic = self._known(record.topic_id)
        for partition in range(topic.partition_count):
            self._put((topic.topic_id, partition), None)
        del self._topics[topic.topic_id], self._ids[topic.name]
        key = _collision_key(topic.name)
        twins = self._collisions[key] - {topic.name}
        if twins:
            self._collisions[key] = twins
        else:
            del self._collisions[key]
        self._configs.forget_topic(topic.name)

    def _known(self, topic_id: bytes) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise IllegalStateError(f"a record names topic id {topic_id.hex()}, which does not exist")
        return topic

    def _put(self, key: PartitionKey, partition: PartitionImage | None) -> None:
        before = self._partitions.get(key)
        if partition is None:
            self._partitions.pop(key, None)
        else:
            self._partitions[key] = partition
        old = None if before is None else before.leader_id
        new = None if partition is None else partition.leader_id
        if old == new:
            return
        if old is not None:
            del self._led_by[old][key]
        if new is not None:
            if new not in self._led_by:
                self._led_by[new] = TimelineDict(self._registry)
            self._led_by[new][key] = None


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _first_leader(partition: PartitionImage, usable: Iterable[int]) -> int:
    candidates = set(usable) & set(partition.in_sync_replicas)
    return next((replica for replica in partition.replicas if replica in candidates), NO_LEADER)


def _election(topic_id: bytes, partition: int, leader_id: int) -> MetadataRecord:
    change = PartitionChangeRecord(topic_id=topic_id, partition=partition, leader_id=leader_id)
    return MetadataRecord(partition_change=change)
