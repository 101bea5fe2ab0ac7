"""Which segments of a log directory hold something open, and how much at most: descriptors, and indexes in memory.

A segment opens its file and loads its indexes when they are first needed and lets go of both when others need the room.
Who lets go is found by second chance: the segments stand in a ring, and whoever was used since the hand last came by
stays for one more round. What is not synced is never let go of: closing its descriptor could lose the error of a write
that the system does later. So the bound may be exceeded by as many files as wait for a flush.

An index is read into memory as a whole, never mapped: whatever happens to the file or the disk below a map reaches the
process as a signal that ends it, below a read as an error (docs/adr/0004).

A reader in another thread may be using a file that is let go of; its descriptor is closed when the last user is done.
"""

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from kraftlog.logstore.errors import is_out_of_descriptors

Result = TypeVar("Result")

DEFAULT_MAX_OPEN_FILES = 4096
DEFAULT_MAX_INDEX_BYTES = 64 << 20  # the indexes of a dozen full segments of 1 GiB
_MAX_STEPS = 64  # of the hand at one time: where all are in use or unsynced, the bound gives way and not the caller


class Holder(Protocol):
    """A segment, as seen from here. Called with this object's lock held: it must neither block nor call back."""

    was_used: bool
    """Set by the segment at every use, cleared when the hand comes by."""

    def let_go(self) -> bool:
        """Let go of the file and of loaded indexes; False (and nothing happens) if that cannot be now."""
        ...


class OpenSegments:
    """Shared by the logs of a directory. Safe from any thread."""

    def __init__(
        self, *, max_files: int = DEFAULT_MAX_OPEN_FILES, max_index_bytes: int = DEFAULT_MAX_INDEX_BYTES
    ) -> None:
        self._max_files = max_files
        self._max_index_bytes = max_index_bytes
        self._lock = threading.Lock()
        self._ring: dict[Holder, tuple[int, int]] = {}
        """Files and index bytes of each; the hand stands before the first."""
        self._files = 0
        self._index_bytes = 0

    @property
    def files(self) -> int:
        """Segment files that are open."""
        return self._files

    @property
    def index_bytes(self) -> int:
        """Of sealed segments' indexes in memory."""
        return self._index_bytes

    def with_descriptors(self, work: Callable[[], Result]) -> Result:
        """What `work` returns; if the process or the system has no descriptors left, once more after closing some."""
        try:
            return work()
        except OSError as e:
            if not is_out_of_descriptors(e):
                raise
        with self._lock:
            self._go_round(None, self._files // 2, self._max_index_bytes, steps=2 * len(self._ring))
        return work()

    def note(self, holder: Holder, *, files: int, index_bytes: int) -> None:
        """`holder` holds so much from now on; others let go of theirs if that is too much."""
        with self._lock:
            self._forget(holder)
            self._ring[holder] = (files, index_bytes)
            self._files += files
            self._index_bytes += index_bytes
            self._go_round(holder, self._max_files, self._max_index_bytes, steps=_MAX_STEPS)

    def forget(self, holder: Holder) -> None:
        """`holder` let go of everything by itself, or will never be used again."""
        with self._lock:
            self._forget(holder)

    def _forget(self, holder: Holder) -> None:
        files, index_bytes = self._ring.pop(holder, (0, 0))
        self._files -= files
        self._index_bytes -= index_bytes

    def _go_round(self, spared: Holder | None, max_files: int, max_index_bytes: int, *, steps: int) -> None:
        for _ in range(min(steps, 2 * len(self._ring))):  # the first round may only take away the second chances
            if self._files <= max_files and self._index_bytes <= max_index_bytes:
                return
            holder = next(iter(self._ring))
            held = self._ring.pop(holder)
            if holder is spared:
                self._ring[holder] = held
            elif holder.was_used:
                holder.was_used = False
                self._ring[holder] = held
            elif holder.let_go():
                self._files -= held[0]
                self._index_bytes -= held[1]
            else:
                self._ring[holder] = held
