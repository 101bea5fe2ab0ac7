"""Delayed operations: requests that wait for an event on some key (a partition) or for their deadline.

Each operation is completed exactly once, by event or by time. Kafka's `DelayedOperationPurgatory` on one event loop:
without locks, an operation that is checked while it is added cannot miss an event, and a completed one leaves all its
watch lists at once, so there is nothing to sweep. One that raises is failed alone: the others, and the event itself, go on
(KAFKA-17240).

Pure: time comes in as `now_ms`, the next deadline goes out.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from kraftlog.proto.errors import ThrottlingQuotaExceededError
from kraftlog.replication.timer import TimerQueue

logger = logging.getLogger("kraftlog.replication")

K = TypeVar("K", bound=Hashable)

DEFAULT_MAX_OPERATIONS = 100_000  # about 1 kB each; far above what one node's clients keep parked


class DelayedOperation(ABC):
    """One waiting request. States: waiting -> completed; there is no way back."""

    def __init__(self, deadline_ms: float) -> None:
        self.deadline_ms = deadline_ms
        self.is_completed = False
        self._release: Callable[[], None] | None = None

    @abstractmethod
    def try_complete(self) -> bool:
        """Look whether the wait is over; if so call `force_complete` and return its result."""

    @abstractmethod
    def on_complete(self) -> None:
        """Answer the request. Called exactly once."""

    @abstractmethod
    def on_failure(self, error: Exception) -> None:
        """Answer the request with what nobody foresaw. Called at most once, in the place of `on_complete` or after it has
        raised this. Must not raise."""

    def on_expiration(self) -> None:  # noqa: B027 (most operations need no more than on_complete)
        """Called just before `on_complete` when the deadline passed first."""

    def force_complete(self) -> bool:
        """Complete at once; returns False if that has happened already."""
        if self.is_completed:
            return False
        self._leave()
        self.on_complete()
        return True

    def check(self) -> bool:
        """`try_complete`, of which a failure is a completion, too."""
        return self._guarded(self.try_complete)

    def give_up(self) -> bool:
        """`force_complete`, likewise."""
        return self._guarded(self.force_complete)

    def _leave(self) -> None:
        self.is_completed = True
        if self._release is not None:
            self._release()
            self._release = None

    def _guarded(self, work: Callable[[], bool]) -> bool:
        try:
            return work()
        except Exception as error:
            logger.exception("a waiting request failed")
            self._leave()
            self.on_failure(error)
            return True

    def _expire(self) -> bool:
        self.on_expiration()
        return self.force_complete()

    def park(self, release: Callable[[], None]) -> None:
        """Called by the purgatory: `release` takes the operation out of it on completion."""
        self._release = release

    def expire(self, _now_ms: float) -> None:
        """The deadline has passed. Called by the timer."""
        if not self.is_completed:
            self._guarded(self._expire)


class Purgatory(Generic[K]):
    """Watches operations under keys. Used from one event loop."""

    def __init__(self, timers: TimerQueue, *, max_operations: int = DEFAULT_MAX_OPERATIONS) -> None:
        self._timers = timers
        self._max_operations = max_operations
        self._watchers: dict[K, dict[DelayedOperation, None]] = {}
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Operations that were added and are not completed."""
        return self._waiting

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[K]) -> bool:
        """Complete `operation` now if possible, else park it under `keys` until its deadline.

        Returns whether it is completed. Raises `ThrottlingQuotaExceededError` if the purgatory is full.
        """
        if operation.try_complete():
            return True
        if self._waiting >= self._max_operations:
            raise ThrottlingQuotaExceededError(
                f"{self._waiting} requests wait already, the most that this broker parks: send fewer at a time"
            )
        watched = tuple(dict.fromkeys(keys))
        entry = self._timers.add(operation.deadline_ms, operation.expire)

        def release() -> None:
            self._timers.cancel(entry)
            self._forget(operation, watched)

        operation.park(release)
        self._waiting += 1
        for key in watched:
            self._watchers.setdefault(key, {})[operation] = None
        return False

    def check_and_complete(self, key: K) -> int:
        """An event happened on `key`: try its operations in the order of their arrival; returns how many completed."""
        watched = self._watchers.get(key)
        if not watched:
            return 0
        return sum(1 for operation in tuple(watched) if not operation.is_completed and operation.check())

    def complete_all(self, key: K) -> int:
        """Complete every operation under `key`, for a partition that goes away; returns how many."""
        return sum(1 for operation in tuple(self._watchers.get(key, ())) if operation.give_up())

    def _forget(self, operation: DelayedOperation, keys: tuple[K, ...]) -> None:
        self._waiting -= 1
        for key in keys:
            watched = self._watchers[key]
            del watched[operation]
            if not watched:
                del self._watchers[key]
