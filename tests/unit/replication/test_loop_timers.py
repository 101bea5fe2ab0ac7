"""Deadlines on an event loop: each fires, once, at the time that was asked for."""

import asyncio

from kraftlog.replication.loop_timers import LoopTimers
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import VirtualLoop, run_virtual


def test_a_deadline_between_two_ticks_of_the_clock_fires() -> None:
    """The loop is early by a rounding error then. Set again for the same moment, the timer would go on for ever."""
    fired: list[float] = []
    loop = VirtualLoop()

    async def main() -> None:
        timers = LoopTimers(SimClock(loop))
        deadline_ms = 1_000_250.000_000_5  # half a nanosecond past a tick of the virtual clock
        timers.add(deadline_ms, fired.append)
        await asyncio.sleep(0.2)
        assert fired == []
        await asyncio.sleep(0.1)
        assert fired == [deadline_ms]

    run_virtual(main(), loop=loop)
