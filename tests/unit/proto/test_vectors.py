"""Every public byte vector gives the value, or the refusal, that it names; on both twins.

tests/data/vectors.json holds batches captured from real brokers, facts asserted by other clients' tests, and inputs
that must be refused, each with its source. Facts only: no code was taken over.
"""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KraftlogError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kraftlog.proto.partitioner import murmur2
from kraftlog.proto.records import backend, compression
from kraftlog.proto.varint import encode_zigzag, read_zigzag

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "data" / "vectors.json").read_text())["vectors"]
MAX_BATCH_BYTES = 8 << 20

OUTCOMES = {
    "CORRUPT_MESSAGE": CorruptRecordError,
    "INVALID_RECORD": InvalidRecordError,
    "UNSUPPORTED_COMPRESSION_TYPE": UnsupportedCompressionTypeError,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": UnsupportedForMessageFormatError,
}


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize("vector", [pytest.param(v, id=v["id"]) for v in VECTORS if v["kind"] == kind])


def note(vector_id: str) -> dict[str, Any]:
    return next(vector["expected"] for vector in VECTORS if vector["id"] == vector_id)


def seal(batch: bytearray) -> bytes:
    """The batch with its length and CRC made right."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, backend.current.crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def expected_outcomes(vector: dict[str, Any]) -> tuple[type[KraftlogError], ...]:
    text = vector["expected"]["broker_outcome"]
    named = tuple(error for name, error in OUTCOMES.items() if name in text)
    # "refused before any allocation of that size" (a batch cut short), "refused by a size bound" (zstd's claim)
    return named or (InvalidRecordError if "size bound" in text else CorruptRecordError,)


def test_no_vector_is_left_out() -> None:
    """A kind that no test here reads would pass unseen."""
    kinds = {vector["kind"] for vector in VECTORS}
    assert kinds == {"batch_v2", "reject", "crc32c", "murmur2", "varint", "snappy", "note"}
    assert len(VECTORS) == 156


@of_kind("batch_v2")
def test_captured_batch_decodes_to_its_records(vector: dict[str, Any], twin: Any) -> None:
    """Header fields, offsets, timestamps, keys, values and headers are those that the source asserts."""
    batch = bytes.fromhex(vector["hex"])
    expected = vector["expected"]
    header = records.read_header(batch)
    fields = expected["header"]
    assert header == records.BatchHeader(
        base_offset=fields["baseOffset"],
        batch_length=fields["length"],
        leader_epoch=fields["partitionLeaderEpoch"],
        magic=fields["magic"],
        crc=int(fields["crc"], 16),
        attributes=fields["attributes"],
        last_offset_delta=fields["lastOffsetDelta"],
        base_timestamp=fields["baseTimestamp"],
        max_timestamp=fields["maxTimestamp"],
        producer_id=fields["producerId"],
        producer_epoch=fields["producerEpoch"],
        base_sequence=fields["baseSequence"],
        record_count=fields["recordCount"],
    )
    assert header.compression_type == fields["codec"]
    assert header.timestamp_type == fields["timestampType"]
    assert (header.is_transactional, header.is_control) == (fields["transactional"], fields["control"])
    decoded = records.decode_batch(batch, topic="t", partition=3)
    assert [readable(record) for record in decoded] == [
        {
            "offset": record["offset"],
            # The vectors give the producer's timestamp; a reader must see the broker's, if the batch has that type.
            "timestamp": fields["maxTimestamp"] if fields["timestampType"] else record["timestamp"],
            "key": record["key"],
            "value": record["value"],
            "headers": record["headers"],
        }
        for record in expected["records"]
    ]


def readable(record: records.Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        "headers": [
            [name if name.isprintable() else "hex:" + name.encode().hex(), None if value is None else value.hex()]
            for name, value in record.headers
        ],
    }


@of_kind("batch_v2")
def test_captured_batch_is_taken_from_a_producer_unless_it_breaks_a_rule(vector: dict[str, Any], twin: Any) -> None:
    """What brokers answered with is what producers sent, but for markers, empty batches and wrong max timestamps."""
    batch = bytes.fromhex(vector["hex"])
    header = records.read_header(batch)
    timestamps = [record["timestamp"] for record in vector["expected"]["records"]]
    if header.timestamp_type:
        expected: type[KraftlogError] | None = InvalidTimestampError
    elif header.is_control or not timestamps or max(timestamps) != header.max_timestamp:
        expected = InvalidRecordError
    else:
        expected = None
    if expected is None:
        assert records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES) == [(0, header)]
    else:
        with pytest.raises(expected):
            records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES)
    assert records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES, allow_control=True) == [(0, header)]


@of_kind("reject")
def test_bad_batch_is_refused_on_produce(vector: dict[str, Any], twin: Any) -> None:
    """The error class is the one that the broker must answer with; nothing else escapes."""
    with pytest.raises(KraftlogError) as refusal:
        records.validate_batches(bytes.fromhex(vector["hex"]), max_batch_bytes=MAX_BATCH_BYTES)
    assert type(refusal.value) in expected_outcomes(vector)


@of_kind("reject")
def test_bad_batch_is_never_read_as_records(vector: dict[str, Any], twin: Any) -> None:
    """A consumer gets an error, or nothing at all from a batch that is merely cut.

    But for the gap after its only record: compaction leaves such batches.
    """
    try:
        decoded = records.decode_records(bytes.fromhex(vector["hex"]))
    except tuple(OUTCOMES.values()):
        return
    assert len(decoded) == (vector["id"] == "bad-lastoffsetdelta")


@of_kind("crc32c")
def test_crc32c(vector: dict[str, Any], twin: Any) -> None:
    """CRC-32C, as RFC 3720 has it."""
    assert f"{twin.codec.crc32c(bytes.fromhex(vector['hex'])):08x}" == vector["expected"]["crc32c"]


@of_kind("murmur2")
def test_murmur2(vector: dict[str, Any], twin: Any) -> None:
    """The partitioner's hash equals Kafka's, else keys land elsewhere than other clients' keys."""
    number = murmur2(bytes.fromhex(vector["hex"]))
    assert number == vector["expected"]["murmur2_u32"]
    assert (number ^ 1 << 31) - (1 << 31) == vector["expected"]["murmur2_i32"]


