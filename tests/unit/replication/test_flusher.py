"""Group commit: one sync of a log at a time, shared by all that wait, and none after a failure; many logs take turns."""

import asyncio

from kraftlog.logstore import DiskFullError
from kraftlog.proto.errors import StorageError
from kraftlog.replication.flusher import Flusher, FlushQueue
from tests.unit.replication.fake_replica_log import FakeLog, GatedExecutor, settle


class Outcome:
    """What the flusher reported."""

    def __init__(self) -> None:
        self.flushed = 0
        self.failures: list[Exception] = []
        self.full: list[Exception] = []

    def on_flushed(self) -> None:
        self.flushed += 1


def flusher(log: FakeLog, executor: GatedExecutor | FlushQueue, outcome: Outcome) -> Flusher:
    queue = FlushQueue(executor) if isinstance(executor, GatedExecutor) else executor
    return Flusher(
        log,
        queue,
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
    future.set_result([None])  # this sync began before the others were appended
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


class Fleet:
    """Many logs that share one queue."""

    def __init__(self, count: int, *, lanes: int, max_share: int) -> None:
        self.executor = GatedExecutor()
        self.queue = FlushQueue(self.executor, lanes=lanes, max_share=max_share)
        self.logs = [FakeLog() for _ in range(count)]
        self.outcomes = [Outcome() for _ in range(count)]
        self.flushers = [
            flusher(log, self.queue, outcome) for log, outcome in zip(self.logs, self.outcomes, strict=True)
        ]

    async def append_to_all(self) -> None:
        for log, group in zip(self.logs, self.flushers, strict=True):
            log.log_end_offset += 1
            group.request()
        await settle()

    @property
    def flushed(self) -> list[int]:
        """How many logs' waiters were told, in the order of the logs."""
        return [outcome.flushed for outcome in self.outcomes]


async def test_many_logs_share_the_lanes_in_bounded_shares() -> None:
    """First come, first served; no lane takes more than its part, or than its bound."""
    fleet = Fleet(10, lanes=2, max_share=3)
    await fleet.append_to_all()
    assert len(fleet.executor.waiting) == 2
    await fleet.executor.release()
    assert fleet.flushed == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert len(fleet.executor.waiting) == 2, "that lane has taken its next share"
    while fleet.executor.waiting:
        await fleet.executor.release()
    assert fleet.flushed == [1] * 10
    assert [log.flushes for log in fleet.logs] == [1] * 10


async def test_few_logs_are_flushed_at_the_same_time() -> None:
    """Two logs and two lanes: neither waits for the other."""
    fleet = Fleet(2, lanes=2, max_share=8)
    await fleet.append_to_all()
    assert len(fleet.executor.waiting) == 2


async def test_whoever_is_written_all_the_time_does_not_keep_others_waiting() -> None:
    fleet = Fleet(3, lanes=1, max_share=1)
    await fleet.append_to_all()
    for turn in range(3):
        fleet.logs[0].log_end_offset += 1  # while its flush runs, or waits
        fleet.flushers[0].request()
        await fleet.executor.release()
        assert sum(fleet.flushed) == turn + 1
    assert fleet.flushed == [1, 1, 1]


async def test_what_comes_when_the_last_lane_has_just_ended_is_flushed() -> None:
    """All lanes end and all logs are appended to in one turn of the event loop, as on a busy machine: nobody else may come
    whose request would begin a lane."""
    fleet = Fleet(3, lanes=3, max_share=8)
    await fleet.append_to_all()

    def append() -> None:
        assert fleet.flushed == [1, 1, 1]
        for log, group in zip(fleet.logs, fleet.flushers, strict=True):
            log.log_end_offset += 1
            group.request()

    for work, future in fleet.executor.waiting:
        future.set_result(work())
    fleet.executor.waiting.clear()
    asyncio.get_running_loop().call_soon(append)
    await settle()
    while fleet.executor.waiting:
        await fleet.executor.release()
    assert fleet.flushed == [2, 2, 2]


async def test_a_failure_is_told_to_its_own_log_alone() -> None:
    """The others of the share are flushed nevertheless; what the failure means for them is for the owner to say."""
    fleet = Fleet(3, lanes=1, max_share=3)
    fleet.logs[1].failure = StorageError("EIO")
    await fleet.append_to_all()
    await fleet.executor.release()
    assert fleet.flushed == [1, 0, 1]
    assert [len(outcome.failures) for outcome in fleet.outcomes] == [0, 1, 0]


async def test_closing_does_not_wait_for_a_turn() -> None:
    fleet = Fleet(2, lanes=1, max_share=1)
    await fleet.append_to_all()
    await fleet.flushers[1].close()
    while fleet.executor.waiting:
        await fleet.executor.release()
    assert [log.flushes for log in fleet.logs] == [1, 0]


async def test_an_executor_that_gives_up_is_a_failure_of_all_that_it_had() -> None:
    fleet = Fleet(2, lanes=1, max_share=2)
    await fleet.append_to_all()
    _, future = fleet.executor.waiting.pop()
    future.set_exception(RuntimeError("closed"))
    await settle()
    assert [len(outcome.failures) for outcome in fleet.outcomes] == [1, 1]
    fleet.flushers[0].request()
    await settle()
    assert not fleet.executor.waiting
