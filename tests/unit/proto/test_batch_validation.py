"""What a leader checks before it appends, on both twins. The vectors cover damage; these are the rules one by one."""

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KraftlogError,
    RecordTooLargeError,
    UnsupportedCompressionTypeError,
)
from kraftlog.proto.records import CompressionType, TimestampType, backend, compression
from kraftlog.proto.varint import encode_zigzag

LIMIT = 1 << 20


def batch(twin: Any, count: int = 3, key: bytes | None = b"k", **build: Any) -> bytearray:
    builder = twin.BatchBuilder()
    for index in range(count):
        builder.append(1000 + index, key, b"v")
    return bytearray(builder.build(**build))


def sealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, backend.current.crc32c(memoryview(data)[21:]))
    return data


def with_section(section: bytes, count: int, *, attributes: int = 0, max_timestamp: int = 0) -> bytearray:
    """A batch around a record section, with everything else right."""
    tail = struct.pack(">hiqqqhii", attributes, count - 1, 0, max_timestamp, -1, -1, -1, count)
    return sealed(bytearray(struct.pack(">qiibI", 0, 49 + len(section), 0, 2, 0) + tail + section))


def record(
    offset_delta: int = 0,
    timestamp_delta: bytes | None = None,
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
) -> bytes:
    """One record from encoded parts: by default null key, null value, no headers."""
    stamp = b"\x00" if timestamp_delta is None else timestamp_delta
    body = b"\x00" + stamp + encode_zigzag(offset_delta) + key + value + headers
    return encode_zigzag(len(body)) + body


def validate(data: Any, **options: Any) -> list[tuple[int, records.BatchHeader]]:
    return records.validate_batches(data, max_batch_bytes=LIMIT, **options)


def test_several_batches_are_validated_in_one_call(twin: Any) -> None:
    first, second = batch(twin, 2), batch(twin, 5)
    result = validate(first + second)
    assert [(position, header.record_count) for position, header in result] == [(0, 2), (len(first), 5)]


@pytest.mark.parametrize("full", [True, False])
def test_batches_must_fill_the_buffer(full: bool, twin: Any) -> None:
    """A produce request with a cut batch, or with nothing, is refused whole."""
    for data in (b"", batch(twin)[:-1], batch(twin) + batch(twin)[:20], batch(twin) + b"\0"):
        with pytest.raises(CorruptRecordError):
            validate(data, full=full)


def test_batch_over_the_limit_is_refused(twin: Any) -> None:
    """The limit counts the whole batch as stored, header included."""
    data = batch(twin)
    assert records.validate_batches(data, max_batch_bytes=len(data))
    with pytest.raises(RecordTooLargeError, match=f"{len(data)} bytes exceeds max_message_bytes={len(data) - 1}"):
        records.validate_batches(data, max_batch_bytes=len(data) - 1)


def change(position: int, layout: str, value: int) -> Callable[[bytearray], bytearray]:
    def apply(data: bytearray) -> bytearray:
        struct.pack_into(layout, data, position, value)
        return sealed(data)

    return apply


CLIENT_RULES = [
    pytest.param(change(21, ">h", 32), InvalidRecordError, id="control batch"),
    pytest.param(change(21, ">h", 64), InvalidRecordError, id="delete horizon"),
    pytest.param(change(21, ">h", 16), InvalidRecordError, id="transactional without producer id"),
    pytest.param(change(21, ">h", 8), InvalidTimestampError, id="LogAppendTime"),
    pytest.param(change(43, ">q", 5), InvalidRecordError, id="producer id without sequence"),
    pytest.param(change(23, ">i", 3), InvalidRecordError, id="last offset delta too large"),
    pytest.param(change(35, ">q", 1001), InvalidRecordError, id="max timestamp too small"),
    pytest.param(change(35, ">q", 1003), InvalidRecordError, id="max timestamp too large"),
]


@pytest.mark.parametrize(("damage", "error"), CLIENT_RULES)
def test_rules_for_clients(damage: Any, error: type[KraftlogError], twin: Any) -> None:
    """LogValidator.validateBatch, and that a wrong max timestamp would poison the time index."""
    with pytest.raises(error):
        validate(damage(batch(twin)))


@pytest.mark.parametrize(("damage", "error"), CLIENT_RULES)
def test_rules_for_clients_do_not_bind_the_cluster(damage: Any, error: type[KraftlogError], twin: Any) -> None:
    """Coordinators write markers, cleaners leave gaps: allow_control lifts what only clients must keep."""
    assert validate(damage(batch(twin)), allow_control=True)


def test_header_check_alone_does_not_look_at_records(twin: Any) -> None:
    """validate.records=header: size, CRC and header rules hold, the records may be anything."""
    data = with_section(b"nonsense", 1)
    assert validate(data, full=False)
    with pytest.raises(InvalidRecordError):
        validate(data)
    with pytest.raises(UnsupportedCompressionTypeError):
        validate(with_section(b"nonsense", 1, attributes=7), full=False)
    with pytest.raises(InvalidRecordError):
        validate(with_section(b"", 0), full=False)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_compacted_topics_need_keys(codec: CompressionType, twin: Any) -> None:
    """require_keys looks inside, also when only headers are validated."""
    builder = twin.BatchBuilder(compression_type=codec)
    builder.append(1, b"k", b"v")
    assert validate(builder.build(), full=False, require_keys=True)
    builder.append(1, None, b"v")
    assert validate(builder.build())
    with pytest.raises(InvalidRecordError, match="need a key"):
        validate(builder.build(), full=False, require_keys=True)


