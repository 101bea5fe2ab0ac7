"""The real clocks of clients that were not given others."""

import asyncio
import time


class SystemClock:
    """The machine's clocks. Safe from any thread."""

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000


class LoopClock:
    """Monotonic time as the running event loop sees it, so that deadlines agree with its timers.

    Used only from a coroutine or callback of a loop.
    """

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def monotonic_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
