"""The table of RPC methods: names, codecs and handlers. Knows bytes, but no transport."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from kraftlog.proto import admin_pb2, broker_pb2, group_pb2, hotpath
from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.seams import CallContext, Handlers, Payload, Stream, StreamHandler, UnaryHandler
from kraftlog.server.apis.admin import AdminHandler
from kraftlog.server.apis.delete_records import DeleteRecordsHandler
from kraftlog.server.apis.fetch import FetchHandler
from kraftlog.server.apis.groups import FindCoordinatorHandler
from kraftlog.server.apis.lifecycle import Lifecycle
from kraftlog.server.apis.log_dirs import LogDirsHandler
from kraftlog.server.apis.metadata import MetadataHandler
from kraftlog.server.apis.offsets import ListOffsetsHandler
from kraftlog.server.apis.produce import ProduceHandler
from kraftlog.server.apis.producer_ids import ProducerIdHandler
from kraftlog.server.coordinator import GroupCoordinator

Request = TypeVar("Request", bound=Message)

HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse{status: SERVING}
_NOT_SERVING = b"\x08\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything that a broker answers."""

    lifecycle: Lifecycle
    produce: ProduceHandler
    fetch: FetchHandler
    offsets: ListOffsetsHandler
    metadata: MetadataHandler
    producer_ids: ProducerIdHandler
    admin: AdminHandler
    delete_records: DeleteRecordsHandler
    log_dirs: LogDirsHandler
    coordinators: FindCoordinatorHandler
    groups: GroupCoordinator

    def handlers(self) -> Handlers:
        """By full method name. Requests wait until the node serves and are refused once it stops."""
        unary = {**self._broker(), **self._group(), **self._admin()}
        streams: dict[str, StreamHandler] = {
            "/kraftlog.v1.Broker/ProduceStream": self.produce.produce_stream,
            "/kraftlog.v1.Broker/FetchStream": self.fetch.fetch_stream,
        }
        return Handlers(
            unary={
                **{name: self._admitted(handler) for name, handler in unary.items()},
                HEALTH_CHECK: self._health,
            },
            streams={name: self._admitted_stream(handler) for name, handler in streams.items()},
        )

    def _broker(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Broker/"
        return {
            prefix + "Produce": self._produce,
            prefix + "Fetch": self._fetch,
            prefix + "ListOffsets": _protobuf(broker_pb2.ListOffsetsRequest, self.offsets.list_offsets),
            prefix + "Metadata": _protobuf(broker_pb2.MetadataRequest, self.metadata.metadata),
            prefix + "InitProducerId": _protobuf(broker_pb2.InitProducerIdRequest, self.producer_ids.init_producer_id),
        }

    def _group(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Group/"
        groups = self.groups
        return {
            prefix + "FindCoordinator": _protobuf(group_pb2.FindCoordinatorRequest, self.coordinators.find_coordinator),
            prefix + "JoinGroup": _protobuf(group_pb2.JoinGroupRequest, groups.join_group),
            prefix + "SyncGroup": _protobuf(group_pb2.SyncGroupRequest, groups.sync_group),
            prefix + "Heartbeat": _protobuf(group_pb2.HeartbeatRequest, groups.heartbeat),
            prefix + "LeaveGroup": _protobuf(group_pb2.LeaveGroupRequest, groups.leave_group),
            prefix + "OffsetCommit": _protobuf(group_pb2.OffsetCommitRequest, groups.offset_commit),
            prefix + "OffsetFetch": _protobuf(group_pb2.OffsetFetchRequest, groups.offset_fetch),
            prefix + "ListGroups": _protobuf(group_pb2.ListGroupsRequest, groups.list_groups),
            prefix + "DescribeGroups": _protobuf(group_pb2.DescribeGroupsRequest, groups.describe_groups),
        }

    def _admin(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Admin/"
        admin = self.admin
        return {
            prefix + "CreateTopics": _protobuf(admin_pb2.CreateTopicsRequest, admin.create_topics),
            prefix + "DeleteTopics": _protobuf(admin_pb2.DeleteTopicsRequest, admin.delete_topics),
            prefix + "DeleteRecords": _protobuf(admin_pb2.DeleteRecordsRequest, self.delete_records.delete_records),
            prefix + "DescribeTopics": _protobuf(admin_pb2.DescribeTopicsRequest, admin.describe_topics),
            prefix + "DescribeConfigs": _protobuf(admin_pb2.DescribeConfigsRequest, admin.describe_configs),
            prefix + "DescribeCluster": _protobuf(admin_pb2.DescribeClusterRequest, admin.describe_cluster),
            prefix + "CreatePartitions": _protobuf(admin_pb2.CreatePartitionsRequest, admin.create_partitions),
            prefix + "IncrementalAlterConfigs": _protobuf(
                admin_pb2.IncrementalAlterConfigsRequest, admin.incremental_alter_configs
            ),
            prefix + "DescribeLogDirs": _protobuf(admin_pb2.DescribeLogDirsRequest, self.log_dirs.describe_log_dirs),
        }

    async def _produce(self, data: bytes, context: CallContext) -> Payload:
        return hotpath.encode(await self.produce.produce(hotpath.decode_produce_request(data), context))

    async def _fetch(self, data: bytes, context: CallContext) -> Payload:
        return hotpath.encode(await self.fetch.fetch(hotpath.decode_fetch_request(data), context))

    async def _health(self, data: bytes, context: CallContext) -> Payload:
        return _SERVING if self.lifecycle.is_serving else _NOT_SERVING

    def _admitted(self, handler: UnaryHandler) -> UnaryHandler:
        async def call(data: bytes, context: CallContext) -> Payload:
            await self.lifecycle.admit()
            return await handler(data, context)

        return call

    def _admitted_stream(self, handler: StreamHandler) -> StreamHandler:
        async def call(stream: Stream, context: CallContext) -> None:
            await self.lifecycle.admit()
            await handler(stream, context)

        return call


def _protobuf(
    request_class: type[Request], method: Callable[[Request, CallContext], Awaitable[Message]]
) -> UnaryHandler:
    """A handler over the generated classes."""

    async def call(data: bytes, context: CallContext) -> Payload:
        request = request_class()
        try:
            request.ParseFromString(data)
        except DecodeError as error:
            raise InvalidRequestError(f"the bytes are no {request_class.DESCRIPTOR.name}: {error}") from None
        answer = await method(request, context)
        return answer.SerializeToString(deterministic=True)  # maps in order: one seed is one run

    return call
