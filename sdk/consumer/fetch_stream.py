"""One fetch stream to one broker: positions and credit go out, chunks come in. Used only on the client's loop.

Credit: the broker may send `window_bytes` ahead of what the application has taken. `outstanding_bytes` counts what was
granted and neither came as a dropped chunk nor was taken by the application; the difference is granted again as soon as
it is worth a message.
"""

import logging
from collections.abc import Callable

from kraftlog.proto.errors import KraftlogError, NetworkError
from kraftlog.proto.hotpath import (
    FetchControl,
    FetchPosition,
    FetchRequest,
    PartitionChunk,
    TopicPartition,
    decode_fetch_chunk,
    encode,
)
from kraftlog.proto.seams import Channel, Stream
from kraftlog.sdk.waiting import Tasks, Wakeup

log = logging.getLogger("kraftlog.sdk")

FETCH_METHOD = "/kraftlog.v1.Broker/FetchStream"
GRANT_PARTS = 4  # credit is granted in quarters of the window: a control message costs as much as a small RPC


class FetchStream:
    """See the module's text. After `on_broken` was called the object is of no more use."""

    def __init__(
        self,
        node_id: int,
        channel: Channel,
        params: FetchRequest,
        *,
        window_bytes: int,
        tasks: Tasks,
        on_chunk: Callable[["FetchStream", PartitionChunk], None],
        on_message: Callable[[], None],
        on_broken: Callable[["FetchStream", KraftlogError], None],
    ) -> None:
        self.node_id = node_id
        self.window_bytes = window_bytes
        self.outstanding_bytes = 0
        self.is_closed = False
        self.received = 0
        """Messages so far; for a watchdog."""
        self._channel = channel
        self._params: FetchRequest | None = params
        self._stream: Stream = channel.stream(FETCH_METHOD)
        self._on_chunk = on_chunk
        self._on_message = on_message
        self._on_broken = on_broken
        self._set: dict[tuple[str, int], FetchPosition] = {}
        self._forget: dict[tuple[str, int], None] = {}
        self._wakeup = Wakeup()
        self._tasks = (
            tasks.start(self._write(), f"fetch control to broker {node_id}"),
            tasks.start(self._read(), f"fetch from broker {node_id}"),
        )

    def set(self, position: FetchPosition) -> None:
        """Start a partition at a position of a new generation, or move it."""
        self._set[position.topic, position.partition] = position
        self._wakeup.set()

    def forget(self, topic: str, partition: int) -> None:
        self._set.pop((topic, partition), None)
        self._forget[topic, partition] = None
        self._wakeup.set()

    def return_credit(self, size_bytes: int) -> None:
        """`size_bytes` of chunks were taken or dropped."""
        self.outstanding_bytes -= size_bytes
        if self._grant_bytes():
            self._wakeup.set()

    def close(self) -> None:
        """Drop the stream; `on_broken` is not called."""
        if not self.is_closed:
            self.is_closed = True
            self._stream.cancel()
            for task in self._tasks:
                task.cancel()

    def fail(self, error: KraftlogError) -> None:
        """Treat the stream as broken."""
        if not self.is_closed:
            self.close()
            self._on_broken(self, error)

    def _grant_bytes(self) -> int:
        """Credit to grant now: all that is missing, if it is a quarter of the window."""
        missing = self.window_bytes - self.outstanding_bytes
        return missing if missing >= max(1, self.window_bytes // GRANT_PARTS) else 0

    async def _write(self) -> None:
        try:
            while True:
                await self._wakeup.wait()
                message = self._control()
                if message is not None:
                    await self._stream.send(encode(message))
        except KraftlogError as error:
            self.fail(error)

    def _control(self) -> FetchControl | None:
        grant = self._grant_bytes()
        if not (self._params or self._set or self._forget or grant):
            return None
        message = FetchControl(
            params=self._params,
            set=list(self._set.values()),
            forget=[TopicPartition(topic, partition) for topic, partition in self._forget],
            credit_bytes=grant,
        )
        self.outstanding_bytes += grant
        self._params = None
        self._set = {}
        self._forget = {}
        return message

    async def _read(self) -> None:
        try:
            while True:
                data = await self._stream.receive()
                if data is None:
                    raise NetworkError(f"broker {self.node_id} ended the fetch stream")
                self.received += 1
                for chunk in decode_fetch_chunk(data).partitions:
                    self._on_chunk(self, chunk)
                self._on_message()
        except KraftlogError as error:
            self.fail(error)
