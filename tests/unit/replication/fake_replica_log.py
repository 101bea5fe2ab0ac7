"""A log in memory with a flushed end that the test moves, and an executor that runs only when told."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from kraftlog.logstore import AppendInfo, LogConfig, ReadResult
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.logstore.segment import RecordPosition
from kraftlog.proto.errors import StorageError
from kraftlog.proto.records import BatchHeader
from kraftlog.proto.seams import Buffer

T = TypeVar("T")


class FakeLog:
    """Every append is one record. `flush` makes durable what was there when it began, or fails."""

    def __init__(self, *, end: int = 0, config: LogConfig | None = None) -> None:
        self.config = config or LogConfig()
        self.log_start_offset = 0
        self.log_end_offset = end
        self.flushed_end_offset = end
        self.first_unstable_offset: int | None = None
        self.failure: StorageError | None = None
        self.has_unsynced_segments = False
        self.size_bytes = 0
        self.flushes = 0
        self.epoch = -1

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        batches: list[tuple[int, BatchHeader]] | None = None,
    ) -> AppendInfo:
        if self.failure is not None:
            raise self.failure
        offset = self.log_end_offset
        self.log_end_offset += 1
        return AppendInfo(offset, offset, -1, 0, len(records), 1)

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True) -> ReadResult:
        next_offset = max(offset, end_offset)
        return ReadResult(bytes(next_offset - offset), next_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return epoch, self.log_end_offset

    def assign_epoch(self, leader_epoch: int) -> None:
        self.epoch = leader_epoch

    def epoch_of(self, offset: int) -> int:
        return self.epoch if offset >= 0 else -1

    def forget_unwritten_epochs(self) -> None:
        return

    def append_as_follower(self, records: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        return self.append_as_leader(records, leader_epoch=self.epoch, now_ms=0)

    def truncate_to(self, offset: int) -> bool:
        is_shorter = offset < self.log_end_offset
        self.log_end_offset = min(offset, self.log_end_offset)
        self.flushed_end_offset = min(self.flushed_end_offset, self.log_end_offset)
        return is_shorter

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.log_start_offset = self.log_end_offset = self.flushed_end_offset = offset

    def last_stable_offset(self, high_watermark: int) -> int:
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def offset_for_time(self, timestamp_ms: int) -> RecordPosition | None:
        return None

    def max_timestamp(self) -> RecordPosition | None:
        return None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        return []

    def flush(self) -> int:
        if self.failure is not None:
            raise self.failure
        self.flushes += 1
        self.flushed_end_offset = self.log_end_offset
        return self.flushed_end_offset


class GatedExecutor:
    """Runs a piece of work only when the test releases it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    async def run(self, work: Callable[[], T]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.waiting.append((work, future))
        return await future

    async def release(self) -> None:
        """Do the oldest piece of work and let its consequences happen."""
        work, future = self.waiting.pop(0)
        try:
            result = work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
        await settle()

    def close(self) -> None:
        assert not self.waiting, "work was never done"


async def settle() -> None:
    """Let everything happen that is ready to."""
    for _ in range(10):
        await asyncio.sleep(0)
