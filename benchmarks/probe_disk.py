"""What this machine's disk and system calls do, without kraftlog: the measurements behind docs/adr/0004.

python benchmarks/probe_disk.py [append] [flush] [index] [--directory on-the-disk-to-measure]
"""

import argparse
import bisect
import ctypes
import mmap
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

MIB = 1 << 20
STEP = 16 * MIB  # of preallocation
ROUNDS = 7
_RELATIVE = struct.Struct(">i")


def seconds_of(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def append(directory: Path) -> None:
    """256 MiB to the page cache, in pieces of 1 MiB and 16 KiB."""
    for size in (MIB, 16 << 10):
        data = Random(1).randbytes(size)
        for name, write in (("pwrite", _grow), ("pwrite, preallocated", _preallocated), ("map, preallocated", _mapped)):
            rates = []
            for _ in range(ROUNDS):
                path = directory / "append"
                rates.append(256 * MIB / seconds_of(lambda: write(path, data, 256 * MIB // size)) / 1e6)  # noqa: B023
                path.unlink()
            print(f"append {size:9,} B, {name}: {statistics.median(rates):,.0f} MB/s", flush=True)


def _grow(path: Path, data: bytes, count: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(count):
        os.pwrite(fd, data, number * len(data))
    os.close(fd)


def _preallocated(path: Path, data: bytes, count: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for number in range(count):
        position = number * len(data)
        if position % STEP == 0:
            os.posix_fallocate(fd, position, STEP)
        os.pwrite(fd, data, position)
    os.close(fd)


def _mapped(path: Path, data: bytes, count: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    size = len(data) * count
    os.posix_fallocate(fd, 0, size)
    with mmap.mmap(fd, size) as mapped:
        for number in range(count):
            mapped[number * len(data) : (number + 1) * len(data)] = data
    os.close(fd)


def flush(directory: Path) -> None:
    """N files with 4 KiB written to each since the last sync."""
    libc = ctypes.CDLL(None, use_errno=True)
    for count in (1, 10, 50, 200, 1_000):
        fds = [os.open(directory / f"flush-{n}", os.O_RDWR | os.O_CREAT) for n in range(count)]
        for fd in fds:
            os.posix_fallocate(fd, 0, MIB)
            os.fsync(fd)
        ways: dict[str, Callable[[], object]] = {"fdatasync, 1 thread": lambda: _sync_all(fds)}  # noqa: B023
        for threads in (3, 4):
            ways[f"fdatasync, {threads} threads"] = lambda t=threads: _sync_in_threads(fds, t)  # type: ignore[misc]  # noqa: B023
        ways["syncfs"] = lambda: libc.syncfs(fds[0])  # noqa: B023
        for foreign_mib in (0, 256) if count == 50 else (0,):
            for name, sync in ways.items():
                costs = [_cost_of(sync, fds, directory, turn, foreign_mib) for turn in range(ROUNDS)]
                beside = f", {foreign_mib} MiB of another file unwritten" if foreign_mib else ""
                print(f"flush {count:5,} files, {name}{beside}: {1e3 * statistics.median(costs):.2f} ms", flush=True)
        for fd in fds:
            os.close(fd)


def _cost_of(sync: Callable[[], object], fds: Sequence[int], directory: Path, turn: int, foreign_mib: int) -> float:
    for fd in fds:
        os.pwrite(fd, bytes(4096), 4096 * (turn + 1))
    if foreign_mib:
        (directory / "foreign").write_bytes(bytes(foreign_mib * MIB))
    cost = seconds_of(sync)
    for fd in fds:
        os.fdatasync(fd)
    return cost


def _sync_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


def _sync_in_threads(fds: Sequence[int], threads: int) -> None:
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_sync_all, [fds[start::threads] for start in range(threads)]))


def index(directory: Path) -> None:
    """One lookup in the offset index of a segment of 1 GiB (262,144 entries, 2 MiB)."""
    path, count = directory / "index", 262_144
    path.write_bytes(b"".join(struct.pack(">ii", 4 * n, 4096 * n) for n in range(count)))
    fd = os.open(path, os.O_RDONLY)
    wanted = [Random(2).randrange(4 * count) for _ in range(2_000)]
    mapped = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    copy = path.read_bytes()

    def by_pread(number: int) -> int:
        return int(_RELATIVE.unpack(os.pread(fd, 4, 8 * number))[0])

    ways: dict[str, Callable[[int], int]] = {
        "map": lambda number: int(_RELATIVE.unpack_from(mapped, 8 * number)[0]),
        "copy in memory": lambda number: int(_RELATIVE.unpack_from(copy, 8 * number)[0]),
        "pread of each entry": by_pread,
    }
    for name, entry in ways.items():
        costs = [seconds_of(lambda w=w, e=entry: bisect.bisect_right(range(count), w, key=e)) for w in wanted]  # type: ignore[misc]
        print(f"index lookup, {name}: {1e6 * statistics.median(costs):.1f} µs", flush=True)
    loads = [seconds_of(path.read_bytes) for _ in range(50)]
    print(f"index of 2 MiB read into memory: {1e6 * statistics.median(loads):.0f} µs")
    os.close(fd)


PARTS: dict[str, Callable[[Path], None]] = {"append": append, "flush": flush, "index": index}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    for part in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="kraftlog-probe-", dir=options.directory) as directory:
            PARTS[part](Path(directory))


if __name__ == "__main__":
    main()
