"""What a node says to whoever dials it: the hello, refusals, limits, and hostile peers that do no harm."""

import asyncio
import random
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.raft import Message, ReplicaKey, TimeoutNow, VoteResponse, Voters
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    InconsistentClusterIdError,
    InvalidRequestError,
    InvalidVoterKeyError,
    KraftlogError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
)
from kraftlog.proto.raft_frames import (
    EXCHANGE,
    RAFT_FRAMES,
    RaftAppendRequest,
    RaftBody,
    RaftHello,
    RaftHelloAnswer,
    RaftLeaderHint,
    RaftReadIndexRequest,
    RaftReadIndexResponse,
    RaftTimeoutNow,
    RaftVoteResponse,
)
from kraftlog.proto.seams import Handlers, Stream
from kraftlog.server.quorum import Peers, PeersConfig
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import VirtualLoop, run_virtual
from kraftlog.testing.network import LinkConfig, SimNetwork

ME, OTHER, THIRD = (ReplicaKey(number, bytes([number] * 16)) for number in (1, 2, 3))
ADDRESS, OTHER_ADDRESS = Endpoint("n1", 9093), Endpoint("n2", 9093)
HELLO = RaftHello("c", OTHER.node_id, OTHER.directory_id, ME.node_id, ME.directory_id, *OTHER_ADDRESS, True)


class FakeReplica:
    """A core that writes down what it is told."""

    def __init__(self) -> None:
        self.voters: Voters = frozenset({ME})
        self.leader: ReplicaKey | None = ME
        self.term = 5
        self.received: list[Message] = []
        self.observers: set[ReplicaKey] = set()

    def receive(self, message: Message) -> None:
        self.received.append(message)

    def observe(self, key: ReplicaKey) -> None:
        self.observers.add(key)

    def forget_observer(self, key: ReplicaKey) -> None:
        self.observers.discard(key)

    def answer_read_index(self, answer: Callable[[int | None], None]) -> None:
        answer(41 if self.leader == ME else None)


