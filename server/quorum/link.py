"""One stream to a peer: a queue of frames bounded in bytes, a sender, a receiver, and an end to silence.

A full queue drops what is offered: Raft repeats what gets lost, and memory must not grow because a peer reads slowly.
Frames that wait together travel together. Who hears nothing for the silence time-out takes the peer for gone; so both
ends are to offer a sign of life when they have long said nothing (`spoke_s`).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto.errors import NetworkError, RequestTimedOutError
from kraftlog.proto.frames import size_of
from kraftlog.proto.framing import Buffer
from kraftlog.proto.raft_frames import MAX_FRAMES, RAFT_FRAMES, RaftBody
from kraftlog.proto.seams import Stream

MAX_BATCH_BYTES = 1024 * 1024  # frames of more than this do not travel with others
MAX_BATCH_FRAMES = MAX_FRAMES // 4

Receive = Callable[[RaftBody], None]


class Link:
    """One end of an open stream, after the hellos. Used from one event loop."""

    def __init__(
        self, stream: Stream, peer: ReplicaKey, *, max_queue_bytes: int, silence_timeout_ms: float, opened_ms: float
    ) -> None:
        self.peer = peer
        self.opened_ms = opened_ms
        """By the monotonic clock."""
        self.is_closed = False
        self.dropped_frames = 0
        self._stream = stream
        self._max_queue_bytes = max_queue_bytes
        self._silence_timeout_ms = silence_timeout_ms
        self._queue: deque[tuple[int, list[Buffer]]] = deque()
        self._queued_bytes = 0
        """Of the frames in the queue and of those that are being sent."""
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self.spoke_s = asyncio.get_running_loop().time()
        """When the last message was sent, by the loop's clock; at first when the link was made."""

    def offer(self, body: RaftBody) -> bool:
        """Send a frame some time later; False: it is dropped. A frame above the bound passes when it is alone."""
        pieces = RAFT_FRAMES.encode(body)
        size = size_of(pieces)
        if self.is_closed or (self._queue and self._queued_bytes + size > self._max_queue_bytes):
            self.dropped_frames += 1
            return False
        self._queue.append((size, pieces))
        self._queued_bytes += size
        self._wake.set()
        return True

    def close(self) -> None:
        """Let `run` return. May be repeated."""
        self.is_closed = True
        self._closing.set()

    async def run(self, receive: Receive) -> None:
        """Exchange frames until `close`, or until the peer ends the stream in order; then return. Raises what broke the
        stream, or what `receive` raised for a frame that it refuses. The stream is gone in any case."""
        loop = asyncio.get_running_loop()
        work = [
            loop.create_task(self._receive_all(receive)),
            loop.create_task(self._send_all()),
            loop.create_task(self._wait_closing()),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.is_closed = True
            self._queue.clear()
            self._stream.cancel()
            for task in work:
                task.add_done_callback(_retrieve)
                task.cancel()

    async def _wait_closing(self) -> None:
        await self._closing.wait()

    async def _send_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._queue:
                pieces, size = self._take()
                await self._stream.send(pieces)
                self.spoke_s = loop.time()
                self._queued_bytes -= size
            self._wake.clear()
            await self._wake.wait()

    def _take(self) -> tuple[list[Buffer], int]:
        """The next frames that travel together, at least one, and their size."""
        size, pieces = self._queue.popleft()
        count = 1
        while self._queue and size + self._queue[0][0] <= MAX_BATCH_BYTES and count < MAX_BATCH_FRAMES:
            more, next_pieces = self._queue.popleft()
            size, count = size + more, count + 1
            pieces += next_pieces  # the list is the queue's own
        return pieces, size

    async def _receive_all(self, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        silence_s = self._silence_timeout_ms / 1000
        heard_s = loop.time()
        scope = asyncio.timeout(silence_s)
        try:
            async with scope:
                while (message := await self._stream.receive()) is not None:
                    if (now_s := loop.time()) - heard_s > silence_s / 8:  # not a timer for every message
                        heard_s = now_s
                        scope.reschedule(now_s + silence_s)
                    for body in RAFT_FRAMES.decode(message):
                        receive(body)
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimedOutError(
                f"node {self.peer.node_id} has been silent for {self._silence_timeout_ms:.0f} ms"
            ) from None


def _retrieve(task: asyncio.Task[None]) -> None:
    """What a task of an ended link raises has been told already, or is of no interest any more."""
    if not task.cancelled():
        task.exception()


async def first_frames(stream: Stream, timeout_ms: float) -> list[RaftBody]:
    """The frames of the first message. Raises `NetworkError` if there is none, `RequestTimedOutError` if it is late."""
    scope = asyncio.timeout(timeout_ms / 1000)
    try:
        async with scope:
            message = await stream.receive()
    except TimeoutError:
        if not scope.expired():
            raise
        raise RequestTimedOutError(f"no hello within {timeout_ms:.0f} ms") from None
    if message is None:
        raise NetworkError("the stream ended before a hello")
    return list(RAFT_FRAMES.decode(message))
