"""At every point of many runs, every disk that a power loss may leave opens, and has lost nothing acknowledged.

The runs are in `crash_traces`, what they promise in `crash_runs`, the check in `crash_check`; the disks come from
`kraftlog.testing.crash_points`.
"""

import itertools
import logging
import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from kraftlog.logstore import Log, LogDir, batches, checkpoints, log_dir, recovery
from kraftlog.logstore.cleaning import CleaningPass
from kraftlog.logstore.filesystem import write_unsynced
from kraftlog.logstore.segment import Segment
from kraftlog.logstore.snapshot_store import SnapshotStore
from kraftlog.proto.errors import KraftlogError
from kraftlog.testing.crash_points import RecordingFileSystem, near_states, random_states
from kraftlog.testing.filesystem import SimFileSystem
from tests.faults.crash_check import check_disk
from tests.faults.crash_runs import Run
from tests.faults.crash_traces import (
    TRACES,
    append_flush_and_roll,
    compact,
    create_and_delete,
    delete_records,
    headers_across_sectors,
    large_writes,
    leader_epochs,
    made_without_sync,
    stop_and_start,
    transactions,
    truncate_and_append_again,
)

SEED = int(os.environ.get("KRAFTLOG_SEED", "1"))
STATES = 180  # of each run, in `make test`
DEEP_STATES = 4_000
MAX_PASSES = 40  # over the crash points of a run, to find so many different states


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery has much to say here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def check_trace(trace: Callable[[Run], None], states: int, seed: int) -> int:
    """Check so many disks of a run or a few more, spread over its crash points; how many different ones they were.

    A disk that was checked is checked again where something else is promised, but counts once.
    """
    run = Run()
    trace(run)
    changes = run.fs.trace.changes
    rng = random.Random(f"{seed} {trace.__name__}")
    disks = _Disks()
    for _ in range(MAX_PASSES):
        before, missing = len(disks.seen), states - len(disks.seen)
        if missing <= 0:
            break
        for number, disk in run.fs.trace.crash_points():
            if number < run.first_change:
                continue
            share = max(1, (missing - len(disks.seen) + before) // (len(changes) + 1 - number))
            since, promise = next((p for p in reversed(run.promises) if p[0] <= number), (0, {}))
            for text, state in _new_states(disk, rng, share, since, disks):
                try:
                    check_disk(state, promise)
                except BaseException as e:
                    e.add_note(f"seed {seed}, {trace.__name__}, after change {number}, {changes[number - 1]}: {text}")
                    raise
    return len(disks.seen)


@dataclass
class _Disks:
    """Those that were checked, by their fingerprints."""

    seen: set[int] = field(default_factory=set)
    checked: set[tuple[int, int]] = field(default_factory=set)
    """With the number of the promise that they were held to."""

    def is_new(self, disk: int, promise_number: int) -> bool:
        self.seen.add(disk)
        size = len(self.checked)
        self.checked.add((promise_number, disk))
        return len(self.checked) > size


def _new_states(
    disk: SimFileSystem, rng: random.Random, count: int, promise_number: int, disks: _Disks
) -> Iterator[tuple[str, SimFileSystem]]:
    """At most `count` states that were not checked under that promise: half of them systematic, the rest random."""
    makers = near_states(disk)
    rng.shuffle(makers)
    near = (make() for make in makers[: count // 2 + 1])
    left = count
    for number, (text, state) in enumerate(itertools.chain(near, random_states(disk, rng))):
        if disks.is_new(state.fingerprint(), promise_number):
            left -= 1
            yield text, state
        if left == 0 or number > 6 * count + 20:
            return


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.__name__)
def test_every_disk_that_a_power_loss_leaves_opens_with_all_that_was_acknowledged(trace: Callable[[Run], None]) -> None:
    print("seed", SEED)
    assert check_trace(trace, STATES, SEED) >= STATES


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.__name__)
def test_every_disk_that_a_power_loss_leaves_at_length(trace: Callable[[Run], None]) -> None:
    print("seed", SEED)
    assert check_trace(trace, DEEP_STATES, SEED) >= DEEP_STATES


def test_there_are_enough_states_in_all() -> None:
    """Of all runs together, since each is held to its share: 2,500 and 50,000, and some for disks that runs share."""
    assert len(TRACES) * STATES >= 2_700
    assert len(TRACES) * DEEP_STATES >= 55_000


def _without(owner: object, name: str, answer: object = None) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, lambda *arguments: answer)


def _save_no_epochs(patch: pytest.MonkeyPatch) -> None:
    sync = Log._sync_up_to

    def sync_without(self: Log, target: int) -> None:
        with patch.context() as inner:
            inner.setattr(Log, "_save_epochs", lambda self: None)
            sync(self, target)

    patch.setattr(Log, "_sync_up_to", sync_without)


def _compact_without_sync(patch: pytest.MonkeyPatch) -> None:
    seal = CleaningPass._seal

    def seal_without(self: CleaningPass, output: Segment) -> None:
        with patch.context() as inner:
            inner.setattr(Segment, "sync", lambda self: None)
            seal(self, output)

    patch.setattr(CleaningPass, "_seal", seal_without)


PLANTED_BUGS: dict[str, tuple[Callable[[Run], None], Callable[[pytest.MonkeyPatch], None]]] = {
    "only the end of a file may be torn": (large_writes, _without(recovery, "find_unwritten_sector")),
    "a torn header is damage": (headers_across_sectors, _without(batches, "starts_in_unwritten_sector", False)),
    "a torn offset is damage": (headers_across_sectors, _without(recovery, "starts_in_unwritten_sector", False)),
    "the end is recorded before a truncation": (truncate_and_append_again, _without(LogDir, "retreat")),
    "sealed segments are not synced": (append_flush_and_roll, _without(Segment, "sync")),
    "names are not synced": (append_flush_and_roll, _without(RecordingFileSystem, "fsync_dir")),
    "aborted transactions are not synced": (transactions, _without(Segment, "sync_transaction_index", False)),
    "the clean-shutdown marker stays": (stop_and_start, _without(log_dir, "unlink_if_exists", True)),
    "producers are not rebuilt": (delete_records, _without(recovery, "_replay")),
    "snapshots are not synced": (delete_records, _without(SnapshotStore, "sync")),
    "epochs are saved only at the end": (leader_epochs, _save_no_epochs),
    "swaps are not completed": (compact, _without(recovery, "complete_swaps")),
    "compacted segments are not synced": (compact, _compact_without_sync),
    "a flush leaves a new log unsettled": (made_without_sync, _without(Log, "_settle")),
    "a new log rolls and starts elsewhere unsettled": (made_without_sync, _without(Log, "settle")),
    "topic ids are not synced": (made_without_sync, _without(log_dir, "sync_file")),
    "a high watermark outlives its log": (create_and_delete, _without(LogDir, "_forget_high_watermark")),
    "a high watermark outlives a power loss": (create_and_delete, _without(LogDir, "_lower_high_watermarks")),
    "state files are not synced": (
        create_and_delete,
        lambda patch: patch.setattr(checkpoints, "atomic_write", write_unsynced),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_the_check_notices_a_planted_bug(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot fail proves nothing."""
    trace, plant = PLANTED_BUGS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, KraftlogError, struct.error)):
        check_trace(trace, 500, SEED)
