"""Where the replicas of new partitions go: placed by the controller, or as somebody says."""

from collections.abc import Sequence

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.placement import place
from kraftlog.kraft.image.partition_state import new_partition
from kraftlog.kraft.image.transitions import check_created
from kraftlog.proto.admin_pb2 import ReplicaAssignment
from kraftlog.proto.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from kraftlog.proto.metadata_pb2 import MetadataRecord, PartitionRecord
from kraftlog.proto.seams import Random


class Assigner:
    """Used only by the controller."""

    def __init__(self, brokers: BrokerManager, random: Random, max_factor: int) -> None:
        self._brokers = brokers
        self._random = random
        self._max_factor = max_factor

    def check_factor(self, topic: str, factor: int) -> None:
        """Raise `InvalidReplicationFactorError` unless so many replicas can be placed."""
        self._check_bound(topic, factor)
        live = len(self._brokers.usable_racks())
        if factor > live:
            raise InvalidReplicationFactorError(
                f"topic {topic}: replication factor {factor} is larger than the number of live brokers, {live}"
            )

    def _check_bound(self, topic: str, factor: int) -> None:
        if not 1 <= factor <= self._max_factor:
            raise InvalidReplicationFactorError(
                f"topic {topic}: replication factor {factor} is not within 1..{self._max_factor} (-1: the default)"
            )

    def check_manual(self, topic: str, assignments: Sequence[ReplicaAssignment], first: int, factor: int) -> None:
        """Raise `InvalidReplicaAssignmentError` unless these may be the replicas of the partitions from `first` on, and
        `InvalidReplicationFactorError` for too many of them.

        Registered brokers, each once, as many as the other partitions have, and one of them live.
        """
        usable = self._brokers.usable_racks()
        for partition, assignment in enumerate(assignments, first):
            replicas = list(assignment.replicas)
            where = f"topic {topic}: replicas {replicas} of partition {partition}"
            self._check_brokers(where, replicas)
            if len(replicas) != factor:
                raise InvalidReplicaAssignmentError(f"{where}: the other partitions have {factor} replicas")
            if not usable.keys() & set(replicas):
                raise InvalidReplicaAssignmentError(f"{where}: each of them is fenced or stopping")
        self._check_bound(topic, factor)

    def check_replicas(self, partition: str, replicas: Sequence[int]) -> None:
        """Raise `InvalidReplicaAssignmentError` unless these may be the replicas of a partition that exists, and
        `InvalidReplicationFactorError` for too many of them. Registered brokers, each once; they need not be live."""
        self._check_brokers(f"{partition}: replicas {list(replicas)}", replicas)
        self._check_bound(partition, len(replicas))

    def _check_brokers(self, where: str, replicas: Sequence[int]) -> None:
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignmentError(f"{where} are not different brokers")
        unknown = [replica for replica in replicas if self._brokers.broker(replica) is None]
        if unknown:
            raise InvalidReplicaAssignmentError(f"{where}: broker {unknown[0]} is not registered")

    def records(
        self,
        topic_id: bytes,
        first: int,
        count: int,
        factor: int,
        assignments: Sequence[ReplicaAssignment],
        *,
        is_flushed: bool,
    ) -> list[MetadataRecord]:
        """The partitions from `first` on, placed unless there are assignments. Live replicas are in sync. `is_flushed`:
        acknowledgments will wait for the disk."""
        usable = self._brokers.usable_racks()
        if assignments:
            placed = [tuple(assignment.replicas) for assignment in assignments]
        else:
            placed = place(usable, count, factor, self._random.randrange(len(usable)))
        records = []
        for partition, replicas in enumerate(placed, first):
            in_sync = [replica for replica in replicas if replica in usable]
            record = PartitionRecord(
                topic_id=topic_id,
                partition=partition,
                replicas=replicas,
                in_sync_replicas=in_sync,
                leader_id=in_sync[0],
                flushed=is_flushed,
            )
            check_created(new_partition(record))
            records.append(MetadataRecord(partition=record))
        return records
