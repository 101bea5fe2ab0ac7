"""Linearizable reads (Raft thesis §6.4): wait until the image has every write that was answered before.

All who ask while a round is under way share the next one: a round that began earlier may have learnt the commit offset
before their writes were answered.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kraftlog.proto.errors import KraftlogError, NotControllerError, ThrottlingQuotaExceededError

RETRY_MS = 20.0  # between attempts while there is no leader to ask
ATTEMPT_MS = 500.0  # a leader that is cut off never answers: ask again, whoever leads then
MAX_WAITING = 10_000


class ReadBarrier:
    """Used from one event loop."""

    def __init__(
        self,
        *,
        read_index: Callable[[], Awaitable[int]],
        wait_applied: Callable[[int, float], Awaitable[bool]],
        now_ms: Callable[[], float],
    ) -> None:
        """`read_index` gives the offset that a read needs or raises a `KraftlogError`; `wait_applied(offset, timeout)`
        waits until that is in the image."""
        self._read_index = read_index
        self._wait_applied = wait_applied
        self._now_ms = now_ms
        self._waiting: list[asyncio.Future[int]] = []
        """For the next round."""
        self._asking: list[asyncio.Future[int]] = []
        """In the round that is under way."""
        self._closed: KraftlogError | None = None
        self._rounds: asyncio.Task[None] | None = None
        self._reason: object = "no leader is known"
        """Why the last round had no answer."""

    async def wait(self, timeout_ms: float) -> None:
        """Return when the image is new enough. Raises `NotControllerError` after `timeout_ms`: no leader could be asked,
        or it could not prove that it leads. May be repeated."""
        if self._closed is not None:
            raise self._closed
        if len(self._waiting) >= MAX_WAITING:
            raise ThrottlingQuotaExceededError(f"{len(self._waiting)} reads wait for the metadata quorum")
        loop = asyncio.get_running_loop()
        deadline_ms = self._now_ms() + timeout_ms
        future: asyncio.Future[int] = loop.create_future()
        self._waiting.append(future)
        if self._rounds is None:
            self._rounds = loop.create_task(self._run_rounds(), name="read-barrier")
        try:
            await asyncio.wait([future], timeout=timeout_ms / 1000)
            if not future.done():
                raise NotControllerError(f"no answer of the metadata quorum within {timeout_ms:.0f} ms: {self._reason}")
        finally:
            future.cancel()
        offset = future.result()
        if not await self._wait_applied(offset, deadline_ms - self._now_ms()):
            raise NotControllerError(f"this node has not applied metadata offset {offset} within {timeout_ms:.0f} ms")

    def close(self, error: KraftlogError) -> None:
        """Nobody gets an answer any more. May be repeated."""
        self._closed = error
        if self._rounds is not None:
            self._rounds.cancel()
        for future in (*self._asking, *self._waiting):
            if not future.done():
                future.set_exception(error)
        self._asking, self._waiting = [], []

    async def _run_rounds(self) -> None:
        try:
            while self._waiting:
                self._asking, self._waiting = self._waiting, []
                offset = await self._ask()
                if offset is None:
                    await asyncio.sleep(RETRY_MS / 1000)
                    self._waiting[:0] = [future for future in self._asking if not future.done()]
                    continue
                for future in self._asking:
                    if not future.done():
                        future.set_result(offset)
        finally:
            self._rounds = None

    async def _ask(self) -> int | None:
        scope = asyncio.timeout(ATTEMPT_MS / 1000)
        try:
            async with scope:
                return await self._read_index()
        except KraftlogError as error:
            self._reason = error
        except TimeoutError:
            if not scope.expired():
                raise
            self._reason = "the leader does not answer"
        return None
