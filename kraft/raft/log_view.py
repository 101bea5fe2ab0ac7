"""The core's picture of the log: every entry behind the newest snapshot, found by last offset.

Used only by the core. The disk may lag behind it (`persisted` in the core says how far).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kraftlog.kraft.raft.messages import Entry, Snapshot


class LogView:
    """Entries with ascending last offsets after `snapshot`.

    A *boundary* is an offset at which an entry, or the snapshot, ends. Invariants: the first entry starts right after
    the snapshot, each entry right after the one before; terms never go down.
    """

    def __init__(self, snapshot: Snapshot, entries: Iterable[Entry] = ()) -> None:
        self.snapshot = snapshot
        self._entries: list[Entry] = []
        self._last_offsets: list[int] = []
        self._bytes_through: list[int] = []  # total size up to and including the entry at the same index
        self._bytes_dropped = 0  # size of what `compact` removed, so that sums stay valid
        self.last_offset = snapshot.last_offset
        self.last_term = snapshot.term
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, entry: Entry) -> None:
        last_offset, count = entry.last_offset, entry.record_count
        if count < 1 or last_offset != self.last_offset + count or entry.term < self.last_term:
            raise ValueError(
                f"entry at offsets {entry.base_offset}..{entry.last_offset} of term {entry.term} does not follow "
                f"offset {self.last_offset} of term {self.last_term}"
            )
        self._bytes_through.append(self._total_bytes() + len(entry.data))
        self._entries.append(entry)
        self._last_offsets.append(last_offset)
        self.last_offset, self.last_term = last_offset, entry.term

    def term_at(self, offset: int) -> int | None:
        """The term of the entry or snapshot that ends at `offset`; None if `offset` is not a known boundary."""
        if offset == self.last_offset:  # nearly always
            return self.last_term
        if offset == self.snapshot.last_offset:
            return self.snapshot.term
        index = bisect_left(self._last_offsets, offset)
        if index < len(self._last_offsets) and self._last_offsets[index] == offset:
            return self._entries[index].term
        return None

    def floor(self, offset: int) -> int:
        """The greatest boundary at or below `offset`; below the snapshot, where nothing is known, `offset` itself."""
        if offset >= self.last_offset:
            return self.last_offset
        if offset < self.snapshot.last_offset:
            return offset
        index = bisect_right(self._last_offsets, offset)
        return self._last_offsets[index - 1] if index else self.snapshot.last_offset

    def between(self, after: int, through: int) -> tuple[Entry, ...]:
        """The entries that end in (after, through]."""
        if after >= self.last_offset:
            return ()
        return tuple(self._entries[self._after(after) : self._after(through)])

    def entries_after(self, offset: int, max_bytes: int) -> tuple[Entry, ...]:
        """The next entries, at most `max_bytes` of them but at least one if there is one."""
        first = self._after(offset)
        limit = (self._bytes_through[first - 1] if first else self._bytes_dropped) + max_bytes
        end = bisect_right(self._bytes_through, limit, lo=first)
        return tuple(self._entries[first : max(end, first + 1)])

    def bytes_between(self, after: int, through: int) -> int:
        """Size of the entries that end in (after, through]."""
        return self._sum_through(through) - self._sum_through(after) if after < through else 0

    def before_term_of(self, offset: int, lowest: int) -> int:
        """Where a follower that conflicts at `offset` sends its leader: before its own whole run of that term.

        The entry that conflicts ends at or covers `offset`. Never answers below `lowest`, the commit offset, because
        the leader has that part.
        """
        index = bisect_left(self._last_offsets, offset)
        term = self._entries[index].term if index < len(self._entries) else self.last_term
        while index > 0 and self._last_offsets[index - 1] > lowest and self._entries[index - 1].term == term:
            index -= 1
        return self._last_offsets[index - 1] if index else self.snapshot.last_offset

    def truncate_to(self, offset: int) -> None:
        """Drop every entry that ends after `offset`, which is a boundary."""
        assert self.term_at(offset) is not None, f"{offset} is inside of a batch"
        keep = self._after(offset)
        del self._entries[keep:], self._last_offsets[keep:], self._bytes_through[keep:]
        self.last_term = self._entries[-1].term if self._entries else self.snapshot.term
        self.last_offset = offset

    def compact(self, snapshot: Snapshot) -> None:
        """Replace everything up to `snapshot.last_offset`, which is a boundary of that term, by the snapshot."""
        assert self.term_at(snapshot.last_offset) == snapshot.term
        drop = self._after(snapshot.last_offset)
        if drop:
            self._bytes_dropped = self._bytes_through[drop - 1]
        del self._entries[:drop], self._last_offsets[:drop], self._bytes_through[:drop]
        self.snapshot = snapshot

    def _after(self, offset: int) -> int:
        """Index of the first entry that ends after `offset`."""
        return bisect_right(self._last_offsets, offset)

    def _total_bytes(self) -> int:
        return self._bytes_through[-1] if self._bytes_through else self._bytes_dropped

    def _sum_through(self, offset: int) -> int:
        index = self._after(offset)
        return self._bytes_through[index - 1] if index else self._bytes_dropped