class World:
    """Node 1, and a test that dials it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.network = SimNetwork(loop, random.Random(1), LinkConfig(spike_probability=0))
        self.replica = FakeReplica()
        self.peers = Peers(
            cluster_id="c",
            key=ME,
            connector=self.network.host("n1"),
            clock=SimClock(loop),
            random=random.Random(2),
            addresses=AddressBook(),
            endpoint=ADDRESS,
            config=PeersConfig(max_accepted=2),
        )

    async def serve(self, *, starts: bool = True) -> None:
        await self.network.host("n1").serve(str(ADDRESS), self.peers.handlers())
        if starts:
            self.peers.start(self.replica)

    def dial(self) -> "Dialled":
        return Dialled(self.network.host("n2").connect(str(ADDRESS)).stream(EXCHANGE))

    async def greeted(self, hello: RaftHello = HELLO) -> "Dialled":
        dialled = self.dial()
        await dialled.send(hello)
        assert isinstance(await dialled.next(), RaftHelloAnswer)
        return dialled


class Dialled:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._arrived: list[RaftBody] = []

    async def send(self, *bodies: RaftBody) -> None:
        await self._stream.send(b"".join(b"".join(RAFT_FRAMES.encode(body)) for body in bodies))

    async def send_bytes(self, data: bytes) -> None:
        await self._stream.send(data)

    async def next(self) -> RaftBody | None:
        while not self._arrived:
            message = await self._stream.receive()
            if message is None:
                return None
            self._arrived += RAFT_FRAMES.decode(message)
        return self._arrived.pop(0)

    async def next_of(self, kind: type[RaftBody]) -> RaftBody:
        while not isinstance(body := await self.next(), kind):
            assert body is not None, "the stream ended"
        return body

    async def error(self) -> KraftlogError | None:
        """How the stream ends; None: in order."""
        try:
            while await self.next() is not None:
                pass
        except KraftlogError as error:
            return error
        return None


def with_world(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop)
        try:
            await body(world)
        finally:
            await world.peers.stop()

    loop = VirtualLoop()
    run_virtual(main(loop), loop=loop, max_seconds=600)


def test_hello_is_answered_with_who_leads() -> None:
    """The dialler is fed from then on, and where it listens is known."""

    async def body(world: World) -> None:
        await world.serve()
        dialled = world.dial()
        await dialled.send(HELLO)
        assert await dialled.next() == RaftHelloAnswer(ME.node_id, memoryview(ME.directory_id), *ADDRESS)
        hint = await dialled.next()
        assert hint == RaftLeaderHint(5, ME.node_id, memoryview(ME.directory_id), *ADDRESS)
        await dialled.next()
        assert world.replica.observers == {OTHER}
        assert world.peers.addresses.endpoint(OTHER) == OTHER_ADDRESS

    with_world(body)


def test_news_of_the_leader_goes_to_everybody_at_once() -> None:
    """Not only with the next sign of life: observers move to the new leader by it."""

    async def body(world: World) -> None:
        await world.serve()
        dialled = await world.greeted()
        await asyncio.sleep(0.7)  # in the middle between two signs of life
        world.replica.term, world.replica.leader = 6, OTHER
        world.peers.changed()
        async with asyncio.timeout(0.1):
            while (await dialled.next_of(RaftLeaderHint)) != RaftLeaderHint(
                6, OTHER.node_id, memoryview(OTHER.directory_id), *OTHER_ADDRESS
            ):
                pass

    with_world(body)


@pytest.mark.parametrize(
    ("hello", "error", "text"),
    [
        (RaftHello("d", 2, bytes(16), 1), InconsistentClusterIdError, "'d'.*'c'"),
        (RaftHello("c", 2, bytes(16), 3), InvalidVoterKeyError, "this is node 1, not node 3"),
        (RaftHello("c", 2, bytes(16), 1, bytes(16)), InvalidVoterKeyError, "disk was replaced"),
        (RaftHello("c", 1, bytes(16), -1), InvalidVoterKeyError, "node id 1 is in use"),
        (RaftHello("c", 2, bytes(15), 1), InvalidRequestError, "directory id of 15 bytes"),
        (RaftHello("c", -2, bytes(16), 1), InvalidRequestError, "node id -2"),
        (RaftHello("c" * 300, 2, bytes(16), 1), InvalidRequestError, "300 characters"),
        (RaftHello("c", 2, bytes(16), 1, b"", "h" * 300, 1), InvalidRequestError, "300 characters"),
        (RaftHello("c", 2, bytes(16), 1, b"", "host", 0), InvalidRequestError, "port 0"),
        (RaftHello("c", 2, bytes(16), 1, b"", "host", 70_000), InvalidRequestError, "port 70000"),
        (RaftLeaderHint(), InvalidRequestError, "does not begin with a hello"),
    ],
)
def test_wrong_hello_is_refused_with_what_is_wrong(hello: RaftBody, error: type[KraftlogError], text: str) -> None:
    """And the peer is not fed."""

    async def body(world: World) -> None:
        await world.serve()
        dialled = world.dial()
        await dialled.send(hello)
        refusal = await dialled.error()
        assert type(refusal) is error
        assert re.search(text, str(refusal))
        assert not world.replica.observers
        assert not world.peers.connected

    with_world(body)


def test_peer_that_says_nothing_is_dropped() -> None:
    async def body(world: World) -> None:
        await world.serve()
        dialled = world.dial()
        await dialled.send_bytes(b"")
        assert isinstance(await dialled.error(), InvalidRequestError)
        silent = world.dial()
        opening = asyncio.ensure_future(silent.next())
        with pytest.raises(RequestTimedOutError, match="no hello"):
            await opening

    with_world(body)


def test_node_that_does_not_run_refuses_for_now() -> None:
    """Before its quorum has started, and after it has stopped: the dialler comes again."""

    async def body(world: World) -> None:
        await world.serve(starts=False)
        dialled = world.dial()
        await dialled.send(HELLO)
        assert isinstance(await dialled.error(), BrokerNotAvailableError)
        world.peers.start(world.replica)
        dialled = await world.greeted()
        await world.peers.stop()
        assert await dialled.error() is None
        dialled = world.dial()
        await dialled.send(HELLO)
        assert isinstance(await dialled.error(), BrokerNotAvailableError)

    with_world(body)


def test_streams_are_limited() -> None:
    """A peer that is there already may come again."""

    async def body(world: World) -> None:
        await world.serve()
        await world.greeted()
        await world.greeted(RaftHello("c", 3, THIRD.directory_id, -1))
        fourth = world.dial()
        await fourth.send(RaftHello("c", 4, bytes(16), -1))
        assert isinstance(await fourth.error(), ThrottlingQuotaExceededError)
        await world.greeted()

    with_world(body)


def test_peers_that_have_not_said_hello_are_limited_too() -> None:
    """They cost a stream each until the time-out. Room comes back."""

    async def body(world: World) -> None:
        await world.serve()
        silent = [asyncio.ensure_future(world.dial().error()) for _ in range(2)]
        await asyncio.sleep(0.1)
        third = world.dial()
        assert isinstance(await third.error(), ThrottlingQuotaExceededError)
        assert {type(error) for error in await asyncio.gather(*silent)} == {RequestTimedOutError}
        await world.greeted()

    with_world(body)


def test_peer_that_cannot_be_dialled_for_a_bug_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reported once, and the node keeps the peer."""

    async def body(world: World) -> None:
        dialled = 0

        async def other(stream: Stream, context: object) -> None:
            nonlocal dialled
            dialled += 1

        await world.network.host("n2").serve(str(OTHER_ADDRESS), Handlers(streams={EXCHANGE: other}))
        await world.serve()
        original = world.peers._converse
        monkeypatch.setattr(world.peers, "_converse", None)
        world.peers.addresses.tell(OTHER, OTHER_ADDRESS)
        world.replica.voters = frozenset({ME, OTHER})
        world.peers.changed()
        await asyncio.sleep(0.1)
        monkeypatch.setattr(world.peers, "_converse", original)
        await asyncio.sleep(2)
        assert dialled

    with_world(body)
    assert [record.exc_info is not None for record in caplog.records if "dialling node 2 failed" in record.message] == [
        True
    ]


