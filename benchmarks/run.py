"""`make bench`: kraftlog beside Apache Kafka on this machine, in one run, as one table of rates and ratios.

    python benchmarks/run.py [--quick] [--runs 3] [--skip-spark] [--output benchmarks/RESULTS.md]
    python benchmarks/run.py --only quorum replication [--quick] [--output benchmarks/RESULTS.md]

Kafka is driven by its own Java tools at their best settings (1 MiB batches), kraftlog by its SDK. Each case runs
alternately, `--runs` times after a warm-up, and the medians are compared, since absolute figures move with the load of
the machine. Kafka acknowledges from the page cache; like for like with it is kraftlog's `flush.policy=interval`.
Tables of programs of their own follow (`OWN_TABLES`); `--only` measures some of them, and replaces those in the file.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from peers.kafka import Kafka, peer, peers_home

from kraftlog import Admin, NewTopic, Producer
from kraftlog.testing.processes import NodeProcess

HERE = Path(__file__).parent
OWN_TABLES = {
    "Log store": "bench_logstore.py",
    "Log compaction": "bench_cleaner.py",
    "Quorum": "bench_quorum.py",
    "Replication": "bench_replication.py",
    "Start-up": "bench_startup.py",
}
"""Heading and program, which prints a table and takes `--quick`."""
OWN_TABLE_MAX_S = 3600

SPARK_CONNECTOR = "4.2.0"  # the newest on Maven Central; it runs on PySpark 4.3


@dataclass(frozen=True, slots=True)
class Case:
    """One row: what moves how many records of which size."""

    what: str
    size_bytes: int
    count: int
    partitions: int
    acks: str = "all"
    policy: str = "interval"

    @property
    def title(self) -> str:
        acks = f", acks={self.acks}" if self.what == "produce" else ""
        policy = f", flush.policy={self.policy}" if self.what == "produce" else ""
        plural = "s" if self.partitions > 1 else ""
        return f"{self.what}, {self.size_bytes:,} B, {self.partitions} partition{plural}{acks}{policy}"


def cases(quick: bool) -> Iterator[Case]:
    scale = 10 if quick else 1
    for size, count in ((1000, 1_000_000 // scale), (100, 2_000_000 // scale)):
        for partitions in (1, 4):
            for acks in ("1", "all"):
                for policy in ("interval", "ack"):
                    yield Case("produce", size, count, partitions, acks, policy)
        for partitions in (1, 4):
            yield Case("consume", size, count, partitions)
            yield Case("arrow", size, count, partitions)


class Kraftlog:
    """A fresh kraftlog node with the measured client processes."""

    def __init__(self, directory: Path) -> None:
        self._node = NodeProcess(directory)

    def __enter__(self) -> "Kraftlog":
        self.bootstrap_servers = self._node.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._node.stop()

    @property
    def pid(self) -> int:
        assert self._node.pid is not None
        return self._node.pid

    def create_topic(self, name: str, partitions: int, policy: str) -> None:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name=name, num_partitions=partitions, configs={"flush.policy": policy})])

    def delete_topic(self, name: str) -> None:
        with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            admin.delete_topics([name])

    def move(self, case: Case, topic: str) -> float:
        """Records per second of one worker process."""
        command = [sys.executable, str(HERE / "workers.py"), case.what, "--bootstrap", self.bootstrap_servers]
        command += ["--topic", topic, "--count", str(case.count), "--size", str(case.size_bytes)]
        command += ["--partitions", str(case.partitions), "--acks", case.acks]
        return case.count / float(_json_of(command)["seconds"])


def _json_of(command: list[str]) -> dict[str, float]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def resident_mib(pid: int) -> float:
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def alternate(runs: int, ours: Callable[[int], float], peers: Callable[[int], float]) -> tuple[float, float]:
    """Medians of both sides, run in turn; run 0 warms up."""
    figures = [(ours(run), peers(run)) for run in range(runs + 1)][1:]
    return statistics.median(a for a, _ in figures), statistics.median(b for _, b in figures)


class Bench:
    def __init__(self, kraftlog: Kraftlog, kafka: Kafka, runs: int) -> None:
        self._kraftlog, self._kafka, self._runs = kraftlog, kafka, runs
        self._filled: set[str] = set()

    def rates(self, case: Case) -> tuple[float, float]:
        return self._produce(case) if case.what == "produce" else self._consume(case)

    def _produce(self, case: Case) -> tuple[float, float]:
        def ours(run: int) -> float:
            topic = f"p{run}"
            self._kraftlog.create_topic(topic, case.partitions, case.policy)
            rate = self._kraftlog.move(case, topic)
            self._kraftlog.delete_topic(topic)
            return rate

        def peers(run: int) -> float:
            topic = f"p{time.monotonic_ns()}"  # Kafka deletes in the background: a name is used once
            self._kafka.create_topic(topic, case.partitions)
            rate = self._kafka.produce(topic, case.count, case.size_bytes, case.acks)
            self._kafka.delete_topic(topic)
            return rate

        return alternate(self._runs, ours, peers)

    def _consume(self, case: Case) -> tuple[float, float]:
        topic = self.filled_topic(case)
        return alternate(
            self._runs,
            lambda run: self._kraftlog.move(case, topic),
            lambda run: self._kafka.consume(topic, case.count),
        )

    def filled_topic(self, case: Case) -> str:
        """A topic with the case's records on both sides, written once."""
        topic = f"data-{case.size_bytes}-{case.partitions}"
        if topic not in self._filled:
            self._kraftlog.create_topic(topic, case.partitions, "interval")
            fill = Case("produce", case.size_bytes, case.count, case.partitions)
            self._kraftlog.move(fill, topic)
            self._kafka.create_topic(topic, case.partitions)
            self._kafka.produce(topic, case.count, case.size_bytes, "all")
            self._filled.add(topic)
        return topic


