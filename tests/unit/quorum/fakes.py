"""A metadata log in memory that keeps apart what was flushed, a hand clock, an executor that the test holds back."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import iter_headers
from kraftlog.proto.seams import Buffer

T = TypeVar("T")


@dataclass(frozen=True)
class FakeRead:
    records: bytes
    next_offset: int


class FakeLog:
    """`log_adapter.BatchLog` over lists; `crash()` is a power loss."""

    def __init__(self, directory: str = "/data/__cluster_metadata-0") -> None:
        self.directory = directory
        self.log_start_offset = 0
        self.damage: CorruptRecordError | None = None
        self.batches: list[tuple[int, int, bytes]] = []  # base offset, next offset, bytes
        self.flushed: list[tuple[int, int, bytes]] = []
        self.flush_error: Exception | None = None
        self.effects: list[str] = []

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] if self.batches else self.log_start_offset

    def append_as_follower(self, records: Buffer) -> None:
        for position, header in iter_headers(records):
            assert header.base_offset == self.log_end_offset
            batch = bytes(records[position : position + header.size_bytes])
            self.batches.append((header.base_offset, header.next_offset, batch))
        self.effects.append(f"append to {self.log_end_offset}")

    def read(self, offset: int, max_bytes: int, *, end_offset: int, at_least_one_batch: bool = True) -> FakeRead:
        found, end = b"", offset
        for base, next_offset, batch in self.batches:
            if next_offset > offset and base < end_offset and (not found or len(found) + len(batch) <= max_bytes):
                found, end = found + batch, next_offset
        return FakeRead(found, end)

    def truncate_to(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch[1] <= offset]
        self.effects.append(f"truncate to {offset}")

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches, self.flushed = [], []
        self.log_start_offset = offset
        self.effects.append(f"start at {offset}")

    def trim_to(self, offset: int, *, now_ms: int) -> None:
        """As with segments of one batch."""
        assert offset <= self.log_end_offset
        self.batches = [batch for batch in self.batches if batch[1] > offset]
        self.flushed = [batch for batch in self.flushed if batch[1] > offset]
        self.log_start_offset = offset
        self.effects.append(f"trim to {offset}")

    def record_flushed_end(self) -> None:
        self.effects.append("record the flushed end")

    def flush(self) -> int:
        if self.flush_error is not None:
            raise self.flush_error
        self.flushed = list(self.batches)
        self.effects.append(f"flush to {self.log_end_offset}")
        return self.log_end_offset

    def crash(self) -> None:
        self.batches = list(self.flushed)


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000.0

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


class GateExecutor:
    """Runs work at once, or when the test says so."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.runs = 0

    def hold(self) -> None:
        """Let the next work wait; `entered` is set when it does."""
        self.gate = asyncio.Event()
        self.entered.clear()

    def let_go(self) -> None:
        assert self.gate is not None
        self.gate.set()
        self.gate = None

    async def run(self, work: Callable[[], T]) -> T:
        if self.gate is not None:
            self.entered.set()
            await self.gate.wait()
        self.runs += 1
        return work()

    def close(self) -> None:
        """Nothing runs outside of `run`."""