def test_of_two_streams_from_one_peer_the_newest_counts() -> None:
    """The peer gave up the older one, which may look alive here for long. It goes on being fed."""

    async def body(world: World) -> None:
        await world.serve()
        old = await world.greeted()
        new = await world.greeted()
        assert await old.error() is None
        assert world.replica.observers == {OTHER}
        world.peers.send(TimeoutNow(ME, OTHER, 5))
        assert isinstance(await new.next_of(RaftTimeoutNow), RaftTimeoutNow)

    with_world(body)


def test_answer_goes_where_the_request_came_from() -> None:
    """A vote that is asked for on an accepted stream is answered there, although a stream was dialled as well."""

    async def body(world: World) -> None:
        await world.serve()
        accepted_by_other: list[Dialled] = []

        async def other(stream: Stream, context: object) -> None:
            dialled = Dialled(stream)
            assert isinstance(await dialled.next(), RaftHello)
            await dialled.send(RaftHelloAnswer(*OTHER, *OTHER_ADDRESS))
            accepted_by_other.append(dialled)
            await dialled.error()

        await world.network.host("n2").serve(str(OTHER_ADDRESS), Handlers(streams={EXCHANGE: other}))
        dialled = await world.greeted()
        world.replica.voters = frozenset({ME, OTHER})
        world.peers.changed()
        await asyncio.sleep(1)
        assert accepted_by_other, "node 1 has dialled as well"
        await dialled.send(RaftTimeoutNow(5))
        await asyncio.sleep(0.1)
        world.peers.send(VoteResponse(ME, OTHER, 5, is_pre_vote=False, is_granted=True))
        assert isinstance(await dialled.next_of(RaftVoteResponse), RaftVoteResponse)

    with_world(body)


