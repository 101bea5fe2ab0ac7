"""One segment: a `.log` file of batches with the indexes that say where in it to look.

A segment grows, then it is sealed. While it grows (the last one of a log), its file has a preallocated tail of zeros and
its indexes are in memory. `seal` writes the index files and trims the tail; from then on the files are Kafka's, byte for
byte, and never change. Truncation may make a sealed segment grow again.

A `.log` file is record batches (`proto.records.format`) one after another, from position 0 on, nothing in between; base
offsets ascend, with gaps where records were compacted away. The first batch may begin above the offset in the file's
name, the last one ends below that of the next segment. Zeros may follow while the segment grows: no batch begins with
61 of them.

Files are opened and indexes loaded on demand, and let go of when other segments need the room (`open_segments`), but
for what is not synced, and for the indexes of a growing segment.

Appends belong to the log's writer; lookups and reads may run in any thread.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from kraftlog.logstore import layout
from kraftlog.logstore.batches import ScannedBatch, find_batch, unpack_header, walk_headers, whole_batches
from kraftlog.logstore.errors import is_disk_full
from kraftlog.logstore.filesystem import File, FileSystem, sync_file, unlink_if_exists, write_unsynced
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, OffsetPosition, TimestampOffset
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.segment_indexes import INDEX_SUFFIXES, SegmentIndexes, load_aborted, load_indexes
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import HEADER_BYTES, BatchHeader, decode_batch
from kraftlog.proto.seams import Buffer

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_PAGE_BYTES = 4096
_MIN_PREALLOCATION = 16 << 10  # a partition that holds little costs little
_COSTLY_COPY_BYTES = 64 << 10
_LEAST_FILL = 7 / 8  # of what a reader asks for; below, a copy is the lesser evil
_MAX_PREALLOCATION = 16 << 20  # at most so much of a full disk lies idle per growing segment

FILE_SUFFIXES = (layout.LOG_SUFFIX, *INDEX_SUFFIXES)

RecordPosition = tuple[int, int, int]
"""(offset, timestamp, leader epoch) of one record."""


class TornAppendError(OSError):
    """A write failed and what it left could not be removed: the file must not be written any more."""


class SegmentGoneError(OSError):
    """The segment was deleted or replaced: look anew at which segments the log has."""


class Segment:
    """`size_bytes` is the end of the data: what is beyond it in the file is preallocated."""

    __slots__ = (
        "_allocated",
        "_directory",
        "_end_hint",
        "_file",
        "_first_timestamp",
        "_fs",
        "_has_no_aborted",
        "_has_tail",
        "_indexes",
        "_interval_bytes",
        "_is_unsynced",
        "_largest",
        "_lock",
        "_name_ends",
        "_open_segments",
        "_start_hint",
        "_tail_hint",
        "base_offset",
        "has_saved_indexes",
        "is_gone",
        "is_sealed",
        "size_bytes",
        "was_used",
    )

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        size_bytes: int,
        index_interval: int,
        open_segments: OpenSegments | None = None,
    ) -> None:
        """A sealed segment that exists; nothing is opened yet. See `create` and `unseal` for growing ones.

        `open_segments`: bounds what this one keeps open together with others. None: it keeps what it has.
        """
        self._fs = fs
        self._directory = directory
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.is_sealed = True
        self.is_gone = False
        """Deleted or replaced; only readers that have its files open already can go on with it."""
        self.was_used = False
        self.has_saved_indexes = True
        """Whether the index files say what the indexes in memory do."""
        self._interval_bytes = index_interval
        self._name_ends: Mapping[str, str] = {}
        """What is appended to the names of its files, by their suffix; see `rename_files`."""
        self._allocated = size_bytes
        self._has_tail = False
        """The file may be longer than its data."""
        self._is_unsynced = False
        """The file was changed since `sync_data` last began: its descriptor stays open."""
        self._open_segments = open_segments
        self._file: File | None = None
        self._indexes: SegmentIndexes | None = None
        self._first_timestamp: int | None = None
        self._largest: TimestampOffset | None = None
        self._has_no_aborted = False
        """Of a sealed segment, once they were asked for; both stay when the indexes are let go of."""
        self._start_hint = self._end_hint = self._tail_hint = (base_offset, 0)
        """(offset, position): where the last read goes on, up to where it was allowed to go, where the data ends."""
        self._lock = threading.RLock()
        """Guards opening and letting go, so that there is one descriptor, one copy of the indexes, and both stay while
        they must. Held while the file is changed."""

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        directory: str,
        base_offset: int,
        index_interval: int,
        open_segments: OpenSegments | None = None,
        *,
        name_end: str = "",
    ) -> "Segment":
        """An empty growing segment; empties a stray file of that name.

        `name_end`: what is appended to the names of its files, until `rename_files`.
        """
        segment = cls(fs, directory, base_offset, 0, index_interval, open_segments)
        if name_end:
            segment._name_ends = dict.fromkeys(FILE_SUFFIXES, name_end)
        segment._open_file(create=True).truncate(0)
        segment.grow_from_scratch()
        return segment

    def path(self, suffix: str) -> str:
        name = layout.segment_file_name(self.base_offset, suffix) + self._name_ends.get(suffix, "")
        return os.path.join(self._directory, name)

    @property
    def file(self) -> File:
        self.was_used = True
        return self._file or self._open_file()

    @property
    def indexes(self) -> SegmentIndexes:
        self.was_used = True
        indexes = self._indexes
        if indexes is None:
            with self._lock:
                if self._indexes is None:
                    self._check_is_there()
                    self._indexes = self._with_descriptors(self._load_indexes)
                    self._note_held()
                indexes = self._indexes
        return indexes

    # Growing.

    def append(self, buffers: Sequence[Buffer], size_bytes: int) -> int:
        """Write whole batches; the position of the first. After an `OSError` the segment is as it was.

        `TornAppendError`: that could not be restored. The caller then calls `note_batch` for each of them.
        """
        position = self.size_bytes
        end = position + size_bytes
        with self._lock:
            file = self._file_to_change()
            if end > self._allocated:
                self._preallocate(file, end)
            try:
                file.pwritev(buffers, position)
            except OSError as e:
                self._cut_failed_append(file, e)
                raise
        self.size_bytes = end
        return position

    def note_batch(self, position: int, header: BatchHeader, last_offset: int) -> None:
        """Account for an appended batch in the indexes. `last_offset` is the batch's in this log."""
        timestamp, size_bytes = header.max_timestamp, header.size_bytes
        if self._first_timestamp is None:
            self._first_timestamp = timestamp
        self.has_saved_indexes = False
        self.indexes.note_batch(position, size_bytes, last_offset, timestamp)
        self._tail_hint = (last_offset + 1, position + size_bytes)

    def seal(self) -> None:
        """Write the indexes, unless nothing changed, and trim the file; not synced (`sync` does that).

        After an `OSError` it still grows.
        """
        if not self.has_saved_indexes:
            self.indexes.write(self._fs, self.path)
            self.has_saved_indexes = True
        with self._lock:
            if self._has_tail:
                self._file_to_change().truncate(self.size_bytes)
                self._has_tail = False
            self._allocated = self.size_bytes
            self.is_sealed = True
            self._indexes = None

    def unseal(self) -> None:
        """Let a sealed segment grow again, from the end of its indexes."""
        with self._lock:
            if self.is_sealed:
                self._indexes = self.indexes.growing_again(self._interval_bytes, self.size_bytes)
                self.is_sealed = False
                self._largest = None
                self._has_no_aborted = False
                self._note_held()

    def grow_from_scratch(self) -> None:
        """Let the segment grow with empty indexes, which the caller fills by `note_batch` for every batch in it."""
        with self._lock:
            self.is_sealed = self._has_no_aborted = False
            self.has_saved_indexes = False
            self._indexes = SegmentIndexes.growing(self.base_offset, self._interval_bytes)
            self._first_timestamp = self._largest = None
            self._forget_hints()

    def truncate_to_position(self, position: int) -> None:
        """Cut a growing segment before the batch at `position`; the indexes follow."""
        aborted = self.indexes.aborted
        self.cut_file(position)
        self.has_saved_indexes = False
        self._indexes = self._from_headers([])
        self._first_timestamp = None
        self._forget_hints()
        _, end_offset = self.end()
        self._indexes.aborted = [t for t in aborted if t.last_offset < end_offset]

    def cut_file(self, position: int) -> None:
        """Let the data end at `position`, without looking at the indexes."""
        with self._lock:
            self._file_to_change().truncate(position)
            self._has_tail = False
            self.size_bytes = self._allocated = position

    def sync_data(self) -> None:
        """Make the `.log` file durable. Any thread, one at a time; what is appended meanwhile may be left out."""
        with self._lock:
            file = self.file
            self._is_unsynced = False  # this thread has the file; what is appended from here on keeps it open again
        file.fdatasync()

    def sync(self) -> None:
        """Make a sealed segment's files durable (not their names: that is the directory's)."""
        self.sync_data()
        for suffix in INDEX_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):  # no aborted transactions, no index of them
                sync_file(self._fs, self.path(suffix))

    def ensure_transaction_index(self) -> None:
        """Let a sealed segment have the file even if it has no aborted transactions. Not synced."""
        if not self.has_transaction_index:
            write_unsynced(self._fs, self.path(layout.TXN_INDEX_SUFFIX), b"")

    @property
    def has_transaction_index(self) -> bool:
        """Whether there is a file, be it of the time before the segment grew again."""
        return self._fs.size(self.path(layout.TXN_INDEX_SUFFIX)) is not None

    def sync_transaction_index(self) -> bool:
        """Make a sealed segment's list of aborted transactions durable; False if it has none."""
        try:
            sync_file(self._fs, self.path(layout.TXN_INDEX_SUFFIX))
        except FileNotFoundError:
            return False
        return True

    # Reading.

    def position_of(self, offset: int) -> int:
        """Where the first batch starts whose last offset is >= `offset`; `size_bytes` if there is none."""
        for hint_offset, position in (self._start_hint, self._end_hint, self._tail_hint):
            if hint_offset == offset:
                return position
        return find_batch(self.file, self._search_from(offset), self.size_bytes, offset)

    def read(
        self, offset: int, max_bytes: int, end_offset: int | None, at_least_one_batch: bool
    ) -> tuple[bytes, int] | None:
        """(whole batches from the one that holds `offset`, the offset after them); None: no batch there.

        `end_offset` None: up to the segment's end; else only batches that start below it. CRCs are for the reader to
        check; `CorruptRecordError` if not even a batch's length makes sense.
        """
        limit = self.size_bytes if end_offset is None else self._limit_of(end_offset)
        start = self.position_of(offset)
        if start >= limit:
            return None
        data = self.file.pread(self._whole_size(start, min(max_bytes, limit - start), limit), start)
        end, next_offset = whole_batches(data, self._last_entry_in(data, start))
        if next_offset is None and end:  # the entry's batch is cut: those before it are whole
            end, next_offset = whole_batches(data, 0)
        if next_offset is None:
            if not at_least_one_batch:
                return b"", offset
            data = self._read_batch(start)
            end, next_offset = whole_batches(data, 0)
        if next_offset is None or next_offset <= offset:  # offsets are outside of the CRC: no reader may go in circles
            raise self.no_batch_at(start)
        self._start_hint = (next_offset, start + end)
        return (data if end == len(data) else data[:end]), next_offset

    def offset_for_time(self, timestamp: int, start_offset: int) -> RecordPosition | None:
        """The first record from `start_offset` on with a timestamp >= `timestamp`."""
        if self.largest.timestamp < timestamp:
            return None
        skip_to = max(start_offset, self._nothing_before(timestamp))
        for position, header, _ in self.batches(self.position_of(skip_to)):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                for record in decode_batch(self._read_batch(position)):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.offset, record.timestamp, header.leader_epoch
        return None

    def largest_timestamp_from(self, start_offset: int) -> int:
        """Largest timestamp of the batches from `start_offset` on, be they empty; -1 if there is none."""
        if start_offset <= self.base_offset:
            return self.largest.timestamp
        return self.largest_record_timestamp(start_offset)

    def largest_record_timestamp(self, start_offset: int) -> int:
        """Largest timestamp of the records from `start_offset` on; -1 if there is none. Goes through all headers."""
        largest = NO_TIMESTAMP
        for position, header, _ in self.batches(self.position_of(start_offset)):
            if header.base_offset >= start_offset:
                largest = max(largest, header.max_timestamp if header.record_count else NO_TIMESTAMP)
            else:
                records = decode_batch(self._read_batch(position))
                largest = max((r.timestamp for r in records if r.offset >= start_offset), default=NO_TIMESTAMP)
        return largest

    @property
    def largest(self) -> TimestampOffset:
        """Largest timestamp; its offset is the last one of the first batch that has it. (-1, base) when empty."""
        if self._largest is not None:
            return self._largest
        largest = self.indexes.largest or TimestampOffset(NO_TIMESTAMP, self.base_offset)
        if self.is_sealed:
            self._largest = largest
        return largest

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """Aborted transactions whose markers are here. Readers of committed data ask all later segments for them."""
        if self._has_no_aborted:
            return ()
        aborted = self.indexes.aborted
        self._has_no_aborted = self.is_sealed and not aborted
        return aborted

    def newest_ms(self, now_ms: int) -> int:
        """When the newest record was written: the largest timestamp, or the file's last change if that makes no sense.

        It makes none if the records have no timestamps, or the largest lies in the future.
        """
        largest = self.largest.timestamp
        if 0 <= largest <= now_ms:
            return largest
        path = self.path(layout.LOG_SUFFIX)
        modified = self._fs.modified_ms(path)
        if modified is None:
            raise SegmentGoneError(errno.ENOENT, "segment is gone", path)
        return modified

    def first_timestamp(self) -> int | None:
        """Largest timestamp of the first batch, from which the segment's age counts; None when empty."""
        if self._first_timestamp is None and self.size_bytes:
            header = unpack_header(self.file.pread(HEADER_BYTES, 0))
            self._first_timestamp = header.max_timestamp if header else None
        return self._first_timestamp

    def end(self, before: int | None = None) -> tuple[int, int]:
        """(position, offset) after the last whole batch below the position `before` (None: of all).

        (0, base offset) if there is none.
        """
        limit = self.size_bytes if before is None else before
        entry = self.indexes.offsets.lookup_position(limit - 1)
        end_position = entry.position if entry and self._leads_to_batch(entry) else 0
        end_offset = self.base_offset
        for position, header, _ in walk_headers(self.file, end_position, limit, with_control=False):
            end_position, end_offset = position + header.size_bytes, header.next_offset
        return end_position, end_offset

    def batches(self, position: int = 0) -> Iterator[ScannedBatch]:
        """Headers from the batch at `position` on, with the bytes of control batches."""
        return walk_headers(self.file, position, self.size_bytes)

    def close(self) -> None:
        """Let go of files and indexes. A read that runs in another thread ends undisturbed."""
        with self._lock:
            self._file = None
            if self.is_sealed:
                self._indexes = None
            if self._open_segments is not None:
                self._open_segments.forget(self)

    def let_go(self) -> bool:
        """Close the file, and forget loaded indexes, unless the segment is unsynced or busy. See `OpenSegments`."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._is_unsynced:
                return False
            self._file = None
            if self.is_sealed:
                self._indexes = None
            return True
        finally:
            self._lock.release()

    def retire(self) -> None:
        """The log no longer has this segment, its files are about to go: open none of them any more.

        Without it a late reader would open a file that has meanwhile been replaced, with the indexes of the old one.
        """
        with self._lock:
            self.is_gone = True
        self.close()

    def rename_files(self, name_end: str, suffixes: Sequence[str]) -> None:
        """Give those files of a sealed segment another `name_end`, in that order. Not synced; may be repeated."""
        for suffix in suffixes:
            with self._lock:  # nobody opens a file under a name that it has no more
                old_path, old_ends = self.path(suffix), self._name_ends
                self._name_ends = {**old_ends, suffix: name_end}
                try:
                    self._fs.rename(old_path, self.path(suffix))
                except FileNotFoundError:
                    pass  # there is none
                except OSError:
                    self._name_ends = old_ends
                    raise

    def delete_files(self) -> None:
        """Remove every file. Indexes without a log are removed when the log is loaded, so the log goes first."""
        self.retire()
        for suffix in FILE_SUFFIXES:
            unlink_if_exists(self._fs, self.path(suffix))

    # Internals.

    def _check_is_there(self) -> None:
        if self.is_gone:
            raise SegmentGoneError(errno.ENOENT, "segment is gone", self.path(layout.LOG_SUFFIX))

    def _open_file(self, *, create: bool = False) -> File:
        with self._lock:
            file = self._file
            if file is None:
                self._check_is_there()
                path = self.path(layout.LOG_SUFFIX)
                file = self._file = self._with_descriptors(lambda: self._fs.open(path, create=create))
                self._note_held()
            return file

    def _with_descriptors(self, work: Callable[[], Result]) -> Result:
        return work() if self._open_segments is None else self._open_segments.with_descriptors(work)

    def _file_to_change(self) -> File:
        """The file, which stays open until it is synced. Caller holds the lock."""
        self._is_unsynced = self.was_used = True
        return self._file or self._open_file()

    def _note_held(self) -> None:
        """Caller holds the lock."""
        if self._open_segments is not None:
            index_bytes = self._indexes.size_bytes if self._indexes is not None and self.is_sealed else 0
            self._open_segments.note(self, files=int(self._file is not None), index_bytes=index_bytes)

    def _preallocate(self, file: File, needed: int) -> None:
        step = max(_MIN_PREALLOCATION, min(self._allocated, _MAX_PREALLOCATION))
        target = -(-max(needed, self._allocated + step) // _PAGE_BYTES) * _PAGE_BYTES
        self._has_tail = True  # also after an error: some of it may be there
        try:
            file.preallocate(self._allocated, target - self._allocated)
        except OSError as e:
            if not is_disk_full(e):
                raise
            target = needed  # the last bytes of a disk are there to be used
            file.preallocate(self._allocated, target - self._allocated)
        self._allocated = target

    def _cut_failed_append(self, file: File, error: OSError) -> None:
        """Remove what a failed write left: half a batch, or whole ones that nobody was told of."""
        try:
            file.truncate(self.size_bytes)
        except OSError:
            raise TornAppendError(error.errno, error.strerror, self.path(layout.LOG_SUFFIX)) from error
        self._allocated = self.size_bytes

    def _read_batch(self, position: int) -> bytes:
        header = unpack_header(self.file.pread(HEADER_BYTES, position))
        if header is None:
            raise self.no_batch_at(position)
        return self.file.pread(header.size_bytes, position)

    def base_offset_at(self, position: int) -> int | None:
        """Base offset of the batch at `position`; None at the end."""
        header = unpack_header(self.file.pread(HEADER_BYTES, position)) if position < self.size_bytes else None
        return None if header is None else header.base_offset

    def _limit_of(self, end_offset: int) -> int:
        """Position of the first batch that starts at or after `end_offset`."""
        position = self.position_of(end_offset)
        if position < self.size_bytes:
            header = unpack_header(self.file.pread(HEADER_BYTES, position))
            if header is not None and header.base_offset < end_offset:
                position += header.size_bytes  # the end lies inside this batch
            else:
                self._end_hint = (end_offset, position)
        return position

    def _search_from(self, offset: int) -> int:
        """Position of a batch that does not start after the one that holds `offset`, by the offset index."""
        entry = self.indexes.offsets.lookup(offset)
        if entry is None:
            return 0
        if not self._leads_to_batch(entry):
            self._distrust_indexes(f"no batch ends with offset {entry.offset} at position {entry.position}")
            return 0
        return entry.position

    def _nothing_before(self, timestamp: int) -> int:
        """An offset below which no record has a timestamp >= `timestamp`, by the time index."""
        entry = self.indexes.times.lookup(timestamp)
        if entry is None:
            return self.base_offset
        if not self._leads_to_timestamp(entry):
            self._distrust_indexes(f"no batch ends with offset {entry.offset} and has timestamp {entry.timestamp}")
            return self.base_offset
        return entry.offset

    def _whole_size(self, start: int, size: int, limit: int) -> int:
        """`size`, or a little less: up to where a batch starts, so that what is read need not be copied to be cut.

        By the offset index; what a wrong entry leads to is cut in the end.
        """
        if size < _COSTLY_COPY_BYTES or start + size >= limit:
            return size
        entry = self.indexes.offsets.lookup_position(start + size)
        whole = 0 if entry is None else entry.position - start
        return whole if whole >= size * _LEAST_FILL else size

    def _last_entry_in(self, data: bytes, start: int) -> int:
        """Where in `data`, read from position `start`, the last indexed batch starts; 0 if none does."""
        entry = self.indexes.offsets.lookup_position(start + len(data) - 1)
        if entry is None or entry.position <= start:
            return 0
        header = unpack_header(data, entry.position - start)
        return entry.position - start if header is not None and header.last_offset == entry.offset else 0

    def _leads_to_batch(self, entry: OffsetPosition) -> bool:
        header = unpack_header(self.file.pread(HEADER_BYTES, entry.position))
        return header is not None and header.last_offset == entry.offset

    def _leads_to_timestamp(self, entry: TimestampOffset) -> bool:
        position = self.position_of(entry.offset)
        header = unpack_header(self.file.pread(HEADER_BYTES, position))
        return header is not None and (header.max_timestamp, header.last_offset) == entry

    def _load_indexes(self) -> SegmentIndexes:
        indexes = load_indexes(self._fs, self.path, self.base_offset, self.size_bytes)
        if indexes is None:
            return self._rebuilt_indexes()
        self._indexes = indexes  # for the lookups in `_are_true`
        if self._are_true(indexes):
            return indexes
        logger.warning("rebuilding the indexes of %s: the last entries lead nowhere", self.path(layout.LOG_SUFFIX))
        return self._rebuilt_indexes()

    def _are_true(self, indexes: SegmentIndexes) -> bool:
        """Whether the last entries of both indexes lead to the batches that they name."""
        count = len(indexes.offsets)
        if count and not self._leads_to_batch(indexes.offsets.entry(count - 1)):
            return False
        try:
            return self.size_bytes == 0 if indexes.largest is None else self._leads_to_timestamp(indexes.largest)
        except CorruptRecordError:  # the way there leads over what is no batch, such as a tail that was to be trimmed
            return False

    def _distrust_indexes(self, reason: str) -> None:
        """An entry lies. A sealed segment's indexes are made anew; a growing one's are checked at every use anyhow."""
        logger.warning("the indexes of %s lie: %s", self.path(layout.LOG_SUFFIX), reason)
        with self._lock:
            if self.is_sealed and not self.is_gone:
                self._indexes = self._rebuilt_indexes()
                self._largest = None
                self._note_held()

    def _rebuilt_indexes(self) -> SegmentIndexes:
        """Indexes of a sealed segment made from its batches' headers; their files are written if that is possible."""
        indexes = self._from_headers(load_aborted(self._fs, self.path))
        try:
            indexes.write_lookup(self._fs, self.path)
        except OSError as e:
            logger.warning("the rebuilt indexes of %s are not written: %s", self.path(layout.LOG_SUFFIX), e)
        self.has_saved_indexes = False  # a clean stop is the time for a second attempt
        return indexes

    def _from_headers(self, aborted: list[AbortedTransaction]) -> SegmentIndexes:
        indexes = SegmentIndexes.growing(self.base_offset, self._interval_bytes, aborted)
        for position, header, _ in walk_headers(self.file, 0, self.size_bytes, with_control=False):
            if 0 <= header.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET:  # else damaged, and found at reading
                indexes.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
        return indexes

    def no_batch_at(self, position: int) -> CorruptRecordError:
        """The error to raise where the segment's own bytes make no sense."""
        return CorruptRecordError(
            f"{self.path(layout.LOG_SUFFIX)}: no valid batch at position {position}; fetch the partition from another "
            f"replica, or stop the node and run: kraftctl log repair {self._directory}"
        )

    def _forget_hints(self) -> None:
        self._start_hint = self._end_hint = self._tail_hint = (self.base_offset, 0)
