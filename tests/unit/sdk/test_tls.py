"""PEM keys and certificates are checked before anything connects, and nothing shows a key."""

import contextlib
import datetime
import logging
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.config import AdminConfig, ProducerConfig
from kraftlog.sdk.tls import MAX_PEM_BYTES, Pem, TlsSecurity, check_identity, check_trusted, client_security, read_pem
from kraftlog.testing.certificates import Authority, Identity

NOW = datetime.datetime.now(datetime.UTC)
AUTHORITY = Authority.create()
ALICE = AUTHORITY.issue("alice")
BOB = AUTHORITY.issue("bob")


def secret_of(identity: Identity) -> str:
    """A line of the key that must not be seen anywhere."""
    return identity.key.decode().splitlines()[1]


def pems(key: bytes, certificate: bytes) -> tuple[Pem, Pem]:
    return Pem("the.key", key, "/etc/k.key"), Pem("the.chain", certificate, "/etc/k.crt")


def refusal(key: bytes, certificate: bytes, now: datetime.datetime = NOW) -> str:
    """What `check_identity` says; never a word of the key."""
    with pytest.raises(InvalidConfigError) as caught:
        check_identity(*pems(key, certificate), now)
    text = str(caught.value)
    assert "\n" not in text
    assert not any(line.decode() in text for line in key.splitlines()[1:] if len(line) > 30)
    return text


def test_a_key_and_its_chain_are_taken_as_they_are() -> None:
    """Comments and other blocks around them do not matter; the order of the chain stays."""
    text = b"# a comment\n" + ALICE.key + b"subject=CN = alice\n" + ALICE.certificate + AUTHORITY.pem
    both = Pem("ssl.keystore.location", text, None)
    key, chain = check_identity(both, both, NOW)
    assert key == ALICE.key
    assert chain == ALICE.certificate + AUTHORITY.pem
    assert check_trusted(Pem("ca", b"x\n" + AUTHORITY.pem + b"y\n"), NOW) == AUTHORITY.pem


def test_a_key_of_another_certificate_is_refused() -> None:
    assert refusal(BOB.key, ALICE.certificate) == (
        "config the.key=/etc/k.key: the private key does not belong to the first certificate in config the.chain=/etc/k.crt:"
        " the node's own certificate comes first, and was made with this key"
    )
    assert "does not belong" in refusal(
        ALICE.key, AUTHORITY.pem + ALICE.certificate
    )  # the right ones in the wrong order


def test_certificates_out_of_time_are_refused() -> None:
    """Also one further up in the chain."""
    past = AUTHORITY.issue("past", expired=True)
    assert "the.chain=/etc/k.crt: the certificate has expired on 20" in refusal(past.key, past.certificate)
    chain = ALICE.certificate + past.certificate
    assert "certificate 2 of the chain has expired" in refusal(ALICE.key, chain)
    early = NOW - datetime.timedelta(days=365)
    assert "is valid only from 20" in refusal(ALICE.key, ALICE.certificate, early)
    late = NOW + datetime.timedelta(days=365)
    assert "the certificate has expired" in refusal(ALICE.key, ALICE.certificate, late)
    with pytest.raises(InvalidConfigError, match=r"^config ca: every certificate in it has expired, the last on 20"):
        check_trusted(Pem("ca", past.certificate + past.certificate), NOW)
    assert check_trusted(Pem("ca", past.certificate + AUTHORITY.pem), NOW)


def test_what_is_no_pem_says_what_it_is() -> None:
    """Missing blocks, other formats, encrypted keys and damage each have their next step."""
    assert "the.chain=/etc/k.crt holds no certificate: put its PEM block" in refusal(ALICE.key, b"")
    assert "the.key=/etc/k.key holds no private key: put its PEM block" in refusal(ALICE.certificate, ALICE.certificate)
    assert "is a JKS keystore" in refusal(ALICE.key, b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    assert "DER or PKCS12" in refusal(b"\x30\x82\x01\x00", ALICE.certificate)
    loaded = serialization.load_pem_private_key(ALICE.key, None)
    for form in (serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL):
        encrypted = loaded.private_bytes(serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"x"))
        assert "encrypted, which gRPC cannot read" in refusal(encrypted, ALICE.certificate)
    lines = ALICE.key.splitlines(keepends=True)
    assert "cannot be read" in refusal(b"".join([lines[0], lines[1][::-1], *lines[2:]]), ALICE.certificate)
    garbage = b"-----BEGIN CERTIFICATE-----\nMAo=\n-----END CERTIFICATE-----\n"
    assert "cannot be read" in refusal(ALICE.key, garbage)
    for content in (garbage, AUTHORITY.pem + garbage):
        with pytest.raises(InvalidConfigError, match="config ca holds a PEM block that cannot be read"):
            check_trusted(Pem("ca", content), NOW)
    with pytest.raises(InvalidConfigError, match="config ca holds no certificate"):
        check_trusted(Pem("ca", ALICE.key), NOW)


