"""The service `Controller`, for the listeners of controllers: what brokers ask of the leader of the metadata quorum."""

from kraftlog.kraft.controller import BrokerRegistration, IsrAnswer, IsrChange
from kraftlog.kraft.controller.config import MAX_LOSSES_PER_BATCH
from kraftlog.kraft.image import BrokerEndpoint
from kraftlog.proto import controller_pb2
from kraftlog.proto.errors import InvalidRequestError, NotControllerError, code_of
from kraftlog.proto.seams import CallContext, Handlers
from kraftlog.server.apis.protobuf import parse, protobuf_handler
from kraftlog.server.controller.operations import OPERATIONS
from kraftlog.server.quorum import QuorumNode

SERVICE = "/kraftlog.v1.Controller/"
FORWARD = SERVICE + "Forward"
REGISTER_BROKER = SERVICE + "RegisterBroker"
BROKER_HEARTBEAT = SERVICE + "BrokerHeartbeat"
ALLOCATE_PRODUCER_IDS = SERVICE + "AllocateProducerIds"
ALTER_PARTITION = SERVICE + "AlterPartition"

MAX_ENTRIES = 1_000  # log directories, listeners or features of one broker


class ControllerService:
    """Used from one event loop. Every method raises `NotControllerError` where another node leads."""

    def __init__(self, quorum: QuorumNode) -> None:
        self._quorum = quorum

    def handlers(self) -> Handlers:
        """By full method name."""
        return Handlers(
            unary={
                FORWARD: protobuf_handler(controller_pb2.ForwardRequest, self._forward),
                REGISTER_BROKER: protobuf_handler(controller_pb2.RegisterBrokerRequest, self._register_broker),
                BROKER_HEARTBEAT: protobuf_handler(controller_pb2.BrokerHeartbeatRequest, self._heartbeat),
                ALLOCATE_PRODUCER_IDS: protobuf_handler(controller_pb2.AllocateProducerIdsRequest, self._allocate),
                ALTER_PARTITION: protobuf_handler(controller_pb2.AlterPartitionRequest, self._alter_partition),
            }
        )

    async def _forward(
        self, request: controller_pb2.ForwardRequest, context: CallContext
    ) -> controller_pb2.ForwardResponse:
        operation = OPERATIONS.get(request.method)
        if operation is None:
            raise InvalidRequestError(
                f"{request.method[:100]!r} is no method that a controller does for brokers; it knows "
                f"{', '.join(sorted(OPERATIONS))}"
            )
        self._check_leads()
        response = await operation.run(self._quorum, parse(operation.request, request.request), request.internal)
        return controller_pb2.ForwardResponse(
            response=response.SerializeToString(deterministic=True), metadata_offset=self._quorum.image.offset
        )

    async def _register_broker(
        self, request: controller_pb2.RegisterBrokerRequest, context: CallContext
    ) -> controller_pb2.RegisterBrokerResponse:
        for what, entries, limit in (
            ("log directories", request.log_dirs, MAX_ENTRIES),
            ("listeners", request.listeners, MAX_ENTRIES),
            ("features", request.features, MAX_ENTRIES),
            ("lost replicas", request.lost_replicas, MAX_LOSSES_PER_BATCH),
        ):
            if len(entries) > limit:
                raise InvalidRequestError(f"a registration with {len(entries)} {what} was sent, the limit is {limit}")
        has_epoch = request.HasField("previous_broker_epoch")
        registration = BrokerRegistration(
            node_id=request.node_id,
            incarnation_id=request.incarnation_id,
            host=request.host,
            port=request.port,
            rack=request.rack,
            log_dirs=tuple(request.log_dirs),
            previous_broker_epoch=request.previous_broker_epoch if has_epoch else None,
            features={each.name: (each.min_level, each.max_level) for each in request.features},
            lost_replicas=frozenset((each.topic_id, each.partition) for each in request.lost_replicas),
            endpoints=tuple(BrokerEndpoint(each.name, each.host, each.port) for each in request.listeners),
        )
        self._check_leads()
        epoch = await self._quorum.controller.register_broker(registration)
        return controller_pb2.RegisterBrokerResponse(broker_epoch=epoch)

    async def _heartbeat(
        self, request: controller_pb2.BrokerHeartbeatRequest, context: CallContext
    ) -> controller_pb2.BrokerHeartbeatResponse:
        if len(request.lost_replicas) > MAX_LOSSES_PER_BATCH:
            raise InvalidRequestError(
                f"a heartbeat with {len(request.lost_replicas)} lost replicas was sent, the limit is {MAX_LOSSES_PER_BATCH}"
            )
        self._check_leads()
        reply = await self._quorum.controller.heartbeat(
            request.node_id,
            request.broker_epoch,
            metadata_offset=request.metadata_offset,
            want_fence=request.want_fence,
            want_shut_down=request.want_shut_down,
            offline_log_dirs=tuple(request.offline_log_dirs),
            lost_replicas=frozenset((each.topic_id, each.partition) for each in request.lost_replicas),
        )
        return controller_pb2.BrokerHeartbeatResponse(
            is_fenced=reply.is_fenced, should_shut_down=reply.should_shut_down
        )

    async def _allocate(
        self, request: controller_pb2.AllocateProducerIdsRequest, context: CallContext
    ) -> controller_pb2.AllocateProducerIdsResponse:
        self._check_leads()
        first_id, count = await self._quorum.controller.allocate_producer_ids(
            request.node_id, request.broker_epoch, request.count, request_id=request.request_id or None
        )
        return controller_pb2.AllocateProducerIdsResponse(first_id=first_id, count=count)

    async def _alter_partition(
        self, request: controller_pb2.AlterPartitionRequest, context: CallContext
    ) -> controller_pb2.AlterPartitionResponse:
        self._check_leads()
        answers = await self._quorum.controller.alter_partition(
            request.node_id,
            request.broker_epoch,
            [
                IsrChange(
                    topic_id=change.topic_id,
                    partition=change.partition,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    in_sync_replicas=tuple((each.node_id, each.broker_epoch) for each in change.in_sync_replicas),
                    has_flushed=change.flushed,
                )
                for change in request.changes
            ],
        )
        return controller_pb2.AlterPartitionResponse(answers=map(_in_sync_answer, answers))

    def _check_leads(self) -> None:
        if not self._quorum.is_leader:
            leader = self._quorum.leader_id
            raise NotControllerError(
                "the leader of the metadata quorum is not known here"
                if leader is None or leader == self._quorum.node_id
                else f"node {leader} leads the metadata quorum"
            )


def _in_sync_answer(answer: IsrAnswer) -> controller_pb2.InSyncAnswer:
    if answer.error is not None:
        return controller_pb2.InSyncAnswer(
            error_code=int(code_of(answer.error)), error_message=answer.error.message, partition_epoch=-1
        )
    assert answer.partition is not None, "without an error there is a partition"
    return controller_pb2.InSyncAnswer(partition_epoch=answer.partition.partition_epoch)
