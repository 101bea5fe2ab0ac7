"""Elections: for the partitions of brokers that leave or return, on demand, and toward the preferred leaders.

An operation elects for at most `MAX_ELECTIONS_PER_BATCH` partitions. What is more is left over and is found again in the
state itself (a broker that may not lead and is in an ISR, a partition without a leader that somebody may lead), so that
each batch is whole by itself and any controller carries on, also a later one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import (
    MAX_ELECTIONS_PER_BALANCE,
    MAX_ELECTIONS_PER_BATCH,
    MAX_LOSSES_PER_BATCH,
    MAX_PARTITIONS_PER_REQUEST,
)
from kraftlog.kraft.controller.partition_change import (
    Election,
    MayLead,
    PartitionRules,
    change_of,
    flush_policy_change_of,
)
from kraftlog.kraft.controller.partitions import PartitionKey, PartitionStore
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import NO_DIRECTORY, NO_LEADER, BrokerImage, PartitionImage
from kraftlog.proto.admin_pb2 import ElectLeadersRequest, ElectLeadersResponse
from kraftlog.proto.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    KraftlogError,
    PolicyViolationError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    code_of,
)
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.names import display

RulesOf = Callable[[bytes], PartitionRules]
"""What holds for a topic, by its id."""


class ElectionManager:
    """Used only by the controller. Decides; the state is the partition store's."""

    def __init__(
        self,
        partitions: PartitionStore,
        brokers: BrokerManager,
        *,
        rules_of: RulesOf,
        topic_id_of: Callable[[str], bytes | None],
        topic_name_of: Callable[[bytes], str],
    ) -> None:
        self._partitions = partitions
        self._brokers = brokers
        self._rules_of = rules_of
        self._topic_id_of = topic_id_of
        self._topic_name_of = topic_name_of
        self._may_be_missing = True
        """Whether a partition without a leader could have one. Soft state."""

    def may_lead(self, usable: Collection[int]) -> MayLead:
        """With these brokers usable, and the disks that work."""
        return lambda partition, replica: (
            replica in usable and is_on_working_disk(partition, replica, self._brokers.broker(replica))
        )

    # --- brokers leave and return -------------------------------------------------------------------------------

    def leave(self, node_ids: Iterable[int], *, may_go_offline: bool = True) -> list[MetadataRecord]:
        """These brokers leave every ISR and lead nothing; without `may_go_offline` they stay where nobody else can
        lead. None of them is elected instead of another. One batch."""
        leaving = frozenset(node_ids)
        may_lead = self.may_lead(self._brokers.usable_racks().keys() - leaving)
        keys = sorted({key for node_id in leaving for key in self._partitions.in_sync_with(node_id)})
        return self._batch(
            change_of(
                key[0],
                partition,
                self._rules_of(key[0]),
                may_lead,
                in_sync_replicas=without(partition.in_sync_replicas, leaving),
                may_go_offline=may_go_offline,
            )
            for key, partition in self._each(keys)
        )

    def can_leave_at_once(self, node_id: int) -> bool:
        """Whether `leave` has nothing left over."""
        return self._partitions.in_sync_count(node_id) <= MAX_ELECTIONS_PER_BATCH

    def lose(
        self, node_id: int, has_lost: Callable[[PartitionKey, PartitionImage], bool], *, must_be_whole: bool
    ) -> list[MetadataRecord]:
        """The replicas of which `node_id` may have lost records leave ISR and ELR. One batch; with `must_be_whole`,
        `PolicyViolationError` if that is too small, for what must not be left to a later one."""
        keys = sorted({*self._partitions.in_sync_with(node_id), *self._partitions.eligible_for(node_id)})
        lost = [(key, partition) for key, partition in self._each(keys) if has_lost(key, partition)]
        if must_be_whole and len(lost) > MAX_LOSSES_PER_BATCH:
            raise PolicyViolationError(
                f"broker {node_id} may have lost records of {len(lost)} replicas, more than {MAX_LOSSES_PER_BATCH}:"
                " unregister it first"
            )
        may_lead = self.may_lead(self._brokers.usable_racks().keys() - {node_id})
        return self._batch(
            (
                change_of(key[0], partition, self._rules_of(key[0]), may_lead, lost=frozenset({node_id}))
                for key, partition in lost
            ),
            MAX_LOSSES_PER_BATCH if must_be_whole else MAX_ELECTIONS_PER_BATCH,
        )

    def lose_where_others_can_lead(self, node_id: int, keys: Iterable[PartitionKey]) -> list[MetadataRecord]:
        """The replicas of `node_id` of these partitions were found to be damaged while in use. They leave ISR and ELR, unless
        one leads, or nobody, and no other could: it is all there is. Whoever leads then does so in another epoch, also where
        the replica was in neither: its leader may be asking for it at this moment, by what the damaged log had. One batch;
        what is more is told again."""
        may_lead = self.may_lead(self._brokers.usable_racks().keys())

        def change(key: PartitionKey, partition: PartitionImage) -> MetadataRecord | None:
            claims = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
            others_can_lead = any(may_lead(partition, other) for other in claims - {node_id})
            if partition.leader_id in (node_id, NO_LEADER) and not others_can_lead:
                return None
            lost = frozenset(claims & {node_id})
            return change_of(
                key[0],
                partition,
                self._rules_of(key[0]),
                may_lead,
                lost=lost,
                may_go_offline=bool(lost),
                voids_reports=True,
            )

        here = ((key, self._partitions.get(key)) for key in sorted(set(keys)))
        return self._batch(
            change(key, partition) for key, partition in here if partition is not None and node_id in partition.replicas
        )

    def elect_where_missing(self, usable: Collection[int]) -> list[MetadataRecord]:
        """Leaders for the partitions without one of which one of `usable` may lead. One batch."""
        may_lead = self.may_lead(usable)
        records = self._batch(
            change_of(key[0], partition, self._rules_of(key[0]), may_lead)
            for key, partition in self._each(self._partitions.without_leader())
        )
        self._may_be_missing |= len(records) == MAX_ELECTIONS_PER_BATCH
        return records

    def rules_changed(
        self, topic_id: bytes, partition_count: int, before: PartitionRules, after: PartitionRules
    ) -> list[MetadataRecord]:
        """What other topic configs mean for its partitions: leaders where unclean elections are allowed, and no ELR
        where it rested on another min.insync.replicas, unless it is all that could lead; and what was flushed under one
        flush.policy counts for nothing under the other."""
        if before == after:
            return []
        may_lead = self.may_lead(self._brokers.usable_racks())
        changes = []
        for key, partition in self._each((topic_id, number) for number in range(partition_count)):
            is_raised = after.effective_min(partition) > before.effective_min(partition)
            doubtful = partition.eligible_leader_replicas if is_raised and partition.in_sync_replicas else ()
            changes.append(change_of(key[0], partition, after, may_lead, lost=frozenset(doubtful)))
            if before.flushes_before_ack != after.flushes_before_ack:
                changes.append(flush_policy_change_of(key[0], partition))
        return [change for change in changes if change is not None]

    def restart(self) -> None:
        """A new controller does not know what its predecessor left over."""
        self._may_be_missing = True

    def left_over(self) -> list[MetadataRecord]:
        """The next batch of what earlier batches were too small for; empty when all is as it should be."""
        registered = {broker.node_id: broker for broker in self._brokers.all()}
        fenced = [
            node_id
            for node_id in self._partitions.in_sync_nodes()
            if node_id in registered and registered[node_id].is_fenced
        ]
        records = self.leave(fenced) if fenced else []
        members = {*self._partitions.in_sync_nodes(), *self._partitions.eligible_nodes()}
        for node_id in sorted(members - registered.keys()):
            if not records:
                records = self.lose(node_id, lambda key, partition: True, must_be_whole=False)
        if not records and self._may_be_missing:
            records = self.elect_where_missing(self._brokers.usable_racks())
            self._may_be_missing = bool(records)
        return records

    # --- toward the preferred leaders ---------------------------------------------------------------------------

    def balance(self, percentage: int) -> list[MetadataRecord]:
        """Leadership back to the brokers that lead fewer of the partitions that prefer them than `percentage` of them
        missing allows, where they are in sync. At most `MAX_ELECTIONS_PER_BALANCE`."""
        may_lead = self.may_lead(self._brokers.usable_racks())
        starved = [
            node_id
            for node_id in self._partitions.imbalanced_nodes()
            if 100 * len(self._partitions.imbalanced(node_id)) > percentage * self._partitions.preferring_count(node_id)
        ]
        return self._batch(
            (
                self._to_preferred(key, partition, may_lead)
                for node_id in starved
                for key, partition in self._each(self._partitions.imbalanced(node_id))
            ),
            MAX_ELECTIONS_PER_BALANCE,
        )

    def _to_preferred(self, key: PartitionKey, partition: PartitionImage, may_lead: MayLead) -> MetadataRecord | None:
        preferred = partition.replicas[0]
        if preferred not in partition.in_sync_replicas or not may_lead(partition, preferred):
            return None
        return change_of(key[0], partition, self._rules_of(key[0]), may_lead, election=Election.PREFERRED)

    # --- on demand ----------------------------------------------------------------------------------------------

    def elect(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        """Each partition succeeds or fails alone. Without topics: every partition that needs it and can have it, at
        most `MAX_ELECTIONS_PER_BATCH` of them; repeat the request until none is answered."""
        if request.type not in (ElectLeadersRequest.PREFERRED, ElectLeadersRequest.UNCLEAN):
            raise InvalidRequestError(f"election type {request.type} is not known: use 0 (preferred) or 1 (unclean)")
        may_lead = self.may_lead(self._brokers.usable_racks())
        decide = self._elect_preferred if request.type == ElectLeadersRequest.PREFERRED else self._elect_unclean
        response, records = ElectLeadersResponse(), list[MetadataRecord]()
        for name, number in self._named(request) if request.topics else self._needing(request.type):
            try:
                key = self._key_of(name, number)
                record = decide(key, self._partitions[key], may_lead)
            except KraftlogError as error:
                if request.topics:
                    response.partitions.add(
                        topic=name,
                        partition=number,
                        error_code=code_of(error),
                        error_message=str(error),
                        leader_id=NO_LEADER,
                    )
                continue
            response.partitions.add(topic=name, partition=number, leader_id=record.partition_change.leader_id)
            records.append(record)
            if len(records) == MAX_ELECTIONS_PER_BATCH and not request.topics:
                break
        return Result(response, records)

    @staticmethod
    def _named(request: ElectLeadersRequest) -> list[tuple[str, int]]:
        named = [(topic.name, number) for topic in request.topics for number in topic.partitions]
        if len(named) > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(named)} partitions in one request exceed the limit {MAX_PARTITIONS_PER_REQUEST}: send several"
            )
        return sorted(set(named))

    def _needing(self, election_type: int) -> Iterator[tuple[str, int]]:
        if election_type == ElectLeadersRequest.PREFERRED:
            for node_id in self._partitions.imbalanced_nodes():
                for topic_id, number in self._partitions.imbalanced(node_id):
                    yield self._topic_name_of(topic_id), number
        else:
            for topic_id, number in self._partitions.without_leader():
                yield self._topic_name_of(topic_id), number

    def _key_of(self, name: str, number: int) -> PartitionKey:
        topic_id = self._topic_id_of(name)
        if topic_id is None or self._partitions.get((topic_id, number)) is None:
            raise UnknownTopicOrPartitionError(f"partition {number} of topic {display(name)} does not exist")
        return topic_id, number

    def _elect_preferred(self, key: PartitionKey, partition: PartitionImage, may_lead: MayLead) -> MetadataRecord:
        preferred = partition.replicas[0]
        if partition.leader_id == preferred:
            raise ElectionNotNeededError(f"the preferred leader {preferred} leads already")
        record = self._to_preferred(key, partition, may_lead)
        if record is None:
            raise PreferredLeaderNotAvailableError(
                f"the preferred leader {preferred} is not live and in sync (ISR {list(partition.in_sync_replicas)})"
            )
        return record

    def _elect_unclean(self, key: PartitionKey, partition: PartitionImage, may_lead: MayLead) -> MetadataRecord:
        if partition.leader_id != NO_LEADER:
            raise ElectionNotNeededError(f"broker {partition.leader_id} leads")
        rules = replace(self._rules_of(key[0]), unclean_election=True)
        record = change_of(key[0], partition, rules, may_lead)
        if record is None or record.partition_change.leader_id == NO_LEADER:
            raise EligibleLeadersNotAvailableError(f"none of the replicas {list(partition.replicas)} is live")
        return record

    # --- helpers ------------------------------------------------------------------------------------------------

    def _each(self, keys: Iterable[PartitionKey]) -> Iterator[tuple[PartitionKey, PartitionImage]]:
        return ((key, self._partitions[key]) for key in keys)

    @staticmethod
    def _batch(changes: Iterable[MetadataRecord | None], limit: int | None = None) -> list[MetadataRecord]:
        limit = MAX_ELECTIONS_PER_BATCH if limit is None else limit
        return list(islice((change for change in changes if change is not None), limit))


def without(replicas: Iterable[int], leaving: Collection[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in leaving)


def directory_of(partition: PartitionImage, replica: int) -> bytes:
    """Of a replica; `NO_DIRECTORY` where it is not known (KIP-858)."""
    if not partition.directories or replica not in partition.replicas:
        return NO_DIRECTORY
    return partition.directories[partition.replicas.index(replica)]


def is_on_working_disk(partition: PartitionImage, replica: int, broker: BrokerImage | None) -> bool:
    """Whether the replica's directory is one that the broker has. Where it is not known, it is taken to be."""
    directory = directory_of(partition, replica)
    return directory == NO_DIRECTORY or (broker is not None and directory in broker.log_dirs)
