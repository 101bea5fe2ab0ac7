"""Log compaction on a real disk: its speed beside a plain copy of the same files, its memory beside what it may use, and
what an event loop notices of it: `python benchmarks/bench_cleaner.py [--quick] [--directory DIR]`.

Each case writes a log of 200-byte records in batches of 16 KiB, as a producer that lingers makes them (compressed ones
are smaller in the file), syncs it and lets the page cache forget it. A process of its own then compacts it as the node
does, with steps in a thread and commits on the event loop, until nothing is dirty.

MB/s: bytes of the log's `.log` files before, by the seconds from the first pass's first step to the last one's end, all
syncs included and the looks between passes left out. A pass reads what is dirty twice and the rest of what it goes
through once, and writes what stays; "moved" is all that by the same seconds. The copy reads the same files once, after
the page cache has forgotten them as it has before each pass, and writes and syncs as much; the ratio is of MB/s.
A timer is due every millisecond; its lateness is taken before the passes and while they run.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kraftlog.logstore import Log, LogConfig, LogDir, RealFileSystem, format_log_dir
from kraftlog.logstore.cleaning import CleaningPass, Dirtiness, Step, look_for_dirt
from kraftlog.proto.records import BatchBuilder, CompressionType, iter_headers
from kraftlog.proto.records.compaction import OffsetMap
from kraftlog.replication.cleaner import DEFAULT_LIMITS
from kraftlog.server.seams import SystemClock, ThreadExecutor

RECORD_BYTES = 200
OVERHEAD_BYTES = 10  # of a record beside its key and value: lengths and deltas
BATCH_BYTES = 16 << 10  # before compression: the default of batch.size
SEGMENTS = 4
STRIDE = 7_368_787  # a prime: every round has the keys in an order that looks random
TIMER_SECONDS = 0.001
IDLE_SECONDS = 0.5
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A log, and the memory for its offset map."""

    title: str
    writes_per_key: int
    codec: CompressionType = CompressionType.NONE
    map_share: float | None = None
    """Of the keys that have room in the map; None: the default bound of log.cleaner.dedupe.buffer.size."""


