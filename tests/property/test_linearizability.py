"""The checker of histories: what it must accept and what it must convict, by hand and by random histories."""

import random
from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checker.linearizability import Operation, Undecided, Violation, find_violation
from tests.checker.topics import (
    Alter,
    Create,
    Delete,
    Describe,
    Described,
    Outcome,
    TopicAnswer,
    TopicCall,
    TopicModel,
    TopicState,
)

DONE, EXISTS, MISSING = Outcome.DONE, Outcome.EXISTS, Outcome.MISSING
TopicOperation = Operation[TopicCall, TopicAnswer]
TopicViolation = Violation[TopicState, TopicCall, TopicAnswer]
MODEL = TopicModel()


def op(
    call: TopicCall, answer: TopicAnswer | None, begin: float, end: float | None = None, key: str = "t"
) -> TopicOperation:
    return Operation(key, f"client {begin}", call, answer, begin, end)


def check(*history: TopicOperation) -> TopicViolation | None:
    return find_violation(history, MODEL)


def seen(value: int) -> Described:
    return Described(value)


GOOD: dict[str, tuple[TopicOperation, ...]] = {
    "nothing": (),
    "one after the other": (
        op(Describe(), MISSING, 0, 1),
        op(Create(1), DONE, 2, 3),
        op(Create(2), EXISTS, 4, 5),
        op(Alter(3), DONE, 6, 7),
        op(Describe(), seen(3), 8, 9),
        op(Delete(), DONE, 10, 11),
        op(Delete(), MISSING, 12, 13),
        op(Alter(4), MISSING, 14, 15),
    ),
    "a read during a creation may see it or not": (
        op(Create(1), DONE, 0, 10),
        op(Describe(), MISSING, 1, 2),
        op(Describe(), seen(1), 3, 4),
    ),
    "two creations at once: either may be first": (
        op(Create(1), EXISTS, 0, 10),
        op(Create(2), DONE, 0, 10),
        op(Describe(), seen(2), 11, 12),
    ),
    "an unknown creation that took effect": (op(Create(1), None, 0), op(Describe(), seen(1), 5, 6)),
    "an unknown creation that did not": (op(Create(1), None, 0), op(Create(2), DONE, 5, 6)),
    "an unknown creation that takes effect late": (
        op(Create(1), None, 0),
        op(Describe(), MISSING, 5, 6),
        op(Describe(), seen(1), 7, 8),
    ),
    "an unknown deletion between two reads": (
        op(Create(1), DONE, 0, 1),
        op(Delete(), None, 2),
        op(Describe(), seen(1), 3, 4),
        op(Create(5), DONE, 5, 6),
    ),
    "a return at the moment of a call is concurrent": (op(Create(1), DONE, 0, 1), op(Describe(), MISSING, 1, 2)),
    "objects know nothing of each other": (
        op(Create(1), DONE, 0, 1, key="a"),
        op(Describe(), MISSING, 2, 3, key="b"),
    ),
}

