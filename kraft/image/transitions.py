"""The legal transitions of partitions and replicas. Every partition record is held against this table when the controller
decides and again when anybody replays it: a record that breaks it stops the node instead of losing data.

A partition:

    state         means                                       may become
    NONEXISTENT   no record                                   ONLINE (created)
    ONLINE        a leader that is in the ISR                  ONLINE, OFFLINE, RECOVERING
    OFFLINE       no leader                                   ONLINE, OFFLINE, RECOVERING
    RECOVERING    an unclean leader, alone in the ISR          ONLINE (it says that it is ready), OFFLINE, RECOVERING
    each of them  topic deleted                               NONEXISTENT

A replica of it (rows: before one record, columns: after; L: also becomes the leader, u: only as an unclean leader):

                  ABSENT  OUT_OF_SYNC  IN_SYNC  ELIGIBLE  LAST_KNOWN
    ABSENT          x          x
    OUT_OF_SYNC     x          x        x, uL                          in sync: its leader says so
    IN_SYNC         x          x        x, L       x          x
    ELIGIBLE        x          x        x, L       x          x        KIP-966
    LAST_KNOWN      x          x        x, uL                 x        KIP-966: without its proof that nothing is lost

IN_SYNC is in the ISR; ELIGIBLE left it when it fell below min.insync.replicas, so it has every acknowledged record;
LAST_KNOWN was one of both before an unclean stop. A clean leader is IN_SYNC or ELIGIBLE before it is elected. Only a
leader's partition takes replicas into its ISR, and the leader epoch grows exactly where a leader is named (KIP-101). It
also grows where a replica becomes ABSENT: should the broker get the partition again, with an empty log, nothing that it
reported before counts. For the same reason a leader is named anew where a replica was found damaged and begins again.
"""

from collections.abc import Mapping
from enum import Enum

from kraftlog.kraft.image.image import NO_LEADER, PartitionImage
from kraftlog.proto.errors import IllegalStateError


class PartitionState(Enum):
    """See the module."""

    NONEXISTENT = "NonExistent"
    ONLINE = "Online"
    OFFLINE = "Offline"
    RECOVERING = "Recovering"


class ReplicaState(Enum):
    """See the module."""

    ABSENT = "Absent"
    OUT_OF_SYNC = "OutOfSync"
    IN_SYNC = "InSync"
    ELIGIBLE = "Eligible"
    LAST_KNOWN = "LastKnown"


_P, _R = PartitionState, ReplicaState

PARTITION_TRANSITIONS: Mapping[PartitionState, frozenset[PartitionState]] = {
    _P.NONEXISTENT: frozenset({_P.ONLINE}),
    _P.ONLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.RECOVERING, _P.NONEXISTENT}),
    _P.OFFLINE: frozenset({_P.ONLINE, _P.OFFLINE, _P.RECOVERING, _P.NONEXISTENT}),
    _P.RECOVERING: frozenset({_P.ONLINE, _P.OFFLINE, _P.RECOVERING, _P.NONEXISTENT}),
}
REPLICA_TRANSITIONS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    _R.ABSENT: frozenset({_R.ABSENT, _R.OUT_OF_SYNC}),
    _R.OUT_OF_SYNC: frozenset({_R.ABSENT, _R.OUT_OF_SYNC, _R.IN_SYNC}),
    _R.IN_SYNC: frozenset({_R.ABSENT, _R.OUT_OF_SYNC, _R.IN_SYNC, _R.ELIGIBLE, _R.LAST_KNOWN}),
    _R.ELIGIBLE: frozenset({_R.ABSENT, _R.OUT_OF_SYNC, _R.IN_SYNC, _R.ELIGIBLE, _R.LAST_KNOWN}),
    _R.LAST_KNOWN: frozenset({_R.ABSENT, _R.OUT_OF_SYNC, _R.IN_SYNC, _R.LAST_KNOWN}),
}
CLEAN_LEADERS: frozenset[ReplicaState] = frozenset({_R.IN_SYNC, _R.ELIGIBLE})
"""What a replica is before it becomes the leader of a partition that does not have to recover."""


def partition_state(partition: PartitionImage | None) -> PartitionState:
    if partition is None:
        return PartitionState.NONEXISTENT
    if partition.leader_id == NO_LEADER:
        return PartitionState.OFFLINE
    return PartitionState.RECOVERING if partition.is_recovering else PartitionState.ONLINE


def replica_state(partition: PartitionImage, replica: int) -> ReplicaState:
    if replica not in partition.replicas:
        return ReplicaState.ABSENT
    if replica in partition.in_sync_replicas:
        return ReplicaState.IN_SYNC
    if replica in partition.eligible_leader_replicas:
        return ReplicaState.ELIGIBLE
    if replica in partition.last_known_elr:
        return ReplicaState.LAST_KNOWN
    return ReplicaState.OUT_OF_SYNC


