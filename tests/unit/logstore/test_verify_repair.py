"""`verify` finds what was done to a log, and nothing in a sound one; `repair` keeps all that is valid."""

import contextlib
import random
from dataclasses import replace

import pytest

from kraftlog.logstore import Log, LogConfig, LogDir
from kraftlog.logstore.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kraftlog.logstore.repair import repair_log_dir, repair_partition
from kraftlog.logstore.snapshots import decode_snapshot, encode_snapshot
from kraftlog.logstore.verify import verify_log_dir, verify_partition
from kraftlog.proto.records import CompressionType, end_transaction_marker, read_header
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import DATA, NOW_MS, SMALL, append, batch, idempotent, open_log_dir
from tests.unit.logstore.damage import (
    check_repair,
    damage_somewhere,
    problems,
    records_of,
    repaired,
    stored_batches,
)

FOLDER = f"{DATA}/t-0"
RECOVERY_POINTS = f"{DATA}/recovery-point-offset-checkpoint"


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> None:
    end = end_transaction_marker(commit, 3, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS + 50)
    log.append_as_leader(end, leader_epoch=9, now_ms=NOW_MS, allow_control=True)


def fill(log: Log) -> None:
    """Several segments: plain batches of several codecs, two producers, a committed and two aborted transactions."""
    for number in range(12):
        append(log, f"{number:02d}", leader_epoch=number // 4)
    for sequence in range(0, 21, 3):
        log.append_as_leader(
            idempotent(7, sequence, 3, compression_type=CompressionType.LZ4), leader_epoch=5, now_ms=NOW_MS
        )
    for sequence, commit in ((0, False), (4, True), (8, False)):
        for each in range(4):
            log.append_as_leader(idempotent(8, sequence + each, is_transactional=True), leader_epoch=9, now_ms=NOW_MS)
            append(log, f"between {sequence + each}", leader_epoch=9)
        end_transaction(log, 8, commit=commit)


def filled(*, close: bool = False) -> tuple[SimFileSystem, LogDir]:
    fs = SimFileSystem()
    log_dir = open_log_dir(fs, SMALL)
    log = log_dir.create_log("t", 0, bytes(15) + b"\1", now_ms=NOW_MS)
    fill(log)
    log.flush()
    log_dir.checkpoint()
    log_dir.checkpoint_high_watermarks(lambda: {("t", 0): log.log_end_offset})
    if close:
        log_dir.close()
    fs.kill()
    return fs, log_dir


def overwrite(fs: SimFileSystem, name: str, position: int, data: bytes) -> None:
    file = fs.open(f"{FOLDER}/{name}")
    file.pwritev([data], position)
    file.fdatasync()


def reopened(fs: SimFileSystem) -> Log:
    log = open_log_dir(fs, SMALL).logs["t", 0]
    assert log.damage is None
    return log


@pytest.mark.parametrize("close", [True, False])
def test_nothing_is_wrong_with_a_sound_log(close: bool) -> None:
    fs, _ = filled(close=close)
    _, report = verify_log_dir(fs, DATA)
    assert problems(fs) == []
    assert report.batch_count == 12 + 7 + 24 + 3
    assert report.record_count == 12 + 21 + 24 + 3
    assert (report.log_start_offset, report.log_end_offset) == (0, report.record_count)
    assert report.segment_count > 6
    assert verify_partition(fs, FOLDER).batch_count == report.batch_count


SEALED = "00000000000000000000"


@pytest.mark.parametrize(
    ("name", "position", "data", "expected"),
    [
        (".log", 70, b"\xff", "the checksum of the batch"),
        (".log", 7, b"\x03", "offset 1 where at least 4 was expected"),
        (".log", 7, b"\x05", "ends at offset 5, but the next segment starts at offset 5"),
        (".log", 12, b"\x00\x00\x00\x07", "leader epoch 0 after epoch 7"),
        (".index", 3, b"\x01", "entry 0: leads to position"),
        (".index", 6, b"\x00\x07", "leads to position 7, where no batch starts"),
        (".timeindex", 7, b"\x01", "the batch's largest timestamp is"),
        (".timeindex", 11, b"\x07", "there is no batch with that offset"),
    ],
)
def test_what_is_wrong_is_found_where_it_is(name: str, position: int, data: bytes, expected: str) -> None:
    fs, _ = filled(close=True)
    overwrite(fs, SEALED + name, position, data)
    found = problems(fs)
    assert found
    assert {problem.path.rpartition("/")[2] for problem in found} >= {SEALED + name}
    assert any(expected in problem.message for problem in found), found
    assert all(
        problem.position is not None and problem.offset is not None for problem in found if ".log" in problem.path
    )


def test_the_transaction_index_must_be_what_a_replay_gives() -> None:
    fs, _ = filled(close=True)
    path = next(f"{FOLDER}/{name}" for name in fs.listdir(FOLDER) if name.endswith(".txnindex"))
    content = bytearray(fs.contents(path))
    fs.unlink(path)
    assert [problem.message[:5] for problem in problems(fs)] == ["lacks"]
    content[17] ^= 1  # first offset
    file = fs.open(path, create=True)
    file.pwritev([bytes(content)], 0)
    assert sorted(problem.message[:5] for problem in problems(fs)) == ["lacks", "lists"]
    repaired(fs)


def test_snapshots_must_be_what_a_replay_gives() -> None:
    fs, _ = filled(close=True)
    path = sorted(f"{FOLDER}/{name}" for name in fs.listdir(FOLDER) if name.endswith(".snapshot"))[-1]
    sound = fs.contents(path)
    entries = decode_snapshot(sound)
    entries[-1] = replace(entries[-1], batches=entries[-1].batches[:-1])
    overwrite(fs, path.rpartition("/")[2], 0, encode_snapshot(entries)[:10])
    assert "CRC of the producer snapshot" in problems(fs)[0].message
    repaired(fs)
    assert fs.contents(path) == sound
    file = fs.open(path)
    file.truncate(0)
    file.pwritev([encode_snapshot(entries)], 0)
    assert "sequences" in problems(fs)[0].message
    repaired(fs)
    assert fs.contents(path) == sound


def test_checkpoints_must_be_sane() -> None:
    fs, log_dir = filled(close=True)
    end = log_dir.logs["t", 0].log_end_offset
    write_offset_checkpoint(fs, f"{DATA}/replication-offset-checkpoint", {("t", 0): end + 5, ("gone", 1): 3})
    write_offset_checkpoint(fs, RECOVERY_POINTS, {("t", 0): end + 1})
    fs.put(f"{DATA}/log-start-offset-checkpoint", b"garbage")
    messages = " | ".join(map(str, problems(fs)))
    assert f"lies beyond the end of t-0 at offset {end}" in messages
    assert f"offsets up to {end + 1} were synced" in messages
    assert "log-start-offset-checkpoint: not a checkpoint" in messages
    top, repair = repair_log_dir(fs, DATA, dry_run=False)
    assert problems(fs) == []
    assert [kept for _, kept in top.moved] == [f"{DATA}/log-start-offset-checkpoint.cut"]
    assert repair.recovery_point == (end + 1, end)
    (cut,) = repair.cuts
    assert (cut.size_bytes, cut.first_offset, cut.end_offset) == (0, end, end + 1)
    assert reopened(fs).log_end_offset == end


def test_a_sound_log_is_left_alone() -> None:
    fs, _ = filled(close=True)
    before = {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)}
    for repair in repair_log_dir(fs, DATA, dry_run=False):
        assert (repair.problems, repair.cuts, repair.rebuilt, repair.recovery_point) == ([], [], [], None)
    assert {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)} == before
    assert fs.size(f"{DATA}/.kafka_cleanshutdown") is not None


