"""Building batches: records go in one at a time, a batch's bytes come out."""

from typing import TYPE_CHECKING

from kraftlog.proto.errors import IllegalStateError, RecordTooLargeError
from kraftlog.proto.records import _reference, backend, compression
from kraftlog.proto.records.format import (
    CONTROL_BIT,
    HEADER_BYTES,
    HEADER_HEAD,
    HEADER_TAIL,
    MAGIC,
    MAX_BATCH_LENGTH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Buffer,
    CompressionType,
    TimestampType,
)

if TYPE_CHECKING:
    _Appender = _reference.RecordAppender  # the C twin's has the same names
else:
    _Appender = object


class _Batching(_Appender):
    """What both builders add to their `RecordAppender`: the attributes of the batch, and `build`."""

    def __init__(
        self,
        *,
        compression_type: CompressionType = CompressionType.NONE,
        compression_level: int | None = None,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        super().__init__()
        self.compression_type = CompressionType(compression_type)
        self.compression_level = compression_level
        self.is_transactional = is_transactional
        self.is_control = is_control

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    ) -> bytes:
        """The batch of the records so far. May be called again, for instance with another producer's state."""
        if not self.record_count:
            raise IllegalStateError("a batch needs at least one record: append first")
        attributes = (
            self.compression_type
            | (TIMESTAMP_TYPE_BIT if timestamp_type else 0)
            | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (CONTROL_BIT if self.is_control else 0)
        )
        section: Buffer = self.section()
        if self.compression_type:
            section = compression.compress(self.compression_type, section, self.compression_level)
        tail = HEADER_TAIL.pack(
            attributes,
            self.record_count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        crc = backend.current.crc32c(section, backend.current.crc32c(tail))
        length = HEADER_BYTES - 12 + len(section)
        if length > MAX_BATCH_LENGTH:
            raise RecordTooLargeError(f"batch of {length} bytes exceeds {MAX_BATCH_LENGTH}, the format's limit")
        return b"".join((HEADER_HEAD.pack(base_offset, length, leader_epoch, MAGIC, crc), tail, section))


class PythonBatchBuilder(_Batching, _reference.RecordAppender):
    """Builds one batch: `append` records, then `build`. Used from one thread at a time.

    `append(timestamp_ms, key, value, headers)` returns `size_bytes`, the uncompressed size so far: whoever collects
    records compares it with a limit of its own.
    """


if TYPE_CHECKING or backend.current.NAME == "python":
    BatchBuilder = PythonBatchBuilder
else:

    class BatchBuilder(_Batching, backend.current.RecordAppender):
        __doc__ = PythonBatchBuilder.__doc__
