"""Straight to and from Arrow, on both twins."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, RecordTooLargeError
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.proto.records import CompressionType, arrow

ALL_COLUMNS = list(arrow.COLUMN_TYPES)
T0 = 1_700_000_000_000


def batch(twin: Any, base_offset: int, count: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    builder = twin.BatchBuilder(compression_type=codec)
    for index in range(count):
        key = None if index % 3 == 0 else b"k%d" % index
        value = None if index % 4 == 3 else b"v" * index
        builder.append(T0 + index, key, value, [("h", b"x"), ("n", None)] if index % 2 else [])
    return builder.build(base_offset=base_offset)


def test_schema_is_that_of_sparks_kafka_source() -> None:
    assert str(arrow.schema(ALL_COLUMNS)) == (
        "key: binary\nvalue: binary\ntopic: string\npartition: int32\noffset: int64\n"
        "timestamp: timestamp[us, tz=UTC]\ntimestampType: int32\n"
        "headers: list<element: struct<key: string, value: binary>>\n"
        "  child 0, element: struct<key: string, value: binary>\n"
        "      child 0, key: string\n      child 1, value: binary"
    )
    assert arrow.schema().names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_arrow_holds_what_the_records_hold(codec: CompressionType, twin: Any) -> None:
    """Several buffers of several batches become one RecordBatch, equal to the decoded records."""
    buffers = [batch(twin, 0, 9, codec) + batch(twin, 9, 3), memoryview(batch(twin, 20, 17, codec))]
    result = arrow.decode_arrow(buffers, topic="orders", partition=3, columns=ALL_COLUMNS)
    result.validate(full=True)
    assert result.schema == arrow.schema(ALL_COLUMNS)
    decoded = [record for buffer in buffers for record in records.decode_records(buffer)]
    assert result.to_pylist() == [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": 3,
            "offset": record.offset,
            "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC),
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in decoded
    ]


@pytest.mark.parametrize(("first", "end"), [(0, None), (3, 12), (9, 9), (4, 5), (11, 100), (100, None), (0, 0)])
def test_offsets_are_cut_at_both_ends(first: int, end: int | None, twin: Any) -> None:
    """A Spark partition is an offset range; its ends fall inside batches."""
    buffers = [batch(twin, 0, 9) + batch(twin, 9, 3, CompressionType.ZSTD)]
    result = arrow.decode_arrow(buffers, topic="t", partition=0, min_offset=first, end_offset=end)
    assert result.column("offset").to_pylist() == list(range(first, 12 if end is None else min(end, 12)))
    assert len(result.column("value")) == result.num_rows


def test_columns_are_chosen_and_ordered(twin: Any) -> None:
    """Column pruning: what is not asked for is not copied."""
    for columns in (["value"], ["offset", "topic"], ["headers", "partition", "key"], ["timestampType", "timestamp"]):
        result = arrow.decode_arrow([batch(twin, 0, 5)], topic="t", partition=1, columns=columns)
        assert result.schema.names == columns
        assert result.num_rows == 5
    with pytest.raises(ValueError, match="column 'nope' is none of key, value"):
        arrow.decode_arrow([], topic="t", partition=0, columns=["nope"])


def test_nothing_gives_an_empty_batch_of_the_schema(twin: Any) -> None:
    for buffers in ([], [b""], [batch(twin, 0, 3)[:-1]]):
        result = arrow.decode_arrow(buffers, topic="t", partition=0, columns=ALL_COLUMNS)
        result.validate(full=True)
        assert (result.num_rows, result.schema) == (0, arrow.schema(ALL_COLUMNS))


def test_control_batches_are_skipped(twin: Any) -> None:
    marker = bytearray(records.end_transaction_marker(False, 1, producer_id=1, producer_epoch=0, timestamp_ms=1))
    records.rewrite_header(marker, 0, base_offset=2, leader_epoch=0)
    result = arrow.decode_arrow([batch(twin, 0, 2) + marker + batch(twin, 3, 1)], topic="t", partition=0)
    assert result.column("offset").to_pylist() == [0, 1, 3]


def test_log_append_time_is_every_records_time(twin: Any) -> None:
    stamped = bytearray(batch(twin, 0, 2))
    records.set_log_append_time(stamped, 0, T0 + 500)
    result = arrow.decode_arrow([stamped], topic="t", partition=0, columns=["timestamp", "timestampType"])
    assert result.column("timestamp").cast(pa.int64()).to_pylist() == [(T0 + 500) * 1000] * 2
    assert result.column("timestampType").to_pylist() == [1, 1]


def test_timestamps_are_clamped_to_microseconds(twin: Any) -> None:
    """A producer may write any 64-bit timestamp; a reader of the column must not stop at it."""
    builder = twin.BatchBuilder()
    for stamp in (-1, (1 << 63) - 2, 0):
        builder.append(stamp, None, b"v")
    result = arrow.decode_arrow([builder.build()], topic="t", partition=0, columns=["timestamp"])
    limit = ((1 << 63) - 1) // 1000 * 1000
    assert result.column(0).cast(pa.int64()).to_pylist() == [-1000, limit, 0]


def test_header_keys_that_are_not_utf8_get_replacement_characters(twin: Any) -> None:
    """As `Record.headers` has them; Arrow strings must be UTF-8."""
    builder = twin.BatchBuilder()
    builder.append(0, None, b"v", [("ab", b"x"), ("é", b"y")])
    odd = bytearray(builder.build())
    odd[odd.index(b"ab")] = 0xFF
    result = arrow.decode_arrow([odd], topic="t", partition=0, columns=["headers"], check=False)
    result.validate(full=True)
    assert result.column(0).to_pylist() == [[{"key": "\ufffdb", "value": b"x"}, {"key": "é", "value": b"y"}]]


def test_damage_is_an_error_that_names_the_place(twin: Any) -> None:
    damaged = bytearray(batch(twin, 5, 2))
    damaged[61] = 3
    with pytest.raises(CorruptRecordError):
        arrow.decode_arrow([damaged], topic="t", partition=0)
    with pytest.raises(InvalidRecordError, match="orders-7, batch at offset 5"):
        arrow.decode_arrow([damaged], topic="orders", partition=7, check=False)


def test_arrays_outlive_the_buffers(twin: Any) -> None:
    buffer = bytearray(batch(twin, 0, 5))
    result = arrow.decode_arrow([buffer], topic="t", partition=0)
    before = result.to_pylist()
    buffer[:] = bytes(len(buffer))
    buffer.append(0)  # nothing holds it
    assert result.to_pylist() == before


def encoded(data: pa.Table | pa.RecordBatch, **options: Any) -> list[records.Record]:
    builders = arrow.encode_arrow(data, timestamp_ms=T0, **options)
    return [record for builder in builders for record in records.decode_records(builder.build())]


def fields(record: records.Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, record.headers


@pytest.mark.parametrize(
    "column_type", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()]
)
def test_keys_and_values_of_any_binary_layout(column_type: pa.DataType, twin: Any) -> None:
    """Sliced columns too: an array's offset is not row 0 of its buffers."""
    keys, values = ["a", None, "", "long " * 20, "b"], ["1", "", None, "x", "yy"]
    table = pa.table({"key": pa.array(keys, column_type), "value": pa.array(values, column_type)})

    def expected(texts: list[str | None]) -> list[bytes | None]:
        return [None if text is None else text.encode() for text in texts]

    for piece, start, stop in (
        (table, 0, 5),
        (table.slice(1, 3), 1, 4),
        (table.slice(4), 4, 5),
        (table.slice(2, 0), 2, 2),
    ):
        result = encoded(piece)
        assert [record.key for record in result] == expected(keys[start:stop])
        assert [record.value for record in result] == expected(values[start:stop])
        assert all(record.timestamp == T0 for record in result)


