"""At every point of a metadata log's life, every disk that a power loss may leave opens: with the vote, and with every
entry that was acknowledged; and the log goes on from there.

As `test_crash_points` for ordinary logs; here with snapshots that are taken, received and cut short.
"""

import logging
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from kraftlog.kraft.log_adapter import (
    METADATA_LOG_CONFIGS,
    LoadedState,
    MetadataLog,
    SnapshotFiles,
    format_metadata_log,
)
from kraftlog.kraft.log_adapter import metadata_log as adapter
from kraftlog.kraft.raft import Entry, EntryKind, HardState, ReplicaKey, Snapshot
from kraftlog.kraft.records import ControlBatches, decode_records, entry_of
from kraftlog.kraft.snapshot import encode_snapshot
from kraftlog.logstore import FileSystem, Log, LogConfig, LogDir, format_log_dir
from kraftlog.logstore.filesystem import write_unsynced
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.metadata_pb2 import MetadataRecord, TopicRecord
from kraftlog.testing.crash_points import RecordingFileSystem, near_states, random_states
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.kraft.batches import encode_records

SEED = int(os.environ.get("KRAFTLOG_SEED", "1"))
STATES_AT_A_POINT = 4
DEEP_STATES_AT_A_POINT = 250
PATH, CLUSTER, NOW_MS = "/data", "cluster", 1_700_000_000_000
ME, OTHER = ReplicaKey(1, bytes(range(16))), ReplicaKey(2)
VOTERS = frozenset({ME, OTHER})
KEY = ("__cluster_metadata", 0)
CONFIG = LogConfig.from_configs({**METADATA_LOG_CONFIGS, "segment.bytes": "500"})

History = tuple[Entry, ...]


@cache
def entry_at(offset: int, term: int) -> Entry:
    """One batch of two records; the same wherever it is."""
    records = [
        MetadataRecord(topic=TopicRecord(name=f"t{n}-{term}", topic_id=n.to_bytes(8, "big") + term.to_bytes(8, "big")))
        for n in (offset, offset + 1)
    ]
    return entry_of(encode_records(records, base_offset=offset, leader_epoch=term, timestamp_ms=NOW_MS))


@cache
def start_of_term(offset: int, term: int) -> Entry:
    return entry_of(ControlBatches(lambda: NOW_MS).leader_change(offset, term, OTHER, VOTERS))


def next_entry(history: History, term: int) -> Entry:
    if not history or history[-1].term < term:
        return start_of_term(history[-1].last_offset + 1 if history else 0, term)
    return entry_at(history[-1].last_offset + 1, term)