BAD: dict[str, tuple[TopicOperation, ...]] = {
    "a stale read": (
        op(Create(1), DONE, 0, 1),
        op(Alter(2), DONE, 2, 3),
        op(Describe(), seen(1), 4, 5),
    ),
    "a lost creation": (op(Create(1), DONE, 0, 1), op(Describe(), MISSING, 2, 3)),
    "a lost creation, done again": (op(Create(1), DONE, 0, 1), op(Create(2), DONE, 2, 3)),
    "a topic that rises again": (
        op(Create(1), DONE, 0, 1),
        op(Delete(), DONE, 2, 3),
        op(Describe(), seen(1), 4, 5),
    ),
    "a config that nobody set": (op(Create(1), DONE, 0, 1), op(Describe(), seen(7), 2, 3)),
    "a refused alteration that shows": (
        op(Alter(2), MISSING, 0, 1),
        op(Create(1), DONE, 2, 3),
        op(Describe(), seen(2), 4, 5),
    ),
    "an unknown alteration that comes and goes": (
        op(Create(1), DONE, 0, 1),
        op(Alter(2), None, 2),
        op(Describe(), seen(2), 3, 4),
        op(Describe(), seen(1), 5, 6),
    ),
    "an effect before the call": (op(Describe(), seen(1), 0, 1), op(Create(1), None, 2)),
    "two readers that disagree about the order": (
        op(Create(1), DONE, 0, 1),
        op(Alter(2), DONE, 2, 9),
        op(Alter(3), DONE, 2, 9),
        op(Describe(), seen(2), 3, 4),
        op(Describe(), seen(3), 5, 6),
        op(Describe(), seen(2), 7, 8),
    ),
    "an operation done twice": (
        op(Create(1), DONE, 0, 1),
        op(Delete(), DONE, 2, 3),
        op(Delete(), DONE, 2, 3),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_histories_that_have_an_order(name: str) -> None:
    assert check(*GOOD[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_histories_that_have_none(name: str) -> None:
    assert check(*BAD[name]) is not None


def test_the_order_of_the_history_as_given_means_nothing() -> None:
    """Only times do: records of several clients come in any order."""
    for name, history in BAD.items():
        assert check(*reversed(history)) is not None, name
    for name, history in GOOD.items():
        assert check(*reversed(history)) is None, name


# what the clients of one object see: each operation takes effect at one moment between its call and its return


def history_of(seed: int, *, count: int, clients: int, unknown: float) -> list[TopicOperation]:
    """Random operations, decided one by one by the model; some of them lose their answer, and then perhaps their effect."""
    rng = random.Random(seed)
    state = MODEL.initial
    free_at = [0.0] * clients
    moments = []
    for value in range(count):
        client = rng.randrange(clients)
        begin = free_at[client] + rng.random()
        moment = begin + rng.random()
        end = free_at[client] = moment + rng.random()
        call = rng.choice((Create(value), Delete(), Alter(value), Describe(), Describe()))
        late = rng.choice((0, 5)) if rng.random() < unknown else 0
        moments.append((moment + late, begin, end, client, call))
    history = []
    for moment, begin, end, client, call in sorted(moments, key=lambda each: each[0]):
        is_unknown = moment > end or rng.random() < unknown
        if is_unknown and rng.random() < 0.5:
            history.append(Operation("t", f"{client}", call, None, begin, None))
            continue
        state, answer = MODEL.apply(state, call)
        history.append(
            Operation("t", f"{client}", call, None if is_unknown else answer, begin, None if is_unknown else end)
        )
    return history


seeds = st.integers(0, 1 << 32)


@given(seeds, st.integers(1, 60), st.integers(1, 8), st.sampled_from([0.0, 0.05, 0.2]))
def test_what_one_object_answered_is_accepted(seed: int, count: int, clients: int, unknown: float) -> None:
    assert check(*history_of(seed, count=count, clients=clients, unknown=unknown)) is None


def explained_by_force(history: Iterable[TopicOperation]) -> bool:
    """The definition itself: some order of all that is known and some of what is not, that keeps to the times."""
    operations = list(history)
    unknown = [each for each in operations if not each.is_known]
    known = [each for each in operations if each.is_known]
    for chosen in range(1 << len(unknown)):
        some = known + [each for index, each in enumerate(unknown) if chosen >> index & 1]
        if any(_is_order(order) for order in permutations(some)):
            return True
    return False


def _is_order(order: tuple[TopicOperation, ...]) -> bool:
    state = MODEL.initial
    for index, operation in enumerate(order):
        if any(later.returned_at is not None and later.returned_at < operation.called_at for later in order[index:]):
            return False
        state, answer = MODEL.apply(state, operation.call)
        if operation.is_known and answer != operation.answer:
            return False
    return True


@given(seeds, st.integers(1, 6))
def test_the_verdict_is_that_of_the_definition(seed: int, count: int) -> None:
    """Random answers, right and wrong ones, on so few operations that every order can be tried."""
    rng = random.Random(seed)
    history = []
    for value in range(count):
        begin = rng.randrange(10)
        call = rng.choice((Create(value), Delete(), Alter(value), Describe()))
        answers: dict[type[TopicCall], list[TopicAnswer]] = {
            Create: [DONE, EXISTS],
            Delete: [DONE, MISSING],
            Alter: [DONE, MISSING],
            Describe: [MISSING, *map(Described, range(count))],
        }
        answer = None if rng.random() < 0.2 else rng.choice(answers[type(call)])
        end = None if answer is None else begin + rng.randrange(6)
        history.append(Operation("t", f"{value}", call, answer, begin, end))
    assert (check(*history) is None) == explained_by_force(history)


# planted violations


def _busy_history(seed: int) -> tuple[list[TopicOperation], float]:
    """A good history that ends in a topic with the value 1001, and a moment after it. All is known: an effect that comes
    late would explain some of what is planted."""
    history = history_of(seed, count=40, clients=4, unknown=0)
    end = max(operation.returned_at or 0 for operation in history) + 1
    state = MODEL.initial
    for operation in history:
        state, _ = MODEL.apply(state, operation.call)
    for step, call in enumerate((Delete(), Create(1_000), Alter(1_001), Describe())):
        state, answer = MODEL.apply(state, call)
        history.append(op(call, answer, end + step, end + step + 0.5))
    return history, end + 10


PLANTED: dict[str, tuple[tuple[TopicCall, TopicAnswer], ...]] = {
    "stale read": ((Alter(2_000), DONE), (Describe(), seen(1_001))),
    "lost creation": ((Delete(), DONE), (Create(2_000), DONE), (Describe(), MISSING)),
    "creation that was not there": ((Delete(), DONE), (Create(2_000), DONE), (Create(2_001), DONE)),
    "topic that rose again": ((Delete(), DONE), (Describe(), seen(1_001))),
    "wrong config": ((Alter(2_000), DONE), (Describe(), seen(2_001))),
    "alteration that was lost": ((Alter(2_000), DONE), (Alter(2_001), DONE), (Describe(), seen(2_000))),
}


@pytest.mark.parametrize("name", PLANTED)
@given(seed=seeds)
def test_a_planted_violation_is_convicted_and_shown(name: str, seed: int) -> None:
    """What is shown is a proof by itself, and has little that does not belong to it."""
    history, now = _busy_history(seed)
    for step, (call, answer) in enumerate(PLANTED[name]):
        history.append(op(call, answer, now + step, now + step + 0.5))
    violation = check(*history)
    assert violation is not None
    assert len(violation.operations) <= 10
    assert f"{PLANTED[name][-1][0]!r} -> {PLANTED[name][-1][1]!r}" in str(violation)
    if violation.is_from_start:
        assert check(*violation.operations) is not None


def test_a_violation_is_shown_without_what_came_long_before() -> None:
    """Two hundred operations, and two reads after another that nothing comes between."""
    history = [op(Create(0), DONE, 0, 1)]
    for step in range(1, 100):
        history.append(op(Alter(step), DONE, 10 * step, 10 * step + 5))
        history.append(op(Describe(), seen(step), 10 * step + 6, 10 * step + 8))
    history.append(op(Describe(), seen(98), 1_000, 1_001))
    history.append(op(Delete(), DONE, 1_002, 1_003))
    violation = check(*history)
    assert violation is not None
    assert not violation.is_from_start
    assert [each.answer for each in violation.operations] == [seen(99), seen(98)]
    assert "Describe() -> Described(value=98)" in str(violation)


def test_the_search_is_bounded() -> None:
    """Many operations of unknown outcome on one key are too many to try."""
    history = [op(Alter(value), None, 0) for value in range(30)]
    history += [op(Create(100), DONE, 0, 1), op(Describe(), seen(200), 2, 3)]
    with pytest.raises(Undecided, match="32 operations on one key: no verdict after 10000 steps"):
        find_violation(history, MODEL, max_steps=10_000)
