"""The simulator must see: bugs are planted in the node, and a seed convicts each of them.

Without the bug the same seeds are sound (`test_simulated_cluster`). The rules that look into the node are off here, but
for one test: the clients, the wire and the disk have to show it.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kraftlog.logstore import Log, LogDir
from kraftlog.logstore.cleaning.batch_cleaner import BatchCleaner
from kraftlog.logstore.producer_state import ProducerStateManager
from kraftlog.logstore.segment import Segment
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC
from kraftlog.proto.records import BatchHeader
from kraftlog.proto.seams import Buffer
from kraftlog.replication.flusher import Flusher
from kraftlog.server.coordinator_log import ReplicaCoordinatorLog
from kraftlog.testing import filesystem
from kraftlog.testing.sim import SimulationConfig, SimulationResult, simulate
from kraftlog.testing.sim.simulation import TOPIC

SEEDS = range(1, 13)
COMPACTED_SEEDS = range(2, 25)  # the first of which has a compacted topic


def _convicted(seeds: range, *, checks_node: bool = False) -> SimulationResult:
    """The first seed that finds something."""
    for seed in seeds:
        result = simulate(seed, SimulationConfig(nodes=1, checks_node=checks_node))
        print(result)
        if result.violation is not None:
            return result
    pytest.fail(f"none of the seeds {seeds.start} to {seeds.stop - 1} finds the planted bug")


def _plant_at_recovery(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Log], object]) -> None:
    """Let every recovery of a log of the users' topic end with `spoil`."""
    original = LogDir._open_log

    def open_log(self: LogDir, key: tuple[str, int], *arguments: Any, is_clean: bool, is_settled: bool) -> Log:
        log = original(self, key, *arguments, is_clean=is_clean, is_settled=is_settled)
        if key[0] == TOPIC and not is_clean:
            spoil(log)
        return log

    monkeypatch.setattr(LogDir, "_open_log", open_log)


def test_an_acknowledgment_before_the_fsync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ACK: group commit that tells its waiters first and flushes then, even if the flush then succeeds. Or rule I-06,
    where a high watermark is told before the first acknowledgment."""

    original = Flusher.request

    def request(self: Any) -> None:
        if not self.is_running and not self._is_closed:
            flushed_end_offset = self._log.flushed_end_offset
            self._log.flushed_end_offset = self._log.log_end_offset
            self._on_flushed()
            self._log.flushed_end_offset = flushed_end_offset
        original(self)

    monkeypatch.setattr(Flusher, "request", request)
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule in {"ACK", "I-06"}
    inside = _convicted(SEEDS, checks_node=True)
    assert inside.violation is not None
    assert inside.violation.rule == "W-3"


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


def test_a_metadata_log_that_is_not_synced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule I-09, or the node does not come up again: acknowledged topics vanish with the power."""
    original = Log.flush

    def flush(self: Log) -> int:
        if self.topic == CLUSTER_METADATA_TOPIC:
            self.flushed_end_offset = self.log_end_offset
            return self.flushed_end_offset
        return original(self)

    monkeypatch.setattr(Log, "flush", flush)
    assert _convicted(SEEDS).violation is not None


def test_group_commits_that_are_answered_too_early_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ACK: a committed offset that is acknowledged before it is durable may go back after a power loss."""

    async def wait_committed(self: Any, *_: object) -> None:
        return None

    monkeypatch.setattr(ReplicaCoordinatorLog, "wait_committed", wait_committed)
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule == "ACK"


def test_a_leader_that_does_not_look_at_sequences_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule I-03: each retry of a stored batch is stored again."""
    monkeypatch.setattr(ProducerStateManager, "check", lambda self, batches: [])
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule == "I-03"


def test_compaction_that_drops_a_last_value_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule I-01: keys of which the latest record goes too; or LIVENESS, if it was the last of the log."""
    original = BatchCleaner._clean_data

    def clean(self: BatchCleaner, header: BatchHeader, batch: Buffer) -> Buffer | None:
        return None if header.base_offset % 20 == 7 else original(self, header, batch)

    monkeypatch.setattr(BatchCleaner, "_clean_data", clean)
    result = _convicted(COMPACTED_SEEDS)
    assert result.violation is not None
    assert result.violation.rule in {"I-01", "LIVENESS"}


def test_compaction_that_does_not_sync_what_it_writes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules ACK, I-06 or START: a compacted segment counts before it is on disk."""
    original = Segment.sync

    def sync(self: Segment) -> None:
        if not self.path(".log").endswith(".cleaned"):
            original(self)

    monkeypatch.setattr(Segment, "sync", sync)
    result = _convicted(COMPACTED_SEEDS)
    assert result.violation is not None
    assert result.violation.rule in {"ACK", "I-06", "START", "LOG"}


def test_a_disk_that_lies_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule ACK: fdatasync that reports success and does nothing."""
    monkeypatch.setattr(filesystem.Inode, "sync", lambda self: None)
    result = _convicted(SEEDS)
    assert result.violation is not None
    assert result.violation.rule == "ACK"
