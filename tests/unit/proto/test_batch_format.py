"""Headers: reading, walking and rewriting what lies before the records."""

import mmap
import struct
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import (
    CorruptRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kraftlog.proto.records import BatchHeader, CompressionType, TimestampType, arrow


def header(**changes: int) -> BatchHeader:
    fields = {
        "base_offset": 10,
        "batch_length": 49,
        "leader_epoch": 2,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 4,
        "base_timestamp": 1000,
        "max_timestamp": 1004,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 100,
        "record_count": 5,
    }
    return BatchHeader(**(fields | changes))


def batch(count: int = 3, base_offset: int = 0, **options: Any) -> bytes:
    builder = records.BatchBuilder(**options)
    for index in range(count):
        builder.append(1000 + index, b"key", b"value %d" % index)
    return builder.build(base_offset=base_offset, leader_epoch=5)


def decode_to_arrow(buffer: bytearray) -> Any:
    return arrow.decode_arrow([buffer], topic="t", partition=0)


def test_header_properties_follow_from_its_fields() -> None:
    """size, last and next offset are inclusive and exclusive as their names say."""
    it = header()
    assert (it.size_bytes, it.last_offset, it.next_offset, it.last_sequence) == (61, 14, 15, 104)
    assert it.has_producer_id
    assert not header(producer_id=-1).has_producer_id


def test_sequence_wraps_at_two_to_the_31() -> None:
    """KAFKA-7692: after 2^31 - 1 comes 0, also inside a batch."""
    assert header(base_sequence=(1 << 31) - 2, last_offset_delta=1).last_sequence == (1 << 31) - 1
    assert header(base_sequence=(1 << 31) - 1, last_offset_delta=1).last_sequence == 0
    assert header(base_sequence=-1).last_sequence == -1
    assert records.next_sequence((1 << 31) - 1, 1) == 0


def test_attribute_bits() -> None:
    """Each bit of the attributes has one meaning."""
    assert [header(attributes=codec).compression_type for codec in range(5)] == list(CompressionType)
    assert header(attributes=8).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header(attributes=16).is_transactional
    assert header(attributes=32).is_control
    assert header(attributes=64).delete_horizon_ms == 1000
    assert header().delete_horizon_ms is None


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"codec {codec}"):
        _ = header(attributes=codec).compression_type


def test_compression_type_has_config_names() -> None:
    assert CompressionType.from_name("lz4") is CompressionType.LZ4
    assert CompressionType.ZSTD.label == "zstd"
    with pytest.raises(UnsupportedCompressionTypeError, match="none, gzip, snappy, lz4, zstd"):
        CompressionType.from_name("brotli")


def test_iter_headers_gives_each_whole_batch_and_stops_at_a_cut_one() -> None:
    """Fetch answers may end inside a batch: every length of the tail ends the walk silently."""
    first, second = batch(2), batch(3, base_offset=2)
    for kept in range(len(second)):
        found = list(records.iter_headers(first + second[:kept]))
        assert [(position, it.base_offset) for position, it in found] == [(0, 0)]
    found = list(records.iter_headers(first + second))
    assert [(position, it.base_offset) for position, it in found] == [(0, 0), (len(first), 2)]


def test_read_header_of_a_cut_batch_is_corrupt() -> None:
    whole = batch()
    for kept in range(len(whole)):
        with pytest.raises(CorruptRecordError):
            records.read_header(whole[:kept])


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 13, 14, 48])
def test_impossible_length_is_corrupt(length: int) -> None:
    """A zero tail of a preallocated segment reads as length 0; none of these is mistaken for a batch."""
    damaged = bytearray(batch())
    struct.pack_into(">i", damaged, 8, length)
    with pytest.raises(CorruptRecordError):
        records.read_header(damaged)
    with pytest.raises(CorruptRecordError):
        list(records.iter_headers(damaged))


