"""The form of group requests: what is refused before any group hears of it. Raises `kraftlog.proto.errors`."""

from collections.abc import Sequence

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import (
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KraftlogError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.names import MAX_ID_LENGTH, display, validate_group_id, validate_topic_name
from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.members import JoinRequest, Protocol, SyncRequest

MAX_MEMBER_ID_LENGTH = MAX_ID_LENGTH + 37  # a client or instance id, a dash and a UUID


def join_request(request: group_pb2.JoinGroupRequest, client_host: str, config: GroupConfig) -> JoinRequest:
    """The checked form of a JoinGroup."""
    validate_group_id(request.group_id)
    check_member_id(request.member_id)
    _check_id("client id", request.client_id)
    least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeoutError(
            f"session_timeout_ms={request.session_timeout_ms} is outside of {least} to {most} "
            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )
    if request.rebalance_timeout_ms < 0:
        raise InvalidRequestError(f"rebalance_timeout_ms={request.rebalance_timeout_ms} is negative")
    return JoinRequest(
        member_id=request.member_id,
        group_instance_id=instance_id(request.group_instance_id),
        client_id=request.client_id,
        client_host=client_host,
        # 0 is "not set": then the session timeout counts, as in JoinGroup v0.
        rebalance_timeout_ms=request.rebalance_timeout_ms or request.session_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=_protocols(request, config),
    )


def sync_request(request: group_pb2.SyncGroupRequest) -> SyncRequest:
    """The checked form of a SyncGroup."""
    check_member_id(request.member_id)
    return SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=instance_id(request.group_instance_id),
        generation_id=request.generation_id,
        assignments={assignment.member_id: assignment.assignment for assignment in request.assignments},
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
    )


def _protocols(request: group_pb2.JoinGroupRequest, config: GroupConfig) -> tuple[Protocol, ...]:
    if not request.protocol_type or not request.protocols:
        raise InconsistentGroupProtocolError("a JoinGroup needs a protocol type and at least one protocol")
    _check_id("protocol type", request.protocol_type)
    if len(request.protocols) > config.max_protocols:
        raise InvalidRequestError(f"{len(request.protocols)} protocols exceed max_protocols={config.max_protocols}")
    protocols: dict[str, Protocol] = {}
    size_bytes = 0
    for protocol in request.protocols:
        _check_id("protocol name", protocol.name)
        if not protocol.name or protocol.name in protocols:
            raise InvalidRequestError(f"protocol name {display(protocol.name)} is empty or repeated")
        protocols[protocol.name] = Protocol(protocol.name, protocol.metadata)
        size_bytes += len(protocol.metadata)
    if size_bytes > config.max_member_metadata_bytes:
        raise InvalidRequestError(
            f"subscriptions of {size_bytes} bytes exceed max_member_metadata_bytes={config.max_member_metadata_bytes}"
        )
    return tuple(protocols.values())


def instance_id(text: str) -> str | None:
    """The `group.instance.id` of a request; None for a dynamic member."""
    _check_id("group.instance.id", text)
    return text or None


def check_member_id(member_id: str) -> None:
    if len(member_id) > MAX_MEMBER_ID_LENGTH:
        raise UnknownMemberIdError(
            f"member id of {len(member_id)} characters is none that this coordinator gave out: join again without it"
        )


def commit_error(partition: group_pb2.OffsetCommitPartition, config: GroupConfig) -> KraftlogError | None:
    """What is wrong with one partition of an OffsetCommit."""
    try:
        validate_topic_name(partition.topic)
    except KraftlogError as error:
        return error
    if partition.partition < 0:
        return UnknownTopicOrPartitionError(f"{partition.topic} has no partition {partition.partition}")
    if partition.offset < 0:
        return InvalidRequestError(
            f"{partition.topic}-{partition.partition}: offset {partition.offset} is negative; a commit names the next "
            "offset to read"
        )
    if partition.leader_epoch < -1:
        return InvalidRequestError(
            f"{partition.topic}-{partition.partition}: leader_epoch {partition.leader_epoch} is negative; -1 is unknown"
        )
    size_bytes = len(partition.metadata.encode())
    if size_bytes > config.offset_metadata_max_bytes:
        return OffsetMetadataTooLargeError(
            f"{partition.topic}-{partition.partition}: metadata of {size_bytes} bytes exceeds "
            f"offset.metadata.max.bytes={config.offset_metadata_max_bytes}"
        )
    return None


def check_states(states: Sequence[str], known: Sequence[str]) -> frozenset[str]:
    """The asked states, lower case; an unknown one matches nothing, as in Kafka."""
    return frozenset(state.lower() for state in states) if states else frozenset(state.lower() for state in known)


def client_host(peer: str) -> str:
    """Kafka's form of a client's address, `/host`, from a transport's `ipv4:host:port` or `host:port`."""
    address = peer.split(":", 1)[1] if peer.startswith(("ipv4:", "ipv6:")) else peer
    host = address.rpartition(":")[0] or address
    text = "".join(character for character in host.strip("[]") if character.isprintable())
    return "/" + text[:MAX_ID_LENGTH]


def _check_id(what: str, text: str) -> None:
    if len(text) > MAX_ID_LENGTH:
        raise InvalidRequestError(f"{what} of {len(text)} characters exceeds {MAX_ID_LENGTH}: {display(text, 40)}")
    if not text.isprintable():
        raise InvalidRequestError(f"{what} {display(text)} has a character that is not printable")
