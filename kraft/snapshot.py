"""Snapshots of the metadata: an image, and the voters, as the batches of a `.checkpoint` file (KIP-630, KIP-853).

The file is named after what it contains, `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`: every record below the
(exclusive) end offset, and the epoch of the last one. Its bytes are record batches, one after another:

    control batch   SNAPSHOT_HEADER, KRAFT_VERSION, KRAFT_VOTERS (`control_records`)
    data batches    MetadataRecords that make the image from nothing; each batch at most MAX_BATCH_BYTES
    control batch   SNAPSHOT_FOOTER

Offsets count from 0 within the file, and every batch bears the epoch of the name. So each bit counts: what is not under
a batch's CRC (offset, length, epoch) has one right value. A file is sound if all that holds, the footer ends it and the
records make sense; nothing is taken from any other.

`00000000000000000000-0000000000.checkpoint` is the genesis, which formatting a node writes: the first voters, and the
feature levels that the first leader writes to the log. It says nothing of committed metadata.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kraftlog.kraft import control_records
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.image import MetadataDelta, MetadataImage, records_of
from kraftlog.kraft.raft import ReplicaKey, Voters
from kraftlog.kraft.records import RECORD_OVERHEAD_BYTES, decode_records, encode_value
from kraftlog.proto.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidRecordError,
    UnsupportedForMessageFormatError,
)
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.records import (
    BatchBuilder,
    BatchHeader,
    ControlType,
    Record,
    check_crc,
    control_batch,
    control_key,
    decode_batch,
    read_control_type,
    read_header,
)

MAX_BATCH_BYTES = 1024 * 1024  # what is held in memory while a snapshot is written, and one chunk on the wire
_FILE_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint\Z")
_UNSOUND = (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedForMessageFormatError,
    IllegalStateError,  # records that do not fit together
    KeyError,
)
_HEAD = (ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS)


class SnapshotId(NamedTuple):
    """Which part of the log a snapshot contains. Ordered by age."""

    end_offset: int
    """Exclusive."""
    epoch: int
    """Of the last record below `end_offset`; 0 if there is none."""

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @classmethod
    def parse(cls, name: str) -> "SnapshotId | None":
        """The id in a file's name; None for any other name."""
        match = _FILE_NAME.match(name)
        return None if match is None else cls(int(match[1]), int(match[2]))

    @classmethod
    def of(cls, image: MetadataImage) -> "SnapshotId":
        """What a snapshot of `image` contains."""
        return cls(image.offset + 1, image.leader_epoch)


GENESIS = SnapshotId(0, 0)


@dataclass(frozen=True, slots=True)
class SnapshotContents:
    """What a sound snapshot says."""

    timestamp_ms: int
    """Of the last batch that it contains."""
    voters: Voters
    endpoints: Mapping[ReplicaKey, Endpoint]
    """Of those voters that have one."""
    records: list[MetadataRecord]
    image: MetadataImage
    """What the records make."""


# Writing.


def encode_snapshot(
    image: MetadataImage,
    voters: Voters,
    endpoints: Mapping[ReplicaKey, Endpoint],
    *,
    timestamp_ms: int,
) -> Iterator[bytes]:
    """The batches of the file, made one by one. `timestamp_ms`: of the last batch that the image contains."""
    snapshot_id = SnapshotId.of(image)
    yield from encode_records_as_snapshot(snapshot_id, records_of(image), voters, endpoints, timestamp_ms=timestamp_ms)


