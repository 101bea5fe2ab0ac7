"""Group commit: one sync of a log serves all who wait for it, and the logs of a directory share a few threads.

Whoever appended asks for a flush; a flush that begins after the append covers it, so all that arrive while one runs
share the next. After a failed sync there is never another: the kernel may have dropped the pages that failed, and the
next fdatasync would succeed without them. A full disk is no failure: nothing was synced, and the same call may succeed
when there is space again.

Logs that want a flush stand in one queue, first come, first served. A few lanes take shares of it and hand each as one
piece of work to the executor: many small ones would spend more time on their way to a thread than on the disk, and one
large one would let the first of its logs wait for the last. Why files are synced one by one, and not all at once with
`syncfs`: docs/adr/0004.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from kraftlog.logstore import DiskFullError
from kraftlog.proto.seams import BlockingExecutor

LANES = 3  # flushes at the same time, which the file system's journal commits together; leaves threads for other work
MAX_SHARE = 8  # logs of one piece of work; their acknowledgments wait for the last of them


class Flushable(Protocol):
    """The part of a log that is needed here. `flush` runs in another thread while the log is appended to."""

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...

    def flush(self) -> int: ...


class FlushQueue:
    """The flushes of many logs. Used from one event loop."""

    def __init__(self, executor: BlockingExecutor, *, lanes: int = LANES, max_share: int = MAX_SHARE) -> None:
        self._executor = executor
        self._max_lanes = lanes
        self._max_share = max_share
        self._waiting: deque[Flusher] = deque()
        self._lanes: set[asyncio.Task[None]] = set()

    def add(self, flusher: "Flusher") -> None:
        """Flush its log when its turn comes. It must not be in the queue already."""
        self._waiting.append(flusher)
        if len(self._lanes) < self._max_lanes:
            self._lanes.add(asyncio.get_running_loop().create_task(self._run_lane()))

    def remove(self, flusher: "Flusher") -> bool:
        """Forget it; False if its turn has come already."""
        try:
            self._waiting.remove(flusher)
        except ValueError:
            return False
        return True

    async def _run_lane(self) -> None:
        try:
            await self._flush_waiting()
        finally:  # at once, not when the loop calls back: whoever is added in between would wait for a lane that is none
            lane = asyncio.current_task()
            assert lane is not None
            self._lanes.discard(lane)

    async def _flush_waiting(self) -> None:
        while self._waiting:
            size = min(-(-len(self._waiting) // self._max_lanes), self._max_share)
            share = [self._waiting.popleft() for _ in range(size)]
            try:
                outcomes: Sequence[Exception | None] = await self._executor.run(lambda: [f.flush() for f in share])  # noqa: B023 (awaited here)
            except Exception as error:  # of the executor itself
                outcomes = [error] * len(share)
            for flusher, outcome in zip(share, outcomes, strict=True):
                flusher.settle(outcome)


class Flusher:
    """Drives the flushes of one log. Used from one event loop."""

    def __init__(
        self,
        log: Flushable,
        queue: FlushQueue,
        *,
        on_flushed: Callable[[], None],
        on_failed: Callable[[Exception], None],
        on_full: Callable[[DiskFullError], None],
    ) -> None:
        """`on_full` should call `request` again later."""
        self._log = log
        self._queue = queue
        self._on_flushed = on_flushed
        self._on_failed = on_failed
        self._on_full = on_full
        self._is_closed = False
        self._closing: asyncio.Future[None] | None = None
        self.is_running = False
        """A flush runs or waits for its turn."""

    def request(self) -> None:
        """Flush up to the present log end, now or right after the flush that runs."""
        if not self.is_running and not self._is_closed and self._log.flushed_end_offset < self._log.log_end_offset:
            self.is_running = True
            self._queue.add(self)

    async def close(self) -> None:
        """Begin no more flushes and wait for the one that runs. May be repeated."""
        self._is_closed = True
        if self.is_running and self._queue.remove(self):
            self.is_running = False
        if self.is_running:
            if self._closing is None:
                self._closing = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._closing,))

    # for the queue

    def flush(self) -> Exception | None:
        """Runs in the executor: what went wrong, if anything."""
        try:
            self._log.flush()
        except Exception as error:
            return error
        return None

    def settle(self, outcome: Exception | None) -> None:
        """Tell what came of a flush, and ask for the next one if more was appended meanwhile."""
        self.is_running = False
        try:
            self._tell(outcome)
        except Exception as error:  # whatever it was, nothing may be acknowledged any more
            self._is_closed = True
            self._on_failed(error)
        if outcome is None:
            self.request()
        if self._closing is not None:
            self._closing.set_result(None)
            self._closing = None

    def _tell(self, outcome: Exception | None) -> None:
        if outcome is None:
            self._on_flushed()
        elif isinstance(outcome, DiskFullError):
            self._on_full(outcome)
        else:
            raise outcome
