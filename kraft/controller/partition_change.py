"""Who leads a partition, and who may, after something happened: the one place that decides it (Kafka's
PartitionChangeBuilder, KIP-966).

The leader is, in this order:
1. the preferred leader, if that is what was asked for, and if it is in the ISR;
2. the leader there is, if it is in the ISR and may lead;
3. of the ISR, then of the ELR, the first in replica order that may lead: they have every acknowledged record;
4. if unclean elections are allowed, a last-known replica, then any other: records may be lost, so the partition
   recovers with the leader alone in the ISR. The only replica of a partition may always lead again like this: nobody
   else has more.
5. nobody.

Replicas that leave an ISR which falls below min.insync.replicas enter the ELR: the high watermark does not move below
that number, so they keep having every acknowledged record. When the ISR has reached it again, ELR and last-known ELR
are empty. A replica that may have lost records (`lost`) leaves both for the last-known ELR.

Who may have lost records in an unclean stop depends on `flush.policy`, and on what it was before:

    the topic's policy       a partition is
    ack from the beginning   flushed: recovery finds on its disk all that was acknowledged
    interval                 not flushed; a leader acknowledges from memory only when the metadata say this
    ack after interval       not flushed, until its leader has seen everybody in the ISR flush through where its log ended
                             when it learnt of the policy, and nobody is in the ELR, who might not have flushed
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from kraftlog.kraft.image import NO_DIRECTORY, NO_LEADER, PartitionImage
from kraftlog.kraft.image.partition_state import RECOVERED, RECOVERING, changed_partition, effective_min_in_sync
from kraftlog.proto.metadata_pb2 import DirectoryList, MetadataRecord, PartitionChangeRecord, ReplicaList


class Election(Enum):
    """What is wanted of the leadership."""

    ONLINE = "online"
    """A leader, whichever; the one that there is, if it will do."""
    PREFERRED = "preferred"
    """The first replica, if that costs nothing; else as ONLINE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRules:
    """What holds for the topic of a partition."""

    min_insync_replicas: int
    unclean_election: bool
    """Whether a replica that may lack acknowledged records may lead."""
    flushes_before_ack: bool = True
    """Whether acknowledgments wait for the disk (`flush.policy=ack`)."""

    def effective_min(self, partition: PartitionImage) -> int:
        return self.effective_min_of(len(partition.original_replicas))

    def effective_min_of(self, replica_count: int) -> int:
        return effective_min_in_sync(self.min_insync_replicas, replica_count)


MayLead = Callable[[PartitionImage, int], bool]
"""Whether a replica's broker, and its disk, can lead now."""


@dataclass(frozen=True, slots=True)
class _Choice:
    leader_id: int
    is_clean: bool = True


def change_of(
    topic_id: bytes,
    partition: PartitionImage,
    rules: PartitionRules,
    may_lead: MayLead,
    *,
    in_sync_replicas: Iterable[int] | None = None,
    lost: frozenset[int] = frozenset(),
    election: Election = Election.ONLINE,
    has_recovered: bool = False,
    has_flushed: bool = False,
    may_go_offline: bool = True,
    voids_reports: bool = False,
) -> MetadataRecord | None:
    """The record that makes the partition what it should be, None if it is that or is to stay as it is.

    `in_sync_replicas`: the ISR that remains or is wanted (default: as it is). `has_flushed`: all of it has on disk what
    was acknowledged. Without `may_go_offline` a partition that would lose its leader is left alone. With `voids_reports` the
    leader, whoever it is, begins another epoch: what followers have reported of their logs counts no more.
    """
    isr = partition.in_sync_replicas if in_sync_replicas is None else tuple(in_sync_replicas)
    isr = tuple(replica for replica in isr if replica not in lost)
    elr = tuple(replica for replica in partition.eligible_leader_replicas if replica not in lost)
    choice = _choose(partition, isr, elr, rules, may_lead, lost, election)
    if choice.leader_id == NO_LEADER and partition.leader_id != NO_LEADER and not may_go_offline:
        return None
    if choice.leader_id not in (NO_LEADER, *isr):
        isr = (choice.leader_id,)
    if choice.is_clean:
        elr, last_known = _eligible(partition, isr, rules, lost)
    else:
        elr, last_known = (), ()  # the log goes on from another end: nobody else's is known to hold it
    is_flushed = partition.is_flushed or (has_flushed and rules.flushes_before_ack and not elr)
    record = _difference(
        topic_id, partition, choice, isr, elr, last_known, has_recovered=has_recovered, is_flushed=is_flushed
    )
    if voids_reports and choice.leader_id != NO_LEADER:
        record = record or PartitionChangeRecord(topic_id=topic_id, partition=partition.partition)
        record.leader_id = choice.leader_id
    if record is None:
        return None
    changed_partition(partition, record)  # raises what no transition allows, before anything is written
    return MetadataRecord(partition_change=record)


