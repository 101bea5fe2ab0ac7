"""Record batches straight to and from Arrow, in the row schema of Spark's Kafka source. Needs pyarrow.

    column         type                                          contents
    key            binary                                        null for no key
    value          binary                                        null for a tombstone
    topic          string
    partition      int32
    offset         int64
    timestamp      timestamp[us, UTC]                            clamped to what 64 bits of microseconds hold
    timestampType  int32                                         0 CreateTime, 1 LogAppendTime
    headers        list<struct<key: string, value: binary>>      null for no headers; only on request

With the C twin no Python object is made per record; the reference goes through lists.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.records import backend
from kraftlog.proto.records.builder import BatchBuilder
from kraftlog.proto.records.compression import MAX_DECOMPRESSED_BYTES
from kraftlog.proto.records.format import MAX_OFFSET, BatchHeader, Buffer, CompressionType, check_crc, next_header
from kraftlog.proto.records.reader import record_section

pc: Any = pyarrow.compute  # makes its functions at run time, so type checkers do not see them

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
COLUMN_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER_TYPE)),  # named and nullable as Spark checks it
}
DEFAULT_COLUMNS = tuple(name for name in COLUMN_TYPES if name != "headers")
_COLLECTED = ("key", "value", "offset", "timestamp", "timestampType", "headers")  # topic and partition are constants

DEFAULT_MAX_BATCH_BYTES = 1 << 20  # below the default max.message.bytes of 1 MiB + 12


def schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of `decode_arrow` with the same `columns`."""
    return pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in _checked(columns)])


def _checked(columns: Sequence[str] | None) -> Sequence[str]:
    if columns is None:
        return DEFAULT_COLUMNS
    for name in columns:
        if name not in COLUMN_TYPES:
            raise ValueError(f"column {name!r} is none of {', '.join(COLUMN_TYPES)}")
    return columns


def decode_arrow(
    buffers: Sequence[Buffer],
    *,
    topic: str,
    partition: int,
    min_offset: int = 0,
    end_offset: int | None = None,
    columns: Sequence[str] | None = None,
    check: bool = True,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> pa.RecordBatch:
    """The records of all complete batches in `buffers` with min_offset <= offset < end_offset, as one RecordBatch.

    Control batches are skipped; `columns` chooses and orders columns (default: all but headers). Keys and values are
    copied, so the buffers are free afterwards. Raises as `decode_records`, and `RecordTooLargeError` if a column would
    pass Arrow's 2 GiB.
    """
    names = _checked(columns)
    stop = MAX_OFFSET if end_offset is None else end_offset
    wanted = [name in names for name in _COLLECTED]
    collector = backend.current.ArrowColumns(*wanted)
    try:
        for buffer in buffers:
            position = collector.add_run(buffer, 0, min_offset, stop, check)
            while (header := next_header(buffer, position)) is not None:
                _add_batch(collector, buffer, position, header, min_offset, stop, check, max_decompressed_bytes)
                position = collector.add_run(buffer, position + header.size_bytes, min_offset, stop, check)
    except InvalidRecordError as error:
        raise InvalidRecordError(f"{topic}-{partition}, {error}") from None
    parts = collector.finish()
    count: int = parts["count"]
    arrays = []
    for name in names:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(topic, pa.string()), count))
        elif name == "partition":
            arrays.append(pa.repeat(pa.scalar(partition, pa.int32()), count))
        else:
            arrays.append(_array(name, parts, count))
    return pa.RecordBatch.from_arrays(arrays, schema=schema(names))


def _add_batch(
    collector: Any,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    min_offset: int,
    end_offset: int,
    check: bool,
    max_decompressed_bytes: int,
) -> None:
    """Add one batch that `add_run` left to us: a compressed or a bad one, or any with the reference."""
    if header.is_control or header.last_offset < min_offset or header.base_offset >= end_offset:
        return
    if check:
        check_crc(buffer, position, header)
    timestamp_type = header.timestamp_type
    try:
        collector.add(
            record_section(buffer, position, header, max_decompressed_bytes),
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if timestamp_type else None,
            min_offset,
            end_offset,
            timestamp_type,
        )
    except InvalidRecordError as error:
        raise InvalidRecordError(f"batch at offset {header.base_offset}: {error}") from None


def _array(name: str, parts: dict[str, Any], count: int) -> pa.Array:
    """One column around the collector's buffers."""
    part = parts[name]
    if name == "headers":
        length, nulls, validity, offsets, _ = part
        keys = _header_keys(parts)
        values = _binary_array(pa.binary(), parts["header_value"])
        items = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
        buffers = [_buffer(validity), _buffer(offsets)]
        return pa.Array.from_buffers(COLUMN_TYPES[name], length, buffers, nulls, 0, [items])
    if name in ("key", "value"):
        return _binary_array(COLUMN_TYPES[name], part)
    return pa.Array.from_buffers(COLUMN_TYPES[name], count, [None, _buffer(part)], 0)


def _buffer(memory: Any) -> pa.Buffer | None:
    return None if memory is None else pa.py_buffer(memory)


def _binary_array(data_type: pa.DataType, part: tuple[Any, ...]) -> pa.Array:
    length, nulls, validity, offsets, data = part
    return pa.Array.from_buffers(data_type, length, [_buffer(validity), _buffer(offsets), _buffer(data)], nulls)