def test_other_shapes_of_keys_and_values(twin: Any) -> None:
    table = pa.table(
        {
            "key": pa.array(["a", "b", "a"]).dictionary_encode(),
            "value": pa.array([b"xy", b"zw", None], pa.binary(2)),
            "ignored": [1, 2, 3],
        }
    )
    assert [(record.key, record.value) for record in encoded(table)] == [(b"a", b"xy"), (b"b", b"zw"), (b"a", None)]
    assert [record.key for record in encoded(table.select(["value"]))] == [None] * 3
    assert [record.value for record in encoded(table.select(["key"]))] == [None] * 3
    nulls = pa.table({"key": pa.nulls(2), "value": ["x", "y"], "headers": pa.nulls(2), "timestamp": pa.nulls(2)})
    assert [fields(record) for record in encoded(nulls)] == [(T0, None, b"x", ()), (T0, None, b"y", ())]


HEADER_ROWS: list[Any] = [None, [], [("a", b"1")], [("b", None), ("é", b"")], None, [("c", b"x" * 200)]]
AS_STRUCTS = [row if row is None else [{"key": key, "value": value} for key, value in row] for row in HEADER_ROWS]
STRUCT = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(AS_STRUCTS, pa.list_(STRUCT)),
        pa.array(AS_STRUCTS, pa.large_list(STRUCT)),
        pa.array(HEADER_ROWS, pa.map_(pa.string(), pa.binary())),
        pa.array(AS_STRUCTS, pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())]))),
    ],
    ids=["list", "large_list", "map", "other order"],
)
def test_headers_of_any_list_layout(column: pa.Array, twin: Any) -> None:
    table = pa.table({"value": [b"v"] * len(column), "headers": column})
    for start in range(len(column)):
        result = encoded(table.slice(start))
        assert [record.headers for record in result] == [tuple(row or ()) for row in HEADER_ROWS[start:]]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([T0 + 5, None, 7], pa.int64()),
        pa.array([T0 + 5, None, 7], pa.timestamp("ms")),
        pa.array([(T0 + 5) * 1000 + 999, None, 7999], pa.timestamp("us", "UTC")),
        pa.array([(T0 + 5) * 1_000_000, None, 7_000_000], pa.timestamp("ns", "Europe/Berlin")),
    ],
    ids=["int64", "ms", "us", "ns"],
)
def test_timestamps_of_any_unit(column: pa.Array, twin: Any) -> None:
    table = pa.table({"value": ["x", "y", "z"], "timestamp": column})
    assert [record.timestamp for record in encoded(table)] == [T0 + 5, T0, 7]
    assert [record.timestamp for record in encoded(table.slice(1))] == [T0, 7]


