"""The operations of the service Admin that only the leader of the metadata quorum can do, wherever they arrive.

One table for both ends: a broker that leads does an operation itself, any other passes its message on (`client`), and the
leader finds here what it means (`service`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto import admin_pb2
from kraftlog.proto.errors import (
    DuplicateVoterError,
    InvalidRequestError,
    KraftlogError,
    NotControllerError,
    VoterNotFoundError,
)
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.server.quorum import QuorumDescription, QuorumNode, ReplicaState

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

MAX_NODE_ID = 2**31 - 1
MAX_HOST_LENGTH = 255  # of DNS


@dataclass(frozen=True, slots=True)
class Operation(Generic[Request, Response]):
    name: str
    """Of the method of the service Admin."""
    request: type[Request]
    response: type[Response]
    run: Callable[[QuorumNode, Request, bool], Awaitable[Response]]
    """On the leader; true: a broker asks for itself. Raises `NotControllerError` on any other node."""
    is_question: bool = False
    """It changes nothing."""
    done_before: type[KraftlogError] | None = None
    """What a repeat is refused with where the first attempt, whose answer was lost, has done it."""


async def _create_topics(
    quorum: QuorumNode, request: admin_pb2.CreateTopicsRequest, is_internal: bool
) -> admin_pb2.CreateTopicsResponse:
    return await quorum.controller.create_topics(
        request, allow_internal=is_internal, request_id=request.request_id or None
    )


async def _delete_topics(
    quorum: QuorumNode, request: admin_pb2.DeleteTopicsRequest, is_internal: bool
) -> admin_pb2.DeleteTopicsResponse:
    return await quorum.controller.delete_topics(
        request, allow_internal=is_internal, request_id=request.request_id or None
    )


async def _create_partitions(
    quorum: QuorumNode, request: admin_pb2.CreatePartitionsRequest, is_internal: bool
) -> admin_pb2.CreatePartitionsResponse:
    return await quorum.controller.create_partitions(request, request_id=request.request_id or None)


async def _alter_configs(
    quorum: QuorumNode, request: admin_pb2.IncrementalAlterConfigsRequest, is_internal: bool
) -> admin_pb2.IncrementalAlterConfigsResponse:
    return await quorum.controller.alter_configs(request, request_id=request.request_id or None)


async def _elect_leaders(
    quorum: QuorumNode, request: admin_pb2.ElectLeadersRequest, is_internal: bool
) -> admin_pb2.ElectLeadersResponse:
    return await quorum.controller.elect_leaders(request, request_id=request.request_id or None)


async def _alter_reassignments(
    quorum: QuorumNode, request: admin_pb2.AlterPartitionReassignmentsRequest, is_internal: bool
) -> admin_pb2.AlterPartitionReassignmentsResponse:
    return await quorum.controller.alter_partition_reassignments(request, request_id=request.request_id or None)


async def _update_features(
    quorum: QuorumNode, request: admin_pb2.UpdateFeaturesRequest, is_internal: bool
) -> admin_pb2.UpdateFeaturesResponse:
    return await quorum.controller.update_features(request, request_id=request.request_id or None)


async def _unregister_broker(
    quorum: QuorumNode, request: admin_pb2.UnregisterBrokerRequest, is_internal: bool
) -> admin_pb2.UnregisterBrokerResponse:
    await quorum.controller.unregister_broker(request.node_id, request_id=request.request_id or None)
    return admin_pb2.UnregisterBrokerResponse()


async def _describe_quorum(
    quorum: QuorumNode, request: admin_pb2.DescribeQuorumRequest, is_internal: bool
) -> admin_pb2.DescribeQuorumResponse:
    await quorum.read_barrier()  # a leader that was replaced, and does not know it yet, has nothing to say
    if not quorum.is_leader:
        raise NotControllerError("another node leads the metadata quorum by now")
    return description_message(quorum.describe())


async def _add_voter(
    quorum: QuorumNode, request: admin_pb2.AddVoterRequest, is_internal: bool
) -> admin_pb2.AddVoterResponse:
    key = _observer(quorum, request) if not request.directory_id else _key(request.node_id, request.directory_id)
    endpoint = _endpoint(request)
    if endpoint is None:
        _check_listens(quorum, key)
    await quorum.add_voter(key, endpoint)
    return admin_pb2.AddVoterResponse()


async def _remove_voter(
    quorum: QuorumNode, request: admin_pb2.RemoveVoterRequest, is_internal: bool
) -> admin_pb2.RemoveVoterResponse:
    key = _key(request.node_id, request.directory_id) if request.directory_id else _voter(quorum, request.node_id)
    await quorum.remove_voter(key)
    return admin_pb2.RemoveVoterResponse()


async def _transfer_leadership(
    quorum: QuorumNode, request: admin_pb2.TransferLeadershipRequest, is_internal: bool
) -> admin_pb2.TransferLeadershipResponse:
    await quorum.transfer_leadership(_voter(quorum, request.node_id))
    leader = quorum.leader
    return admin_pb2.TransferLeadershipResponse(
        leader_id=-1 if leader is None else leader.node_id, leader_epoch=quorum.term
    )


def _check_leads(quorum: QuorumNode) -> None:
    """Before names are looked up in what this node knows: only the leader knows it all."""
    if not quorum.is_leader:
        raise NotControllerError("another node leads the metadata quorum")


def _observer(quorum: QuorumNode, request: admin_pb2.AddVoterRequest) -> ReplicaKey:
    """The directory that a node without a vote is connected with."""
    _check_leads(quorum)
    description = quorum.describe()
    found = [state.key for state in description.observers if state.key.node_id == request.node_id]
    voting = [state.key for state in description.voters if state.key.node_id == request.node_id]
    if len(found) == 1:
        return found[0]
    if not found and voting:
        raise DuplicateVoterError(f"node {request.node_id} is a voter already")
    if not found:
        raise VoterNotFoundError(
            f"node {request.node_id} does not follow the metadata quorum: start it first, with a log directory that was "
            "formatted for this cluster and with controller.quorum.bootstrap.servers"
        )
    raise InvalidRequestError(
        f"node {request.node_id} follows with {len(found)} directories: name one of "
        f"{', '.join(uuid_to_text(key.directory_id) for key in found)}"
    )


def _check_listens(quorum: QuorumNode, key: ReplicaKey) -> None:
    """A node that nobody can reach as a controller would take part in no election: its vote would only be missing."""
    _check_leads(quorum)
    state = next((state for state in quorum.describe().observers if state.key == key), None)
    if state is not None and state.endpoint is None:
        raise InvalidRequestError(
            f"node {key.node_id} does not say where it listens for controllers: process.roles of a voter names controller"
        )


def _voter(quorum: QuorumNode, node_id: int) -> ReplicaKey:
    _check_leads(quorum)
    key = next((key for key in quorum.voters if key.node_id == node_id), None)
    if key is None:
        raise VoterNotFoundError(
            f"node {node_id} is not a voter; the voters are {', '.join(str(key.node_id) for key in sorted(quorum.voters))}"
        )
    return key


def _key(node_id: int, directory_id: bytes) -> ReplicaKey:
    if not 0 <= node_id <= MAX_NODE_ID:
        raise InvalidRequestError(f"node id {node_id} is not within 0..{MAX_NODE_ID}")
    if len(directory_id) != 16:
        raise InvalidRequestError(f"a directory id of {len(directory_id)} bytes was sent, it has 16")
    return ReplicaKey(node_id, directory_id)


def _endpoint(request: admin_pb2.AddVoterRequest) -> Endpoint | None:
    if not request.host and not request.port:
        return None
    if not 0 < len(request.host) <= MAX_HOST_LENGTH or not 0 < request.port < 1 << 16:
        raise InvalidRequestError(
            f"{request.host[:MAX_HOST_LENGTH]!r}, port {request.port}, is not where a node can listen"
        )
    return Endpoint(request.host, request.port)


def description_message(description: QuorumDescription) -> admin_pb2.DescribeQuorumResponse:
    return admin_pb2.DescribeQuorumResponse(
        leader_id=description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        voters=map(_replica_message, description.voters),
        observers=map(_replica_message, description.observers),
        described_by=description.node_id,
    )


def _replica_message(state: ReplicaState) -> admin_pb2.QuorumReplica:
    return admin_pb2.QuorumReplica(
        node_id=state.key.node_id,
        directory_id=state.key.directory_id,
        host="" if state.endpoint is None else state.endpoint.host,
        port=0 if state.endpoint is None else state.endpoint.port,
        log_end_offset=state.log_end_offset,
        lag=state.lag,
        last_fetch_timestamp_ms=state.last_fetch_timestamp_ms,
        last_caught_up_timestamp_ms=state.last_caught_up_timestamp_ms,
    )


CREATE_TOPICS = Operation("CreateTopics", admin_pb2.CreateTopicsRequest, admin_pb2.CreateTopicsResponse, _create_topics)
DELETE_TOPICS = Operation("DeleteTopics", admin_pb2.DeleteTopicsRequest, admin_pb2.DeleteTopicsResponse, _delete_topics)
CREATE_PARTITIONS = Operation(
    "CreatePartitions", admin_pb2.CreatePartitionsRequest, admin_pb2.CreatePartitionsResponse, _create_partitions
)
ALTER_CONFIGS = Operation(
    "IncrementalAlterConfigs",
    admin_pb2.IncrementalAlterConfigsRequest,
    admin_pb2.IncrementalAlterConfigsResponse,
    _alter_configs,
)
ELECT_LEADERS = Operation("ElectLeaders", admin_pb2.ElectLeadersRequest, admin_pb2.ElectLeadersResponse, _elect_leaders)
ALTER_REASSIGNMENTS = Operation(
    "AlterPartitionReassignments",
    admin_pb2.AlterPartitionReassignmentsRequest,
    admin_pb2.AlterPartitionReassignmentsResponse,
    _alter_reassignments,
)
UPDATE_FEATURES = Operation(
    "UpdateFeatures", admin_pb2.UpdateFeaturesRequest, admin_pb2.UpdateFeaturesResponse, _update_features
)
UNREGISTER_BROKER = Operation(
    "UnregisterBroker", admin_pb2.UnregisterBrokerRequest, admin_pb2.UnregisterBrokerResponse, _unregister_broker
)
DESCRIBE_QUORUM = Operation(
    "DescribeQuorum",
    admin_pb2.DescribeQuorumRequest,
    admin_pb2.DescribeQuorumResponse,
    _describe_quorum,
    is_question=True,
)
ADD_VOTER = Operation(
    "AddVoter", admin_pb2.AddVoterRequest, admin_pb2.AddVoterResponse, _add_voter, done_before=DuplicateVoterError
)
REMOVE_VOTER = Operation(
    "RemoveVoter",
    admin_pb2.RemoveVoterRequest,
    admin_pb2.RemoveVoterResponse,
    _remove_voter,
    done_before=VoterNotFoundError,
)
TRANSFER_LEADERSHIP = Operation(
    "TransferLeadership",
    admin_pb2.TransferLeadershipRequest,
    admin_pb2.TransferLeadershipResponse,
    _transfer_leadership,
)

OPERATIONS: dict[str, Operation[Any, Any]] = {
    operation.name: operation
    for operation in (
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_PARTITIONS,
        ALTER_CONFIGS,
        ELECT_LEADERS,
        ALTER_REASSIGNMENTS,
        UPDATE_FEATURES,
        UNREGISTER_BROKER,
        DESCRIBE_QUORUM,
        ADD_VOTER,
        REMOVE_VOTER,
        TRANSFER_LEADERSHIP,
    )
}
"""By method name."""
