"""The pure-Python twin as one module, with the names that `_codec` has."""

from kraftlog.proto.records._reference import (
    NAME,
    Record,
    RecordAppender,
    batch_crc,
    crc32c,
    decode_records,
    decode_run,
    murmur2,
    parse_header,
    snappy_compress,
    snappy_decompress,
    validate_records,
)
from kraftlog.proto.records._reference_arrow import ArrowColumns, append_columns, partition_column
from kraftlog.proto.records._reference_compact import add_keys, filter_records, sip_hash

__all__ = [
    "NAME",
    "ArrowColumns",
    "Record",
    "RecordAppender",
    "add_keys",
    "append_columns",
    "batch_crc",
    "crc32c",
    "decode_records",
    "decode_run",
    "filter_records",
    "murmur2",
    "parse_header",
    "partition_column",
    "sip_hash",
    "snappy_compress",
    "snappy_decompress",
    "validate_records",
]