CASES = (
    Case("every key 5 times", 5),
    Case("every key 5 times, lz4", 5, CompressionType.LZ4),
    Case("every key once", 1),
    Case("every key once, lz4", 1, CompressionType.LZ4),
    Case("every key 5 times, map far too small", 5, map_share=0.3),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of compacting one log."""

    passes: int
    moved_bytes: int
    """Read and written."""
    left_records: int
    left_bytes: int
    seconds: float
    map_bytes: int
    """What the largest offset map took."""
    grown_bytes: int
    """Highest resident memory of the process while it compacted, less that before."""
    idle_ms: tuple[float, float]
    """Lateness of the timer, 99th percentile and worst, with nothing else to do."""
    busy_ms: tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000, help="of uncompressed records in each log")
    parser.add_argument("--quick", action="store_true", help="a tenth of that")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: where temporary files go")
    options = parser.parse_args()
    megabytes = options.megabytes / (10 if options.quick else 1)
    bound = DEFAULT_LIMITS.map_bytes
    print("\n".join(headings(megabytes)), flush=True)
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="kraftlog-bench-", dir=options.directory) as directory:
            count = int(megabytes * 1e6 / RECORD_BYTES)
            keys = count // case.writes_per_key
            map_bytes = bound if case.map_share is None else int(24 * keys * case.map_share)
            log_bytes = write_log(Path(directory), case, count, keys)
            copied = copy_seconds(Path(directory))
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                found = process.submit(compact, directory, map_bytes).result()
            if found.left_records != keys:
                raise SystemExit(f"{case.title}: {found.left_records} records of {keys} keys are left")
            print(row(case.title, log_bytes, copied, map_bytes, found), flush=True)


def headings(megabytes: float) -> list[str]:
    columns = (
        f"compaction of {megabytes:,.0f} MB of {RECORD_BYTES} B records",
        "log MB, passes, left MB",
        "MB/s",
        "moved MB/s",
        "copy MB/s",
        "ratio",
        "map MiB of bound",
        "process grew MiB",
        "timer late ms, p99 (worst): idle, busy",
    )
    return [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]


def row(title: str, log_bytes: int, copied: float, map_bytes: int, found: Figures) -> str:
    rate, copy_rate = log_bytes / found.seconds / 1e6, log_bytes / copied / 1e6
    moved_rate = found.moved_bytes / found.seconds / 1e6
    idle, busy = (f"{p99:.1f} ({worst:.1f})" for p99, worst in (found.idle_ms, found.busy_ms))
    return (
        f"| {title} | {log_bytes / 1e6:,.0f}, {found.passes}, {found.left_bytes / 1e6:,.0f} "
        f"| {rate:,.0f} | {moved_rate:,.0f} | {copy_rate:,.0f} | {rate / copy_rate:.2f} "
        f"| {found.map_bytes / MIB:,.1f} of {map_bytes / MIB:,.1f} | {found.grown_bytes / MIB:,.1f} | {idle}, {busy} |"
    )


# The log.


def open_log_dir(directory: Path, segment_bytes: int = 1 << 30) -> LogDir:
    format_log_dir(str(directory), RealFileSystem(), cluster_id="c", node_id=1, directory_id="d")
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=segment_bytes)
    now_ms = SystemClock().wall_ms()
    return LogDir.open(str(directory), fs=RealFileSystem(), node_id=1, cluster_id="c", now_ms=now_ms, config=config)


def write_log(directory: Path, case: Case, count: int, keys: int) -> int:
    """`count` records, sealed but for an empty last segment; the bytes of the `.log` files."""
    log_dir = open_log_dir(directory, max(count * RECORD_BYTES // SEGMENTS, 1 << 16))
    now_ms = SystemClock().wall_ms()
    log = log_dir.create_log("t", 0, now_ms=now_ms)
    key_bytes = 12
    half = (RECORD_BYTES - OVERHEAD_BYTES - key_bytes) // 2
    noise = os.urandom(MIB)  # half of each value does not compress
    for start in range(0, count, BATCH_BYTES // RECORD_BYTES):
        builder = BatchBuilder(compression_type=case.codec)
        for number in range(start, min(start + BATCH_BYTES // RECORD_BYTES, count)):
            at = number * half % (MIB - half)
            builder.append(now_ms, b"key-%08d" % (number * STRIDE % keys), noise[at : at + half] + bytes(half))
        log.append_as_leader(builder.build(), leader_epoch=0, now_ms=now_ms)
    log.roll(now_ms)
    log.flush()
    size_bytes = log.size_bytes
    log_dir.close()
    return size_bytes


def forget_pages(path: Path) -> None:
    """Let the page cache drop what it has of a synced file."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def log_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("t-0/*.log"))


def copy_seconds(directory: Path) -> float:
    """Of reading and writing the log's files in large pieces, each synced; leaves them out of the page cache."""
    files, target = log_files(directory), directory / "copy"
    for path in files:
        forget_pages(path)
    started = time.perf_counter()
    for path in files:
        with path.open("rb", buffering=0) as source, target.open("wb", buffering=0) as file:
            while piece := source.read(MIB):
                file.write(piece)
            os.fdatasync(file.fileno())
    seconds = time.perf_counter() - started
    target.unlink()
    for path in files:
        forget_pages(path)
    return seconds


# Compaction, in a process of its own.


def compact(directory: str, map_bytes: int) -> Figures:
    return asyncio.run(Compaction(open_log_dir(Path(directory)), map_bytes).run())


class Compaction:
    """Passes over one log until nothing is dirty."""

    def __init__(self, log_dir: LogDir, map_bytes: int) -> None:
        self._log_dir = log_dir
        self._log = log_dir.logs["t", 0]
        self._map_bytes = map_bytes
        self._executor = ThreadExecutor()
        self.passes = self.moved_bytes = self.largest_map = 0
        self.seconds = 0.0

    async def run(self) -> Figures:
        idle = await lateness_until(asyncio.create_task(asyncio.sleep(IDLE_SECONDS)))
        before = resident_bytes("VmRSS")
        reset_highest_resident()
        busy = await lateness_until(asyncio.create_task(self._run_passes()))
        grown = resident_bytes("VmHWM") - before
        self._executor.close()
        left_records, left_bytes = count_records(self._log), self._log.size_bytes
        self._log_dir.close()
        return Figures(
            self.passes,
            self.moved_bytes,
            left_records,
            left_bytes,
            self.seconds,
            self.largest_map,
            grown,
            percentiles(idle),
            percentiles(busy),
        )

    async def _run_passes(self) -> None:
        while (dirtiness := look(self._log_dir, self._log)) is not None:
            self.passes += 1
            dirty_offsets = dirtiness.segments[-1][1] - dirtiness.first_dirty_offset
            self.largest_map = max(self.largest_map, min(self._map_bytes, OffsetMap.bytes_for(dirty_offsets)))
            for path in log_files(Path(self._log_dir.path)):
                forget_pages(path)
            started = time.perf_counter()
            await self._run_pass(dirtiness)
            self.seconds += time.perf_counter() - started

    async def _run_pass(self, dirtiness: Dirtiness) -> None:
        cleaning = CleaningPass(
            self._log,
            dirtiness,
            now_ms=SystemClock().wall_ms(),
            map_bytes=self._map_bytes,
            sip_key=os.urandom(16),
        )
        try:
            while (step := await self._executor.run(cleaning.step)) is not Step.DONE:
                assert step is not Step.VOID, "nothing else changes the log"
                if step is Step.COMMIT:
                    assert cleaning.commit()
                    await self._executor.run(cleaning.finish_commit)
        finally:
            await self._executor.run(cleaning.close)
        await self._executor.run(lambda: cleaning.record_end(self._log_dir))
        self.moved_bytes += cleaning.read_bytes + cleaning.written_bytes


def look(log_dir: LogDir, log: Log) -> Dirtiness | None:
    return look_for_dirt(
        log,
        cleaned_to=log_dir.cleaned_to(log),
        stable_offset=log.log_end_offset,
        truncations=log.truncations,
        now_ms=SystemClock().wall_ms(),
    )


def reset_highest_resident() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def count_records(log: Log) -> int:
    offset, count = log.log_start_offset, 0
    while offset < log.log_end_offset:
        result = log.read(offset, MIB, end_offset=log.log_end_offset)
        count += sum(header.record_count for _, header in iter_headers(result.records))
        offset = result.next_offset
    return count


def resident_bytes(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name)) << 10


async def lateness_until(task: asyncio.Task[None]) -> list[float]:
    """How many ms late each call of the timer was, until the task ends."""
    late: list[float] = []
    while not task.done():
        due = time.perf_counter() + TIMER_SECONDS
        await asyncio.sleep(TIMER_SECONDS)
        late.append((time.perf_counter() - due) * 1000)
    await task
    return late


def percentiles(late: list[float]) -> tuple[float, float]:
    return (statistics.quantiles(late, n=100, method="inclusive")[98], max(late)) if len(late) > 1 else (0.0, 0.0)


if __name__ == "__main__":
    main()
