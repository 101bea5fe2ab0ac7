"""The asyncio producer against a cluster in memory, on virtual time."""


from kraftlog.sdk.producer import AsyncProducer
from kraftlog.testing.loop import run_virtual
from tests.unit.sdk.fake_broker import FakeCluster

SERVERS = "broker1:9092"


def producer(cluster: FakeCluster, **options) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=SERVERS, connector=cluster.connector(), **options)


def test_records_arrive_in_order_with_their_offsets() -> None:
    """What is sent is there, in send order, and each future names its place."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster) as p:
            futures = [await p.send("orders", b"%d" % i, key=b"k", headers=[("h", b"1")]) for i in range(1000)]
            metadata = [await future for future in futures]
        assert [m.offset for m in metadata] == list(range(1000))
        assert metadata[0].durability == "quorum-fsync"
        assert metadata[0].topic_partition == ("orders", 0)
        assert cluster.partition("orders").values() == [b"%d" % i for i in range(1000)]
        assert cluster.partition("orders").records()[3].headers == (("h", b"1"),)

    run_virtual(main())
