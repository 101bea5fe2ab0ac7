"""Which brokers have been heard from: soft state of the active controller, in no log.

A new controller knows nothing, so it gives every unfenced broker a full session from the moment it becomes active.
"""

from collections.abc import Iterable


class BrokerSessions:
    """Used only by the controller. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int, exempt: Iterable[int] = ()) -> None:
        self._timeout_ms = session_timeout_ms
        self._exempt = frozenset(exempt)
        """Brokers of the controller's own process: it lives, so do they; a stalled event loop must not fence them."""
        self._last_heard: dict[int, float] = {}

    def restart(self, node_ids: Iterable[int], now_ms: float) -> None:
        self._last_heard = dict.fromkeys(node_ids, now_ms)

    def touch(self, node_id: int, now_ms: float) -> None:
        self._last_heard[node_id] = now_ms

    def end(self, node_id: int) -> None:
        self._last_heard.pop(node_id, None)

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
