"""The seams between kraftlog and the world: time, randomness, network and blocking work.

Every component takes these as constructor arguments, so that a whole cluster runs in one process on virtual time
from one seed (`kraftlog.testing`) and the same code runs on real clocks and gRPC. The disk has its own seam,
`kraftlog.logstore.filesystem.FileSystem`.

Messages cross the network seam as encoded bytes. A method is named as in gRPC: `/kraftlog.v1.Broker/Produce`.
A failed call raises a class of `kraftlog.proto.errors` on the caller's side: an error that the handler raised comes
back as the same class, a lost connection as `BrokerNotAvailableError` or `NetworkError`, a passed deadline as
`RequestTimedOutError`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from kraftlog.proto.security import ANONYMOUS, Principal, Security

T = TypeVar("T")

Buffer = bytes | bytearray | memoryview
Payload = bytes | Sequence[Buffer]
"""One encoded message, whole or as pieces that the transport joins once."""


class Clock(Protocol):
    """Two clocks. Safe from any thread."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump. For record timestamps and display only."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back; for deadlines. On the event loop it equals `loop.time() * 1000`."""
        ...


class Random(Protocol):
    """The part of `random.Random` that components draw from."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int | None = None, /) -> int: ...

    def getrandbits(self, k: int, /) -> int: ...


class BlockingExecutor(Protocol):
    """Runs blocking work (fsync, recovery) off the event loop and returns to it."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` once and return what it returned; its exception propagates. Never cancels running work."""
        ...

    def close(self) -> None:
        """Wait for running work and refuse more."""
        ...


class Stream(Protocol):
    """One end of a bidirectional message stream. Used from one event loop; one sender and one receiver at a time."""

    async def send(self, message: Payload) -> None:
        """Send one message; waits while the transport's window is full. Raises `KraftlogError` if the stream ended."""
        ...

    async def receive(self) -> bytes | None:
        """The next message, or None when the other side finished in order. Raises what the other side raised."""
        ...

    async def finish(self) -> None:
        """Say that no more messages follow (client side); the other side's `receive` returns None."""
        ...

    def cancel(self) -> None:
        """Drop the stream at once, both ways. Never raises, may be repeated."""
        ...


@dataclass(frozen=True, slots=True)
class CallContext:
    """Who calls: the peer's address and principal, the listener that it came to, and the metadata of the call."""

    peer: str = ""
    principal: Principal = ANONYMOUS
    listener: str = ""
    """Name of the node's listener; empty where nobody says."""
    metadata: Mapping[str, str] = field(default_factory=dict)


UnaryHandler = Callable[[bytes, CallContext], Awaitable[Payload]]
StreamHandler = Callable[[Stream, CallContext], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a server answers, by full method name."""

    unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)


class Channel(Protocol):
    """A lazily connected client of one address. Used from one event loop."""

    async def unary(self, method: str, request: Payload, *, timeout_ms: float) -> bytes:
        """One call. Raises `RequestTimedOutError` after `timeout_ms`; whether the call took effect is then unknown."""
        ...

    def stream(self, method: str) -> Stream:
        """Open a stream; connection errors come from its first `send` or `receive`."""
        ...

    async def close(self) -> None:
        """Drop the connection and every open stream. May be repeated."""
        ...


class Server(Protocol):
    """A running listener."""

    @property
    def address(self) -> str:
        """The bound `host:port` (with the real port when 0 was asked for)."""
        ...

    async def stop(self, grace_ms: float) -> None:
        """Refuse new calls, wait up to `grace_ms` for running ones, then drop them. May be repeated."""
        ...


class Connector(Protocol):
    """Makes channels; all that a client needs of the network."""

    def connect(self, address: str) -> Channel:
        """A channel to `host:port`; connects on first use."""
        ...


class Network(Connector, Protocol):
    """Makes channels and listeners: gRPC in production, in-memory links in the simulator."""

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """Listen on `host:port`. Raises `OSError` if the address is taken."""
        ...

    def secured(self, security: Security) -> "Network":
        """The same network with all its further channels and listeners secured so. Raises `InvalidConfigError`."""
        ...
