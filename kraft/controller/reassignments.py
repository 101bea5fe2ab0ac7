"""Reassignment: partitions get other replicas without a moment in which fewer have what was acknowledged (KIP-455).

    request:    replicas = target + those that leave; the added ones start from nothing, out of sync
    meanwhile:  the leader copies to the added ones and takes them into the ISR (AlterPartition) as any follower
    hand-over:  one of the target leads, if the leader is to leave, when every added one is in sync and the target's part of
                the ISR is long enough
    completion: replicas = target, then
    cancel:     replicas = the original ones; the added ones leave

A completion is due whenever something happens to such a partition, or to what it depends on. It is a batch of its own that
`poll` writes, and rests on the state alone, so any later controller goes on with what one left over. While one
is under way another target may be asked for: the original replicas stay what they are until the end.

Kafka completes as soon as the added replicas are in sync, also where that leaves an ISR below min.insync.replicas; here
those that leave stay until the rest is enough. It keeps no order but the target's, and nor do we: a reassignment that is
cancelled leaves replicas that were in the target in its order.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kraftlog.kraft.controller.assignment import Assigner
from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import MAX_ELECTIONS_PER_BATCH, MAX_PARTITIONS_PER_REQUEST
from kraftlog.kraft.controller.elections import RulesOf
from kraftlog.kraft.controller.partition_change import MayLead, PartitionRules, change_of, replicas_change_of
from kraftlog.kraft.controller.partitions import PartitionKey, PartitionStore
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    PartitionReassignment,
)
from kraftlog.proto.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    KraftlogError,
    NoReassignmentInProgressError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
    code_of,
)
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.names import display

HAND_OVER_MS = 1_000.0
"""How long a leader that is to go stays as a follower. Twice as long as brokers wait for what a successor says."""


@dataclass(frozen=True, slots=True)
class _Replicas:
    """What a partition's three lists are to be."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class ReassignmentManager:
    """Used only by the controller. Decides; the state is the partition store's."""

    def __init__(
        self,
        partitions: PartitionStore,
        brokers: BrokerManager,
        *,
        assigner: Assigner,
        rules_of: RulesOf,
        topic_id_of: Callable[[str], bytes | None],
        may_lead_now: Callable[[], MayLead],
    ) -> None:
        self._partitions = partitions
        self._brokers = brokers
        self._assigner = assigner
        self._rules_of = rules_of
        self._topic_id_of = topic_id_of
        self._may_lead_now = may_lead_now
        self._due: set[PartitionKey] = set()
        """Partitions that may be ready to complete. Soft state, as what follows."""
        self._all_are_due = True
        self._handed_over_ms: dict[PartitionKey, float] = {}
        """When a leader that is to go has given up the leadership."""

    # --- requests -----------------------------------------------------------------------------------------------

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Result[AlterPartitionReassignmentsResponse]:
        """Each partition succeeds or fails alone; those that succeed begin, or end, in one batch."""
        if len(request.partitions) > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(request.partitions)} partitions in one request exceed the limit {MAX_PARTITIONS_PER_REQUEST}:"
                " send several"
            )
        if len({(wanted.topic, wanted.partition) for wanted in request.partitions}) < len(request.partitions):
            raise InvalidRequestError("a partition is named twice in the request")
        may_lead = self._may_lead_now()
        response, records = AlterPartitionReassignmentsResponse(), list[MetadataRecord]()
        for wanted in request.partitions:
            result = response.partitions.add(topic=wanted.topic, partition=wanted.partition)
            try:
                record = self._alter(wanted, may_lead, keep_factor=request.keep_replication_factor)
            except KraftlogError as error:
                result.error_code, result.error_message = code_of(error), str(error)
                continue
            if record is not None and not request.validate_only:
                records.append(record)
        return Result(response, records)

    def _alter(self, wanted: PartitionReassignment, may_lead: MayLead, *, keep_factor: bool) -> MetadataRecord | None:
        """None: it is as it should be."""
        topic_id = self._topic_id_of(wanted.topic)
        partition = None if topic_id is None else self._partitions.get((topic_id, wanted.partition))
        if topic_id is None or partition is None:
            raise UnknownTopicOrPartitionError(
                f"partition {wanted.partition} of topic {display(wanted.topic)} does not exist"
            )
        where = f"{wanted.topic}-{wanted.partition}"
        if not wanted.HasField("target"):
            if not partition.is_reassigning:
                raise NoReassignmentInProgressError(f"{where}: no reassignment is under way")
            after = _Replicas(partition.original_replicas)
        else:
            target = tuple(wanted.target.replicas)
            self._assigner.check_replicas(where, target)
            if keep_factor and len(target) != len(partition.original_replicas):
                raise InvalidReplicationFactorError(
                    f"{where}: the target {list(target)} has {len(target)} replicas, the partition has"
                    f" {len(partition.original_replicas)}, and their number is to stay"
                )
            after = on_the_way_to(partition, target)
        if after == _Replicas(partition.replicas, partition.adding_replicas, partition.removing_replicas):
            return None
        rules = self._rules_of(topic_id)
        self._check_what_stays(where, partition, after, rules)
        record = _change(topic_id, partition, rules, may_lead, after)
        if record is None:
            raise InvalidReplicaAssignmentError(
                f"{where}: none of the replicas {list(after.replicas)} is live and in sync: wait for one, or name another"
                " target"
            )
        return record

    def begin(self, key: PartitionKey, partition: PartitionImage, target: Iterable[int]) -> MetadataRecord | None:
        """The record with which the controller begins a reassignment of its own, None if it cannot."""
        after = on_the_way_to(partition, target)
        return _change(key[0], partition, self._rules_of(key[0]), self._may_lead_now(), after)

    @staticmethod
    def _check_what_stays(where: str, partition: PartitionImage, after: _Replicas, rules: PartitionRules) -> None:
        """Raise `InvalidReplicaAssignmentError` where replicas that were being added have to go, and without them fewer
        than min.insync.replicas, or none, would have what was acknowledged."""
        isr, elr = partition.in_sync_replicas, partition.eligible_leader_replicas
        staying = [replica for replica in isr if replica in after.replicas]
        has_enough = len(staying) >= min(rules.effective_min(partition), len(isr))
        if (isr and not has_enough) or (not isr and elr and not set(elr) & set(after.replicas)):
            raise InvalidReplicaAssignmentError(
                f"{where}: of the replicas that are in sync ({list(isr or elr)}) only {staying} would stay: wait until"
                f" more of {list(after.replicas)} are, or keep some of those that are being added"
            )

    # --- completion ---------------------------------------------------------------------------------------------

    def partition_changed(self, key: PartitionKey) -> None:
        """Part of replaying a record."""
        partition = self._partitions.get(key)
        if partition is not None and partition.is_reassigning:
            self._due.add(key)

    def look_at_all(self) -> None:
        """Something that they depend on may have changed: configs, brokers, or who is the controller."""
        self._all_are_due = True

    def completions(self, now_ms: float) -> list[MetadataRecord]:
        """The next batch of those that are ready; empty when none is. What is not written comes again.

        A leader that is to go hands over first, and keeps its replica for `HAND_OVER_MS`: it hears from its successor
        which of the writes under way are committed, and answers them.
        """
        if self._all_are_due:
            self._all_are_due = False
            self._due = set(self._partitions.reassigning())
        self._due |= {key for key, at_ms in self._handed_over_ms.items() if now_ms >= at_ms + HAND_OVER_MS}
        if not self._due:
            return []
        may_lead, records = self._may_lead_now(), list[MetadataRecord]()
        for key in sorted(self._due):
            partition = self._partitions.get(key)
            record = None if partition is None else self._next_step(key, partition, may_lead, now_ms)
            if partition is None:
                self._handed_over_ms.pop(key, None)
            if record is None:
                self._due.discard(key)
                continue
            records.append(record)
            if len(records) == MAX_ELECTIONS_PER_BATCH:
                break
        return records

    @property
    def next_deadline_ms(self) -> float | None:
        """When `completions` has more, even if nothing changes."""
        return min((at_ms + HAND_OVER_MS for at_ms in self._handed_over_ms.values()), default=None)

    def _next_step(
        self, key: PartitionKey, partition: PartitionImage, may_lead: MayLead, now_ms: float
    ) -> MetadataRecord | None:
        rules = self._rules_of(key[0])
        completion = completion_of(key[0], partition, rules, may_lead)
        handed_over_ms = self._handed_over_ms.get(key)
        if completion is None:
            self._handed_over_ms.pop(key, None)
            return None
        if partition.leader_id not in (NO_LEADER, *partition.target_replicas):
            self._handed_over_ms[key] = now_ms
            return _hand_over(key[0], partition, rules, may_lead) or completion
        if handed_over_ms is not None and now_ms < handed_over_ms + HAND_OVER_MS:
            return None  # it comes again then
        self._handed_over_ms.pop(key, None)
        return completion


