"""Where controllers listen, and what a node knows of it.

The Raft core knows replicas by their keys alone. Their addresses come from three sources: the voters record in the log
or in a snapshot (KIP-853), what a peer says of itself when it connects, and the node's configuration, which names
addresses without saying who is there.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraftlog.kraft.raft import ReplicaKey

MAX_REPLICAS = 1000  # of which addresses are kept; far beyond the nodes of one cluster


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> "Endpoint":
        """`host:port`. Raises ValueError."""
        host, _, port = text.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is not HOST:PORT")
        return Endpoint(host, int(port))


class AddressBook:
    """Replica key -> where it can be reached. Used from one event loop.

    A replica may have two addresses: the one in the voters record, which the quorum agreed on, and the one that the
    replica itself last gave, which is newer if it has moved. Both are worth a try; neither replaces the other.
    """

    def __init__(self, bootstrap_servers: Iterable[Endpoint] = ()) -> None:
        self.bootstrap_servers = tuple(dict.fromkeys(bootstrap_servers))
        """Addresses at which some controller listens; who it is, it says itself."""
        self._recorded: Mapping[ReplicaKey, Endpoint] = {}
        self._told: dict[ReplicaKey, Endpoint] = {}

    def record(self, endpoints: Mapping[ReplicaKey, Endpoint]) -> None:
        """What the newest voters record says; replaces what an older one said."""
        self._recorded = dict(endpoints)

    def tell(self, key: ReplicaKey, endpoint: Endpoint) -> None:
        """What a replica says of itself. The oldest is forgotten beyond MAX_REPLICAS."""
        self._told.pop(key, None)
        self._told[key] = endpoint
        if len(self._told) > MAX_REPLICAS:
            del self._told[next(iter(self._told))]

    def candidates(self, key: ReplicaKey) -> tuple[Endpoint, ...]:
        """Where to try to reach `key`, the likeliest first; empty: unknown."""
        found = (self._told.get(key), self._recorded.get(key))
        return tuple(dict.fromkeys(endpoint for endpoint in found if endpoint is not None))

    def endpoint(self, key: ReplicaKey) -> Endpoint | None:
        """The likeliest address of `key`."""
        return next(iter(self.candidates(key)), None)

    def known(self, keys: Iterable[ReplicaKey]) -> dict[ReplicaKey, Endpoint]:
        """The likeliest addresses of those among `keys` that have any: for a voters record."""
        return {key: endpoint for key in keys if (endpoint := self.endpoint(key)) is not None}
