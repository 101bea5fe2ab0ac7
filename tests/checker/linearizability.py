"""Is a history of concurrent operations one that a single object, asked one by one, could have given?

The search of Wing and Gong ("Testing and verifying concurrent objects", 1993): take operations that may be first, one
after the other, and go back where the object would have answered otherwise; with Lowe's cache ("Testing for
linearizability", 2017): a set of operations that led to a state is tried once. A history is split by key first, for
objects of different keys know nothing of each other (Herlihy and Wing, locality).

An operation whose outcome nobody knows (a time-out, a lost connection) has no return: it may have taken effect at any
time after its call, also after everything else, or never.

What the search may cost is bounded in steps, not in seconds, so that one history has one verdict on every machine. Used
from one thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

State = TypeVar("State")
Call = TypeVar("Call")
CallIn = TypeVar("CallIn", contravariant=True)
Answer = TypeVar("Answer")

MAX_STEPS = 2_000_000  # 5 s or so; 2,000 operations on some tens of keys need a hundredth of it
MAX_CACHE_ENTRIES = 1_000_000  # some hundred bytes each
MAX_STATES = 1_000  # tried as beginnings of a proof; it is a larger one without


class Undecided(RuntimeError):
    """The search has reached its bound: too many operations at once, or of unknown outcome, on one key."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[Call, Answer]):
    """One call of one client, as seen by it."""

    key: str
    client: str
    call: Call
    answer: Answer | None
    """None: nobody knows whether it took effect."""
    called_at: float
    returned_at: float | None
    """By the clock that `called_at` was read from, the same for all clients. None exactly if `answer` is."""

    def __post_init__(self) -> None:
        assert (self.answer is None) == (self.returned_at is None)
        assert self.returned_at is None or self.called_at <= self.returned_at

    @property
    def is_known(self) -> bool:
        return self.answer is not None

    def forgotten(self) -> "Operation[Call, Answer]":
        """The same with an unknown outcome: it explains whatever it explained before, and asks for less."""
        return replace(self, answer=None, returned_at=None)


class Model(Protocol[State, CallIn, Answer]):
    """The object, asked one by one. States are hashable."""

    @property
    def initial(self) -> State: ...

    def apply(self, state: State, call: CallIn) -> tuple[State, Answer]:
        """The state after the call, and what it is answered."""
        ...

    def changes_nothing(self, call: CallIn, answer: Answer) -> bool:
        """Whether a call with this answer leaves every state as it is: a read, or a refusal."""
        ...


@dataclass(frozen=True, slots=True)
class Violation(Generic[State, Call, Answer]):
    """A history of one key that no order explains."""

    key: str
    operations: tuple[Operation[Call, Answer], ...]
    """The smallest part found that proves it: by the time of the call."""
    explained: tuple[Operation[Call, Answer], ...]
    """The longest order that the search found, from the start."""
    state: State
    """The object after that."""
    is_from_start: bool
    """Whether the part begins in the initial state; else no state whatsoever to begin with explains it."""

    def __str__(self) -> str:
        start = min(operation.called_at for operation in self.operations)
        lines = [
            f"no order explains what clients of {self.key!r} saw, "
            + ("from the start on:" if self.is_from_start else "whatever was there before:")
        ]
        lines += (_line(operation, start) for operation in self.operations)
        lines.append(f"the longest order that could be found ends in {self.state!r}:")
        lines += (f"  {operation.client}: {operation.call!r}" for operation in self.explained[-5:])
        placed = {id(operation) for operation in self.explained}
        lines.append("and then none of these can be next:")
        lines += (
            _line(operation, start)
            for operation in self.operations
            if operation.is_known and id(operation) not in placed
        )
        return "\n".join(lines)


