"""Sending Arrow tables: rows become record batches without one Python object per row. Needs pyarrow."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute

from kraftlog.proto.errors import RecordTooLargeError, SerializationFailedError
from kraftlog.proto.records import BatchBuilder
from kraftlog.proto.records.arrow import encode_arrow, partition_keys
from kraftlog.sdk.producer.accumulator import PartitionQueue
from kraftlog.sdk.producer.partitioners import TopicQueues

SLICE_BYTES = 8 * 1024 * 1024  # rows are encoded in such portions, so that a large table does not exist twice

Placed = tuple[PartitionQueue | None, BatchBuilder]
"""(partition, a batch for it); None: the sticky partition."""


def batches_of(
    data: "pa.Table | pa.RecordBatch", queues: TopicQueues, partition: int | None, timestamp_ms: int
) -> Iterator[list[Placed]]:
    """The rows as batches, portion by portion, in order within each partition.

    A row goes to `partition` if given, else to that of its column `partition`, else where its key belongs.
    """
    table = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
    rows = max(1, table.num_rows * SLICE_BYTES // max(1, table.nbytes))
    for start in range(0, table.num_rows, rows):
        portion = table.slice(start, rows)
        yield [
            (queue, builder)
            for queue, part in _by_partition(portion, queues, partition)
            for builder in _encoded(part, queue or queues.queues[0], queues, timestamp_ms)
        ]


def _by_partition(
    table: "pa.Table", queues: TopicQueues, partition: int | None
) -> Iterator[tuple[PartitionQueue | None, "pa.Table"]]:
    if partition is not None:
        yield queues.at(partition, "asked for"), table
        return
    wanted = _partitions(table, queues)
    if wanted is None:
        yield None, table
        return
    # stable: rows of one partition keep their order, nulls come last
    order = pyarrow.compute.sort_indices(wanted)  # pyright: ignore[reportAttributeAccessIssue]  # made at import
    ordered, numbers = table.take(order), wanted.take(order)
    start = 0
    runs = pyarrow.compute.value_counts(numbers)  # pyright: ignore[reportAttributeAccessIssue]  # made at import
    for run in runs.to_pylist():  # in order of appearance
        number, count = run["values"], run["counts"]
        yield None if number is None else queues.at(number, "a row asks for"), ordered.slice(start, count)
        start += count


def _partitions(table: "pa.Table", queues: TopicQueues) -> "pa.ChunkedArray | None":
    """Each row's partition, null where it has no key; None: no row has a place of its own."""
    names = table.schema.names
    by_key: pa.ChunkedArray | None = None
    if queues.custom is not None or not queues.uses_sticky:
        nothing = [None] * table.num_rows
        keys = _binary(table, "key").to_pylist() if "key" in names else nothing
        values = _binary(table, "value").to_pylist() if "value" in names else nothing
        chosen = [queues.choose(key, value).partition for key, value in zip(keys, values, strict=True)]
        by_key = pa.chunked_array([pa.array(chosen, pa.int32())])
    elif queues.hashes_keys and "key" in names and table["key"].null_count < table.num_rows:
        by_key = pa.chunked_array([partition_keys(table["key"], queues.count)])
    if "partition" not in names or table["partition"].null_count == table.num_rows:
        return by_key
    column = table["partition"].cast(pa.int32())
    if by_key is None:
        return column
    return pyarrow.compute.coalesce(column, by_key)  # pyright: ignore[reportAttributeAccessIssue]  # made at import


def _binary(table: "pa.Table", name: str) -> "pa.ChunkedArray":
    return table[name].cast(pa.binary())


def _encoded(table: "pa.Table", queue: PartitionQueue, queues: TopicQueues, timestamp_ms: int) -> list[BatchBuilder]:
    try:
        return encode_arrow(
            table, timestamp_ms=timestamp_ms, compression_type=queue.compression, max_batch_bytes=queue.batch_limit
        )
    except RecordTooLargeError as error:
        raise RecordTooLargeError(f"topic {queues.name!r}: {error}") from error
    except (ValueError, TypeError) as error:
        raise SerializationFailedError(f"topic {queues.name!r}: the table cannot be encoded: {error}") from error
