"""The clock of a simulated host: monotonic time is the loop's or runs at a rate of its own, the wall clock can be set and
jumps."""

import asyncio

from kraftlog.testing.loop import Timeline

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z: a date that reads well in a trace


class SimClock:
    """`kraftlog.proto.seams.Clock` over a virtual loop. One for each simulated host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, wall_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self.timeline: Timeline | None = None
        """The host's, if its clock has ever run slow or fast; its processes have the same one."""
        self._offset_ms = self._true_offset_ms = wall_ms - loop.time() * 1000

    def wall_ms(self) -> int:
        return int(self.monotonic_ms() + self._offset_ms)

    def monotonic_ms(self) -> float:
        return 1000 * (self._loop.time() if self.timeline is None else self.timeline.now)

    def be_off_by(self, milliseconds: float) -> None:
        """Move the wall clock to differ by so much from one that was never moved; monotonic time is not touched."""
        self._offset_ms = self._true_offset_ms + milliseconds

    def set_wall_ms(self, wall_ms: int) -> None:
        """Set the wall clock."""
        self._offset_ms = wall_ms - self.monotonic_ms()