def find_violation(
    history: Iterable[Operation[Call, Answer]],
    model: Model[State, Call, Answer],
    *,
    max_steps: int = MAX_STEPS,
) -> Violation[State, Call, Answer] | None:
    """The first key, in the order of names, whose operations are not linearizable, made small. None: all are.

    Raises `Undecided` if the search for one key takes more than `max_steps`.
    """
    by_key: dict[str, list[Operation[Call, Answer]]] = {}
    for operation in history:
        by_key.setdefault(operation.key, []).append(operation)
    for key in sorted(by_key):
        operations = sorted(by_key[key], key=lambda operation: operation.called_at)
        if not _search(operations, model, model.initial, max_steps).is_linearizable:
            return _smallest(key, operations, model, max_steps)
    return None


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[State]):
    is_linearizable: bool
    longest: tuple[int, ...]
    """Indexes of operations, in the longest order found."""
    state: State


class _Event:
    """A call or a return, in a list that is linked both ways, so that an operation is taken out and put back in no time."""

    __slots__ = ("index", "is_call", "next", "other", "previous")

    def __init__(self, index: int, *, is_call: bool) -> None:
        self.index = index
        self.is_call = is_call
        self.previous: _Event = self
        self.next: _Event | None = None
        self.other: _Event | None = None
        """The return of a call; None if there is none."""

    def take_out(self) -> None:
        for event in (self, self.other):
            if event is not None:
                event.previous.next = event.next
                if event.next is not None:
                    event.next.previous = event.previous

    def put_back(self) -> None:
        for event in (self.other, self):
            if event is not None:
                event.previous.next = event
                if event.next is not None:
                    event.next.previous = event


def _linked(operations: Sequence[Operation[Call, Answer]]) -> _Event:
    """The head of the list of all events by time. At one moment, calls are before returns: they are concurrent."""
    events: list[tuple[float, bool, _Event]] = []
    for index, operation in enumerate(operations):
        call = _Event(index, is_call=True)
        events.append((operation.called_at, False, call))
        if operation.returned_at is not None:
            call.other = _Event(index, is_call=False)
            events.append((operation.returned_at, True, call.other))
    head = last = _Event(-1, is_call=False)
    for _, _, event in sorted(events, key=lambda event: event[:2]):
        event.previous = last
        last.next = last = event
    return head


def _search(
    operations: Sequence[Operation[Call, Answer]], model: Model[State, Call, Answer], initial: State, max_steps: int
) -> _Outcome[State]:
    head = _linked(operations)
    to_place = sum(operation.is_known for operation in operations)
    state, placed, steps = initial, 0, 0
    path: list[tuple[_Event, State]] = []
    """What was placed, each with the state before."""
    longest: tuple[int, ...] = ()
    longest_state, fewest = initial, to_place
    tried: set[tuple[int, State]] = set()
    event = head.next
    while to_place:
        steps += 1
        if steps > max_steps or len(tried) > MAX_CACHE_ENTRIES:
            raise Undecided(f"{len(operations)} operations on one key: no verdict after {steps - 1} steps")
        if event is not None and event.is_call:
            operation = operations[event.index]
            after, answer = model.apply(state, operation.call)
            attempt = (placed | 1 << event.index, after)
            fits = answer == operation.answer if operation.is_known else after != state
            if not fits or attempt in tried:
                event = event.next
                continue
            tried.add(attempt)
            path.append((event, state))
            placed, state = attempt
            to_place -= operation.is_known
            event.take_out()
            event = head.next
            if to_place < fewest:
                longest, longest_state, fewest = tuple(step.index for step, _ in path), state, to_place
        elif path:  # at a return, or at the end: an operation was over before the next one could be placed
            event, state = path.pop()
            placed ^= 1 << event.index
            to_place += operations[event.index].is_known
            event.put_back()
            event = event.next
        else:
            return _Outcome(False, longest, longest_state)
    return _Outcome(True, tuple(step.index for step, _ in path), state)


