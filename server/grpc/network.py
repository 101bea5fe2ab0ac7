"""`Network` over grpc.aio: generic handlers that pass bytes through, errors as status and trailing metadata.

An error that a handler raises travels as the gRPC status of its class, its text as details and its code as the
trailing metadata `kraftlog-error-code` (decimal); `kraftlog.sdk.transport` turns them back into the same class.
Channel options stay at their defaults, apart from the size limits: others made no measurable difference.
"""

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from kraftlog.proto.errors import IllegalStateError, KraftlogError, NetworkError, UnknownServerError, code_of
from kraftlog.proto.seams import (
    CallContext,
    Channel,
    Handlers,
    Network,
    Payload,
    Server,
    StreamHandler,
    UnaryHandler,
)
from kraftlog.proto.security import ANONYMOUS, Principal, Security
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.sdk.transport import ERROR_CODE_METADATA, MAX_MESSAGE_BYTES, GrpcConnector

logger = logging.getLogger("kraftlog.server.grpc")
_grpc_logger = logging.getLogger("grpc._cython.cygrpc")

_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a taken port must fail, not be shared
]
_STATUS = {status.name: status for status in grpc.StatusCode}


class _Context(Protocol):
    """The part of `grpc.aio.ServicerContext` that is used here (grpcio has no types)."""

    def peer(self) -> str: ...

    def auth_context(self) -> Mapping[str, Sequence[bytes]]: ...

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    async def read(self) -> Any: ...

    async def write(self, message: bytes, /) -> None: ...

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str], ...] = ()
    ) -> NoReturn: ...


class GrpcNetwork:
    """Channels and listeners over gRPC, with TLS if there is a `security`. Used from one event loop."""

    def __init__(self, security: TlsSecurity | None = None) -> None:
        self._security = security
        self._connector = GrpcConnector(security=security)

    def connect(self, address: str) -> Channel:
        """A channel to `host:port`; connects on first use."""
        return self._connector.connect(address)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """Listen on `host:port`. Raises `OSError` (EADDRINUSE) if the address cannot be bound."""
        _grpc_logger.addFilter(_says_more_than_that_a_client_is_gone)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers(_generic_handlers(handlers))
        host, _, port = address.rpartition(":")
        try:
            bound = self._add_port(server, f"{host or '[::]'}:{port}")
        except RuntimeError as error:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: the address is in use or not ours") from error
        await server.start()
        return GrpcServer(server, f"{host or '127.0.0.1'}:{bound}")

    def secured(self, security: Security) -> Network:
        """The same with TLS."""
        if not isinstance(security, TlsSecurity):
            raise IllegalStateError(f"gRPC cannot be secured with {type(security).__name__}")
        return GrpcNetwork(security)

    def _add_port(self, server: grpc.aio.Server, address: str) -> int:
        security = self._security
        if security is None:
            return int(server.add_insecure_port(address))
        if security.private_key is None or security.certificate_chain is None:
            raise IllegalStateError(f"a secured listener on {address} needs a key and a certificate")
        credentials = grpc.ssl_server_credentials(
            [(security.private_key, security.certificate_chain)],
            root_certificates=security.trusted,
            require_client_auth=security.require_client_certificate,
        )
        return int(server.add_secure_port(address, credentials))


def _says_more_than_that_a_client_is_gone(record: logging.LogRecord) -> bool:
    """grpc.aio reports two things as errors of the server, with a traceback, that a busy one meets when connections break: an
    answer that cannot be sent to a client of which it has not heard yet that it is gone, and a call that was cancelled
    before its handler began."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, asyncio.CancelledError) and type(error).__name__ != "ExecuteBatchError":
        return True
    logger.debug("the client is gone: %s", record.getMessage())
    return False


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
    return CallContext(peer=context.peer(), principal=_principal(context.auth_context()), metadata=metadata)


def _principal(proved: Mapping[str, Sequence[bytes]]) -> Principal:
    """Who the peer's certificate, which gRPC has checked, is for; ANONYMOUS where none was asked for."""
    subject = proved.get("x509_subject")
    if not subject:
        return ANONYMOUS
    names = proved.get("x509_subject_alternative_name", ())
    return Principal(subject[0].decode("utf-8", "replace"), tuple(name.decode("utf-8", "replace") for name in names))


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
