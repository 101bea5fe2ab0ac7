"""The offline tools on logs that records were taken out of: by retention, on request, by compaction.

What is missing there is no damage: nothing is reported, nothing is dropped, and real damage is repaired as in any log.
"""

import contextlib
import random
from dataclasses import replace
from typing import Any

import pytest

from kraftlog.logstore import Log, LogConfig, LogDir
from kraftlog.logstore.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kraftlog.logstore.export import iter_runs
from kraftlog.logstore.repair import repair_log_dir
from kraftlog.logstore.verify import verify_log_dir, verify_partition
from kraftlog.proto.records import BatchBuilder, end_transaction_marker, read_header
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore import kafka_folders
from tests.unit.logstore.builders import (
    CLUSTER_ID,
    DATA,
    DIRECTORY_ID,
    NOW_MS,
    SMALL,
    append,
    compact,
    create_log,
    idempotent,
    open_log_dir,
    retain,
    values_of,
)
from tests.unit.logstore.damage import check_repair, damage_somewhere, problems, repaired, stored_batches

FOLDER = f"{DATA}/t-0"
CLEANER_OFFSETS = f"{DATA}/cleaner-offset-checkpoint"


def filled() -> tuple[SimFileSystem, LogDir, Log]:
    """Ten leader epochs, an idempotent producer, batches of two records."""
    fs = SimFileSystem(wall_ms=lambda: NOW_MS)
    log_dir, log = create_log(SMALL, fs)
    for number in range(20):
        append(log, f"{number:02d}", f"{number:02d}+", leader_epoch=number // 2)
        log.append_as_leader(idempotent(7, number), leader_epoch=number // 2, now_ms=NOW_MS)
    log.flush()
    log_dir.checkpoint()
    return fs, log_dir, log


def delete_records(log_dir: LogDir, log: Log, offset: int) -> None:
    log_dir.record_log_starts({log: offset})
    log.advance_log_start_offset(offset)


def exported(fs: SimFileSystem, folder: str = FOLDER) -> bytes:
    return b"".join(iter_runs(fs, folder))


def assert_all_is_well(fs: SimFileSystem, folder: str = FOLDER) -> None:
    """Also: a repair and an export change nothing and leave out nothing."""
    assert problems(fs) == []
    before = {name: fs.contents(f"{folder}/{name}") for name in fs.listdir(folder)}
    for repair in repair_log_dir(fs, DATA, dry_run=False):
        assert (repair.problems, repair.cuts, repair.mends, repair.rebuilt) == ([], [], [], [])
    assert {name: fs.contents(f"{folder}/{name}") for name in fs.listdir(folder)} == before
    stored = [each.data for _, batches in sorted(stored_batches(fs, folder).items()) for each in batches]
    assert exported(fs, folder) == b"".join(stored)


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("offset", [1, 7, 30, 31, 32, 59, 60])
def test_records_deleted_up_to_any_place(how: str, offset: int) -> None:
    """The start lies inside of a batch, inside of a segment, at the end; segments below it may be there or be gone."""
    for is_retained in (False, True):
        fs, log_dir, log = filled()
        delete_records(log_dir, log, offset)
        if is_retained:
            retain(log_dir, log)
        log.flush()
        values = values_of(log)
        if how == "clean":
            log_dir.close()
        fs.kill()
        assert_all_is_well(fs)
        _, report = verify_log_dir(fs, DATA)
        assert (report.log_start_offset, report.log_end_offset) == (offset, 60)
        log = open_log_dir(fs, SMALL).logs["t", 0]
        assert log.damage is None
        assert (log.log_start_offset, values_of(log)) == (offset, values)


@pytest.mark.slow
def test_damage_in_a_log_whose_front_is_gone() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        fs, log_dir, log = filled()
        delete_records(log_dir, log, rng.randrange(1, 40))
        if rng.random() < 0.5:
            retain(log_dir, log)
        if rng.random() < 0.5:
            log_dir.close()
        fs.kill()
        whole = stored_batches(fs, FOLDER)
        damage_somewhere(fs, FOLDER, rng)
        if problems(fs):
            check_repair(fs, ("t", 0), whole, seed)


# Directories that Apache Kafka's cleaner went through.


TOPICS = ("codecs", "compacted", "deleted", "stamped", "swept", "transactions")


def kafka_log_dir(ending: str) -> SimFileSystem:
    """A captured directory in memory, as one of this cluster."""
    fs = SimFileSystem()
    fs.mkdir(DATA)
    for path, content in kafka_folders.members(ending).items():
        if content is None:
            fs.mkdir(f"{DATA}/{path}")
        else:
            fs.put(f"{DATA}/{path}", content)
    identity = {"version": "1", "cluster.id": CLUSTER_ID, "node.id": "1", "directory.id": DIRECTORY_ID}
    fs.put(f"{DATA}/meta.properties", "".join(f"{key}={value}\n" for key, value in identity.items()).encode())
    return fs


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_nothing_is_wrong_with_logs_that_kafka_compacted(ending: str) -> None:
    fs = kafka_log_dir(ending)
    for topic in TOPICS:
        assert_all_is_well(fs, f"{DATA}/{topic}-0")
    log_dir = open_log_dir(fs, SMALL)
    for topic in TOPICS:
        append(log_dir.logs[topic, 0], "more", leader_epoch=1)
    log_dir.close()
    fs.kill()
    for topic in TOPICS:
        assert_all_is_well(fs, f"{DATA}/{topic}-0")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_damage_in_logs_that_kafka_compacted(ending: str) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        fs = kafka_log_dir(ending)
        topic = rng.choice(TOPICS)
        folder = f"{DATA}/{topic}-0"
        whole = stored_batches(fs, folder)
        damage_somewhere(fs, folder, rng)
        if verify_partition(fs, folder).problems:
            check_repair(fs, (topic, 0), whole, seed)


def test_a_gap_below_the_cleaner_checkpoint_is_no_loss() -> None:
    """A killed Kafka has recorded no recovery point yet; what its cleaner left is kept all the same.

    Without the cleaner's checkpoint a gap before a segment would be what a power loss leaves: the rest is not kept.
    """
    fs = kafka_log_dir("killed")
    assert read_offset_checkpoint(fs, f"{DATA}/recovery-point-offset-checkpoint") == {}
    cleaned = read_offset_checkpoint(fs, CLEANER_OFFSETS) or {}
    folder = f"{DATA}/swept-0"
    written = exported(fs, folder)
    log = open_log_dir(fs, SMALL).logs["swept", 0]
    assert log.damage is None
    assert log.segment_base_offsets[-1] == cleaned["swept", 0]
    assert kafka_folders.read_all(log, 0) == written
    fs = kafka_log_dir("killed")
    fs.unlink(CLEANER_OFFSETS)
    log = open_log_dir(fs, SMALL).logs["swept", 0]
    assert log.log_end_offset < cleaned["swept", 0]


@pytest.mark.parametrize("harm", ["cut", "missing"])
def test_what_is_missing_below_the_cleaner_checkpoint_is_damage(harm: str) -> None:
    """The cleaner syncs what it writes, so no crash takes it."""
    fs, _, log = filled()
    log.roll()
    base = log.segment_base_offsets[-2]
    fs.kill()
    fs.unlink(f"{DATA}/recovery-point-offset-checkpoint")
    write_offset_checkpoint(fs, CLEANER_OFFSETS, {("t", 0): log.log_end_offset})
    fs.unlink(f"{FOLDER}/{log.log_end_offset:020d}.log")
    path = f"{FOLDER}/{base:020d}.log"
    if harm == "missing":
        fs.unlink(path)
    else:
        fs.put(path, fs.contents(path)[:70])
    reopened = open_log_dir(fs, SMALL).logs["t", 0]
    assert reopened.damage is not None
    fs.kill()
    assert repaired(fs).cuts
    assert (read_offset_checkpoint(fs, CLEANER_OFFSETS) or {})["t", 0] < log.log_end_offset
    assert open_log_dir(fs, SMALL).logs["t", 0].damage is None


def test_the_cleaner_checkpoint_goes_back_with_a_truncation() -> None:
    """Else a later start would miss what was cut."""
    fs, log_dir, _ = filled()
    log_dir.close()
    fs.kill()
    write_offset_checkpoint(fs, CLEANER_OFFSETS, {("t", 0): 50, ("other", 1): 3})
    log_dir = open_log_dir(fs, SMALL)
    log = log_dir.logs["t", 0]
    log.truncate_to(31)
    assert log.log_end_offset == 30, "31 is the second record of its batch"
    assert read_offset_checkpoint(fs, CLEANER_OFFSETS) == {("t", 0): 30, ("other", 1): 3}
    fs.crash(random.Random(3))
    log_dir = open_log_dir(fs, SMALL)
    assert log_dir.logs["t", 0].damage is None
    log_dir.delete_log("t", 0)
    assert read_offset_checkpoint(fs, CLEANER_OFFSETS) == {("other", 1): 3}
    assert log_dir.create_log("t", 0, now_ms=NOW_MS).damage is None


# Files as Kafka leaves them.


@pytest.mark.parametrize("name", ["cleaner-offset-checkpoint", "replication-offset-checkpoint"])
def test_a_checkpoint_that_kafka_has_not_written_yet_is_no_damage(name: str) -> None:
    """It makes files of no bytes as it starts. Recovery points are there from the start: without them it is damage."""
    fs, log_dir, _ = filled()
    log_dir.close()
    fs.kill()
    fs.put(f"{DATA}/{name}", b"")
    assert_all_is_well(fs)
    fs.put(f"{DATA}/recovery-point-offset-checkpoint", b"")
    assert ["not a checkpoint of offsets" in problem.message for problem in problems(fs)] == [True]
    repaired(fs)


@pytest.mark.parametrize("padded", [[".index"], [".timeindex"], [".index", ".timeindex"]])
def test_room_for_entries_at_the_end_of_an_index_is_no_damage(padded: list[str]) -> None:
    """Kafka's metadata log keeps it even after an orderly stop. Loading makes such an index anew."""
    fs, config = SimFileSystem(), LogConfig(index_interval_bytes=100)
    log_dir, log = create_log(config, fs)
    for number in range(20):
        append(log, f"{number:02d}")
    log.roll()
    log_dir.close()
    fs.kill()
    sealed = {suffix: f"{FOLDER}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")}
    written = {suffix: fs.contents(path) for suffix, path in sealed.items()}
    for suffix in padded:
        fs.put(sealed[suffix], written[suffix] + bytes(1200))
    _, report = verify_log_dir(fs, DATA)
    assert report.problems == []
    assert ["room for entries" in note.message for note in report.notes] == [True] * len(padded)
    log = open_log_dir(fs, config).logs["t", 0]
    for offset in range(20):
        result = log.read(offset, 1, end_offset=20)
        assert read_header(result.records).base_offset == offset
    assert {suffix: fs.contents(path) for suffix, path in sealed.items()} == written, "made anew"


def test_an_index_of_garbage_is_told_in_a_few_lines() -> None:
    fs, log_dir, _ = filled()
    log_dir.close()
    fs.kill()
    fs.put(f"{FOLDER}/{0:020d}.index", random.Random(1).randbytes(80_000))
    found = problems(fs)
    assert len(found) == 21
    assert "more problems" in found[-1].message
    assert repaired(fs).rebuilt


# Logs that were compacted here, and what a crash in the middle of that leaves.

COMPACT = replace(SMALL, cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)


def keyed(rng: random.Random, timestamp: int, **producer: Any) -> bytes:
    """One to three records with one of five keys, some of them tombstones."""
    builder = BatchBuilder(is_transactional=bool(producer.pop("is_transactional", False)))
    for _ in range(rng.choice((1, 1, 3))):
        value = rng.choice((None, b"value %d" % timestamp))
        builder.append(timestamp, b"key-%d" % rng.randrange(5), value)
    return builder.build(**producer)


def compactable(fs: SimFileSystem, rng: random.Random) -> tuple[LogDir, Log]:
    """Plain, idempotent and transactional batches with few keys, in several segments; all transactions have ended."""
    log_dir, log = create_log(COMPACT, fs)
    sequences = {7: 0, 8: 0}
    for number in range(rng.choice((12, 40, 60))):
        more: dict[str, Any] = {}
        producer_id = rng.choice((None, 7, 8))
        if producer_id is not None:
            more = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequences[producer_id]}
            more["is_transactional"] = producer_id == 8
        data = keyed(rng, NOW_MS + number, **more)
        log.append_as_leader(data, leader_epoch=number // 9, now_ms=NOW_MS)
        if producer_id is not None:
            sequences[producer_id] += read_header(data).record_count
        if producer_id == 8 and rng.random() < 0.5:
            _end(log, commit=rng.random() < 0.5)
    _end(log, commit=False)
    log.roll()
    log.append_as_leader(keyed(rng, NOW_MS + 90), leader_epoch=9, now_ms=NOW_MS)
    log.flush()
    log_dir.checkpoint()
    return log_dir, log


def _end(log: Log, *, commit: bool) -> None:
    marker = end_transaction_marker(commit, 3, producer_id=8, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, leader_epoch=max(log.latest_epoch, 0), now_ms=NOW_MS, allow_control=True)


@pytest.mark.parametrize("how", ["clean", "kill", "crash"])
def test_nothing_is_wrong_with_compacted_logs(how: str) -> None:
    """After one pass, and after those in which markers and tombstones go as well."""
    for seed in range(25):
        rng = random.Random(seed)
        fs = SimFileSystem(wall_ms=lambda: NOW_MS)
        log_dir, log = compactable(fs, rng)
        for later in range(rng.randint(1, 4)):
            compact(log_dir, log, now_ms=NOW_MS + later * 5000)
            append(log, "more", leader_epoch=20)
            log.roll()
        log.flush()
        if rng.random() < 0.3:
            delete_records(log_dir, log, rng.randrange(log.log_end_offset))
            retain(log_dir, log)
        values = values_of(log)
        if how == "clean":
            log_dir.close()
        elif how == "crash":
            log_dir.checkpoint()
            fs.crash(rng)
        fs.kill()
        assert_all_is_well(fs)
        log = open_log_dir(fs, COMPACT).logs["t", 0]
        assert (log.damage, values_of(log)) == (None, values), f"seed {seed}"


@pytest.mark.slow
def test_damage_in_compacted_logs() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        fs = SimFileSystem(wall_ms=lambda: NOW_MS)
        log_dir, log = compactable(fs, rng)
        compact(log_dir, log)
        if rng.random() < 0.5:
            log_dir.close()
        fs.kill()
        whole = stored_batches(fs, FOLDER)
        damage_somewhere(fs, FOLDER, rng)
        if problems(fs):
            check_repair(fs, ("t", 0), whole, seed)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "crash"])
