"""The virtual loop: time, order, processes, and what it refuses."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable

import pytest

from kraftlog.testing.loop import (
    DeadlockError,
    RunawayError,
    SimProcess,
    SimulationError,
    Timeline,
    VirtualLoop,
    current_process,
    no_garbage_collection,
    run_virtual,
)


def test_sleep_moves_virtual_time_and_waits_for_nothing() -> None:
    """A day passes at once, and the loop's clock shows it."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - before

    started = time.monotonic()
    assert run_virtual(main()) == 86_400
    assert time.monotonic() - started < 5


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_set() -> None:
    """asyncio's heap leaves ties open; here they are first in, first out."""
    order: list[int] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + 1
        for number in range(50):
            loop.call_at(when, order.append, number)
        loop.call_at(when - 0.5, order.append, -1)
        await asyncio.sleep(2)

    run_virtual(main())
    assert order == [-1, *range(50)]


def test_a_timer_that_rounds_short_of_its_deadline_does_not_spin() -> None:
    """`call_later(deadline - now)` may fire a rounding error early; set again, it fires after time has moved."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        deadline_ms = loop.time() * 1000 + 100.0000000001
        wakes = 0
        while loop.time() * 1000 < deadline_ms:
            wakes += 1
            await asyncio.sleep((deadline_ms - loop.time() * 1000) / 1000)
        return wakes

    assert run_virtual(main()) <= 2


def test_a_fast_or_slow_clock_moves_the_timers_of_its_process_and_of_no_other() -> None:
    """Those that are set already, too; asyncio's sleeps and time-outs follow the process's own time."""
    loop = VirtualLoop()
    timeline, seen = Timeline(loop), list[tuple[str, float, float]]()

    async def work(name: str) -> None:
        began_s, true_s = loop.time(), loop.now
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10):
                    await asyncio.sleep(100)
            seen.append((name, loop.time() - began_s, loop.now - true_s))

    async def main() -> None:
        fast, other = SimProcess("fast"), SimProcess("other")
        fast.timeline = timeline
        tasks = [loop.spawn(process, work(process.name)) for process in (fast, other)]
        await asyncio.sleep(4)
        timeline.run_at(2)  # 6 of 10 seconds are left: 3 on a fast clock
        await asyncio.sleep(5)
        timeline.run_at(0.5)  # 6 of 10 again: 12
        await asyncio.gather(*tasks)

    run_virtual(main(), loop=loop)
    assert seen == [
        ("fast", pytest.approx(10), pytest.approx(7)),
        ("other", 10, 10),
        ("other", 20, 20),
        ("fast", pytest.approx(20), pytest.approx(21)),
    ]


@pytest.mark.parametrize("rate", [0.37, 0.9, 1.1, 1.7])
def test_a_timer_does_not_spin_on_a_clock_of_an_odd_rate(rate: float) -> None:
    """A deadline that is a rounding error away lets time move on."""
    loop = VirtualLoop(events_per_instant_max=2_000)
    process, wakes = SimProcess("odd"), 0

    async def work() -> None:
        nonlocal wakes
        for number in range(200):
            deadline_s = loop.time() + 0.1 + number / 7e6
            while loop.time() < deadline_s:
                wakes += 1
                passed = loop.create_future()
                loop.call_at(deadline_s, passed.set_result, None)
                await passed

    async def main() -> None:
        process.timeline = Timeline(loop)
        process.timeline.run_at(rate)
        await loop.spawn(process, work())

    run_virtual(main(), loop=loop, max_seconds=1_000)
    assert 200 <= wakes <= 400


def test_asyncio_timeouts_and_wait_for_work_on_virtual_time() -> None:
    """`asyncio.timeout`, `wait_for`, `wait` and events need nothing but the loop's clock."""

    async def main() -> list[str]:
        seen = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(3):
                await loop.create_future()
        except TimeoutError:
            seen.append("timeout")
        try:
            await asyncio.wait_for(asyncio.sleep(10), timeout=1)
        except TimeoutError:
            seen.append("wait_for")
        event = asyncio.Event()
        loop.call_later(5, event.set)
        await event.wait()
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(1)), asyncio.ensure_future(asyncio.sleep(2))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        seen.append(f"{len(done)} done, {len(pending)} pending at {loop.time() - 1000:g}")
        return seen

    assert run_virtual(main()) == ["timeout", "wait_for", "1 done, 1 pending at 10"]


def test_async_generators_are_closed_at_the_end() -> None:
    """An abandoned generator runs its `finally` before the loop closes, as with asyncio.run."""
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                await asyncio.sleep(1)
                yield 1
        finally:
            closed.append("yes")

    generator = numbers()

    async def main() -> int:
        async for number in generator:
            return number
        return 0

    assert run_virtual(main()) == 1
    assert closed == ["yes"]