def test_zeros_are_corrupt_and_no_legacy_format() -> None:
    """The preallocated tail of a segment has magic 0 too, but no length that any format could have."""
    with pytest.raises(CorruptRecordError, match="length 0"):
        records.read_header(bytes(100))
    with pytest.raises(CorruptRecordError, match="length 0"):
        list(records.iter_headers(batch() + bytes(20)))


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_message_format_is_named(magic: int) -> None:
    old = bytearray(batch())
    old[16] = magic
    with pytest.raises(UnsupportedForMessageFormatError, match=f"v{magic}"):
        records.read_header(old)


@pytest.mark.parametrize("magic", [3, 255])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    damaged = bytearray(batch())
    damaged[16] = magic
    with pytest.raises(CorruptRecordError, match=f"magic {magic}"):
        records.read_header(damaged)


@pytest.mark.parametrize("base_offset", [-1, (1 << 63) - 1])
def test_base_offset_out_of_range_is_corrupt(base_offset: int, twin: Any) -> None:
    """The base offset is outside the CRC: a flipped bit there must not become an offset."""
    damaged = bytearray(batch())
    struct.pack_into(">q", damaged, 0, base_offset)
    for read in (records.read_header, records.decode_records, decode_to_arrow):
        with pytest.raises(CorruptRecordError, match="out of range"):
            read(damaged)


def test_crc_covers_everything_after_it(twin: Any) -> None:
    """Any byte from the attributes on changes the CRC; base offset and leader epoch do not."""
    whole = batch()
    for position in [*range(8), *range(12, 16)]:
        changed = bytearray(whole)
        changed[position] ^= 1
        if position:  # a high bit of the offset makes it negative
            records.check_crc(changed, 0, records.read_header(changed))
    for position in range(17, len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        with pytest.raises(CorruptRecordError, match="CRC"):
            records.check_crc(changed, 0, records.read_header(changed))


def test_rewriting_keeps_the_crc_valid(twin: Any) -> None:
    """The leader sets base offset and epoch of stored batches without touching the rest."""
    log = bytearray(b"before" + batch())
    records.rewrite_header(log, 6, base_offset=1 << 40, leader_epoch=9)
    it = records.read_header(log, 6)
    assert (it.base_offset, it.leader_epoch) == (1 << 40, 9)
    records.check_crc(log, 6, it)


def test_batch_prefix_replaces_the_first_sixteen_bytes() -> None:
    """`(prefix, batch[16:])` is what `rewrite_header` makes."""
    original = batch()
    rewritten = bytearray(original)
    records.rewrite_header(rewritten, 0, base_offset=77, leader_epoch=3)
    assert records.batch_prefix(77, original, 3) + original[16:] == rewritten
    assert records.batch_prefix(77, original)[12:] == original[12:16]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_log_append_time_stamps_every_record(codec: CompressionType, twin: Any) -> None:
    """LogAppendTime changes type bit, max timestamp and CRC, and every reader sees the broker's time."""
    builder = twin.BatchBuilder(compression_type=codec)
    for index in range(3):
        builder.append(1000 + index, None, b"v")
    stamped = bytearray(b"xx" + builder.build())
    records.set_log_append_time(stamped, 2, 5000)
    it = records.read_header(stamped, 2)
    assert (it.timestamp_type, it.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5000)
    decoded = records.decode_batch(stamped, 2)
    assert [(record.timestamp, record.timestamp_type) for record in decoded] == [(5000, 1)] * 3


def test_headers_are_read_from_any_buffer(tmp_path: Path) -> None:
    """bytes, bytearray, memoryview and a memory-mapped file alike."""
    whole = batch()
    path = tmp_path / "segment"
    path.write_bytes(whole)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        buffers: list[Any] = [whole, bytearray(whole), memoryview(whole), mapped]
        for buffer in buffers:
            it = records.read_header(buffer)
            records.check_crc(buffer, 0, it)
            assert it == records.read_header(whole)
