"""The table of transitions, over the whole product of what may be before and after one record."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.kraft.image.partition_state import changed_partition, new_partition, partition_record
from kraftlog.kraft.image.transitions import (
    CLEAN_LEADERS,
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionState,
    ReplicaState,
    check_change,
    check_created,
    check_shape,
    partition_state,
    replica_state,
)
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.metadata_pb2 import PartitionChangeRecord, PartitionRecord, ReplicaList

R, P = ReplicaState, PartitionState
STATES = [R.OUT_OF_SYNC, R.IN_SYNC, R.ELIGIBLE, R.LAST_KNOWN]


def partition_of(states: dict[int, ReplicaState], leader_id: int, *, is_recovering: bool = False) -> PartitionImage:
    def those(state: ReplicaState) -> tuple[int, ...]:
        return tuple(replica for replica, its in states.items() if its is state)

    return PartitionImage(
        partition=0,
        replicas=tuple(replica for replica, state in states.items() if state is not R.ABSENT),
        in_sync_replicas=those(R.IN_SYNC),
        eligible_leader_replicas=those(R.ELIGIBLE),
        last_known_elr=those(R.LAST_KNOWN),
        leader_id=leader_id,
        leader_epoch=5,
        partition_epoch=7,
        is_recovering=is_recovering,
    )


def partitions() -> Iterator[PartitionImage]:
    """Every partition of two replicas that can be."""
    for first, second in product(STATES, STATES):
        states = {1: first, 2: second}
        for leader_id, is_recovering in product((NO_LEADER, 1, 2), (False, True)):
            partition = partition_of(states, leader_id, is_recovering=is_recovering)
            try:
                check_shape(partition)
            except IllegalStateError:
                continue
            yield partition


EVERY = list(partitions())


def succeeding(before: PartitionImage, after: PartitionImage) -> PartitionImage:
    """`after` with the epochs that a record makes."""
    has_new_epoch = after.leader_id != before.leader_id or not set(before.replicas) <= set(after.replicas)
    return replace(after, leader_epoch=before.leader_epoch + has_new_epoch, partition_epoch=before.partition_epoch + 1)


def is_legal(before: PartitionImage, after: PartitionImage) -> bool:
    """The rules once more, written another way."""
    is_election = after.leader_id not in (NO_LEADER, before.leader_id)
    for replica in before.replicas:
        was, becomes = replica_state(before, replica), replica_state(after, replica)
        if was is R.OUT_OF_SYNC and becomes in (R.ELIGIBLE, R.LAST_KNOWN):
            return False
        if was is R.LAST_KNOWN and becomes is R.ELIGIBLE:
            return False
        is_clean = was is R.IN_SYNC or was is R.ELIGIBLE
        if becomes is R.IN_SYNC and not is_clean:
            is_unclean_leader = is_election and replica == after.leader_id and after.is_recovering
            is_taken_in = before.leader_id != NO_LEADER and not (is_election and replica == after.leader_id)
            if not is_unclean_leader and not is_taken_in:
                return False
    return True


def test_every_change_of_two_replicas_is_judged_by_the_table() -> None:
    """Whatever was before and whatever is after: both ways of writing the rules agree, and both verdicts occur."""
    verdicts = {True: 0, False: 0}
    for before, after in product(EVERY, EVERY):
        after = succeeding(before, after)
        try:
            check_change(before, after)
            verdict = True
        except IllegalStateError:
            verdict = False
        assert verdict == is_legal(before, after), (before, after)
        verdicts[verdict] += 1
    assert min(verdicts.values()) > 100, verdicts


@pytest.mark.parametrize("was", list(R))
@pytest.mark.parametrize("becomes", list(R))
def test_a_replica_goes_only_where_the_table_says(was: ReplicaState, becomes: ReplicaState) -> None:
    """Beside a leader that stays as it is. The table is the whole truth then."""
    before = partition_of({1: R.IN_SYNC, 2: was}, 1)
    after = succeeding(before, partition_of({1: R.IN_SYNC, 2: becomes}, 1))
    if becomes in REPLICA_TRANSITIONS[was]:
        check_change(before, after)
    else:
        with pytest.raises(IllegalStateError, match="no transition allows"):
            check_change(before, after)


@pytest.mark.parametrize("was", STATES)
@pytest.mark.parametrize("is_recovering", [False, True])
def test_only_a_replica_that_has_everything_leads_as_if_nothing_were_lost(
    was: ReplicaState, is_recovering: bool
) -> None:
    """KIP-966; any other makes the partition recover (KIP-704)."""
    before = partition_of({1: R.OUT_OF_SYNC, 2: was}, NO_LEADER)
    after = succeeding(before, partition_of({1: R.OUT_OF_SYNC, 2: R.IN_SYNC}, 2, is_recovering=is_recovering))
    if was in CLEAN_LEADERS or is_recovering:
        check_change(before, after)
    else:
        with pytest.raises(IllegalStateError, match="elects replica 2"):
            check_change(before, after)


def test_the_table_has_every_state() -> None:
    """And a partition that does not exist can only be created with a leader."""
    assert PARTITION_TRANSITIONS.keys() == set(P)
    assert REPLICA_TRANSITIONS.keys() == set(R)
    assert PARTITION_TRANSITIONS[P.NONEXISTENT] == {P.ONLINE}
    assert {partition_state(partition) for partition in EVERY} == set(P) - {P.NONEXISTENT}
    for partition in EVERY:
        if partition_state(partition) is P.ONLINE:
            check_created(partition)
        else:
            with pytest.raises(IllegalStateError, match="is created"):
                check_created(partition)


ONLINE = partition_of({1: R.IN_SYNC, 2: R.IN_SYNC, 3: R.OUT_OF_SYNC}, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": ()},
        {"replicas": (1, 1, 2)},
        {"replicas": (-1, 1, 2)},
        {"in_sync_replicas": (1, 9)},
        {"in_sync_replicas": (1, 1)},
        {"in_sync_replicas": (2,)},  # leader outside
        {"in_sync_replicas": ()},
        {"eligible_leader_replicas": (2,)},  # in the ISR, too
        {"eligible_leader_replicas": (9,)},
        {"last_known_elr": (2,)},
        {"eligible_leader_replicas": (3,), "last_known_elr": (3,)},
        {"leader_id": 3},
        {"is_recovering": True},  # with two in the ISR
        {"directories": (bytes(16),)},
    ],
)
def test_partitions_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    """However they came about, from a snapshot as well."""
    check_shape(ONLINE)
    impossible = replace(ONLINE, **wrong)  # type: ignore[arg-type] # the point of the test
    with pytest.raises(IllegalStateError):
        check_shape(impossible)
    with pytest.raises(IllegalStateError):
        new_partition(partition_record(bytes(16), impossible))


@pytest.mark.parametrize(
    "wrong",
    [
        {"leader_epoch": 4},
        {"leader_epoch": 7},
        {"partition_epoch": 7},
        {"partition_epoch": 9},
        {"leader_id": 2, "leader_epoch": 5},  # another leader in the same epoch
    ],
)
def test_epochs_only_grow_and_by_one(wrong: dict[str, object]) -> None:
    """A leader of an epoch is one broker (KIP-101), and a request with an old epoch is known as such."""
    after = replace(ONLINE, **{"partition_epoch": 8, **wrong})  # type: ignore[arg-type] # the point of the test
    with pytest.raises(IllegalStateError):
        check_change(ONLINE, after)


def test_replay_holds_records_against_the_table() -> None:
    """A record that is in the log all the same stops the node."""
    change = PartitionChangeRecord(in_sync_replicas=ReplicaList(replicas=[2, 3]), leader_id=3)
    with pytest.raises(IllegalStateError, match="elects replica 3"):
        changed_partition(ONLINE, change)
    with pytest.raises(IllegalStateError, match="outside of its ISR"):
        new_partition(PartitionRecord(replicas=[1, 2], in_sync_replicas=[2], leader_id=1))


def test_partition_records_are_the_inverse_of_partitions() -> None:
    """In every state: what a snapshot writes is read as it was."""
    for partition in EVERY:
        assert new_partition(partition_record(bytes(16), partition)) == partition


def test_a_replica_goes_only_with_a_new_leader_epoch() -> None:
    """What it has reported must not count for the empty log that it may get later in the same epoch."""
    before = partition_of({1: R.IN_SYNC, 2: R.IN_SYNC}, 1)
    after = succeeding(before, partition_of({1: R.IN_SYNC, 2: R.ABSENT}, 1))
    check_change(before, after)
    with pytest.raises(IllegalStateError, match="loses a replica"):
        check_change(before, replace(after, leader_epoch=before.leader_epoch))


@pytest.mark.parametrize(
    ("adding", "removing"), [((3,), ()), ((), (3,)), ((1,), (1,)), ((1, 2), ()), ((), (1, 2)), ((1, 1), ())]
)
def test_a_reassignment_leaves_replicas_at_both_ends(adding: tuple[int, ...], removing: tuple[int, ...]) -> None:
    """KIP-455: there are original and target replicas, and none is added and removed."""
    partition = replace(
        partition_of({1: R.IN_SYNC, 2: R.IN_SYNC}, 1), adding_replicas=adding, removing_replicas=removing
    )
    with pytest.raises(IllegalStateError, match="adds"):
        check_shape(partition)