def test_what_main_leaves_running_is_cancelled() -> None:
    """As asyncio.run: leftover tasks get a CancelledError and may clean up."""
    seen: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.sleep(10**9)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.ensure_future(forever())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main())
    assert seen == ["cancelled"]


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks() -> None:
    """With nothing ready and no timer, a real loop would wait for ever."""

    async def stuck_here() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match=r"nothing can happen any more at virtual time 1000\.0[\s\S]*stuck_here"):
        run_virtual(stuck_here())


def test_a_cancelled_timer_is_no_reason_to_go_on() -> None:
    """Time jumps only to timers that will fire."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(1_000):
            loop.call_later(100, print).cancel()
        await loop.create_future()

    with pytest.raises(DeadlockError, match=r"time 1000\.0"):
        run_virtual(main())


def test_a_spinning_program_is_an_error() -> None:
    """A task that never lets time move would hang a real node."""

    async def main() -> None:
        for _ in range(10_000):
            await asyncio.sleep(0)

    loop = VirtualLoop(events_per_instant_max=1_000)
    with pytest.raises(RunawayError, match="without progress"):
        run_virtual(main(), loop=loop)


def test_virtual_time_can_be_bounded() -> None:
    """A run that waits politely for ever ends at `max_seconds`."""

    async def main() -> None:
        for _ in range(1_000):
            await asyncio.sleep(1)

    with pytest.raises(RunawayError, match=r"not done at virtual time 1060"):
        run_virtual(main(), max_seconds=60)


def test_the_hook_runs_after_every_callback_and_may_end_the_run() -> None:
    """Invariants are checked after every event; the first broken one stops the world."""
    counter = [0]

    class BrokenInvariantError(Exception):
        pass

    def hook() -> None:
        if counter[0] > 3:
            raise BrokenInvariantError

    async def main() -> None:
        while True:
            counter[0] += 1
            await asyncio.sleep(1)

    with pytest.raises(BrokenInvariantError):
        run_virtual(main(), after_event=hook)
    assert counter[0] == 4


@pytest.mark.parametrize(
    "attempt",
    [
        lambda loop: loop.run_in_executor(None, time.time),
        lambda loop: asyncio.to_thread(time.time),
        lambda loop: asyncio.open_connection("127.0.0.1", 9),
        lambda loop: asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0),
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: loop.add_signal_handler(2, print),
    ],
)
def test_threads_sockets_and_processes_are_refused(attempt: Callable[[asyncio.AbstractEventLoop], object]) -> None:
    """What the seed does not control may not take part; the error says where to go instead."""

    async def main() -> None:
        outcome = attempt(asyncio.get_running_loop())
        assert asyncio.iscoroutine(outcome)
        await outcome

    with pytest.raises(SimulationError, match="seams"):
        run_virtual(main())


def test_nothing_of_a_killed_process_runs_again() -> None:
    """kill -9: no further step, no callback, no `finally`, until it is buried."""
    steps: list[str] = []

    async def node() -> None:
        asyncio.get_running_loop().call_later(1.5, steps.append, "callback")
        try:
            while True:
                await asyncio.sleep(1)
                process = current_process()
                steps.append(process.name if process else "?")
        finally:
            steps.append("finally")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process = SimProcess("node-1")
        loop.spawn(process, node(), name="node")
        await asyncio.sleep(1.2)
        loop.kill(process)
        await asyncio.sleep(60)
        assert steps == ["node-1"]
        process.bury()

    run_virtual(main())
    assert steps == ["node-1", "finally"]


def test_tasks_started_by_a_process_belong_to_it() -> None:
    """The process is inherited through tasks, timers and future callbacks."""
    steps: list[str] = []

    async def child() -> None:
        await asyncio.sleep(5)
        steps.append("child")

    async def parent() -> None:
        task = asyncio.ensure_future(child())
        task.add_done_callback(lambda task: steps.append("done"))
        asyncio.get_running_loop().call_later(4, lambda: asyncio.ensure_future(child()))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        process = SimProcess("node-1")
        loop.spawn(process, parent())
        await asyncio.sleep(3)
        loop.kill(process)
        await asyncio.sleep(60)
        process.bury()

    run_virtual(main())
    assert steps == []


_ORDER_OF_SETS = """
import asyncio
from kraftlog.testing.loop import run_virtual

async def main():
    junk = [object() for _ in range(hash("x") % 1000)]
    tasks = [asyncio.ensure_future(asyncio.sleep(1, result=number)) for number in range(40)]
    done, _ = await asyncio.wait(tasks)
    return [task.result() for task in done]

print(run_virtual(main()))
"""


def test_sets_of_tasks_iterate_alike_in_every_process() -> None:
    """`asyncio.wait` answers sets; their order must not depend on addresses or on PYTHONHASHSEED."""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _ORDER_OF_SETS],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(outputs) == 1
    assert sorted(eval(outputs.pop())) == list(range(40))


def test_garbage_is_not_collected_within_a_simulation() -> None:
    """A finalizer must not run at a moment that no seed controls."""
    import gc

    with no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