@pytest.mark.parametrize(
    ("position", "data", "message"),
    [
        (0, b"\x7f", "base offset 9151314442816847872 set to 0"),
        (11, b"\x01", "batch length 1 set to"),
        (8, b"\x7f", "batch length"),
        (16, b"\x00", "magic 0 set to 2"),
        (12, b"\x00\x00\x30\x00", "leader epoch 12288 set to 0"),
    ],
)
def test_header_fields_outside_of_the_checksum_are_set_right(position: int, data: bytes, message: str) -> None:
    """No batch is lost for a flipped bit in a field that can only have had one value."""
    fs, _ = filled(close=True)
    before = {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)}
    overwrite(fs, SEALED + ".log", position, data)
    assert problems(fs)
    repair = repaired(fs)
    assert repair.cuts == []
    assert [message in mend.message for mend in repair.mends] == [True]
    assert {name: fs.contents(f"{FOLDER}/{name}") for name in before if name.endswith((".log", ".txnindex"))} == {
        name: content for name, content in before.items() if name.endswith((".log", ".txnindex"))
    }
    assert reopened(fs).log_end_offset == 60


@pytest.mark.slow
def test_every_valid_batch_survives_any_damage() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        fs, _ = filled(close=rng.random() < 0.5)
        whole = stored_batches(fs, FOLDER)
        damage_somewhere(fs, FOLDER, rng)
        if problems(fs):
            check_repair(fs, ("t", 0), whole, seed)


