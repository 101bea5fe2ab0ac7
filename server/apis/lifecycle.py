"""Whether the node is starting, serving or stopping, as requests see it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kraftlog.proto.errors import BrokerNotAvailableError


class Lifecycle:
    """States: starting -> serving -> stopping. Used from one event loop."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
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
        """Wait until requests can be answered. Raises `BrokerNotAvailableError` once the node stops.

        The wait is bounded by the start, which takes a second or two, and by the caller's own deadline.
        """
        if not self._serving.is_set():
            await self._serving.wait()
        if self.is_stopping:
            raise self.refusal()

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
