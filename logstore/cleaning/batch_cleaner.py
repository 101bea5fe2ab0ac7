"""What compaction leaves of each batch: Kafka's rules (`Cleaner.cleanInto`) over `kraftlog.proto.records.compaction`."""

from collections.abc import Iterable, Mapping

from kraftlog.logstore.cleaning.transactions import CleanedTransactions
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerEntry
from kraftlog.proto.records import BatchHeader, ControlType, decode_batch, read_control_type
from kraftlog.proto.records.compaction import OffsetMap, clean_batch, emptied, with_delete_horizon
from kraftlog.proto.seams import Buffer

Remembered = Mapping[int, ProducerEntry | None]
"""Producers as the log remembers them where compaction ends: a restarted node must learn the same from what is left of
their batches, or a producer whose answers were lost repeats them in vain (Kafka keeps the last one of them only).

None: what the log remembers of it there is not known, so all of its batches are kept.
"""


def control_type_of(header: BatchHeader, batch: Buffer) -> ControlType | None:
    """Which marker a control batch is; an empty one was cleaned before and counts as a commit without data."""
    if not header.record_count:
        return ControlType.COMMIT
    return read_control_type(decode_batch(batch, check=False)[0])


class BatchCleaner:
    """One walk over a log, from its first batch on. Used by one thread at a time."""

    def __init__(
        self,
        offset_map: OffsetMap,
        aborted: Iterable[AbortedTransaction],
        producers: Remembered,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = CleanedTransactions(aborted)
        self._producers = producers
        self._open: set[int] | None = set()
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self.read_records = 0
        self.kept_records = 0

    def begin_segment(self, open_producers: Iterable[int] | None) -> None:
        """What comes from here on is for a new segment; whose transactions are open there by its snapshot.

        They are closed by their markers only, even if nothing else is left of them: loading begins with that snapshot.
        None: it is lost, and loading would begin with an earlier one.
        """
        self._open = None if open_producers is None else set(open_producers)

    def clean(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer | None, AbortedTransaction | None]:
        """(what stays of the batch, the aborted transaction that the batch ends and that has a batch left).

        The same object is returned for a batch that stays as it is. Raises `InvalidRecordError`.
        """
        self.read_records += header.record_count
        aborted = None
        if header.is_control:
            kept, aborted = self._clean_control(header, batch)
        else:
            kept = self._clean_data(header, batch)
        if kept is None and header.has_producer_id and self._is_remembered(header):
            kept = batch if header.record_count == 0 else emptied(header)
        return kept, aborted

    def _clean_data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if self._transactions.is_aborted(header):
            return None
        if header.base_offset >= self._map.end_offset:
            self.kept_records += header.record_count
            return batch
        cleaned = clean_batch(
            batch, header, self._map, now_ms=self._now_ms, delete_retention_ms=self._delete_retention_ms
        )
        if cleaned is None:
            return None
        self.kept_records += cleaned.record_count
        return cleaned.data

    def _clean_control(self, header: BatchHeader, batch: Buffer) -> tuple[Buffer | None, AbortedTransaction | None]:
        is_needless, aborted = self._transactions.end(header, control_type_of(header, batch))
        closes = self._closes(header)
        if is_needless and not closes:
            if header.record_count == 0 or (header.has_delete_horizon and header.base_timestamp <= self._now_ms):
                return None, None
            if not header.has_delete_horizon:
                horizon = self._now_ms + self._delete_retention_ms
                batch = with_delete_horizon(batch, header, self._map, horizon).data
        self.kept_records += header.record_count
        return batch, aborted

    def _closes(self, header: BatchHeader) -> bool:
        """Whether this control batch ends a transaction that was open where the segment begins."""
        if self._open is None or not header.record_count:
            return self._open is None
        was_open = header.producer_id in self._open
        self._open.discard(header.producer_id)
        return was_open

    def _is_remembered(self, header: BatchHeader) -> bool:
        if header.producer_id not in self._producers:
            return False
        entry = self._producers[header.producer_id]
        if entry is None:
            return True
        if not entry.batches:  # its epoch is known by a marker
            return header.producer_epoch == entry.producer_epoch
        return any(batch.last_offset == header.last_offset for batch in entry.batches)