def spark_rates(bench: Bench, case: Case, kraftlog: Kraftlog, kafka: Kafka, runs: int) -> tuple[float, float]:
    topic = bench.filled_topic(case)
    medians = []
    for side, bootstrap in (("kraftlog", kraftlog.bootstrap_servers), ("kafka", kafka.bootstrap_servers)):
        command = [sys.executable, str(HERE / "spark_read.py"), side, "--bootstrap", bootstrap, "--topic", topic]
        command += ["--count", str(case.count), "--size", str(case.size_bytes), "--runs", str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr[-3000:]}")
        seconds = json.loads(done.stdout.splitlines()[-1])["seconds"]
        medians.append(case.count / statistics.median(seconds))
    return medians[0], medians[1]


def fetch_spark_connector() -> None:
    """Spark's Kafka connector from Maven Central, once."""
    target = peers_home() / "spark-lib"
    if any(target.glob("spark-sql-kafka-*")):
        return
    pom = peers_home() / "pom-spark"
    pom.mkdir(parents=True, exist_ok=True)
    (pom / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kraftlog.benchmarks</groupId><artifactId>spark-kafka</artifactId><version>1</version>"
        "<packaging>pom</packaging><dependencies><dependency><groupId>org.apache.spark</groupId>"
        f"<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>{SPARK_CONNECTOR}</version>"
        "</dependency></dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    subprocess.run(command, cwd=pom, check=True)


def start_to_first_ack(directory: Path) -> tuple[float, float]:
    """Seconds from the start of the process to the first acknowledged record: a new node, and one with a log."""
    seconds = []
    node = NodeProcess(directory)
    for _ in range(2):
        started = time.perf_counter()
        address = node.start()
        with Producer(bootstrap_servers=address) as producer, Admin(bootstrap_servers=address) as admin:
            if not admin.list_topics():
                admin.create_topics([NewTopic(name="first", num_partitions=1)])
            producer.send("first", b"x").result(10)
            seconds.append(time.perf_counter() - started)
        node.stop()
    return seconds[0], seconds[1]


def kafka_start_to_first_ack() -> float:
    """The same for Kafka, already formatted; the tool's own JVM start is part of it, as a user would wait for it."""
    peer("format", 1)
    started = time.perf_counter()
    peer("up")
    peer("wait")
    seconds = time.perf_counter() - started
    peer("stop")
    return seconds


def own_table(heading: str, quick: bool) -> list[str]:
    """The section of the file, from its heading on."""
    command = [sys.executable, str(HERE / OWN_TABLES[heading]), *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=OWN_TABLE_MAX_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr[-2000:]}")
    return [f"## {heading}", "", f"{time.strftime('%Y-%m-%d')}, `{OWN_TABLES[heading]}`", "", *done.stdout.splitlines()]


def with_section(text: str, section: Sequence[str]) -> str:
    """The file with this section in the place of the one of the same heading, or at its end."""
    parts = [part.rstrip("\n") for part in text.split("\n## ")]
    headings = ["## " + part.partition("\n")[0] for part in parts]
    place = headings.index(section[0]) if section[0] in headings else len(parts)
    parts[place : place + 1] = ["\n".join(section).removeprefix("## ")]
    return "\n\n## ".join(parts) + "\n"


def measure_only(headings: Sequence[str], quick: bool, output: Path | None) -> None:
    for heading in headings:
        section = own_table(heading, quick)
        print("\n".join(section), flush=True)
        if output is not None:
            output.write_text(with_section(output.read_text(encoding="utf-8"), section), encoding="utf-8")


def machine() -> list[str]:
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[0]
    import kraftlog

    return [
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({model}), Linux {platform.release()}, "
        f"Python {platform.python_version()}, {java}",
        f"kraftlog {kraftlog.__version__} (codec {kraftlog.codec}), grpcio {version('grpcio')}, "
        f"PySpark {version('pyspark')}; Apache Kafka 4.4.0, Spark's Kafka connector {SPARK_CONNECTOR}",
    ]


def row(title: str, ours: float, peers: float, size_bytes: int) -> str:
    return (
        f"| {title} | {ours:,.0f} ({ours * size_bytes / 1e6:,.0f} MB/s) | "
        f"{peers:,.0f} ({peers * size_bytes / 1e6:,.0f} MB/s) | {ours / peers:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--skip-spark", action="store_true")
    by_name = {heading.lower(): heading for heading in OWN_TABLES}
    parser.add_argument("--only", nargs="+", choices=by_name, metavar="TABLE", help=f"of {', '.join(by_name)}")
    parser.add_argument("--output", type=Path, help="write the table to this file as well")
    options = parser.parse_args()
    if options.only and options.output is not None and not options.output.is_file():
        parser.error(f"--only replaces tables in a file of results, and there is no {options.output}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    if options.only:
        measure_only([by_name[name] for name in options.only], options.quick, options.output)
        return
    runs = 1 if options.quick else options.runs
    load = os.getloadavg()[0]
    lines = ["# kraftlog beside Apache Kafka", "", *machine(), ""]
    lines += ["| records/s, median | kraftlog | Kafka | ratio |", "|---|---|---|---|"]
    print("\n".join(lines), flush=True)

    def emit(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory(prefix="kraftlog-bench-") as scratch:
        cold, warm = start_to_first_ack(Path(scratch, "start"))
        with Kraftlog(Path(scratch, "node")) as kraftlog, Kafka() as kafka:
            bench = Bench(kraftlog, kafka, runs)
            for case in cases(options.quick):
                emit(row(case.title, *bench.rates(case), case.size_bytes))
            if not options.skip_spark:
                fetch_spark_connector()
                for size, count in ((1000, 1_000_000), (100, 2_000_000)):
                    case = Case("Spark batch read", size, count // (10 if options.quick else 1), 4)
                    emit(row(case.title, *spark_rates(bench, case, kraftlog, kafka, runs), size))
            ours, peers = resident_mib(kraftlog.pid), resident_mib(kafka.pid)
        kafka_start = kafka_start_to_first_ack()
    emit("")
    emit(f"Memory of the node after the run: kraftlog {ours:,.0f} MiB, Kafka {peers:,.0f} MiB ({ours / peers:.2f}).")
    emit(
        f"Start of a new node to the first acknowledged record: kraftlog {cold:.2f} s, with an existing log "
        f"{warm:.2f} s; Kafka, formatted, until it says that it has started: {kafka_start:.1f} s."
    )
    emit("")
    emit(
        f"How it was measured: `make bench`, {runs} run{'s' if runs > 1 else ''} of each case after a warm-up, kraftlog and "
        f"Kafka in turn; load of the machine at the start {load:.1f}."
    )
    for heading in OWN_TABLES:
        emit("")
        for line in own_table(heading, options.quick):
            emit(line)
    if options.output:
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
