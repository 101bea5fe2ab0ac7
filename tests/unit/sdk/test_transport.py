"""The gRPC transport: payloads pass untouched, every failure comes back as one of our classes."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    KraftlogError,
    NetworkError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
)
from kraftlog.sdk.transport import ERROR_CODE_METADATA, GrpcConnector

NOT_LEADER = ((ERROR_CODE_METADATA, "6"),)


async def unary(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    if request == b"fail":
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "broker 1, orders-3: moved", NOT_LEADER)
    if request == b"odd code":
        await context.abort(grpc.StatusCode.INTERNAL, "text", ((ERROR_CODE_METADATA, "many"),))
    if request == b"slow":
        await asyncio.sleep(30)
    if request == b"bug":
        raise ZeroDivisionError
    return b"<" + request + b">"


async def stream(_: object, context: grpc.aio.ServicerContext) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue]  # in compiled code
        if request == b"fail":
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "moved", NOT_LEADER)
        if request == b"end":
            return
        await context.write(b"<" + request + b">")


class Server:
    def __init__(self) -> None:
        self.server = grpc.aio.server()
        handlers = {
            "U": grpc.unary_unary_rpc_method_handler(unary),
            "S": grpc.stream_stream_rpc_method_handler(stream),
        }
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", handlers),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.server.start()
    yield server
    await server.server.stop(0)


async def test_unary_calls(server: Server) -> None:
    """Pieces are joined; a handler's error, a time-out, a bug and a foreign service each have their class and text."""
    channel = GrpcConnector().connect(server.address)
    assert await channel.unary("/t.T/U", [b"a", memoryview(b"b"), bytearray(b"c")], timeout_ms=5_000) == b"<abc>"
    with pytest.raises(NotLeaderOrFollowerError, match=r"^broker 1, orders-3: moved$"):
        await channel.unary("/t.T/U", b"fail", timeout_ms=5_000)
    with pytest.raises(UnknownServerError, match=r"^text$"):
        await channel.unary("/t.T/U", b"odd code", timeout_ms=5_000)
    with pytest.raises(RequestTimedOutError, match=r"did not answer /t.T/U within 50 ms"):
        await channel.unary("/t.T/U", b"slow", timeout_ms=50)
    with pytest.raises(UnknownServerError, match="ZeroDivisionError"):
        await channel.unary("/t.T/U", b"bug", timeout_ms=5_000)
    with pytest.raises(UnsupportedVersionError, match="is another service at this address"):
        await channel.unary("/t.T/Unknown", b"", timeout_ms=5_000)
    await channel.close()
    await channel.close()


async def test_streams(server: Server) -> None:
    """The end in order is None, again and again; an error is raised, again and again; sending after it says why."""
    channel = GrpcConnector().connect(server.address)
    one = channel.stream("/t.T/S")
    for text in (b"x", b"y"):
        await one.send([text, text])
        assert await one.receive() == b"<" + text * 2 + b">"
    await one.finish()
    assert await one.receive() is None
    assert await one.receive() is None
    with pytest.raises(NetworkError, match="ended the stream"):
        await one.send(b"x")
    failing = channel.stream("/t.T/S")
    await failing.send(b"fail")
    for _ in range(2):
        with pytest.raises(NotLeaderOrFollowerError, match=r"^moved$"):
            await failing.receive()
    with pytest.raises(NotLeaderOrFollowerError):
        await failing.send(b"x")
    await failing.finish()
    dropped = channel.stream("/t.T/S")
    await dropped.send(b"x")
    await dropped.receive()
    waiting = asyncio.ensure_future(dropped.receive())
    await asyncio.sleep(0.01)
    dropped.cancel()
    dropped.cancel()
    for step in (waiting, dropped.receive(), dropped.send(b"x")):
        with pytest.raises(NetworkError, match="was dropped"):
            await step
    await dropped.finish()
    await channel.close()


async def test_a_cancelled_task_stays_cancelled(server: Server) -> None:
    """Only the cancellation of a call becomes an error of ours; that of the task passes."""
    channel = GrpcConnector().connect(server.address)
    for step in (channel.unary("/t.T/U", b"slow", timeout_ms=60_000), channel.stream("/t.T/S").receive()):
        task = asyncio.ensure_future(step)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await channel.close()


async def test_a_closed_channel_ends_what_is_under_way(server: Server) -> None:
    channel = GrpcConnector().connect(server.address)
    call = asyncio.ensure_future(channel.unary("/t.T/U", b"slow", timeout_ms=60_000))
    stream = channel.stream("/t.T/S")
    receiving = asyncio.ensure_future(stream.receive())
    await asyncio.sleep(0.05)
    await channel.close()
    for waiting in (call, receiving):
        with pytest.raises(NetworkError):
            await waiting
    assert await channel.unary("/t.T/U", b"again", timeout_ms=5_000) == b"<again>"
    await channel.close()


async def test_nobody_at_the_address(server: Server) -> None:
    """Refused and unknown hosts name the address and the next step; a lost connection is another class."""
    for address in ("127.0.0.1:1", "nohost.invalid:1"):
        channel = GrpcConnector().connect(address)
        with pytest.raises(BrokerNotAvailableError, match=rf"{address} \(.*is the cluster running\? kraftctl cluster"):
            await channel.unary("/t.T/U", b"", timeout_ms=5_000)
        with pytest.raises(BrokerNotAvailableError):
            await channel.stream("/t.T/S").send(b"x")
        await channel.close()
    channel = GrpcConnector().connect(server.address)
    stream = channel.stream("/t.T/S")
    await stream.send(b"x")
    await stream.receive()
    receiving = asyncio.ensure_future(stream.receive())
    await asyncio.sleep(0.01)
    await server.server.stop(0)
    with pytest.raises(NetworkError, match=f"the connection to the broker at {server.address} was lost"):
        await receiving
    await channel.close()


async def test_messages_over_the_limit_are_refused_with_the_limit(server: Server) -> None:
    channel = GrpcConnector(max_message_bytes=1_000).connect(server.address)
    with pytest.raises(KraftlogError, match=r"2000 vs\. 1000"):
        await channel.unary("/t.T/U", b"x" * 2_000, timeout_ms=5_000)
    await channel.close()
