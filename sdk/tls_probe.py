"""Why a secure connection cannot be made, found out by a connection of our own.

gRPC reports a refused client certificate, a TLS port dialled without TLS and a node that just went away in the same two
words. Python's TLS tells them apart, so that after gRPC's failure one more connection looks for the reason. The same look
finds the name in a broker's certificate, which gRPC must be given where host names are not to be checked: it has no
switch for that.
"""

import asyncio
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from kraftlog.proto.errors import BrokerNotAvailableError, KraftlogError, SslAuthenticationFailedError
from kraftlog.sdk.tls import TlsSecurity, client_context

PROBE_TIMEOUT_S = 3.0  # of all steps together; below the time of one attempt to connect
_TIMES_DROPPED = 2  # once may be a node that has just been killed; then it takes no second connection
_HOSTNAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
_EXPIRED = 10
_NOT_YET_VALID = 9
_CERTIFICATE_ALERTS = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "UNSUPPORTED_CERT",
)
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


async def refusal(
    address: str, security: TlsSecurity | None, timeout_s: float = PROBE_TIMEOUT_S
) -> KraftlogError | None:
    """Why the broker at `address` cannot be reached with this security, in one line.

    None if nothing is wrong with it, or if that does not come out within `timeout_s` (PROBE_TIMEOUT_S at most).
    """
    limit_s = min(timeout_s, PROBE_TIMEOUT_S)
    if security is None:
        return await _speaks_tls(address, limit_s)
    context = client_context(security, check_hostname=security.check_hostname)
    try:
        async with asyncio.timeout(limit_s):
            for _ in range(_TIMES_DROPPED):
                if (await _handshake(address, context)).has_spoken:
                    return None
    except ssl.SSLError as error:
        text = _explained(address, error, security)
        return None if text is None else SslAuthenticationFailedError(text)
    except (OSError, TimeoutError):
        return None
    return SslAuthenticationFailedError(_not_accepted(address, "ended the connection", security))


async def certified_name(address: str, security: TlsSecurity, timeout_s: float = PROBE_TIMEOUT_S) -> str:
    """A name that the broker's certificate is for, whichever; the certificate is checked apart from that.

    Waits for `timeout_s`, PROBE_TIMEOUT_S at most. Raises `SslAuthenticationFailedError`, or `BrokerNotAvailableError` if nobody answers.
    """
    try:
        async with asyncio.timeout(min(timeout_s, PROBE_TIMEOUT_S)):
            certificate = (await _handshake(address, client_context(security, check_hostname=False))).certificate
    except ssl.SSLError as error:
        text = _explained(address, error, security) or f"the TLS handshake with the broker at {address} failed: {error}"
        raise SslAuthenticationFailedError(text) from None
    except (OSError, TimeoutError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "no answer"
        raise BrokerNotAvailableError(
            f"cannot reach the broker at {address} ({reason}): is the cluster running? kraftctl cluster status"
        ) from None
    names = [str(name).replace("*", "any", 1) for _, name in certificate.get("subjectAltName", ())]
    names += [str(value) for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    if not names:
        raise SslAuthenticationFailedError(
            f"the certificate of the broker at {address} names nobody: give it a host name"
        )
    return names[0]


async def _speaks_tls(address: str, limit_s: float) -> KraftlogError | None:
    try:
        async with asyncio.timeout(limit_s):
            await _handshake(address, client_context(None, check_hostname=False))
    except ssl.SSLError as error:
        if not _is_alert(error):
            return None
    except (OSError, TimeoutError):
        return None
    return SslAuthenticationFailedError(
        f"the broker at {address} speaks TLS and this client does not: set security_protocol=SSL, or use the address of a "
        "PLAINTEXT listener"
    )


class _Seen(NamedTuple):
    """What a handshake has shown."""

    certificate: Mapping[str, Any]
    """As `ssl.SSLSocket.getpeercert` has it; empty if it was not checked."""
    has_spoken: bool
    """Whether the server has said something after it, and has not just gone."""


async def _handshake(address: str, context: ssl.SSLContext) -> _Seen:
    """Shake hands, and wait for the server's first word.

    In TLS 1.3 a server looks at the client's certificate only after the client has finished the handshake. If it does not
    accept it, gRPC ends the connection, where others send an alert.
    """
    host, _, port = address.rpartition(":")
    name = host.strip("[]")
    reader, writer = await asyncio.open_connection(name, int(port), ssl=context, server_hostname=name)
    try:
        word = await reader.read(1)
        return _Seen(writer.get_extra_info("peercert") or {}, bool(word))
    finally:
        writer.transport.abort()


def _is_alert(error: ssl.SSLError) -> bool:
    """Whether the other side has answered in TLS."""
    return "ALERT" in (error.reason or "")


def _explained(address: str, error: ssl.SSLError, security: TlsSecurity) -> str | None:
    host = address.rpartition(":")[0]
    who = f"the certificate of the broker at {address}"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _HOSTNAME_MISMATCH:
            return (
                f"{who} is not for {host} ({_words(error.verify_message)}): dial a name that it is for, add {host} to "
                "its names, or set ssl_check_hostname=false"
            )
        if error.verify_code == _EXPIRED:
            return f"{who} has expired: the node needs a new one"
        if error.verify_code == _NOT_YET_VALID:
            return f"{who} is not valid yet: check the clocks of both machines"
        return (
            f"{who} is not from an authority in ssl_cafile ({_words(error.verify_message)}): name the file with the "
            "certificate of the authority that signed it"
        )
    reason = error.reason or ""
    if any(reason.endswith(alert) for alert in _CERTIFICATE_ALERTS) or reason.endswith("CERTIFICATE_EXPIRED"):
        return _not_accepted(address, _words(reason), security)
    if any(word in reason for word in _NO_TLS):
        return (
            f"the broker at {address} does not speak TLS: set security_protocol=PLAINTEXT, or use the address of an SSL "
            "listener"
        )
    if _is_alert(error):
        return f"the broker at {address} refused the TLS handshake ({_words(reason)}): its log says more"
    return None


def _not_accepted(address: str, how: str, security: TlsSecurity) -> str:
    shown = "the certificate in ssl_certfile" if security.certificate_chain else "clients without a certificate"
    return (
        f"the broker at {address} does not accept {shown} ({how}): set ssl_certfile and ssl_keyfile to a certificate "
        "from an authority that it trusts"
    )


def _words(text: str) -> str:
    """OpenSSL's reason in readable words."""
    return re.sub(r"^(TLSV1|TLSV13|SSLV3) ALERT ", "", text.replace("_", " ")).strip(" .").lower()
