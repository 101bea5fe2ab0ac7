"""A real node with secured listeners: clients get in with the right certificates, and are told why when they do not."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto.errors import InvalidConfigError, SslAuthenticationFailedError, UnsupportedVersionError
from kraftlog.sdk.admin import Admin, AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer, Consumer
from kraftlog.sdk.producer import AsyncProducer, Producer
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.sdk.transport import GrpcConnector
from kraftlog.sdk.types import TopicPartition
from kraftlog.server.node import Node
from kraftlog.server.seams import ThreadExecutor
from kraftlog.testing.certificates import Authority, Identity
from tests.integration.node_harness import format_directory, make_node, running_node

OURS = Authority.create("ours")
OTHERS = Authority.create("others")
NODE = OURS.issue("node-1", hosts=("127.0.0.1", "localhost"))
ALICE = OURS.issue("alice")
PATIENCE_S = 10.0
PATIENT = {"request_timeout_ms": 60_000, "default_api_timeout_ms": 60_000}  # what is wrong is told long before


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """Plain for brokers, secured for clients, and two that ask for certificates: for clients and for the quorum."""
    truststore = tmp_path / "ca.pem"
    truststore.write_bytes(OURS.pem)
    pairs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "MUTUAL:SSL,CONTROLLER:SSL",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(NODE.keystore(tmp_path / "node.pem")),
        "ssl.truststore.location": str(truststore),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.controller.ssl.client.auth": "required",
    }
    async with running_node(tmp_path / "data", pairs) as node:
        yield node


def options(
    node: Node, listener: str, directory: Path, identity: Identity | None = None, **more: Any
) -> dict[str, Any]:
    """A client's options for a listener; with `identity`'s files."""
    if listener == "PLAINTEXT":
        return {"bootstrap_servers": node.addresses[listener], **more}
    (directory / "ca.crt").write_bytes(OURS.pem)
    found: dict[str, Any] = {
        "bootstrap_servers": node.addresses[listener],
        "security_protocol": "SSL",
        "ssl_cafile": directory / "ca.crt",
    }
    if identity is not None:
        found["ssl_certfile"], found["ssl_keyfile"], _ = identity.files(directory, "client")
    return found | more


@pytest.mark.parametrize(("listener", "identity"), [("SSL", None), ("MUTUAL", ALICE)])
async def test_produce_and_consume_over_tls(
    node: Node, tmp_path: Path, listener: str, identity: Identity | None
) -> None:
    """All three clients, blocking and not. Metadata send them to the listener through which they came."""
    config = options(node, listener, tmp_path, identity)

    def blocking() -> list[bytes | None]:
        with Admin(config) as admin:
            admin.create_topics(["orders"])
            (told,) = admin.describe_cluster().nodes
            assert f"{told.host}:{told.port}" == node.addresses[listener]
        with Producer(config) as producer:
            producer.send("orders", b"1").result(PATIENCE_S)
        with Consumer(config, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            while not (records := consumer.poll(timeout_ms=1_000)):
                continue
            consumer.commit()
            return [record.value for each in records.values() for record in each]

    assert await asyncio.to_thread(blocking) == [b"1"]
    async with AsyncProducer(config) as producer:
        await producer.send_and_wait("orders", b"2")
    async with AsyncAdmin(config) as admin:
        ends = await admin.list_offsets([TopicPartition("orders", 0)], "latest")
        assert ends == {TopicPartition("orders", 0): 2}
    async with AsyncConsumer(config, group_id="g") as consumer:
        consumer.subscribe(["orders"])
        async for record in consumer:
            assert record.value == b"2"  # the group has committed 1
            break


async def test_each_listener_tells_its_own_address(node: Node, tmp_path: Path) -> None:
    """Metadata and the coordinator; the broker's own listener among them."""
    assert node.address == node.addresses["PLAINTEXT"]
    for listener in ("PLAINTEXT", "SSL", "MUTUAL"):
        async with AsyncAdmin(options(node, listener, tmp_path, ALICE)) as admin:
            (told,) = (await admin.describe_cluster()).nodes
            assert f"{told.host}:{told.port}" == node.addresses[listener]
            assert await admin.list_groups() == []


Attempt = Callable[[dict[str, Any]], object]


def administer(config: dict[str, Any]) -> object:
    with Admin(config) as admin:
        return admin.list_topics()


