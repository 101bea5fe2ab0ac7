"""Faults of the simulated network: crash, broken connections, partitions; and that one seed means one run."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from kraftlog.proto.errors import BrokerNotAvailableError, KraftlogError, NetworkError, RequestTimedOutError
from kraftlog.proto.seams import CallContext, Handlers, Stream
from kraftlog.testing.loop import SimProcess, VirtualLoop, run_virtual
from kraftlog.testing.network import SimNetwork

ECHO = "/kraftlog.test.Toy/Echo"
CHAT = "/kraftlog.test.Toy/Chat"


class Toy:
    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.outcomes: list[str] = []

    async def echo(self, request: bytes, context: CallContext) -> bytes:
        self.received.append(request)
        return request

    async def chat(self, stream: Stream, context: CallContext) -> None:
        try:
            while (message := await stream.receive()) is not None:
                self.received.append(message)
                if not message.startswith(b"note"):
                    await stream.send(message)
            self.outcomes.append("finished")
        except (asyncio.CancelledError, NetworkError):
            self.outcomes.append("dropped")
            raise

    def handlers(self) -> Handlers:
        return Handlers(unary={ECHO: self.echo}, streams={CHAT: self.chat})


class World:
    """A node on one host, a client on another."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, random.Random(seed))
        self.client = self.network.host("client")
        self.toy = Toy()
        self.process = SimProcess("node")

    async def start(self, address: str = "node:9092") -> str:
        self.process = SimProcess("node")
        server = await self.loop.spawn(self.process, self.network.host("node").serve(address, self.toy.handlers()))
        return server.address

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        run_virtual(body, loop=self.loop, max_seconds=3_600)


async def _drain(stream: Stream) -> None:
    while await stream.receive() is not None:
        pass


def test_a_crash_breaks_connections_and_a_restart_takes_the_address_again() -> None:
    """Clients see a lost connection, then nobody, then the next life at the same address."""
    world = World()

    async def body() -> None:
        address = await world.start()
        channel = world.client.connect(address)
        stream = channel.stream(CHAT)
        await stream.send(b"one")
        assert await stream.receive() == b"one"
        world.loop.kill(world.process)
        world.network.crash("node")
        with pytest.raises(NetworkError):
            await stream.receive()
        with pytest.raises(NetworkError):
            await stream.send(b"two")
        with pytest.raises(BrokerNotAvailableError):
            await channel.unary(ECHO, b"", timeout_ms=5_000)
        assert await world.start() == address
        assert await channel.unary(ECHO, b"again", timeout_ms=5_000) == b"again"
        assert world.toy.outcomes == []  # a killed handler runs nothing, not even its except blocks

    world.run(body())


def test_a_broken_connection_ends_the_handler_and_delivers_a_prefix() -> None:
    """Over many seeds: what arrives is a prefix of what was sent, of every length, and then the error."""
    prefixes = set()
    for seed in range(60):
        world = World(seed)

        async def body(world: World) -> None:
            address = await world.start()
            channel = world.client.connect(address)
            stream = channel.stream(CHAT)
            await stream.send(b"0")
            assert await stream.receive() == b"0"
            for number in range(1, 4):
                await stream.send(f"note {number}".encode())
            assert world.network.break_connections("client", "node") == 1
            with pytest.raises(NetworkError):
                await _drain(stream)
            assert world.toy.received == [b"0", b"note 1", b"note 2", b"note 3"][: len(world.toy.received)]
            await asyncio.sleep(1)
            assert world.toy.outcomes == ["dropped"]
            assert await channel.unary(ECHO, b"a new connection", timeout_ms=5_000) == b"a new connection"

        world.run(body(world))
        prefixes.add(len(world.toy.received))
    assert prefixes == {2, 3, 4, 5}  # with the first message and the one on the new connection


def test_a_partition_holds_messages_until_it_heals() -> None:
    """As TCP does: nothing is lost, only late; calls run into their deadlines meanwhile."""
    world = World()

    async def body() -> None:
        address = await world.start()
        channel = world.client.connect(address)
        stream = channel.stream(CHAT)
        await stream.send(b"before")
        assert await stream.receive() == b"before"
        world.network.partition("client", "node")
        await stream.send(b"during")
        receiver = asyncio.ensure_future(stream.receive())
        with pytest.raises(RequestTimedOutError):
            await channel.unary(ECHO, b"lost in time", timeout_ms=5_000)
        assert not receiver.done()
        world.network.heal()
        assert await receiver == b"during"

    world.run(body())


def test_a_one_way_partition_loses_only_the_answers() -> None:
    """The call takes effect, the caller cannot know."""
    world = World()

    async def body() -> None:
        address = await world.start()
        channel = world.client.connect(address)
        assert await channel.unary(ECHO, b"connected", timeout_ms=5_000)
        world.network.partition("node", "client", both_ways=False)
        with pytest.raises(RequestTimedOutError):
            await channel.unary(ECHO, b"took effect", timeout_ms=5_000)
        assert world.toy.received[-1] == b"took effect"

    world.run(body())


def test_connecting_through_a_partition_fails_after_the_connect_timeout() -> None:
    """A client must not wait for ever for a handshake."""
    world = World()

    async def body() -> None:
        address = await world.start()
        world.network.partition("client", "node")
        channel = world.client.connect(address)
        with pytest.raises(BrokerNotAvailableError, match="timed out"):
            await channel.unary(ECHO, b"", timeout_ms=60_000)

    world.run(body())


def test_taps_see_messages_of_both_directions() -> None:
    """White-box checks and traces look at what is sent, when it is sent."""
    world = World()
    seen: list[tuple[str, str, bool, bytes]] = []

    def tap(source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int) -> None:
        seen.append((source, target, is_request, message))

    async def body() -> None:
        world.network.taps.append(tap)
        channel = world.client.connect(await world.start())
        assert await channel.unary(ECHO, b"x", timeout_ms=5_000) == b"x"

    world.run(body())
    assert seen == [("client", "node", True, b"x"), ("node", "client", False, b"x")]


def _history(seed: int) -> list[str]:
    """A busy run with faults, as the list of its events."""
    world = World(seed)
    lines: list[str] = []
    world.network.on_event = lambda line: lines.append(f"{world.loop.time():.6f} {line}")

    async def talk(name: str, address: str) -> None:
        channel = world.network.host(name).connect(address)
        for number in range(20):
            try:
                answer = await channel.unary(ECHO, f"{name}{number}".encode(), timeout_ms=50)
                lines.append(f"{world.loop.time():.6f} {name} got {answer!r}")
            except KraftlogError as error:
                lines.append(f"{world.loop.time():.6f} {name} failed {error}")

    async def body() -> None:
        address = await world.start()
        talks = [asyncio.ensure_future(talk(f"client-{number}", address)) for number in range(3)]
        for _ in range(5):
            await asyncio.sleep(0.01)
            world.network.break_connections("client-1", "node")
        world.network.partition("client-2", "node")
        await asyncio.sleep(0.1)
        world.network.heal()
        await asyncio.wait(talks)

    world.run(body())
    return lines


def test_one_seed_is_one_run_and_another_seed_is_another() -> None:
    """The whole history, times included, follows from the seed."""
    assert _history(7) == _history(7)
    assert _history(7) != _history(8)
    assert len(_history(7)) > 60
