"""Administration: topics, configs, and the cluster itself."""

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import Message

from kraftlog import __version__
from kraftlog.kraft.image import NO_LEADER, RESOURCE_BROKER, RESOURCE_TOPIC, BrokerImage
from kraftlog.kraft.image.partition_state import effective_min_in_sync
from kraftlog.logstore import TOPIC_CONFIGS
from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ClusterNode,
    ConfigEntry,
    ConfigResource,
    ConfigResourceDescription,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    NewTopic,
    OngoingReassignment,
    PartitionDescription,
    TopicDescription,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlog.proto.errors import (
    ErrorCode,
    InvalidRequestError,
    KraftlogError,
    NotControllerError,
    ResourceNotFoundError,
    error_for,
)
from kraftlog.proto.names import display, is_internal_topic
from kraftlog.proto.seams import CallContext
from kraftlog.replication.quota import EVERY_BROKER
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.metadata import topic_of
from kraftlog.server.controller import ControllerClient
from kraftlog.server.controller.operations import (
    ALTER_CONFIGS,
    ALTER_REASSIGNMENTS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    UNREGISTER_BROKER,
    UPDATE_FEATURES,
    Operation,
)
from kraftlog.server.dynamic_config import BROKER_CONFIGS

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

SOURCE_DEFAULT = "default"
SOURCE_BROKER = "broker"
SOURCE_TOPIC = "topic"
SOURCE_DYNAMIC = "dynamic"
SOURCE_DYNAMIC_DEFAULT = "dynamic default"


