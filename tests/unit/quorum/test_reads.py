"""The read barrier by itself: who shares a round, who does not, and what ends a wait."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kraftlog.proto.errors import NetworkError, NotControllerError, ThrottlingQuotaExceededError
from kraftlog.server.quorum import reads
from kraftlog.server.quorum.reads import ATTEMPT_MS, ReadBarrier
from kraftlog.server.quorum.waiting import Conditions
from kraftlog.testing.loop import VirtualLoop, run_virtual


class Leader:
    """Answers rounds when the test says so."""

    def __init__(self) -> None:
        self.rounds: list[asyncio.Future[int]] = []
        self.answer_at_once: int | None = None
        self.applied = -1
        self.conditions = Conditions()
        self.barrier = ReadBarrier(
            read_index=self._read_index,
            wait_applied=lambda offset, timeout_ms: self.conditions.wait(lambda: self.applied >= offset, timeout_ms),
            now_ms=lambda: asyncio.get_running_loop().time() * 1000,
        )

    async def _read_index(self) -> int:
        if self.answer_at_once is not None:
            return self.answer_at_once
        self.rounds.append(asyncio.get_running_loop().create_future())
        return await self.rounds[-1]

    def apply(self, offset: int) -> None:
        self.applied = offset
        self.conditions.look()


def virtually(body: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await body(Leader())

    run_virtual(main(), loop=VirtualLoop(), max_seconds=3_600)


async def begin(leader: Leader, timeout_ms: float = 10_000) -> "asyncio.Task[None]":
    task = asyncio.ensure_future(leader.barrier.wait(timeout_ms))
    await asyncio.sleep(0.001)
    return task


def test_reader_never_joins_a_round_that_began_before_it_asked() -> None:
    """That round may have its offset from before a write that the reader knows of."""

    async def body(leader: Leader) -> None:
        first = await begin(leader)
        late = [await begin(leader) for _ in range(3)]
        leader.apply(9)
        leader.rounds[0].set_result(5)
        await first
        assert len(leader.rounds) == 2
        assert not any(task.done() for task in late)
        leader.rounds[1].set_result(7)
        await asyncio.gather(*late)
        assert len(leader.rounds) == 2, "the late ones share one"

    virtually(body)


def test_reader_waits_until_the_offset_is_applied() -> None:
    async def body(leader: Leader) -> None:
        reader = await begin(leader)
        leader.rounds[0].set_result(5)
        leader.apply(4)
        await asyncio.sleep(1)
        assert not reader.done()
        leader.apply(5)
        await reader

    virtually(body)


def test_failed_round_is_asked_again() -> None:
    """Whoever leads then."""

    async def body(leader: Leader) -> None:
        leader.apply(9)
        reader = await begin(leader)
        leader.rounds[0].set_exception(NetworkError("gone"))
        await asyncio.sleep(0.1)
        assert len(leader.rounds) == 2
        await asyncio.sleep(ATTEMPT_MS / 1000 + 0.1)  # this leader never answers
        assert len(leader.rounds) == 3
        leader.rounds[2].set_result(9)
        await reader

    virtually(body)


@pytest.mark.parametrize("has_answer", [False, True])
def test_deadline_ends_the_wait_of_its_reader_alone(has_answer: bool) -> None:
    """No answer, or one that is not applied in time."""

    async def body(leader: Leader) -> None:
        hasty = await begin(leader, timeout_ms=300)
        patient = await begin(leader, timeout_ms=30_000)
        if has_answer:
            leader.rounds[0].set_result(5)
        with pytest.raises(NotControllerError, match="300 ms"):
            await hasty
        assert not patient.done()
        leader.apply(5)
        leader.answer_at_once = 5
        await patient

    virtually(body)


def test_readers_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "MAX_WAITING", 2)

    async def body(leader: Leader) -> None:
        waiting = [await begin(leader) for _ in range(3)]  # one asks, two wait
        with pytest.raises(ThrottlingQuotaExceededError):
            await leader.barrier.wait(1)
        leader.barrier.close(NotControllerError("stopping"))
        for task in waiting:
            with pytest.raises(NotControllerError, match="stopping"):
                await task
        with pytest.raises(NotControllerError, match="stopping"):
            await leader.barrier.wait(1)

    virtually(body)
