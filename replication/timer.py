"""Deadlines of many delayed operations in one queue.

A binary heap with lazy removal: adding costs O(log n), cancelling O(1), and the heap is rebuilt when more than half of
it is cancelled, so that its size stays within twice the live entries. Kafka uses a hierarchical timing wheel, whose
buckets cost a thread tick; with one event loop a heap gives exact deadlines and an idle node no wake-ups. Its items are
tuples, compared without a call into Python: beside 100,000 others a pop costs 1.3 µs, a small part of what an expiry does
(`benchmarks/bench_purgatory.py`).

Pure: time comes in as `now_ms`, the next deadline goes out. Used from one event loop.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

_MIN_REBUILD = 64  # below this many cancelled entries a rebuild is not worth its cost


@dataclass(slots=True, eq=False)
class TimerEntry:
    """One deadline."""

    deadline_ms: float
    expire: Callable[[float], None] | None
    """Called once with the time; None when cancelled or fired."""


class TimerQueue:
    """Fires callbacks when their time has come; see the module's text."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, TimerEntry]] = []
        """By deadline, then by the order of adding."""
        self._serial = 0
        self._live = 0

    def __len__(self) -> int:
        """Entries that are neither fired nor cancelled."""
        return self._live

    def add(self, deadline_ms: float, expire: Callable[[float], None]) -> TimerEntry:
        """Call `expire(now_ms)` from the first `advance` at or after `deadline_ms`."""
        self._serial += 1
        entry = TimerEntry(deadline_ms, expire)
        heapq.heappush(self._heap, (deadline_ms, self._serial, entry))
        self._live += 1
        return entry

    def cancel(self, entry: TimerEntry) -> bool:
        """Forget an entry; returns whether it was still to fire."""
        if entry.expire is None:
            return False
        entry.expire = None
        self._live -= 1
        if len(self._heap) - self._live > max(self._live, _MIN_REBUILD):
            self._heap = [item for item in self._heap if item[2].expire is not None]
            heapq.heapify(self._heap)
        return True

    def advance(self, now_ms: float) -> int:
        """Fire all entries that are due, in order; returns how many. What they add is fired too if it is due."""
        fired = 0
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, entry = heapq.heappop(self._heap)
            if entry.expire is None:
                continue
            expire, entry.expire = entry.expire, None
            self._live -= 1
            fired += 1
            expire(now_ms)
        return fired

    @property
    def next_deadline_ms(self) -> float | None:
        """When `advance` has work, None if never."""
        while self._heap and self._heap[0][2].expire is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    @property
    def allocated(self) -> int:
        """Entries that are held, cancelled ones included; at most twice the live ones plus a constant."""
        return len(self._heap)