def produce(config: dict[str, Any]) -> object:
    with Producer(config) as producer:
        return producer.send("orders", b"x").result(PATIENCE_S)


def consume(config: dict[str, Any]) -> object:
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        return consumer.poll(timeout_ms=PATIENCE_S * 1000)


def consume_in_group(config: dict[str, Any]) -> object:
    with Consumer(config, group_id="g") as consumer:
        consumer.subscribe(["orders"])
        return consumer.poll(timeout_ms=PATIENCE_S * 1000)


@pytest.mark.parametrize("attempt", [administer, produce, consume, consume_in_group])
@pytest.mark.parametrize(
    ("listener", "change", "words"),
    [
        ("SSL", {"security_protocol": "PLAINTEXT", "ssl_cafile": None}, "speaks TLS and this client does not"),
        ("PLAINTEXT", {"security_protocol": "SSL"}, "does not speak TLS: set security_protocol=PLAINTEXT"),
        ("SSL", {"ssl_cafile": "others.crt"}, "is not from an authority in ssl_cafile"),
        ("MUTUAL", {}, "does not accept clients without a certificate"),
    ],
    ids=["plain client", "plain listener", "wrong authority", "no certificate"],
)
async def test_a_client_that_does_not_get_in_is_told_at_once(
    node: Node, tmp_path: Path, attempt: Attempt, listener: str, change: dict[str, Any], words: str
) -> None:
    """Whatever it tries first, and however long its time-outs are; not after retries."""
    (tmp_path / "others.crt").write_bytes(OTHERS.pem)
    config = options(node, listener, tmp_path) | PATIENT | change
    if change.get("ssl_cafile"):
        config["ssl_cafile"] = tmp_path / change["ssl_cafile"]
    began = time.monotonic()
    with pytest.raises(SslAuthenticationFailedError, match=words):
        await asyncio.to_thread(attempt, config)
    assert time.monotonic() - began < PATIENCE_S


async def test_the_quorums_listener_takes_no_one_without_a_certificate(node: Node, tmp_path: Path) -> None:
    """And whoever gets in finds no service for clients there."""
    address = node.addresses["CONTROLLER"]
    stranger = OTHERS.issue("mallory")
    for identity in (None, stranger):
        security = TlsSecurity(
            private_key=None if identity is None else identity.key,
            certificate_chain=None if identity is None else identity.certificate,
            trusted=OURS.pem,
        )
        channel = GrpcConnector(security=security).connect(address)
        with pytest.raises(SslAuthenticationFailedError):
            await channel.unary("/kraftlog.v1.Broker/Metadata", b"", timeout_ms=10_000)
        await channel.close()
    peer = TlsSecurity(private_key=NODE.key, certificate_chain=NODE.certificate, trusted=OURS.pem)
    channel = GrpcConnector(security=peer).connect(address)
    with pytest.raises(UnsupportedVersionError):
        await channel.unary("/kraftlog.v1.Broker/Metadata", b"", timeout_ms=10_000)
    await channel.close()


async def test_no_description_and_no_log_shows_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys that stand in server.properties itself come back as [hidden]."""
    pairs = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.key": NODE.key.decode(),
        "ssl.keystore.certificate.chain": NODE.certificate.decode(),
    }
    secret = NODE.key.decode().splitlines()[1]
    with caplog.at_level(logging.DEBUG):
        async with (
            running_node(tmp_path / "data", pairs) as node,
            AsyncAdmin(options(node, "SSL", tmp_path)) as admin,
        ):
            entries = {entry.name: entry for entry in await admin.describe_configs(broker=1)}
    assert entries["ssl.keystore.key"].value == "[hidden]"
    assert entries["ssl.keystore.certificate.chain"].value == "[hidden]"
    assert secret not in repr(entries)
    assert secret not in caplog.text


async def test_a_node_without_a_usable_certificate_does_not_start(tmp_path: Path) -> None:
    """It says so before it touches the log directory."""
    expired = OURS.issue("node-1", expired=True).keystore(tmp_path / "node.pem")
    format_directory(tmp_path / "data")
    executor = ThreadExecutor(1)
    pairs = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(expired)}
    node = make_node(tmp_path / "data", executor, pairs)
    with pytest.raises(
        InvalidConfigError, match=f"config ssl.keystore.location={expired}: the certificate has expired"
    ):
        await node.start()
    await node.stop()
    executor.close()
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()
