"""Listeners as `server.properties` describes them: names, addresses, and which name is secured how and serves whom.

A listener has a name of the user's choice, which `listener.security.protocol.map` maps to a protocol; `PLAINTEXT` and
`SSL` are names that map to themselves. Listeners in `controller.listener.names` serve the quorum, all others serve
clients. Where that key is empty, or names the only listener of a node that is broker and controller, one listener serves
both (Kafka wants two).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kraftlog.proto.config import parse_int
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.security import SecurityProtocol

MAX_LISTENER_LENGTH = 1024
MAX_LISTENERS = 100
_PROTOCOLS = ", ".join(SecurityProtocol)


@dataclass(frozen=True, slots=True)
class Listener:
    """One endpoint `NAME://host:port`; port 0 means the kernel's choice."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        """`host:port` as the network seam takes it."""
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, key: str, text: str) -> "Listener":
        """Parse `PLAINTEXT://host:port`; an IPv6 host is written in brackets. Names are in upper case, as in Kafka."""
        name, separator, rest = text.strip().partition("://")
        host, colon, port = rest.rpartition(":")
        if not separator or not colon or not name or len(text) > MAX_LISTENER_LENGTH:
            raise InvalidConfigError(f"config {key}={text!r} is not a listener: write PLAINTEXT://host:port")
        return cls(listener_name(key, name), host, parse_int(f"{key} (port)", port, minimum=0, maximum=65535))


def listener_name(key: str, text: str) -> str:
    """A listener's name in upper case: letters, digits, `_` and `-`."""
    name = text.strip().upper()
    if not name or not name.isascii() or not name.replace("_", "").replace("-", "").isalnum():
        raise InvalidConfigError(f"config {key}: {text!r} is not a listener name: use letters, digits, _ and -")
    return name


def parse_listeners(key: str, text: str) -> tuple[Listener, ...]:
    """`A://host:port,B://host:port`, each name and each address once."""
    found = tuple(Listener.parse(key, part) for part in text.split(",") if part.strip())
    if len(found) > MAX_LISTENERS:
        raise InvalidConfigError(f"config {key} names {len(found)} listeners: {MAX_LISTENERS} at most")
    _no_repetition(key, "name", [listener.name for listener in found])
    _no_repetition(key, "address", [listener.address for listener in found if listener.port])
    return found


def parse_listener_names(key: str, text: str) -> tuple[str, ...]:
    """`A,B`."""
    return tuple(listener_name(key, part) for part in text.split(",") if part.strip())


def parse_optional_listener_name(key: str, text: str) -> str:
    """A name, or empty."""
    return listener_name(key, text) if text.strip() else ""


