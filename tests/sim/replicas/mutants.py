"""Replication with one rule switched off each: what the scenarios and the random runs must convict.

A mutant is a function that takes a rule away by a `pytest.MonkeyPatch`, and undoes itself with it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraftlog.kraft.controller.broker_life import BrokerLife
from kraftlog.kraft.controller.elections import ElectionManager
from kraftlog.kraft.controller.in_sync_replicas import IsrManager
from kraftlog.kraft.controller.partition_change import change_of
from kraftlog.kraft.image import PartitionImage
from kraftlog.logstore import AppendInfo, Log
from kraftlog.proto.errors import InvalidUpdateVersionError, NotLeaderOrFollowerError
from kraftlog.proto.metadata_pb2 import MetadataRecord, PartitionChangeRecord
from kraftlog.proto.records import iter_headers
from kraftlog.proto.seams import Buffer
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.in_sync import Follower, InSync, IsrProposal, ReplicaEnds
from kraftlog.replication.isr_updates import PendingChange, PendingChanges
from kraftlog.replication.partition import Partition
from kraftlog.replication.returning import ReturningBroker

Mutant = Callable[[pytest.MonkeyPatch], None]


def _without(patch: pytest.MonkeyPatch, rule: str) -> None:
    """The entry into the ISR is judged as if this were 0, or false."""
    proposal = InSync.proposal

    def propose(self: InSync, **state: Any) -> IsrProposal | None:
        return proposal(self, **{**state, rule: 0})

    patch.setattr(InSync, "proposal", propose)


# --- the high watermark


def counts_only_itself(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the leader's own end."""
    patch.setattr(InSync, "end", lambda self, own_end, *, flushed: own_end)


def counts_only_the_committed_isr(patch: pytest.MonkeyPatch) -> None:
    """Who was proposed for the ISR does not hold the high watermark back."""
    patch.setattr(InSync, "maximal", property(lambda self: self.committed))


def moves_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """The high watermark moves with an ISR that is smaller than min.insync.replicas (KAFKA-15583)."""
    patch.setattr(Partition, "effective_min_in_sync_replicas", property(lambda self: 1))


def answers_deletions_below_min_isr(patch: pytest.MonkeyPatch) -> None:
    """Records are deleted when the ISR has deleted them, though others may be eligible."""

    def end(self: Partition) -> int:
        start_offset = self.log.log_start_offset
        return start_offset if self._in_sync is None else self._in_sync.start(start_offset)

    patch.setattr(Partition, "deleted_end", property(end))


def counts_unflushed(patch: pytest.MonkeyPatch) -> None:
    """What is in memory counts."""
    patch.setattr(Partition, "flushes_before_ack", property(lambda self: False))


def counts_unflushed_followers(patch: pytest.MonkeyPatch) -> None:
    """What followers have in memory counts."""
    patch.setattr(Follower, "end", lambda self, *, flushed: self.ends.log_end_offset)


def counts_reports_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A report that was made to an earlier leadership counts in this one."""
    on_follower_ends = Partition.on_follower_ends

    def count(self: Partition, replica: int, leader_epoch: int, ends: ReplicaEnds, **rest: Any) -> bool:
        return on_follower_ends(self, replica, self.leader_epoch, ends, **rest)

    patch.setattr(Partition, "on_follower_ends", count)


def acknowledges_below_any_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Who has lost the leadership acknowledges what is below its successor's high watermark, whosever record that is."""
    patch.setattr(Partition, "may_commit_later", lambda self, leader_epoch, end_offset: True)


# --- histories


def never_diverges(patch: pytest.MonkeyPatch) -> None:
    """The leader does not compare epochs."""
    patch.setattr(Partition, "diverging_epoch", lambda self, last_fetched_epoch, fetch_offset: None)


def never_truncates(patch: pytest.MonkeyPatch) -> None:
    """A follower keeps what its leader does not have."""
    patch.setattr(Partition, "truncate_to", lambda self, offset: None)