class AdminHandler:
    """Answers admin requests. A change is answered when it is committed and has taken effect on this broker; but new topics
    and partitions, as in Kafka, when they are committed. Every node makes its logs of them afterwards, and requests to a
    partition that is being made wait for that. Questions are answered from the newest metadata.

    Used from one event loop.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        controller: ControllerClient,
        *,
        cluster_id: str,
        topic_defaults: Mapping[str, str],
        broker_configs: Mapping[str, tuple[str, bool]],
    ) -> None:
        """`broker_configs`: key -> (value, whether the broker's file sets it)."""
        self._replicas = replicas
        self._controller = controller
        self._cluster_id = cluster_id
        self._topic_defaults = topic_defaults
        self._broker_configs = broker_configs

    async def create_topics(self, request: CreateTopicsRequest, context: CallContext) -> CreateTopicsResponse:
        """Each topic succeeds or fails by itself."""
        return await self._controller.perform(CREATE_TOPICS, request)

    async def create_topic(
        self, name: str, *, num_partitions: int = -1, replication_factor: int = -1, configs: Mapping[str, str] = {}
    ) -> None:
        """Create one topic from within the broker, internal ones too, and wait for this broker's replicas of it; nothing to do
        if it exists."""
        topic = NewTopic(
            name=name, num_partitions=num_partitions, replication_factor=replication_factor, configs=configs
        )
        response = await self._change(
            CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), is_internal=is_internal_topic(name)
        )
        result = response.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise error_for(result.error_code, result.error_message)

    async def delete_topics(self, request: DeleteTopicsRequest, context: CallContext) -> DeleteTopicsResponse:
        """Each topic succeeds or fails by itself."""
        return await self._change(DELETE_TOPICS, request)

    async def create_partitions(
        self, request: CreatePartitionsRequest, context: CallContext
    ) -> CreatePartitionsResponse:
        """Each topic grows or fails by itself."""
        return await self._controller.perform(CREATE_PARTITIONS, request)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, context: CallContext
    ) -> IncrementalAlterConfigsResponse:
        """Each topic and broker succeeds or fails by itself. What a broker is told by its file, only a restart changes."""
        return await self._change(ALTER_CONFIGS, request)

    async def elect_leaders(self, request: ElectLeadersRequest, context: CallContext) -> ElectLeadersResponse:
        """Each partition succeeds or fails by itself."""
        return await self._change(ELECT_LEADERS, request)

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: CallContext
    ) -> AlterPartitionReassignmentsResponse:
        """Each partition succeeds or fails by itself."""
        return await self._change(ALTER_REASSIGNMENTS, request)

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: CallContext
    ) -> ListPartitionReassignmentsResponse:
        """Those under way, by topic and partition; of topics that do not exist there are none."""
        is_stale = await self._catch_up(allow_stale=request.allow_stale)
        topics = self._replicas.published.topics
        names = sorted(set(request.topics)) or list(topics)
        return ListPartitionReassignmentsResponse(
            partitions=[
                OngoingReassignment(
                    topic=name,
                    partition=number,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding_replicas,
                    removing_replicas=partition.removing_replicas,
                    in_sync_replicas=partition.in_sync_replicas,
                )
                for name in names
                if name in topics
                for number, partition in topics[name].partitions.items()
                if partition.is_reassigning
            ],
            stale=is_stale,
        )

    async def update_features(self, request: UpdateFeaturesRequest, context: CallContext) -> UpdateFeaturesResponse:
        """All or nothing."""
        return await self._change(UPDATE_FEATURES, request)

    async def unregister_broker(
        self, request: UnregisterBrokerRequest, context: CallContext
    ) -> UnregisterBrokerResponse:
        """Forget a broker that will not come back."""
        return await self._change(UNREGISTER_BROKER, request)

    async def _change(
        self, operation: Operation[Request, Response], request: Request, *, is_internal: bool = False
    ) -> Response:
        response = await self._controller.perform(operation, request, is_internal=is_internal)
        await self._replicas.wait_applied()
        return response

    async def _catch_up(self, *, allow_stale: bool) -> bool:
        """Have every change that was answered before, on whichever node; whether that failed, where it may."""
        try:
            await self._controller.read_barrier()
        except NotControllerError:
            if not allow_stale:
                raise
            return True
        return False

    async def describe_topics(self, request: DescribeTopicsRequest, context: CallContext) -> DescribeTopicsResponse:
        """The named topics in the order of the request; all by name if none is named."""
        is_stale = await self._catch_up(allow_stale=request.allow_stale)
        names = list(request.names) or list(self._replicas.published.topics)
        return DescribeTopicsResponse(topics=[self._describe_topic(name) for name in names], stale=is_stale)

    def _describe_topic(self, name: str) -> TopicDescription:
        image = self._replicas.published
        try:
            topic = topic_of(image, name)
        except KraftlogError as error:
            return TopicDescription(name=name, error_code=int(error.code), error_message=error.message)
        min_in_sync = self._replicas.log_config(name, image).min_insync_replicas
        return TopicDescription(
            name=name,
            topic_id=topic.topic_id,
            internal=is_internal_topic(name),
            partitions=[
                PartitionDescription(
                    partition=partition.partition,
                    leader_id=partition.leader_id,
                    leader_epoch=partition.leader_epoch,
                    replicas=partition.replicas,
                    in_sync_replicas=partition.in_sync_replicas,
                    partition_epoch=partition.partition_epoch,
                    eligible_leader_replicas=partition.eligible_leader_replicas,
                    last_known_elr=partition.last_known_elr,
                    recovering=partition.is_recovering,
                    adding_replicas=partition.adding_replicas,
                    removing_replicas=partition.removing_replicas,
                    min_in_sync_replicas=effective_min_in_sync(min_in_sync, len(partition.original_replicas)),
                    flushed=partition.is_flushed,
                )
                for partition in topic.partitions.values()
            ],
            configs=dict(image.configs(RESOURCE_TOPIC, name)),
        )

    async def describe_configs(self, request: DescribeConfigsRequest, context: CallContext) -> DescribeConfigsResponse:
        """What holds for each resource and where it comes from."""
        is_stale = await self._catch_up(allow_stale=request.allow_stale)
        return DescribeConfigsResponse(
            resources=[self._describe_config(resource) for resource in request.resources], stale=is_stale
        )

    def _describe_config(self, resource: ConfigResource) -> ConfigResourceDescription:
        try:
            entries = self._config_entries(resource)
        except KraftlogError as error:
            return ConfigResourceDescription(resource=resource, error_code=int(error.code), error_message=error.message)
        return ConfigResourceDescription(resource=resource, entries=entries)

    def _config_entries(self, resource: ConfigResource) -> list[ConfigEntry]:
        if resource.type == RESOURCE_TOPIC:
            topic_of(self._replicas.published, resource.name)
            return self._topic_entries(self._replicas.published.configs(RESOURCE_TOPIC, resource.name))
        if resource.type == RESOURCE_BROKER:
            if resource.name not in ("", str(self._replicas.node_id)):
                raise ResourceNotFoundError(
                    f"broker {display(resource.name)} does not answer here: ask that broker, this is "
                    f"{self._replicas.node_id}"
                )
            own = [
                ConfigEntry(name=key, value=value, source=SOURCE_BROKER if is_set else SOURCE_DEFAULT)
                for key, (value, is_set) in self._broker_configs.items()
            ]
            return sorted([*own, *self._dynamic_entries()], key=lambda entry: entry.name)
        raise InvalidRequestError(f"config resource type {resource.type} is not known: use 2 (topic) or 4 (broker)")

    def _topic_entries(self, own: Mapping[str, str]) -> list[ConfigEntry]:
        entries: list[ConfigEntry] = []
        for name in sorted(TOPIC_CONFIGS):
            known = TOPIC_CONFIGS[name]
            value, source = known.default, SOURCE_DEFAULT
            if name in self._topic_defaults:
                value, source = self._topic_defaults[name], SOURCE_BROKER
            if name in own:
                value, source = own[name], SOURCE_TOPIC
            entries.append(ConfigEntry(name=name, value=value, source=source, documentation=known.doc))
        return entries

    def _dynamic_entries(self) -> list[ConfigEntry]:
        """Of this broker, from the metadata."""
        image = self._replicas.published
        own, common = (image.configs(RESOURCE_BROKER, name) for name in (str(self._replicas.node_id), EVERY_BROKER))
        entries: list[ConfigEntry] = []
        for name, known in BROKER_CONFIGS.items():
            value, source = known.default, SOURCE_DEFAULT
            if name in common:
                value, source = common[name], SOURCE_DYNAMIC_DEFAULT
            if name in own:
                value, source = own[name], SOURCE_DYNAMIC
            entries.append(ConfigEntry(name=name, value=value, source=source, documentation=known.doc))
        return entries

    async def describe_cluster(self, request: DescribeClusterRequest, context: CallContext) -> DescribeClusterResponse:
        """The nodes and the state of the metadata log."""
        is_stale = await self._catch_up(allow_stale=request.allow_stale)
        quorum = self._controller.quorum
        leader_id = quorum.leader_id
        voters = {key.node_id for key in quorum.voters}
        image = self._replicas.published
        return DescribeClusterResponse(
            cluster_id=self._cluster_id,
            controller_id=NO_LEADER if leader_id is None else leader_id,
            nodes=[
                _cluster_node(
                    broker,
                    context.listener,
                    is_controller=broker.node_id in voters,
                    configs=image.configs(RESOURCE_BROKER, str(broker.node_id)),
                )
                for broker in image.brokers.values()
            ],
            broker_configs=dict(image.configs(RESOURCE_BROKER, EVERY_BROKER)),
            metadata_log_end_offset=quorum.log_end_offset,
            metadata_high_watermark=quorum.high_watermark,
            metadata_leader_epoch=quorum.metadata_leader_epoch,
            version=__version__,
            stale=is_stale,
        )


def _cluster_node(
    broker: BrokerImage, listener: str, *, is_controller: bool, configs: Mapping[str, str]
) -> ClusterNode:
    """The address is that for clients of `listener`; for other brokers, if the broker has no such listener."""
    endpoint = broker.endpoint(listener)
    return ClusterNode(
        node_id=broker.node_id,
        host=broker.host if endpoint is None else endpoint.host,
        port=broker.port if endpoint is None else endpoint.port,
        rack=broker.rack,
        fenced=broker.is_fenced,
        broker_epoch=broker.broker_epoch,
        roles=["broker", "controller"] if is_controller else ["broker"],
        configs=dict(configs),
    )
