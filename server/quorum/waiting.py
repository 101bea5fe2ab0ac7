"""Waiting for something that others bring about: a condition, looked at again whenever it may have come true."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Conditions:
    """Used from one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._watching: dict[_Watch, None] = {}
        self._failed: Exception | None = None

    def look(self) -> None:
        """Something has changed."""
        for watch in [watch for watch in self._watching if watch.is_true()]:
            self._notify(watch)
        for future, is_true in list(self._waiting.items()):
            if not future.done() and is_true():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """Nothing will change any more. May be repeated."""
        self._failed = error
        for watch in list(self._watching):
            self._notify(watch)
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

    @contextmanager
    def watching(self, is_true: Callable[[], bool], callback: Callable[[], None]) -> Iterator[None]:
        """Within the block call `callback` once, when `is_true()` or when nothing will change any more."""
        watch = _Watch(is_true, callback)
        self._watching[watch] = None
        if self._failed is not None or is_true():
            self._notify(watch)
        try:
            yield
        finally:
            self._watching.pop(watch, None)

    def _notify(self, watch: "_Watch") -> None:
        del self._watching[watch]
        watch.callback()


@dataclass(frozen=True, slots=True, eq=False)
class _Watch:
    is_true: Callable[[], bool]
    callback: Callable[[], None]
