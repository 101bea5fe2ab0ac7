"""The network seam in memory: hosts, connections, unary calls and streams with latency, windows and failures.

Semantics are those of the gRPC transport, so that one test class runs on both:

- messages of one direction of one stream arrive in order; streams of one connection do not order each other;
- a sender waits while the bytes that its peer has not yet read fill the window;
- what a handler raises arrives after the messages that it sent; an error that is not a `KraftlogError` arrives as
  `UnknownServerError`, an unknown method as `UnsupportedVersionError`;
- a client that cancels, misses its deadline or loses its connection makes the server cancel the handler;
- nobody listens: `BrokerNotAvailableError`; the connection was lost: `NetworkError`, and whether the call took effect is
  unknown; the deadline passed: `RequestTimedOutError`.

Faults: `crash` a host (its peers see their connections break), `break_connections` between two hosts (a random prefix of
what is in flight still arrives), `partition` two hosts one or both ways (what is in flight waits, as TCP retransmits, and
arrives after `heal`; new connections time out). All delays and choices come from one random stream.

Taps see every message when it is sent; what they do must not depend on anything but the message.
"""

import asyncio
import contextvars
import errno
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    KraftlogError,
    NetworkError,
    RequestTimedOutError,
    UnknownServerError,
    UnsupportedVersionError,
    code_of,
    error_for,
)
from kraftlog.proto.seams import CallContext, Channel, Handlers, Network, Payload, Server, Stream
from kraftlog.proto.security import Security
from kraftlog.testing.loop import VirtualLoop, current_process

logger = logging.getLogger("kraftlog.testing.network")

PAUSE_PROBABILITY = 0.2
FIRST_PORT = 20_000  # what a listener on port 0 gets; counts up


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """How the links behave while they are whole."""

    latency_ms: tuple[float, float] = (0.05, 1.5)
    """One way, drawn evenly for each message."""
    spike_probability: float = 0.01
    """How often a message takes `spike_ms` longer."""
    spike_ms: tuple[float, float] = (5.0, 150.0)
    window_bytes: int = 256 * 1024
    """What a sender may have under way in one direction of one stream; one larger message may pass alone."""
    connect_timeout_ms: float = 2_000.0
    """After this an attempt to connect through a partition fails."""


class Tap(Protocol):
    """Sees each message of a call as its sender sends it."""

    def __call__(
        self, source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int
    ) -> None:
        """`call_id` numbers the calls of the network."""
        ...


