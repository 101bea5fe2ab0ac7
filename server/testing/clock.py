"""The clock of a simulated host: monotonic time is the loop's or runs at a rate of its own, the wall clock can be set and
jumps."""

import asyncio

from kraftlog.testing.loop import Timeline, VirtualLoop

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: a date that reads well in a trace


class SimClock:
    """`kraftlog.proto.seams.Clock` over a virtual loop. One for each simulated host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, wall_ms: int = EPOCH_MS) -> None:
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        self.timeline: Timeline | None = None
        """The host's, if its clock has ever run slow or fast; its processes have the same one."""
        self._furthest_off_ms = [0.0, 0.0]  # behind and ahead of the true time
        self._offset_ms = self._true_offset_ms = wall_ms - loop.now * 1000

    def wall_ms(self) -> int:
        return int(self.monotonic_ms() + self._offset_ms)

    def monotonic_ms(self) -> float:
        timeline = self.timeline
        return 1000 * (self._loop.now if timeline is None else timeline.now)

    def be_off_by(self, milliseconds: float) -> None:
        """Move the wall clock to differ by so much from one that was never moved; monotonic time is not touched."""
        self.wall_bounds_ms()
        self._offset_ms = self._true_offset_ms + milliseconds

    def run_at(self, rate: float) -> None:
        """From here on both clocks run at that rate, and all timers of processes with this clock's `timeline`."""
        self.wall_bounds_ms()
        if self.timeline is None:
            self.timeline = Timeline(self._loop)
        self.timeline.run_at(rate)

    def wall_bounds_ms(self) -> tuple[float, float]:
        """How far the wall clock has ever been behind and ahead of the true time: at most 0, at least 0. Of hosts whose wall
        clock is only moved by the methods above."""
        true_ms = self._true_offset_ms + 1000 * self._loop.now
        off_ms = self.monotonic_ms() + self._offset_ms - true_ms
        behind_ms, ahead_ms = self._furthest_off_ms
        self._furthest_off_ms = [min(behind_ms, off_ms), max(ahead_ms, off_ms)]
        return self._furthest_off_ms[0], self._furthest_off_ms[1]

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set the wall clock."""
        self._offset_ms = wall_ms - self.monotonic_ms()