def image_of(history: History, image: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    for entry in history:
        delta = MetadataDelta(image)
        for record in decode_records(entry.data) if entry.kind is EntryKind.DATA else ():
            delta.replay(record.record, record.offset)
        image = delta.apply(entry.last_offset, entry.term)
    return image


def up_to(history: History, end_offset: int) -> History:
    return tuple(entry for entry in history if entry.last_offset < end_offset)


@dataclass(frozen=True)
class Promise:
    hard_states: frozenset[HardState] = frozenset({HardState(0, None)})
    histories: tuple[tuple[History, int], ...] = (((), 0),)
    """(all entries that may be there, end offset of those that must be); one of them holds."""


def open_log_dir(fs: FileSystem) -> LogDir:
    return LogDir.open(PATH, fs=fs, node_id=1, cluster_id=CLUSTER, now_ms=NOW_MS, config=CONFIG)


def metadata_log(fs: FileSystem, log_dir: LogDir) -> MetadataLog:
    return MetadataLog(log_dir.logs[KEY], fs, cluster_id=CLUSTER, voters=frozenset(), node_id=1)


class Run:
    """A voter's disk, written by the driver's calls; each keeps the promises."""

    def __init__(self) -> None:
        self.fs = RecordingFileSystem()
        format_metadata_log(
            self.fs, PATH, voters=VOTERS, endpoints={}, feature_levels={"metadata.version": 1}, timestamp_ms=NOW_MS
        )
        format_log_dir(PATH, self.fs, cluster_id=CLUSTER, node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAA")
        self.current = Promise()
        self.promises: list[tuple[int, Promise]] = []
        self.promise()
        self.log_dir = open_log_dir(self.fs)
        self.storage = metadata_log(self.fs, self.log_dir)
        assert self.storage.load().snapshot.voters == VOTERS
        self.history: History = ()
        self.installation = 0
        """Number of changes before the first one."""

    @property
    def log(self) -> Log:
        return self.log_dir.logs[KEY]

    def promise(self, **changed: object) -> None:
        self.current = replace(self.current, **changed)  # type: ignore[arg-type] # as the callers give them
        self.promises.append((len(self.fs.trace.changes), self.current))

    def vote(self, term: int) -> None:
        state = HardState(term, OTHER)
        self.promise(hard_states=self.current.hard_states | {state})
        self.storage.write_hard_state(state)
        self.promise(hard_states=frozenset({state}))

    def append(self, count: int, term: int) -> None:
        """And flush: then it is acknowledged."""
        for _ in range(count):
            entry = next_entry(self.history, term)
            acknowledged = self.current.histories[0][1]
            self.history += (entry,)
            self.promise(histories=((self.history, acknowledged),))
            self.storage.append([entry])
        self.storage.flush()
        self.promise(histories=((self.history, self.log.log_end_offset),))

    def truncate(self, end_offset: int) -> None:
        """Before entries of another leader."""
        self.promise(histories=((self.history, end_offset),))
        self.storage.truncate_to(end_offset - 1)
        self.history = up_to(self.history, end_offset)
        self.promise(histories=((self.history, end_offset),))

    def snapshot(self) -> None:
        self.storage.write_snapshot(image_of(self.history), VOTERS, {}, timestamp_ms=NOW_MS)
        self.storage.trim(now_ms=NOW_MS)

    def install(self, history: History) -> None:
        """A leader's, which has other entries than this log, or more."""
        image, last = image_of(history), history[-1]
        data = b"".join(encode_snapshot(image, VOTERS, {}, timestamp_ms=NOW_MS))
        self.installation = self.installation or len(self.fs.trace.changes)
        received = Snapshot(last.last_offset, last.term, VOTERS, data)
        # What was acknowledged before of entries that the leader does not have was never committed.
        common = max((e.last_offset + 1 for e in history if e in self.history), default=0)
        self.promise(histories=((self.history, common), (history, last.last_offset + 1)))
        self.storage.install_snapshot(received)
        self.history = history
        self.promise(histories=((history, last.last_offset + 1),))


def branch(history: History, entries: int, term: int) -> History:
    """`history` and so many entries of a later term."""
    for _ in range(entries):
        history += (next_entry(history, term),)
    return history


# Runs.


def snapshots_of_its_own(run: Run) -> None:
    run.vote(1)
    for _ in range(4):
        run.append(5, 1)
        run.snapshot()
    assert run.log.log_start_offset == 29
    assert run.log.segment_base_offsets[0] > 0
    run.append(2, 1)


def installed_beyond_the_end(run: Run) -> None:
    run.vote(1)
    run.append(4, 1)
    run.vote(2)
    run.install(branch(run.history, 6, 2))
    run.append(3, 2)
    run.snapshot()
    run.append(3, 2)
    run.snapshot()


def installed_over_a_longer_log(run: Run) -> None:
    """The tail was never committed and reaches over several segments beyond the snapshot."""
    run.vote(1)
    run.append(2, 1)
    run.snapshot()
    kept = run.history
    run.append(14, 1)
    assert len(run.log.segment_base_offsets) > 4
    run.vote(3)
    run.install(branch(kept, 3, 3))
    run.append(2, 3)


def installed_twice_after_own_snapshots(run: Run) -> None:
    run.vote(1)
    for _ in range(3):
        run.append(4, 1)
        run.snapshot()
    run.vote(2)
    run.install(branch(run.history, 3, 2))
    run.install(branch(run.history, 9, 2))
    run.vote(3)
    run.append(1, 3)


def conflicts_and_snapshots(run: Run) -> None:
    run.vote(1)
    run.append(6, 1)
    run.snapshot()
    run.append(5, 1)
    run.vote(2)
    run.truncate(13)
    run.append(4, 2)
    run.snapshot()
    end_offset = run.log.log_end_offset
    run.append(1, 2)
    run.vote(3)
    run.truncate(end_offset)
    run.append(1, 3)


TRACES = [
    snapshots_of_its_own,
    installed_beyond_the_end,
    installed_over_a_longer_log,
    installed_twice_after_own_snapshots,
    conflicts_and_snapshots,
]


# The check.


def check_disk(disk: SimFileSystem, promise: Promise) -> None:
    log_dir = open_log_dir(disk)
    storage = metadata_log(disk, log_dir)
    loaded = storage.load()
    end_offset = check_loaded(loaded, promise)
    following = start_of_term(end_offset, 9)
    storage.write_hard_state(HardState(9, ME))
    storage.append([following])
    storage.flush()
    disk.kill()
    again = metadata_log(disk, open_log_dir(disk)).load()
    assert again.hard_state == HardState(9, ME)
    assert again.snapshot == loaded.snapshot
    assert again.entries == [*loaded.entries, following]


def check_loaded(loaded: LoadedState, promise: Promise) -> int:
    """Where the log ends."""
    assert loaded.hard_state in promise.hard_states
    snapshot, contents = loaded.snapshot, loaded.contents
    assert contents is not None
    assert snapshot.voters == contents.voters == VOTERS
    start_offset = snapshot.last_offset + 1
    end_offset = loaded.entries[-1].last_offset + 1 if loaded.entries else start_offset
    for history, required_end in promise.histories:
        before, whole = up_to(history, start_offset), up_to(history, end_offset)
        is_snapshot_right = start_offset == 0 or contents.image == image_of(before)
        if is_snapshot_right and (*before, *loaded.entries) == whole and required_end <= end_offset:
            return end_offset
    raise AssertionError(f"snapshot to {start_offset}, log to {end_offset}: not among what was promised")


def check_trace(trace: Callable[[Run], None], states: int, seed: int, *, from_installation: bool = False) -> int:
    """So many disks at each point of the run, or of its later part; how many different ones."""
    run = Run()
    first_change = len(run.fs.trace.changes)
    trace(run)
    rng = random.Random(f"{seed} {trace.__name__}")
    seen: set[tuple[int, int]] = set()
    for number, disk in run.fs.trace.crash_points():
        if number < max(first_change, run.installation if from_installation else 0):
            continue
        since, promise = next(p for p in reversed(run.promises) if p[0] <= number)
        makers = near_states(disk)
        rng.shuffle(makers)
        chosen = [make() for make in makers[:states]]
        chosen += [state for state, _ in zip(random_states(disk, rng), range(states), strict=False)]
        for text, state in chosen:
            key = (since, state.fingerprint())
            if key in seen:
                continue
            seen.add(key)
            try:
                check_disk(state, promise)
            except BaseException as e:
                e.add_note(f"seed {seed}, {trace.__name__}, after change {number}: {run.fs.trace.changes[number - 1]}")
                e.add_note(text)
                raise
    return len(seen)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery has much to say here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.__name__)
def test_every_disk_that_a_power_loss_leaves_opens(trace: Callable[[Run], None]) -> None:
    print("seed", SEED)
    assert check_trace(trace, STATES_AT_A_POINT, SEED) > 200


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.__name__)
def test_many_more_disks(trace: Callable[[Run], None]) -> None:
    print("seed", SEED)
    assert check_trace(trace, DEEP_STATES_AT_A_POINT, SEED) > 2_000


