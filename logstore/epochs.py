"""Which leader epoch wrote which offsets (KIP-101): the map that finds where two logs diverge.

An entry (epoch, start offset) says that the first batch of that epoch is at or after the start offset; the epoch ends
where the next entry starts, the last one at the log's end. Both columns ascend strictly; only an entry without any
batch may be replaced.
"""

import bisect
from collections.abc import Iterable

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

EpochEntries = tuple[tuple[int, int], ...]


def _epoch(entry: tuple[int, int]) -> int:
    return entry[0]


def _start(entry: tuple[int, int]) -> int:
    return entry[1]


class LeaderEpochCache:
    """Changed only by the log's writer; `entries` may be read from any thread."""

    __slots__ = ("entries",)

    entries: EpochEntries
    """Replaced, never changed: a saver that remembers the tuple it wrote sees by identity whether it is stale."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = tuple(entries)

    @property
    def latest_epoch(self) -> int:
        """-1 when there is none."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts at `start_offset`; False if it is known, or older than what is known."""
        if epoch <= self.latest_epoch:
            return False
        self.truncate_to(start_offset)  # an epoch that starts here as well wrote nothing
        self.entries = (*self.entries, (epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest known epoch <= `epoch`, its exclusive end); (-1, -1) if there is no epoch so new.

        For an epoch older than all known ones: (`epoch`, start of the oldest known), as Kafka answers.
        """
        if epoch < 0 or epoch > self.latest_epoch:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        following = bisect.bisect_right(self.entries, epoch, key=_epoch)
        if following == 0:
            return epoch, self.entries[0][1]
        return self.entries[following - 1][0], self.entries[following][1]

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 before the first entry."""
        following = bisect.bisect_right(self.entries, offset, key=_start)
        return self.entries[following - 1][0] if following else UNDEFINED_EPOCH

    def truncate_to(self, end_offset: int) -> None:
        """Forget epochs that start at or after the log's new end."""
        if self.entries and self.entries[-1][1] >= end_offset:
            self.entries = self.entries[: bisect.bisect_left(self.entries, end_offset, key=_start)]

    def advance_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: forget epochs that end before, move the first entry up to it."""
        following = bisect.bisect_right(self.entries, start_offset, key=_start)
        if following > 1 or (following and self.entries[0][1] != start_offset):
            self.entries = ((self.entries[following - 1][0], start_offset), *self.entries[following:])

    def clear(self) -> None:
        self.entries = ()