def replicas_change_of(
    topic_id: bytes,
    partition: PartitionImage,
    rules: PartitionRules,
    may_lead: MayLead,
    *,
    replicas: tuple[int, ...],
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> MetadataRecord | None:
    """The record that gives the partition these replicas, and with them a step of a reassignment. Who leads goes on
    unless it is one of those that go. None: then nobody could lead who has every acknowledged record.
    """
    isr = tuple(replica for replica in replicas if replica in partition.in_sync_replicas)
    elr = tuple(replica for replica in replicas if replica in partition.eligible_leader_replicas)
    after = replace(
        partition,
        replicas=replicas,
        adding_replicas=adding,
        removing_replicas=removing,
        in_sync_replicas=isr,
        eligible_leader_replicas=elr,
        last_known_elr=tuple(replica for replica in replicas if replica in partition.last_known_elr),
    )
    choice = _Choice(partition.leader_id)
    if partition.leader_id not in (NO_LEADER, *isr):
        choice = _choose(
            after, isr, elr, replace(rules, unclean_election=False), may_lead, frozenset(), Election.ONLINE
        )
        if choice.leader_id == NO_LEADER or not choice.is_clean:
            return None
        if choice.leader_id not in isr:
            isr = (choice.leader_id,)
    elr, last_known = _eligible(after, isr, rules, frozenset())
    record = _difference(
        topic_id, partition, choice, isr, elr, last_known, has_recovered=False, is_flushed=partition.is_flushed
    )
    if record is None:
        record = PartitionChangeRecord(topic_id=topic_id, partition=partition.partition)
    for name, before, wanted in (
        ("replicas", partition.replicas, replicas),
        ("adding_replicas", partition.adding_replicas, adding),
        ("removing_replicas", partition.removing_replicas, removing),
    ):
        if wanted != before:
            getattr(record, name).CopyFrom(ReplicaList(replicas=wanted))
    if partition.directories:
        known = dict(zip(partition.replicas, partition.directories, strict=True))
        directories = [known.get(replica, NO_DIRECTORY) for replica in replicas]
        record.directories.CopyFrom(DirectoryList(directories=directories))
    if not set(partition.replicas) <= set(replicas):
        record.leader_id = choice.leader_id  # another epoch, also with the same leader: see `transitions`
    changed_partition(partition, record)
    return MetadataRecord(partition_change=record)


def flush_policy_change_of(topic_id: bytes, partition: PartitionImage) -> MetadataRecord:
    """The record for a topic whose flush.policy is another one from now on, whichever. Its partition epoch tells what its
    leader had found before from what it finds afterwards."""
    record = PartitionChangeRecord(topic_id=topic_id, partition=partition.partition, flushed=False)
    changed_partition(partition, record)
    return MetadataRecord(partition_change=record)


def _choose(
    partition: PartitionImage,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: PartitionRules,
    may_lead: MayLead,
    lost: frozenset[int],
    election: Election,
) -> _Choice:
    preferred, current = partition.replicas[0], partition.leader_id
    if election is Election.PREFERRED and preferred in isr and may_lead(partition, preferred):
        return _Choice(preferred)
    if current in isr and may_lead(partition, current):
        return _Choice(current)
    candidates = [replica for replica in partition.replicas if may_lead(partition, replica)]
    for clean in (isr, elr):
        for replica in candidates:
            if replica in clean:
                return _Choice(replica)
    if rules.unclean_election or len(partition.replicas) == 1:
        last_known = lost.union(partition.last_known_elr)
        for replica in sorted(candidates, key=lambda replica: replica not in last_known):
            return _Choice(replica, is_clean=False)
    return _Choice(NO_LEADER)


def _eligible(
    partition: PartitionImage, isr: tuple[int, ...], rules: PartitionRules, lost: frozenset[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ELR, last-known ELR) beside this ISR, in replica order."""
    if len(isr) >= rules.effective_min(partition):
        return (), ()
    had_everything = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
    elr = had_everything - lost - set(isr)
    last_known = (lost & had_everything).union(partition.last_known_elr) - elr - set(isr)
    in_order = partition.replicas
    return tuple(r for r in in_order if r in elr), tuple(r for r in in_order if r in last_known)


def _difference(
    topic_id: bytes,
    partition: PartitionImage,
    choice: _Choice,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last_known: tuple[int, ...],
    *,
    has_recovered: bool,
    is_flushed: bool,
) -> PartitionChangeRecord | None:
    nothing = PartitionChangeRecord(topic_id=topic_id, partition=partition.partition)
    record = PartitionChangeRecord(topic_id=topic_id, partition=partition.partition)
    if choice.leader_id != partition.leader_id:
        record.leader_id = choice.leader_id
    if isr != partition.in_sync_replicas:
        record.in_sync_replicas.CopyFrom(ReplicaList(replicas=isr))
    if elr != partition.eligible_leader_replicas:
        record.eligible_leader_replicas.CopyFrom(ReplicaList(replicas=elr))
    if last_known != partition.last_known_elr:
        record.last_known_elr.CopyFrom(ReplicaList(replicas=last_known))
    if not choice.is_clean:
        record.leader_recovery_state = RECOVERING
    elif has_recovered and partition.is_recovering:
        record.leader_recovery_state = RECOVERED
    if is_flushed != partition.is_flushed:
        record.flushed = is_flushed
    return None if record == nothing else record
