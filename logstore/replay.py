"""The one way in which batches change what a log knows of producers, transactions and epochs; append and recovery share it."""

import logging
from collections.abc import Sequence

from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerStateManager
from kraftlog.logstore.segment import Segment
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import (
    BatchHeader,
    ControlType,
    EndTransactionMarker,
    decode_batch,
    read_control_type,
    read_end_transaction_marker,
)
from kraftlog.proto.seams import Buffer

logger = logging.getLogger(__name__)


def apply_to_producers(
    producers: ProducerStateManager, header: BatchHeader, first_offset: int, batch: Buffer
) -> AbortedTransaction | None:
    """Account for a batch; the transaction that it aborts. `batch` is read only if it is a control batch."""
    if not header.has_producer_id:
        return None
    return producers.apply(header, first_offset, _read_marker(batch) if header.is_control else None)


def replay_producers(producers: ProducerStateManager, segment: Segment, from_offset: int) -> None:
    """Apply the segment's batches from `from_offset` on; its transaction index is left alone.

    Raises `CorruptRecordError` if they do not go on to the segment's end: what a producer did would be forgotten.
    """
    end = segment.position_of(from_offset)
    for position, header, batch in segment.batches(end):
        apply_to_producers(producers, header, header.base_offset, batch)
        end = position + header.size_bytes
    if end != segment.size_bytes:
        raise segment.no_batch_at(end)


def replay_epochs(epochs: LeaderEpochCache, segments: Sequence[Segment]) -> None:
    """Where the cache knows nothing, the batches tell: those of deleted records too, as long as they are there. What was before
    a batch, and is compacted away, counts as of its epoch (`Log.append_as_follower`)."""
    if segments and not epochs.entries:
        end_offset = segments[0].base_offset
        for segment in segments:
            for _, header, _ in segment.batches():
                epochs.assign(header.leader_epoch, end_offset)
                end_offset = header.next_offset


def _read_marker(batch: Buffer) -> EndTransactionMarker | None:
    """The end-of-transaction marker of a control batch; None if it is another kind of control batch.

    A control batch whose record makes no sense marks nothing: it is in the log, and the log must load.
    """
    try:
        records = decode_batch(batch, check=False)
        if records and read_control_type(records[0]) in (ControlType.COMMIT, ControlType.ABORT):
            return read_end_transaction_marker(records[0])
    except KraftlogError as e:
        logger.warning("ignoring a control batch: %s", e)
    return None
