"""Metadata records as record batches: the batches of `__cluster_metadata-0`.

A batch holds the MetadataRecords of one operation of the controller, or of some (`gathering`), each the value of a
record without a key. A batch of the quorum itself (leader change, voters) is a control batch, see `control_records`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError

from kraftlog.kraft import control_records
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import Entry, EntryKind, ReplicaKey, Voters
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.records import (
    BatchBuilder,
    BatchHeader,
    ControlType,
    check_crc,
    control_key,
    decode_batch,
    read_control_type,
    read_header,
)

MAX_OPERATION_BYTES = 8 * 1024 * 1024  # an operation is in one batch as a whole; Kafka's limit for a metadata batch
RECORD_OVERHEAD_BYTES = 32  # lengths, deltas and header count of one record, rounded up

VERSIONS = {
    "feature_level": 1,
    "register_broker": 1,
    "unregister_broker": 1,
    "broker_registration_change": 1,
    "topic": 1,
    "remove_topic": 1,
    "partition": 1,
    "partition_change": 1,
    "config": 1,
    "producer_ids": 1,
    "completed_operation": 1,
}
"""The version of each record type that this code writes, and the highest that it reads."""


class OffsetRecord(NamedTuple):
    offset: int
    record: MetadataRecord


def versioned(record: MetadataRecord) -> MetadataRecord:
    """Set the version of the chosen type; returns the same object."""
    kind = record.WhichOneof("record")
    assert kind is not None
    record.version = VERSIONS[kind]
    return record


def encode_value(record: MetadataRecord) -> bytes:
    """The same bytes for the same record, on every node and in every run."""
    return versioned(record).SerializeToString(deterministic=True)


def decode_records(batch: bytes) -> list[OffsetRecord]:
    """The metadata records of one batch that is not a control batch; the CRC has been checked by the reader of the log.

    Raises `UnsupportedVersionError` for what a later version wrote: state must not be built on half of the facts.
    """
    return [OffsetRecord(record.offset, _decode(record.value, record.offset)) for record in decode_batch(batch)]


def _decode(value: bytes | None, offset: int) -> MetadataRecord:
    record = MetadataRecord()
    try:
        record.ParseFromString(value or b"")
    except DecodeError as error:
        raise CorruptRecordError(f"metadata record at offset {offset} cannot be read: {error}") from None
    kind = record.WhichOneof("record")
    if kind is None or record.version > VERSIONS.get(kind, 0):
        raise UnsupportedVersionError(
            f"metadata record {kind or 'of an unknown type'} version {record.version} at offset {offset}:"
            " a later version of kraftlog wrote it; start that version"
        )
    return record


class ControlBatches:
    """Makes the batches that the Raft core writes on its own account. `now_ms` gives the wall clock, `endpoints` the
    addresses of those of the given voters that are known."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        endpoints: Callable[[Voters], Mapping[ReplicaKey, Endpoint]] = lambda voters: {},
    ) -> None:
        self._now_ms = now_ms
        self._endpoints = endpoints

    def leader_change(self, offset: int, term: int, leader: ReplicaKey, voters: Voters) -> bytes:
        value = control_records.encode_leader_change(leader, voters)
        return self._batch(offset, term, ControlType.LEADER_CHANGE, value)

    def voters(self, offset: int, term: int, voters: Voters) -> bytes:
        value = control_records.encode_voters(voters, self._endpoints(voters))
        return self._batch(offset, term, ControlType.KRAFT_VOTERS, value)

    def _batch(self, offset: int, term: int, control_type: ControlType, value: bytes) -> bytes:
        builder = BatchBuilder(is_control=True)
        builder.append(self._now_ms(), control_key(control_type), value)
        return builder.build(base_offset=offset, leader_epoch=term)


def entry_of(batch: bytes) -> Entry:
    """The Raft entry that a whole batch from the log, or from a peer, is. Checks the CRC."""
    header = read_header(batch)
    check_crc(batch, 0, header)
    kind, voters = _kind_of(batch, header)
    return Entry(header.last_offset, header.leader_epoch, kind, batch, header.last_offset_delta + 1, voters)


def voter_endpoints_of(entry: Entry) -> dict[ReplicaKey, Endpoint]:
    """The addresses in an entry of kind VOTERS, by voter; without those of voters that have none there."""
    assert entry.kind is EntryKind.VOTERS
    (record,) = decode_batch(entry.data)
    return control_records.decode_voter_endpoints(record.value)


def _kind_of(batch: bytes, header: BatchHeader) -> tuple[EntryKind, Voters | None]:
    if not header.is_control:
        return EntryKind.DATA, None
    (record,) = decode_batch(batch)
    control_type = read_control_type(record)
    if control_type is ControlType.LEADER_CHANGE:
        return EntryKind.LEADER_CHANGE, None
    if control_type is ControlType.KRAFT_VOTERS:
        return EntryKind.VOTERS, control_records.decode_voters(record.value)
    raise UnsupportedVersionError(
        f"control record {record.key!r} at offset {header.base_offset} of the metadata log is not known"
    )
