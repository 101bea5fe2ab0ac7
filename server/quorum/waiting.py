"""Waiting for something that others bring about: a condition, looked at again whenever it may have come true."""

import asyncio
from collections.abc import Callable


class Conditions:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._failed: Exception | None = None

    def look(self) -> None:
        """Something has changed."""
        for future, is_true in list(self._waiting.items()):
            if not future.done() and is_true():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing will change any more. May be repeated."""
        self._failed = error
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)

    async def wait(self, is_true: Callable[[], bool], timeout_ms: float) -> bool:
        """Until `is_true()`; False after `timeout_ms`. Raises what `fail` was given."""
        if is_true():
            return True
        if self._failed is not None:
            raise self._failed
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = is_true
        try:
            await asyncio.wait([future], timeout=max(timeout_ms, 0) / 1000)
            if future.done():
                future.result()
                return True
            return False
        finally:
            del self._waiting[future]
            future.cancel()
