"""Words of transport security that clients, nodes and transports share: protocols, principals, secrets.

What a transport needs to secure its connections is opaque to all but itself and the module that made it; here it is only
`Security`. The simulated network ignores it.
"""

from dataclasses import dataclass
from enum import StrEnum


class SecurityProtocol(StrEnum):
    """How a listener is secured, by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"


class Security:
    """How channels and servers of one listener are secured. Opaque: the transports know the subclasses."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is at the other end of a connection, as far as the connection proves it."""

    name: str
    """The subject of the peer's certificate, as RFC 2253 writes it: `CN=node-1,O=example`."""
    alternative_names: tuple[str, ...] = ()
    """What else the certificate is for: host names, addresses, URIs."""
    kind: str = "User"

    @property
    def is_authenticated(self) -> bool:
        """Whether the peer has proved its name."""
        return self != ANONYMOUS

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")
"""Kafka's name for whoever has proved nothing."""


class Password:
    """A secret from a configuration. Its text shows nothing, so that no log, error or description does by mistake."""

    __slots__ = ("value",)

    HIDDEN = "[hidden]"

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return self.HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)
