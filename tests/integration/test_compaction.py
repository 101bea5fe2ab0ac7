"""Compacted topics on a real node: what is left of them for readers of every kind, through kills and damage."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from kraftlog import Admin, Consumer, NewTopic, Producer, TopicPartition
from kraftlog.sdk.ranges import RangeReader
from kraftlog.sdk.types import LogDescription
from kraftlog.testing import Cluster, NodeProcess, cluster

pytestmark = pytest.mark.processes

SEGMENT_BYTES = 4_000
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0"}
NODE = {"log.cleaner.backoff.ms": "20", "group.initial.rebalance.delay.ms": "0"}
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with cluster(config=NODE) as running:
        yield running


@pytest.fixture(scope="module")
def admin(node: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=node.bootstrap_servers) as client:
        yield client


@pytest.fixture
def tp(admin: Admin, request: pytest.FixtureRequest) -> TopicPartition:
    """The only partition of a compacted topic that is named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    admin.create_topics([NewTopic(name=name, num_partitions=1, configs=COMPACTED)])
    return TopicPartition(name, 0)


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not in {TIMEOUT_S} s: {what}"


def log_of(admin: Admin, tp: TopicPartition) -> LogDescription:
    [log_dir] = admin.describe_log_dirs(topics=[tp.topic])
    [log] = [log for log in log_dir.logs if log.partition == tp.partition]
    return log


def overwrite(servers: str, tp: TopicPartition, seed: int, count: int, **options: object) -> dict[bytes, bytes | None]:
    """Write values of random keys, some of them tombstones; the last of each."""
    chooser = random.Random(seed)
    last: dict[bytes, bytes | None] = {}
    with Producer(bootstrap_servers=servers, linger_ms=1, batch_size=600, **options) as producer:  # type: ignore[arg-type]
        futures = []
        for number in range(count):
            key = b"k%d" % chooser.randrange(40)
            last[key] = None if chooser.random() < 0.1 else b"%d of seed %d " % (number, seed) + b"v" * 60
            futures.append(producer.send(tp.topic, last[key], key=key, partition=tp.partition))
        for future in futures:
            future.result(TIMEOUT_S)
    return last


def seal(servers: str, tp: TopicPartition) -> int:
    """Let everything before be in closed segments, and one record in the last one: its offset."""
    with Producer(bootstrap_servers=servers) as producer:
        filler = b"-" * (SEGMENT_BYTES - 100)  # with its batch just one segment
        return [
            producer.send(tp.topic, filler, key=b"filler", partition=tp.partition).result(TIMEOUT_S).offset
            for _ in range(2)
        ][1]


def wait_compacted(admin: Admin, tp: TopicPartition, offset: int) -> None:
    until(lambda: log_of(admin, tp).cleaned_to_offset == offset, f"{tp} compacted up to {offset}")


