"""One stream to a peer: order, bounds, silence and the end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto.errors import InvalidRequestError, NetworkError, RequestTimedOutError
from kraftlog.proto.frames import size_of
from kraftlog.proto.raft_frames import (
    RAFT_FRAMES,
    RaftBody,
    RaftReadIndexRequest,
    RaftSnapshotRequest,
)
from kraftlog.proto.seams import Payload
from kraftlog.server.quorum.link import MAX_BATCH_BYTES, Link, first_frames
from kraftlog.testing.loop import VirtualLoop, run_virtual

SILENCE_MS = 1_000.0


class FakeStream:
    """The test is the peer."""

    def __init__(self) -> None:
        self.sent: list[list[RaftBody]] = []
        self.incoming: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.send_error: Exception | None = None
        self.is_cancelled = False

    async def send(self, message: Payload) -> None:
        await self.may_send.wait()
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(list(RAFT_FRAMES.decode(message if isinstance(message, bytes) else b"".join(message))))

    async def receive(self) -> bytes | None:
        message = await self.incoming.get()
        if isinstance(message, Exception):
            raise message
        return message

    async def finish(self) -> None:
        """A link does not say that it ends."""

    def cancel(self) -> None:
        self.is_cancelled = True

    def arrive(self, *bodies: RaftBody) -> None:
        self.incoming.put_nowait(b"".join(b"".join(RAFT_FRAMES.encode(body)) for body in bodies))


def virtually(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(body(), loop=VirtualLoop(), max_seconds=3_600)


def make_link(stream: FakeStream, *, max_queue_bytes: int = 10_000) -> Link:
    return Link(stream, ReplicaKey(2), max_queue_bytes=max_queue_bytes, silence_timeout_ms=SILENCE_MS, opened_ms=0)


def frame(number: int) -> RaftReadIndexRequest:
    return RaftReadIndexRequest(number)


def large_frame(size: int) -> RaftSnapshotRequest:
    return RaftSnapshotRequest(term=1, data=bytes(size))


def nothing(body: RaftBody) -> None:
    """Not looked at."""


def test_what_waits_together_travels_together_and_in_order() -> None:
    """A message of the stream costs more than a frame; frames above a megabyte go alone."""

    async def body() -> None:
        stream = FakeStream()
        link = make_link(stream, max_queue_bytes=10 * MAX_BATCH_BYTES)
        for number in range(100):
            assert link.offer(frame(number))
        assert link.offer(large_frame(MAX_BATCH_BYTES))
        assert link.offer(frame(100))
        running = asyncio.ensure_future(link.run(nothing))
        await asyncio.sleep(0.001)
        assert [len(message) for message in stream.sent] == [100, 1, 1]
        assert stream.sent[0] == [frame(number) for number in range(100)]
        link.close()
        await running

    virtually(body)


def test_full_queue_drops_what_comes() -> None:
    """Bytes that are being sent count until the stream has taken them. A frame above the bound passes alone."""

    async def body() -> None:
        stream = FakeStream()
        stream.may_send.clear()
        size = size_of(RAFT_FRAMES.encode(large_frame(1_000)))
        link = make_link(stream, max_queue_bytes=3 * size)
        running = asyncio.ensure_future(link.run(nothing))
        assert link.offer(large_frame(50_000))
        await asyncio.sleep(0.001)
        assert link.offer(large_frame(1_000)), "an empty queue takes one"
        assert not link.offer(large_frame(1_000)), "50,000 bytes are under way"
        assert link.dropped_frames == 1
        stream.may_send.set()
        await asyncio.sleep(0.001)
        stream.may_send.clear()
        assert [link.offer(large_frame(1_000)) for _ in range(5)] == [True, True, True, False, False]
        link.close()
        await running
        assert not link.offer(frame(1)), "it is closed"

    virtually(body)


@pytest.mark.parametrize("signs_of_life", [0, 5])
def test_silent_peer_is_given_up(signs_of_life: int) -> None:
    """Whatever arrives is a sign of life, and no more than the time-out may pass between two of them."""

    async def body() -> None:
        stream = FakeStream()
        link = make_link(stream)
        loop = asyncio.get_running_loop()
        running = asyncio.ensure_future(link.run(nothing))
        for _ in range(signs_of_life):
            await asyncio.sleep(0.9)
            stream.arrive(frame(1))
        began = loop.time()
        with pytest.raises(RequestTimedOutError, match="node 2 has been silent"):
            await running
        assert loop.time() - began == pytest.approx(SILENCE_MS / 1000, abs=0.01)
        assert stream.is_cancelled
        assert link.is_closed

    virtually(body)


def test_it_says_when_it_spoke_last() -> None:
    """For signs of life, which go where nothing else was said."""

    async def body() -> None:
        link = make_link(FakeStream())
        loop = asyncio.get_running_loop()
        assert link.spoke_s == loop.time()
        running = asyncio.ensure_future(link.run(nothing))
        await asyncio.sleep(0.5)
        assert link.spoke_s == loop.time() - 0.5
        link.offer(frame(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert link.spoke_s == loop.time()
        link.close()
        await running

    virtually(body)


@pytest.mark.parametrize("data", [b"\xff", b"\n\x7f", b"\n\x04\x0a\x02\x0a\x7f"])
def test_malformed_message_ends_the_stream(data: bytes) -> None:
    async def body() -> None:
        stream = FakeStream()
        stream.incoming.put_nowait(data)
        with pytest.raises(InvalidRequestError):
            await make_link(stream).run(nothing)
        assert stream.is_cancelled

    virtually(body)


def test_frame_that_the_receiver_refuses_ends_the_stream() -> None:
    """What stands before it has been received."""

    async def body() -> None:
        stream = FakeStream()
        received: list[RaftBody] = []

        def receive(body: RaftBody) -> None:
            if body == frame(3):
                raise InvalidRequestError("not this one")
            received.append(body)

        stream.arrive(*map(frame, (1, 2, 3, 4)))
        with pytest.raises(InvalidRequestError, match="not this one"):
            await make_link(stream).run(receive)
        assert received == [frame(1), frame(2)]

    virtually(body)


def test_stream_that_breaks_while_sending_ends_the_link() -> None:
    async def body() -> None:
        stream = FakeStream()
        stream.send_error = NetworkError("broken")
        link = make_link(stream)
        link.offer(frame(1))
        with pytest.raises(NetworkError, match="broken"):
            await link.run(nothing)

    virtually(body)


def test_peer_that_ends_in_order_ends_the_link() -> None:
    async def body() -> None:
        stream = FakeStream()
        stream.incoming.put_nowait(None)
        await make_link(stream).run(nothing)

    virtually(body)


def test_hello_must_come_in_time() -> None:
    async def body() -> None:
        stream = FakeStream()
        with pytest.raises(RequestTimedOutError, match="no hello within 500 ms"):
            await first_frames(stream, 500)
        stream.incoming.put_nowait(None)
        with pytest.raises(NetworkError, match="before a hello"):
            await first_frames(stream, 500)

    virtually(body)