def test_node_that_answers_as_somebody_else_is_not_taken_for_the_voter(caplog: pytest.LogCaptureFixture) -> None:
    """An address of old may belong to another node by now, and that node may be of an older version and not refuse."""

    async def body(world: World) -> None:
        async def other(stream: Stream, context: object) -> None:
            dialled = Dialled(stream)
            assert isinstance(await dialled.next(), RaftHello)
            await dialled.send(RaftHelloAnswer(*THIRD, *OTHER_ADDRESS))
            await dialled.error()

        await world.network.host("n2").serve(str(OTHER_ADDRESS), Handlers(streams={EXCHANGE: other}))
        world.peers.addresses.tell(OTHER, OTHER_ADDRESS)
        world.replica.voters = frozenset({ME, OTHER})
        await world.serve()
        await asyncio.sleep(5)
        assert not world.peers.connected

    with_world(body)
    (refusal,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert "node 3 answered instead of node 2" in refusal


def test_messages_bear_the_sender_of_their_stream() -> None:
    """Nobody speaks for others."""

    async def body(world: World) -> None:
        await world.serve()
        dialled = await world.greeted()
        await dialled.send(RaftTimeoutNow(7))
        await asyncio.sleep(0.1)
        assert world.replica.received == [TimeoutNow(OTHER, ME, 7)]

    with_world(body)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff",
        b"\n\x02" * 5_000,
        b"".join(RAFT_FRAMES.encode(HELLO)),
        b"".join(RAFT_FRAMES.encode(RaftAppendRequest(term=1, records=b"x" * 100))),
        b"".join(RAFT_FRAMES.encode(RaftAppendRequest(term=-1))),
    ],
)
def test_hostile_peer_loses_its_stream_and_nothing_else_happens(data: bytes) -> None:
    async def body(world: World) -> None:
        await world.serve()
        good = await world.greeted(RaftHello("c", 3, THIRD.directory_id, -1))
        bad = await world.greeted()
        await bad.send_bytes(data)
        assert isinstance(await bad.error(), InvalidRequestError)
        assert world.peers.connected == {THIRD}
        assert world.replica.observers == {THIRD}
        assert not world.replica.received
        await good.send(RaftTimeoutNow(7))
        await asyncio.sleep(0.1)
        assert len(world.replica.received) == 1

    with_world(body)


def test_read_index_is_answered_on_the_stream() -> None:
    async def body(world: World) -> None:
        await world.serve()
        dialled = await world.greeted()
        await dialled.send(RaftReadIndexRequest(8))
        assert await dialled.next_of(RaftReadIndexResponse) == RaftReadIndexResponse(8, 41)
        world.replica.leader = OTHER
        await dialled.send(RaftReadIndexRequest(9))
        assert await dialled.next_of(RaftReadIndexResponse) == RaftReadIndexResponse(9, -1)

    with_world(body)


def test_message_to_nobody_is_counted_and_lost() -> None:
    async def body(world: World) -> None:
        await world.serve()
        world.peers.send(TimeoutNow(ME, OTHER, 5))
        assert world.peers.dropped_messages == 1

    with_world(body)


@pytest.mark.parametrize(
    "values", [{"keep_alive_ms": 1_000}, {"keep_alive_ms": 0}, {"backoff_ms": 0}, {"backoff_max_ms": 10}]
)
def test_bounds_that_cannot_work_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="_ms="):
        PeersConfig(**values)  # type: ignore[arg-type] # floats all
