"""The simulated executor, clock and random streams."""

import asyncio
import functools
import random

import pytest

from kraftlog.testing.clock import EPOCH_MS, SimClock
from kraftlog.testing.executor import SimExecutor
from kraftlog.testing.loop import SimProcess, SimulationError, Timeline, VirtualLoop, run_virtual
from kraftlog.testing.randomness import SeedSource


def test_work_takes_effect_later_and_is_reported_later_still() -> None:
    """The result comes back, exceptions propagate, virtual time passes."""
    loop = VirtualLoop()

    async def main() -> None:
        executor = SimExecutor(loop, random.Random(1), effect_ms=(10, 10), report_ms=(5, 5))
        started = loop.time()
        effects: list[float] = []
        await executor.run(lambda: effects.append(loop.time() - started))
        assert effects == [pytest.approx(0.010)]
        assert loop.time() - started == pytest.approx(0.015)
        with pytest.raises(OSError, match="disk"):
            await executor.run(_fail)

    run_virtual(main(), loop=loop)


def _fail() -> None:
    raise OSError("disk")


def test_a_crash_falls_before_or_after_the_effect() -> None:
    """Over the seeds, both happen: a killed process may or may not have got its fsync, and never hears of it."""
    outcomes = set()
    for seed in range(40):
        loop = VirtualLoop()
        effects: list[str] = []

        async def node(loop: VirtualLoop, effects: list[str], seed: int) -> None:
            await SimExecutor(loop, random.Random(seed)).run(lambda: effects.append("effect"))
            effects.append("reported")

        async def main(loop: VirtualLoop, effects: list[str], seed: int) -> None:
            process = SimProcess("node")
            loop.spawn(process, node(loop, effects, seed))
            await asyncio.sleep(0.003)
            loop.kill(process)
            await asyncio.sleep(1)
            process.bury()

        run_virtual(main(loop, effects, seed), loop=loop)
        outcomes.add(tuple(effects))
    assert outcomes >= {(), ("effect",)}


def test_work_goes_on_when_its_caller_is_cancelled() -> None:
    """A thread cannot be cancelled: the effect happens anyway."""
    loop = VirtualLoop()
    effects: list[str] = []

    async def main() -> None:
        executor = SimExecutor(loop, random.Random(1))
        task = asyncio.ensure_future(executor.run(lambda: effects.append("effect")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)

    run_virtual(main(), loop=loop)
    assert effects == ["effect"]


def test_closing_finishes_what_was_submitted_and_refuses_more() -> None:
    """As `ThreadPoolExecutor.shutdown(wait=True)`."""
    loop = VirtualLoop()
    effects: list[int] = []

    async def main() -> None:
        executor = SimExecutor(loop, random.Random(1))
        waiting = [asyncio.ensure_future(executor.run(functools.partial(effects.append, n))) for n in range(3)]
        await asyncio.sleep(0)
        executor.close()
        assert effects == [0, 1, 2]
        await asyncio.gather(*waiting)
        with pytest.raises(SimulationError, match="closed"):
            await executor.run(lambda: None)

    run_virtual(main(), loop=loop)


def test_the_wall_clock_jumps_and_the_monotonic_one_does_not() -> None:
    """Deadlines must not follow the wall clock."""
    loop = VirtualLoop()

    async def main() -> None:
        clock = SimClock(loop)
        assert clock.wall_ms() == EPOCH_MS
        assert clock.monotonic_ms() == loop.time() * 1000
        await asyncio.sleep(1.5)
        assert clock.wall_ms() == EPOCH_MS + 1_500
        before = clock.monotonic_ms()
        clock.be_off_by(-3_600_000)
        assert clock.wall_ms() == EPOCH_MS + 1_500 - 3_600_000
        clock.set_wall_ms(5)
        assert clock.wall_ms() == 5
        assert clock.monotonic_ms() == before

    run_virtual(main(), loop=loop)


def test_both_clocks_of_a_host_follow_its_timeline() -> None:
    """Whoever asks: the host's own processes, or others."""
    loop = VirtualLoop()

    async def main() -> None:
        clock = SimClock(loop)
        clock.timeline = Timeline(loop)
        clock.timeline.run_at(1.1)
        await asyncio.sleep(10)
        process = SimProcess("host")
        process.timeline = clock.timeline

        async def look() -> None:
            assert clock.monotonic_ms() == loop.time() * 1000

        await loop.spawn(process, look())
        assert clock.monotonic_ms() == pytest.approx(loop.time() * 1000 + 1_000)
        assert clock.wall_ms() == EPOCH_MS + 11_000

    run_virtual(main(), loop=loop)


def test_random_streams_follow_from_seed_and_name() -> None:
    """Two users of one seed do not disturb each other."""
    assert SeedSource(1).stream("disk").random() == SeedSource(1).stream("disk").random()
    assert SeedSource(1).stream("disk").random() != SeedSource(1).stream("network").random()
    assert SeedSource(1).stream("disk").random() != SeedSource(2).stream("disk").random()
