"""The listeners that a node opens: what each serves, what it is secured with, and what others are told of it."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from kraftlog.proto.seams import CallContext, Channel, Handlers, Network, Payload, Server, Stream
from kraftlog.proto.security import Security
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.server.config import NodeConfig
from kraftlog.server.listeners import Listener
from kraftlog.server.listening import Listening
from kraftlog.testing.certificates import Authority

T = TypeVar("T")

OURS = Authority.create()
CLIENT = "/kraftlog.test.Client/Ask"
QUORUM = "/kraftlog.test.Quorum/Ask"


class AtOnce:
    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def close(self) -> None:
        return


@dataclass
class Opened:
    """A listener that only remembers."""

    address: str
    handlers: Handlers
    security: Security | None
    is_stopped: bool = False

    async def stop(self, grace_ms: float) -> None:
        self.is_stopped = True


@dataclass
class FakeNetwork:
    """Hands out ports from 1001 on; `taken` addresses cannot be opened."""

    security: Security | None = None
    opened: list[Opened] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    def connect(self, address: str) -> Channel:
        raise AssertionError(f"nobody connects to {address}")

    async def serve(self, address: str, handlers: Handlers) -> Server:
        if address in self.taken:
            raise OSError(errno.EADDRINUSE, f"cannot listen on {address}")
        host, _, port = address.rpartition(":")
        server = Opened(f"{host}:{int(port) or 1001 + len(self.opened)}", handlers, self.security)
        self.opened.append(server)
        return server

    def secured(self, security: Security) -> Network:
        return FakeNetwork(security, self.opened, self.taken)


async def answer(data: bytes, context: CallContext) -> Payload:
    return context.listener.encode()


async def stream(stream: Stream, context: CallContext) -> None:
    await stream.send(context.listener.encode())


BROKER = Handlers(unary={CLIENT: answer}, streams={CLIENT + "Stream": stream})
CONTROLLER = Handlers(unary={QUORUM: answer})


async def opened(network: FakeNetwork, **pairs: str) -> Listening:
    """Keys with `_` for dots."""
    config = NodeConfig.from_properties({key.replace("_", "."): value for key, value in pairs.items()})
    listening = Listening(config, network)
    await listening.prepare(AtOnce())
    await listening.open(broker=BROKER, controller=CONTROLLER)
    return listening


def methods(server: Opened) -> set[str]:
    return {*server.handlers.unary, *server.handlers.streams}


async def test_one_listener_serves_clients_and_the_quorum() -> None:
    network = FakeNetwork()
    listening = await opened(network, listeners="PLAINTEXT://h:0")
    assert listening.bound == {"PLAINTEXT": "h:1001"}
    assert methods(network.opened[0]) == {CLIENT, CLIENT + "Stream", QUORUM}
    assert network.opened[0].security is None


async def test_each_listener_serves_what_it_is_for(tmp_path: Path) -> None:
    """Clients find no service of the quorum, nor the quorum one for clients; each has the security of its own keys."""
    network = FakeNetwork()
    identity = OURS.issue("node", hosts=("h",))
    listening = await opened(
        network,
        listeners="SSL://h:0,PLAINTEXT://h:0,CONTROLLER://h:0",
        listener_security_protocol_map="CONTROLLER:SSL",
        controller_listener_names="CONTROLLER",
        ssl_keystore_location=str(identity.keystore(tmp_path / "node.pem")),
        ssl_truststore_certificates=OURS.pem.decode(),
        listener_name_controller_ssl_client_auth="required",
    )
    secured, plain, controller = network.opened
    assert methods(secured) == methods(plain) == {CLIENT, CLIENT + "Stream"}
    assert methods(controller) == {QUORUM}
    own = TlsSecurity(private_key=identity.key, certificate_chain=identity.certificate, trusted=OURS.pem)
    assert secured.security == own
    assert plain.security is None
    assert isinstance(controller.security, TlsSecurity)
    assert controller.security.require_client_certificate
    dialled = listening.network(listening.plan.controller_name)
    assert isinstance(dialled, FakeNetwork)
    assert dialled.security == controller.security, "what is dialled is secured as what is served"


async def test_handlers_know_the_listener() -> None:
    network = FakeNetwork()
    await opened(network, listeners="A://h:0,B://h:0", listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT")
    for server, name in zip(network.opened, (b"A", b"B"), strict=True):
        assert await server.handlers.unary[CLIENT](b"", CallContext(peer="p")) == name


async def test_a_broker_prepares_to_dial_controllers_whose_listener_it_does_not_have() -> None:
    network = FakeNetwork()
    listening = await opened(
        network,
        process_roles="broker",
        controller_quorum_bootstrap_servers="c:9093",
        listeners="PLAINTEXT://h:0",
        controller_listener_names="CONTROLLER",
        listener_security_protocol_map="CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        ssl_truststore_certificates=OURS.pem.decode(),
    )
    assert methods(network.opened[0]) == {CLIENT, CLIENT + "Stream"}
    dialled = listening.network("CONTROLLER")
    assert isinstance(dialled, FakeNetwork)
    assert dialled.security == TlsSecurity(trusted=OURS.pem)


async def test_what_others_are_told() -> None:
    """The advertised address, with the bound port for 0; this machine's name for an address that means all."""
    network = FakeNetwork()
    listening = await opened(
        network,
        listeners="A://h:0,B://h:0,C://:7,D://h:0",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,D:PLAINTEXT",
        advertised_listeners="A://outside:9092,B://outside:0",
    )
    assert listening.endpoint("A") == Listener("A", "outside", 9092)
    assert listening.endpoint("B") == Listener("B", "outside", 1002)
    assert listening.endpoint("C").port == 7
    assert listening.endpoint("C").host not in ("", "0.0.0.0")
    assert listening.endpoint("D") == Listener("D", "h", 1004)


async def test_a_taken_address_leaves_nothing_open() -> None:
    """The listeners that were open by then close with `stop`, which may be repeated."""
    network = FakeNetwork(taken={"h:2"})
    config = NodeConfig.from_properties(
        {"listeners": "PLAINTEXT://h:1,SSL://h:2", "listener.security.protocol.map": "SSL:PLAINTEXT"}
    )
    listening = Listening(config, network)
    await listening.prepare(AtOnce())
    with pytest.raises(OSError, match="cannot listen on h:2"):
        await listening.open(broker=BROKER, controller=CONTROLLER)
    await listening.stop(0)
    await listening.stop(0)
    assert [server.is_stopped for server in network.opened] == [True]
