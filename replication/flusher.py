"""Group commit of one log: at most one fdatasync at a time, shared by everybody who waits.

Whoever appended asks for a flush; a flush that begins after the append covers it, so all that arrive while one runs
share the next. After a failed sync there is never another: the kernel may have dropped the pages that failed, and the
next fdatasync would succeed without them. A full disk is no failure: nothing was synced, and the same call may succeed
when there is space again.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from kraftlog.logstore import DiskFullError
from kraftlog.proto.seams import BlockingExecutor


class Flushable(Protocol):
    """The part of a log that is needed here. `flush` runs in another thread while the log is appended to."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...

    def flush(self) -> int: ...


class Flusher:
    """Drives the flushes of one log. Used from one event loop."""

    def __init__(
        self,
        log: Flushable,
        executor: BlockingExecutor,
        *,
        on_flushed: Callable[[], None],
        on_failed: Callable[[Exception], None],
        on_full: Callable[[DiskFullError], None],
    ) -> None:
        """`on_full` should call `request` again later."""
        self._log = log
        self._executor = executor
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_full = on_full
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def request(self) -> None:
        """Flush up to the present log end, now or right after the flush that runs."""
        if self._task is None and not self._is_closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Begin no more flushes and wait for the one that runs. May be repeated."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            while not self._is_closed and self._log.flushed_end_offset < self._log.log_end_offset:
                await self._executor.run(self._log.flush)
                self._on_flushed()
        except DiskFullError as error:
            self._on_full(error)
        except Exception as error:  # whatever it was, nothing may be acknowledged any more
            self._is_closed = True
            self._on_failed(error)
        finally:
            self._task = None
