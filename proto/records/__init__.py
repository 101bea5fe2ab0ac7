"""Kafka record batches, format v2: build, read and check them. Pure bytes; knows no files, sockets or clocks.

`format` describes the bytes. `BatchBuilder` makes a batch, `decode_records` reads a fetch answer, `validate_batches` is
what a leader checks, `kraftlog.proto.records.arrow` goes straight from and to Arrow. The hot loops exist twice, in
Python (`_reference`) and in C (`_codec.c`); `codec` says which of them is active.
"""

from typing import TYPE_CHECKING

from kraftlog.proto.records import backend
from kraftlog.proto.records._reference import Record as _PythonRecord
from kraftlog.proto.records.builder import BatchBuilder
from kraftlog.proto.records.compression import MAX_DECOMPRESSED_BYTES
from kraftlog.proto.records.control import (
    ControlType,
    EndTransactionMarker,
    control_batch,
    control_key,
    end_transaction_marker,
    read_control_type,
    read_end_transaction_marker,
)
from kraftlog.proto.records.format import (
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CompressionType,
    TimestampType,
    batch_prefix,
    check_crc,
    check_crcs,
    iter_headers,
    next_sequence,
    read_header,
    rewrite_header,
    set_log_append_time,
)
from kraftlog.proto.records.reader import decode_batch, decode_records, validate_batches

if TYPE_CHECKING:
    Record = _PythonRecord
else:
    Record = backend.current.Record

codec: str = backend.current.NAME
"""Which implementation runs: "c" or "python"."""


def make_record(*fields: object) -> Record:
    """A record from its fields in the order of `Record`'s constructor; unpickling calls it."""
    return Record(*fields)  # type: ignore[arg-type] # the fields come from a pickled Record


__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "MAX_DECOMPRESSED_BYTES",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchHeader",
    "CompressionType",
    "ControlType",
    "EndTransactionMarker",
    "Record",
    "TimestampType",
    "batch_prefix",
    "check_crc",
    "check_crcs",
    "codec",
    "control_batch",
    "control_key",
    "decode_batch",
    "decode_records",
    "end_transaction_marker",
    "iter_headers",
    "make_record",
    "next_sequence",
    "read_control_type",
    "read_end_transaction_marker",
    "read_header",
    "rewrite_header",
    "set_log_append_time",
    "validate_batches",
]
