"""The network seam over gRPC's asyncio stack: the only module of the SDK that imports grpc.

Payloads are opaque bytes (the messages are encoded by their owners), so the stubs use no serializers. A channel is
made on first use and belongs to one process and one event loop: after a fork the child makes its own. Calls are never
cancelled to end a wait (grpc.aio leaks then): long polls end by the broker's deadline, streams by `finish`.

Errors come back as the classes of `kraftlog.proto.errors`. A handler's error travels in the trailing metadata
`kraftlog-error-code` (decimal) with its text in the status details; all else is gRPC's own status and is mapped here.
"""

import asyncio
import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

# gRPC's fork handlers restart its threads in every child, also in one that is about to exec; where that child then closes
# its files (subprocess does, as PySpark's start of the JVM) such a thread aborts it. `background` closes all channels
# before a fork, which is what a child that goes on needs, so the handlers stay off unless the user wants them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import grpc
import grpc.aio

from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    ErrorCode,
    InvalidRequestError,
    KraftlogError,
    NetworkError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
    error_for,
)
from kraftlog.proto.seams import Channel, Payload, Stream
from kraftlog.sdk.failures import again
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.sdk.tls_probe import certified_name, refusal

T = TypeVar("T")

ERROR_CODE_METADATA = "kraftlog-error-code"
MAX_MESSAGE_BYTES = 68 * 1024 * 1024  # a produce window (64 MiB) or a fetch answer (50 MiB) with its framing
INITIAL_RECONNECT_BACKOFF_MS = 50  # gRPC's own 1 s would double the outage of a restarted node
MAX_RECONNECT_BACKOFF_MS = 1_000
CONNECT_TIMEOUT_MS = 5_000  # of one attempt; an address that swallows packets fails after this


POLLER_THREAD = "_poll_wrapper"  # in the name of the thread that grpc.aio runs while it has channels or calls
NATIVE_THREADS = ("event_engine", "grpc_", "lifeguard", "timer_")  # how those of gRPC's core begin

_channels: "weakref.WeakSet[GrpcChannel]" = weakref.WeakSet()
_streams: "weakref.WeakSet[GrpcStream]" = weakref.WeakSet()
_quiet: set[tuple[int, int]] = set()
"""Loops that must not connect: (pid, id of the loop)."""


class GrpcConnector:
    """Makes gRPC channels. Safe from any thread; the channels belong to the loop that uses them."""

    def __init__(self, *, max_message_bytes: int = MAX_MESSAGE_BYTES, security: TlsSecurity | None = None) -> None:
        self._max_message_bytes = max_message_bytes
        self._security = security

    def connect(self, address: str) -> Channel:
        return GrpcChannel(address, max_message_bytes=self._max_message_bytes, security=self._security)


