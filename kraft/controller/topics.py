"""Topics and their partitions: creation, growth, deletion. Who leads is decided in `elections`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftlog.kraft.controller.assignment import Assigner
from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import (
    MAX_PARTITIONS_PER_REQUEST,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_TOPICS_PER_REQUEST,
    ControllerConfig,
)
from kraftlog.kraft.controller.configs import ConfigManager
from kraftlog.kraft.controller.partition_change import PartitionRules
from kraftlog.kraft.controller.partitions import PartitionStore
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import RESOURCE_TOPIC, PartitionImage
from kraftlog.kraft.image.partition_state import changed_partition, new_partition
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.admin_pb2 import (
    ConfigChange,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    NewPartitions,
    NewTopic,
)
from kraftlog.proto.config import parse_bool
from kraftlog.proto.errors import (
    IllegalStateError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
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

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
FLUSH_POLICY = "flush.policy"


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
        self.assigner = Assigner(brokers, random, config.max_replication_factor)
        self._topics: TimelineDict[bytes, _Topic] = TimelineDict(registry)
        self._ids: TimelineDict[str, bytes] = TimelineDict(registry)
        self._collisions: TimelineDict[str, frozenset[str]] = TimelineDict(registry)
        """Names with `.` written as `_` -> the topics that look like this."""
        self._partitions = PartitionStore(registry)

    @property
    def partitions(self) -> PartitionStore:
        return self._partitions

    def topic_id(self, name: str) -> bytes | None:
        return self._ids.get(name)

    def name_of(self, topic_id: bytes) -> str:
        return self._topics[topic_id].name

    def partition(self, topic_id: bytes, partition: int) -> PartitionImage | None:
        return self._partitions.get((topic_id, partition))

    def configs_of(self, topic_id: bytes) -> Mapping[str, str]:
        """What the topic sets itself."""
        return self._configs.configs(RESOURCE_TOPIC, self._topics[topic_id].name)

    def partition_count(self, topic_id: bytes) -> int:
        return self._topics[topic_id].partition_count

    def check_alterable(self, name: str, changes: Iterable[ConfigChange]) -> None:
        """Raise unless the configs of this topic may be changed like that."""
        if name not in self._ids:
            raise UnknownTopicOrPartitionError(f"topic {display(name)} does not exist")
        for change in changes if is_internal_topic(name) else ():
            if change.name == FLUSH_POLICY and (change.operation, change.value) != (ConfigChange.SET, "ack"):
                raise InvalidConfigError(f"topic {name} is the cluster's own: its flush.policy is always ack")

    def rules_of(self, topic_id: bytes) -> PartitionRules:
        return self._rules(self.configs_of(topic_id))

    def rules_after(self, topic_id: bytes, records: Iterable[MetadataRecord]) -> PartitionRules:
        """What will hold when these records, changes of configs among them, are replayed."""
        configs, name = dict(self.configs_of(topic_id)), self._topics[topic_id].name
        for record in records:
            if (record.config.resource_type, record.config.resource_name) == (RESOURCE_TOPIC, name):
                configs.pop(record.config.key, None)
                if record.config.HasField("value"):
                    configs[record.config.key] = record.config.value
        return self._rules(configs)

    def _rules(self, configs: Mapping[str, str]) -> PartitionRules:
        return PartitionRules(
            min_insync_replicas=int(configs.get(MIN_INSYNC_REPLICAS, self._config.min_insync_replicas)),
            unclean_election=(
                parse_bool(UNCLEAN_ELECTION, configs[UNCLEAN_ELECTION])
                if UNCLEAN_ELECTION in configs
                else self._config.unclean_leader_election_enable
            ),
            flushes_before_ack=configs.get(FLUSH_POLICY, self._config.default_flush_policy) == "ack",
        )

    def _new_budget(self) -> "_Budget":
        return _Budget(
            topics=self._config.max_topics - len(self._topics),
            partitions=self._config.max_partitions - len(self._partitions),
            partitions_of_request=MAX_PARTITIONS_PER_REQUEST,
        )

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
        budget = self._new_budget()
        for topic in request.topics:
            try:
                if times_named[topic.name] > 1:
                    raise InvalidRequestError(f"topic {display(topic.name)} is named twice in the request")
                shape = self._check_new(topic, pending_names, allow_internal)
                budget.take(topic.name, shape.partition_count, new_topics=1)
            except KraftlogError as error:
                response.topics.add(name=topic.name, error_code=code_of(error), error_message=str(error))
                continue
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
        shape = self._shape(topic)
        self._configs.check_topic_configs(topic.configs)
        return shape

    def _shape(self, topic: NewTopic) -> _Shape:
        if topic.assignments:
            if (topic.num_partitions, topic.replication_factor) != (-1, -1):
                raise InvalidRequestError(
                    f"topic {topic.name}: with assignments the numbers of partitions and replicas have to be -1"
                )
            shape = _Shape(len(topic.assignments), len(topic.assignments[0].replicas))
            self._check_count(topic.name, shape.partition_count)
            self.assigner.check_manual(topic.name, topic.assignments, 0, shape.replication_factor)
            return shape
        count = self._config.num_partitions if topic.num_partitions == -1 else topic.num_partitions
        self._check_count(topic.name, count)
        factor = topic.replication_factor
        if factor == -1:
            factor = self._config.default_replication_factor or max(min(3, len(self._brokers.usable_racks())), 1)
        self.assigner.check_factor(topic.name, factor)
        return _Shape(count, factor)

    @staticmethod
    def _check_count(name: str, count: int) -> None:
        if not 1 <= count <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidPartitionsError(
                f"topic {name}: {count} partitions are not within 1..{MAX_PARTITIONS_PER_TOPIC} (-1: the default)"
            )

    def _new_topic_id(self) -> bytes:
        """A random UUID of version 4, as Kafka's. Ids that start with a dash in base64 are hard to type: not those."""
        while True:
            bits = self._random.getrandbits(128)
            bits = bits & ~(0xF << 76) | 4 << 76
            bits = bits & ~(0x3 << 62) | 2 << 62
            if bits >> 122 != 0b111110:
                return bits.to_bytes(16, "big")

    def _creation_records(self, topic: NewTopic, topic_id: bytes, shape: _Shape) -> list[MetadataRecord]:
        return [
            MetadataRecord(topic=TopicRecord(name=topic.name, topic_id=topic_id)),
            *self._configs.records_for_topic(topic.name, topic.configs),
            *self.assigner.records(
                topic_id,
                0,
                shape.partition_count,
                shape.replication_factor,
                topic.assignments,
                is_flushed=self._rules(topic.configs).flushes_before_ack,
            ),
        ]

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

    # --- growth -------------------------------------------------------------------------------------------------

    def create_partitions(self, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        """Each topic grows or fails alone; those that grow do so in one batch."""
        if len(request.topics) > MAX_TOPICS_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(request.topics)} topics in one request exceed the limit {MAX_TOPICS_PER_REQUEST}: send several"
            )
        response, records = CreatePartitionsResponse(), list[MetadataRecord]()
        times_named = Counter(topic.name for topic in request.topics)
        budget = self._new_budget()
        for growth in request.topics:
            result = response.topics.add(name=growth.name)
            try:
                if times_named[growth.name] > 1:
                    raise InvalidRequestError(f"topic {display(growth.name)} is named twice in the request")
                topic, factor = self._check_growth(growth)
                budget.take(topic.name, growth.total_count - topic.partition_count, new_topics=0)
            except KraftlogError as error:
                result.error_code, result.error_message = code_of(error), str(error)
                continue
            if not request.validate_only:
                first, added = topic.partition_count, growth.total_count - topic.partition_count
                records += self.assigner.records(
                    topic.topic_id,
                    first,
                    added,
                    factor,
                    growth.assignments,
                    is_flushed=self.rules_of(topic.topic_id).flushes_before_ack,
                )
        return Result(response, records)

    def _check_growth(self, growth: NewPartitions) -> tuple[_Topic, int]:
        """The topic, and the replication factor of its partitions."""
        topic_id = self._ids.get(growth.name)
        if topic_id is None:
            raise UnknownTopicOrPartitionError(f"topic {display(growth.name)} does not exist")
        topic = self._topics[topic_id]
        if is_internal_topic(topic.name):
            raise InvalidTopicError(f"topic {topic.name} is the cluster's own: keys would move between its partitions")
        if not topic.partition_count < growth.total_count <= MAX_PARTITIONS_PER_TOPIC:
            raise InvalidPartitionsError(
                f"topic {topic.name}: {growth.total_count} partitions are asked for, it has {topic.partition_count}"
                f" and can grow to {MAX_PARTITIONS_PER_TOPIC}"
            )
        factor = len(self._partitions[topic_id, 0].target_replicas)
        if growth.assignments:
            added = growth.total_count - topic.partition_count
            if len(growth.assignments) != added:
                raise InvalidReplicaAssignmentError(
                    f"topic {topic.name}: {len(growth.assignments)} assignments were sent for {added} new partitions"
                )
            self.assigner.check_manual(topic.name, growth.assignments, topic.partition_count, factor)
        else:
            self.assigner.check_factor(topic.name, factor)
        return topic, factor

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
        key = (record.topic_id, record.partition)
        if self._partitions.get(key) is not None:
            raise IllegalStateError(f"a record creates partition {record.partition} of {topic.name}, which exists")
        self._partitions.put(key, new_partition(record))
        if record.partition >= topic.partition_count:
            self._topics[topic.topic_id] = _Topic(topic.name, topic.topic_id, record.partition + 1)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        key = (record.topic_id, record.partition)
        before = self._partitions.get(key)
        if before is None:
            raise IllegalStateError(f"a record changes partition {record.partition} of topic {record.topic_id.hex()}")
        self._partitions.put(key, changed_partition(before, record))

    def replay_remove(self, record: RemoveTopicRecord) -> None:
        topic = self._known(record.topic_id)
        for partition in range(topic.partition_count):
            self._partitions.put((topic.topic_id, partition), None)
        del self._topics[topic.topic_id], self._ids[topic.name]
        key = _collision_key(topic.name)
        twins = self._collisions[key] - {topic.name}
        if twins:
            self._collisions[key] = twins
        else:
            del self._collisions[key]
        self._configs.forget(RESOURCE_TOPIC, topic.name)

    def _known(self, topic_id: bytes) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise IllegalStateError(f"a record names topic id {topic_id.hex()}, which does not exist")
        return topic


@dataclass(slots=True)
class _Budget:
    """How much more there may be."""

    topics: int
    partitions: int
    partitions_of_request: int

    def take(self, topic: str, partitions: int, *, new_topics: int) -> None:
        """Raise `PolicyViolationError`, and take nothing, if it is too much."""
        if partitions > self.partitions_of_request:
            raise PolicyViolationError(
                f"topic {topic}: more than {MAX_PARTITIONS_PER_REQUEST} partitions in one request: send several"
            )
        if new_topics > self.topics:
            raise PolicyViolationError(f"topic {topic}: the cluster may have no more topics (max_topics)")
        if partitions > self.partitions:
            raise PolicyViolationError(
                f"topic {topic}: {partitions} more partitions, the cluster may have {self.partitions} (max_partitions)"
            )
        self.topics -= new_topics
        self.partitions -= partitions
        self.partitions_of_request -= partitions


def _collision_key(name: str) -> str:
    return name.replace(".", "_")