def _hand_over(
    topic_id: bytes, partition: PartitionImage, rules: PartitionRules, may_lead: MayLead
) -> MetadataRecord | None:
    """The record with which one of the target leads."""

    def is_to_lead(its: PartitionImage, replica: int) -> bool:
        return replica in its.target_replicas and may_lead(its, replica)

    return change_of(topic_id, partition, rules, is_to_lead, may_go_offline=False)


def on_the_way_to(partition: PartitionImage, target: Iterable[int]) -> _Replicas:
    """From the original replicas, whatever was wanted of them before."""
    target, original = tuple(target), partition.original_replicas
    adding = tuple(replica for replica in target if replica not in original)
    removing = tuple(replica for replica in original if replica not in target)
    return _Replicas(target + removing, adding, removing)


def completion_of(
    topic_id: bytes, partition: PartitionImage, rules: PartitionRules, may_lead: MayLead
) -> MetadataRecord | None:
    """The record that ends the reassignment, None while it has to go on."""
    if not partition.is_reassigning:
        return None
    target = partition.target_replicas
    in_sync = [replica for replica in target if replica in partition.in_sync_replicas]
    if not set(partition.adding_replicas) <= set(in_sync) or len(in_sync) < rules.effective_min_of(len(target)):
        return None
    if not in_sync:
        return None
    return _change(topic_id, partition, rules, may_lead, _Replicas(target))


def _change(
    topic_id: bytes, partition: PartitionImage, rules: PartitionRules, may_lead: MayLead, after: _Replicas
) -> MetadataRecord | None:
    return replicas_change_of(
        topic_id,
        partition,
        rules,
        may_lead,
        replicas=after.replicas,
        adding=after.adding,
        removing=after.removing,
    )