@pytest.mark.slow
def test_a_repair_that_a_crash_interrupts_is_done_by_the_next() -> None:
    """After a crash at any operation: nothing valid is lost, neither by the next repair nor by a node that starts."""
    for seed in range(2):
        stop = seed
        is_done = False
        while not is_done:
            rng = random.Random(seed)
            fs, _ = filled(close=seed % 2 == 0)
            whole = stored_batches(fs, FOLDER)
            while not problems(fs):
                damage_somewhere(fs, FOLDER, rng)
            for name in fs.listdir(FOLDER):
                fs.open(f"{FOLDER}/{name}").fdatasync()
            fs.fsync_dir(FOLDER)
            damaged = {each.data for batches in stored_batches(fs, FOLDER).values() for each in batches}
            fs.stop_after(stop)
            with contextlib.suppress(SimulatedPowerLoss):
                repair_log_dir(fs, DATA, dry_run=False)
                is_done = True
            fs.crash(random.Random(stop))
            if stop % 2 and not is_done:
                open_log_dir(fs, SMALL).close()  # a node that starts in between
                fs.kill()
            repair_log_dir(fs, DATA, dry_run=False)
            assert problems(fs) == [], f"seed {seed}, stop {stop}"
            kept = {each.data for batches in stored_batches(fs, FOLDER).values() for each in batches}
            assert damaged & {b.data for batches in whole.values() for b in batches} <= kept, (
                f"seed {seed}, stop {stop}"
            )
            reopened(fs)
            stop += 3
        assert stop > 30


@pytest.mark.parametrize("where", [-1, -2])
def test_one_wrong_offset_costs_no_other_batch(where: int) -> None:
    """The last batch or the last but one of a segment claims an offset far beyond: those behind it are not out of place.

    With invalid bytes behind it nothing tells where it belongs; then it alone is kept aside.
    """
    fs, _ = filled(close=True)
    whole = stored_batches(fs, FOLDER)
    name = sorted(whole)[1]
    wrong, last = whole[name][where], whole[name][-1]
    overwrite(fs, name, wrong.position + 7, b"\x32")
    if where == -2:
        overwrite(fs, name, last.position + 61, b"\xff" * 10)
    found = [problem.path for problem in problems(fs) if problem.path.endswith(".log")]
    assert set(found) == {f"{FOLDER}/{name}"}
    repair = repaired(fs)
    kept = {each.data for batches in stored_batches(fs, FOLDER).values() for each in batches}
    given_up = {each.data for batches in whole.values() for each in batches} - kept
    assert given_up == (set() if where == -1 else {wrong.data, last.data})
    assert len(repair.mends) == (where == -1)
    assert reopened(fs).log_end_offset == 60


def test_two_wrong_offsets_in_a_row_cost_no_other_batch() -> None:
    fs, _ = filled(close=True)
    whole = stored_batches(fs, FOLDER)
    name = sorted(whole)[1]
    wrong = whole[name][-2:]
    for number, each in enumerate(wrong):
        overwrite(fs, name, each.position + 7, bytes([0x32 + number]))
    repaired(fs)
    kept = {each.data for batches in stored_batches(fs, FOLDER).values() for each in batches}
    assert {each.data for batches in whole.values() for each in batches} - kept == {each.data for each in wrong}


