"""Batches of the metadata log, as a leader makes them."""

from collections.abc import Sequence

from kraftlog.kraft.records import encode_value
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.records import BatchBuilder


def encode_records(
    records: Sequence[MetadataRecord], *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    """One batch."""
    builder = BatchBuilder()
    for record in records:
        builder.append(timestamp_ms, None, encode_value(record))
    return builder.build(base_offset=base_offset, leader_epoch=leader_epoch)
