"""The asyncio consumer against a cluster in memory, on virtual time."""

import asyncio

from kraftlog.proto.records import BatchBuilder
from kraftlog.sdk.consumer import AsyncConsumer
from kraftlog.sdk.types import TopicPartition
from kraftlog.testing.loop import run_virtual
from tests.unit.sdk.fake_broker import FakeCluster

SERVERS = "broker1:9092"


def consumer(cluster: FakeCluster, **options) -> AsyncConsumer:
    return AsyncConsumer(bootstrap_servers=SERVERS, connector=cluster.connector(), **options)


def fill(cluster: FakeCluster, topic: str, partition: int, values: range, batch: int = 100) -> None:
    for first in range(values.start, values.stop, batch):
        builder = BatchBuilder()
        for i in range(first, min(first + batch, values.stop)):
            builder.append(1000 + i, b"k", b"%d" % i)
        cluster.partition(topic, partition).append(builder.build())
    cluster.notify()


def test_assigned_partitions_are_read_from_the_start() -> None:
    """assign + earliest: every record once, in order."""

    async def main() -> None:
        cluster = FakeCluster(2)
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(1000))
        fill(cluster, "orders", 1, range(500))
        async with consumer(cluster, auto_offset_reset="earliest") as c:
            tps = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
            c.assign(tps)
            got = {tp: [] for tp in tps}
            while sum(map(len, got.values())) < 1500:
                for tp, records in (await c.poll(1000)).items():
                    assert len(records) <= 500
                    got[tp] += records
            assert [r.value for r in got[tps[0]]] == [b"%d" % i for i in range(1000)]
            assert [r.offset for r in got[tps[1]]] == list(range(500))
            assert await c.position(tps[0]) == 1000
            assert await c.poll(100) == {}
            fill(cluster, "orders", 0, range(1000, 1010))
            assert [r.offset for r in (await c.poll(1000))[tps[0]]] == list(range(1000, 1010))

    run_virtual(main())


def test_a_group_shares_partitions_and_goes_on_from_committed_offsets() -> None:
    """Two members own disjoint halves; after both left, a third goes on where they committed."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 4)
        for p in range(4):
            fill(cluster, "orders", p, range(100))
        options = {"group_id": "g", "auto_offset_reset": "earliest"}
        seen = []

        async def member(count: int) -> frozenset[TopicPartition]:
            async with consumer(cluster, **options) as c:
                c.subscribe(["orders"])
                while len(seen) < count:
                    for records in (await c.poll(200)).values():
                        seen.extend((r.partition, r.offset) for r in records)
                owned = c.assignment()
                await c.commit()
                await asyncio.sleep(1)
                return owned

        first, second = await asyncio.gather(member(400), member(400))
        assert len(first | second) == 4
        assert not first & second
        assert sorted(seen) == [(p, o) for p in range(4) for o in range(100)]
        assert {k: v[0] for k, v in cluster.group("g").offsets.items()} == {("orders", p): 100 for p in range(4)}
        fill(cluster, "orders", 0, range(100, 103))
        seen.clear()
        await member(3)
        assert seen == [(0, 100), (0, 101), (0, 102)]

    run_virtual(main(), max_seconds=3600)
