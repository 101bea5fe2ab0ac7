"""What a partition remembers of each producer: epoch, last five batches, open transaction.

Makes idempotent producers exact (a repeated batch is recognised and answered with its first offsets), fences old
instances (producer epoch) and finds the last stable offset (where the oldest open transaction starts).

State changes only in `apply`, which leader, follower and recovery share; `check` is what a leader asks before it
appends. So the state after recovery equals the state before the crash. The rules are those of Kafka's
`ProducerAppendInfo`; sequences wrap from 2^31 - 1 to 0.

Producers that are silent for long are forgotten (`expire`), which bounds the memory. Their age counts from when this
process last saw them, never by the timestamps of records, which may be of any year (KAFKA-9144).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraftlog.proto.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
)
from kraftlog.proto.records import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    BatchHeader,
    EndTransactionMarker,
    next_sequence,
)

RETAINED_BATCHES = 5  # max.in.flight.requests.per.connection of an idempotent producer


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """A batch that was appended, as far as recognising its repetition needs it."""

    base_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """One aborted transaction of the partition; readers of committed data skip the producer's batches in it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset once this marker was written: nothing from there on is known to be stable."""


@dataclass(slots=True)
class ProducerEntry:
    """One producer. `batches` are all of `producer_epoch`, oldest first."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    """At most `RETAINED_BATCHES`. A tuple, because a deque takes 600 bytes, which most producers never fill."""
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int | None = None
    last_seen_ms: int = 0
    """Wall clock of this process at the producer's last batch, or when its state was loaded. Not stored."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def remember(self, batch: BatchMetadata) -> None:
        """Add the latest batch; the oldest one too many is forgotten."""
        self.batches = (*self.batches[1 - RETAINED_BATCHES :], batch)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The retained batch of which `header` is a repetition."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


@dataclass(frozen=True, slots=True)
class _CompletedTransaction:
    """Decided, but not stable for readers before its marker is below the high watermark."""

    first_offset: int
    marker_offset: int


