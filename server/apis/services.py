"""The table of RPC methods: names, codecs and handlers. Knows bytes, but no transport."""

from dataclasses import dataclass

from kraftlog.proto import admin_pb2, broker_pb2, group_pb2, hotpath
from kraftlog.proto.replica_frames import REPLICATE
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
from kraftlog.server.apis.protobuf import protobuf_handler
from kraftlog.server.apis.quorum import QuorumHandler
from kraftlog.server.coordinator import GroupCoordinator

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
    quorum: QuorumHandler
    delete_records: DeleteRecordsHandler
    log_dirs: LogDirsHandler
    coordinators: FindCoordinatorHandler
    groups: GroupCoordinator
    replicate: StreamHandler
    """Of `Replica.Replicate`: for other brokers, also while this one starts and stops."""

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
            streams={
                **{name: self._admitted_stream(handler) for name, handler in streams.items()},
                REPLICATE: self.replicate,
            },
        )

    def _broker(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Broker/"
        return {
            prefix + "Produce": self._produce,
            prefix + "Fetch": self._fetch,
            prefix + "ListOffsets": protobuf_handler(broker_pb2.ListOffsetsRequest, self.offsets.list_offsets),
            prefix + "Metadata": protobuf_handler(broker_pb2.MetadataRequest, self.metadata.metadata),
            prefix + "InitProducerId": protobuf_handler(
                broker_pb2.InitProducerIdRequest, self.producer_ids.init_producer_id
            ),
        }

    def _group(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Group/"
        groups = self.groups
        return {
            prefix + "FindCoordinator": protobuf_handler(
                group_pb2.FindCoordinatorRequest, self.coordinators.find_coordinator
            ),
            prefix + "JoinGroup": protobuf_handler(group_pb2.JoinGroupRequest, groups.join_group),
            prefix + "SyncGroup": protobuf_handler(group_pb2.SyncGroupRequest, groups.sync_group),
            prefix + "Heartbeat": protobuf_handler(group_pb2.HeartbeatRequest, groups.heartbeat),
            prefix + "LeaveGroup": protobuf_handler(group_pb2.LeaveGroupRequest, groups.leave_group),
            prefix + "OffsetCommit": protobuf_handler(group_pb2.OffsetCommitRequest, groups.offset_commit),
            prefix + "OffsetFetch": protobuf_handler(group_pb2.OffsetFetchRequest, groups.offset_fetch),
            prefix + "ListGroups": protobuf_handler(group_pb2.ListGroupsRequest, groups.list_groups),
            prefix + "DescribeGroups": protobuf_handler(group_pb2.DescribeGroupsRequest, groups.describe_groups),
        }

    def _admin(self) -> dict[str, UnaryHandler]:
        prefix = "/kraftlog.v1.Admin/"
        admin = self.admin
        return {
            prefix + "CreateTopics": protobuf_handler(admin_pb2.CreateTopicsRequest, admin.create_topics),
            prefix + "DeleteTopics": protobuf_handler(admin_pb2.DeleteTopicsRequest, admin.delete_topics),
            prefix + "DeleteRecords": protobuf_handler(
                admin_pb2.DeleteRecordsRequest, self.delete_records.delete_records
            ),
            prefix + "DescribeTopics": protobuf_handler(admin_pb2.DescribeTopicsRequest, admin.describe_topics),
            prefix + "DescribeConfigs": protobuf_handler(admin_pb2.DescribeConfigsRequest, admin.describe_configs),
            prefix + "DescribeCluster": protobuf_handler(admin_pb2.DescribeClusterRequest, admin.describe_cluster),
            prefix + "CreatePartitions": protobuf_handler(admin_pb2.CreatePartitionsRequest, admin.create_partitions),
            prefix + "IncrementalAlterConfigs": protobuf_handler(
                admin_pb2.IncrementalAlterConfigsRequest, admin.incremental_alter_configs
            ),
            prefix + "DescribeLogDirs": protobuf_handler(
                admin_pb2.DescribeLogDirsRequest, self.log_dirs.describe_log_dirs
            ),
            prefix + "ElectLeaders": protobuf_handler(admin_pb2.ElectLeadersRequest, admin.elect_leaders),
            prefix + "AlterPartitionReassignments": protobuf_handler(
                admin_pb2.AlterPartitionReassignmentsRequest, admin.alter_partition_reassignments
            ),
            prefix + "ListPartitionReassignments": protobuf_handler(
                admin_pb2.ListPartitionReassignmentsRequest, admin.list_partition_reassignments
            ),
            prefix + "UpdateFeatures": protobuf_handler(admin_pb2.UpdateFeaturesRequest, admin.update_features),
            prefix + "UnregisterBroker": protobuf_handler(admin_pb2.UnregisterBrokerRequest, admin.unregister_broker),
            prefix + "DescribeQuorum": protobuf_handler(admin_pb2.DescribeQuorumRequest, self.quorum.describe_quorum),
            prefix + "AddVoter": protobuf_handler(admin_pb2.AddVoterRequest, self.quorum.add_voter),
            prefix + "RemoveVoter": protobuf_handler(admin_pb2.RemoveVoterRequest, self.quorum.remove_voter),
            prefix + "TransferLeadership": protobuf_handler(
                admin_pb2.TransferLeadershipRequest, self.quorum.transfer_leadership
            ),
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
            with self.lifecycle.running():
                return await handler(data, context)

        return call

    def _admitted_stream(self, handler: StreamHandler) -> StreamHandler:
        async def call(stream: Stream, context: CallContext) -> None:
            await self.lifecycle.admit()
            with self.lifecycle.running():
                await handler(stream, context)

        return call
