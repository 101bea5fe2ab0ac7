"""What the node's log says while a log directory is loaded: how far, how fast, how long still.

One line a second, and one at the end; the node's log goes to standard error, so a node in the foreground shows them on
its terminal.
"""

import logging

from kraftlog.proto.seams import Clock

logger = logging.getLogger("kraftlog.server")

INTERVAL_MS = 1_000


class LoadingProgress:
    """To be called with (logs loaded so far, all), first with 0. Used by one thread."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._began_ms = self._said_ms = clock.monotonic_ms()

    def __call__(self, loaded: int, total: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if loaded == 0:
            self._began_ms = self._said_ms = now_ms
        seconds = (now_ms - self._began_ms) / 1000
        if loaded == total:
            logger.info("%s: %d logs loaded in %.1f s", self._directory, total, seconds)
        elif now_ms - self._said_ms >= INTERVAL_MS:
            self._said_ms = now_ms
            rate = loaded / seconds
            left = f"about {(total - loaded) / rate:.0f} s left" if loaded else "none done yet"
            logger.info("%s: %d of %d logs loaded, %.0f logs/s, %s", self._directory, loaded, total, rate, left)
