"""What partition records mean. One place for the controller's state and the image, so that they cannot differ."""

from dataclasses import replace

from kraftlog.kraft.image.image import PartitionImage
from kraftlog.proto.metadata_pb2 import PartitionChangeRecord, PartitionRecord


def new_partition(record: PartitionRecord) -> PartitionImage:
    return PartitionImage(
        partition=record.partition,
        replicas=tuple(record.replicas),
        in_sync_replicas=tuple(record.in_sync_replicas),
        leader_id=record.leader_id,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas),
        directories=tuple(record.directories),
    )


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Only what is set changes. The leader epoch grows where a leader is named, also the same one, so that a change
    of the ISR alone does not fence the leader's followers."""
    changes: dict[str, tuple[int, ...]] = {
        name: tuple(getattr(record, name).replicas)
        for name in (
            "in_sync_replicas",
            "replicas",
            "removing_replicas",
            "adding_replicas",
            "eligible_leader_replicas",
        )
        if record.HasField(name)
    }
    has_election = record.HasField("leader_id")
    return replace(
        partition,
        **changes,  # type: ignore[arg-type] # these five fields are tuples of ints
        leader_id=record.leader_id if has_election else partition.leader_id,
        leader_epoch=partition.leader_epoch + 1 if has_election else partition.leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
    )
