"""What partition records mean. One place for the controller's state and the image, so that they cannot differ."""

from dataclasses import replace

from kraftlog.kraft.image.image import PartitionImage
from kraftlog.kraft.image.transitions import check_change, check_shape
from kraftlog.proto.metadata_pb2 import PartitionChangeRecord, PartitionRecord

RECOVERED, RECOVERING = 0, 1  # Kafka's LeaderRecoveryState


def new_partition(record: PartitionRecord) -> PartitionImage:
    """In whatever state: the record may come from a snapshot. Raises `IllegalStateError` for one that cannot be."""
    partition = PartitionImage(
        partition=record.partition,
        replicas=tuple(record.replicas),
        in_sync_replicas=tuple(record.in_sync_replicas),
        leader_id=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas),
        last_known_elr=tuple(record.last_known_elr),
        is_recovering=record.leader_recovery_state == RECOVERING,
        directories=tuple(record.directories),
        is_flushed=record.flushed,
    )
    check_shape(partition)
    return partition


def partition_record(topic_id: bytes, partition: PartitionImage) -> PartitionRecord:
    """Inverse of `new_partition`."""
    return PartitionRecord(
        topic_id=topic_id,
        partition=partition.partition,
        replicas=partition.replicas,
        in_sync_replicas=partition.in_sync_replicas,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr,
        leader_recovery_state=RECOVERING if partition.is_recovering else RECOVERED,
        flushed=partition.is_flushed,
    )


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Only what is set changes. The leader epoch grows where a leader is named, also the same one, so that a change
    of the ISR alone does not fence the leader's followers.

    Raises `IllegalStateError` for a transition that is not in the table of `transitions`.
    """
    changes: dict[str, tuple[int, ...]] = {
        name: tuple(getattr(record, name).replicas)
        for name in (
            "in_sync_replicas",
            "replicas",
            "removing_replicas",
            "adding_replicas",
            "eligible_leader_replicas",
            "last_known_elr",
        )
        if record.HasField(name)
    }
    has_election = record.HasField("leader_id")
    has_recovery_state = record.HasField("leader_recovery_state")
    changed = replace(
        partition,
        **changes,  # type: ignore[arg-type] # these six fields are tuples of ints
        leader_id=record.leader_id if has_election else partition.leader_id,
        leader_epoch=partition.leader_epoch + 1 if has_election else partition.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        is_recovering=(record.leader_recovery_state == RECOVERING if has_recovery_state else partition.is_recovering),
        directories=(
            tuple(record.directories.directories) if record.HasField("directories") else partition.directories
        ),
        is_flushed=record.flushed if record.HasField("flushed") else partition.is_flushed,
    )
    check_change(partition, changed)
    return changed


def effective_min_in_sync(min_insync_replicas: int, replica_count: int) -> int:
    """How many replicas must have a record that is acknowledged, of so many; below 1: one less than there are. The same rule
    for brokers and controller, whose eligible leaders rest on it."""
    wanted = replica_count - 1 if min_insync_replicas < 1 else min_insync_replicas
    return max(1, min(wanted, replica_count))
