"""A rate of bytes that is not to be exceeded: of compaction (log.cleaner.io.max.bytes.per.second), of replication (KIP-73).

Pure: time comes in as `now_ms`.
"""

import math


class Throttle:
    """Says how long to wait after work, so that the rate holds over any longer stretch. Used by one thread.

    Time that was not used is not saved up: after a pause the rate holds at once.
    """

    def __init__(self, bytes_per_second: float = math.inf) -> None:
        self.bytes_per_second = bytes_per_second
        """Infinite: there is no limit."""
        self._free_at_ms = 0.0

    @property
    def is_limited(self) -> bool:
        return self.bytes_per_second != math.inf

    def set_rate(self, bytes_per_second: float, now_ms: float) -> None:
        """From now on; what is still to be waited for becomes shorter or longer with it."""
        owed_bytes = (self.free_at_ms(now_ms) - now_ms) * self.bytes_per_second if self.is_limited else 0.0
        self.bytes_per_second = bytes_per_second
        self._free_at_ms = now_ms + owed_bytes / bytes_per_second

    def free_at_ms(self, now_ms: float) -> float:
        """When what was spent so far is paid: now, or later."""
        return max(self._free_at_ms, now_ms)

    def spend(self, size_bytes: int, now_ms: float) -> None:
        """`size_bytes` were moved."""
        self._free_at_ms = self.free_at_ms(now_ms) + 1000 * size_bytes / self.bytes_per_second

    def delay_ms(self, size_bytes: int, now_ms: float) -> float:
        """`size_bytes` were moved; wait so long before the next ones."""
        self.spend(size_bytes, now_ms)
        return self._free_at_ms - now_ms