class SimNetwork:
    """All hosts and what runs between them. Used from one virtual loop."""

    def __init__(self, loop: VirtualLoop, randomness: random.Random, config: LinkConfig | None = None) -> None:
        self.loop = loop
        self.config = config or LinkConfig()
        self.taps: list[Tap] = []
        self.on_event: Callable[[str], None] | None = None
        """Told in one line about connections, calls and faults; for traces."""
        self._random = randomness
        self._context = contextvars.Context()  # deliveries belong to no process
        self._listeners: dict[str, SimServer] = {}
        self._connections: dict[_Connection, None] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._held: dict[tuple[str, str], dict[_Pipe, None]] = {}
        self._next_port = FIRST_PORT
        self._next_call_id = 0

    def host(self, name: str) -> "SimHost":
        """The network as the host `name` sees it."""
        return SimHost(self, name)

    # --- faults

    def crash(self, host: str) -> None:
        """The host's processes died: its listeners vanish and its peers see their connections break."""
        self._note(f"crash {host}")
        for address, server in list(self._listeners.items()):
            if server.host == host:
                del self._listeners[address]
        self._break(lambda connection: host in (connection.client, connection.server.host))

    def break_connections(self, one: str, other: str) -> int:
        """Break what runs between two hosts; they may connect again at once. Returns how many connections broke."""
        self._note(f"break {one} {other}")
        return self._break(lambda connection: {connection.client, connection.server.host} == {one, other})

    def partition(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Hold all that `source` sends to `target` (and back) until `heal`."""
        self._note(f"partition {source} {'<>' if both_ways else '>'} {target}")
        self._blocked.add((source, target))
        if both_ways:
            self._blocked.add((target, source))

    def heal(self) -> None:
        """End all partitions; what they held arrives."""
        self._note("heal")
        self._blocked.clear()
        held, self._held = self._held, {}
        for pipes in held.values():
            for pipe in pipes:
                pipe.resume(self.draw_latency())

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether a partition holds what `source` sends to `target`."""
        return (source, target) in self._blocked

    def _break(self, matches: Callable[["_Connection"], bool]) -> int:
        broken = [connection for connection in self._connections if matches(connection)]
        for connection in broken:
            connection.break_off()
        return len(broken)

    # --- used by the other classes of this module

    def draw_latency(self) -> float:
        """Seconds that one message takes."""
        latency_ms = self._random.uniform(*self.config.latency_ms)
        if self._random.random() < self.config.spike_probability:
            latency_ms += self._random.uniform(*self.config.spike_ms)
        return latency_ms / 1000

    def draw_pause(self) -> bool:
        """Whether a sender that need not wait lets others run before it goes on."""
        return self._random.random() < PAUSE_PROBABILITY

    def draw_survivors(self, count: int) -> int:
        """How many of `count` messages in flight still arrive when their connection breaks."""
        return self._random.randint(0, count)

    def later(self, delay: float, callback: Callable[[], object]) -> None:
        """Run `callback` in no process: no crash takes it away."""
        self.loop.call_later(delay, callback, context=self._context)

    def hold(self, pipe: "_Pipe") -> None:
        """A partition keeps this pipe's messages until `heal`."""
        self._held.setdefault((pipe.source, pipe.target), {})[pipe] = None

    def next_call_id(self) -> int:
        self._next_call_id += 1
        return self._next_call_id

    def tap(self, pipe: "_Pipe", message: bytes) -> None:
        for tap in self.taps:
            tap(
                pipe.source,
                pipe.target,
                pipe.method,
                is_request=pipe.is_request,
                message=message,
                call_id=pipe.call_id,
            )

    def listen(self, host: str, address: str, handlers: Handlers) -> "SimServer":
        name, _, port = address.rpartition(":")
        name = name or host
        if int(port) == 0:
            self._next_port += 1
            address = f"{name}:{self._next_port}"
        if address in self._listeners:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}: the address is in use")
        self._note(f"listen {host} {address}")
        server = self._listeners[address] = SimServer(self, host, address, handlers)
        return server

    def unlisten(self, server: "SimServer") -> None:
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    def close_connections_of(self, server: "SimServer") -> None:
        """In order: what is in flight arrives first."""
        for connection in [connection for connection in self._connections if connection.server is server]:
            connection.break_off(is_in_order=True)

    async def connect(self, client: str, address: str) -> "_Connection":
        """One handshake. Raises `BrokerNotAvailableError` if nobody listens or nothing comes through."""
        await asyncio.sleep(self.draw_latency() + self.draw_latency())
        server = self._listeners.get(address)
        if server is None:
            raise BrokerNotAvailableError(f"cannot reach the broker at {address}: connection refused")
        if self.is_blocked(client, server.host) or self.is_blocked(server.host, client):
            await asyncio.sleep(self.config.connect_timeout_ms / 1000)
            raise BrokerNotAvailableError(f"cannot reach the broker at {address}: the attempt timed out")
        connection = _Connection(self, client, server)
        self._connections[connection] = None
        self._note(f"connect {client} {address}")
        return connection

    def forget(self, connection: "_Connection") -> None:
        self._connections.pop(connection, None)

    def _note(self, line: str) -> None:
        if self.on_event is not None:
            self.on_event(line)