def read_all(servers: str, tp: TopicPartition, **options: object) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) from the earliest offset on until the position is at the end."""
    found = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        deadline = time.monotonic() + TIMEOUT_S
        while consumer.position(tp) < end:
            assert time.monotonic() < deadline, f"stuck at {consumer.position(tp)} of {end}"
            for record in consumer.poll(200).get(tp, ()):
                assert record.key is not None
                found.append((record.offset, record.key, record.value))
        assert consumer.position(tp) == end
    return found


def without_filler(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes | None]:
    """The records by key, of which there is one each."""
    kept = [(key, value) for _, key, value in records if key != b"filler"]
    assert len(dict(kept)) == len(kept), "an old value is still there"
    return dict(kept)


def test_a_reader_of_everything_finds_the_last_value_of_each_key(
    node: Cluster, admin: Admin, tp: TopicPartition
) -> None:
    """Plain, idempotent and compressed batches; the position of a group reaches the end, its lag 0."""
    seed = random.randrange(2**31)
    print(f"seed={seed}")
    servers = node.bootstrap_servers
    last = overwrite(servers, tp, seed, 300, enable_idempotence=False)
    for number, compression in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        last |= overwrite(servers, tp, seed + number, 150, compression_type=compression)
    end = seal(servers, tp)
    wait_compacted(admin, tp, end)
    log = log_of(admin, tp)
    assert (log.log_start_offset, log.log_end_offset, log.cleanup_policy) == (0, end + 1, ("compact",))
    assert log.size_bytes < 3 * SEGMENT_BYTES + 100 * 200, "2 fillers and 40 records, and what is kept of producers"
    assert without_filler(read_all(servers, tp)) == last
    assert without_filler(read_all(servers, tp, max_partition_fetch_bytes=1, fetch_max_bytes=1)) == last
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_partition_fetch_bytes=1) as consumer:
        consumer.assign([tp])
        one_by_one = [
            (each.offset, each.key or b"", each.value) for each in takewhile(lambda r: r.offset < end, consumer)
        ]
        assert without_filler(one_by_one) == last
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", group_id=tp.topic) as consumer:
        consumer.subscribe([tp.topic])
        rows: list[tuple[bytes, bytes | None]] = []

        def is_at_end() -> bool:
            table = consumer.poll_arrow(200, columns=["key", "value"])
            rows.extend((row["key"], row["value"]) for row in table.to_pylist())
            return tp in consumer.assignment() and consumer.position(tp) == end + 1

        until(is_at_end, "the group at the end")
        consumer.commit()
    assert {key: value for key, value in rows if key != b"filler"} == last
    assert [offset.lag for offset in admin.list_group_offsets(tp.topic)] == [0]


def test_ranges_of_a_compacted_topic_hold_what_is_left_in_them(node: Cluster, admin: Admin, tp: TopicPartition) -> None:
    """What a Spark task reads: ranges that begin, end or lie inside of gaps end nevertheless."""
    seed = random.randrange(2**31)
    print(f"seed={seed}")
    servers = node.bootstrap_servers
    for number in range(4):
        overwrite(servers, tp, seed + number, 60)
    end = seal(servers, tp)
    wait_compacted(admin, tp, end)
    left = [offset for offset, _, _ in read_all(servers, tp)]
    assert left != list(range(end + 1))
    chooser = random.Random(seed)
    gap = next(number for number in range(len(left) - 1) if left[number + 1] - left[number] > 2)
    ranges = [(0, end + 1), (left[gap] + 1, left[gap + 1]), (left[gap], left[gap] + 2)]
    ranges += [tuple(sorted(chooser.sample(range(end + 2), 2))) for _ in range(6)]
    with RangeReader({"bootstrap_servers": servers}, columns=["offset"]) as reader:
        for start, stop in ranges:
            batches = reader.read([(tp.topic, tp.partition, start, stop)])
            found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            assert found == [offset for offset in left if start <= offset < stop], (start, stop)


def test_a_kill_in_the_middle_of_compaction_loses_nothing(tmp_path: Path) -> None:
    """Three kills while a segment is being written anew; every key's last value is there after each, and at the end only
    that."""
    seed = random.randrange(2**31)
    print(f"seed={seed}")
    # A pass reads and writes some 150 kB, so it takes about half a second.
    slow = {**NODE, "log.cleaner.io.max.bytes.per.second": "300000"}
    with NodeProcess(tmp_path / "node", config=slow) as node:
        node.start()
        servers, tp = node.address, TopicPartition("killed", 0)
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(name=tp.topic, num_partitions=1, configs=COMPACTED)])
        last: dict[bytes, bytes | None] = {}
        directory = node.log_dir / "killed-0"
        for number in range(3):
            last |= overwrite(servers, tp, seed + number, 400)
            until(lambda: any(directory.glob("*.cleaned")), "a compaction that runs")
            node.kill9()
            node.start()
            assert not list(directory.glob("*.swap"))
            found = read_all(servers, tp)
            assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
            assert {key: value for _, key, value in found} == last
        end = seal(servers, tp)
        with Admin(bootstrap_servers=servers) as admin:
            wait_compacted(admin, tp, end)
        assert without_filler(read_all(servers, tp)) == last
        assert node.stop() == 0


def test_a_damaged_log_is_shown_and_the_others_go_on_being_compacted(tmp_path: Path) -> None:
    with (
        cluster(config=NODE, directory=tmp_path) as running,
        Admin(bootstrap_servers=running.bootstrap_servers) as admin,
    ):
        servers = running.bootstrap_servers
        bad, good = TopicPartition("bad", 0), TopicPartition("good", 0)
        admin.create_topics([NewTopic(name=tp.topic, num_partitions=1, configs=COMPACTED) for tp in (bad, good)])
        with Producer(bootstrap_servers=servers) as producer:  # into the growing segment, which is not compacted
            producer.send(bad.topic, b"value", key=b"key").result(TIMEOUT_S)
        segment = running.nodes[0].log_dir / "bad-0" / f"{0:020d}.log"
        with segment.open("r+b") as file:
            file.seek(66)
            file.write(b"\xff")
        seal(servers, bad)
        until(lambda: log_of(admin, bad).uncleanable_reason != "", "the damage is met")
        last = overwrite(servers, good, 1, 200)
        wait_compacted(admin, good, seal(servers, good))
        assert without_filler(read_all(servers, good)) == last

        log = log_of(admin, bad)
        assert f"{segment}: no valid batch at position 0" in log.uncleanable_reason
        assert 0 < log.uncleanable_since_ms <= time.time() * 1000
        assert (log.problem, log.cleaned_to_offset, log.log_end_offset) == ("", 0, 3)
        assert seal(servers, bad) == 4, "it takes writes"
        assert (log_of(admin, good).uncleanable_reason, log_of(admin, good).uncleanable_since_ms) == ("", -1)

        [log_dir] = json.loads(kraftctl(servers, "broker", "log-dirs", "--format", "json"))
        assert (log_dir["node_id"], log_dir["path"], log_dir["error"]) == (1, str(running.nodes[0].log_dir), "")
        shown = {(each["topic"], each["partition"]): each for each in log_dir["logs"]}
        assert {("bad", 0), ("good", 0), ("__cluster_metadata", 0)} == shown.keys()
        assert shown["bad", 0]["uncleanable_reason"] == log.uncleanable_reason
        assert log_dir["size_bytes"] == sum(each["size_bytes"] for each in log_dir["logs"])
        text = kraftctl(servers, "broker", "log-dirs", "bad", "--node", "1")
        assert "bad-0 is not compacted since 20" in text
        assert log.uncleanable_reason in text
        assert "good" not in text


def kraftctl(servers: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "kraftlog.sdk.cli.main", *arguments, "-b", servers]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
