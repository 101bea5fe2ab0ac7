"""Planning of Spark batches: pure arithmetic against its rules."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import DataLossError, InvalidConfigError
from kraftlog.spark_connector.options import EARLIEST, LATEST, PartitionOffsets
from kraftlog.spark_connector.planning import (
    OffsetRange,
    limit_offsets,
    plan_tasks,
    ranges_between,
    resolve,
    with_new_partitions,
)

offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), min_size=1, max_size=6)
range_lists = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 50),
        st.integers(0, 1000),
        st.integers(1, 200_000),
    ),
    max_size=12,
    unique_by=lambda r: r.partition,
)


def covered(tasks: list[list[OffsetRange]]) -> dict[int, list[tuple[int, int]]]:
    result: dict[int, list[tuple[int, int]]] = {}
    for task in tasks:
        for piece in task:
            result.setdefault(piece.partition, []).append((piece.start, piece.end))
    return {partition: sorted(spans) for partition, spans in result.items()}


@given(
    range_lists,
    st.integers(1, 8),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 40),
)
def test_tasks_read_every_offset_exactly_once(
    ranges: list[OffsetRange], cores: int, min_partitions: int | None, max_partitions: int | None
) -> None:
    """The pieces of a partition tile its range, whatever the hints."""
    tasks = plan_tasks(ranges, cores=cores, min_partitions=min_partitions, max_partitions=max_partitions)
    spans = covered(tasks)
    assert set(spans) == {r.partition for r in ranges}
    for whole in ranges:
        pieces = spans[whole.partition]
        assert pieces[0][0] == whole.start
        assert pieces[-1][1] == whole.end
        assert all(a[1] == b[0] for a, b in itertools.pairwise(pieces))
    assert all(tasks)
    if max_partitions is not None:
        assert len(tasks) <= max_partitions


def test_small_ranges_share_tasks_down_to_the_cores() -> None:
    ranges = [OffsetRange("t", p, 0, 10) for p in range(12)]
    assert len(plan_tasks(ranges, cores=2, min_partitions=None, max_partitions=None)) == 2


def test_large_ranges_get_a_task_each() -> None:
    ranges = [OffsetRange("t", p, 0, 1_000_000) for p in range(12)]
    assert len(plan_tasks(ranges, cores=2, min_partitions=None, max_partitions=None)) == 12


def test_min_partitions_splits_in_proportion() -> None:
    ranges = [OffsetRange("t", 0, 0, 300), OffsetRange("t", 1, 0, 100)]
    tasks = plan_tasks(ranges, cores=1, min_partitions=4, max_partitions=None)
    assert sorted(len([p for t in tasks for p in t if p.partition == n]) for n in (0, 1)) == [1, 3]


@given(offsets, offsets, st.integers(1, 30_000))
def test_limit_is_respected_and_nothing_goes_back(start: dict[int, int], latest: dict[int, int], limit: int) -> None:
    """Min of backlog and limit is read in all; each partition moves within [start, latest]."""
    begin: PartitionOffsets = {"t": {p: start.get(p, 0) for p in latest}}
    end = limit_offsets(begin, {"t": latest}, limit)["t"]
    backlog = {p: max(0, latest[p] - begin["t"][p]) for p in latest}
    moved = {p: end[p] - begin["t"][p] for p in latest}
    assert sum(moved.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= moved[p] <= backlog[p] for p in latest)


def test_limit_starves_no_small_partition() -> None:
    end = limit_offsets({"t": {0: 0, 1: 0}}, {"t": {0: 1_000_000, 1: 3}}, 10)
    assert end["t"][1] >= 1


def test_explicit_offsets_must_name_exactly_the_partitions() -> None:
    latest: PartitionOffsets = {"t": {0: 9, 1: 9}}
    with pytest.raises(InvalidConfigError, match=r"missing: t-1; not read: u-0"):
        resolve("startingOffsets", {"t": {0: 1}, "u": {0: 1}}, latest, latest)


def test_special_offsets_resolve_per_partition() -> None:
    earliest: PartitionOffsets = {"t": {0: 5, 1: 6}}
    latest: PartitionOffsets = {"t": {0: 50, 1: 60}}
    assert resolve("startingOffsets", {"t": {0: EARLIEST, 1: LATEST}}, earliest, latest) == {"t": {0: 5, 1: 60}}
    assert resolve("startingOffsets", EARLIEST, earliest, latest) == earliest


def test_a_new_partition_starts_at_its_earliest_offset() -> None:
    start = with_new_partitions({"t": {0: 7}}, {"t": {0: 3, 1: 4}})
    assert start == {"t": {0: 7, 1: 4}}


def test_a_vanished_or_shrunk_partition_is_data_loss() -> None:
    with pytest.raises(DataLossError, match=r"t-1: .* is gone"):
        ranges_between({"t": {0: 1, 1: 5}}, {"t": {0: 3}}, fail_on_data_loss=True)
    with pytest.raises(DataLossError, match="ends at 3"):
        ranges_between({"t": {0: 5}}, {"t": {0: 3}}, fail_on_data_loss=True)
    assert ranges_between({"t": {0: 5, 1: 1}}, {"t": {0: 3}}, fail_on_data_loss=False) == []
