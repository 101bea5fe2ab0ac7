"""The real seams: clocks, the thread pool."""

import asyncio
import threading

import pytest

from kraftlog.proto.errors import IllegalStateError
from kraftlog.server.seams import SystemClock, ThreadExecutor


async def test_the_monotonic_clock_is_the_loops() -> None:
    """Deadlines are given to the loop: both clocks must be the same."""
    clock = SystemClock()
    before = clock.monotonic_ms()
    now = asyncio.get_running_loop().time() * 1000
    assert before <= now <= clock.monotonic_ms()
    assert clock.wall_ms() > 1_700_000_000_000


async def test_work_runs_off_the_loop_and_its_error_comes_back() -> None:
    """The executor returns what the work returned or raised."""
    executor = ThreadExecutor(2)
    assert await executor.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await executor.run(lambda: 1 // 0)
    executor.close()


async def test_a_cancelled_caller_does_not_cancel_the_work() -> None:
    """An fsync that began must end, whoever still waits; close waits for it and refuses more."""
    executor = ThreadExecutor(1)
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        assert release.wait(10)
        ended.set()

    first = asyncio.create_task(executor.run(work))
    second = asyncio.create_task(executor.run(work))
    assert await asyncio.to_thread(started.wait, 10)
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert not ended.is_set()
    release.set()
    await asyncio.to_thread(executor.close)
    assert ended.is_set()
    with pytest.raises(IllegalStateError):
        await executor.run(work)
