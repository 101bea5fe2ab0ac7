"""Apache Kafka's own `kafka-dump-log` reads the files that a node wrote: a check that nobody here wrote.

Needs Java 17 and Maven; the jars come from Maven Central (`benchmarks/peers/peer_kafka.sh`).
"""

import re
from pathlib import Path

import pytest

from benchmarks.peers import kafka
from kraftlog import Admin, Consumer, Producer
from kraftlog.sdk.types import NewTopic
from kraftlog.testing import NodeProcess
from tests.peers.dump_agreement import complaints_in

pytestmark = pytest.mark.deep

COUNT = 6000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    """A node's directory after an orderly stop: several segments of every codec, group commits, a snapshot."""
    kafka.peer("setup")
    node = NodeProcess(tmp_path_factory.mktemp("node"))
    with node:
        address = node.start()
        with Admin(bootstrap_servers=address) as admin:
            configs = {"segment.bytes": "65536", "index.interval.bytes": "512"}
            admin.create_topics([NewTopic(name="dumped", num_partitions=1, configs=configs)])
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with Producer(bootstrap_servers=address, compression_type=codec, batch_size=4096) as producer:
                for i in range(COUNT // 5):
                    value = f"{codec} value {i} ".encode() * 5
                    producer.send("dumped", value, key=b"k%d" % i, headers=[("codec", codec.encode())])
        with Consumer(bootstrap_servers=address, group_id="dumpers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["dumped"])
            read = 0
            while read < COUNT:
                read += sum(len(records) for records in consumer.poll(timeout_ms=1000).values())
            consumer.commit()
        assert node.stop() == 0
    return node


def segments(node: NodeProcess) -> list[Path]:
    found = sorted((node.log_dir / "dumped-0").glob("*.log"))
    assert len(found) > 3
    return found


def test_kafka_reads_every_record_of_every_segment(node: NodeProcess) -> None:
    """Offsets, keys and values of all codecs, deep into the batches."""
    output = kafka.dump_log("--files", ",".join(map(str, segments(node))), "--print-data-log", "--deep-iteration")
    assert complaints_in(output) == []
    offsets = [int(number) for number in re.findall(r"^\|? *offset: (\d+)", output, re.MULTILINE)]
    assert offsets == list(range(COUNT))
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"payload: {codec} value 7 {codec} value 7" in output


def test_kafka_finds_both_indexes_in_agreement_with_the_log(node: NodeProcess) -> None:
    for log in segments(node):
        files = [log.with_suffix(".index"), log.with_suffix(".timeindex")]
        output = kafka.dump_log("--files", ",".join(map(str, files)))
        assert complaints_in(output) == [], log
        assert "offset:" in output


def test_kafka_reads_the_producer_snapshot(node: NodeProcess) -> None:
    snapshots = sorted((node.log_dir / "dumped-0").glob("*.snapshot"))
    assert snapshots
    output = kafka.dump_log("--files", snapshots[-1])
    assert complaints_in(output) == []
    assert "producerId:" in output


def test_kafka_decodes_the_group_coordinators_records(node: NodeProcess) -> None:
    """`--offsets-decoder` understands keys and values of __consumer_offsets."""
    decoded = ""
    for log in sorted(node.log_dir.glob("__consumer_offsets-*/*.log")):
        if log.stat().st_size:
            decoded += kafka.dump_log("--files", log, "--offsets-decoder", "--print-data-log")
    assert "dumpers" in decoded
    assert '"offset":6000' in decoded.replace(" ", "")
    assert '"protocolType":"consumer"' in decoded.replace(" ", "")


def test_a_planted_error_is_complained_of(node: NodeProcess, tmp_path: Path) -> None:
    """The check can fail: an index entry that points elsewhere is reported."""
    log = segments(node)[0]
    (tmp_path / log.name).write_bytes(log.read_bytes())
    index = bytearray(log.with_suffix(".index").read_bytes())
    index[0:4] = (int.from_bytes(index[0:4]) + 1).to_bytes(4)
    planted = tmp_path / log.with_suffix(".index").name
    planted.write_bytes(index)
    assert complaints_in(kafka.dump_log("--files", planted)) != []
