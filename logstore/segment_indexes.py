"""All that tells where to look in one segment: offset index, time index, aborted transactions, largest timestamp.

The three files (`indexes`, `transaction_index` have their formats) are written when the segment is sealed, each to a
temporary file that is renamed, and synced by the flush that follows: `.index`, `.timeindex`, and `.txnindex` if anything
was aborted. Until they are synced the segment counts as not flushed, and recovery makes them anew.

Growing indexes are bytearrays that `note_batch` extends; loaded ones are copies of the files. A segment holds one such
object and replaces it as a whole, so that a reader in another thread sees one consistent set.
"""

import logging
from collections.abc import Callable, Iterable

from kraftlog.logstore.filesystem import FileSystem, read_file, unlink_if_exists, write_unsynced
from kraftlog.logstore.indexes import OffsetIndex, TimeIndex, TimestampOffset
from kraftlog.logstore.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.transaction_index import decode_aborted, encode_aborted

logger = logging.getLogger(__name__)

INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_WIDEST_ENTRY_BYTES = 12
_ABORTED_BYTES = 200  # an `AbortedTransaction` in memory

PathOf = Callable[[str], str]
"""The segment's file with a suffix."""


class SegmentIndexes:
    """`largest` is None for a segment without batches."""

    __slots__ = (
        "_bytes_since_entry",
        "_interval_bytes",
        "_largest_with_entry",
        "aborted",
        "largest",
        "offsets",
        "times",
    )

    def __init__(
        self,
        offsets: OffsetIndex,
        times: TimeIndex,
        aborted: Iterable[AbortedTransaction] = (),
        *,
        interval_bytes: int = 0,
    ) -> None:
        self.offsets = offsets
        self.times = times
        self.aborted = list(aborted)
        """In the order of their markers."""
        self.largest = self._largest_with_entry = times.last()
        self._interval_bytes = interval_bytes
        self._bytes_since_entry = 0

    @classmethod
    def growing(
        cls, base_offset: int, interval_bytes: int, aborted: Iterable[AbortedTransaction] = ()
    ) -> "SegmentIndexes":
        """Empty ones, to be filled by `note_batch` from the segment's first batch on."""
        offsets, times = OffsetIndex(base_offset, bytearray()), TimeIndex(base_offset, bytearray())
        return cls(offsets, times, aborted, interval_bytes=interval_bytes)

    def growing_again(self, interval_bytes: int, size_bytes: int) -> "SegmentIndexes":
        """A copy in memory that goes on where these end, for a segment of `size_bytes`."""
        offsets = OffsetIndex(self.offsets.base_offset, bytearray(self.offsets.data))
        times = TimeIndex(self.times.base_offset, bytearray(self.times.data))
        again = SegmentIndexes(offsets, times, self.aborted, interval_bytes=interval_bytes)
        again.largest = self.largest
        last = offsets.lookup_position(size_bytes)
        again._bytes_since_entry = size_bytes - (last.position if last else 0)
        return again

    def note_batch(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Account for the next batch. As Kafka: an entry for the first batch after each `interval_bytes`."""
        largest = self.largest
        if largest is None or max_timestamp > largest.timestamp:
            largest = self.largest = TimestampOffset(max_timestamp, last_offset)
        if self._bytes_since_entry > self._interval_bytes:
            self.offsets.append(last_offset, position)
            if largest is not self._largest_with_entry:
                self.times.maybe_append(*largest)
                self._largest_with_entry = largest
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def has_room(self, max_bytes: int) -> bool:
        """Whether each index may take one more entry."""
        limit = max_bytes - _WIDEST_ENTRY_BYTES
        return self.offsets.size_bytes <= limit and self.times.size_bytes <= limit

    @property
    def size_bytes(self) -> int:
        """Memory that they take, roughly."""
        return self.offsets.size_bytes + self.times.size_bytes + len(self.aborted) * _ABORTED_BYTES

    def write(self, fs: FileSystem, path_of: PathOf) -> None:
        """Write the files of a segment that grows no more; not synced. The largest timestamp gets an entry."""
        self.write_lookup(fs, path_of)
        if self.aborted:
            write_unsynced(fs, path_of(TXN_INDEX_SUFFIX), b"".join(map(encode_aborted, self.aborted)))
        else:
            unlink_if_exists(fs, path_of(TXN_INDEX_SUFFIX))

    def write_lookup(self, fs: FileSystem, path_of: PathOf) -> None:
        """As `write`, without the list of aborted transactions: only what the batches' headers say."""
        if self.largest is not None:
            self.times.maybe_append(*self.largest)
        write_unsynced(fs, path_of(INDEX_SUFFIX), self.offsets.data)
        write_unsynced(fs, path_of(TIME_INDEX_SUFFIX), self.times.data)


def load_indexes(fs: FileSystem, path_of: PathOf, base_offset: int, size_bytes: int) -> SegmentIndexes | None:
    """Read a sealed segment's index files; None (and the reason in the log) if they cannot be this segment's."""
    try:
        offsets = OffsetIndex(base_offset, read_file(fs, path_of(INDEX_SUFFIX)))
        times = TimeIndex(base_offset, read_file(fs, path_of(TIME_INDEX_SUFFIX)))
    except FileNotFoundError as e:
        logger.warning("rebuilding the indexes of %s: %s is missing", path_of(""), e.filename)
        return None
    if not offsets.is_plausible(size_bytes) or not times.is_plausible(size_bytes):
        logger.warning("rebuilding the indexes of %s: they do not fit a segment of %d bytes", path_of(""), size_bytes)
        return None
    return SegmentIndexes(offsets, times, load_aborted(fs, path_of))


def load_aborted(fs: FileSystem, path_of: PathOf) -> list[AbortedTransaction]:
    """The aborted transactions that a sealed segment lists; no file means none."""
    path = path_of(TXN_INDEX_SUFFIX)
    try:
        return list(decode_aborted(read_file(fs, path)))
    except FileNotFoundError:
        return []
    except ValueError as e:
        logger.warning("ignoring the damaged transaction index %s: %s", path, e)
        return []