class SimHost:
    """`kraftlog.proto.seams.Network` of one host."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name

    def connect(self, address: str) -> Channel:
        return SimChannel(self.network, self.name, address)

    async def serve(self, address: str, handlers: Handlers) -> Server:
        return self.network.listen(self.name, address, handlers)

    def secured(self, security: Security) -> Network:
        """This network: nobody listens in."""
        return self


class SimServer:
    """A listener. Its handlers run as tasks of the process that called `serve`."""

    def __init__(self, network: SimNetwork, host: str, address: str, handlers: Handlers) -> None:
        self.network = network
        self.host = host
        self.handlers = handlers
        self.process = current_process()
        self._address = address
        self._calls: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> str:
        return self._address

    async def stop(self, grace_ms: float) -> None:
        self.network.unlisten(self)
        if self._calls and grace_ms > 0:
            await asyncio.wait(list(self._calls), timeout=grace_ms / 1000)
        running = list(self._calls)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._calls.clear()
        self.network.close_connections_of(self)

    def start(self, call: "_Call") -> None:
        """Run the handler of an arriving call."""
        context = self.process.context() if self.process is not None else contextvars.Context()
        task = self.network.loop.create_task(self._answer(call), name=f"call {call.method}", context=context)
        call.handler = task
        self._calls[task] = None

    async def _answer(self, call: "_Call") -> None:
        try:
            await self._handle(call)
        except Exception as error:
            if not isinstance(error, KraftlogError):
                logger.error("%s from %s failed", call.method, call.connection.client, exc_info=error)
                error = UnknownServerError(f"{call.method} failed on the server: see its log ({type(error).__name__})")
            call.responses.push_end(error)
        except asyncio.CancelledError:
            call.responses.push_end(NetworkError(f"{call.method} was cancelled by the server"))
            raise
        else:
            call.responses.push_end(None)
        finally:
            call.requests.discard()
            if call.handler is not None:
                self._calls.pop(call.handler, None)
                call.handler = None  # the task, which holds this call

    async def _handle(self, call: "_Call") -> None:
        context = CallContext(peer=f"sim:{call.connection.client}")
        stream_handler = self.handlers.streams.get(call.method)
        if stream_handler is not None:
            await stream_handler(_ServerStream(call), context)
            return
        unary_handler = self.handlers.unary.get(call.method)
        if unary_handler is None:
            raise UnsupportedVersionError(
                f"the broker at {self.address} does not know {call.method}: is another service at this address?"
            )
        request = await call.requests.receive()
        if request is not None:
            await call.responses.send(_joined(await unary_handler(request, context)))


class SimChannel:
    """A lazily connected client of one address."""

    def __init__(self, network: SimNetwork, client: str, address: str) -> None:
        self.address = address
        self._network = network
        self._client = client
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[_Connection] | None = None
        self._streams: dict[SimStream, None] = {}
        self._is_closed = False

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        stream = SimStream(self, method, is_unary=True)
        message = _joined(request)
        scope = asyncio.timeout(timeout_ms / 1000)
        try:
            async with scope:
                await stream.send(message)
                await stream.finish()
                answer = await stream.receive()
                await stream.receive()  # the end, with the call's status
        except TimeoutError:
            if not scope.expired():
                raise
            raise RequestTimedOutError(
                f"the broker at {self.address} did not answer {method} within {timeout_ms:.0f} ms"
            ) from None
        finally:
            stream.cancel()
        if answer is None:
            raise UnknownServerError(f"{method} to {self.address} ended without an answer")
        return answer

    def stream(self, method: str) -> Stream:
        return SimStream(self, method)

    async def close(self) -> None:
        self._is_closed = True
        for stream in list(self._streams):
            stream.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def open_call(self, stream: "SimStream", method: str) -> "_Call":
        """Connect if need be and start a call on the connection."""
        if self._is_closed:
            raise NetworkError(f"the channel to {self.address} is closed")
        self._streams[stream] = None
        connection = self._connection
        if connection is None or connection.is_broken:
            connection = await self._connect()
        return connection.open_call(method)

    def forget(self, stream: "SimStream") -> None:
        self._streams.pop(stream, None)

    async def _connect(self) -> "_Connection":
        """All calls that wait for a connection share one attempt."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.get_running_loop().create_task(
                self._network.connect(self._client, self.address), name=f"connect {self.address}"
            )
            self._connecting.add_done_callback(_retrieve)
        attempt = self._connecting
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise NetworkError(f"the channel to {self.address} is closed")
        self._connection = attempt.result()
        return self._connection


class SimStream:
    """The client's end of a call. One sender and one receiver at a time."""

    def __init__(self, channel: SimChannel, method: str, *, is_unary: bool = False) -> None:
        self._channel = channel
        self._method = method
        self._is_unary = is_unary
        self._call: _Call | None = None
        self._opening: asyncio.Lock | None = None
        self._is_cancelled = False

    async def send(self, message: Payload) -> None:
        call = await self._open()
        await call.requests.send(_joined(message))

    async def receive(self) -> bytes | None:
        call = await self._open()
        try:
            message = await call.responses.receive()
        except KraftlogError:
            self._channel.forget(self)
            raise
        if message is None:
            self._channel.forget(self)
        return message

    async def finish(self) -> None:
        if not self._is_cancelled:
            call = await self._open()
            call.requests.push_end(None)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._channel.forget(self)
        if self._call is not None:
            self._call.cancel_by_client(self._dropped())

    async def _open(self) -> "_Call":
        if self._is_cancelled:
            raise self._dropped()
        if self._call is None:
            self._opening = self._opening or asyncio.Lock()
            async with self._opening:
                if self._call is None:
                    call = await self._channel.open_call(self, self._method)
                    if self._is_cancelled:
                        call.cancel_by_client(self._dropped())
                        raise self._dropped()
                    self._call = call
        return self._call

    def _dropped(self) -> NetworkError:
        return NetworkError(f"the stream {self._method} to {self._channel.address} was dropped")


