"""What every network promises to its users: one class of tests, run on gRPC and on the simulated links."""

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    KraftlogError,
    NetworkError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kraftlog.proto.seams import CallContext, Handlers, Network, Server, Stream
from kraftlog.proto.security import Principal
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.server.grpc import GrpcNetwork
from kraftlog.testing.certificates import Authority
from kraftlog.testing.loop import VirtualLoop, run_virtual
from kraftlog.testing.network import LinkConfig, SimNetwork

ECHO = "/kraftlog.test.Toy/Echo"
FAIL = "/kraftlog.test.Toy/Fail"
BUG = "/kraftlog.test.Toy/Bug"
HANG = "/kraftlog.test.Toy/Hang"
CHAT = "/kraftlog.test.Toy/Chat"
COUNT_THEN_FAIL = "/kraftlog.test.Toy/CountThenFail"
FLOOD = "/kraftlog.test.Toy/Flood"
UNREAD = "/kraftlog.test.Toy/Unread"
TIMEOUT_MS = 10_000

Body = Callable[[Network], Coroutine[Any, Any, None]]


class Toy:
    """A server that shows each behaviour, and remembers what happened to its handlers."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.flooded = 0
        self.received: list[bytes | None] = []

    async def echo(self, request: bytes, context: CallContext) -> bytes:
        assert context.peer
        return request

    async def fail(self, request: bytes, context: CallContext) -> bytes:
        raise NotLeaderOrFollowerError("broker 1 does not lead orders-3: ask for metadata")

    async def bug(self, request: bytes, context: CallContext) -> bytes:
        raise ZeroDivisionError("a secret of the server")

    async def hang(self, request: bytes, context: CallContext) -> bytes:
        return await self._hang()

    async def _hang(self) -> bytes:
        self.hanging.set()
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""

    async def chat(self, stream: Stream, context: CallContext) -> None:
        while (message := await stream.receive()) is not None:
            self.received.append(message)
            if message == b"hang":
                await self._hang()
            await stream.send([b"<", memoryview(message), b">"])
        self.received.append(None)
        await stream.send(b"bye")

    async def count_then_fail(self, stream: Stream, context: CallContext) -> None:
        for number in range(3):
            await stream.send(str(number).encode())
        raise OffsetOutOfRangeError("offset 9 of orders-3 is outside of 0..3")

    async def flood(self, stream: Stream, context: CallContext) -> None:
        for _ in range(1_000):
            await stream.send(bytes(100_000))
            self.flooded += 1

    async def unread(self, stream: Stream, context: CallContext) -> None:
        await stream.receive()

    def handlers(self) -> Handlers:
        return Handlers(
            unary={ECHO: self.echo, FAIL: self.fail, BUG: self.bug, HANG: self.hang},
            streams={CHAT: self.chat, COUNT_THEN_FAIL: self.count_then_fail, FLOOD: self.flood, UNREAD: self.unread},
        )


async def _drain(stream: Stream) -> list[bytes]:
    messages = []
    while (message := await stream.receive()) is not None:
        messages.append(message)
    return messages


async def _within(step: Awaitable[Any], seconds: float = 30) -> Any:
    return await asyncio.wait_for(step, seconds)


class NetworkContract(ABC):
    """The tests; a subclass says how to run them."""

    @abstractmethod
    def run(self, body: Body) -> None:
        """Run `body` with a network of the kind under test."""

    def toy(self, body: Callable[[Network, Server, Toy], Coroutine[Any, Any, None]]) -> None:
        """Run `body` against a served toy."""

        async def main(network: Network) -> None:
            toy = Toy()
            server = await network.serve("127.0.0.1:0", toy.handlers())
            try:
                await body(network, server, toy)
            finally:
                await server.stop(0)

        self.run(main)

    def test_a_unary_call_is_answered(self) -> None:
        """Bytes there, bytes back, also as pieces; the server's address holds the port that it got."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            assert not server.address.endswith(":0")
            channel = network.connect(server.address)
            assert await channel.unary(ECHO, b"hello", timeout_ms=TIMEOUT_MS) == b"hello"
            assert await channel.unary(ECHO, [b"pie", memoryview(b"ces")], timeout_ms=TIMEOUT_MS) == b"pieces"
            assert await channel.unary(ECHO, b"", timeout_ms=TIMEOUT_MS) == b""
            await channel.close()
            await channel.close()

        self.toy(body)

    def test_an_error_of_a_handler_comes_back_as_its_class(self) -> None:
        """Code, class and text survive the wire."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            with pytest.raises(NotLeaderOrFollowerError, match="broker 1 does not lead orders-3: ask for metadata"):
                await channel.unary(FAIL, b"", timeout_ms=TIMEOUT_MS)
            assert await channel.unary(ECHO, b"still here", timeout_ms=TIMEOUT_MS) == b"still here"
            await channel.close()

        self.toy(body)

    def test_a_bug_in_a_handler_tells_no_secrets(self, caplog: pytest.LogCaptureFixture) -> None:
        """What was not raised on purpose is logged on the server and told as UNKNOWN_SERVER_ERROR."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            with pytest.raises(UnknownServerError, match="ZeroDivisionError") as caught:
                await channel.unary(BUG, b"", timeout_ms=TIMEOUT_MS)
            assert "secret" not in str(caught.value)
            await channel.close()

        with caplog.at_level(logging.ERROR):
            self.toy(body)
        assert "failed" in caplog.text

    def test_an_unknown_method_is_told_from_a_failure(self) -> None:
        """A client of a later version, or another service at this address."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            with pytest.raises(UnsupportedVersionError):
                await channel.unary("/kraftlog.test.Toy/Later", b"", timeout_ms=TIMEOUT_MS)
            with pytest.raises(UnsupportedVersionError):
                await channel.stream("/kraftlog.test.Other/Chat").receive()
            await channel.close()

        self.toy(body)

    def test_a_passed_deadline_is_told_and_ends_the_handler(self) -> None:
        """The caller gets `RequestTimedOutError`; the server cancels what nobody waits for."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            assert await channel.unary(ECHO, b"connected", timeout_ms=TIMEOUT_MS)
            with pytest.raises(RequestTimedOutError):
                await channel.unary(HANG, b"", timeout_ms=300)
            await _within(toy.cancelled.wait())
            await channel.close()

        self.toy(body)

    def test_nobody_at_the_address(self) -> None:
        """`BrokerNotAvailableError` for unary calls and streams; a stopped server is not there any more."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            await server.stop(0)
            await server.stop(0)
            channel = network.connect(server.address)
            with pytest.raises(BrokerNotAvailableError):
                await channel.unary(ECHO, b"", timeout_ms=TIMEOUT_MS)
            with pytest.raises(BrokerNotAvailableError):
                await channel.stream(CHAT).receive()
            await channel.close()

        self.toy(body)

    def test_a_taken_address_is_an_os_error(self) -> None:
        """Two nodes on one port: the second must say so."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            with pytest.raises(OSError, match="in use"):
                await network.serve(server.address, toy.handlers())

        self.toy(body)

    def test_a_stream_carries_messages_both_ways_in_order(self) -> None:
        """Pipelined: many sends before the first receive."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(CHAT)
            for number in range(200):
                await stream.send(str(number).encode())
            await stream.finish()
            assert await _within(_drain(stream)) == [b"<%d>" % number for number in range(200)] + [b"bye"]
            assert await stream.receive() is None
            assert toy.received[-1] is None
            await channel.close()

        self.toy(body)

    def test_streams_of_one_channel_do_not_wait_for_each_other(self) -> None:
        """One that is stuck does not stop the other."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stuck, free = channel.stream(CHAT), channel.stream(CHAT)
            await stuck.send(b"hang")
            await free.send(b"go")
            assert await _within(free.receive()) == b"<go>"
            await free.finish()
            assert await _within(_drain(free)) == [b"bye"]
            stuck.cancel()
            await _within(toy.cancelled.wait())
            await channel.close()

        self.toy(body)

    def test_an_error_comes_after_the_messages_sent_before_it(self) -> None:
        """What the handler sent is not lost with its failure; a later send tells the same error."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(COUNT_THEN_FAIL)
            assert [await stream.receive() for _ in range(3)] == [b"0", b"1", b"2"]
            with pytest.raises(OffsetOutOfRangeError, match="offset 9"):
                await stream.receive()
            with pytest.raises(OffsetOutOfRangeError, match="offset 9"):
                await stream.send(b"late")
            stream.cancel()
            await channel.close()

        self.toy(body)

    def test_a_handler_that_returns_ends_the_stream_for_the_sender(self) -> None:
        """The client sees the end in order; sending on is an error, not silence."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(UNREAD)
            await stream.send(b"one")
            assert await _within(stream.receive()) is None
            with pytest.raises(KraftlogError):
                await stream.send(b"two")
            await stream.finish()
            await channel.close()

        self.toy(body)

    def test_a_cancelled_stream_ends_its_handler_and_refuses_use(self) -> None:
        """`cancel` never raises and may be repeated; a later use is a `NetworkError`."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(CHAT)
            await stream.send(b"hang")
            await _within(toy.hanging.wait())
            stream.cancel()
            stream.cancel()
            await _within(toy.cancelled.wait())
            with pytest.raises(NetworkError):
                await stream.receive()
            with pytest.raises(NetworkError):
                await stream.send(b"more")
            await stream.finish()
            await channel.close()

        self.toy(body)

    def test_cancelling_a_stream_wakes_its_receiver(self) -> None:
        """Another task's pending `receive` does not wait for ever."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(CHAT)
            await stream.send(b"go")
            assert await stream.receive() == b"<go>"
            receiver = asyncio.ensure_future(stream.receive())
            await asyncio.sleep(0.05)
            stream.cancel()
            with pytest.raises(NetworkError):
                await _within(receiver)
            await channel.close()

        self.toy(body)

    def test_a_stopped_server_ends_open_streams(self) -> None:
        """The client gets a retriable error, the handler its cancellation."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(CHAT)
            await stream.send(b"hang")
            await _within(toy.hanging.wait())
            await server.stop(0)
            await _within(toy.cancelled.wait())
            with pytest.raises(NetworkError) as caught:
                await _within(stream.receive())
            assert caught.value.retriable
            await channel.close()

        self.toy(body)

    def test_stopping_waits_for_running_calls_within_its_grace(self) -> None:
        """A call that is almost done is answered; no new ones are taken."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            release = asyncio.Event()
            entered = asyncio.Event()

            async def slow(request: bytes, context: CallContext) -> bytes:
                entered.set()
                await release.wait()
                return b"done"

            graceful = await network.serve("127.0.0.1:0", Handlers(unary={ECHO: slow}))
            channel = network.connect(graceful.address)
            call = asyncio.ensure_future(channel.unary(ECHO, b"", timeout_ms=TIMEOUT_MS))
            await _within(entered.wait())
            stopping = asyncio.ensure_future(graceful.stop(TIMEOUT_MS))
            await asyncio.sleep(0.05)
            release.set()
            assert await _within(call) == b"done"
            await _within(stopping)
            await channel.close()

        self.toy(body)

    def test_a_sender_waits_while_its_reader_does_not_read(self) -> None:
        """Backpressure: a fast handler and a slow client need bounded memory."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(FLOOD)
            assert await stream.receive() == bytes(100_000)
            await asyncio.sleep(0.5)
            assert toy.flooded < 500
            before = toy.flooded
            for _ in range(before + 1):  # with the first, two more than the handler was let send
                assert await _within(stream.receive()) == bytes(100_000)
            assert toy.flooded > before
            stream.cancel()
            await channel.close()

        self.toy(body)

    def test_a_large_message_passes(self) -> None:
        """A message larger than the window passes alone."""

        async def body(network: Network, server: Server, toy: Toy) -> None:
            channel = network.connect(server.address)
            stream = channel.stream(CHAT)
            await stream.send(bytes(3 << 20))
            answer = await _within(stream.receive())
            assert len(answer) == (3 << 20) + 2
            await stream.finish()
            assert await _within(_drain(stream)) == [b"bye"]
            await channel.close()

        self.toy(body)


class TestGrpcNetwork(NetworkContract):
    """The real transport."""

    def run(self, body: Body) -> None:
        asyncio.run(body(GrpcNetwork()))


_AUTHORITY = Authority.create()
_NODE = _AUTHORITY.issue("node-1", hosts=("127.0.0.1", "node-1.example"))


@pytest.mark.parametrize("check_hostname", [True, False])
class TestSecuredGrpcNetwork(NetworkContract):
    """The real transport with certificates on both sides."""

    check_hostname = True

    @pytest.fixture(autouse=True)
    def _choose(self, check_hostname: bool) -> None:
        self.check_hostname = check_hostname

    def run(self, body: Body) -> None:
        security = TlsSecurity(
            private_key=_NODE.key,
            certificate_chain=_NODE.certificate,
            trusted=_NODE.authority,
            check_hostname=self.check_hostname,
            require_client_certificate=True,
        )
        asyncio.run(body(GrpcNetwork().secured(security)))

    def test_the_caller_is_who_its_certificate_says(self) -> None:
        """Subject and alternative names; on both kinds of calls."""
        seen: list[Principal] = []

        async def unary(request: bytes, context: CallContext) -> bytes:
            seen.append(context.principal)
            return b""

        async def stream(stream: Stream, context: CallContext) -> None:
            seen.append(context.principal)

        async def body(network: Network) -> None:
            server = await network.serve("127.0.0.1:0", Handlers(unary={ECHO: unary}, streams={CHAT: stream}))
            channel = network.connect(server.address)
            await channel.unary(ECHO, b"", timeout_ms=TIMEOUT_MS)
            assert await channel.stream(CHAT).receive() is None
            await channel.close()
            await server.stop(0)

        self.run(body)
        caller = Principal("CN=node-1,O=kraftlog", ("127.0.0.1", "node-1.example"))
        assert seen == [caller, caller]
        assert str(caller) == "User:CN=node-1,O=kraftlog"
        assert caller.is_authenticated


class TestSimNetwork(NetworkContract):
    """The simulated links."""

    def run(self, body: Body) -> None:
        loop = VirtualLoop()
        network = SimNetwork(loop, random.Random(1), LinkConfig(spike_probability=0.05))
        run_virtual(body(network.host("test")), loop=loop)