def _smallest(
    key: str, operations: list[Operation[Call, Answer]], model: Model[State, Call, Answer], max_steps: int
) -> Violation[State, Call, Answer]:
    """Only such cuts as leave a proof: a part that cannot be explained, because then the whole cannot be."""

    def fails_from(initials: Sequence[State]) -> _Fails[Call, Answer]:
        def fails(part: Sequence[Operation[Call, Answer]]) -> bool:
            try:
                return all(not _search(part, model, state, max_steps).is_linearizable for state in initials)
            except Undecided:
                return False

        return fails

    initials = [model.initial]
    part = _first_failing_prefix(operations, model, fails_from(initials))
    states = _states(part, model)
    tail = _last_failing_tail(part, model, fails_from(states)) if states else None
    if tail is not None:
        part, initials = tail, states
    part = _without_needless(part, model, fails_from(initials))
    best = max((_search(part, model, state, max_steps) for state in initials), key=lambda outcome: len(outcome.longest))
    return Violation(
        key=key,
        operations=tuple(part),
        explained=tuple(part[index] for index in best.longest),
        state=best.state,
        is_from_start=tail is None,
    )


_Fails = Callable[[Sequence[Operation[Call, Answer]]], bool]


def _first_failing_prefix(
    operations: Sequence[Operation[Call, Answer]], model: Model[State, Call, Answer], fails: _Fails[Call, Answer]
) -> list[Operation[Call, Answer]]:
    """As if the run had ended early: what had not returned by then has no outcome. A longer history fails too."""
    ends = sorted(operation.returned_at for operation in operations if operation.returned_at is not None)

    def until(end: float) -> list[Operation[Call, Answer]]:
        begun = [operation for operation in operations if operation.called_at <= end]
        return _forget(begun, model, lambda operation: operation.returned_at is None or operation.returned_at > end)

    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(until(ends[middle])) else (middle + 1, high)
    return until(ends[low])


def _last_failing_tail(
    operations: Sequence[Operation[Call, Answer]], model: Model[State, Call, Answer], fails: _Fails[Call, Answer]
) -> list[Operation[Call, Answer]] | None:
    """As if nobody had looked before: what was running then may have taken effect before. None: it takes the whole."""
    for start in sorted((operation.called_at for operation in operations[1:]), reverse=True):
        unfinished = [each for each in operations if each.returned_at is None or each.returned_at >= start]
        tail = _forget(unfinished, model, lambda operation: operation.called_at < start)  # noqa: B023 (called at once)
        if fails(tail):
            return tail
    return None


def _forget(
    operations: Iterable[Operation[Call, Answer]],
    model: Model[State, Call, Answer],
    is_forgotten: Callable[[Operation[Call, Answer]], bool],
) -> list[Operation[Call, Answer]]:
    """Some without their outcome; without themselves, if they are known to have changed nothing."""
    return [
        operation.forgotten() if is_forgotten(operation) else operation
        for operation in operations
        if not (is_forgotten(operation) and _changes_nothing(operation, model))
    ]


def _without_needless(
    operations: Sequence[Operation[Call, Answer]], model: Model[State, Call, Answer], fails: _Fails[Call, Answer]
) -> list[Operation[Call, Answer]]:
    """Without reads and refusals that the proof does not need."""
    kept = list(operations)
    for operation in operations:
        if _changes_nothing(operation, model):
            fewer = [each for each in kept if each is not operation]
            if fails(fewer):
                kept = fewer
    return kept


def _changes_nothing(operation: Operation[Call, Answer], model: Model[State, Call, Answer]) -> bool:
    return operation.answer is not None and model.changes_nothing(operation.call, operation.answer)


def _states(operations: Iterable[Operation[Call, Answer]], model: Model[State, Call, Answer]) -> list[State]:
    """Every state that the object can be in, whatever the order of the calls; none if there are too many to try."""
    states: dict[State, None] = {model.initial: None}
    calls = [operation.call for operation in operations]
    fresh = [model.initial]
    while fresh:
        reached = {model.apply(state, call)[0]: None for state in fresh for call in calls}
        fresh = [state for state in reached if state not in states]
        states |= dict.fromkeys(fresh)
        if len(states) > MAX_STATES:
            return []
    return list(states)


def _line(operation: Operation[Call, Answer], start: float) -> str:
    end = "        ?" if operation.returned_at is None else f"{operation.returned_at - start:9.4f}"
    answer = "outcome unknown" if operation.answer is None else f"{operation.answer!r}"
    return f"  {operation.called_at - start:9.4f} .. {end}  {operation.client}: {operation.call!r} -> {answer}"