@given(st.data())
def test_damaged_certificates_are_refused_by_name_whatever_is_wrong_with_them(data: st.DataObject) -> None:
    """Some bytes of a certificate changed, cut or put in: it is taken or refused, and nothing else is raised."""
    der = bytearray(ssl.PEM_cert_to_DER_cert(ALICE.certificate.decode()))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(der)))
        der[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    damaged = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    for check in (
        lambda: check_identity(*pems(ALICE.key, damaged), NOW),
        lambda: check_identity(*pems(ALICE.key, ALICE.certificate + damaged), NOW),
        lambda: check_trusted(Pem("ca", damaged), NOW),
    ):
        with contextlib.suppress(InvalidConfigError):
            check()


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Key, file and cause; and no memory for a wrong file of gigabytes."""
    with pytest.raises(InvalidConfigError, match=rf"^config ssl_cafile={tmp_path}/none cannot be read: No such file"):
        read_pem("ssl_cafile", str(tmp_path / "none"))
    with pytest.raises(InvalidConfigError, match="Is a directory"):
        read_pem("ssl_cafile", str(tmp_path))
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MAX_PEM_BYTES + 1)
    with pytest.raises(InvalidConfigError, match="is larger than"):
        read_pem("ssl_cafile", str(large))


def test_a_key_that_everybody_may_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certfile, keyfile, _ = ALICE.files(tmp_path, "alice")
    config = AdminConfig.of(security_protocol="SSL", ssl_certfile=str(certfile), ssl_keyfile=str(keyfile))
    with caplog.at_level(logging.WARNING):
        client_security(config, NOW)
        assert not caplog.records
        keyfile.chmod(0o644)
        client_security(config, NOW)
    assert caplog.messages == [
        f"config ssl_keyfile={keyfile}: every user of this machine may read the private key: chmod 600 {keyfile}"
    ]


def test_nothing_shows_a_key() -> None:
    """Neither the material nor what it was read from, when they are printed or logged."""
    security = TlsSecurity(private_key=ALICE.key, certificate_chain=ALICE.certificate, trusted=AUTHORITY.pem)
    shown = repr(security) + str(security) + repr(Pem("k", ALICE.key)) + str(Pem("k", ALICE.key))
    assert secret_of(ALICE) not in shown
    assert "BEGIN" not in shown


def test_options_of_clients(tmp_path: Path) -> None:
    """kafka-python's names, dotted ones, and Kafka's Java names mean the same."""
    crt, key, ca = ALICE.files(tmp_path, "alice")
    both = ALICE.keystore(tmp_path / "both.pem")
    ours = ProducerConfig.of(
        security_protocol="ssl", ssl_cafile=ca, ssl_certfile=crt, ssl_keyfile=key, ssl_check_hostname=False
    )
    dotted = ProducerConfig.of(
        {
            "security.protocol": "SSL",
            "ssl.cafile": str(ca),
            "ssl.certfile": str(crt),
            "ssl.keyfile": str(key),
            "ssl.check.hostname": "false",
        }
    )
    assert ours == dotted
    java = ProducerConfig.of(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(ca),
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.keystore.type": "pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert client_security(java, NOW) == client_security(ours, NOW)
    expected = TlsSecurity(
        private_key=ALICE.key, certificate_chain=ALICE.certificate, trusted=AUTHORITY.pem, check_hostname=False
    )
    assert client_security(ours, NOW) == expected
    assert client_security(ProducerConfig(), NOW) is None
    checked = ProducerConfig.of({"ssl.endpoint.identification.algorithm": "https", "security.protocol": "SSL"})
    assert checked.ssl_check_hostname


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security_protocol": "SASL_SSL"}, "security_protocol"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile has no meaning without security_protocol=SSL"),
        ({"security_protocol": "SSL", "ssl_keyfile": "k"}, "ssl_keyfile needs ssl_certfile"),
        ({"ssl.truststore.type": "JKS"}, "ssl_truststore_type='JKS': use one of PEM"),
        ({"ssl.truststore.location": "a", "ssl_cafile": "b"}, "contradicts"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "ssl_endpoint_identification_algorithm"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words):
        AdminConfig.of(options)