def truncates_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower cuts its log at its own high watermark (before KIP-101)."""
    patch.setattr(Partition, "truncation_for", lambda self, epoch, end_offset: self.high_watermark)


def truncates_by_the_leaders_epoch_alone(patch: pytest.MonkeyPatch) -> None:
    """A follower that lacks the epoch which the leader names takes its end all the same (before KIP-279)."""
    patch.setattr(Partition, "truncation_for", lambda self, epoch, end_offset: min(end_offset, self.log.log_end_offset))


def keeps_unwritten_epochs(patch: pytest.MonkeyPatch) -> None:
    """Who led without a record believes that the next records are of its epoch."""
    patch.setattr(Log, "forget_unwritten_epochs", lambda self: None)


def trusts_what_it_has_deleted(patch: pytest.MonkeyPatch) -> None:
    """A follower that ends where the leader's log starts goes on, whatever it has below that."""
    patch.setattr(FollowerFeed, "_check_last_record", staticmethod(lambda partition, body: None))


def begins_epochs_at_what_is_left(patch: pytest.MonkeyPatch) -> None:
    """What compaction left out before a batch counts as of the epoch before."""
    append = Log.append_as_follower

    def follow(self: Log, records: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        known = self.epochs.latest_epoch
        info = append(self, records, now_ms=now_ms)
        first: dict[int, int] = {}
        for _, header in iter_headers(memoryview(records)):
            first.setdefault(header.leader_epoch, header.base_offset)
        self.epochs.entries = tuple(
            (epoch, first[epoch] if epoch > known else start_offset) for epoch, start_offset in self.epochs.entries
        )
        return info

    patch.setattr(Log, "append_as_follower", follow)


def answers_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A leader does not look at the epoch in which it is asked."""

    def check(self: Partition, current_leader_epoch: int = -1) -> None:
        if not self.is_leader:
            raise NotLeaderOrFollowerError("not the leader")

    patch.setattr(Partition, "check_leader", check)


# --- who enters the ISR


def enters_before_the_epoch_start(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is enough, though a new leader's lags behind (KAFKA-7128)."""
    _without(patch, "epoch_start_offset")


def enters_below_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Whoever reports is in sync."""
    _without(patch, "epoch_start_offset")
    _without(patch, "high_watermark")


def enters_unflushed(patch: pytest.MonkeyPatch) -> None:
    """Who has the records in memory is in sync."""
    _without(patch, "flushed")


def enters_with_any_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    """What the process before the restart reported stands for the one after it (KIP-903)."""
    proposal = InSync.proposal

    def propose(self: InSync, **state: Any) -> IsrProposal | None:
        for replica, follower in self.followers.items():
            if broker := state["brokers"].get(replica):
                follower.broker_epoch = broker.broker_epoch
        return proposal(self, **state)

    patch.setattr(InSync, "proposal", propose)


def gives_up_what_is_unanswered(patch: pytest.MonkeyPatch) -> None:
    """A proposal without an answer counts as refused, though the controller may have done it."""

    def unanswered(self: PendingChanges, batch: Sequence[PendingChange], now_ms: float) -> None:
        for waiting in batch:
            self._end(waiting)

    patch.setattr(PendingChanges, "unanswered", unanswered)


def gives_up_what_was_refused_once(patch: pytest.MonkeyPatch) -> None:
    """A refusal ends a proposal, though an earlier attempt may still be on its way."""
    patch.setattr(PendingChanges, "_settled_ms", staticmethod(lambda waiting: float("-inf")))


# --- the controller


def takes_any_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    """An ISR that was found before the last change is taken."""
    checked = IsrManager._checked

    def check(self: IsrManager, node_id: int, change: Any) -> Any:
        try:
            return checked(self, node_id, change)
        except InvalidUpdateVersionError:
            partition = self._partitions[(change.topic_id, change.partition)]
            self._check_members(node_id, partition, change)
            return partition

    patch.setattr(IsrManager, "_checked", check)


def takes_any_member(patch: pytest.MonkeyPatch) -> None:
    """Fenced and stopping brokers, and those that have restarted, enter the ISR (KIP-841, 903)."""
    patch.setattr(IsrManager, "_check_members", lambda self, node_id, partition, change: None)


def trusts_lost_disks(patch: pytest.MonkeyPatch) -> None:
    """A replica keeps its place whatever happened to its disk (KIP-858, 966)."""
    patch.setattr(BrokerLife, "_has_lost", lambda self, before, registration: lambda key, partition: False)


def keeps_the_epoch_of_a_damaged_replica(patch: pytest.MonkeyPatch) -> None:
    """The leader of a replica that was found damaged goes on in its epoch, and the replica begins again."""

    def change(*about: Any, **wanted: Any) -> MetadataRecord | None:
        return change_of(*about, **{**wanted, "voids_reports": False})

    patch.setattr("kraftlog.kraft.controller.elections.change_of", change)
    throws_a_damaged_log_away_at_once(patch)


def throws_a_damaged_log_away_at_once(patch: pytest.MonkeyPatch) -> None:
    """A damaged replica that is not in sync begins again, though the controller may not know of the damage."""
    damaged = ReturningBroker.damaged
    patch.setattr(ReturningBroker, "damaged", lambda self, key, leader_epoch: damaged(self, key, -1))


def switches_to_ack_at_once(patch: pytest.MonkeyPatch) -> None:
    """With flush.policy=ack everybody has on disk what was acknowledged from memory before."""
    rules_changed = ElectionManager.rules_changed

    def change(self: ElectionManager, *about: Any) -> list[MetadataRecord]:
        records = rules_changed(self, *about)
        for record in records:
            if record.partition_change.HasField("flushed"):
                record.partition_change.flushed = about[-1].flushes_before_ack
        return records

    patch.setattr(ElectionManager, "rules_changed", change)


def switches_to_ack_with_the_leader(patch: pytest.MonkeyPatch) -> None:
    """The switch is in effect when the leader has flushed."""
    patch.setattr(InSync, "_have_flushed", lambda self, end, brokers: True)


def switches_without_a_partition_epoch(patch: pytest.MonkeyPatch) -> None:
    """A switch leaves no record in a partition of which nothing is known to be flushed."""
    rules_changed = ElectionManager.rules_changed

    def change(self: ElectionManager, *about: Any) -> list[MetadataRecord]:
        return [
            record
            for record in rules_changed(self, *about)
            if not record.partition_change.HasField("flushed")
            or self._partitions[record.partition_change.topic_id, record.partition_change.partition].is_flushed
        ]

    patch.setattr(ElectionManager, "rules_changed", change)


def switches_with_eligible_leaders(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether those in the ELR have flushed."""

    def end(self: Partition) -> int | None:
        end = self.log.log_end_offset
        return end if self.is_switching_to_ack and self.log.flushed_end_offset >= end else None

    def change(topic_id: bytes, partition: PartitionImage, *rest: Any, **wanted: Any) -> MetadataRecord | None:
        record = change_of(topic_id, partition, *rest, **wanted)
        if wanted.get("has_flushed") and not partition.is_flushed:
            record = record or MetadataRecord(
                partition_change=PartitionChangeRecord(topic_id=topic_id, partition=partition.partition)
            )
            record.partition_change.flushed = True
        return record

    patch.setattr(Partition, "_end_to_flush", end)
    patch.setattr("kraftlog.kraft.controller.in_sync_replicas.change_of", change)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        counts_only_itself,
        counts_only_the_committed_isr,
        moves_below_min_isr,
        answers_deletions_below_min_isr,
        counts_unflushed,
        counts_unflushed_followers,
        counts_reports_of_any_epoch,
        acknowledges_below_any_high_watermark,
        never_diverges,
        never_truncates,
        truncates_to_the_high_watermark,
        truncates_by_the_leaders_epoch_alone,
        keeps_unwritten_epochs,
        trusts_what_it_has_deleted,
        begins_epochs_at_what_is_left,
        answers_any_epoch,
        enters_before_the_epoch_start,
        enters_below_the_high_watermark,
        enters_unflushed,
        enters_with_any_broker_epoch,
        gives_up_what_is_unanswered,
        gives_up_what_was_refused_once,
        takes_any_partition_epoch,
        takes_any_member,
        trusts_lost_disks,
        keeps_the_epoch_of_a_damaged_replica,
        throws_a_damaged_log_away_at_once,
        switches_to_ack_at_once,
        switches_to_ack_with_the_leader,
        switches_without_a_partition_epoch,
        switches_with_eligible_leaders,
    )
}