@dataclass(frozen=True, slots=True)
class ProtocolMap:
    """`listener.security.protocol.map`."""

    protocols: Mapping[str, SecurityProtocol] = field(default_factory=dict)
    """By listener name."""

    def __str__(self) -> str:
        return ",".join(f"{name}:{protocol}" for name, protocol in self.protocols.items())

    @classmethod
    def parse(cls, key: str, text: str) -> "ProtocolMap":
        """Parse `CONTROLLER:SSL,INTERNAL:PLAINTEXT`."""
        protocols: dict[str, SecurityProtocol] = {}
        for part in text.split(","):
            if not part.strip():
                continue
            name, separator, protocol = part.partition(":")
            known = listener_name(key, name)
            if not separator:
                raise InvalidConfigError(f"config {key}: {part.strip()!r} is not NAME:PROTOCOL, such as CONTROLLER:SSL")
            if known in protocols:
                raise InvalidConfigError(f"config {key} maps {known} twice: keep one")
            try:
                protocols[known] = SecurityProtocol(protocol.strip().upper())
            except ValueError:
                raise InvalidConfigError(
                    f"config {key}: protocol {protocol.strip()!r} of {known} is not supported: use {_PROTOCOLS}"
                ) from None
        return cls(protocols)

    def protocol_of(self, name: str, *, fallback: SecurityProtocol | None = None) -> SecurityProtocol:
        """The protocol of a listener; `fallback` for a name that is neither mapped nor a protocol's."""
        known = self.protocols.get(name)
        if known is None:
            known = next((protocol for protocol in SecurityProtocol if protocol == name), fallback)
        if known is None:
            raise InvalidConfigError(
                f"config listeners: {name} has no protocol: set listener.security.protocol.map={name}:SSL (or {name}:PLAINTEXT)"
            )
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPlan:
    """Which listeners a node opens, for whom, and what it tells others of them. Checks how the keys fit together."""

    listeners: tuple[Listener, ...]
    advertised: tuple[Listener, ...]
    protocol_map: ProtocolMap
    controller_names: tuple[str, ...]
    inter_broker_name: str
    is_broker: bool
    is_controller: bool

    def __post_init__(self) -> None:
        names = [listener.name for listener in self.listeners]
        if not names:
            raise InvalidConfigError("config listeners names no listener: write PLAINTEXT://host:port")
        _known("advertised.listeners", [listener.name for listener in self.advertised], names)
        if self.is_controller:
            _known("controller.listener.names", self.controller_names[:1], names)
        elif set(self.controller_names) & set(names):
            raise InvalidConfigError(
                f"config listeners has {self.controller_names[0]}, a controller's listener (controller.listener.names): "
                "a node with process.roles=broker opens none"
            )
        if self.is_broker:
            if not self.broker_listeners:
                raise InvalidConfigError(
                    "config controller.listener.names names every listener, none is left for clients: add one to listeners"
                )
            _known("inter.broker.listener.name", [self.inter_broker_name] if self.inter_broker_name else [], names)
            if self.inter_broker not in self.broker_listeners:
                raise InvalidConfigError(
                    f"config inter.broker.listener.name={self.inter_broker_name} is a controller's listener: name another"
                )
        for name in (*names, *self.controller_names):
            self.protocol(name)

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """Those that serve clients and other brokers."""
        if not self.is_broker:
            return ()
        if self.is_controller and len(self.listeners) == 1:
            return self.listeners
        return tuple(listener for listener in self.listeners if listener.name not in self.controller_names)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """Those that serve the quorum."""
        if not self.is_controller:
            return ()
        named = tuple(listener for listener in self.listeners if listener.name in self.controller_names)
        return named or ((self.inter_broker,) if self.is_broker else self.listeners)

    @property
    def inter_broker(self) -> Listener:
        """The listener through which other brokers come; the first one for clients unless a key names it."""
        return next(
            (listener for listener in self.listeners if listener.name == self.inter_broker_name),
            (self.broker_listeners or self.listeners)[0],
        )

    @property
    def main(self) -> Listener:
        """The one that says where the node is: for brokers if it is one, else for controllers."""
        return self.inter_broker if self.is_broker else self.controller_listeners[0]

    @property
    def controller_name(self) -> str:
        """Name of the listener through which controllers are dialled, also by a node that has none of its own."""
        return self.controller_names[0] if self.controller_names else self.inter_broker.name

    def protocol(self, name: str) -> SecurityProtocol:
        """How the listener is secured. As in Kafka, a controller's listener that nobody maps is PLAINTEXT as long as nothing
        of the node is secured."""
        plain = name in self.controller_names and not self.protocol_map.protocols and not self._names_ssl
        return self.protocol_map.protocol_of(name, fallback=SecurityProtocol.PLAINTEXT if plain else None)

    @property
    def _names_ssl(self) -> bool:
        return any(listener.name == SecurityProtocol.SSL for listener in self.listeners)

    def advertised_of(self, name: str) -> Listener | None:
        """What `advertised.listeners` says of a listener."""
        return next((listener for listener in self.advertised if listener.name == name), None)


def _no_repetition(key: str, what: str, values: Sequence[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise InvalidConfigError(f"config {key} has {what} {value} twice: each listener needs one of its own")


def _known(key: str, wanted: Iterable[str], names: Sequence[str]) -> None:
    for name in wanted:
        if name not in names:
            raise InvalidConfigError(f"config {key} names {name}, which listeners does not have ({', '.join(names)})")