class _ServerStream:
    """The server's end of a stream call."""

    def __init__(self, call: "_Call") -> None:
        self._call = call

    async def send(self, message: Payload) -> None:
        await self._call.responses.send(_joined(message))

    async def receive(self) -> bytes | None:
        return await self._call.requests.receive()

    async def finish(self) -> None:
        """The server's side ends when its handler returns; nothing to say before."""

    def cancel(self) -> None:
        """The handler's end drops the stream; the server has no other way to do it."""


class _Connection:
    """Between one channel and one listener; carries calls."""

    def __init__(self, network: SimNetwork, client: str, server: SimServer) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.is_broken = False
        self.calls: dict[_Call, None] = {}

    def open_call(self, method: str) -> "_Call":
        call = _Call(self, method)
        self.calls[call] = None
        return call

    def break_off(self, *, is_in_order: bool = False) -> None:
        """The connection is lost for both sides: a prefix of each pipe arrives (all of it, if in order), then the error."""
        self._end(lambda call: call.break_off(self._lost(), is_in_order=is_in_order))

    def close(self) -> None:
        """The client closes the connection: its calls are dropped."""
        self._end(lambda call: call.cancel_by_client(self._lost()))

    def _end(self, end: Callable[["_Call"], None]) -> None:
        self.is_broken = True
        self.network.forget(self)
        for call in list(self.calls):
            end(call)
        self.calls.clear()

    def _lost(self) -> NetworkError:
        return NetworkError(f"the connection to the broker at {self.server.address} was lost")


class _Call:
    """One call on a connection: two pipes, and the handler's task once the call has arrived."""

    def __init__(self, connection: _Connection, method: str) -> None:
        network, client, server = connection.network, connection.client, connection.server.host
        self.connection = connection
        self.method = method
        self.call_id = network.next_call_id()
        self.handler: asyncio.Task[None] | None = None
        self.requests = _Pipe(network, client, server, method, self.call_id, is_request=True)
        self.responses = _Pipe(network, server, client, method, self.call_id, is_request=False)
        self.responses.on_end_delivered = self._ended
        self._is_over = False
        self.requests.push_open(self._arrived)

    def _arrived(self) -> None:
        if not self._is_over:
            self.connection.server.start(self)

    def _ended(self, error: KraftlogError | None) -> None:
        """The client has the call's end: what it still sends goes nowhere."""
        self._over()
        address = self.connection.server.address
        self.requests.fail(error or NetworkError(f"the broker at {address} ended the stream {self.method}"))

    def cancel_by_client(self, error: KraftlogError) -> None:
        if self._is_over:
            return
        self._over()
        self.requests.fail(error)
        self.responses.fail(error)
        self.connection.network.later(self.connection.network.draw_latency(), self._cancel_handler)

    def break_off(self, error: KraftlogError, *, is_in_order: bool) -> None:
        if self._is_over:
            return
        self._over()
        network = self.connection.network
        self.requests.break_off(error, is_in_order=is_in_order)
        self.responses.break_off(error, is_in_order=is_in_order)
        network.later(network.draw_latency(), self._cancel_handler)

    def _over(self) -> None:
        self._is_over = True
        self.connection.calls.pop(self, None)

    def _cancel_handler(self) -> None:
        self.responses.fail(NetworkError(f"the stream {self.method} of {self.connection.client} ended"))
        if self.handler is not None:
            self.handler.cancel()


