"""The cleaner's share of the disk (log.cleaner.io.max.bytes.per.second)."""


class Throttle:
    """Says how long to wait after work, so that the rate holds over any longer stretch. Used by one thread.

    Time that was not used is not saved up: after a pause the rate holds at once.
    """

    def __init__(self, bytes_per_second: float) -> None:
        self._bytes_per_ms = bytes_per_second / 1000
        self._free_at_ms = 0.0

    def delay_ms(self, size_bytes: int, now_ms: float) -> float:
        """`size_bytes` were read and written; wait so long before the next ones. `now_ms` never goes back."""
        self._free_at_ms = max(self._free_at_ms, now_ms) + size_bytes / self._bytes_per_ms
        return self._free_at_ms - now_ms
