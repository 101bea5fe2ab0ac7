"""Small asyncio tools that work on virtual time and leave nothing behind when a wait ends early."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from kraftlog.proto.seams import Random

CANCEL_ATTEMPTS = 3
CANCEL_WAIT_S = 1.0


class Wakeup:
    """A flag that one task waits for, with a time-out. Used only on one event loop.

    `set` before `wait` is not lost: the next `wait` returns at once. A wait leaves no timer and no waiter behind.
    """

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Wait for `set` and clear it; False if `timeout_ms` passed first (None: no limit)."""
        if not self._is_set and (timeout_ms is None or timeout_ms > 0):
            assert self._waiter is None, "one task waits at a time"
            loop = asyncio.get_running_loop()
            waiter = self._waiter = loop.create_future()
            timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _release, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        was_set, self._is_set = self._is_set, False
        return was_set


class Event:
    """Something that happens many times, with any number of waiters. Used only on one event loop."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            _release(waiter)

    async def wait(self, timeout_ms: float | None = None) -> None:
        """Wait for the next `notify` or until `timeout_ms` has passed (None or infinite: no limit)."""
        if timeout_ms is not None and timeout_ms <= 0:
            return
        if timeout_ms == float("inf"):
            timeout_ms = None
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.add(waiter)
        timer = None if timeout_ms is None else loop.call_later(timeout_ms / 1000, _release, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()


class Tasks:
    """Background tasks of one client: kept alive, reported if they die, ended together. Used only on one loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel(self) -> None:
        """Cancel what runs and wait until it has ended; a task that swallows its cancellation is asked again."""
        current = asyncio.current_task()
        for _ in range(CANCEL_ATTEMPTS):
            tasks = [task for task in self._tasks if task is not current]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CANCEL_WAIT_S)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            context = {"message": f"kraftlog: {task.get_name()} died", "exception": error, "task": task}
            task.get_loop().call_exception_handler(context)


class Backoff:
    """Pauses between retries: doubling from the first to the last, each shortened by up to a fifth at random."""

    __slots__ = ("_failures", "_first_ms", "_last_ms", "_random")

    def __init__(self, first_ms: float, last_ms: float, random: Random) -> None:
        self._first_ms = first_ms
        self._last_ms = last_ms
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next_ms(self) -> float:
        """The pause after one more failure."""
        pause = backoff_ms(self._failures, self._first_ms, self._last_ms, self._random)
        self._failures += 1
        return pause


def backoff_ms(failures: int, first_ms: float, last_ms: float, random: Random) -> float:
    """That of a `Backoff` after so many failures before the last one."""
    return min(last_ms, first_ms * 2.0 ** min(failures, 30)) * (1 - 0.2 * random.random())


async def sleep_ms(pause_ms: float) -> None:
    await asyncio.sleep(max(0.0, pause_ms) / 1000)


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
