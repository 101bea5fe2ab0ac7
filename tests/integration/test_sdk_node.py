"""The SDK against a real node process: what a service does with it."""

import threading
from collections.abc import Iterator

import pytest

from kraftlog import Admin, Consumer, Producer, TopicPartition
from kraftlog.proto.errors import (
    InvalidTopicError,
    RecordTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kraftlog.sdk.types import NewTopic
from kraftlog.testing import cluster

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with cluster() as running:
        yield running.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


def create(admin: Admin, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name=name, num_partitions=partitions, configs=settings)])


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < count:
        polled = consumer.poll(timeout_ms=20_000)
        assert polled, f"nothing came after {len(values)} of {count} records"
        values += [record.value for records in polled.values() for record in records]
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_sent_in_order(bootstrap: str, admin: Admin, codec: str) -> None:
    """Keys, values, headers, timestamps, tombstones; one partition keeps the order."""
    topic = f"codec-{codec}"
    create(admin, topic)
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        futures = [
            producer.send(topic, f"v{i}".encode() if i % 3 else None, key=b"k%d" % i, headers=[("i", b"%d" % i)])
            for i in range(500)
        ]
        producer.flush()
        metadata = [future.result(10) for future in futures]
    assert [m.offset for m in metadata] == list(range(500))
    assert {m.durability for m in metadata} == {"quorum-fsync"}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = []
        while len(records) < 500:
            for polled in consumer.poll(timeout_ms=20_000).values():
                records += polled
    for i, record in enumerate(records):
        assert record.value == (f"v{i}".encode() if i % 3 else None)
        assert (record.key, record.headers, record.offset) == (b"k%d" % i, (("i", b"%d" % i),), i)


def test_two_members_share_a_topic_and_a_third_takes_over_where_they_stopped(bootstrap: str, admin: Admin) -> None:
    """Each record goes to one member; committed positions are where the next one starts."""
    create(admin, "shared", 4)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for i in range(400):
            producer.send("shared", b"%d" % i, partition=i % 4)
    received: list[bytes | None] = []
    lock = threading.Lock()
    done = threading.Event()

    def member() -> None:
        with Consumer(
            bootstrap_servers=bootstrap, group_id="sharers", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.subscribe(["shared"])
            while not done.is_set():
                polled = consumer.poll(timeout_ms=100)
                with lock:
                    received.extend(record.value for records in polled.values() for record in records)
                    if len(received) >= 400:
                        done.set()
                if polled:
                    consumer.commit()

    threads = [threading.Thread(target=member) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(int(value or b"") for value in set(received)) == list(range(400))
    lag = {(row.topic, row.partition): row.lag for row in admin.list_group_offsets("sharers")}
    assert lag == {("shared", partition): 0 for partition in range(4)}
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("shared", b"last", partition=2)
    with Consumer(bootstrap_servers=bootstrap, group_id="sharers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["shared"])
        assert read(consumer, 1) == [b"last"]


def test_a_recreated_topic_does_not_inherit_offsets(bootstrap: str, admin: Admin) -> None:
    """A group's offsets go with the topic; else a reader of the new one would start beyond its end."""
    for generation in (b"old", b"new"):
        create(admin, "recreated")
        with Producer(bootstrap_servers=bootstrap) as producer:
            for _ in range(5):
                producer.send("recreated", generation)
        with Consumer(bootstrap_servers=bootstrap, group_id="keepers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["recreated"])
            assert read(consumer, 5) == [generation] * 5
            consumer.commit()
        admin.delete_topics(["recreated"])


def test_arrow_holds_what_records_hold(bootstrap: str, admin: Admin) -> None:
    create(admin, "tabular", 2)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for i in range(100):
            producer.send("tabular", b"%d" % i, partition=i % 2)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("tabular", 0), TopicPartition("tabular", 1)])
        values: list[bytes] = []
        while len(values) < 100:
            table = consumer.poll_arrow(timeout_ms=20_000)
            assert table.num_rows
            values += table.column("value").to_pylist()
    assert sorted(int(value) for value in values) == list(range(100))


def test_stop_at_bounds_what_is_handed_out(bootstrap: str, admin: Admin) -> None:
    """Records and Arrow alike, within a batch; a seek ends the bound."""
    create(admin, "bounded")
    tp = TopicPartition("bounded", 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for i in range(50):
            producer.send("bounded", b"%d" % i)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 10)
        consumer.stop_at(tp, 15)
        assert read(consumer, 5) == [b"%d" % i for i in range(10, 15)]
        assert consumer.poll(timeout_ms=50) == {}
        consumer.seek(tp, 45)
        assert read(consumer, 5) == [b"%d" % i for i in range(45, 50)]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a" * 250, "a\nb"])
def test_a_bad_topic_name_is_refused(admin: Admin, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        create(admin, name)
    assert name not in admin.list_topics()


def test_mistakes_raise_their_own_class(bootstrap: str, admin: Admin) -> None:
    create(admin, "strict", max_message_bytes="1000")
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, "strict")
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["never-there"])
    with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes=1000"):
            producer.send("strict", b"x" * 2000)
        assert producer.send("strict", b"x").result(20).offset == 0
