"""What brokers say about topics, group members, log directories and the quorum, as the plain values that `Admin` returns."""

from kraftlog.proto import admin_pb2, group_pb2
from kraftlog.proto.errors import InvalidRequestError, error_class
from kraftlog.proto.uuids import uuid_from_text, uuid_to_text
from kraftlog.sdk.consumer_protocol import decode_assignment, decode_subscription
from kraftlog.sdk.types import (
    GroupMemberDescription,
    LogDescription,
    LogDirDescription,
    PartitionDescription,
    QuorumDescription,
    QuorumReplica,
    TopicDescription,
)


def describe_topic(topic: admin_pb2.TopicDescription, *, stale: bool = False) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        topic_id=uuid_to_text(topic.topic_id),
        internal=topic.internal,
        partitions=tuple(
            PartitionDescription(
                partition=p.partition,
                leader_id=p.leader_id,
                leader_epoch=p.leader_epoch,
                replicas=tuple(p.replicas),
                in_sync_replicas=tuple(p.in_sync_replicas),
                partition_epoch=p.partition_epoch,
                eligible_leader_replicas=tuple(p.eligible_leader_replicas),
                last_known_elr=tuple(p.last_known_elr),
                recovering=p.recovering,
                adding_replicas=tuple(p.adding_replicas),
                removing_replicas=tuple(p.removing_replicas),
                min_in_sync_replicas=p.min_in_sync_replicas,
                flushed=p.flushed,
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition)
        ),
        configs=dict(topic.configs),
        stale=stale,
    )


def describe_log_dir(node_id: int, log_dir: admin_pb2.LogDirDescription) -> LogDirDescription:
    code, message = log_dir.error_code, log_dir.error_message
    return LogDirDescription(
        node_id=node_id,
        path=log_dir.path,
        error=(message or error_class(code).summary) if code else "",
        size_bytes=log_dir.size_bytes,
        logs=tuple(
            LogDescription(
                topic=log.topic,
                partition=log.partition,
                size_bytes=log.size_bytes,
                segments=log.segments,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                flushed_end_offset=log.flushed_end_offset,
                recovery_point=log.recovery_point,
                cleanup_policy=tuple(log.cleanup_policy),
                cleaned_to_offset=log.cleaned_to_offset,
                problem=log.problem,
                uncleanable_reason=log.uncleanable_reason,
                uncleanable_since_ms=log.uncleanable_since_ms,
            )
            for log in log_dir.logs
        ),
    )


def describe_member(member: group_pb2.GroupMemberDescription) -> GroupMemberDescription:
    try:
        topics = decode_subscription(member.metadata).topics if member.metadata else ()
        assignment = decode_assignment(member.assignment).partitions
    except InvalidRequestError:  # a member of another protocol
        topics, assignment = (), ()
    return GroupMemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=topics,
        assignment=tuple(sorted(assignment)),
    )


def describe_quorum(answer: admin_pb2.DescribeQuorumResponse) -> QuorumDescription:
    return QuorumDescription(
        leader_id=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        high_watermark=answer.high_watermark,
        voters=tuple(map(_quorum_replica, answer.voters)),
        observers=tuple(map(_quorum_replica, answer.observers)),
        described_by=answer.described_by,
        stale=answer.stale,
    )


def _quorum_replica(replica: admin_pb2.QuorumReplica) -> QuorumReplica:
    return QuorumReplica(
        node_id=replica.node_id,
        directory_id=uuid_to_text(replica.directory_id),
        host=replica.host,
        port=replica.port,
        log_end_offset=replica.log_end_offset,
        lag=replica.lag,
        last_fetch_timestamp_ms=replica.last_fetch_timestamp_ms,
        last_caught_up_timestamp_ms=replica.last_caught_up_timestamp_ms,
    )


def directory_bytes(directory_id: str | None) -> bytes:
    """A directory id as it travels; empty: not named. Raises `InvalidRequestError`."""
    if directory_id is None:
        return b""
    try:
        return uuid_from_text(directory_id)
    except ValueError:
        raise InvalidRequestError(f"{directory_id[:80]!r} is no directory id of 22 characters") from None
