"""Two ends of a replica stream that speak at the same time: what comes is taken at once, what goes is asked for when there
is room on the stream.

Nothing is queued here: each end keeps its state, and says what has changed since it spoke last. Who hears nothing for the
silence time-out takes the other for gone; so both give a sign of life when they have nothing else to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kraftlog.proto.errors import NetworkError, RequestTimedOutError
from kraftlog.proto.framing import Buffer
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaAlive, ReplicaBody
from kraftlog.proto.seams import Clock, Stream

SILENCE_TIMEOUT_MS = 3_000.0
KEEP_ALIVE_MS = 1_000.0


class Exchange:
    """One end of an open stream. `run` once; `wake` when `poll` may have something to say. Used from one event loop."""

    def __init__(
        self,
        stream: Stream,
        clock: Clock,
        *,
        receive: Callable[[ReplicaBody], None],
        poll: Callable[[], Sequence[ReplicaBody]],
        prepare: Callable[[], Awaitable[None]],
        next_deadline_ms: Callable[[], float | None],
        peer: str,
    ) -> None:
        """`receive` raises `InvalidRequestError` for what ends the stream; `prepare` is awaited before each `poll`."""
        self._stream = stream
        self._clock = clock
        self._receive = receive
        self._poll = poll
        self._prepare = prepare
        self._next_deadline_ms = next_deadline_ms
        self._peer = peer
        self._wake = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        """Wakes the sender, not later than when it has something to do."""
        self._rings_at = 0.0
        self._closing = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """Let `run` return. May be repeated."""
        self._closing.set()

    async def run(self, first: Sequence[ReplicaBody] = ()) -> None:
        """Until `close`, or until the other end finishes in order. Raises what broke the stream. `first`: frames that came
        with the greeting."""
        loop = asyncio.get_running_loop()
        for body in first:
            self._receive(body)
        work = [loop.create_task(each) for each in (self._receive_all(), self._send_all(), self._wait_closing())]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stream.cancel()
            if self._alarm is not None:
                self._alarm.cancel()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _wait_closing(self) -> None:
        await self._closing.wait()

    async def _receive_all(self) -> None:
        loop = asyncio.get_running_loop()
        silence_s = SILENCE_TIMEOUT_MS / 1000
        heard_s = loop.time()
        scope = asyncio.timeout(silence_s)
        try:
            async with scope:
                while (message := await self._stream.receive()) is not None:
                    if (now_s := loop.time()) - heard_s > silence_s / 8:  # not a timer for every message
                        heard_s = now_s
                        scope.reschedule(now_s + silence_s)
                    for body in REPLICA_FRAMES.decode(message):
                        if not isinstance(body, ReplicaAlive):
                            self._receive(body)
                            self._wake.set()
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimedOutError(f"{self._peer} has been silent for {SILENCE_TIMEOUT_MS:.0f} ms") from None

    async def _send_all(self) -> None:
        spoke_ms = self._clock.monotonic_ms()
        while True:
            self._wake.clear()
            await self._prepare()
            frames = self._poll()
            alive_ms = spoke_ms + KEEP_ALIVE_MS
            if not frames and self._clock.monotonic_ms() >= alive_ms:
                frames = [ReplicaAlive()]
            if frames:
                await self._stream.send(joined(frames))
                spoke_ms = self._clock.monotonic_ms()
            else:
                self._set_alarm(alive_ms)
                await self._wake.wait()

    def _set_alarm(self, alive_ms: float) -> None:
        """Wake the sender when there may be something to say, or when it is time for a sign of life."""
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is None or deadline_ms > alive_ms:
            deadline_ms = alive_ms
        loop = asyncio.get_running_loop()
        # At least a millisecond: deadlines are compared with a clock that need not be the loop's to the last digit.
        at = loop.time() + max(deadline_ms - self._clock.monotonic_ms(), 1.0) / 1000
        if self._alarm is not None:
            if self._rings_at <= at:
                return
            self._alarm.cancel()
        self._rings_at = at
        self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake.set()


def joined(frames: Sequence[ReplicaBody]) -> list[Buffer]:
    """One message of these frames, as pieces."""
    return [piece for body in frames for piece in REPLICA_FRAMES.encode(body)]


async def first_frames(stream: Stream, timeout_ms: float) -> list[ReplicaBody]:
    """The frames of the first message. Raises `NetworkError` if there is none, `RequestTimedOutError` if it is late."""
    scope = asyncio.timeout(timeout_ms / 1000)
    try:
        async with scope:
            message = await stream.receive()
    except TimeoutError:
        if not scope.expired():
            raise
        raise RequestTimedOutError(f"no greeting within {timeout_ms:.0f} ms") from None
    if message is None:
        raise NetworkError("the stream ended before a greeting")
    return list(REPLICA_FRAMES.decode(message))
