"""TLS material for clients and nodes: PEM keys and certificates, read and checked before anything connects.

gRPC says of a key that does not fit its certificate, or of a certificate that has expired, only that it could not listen or
connect. So what OpenSSL can tell is told here, with the configuration key, the file and the next step. No text made here
contains anything of a private key.
"""

import contextlib
import datetime
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.security import Security, SecurityProtocol
from kraftlog.sdk.config import ClientConfig

logger = logging.getLogger("kraftlog.security")

MAX_PEM_BYTES = 4 << 20  # a bundle of all public authorities has 250 KiB
_BLOCK = re.compile(rb"(-----BEGIN ([A-Z0-9 ]+)-----)(.+?)(-----END \2-----)", re.DOTALL)
_OTHERS_MAY_READ = 0o004


@dataclass(frozen=True, slots=True)
class TlsSecurity(Security):
    """What gRPC needs for one listener: the channels to it and, with a key, the listener itself. PEM."""

    private_key: bytes | None = field(default=None, repr=False)
    certificate_chain: bytes | None = field(default=None, repr=False)
    """Goes with the key. None: a client that shows no certificate."""
    trusted: bytes | None = field(default=None, repr=False)
    """Certificates of the authorities that peers are checked with. None: those that gRPC comes with."""
    check_hostname: bool = True
    """Whether a server's certificate must be for the host name that was dialled."""
    require_client_certificate: bool = False
    """Whether who connects to the listener must show a certificate that `trusted` accepts."""


@dataclass(frozen=True, slots=True)
class Pem:
    """A PEM text and where it comes from."""

    key: str
    """Configuration key."""
    content: bytes = field(repr=False)
    path: str | None = None
    """None: the text stands in the configuration itself."""
    is_public: bool = False
    """Whether every user of the machine may read the file."""

    def __str__(self) -> str:
        return self.key if self.path is None else f"{self.key}={self.path}"

    def blocks(self, kind: bytes) -> list[bytes]:
        """The blocks whose name ends so, without the comments around them. Lines that a properties file has joined are parted
        again."""
        return [
            b"\n".join((match[1], *_lines(match[3]), match[4]))
            for match in _BLOCK.finditer(self.content)
            if match[2].endswith(kind)
        ]


def client_security(config: ClientConfig, now: datetime.datetime) -> TlsSecurity | None:
    """What a client's options ask for; None for PLAINTEXT. Blocks: reads the files. Raises `InvalidConfigError`."""
    if config.security_protocol == SecurityProtocol.PLAINTEXT:
        return None
    key: bytes | None = None
    chain: bytes | None = None
    if config.ssl_certfile is not None:
        certificate = read_pem("ssl_certfile", config.ssl_certfile)
        private = certificate if config.ssl_keyfile is None else read_pem("ssl_keyfile", config.ssl_keyfile)
        key, chain = check_identity(private, certificate, now)
    cafile = config.ssl_cafile or ssl.get_default_verify_paths().cafile
    return TlsSecurity(
        private_key=key,
        certificate_chain=chain,
        trusted=None if cafile is None else check_trusted(read_pem("ssl_cafile", cafile), now),
        check_hostname=config.ssl_check_hostname,
    )


def read_pem(key: str, path: str) -> Pem:
    """Read a file. Blocks. Raises `InvalidConfigError` with key, file and cause."""
    try:
        with open(path, "rb") as file:
            is_public = bool(os.fstat(file.fileno()).st_mode & _OTHERS_MAY_READ)
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise InvalidConfigError(
            f"config {key}={path} cannot be read: {error.strerror}: check the path and its permissions"
        ) from error
    if len(content) > MAX_PEM_BYTES:
        raise InvalidConfigError(f"config {key}={path} is larger than {MAX_PEM_BYTES} bytes: is it the right file?")
    return Pem(key, content, path, is_public)


def check_identity(private: Pem, certificate: Pem, now: datetime.datetime) -> tuple[bytes, bytes]:
    """The private key and the certificate chain that goes with it. Raises `InvalidConfigError` if they cannot be used."""
    keys, chain = private.blocks(b"PRIVATE KEY"), certificate.blocks(b"CERTIFICATE")
    if not chain:
        raise _lacks(certificate, "certificate", "CERTIFICATE")
    if not keys:
        raise _lacks(private, "private key", "PRIVATE KEY")
    if b"ENCRYPTED" in keys[0][:200]:  # in its name, or in the head of the older format
        raise InvalidConfigError(
            f"config {private}: the private key is encrypted, which gRPC cannot read: "
            "write it without (openssl pkey -in KEY -out PLAIN) into a file that only the node's user may read"
        )
    _check_pair(private, keys[0], certificate, chain)
    for number, block in enumerate(chain):
        _check_validity(certificate, block, number, now)
    if private.is_public:
        logger.warning(
            "config %s: every user of this machine may read the private key: chmod 600 %s", private, private.path
        )
    return keys[0] + b"\n", b"\n".join(chain) + b"\n"


