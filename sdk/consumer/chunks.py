"""Fetched bytes that wait for `poll`: what of them a reader may see, as records or as Arrow. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlog.proto.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KraftlogError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kraftlog.proto.hotpath import AbortedTransaction
from kraftlog.proto.records import ControlType, Record, decode_batch, decode_records, iter_headers, read_control_type
from kraftlog.sdk.failures import again
from kraftlog.sdk.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kraftlog.sdk.consumer.fetch_stream import FetchStream


class Chunk:
    """Record batches of one partition from one fetch message, and how far they were handed out.

    A damaged batch does not hide the good ones before it: they are handed out first, then the error is raised, again
    and again, until the application seeks.
    """

    __slots__ = (
        "_damage_offset",
        "_end_offset",
        "_error",
        "_index",
        "_pieces",
        "_records",
        "next_offset",
        "size_bytes",
        "stream",
    )

    def __init__(
        self,
        data: memoryview,
        next_offset: int,
        aborted: Sequence[AbortedTransaction],
        stream: "FetchStream | None" = None,
        end_offset: int | None = None,
    ) -> None:
        self.next_offset = next_offset if end_offset is None else min(next_offset, end_offset)
        """Where the reader goes on after this chunk, also if it holds nothing for it."""
        self.size_bytes = len(data)
        """Credit to return when the chunk is used up."""
        self.stream = stream
        self._end_offset = end_offset
        """Exclusive; None: hand out everything."""
        self._pieces = visible(data, aborted)
        self._error: KraftlogError | None = None
        self._damage_offset = -1
        self._records: list[Record] | None = None
        self._index = 0

    def take(self, tp: TopicPartition, position: int, count: int, *, check_crcs: bool) -> tuple[list[Record], bool]:
        """Up to `count` records from `position` on, and whether the chunk is used up."""
        records = self._records
        if records is None:
            records = self._records = self._decode(tp, position, check_crcs)
        start = self._index
        taken = records if start == 0 and len(records) <= count else records[start : start + count]
        self._index = start + len(taken)
        is_used_up = self._index >= len(records)
        if is_used_up and self._error is not None:
            if not taken:
                raise again(self._error)
            is_used_up = False
        return taken, is_used_up

    def take_arrow(
        self, tp: TopicPartition, position: int, columns: Sequence[str] | None, *, check_crcs: bool
    ) -> "tuple[pyarrow.RecordBatch, bool]":
        """Everything from `position` on, straight into Arrow buffers, and whether the chunk is used up."""
        from kraftlog.proto.records.arrow import decode_arrow

        def decode() -> "pyarrow.RecordBatch":
            return decode_arrow(
                self._pieces,
                topic=tp.topic,
                partition=tp.partition,
                min_offset=position,
                end_offset=self._end_offset,
                columns=columns,
                check=check_crcs,
            )

        if self._error is None:
            try:
                return decode(), True
            except _DAMAGE:
                self._cut_at_damage(tp, check_crcs)
                self._records = None
        error = self._error
        assert error is not None
        if not self._pieces or (self._records is not None and self._index >= len(self._records)):
            raise again(error)
        good = decode()
        self._records, self._index = [], 0
        return good, False

    def position_after_good(self, position: int) -> int:
        """Where the damage begins, once the good part was handed out."""
        return max(position, self._damage_offset)

    def _decode(self, tp: TopicPartition, position: int, check_crcs: bool) -> list[Record]:
        try:
            return self._all_records(tp, position, check_crcs)
        except _DAMAGE:
            self._cut_at_damage(tp, check_crcs)
            return self._all_records(tp, position, check_crcs)

    def _all_records(self, tp: TopicPartition, position: int, check_crcs: bool) -> list[Record]:
        lists = [
            decode_records(data, topic=tp.topic, partition=tp.partition, min_offset=position, check=check_crcs)
            for data in self._pieces
        ]
        records = lists[0] if len(lists) == 1 else [record for records in lists for record in records]
        if self._end_offset is not None and records and records[-1].offset >= self._end_offset:
            del records[bisect_left(records, self._end_offset, key=lambda record: record.offset) :]
        return records

    def _cut_at_damage(self, tp: TopicPartition, check_crcs: bool) -> None:
        """Keep the batches before the damaged one, and the error for after them."""
        good: list[memoryview] = []
        for data in self._pieces:
            end = 0
            offset: int | str = "an unknown offset"
            try:
                for end, header in iter_headers(data):
                    offset = header.base_offset
                    decode_batch(data, end, check=check_crcs)
                    self._damage_offset = header.next_offset
            except _DAMAGE as error:
                self._error = type(error)(f"{tp} at offset {offset}: {error}; seek past it to go on")
                self._pieces = [*good, data[:end]] if end else good
                return
            good.append(data)


_DAMAGE = (CorruptRecordError, InvalidRecordError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError)


def visible(data: memoryview, aborted: Sequence[AbortedTransaction]) -> list[memoryview]:
    """The stretches of `data` without batches of aborted transactions; all of it if none was aborted.

    A transactional batch of a producer is aborted between the first offset of an aborted transaction and the producer's
    abort marker. The list may come in any order.
    """
    if not aborted:
        return [data]
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    open_aborted: set[int] = set()
    stretches: list[memoryview] = []
    start: int | None = None
    end = 0
    for position, header in iter_headers(data):
        while pending and pending[-1].first_offset <= header.last_offset:
            open_aborted.add(pending.pop().producer_id)
        end = position + header.size_bytes
        hidden = header.is_transactional and header.producer_id in open_aborted
        if hidden and header.is_control and _is_abort(data, position):
            open_aborted.discard(header.producer_id)
        if hidden and start is not None:
            stretches.append(data[start:position])
            start = None
        elif not hidden and start is None:
            start = position
    if start is not None:
        stretches.append(data[start:end])
    return stretches


def _is_abort(data: memoryview, position: int) -> bool:
    markers = decode_batch(data, position, check=False)  # none: a control batch that compaction has emptied
    return bool(markers) and read_control_type(markers[0]) is ControlType.ABORT
