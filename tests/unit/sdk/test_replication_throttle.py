"""What a throttled move sets, and what goes when it is done: beside other moves, and beside what was set by hand."""

from collections.abc import Mapping, Sequence

import pytest

from kraftlog.proto.admin_pb2 import AlterConfigsResource, ConfigChange
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.replication_throttle import needed, of_reassignments, throttle_alterations, to_remove, to_set
from kraftlog.sdk.types import PartitionDescription, PartitionReassignment, ReplicationThrottle, TopicPartition

NOTHING = ReplicationThrottle()


def described(*replicas: int, adding: Sequence[int] = (), removing: Sequence[int] = ()) -> PartitionDescription:
    return PartitionDescription(
        partition=0,
        leader_id=replicas[0],
        leader_epoch=0,
        replicas=replicas,
        in_sync_replicas=replicas,
        adding_replicas=tuple(adding),
        removing_replicas=tuple(removing),
    )


def under_way(*replicas: int, adding: Sequence[int]) -> PartitionReassignment:
    return PartitionReassignment(
        replicas=replicas, adding_replicas=tuple(adding), removing_replicas=(), in_sync_replicas=()
    )


def throttle(rates: Mapping[int, int], sources: Sequence[str] = (), added: Sequence[str] = ()) -> ReplicationThrottle:
    """With the same rates on both sides, for topic `a`."""
    return ReplicationThrottle(
        leader_rates=rates,
        follower_rates=rates,
        leader_replicas={"a": tuple(sources)} if sources else {},
        follower_replicas={"a": tuple(added)} if added else {},
    )


A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
MOVE = throttle({1: 9, 2: 9, 3: 9}, ["0:1", "0:2"], ["0:3"])


def test_a_move_needs_both_rates_on_all_its_brokers_and_its_replicas_on_the_lists() -> None:
    assert needed({A0: (3, 2)}, {A0: described(1, 2)}, 9) == MOVE
    assert needed({A0: (2, 1)}, {A0: described(1, 2)}, 9) == NOTHING, "nothing is copied"
    assert needed({A0: (1,)}, {A0: described(1, 2)}, 9) == NOTHING
    again = needed({A0: (1, 4)}, {A0: described(1, 2, 3, adding=(3,))}, 9)
    assert again == throttle({1: 9, 2: 9, 4: 9, 3: 9}, ["0:1", "0:2"], ["0:4", "0:3"]), "another target on the way"


def test_nothing_is_set_twice_and_all_that_was_set_goes() -> None:
    assert to_set(MOVE, NOTHING, NOTHING) == MOVE
    assert to_remove(MOVE, MOVE, NOTHING) == MOVE
    assert to_remove(MOVE, NOTHING, NOTHING) == NOTHING


def test_what_was_set_by_hand_stays() -> None:
    with pytest.raises(InvalidConfigError, match=r"broker 2 has leader\.replication\.throttled\.rate=5"):
        to_set(MOVE, throttle({2: 5}), NOTHING)
    by_hand = throttle({2: 9}, ["0:1"], ["*"])
    set_ = to_set(MOVE, by_hand, NOTHING)
    assert set_ == throttle({1: 9, 3: 9}, ["0:2"])
    present = throttle({1: 9, 2: 9, 3: 9}, ["0:1", "0:2"], ["*"])
    assert to_remove(set_, present, NOTHING) == set_
    changed = throttle({1: 8, 2: 9, 3: 9}, ["0:1", "0:2"], ["*"])
    assert to_remove(set_, changed, NOTHING) == throttle({3: 9}, ["0:2"]), "somebody else wants another rate"


def test_a_move_under_way_gets_another_rate_and_it_goes_with_it() -> None:
    running = of_reassignments(MOVE, {A0: under_way(1, 2, 3, adding=(3,))})
    assert running == MOVE
    faster = needed({A0: (3, 2)}, {A0: described(1, 2, 3, adding=(3,), removing=(1,))}, 20)
    assert to_set(faster, MOVE, running) == throttle({1: 20, 2: 20, 3: 20}, ["0:1", "0:2"], ["0:3"])
    same = needed({A0: (3, 2)}, {A0: described(1, 2, 3, adding=(3,), removing=(1,))}, 9)
    assert to_set(same, MOVE, running) == MOVE


def test_the_first_of_two_moves_leaves_what_the_second_needs() -> None:
    both = throttle({1: 9, 2: 9, 3: 9, 4: 9}, ["0:1", "0:2", "1:1"], ["0:3", "1:4"])
    running = of_reassignments(both, {A1: under_way(1, 4, adding=(4,))})
    assert running == throttle({1: 9, 4: 9}, ["1:1"], ["1:4"])
    assert to_remove(MOVE, both, running) == throttle({2: 9, 3: 9}, ["0:1", "0:2"], ["0:3"])
    assert to_remove(both, both, running) == throttle({2: 9, 3: 9}, ["0:1", "0:2"], ["0:3"])
    assert to_remove(throttle({}, ["*"]), throttle({}, ["*"]), NOTHING) == throttle({}, ["*"])


def test_lists_are_appended_to_and_subtracted_from() -> None:
    def changes(resources: list[AlterConfigsResource]) -> list[tuple[str, str, int, str]]:
        return [
            (each.resource.name, change.name.partition(".")[0], change.operation, change.value)
            for each in resources
            for change in each.changes
        ]

    small = throttle({1: 9}, ["0:1"], ["0:3", "0:4"])
    assert changes(throttle_alterations(small, is_removal=False)) == [
        ("1", "leader", ConfigChange.SET, "9"),
        ("1", "follower", ConfigChange.SET, "9"),
        ("a", "leader", ConfigChange.APPEND, "0:1"),
        ("a", "follower", ConfigChange.APPEND, "0:3,0:4"),
    ]
    assert changes(throttle_alterations(small, is_removal=True)) == [
        ("1", "leader", ConfigChange.DELETE, ""),
        ("1", "follower", ConfigChange.DELETE, ""),
        ("a", "leader", ConfigChange.SUBTRACT, "0:1"),
        ("a", "follower", ConfigChange.SUBTRACT, "0:3,0:4"),
    ]