def check_created(partition: PartitionImage) -> None:
    """Raise `IllegalStateError` unless a partition may start its life like this."""
    check_shape(partition)
    after = partition_state(partition)
    if after not in PARTITION_TRANSITIONS[PartitionState.NONEXISTENT]:
        raise _illegal(partition, f"is created {after.value}")


def check_change(before: PartitionImage, after: PartitionImage) -> None:
    """Raise `IllegalStateError` unless one record may lead from `before` to `after`."""
    check_shape(after)
    old, new = partition_state(before), partition_state(after)
    if new not in PARTITION_TRANSITIONS[old]:
        raise _illegal(after, f"goes from {old.value} to {new.value}")
    has_new_leader = after.leader_id != before.leader_id
    if after.leader_epoch < before.leader_epoch + has_new_leader or after.leader_epoch > before.leader_epoch + 1:
        raise _illegal(
            after, f"changes leader {before.leader_id}@{before.leader_epoch} to {after.leader_id}@{after.leader_epoch}"
        )
    if after.leader_epoch == before.leader_epoch and not set(before.replicas) <= set(after.replicas):
        raise _illegal(after, f"loses a replica of {list(before.replicas)} within leader epoch {before.leader_epoch}")
    if after.partition_epoch != before.partition_epoch + 1:
        raise _illegal(after, f"goes from partition epoch {before.partition_epoch} to {after.partition_epoch}")
    if (
        before.in_sync_replicas == after.in_sync_replicas
        and before.replicas == after.replicas
        and before.eligible_leader_replicas == after.eligible_leader_replicas
        and before.last_known_elr == after.last_known_elr
        and (not has_new_leader or after.leader_id == NO_LEADER)
    ):
        return  # no replica changed its state; the common case of a replay
    _check_replicas(before, after, has_new_leader=has_new_leader)


def _check_replicas(before: PartitionImage, after: PartitionImage, *, has_new_leader: bool) -> None:
    for replica in dict.fromkeys(before.replicas + after.replicas):
        was, becomes = replica_state(before, replica), replica_state(after, replica)
        if becomes not in REPLICA_TRANSITIONS[was]:
            raise _illegal(after, f"takes replica {replica} from {was.value} to {becomes.value}")
        if becomes is not ReplicaState.IN_SYNC or was in CLEAN_LEADERS:
            continue
        if before.leader_id == NO_LEADER and replica != after.leader_id:
            raise _illegal(after, f"takes replica {replica} into the ISR without a leader that could say so")
        if has_new_leader and replica == after.leader_id and not after.is_recovering:
            raise _illegal(after, f"elects replica {replica}, which was {was.value}, as if nothing could be lost")


def check_shape(partition: PartitionImage) -> None:
    """Raise `IllegalStateError` for a partition that cannot be, however it came about."""
    replicas, isr = partition.replicas, partition.in_sync_replicas
    elr, last_known = partition.eligible_leader_replicas, partition.last_known_elr
    if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
        raise _illegal(partition, f"has replicas {list(replicas)}")
    known = set(replicas)
    for name, some in (("ISR", isr), ("ELR", elr), ("last known ELR", last_known)):
        if some and (len(set(some)) != len(some) or not known.issuperset(some)):
            raise _illegal(partition, f"has {name} {list(some)} of replicas {list(replicas)}")
    if (elr or last_known) and len({*isr, *elr, *last_known}) != len(isr) + len(elr) + len(last_known):
        raise _illegal(partition, f"has a replica twice in ISR {isr}, ELR {elr}, last known ELR {last_known}")
    adding, removing = partition.adding_replicas, partition.removing_replicas
    if adding or removing:
        if not known.issuperset((*adding, *removing)) or len({*adding, *removing}) != len(adding) + len(removing):
            raise _illegal(partition, f"adds {list(adding)} and removes {list(removing)} of replicas {list(replicas)}")
        if not partition.original_replicas or not partition.target_replicas:
            raise _illegal(partition, f"adds {list(adding)} and removes {list(removing)}, all of its replicas")
    if partition.leader_id != NO_LEADER and partition.leader_id not in isr:
        raise _illegal(partition, f"has leader {partition.leader_id} outside of its ISR {list(isr)}")
    if partition.is_recovering and partition.leader_id != NO_LEADER and isr != (partition.leader_id,):
        raise _illegal(partition, f"is recovering with ISR {list(isr)}: only its leader may be in it (KIP-704)")
    if partition.directories and len(partition.directories) != len(replicas):
        raise _illegal(partition, f"has {len(partition.directories)} directories for {len(replicas)} replicas")


def _illegal(partition: PartitionImage, what: str) -> IllegalStateError:
    return IllegalStateError(
        f"a metadata record is refused: partition {partition.partition} {what}, which no transition allows"
    )
