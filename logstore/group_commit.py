"""Group commit: all who wait for a file to be synced share one fdatasync, and the next one serves those who came since.

Pure: the driver does the sync. Its loop:

    if commit.request(offset, waiter):           # True: nobody is syncing
        while (target := commit.begin()) is not None:
            try:
                flushed = sync()                 # in the pool; everything appended before `begin` is covered
            except StorageError as error:
                for waiter in commit.fail(error): ...
            else:
                for waiter in commit.complete(flushed): ...

One sync runs at a time. A failure fails everybody who waits, and all later requests: the file must not be trusted again.
"""

import heapq
import itertools
from typing import Generic, TypeVar

from kraftlog.proto.errors import StorageError

Waiter = TypeVar("Waiter")


class GroupCommit(Generic[Waiter]):
    """Who waits for which exclusive end offset of one log to be durable. Used only from the event loop."""

    def __init__(self, flushed_end_offset: int = 0) -> None:
        self.flushed_end_offset = flushed_end_offset
        self.failure: StorageError | None = None
        self.is_syncing = False
        self._waiters: list[tuple[int, int, Waiter]] = []
        """Heap of (end offset, arrival, waiter)."""
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def request(self, end_offset: int, waiter: Waiter) -> bool:
        """Wait for everything below `end_offset`; whether the caller has to start the driver's loop.

        Raises the failure if there was one, and `ValueError` if that much is durable already (`is_durable`).
        """
        if self.failure is not None:
            raise StorageError(str(self.failure))
        if self.is_durable(end_offset):
            raise ValueError(f"{end_offset} is durable already: {self.flushed_end_offset}")
        heapq.heappush(self._waiters, (end_offset, next(self._arrivals), waiter))
        return not self.is_syncing

    def is_durable(self, end_offset: int) -> bool:
        return end_offset <= self.flushed_end_offset

    def begin(self) -> int | None:
        """Start one sync; the largest end offset waited for. None: nobody waits, or a sync runs."""
        if self.is_syncing or not self._waiters:
            return None
        self.is_syncing = True
        return max(end_offset for end_offset, _, _ in self._waiters)

    def complete(self, flushed_end_offset: int) -> list[Waiter]:
        """The sync has returned: the waiters that are served, by offset, then by arrival."""
        self.is_syncing = False
        self.flushed_end_offset = max(self.flushed_end_offset, flushed_end_offset)
        served = []
        while self._waiters and self._waiters[0][0] <= self.flushed_end_offset:
            served.append(heapq.heappop(self._waiters)[2])
        return served

    def fail(self, error: StorageError) -> list[Waiter]:
        """The sync has failed: everybody who waits, to be told so."""
        self.is_syncing = False
        self.failure = error
        return self._drain()

    def truncate(self, end_offset: int) -> list[Waiter]:
        """The log was cut to `end_offset`: those who wait for more, to be told so. They never will be durable."""
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        lost = sorted(entry for entry in self._waiters if entry[0] > end_offset)
        self._waiters = [entry for entry in self._waiters if entry[0] <= end_offset]
        heapq.heapify(self._waiters)
        return [waiter for _, _, waiter in lost]

    def _drain(self) -> list[Waiter]:
        waiters = [waiter for _, _, waiter in sorted(self._waiters, key=lambda entry: entry[:2])]
        self._waiters.clear()
        return waiters
