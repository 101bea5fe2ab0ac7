"""The connector's way to the cluster: offsets for the driver, records for the tasks.

Spark forks its workers and reuses them, so clients are made on first use and kept per process and address. A failure
in a reader's method ends the query, so calls go through the SDK, which retries what is retriable within its time-outs.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraftlog.proto import malloc
from kraftlog.proto.errors import InvalidConfigError, UnknownTopicOrPartitionError
from kraftlog.sdk.admin import Admin
from kraftlog.sdk.ranges import RangeReader
from kraftlog.sdk.types import TopicPartition
from kraftlog.spark_connector.options import PartitionOffsets, ReadOptions, Subscription
from kraftlog.spark_connector.planning import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

malloc.tune()  # this module loads in Spark's workers and its planning processes, which are the query's own

_clusters: dict[tuple[int, tuple[tuple[str, str], ...]], "Cluster"] = {}


def cluster_for(options: ReadOptions) -> "Cluster":
    """The cluster of these client options; one per process."""
    key = (os.getpid(), tuple(sorted(options.client.items())))
    cluster = _clusters.get(key)
    if cluster is None:
        cluster = _clusters[key] = Cluster(options.client)
    return cluster


class Cluster:
    """What the driver asks. Used from one thread at a time."""

    def __init__(self, client: Mapping[str, str]) -> None:
        config: dict[str, Any] = dict(client)
        self._admin = Admin(**config)

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000

    def offsets(self, subscription: Subscription) -> tuple[PartitionOffsets, PartitionOffsets]:
        """Earliest and latest committed (stable) offsets of every partition that is subscribed to."""
        partitions = self._partitions(subscription)
        earliest = self._admin.list_offsets(partitions, "earliest")
        latest = self._admin.list_offsets(partitions, "latest", isolation_level="read_committed")
        return _nested(earliest), _nested(latest)

    def _partitions(self, subscription: Subscription) -> list[TopicPartition]:
        if subscription.partitions:
            return self._assigned(subscription.partitions)
        if subscription.pattern is not None:
            pattern = re.compile(subscription.pattern)
            topics = [name for name in self._admin.list_topics() if pattern.fullmatch(name)]
            if not topics:
                return []
        else:
            topics = list(subscription.topics)
        return [
            TopicPartition(topic.name, partition.partition)
            for topic in self._admin.describe_topics(topics)
            for partition in topic.partitions
        ]

    def _assigned(self, wanted: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
        result = []
        for topic in self._admin.describe_topics(list(wanted)):
            present = {partition.partition for partition in topic.partitions}
            for partition in wanted[topic.name]:
                if partition not in present:
                    raise UnknownTopicOrPartitionError(
                        f"option assign names {topic.name}-{partition}, but the topic has {len(present)} partitions"
                    )
                result.append(TopicPartition(topic.name, partition))
        return result


def read_task(
    options: ReadOptions, columns: Sequence[str], ranges: Sequence[OffsetRange]
) -> Iterator["pa.RecordBatch"]:
    """The records of a task's ranges as Arrow batches of a few MB, fetched ahead while Spark takes one."""
    if not columns:
        raise InvalidConfigError("a read of format kraftlog needs at least one column")
    with RangeReader(dict(options.client), columns=columns, fail_on_data_loss=options.fail_on_data_loss) as reader:
        yield from reader.read([(r.topic, r.partition, r.start, r.end) for r in ranges])


def _nested(offsets: Mapping[TopicPartition, int]) -> PartitionOffsets:
    result: PartitionOffsets = {}
    for (topic, partition), offset in offsets.items():
        result.setdefault(topic, {})[partition] = offset
    return result