def encode_records_as_snapshot(
    snapshot_id: SnapshotId,
    records: Iterable[MetadataRecord],
    voters: Voters,
    endpoints: Mapping[ReplicaKey, Endpoint],
    *,
    timestamp_ms: int,
) -> Iterator[bytes]:
    """As `encode_snapshot`, from records."""
    head = [
        (control_key(ControlType.SNAPSHOT_HEADER), control_records.encode_snapshot_header(timestamp_ms)),
        (control_key(ControlType.KRAFT_VERSION), control_records.encode_kraft_version()),
        (control_key(ControlType.KRAFT_VOTERS), control_records.encode_voters(voters, endpoints)),
    ]
    yield control_batch(head, timestamp_ms=timestamp_ms, base_offset=0, leader_epoch=snapshot_id.epoch)
    offset, builder = len(head), BatchBuilder()
    for record in records:
        value = encode_value(record)
        if builder.record_count and builder.size_bytes + len(value) + RECORD_OVERHEAD_BYTES > MAX_BATCH_BYTES:
            yield builder.build(base_offset=offset, leader_epoch=snapshot_id.epoch)
            offset += builder.record_count
            builder = BatchBuilder()
        builder.append(timestamp_ms, None, value)
    if builder.record_count:
        yield builder.build(base_offset=offset, leader_epoch=snapshot_id.epoch)
        offset += builder.record_count
    foot = [(control_key(ControlType.SNAPSHOT_FOOTER), control_records.encode_snapshot_footer())]
    yield control_batch(foot, timestamp_ms=timestamp_ms, base_offset=offset, leader_epoch=snapshot_id.epoch)


# Reading.


def decode_snapshot(data: bytes, snapshot_id: SnapshotId) -> SnapshotContents:
    """Check and read a whole snapshot. Raises `CorruptRecordError` for one that is cut, damaged or no snapshot of ours,
    `UnsupportedVersionError` for one that a later version wrote."""
    try:
        return _decode(data, snapshot_id)
    except _UNSOUND as error:
        raise CorruptRecordError(f"snapshot {snapshot_id.file_name} of {len(data)} bytes: {error}") from None


def _decode(data: bytes, snapshot_id: SnapshotId) -> SnapshotContents:
    batches = _batches(data, snapshot_id.epoch)
    head = next(batches, None)
    if head is None:
        raise CorruptRecordError("it is empty")
    header, version, voters = _control_records(data, *head, _HEAD)
    timestamp_ms = control_records.decode_snapshot_header(header.value)
    control_records.check_kraft_version(version.value)
    records: list[MetadataRecord] = []
    is_whole = False
    for position, batch in batches:
        if is_whole:
            raise CorruptRecordError(f"something follows its footer, at position {position}")
        if batch.is_control:
            (footer,) = _control_records(data, position, batch, (ControlType.SNAPSHOT_FOOTER,))
            control_records.check_snapshot_footer(footer.value)
            is_whole = True
        else:
            records += [record for _, record in decode_records(data[position : position + batch.size_bytes])]
    if not is_whole:
        raise CorruptRecordError("it has no footer: it is cut")
    return SnapshotContents(
        timestamp_ms=timestamp_ms,
        voters=control_records.decode_voters(voters.value),
        endpoints=control_records.decode_voter_endpoints(voters.value),
        records=records,
        image=_image_of(records, snapshot_id),
    )


def _batches(data: bytes, epoch: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch; their CRCs have been checked."""
    position = offset = 0
    while position < len(data):
        header = read_header(data, position)
        if header.base_offset != offset or header.leader_epoch != epoch:
            raise CorruptRecordError(
                f"the batch at position {position} has offset {header.base_offset} and epoch {header.leader_epoch},"
                f" not {offset} and {epoch}"
            )
        check_crc(data, position, header)
        yield position, header
        position += header.size_bytes
        offset = header.next_offset


def _control_records(
    data: bytes, position: int, header: BatchHeader, expected: tuple[ControlType, ...]
) -> list[Record]:
    records = decode_batch(data, position, check=False) if header.is_control else []
    if tuple(map(read_control_type, records)) != expected:
        raise CorruptRecordError(f"the batch at position {position} is not {', '.join(t.name for t in expected)}")
    return records


def _image_of(records: list[MetadataRecord], snapshot_id: SnapshotId) -> MetadataImage:
    delta = MetadataDelta()
    for number, record in enumerate(records):
        delta.replay(record, number + len(_HEAD))
    return delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch)
