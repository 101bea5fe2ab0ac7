"""AlterPartition: a leader says which replicas are in sync with it (KIP-497, 841, 903).

The leader names the leader epoch and partition epoch that it knows, and the epoch of each broker that it takes in. So a
leader that was replaced, a request that was overtaken and a follower that has restarted since change nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import MAX_PARTITIONS_PER_REQUEST
from kraftlog.kraft.controller.elections import RulesOf
from kraftlog.kraft.controller.partition_change import MayLead, change_of
from kraftlog.kraft.controller.partitions import PartitionStore
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import PartitionImage
from kraftlog.kraft.image.partition_state import changed_partition
from kraftlog.proto.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KraftlogError,
    NotControllerError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.metadata_pb2 import MetadataRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """What the leader of one partition asks for."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]
    """(broker, broker epoch): all that are to be in the ISR, the leader included."""
    has_recovered: bool = True
    """Whether the leader is ready, if it was elected uncleanly (KIP-704)."""
    has_flushed: bool = False
    """Whether all of them have on disk what was acknowledged, after a switch to flush.policy=ack."""


@dataclass(frozen=True, slots=True)
class IsrAnswer:
    """The partition as it is then, or why it does not change."""

    partition: PartitionImage | None
    error: KraftlogError | None = None


class IsrManager:
    """Used only by the controller."""

    def __init__(
        self,
        partitions: PartitionStore,
        brokers: BrokerManager,
        *,
        rules_of: RulesOf,
        may_lead_now: Callable[[], MayLead],
    ) -> None:
        self._partitions = partitions
        self._brokers = brokers
        self._rules_of = rules_of
        self._may_lead_now = may_lead_now

    def alter(self, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Result[list[IsrAnswer]]:
        """Answers in the order of `changes`; each succeeds or fails alone. Repeating one that was done is refused with
        `InvalidUpdateVersionError` and harmless.

        Raises `StaleBrokerEpochError` or `BrokerIdNotRegisteredError` for a broker that is not this incarnation.
        """
        self._brokers.check_epoch(node_id, broker_epoch)
        if len(changes) > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(f"{len(changes)} partitions exceed the limit {MAX_PARTITIONS_PER_REQUEST}")
        if len({(change.topic_id, change.partition) for change in changes}) < len(changes):
            raise InvalidRequestError("a partition is named twice in the request")
        others_may_lead = self._may_lead_now()

        def may_lead(partition: PartitionImage, replica: int) -> bool:
            """Who asks goes on leading, also when it is about to stop: its next heartbeat moves the leadership."""
            return replica == node_id or others_may_lead(partition, replica)

        answers, records = list[IsrAnswer](), list[MetadataRecord]()
        for change in changes:
            try:
                partition = self._checked(node_id, change)
                record = change_of(
                    change.topic_id,
                    partition,
                    self._rules_of(change.topic_id),
                    may_lead,
                    in_sync_replicas=_in_order(partition, change),
                    has_recovered=change.has_recovered,
                    has_flushed=change.has_flushed,
                    may_go_offline=False,
                )
            except KraftlogError as error:
                answers.append(IsrAnswer(None, error))
                continue
            if record is None:
                answers.append(IsrAnswer(partition))
                continue
            records.append(record)
            answers.append(IsrAnswer(changed_partition(partition, record.partition_change)))
        return Result(answers, records)

    def _checked(self, node_id: int, change: IsrChange) -> PartitionImage:
        partition = self._partitions.get((change.topic_id, change.partition))
        if partition is None:
            raise UnknownTopicOrPartitionError(
                f"partition {change.partition} of topic id {change.topic_id.hex()} does not exist"
            )
        if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
            raise NotControllerError(  # as in Kafka: the broker has seen a newer controller's decision
                f"the request knows leader epoch {change.leader_epoch} and partition epoch {change.partition_epoch},"
                f" this controller {partition.leader_epoch} and {partition.partition_epoch}"
            )
        if change.leader_epoch < partition.leader_epoch or partition.leader_id != node_id:
            raise FencedLeaderEpochError(
                f"broker {node_id} led in epoch {change.leader_epoch}, broker {partition.leader_id} leads in epoch"
                f" {partition.leader_epoch}"
            )
        if change.partition_epoch < partition.partition_epoch:
            raise InvalidUpdateVersionError(
                f"the partition has epoch {partition.partition_epoch}, the request was made in {change.partition_epoch}"
            )
        self._check_members(node_id, partition, change)
        return partition

    def _check_members(self, node_id: int, partition: PartitionImage, change: IsrChange) -> None:
        wanted = [replica for replica, _ in change.in_sync_replicas]
        if len(set(wanted)) != len(wanted) or not set(wanted) <= set(partition.replicas):
            raise InvalidRequestError(f"ISR {wanted} is not a set of the replicas {list(partition.replicas)}")
        if node_id not in wanted:
            raise InvalidRequestError(f"the leader {node_id} is not in the ISR {wanted} that it asks for")
        if partition.is_recovering and not change.has_recovered and wanted != [node_id]:
            raise InvalidRequestError("a leader that has not recovered is alone in its ISR (KIP-704)")
        for replica, epoch in change.in_sync_replicas:
            broker = self._brokers.broker(replica)
            if broker is not None and broker.broker_epoch != epoch:
                raise IneligibleReplicaError(
                    f"broker {replica} has epoch {broker.broker_epoch}, the leader knows {epoch}: it has restarted"
                )
            is_eligible = broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown
            if not is_eligible and replica not in partition.in_sync_replicas:
                raise IneligibleReplicaError(f"broker {replica} is fenced or stopping: it cannot enter the ISR")


def _in_order(partition: PartitionImage, change: IsrChange) -> tuple[int, ...]:
    wanted = {replica for replica, _ in change.in_sync_replicas}
    return tuple(replica for replica in partition.replicas if replica in wanted)
