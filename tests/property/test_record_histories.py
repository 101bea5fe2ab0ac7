"""The checker of histories of records: it accepts what correct logs give, and convicts every planted error of its kind."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.records import (
    FINDINGS_PER_KIND_MAX,
    Acknowledged,
    Finding,
    History,
    Kind,
    Records,
    Session,
    Value,
    find_violations,
)

PARTITIONS = 2
PRODUCERS: tuple[str, ...] = ("a", "b")


def correct_history(rng: random.Random) -> History:
    """Some values are stored, most of those acknowledged; one reader reads all, a group of two changes hands in between and
    repeats what it had not committed."""
    sent = {producer: rng.randrange(6, 40) for producer in PRODUCERS}
    places = [producer for producer, count in sent.items() for _ in range(count)]
    rng.shuffle(places)
    next_number: dict[str, int] = dict.fromkeys(PRODUCERS, 0)
    final: dict[int, list[tuple[int, Value]]] = {partition: [] for partition in range(PARTITIONS)}
    acknowledged = []
    for place, producer in enumerate(places):
        value = Value(producer, next_number[producer])
        next_number[producer] += 1
        is_needed = place < 4 * PARTITIONS  # so that there is something to plant an error in
        partition = place % PARTITIONS if is_needed else rng.randrange(PARTITIONS)
        if is_needed or rng.random() < 0.9:
            offset = len(final[partition])
            final[partition].append((offset, value))
            if is_needed or rng.random() < 0.8:
                acknowledged.append(Acknowledged(partition, value, offset if rng.random() < 0.9 else -1))
    sessions = []
    for partition, records in final.items():
        sessions.append(Session("alone", "alone", partition, tuple(records), begin=0))
        handed_over = rng.randrange(1, len(records))
        committed = rng.randrange(handed_over + 1)
        sessions.append(Session("group", "first", partition, tuple(records[:handed_over])))
        sessions.append(Session("group", "second", partition, tuple(records[committed:])))
    rng.shuffle(acknowledged)
    return History(sent, acknowledged, sessions, {partition: tuple(records) for partition, records in final.items()})


def partition_of(history: History, rng: random.Random) -> int:
    return rng.choice(sorted(history.final))


def with_final(history: History, partition: int, records: Records) -> History:
    """Read the same by everybody."""
    sessions = [replace(each, records=records) if each.partition == partition else each for each in history.sessions]
    return replace(history, sessions=sessions, final={**history.final, partition: records})


def renumbered(values: list[Value]) -> Records:
    return tuple(enumerate(values))


def lose_the_end(history: History, rng: random.Random) -> History:
    """As if a leader had been elected that lacked the last acknowledged record."""
    each = rng.choice([each for each in history.acknowledged if each.offset >= 0])
    kept = history.final[each.partition][: each.offset]
    return with_final(history, each.partition, kept)


def lose_unread(history: History, rng: random.Random) -> History:
    """A reader has seen a record that is gone, whether or not anybody was told that it is stored."""
    partition = partition_of(history, rng)
    kept = history.final[partition][:-1]
    acknowledged = [
        each
        for each in history.acknowledged
        if (each.partition, each.value) != (partition, history.final[partition][-1][1])
    ]
    return replace(history, acknowledged=acknowledged, final={**history.final, partition: kept})


def store_twice(history: History, rng: random.Random) -> History:
    partition = partition_of(history, rng)
    values = [value for _, value in history.final[partition]]
    return with_final(history, partition, renumbered([*values, rng.choice(values)]))


def swap(history: History, rng: random.Random) -> History:
    """Two records of one producer, stored the wrong way round; nobody was told an offset."""
    partition = partition_of(history, rng)
    values = [value for _, value in history.final[partition]]
    producer = rng.choice([p for p in PRODUCERS if sum(value.producer == p for value in values) > 1] or [""])
    if not producer:
        return swap(history, rng)
    first, second = sorted(rng.sample([i for i, value in enumerate(values) if value.producer == producer], 2))
    values[first], values[second] = values[second], values[first]
    changed = with_final(history, partition, renumbered(values))
    return replace(changed, acknowledged=[replace(each, offset=-1) for each in history.acknowledged])


def read_another_value(history: History, rng: random.Random) -> History:
    """One reader was given what the next leader then overwrote."""
    index = rng.choice([i for i, each in enumerate(history.sessions) if each.records])
    session = history.sessions[index]
    at = rng.randrange(len(session.records))
    records = list(session.records)
    records[at] = (records[at][0], Value("a", 10_000))
    sessions = [*history.sessions[:index], replace(session, records=tuple(records)), *history.sessions[index + 1 :]]
    return replace(history, sessions=sessions)


def acknowledge_another_offset(history: History, rng: random.Random) -> History:
    each = rng.choice([each for each in history.acknowledged if each.offset > 0])
    others = [other for other in history.acknowledged if other is not each]
    return replace(history, acknowledged=[*others, replace(each, offset=each.offset - 1)])


def go_back(history: History, rng: random.Random) -> History:
    session = history.sessions[0]
    at = rng.randrange(len(session.records))
    records = (*session.records, *session.records[at:])
    return replace(history, sessions=[replace(session, records=records), *history.sessions[1:]])


def skip_in_the_middle(history: History, rng: random.Random) -> History:
    """By one member of a group, of which another one has read it all."""
    session = history.sessions[0]
    at = rng.randrange(len(session.records) - 1)
    records = (*session.records[:at], *session.records[at + 1 :])
    return replace(history, sessions=[*history.sessions, replace(session, records=records)])


def skip_at_a_change_of_hands(history: History, rng: random.Random) -> History:
    """The second member of the group begins after what the first one had not got to."""
    at = rng.choice([i for i, each in enumerate(history.sessions) if each.reader == "second"])
    first, second = history.sessions[at - 1 : at + 1]
    records = history.final[second.partition][len(first.records) + 1 :]
    return replace(
        history,
        sessions=[*history.sessions[:at], replace(second, records=records), *history.sessions[at + 1 :]],
    )


def never_reach_the_end(history: History, rng: random.Random) -> History:
    session = history.sessions[0]
    return replace(history, sessions=[replace(session, records=session.records[:-1]), *history.sessions[1:]])


def leave_a_gap(history: History, rng: random.Random) -> History:
    """An offset that nobody was ever given, and that nobody was told of."""
    partition = partition_of(history, rng)
    records = tuple((offset + (offset > 2), value) for offset, value in history.final[partition])
    changed = with_final(history, partition, records)
    return replace(changed, acknowledged=[replace(each, offset=-1) for each in history.acknowledged])


def store_what_nobody_sent(history: History, rng: random.Random) -> History:
    partition = partition_of(history, rng)
    value = Value(*rng.choice([("a", history.sent["a"]), ("c", 0), ("a", -1)]))
    records = history.final[partition]
    return with_final(history, partition, (*records, (len(records), value)))


PLANTED: dict[Callable[[History, random.Random], History], Kind] = {
    lose_the_end: Kind.LOST,
    lose_unread: Kind.LOST,
    store_twice: Kind.DUPLICATE,
    swap: Kind.REORDERED,
    read_another_value: Kind.INCONSISTENT_OFFSET,
    acknowledge_another_offset: Kind.INCONSISTENT_OFFSET,
    go_back: Kind.NON_MONOTONIC,
    skip_in_the_middle: Kind.SKIPPED,
    skip_at_a_change_of_hands: Kind.SKIPPED,
    never_reach_the_end: Kind.SKIPPED,
    leave_a_gap: Kind.GAP,
    store_what_nobody_sent: Kind.INVENTED,
}


@given(st.integers(0, 1 << 32))
def test_a_correct_history_is_accepted(seed: int) -> None:
    assert find_violations(correct_history(random.Random(seed))) == []


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
@given(seed=st.integers(0, 1 << 32))
def test_a_planted_error_is_found(plant: Callable[[History, random.Random], History], seed: int) -> None:
    rng = random.Random(seed)
    history = plant(correct_history(rng), rng)
    assert PLANTED[plant] in {finding.kind for finding in find_violations(history)}


def test_every_kind_has_a_planted_error() -> None:
    assert set(PLANTED.values()) == set(Kind)


def test_what_is_acknowledged_must_be_in_its_partition() -> None:
    """Not in another one."""
    value = Value("a", 0)
    history = History({"a": 1}, [Acknowledged(1, value, -1)], [], {0: [(0, value)], 1: []})
    assert [finding.kind for finding in find_violations(history)] == [Kind.LOST]


def test_what_was_sent_and_never_acknowledged_may_be_there_or_not() -> None:
    history = History({"a": 3}, [], [], {0: [(0, Value("a", 1))]})
    assert find_violations(history) == []


def test_a_finding_says_where() -> None:
    history = History({"a": 2}, [Acknowledged(0, Value("a", 1), 4)], [], {0: [(0, Value("a", 0))]})
    assert find_violations(history)[0] == Finding(Kind.LOST, "partition 0: a-1, acknowledged at 4, is nowhere")


def test_a_log_that_lost_everything_is_told_in_few_lines() -> None:
    acknowledged = [Acknowledged(0, Value("a", number), number) for number in range(10_000)]
    assert len(find_violations(History({"a": 10_000}, acknowledged, [], {0: []}))) == FINDINGS_PER_KIND_MAX
