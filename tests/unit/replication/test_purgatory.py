"""Delayed operations complete exactly once, by event or by time, and leave nothing behind."""

import random

import pytest

from kraftlog.proto.errors import ThrottlingQuotaExceededError
from kraftlog.replication.purgatory import DelayedOperation, Purgatory
from kraftlog.replication.timer import TimerQueue


class Wait(DelayedOperation):
    """Waits until `ready`; counts what happens to it."""

    def __init__(self, deadline_ms: float) -> None:
        super().__init__(deadline_ms)
        self.ready = False
        self.completions = 0
        self.expirations = 0
        self.failures: list[Exception] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_failure(self, error: Exception) -> None:
        self.failures.append(error)

    def on_expiration(self) -> None:
        self.expirations += 1


class Broken(Wait):
    """Raises when it is looked at, after it was parked."""

    is_parked = False

    def try_complete(self) -> bool:
        if self.is_parked:
            raise ZeroDivisionError
        self.is_parked = True
        return False

    def on_expiration(self) -> None:
        raise ZeroDivisionError


def test_one_that_fails_does_not_keep_the_others_from_completing(
    timers: TimerQueue, purgatory: Purgatory[str], caplog: pytest.LogCaptureFixture
) -> None:
    """F03 of the fault list (KAFKA-17240): neither by an event nor by time."""
    by_event, by_time, wait, late = Broken(100), Broken(100), Wait(200), Wait(100)
    for operation, key in ((by_event, "a"), (by_time, "b"), (wait, "a"), (late, "b")):
        assert not purgatory.try_complete_else_watch(operation, [key])
    wait.ready = True
    assert purgatory.check_and_complete("a") == 2
    assert [type(error) for error in by_event.failures] == [ZeroDivisionError]
    assert timers.advance(150) == 2
    assert [type(error) for error in by_time.failures] == [ZeroDivisionError]
    assert (wait.completions, late.completions, late.expirations) == (1, 1, 1)
    assert (by_event.completions, by_time.completions, purgatory.waiting, len(timers)) == (0, 0, 0, 0)
    assert caplog.text.count("a waiting request failed") == 2


@pytest.fixture
def timers() -> TimerQueue:
    return TimerQueue()


@pytest.fixture
def purgatory(timers: TimerQueue) -> Purgatory[str]:
    return Purgatory(timers, max_operations=10)


def test_an_operation_that_is_ready_is_never_parked(timers: TimerQueue, purgatory: Purgatory[str]) -> None:
    """Adding tries first, so a condition that holds already costs no timer."""
    wait = Wait(100)
    wait.ready = True
    assert purgatory.try_complete_else_watch(wait, ["a"])
    assert (wait.completions, wait.expirations, purgatory.waiting, len(timers)) == (1, 0, 0, 0)


def test_an_event_completes_and_the_deadline_then_does_nothing(timers: TimerQueue, purgatory: Purgatory[str]) -> None:
    """Exactly once: the event came first, so the timer must not answer again."""
    wait = Wait(100)
    assert not purgatory.try_complete_else_watch(wait, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    wait.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    timers.advance(1000)
    assert (wait.completions, wait.expirations, purgatory.waiting, len(timers)) == (1, 0, 0, 0)


def test_a_deadline_expires_and_events_then_do_nothing(timers: TimerQueue, purgatory: Purgatory[str]) -> None:
    """Exactly once: time came first, so a late event must not answer again."""
    wait = Wait(100)
    purgatory.try_complete_else_watch(wait, ["a"])
    assert timers.advance(99) == 0
    assert timers.advance(100) == 1
    wait.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert not wait.force_complete()
    assert (wait.completions, wait.expirations, purgatory.waiting) == (1, 1, 0)


def test_complete_all_answers_every_operation_of_a_key(purgatory: Purgatory[str]) -> None:
    """A partition that goes away answers whoever waits for it, ready or not."""
    waits = [Wait(100) for _ in range(3)]
    for wait in waits:
        purgatory.try_complete_else_watch(wait, ["a", "b"])
    assert purgatory.complete_all("a") == 3
    assert [wait.completions for wait in waits] == [1, 1, 1]
    assert purgatory.waiting == 0


def test_the_bound_refuses_and_room_comes_back(timers: TimerQueue, purgatory: Purgatory[str]) -> None:
    """max_operations is reached: the next request is refused with a retriable error, until one completes."""
    for _ in range(10):
        purgatory.try_complete_else_watch(Wait(100), ["a"])
    with pytest.raises(ThrottlingQuotaExceededError):
        purgatory.try_complete_else_watch(Wait(100), ["a"])
    timers.advance(100)
    assert not purgatory.try_complete_else_watch(Wait(200), ["a"])


def test_an_operation_may_complete_another_while_it_completes(purgatory: Purgatory[str]) -> None:
    """Completing runs foreign code, which may look at the same key again."""

    class Chain(Wait):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check_and_complete("a")

    waits = [Chain(100) for _ in range(4)]
    for wait in waits:
        purgatory.try_complete_else_watch(wait, ["a"])
    for wait in waits:
        wait.ready = True
    purgatory.check_and_complete("a")
    assert [wait.completions for wait in waits] == [1, 1, 1, 1]


def test_cancelled_timers_do_not_pile_up() -> None:
    """The heap is rebuilt when more than half of it is cancelled: at most twice the live entries plus a constant."""
    timers = TimerQueue()
    kept = [timers.add(1e9 + number, lambda _now: None) for number in range(100)]
    for number in range(20_000):
        timers.cancel(timers.add(1e6 + number, lambda _now: None))
        assert timers.allocated <= 2 * len(timers) + 65
    assert len(timers) == len(kept)


def test_random_schedules_complete_each_operation_exactly_once() -> None:
    """Whatever the order of events and time: one completion each, expired only at or after the deadline."""
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    chooser = random.Random(seed)
    timers = TimerQueue()
    purgatory: Purgatory[int] = Purgatory(timers, max_operations=10_000)
    now = 0.0
    waits: list[Wait] = []
    for _ in range(3000):
        match chooser.randrange(4):
            case 0 | 1:
                wait = Wait(now + chooser.randrange(1, 50))
                waits.append(wait)
                purgatory.try_complete_else_watch(wait, chooser.sample(range(8), chooser.randrange(1, 4)))
            case 2:
                if waits:
                    chooser.choice(waits[-50:]).ready = True
                purgatory.check_and_complete(chooser.randrange(8))
            case _:
                now += chooser.randrange(5)
                timers.advance(now)
        assert purgatory.waiting == sum(1 for wait in waits if not wait.is_completed) == len(timers)
    timers.advance(now + 1000)
    assert all(wait.completions == 1 for wait in waits)
    assert all(wait.deadline_ms <= now + 1000 for wait in waits if wait.expirations)
    assert timers.next_deadline_ms is None
