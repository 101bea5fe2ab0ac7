"""The real seams of a node: system clocks and a small thread pool."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from kraftlog.proto.errors import IllegalStateError

T = TypeVar("T")

DEFAULT_THREADS = 4  # fsync and validation release the GIL; more threads than this only queue on two cores


class SystemClock:
    """The machine's clocks. Safe from any thread."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0


class ThreadExecutor:
    """`BlockingExecutor` on threads. `run` is used from one event loop; work runs in any of the threads."""

    def __init__(self, threads: int = DEFAULT_THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="kraftlog-blocking")
        self._closed = False

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` once in a thread. A cancelled caller stops waiting, the work goes on to its end."""
        if self._closed:
            raise IllegalStateError("the executor is closed")
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, work))

    def close(self) -> None:
        """Wait for running work and refuse more. May be repeated."""
        self._closed = True
        self._pool.shutdown(wait=True)
