"""The `ssl.` keys of a node, read and checked, as one `Security` per listener name."""

import datetime
from functools import partial

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.security import Password, Security, SecurityProtocol
from kraftlog.sdk.tls import Pem, TlsSecurity, check_identity, check_trusted, read_pem
from kraftlog.server.config import NodeConfig


def listener_security(config: NodeConfig, name: str) -> Security | None:
    """What the listener `name` of this node needs, and connections to listeners of that name; None for PLAINTEXT.

    Blocks: reads files. Raises `InvalidConfigError` with the key, the file and the next step.
    """
    plan = config.listener_plan
    if plan.protocol(name) is SecurityProtocol.PLAINTEXT:
        return None
    is_open = any(listener.name == name for listener in plan.listeners)
    material = _Material(config, name)
    now = datetime.datetime.now(datetime.UTC)
    identity = material.identity()
    trusted = material.trusted()
    if is_open and identity is None:
        raise InvalidConfigError(
            f"listener {name} has protocol SSL and no certificate: set ssl.keystore.location to a PEM file with the private "
            "key and the certificate chain"
        )
    at = material.config
    if at.ssl_client_auth == "required" and trusted is None:
        raise InvalidConfigError(
            f"config {config.key_at(name, 'ssl.client.auth')}=required needs ssl.truststore.location: a PEM file with the "
            "certificates of the authorities that clients' certificates are from"
        )
    key, chain = (None, None) if identity is None else check_identity(*identity, now)
    return TlsSecurity(
        private_key=key,
        certificate_chain=chain,
        trusted=None if trusted is None else check_trusted(trusted, now),
        check_hostname=at.ssl_endpoint_identification_algorithm == "https",
        require_client_certificate=at.ssl_client_auth == "required",
    )


def check_listeners(config: NodeConfig) -> None:
    """Read everything that the node's listeners will need. Blocks. Raises `InvalidConfigError`."""
    for listener in config.listeners:
        listener_security(config, listener.name)


class _Material:
    """Where keys and certificates of one listener are."""

    def __init__(self, config: NodeConfig, name: str) -> None:
        self.config = config.at_listener(name)
        self._key_at = partial(config.key_at, name)

    def identity(self) -> tuple[Pem, Pem] | None:
        """Private key and certificate chain."""
        at = self.config
        location = self._key_at("ssl.keystore.location")
        key = self._inline("ssl.keystore.key", at.ssl_keystore_key)
        chain = self._inline("ssl.keystore.certificate.chain", at.ssl_keystore_certificate_chain)
        if at.ssl_keystore_location:
            self._refuse_both(location, key or chain)
            both = read_pem(location, at.ssl_keystore_location)
            return both, both
        if key is None and chain is None:
            return None
        if key is None or chain is None:
            missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
            raise InvalidConfigError(f"config {key or chain} needs {missing} with it")
        return key, chain

    def trusted(self) -> Pem | None:
        """Certificates of the authorities."""
        at = self.config
        location = self._key_at("ssl.truststore.location")
        inline = self._inline("ssl.truststore.certificates", at.ssl_truststore_certificates)
        if at.ssl_truststore_location:
            self._refuse_both(location, inline)
            return read_pem(location, at.ssl_truststore_location)
        return inline

    def _inline(self, key: str, value: Password | None) -> Pem | None:
        return None if value is None else Pem(self._key_at(key), value.value.encode())

    def _refuse_both(self, location: str, inline: Pem | None) -> None:
        if inline is not None:
            raise InvalidConfigError(f"config {location} and {inline} are both set: keep one of them")
