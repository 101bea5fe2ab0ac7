"""Does `fdatasync` tell the truth while an ext4 is shut down? Without kraftlog: only pwrite and fdatasync.

    python -m tests.faults.shutdown_probe [cycles] [seed]

Threads write blocks to a file each and note when every fdatasync began and ended without an error; then the file system
is shut down under them, mounted again, and each block that was reported durable is looked for. What is missing is told
by when its fdatasync ended: before the shutdown began, or during it.

It does not. 60 shutdowns each on Linux 6.18 (seed 2; false reports of all that came during the shutdown):

                        preallocated     growing    written before
    journal flushed       45 of 280     14 of 184       0 of 508
    journal dropped        27 of 41      15 of 35       0 of 204
    frozen first           0 of 462      0 of 466       0 of 720

and none of 56,049 from before it. Blocks that were not written before are so marked in the file's extents, and
only a transaction of the journal, made when their write-back ends, says that they are written now. The shutdown aborts
the journal. The write-back then ends without that transaction, and its failure is noted in the kernel's log, but not on
the file (`ext4_end_io` in fs/ext4/page-io.c); fdatasync finds no failed page, waits for the last transaction of the
file, which is on disk long since, and reports success. The next one fails. A real disk whose journal fails to be
written can do the same, once; a power loss cannot, since nobody is left to hear the report.
"""

import os
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.faults.loop_device import FROZEN, LOG_DROPPED, LOG_FLUSHED, LoopDevice, loop_device

BLOCK = 4096
BLOCKS = 4096  # of a file
THREADS = 3


class Space(StrEnum):
    """What the blocks are when they are written."""

    PREALLOCATED = "preallocated"
    """Extents that are marked as unwritten: a journal commit has to say that they are written."""
    GROWING = "growing"
    """Beyond the end: a journal commit has to record the size."""
    WRITTEN = "written before"
    """Nothing but data changes."""


@dataclass(frozen=True, slots=True)
class Synced:
    """An fdatasync that reported success."""

    thread: int
    block: int
    ended_ns: int


@dataclass(slots=True)
class Outcome:
    cycles: int = 0
    synced: int = 0
    during: int = 0
    """Of those: reported after the shutdown had begun."""
    lost_before: int = 0
    """Reported durable before the shutdown began, and not there."""
    lost_during: int = 0
    """Reported durable after it had begun, and not there."""


def content_of(thread: int, block: int, cycle: int) -> bytes:
    text = b"cycle %d thread %d block %d." % (cycle, thread, block)
    return (text * (BLOCK // len(text) + 1))[:BLOCK]


class _Writer(threading.Thread):
    def __init__(self, path: Path, number: int, cycle: int, space: Space) -> None:
        super().__init__()
        self.path = path / f"file-{number}"
        self.synced: list[Synced] = []
        self._number = number
        self._cycle = cycle
        self._space = space
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        if space is Space.PREALLOCATED:
            os.posix_fallocate(self._fd, 0, BLOCK * BLOCKS)
        elif space is Space.WRITTEN:
            os.pwrite(self._fd, bytes(BLOCK * BLOCKS), 0)
        os.fsync(self._fd)

    def run(self) -> None:
        """Up to the first error: the disk is gone then."""
        try:
            for block in range(BLOCKS):
                os.pwrite(self._fd, content_of(self._number, block, self._cycle), block * BLOCK)
                os.fdatasync(self._fd)
                self.synced.append(Synced(self._number, block, time.monotonic_ns()))
        except OSError:
            pass
        finally:
            os.close(self._fd)


def probe(device: LoopDevice, how: int, space: Space, cycles: int, rng: random.Random) -> Outcome:
    outcome = Outcome(cycles)
    for cycle in range(cycles):
        writers = [_Writer(device.path, number, cycle, space) for number in range(THREADS)]
        folder = os.open(device.path, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        for writer in writers:
            writer.start()
        wanted = rng.randrange(10, 200)
        while sum(len(writer.synced) for writer in writers) < wanted:
            time.sleep(rng.random() / 1000)
        began_ns = time.monotonic_ns()
        device.cut_power(how)
        for writer in writers:
            writer.join()
        device.unmount()
        device.mount()
        _count(outcome, writers, cycle, began_ns)
    return outcome


def _count(outcome: Outcome, writers: list[_Writer], cycle: int, began_ns: int) -> None:
    for writer in writers:
        with writer.path.open("rb") as file:
            data = file.read()
        for synced in writer.synced:
            is_during = synced.ended_ns >= began_ns
            start = synced.block * BLOCK
            is_there = data[start : start + BLOCK] == content_of(synced.thread, synced.block, cycle)
            outcome.synced += 1
            outcome.during += is_during
            outcome.lost_before += not is_during and not is_there
            outcome.lost_during += is_during and not is_there


def main(cycles: int, seed: int) -> None:
    print(f"seed {seed}, {cycles} shutdowns each, {THREADS} threads; lost: reported durable, and not there")
    with tempfile.TemporaryDirectory() as folder, loop_device(Path(folder), size_mb=256) as device:
        for how, name in ((FROZEN, "frozen first"), (LOG_FLUSHED, "journal flushed"), (LOG_DROPPED, "journal dropped")):
            for space in Space:
                found = probe(device, how, space, cycles, random.Random(seed))
                print(
                    f"{name:16} {space.value:15} {found.synced:7} synced, {found.during:4} of them during the shutdown; "
                    f"lost: {found.lost_before} of before, {found.lost_during} of during",
                    flush=True,
                )


if __name__ == "__main__":
    main(*(int(argument) for argument in [*sys.argv[1:], *("60", "2")[len(sys.argv) - 1 :]]))
