"""`format("kraftlog")`: the Python Data Source (DataSource V2 underneath) over a topic.

Objects of this module are pickled to Spark's workers, so they hold options and numbers only; connections are opened
where they are used (`kraftlog.spark_connector.cluster`). Column pruning does not exist for Python sources: a schema
that the user gives, or the option `columns`, chooses what travels. Filters are not taken over: PySpark 4.3 shares
them between DataFrames and returns wrong rows.
"""

import os
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kraftlog.proto.config import unknown_key
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.spark_connector.options import PartitionOffsets, ReadOptions, parse_options
from kraftlog.spark_connector.planning import (
    OffsetRange,
    limit_offsets,
    plan_tasks,
    ranges_between,
    resolve,
    with_new_partitions,
)
from kraftlog.spark_connector.schema import COLUMN_TYPES, ddl

if TYPE_CHECKING:
    import pyarrow as pa

    from kraftlog.spark_connector.cluster import Cluster


class KraftlogDataSource(DataSource):
    """A topic as rows of key, value, topic, partition, offset, timestamp, timestampType (and headers)."""

    @classmethod
    def name(cls) -> str:
        return "kraftlog"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    def schema(self) -> str:
        # only the columns matter here; whether the read is a stream is known when a reader is asked for
        given = {key: value for key, value in self.options.items() if key.lower() in ("columns", "includeheaders")}
        return ddl(parse_options({**given, "bootstrap.servers": "-", "subscribe": "-"}, streaming=False).columns)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(parse_options(dict(self.options), streaming=False), _columns(schema))

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(parse_options(dict(self.options), streaming=True), _columns(schema))


class TaskRanges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class BatchReader(DataSourceReader):
    """Reads [startingOffsets, endingOffsets) as they stand when the query is planned."""

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        cluster = _cluster(options)
        earliest, latest = cluster.offsets(options.subscription)
        start = resolve("startingOffsets", options.starting_offsets, earliest, latest)
        end = resolve("endingOffsets", options.ending_offsets, earliest, latest)
        return _tasks(ranges_between(start, end, fail_on_data_loss=False), options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._options, self._columns, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Offsets in the checkpoint are {topic: {partition: next offset}}.

    The driver's instance lives as long as the query; the tasks get pickled copies of it.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._target: PartitionOffsets | None = None
        self._last_batch_ms: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        earliest, latest = _cluster(self._options).offsets(self._options.subscription)
        return _to_json(resolve("startingOffsets", self._options.starting_offsets, earliest, latest))

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        _, self._target = _cluster(self._options).offsets(self._options.subscription)

    def reportLatestOffset(self) -> dict[str, Any]:
        _, latest = _cluster(self._options).offsets(self._options.subscription)
        return _to_json(latest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        cluster = _cluster(self._options)
        earliest, latest = cluster.offsets(self._options.subscription)
        if self._target is not None:
            latest = self._target
        begin = with_new_partitions(_from_json(start), earliest)
        # vanished partitions and logs that went back are an error here, before anything of the batch is read
        ranges = ranges_between(begin, latest, fail_on_data_loss=self._options.fail_on_data_loss)
        available = sum(r.size for r in ranges)
        if self._holds_back(available, limit, cluster):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = limit_offsets(begin, latest, limit.max_rows)
        if available:
            self._last_batch_ms = cluster.monotonic_ms()
        return _to_json(latest)

    def _holds_back(self, available: int, limit: ReadLimit, cluster: "Cluster") -> bool:
        """minOffsetsPerTrigger: wait for more, but no longer than maxTriggerDelay, and never under AvailableNow."""
        minimum = self._options.min_offsets_per_trigger
        if minimum is None or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        if available >= minimum:
            return False
        if self._last_batch_ms is None:
            self._last_batch_ms = cluster.monotonic_ms()
        return cluster.monotonic_ms() - self._last_batch_ms < self._options.max_trigger_delay_ms

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, stop = _from_json(start), _from_json(end)
        if any(partition not in begin.get(topic, {}) for topic in stop for partition in stop[topic]):
            earliest, _ = _cluster(self._options).offsets(self._options.subscription)
            begin = with_new_partitions(begin, earliest)
        ranges = ranges_between(begin, stop, fail_on_data_loss=self._options.fail_on_data_loss)
        return _tasks(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return _read(self._options, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark's checkpoint holds the position; there is nothing to tell the cluster."""

    def stop(self) -> None:
        """Connections belong to the process and outlive the query."""


def _columns(schema: StructType) -> tuple[str, ...]:
    """The columns of a user's schema, which must be some of ours with our types."""
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        if expected is None:
            raise unknown_key(field.name, COLUMN_TYPES, "column of format kraftlog")
        if field.dataType.simpleString() != expected:
            raise InvalidConfigError(
                f"column {field.name} has type {field.dataType.simpleString()}, but format kraftlog gives {expected}: "
                "cast after the load"
            )
    return tuple(field.name for field in schema.fields)


def _cluster(options: ReadOptions) -> "Cluster":
    from kraftlog.spark_connector.cluster import cluster_for

    return cluster_for(options)


def _read(options: ReadOptions, columns: Sequence[str], partition: object) -> Iterator["pa.RecordBatch"]:
    if not isinstance(partition, TaskRanges):
        return iter(())  # Spark makes one task without a partition of a read that has none
    from kraftlog.spark_connector.cluster import read_task

    return read_task(options, columns, partition.ranges)


def _tasks(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[TaskRanges]:
    tasks = plan_tasks(
        ranges,
        cores=os.cpu_count() or 1,
        min_partitions=options.min_partitions,
        max_partitions=options.max_partitions,
    )
    return [TaskRanges(task) for task in tasks]


def _to_json(offsets: PartitionOffsets) -> dict[str, Any]:
    return {topic: {str(p): offset for p, offset in partitions.items()} for topic, partitions in offsets.items()}


def _from_json(offsets: dict[str, Any]) -> PartitionOffsets:
    return {topic: {int(p): int(offset) for p, offset in partitions.items()} for topic, partitions in offsets.items()}