GOOD_RECORDS = [
    record(),
    record(key=b"\x00", value=b"\x00"),
    record(key=b"\x02k", value=b"\x04vv", headers=b"\x04\x00\x01\x02h\x02x"),
    record(timestamp_delta=b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"),  # padded to ten bytes
    record(key=b"\x81\x80\x80\x80\x00"),  # -1 padded to five bytes
]

BAD_RECORDS = {
    "empty": b"",
    "length cut": b"\x80",
    "length 0": b"\x00" * 7,
    "length past the end": encode_zigzag(100) + record()[1:],
    "length of six bytes": b"\x8c\x80\x80\x80\x80\x00" + record()[1:],
    "length with bits above 32": b"\x8c\x80\x80\x80\x10" + record()[1:],
    "bytes after headers": encode_zigzag(7) + record()[1:] + b"\x00",
    "bytes after the last record": record() + b"\x00",
    "timestamp delta of eleven bytes": record(timestamp_delta=b"\x80" * 10 + b"\x00"),
    "timestamp delta with bits above 64": record(timestamp_delta=b"\x80" * 9 + b"\x02"),
    "offset delta negative": record(offset_delta=-1),
    "offset delta past the last": record(offset_delta=1),
    "key length -2": record(key=b"\x03"),
    "key past the record": record(key=b"\x08k"),
    "key length huge": record(key=b"\xfe\xff\xff\xff\x0f"),
    "value length -2": record(value=b"\x03"),
    "value past the record": record(value=b"\x08v"),
    "header count negative": record(headers=b"\x01"),
    "header count past the record": record(headers=b"\x08\x00\x01"),
    "header count huge": record(headers=b"\xfe\xff\xff\xff\x0f"),
    "header key null": record(headers=b"\x02\x01\x01"),
    "header value length -2": record(headers=b"\x02\x00\x03"),
    "header value cut": record(headers=b"\x02\x00\x08v"),
    "header value missing": record(headers=b"\x02\x00"),
    "no header count": record(headers=b""),
}


@pytest.mark.parametrize("section", GOOD_RECORDS)
def test_good_record_is_accepted(section: bytes, twin: Any) -> None:
    assert validate(with_section(section, 1))
    assert len(records.decode_batch(with_section(section, 1))) == 1


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_bad_record_is_invalid(name: str, twin: Any) -> None:
    """Each way in which a record can depart from the format, under a valid CRC."""
    data = with_section(BAD_RECORDS[name], 1)
    for read in (validate, lambda it: validate(it, allow_control=True), records.decode_batch, records.decode_records):
        with pytest.raises(InvalidRecordError):
            read(data)


@pytest.mark.parametrize("base", [-(1 << 63), (1 << 63) - 1])
def test_timestamp_that_overflows_is_invalid(base: int, twin: Any) -> None:
    """base + delta is computed in 64 bits by every reader; neither twin may wrap or grow."""
    data = with_section(record(timestamp_delta=encode_zigzag(-1 if base < 0 else 1)), 1, max_timestamp=0)
    struct.pack_into(">q", data, 27, base)
    for read in (validate, records.decode_batch):
        with pytest.raises(InvalidRecordError, match="64 bits"):
            read(sealed(data))


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2), (0, 1, 1), (1, 2)])
def test_offset_deltas_must_be_consecutive_from_clients(deltas: tuple[int, ...], twin: Any) -> None:
    """The producer must not choose gaps or repeat an offset."""
    data = with_section(b"".join(record(delta) for delta in deltas), len(deltas))
    with pytest.raises(InvalidRecordError, match="offset delta"):
        validate(data)


@pytest.mark.parametrize("count", [-1, 0, 2, 5, 1 << 30, (1 << 31) - 1])
def test_record_count_must_be_right(count: int, twin: Any) -> None:
    """Too many for the bytes is refused before anything of that size is made."""
    data = with_section(record(), 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">i", data, 23, max(count - 1, 0))
    with pytest.raises(InvalidRecordError):
        validate(sealed(data))
    if count:
        with pytest.raises(InvalidRecordError):
            records.decode_batch(data)


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_compressed_section_is_validated_inside(codec: CompressionType, twin: Any) -> None:
    """Compression hides nothing from the leader."""
    good, bad = record() + record(1), record() + record(0)
    assert validate(with_section(compression.compress(codec, good), 2, attributes=codec))
    with pytest.raises(InvalidRecordError):
        validate(with_section(compression.compress(codec, bad), 2, attributes=codec))
    with pytest.raises(InvalidRecordError):
        validate(with_section(good, 2, attributes=codec))
    with pytest.raises(InvalidRecordError):
        validate(with_section(compression.compress(codec, good), 2))


def test_big_batch_is_validated_without_the_gil(twin: Any) -> None:
    """Above 64 KiB the C twin lets other threads run; the verdict is the same."""
    builder = twin.BatchBuilder()
    for index in range(20_000):
        builder.append(1000 + index, b"k", b"value")
    data = bytearray(builder.build())
    assert validate(data)
    data[-1] = 2  # the last record's header count
    with pytest.raises(InvalidRecordError, match="record 19999"):
        validate(sealed(data))


def test_log_append_time_batches_are_the_brokers(twin: Any) -> None:
    builder = twin.BatchBuilder()
    builder.append(1, None, b"v")
    data = builder.build(timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestampError):
        validate(data)
    assert validate(data, allow_control=True)
