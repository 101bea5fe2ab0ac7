"""A `TimerQueue` that the event loop drives: one pending call, for the earliest deadline."""

import asyncio
import math
from collections.abc import Callable

from kraftlog.proto.seams import Clock
from kraftlog.replication.timer import TimerEntry, TimerQueue


class LoopTimers(TimerQueue):
    """Fires entries from the running event loop. Used from one event loop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = math.inf

    def add(self, deadline_ms: float, expire: Callable[[float], None]) -> TimerEntry:
        """As `TimerQueue.add`; an infinite deadline never fires."""
        entry = super().add(deadline_ms, expire)
        self._arm()
        return entry

    def close(self) -> None:
        """Fire nothing any more. May be repeated."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        deadline_ms = self.next_deadline_ms
        if deadline_ms is None or deadline_ms == math.inf:
            return
        if self._handle is not None:
            if self._armed_ms <= deadline_ms:
                return  # the earlier call arms again
            self._handle.cancel()
        self._armed_ms = deadline_ms
        self._handle = asyncio.get_running_loop().call_at(deadline_ms / 1000.0, self._fire)

    def _fire(self) -> None:
        self._handle = None
        # The loop may be early by what rounding takes: set again for the same moment, it would be so for ever.
        self.advance(max(self._clock.monotonic_ms(), self._armed_ms))
        self._arm()
