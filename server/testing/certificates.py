"""Certificates for tests: an authority of one's own, and what it signs.

    authority = Authority.create()
    node = authority.issue("localhost", hosts=("localhost", "127.0.0.1"))
    config = {"ssl.keystore.location": str(node.keystore(tmp_path / "node.pem")), ...}

Needs the `cryptography` package (in kraftlog's `test` extra). Keys are ECDSA P-256: made in a millisecond. Nothing here is
fit for a cluster that holds anything of worth: keys are not protected, and nothing is ever revoked.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIFETIME = datetime.timedelta(days=30)
_BACKDATED = datetime.timedelta(hours=1)  # clocks of test machines differ


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key with its certificate, and the authority's certificate that others check it with. All are PEM."""

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes

    def keystore(self, path: Path) -> Path:
        """Write key and certificate into one file, as `ssl.keystore.location` takes them; readable by its owner alone."""
        return _write(path, self.key + self.certificate)

    def files(self, directory: Path, name: str) -> tuple[Path, Path, Path]:
        """Write `<name>.crt`, `<name>.key` and `ca.crt`: what clients take as certfile, keyfile and cafile."""
        return (
            _write(directory / f"{name}.crt", self.certificate),
            _write(directory / f"{name}.key", self.key),
            _write(directory / "ca.crt", self.authority),
        )


@dataclass(frozen=True, slots=True)
class Authority:
    """A self-signed authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str = "kraftlog test authority") -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        now = datetime.datetime.now(datetime.UTC)
        builder = _builder(subject, subject, key.public_key(), now - _BACKDATED, now + LIFETIME)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    @property
    def pem(self) -> bytes:
        """The certificate that others trust."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, hosts: Sequence[str] = (), expired: bool = False) -> Identity:
        """A fresh key with a certificate for the common name `name`; `hosts` are the names and IP addresses that it is for."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.datetime.now(datetime.UTC) + (-_BACKDATED if expired else LIFETIME)
        begin = end - LIFETIME - 2 * _BACKDATED
        builder = _builder(_subject(name), self.certificate.subject, key.public_key(), begin, end)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self.key, hashes.SHA256())
        return Identity(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            certificate.public_bytes(serialization.Encoding.PEM),
            self.pem,
        )


def _subject(name: str) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "kraftlog"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path
