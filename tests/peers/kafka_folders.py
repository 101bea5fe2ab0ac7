"""Log directories that Apache Kafka writes, and what Kafka itself says of them.

    directory = write_log_dir(scratch, seed=1, rounds=30, ending="clean")     # a path; expected.json lies beside
    .venv/bin/python -m tests.peers.kafka_folders                             # makes tests/data/kafka_folders anew

One Kafka node on loopback, its own clients (`KafkaClients.java`), random records. The topics, each with one partition and
several segments:

    codecs        the five codecs; keys, values and headers that may be null; timestamps in any order
    stamped       message.timestamp.type=LogAppendTime
    transactions  transactional producers beside idempotent ones, commits, aborts, one transaction left open
    compacted     cleaned: superseded records, tombstones and aborted data are gone, tombstones and markers have a horizon
    swept         cleaned again with delete.retention.ms=0: tombstones and markers are gone, emptied batches stay
    deleted       records deleted up to the middle of a segment

Endings: "clean" stops the node in order, "killed" with SIGKILL right after the last command.
Needs a JDK 17 and Maven; the jars come from Maven Central (`benchmarks/peers/peer_kafka.sh`).
"""

import base64
import json
import os
import random
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers import kafka
from tests.unit.logstore.kafka_dump import Lines, parse_dump

VECTORS = Path(__file__).parents[1] / "data" / "kafka_folders"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_700_000_000_000
_SEGMENT_CONFIGS = {
    "internal.segment.bytes": 1500,
    "segment.index.bytes": 800,  # what a killed node leaves of an index is this long
    "index.interval.bytes": 200,
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
}
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.01, **_SEGMENT_CONFIGS}
TOPICS = {
    "codecs": _SEGMENT_CONFIGS,
    "stamped": {"message.timestamp.type": "LogAppendTime", **_SEGMENT_CONFIGS},
    "transactions": _SEGMENT_CONFIGS,
    "compacted": {**_COMPACTED, "delete.retention.ms": 86_400_000},
    "swept": {**_COMPACTED, "delete.retention.ms": 0},
    "deleted": _SEGMENT_CONFIGS,
}
_BROKER_CONFIGS = """
log.cleaner.backoff.ms=100
log.cleaner.dedupe.buffer.size=2097152
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
offsets.topic.num.partitions=2
transaction.state.log.num.partitions=2
"""
_TIMEOUT_S = 60


