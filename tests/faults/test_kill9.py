"""kill -9 of a real node in the middle of producing: every acknowledged record is there, in order, once.

Also the orderly stop: SIGTERM, and the next start finds everything without recovery.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog import Admin, Consumer, Producer, TopicPartition
from kraftlog.sdk.types import NewTopic, RecordMetadata
from kraftlog.testing import NodeProcess

pytestmark = pytest.mark.processes

TOPIC = "orders"
PARTITIONS = 2
ROUNDS = 10
ACKS_PER_ROUND = 150  # acknowledged before each kill: load must be real
WAIT_S = 60.0
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"


class Acknowledgments:
    """What the producer was told. Safe from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._by_partition: dict[int, dict[bytes, int]] = {partition: {} for partition in range(PARTITIONS)}
        self._count = 0
        self.failures: list[str] = []

    def add(self, value: bytes, metadata: RecordMetadata) -> None:
        with self._changed:
            self._by_partition[metadata.partition][value] = metadata.offset
            self._count += 1
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        with self._changed:
            self.failures.append(f"{type(error).__name__}: {error}")
            self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        with self._changed:
            goal = self._count + more
            reached = self._changed.wait_for(lambda: self._count >= goal or bool(self.failures), WAIT_S)
            assert reached, f"{self._count} of {goal} records acknowledged within {WAIT_S} s"
            assert not self.failures, self.failures[:3]

    def of(self, partition: int) -> dict[bytes, int]:
        """Value -> offset, in the order of the acknowledgments."""
        with self._changed:
            return dict(self._by_partition[partition])


class Load:
    """Sends without pause from a thread of its own until stopped."""

    def __init__(self, producer: Producer, acknowledgments: Acknowledgments) -> None:
        self.sent: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
        self._producer = producer
        self._acknowledgments = acknowledgments
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_stopping.is_set():
                partition = number % PARTITIONS
                value = b"record %08d" % number
                self.sent[partition].append(value)
                future = self._producer.send(TOPIC, value, partition=partition)
                future.add_callback(lambda metadata, value=value: self._acknowledgments.add(value, metadata))
                future.add_errback(self._acknowledgments.fail)
                number += 1
                if number % 20 == 0:
                    self._is_stopping.wait(0.001)
        except Exception as error:
            self._acknowledgments.fail(error)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path) as process:
        yield process


def _create_topic(address: str) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(name=TOPIC, num_partitions=PARTITIONS, configs={"segment.bytes": "65536"})])


def _read_all(address: str) -> dict[int, list[tuple[int, bytes]]]:
    """(offset, value) of every record of each partition, from a fresh consumer."""
    records: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    with Consumer(bootstrap_servers=address) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + WAIT_S
        while any(consumer.position(where) < end for where, end in ends.items()):
            assert time.monotonic() < deadline, f"read {records} of {ends} within {WAIT_S} s"
            for where, polled in consumer.poll(timeout_ms=500).items():
                records[where.partition] += [(record.offset, record.value or b"") for record in polled]
    return records


def _check(records: list[tuple[int, bytes]], acknowledged: dict[bytes, int], sent: list[bytes]) -> None:
    """Offsets without gaps; each value once; sending order; every acknowledged record at its offset."""
    assert [offset for offset, _ in records] == list(range(len(records)))
    values = [value for _, value in records]
    assert len(set(values)) == len(values), "a record is stored twice"
    order = {value: place for place, value in enumerate(sent)}
    places = [order[value] for value in values]
    assert places == sorted(places), "records are not in the order of sending"
    found = {value: offset for offset, value in records}
    missing = [value for value in acknowledged if value not in found]
    assert not missing, f"{len(missing)} acknowledged records are gone, first {missing[0]!r}"
    moved = [value for value, offset in acknowledged.items() if found[value] != offset and offset >= 0]
    assert not moved, f"{len(moved)} records lie at another offset than acknowledged, first {moved[0]!r}"


def test_acknowledged_records_survive_kill9(node: NodeProcess) -> None:
    """I-01 to I-04 with real processes: ten kills while producing with acks=all, one producer throughout."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    address = node.start()
    _create_topic(address)
    acknowledgments = Acknowledgments()
    with Producer(bootstrap_servers=address, linger_ms=1, batch_size=4_096, retry_backoff_max_ms=200) as producer:
        with Load(producer, acknowledgments) as load:
            for _ in range(ROUNDS):
                acknowledgments.wait_for(ACKS_PER_ROUND)
                time.sleep(moments.uniform(0, 0.05))  # the moment of the fault, not a synchronisation
                acknowledged = {partition: acknowledgments.of(partition) for partition in range(PARTITIONS)}
                node.kill9()
                assert node.start() == address
                stored = _read_all(address)
                for partition in range(PARTITIONS):
                    _check(stored[partition], acknowledged[partition], list(load.sent[partition]))
        producer.flush(timeout=WAIT_S)
    assert not acknowledgments.failures
    stored = _read_all(address)
    for partition in range(PARTITIONS):
        acknowledged_here = acknowledgments.of(partition)
        assert len(acknowledged_here) == len(load.sent[partition]) == len(stored[partition])
        _check(stored[partition], acknowledged_here, load.sent[partition])


def test_sigterm_stops_in_order_and_the_next_start_needs_no_recovery(node: NodeProcess) -> None:
    """The clean-shutdown marker is there after the stop and gone while the node runs; nothing is lost."""
    address = node.start()
    _create_topic(address)
    marker = node.log_dir / CLEAN_SHUTDOWN_FILE
    assert not marker.exists()
    with Producer(bootstrap_servers=address) as producer:
        offsets = [producer.send(TOPIC, b"%d" % number, partition=0).result(WAIT_S).offset for number in range(10)]
    assert offsets == list(range(10))
    assert node.stop() == 0
    assert marker.exists()
    assert "Traceback" not in node.output
    assert node.start() == address
    assert not marker.exists()
    assert [value for _, value in _read_all(address)[0]] == [b"%d" % number for number in range(10)]
    with Producer(bootstrap_servers=address) as producer:
        assert producer.send(TOPIC, b"next", partition=0).result(WAIT_S).offset == 10
    assert node.stop() == 0


def test_a_node_that_is_killed_twice_while_it_recovers_still_finds_everything(node: NodeProcess) -> None:
    """Recovery may be interrupted and begun again."""
    address = node.start()
    _create_topic(address)
    with Producer(bootstrap_servers=address) as producer:
        for number in range(200):
            producer.send(TOPIC, b"%d" % number, partition=0)
        producer.flush(timeout=WAIT_S)
        node.kill9()
    for _ in range(2):
        node.start()
        node.kill9()
    node.start()
    assert [value for _, value in _read_all(address)[0]] == [b"%d" % number for number in range(200)]