class GrpcChannel:
    """A lazily connected gRPC channel to one address, made anew in each process and on each loop.

    With TLS and without a check of host names, the name in the broker's certificate is found out before the first call, and
    again after a connection failed: the broker may have got another certificate.
    """

    def __init__(
        self, address: str, *, max_message_bytes: int = MAX_MESSAGE_BYTES, security: TlsSecurity | None = None
    ) -> None:
        self.address = address
        self._options = _options(max_message_bytes)
        self._security = security
        self._needs_name = security is not None and not security.check_hostname
        self._name: str | None = None
        self._channel: grpc.aio.Channel | None = None
        self._owner: tuple[int, int] | None = None
        self._stubs: dict[str, Callable[..., Awaitable[Any]]] = {}
        _channels.add(self)

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        if self._needs_name:
            await self._find_name(timeout_ms / 1000)
        channel = self._open()
        call = self._stubs.get(method)
        if call is None:
            call = self._stubs[method] = channel.unary_unary(method)
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            answer: bytes = await call(_joined(request), timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            mapped = _mapped(error, self.address, method, timeout_ms)
            raise await self.explained(mapped, deadline - time.monotonic()) from None
        except grpc.aio.UsageError as error:
            raise NetworkError(f"the channel to {self.address} is closed ({error})") from None
        except asyncio.CancelledError:
            if _is_task_cancelled():
                raise
            raise NetworkError(f"the channel to {self.address} was closed during {method}") from None
        return answer

    def stream(self, method: str) -> Stream:
        if self._needs_name and self._name is None:
            return _LaterStream(lambda: self._stream_with_name(method), method, self.address)
        return self._stream(method)

    async def explained(self, error: KraftlogError, within_s: float) -> KraftlogError:
        """A failure to connect as an error that says what is wrong with the security of it, if that is the reason and comes
        out in time."""
        if not isinstance(error, BrokerNotAvailableError) or not _may_be_security(error.message):
            return error
        self._name = None
        return await refusal(self.address, self._security, within_s) or error

    async def close(self) -> None:
        channel, owner = self._channel, self._owner
        self._channel = None
        self._stubs.clear()
        if channel is not None and owner == _here():
            await channel.close()

    def _stream(self, method: str) -> "GrpcStream":
        try:
            call = self._open().stream_stream(method)()
        except grpc.aio.UsageError as error:
            raise NetworkError(f"the channel to {self.address} is closed ({error})") from None
        return GrpcStream(call, self, method)

    async def _stream_with_name(self, method: str) -> Stream:
        await self._find_name(CONNECT_TIMEOUT_MS / 1000)
        return self._stream(method)

    async def _find_name(self, timeout_s: float) -> None:
        """The name to be found in the broker's certificate, for gRPC to check."""
        if self._name is None:
            assert self._security is not None
            self._check_not_quiet(_here())
            name = await certified_name(self.address, self._security, timeout_s)
            if self._name is None:  # no other call has found it meanwhile
                self._name = name
                await self.close()  # what was connected with another name

    def _check_not_quiet(self, here: tuple[int, int]) -> None:
        if here in _quiet:
            raise NetworkError(f"not connecting to {self.address}: the process is about to fork")

    def _open(self) -> grpc.aio.Channel:
        here = _here()
        self._check_not_quiet(here)
        if self._channel is None or self._owner != here:
            self._stubs.clear()
            self._owner = here
            if self._security is None:
                self._channel = grpc.aio.insecure_channel(self.address, options=self._options)
            else:
                name = [] if self._name is None else [("grpc.ssl_target_name_override", self._name)]
                self._channel = grpc.aio.secure_channel(
                    self.address, _credentials(self._security), options=[*self._options, *name]
                )
        return self._channel


class GrpcStream:
    """One bidirectional call. Used from one loop, with one sender and one receiver at a time."""

    def __init__(self, call: Any, channel: GrpcChannel, method: str) -> None:
        self._call = call
        """None after `cancel`: whoever keeps the stream must not keep gRPC's objects alive."""
        self._channel = channel
        self._address = channel.address
        self._error: KraftlogError | None = None
        """Why the call ended, once that is known: every further step says the same."""
        self._method = method
        self.owner = _here()
        _streams.add(self)

    async def send(self, message: Payload) -> None:
        if self._call is None:
            raise self._dropped()
        await self._guard(self._call.write(_joined(message)))

    async def receive(self) -> bytes | None:
        call = self._call
        if call is None:
            raise self._dropped()
        message: Any = await self._guard(call.read())
        if message is not grpc.aio.EOF:  # pyright: ignore[reportAttributeAccessIssue]  # in compiled code
            answer: bytes = message
            return answer
        code = await self._guard(call.code())
        if code is grpc.StatusCode.OK:
            return None
        raise await self._failure()

    async def finish(self) -> None:
        if self._call is not None and not self._call.done():
            await self._guard(self._call.done_writing())

    def cancel(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    async def _guard(self, step: Awaitable[T]) -> T:
        """Run one step of the call and map its failure.

        grpc.aio raises CancelledError both for a call dropped by us and for a cancelled task; only the second may pass.
        """
        try:
            return await step
        except grpc.aio.AioRpcError as error:
            raise await self._explained(_mapped(error, self._address, self._method, None)) from None
        except asyncio.InvalidStateError:  # writing to a call that has ended
            raise await self._failure() from None
        except asyncio.CancelledError:
            if _is_task_cancelled():
                raise
            raise await self._failure() from None

    def _dropped(self) -> KraftlogError:
        return NetworkError(f"the stream {self._method} to {self._address} was dropped")

    async def _failure(self) -> KraftlogError:
        """Why the call ended, as an error of ours."""
        call = self._call
        if call is None:
            return self._dropped()
        code = await call.code()
        details = await call.details()
        metadata = await call.trailing_metadata()
        if code is grpc.StatusCode.OK:
            return NetworkError(f"the broker at {self._address} ended the stream {self._method}")
        return await self._explained(_error_of(code, details or "", metadata, self._address, self._method, None))

    async def _explained(self, error: KraftlogError) -> KraftlogError:
        if self._error is None:
            self._error = await self._channel.explained(error, CONNECT_TIMEOUT_MS / 1000)
        return again(self._error)


class _LaterStream:
    """A stream that opens with its first use, because something must be waited for before."""

    def __init__(self, opening: Callable[[], Awaitable[Stream]], method: str, address: str) -> None:
        self._opening = opening
        self._stream: Stream | None = None
        self._lock = asyncio.Lock()  # the sender and the receiver may both be first
        self._is_cancelled = False
        self._dropped = f"the stream {method} to {address} was dropped"

    async def send(self, message: Payload) -> None:
        await (await self._opened()).send(message)

    async def receive(self) -> bytes | None:
        return await (await self._opened()).receive()

    async def finish(self) -> None:
        if not self._is_cancelled:
            await (await self._opened()).finish()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._stream is not None:
            self._stream.cancel()

    async def _opened(self) -> Stream:
        async with self._lock:
            if self._stream is None and not self._is_cancelled:
                self._stream = await self._opening()
            if self._stream is None or self._is_cancelled:
                self.cancel()
                raise NetworkError(self._dropped)
            return self._stream


async def quiet_this_loop(timeout_s: float) -> bool:
    """Close every channel of the running loop, and open none until `resume_this_loop`. For forking.

    gRPC can be used in a child only if none of its threads run at the moment of the fork; asyncio's one ends when the
    last channel and call object are gone, which takes some turns of the loop, and its own ones after that. Returns whether
    all have ended within `timeout_s`; they do not if another loop of the process uses gRPC too.
    """
    here = _here()
    _quiet.add(here)
    deadline = time.monotonic() + timeout_s
    for stream in [stream for stream in _streams if stream.owner == here]:
        stream.cancel()
    for channel in [channel for channel in _channels if channel._owner == here]:
        await channel.close()
    while any(POLLER_THREAD in thread.name for thread in threading.enumerate()) or native_threads():
        if time.monotonic() > deadline:
            return False
        gc.collect()  # calls and their callbacks refer to each other
        await asyncio.sleep(0.001)
    return True


def native_threads() -> list[str]:
    """The names of gRPC's own threads in this process. Only Linux tells."""
    names: list[str] = []
    for task in _tasks():
        with (
            contextlib.suppress(OSError),
            open(f"/proc/self/task/{task}/comm", encoding="utf-8") as comm,
        ):  # else it has ended
            names.append(comm.read().strip())
    return [name for name in names if name.startswith(NATIVE_THREADS)]


def _tasks() -> list[str]:
    try:
        return os.listdir("/proc/self/task")
    except OSError:
        return []


def resume_this_loop() -> None:
    """Connect again from the next call on."""
    _quiet.discard(_here())


def _is_task_cancelled() -> bool:
    """Whether the running task itself is being cancelled, and not only a call that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _here() -> tuple[int, int]:
    return os.getpid(), id(asyncio.get_running_loop())


def _joined(payload: Payload) -> bytes:
    return payload if isinstance(payload, bytes) else b"".join(payload)


def _options(max_message_bytes: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.initial_reconnect_backoff_ms", INITIAL_RECONNECT_BACKOFF_MS),
        ("grpc.max_reconnect_backoff_ms", MAX_RECONNECT_BACKOFF_MS),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),  # gRPC's name for the time-out of one attempt
        ("grpc.enable_http_proxy", 0),  # brokers are reached directly, whatever the environment says
    ]


def _mapped(error: grpc.aio.AioRpcError, address: str, method: str, timeout_ms: float | None) -> KraftlogError:
    return _error_of(error.code(), error.details() or "", error.trailing_metadata(), address, method, timeout_ms)


def _error_of(
    status: grpc.StatusCode, details: str, metadata: Any, address: str, method: str, timeout_ms: float | None
) -> KraftlogError:
    code = _error_code(metadata)
    if code is not None:
        return error_for(code, details)
    match status:
        case grpc.StatusCode.UNAVAILABLE if _never_connected(details):
            return BrokerNotAvailableError(
                f"cannot reach the broker at {address} ({_short(details)}): is the cluster running? "
                "kraftctl cluster status"
            )
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return NetworkError(f"the connection to the broker at {address} was lost ({_short(details)})")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            limit = "" if timeout_ms is None else f" within {timeout_ms:.0f} ms"
            return RequestTimedOutError(f"the broker at {address} did not answer {method}{limit}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return InvalidRequestError(f"{method} to {address}: {_short(details)}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedVersionError(
                f"the broker at {address} does not know {method}: is another service at this address?"
            )
        case _:
            return UnknownServerError(f"{method} to {address} failed: {status.name}: {_short(details)}")


def _error_code(metadata: Any) -> int | None:
    for key, value in metadata or ():
        if key == ERROR_CODE_METADATA:
            try:
                code = int(value)
            except ValueError:
                return int(ErrorCode.UNKNOWN_SERVER_ERROR)
            return code if code != 0 else None
    return None


def _never_connected(details: str) -> bool:
    lowered = details.lower()
    return any(text in lowered for text in ("connect to", "resolv", "name resolution", "connections to all"))


def _may_be_security(text: str) -> bool:
    """Whether gRPC's words for a failed connection fit a refused one; it has the same for others."""
    lowered = text.lower()
    return any(word in lowered for word in ("closed", "reset", "pipe", "handshake", "verification", "tls"))


def _credentials(security: TlsSecurity) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(security.trusted, security.private_key, security.certificate_chain)


def _short(details: str, limit: int = 200) -> str:
    line = " ".join(details.split())
    return line if len(line) <= limit else line[:limit] + "..."
