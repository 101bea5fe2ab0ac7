"""Reassignments as they travel, and as the plain values that `Admin` takes and returns."""

from collections.abc import Mapping, Sequence

from kraftlog.proto import admin_pb2
from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.types import PartitionReassignment, TopicPartition


def alteration(
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    *,
    timeout_ms: int,
    request_id: bytes,
    validate_only: bool,
    keep_replication_factor: bool,
) -> admin_pb2.AlterPartitionReassignmentsRequest:
    """Raises `InvalidTopicError` for what cannot be a topic."""
    request = admin_pb2.AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        request_id=request_id,
        validate_only=validate_only,
        keep_replication_factor=keep_replication_factor,
    )
    for (topic, partition), replicas in sorted(wanted.items()):
        validate_topic_name(topic)
        each = request.partitions.add(topic=topic, partition=partition)
        if replicas is not None:
            each.target.replicas.extend(replicas)
            each.target.SetInParent()  # a target, if an empty one: the broker says what is wrong with it
    return request


def ongoing(answer: admin_pb2.ListPartitionReassignmentsResponse) -> dict[TopicPartition, PartitionReassignment]:
    return {
        TopicPartition(each.topic, each.partition): PartitionReassignment(
            replicas=tuple(each.replicas),
            adding_replicas=tuple(each.adding_replicas),
            removing_replicas=tuple(each.removing_replicas),
            in_sync_replicas=tuple(each.in_sync_replicas),
        )
        for each in answer.partitions
    }