def test_batches_stay_within_the_limit_and_keep_the_order(twin: Any) -> None:
    """A batch ends where the next row would pass max_batch_bytes, also across the table's chunks."""
    values = [b"%d" % index * (index % 50) for index in range(2000)]
    table = pa.concat_tables([pa.table({"value": values[:700]}), pa.table({"value": values[700:]})])
    builders = arrow.encode_arrow(table, timestamp_ms=T0, max_batch_bytes=5000)
    batches = [builder.build() for builder in builders]
    assert all(len(it) <= 5000 for it in batches)
    assert all(len(left) > 4500 for left in batches[:-1])
    assert [record.value for it in batches for record in records.decode_records(it)] == values


def test_row_over_the_limit_is_refused_with_its_number(twin: Any) -> None:
    table = pa.table({"value": [b"small", b"x" * 1000]})
    with pytest.raises(RecordTooLargeError, match="exceeds max_batch_bytes=500"):
        arrow.encode_arrow(table, timestamp_ms=T0, max_batch_bytes=500)


def test_builders_take_codec_and_producer_state(twin: Any) -> None:
    (builder,) = arrow.encode_arrow(
        pa.table({"value": ["x"] * 10}),
        timestamp_ms=T0,
        compression_type=CompressionType.LZ4,
        is_transactional=True,
    )
    header = records.read_header(builder.build(producer_id=4, producer_epoch=1, base_sequence=9))
    assert (header.producer_id, header.base_sequence, header.record_count) == (4, 9, 10)
    assert header.compression_type is CompressionType.LZ4
    assert header.is_transactional


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (pa.table({"other": [1]}), "no column value or key in other"),
        (pa.table({"value": [1]}), "type int64 is neither binary nor string"),
        (pa.table({"value": ["x"], "timestamp": ["y"]}), "neither a timestamp nor integers"),
        (pa.table({"value": ["x"], "headers": ["y"]}), "no list of struct"),
        (pa.table({"value": ["x"], "headers": [[{"a": "b"}]]}), "no fields key and value"),
        (
            pa.table({"value": ["x"], "headers": pa.array([[{"key": None, "value": b""}]], pa.list_(STRUCT))}),
            "without a key",
        ),
    ],
)
def test_wrong_columns_are_named(table: pa.Table, error: str, twin: Any) -> None:
    with pytest.raises(ValueError, match=error):
        arrow.encode_arrow(table, timestamp_ms=T0)


def test_timestamp_out_of_range_is_refused(twin: Any) -> None:
    with pytest.raises(InvalidTimestampError):
        arrow.encode_arrow(pa.table({"value": ["x"], "timestamp": [-5]}), timestamp_ms=T0)


def test_decoded_columns_are_encoded_again(twin: Any) -> None:
    """A topic copied through Arrow keeps keys, values, headers and times."""
    original = batch(twin, 0, 40)
    table = arrow.decode_arrow([original], topic="t", partition=0, columns=ALL_COLUMNS)
    assert list(map(fields, encoded(table))) == list(map(fields, records.decode_records(original)))


def test_partitions_of_a_key_column(twin: Any) -> None:
    """The same partition as `partition_for_key`, so that Arrow and record producers agree."""
    keys = ["a", None, "", "foobar", "21", None]
    expected = [None if key is None else partition_for_key(key.encode(), 7) for key in keys]
    for column in (
        pa.array(keys),
        pa.chunked_array([keys[:3], keys[3:]]),
        pa.array(["x", *keys], pa.binary()).slice(1),
    ):
        assert arrow.partition_keys(column, 7).to_pylist() == expected
    assert arrow.partition_keys(pa.nulls(2), 7).to_pylist() == [None, None]
    assert arrow.partition_keys(pa.array([], pa.string()), 7).to_pylist() == []
