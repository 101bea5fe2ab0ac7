"""Both ends of a replica stream speak at the same time, and neither is silent for long."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.proto.errors import RequestTimedOutError
from kraftlog.proto.replica_frames import REPLICA_FRAMES, ReplicaAlive, ReplicaBody, ReplicaCredit
from kraftlog.proto.seams import Payload
from kraftlog.replication.exchange import KEEP_ALIVE_MS, SILENCE_TIMEOUT_MS, Exchange, joined
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import VirtualLoop, run_virtual


class FakeStream:
    """The test is the peer."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, ReplicaBody]] = []
        self.incoming: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, message: Payload) -> None:
        data = message if isinstance(message, bytes) else b"".join(message)
        self.sent += [(asyncio.get_running_loop().time(), body) for body in REPLICA_FRAMES.decode(data)]

    async def receive(self) -> bytes | None:
        return await self.incoming.get()

    async def finish(self) -> None:
        """An exchange does not say that it ends."""

    def cancel(self) -> None:
        """The test keeps no state of it."""

    def arrive(self, *bodies: ReplicaBody) -> None:
        self.incoming.put_nowait(b"".join(joined(bodies)))


class Side:
    """The end under test, with what it has been told and what it has to say."""

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.received: list[ReplicaBody] = []
        self.to_say: list[ReplicaBody] = []
        self.deadline_ms: float | None = None
        self.polls = 0
        self.clock = SimClock(asyncio.get_running_loop())
        self.exchange = Exchange(
            self.stream,
            self.clock,
            receive=self.received.append,
            poll=self._poll,
            prepare=self._prepare,
            next_deadline_ms=lambda: self.deadline_ms,
            peer="broker 2",
        )

    def _poll(self) -> list[ReplicaBody]:
        self.polls += 1
        said, self.to_say = self.to_say, []
        return said

    async def _prepare(self) -> None:
        """Nothing is cold."""


def virtually(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(body(), loop=VirtualLoop(), max_seconds=3_600)


def credit(size_bytes: int) -> ReplicaCredit:
    return ReplicaCredit(size_bytes)


def test_who_only_listens_gives_signs_of_life() -> None:
    """A peer that speaks more often than a sign of life is due must not keep this end from giving its own."""

    async def body() -> None:
        side = Side()
        running = asyncio.ensure_future(side.exchange.run())
        for _ in range(40):
            await asyncio.sleep(KEEP_ALIVE_MS / 4000)
            side.stream.arrive(credit(1))
        await asyncio.sleep(0.001)
        signs = [at for at, said in side.stream.sent if isinstance(said, ReplicaAlive)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(signs)]
        assert len(signs) >= 8
        assert max(gaps) <= KEEP_ALIVE_MS / 1000 + 0.002
        assert len(side.received) == 40
        side.exchange.close()
        await running

    virtually(body)


def test_no_sign_of_life_where_something_else_is_said() -> None:
    async def body() -> None:
        side = Side()
        running = asyncio.ensure_future(side.exchange.run())
        for _ in range(40):
            await asyncio.sleep(KEEP_ALIVE_MS / 4000)
            side.to_say = [credit(2)]
            side.exchange.wake()
            side.stream.arrive(ReplicaAlive())
        await asyncio.sleep(0)
        assert [said for _, said in side.stream.sent] == [credit(2)] * 40
        side.exchange.close()
        await running

    virtually(body)


def test_it_asks_again_at_the_deadline_that_it_was_told() -> None:
    async def body() -> None:
        side = Side()
        side.deadline_ms = side.clock.monotonic_ms() + 300
        running = asyncio.ensure_future(side.exchange.run())
        await asyncio.sleep(0.299)
        assert side.polls == 1
        side.to_say = [credit(3)]
        await asyncio.sleep(0.002)
        assert [said for _, said in side.stream.sent] == [credit(3)]
        side.exchange.close()
        await running

    virtually(body)


def test_an_earlier_deadline_than_the_one_that_is_waited_for_counts() -> None:
    async def body() -> None:
        side = Side()
        running = asyncio.ensure_future(side.exchange.run())
        await asyncio.sleep(0.1)
        side.deadline_ms = side.clock.monotonic_ms() + 50
        side.exchange.wake()
        await asyncio.sleep(0.001)
        side.to_say = [credit(4)]
        await asyncio.sleep(0.055)
        assert [said for _, said in side.stream.sent] == [credit(4)]
        side.exchange.close()
        await running

    virtually(body)


def test_a_silent_peer_is_given_up() -> None:
    """After the time-out, or up to an eighth of it before: not every message sets a timer."""

    async def body() -> None:
        side = Side()
        running = asyncio.ensure_future(side.exchange.run())
        for _ in range(10):
            await asyncio.sleep(SILENCE_TIMEOUT_MS / 2000)
            side.stream.arrive(ReplicaAlive())
        heard = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimedOutError, match="broker 2 has been silent"):
            await running
        waited_ms = 1000 * (asyncio.get_running_loop().time() - heard)
        assert SILENCE_TIMEOUT_MS * 7 / 8 <= waited_ms <= SILENCE_TIMEOUT_MS

    virtually(body)
