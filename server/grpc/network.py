"""`Network` over grpc.aio: generic handlers that pass bytes through, errors as status and trailing metadata.

An error that a handler raises travels as the gRPC status of its class, its text as details and its code as the
trailing metadata `kraftlog-error-code` (decimal); `kraftlog.sdk.transport` turns them back into the same class.
Channel options stay at their defaults, apart from the size limits: others made no measurable difference.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from kraftlog.proto.errors import KraftlogError, NetworkError, UnknownServerError, code_of
from kraftlog.proto.seams import (
    CallContext,
    Channel,
    Handlers,
    Payload,
    Server,
    StreamHandler,
    UnaryHandler,
)
from kraftlog.sdk.transport import ERROR_CODE_METADATA, MAX_MESSAGE_BYTES, GrpcConnector

logger = logging.getLogger("kraftlog.server.grpc")

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a taken port must fail, not be shared
]
_STATUS = {status.name: status for status in grpc.StatusCode}


class _Context(Protocol):
    """The part of `grpc.aio.ServicerContext` that is used here (grpcio has no types)."""

    def peer(self) -> str: ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    async def read(self) -> Any: ...

    async def write(self, message: bytes, /) -> None: ...

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str], ...] = ()
    ) -> NoReturn: ...


class GrpcNetwork:
    """Channels and listeners over gRPC. Used from one event loop."""

    def __init__(self) -> None:
        self._connector = GrpcConnector()

    def connect(self, address: str) -> Channel:
        """A channel to `host:port`; connects on first use."""
        return self._connector.connect(address)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """Listen on `host:port`. Raises `OSError` (EADDRINUSE) if the address cannot be bound."""
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(_generic_handlers(handlers))
        host, _, port = address.rpartition(":")
        try:
            bound = server.add_insecure_port(f"{host or '[::]'}:{port}")
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: the address is in use or not ours") from error
        await server.start()
        return GrpcServer(server, f"{host or '127.0.0.1'}:{bound}")


class GrpcServer:
    """A running listener."""

    def __init__(self, server: grpc.aio.Server, address: str) -> None:
        self._server = server
        self._address = address

    @property
    def address(self) -> str:
        """The bound `host:port`."""
        return self._address

    async def stop(self, grace_ms: float) -> None:
        """Refuse new calls, wait up to `grace_ms` for running ones, then drop them. May be repeated."""
        await self._server.stop(grace_ms / 1000.0)


def _generic_handlers(handlers: Handlers) -> tuple[grpc.GenericRpcHandler, ...]:
    """One handler per service. Bytes in, bytes out, because no serializer is given."""
    services: dict[str, dict[str, grpc.RpcMethodHandler]] = {}
    for name, unary in handlers.unary.items():
        service, method = _split(name)
        services.setdefault(service, {})[method] = grpc.unary_unary_rpc_method_handler(_unary_method(name, unary))
    for name, stream in handlers.streams.items():
        service, method = _split(name)
        services.setdefault(service, {})[method] = grpc.stream_stream_rpc_method_handler(_stream_method(name, stream))
    return tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items())


def _split(name: str) -> tuple[str, str]:
    """`/package.Service/Method` -> service and method."""
    service, _, method = name.lstrip("/").partition("/")
    return service, method


class GrpcStream:
    """The server's end of a bidirectional stream. One sender and one receiver at a time."""

    def __init__(self, context: _Context) -> None:
        self._context = context

    async def send(self, message: Payload) -> None:
        """Send one message; waits while the peer's window is full."""
        try:
            await self._context.write(join(message))
        except grpc.aio.BaseError as error:
            raise NetworkError(f"the stream of {self._context.peer()} ended: {error}") from error

    async def receive(self) -> bytes | None:
        """The next message, or None when the client finished in order."""
        try:
            message = await self._context.read()
        except grpc.aio.BaseError as error:
            raise NetworkError(f"the stream of {self._context.peer()} ended: {error}") from error
        return message if isinstance(message, bytes) else None  # grpc.aio.EOF

    async def finish(self) -> None:
        """The server's side ends when its handler returns; nothing to say before."""

    def cancel(self) -> None:
        """The handler's end drops the stream; the server has no other way to do it."""


def join(message: Payload) -> bytes:
    """One buffer of a message; pieces are copied once."""
    return message if isinstance(message, bytes) else b"".join(message)


def _unary_method(name: str, handler: UnaryHandler) -> Callable[[bytes, _Context], Awaitable[bytes]]:
    async def call(request: bytes, context: _Context) -> bytes:
        try:
            return join(await handler(request, _call_context(context)))
        except Exception as error:
            await _abort(name, context, error)

    return call


def _stream_method(name: str, handler: StreamHandler) -> Callable[[object, _Context], Awaitable[None]]:
    async def call(_requests: object, context: _Context) -> None:
        try:
            await handler(GrpcStream(context), _call_context(context))
        except Exception as error:
            await _abort(name, context, error)

    return call


def _call_context(context: _Context) -> CallContext:
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    return CallContext(peer=context.peer(), metadata=metadata)


async def _abort(name: str, context: _Context, error: Exception) -> NoReturn:
    """End the call with an error; what kraftlog did not raise on purpose is logged once, with its traceback."""
    if not isinstance(error, KraftlogError):
        logger.error("%s from %s failed", name, context.peer(), exc_info=error)
        error = UnknownServerError(f"{name} failed on the server: see its log ({type(error).__name__})")
    await context.abort(
        _STATUS[error.grpc_status],
        error.message,
        trailing_metadata=((ERROR_CODE_METADATA, str(int(code_of(error)))),),
    )
