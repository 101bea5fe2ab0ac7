"""A consumer that reads from the replica in its own rack, on three real brokers: records, Arrow, and ranges as Spark's tasks."""

import pytest

from kraftlog import Admin, Consumer, NewTopic, Producer, TopicPartition
from kraftlog.sdk.ranges import RangeReader
from kraftlog.testing import cluster

pytestmark = pytest.mark.processes

RACKS = ("a", "b", "c")
TOPIC = "near"
PARTITION = TopicPartition(TOPIC, 0)


def source(consumer: Consumer) -> int | None:
    """The broker that it fetches from."""
    stream = consumer._core.subscriptions.partitions[PARTITION].stream
    return None if stream is None else stream.node_id


def test_records_come_from_the_follower_nearby_and_from_the_leader_when_that_is_killed() -> None:
    with cluster(3, racks=RACKS) as running, Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name=TOPIC, num_partitions=1, replication_factor=3)])
        leader, near = admin.describe_topics([TOPIC])[0].partitions[0].replicas[:2]
        with (
            Producer(bootstrap_servers=running.bootstrap_servers) as producer,
            Consumer(
                bootstrap_servers=running.bootstrap_servers,
                auto_offset_reset="earliest",
                client_rack=RACKS[near - 1],
            ) as consumer,
        ):
            consumer.assign([PARTITION])

            def write(first: int, count: int) -> None:
                for number in range(first, first + count):
                    producer.send(TOPIC, b"%d" % number)
                producer.flush(30)

            def read(count: int) -> list[bytes | None]:
                values: list[bytes | None] = []
                while len(values) < count:
                    values += [record.value for records in consumer.poll(1_000).values() for record in records]
                return values

            write(0, 500)
            assert read(500) == [b"%d" % number for number in range(500)]
            assert source(consumer) == near
            write(500, 500)
            values: list[bytes | None] = []
            while len(values) < 500:
                values += consumer.poll_arrow(timeout_ms=1_000).column("value").to_pylist()
            assert values == [b"%d" % number for number in range(500, 1_000)]
            assert source(consumer) == near
            with RangeReader(
                {"bootstrap_servers": running.bootstrap_servers, "client_rack": RACKS[near - 1]}, columns=["value"]
            ) as reader:
                values = [
                    value for batch in reader.read([(TOPIC, 0, 100, 900)]) for value in batch["value"].to_pylist()
                ]
                assert values == [b"%d" % number for number in range(100, 900)]
                assert source(reader._consumer) == near
            running.nodes[near - 1].kill9()
            write(1_000, 500)
            assert read(500) == [b"%d" % number for number in range(1_000, 1_500)]
            assert source(consumer) == leader