class _Pipe:
    """One direction of one call: messages in flight, messages arrived, and how it ends.

    Invariant: `_unread_bytes` is the size of all messages in flight or arrived and not yet received.
    """

    def __init__(
        self, network: SimNetwork, source: str, target: str, method: str, call_id: int, *, is_request: bool
    ) -> None:
        self.source = source
        self.target = target
        self.method = method
        self.call_id = call_id
        self.is_request = is_request
        self.on_end_delivered: Callable[[KraftlogError | None], None] | None = None
        self._network = network
        self._in_flight: deque[tuple[float, Callable[[], None]]] = deque()
        self._arrived: deque[bytes] = deque()
        self._unread_bytes = 0
        self._is_pumping = False
        self._opened_at = -1.0
        self._end_sent = False
        self._discarded = False
        self._end: tuple[KraftlogError | None] | None = None  # after `_arrived`: (None,) in order, (error,) else
        self._failed: KraftlogError | None = None  # at once, for both ends
        self._broken: KraftlogError | None = None  # at once for the sender; the reader first gets what arrived
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    # --- the sender's end

    async def send(self, message: bytes) -> None:
        while True:
            if self._failed is not None:
                raise _copy(self._failed)
            if self._broken is not None:
                raise _copy(self._broken)
            if self._end_sent:
                raise NetworkError("a message was sent after the end of the stream")
            if self._unread_bytes == 0 or self._unread_bytes + len(message) <= self._network.config.window_bytes:
                break
            assert self._writer is None, "one sender at a time"
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        self._unread_bytes += len(message)
        self._network.tap(self, message)
        self._push(lambda: self._arrive(message), with_previous=self._opened_at == self._network.loop.now)
        if self._network.draw_pause():
            await asyncio.sleep(0)

    def push_open(self, arrived: Callable[[], None]) -> None:
        """The call itself travels first, in one packet with a message that is sent at once."""
        self._push(arrived)
        self._opened_at = self._network.loop.now

    def push_end(self, error: KraftlogError | None) -> None:
        """After what was sent, the reader sees the end (or the error, as the receiver's copy)."""
        if self._end_sent or self._failed is not None:
            return
        self._end_sent = True
        self._push(lambda: self._arrive_end(error), with_previous=True)

    def discard(self) -> None:
        """The reader is gone: what arrives is dropped."""
        self._discarded = True
        while self._arrived:
            self._unread_bytes -= len(self._arrived.popleft())
        _wake(self._writer)

    # --- the reader's end

    async def receive(self) -> bytes | None:
        while not self._arrived:
            if self._failed is not None:
                raise _copy(self._failed)
            if self._end is not None:
                if self._end[0] is None:
                    return None
                raise _copy(self._end[0])
            assert self._reader is None, "one receiver at a time"
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        message = self._arrived.popleft()
        self._unread_bytes -= len(message)
        _wake(self._writer)
        return message

    # --- faults

    def fail(self, error: KraftlogError) -> None:
        """Both ends fail at once; what is in flight is lost."""
        if self._failed is None:
            self._failed = error
        self._in_flight.clear()
        self._arrived.clear()
        _wake(self._reader)
        _wake(self._writer)

    def break_off(self, error: KraftlogError, *, is_in_order: bool) -> None:
        """A prefix of what is in flight arrives (all of it, if in order), then the reader sees `error`; the sender fails at
        once."""
        count = len(self._in_flight) if is_in_order else self._network.draw_survivors(len(self._in_flight))
        if self._network.is_blocked(self.source, self.target):
            count = 0
        survivors = [self._in_flight[index][1] for index in range(count)]
        self._in_flight.clear()
        for arrive in survivors:
            arrive()
        self._end_sent = True
        self._broken = error
        if self._end is None:
            self._end = (error,)
        _wake(self._reader)
        _wake(self._writer)

    # --- the way between

    def _push(self, arrive: Callable[[], None], *, with_previous: bool = False) -> None:
        """`with_previous`: in one packet with what is in flight, if anything is."""
        in_flight = self._in_flight
        if in_flight and with_previous:
            at = in_flight[-1][0]
        else:
            at = self._network.loop.now + self._network.draw_latency()
            if in_flight:
                at = max(at, in_flight[-1][0])
        in_flight.append((at, arrive))
        if not self._is_pumping:
            self._schedule(at - self._network.loop.now)

    def _schedule(self, delay: float) -> None:
        self._is_pumping = True
        self._network.later(delay, self._pump)

    def resume(self, delay: float) -> None:
        """The partition that held this pipe is over."""
        self._schedule(delay)

    def _pump(self) -> None:
        if self._in_flight and self._network.is_blocked(self.source, self.target):
            self._network.hold(self)
            return
        self._is_pumping = False
        now = self._network.loop.now
        while self._in_flight and self._in_flight[0][0] <= now:
            self._in_flight.popleft()[1]()
        if self._in_flight and not self._is_pumping:
            self._schedule(self._in_flight[0][0] - now)

    def _arrive(self, message: bytes) -> None:
        if self._failed is not None:
            return
        if self._discarded:
            self._unread_bytes -= len(message)
            _wake(self._writer)
            return
        self._arrived.append(message)
        _wake(self._reader)

    def _arrive_end(self, error: KraftlogError | None) -> None:
        if self._end is None:
            self._end = (error,)
        _wake(self._reader)
        if self.on_end_delivered is not None:
            on_end_delivered, self.on_end_delivered = self.on_end_delivered, None
            on_end_delivered(error)


def _copy(error: KraftlogError) -> KraftlogError:
    """A fresh exception of the same class and text, as if it had crossed the wire."""
    return error_for(code_of(error), error.message)


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _retrieve(task: "asyncio.Task[_Connection]") -> None:
    """Mark the attempt's exception as seen: its waiters may be gone."""
    if not task.cancelled():
        task.exception()


def _joined(payload: Payload) -> bytes:
    return payload if isinstance(payload, bytes) else b"".join(payload)
