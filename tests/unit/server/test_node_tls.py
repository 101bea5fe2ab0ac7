"""The `ssl.` keys of a node: which listener gets what, and what is wrong with it."""

from pathlib import Path

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.tls import TlsSecurity
from kraftlog.server.config import NodeConfig
from kraftlog.server.tls import check_listeners, listener_security
from kraftlog.testing.certificates import Authority

OURS = Authority.create("ours")
CONTROLLERS = Authority.create("controllers")
NODE = OURS.issue("node", hosts=("127.0.0.1",))
CONTROLLER = CONTROLLERS.issue("controller", hosts=("127.0.0.1",))


def config(pairs: dict[str, str]) -> NodeConfig:
    return NodeConfig.from_properties({"listeners": "SSL://127.0.0.1:0", **pairs})


def refusal(pairs: dict[str, str]) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        check_listeners(config(pairs))
    assert "\n" not in str(caught.value)
    assert NODE.key.decode().splitlines()[1] not in str(caught.value)
    return str(caught.value)


def test_plain_listeners_need_nothing() -> None:
    assert listener_security(NodeConfig(), "PLAINTEXT") is None
    assert (
        listener_security(config({"listeners": "PLAINTEXT://:0", "ssl.keystore.location": "/none"}), "PLAINTEXT")
        is None
    )


def test_files_and_texts_mean_the_same(tmp_path: Path) -> None:
    """KIP-651: one file with key and chain, or both inline; its lines may have been joined, with a blank or with nothing."""
    keystore = NODE.keystore(tmp_path / "node.pem")
    truststore = tmp_path / "ca.pem"
    truststore.write_bytes(OURS.pem)
    by_file = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(truststore),
        "ssl.client.auth": "required",
    }
    inline = {
        "ssl.keystore.key": NODE.key.decode(),
        "ssl.keystore.certificate.chain": NODE.certificate.decode(),
        "ssl.truststore.certificates": OURS.pem.decode(),
        "ssl.client.auth": "required",
    }
    expected = TlsSecurity(
        private_key=NODE.key, certificate_chain=NODE.certificate, trusted=OURS.pem, require_client_certificate=True
    )
    assert listener_security(config(by_file), "SSL") == expected
    assert listener_security(config(inline), "SSL") == expected
    for joint in ("", " "):
        joined = {key: text.replace("\n", joint) for key, text in inline.items()}
        assert listener_security(config(joined), "SSL") == expected


def test_a_listener_may_have_keys_of_its_own(tmp_path: Path) -> None:
    """`listener.name.<name>.` wins over the keys for all, as in Kafka; errors name the key that decided."""
    keystore = NODE.keystore(tmp_path / "node.pem")
    pairs = {
        "listeners": "SSL://:0,CONTROLLER://:0",
        "listener.security.protocol.map": "CONTROLLER:SSL",
        "controller.listener.names": "CONTROLLER",
        "ssl.keystore.location": str(keystore),
        "listener.name.controller.ssl.keystore.location": str(CONTROLLER.keystore(tmp_path / "controller.pem")),
        "listener.name.controller.ssl.truststore.certificates": CONTROLLERS.pem.decode(),
        "listener.name.controller.ssl.client.auth": "required",
        "listener.name.controller.ssl.endpoint.identification.algorithm": "",
    }
    both = config(pairs)
    check_listeners(both)
    assert listener_security(both, "SSL") == TlsSecurity(private_key=NODE.key, certificate_chain=NODE.certificate)
    assert listener_security(both, "CONTROLLER") == TlsSecurity(
        private_key=CONTROLLER.key,
        certificate_chain=CONTROLLER.certificate,
        trusted=CONTROLLERS.pem,
        check_hostname=False,
        require_client_certificate=True,
    )
    wrong = pairs | {"listener.name.controller.ssl.keystore.location": str(tmp_path / "none.pem")}
    told = refusal(wrong)
    assert told.startswith(
        f"config listener.name.controller.ssl.keystore.location={tmp_path}/none.pem cannot be read: No such file"
    )


def test_a_broker_that_only_dials_controllers_needs_no_key_of_its_own() -> None:
    pairs = {
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "c:9093",
        "listeners": "PLAINTEXT://:0",
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.name.controller.ssl.truststore.certificates": CONTROLLERS.pem.decode(),
    }
    assert listener_security(config(pairs), "CONTROLLER") == TlsSecurity(trusted=CONTROLLERS.pem)


def test_what_is_missing_or_said_twice(tmp_path: Path) -> None:
    """Each refusal names the key and the next step."""
    keystore = {"ssl.keystore.location": str(NODE.keystore(tmp_path / "node.pem"))}
    key = {"ssl.keystore.key": NODE.key.decode()}
    chain = {"ssl.keystore.certificate.chain": NODE.certificate.decode()}
    assert "listener SSL has protocol SSL and no certificate: set ssl.keystore.location" in refusal({})
    assert refusal(key) == "config ssl.keystore.key needs ssl.keystore.certificate.chain with it"
    assert refusal(chain) == "config ssl.keystore.certificate.chain needs ssl.keystore.key with it"
    assert "ssl.keystore.location and ssl.keystore.key are both set: keep one" in refusal(keystore | key | chain)
    both = {"ssl.truststore.location": "/x", "ssl.truststore.certificates": OURS.pem.decode()}
    assert "ssl.truststore.location and ssl.truststore.certificates are both set" in refusal(keystore | both)
    assert "ssl.client.auth=required needs ssl.truststore.location" in refusal(
        keystore | {"ssl.client.auth": "required"}
    )
    expired = OURS.issue("node", expired=True).keystore(tmp_path / "expired.pem")
    assert f"ssl.keystore.location={expired}: the certificate has expired" in refusal(
        {"ssl.keystore.location": str(expired)}
    )
    assert "does not belong" in refusal(key | {"ssl.keystore.certificate.chain": OURS.pem.decode()})


def test_descriptions_hide_what_is_secret() -> None:
    """Neither describe-configs nor the text of the configuration shows keys or what stands beside them."""
    described = config(
        {
            "ssl.keystore.key": NODE.key.decode(),
            "ssl.keystore.certificate.chain": NODE.certificate.decode(),
            "listener.name.ssl.ssl.truststore.certificates": OURS.pem.decode(),
            "listener.name.ssl.ssl.client.auth": "required",
        }
    )
    shown = described.described()
    assert shown["ssl.keystore.key"] == ("[hidden]", True)
    assert shown["listener.name.ssl.ssl.truststore.certificates"] == ("[hidden]", True)
    assert shown["listener.name.ssl.ssl.client.auth"] == ("required", True)
    for text in (repr(described), repr(shown), repr(listener_security(described, "SSL"))):
        assert "BEGIN" not in text
        assert NODE.key.decode().splitlines()[1] not in text