# What the check must notice.

Plant = Callable[[pytest.MonkeyPatch], None]


def snapshot_file_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def write(self: SnapshotFiles, path: str, batches: Iterator[bytes]) -> None:
        write_unsynced(self._fs, path, b"".join(batches))

    patch.setattr(SnapshotFiles, "_write", write)


def log_is_replaced_before_its_snapshot_is_there(patch: pytest.MonkeyPatch) -> None:
    install = MetadataLog.install_snapshot

    def backwards(self: MetadataLog, snapshot: Snapshot) -> object:
        self._start_log_at(snapshot.last_offset + 1)
        return install(self, snapshot)

    patch.setattr(MetadataLog, "install_snapshot", backwards)


def tail_beyond_the_snapshot_is_not_cut_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataLog, "_start_log_at", lambda self, offset: self._log.truncate_fully_and_start_at(offset))


def interrupted_installation_is_not_completed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataLog, "_continues", lambda self, snapshot_id: True)


def hard_state_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kraftlog.kraft.log_adapter.quorum_state.atomic_write", write_unsynced)


def log_is_trimmed_before_the_snapshot_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adapter, "KEPT_SNAPSHOTS", 1)
    write = MetadataLog.write_snapshot

    def backwards(self: MetadataLog, image: MetadataImage, *arguments: object, **more: object) -> object:
        self._log.trim_to(image.offset + 1, now_ms=NOW_MS)
        return write(self, image, *arguments, **more)  # type: ignore[arg-type]

    patch.setattr(MetadataLog, "write_snapshot", backwards)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "trace"),
    [
        (snapshot_file_is_not_synced, snapshots_of_its_own),
        (log_is_trimmed_before_the_snapshot_is_there, conflicts_and_snapshots),
        (log_is_replaced_before_its_snapshot_is_there, installed_beyond_the_end),
        (tail_beyond_the_snapshot_is_not_cut_first, installed_over_a_longer_log),
        (interrupted_installation_is_not_completed, installed_over_a_longer_log),
        (hard_state_is_not_synced, installed_beyond_the_end),
    ],
    ids=lambda each: each.__name__,
)
def test_a_wrong_order_is_noticed(plant: Plant, trace: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees what it is there for."""
    plant(monkeypatch)
    with pytest.raises((AssertionError, KraftlogError)):
        check_trace(trace, 3 * STATES_AT_A_POINT, 1, from_installation=True)
