"""Which brokers have been heard from, and what they know: soft state of the active controller, in no log.

A new controller has heard from no broker, so it gives every unfenced one a full session from the moment it becomes active,
and takes none of them to have any metadata. What it has heard is the quorum's leaders before it: the broker of such a
node has what is left of a session since then, or else the loss of a node that was both would take an election and a session.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

FRESH_SHARE = 3  # a new controller waits for this part of a session at least: at the defaults, for two heartbeats


class BrokerSessions:
    """Used only by the controller. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int, exempt: Iterable[int] = ()) -> None:
        self._timeout_ms = session_timeout_ms
        self._exempt = frozenset(exempt)
        """Brokers of the controller's own process: it lives, so do they; a stalled event loop must not fence them."""
        self._last_heard: dict[int, float] = {}
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def restart(
        self, node_ids: Iterable[int], now_ms: float, last_heard: Mapping[int, float] = MappingProxyType({})
    ) -> None:
        """`last_heard`: of nodes that were heard otherwise than by a heartbeat."""
        earliest_ms = now_ms - self._timeout_ms + self._timeout_ms / FRESH_SHARE
        self._last_heard = {
            node_id: max(earliest_ms, min(now_ms, last_heard.get(node_id, now_ms))) for node_id in node_ids
        }
        self._metadata_offsets.clear()
        self._shutdown_offsets.clear()

    def touch(self, node_id: int, now_ms: float, metadata_offset: int = -1) -> None:
        self._last_heard[node_id] = now_ms
        self._metadata_offsets[node_id] = max(metadata_offset, self._metadata_offsets.get(node_id, -1))

    def end(self, node_id: int) -> None:
        self._last_heard.pop(node_id, None)
        self._metadata_offsets.pop(node_id, None)
        self._shutdown_offsets.pop(node_id, None)

    def shutdown_offset(self, node_id: int, offset: int, *, moves: bool) -> int:
        """Where the metadata say that `node_id`, which wants to stop, leads nothing any more: `offset` if leaderships
        just moved or it was not known, else as before."""
        if moves:
            self._shutdown_offsets[node_id] = offset
        return self._shutdown_offsets.setdefault(node_id, offset)

    def all_know(self, node_ids: Iterable[int], offset: int) -> bool:
        """Whether each of these brokers has said that it has the metadata up to `offset`."""
        return all(self._metadata_offsets.get(node_id, -1) >= offset for node_id in node_ids)

    def is_alive(self, node_id: int, now_ms: float) -> bool:
        heard = self._last_heard.get(node_id)
        return heard is not None and now_ms < heard + self._timeout_ms

    def expired(self, now_ms: float) -> list[int]:
        """Brokers whose session has run out, by id."""
        return sorted(
            node_id
            for node_id, heard in self._last_heard.items()
            if node_id not in self._exempt and now_ms >= heard + self._timeout_ms
        )

    def next_deadline_ms(self) -> float | None:
        """When the next session runs out if nothing is heard."""
        watched = [heard for node_id, heard in self._last_heard.items() if node_id not in self._exempt]
        return min(watched) + self._timeout_ms if watched else None
