"""The log store alone, on this machine's disk, beside bare system calls: `python benchmarks/bench_logstore.py`.

Part of `make bench`. Rates are ratios to a bare loop of the same calls in the same run, in turn, since absolute figures
move with the load of the machine; the median of the rounds counts. "Target" is what the design promises.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import bench_acks

from kraftlog.logstore import Log, LogConfig, LogDir, RealFileSystem, format_log_dir, layout
from kraftlog.proto import malloc
from kraftlog.proto.records import BatchBuilder, validate_batches

MIB = 1 << 20
STAMP_MS = 1_700_000_000_000
LARGE = LogConfig(max_message_bytes=2 * MIB)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is moved; tests take little."""

    append_bytes: int = 256 * MIB
    read_bytes: int = 512 * MIB
    read_segment_bytes: int = 64 * MIB
    lookup_segments: tuple[int, ...] = (1, 10, 100, 1_000)
    lookups: int = 2_000
    recovery_bytes: int = 1 << 30
    idle_partitions: int = 1_000
    ack_partitions: tuple[int, ...] = (1, 10, 200, 1_000)
    ack_seconds: float = 5.0
    rounds: int = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One row: what was measured, and what it should be."""

    what: str
    measured: str
    target: str = ""
    is_met: bool = True

    @property
    def row(self) -> str:
        verdict = "" if not self.target else "yes" if self.is_met else "NO"
        return f"| {self.what} | {self.measured} | {self.target} | {verdict} |"


HEAD = ("| log store | measured | target | met |", "|---|---|---|---|")


def open_directory(path: Path, config: LogConfig = LARGE, *, threads: int = 1) -> LogDir:
    """Format at first, then open."""
    fs = RealFileSystem()
    format_log_dir(str(path), fs, cluster_id="c", node_id=1, directory_id="d")
    return LogDir.open(str(path), fs=fs, node_id=1, cluster_id="c", now_ms=STAMP_MS, config=config, threads=threads)


def batch_of(size_bytes: int, record_bytes: int = 1_000, timestamp: int = STAMP_MS) -> bytes:
    """One batch of about that size."""
    builder = BatchBuilder()
    value = Random(1).randbytes(min(record_bytes, size_bytes - 100))
    for _ in range(max(1, size_bytes // (len(value) + 10))):
        builder.append(timestamp, None, value)
    return builder.build()


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# Appending.


def append(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """To the page cache, beside `pwrite` of the same bytes to a file that grows."""
    for name, size_bytes, target in (("1 MiB", MIB, 0.70), ("16 KiB", 16 << 10, 0.50)):
        data = batch_of(size_bytes)
        checked = validate_batches(data, max_batch_bytes=2 * MIB)
        count = max(1, sizes.append_bytes // len(data))
        for label, batches in (("", None), (", checked by the caller as in the node", checked)):
            ratios, rates = [], []
            for _ in range(sizes.rounds):
                bare = _bare_writes(scratch / "bare", data, count)
                ours = _appends(scratch / "append", data, count, batches)
                ratios.append(bare / ours)
                rates.append(len(data) * count / ours / 1e6)
            ratio = statistics.median(ratios)
            yield Figure(
                f"append, batches of {name}{label}",
                f"{statistics.median(rates):,.0f} MB/s, {ratio:.2f} of pwrite",
                f"{target:.2f}",
                ratio >= target,
            )


def _bare_writes(path: Path, data: bytes, count: int) -> float:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    size = len(data)
    began = time.perf_counter()
    for number in range(count):
        os.pwrite(fd, data, number * size)
    seconds = time.perf_counter() - began
    os.close(fd)
    path.unlink()
    return seconds


def _appends(path: Path, data: bytes, count: int, batches: object) -> float:
    log_dir = open_directory(path)
    log = log_dir.create_log("t", 0, now_ms=STAMP_MS)
    began = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(data, leader_epoch=0, now_ms=STAMP_MS, batches=batches)  # type: ignore[arg-type]
    seconds = time.perf_counter() - began
    log_dir.delete_log("t", 0)
    log_dir.close(clean=False)
    return seconds


# Reading.


def read(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """All segments of a log that was just opened (in the page cache, none open), beside `pread` of the same files."""
    path = scratch / "read"
    log_dir = open_directory(path, LogConfig(segment_bytes=sizes.read_segment_bytes))
    fill(log_dir.create_log("t", 0, now_ms=STAMP_MS), batch_of(16 << 10), sizes.read_bytes)
    log_dir.close()
    ratios, rates = [], []
    for _ in range(sizes.rounds):
        bare = seconds_of(lambda: _bare_reads(path / "t-0"))
        log_dir = open_directory(path)
        log = log_dir.logs["t", 0]
        ours = seconds_of(lambda log=log: _reads(log))  # type: ignore[misc]
        log_dir.close()
        ratios.append(bare / ours)
        rates.append(log.size_bytes / ours / 1e6)
    ratio = statistics.median(ratios)
    yield Figure(
        "sequential read of cold-open segments, 1 MiB at a time",
        f"{statistics.median(rates):,.0f} MB/s, {ratio:.2f} of pread",
        "0.70",
        ratio >= 0.70,
    )


def fill(log: Log, data: bytes, size_bytes: int) -> None:
    """Append the batch until there is so much, and sync it."""
    batches = validate_batches(data, max_batch_bytes=2 * MIB)
    while log.size_bytes < size_bytes:
        log.append_as_leader(data, leader_epoch=0, now_ms=STAMP_MS, batches=batches)
    log.flush()


def _bare_reads(folder: Path) -> None:
    for path in sorted(folder.glob(f"*{layout.LOG_SUFFIX}")):
        fd = os.open(path, os.O_RDONLY)
        position = 0
        while data := os.pread(fd, MIB, position):
            position += len(data)
        os.close(fd)


def _reads(log: Log) -> None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = log.read(offset, MIB, end_offset=log.log_end_offset).next_offset


# Looking up.


def look_up(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """Random offsets and timestamps, by how many segments the log has."""
    costs: dict[int, tuple[float, float]] = {}
    for count in sizes.lookup_segments:
        log_dir = open_directory(scratch / f"lookup-{count}", LogConfig(segment_bytes=64 << 10))
        log = log_dir.create_log("t", 0, now_ms=STAMP_MS)
        number = 0
        while log.segment_count < count or number < 10:
            stamped = batch_of(4 << 10, 1_000, STAMP_MS + number)
            log.append_as_leader(stamped, leader_epoch=0, now_ms=STAMP_MS)
            number += 1
        log.flush()
        costs[count] = _lookup_costs(log, number, sizes)
        log_dir.close(clean=False)
    first, last = costs[sizes.lookup_segments[0]], costs[sizes.lookup_segments[-1]]
    for what, column in (("offset", 0), ("time", 1)):
        ratio = last[column] / first[column]
        measured = ", ".join(f"{count:,}: {cost[column]:.1f} µs" for count, cost in costs.items())
        yield Figure(f"lookup by {what}, segments", f"{measured} ({ratio:.1f} times)", "2.0 times", ratio <= 2.0)


def _lookup_costs(log: Log, batches: int, sizes: Sizes) -> tuple[float, float]:
    """Median microseconds of a lookup by offset (with the read of one batch) and by time."""
    randomness = Random(7)
    offsets = [randomness.randrange(log.log_end_offset) for _ in range(sizes.lookups)]
    stamps = [STAMP_MS + randomness.randrange(batches) for _ in range(sizes.lookups)]
    by_offset: list[float] = []
    by_time: list[float] = []
    for base_offset in log.segment_base_offsets:  # so that no lookup pays for opening files
        log.read(base_offset, 1, end_offset=log.log_end_offset)
    log.offset_for_time(STAMP_MS + batches)
    for offset, stamp in zip(offsets, stamps, strict=True):
        by_offset.append(seconds_of(lambda offset=offset: log.read(offset, 1, end_offset=log.log_end_offset)))  # type: ignore[misc]
        by_time.append(seconds_of(lambda stamp=stamp: log.offset_for_time(stamp)))  # type: ignore[misc]
    return 1e6 * statistics.median(by_offset), 1e6 * statistics.median(by_time)


# Starting.


def recover(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """After a crash before any recovery point was recorded: every byte is checked."""
    path = scratch / "recovery"
    log_dir = open_directory(path)
    fill(log_dir.create_log("t", 0, now_ms=STAMP_MS), batch_of(16 << 10), sizes.recovery_bytes)
    log_dir.close(clean=False)
    (path / layout.RECOVERY_POINT_FILE).unlink(missing_ok=True)
    began = time.perf_counter()
    log_dir = open_directory(path)
    seconds = time.perf_counter() - began
    size_bytes = log_dir.logs["t", 0].size_bytes
    log_dir.close(clean=False)
    measured = f"{seconds:.1f} s for {size_bytes / MIB:,.0f} MiB ({size_bytes / seconds / 1e6:,.0f} MB/s)"
    yield Figure("recovery of one log, batches of 16 KiB", measured, "10 s for 1 GiB", seconds <= 10)


MEASURE_IDLE = """
import resource, sys, time
from kraftlog.logstore import LogDir, RealFileSystem

