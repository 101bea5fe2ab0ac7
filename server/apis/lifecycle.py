"""Whether the node is starting, serving or stopping, as requests see it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kraftlog.proto.errors import BrokerNotAvailableError

MAX_START_WAIT_MS = 10_000.0


class Lifecycle:
    """States: starting -> serving -> stopping. Used from one event loop."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._serving = asyncio.Event()
        self._callbacks: dict[Callable[[], object], None] = {}
        self.is_stopping = False

    @property
    def is_serving(self) -> bool:
        return self._serving.is_set() and not self.is_stopping

    def begin_serving(self) -> None:
        """The node has all it needs to answer."""
        self._serving.set()

    def begin_stopping(self) -> None:
        """Refuse new requests and tell the long ones to end. May be repeated."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self._serving.set()  # release those who wait, to be refused
        for callback in list(self._callbacks):
            callback()

    async def admit(self) -> None:
        """Wait until requests can be answered. Raises `BrokerNotAvailableError` once the node stops, and after
        MAX_START_WAIT_MS: a node starts in a second or two, but not before the metadata quorum has a leader.
        """
        if not self._serving.is_set():
            scope = asyncio.timeout(MAX_START_WAIT_MS / 1000)
            try:
                async with scope:
                    await self._serving.wait()
            except TimeoutError:
                if not scope.expired():
                    raise
                raise BrokerNotAvailableError(
                    f"broker {self._node_id} is starting, and waits for the metadata quorum or its logs: its log says which"
                ) from None
        if self.is_stopping:
            raise self.refusal()

    @contextmanager
    def running(self) -> Iterator[None]:
        """For the length of one request that was admitted."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def wait_idle(self, timeout_ms: float) -> bool:
        """Wait for the running requests to end; False after `timeout_ms`."""
        scope = asyncio.timeout(timeout_ms / 1000)
        try:
            async with scope:
                await self._idle.wait()
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        return True

    def refusal(self) -> BrokerNotAvailableError:
        """What a request gets from a node that stops."""
        return BrokerNotAvailableError(
            f"broker {self._node_id} is shutting down: refresh the metadata and try the new leader"
        )

    @contextmanager
    def on_stopping(self, callback: Callable[[], object]) -> Iterator[None]:
        """Have `callback` called when the node begins to stop, at once if it has; only within the block."""
        if self.is_stopping:
            callback()
        self._callbacks[callback] = None
        try:
            yield
        finally:
            self._callbacks.pop(callback, None)