def _header_keys(parts: dict[str, Any]) -> pa.Array:
    """Header keys as strings; what is not UTF-8 gets replacement characters, as in `Record.headers`."""
    if parts["is_ascii"]:
        return _binary_array(pa.string(), parts["header_key"])
    keys = _binary_array(pa.binary(), parts["header_key"])
    return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def encode_arrow(
    data: pa.Table | pa.RecordBatch,
    *,
    timestamp_ms: int,
    compression_type: CompressionType = CompressionType.NONE,
    compression_level: int | None = None,
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES,
    is_transactional: bool = False,
) -> list[BatchBuilder]:
    """The rows of `data` in order, as builders whose batches are at most `max_batch_bytes` before compression.

    Columns used: `value` and `key` (binary or string of any layout), `headers` (list of struct of key and value, or
    map), `timestamp` (timestamp, or integers of ms); others are ignored, a missing one is null. Rows without a
    timestamp get `timestamp_ms`. Call `build` on each builder with the producer's state.

    Raises `RecordTooLargeError` for a row that is too large alone, `ValueError` for a column of another type.
    """
    if "value" not in data.schema.names and "key" not in data.schema.names:
        raise ValueError(f"no column value or key in {', '.join(data.schema.names) or 'an empty schema'}")
    chunks = data.to_batches() if isinstance(data, pa.Table) else [data]

    def new_builder() -> BatchBuilder:
        return BatchBuilder(
            compression_type=compression_type,
            compression_level=compression_level,
            is_transactional=is_transactional,
        )

    builders: list[BatchBuilder] = []
    for chunk in chunks:
        if not chunk.num_rows:
            continue
        if not builders:
            builders.append(new_builder())
        row = 0
        columns = _columns(chunk, timestamp_ms)
        while True:
            row = backend.current.append_columns(builders[-1], row, chunk.num_rows, max_batch_bytes, *columns)
            if row == chunk.num_rows:
                break
            builders.append(new_builder())
    return builders


def partition_keys(keys: pa.Array | pa.ChunkedArray, count: int) -> pa.Array:
    """int32 partitions of binary or string `keys` among `count`, as `partition_for_key`; null for a null key."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    memory = backend.current.partition_column(len(keys), _binary_parts(keys), count)
    partitions = pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(memory)], 0)
    return pc.if_else(pc.is_valid(keys), partitions, pa.scalar(None, pa.int32()))


def _columns(chunk: pa.RecordBatch, timestamp_ms: int) -> tuple[Any, ...]:
    """The arguments of `append_columns` from `timestamps` on."""
    names = chunk.schema.names
    key, value = (_binary_parts(chunk.column(name)) if name in names else None for name in ("key", "value"))
    timestamps = _timestamps(chunk.column("timestamp") if "timestamp" in names else None, chunk.num_rows, timestamp_ms)
    headers = chunk.column("headers") if "headers" in names else None
    return (timestamps, key, value, *_header_parts(headers))


def _binary_parts(column: pa.Array) -> tuple[int, int, Any, Any, Any] | None:
    """(rows, first row, validity, int64 offsets, data) of a column cast to large_binary; None if all are null."""
    if pa.types.is_null(column.type):
        return None
    try:
        binary = pc.cast(column, pa.large_binary())
    except pa.ArrowNotImplementedError:
        raise ValueError(f"a column of type {column.type} is neither binary nor string") from None
    validity, offsets, data = binary.buffers()
    return len(binary), binary.offset, validity if binary.null_count else None, offsets, data


def _int64_buffer(column: pa.Array) -> Any:
    """The values of an int64 column without nulls, from its first row on."""
    return memoryview(column.buffers()[1])[column.offset * 8 : (column.offset + len(column)) * 8]


def _timestamps(column: pa.Array | None, count: int, timestamp_ms: int) -> Any:
    """int64 ms per row."""
    default = pa.scalar(timestamp_ms, pa.int64())
    if column is None or pa.types.is_null(column.type):
        return _int64_buffer(pa.repeat(default, count))
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"column timestamp of type {column.type} is neither a timestamp nor integers of ms")
    return _int64_buffer(pc.fill_null(pc.cast(column, pa.int64()), default))


def _header_parts(column: Any) -> tuple[Any, Any, Any]:
    """(int64 ends, keys, values) of a column of headers; three times None without one."""
    if column is None or pa.types.is_null(column.type):
        return None, None, None
    if pa.types.is_map(column.type):
        fields = [("key", column.type.key_type), ("value", column.type.item_type)]
        column = column.cast(pa.list_(pa.struct(fields)))
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)) or not pa.types.is_struct(
        column.type.value_type
    ):
        raise ValueError(f"column headers of type {column.type} is no list of struct<key, value>")
    items = pc.list_flatten(column)
    if {"key", "value"} - {items.type.field(index).name for index in range(items.type.num_fields)}:
        raise ValueError(f"column headers of type {column.type} has no fields key and value")
    counts = pc.fill_null(pc.cast(pc.list_value_length(column), pa.int64()), 0)
    ends = pc.cumulative_sum(counts)
    nulls = pa.nulls(len(items), pa.large_binary())
    keys, values = (
        _binary_parts(nulls if pa.types.is_null(field.type) else field)
        for field in (pc.struct_field(items, "key"), pc.struct_field(items, "value"))
    )
    return _int64_buffer(ends), keys, values
