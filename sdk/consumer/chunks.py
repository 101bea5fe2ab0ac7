"""Fetched bytes that wait for `poll`: what of them a reader may see, as records or as Arrow. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kraftlog.proto.errors import CorruptRecordError, InvalidRecordError, KraftlogError
from kraftlog.proto.hotpath import AbortedTransaction
from kraftlog.proto.records import ControlType, Record, decode_batch, decode_records, iter_headers, read_control_type
from kraftlog.sdk.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kraftlog.sdk.consumer.fetch_stream import FetchStream


class Chunk:
    """Record batches of one partition from one fetch message, and how far they were handed out."""

    __slots__ = ("_index", "_records", "aborted", "data", "next_offset", "size_bytes", "stream")

    def __init__(
        self,
        data: memoryview,
        next_offset: int,
        aborted: Sequence[AbortedTransaction],
        stream: "FetchStream | None" = None,
    ) -> None:
        self.data = data
        self.next_offset = next_offset
        """Where the reader goes on after this chunk, also if it holds nothing for it."""
        self.aborted = aborted
        self.size_bytes = len(data)
        """Credit to return when the chunk is used up."""
        self.stream = stream
        self._records: list[Record] | None = None
        self._index = 0

    def take(self, tp: TopicPartition, position: int, count: int, *, check_crcs: bool) -> tuple[list[Record], bool]:
        """Up to `count` records from `position` on, and whether the chunk is used up."""
        records = self._records
        if records is None:
            records = self._records = self._decode(tp, position, check_crcs)
        start = self._index
        if start == 0 and len(records) <= count:
            self._index = len(records)
            return records, True
        taken = records[start : start + count]
        self._index = start + len(taken)
        return taken, self._index >= len(records)

    def to_arrow(
        self, tp: TopicPartition, position: int, columns: Sequence[str] | None, *, check_crcs: bool
    ) -> "pyarrow.RecordBatch":
        """Everything from `position` on, straight into Arrow buffers."""
        from kraftlog.proto.records.arrow import decode_arrow

        try:
            return decode_arrow(
                visible(self.data, self.aborted),
                topic=tp.topic,
                partition=tp.partition,
                min_offset=position,
                columns=columns,
                check=check_crcs,
            )
        except (CorruptRecordError, InvalidRecordError) as error:
            raise _placed(error, tp, position) from error

    def _decode(self, tp: TopicPartition, position: int, check_crcs: bool) -> list[Record]:
        pieces = visible(self.data, self.aborted)
        try:
            if len(pieces) == 1:
                return _records(pieces[0], tp, position, check_crcs)
            return [record for piece in pieces for record in _records(piece, tp, position, check_crcs)]
        except (CorruptRecordError, InvalidRecordError) as error:
            raise _placed(error, tp, position) from error


def _records(data: memoryview, tp: TopicPartition, position: int, check_crcs: bool) -> list[Record]:
    return decode_records(data, topic=tp.topic, partition=tp.partition, min_offset=position, check=check_crcs)


def _placed(error: KraftlogError, tp: TopicPartition, position: int) -> KraftlogError:
    return type(error)(f"{tp} at offset {position}: {error}; seek past it to go on")


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
    marker: Any = decode_batch(data, position, check=False)[0]
    return read_control_type(marker) is ControlType.ABORT