class KafkaNode:
    """A fresh Kafka with the clients that talk to it; `log_dir` is its directory. `end` also after a failed `start`."""

    def __init__(self, scratch: Path) -> None:
        kafka.peer("setup")
        scratch.mkdir(parents=True, exist_ok=True)
        extra = scratch / "broker.properties"
        extra.write_text(_BROKER_CONFIGS)
        self._env = {"KAFKA_DATA": str(scratch / "kafka"), "KAFKA_EXTRA": str(extra), "KAFKA_HEAP_OPTS": "-Xmx512M"}
        self.log_dir = scratch / "kafka" / "1" / "logs"
        self._clients: subprocess.Popen[str] | None = None
        self._servers = ""

    def start(self) -> None:
        self._servers = kafka.peer("start", 1, env=self._env)

    def __call__(self, *words: object) -> list[list[str]]:
        """One command of `KafkaClients.java`; the fields of each line of its answer."""
        if self._clients is None:
            command = [kafka.SCRIPT, "java", Path(__file__).with_name("KafkaClients.java"), self._servers]
            self._clients = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | self._env
            )
        assert self._clients.stdin is not None
        assert self._clients.stdout is not None
        self._clients.stdin.write("\t".join(map(str, words)) + "\n")
        self._clients.stdin.flush()
        answer = []
        for line in iter(self._clients.stdout.readline, ".\n"):
            if not line or line.startswith("! "):
                raise RuntimeError(f"{words[:3]}: {line}")
            answer.append(line.rstrip("\n").split("\t"))
        return answer

    def topic(self, name: str, configs: dict[str, Any]) -> None:
        self("topic", name, *(f"{key}={value}" for key, value in configs.items()))

    def producer(self, name: str, **configs: object) -> None:
        self("producer", name, *(f"{key.replace('_', '.')}={value}" for key, value in configs.items()))

    def segments(self, topic: str) -> list[Path]:
        return sorted((self.log_dir / f"{topic}-0").glob("*.log"))

    def wait_until_cleaned(self, topic: str) -> None:
        """Until Kafka's cleaner has gone through everything but the last segment."""
        wait_until(lambda: self._cleaned_end(topic) >= int(self.segments(topic)[-1].stem))

    def _cleaned_end(self, topic: str) -> int:
        text = (self.log_dir / "cleaner-offset-checkpoint").read_text()
        found = re.search(rf"^{topic} 0 (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else -1

    def end(self, ending: str) -> None:
        """Stop the node: in order ("clean") or not ("killed")."""
        if ending == "killed":
            kafka.peer("kill9", 1, env=self._env)
        kafka.peer("stop", env=self._env)
        if self._clients is not None:
            self._clients.kill()
            self._clients.communicate()
            self._clients = None


def wait_until(condition: Callable[[], bool]) -> None:
    """Another process' files are looked at until they are so."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("Kafka did not do it in time")
        time.sleep(0.05)


class Writer:
    """Random records for the topics; what is sent where follows from the seed alone."""

    def __init__(self, node: KafkaNode, seed: int) -> None:
        self._node = node
        self._rng = random.Random(seed)
        self._count = 0

    def write_all(self, rounds: int) -> None:
        node = self._node
        for name, configs in TOPICS.items():
            node.topic(name, configs)
        for codec in CODECS:
            node.producer(codec, compression_type=codec)
            node.producer(
                f"t-{codec}", compression_type=codec, transactional_id=f"t-{codec}", transaction_timeout_ms=900_000
            )
        for topic in ("codecs", "stamped"):
            for number in range(rounds):
                self.send_batch(CODECS[number % len(CODECS)], topic)
        self.transact("transactions", rounds)
        for topic in ("compacted", "swept"):
            self.transact(topic, rounds, keys=6)
            self._pass_on(topic)
        for _ in range(2):  # a marker gets its delete horizon when its data are gone, and goes after that
            self._pass_on("swept")
        for number in range(rounds):
            self.send_batch(CODECS[number % len(CODECS)], "deleted")
        self._delete("deleted")
        node("begin", "t-lz4")
        self.send_batch("t-lz4", "transactions")
        self.send_batch("zstd", "transactions")

    def send_batch(self, producer: str, topic: str, keys: int | None = None) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            self._count += 1
            value: bytes | None = b"value %d " % self._count * rng.randrange(6)
            key: bytes | None = b"key %d" % (rng.randrange(keys) if keys else self._count)
            headers: list[object] = []
            if keys is None:
                key = rng.choice((key, key, b"", None))
                value = rng.choice((value, value, b"", None))
                for number in range(rng.choice((0, 0, 1, 3))):
                    headers += [_text(b"header %d" % number), _text(rng.choice((b"h" * number, None)))]
            elif rng.random() < 0.25:
                value = None
            timestamp = NOW_MS + self._count * 10 - rng.choice((0, 0, 0, rng.randrange(300)))
            self._node("send", producer, topic, timestamp, _text(key), _text(value), *headers)
        self._node("flush", producer)

    def transact(self, topic: str, rounds: int, keys: int | None = None) -> None:
        """Batches of several transactions at a time, and of producers without; all transactions are ended."""
        rng, running = self._rng, set[str]()
        for _ in range(rounds):
            codec = rng.choice(CODECS)
            name = rng.choice((codec, f"t-{codec}", f"t-{codec}"))
            if name.startswith("t-") and name not in running:
                self._node("begin", name)
                running.add(name)
            self.send_batch(name, topic, keys)
            if running and rng.random() < 0.4:
                self._end_one(running)
        while running:
            self._end_one(running)

    def _end_one(self, running: set[str]) -> None:
        name = self._rng.choice(sorted(running))
        running.remove(name)
        self._node(self._rng.choice(("commit", "abort")), name)

    def _pass_on(self, topic: str) -> None:
        """Start a new segment, so that all before it may be cleaned, and wait for that."""
        before = self._node.segments(topic)[-1]
        while self._node.segments(topic)[-1] == before:
            self.send_batch("none", topic, keys=6)
        self._node.wait_until_cleaned(topic)

    def _delete(self, topic: str) -> None:
        """Up to an offset inside of the third segment."""
        bases = [int(path.stem) for path in self._node.segments(topic)]
        self._node("delete", topic, bases[2] + 1)
        wait_until(lambda: int(self._node.segments(topic)[0].stem) == bases[2])


def write_log_dir(scratch: Path, *, seed: int, rounds: int, ending: str) -> Path:
    """A log directory as Kafka leaves it, with `expected.json` in it: what Kafka's clients and `kafka-dump-log` say."""
    node = KafkaNode(scratch)
    try:
        node.start()
        Writer(node, seed).write_all(rounds)
        expected = {topic: _ask_clients(node, topic) for topic in TOPICS}
    finally:
        node.end(ending)
    for topic, facts in expected.items():
        facts["dump"] = dump_folder(node.log_dir / f"{topic}-0")
    (node.log_dir / "expected.json").write_text(json.dumps(expected, indent=1))
    return node.log_dir


def _ask_clients(node: KafkaNode, topic: str) -> dict[str, Any]:
    everything = node("read", topic, "read_uncommitted")
    (offsets,) = node("offsets", topic)
    asked = sorted({int(row[1]) + more for row in everything for more in (0, 1)})
    times = [[stamp, *row] for stamp, row in zip(asked, node("times", topic, *asked), strict=True)]
    return {
        "records": everything,
        "committed": [int(row[0]) for row in node("read", topic, "read_committed")],
        "offsets": [int(offset) for offset in offsets],
        "times": times,
    }


def dump_folder(folder: Path) -> dict[str, Lines]:
    """What `kafka-dump-log` reads in a folder's `.log`, `.txnindex` and `.snapshot` files, by name."""
    names = [p for p in sorted(folder.iterdir()) if p.suffix in (".log", ".txnindex", ".snapshot") and p.stat().st_size]
    dumped = parse_dump(kafka.dump_log("--files", ",".join(map(str, names))))
    return {Path(path).name: lines for path, lines in dumped.items()}


def _text(data: bytes | None) -> str:
    return "-" if data is None else base64.b64encode(data).decode()


def _pack(log_dir: Path, target: Path) -> None:
    """What belongs to the topics and to the directory itself, without Kafka's internal topics."""
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(log_dir.iterdir()):
            if not path.name.startswith("__") and path.name != "bootstrap.checkpoint":
                archive.add(path, path.name)


def main() -> None:
    VECTORS.mkdir(exist_ok=True)
    for number, ending in enumerate(("clean", "killed")):
        with tempfile.TemporaryDirectory() as scratch:
            log_dir = write_log_dir(Path(scratch), seed=number, rounds=25, ending=ending)
            target = VECTORS / f"{ending}.tar.xz"
            _pack(log_dir, target)
            print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