def test_records_missing_at_the_end_of_a_segment_are_told() -> None:
    fs, _ = filled(close=True)
    whole = stored_batches(fs, FOLDER)
    name, following = sorted(whole)[1:3]
    last = whole[name][-1]
    overwrite(fs, name, last.position, bytes(len(last.data)))
    (cut,) = repaired(fs).cuts
    missing = read_header(last.data)
    assert (cut.first_offset, cut.end_offset) == (missing.base_offset, int(following[:20]))
    assert (cut.kept_in, cut.reason) == (None, "nothing but zeros")


def test_a_dry_run_says_the_same_and_touches_nothing() -> None:
    fs, _ = filled(close=True)
    overwrite(fs, SEALED + ".log", 70, b"\xff")
    before = {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)}
    planned = repair_partition(fs, FOLDER, dry_run=True)
    assert {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)} == before
    assert fs.size(f"{DATA}/.kafka_cleanshutdown") is not None
    done = repair_partition(fs, FOLDER, dry_run=False)
    assert (planned.cuts, planned.rebuilt, planned.recovery_point) == (done.cuts, done.rebuilt, done.recovery_point)
    (cut,) = done.cuts
    assert (cut.position, cut.first_offset, cut.end_offset) == (0, 0, 1)
    assert cut.kept_in == f"{FOLDER}/{SEALED}.log.0.cut"
    assert fs.contents(cut.kept_in or "") == before[SEALED + ".log"][: cut.size_bytes]


def test_the_recovery_point_falls_only_with_records() -> None:
    fs, log_dir = filled()
    end = log_dir.logs["t", 0].log_end_offset
    overwrite(fs, SEALED + ".log", 70, b"\xff")
    assert repaired(fs).recovery_point is None
    assert read_offset_checkpoint(fs, RECOVERY_POINTS) == {("t", 0): end}
    name = [name for name in fs.listdir(FOLDER) if name.endswith(".log")][-1]
    last = stored_batches(fs, FOLDER)[name][-1]
    overwrite(fs, name, last.position + 61, b"\xff\xff")
    repair = repaired(fs)
    assert repair.recovery_point == (end, end - 1)
    assert read_offset_checkpoint(fs, RECOVERY_POINTS) == {("t", 0): end - 1}
    assert [(cut.first_offset, cut.end_offset) for cut in repair.cuts] == [(end - 1, end)]


def test_a_torn_tail_is_the_next_starts_business() -> None:
    fs, log_dir = filled()
    whole = batch("never synced")
    name = [name for name in fs.listdir(FOLDER) if name.endswith(".log")][-1]
    last = stored_batches(fs, FOLDER)[name][-1]
    overwrite(fs, name, last.position + len(last.data), whole[:50])
    _, report = verify_log_dir(fs, DATA)
    assert report.problems == []
    assert ["a crash cut off" in note.message for note in report.notes] == [True]
    _, repair = repair_log_dir(fs, DATA, dry_run=False)
    assert repair.cuts == []
    assert reopened(fs).log_end_offset == log_dir.logs["t", 0].log_end_offset


def test_a_topic_id_that_a_crash_tore_is_a_loss_only_where_something_was_flushed() -> None:
    """A new log is made without a sync; a node that starts makes it anew."""
    for is_flushed in (False, True):
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        log = log_dir.create_log("t", 0, bytes(15) + b"\1", now_ms=NOW_MS, settles=False)
        append(log, "a")
        if is_flushed:
            log.flush()
        log_dir.checkpoint()
        fs.kill()
        overwrite(fs, "partition.metadata", 0, bytes(20))
        report = verify_partition(fs, FOLDER)
        message = f"{FOLDER}/partition.metadata: holds no topic id"
        assert (message in map(str, report.problems)) == is_flushed
        assert (message in map(str, report.notes)) != is_flushed


def test_unsynced_segments_are_kept_by_a_repair() -> None:
    """Recovery would drop what follows a loss before it; a repair is asked to keep what is valid."""
    fs = SimFileSystem()
    log_dir = open_log_dir(fs, LogConfig(segment_bytes=300))
    log = log_dir.create_log("t", 0, now_ms=NOW_MS)
    for number in range(20):
        append(log, f"{number:02d}")
    fs.kill()
    overwrite(fs, SEALED + ".log", 70, b"\xff")
    assert len(repaired(fs).cuts) == 1
    assert [value for _, value in records_of(reopened(fs))] == [b"%02d" % number for number in range(1, 20)]
