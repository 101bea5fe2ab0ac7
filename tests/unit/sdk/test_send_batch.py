"""Sending Arrow tables."""

import random
from functools import partial

import pytest

from kraftlog.proto.errors import (
    BufferExhaustedError,
    RecordTooLargeError,
    SerializationFailedError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.sdk.producer import AsyncProducer, Producer
from kraftlog.testing.loop import run_virtual as run_unbounded
from tests.unit.sdk.fake_broker import FakeCluster

pa = pytest.importorskip("pyarrow")

run_virtual = partial(run_unbounded, max_seconds=7_200)


def producer(cluster: FakeCluster, **options) -> AsyncProducer:
    return AsyncProducer(
        bootstrap_servers="broker1:9092", connector=cluster.connector(), random=random.Random(7), **options
    )


def test_rows_go_where_their_keys_belong_in_order() -> None:
    """The same partitions as by send(); order is kept within a partition, also with earlier sends."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 5)
        keys = [None if i % 7 == 0 else b"key %d" % (i % 11) for i in range(5_000)]
        values = [b"%d" % i for i in range(5_000)]
        async with producer(cluster) as p:
            before = partition_for_key(b"key 1", 5)
            await p.send("orders", b"before", key=b"key 1")
            futures = await p.send_batch("orders", pa.table({"key": keys, "value": values, "other": values}))
            metadata = [await future for future in futures]
            assert sum(f.record_count for f in futures) == 5_000
            await p.send_and_wait("orders", b"after", key=b"key 1")
        stored = {partition: cluster.partition("orders", partition).records() for partition in range(5)}
        for m, future in zip(metadata, futures, strict=True):
            assert stored[m.partition][m.offset].value in values
            assert future.record_count <= len(stored[m.partition])
        for partition, records in stored.items():
            keyed = [r for r in records if r.key is not None]
            assert {partition_for_key(r.key or b"", 5) for r in keyed} <= {partition}
            own = [int(r.value or b"") for r in keyed if r.value not in (b"before", b"after")]
            assert own == sorted(own)
        assert next(r.value for r in stored[before]) == b"before"
        assert [r.value for r in stored[before]][-1] == b"after"
        written = [r.value or b"" for rs in stored.values() for r in rs]
        assert sorted(int(value) for value in written if value.isdigit()) == list(range(5_000))

    run_virtual(main())


def test_partitions_may_be_named_for_all_rows_or_for_each() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 3)
        async with producer(cluster) as p:
            await p.send_batch("orders", pa.table({"value": ["a", "b"], "key": ["x", "y"]}), partition=2)
            await p.send_batch("orders", pa.table({"value": ["c", "d", "e"], "partition": [1, 0, 1]}))
            with pytest.raises(UnknownTopicOrPartitionError, match="a row asks for partition 9"):
                await p.send_batch("orders", pa.table({"value": ["f"], "partition": [9]}))
            with pytest.raises(UnknownTopicOrPartitionError, match="asked for partition 3"):
                await p.send_batch("orders", pa.table({"value": ["f"]}), partition=3)
        assert [cluster.partition("orders", i).values() for i in range(3)] == [[b"d"], [b"c", b"e"], [b"a", b"b"]]

    run_virtual(main())


def test_other_partitioners_are_asked_row_by_row() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 3)
        table = pa.table({"value": ["0", "1", "2", "3", "4", "5"]})
        async with producer(cluster, partitioner="round_robin") as p:
            await p.send_batch("orders", table)
        assert [len(cluster.partition("orders", i).values()) for i in range(3)] == [2, 2, 2]
        async with producer(cluster, partitioner=lambda topic, key, value, count: int(value) % count) as p:
            await p.send_batch("orders", table)
        assert cluster.partition("orders", 2).values()[-2:] == [b"2", b"5"]

    run_virtual(main())


def test_bad_tables_are_one_clear_error() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.max_message_bytes = 1_000
        cluster.create("orders")
        async with producer(cluster) as p:
            with pytest.raises(
                SerializationFailedError, match=r"topic 'orders': the table cannot be encoded: a column of type double"
            ):
                await p.send_batch("orders", pa.table({"value": [1.5]}))
            with pytest.raises(SerializationFailedError, match="no column value or key"):
                await p.send_batch("orders", pa.table({"price": ["1"]}))
            with pytest.raises(RecordTooLargeError, match="topic 'orders'"):
                await p.send_batch("orders", pa.table({"value": ["x" * 2_000]}))
            assert await p.send_batch("orders", pa.table({"value": pa.array([], pa.binary())})) == []
        assert cluster.partition("orders").values() == []

    run_virtual(main())


def test_a_table_larger_than_the_buffer_waits_for_memory() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        table = pa.table({"value": [b"x" * 1_000] * 3_000})
        async with producer(cluster, buffer_memory=1 << 19, batch_size=1 << 16, max_request_size=1 << 18) as p:
            await p.send_batch("orders", table)
            assert p._accumulator.used_bytes <= 1 << 19
        assert len(cluster.partition("orders").values()) == 3_000
        async with producer(
            cluster, buffer_memory=1 << 19, batch_size=1 << 16, max_request_size=1 << 18, max_block_ms=100
        ) as p:
            await p.partitions_for("orders")
            cluster.frozen.add(1)
            with pytest.raises(BufferExhaustedError):
                await p.send_batch("orders", table)
            cluster.frozen.clear()

    run_virtual(main())


def test_the_synchronous_producer_sends_tables_too() -> None:
    cluster = FakeCluster()
    cluster.create("orders")
    with Producer(
        bootstrap_servers="broker1:9092", connector=cluster.connector(), compression_type="lz4", buffer_memory=1 << 20
    ) as p:
        futures = p.send_batch("orders", pa.table({"value": [b"%d" % i for i in range(100_000)]}))
        assert next(f.result(10).offset for f in futures) == 0
    assert len(cluster.partition("orders").values()) == 100_000
