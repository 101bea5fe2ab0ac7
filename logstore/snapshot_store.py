"""The producer snapshot files of one log, by offset."""

import logging
import os
from collections.abc import Collection, Iterable

from kraftlog.logstore.filesystem import FileSystem, read_file, sync_file, unlink_if_exists, write_unsynced
from kraftlog.logstore.layout import SNAPSHOT_SUFFIX, parse_segment_file, segment_file_name
from kraftlog.logstore.producer_state import ProducerEntry, ProducerStateManager
from kraftlog.logstore.snapshots import decode_snapshot, encode_snapshot
from kraftlog.proto.errors import CorruptRecordError

logger = logging.getLogger(__name__)


class SnapshotStore:
    """A snapshot at offset n is the state after every batch below n. Kept: one per segment base, and the latest."""

    __slots__ = ("_directory", "_fs", "offsets")

    def __init__(self, fs: FileSystem, directory: str, names: Iterable[str] | None = None) -> None:
        """`names`: what is in the directory, where that is known."""
        self._fs = fs
        self._directory = directory
        parsed = (parse_segment_file(name) for name in (fs.listdir(directory) if names is None else names))
        self.offsets = sorted(entry[0] for entry in parsed if entry is not None and entry[1] == SNAPSHOT_SUFFIX)

    def write(self, offset: int, producers: ProducerStateManager) -> None:
        """Not synced: see `sync`."""
        write_unsynced(self._fs, self._path(offset), encode_snapshot(producers.entries.values()))
        if offset not in self.offsets:
            self.offsets = sorted((*self.offsets, offset))

    def sync(self, offset: int) -> None:
        if offset in self.offsets:
            sync_file(self._fs, self._path(offset))

    def load_latest(self, max_offset: int, producers: ProducerStateManager) -> int | None:
        """Restore the latest sound snapshot at or below `max_offset` and return its offset.

        None: there is none, `producers` is empty, replay the whole log. Damaged files are removed.
        """
        for offset in reversed([offset for offset in self.offsets if offset <= max_offset]):
            try:
                producers.restore(decode_snapshot(read_file(self._fs, self._path(offset)), self._path(offset)))
            except CorruptRecordError as e:
                logger.warning("removing a damaged producer snapshot, an older one and the log replace it: %s", e)
                self._remove(offset)
            else:
                return offset
        producers.restore(())
        return None

    def read(self, offset: int) -> list[ProducerEntry] | None:
        """The snapshot at `offset`; None if there is no sound one. Any thread."""
        try:
            return decode_snapshot(read_file(self._fs, self._path(offset)), self._path(offset))
        except (FileNotFoundError, CorruptRecordError):
            return None

    def remove_above(self, offset: int, kept: Collection[int] = ()) -> None:
        """Remove snapshots of a future that was cut off, but for those at the offsets `kept`."""
        for later in [o for o in self.offsets if o > offset and o not in kept]:
            self._remove(later)

    def retain(self, segment_bases: Collection[int]) -> None:
        """Remove all but the latest and those at the base of a segment."""
        for offset in self.offsets[:-1]:
            if offset not in segment_bases:
                self._remove(offset)

    def forget_below(self, offset: int) -> None:
        """Count no more on snapshots below `offset`, but for the latest; `delete_forgotten` removes their files."""
        self.offsets = [o for o in self.offsets if o >= offset] or self.offsets[-1:]

    def delete_forgotten(self, offset: int) -> None:
        """Remove the file of a snapshot at `offset` unless it is still counted on. Any thread."""
        if offset not in self.offsets:
            unlink_if_exists(self._fs, self._path(offset))

    def _remove(self, offset: int) -> None:
        unlink_if_exists(self._fs, self._path(offset))
        self.offsets = [o for o in self.offsets if o != offset]

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, segment_file_name(offset, SNAPSHOT_SUFFIX))
