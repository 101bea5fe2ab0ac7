"""Group commit: one fdatasync at a time, shared by all that wait, and none after a failure."""

import asyncio

from kraftlog.logstore import DiskFullError
from kraftlog.proto.errors import StorageError
from kraftlog.replication.flusher import Flusher
from tests.unit.replication.fake_replica_log import FakeLog, GatedExecutor, settle


class Outcome:
    """What the flusher reported."""

    def __init__(self) -> None:
        self.flushed = 0
        self.failures: list[Exception] = []
        self.full: list[Exception] = []

    def on_flushed(self) -> None:
        self.flushed += 1


def flusher(log: FakeLog, executor: GatedExecutor, outcome: Outcome) -> Flusher:
    return Flusher(
        log,
        executor,
        on_flushed=outcome.on_flushed,
        on_failed=outcome.failures.append,
        on_full=outcome.full.append,
    )


async def test_requests_that_arrive_during_a_flush_share_the_next() -> None:
    """A hundred waiters cost two syncs: the one that runs and the one that covers all who came meanwhile."""
    log, executor, outcome = FakeLog(), GatedExecutor(), Outcome()
    group = flusher(log, executor, outcome)
    log.log_end_offset = 1
    group.request()
    await settle()
    assert len(executor.waiting) == 1
    for end in range(2, 102):
        log.log_end_offset = end
        group.request()
    await settle()
    assert len(executor.waiting) == 1
    log.flushed_end_offset = 1
    _, future = executor.waiting.pop()
    future.set_result(1)  # this sync began before the others were appended
    await settle()
    assert outcome.flushed == 1
    await executor.release()
    assert (log.flushes, outcome.flushed, log.flushed_end_offset) == (1, 2, 101)
    assert not executor.waiting
    assert not group.is_running


async def test_a_failed_flush_is_never_followed_by_another() -> None:
    """The kernel may have dropped the pages: a second fdatasync would succeed without them."""
    log, executor, outcome = FakeLog(), GatedExecutor(), Outcome()
    group = flusher(log, executor, outcome)
    log.log_end_offset = 1
    group.request()
    await settle()
    log.failure = StorageError("EIO")
    await executor.release()
    log.failure = None
    group.request()
    await settle()
    assert not executor.waiting
    assert (outcome.flushed, len(outcome.failures)) == (0, 1)


async def test_a_full_disk_is_not_final() -> None:
    """Nothing was synced: the owner asks again, and when there is space the flush succeeds."""
    log, executor, outcome = FakeLog(), GatedExecutor(), Outcome()
    group = flusher(log, executor, outcome)
    log.log_end_offset = 1
    log.failure = DiskFullError("no space")
    group.request()
    await settle()
    await executor.release()
    assert (len(outcome.full), outcome.failures, outcome.flushed) == (1, [], 0)
    log.failure = None
    group.request()
    await settle()
    await executor.release()
    assert (outcome.flushed, log.flushed_end_offset) == (1, 1)


async def test_closing_waits_for_the_flush_that_runs() -> None:
    """Files are closed only after it."""
    log, executor, outcome = FakeLog(), GatedExecutor(), Outcome()
    group = flusher(log, executor, outcome)
    log.log_end_offset = 1
    group.request()
    await settle()
    closing = asyncio.create_task(group.close())
    await settle()
    assert not closing.done()
    await executor.release()
    await closing
    log.log_end_offset = 2
    group.request()
    await settle()
    assert not executor.waiting
