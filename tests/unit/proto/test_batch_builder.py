"""Building batches, on both twins."""

from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import IllegalStateError, InvalidTimestampError
from kraftlog.proto.records import CompressionType


def test_batch_has_the_bytes_that_a_broker_captured(twin: Any) -> None:
    """kp-v2-1 and kp-v2-4 of the vectors, byte for byte: a value, and a value with a header."""
    builder = twin.BatchBuilder()
    builder.append(1503229838908, None, b"123")
    assert builder.build(leader_epoch=1).hex() == (
        "00000000000000000000003b00000001020318a2700000000000000000015dff7b063c0000015dff7b063c"
        "ffffffffffffffffffffffffffff0000000112000000010631323300"
    )
    builder = twin.BatchBuilder()
    builder.append(1535546684353, None, b"hdr", [("hkey", b"hval")])
    assert builder.build(leader_epoch=0).hex() == (
        "00000000000000000000004500000000025cd8ef520000000000000000016585b6f3c10000016585b6f3c1"
        "ffffffffffffffffffffffffffff000000012600000001066864720208686b6579086876616c"
    )


def test_append_returns_the_size_of_the_uncompressed_batch(twin: Any) -> None:
    """The accumulator compares it with batch_size; it equals what `build` makes without a codec."""
    builder = twin.BatchBuilder()
    assert builder.size_bytes == 61
    for index in range(80):
        size = builder.append(1000 + 100 * index, b"k" * index, b"v" * (index * index), [("h", None)] * (index % 3))
        assert size == builder.size_bytes == len(builder.build())
    assert builder.record_count == 80


def test_none_empty_and_absent_fields_are_told_apart(twin: Any) -> None:
    builder = twin.BatchBuilder()
    builder.append(0)
    builder.append(0, b"", b"")
    builder.append(0, None, b"v", [("empty", b""), ("none", None), ("", b"x")])
    decoded = records.decode_batch(builder.build())
    assert [(record.key, record.value, record.headers) for record in decoded] == [
        (None, None, ()),
        (b"", b"", ()),
        (None, b"v", (("empty", b""), ("none", None), ("", b"x"))),
    ]
    assert [(record.serialized_key_size, record.serialized_value_size) for record in decoded] == [
        (-1, -1),
        (0, 0),
        (-1, 1),
    ]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_as_key_and_value(wrap: Any, twin: Any) -> None:
    builder = twin.BatchBuilder()
    builder.append(0, wrap(b"key"), wrap(b"value"), [("h", wrap(b"x"))])
    (record,) = records.decode_batch(builder.build())
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("h", b"x"),))


def test_append_takes_keywords(twin: Any) -> None:
    builder = twin.BatchBuilder()
    builder.append(5, headers=[("a", b"b")], value=b"v")
    builder.append(timestamp_ms=6, key=b"k")
    decoded = records.decode_batch(builder.build())
    assert [(it.timestamp, it.key, it.value) for it in decoded] == [(5, None, b"v"), (6, b"k", None)]
    with pytest.raises(TypeError):
        builder.append(5, wrong=1)
    with pytest.raises(TypeError):
        builder.append()


def test_headers_may_be_any_iterable_or_none(twin: Any) -> None:
    builder = twin.BatchBuilder()
    builder.append(0, None, b"v", None)
    builder.append(0, None, b"v", [])
    builder.append(0, None, b"v", iter([("a", b"1"), ("b", None)]))
    decoded = records.decode_batch(builder.build())
    assert [record.headers for record in decoded] == [(), (), (("a", b"1"), ("b", None))]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0, "text", b"v"), TypeError),
        ((0, b"k", 7), TypeError),
        ((0, b"k", b"v", [(b"bytes", b"v")]), TypeError),
        ((0, b"k", b"v", [("h", "text")]), TypeError),
        ((0, b"k", b"v", [("h",)]), TypeError),
        ((0, b"k", b"v", [("\ud800", b"v")]), UnicodeEncodeError),
        (("0", b"k", b"v"), TypeError),
        ((1.0, b"k", b"v"), TypeError),
        ((-2, b"k", b"v"), InvalidTimestampError),
        (((1 << 63) - 1, b"k", b"v"), InvalidTimestampError),
        ((1 << 70, b"k", b"v"), InvalidTimestampError),
    ],
)
def test_failed_append_changes_nothing(arguments: tuple[Any, ...], error: type[Exception], twin: Any) -> None:
    """After an error the builder still makes the batch that it would have made."""
    builder = twin.BatchBuilder()
    builder.append(1, b"k", b"v")
    before = builder.build()
    with pytest.raises(error):
        builder.append(*arguments)
    assert (builder.record_count, builder.build()) == (1, before)


def test_timestamps_may_go_back_and_the_largest_is_kept(twin: Any) -> None:
    """Deltas are signed; the extremes of the range fit in one batch."""
    stamps = [1000, 5, -1, (1 << 63) - 2, 0]
    builder = twin.BatchBuilder()
    for stamp in stamps:
        builder.append(stamp, None, b"v")
    batch = builder.build()
    it = records.read_header(batch)
    assert (it.base_timestamp, it.max_timestamp) == (1000, (1 << 63) - 2)
    assert [record.timestamp for record in records.decode_batch(batch)] == stamps
    records.validate_batches(batch, max_batch_bytes=1000)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_build_may_be_repeated_with_other_producer_state(codec: CompressionType, twin: Any) -> None:
    """A retry after an epoch bump builds the same records again."""
    builder = twin.BatchBuilder(compression_type=codec, is_transactional=True)
    for index in range(10):
        builder.append(index, b"k", b"v" * 100)
    first = records.read_header(builder.build(producer_id=5, producer_epoch=1, base_sequence=2**31 - 3))
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence) == (5, 1, 2**31 - 3, 6)
    assert first.is_transactional
    assert first.compression_type is codec
    again = builder.build(producer_id=5, producer_epoch=2, base_sequence=0, base_offset=9)
    assert records.read_header(again).producer_epoch == 2
    assert [record.offset for record in records.decode_batch(again)] == list(range(9, 19))


def test_empty_batch_cannot_be_built(twin: Any) -> None:
    with pytest.raises(IllegalStateError, match="at least one record"):
        twin.BatchBuilder().build()


def test_section_in_use_blocks_append_instead_of_moving(twin: Any) -> None:
    """A memoryview of the section must not point at freed memory."""
    builder = twin.BatchBuilder()
    builder.append(0, None, b"v")
    section = builder.section()
    copy = bytes(section)
    if twin.name == "c":
        with pytest.raises(BufferError):
            builder.append(0, None, b"v" * 100_000)
        section.release()
    builder.append(0, None, b"v" * 100_000)
    assert bytes(builder.section()).startswith(copy)
