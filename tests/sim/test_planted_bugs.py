"""The simulator must see: three bugs are planted in the node, and a seed convicts each of them.

Without the bug the same seeds are sound (`test_simulated_cluster`).
"""

from collections.abc import Callable
from typing import Any

import pytest

from kraftlog.logstore import Log, LogDir
from kraftlog.replication.flusher import Flusher
from kraftlog.testing.sim import SimulationResult, simulate
from kraftlog.testing.sim.simulation import TOPIC

SEEDS = range(1, 13)


def _convicted(seeds: range) -> SimulationResult:
    """The first seed that finds something."""
    for seed in seeds:
        result = simulate(seed)
        print(result)
        if result.violation is not None:
            return result
    pytest.fail(f"none of the seeds {seeds.start} to {seeds.stop - 1} finds the planted bug")


def _plant_at_recovery(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Log], object]) -> None:
    """Let every recovery of a log of the users' topic end with `spoil`."""
    original = LogDir._open_log

    def open_log(self: LogDir, key: tuple[str, int], *arguments: Any, is_clean: bool) -> Log:
        log = original(self, key, *arguments, is_clean=is_clean)
        if key[0] == TOPIC and not is_clean:
            spoil(log)
        return log

    monkeypatch.setattr(LogDir, "_open_log", open_log)


def test_an_acknowledgment_before_the_fsync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ACK: group commit that tells its waiters first and flushes then, even if the flush then succeeds."""

    async def run(self: Any) -> None:
        try:
            while not self._is_closed and self._log.flushed_end_offset < self._log.log_end_offset:
                flushed_end_offset = self._log.flushed_end_offset
                self._log.flushed_end_offset = self._log.log_end_offset
                self._on_flushed()
                self._log.flushed_end_offset = flushed_end_offset
                await self._executor.run(self._log.flush)
        finally:
            self._task = None

    monkeypatch.setattr(Flusher, "_run", run)
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule == "ACK"


def test_offsets_used_again_after_a_restart_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules I-01, I-02, I-07: a recovery that forgets the last flushed batch gives its offsets to other records."""
    _plant_at_recovery(monkeypatch, lambda log: log.truncate_to(max(0, log.log_end_offset - 1)))
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule in {"I-01", "I-02", "I-07"}


def test_a_lost_sequence_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule I-03: a recovery without producer state takes the retry of a stored batch for a new one."""
    _plant_at_recovery(monkeypatch, lambda log: log.producers.restore(()))
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule == "I-03"
