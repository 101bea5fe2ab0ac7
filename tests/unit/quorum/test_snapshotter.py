"""When a snapshot is due, on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.logstore import DiskFullError
from kraftlog.proto.errors import StorageError
from kraftlog.server.quorum.snapshots import SnapshotConfig, Snapshotter
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import VirtualLoop, run_virtual


class Disk:
    """Takes snapshots in a tenth of a second, or fails to."""

    def __init__(self, clock: SimClock, config: SnapshotConfig) -> None:
        self.clock = clock
        self.taken_at_ms: list[float] = []
        self.began = 0
        self.errors: list[Exception] = []
        self.failures: list[BaseException] = []
        self.snapshotter = Snapshotter(config=config, clock=clock, take=self.take, on_failed=self.failures.append)

    async def take(self) -> None:
        self.began += 1
        await asyncio.sleep(0.1)
        if self.errors:
            raise self.errors.pop()
        self.taken_at_ms.append(round(self.clock.monotonic_ms()))


def with_disk(work: Callable[[Disk], Coroutine[Any, Any, None]], max_bytes: int = 100, interval_ms: int = 1000) -> None:
    async def main() -> None:
        config = SnapshotConfig(max_record_bytes_between_snapshots=max_bytes, max_snapshot_interval_ms=interval_ms)
        await work(Disk(SimClock(loop), config))

    loop = VirtualLoop()
    run_virtual(main(), loop=loop, max_seconds=600)


def test_so_many_bytes_make_one_due() -> None:
    """One at a time; what comes meanwhile counts for the next."""

    async def work(disk: Disk) -> None:
        disk.snapshotter.applied(99)
        await asyncio.sleep(0.2)
        assert not disk.began
        disk.snapshotter.applied(1)
        disk.snapshotter.applied(150)
        await asyncio.sleep(0.05)
        assert disk.began == 1
        await asyncio.sleep(0.2)
        assert len(disk.taken_at_ms) == 2
        await asyncio.sleep(5)
        assert disk.began == 2, "nothing is new"

    with_disk(work)


def test_time_makes_one_due_where_anything_is_new() -> None:
    """On a cluster that has gone quiet as well; never by itself."""

    async def work(disk: Disk) -> None:
        start_ms = disk.clock.monotonic_ms()
        await asyncio.sleep(5)
        assert not disk.began
        disk.snapshotter.covered()
        disk.snapshotter.applied(1)
        await asyncio.sleep(10)
        disk.snapshotter.applied(1)
        await asyncio.sleep(10)
        assert [round(at_ms - start_ms) for at_ms in disk.taken_at_ms] == [6100, 15100]

    with_disk(work)


def test_without_an_interval_only_bytes_count() -> None:
    async def work(disk: Disk) -> None:
        disk.snapshotter.applied(99)
        await asyncio.sleep(100)
        assert not disk.began

    with_disk(work, interval_ms=0)


def test_received_snapshot_counts_as_one() -> None:
    async def work(disk: Disk) -> None:
        disk.snapshotter.applied(99)
        await asyncio.sleep(0.9)
        disk.snapshotter.covered()
        await asyncio.sleep(5)
        disk.snapshotter.applied(99)
        await asyncio.sleep(0.05)
        assert disk.began == 1, "the time has passed, and only now anything is new"

    with_disk(work)


def test_full_disk_is_tried_again_later() -> None:
    async def work(disk: Disk) -> None:
        disk.errors.append(DiskFullError("full"))
        disk.snapshotter.applied(100)
        await asyncio.sleep(0.9)
        assert disk.began == 1
        await asyncio.sleep(0.5)
        assert (len(disk.taken_at_ms), disk.failures) == (1, [])

    with_disk(work)


def test_failed_disk_is_told() -> None:
    """The node must stop: what it wrote may be anything."""

    async def work(disk: Disk) -> None:
        disk.errors.append(StorageError("input/output error"))
        disk.snapshotter.applied(100)
        await asyncio.sleep(0.2)
        assert [str(error) for error in disk.failures] == ["input/output error"]

    with_disk(work)


def test_stop_waits_for_the_running_one_and_begins_none() -> None:
    async def work(disk: Disk) -> None:
        disk.snapshotter.applied(100)
        disk.snapshotter.applied(100)
        await asyncio.sleep(0)
        await disk.snapshotter.stop()
        assert (disk.began, len(disk.taken_at_ms)) == (1, 1)
        disk.snapshotter.applied(1000)
        await asyncio.sleep(5)
        await disk.snapshotter.stop()
        assert disk.began == 1

    with_disk(work)


@pytest.mark.parametrize("bad", [{"max_record_bytes_between_snapshots": 0}, {"max_snapshot_interval_ms": -1}])
def test_bounds_of_the_config(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is below"):
        SnapshotConfig(**bad)
