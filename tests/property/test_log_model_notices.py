"""The log model notices a store that breaks one of its rules: a checker that cannot fail proves nothing.

Rules that it breaks only by a rare chance (epochs and aborted transactions that are saved too late, producers that are
not rebuilt) are planted for the crash points, `tests.faults.test_crash_points`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from kraftlog.logstore import Log, LogDir, log, log_dir, recovery
from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.segment import Segment
from kraftlog.logstore.snapshot_store import SnapshotStore
from kraftlog.testing.filesystem import SimFileSystem
from tests.property.test_log_model import SETTINGS, LogMachine

EXAMPLES = 2000
EXAMPLES_AT_LENGTH = 10_000
QUICK = settings(
    SETTINGS,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def check_that_it_fails(machine: type[LogMachine] = LogMachine, examples: int = EXAMPLES) -> None:
    with pytest.raises(Exception) as failure:
        run_state_machine_as_test(machine, settings=settings(QUICK, max_examples=examples))
    assert not isinstance(failure.value, TypeError | NameError | AttributeError), "the planted bug is none"


class LyingDisk(LogMachine):
    """Syncs that do nothing."""

    @initialize()
    def turn_syncs_off(self) -> None:
        self.fs.syncs = False


class EagerAcknowledgment(LogMachine):
    """Reports as flushed what is only written."""

    @rule()
    def flush(self) -> None:
        self.safe = self.end


@pytest.mark.slow
@pytest.mark.parametrize("machine", [LyingDisk, EagerAcknowledgment])
def test_acknowledgments_without_a_sync(machine: type[LogMachine]) -> None:
    check_that_it_fails(machine)


Plant = Callable[[pytest.MonkeyPatch], None]


def without(owner: object, name: str, answer: object = None) -> Plant:
    return lambda patch: patch.setattr(owner, name, lambda *arguments: answer)


class NeverAdvancing:
    """Recovery points that a flush does not move, although they say so."""

    def __init__(self, log_dir: LogDir) -> None:
        self._log_dir = log_dir

    def advance(self) -> None:
        return

    def settle(self, log: Log) -> None:
        self._log_dir.settle(log)

    def retreat(self, log: Log, end_offset: int) -> None:
        self._log_dir.retreat(log, end_offset)

    def record_log_starts(self, starts: Mapping[Log, int]) -> None:
        self._log_dir.record_log_starts(starts)

    def synced_end(self, log: Log) -> int:
        return log.flushed_end_offset


def record_no_flushed_end(patch: pytest.MonkeyPatch) -> None:
    open_log = LogDir._open_log

    def open_without(self: LogDir, *arguments: object, **more: object) -> Log:
        opened = open_log(self, *arguments, **more)  # type: ignore[arg-type]
        opened._recovery_points = NeverAdvancing(self)
        return opened

    patch.setattr(LogDir, "_open_log", open_without)


def forget_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    replay = recovery.apply_to_producers
    patch.setattr(recovery, "apply_to_producers", lambda *arguments: replay(*arguments) and None)


def keep_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    cut = Segment.truncate_to_position

    def cut_all_but_those(self: Segment, position: int) -> None:
        aborted = list(self.indexes.aborted)
        cut(self, position)
        self.indexes.aborted = aborted

    patch.setattr(Segment, "truncate_to_position", cut_all_but_those)


def sync_only_the_growing_segment(patch: pytest.MonkeyPatch) -> None:
    sync = Log._sync_up_to

    def forget_and_sync(self: Log, target: int) -> None:
        self._unsynced.clear()
        sync(self, target)

    patch.setattr(Log, "_sync_up_to", forget_and_sync)


def keep_segments_after_a_loss(patch: pytest.MonkeyPatch) -> None:
    def forget_only(self: recovery._Recovery, number: int) -> None:
        del self._loaded.segments[number:]
        self._loaded.needs_sync = True

    patch.setattr(recovery._Recovery, "_drop_from", forget_only)


BUGS: dict[str, Plant] = {
    "recovery point too far": lambda patch: patch.setattr(
        Log, "recovery_point", property(lambda self: self.log_end_offset)
    ),
    "recorded end not lowered before a truncation": without(LogDir, "retreat"),
    "snapshots of what was cut off stay": without(SnapshotStore, "remove_above"),
    "epochs not truncated": without(LeaderEpochCache, "truncate_to"),
    "transaction index not rebuilt by recovery": forget_aborted_transactions,
}
SLOW_BUGS: dict[str, Plant] = {
    "producers not rebuilt after a truncation": without(log, "replay_producers"),
    "flushed end not recorded before the next segment": record_no_flushed_end,
    "snapshots not synced": without(SnapshotStore, "sync"),
    "transaction index not cut by a truncation": keep_aborted_transactions,
    "sealed segments not synced": without(Segment, "sync"),
    "sealed segments forgotten": sync_only_the_growing_segment,
    "names not synced": without(SimFileSystem, "fsync_dir"),
    "segments after a loss stay": keep_segments_after_a_loss,
    "log starts not recorded": without(LogDir, "record_log_starts"),
    "the clean-shutdown marker stays": without(log_dir, "unlink_if_exists", True),
    "torn pages are damage": without(recovery, "find_unwritten_sector"),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    check_that_it_fails()


@pytest.mark.deep
@pytest.mark.parametrize("bug", SLOW_BUGS)
def test_a_planted_bug_at_length(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SLOW_BUGS[bug](monkeypatch)
    check_that_it_fails(examples=EXAMPLES_AT_LENGTH)