class ProducerStateManager:
    """State of all producers of one log. Used only by the log's writer."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        """By producer id; the one that was silent for longest comes first."""
        self.now_ms = 0
        """Wall clock at which `apply` and `restore` happen; kept by the log."""
        self._open: dict[int, int] = {}
        """First offset of each open transaction, by producer id."""
        self._completed: deque[_CompletedTransaction] = deque()
        """In the order of their markers."""

    def check(self, batches: Sequence[BatchHeader]) -> list[BatchMetadata]:
        """Whether a leader may append these batches of one request: [] if so, or what they repeat.

        All must be new or all repetitions. Raises `OutOfOrderSequenceNumberError`, `InvalidProducerEpochError` or
        `InvalidTxnStateError`.
        """
        duplicates: list[BatchMetadata] = []
        expected: dict[int, tuple[int, int]] = {}
        """(epoch, last sequence) of producers after the earlier batches of this request."""
        for header in batches:
            if not header.has_producer_id:
                continue
            entry = self.entries.get(header.producer_id)
            if header.is_control:
                self._check_epoch(header, entry)
                continue
            duplicate = entry.find_duplicate(header) if entry is not None else None
            if duplicate is not None:
                duplicates.append(duplicate)
                continue
            self._check_epoch(header, entry)
            self._check_sequence(header, entry, expected.get(header.producer_id))
            self._check_transaction(header, entry)
            expected[header.producer_id] = (header.producer_epoch, header.last_sequence)
        if duplicates and len(duplicates) != len(batches):
            raise OutOfOrderSequenceNumberError(
                f"a request mixes repeated and new batches of producer {batches[0].producer_id}: send each batch of a "
                "retry as it was sent first"
            )
        return duplicates

    def apply(
        self, header: BatchHeader, first_offset: int, marker: EndTransactionMarker | None = None
    ) -> AbortedTransaction | None:
        """Account for an appended batch of a producer; the transaction that it aborts, if it does.

        `first_offset` is the batch's offset in this log. `marker` is given for control batches that end a transaction.
        Checks nothing: what is in the log is true.
        """
        entry = self.entries.pop(header.producer_id, None) or ProducerEntry(header.producer_id)
        self.entries[header.producer_id] = entry  # to the end
        entry.last_seen_ms = self.now_ms
        last_offset = first_offset + header.last_offset_delta
        if header.producer_epoch > entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches = ()
        if header.max_timestamp >= 0:
            entry.last_timestamp = header.max_timestamp
        if header.is_control:
            return self._end_transaction(entry, marker, last_offset) if marker is not None else None
        entry.remember(
            BatchMetadata(header.base_sequence, header.last_sequence, first_offset, last_offset, header.max_timestamp)
        )
        if header.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = first_offset
            self._open[entry.producer_id] = first_offset
        return None

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Where the oldest transaction starts that is open, or whose marker is not below `high_watermark`."""
        while self._completed and self._completed[0].marker_offset < high_watermark:
            self._completed.popleft()
        if not self._open and not self._completed:
            return None
        return min((*self._open.values(), *(t.first_offset for t in self._completed)))

    def open_transactions(self) -> dict[int, int]:
        """First offset by producer id."""
        return dict(self._open)

    def see_all(self, now_ms: int) -> None:
        """The state was loaded at that time: whoever is in it counts as seen now."""
        self.now_ms = now_ms
        for entry in self.entries.values():
            entry.last_seen_ms = now_ms

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers not seen for more than `expiration_ms`, but none in a transaction; how many.

        What a forgotten producer sends next is taken as from an unknown one. Costs nothing for those that stay.
        """
        doomed: list[int] = []
        for producer_id, entry in self.entries.items():
            if now_ms - entry.last_seen_ms <= expiration_ms:
                break
            if entry.transaction_first_offset is None:
                doomed.append(producer_id)
        for producer_id in doomed:
            del self.entries[producer_id]
        return len(doomed)

    def restore(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace everything by what a snapshot holds."""
        self.entries = {entry.producer_id: entry for entry in entries}
        self.see_all(self.now_ms)
        self._open = {
            entry.producer_id: entry.transaction_first_offset
            for entry in self.entries.values()
            if entry.transaction_first_offset is not None
        }
        self._completed.clear()

    def _end_transaction(
        self, entry: ProducerEntry, marker: EndTransactionMarker, marker_offset: int
    ) -> AbortedTransaction | None:
        entry.coordinator_epoch = max(entry.coordinator_epoch, marker.coordinator_epoch)
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, None
        self._open.pop(entry.producer_id, None)
        if first_offset is None:
            return None
        self._completed.append(_CompletedTransaction(first_offset, marker_offset))
        if marker.is_commit:
            return None
        stable = min((*self._open.values(), marker_offset + 1))
        return AbortedTransaction(entry.producer_id, first_offset, marker_offset, stable)

    @staticmethod
    def _check_epoch(header: BatchHeader, entry: ProducerEntry | None) -> None:
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id}: epoch {header.producer_epoch} is older than {entry.producer_epoch}; "
                "another instance took over"
            )

    @staticmethod
    def _check_sequence(header: BatchHeader, entry: ProducerEntry | None, earlier: tuple[int, int] | None) -> None:
        if earlier is not None:
            epoch, last_sequence = earlier
        elif entry is not None and entry.producer_epoch != NO_PRODUCER_EPOCH:
            epoch, last_sequence = entry.producer_epoch, entry.last_sequence
        else:
            return  # nothing is known (first batch, or its state is gone with its records): any sequence may start
        where = f"producer {header.producer_id}, epoch {header.producer_epoch}"
        if header.producer_epoch != epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequenceNumberError(f"{where}: starts at sequence {header.base_sequence} instead of 0")
            return
        expected = next_sequence(last_sequence, 1)
        if header.base_sequence != expected:
            raise OutOfOrderSequenceNumberError(f"{where}: sequence {header.base_sequence}, expected {expected}")

    @staticmethod
    def _check_transaction(header: BatchHeader, entry: ProducerEntry | None) -> None:
        open_transaction = entry is not None and entry.transaction_first_offset is not None
        if open_transaction and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has an open transaction: its batches must be transactional"
            )