def test_a_compaction_that_was_interrupted_is_no_damage(how: str) -> None:
    """The tools see what the next start makes of it, and change nothing."""
    unfinished = 0
    for stop in range(0, 200, 2):
        fs = SimFileSystem(wall_ms=lambda: NOW_MS)
        log_dir, log = compactable(fs, random.Random(stop // 50))
        fs.stop_after(stop)
        with contextlib.suppress(SimulatedPowerLoss):
            compact(log_dir, log)
        if how == "crash":
            fs.crash(random.Random(stop))
        fs.kill()
        unfinished += any(name.endswith(".swap") for name in fs.listdir(FOLDER))
        assert problems(fs) == [], f"stop {stop}"
        found = exported(fs)
        for repair in repair_log_dir(fs, DATA, dry_run=False):
            assert (repair.problems, repair.cuts) == ([], [])
        assert exported(fs) == found
        log = open_log_dir(fs, COMPACT).logs["t", 0]
        assert log.damage is None
        assert kafka_folders.read_all(log, 0) == found, f"stop {stop}"
        assert exported(fs) == found
        fs.kill()
        assert problems(fs) == [], f"stop {stop}"
    assert unfinished > 5


def test_a_repair_completes_an_interrupted_compaction_first() -> None:
    for stop in range(200):
        fs = SimFileSystem(wall_ms=lambda: NOW_MS)
        log_dir, log = compactable(fs, random.Random(3))
        fs.stop_after(stop)
        with contextlib.suppress(SimulatedPowerLoss):
            compact(log_dir, log)
        fs.kill()
        swapped = [name for name in fs.listdir(FOLDER) if name.endswith(".log.swap")]
        if not swapped:
            continue
        file = fs.open(f"{FOLDER}/{swapped[0]}")
        file.pwritev([b"\xff\xff"], 70)
        file.fdatasync()
        assert next(problem.path for problem in problems(fs)) == f"{FOLDER}/{swapped[0]}"
        planned = repair_log_dir(fs, DATA, dry_run=True)[1]
        cuts = repaired(fs).cuts
        assert [(cut.position, cut.size_bytes) for cut in planned.cuts] == [(c.position, c.size_bytes) for c in cuts]
        assert len(cuts) == 1
        assert not [name for name in fs.listdir(FOLDER) if name.endswith((".swap", ".cleaned"))]
        assert open_log_dir(fs, COMPACT).logs["t", 0].damage is None
        return
    pytest.fail("no stop leaves an unfinished swap")
