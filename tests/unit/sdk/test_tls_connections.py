"""Whether client and broker get together over TLS, and what a client is told when they do not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from kraftlog.proto.errors import BrokerNotAvailableError, KraftlogError, NetworkError, SslAuthenticationFailedError
from kraftlog.proto.seams import CallContext, Channel, Handlers, Server, Stream
from kraftlog.proto.security import ANONYMOUS, Principal
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.sdk.transport import GrpcConnector
from kraftlog.server.grpc import GrpcNetwork
from kraftlog.testing.certificates import Authority, Identity

ECHO = "/kraftlog.test.Toy/Echo"
CHAT = "/kraftlog.test.Toy/Chat"
WITHIN_S = 5.0  # an attempt to connect may take as long; a wrong one is known in milliseconds

OURS = Authority.create("ours")
OTHERS = Authority.create("others")
NODE = OURS.issue("node", hosts=("127.0.0.1", "localhost"))
ELSEWHERE = OURS.issue("node", hosts=("elsewhere.example",))
ALICE = OURS.issue("alice")


class Toy:
    def __init__(self) -> None:
        self.callers: list[Principal] = []

    async def echo(self, request: bytes, context: CallContext) -> bytes:
        self.callers.append(context.principal)
        return request

    async def chat(self, stream: Stream, context: CallContext) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send(message)


@asynccontextmanager
async def serving(
    identity: Identity | None, *, demand: bool = False, address: str = "127.0.0.1:0"
) -> AsyncIterator[tuple[Server, Toy]]:
    """A broker with this certificate; `demand`: its clients need one of OURS."""
    toy = Toy()
    network = GrpcNetwork()
    if identity is not None:
        network = GrpcNetwork(
            TlsSecurity(
                private_key=identity.key,
                certificate_chain=identity.certificate,
                trusted=OURS.pem,
                require_client_certificate=demand,
            )
        )
    server = await network.serve(address, Handlers(unary={ECHO: toy.echo}, streams={CHAT: toy.chat}))
    try:
        yield server, toy
    finally:
        await server.stop(0)


def trusting(
    authority: Authority = OURS, identity: Identity | None = None, *, check_hostname: bool = True
) -> TlsSecurity:
    return TlsSecurity(
        private_key=None if identity is None else identity.key,
        certificate_chain=None if identity is None else identity.certificate,
        trusted=authority.pem,
        check_hostname=check_hostname,
    )


@asynccontextmanager
async def channel_to(server: Server, security: TlsSecurity | None) -> AsyncIterator[Channel]:
    channel = GrpcConnector(security=security).connect(server.address)
    try:
        yield channel
    finally:
        await channel.close()


async def chatted(channel: Channel) -> bytes | None:
    """One message there and back on a stream."""
    stream = channel.stream(CHAT)
    await stream.send(b"hello")
    answer = await stream.receive()
    await stream.finish()
    assert await stream.receive() is None
    return answer


async def heard(channel: Channel) -> object:
    """The first step of a stream is to receive."""
    return await channel.stream(CHAT).receive()


async def refusals(server: Server, security: TlsSecurity | None) -> set[str]:
    """What each kind of first step is told; it must not take longer than one attempt to connect."""
    told: set[str] = set()
    steps: list[Callable[[Channel], Awaitable[object]]] = [
        lambda c: c.unary(ECHO, b"", timeout_ms=60_000),
        chatted,
        heard,
    ]
    for step in steps:
        async with channel_to(server, security) as channel:
            with pytest.raises(SslAuthenticationFailedError) as caught:
                await asyncio.wait_for(step(channel), WITHIN_S)
            assert not caught.value.retriable
            told.add(str(caught.value))
    return told


async def test_a_broker_with_a_certificate_of_our_authority() -> None:
    """The client need not show one; then nobody knows who it is."""
    async with serving(NODE) as (server, toy), channel_to(server, trusting()) as channel:
        assert await channel.unary(ECHO, b"hello", timeout_ms=10_000) == b"hello"
        assert await chatted(channel) == b"hello"
    assert toy.callers == [ANONYMOUS]
    assert not toy.callers[0].is_authenticated


async def test_both_sides_show_certificates() -> None:
    async with serving(NODE, demand=True) as (server, toy), channel_to(server, trusting(identity=ALICE)) as channel:
        assert await channel.unary(ECHO, b"hello", timeout_ms=10_000) == b"hello"
        assert await chatted(channel) == b"hello"
    assert toy.callers == [Principal("CN=alice,O=kraftlog")]


async def test_a_broker_of_another_authority_is_not_trusted() -> None:
    for check_hostname in (True, False):
        async with serving(NODE) as (server, toy):
            told = await refusals(server, trusting(OTHERS, check_hostname=check_hostname))
        assert told == {
            f"the certificate of the broker at {server.address} is not from an authority in ssl_cafile (unable to get local"
            " issuer certificate): name the file with the certificate of the authority that signed it"
        }
        assert not toy.callers


async def test_a_broker_of_another_name_is_not_the_one_dialled() -> None:
    """Unless names are not to be checked."""
    async with serving(ELSEWHERE) as (server, toy):
        (told,) = await refusals(server, trusting())
        assert told.startswith(f"the certificate of the broker at {server.address} is not for 127.0.0.1 (")
        assert told.endswith("add 127.0.0.1 to its names, or set ssl_check_hostname=false")
        assert not toy.callers
        async with channel_to(server, trusting(check_hostname=False)) as channel:
            assert await chatted(channel) == b"hello"
            assert await channel.unary(ECHO, b"hello", timeout_ms=10_000) == b"hello"
        async with channel_to(server, trusting(check_hostname=False)) as channel:
            assert await channel.unary(ECHO, b"first", timeout_ms=10_000) == b"first"
            assert await chatted(channel) == b"hello"


@pytest.mark.parametrize(
    "names", [("*.example.com",), ("10.9.8.7",), (), ("a.example", "b.example")], ids=["wildcard", "ip", "none", "two"]
)
async def test_any_name_will_do_where_names_are_not_checked(names: tuple[str, ...]) -> None:
    """Wildcards, addresses, and the common name of a certificate without any."""
    async with (
        serving(OURS.issue("only-a-name", hosts=names)) as (server, _),
        channel_to(server, trusting(check_hostname=False)) as channel,
    ):
        answers = await asyncio.gather(*(channel.unary(ECHO, b"%d" % n, timeout_ms=10_000) for n in range(5)))
        assert answers == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_broker_that_comes_back_with_another_name_is_found_again() -> None:
    """The name in the certificate is looked up again after the connection failed."""
    async with AsyncExitStack() as stack:
        server, _ = await stack.enter_async_context(serving(NODE))
        channel = await stack.enter_async_context(channel_to(server, trusting(check_hostname=False)))
        assert await channel.unary(ECHO, b"1", timeout_ms=10_000) == b"1"
        await server.stop(0)
        async with serving(ELSEWHERE, address=server.address):
            for _ in range(100):
                try:
                    assert await channel.unary(ECHO, b"2", timeout_ms=10_000) == b"2"
                    break
                except (NetworkError, BrokerNotAvailableError):
                    continue
            else:
                raise AssertionError("not found again")
            assert await chatted(channel) == b"hello"


async def test_a_broker_with_an_expired_certificate() -> None:
    expired = OURS.issue("node", hosts=("127.0.0.1",), expired=True)
    for check_hostname in (True, False):
        async with serving(expired) as (server, toy):
            told = await refusals(server, trusting(check_hostname=check_hostname))
        assert told == {f"the certificate of the broker at {server.address} has expired: the node needs a new one"}
        assert not toy.callers


async def test_a_client_without_a_certificate_where_one_is_demanded() -> None:
    for check_hostname in (True, False):
        async with serving(NODE, demand=True) as (server, toy):
            (told,) = await refusals(server, trusting(check_hostname=check_hostname))
        assert told.startswith(f"the broker at {server.address} does not accept clients without a certificate (")
        assert told.endswith("set ssl_certfile and ssl_keyfile to a certificate from an authority that it trusts")
        assert not toy.callers


@pytest.mark.parametrize("why", ["stranger", "expired"])
async def test_a_client_with_a_certificate_that_is_not_accepted(why: str) -> None:
    identity = OTHERS.issue("mallory") if why == "stranger" else OURS.issue("alice", expired=True)
    async with serving(NODE, demand=True) as (server, toy):
        (told,) = await refusals(server, trusting(identity=identity))
    assert told.startswith(f"the broker at {server.address} does not accept the certificate in ssl_certfile (")
    assert not toy.callers


async def test_a_plain_client_at_a_secured_port() -> None:
    for demand in (False, True):
        async with serving(NODE, demand=demand) as (server, _):
            told = await refusals(server, None)
        assert told == {
            f"the broker at {server.address} speaks TLS and this client does not: set security_protocol=SSL, or use the "
            "address of a PLAINTEXT listener"
        }


async def test_a_secured_client_at_a_plain_port() -> None:
    for check_hostname in (True, False):
        async with serving(None) as (server, toy):
            told = await refusals(server, trusting(check_hostname=check_hostname))
        assert told == {
            f"the broker at {server.address} does not speak TLS: set security_protocol=PLAINTEXT, or use the address of an "
            "SSL listener"
        }
        assert not toy.callers


async def test_nobody_there_is_not_taken_for_a_matter_of_security() -> None:
    """It may be there again in a moment: a retriable error."""
    async with serving(NODE) as (server, _):
        pass
    for security in (None, trusting(), trusting(check_hostname=False)):
        async with channel_to(server, security) as channel:
            for step in (channel.unary(ECHO, b"", timeout_ms=60_000), heard(channel)):
                with pytest.raises(BrokerNotAvailableError, match="refused"):
                    await asyncio.wait_for(step, WITHIN_S)


async def test_a_port_that_says_nothing_is_given_up_in_time() -> None:
    """Somebody accepts and stays silent: the attempt to connect has an end, with TLS as without."""
    held: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: held.append(writer), "127.0.0.1", 0)
    host, port = silent.sockets[0].getsockname()
    try:
        for check_hostname in (True, False):
            channel = GrpcConnector(security=trusting(check_hostname=check_hostname)).connect(f"{host}:{port}")
            with pytest.raises(KraftlogError) as caught:
                await asyncio.wait_for(channel.unary(ECHO, b"", timeout_ms=1_000), 2 * WITHIN_S)
            assert caught.value.retriable
            await channel.close()
    finally:
        for writer in held:
            writer.transport.abort()
        silent.close()
        await silent.wait_closed()


async def test_streams_that_wait_for_a_name_can_be_dropped() -> None:
    """Before, while and after the name is looked up."""
    async with serving(ELSEWHERE) as (server, _), channel_to(server, trusting(check_hostname=False)) as channel:
        stream = channel.stream(CHAT)
        stream.cancel()
        stream.cancel()
        for step in (stream.send(b"x"), stream.receive()):
            with pytest.raises(NetworkError, match="was dropped"):
                await step
        await stream.finish()
        waiting = channel.stream(CHAT)
        receiving = asyncio.ensure_future(waiting.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(NetworkError, match="was dropped"):
            await receiving
        open_stream = channel.stream(CHAT)
        await open_stream.send(b"x")
        assert await open_stream.receive() == b"x"
        open_stream.cancel()
        with pytest.raises(NetworkError, match="was dropped"):
            await open_stream.receive()
