"""The quorum's own connections with certificates on both sides: nodes find each other, and nobody else gets in."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.raft import Message, ReplicaKey, Voters
from kraftlog.proto.seams import Network
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.server.grpc import GrpcNetwork
from kraftlog.server.quorum import Peers
from kraftlog.server.seams import SystemClock
from kraftlog.testing.certificates import Authority, Identity

NODES = Authority.create("nodes")
OTHERS = Authority.create("others")
KEYS = [ReplicaKey(number, bytes([number]) * 16) for number in (1, 2, 3)]
WITHIN_S = 20.0


class Leaderless:
    """A replica that takes part and says nothing."""

    voters: Voters = frozenset(KEYS)
    leader: ReplicaKey | None = None
    term = 1

    def receive(self, message: Message) -> None:
        raise AssertionError(f"nobody sends {message}")

    def observe(self, key: ReplicaKey) -> None:
        return

    def forget_observer(self, key: ReplicaKey) -> None:
        return

    def answer_read_index(self, answer: Callable[[int | None], None]) -> None:
        answer(None)


def secured(identity: Identity | None) -> TlsSecurity:
    """What a node with this identity makes of its configuration: it demands certificates of NODES, and shows its own."""
    return TlsSecurity(
        private_key=None if identity is None else identity.key,
        certificate_chain=None if identity is None else identity.certificate,
        trusted=NODES.pem,
        require_client_certificate=True,
    )


@asynccontextmanager
async def peers(key: ReplicaKey, addresses: AddressBook, serving: Network, dialling: Network) -> AsyncIterator[Peers]:
    found = Peers(
        cluster_id="test-cluster",
        key=key,
        connector=dialling,
        clock=SystemClock(),
        random=random.Random(key.node_id),
        addresses=addresses,
    )
    server = await serving.serve("127.0.0.1:0", found.handlers())
    found.advertise(Endpoint.parse(server.address))
    found.start(Leaderless())
    try:
        yield found
    finally:
        await found.stop()
        await server.stop(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 (peers tell nobody)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("intruder", ["stranger", "nobody"])
async def test_only_nodes_with_an_accepted_certificate_connect(intruder: str, caplog: pytest.LogCaptureFixture) -> None:
    """The third voter by key and cluster id is refused for its certificate alone, and told so."""
    book = AddressBook()
    first, second = (GrpcNetwork().secured(secured(NODES.issue(f"node-{n}", hosts=("127.0.0.1",)))) for n in (1, 2))
    mallory = OTHERS.issue("node-3", hosts=("127.0.0.1",))
    dialling = GrpcNetwork().secured(secured(mallory if intruder == "stranger" else None))
    with caplog.at_level(logging.INFO):
        async with (
            peers(KEYS[0], book, first, first) as one,
            peers(KEYS[1], book, second, second) as two,
            peers(KEYS[2], book, GrpcNetwork().secured(secured(mallory)), dialling) as three,
        ):
            for each in (one, two, three):
                assert each.endpoint is not None
                book.tell(each.key, each.endpoint)
            await until(lambda: KEYS[1] in one.connected and KEYS[0] in two.connected)
            await until(lambda: caplog.text.count("does not accept") >= 2 and "is not from an authority" in caplog.text)
            assert not three.connected
            assert KEYS[2] not in one.connected | two.connected