def check_trusted(pem: Pem, now: datetime.datetime) -> bytes:
    """The certificates to check peers with. Raises `InvalidConfigError` if there is none that can be used."""
    blocks = pem.blocks(b"CERTIFICATE")
    if not blocks:
        raise _lacks(pem, "certificate", "CERTIFICATE")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=b"\n".join(blocks).decode("ascii"))
        last = max(_validity(block)[1] for block in blocks)
    except (ssl.SSLError, ValueError) as error:
        raise _damaged(pem, error) from None
    if last < now:
        raise InvalidConfigError(f"config {pem}: every certificate in it has expired, the last on {last:%Y-%m-%d}")
    return b"\n".join(blocks) + b"\n"


def client_context(security: TlsSecurity | None, *, check_hostname: bool) -> ssl.SSLContext:
    """The same material for Python's own TLS; without any, a context that accepts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = check_hostname
    if security is None:
        context.verify_mode = ssl.CERT_NONE
        return context
    if security.trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=security.trusted.decode("ascii"))
    if security.private_key is not None and security.certificate_chain is not None:
        with _as_file(security.certificate_chain + security.private_key) as path:
            context.load_cert_chain(path)
    return context


def _lines(body: bytes) -> list[bytes]:
    if b":" in body:  # headers of the older format of encrypted keys
        return body.strip().splitlines()
    text = b"".join(body.split())
    return [text[at : at + 64] for at in range(0, len(text), 64)]


def _lacks(pem: Pem, what: str, block: str) -> InvalidConfigError:
    hint = ""
    if pem.content.startswith(b"\xfe\xed\xfe\xed"):
        hint = "it is a JKS keystore, convert it (keytool -importkeystore, then openssl pkcs12)"
    elif pem.content.startswith(b"\x30"):
        hint = "it looks like DER or PKCS12, convert it (openssl x509, pkey or pkcs12)"
    else:
        hint = f"put its PEM block (-----BEGIN {block}-----) there"
    return InvalidConfigError(f"config {pem} holds no {what}: {hint}")


def _damaged(pem: Pem, error: Exception) -> InvalidConfigError:
    reason = getattr(error, "reason", None) or str(error)
    return InvalidConfigError(f"config {pem} holds a PEM block that cannot be read ({reason}): make the file anew")


def _check_pair(private: Pem, key: bytes, certificate: Pem, chain: list[bytes]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with _as_file(b"\n".join([*chain, key, b""])) as path:
            context.load_cert_chain(path, password=lambda: b"")  # without one, OpenSSL asks at the terminal
    except ssl.SSLError as error:
        if error.reason is not None and "MISMATCH" in error.reason:
            where = "it" if private == certificate else f"config {certificate}"
            raise InvalidConfigError(
                f"config {private}: the private key does not belong to the first certificate in {where}: "
                "the node's own certificate comes first, and was made with this key"
            ) from None
        raise _damaged(private, error) from None


def _check_validity(pem: Pem, block: bytes, number: int, now: datetime.datetime) -> None:
    try:
        begin, end = _validity(block)
    except ValueError as error:
        raise _damaged(pem, error) from None
    which = "the certificate" if number == 0 else f"certificate {number + 1} of the chain"
    if end < now:
        raise InvalidConfigError(f"config {pem}: {which} has expired on {end:%Y-%m-%d %H:%M} UTC: get a new one")
    if begin > now:
        raise InvalidConfigError(
            f"config {pem}: {which} is valid only from {begin:%Y-%m-%d %H:%M} UTC: check this machine's clock"
        )


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path to `content` for OpenSSL, which reads keys only from files; in memory where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kraftlog-pem", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _validity(block: bytes) -> tuple[datetime.datetime, datetime.datetime]:
    """First and last moment of a certificate (RFC 5280 section 4.1). Raises ValueError for what is none."""
    der = ssl.PEM_cert_to_DER_cert(block.decode("ascii"))
    try:
        (_, certificate), *_ = _elements(der)
        (_, signed), *_ = _elements(certificate)
        fields = list(_elements(signed))
        validity = fields[4 if fields[0][0] == 0xA0 else 3][
            1
        ]  # after version (only of v2 and v3), number, algorithm, issuer
        (begin_tag, begin), (end_tag, end) = _elements(validity)
    except IndexError:
        raise ValueError("not a certificate") from None
    return _time(begin_tag, begin), _time(end_tag, end)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of the elements that follow each other in `der`."""
    position = 0
    while position < len(der):
        tag, length = der[position], der[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(der[position : position + size], "big")
            position += size
        yield tag, der[position : position + length]
        position += length


def _time(tag: int, content: bytes) -> datetime.datetime:
    text = content.decode("ascii")
    if tag == 0x17:  # UTCTime: years 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    return datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
