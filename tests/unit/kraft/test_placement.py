"""Replica placement: even, and spread over racks."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.kraft.controller.placement import place


def test_leaders_and_replicas_spread_evenly() -> None:
    """Six partitions on three brokers: two leaders and, with two replicas, four replicas each."""
    placed = place({1: "", 2: "", 3: ""}, 6, 2, start=0)
    assert Counter(replicas[0] for replicas in placed) == {1: 2, 2: 2, 3: 2}
    assert Counter(broker for replicas in placed for broker in replicas) == {1: 4, 2: 4, 3: 4}


def test_followers_of_one_leader_spread() -> None:
    """When a broker fails, its load goes to more than one neighbour."""
    placed = place(dict.fromkeys(range(5), ""), 20, 2, start=3)
    assert len({replicas[1] for replicas in placed if replicas[0] == 2}) == 4


def test_racks_before_brokers() -> None:
    """With three racks, three replicas are on three racks."""
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for replicas in place(racks, 30, 3, start=1):
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


@given(
    st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(0, 1000),
)
def test_every_placement_is_legal(racks: dict[int, str], count: int, factor: int, start: int) -> None:
    """Distinct live brokers, as many racks as possible, leaders differing by at most one."""
    factor = min(factor, len(racks))
    placed = place(racks, count, factor, start)
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1


def test_more_replicas_than_brokers_is_a_bug_of_the_caller() -> None:
    """The controller refuses it before."""
    with pytest.raises(AssertionError):
        place({1: ""}, 1, 2, start=0)
