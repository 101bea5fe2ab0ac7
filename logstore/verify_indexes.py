"""Index files against the batches of their segment, entry by entry, while somebody goes through the batches."""

from collections.abc import Callable, Collection, Iterator, Sequence

from kraftlog.logstore.filesystem import FileSystem, read_file
from kraftlog.logstore.indexes import OffsetIndex, TimeIndex, TimestampOffset
from kraftlog.logstore.layout import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.transaction_index import decode_aborted
from kraftlog.proto.records import BatchHeader

IndexProblem = tuple[str, int | None, int | None, str]
"""(suffix of the file, position in it, offset, what is wrong)"""

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
_MAX_PROBLEMS = 20  # of one segment's indexes: in a file of garbage every entry is one


class IndexCheck:
    """Give every batch of the segment to `note_batch`, in order; `finish` then has what is wrong with its indexes.

    Zeros at the end of an index are room for entries: Kafka leaves it where it does not stop in order, and in its metadata
    log. Loading makes such an index anew.
    """

    def __init__(self, fs: FileSystem, path_of: Callable[[str], str], base_offset: int) -> None:
        self._problems: list[IndexProblem] = []
        self._untold_count = 0
        self.notes: list[IndexProblem] = []
        """What is unfinished, but in order."""
        self._fs = fs
        self._path_of = path_of
        self._offsets = OffsetIndex(base_offset, self._content(INDEX_SUFFIX, _OFFSET_ENTRY_BYTES))
        self._times = TimeIndex(base_offset, self._content(TIME_INDEX_SUFFIX, _TIME_ENTRY_BYTES))
        self._next_offset_entry = 0
        self._next_time_entry = 0
        self._largest: TimestampOffset | None = None
        self.aborted: Sequence[AbortedTransaction] = ()
        """What the transaction index lists; empty if it is damaged."""
        self._check_order()
        self._load_aborted()

    def note_batch(self, position: int, header: BatchHeader) -> None:
        self._check_offset_entries(position, header)
        largest = self._largest
        if largest is None or header.max_timestamp > largest.timestamp:
            self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
        self._check_time_entries(header)

    def finish(self) -> list[IndexProblem]:
        for number in range(self._next_offset_entry, len(self._offsets)):
            self._offset_problem(
                number, f"leads to position {self._offsets.entry(number).position}, where no batch starts"
            )
        for number in range(self._next_time_entry, len(self._times)):
            self._time_problem(number, "there is no batch with that offset")
        last, largest = self._times.last(), self._largest
        if largest is not None and largest.timestamp >= 0 and (last is None or last.timestamp < largest.timestamp):
            self._report((TIME_INDEX_SUFFIX, None, largest.offset, f"lacks the largest timestamp, {largest.timestamp}"))
        if self._untold_count:
            self._problems.append((INDEX_SUFFIX, None, None, f"and {self._untold_count} more problems of the indexes"))
        return self._problems

    def _report(self, problem: IndexProblem) -> None:
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(problem)
        else:
            self._untold_count += 1

    def _content(self, suffix: str, entry_bytes: int) -> bytes:
        try:
            data = read_file(self._fs, self._path_of(suffix))
        except FileNotFoundError:
            self._report((suffix, None, None, "is missing"))
            return b""
        if len(data) % entry_bytes:
            self._report((suffix, None, None, f"{len(data)} bytes are no whole {entry_bytes}-byte entries"))
        count = len(data) // entry_bytes
        used = -(-len(data.rstrip(b"\0")) // entry_bytes)
        if count - used > 1:  # a single one may be an entry
            size = (count - used) * entry_bytes
            self.notes.append((suffix, used * entry_bytes, None, f"{size} bytes of zeros, room for entries"))
            count = used
        return data[: count * entry_bytes]

    def _check_order(self) -> None:
        for number in range(1, len(self._offsets)):
            before, entry = self._offsets.entry(number - 1), self._offsets.entry(number)
            if not (before.offset < entry.offset and before.position < entry.position):
                self._offset_problem(number, f"does not ascend from offset {before.offset}, position {before.position}")
        for number in range(1, len(self._times)):
            earlier, later = self._times.entry(number - 1), self._times.entry(number)
            if not (earlier.timestamp < later.timestamp and earlier.offset < later.offset):
                self._time_problem(number, f"does not ascend from {earlier.timestamp}, offset {earlier.offset}")

    def _load_aborted(self) -> None:
        try:
            self.aborted = list(decode_aborted(read_file(self._fs, self._path_of(TXN_INDEX_SUFFIX))))
        except FileNotFoundError:
            pass
        except ValueError as e:
            self._report((TXN_INDEX_SUFFIX, None, None, str(e)))

    def _check_offset_entries(self, position: int, header: BatchHeader) -> None:
        while self._next_offset_entry < len(self._offsets):
            number = self._next_offset_entry
            entry = self._offsets.entry(number)
            if entry.position > position:
                return
            self._next_offset_entry += 1
            if entry.position < position:
                self._offset_problem(number, f"leads to position {entry.position}, where no batch starts")
            elif entry.offset != header.last_offset:
                self._offset_problem(
                    number, f"leads to position {position}, where the batch ends at offset {header.last_offset}"
                )

    def _check_time_entries(self, header: BatchHeader) -> None:
        while self._next_time_entry < len(self._times):
            number = self._next_time_entry
            entry = self._times.entry(number)
            if entry.offset > header.last_offset:
                return
            self._next_time_entry += 1
            if entry.offset < header.base_offset:
                self._time_problem(number, "there is no batch with that offset")
            elif entry.timestamp != header.max_timestamp:
                self._time_problem(number, f"the batch's largest timestamp is {header.max_timestamp}")
            elif self._largest is not None and entry.timestamp < self._largest.timestamp:
                self._time_problem(number, f"offset {self._largest.offset} before it has {self._largest.timestamp}")

    def _offset_problem(self, number: int, message: str) -> None:
        entry = self._offsets.entry(number)
        self._report((INDEX_SUFFIX, number * _OFFSET_ENTRY_BYTES, entry.offset, f"entry {number}: {message}"))

    def _time_problem(self, number: int, message: str) -> None:
        entry = self._times.entry(number)
        text = f"entry {number}, timestamp {entry.timestamp}: {message}"
        self._report((TIME_INDEX_SUFFIX, number * _TIME_ENTRY_BYTES, entry.offset, text))


def compare_aborted(
    listed: Sequence[AbortedTransaction],
    replayed: Sequence[AbortedTransaction],
    markers: Collection[tuple[int, int]],
    *,
    is_complete: bool,
) -> Iterator[tuple[int, str]]:
    """Where a segment's transaction index differs from the batches: (offset, what is wrong).

    Without `is_complete`, batches that the index speaks of may be gone: a listed transaction may then have started
    earlier than the replay knows, or be unknown to it. `markers`: (producer id, offset) of the segment's control batches.
    """
    if is_complete:
        for transaction in replayed:
            if transaction not in listed:
                yield transaction.last_offset, f"lacks {_text(transaction)}"
        for transaction in listed:
            if transaction not in replayed:
                yield transaction.last_offset, f"lists {_text(transaction)}, which the log has not"
        return
    for transaction in replayed:
        if not any(
            (each.producer_id, each.last_offset) == (transaction.producer_id, transaction.last_offset)
            and each.first_offset <= transaction.first_offset
            for each in listed
        ):
            yield transaction.last_offset, f"lacks {_text(transaction)}"
    for transaction in listed:
        others = {producer_id for producer_id, offset in markers if offset == transaction.last_offset}
        if others and transaction.producer_id not in others:
            yield transaction.last_offset, f"lists {_text(transaction)}, but the marker there is another producer's"


def _text(transaction: AbortedTransaction) -> str:
    return (
        f"the aborted transaction of producer {transaction.producer_id} from {transaction.first_offset} to "
        f"{transaction.last_offset} (last stable offset {transaction.last_stable_offset})"
    )
