"""Plans of reassignments: few moves, racks, the same load."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import InvalidReplicationFactorError, InvalidRequestError
from kraftlog.sdk.cli.reassign_plan import Planner, plan_document, read_plan
from kraftlog.sdk.types import PartitionDescription, TopicPartition

WHERE = TopicPartition("orders", 0)
NO_RACKS: dict[int, str] = dict.fromkeys((1, 2, 3, 4), "")


def partition(*replicas: int, leader: int | None = None, isr: tuple[int, ...] | None = None) -> PartitionDescription:
    return PartitionDescription(
        partition=0,
        leader_id=replicas[0] if leader is None else leader,
        leader_epoch=0,
        replicas=replicas,
        in_sync_replicas=replicas if isr is None else isr,
    )


def plan(
    partitions: list[PartitionDescription], racks: dict[int, str], factor: int | None = None
) -> list[tuple[int, ...]]:
    planner = Planner(racks, partitions)
    return [planner.replicas_of(WHERE, each, factor) for each in partitions]


def test_raising_the_factor_spreads_replicas_and_leaders() -> None:
    """As after a cluster of one broker has grown: everything is on broker 1."""
    planned = plan([partition(1) for _ in range(6)], dict.fromkeys((1, 2, 3), ""), 3)
    assert all(sorted(replicas) == [1, 2, 3] for replicas in planned)
    assert Counter(replicas[0] for replicas in planned) == {1: 2, 2: 2, 3: 2}


def test_what_is_as_it_should_be_stays() -> None:
    balanced = [partition(1, 2), partition(2, 3), partition(3, 1)]
    assert plan(balanced, dict.fromkeys((1, 2, 3), "")) == [(1, 2), (2, 3), (3, 1)]


def test_a_broker_that_may_not_be_used_is_replaced_by_the_one_with_the_least() -> None:
    planned = plan([partition(4, 1), partition(1, 4), partition(1, 2)], dict.fromkeys((1, 2, 3), ""))
    assert sorted(planned[0]) == [1, 3]
    assert sorted(planned[1]) in ([1, 2], [1, 3])
    assert planned[2] == (1, 2)


def test_added_replicas_are_in_racks_of_their_own() -> None:
    assert set(plan([partition(1)], {1: "a", 2: "a", 3: "b", 4: "c"}, 3)[0]) == {1, 3, 4}


def test_fewer_replicas_are_those_that_lead_or_are_in_sync() -> None:
    assert plan([partition(1, 2, 3, leader=3, isr=(2, 3))], NO_RACKS, 2) == [(2, 3)]
    assert plan([partition(1, 2, 3, leader=3, isr=(2, 3))], NO_RACKS, 1) == [(3,)]


def test_as_many_brokers_are_needed_as_replicas() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="there are 2"):
        plan([partition(1, 2, 3)], {1: "", 2: ""})


@given(
    shapes=st.lists(st.permutations([1, 2, 3, 4, 5]).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n]))),
    brokers=st.sets(st.integers(1, 6), min_size=3),
    factor=st.integers(1, 3),
)
def test_every_plan_has_the_wanted_replicas_and_moves_no_more_than_it_must(
    shapes: list[list[int]], brokers: set[int], factor: int
) -> None:
    partitions = [partition(*shape) for shape in shapes]
    for before, after in zip(partitions, plan(partitions, dict.fromkeys(sorted(brokers), ""), factor), strict=True):
        assert len(after) == len(set(after)) == factor
        assert set(after) <= brokers
        able = brokers & set(before.replicas)
        assert len(set(after) & able) == min(factor, len(able)), "one was moved that could stay"


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    wanted = {TopicPartition("a", 1): (1, 2), TopicPartition("b", 0): (3,)}
    path = tmp_path / "plan.json"

    path.write_text(json.dumps(plan_document(wanted)))
    assert read_plan(path) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions": [{"topic": "a"}]}',
        '{"partitions": [{"topic": "a", "partition": "x", "replicas": []}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}, {"topic": "a", "partition": 0, "replicas": [2]}]}',
    ],
)
def test_a_file_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InvalidRequestError, match=r"plan\.json"):
        read_plan(path)
