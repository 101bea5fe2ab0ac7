"""Metadata: which brokers there are, and which topics and partitions they lead."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable

from kraftlog.kraft.image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage, TopicImage
from kraftlog.proto.broker_pb2 import BrokerInfo, MetadataRequest, MetadataResponse, PartitionInfo, TopicInfo
from kraftlog.proto.errors import ErrorCode, KraftlogError, UnknownTopicOrPartitionError
from kraftlog.proto.names import display, is_internal_topic, validate_topic_name
from kraftlog.proto.records import TimestampType
from kraftlog.proto.seams import CallContext
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.limits import check_entries
from kraftlog.server.quorum import QuorumNode

_TIMESTAMP_TYPES = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}

CATCH_UP_MS = 500  # while the quorum has no leader, metadata must still be quick

CreateTopic = Callable[[str], Awaitable[None]]
"""Creates a topic with the defaults; raises if it cannot. Having been created meanwhile is fine."""


class MetadataHandler:
    """Answers Metadata from the newest image that this broker has. Its own replicas may not all be made by then: whoever
    asks for those waits. Used from one event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        quorum: QuorumNode,
        *,
        cluster_id: str,
        create_topic: CreateTopic | None,
    ) -> None:
        """`create_topic` is None where topics are not created on first use."""
        self._replicas = replicas
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._create_topic = create_topic

    async def metadata(self, request: MetadataRequest, context: CallContext) -> MetadataResponse:
        """Errors are codes in the topics. The order of topics is that of the request, or by name for all."""
        check_entries("topics", request.topics)
        failures = await self._create_missing(request.topics) if request.allow_auto_topic_creation else {}
        published = self._replicas.published
        if any(name not in published.topics and name not in failures for name in request.topics):
            await self._catch_up()
        image = self._replicas.published
        leader_id = self._quorum.leader_id
        names = list(image.topics) if request.all_topics else list(dict.fromkeys(request.topics))
        return MetadataResponse(
            cluster_id=self._cluster_id,
            controller_id=NO_LEADER if leader_id is None else leader_id,
            brokers=[info for broker in image.brokers.values() if (info := broker_info(broker, context.listener))],
            topics=[self._topic(name, image, failures) for name in names],
            metadata_offset=image.offset,
        )

    async def _catch_up(self) -> None:
        """Before a topic is said not to exist: whoever has its creation answered may ask any broker next."""
        with contextlib.suppress(KraftlogError):  # nobody leads the quorum: what this broker knows has to do
            await self._quorum.read_barrier(CATCH_UP_MS)

    async def _create_missing(self, names: Iterable[str]) -> dict[str, KraftlogError]:
        """Create topics on first use, if this broker does; returns what could not be created. The cluster's own topics
        are made only by those who need them."""
        failures: dict[str, KraftlogError] = {}
        if self._create_topic is None:
            return failures
        for name in dict.fromkeys(names):
            if name not in self._replicas.published.topics and not is_internal_topic(name):
                try:
                    validate_topic_name(name)
                    await self._create_topic(name)
                except KraftlogError as error:
                    failures[name] = error
        return failures

    def _topic(self, name: str, image: MetadataImage, failures: dict[str, KraftlogError]) -> TopicInfo:
        topic = image.topics.get(name)
        if topic is None:
            error = failures.get(name) or missing_topic(name)
            return TopicInfo(name=name, error_code=int(error.code), error_message=error.message)
        config = self._replicas.log_config(name, image)
        return TopicInfo(
            name=name,
            topic_id=topic.topic_id,
            internal=is_internal_topic(name),
            partitions=[partition_info(partition, image) for partition in topic.partitions.values()],
            compression_type="producer" if config.compression_type is None else config.compression_type.label,
            max_message_bytes=config.max_message_bytes,
            message_timestamp_type=_TIMESTAMP_TYPES[config.message_timestamp_type],
        )


def missing_topic(name: str) -> KraftlogError:
    """Why there is no such topic: its name is not legal, or nobody has created it."""
    try:
        validate_topic_name(name)
    except KraftlogError as error:
        return error
    return UnknownTopicOrPartitionError(
        f"topic {display(name)} does not exist: create it first (kraftctl topic create {name})"
    )


def broker_info(broker: BrokerImage, listener: str) -> BrokerInfo | None:
    """The broker as a client of `listener` reaches it; None if the broker has no such listener (as in Kafka)."""
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return BrokerInfo(
        node_id=broker.node_id, host=endpoint.host, port=endpoint.port, rack=broker.rack, fenced=broker.is_fenced
    )


def partition_info(partition: PartitionImage, image: MetadataImage) -> PartitionInfo:
    has_leader = partition.leader_id != NO_LEADER
    return PartitionInfo(
        partition=partition.partition,
        error_code=int(ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE),
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        in_sync_replicas=partition.in_sync_replicas,
        offline_replicas=[replica for replica in partition.replicas if _is_offline(replica, image)],
    )


def topic_of(image: MetadataImage, name: str) -> TopicImage:
    """The topic. Raises `InvalidTopicError` or `UnknownTopicOrPartitionError`."""
    topic = image.topics.get(name)
    if topic is None:
        raise missing_topic(name)
    return topic


def _is_offline(node_id: int, image: MetadataImage) -> bool:
    broker = image.brokers.get(node_id)
    return broker is None or broker.is_fenced