def resident():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024

before, began = resident(), time.perf_counter()
log_dir = LogDir.open(sys.argv[1], fs=RealFileSystem(), node_id=1, cluster_id="c", now_ms=0, threads=2)
opened, after = time.perf_counter(), resident()
log_dir.close()
print(after - before, opened - began, time.perf_counter() - opened)
"""


def idle(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """Partitions that hold one record each and that nobody uses."""
    path, count = scratch / "idle", sizes.idle_partitions
    log_dir = open_directory(path)
    for number in range(count):
        log = log_dir.create_log("t", number, now_ms=STAMP_MS)
        log.append_as_leader(batch_of(200), leader_epoch=0, now_ms=STAMP_MS)
    log_dir.close()
    measured = subprocess.run(
        [sys.executable, "-c", MEASURE_IDLE, str(path)], check=True, capture_output=True, text=True
    ).stdout
    mib, opening, closing = map(float, measured.split())
    yield Figure(f"memory of {count:,} idle partitions", f"{mib:.1f} MiB", "64 MiB", mib < 64)
    yield Figure(f"opening {count:,} idle partitions", f"{opening:.2f} s", "3 s", opening < 3)
    yield Figure(f"closing {count:,} idle partitions", f"{closing:.2f} s")


def acknowledge(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    """See `bench_acks`."""
    for partitions in sizes.ack_partitions:
        acks = bench_acks.run(scratch, partitions, sizes.ack_seconds)
        plural = "s" if partitions > 1 else ""
        yield Figure(
            f"acknowledged with flush.policy=ack, {partitions:,} partition{plural}, 10 records of 100 B a batch",
            f"{acks.records_per_second:,.0f} records/s, p50 {acks.p50_ms:.1f} ms, p99 {acks.p99_ms:.1f} ms",
        )


PARTS: dict[str, Callable[[Path, Sizes], Iterator[Figure]]] = {
    "append": append,
    "read": read,
    "lookup": look_up,
    "recovery": recover,
    "idle": idle,
    "acks": acknowledge,
}


def run(parts: list[str], sizes: Sizes, directory: Path) -> Iterator[Figure]:
    """The figures of those parts, as they come; what is written goes to a folder of its own below `directory`."""
    for part in parts:
        with tempfile.TemporaryDirectory(prefix=f"kraftlog-{part}-", dir=directory) as scratch:
            yield from PARTS[part](Path(scratch), sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="one round each")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    options = parser.parse_args()
    malloc.tune()  # as a node does
    print(*HEAD, sep="\n", flush=True)
    sizes = Sizes(rounds=1, ack_seconds=1.0) if options.quick else Sizes()
    for figure in run(options.parts or list(PARTS), sizes, options.directory):
        print(figure.row, flush=True)


if __name__ == "__main__":
    main()