@of_kind("varint")
def test_varint(vector: dict[str, Any]) -> None:
    """Zig-zag varints, both ways."""
    data = bytes.fromhex(vector["hex"])
    assert read_zigzag(data, 0, len(data)) == (vector["expected"]["value"], len(data))
    assert encode_zigzag(vector["expected"]["value"]) == data


@of_kind("snappy")
def test_snappy(vector: dict[str, Any], twin: Any) -> None:
    """xerial's framing, whole and cut."""
    data = bytes.fromhex(vector["hex"])
    if vector["expected"].get("error"):
        with pytest.raises(InvalidRecordError):
            compression.decompress(2, data)
    else:
        assert bytes(compression.decompress(2, data)).hex() == vector["expected"]["plain"]


def test_batch_of_131080_records_is_refused_as_cut_and_by_its_offset_deltas(twin: Any) -> None:
    """A count above 65,535 must not overflow; with length and CRC made right only the offset rule is left."""
    recipe = note("sarama-large-count")
    count: int = recipe["count"]
    batch = bytes.fromhex(recipe["header_hex"]) + count.to_bytes(4, "big") + bytes.fromhex(recipe["record_hex"]) * count
    assert len(batch) == recipe["total_bytes"]
    with pytest.raises(CorruptRecordError):
        records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES)
    sealed = bytearray(batch)
    struct.pack_into(">i", sealed, 23, count - 1)  # last offset delta, so that the header is plausible
    with pytest.raises(InvalidRecordError, match=r"record 1: .*offset delta"):
        records.validate_batches(seal(sealed), max_batch_bytes=MAX_BATCH_BYTES)


@pytest.mark.slow
def test_gzip_bomb_is_refused(twin: Any) -> None:
    """64 MiB of zeros in 65 kB: refused once the decoded size passes the limit."""
    bomb = gzip.compress(bytes(64 << 20), 9)
    assert len(bomb) < 1 << 17, note("gzip-bomb-64MiB")
    header = bytearray.fromhex("0000000000000000 00000000 00000000 02 00000000 0001 00000000")
    header += struct.pack(">qqqhii", 0, 0, -1, -1, -1, 1)
    batch = seal(header + bomb)
    with pytest.raises(InvalidRecordError, match="exceeds the limit"):
        records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES, max_decompressed_bytes=(64 << 20) - 1)
    with pytest.raises(InvalidRecordError):
        records.validate_batches(batch, max_batch_bytes=MAX_BATCH_BYTES)
