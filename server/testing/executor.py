"""Blocking work on virtual time: it takes effect at a later moment and is reported at a still later one.

    run() ──── wait ────► work runs ──── report ────► run() returns

A crash of the process falls before the effect, or between the effect and its report, as with a thread that is in
`fdatasync` when the power goes. What was submitted by a process dies with it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from kraftlog.testing.loop import SimulationError, VirtualLoop

T = TypeVar("T")

EFFECT_MS = (0.05, 6.0)  # an fdatasync of a small write: 0.05 ms on a fast disk, 5 ms measured under other load
REPORT_MS = (0.01, 0.5)  # a thread's result on its way back to the loop


class SimExecutor:
    """`kraftlog.proto.seams.BlockingExecutor` over a virtual loop. One for each life of a simulated process."""

    def __init__(
        self,
        loop: VirtualLoop,
        randomness: random.Random,
        *,
        effect_ms: tuple[float, float] = EFFECT_MS,
        report_ms: tuple[float, float] = REPORT_MS,
        slowness: float = 1.0,
    ) -> None:
        self._loop = loop
        self._random = randomness
        self.slowness = slowness
        """All work takes so many times as long; for a disk that is slow for a while."""
        self._effect_ms = effect_ms
        self._report_ms = report_ms
        self._waiting: dict[asyncio.TimerHandle, Callable[[], None]] = {}
        self._is_closed = False

    async def run(self, work: Callable[[], T]) -> T:
        if self._is_closed:
            raise SimulationError("the executor is closed")
        future: asyncio.Future[T] = self._loop.create_future()

        def take_effect() -> None:
            del self._waiting[timer]
            try:
                result = work()
            except Exception as error:
                self._loop.call_later(self._delay(self._report_ms), _fail, future, error)
            else:
                self._loop.call_later(self._delay(self._report_ms), _succeed, future, result)

        timer = self._loop.call_later(self._delay(self._effect_ms) * self.slowness, take_effect)
        self._waiting[timer] = take_effect
        return await future

    def close(self) -> None:
        self._is_closed = True
        for timer, take_effect in list(self._waiting.items()):
            timer.cancel()
            take_effect()

    def _delay(self, bounds_ms: tuple[float, float]) -> float:
        return self._random.uniform(*bounds_ms) / 1000


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
