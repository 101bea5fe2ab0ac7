"""Consumer groups: finding the coordinator; all else is the group coordinator's own."""

from collections.abc import Awaitable, Callable

from kraftlog.kraft.image import NO_LEADER
from kraftlog.proto.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KraftlogError,
    UnsupportedVersionError,
)
from kraftlog.proto.group_pb2 import FindCoordinatorRequest, FindCoordinatorResponse
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC, validate_group_id
from kraftlog.proto.seams import CallContext
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.coordinator import partition_for

GROUP = 0
TRANSACTION = 1


class FindCoordinatorHandler:
    """Answers FindCoordinator from the applied metadata. Used from one event loop."""

    def __init__(self, replicas: ReplicaManager, create_offsets_topic: Callable[[], Awaitable[None]]) -> None:
        self._replicas = replicas
        self._create_offsets_topic = create_offsets_topic

    async def find_coordinator(self, request: FindCoordinatorRequest, context: CallContext) -> FindCoordinatorResponse:
        """The leader of the group's partition of `__consumer_offsets`, which is created on first use."""
        try:
            return await self._find(request, context.listener)
        except KraftlogError as error:
            return FindCoordinatorResponse(error_code=int(error.code), error_message=error.message, node_id=NO_LEADER)

    async def _find(self, request: FindCoordinatorRequest, listener: str) -> FindCoordinatorResponse:
        if request.key_type == TRANSACTION:
            raise UnsupportedVersionError("transactional producing is not available on this broker")
        if request.key_type != GROUP:
            raise InvalidRequestError(f"coordinator key type {request.key_type} is not known: use 0 (group)")
        validate_group_id(request.key)
        if CONSUMER_OFFSETS_TOPIC not in self._replicas.image.topics:
            await self._create_offsets_topic()
        image = self._replicas.image
        topic = image.topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailableError(f"{CONSUMER_OFFSETS_TOPIC} is being created: try again")
        partition = topic.partitions[partition_for(request.key, len(topic.partitions))]
        broker = image.brokers.get(partition.leader_id)
        if broker is None or broker.is_fenced:
            raise CoordinatorNotAvailableError(
                f"{CONSUMER_OFFSETS_TOPIC}-{partition.partition} of group {request.key} has no leader: try again"
            )
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            raise CoordinatorNotAvailableError(
                f"broker {broker.node_id}, the coordinator of group {request.key}, has no listener {listener}"
            )
        return FindCoordinatorResponse(node_id=broker.node_id, host=endpoint.host, port=endpoint.port)
