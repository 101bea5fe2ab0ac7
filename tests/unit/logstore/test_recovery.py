"""After an unclean stop: what was torn is cut, what was damaged is named, what was derived is made again."""

import contextlib
import errno
import itertools
import os
import random

import pytest

from kraftlog.logstore import Log, LogConfig
from kraftlog.logstore.layout import LOG_SUFFIX, RECOVERY_POINT_FILE
from kraftlog.logstore.verify import verify_log_dir
from kraftlog.testing.crash_points import near_states, random_states
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import (
    DATA,
    NOW_MS,
    SMALL,
    append,
    batch,
    create_log,
    idempotent,
    open_log_dir,
    reopen,
    values_of,
)

FIRST = "/data/t-0/00000000000000000000.log"
BATCH_BYTES = len(batch("0"))


def written(count: int, flushed: int = 0, recorded: bool = False) -> SimFileSystem:
    """A disk after `count` single-record batches, the first `flushed` of them synced; the process is gone."""
    fs = SimFileSystem()
    log_dir, log = create_log(SMALL, fs)
    for number in range(count):
        append(log, str(number % 10), leader_epoch=number // 4)
        if number + 1 == flushed:
            log.flush()
            if recorded:
                log_dir.checkpoint()
    fs.kill()
    return fs


def overwrite(fs: SimFileSystem, path: str, position: int, data: bytes) -> None:
    fs.open(path).pwritev([data], position)


def numbers(log: Log) -> str:
    return b"".join(values_of(log)).decode()


class TestTornTails:
    def test_a_killed_process_loses_nothing(self) -> None:
        log = reopen(written(12), SMALL)
        assert numbers(log) == "012345678901"
        assert log.epochs.entries == ((0, 0), (1, 4), (2, 8))
        assert log.flushed_end_offset == 12, "recovery syncs what it vouches for"

    def test_the_preallocated_tail_is_cut(self) -> None:
        fs = written(2)
        assert fs.size(FIRST) == 16384
        reopen(fs, SMALL)
        assert fs.size(FIRST) == 2 * BATCH_BYTES

    def test_half_a_batch_is_cut(self) -> None:
        for kept in range(1, BATCH_BYTES):
            fs = written(3)
            fs.open(FIRST).truncate(2 * BATCH_BYTES + kept)
            log = reopen(fs, SMALL)
            assert numbers(log) == "01"
            assert append(log, "n") == 2
            assert numbers(reopen(fs, SMALL)) == "01n"

    def test_a_batch_with_zeroed_sectors_at_the_end_is_cut(self) -> None:
        fs = written(3)
        overwrite(fs, FIRST, 3 * BATCH_BYTES - 10, bytes(10))
        assert numbers(reopen(fs, SMALL)) == "01"

    def test_garbage_after_the_last_batch_is_cut(self) -> None:
        fs = written(3)
        overwrite(fs, FIRST, 3 * BATCH_BYTES, random.Random(5).randbytes(3000))
        assert numbers(reopen(fs, SMALL)) == "012"

    def test_a_removed_segment_does_not_come_back_with_the_next_crash(self) -> None:
        """It would continue the log again once that has grown to the segment's first offset (found by random runs)."""
        fs = written(12)
        fs.fsync_dir("/data/t-0")
        for name in fs.listdir("/data/t-0"):
            if name.endswith(LOG_SUFFIX):
                fs.open(f"/data/t-0/{name}").fdatasync()
        overwrite(fs, FIRST, 0, bytes(fs.size(FIRST) or 0))
        assert numbers(reopen(fs, SMALL)) == ""
        fs.forget_unsynced()
        assert [name for name in fs.listdir("/data/t-0") if name.endswith(LOG_SUFFIX)] == [FIRST.rpartition("/")[2]]

    def test_a_removed_producer_snapshot_does_not_come_back_with_the_next_crash(self) -> None:
        """It would speak of batches that were lost, in a log that has others in their place."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        append(log, "a")
        log.flush()
        log_dir.checkpoint()
        log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
        log.roll()
        snapshot = f"/data/t-0/{2:020d}.snapshot"
        fs.unlink(f"/data/t-0/{2:020d}.log")
        fs.fsync_dir("/data/t-0")
        fs.open(snapshot).fdatasync()
        fs.forget_unsynced()
        assert fs.size(snapshot)
        log_dir = open_log_dir(fs, SMALL)
        log = log_dir.logs["t", 0]
        log.append_as_leader(idempotent(2, 0), leader_epoch=0, now_ms=NOW_MS)
        append(log, "b")
        log.flush()
        log_dir.close()
        fs.open(FIRST).fdatasync()  # with the trim: else the stop does not count as clean
        fs.forget_unsynced()
        assert list(open_log_dir(fs, SMALL).logs["t", 0].producers.entries) == [2]

    def test_what_a_killed_process_removed_does_not_come_back_with_the_next_crash(self) -> None:
        """Old segments would continue the log again once that has grown to their first offsets."""
        for stop in itertools.count():
            fs = written(12, flushed=12, recorded=True)
            log = reopen(fs, SMALL)
            fs.stop_after(stop)
            is_whole = False
            with contextlib.suppress(SimulatedPowerLoss):
                log.truncate_to(2)
                is_whole = True
            assert reopen(fs, SMALL).damage is None
            names = fs.listdir("/data/t-0")
            fs.forget_unsynced()
            assert fs.listdir("/data/t-0") == names, f"stop {stop}"
            if is_whole:
                break

    def test_a_log_whose_segments_are_gone_knows_no_producer_whatever_a_power_loss_takes(self) -> None:
        """The process was killed as the log started over, and the power goes out in the restart."""
        for stop in itertools.count():
            fs = SimFileSystem()
            log_dir, log = create_log(SMALL, fs)
            log.append_as_leader(idempotent(1, 0, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
            log.roll()
            log.flush()
            log_dir.record_log_starts({log: 1})
            fs.kill()
            for base_offset in (0, 1):
                fs.unlink(f"/data/t-0/{base_offset:020d}.log")
            fs.fsync_dir("/data/t-0")
            fs.stop_after(stop)
            is_whole = False
            with contextlib.suppress(SimulatedPowerLoss):
                open_log_dir(fs, SMALL)
                is_whole = True
            for make in near_states(fs):
                text, disk = make()
                log = open_log_dir(disk, SMALL).logs["t", 0]
                assert (log.log_end_offset, log.producers.entries) == (1, {}), f"stop {stop}, {text}"
            if is_whole:
                break

    def test_segments_after_a_torn_one_are_removed(self) -> None:
        """They continue what is lost; none of their records was ever reported as flushed."""
        fs = written(12)
        fs.open(FIRST).truncate(3 * BATCH_BYTES)
        log = reopen(fs, SMALL)
        assert (numbers(log), log.segment_base_offsets) == ("012", [0])
        assert append(log, "n") == 3

    def test_a_gap_among_deleted_records_ends_no_log(self) -> None:
        """A truncation into a batch whose first records were deleted leaves one; here nothing is recorded of it."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        append(log, "0")
        append(log, "1", "2")
        log.flush()
        log_dir.record_log_starts({log: 2})
        log.advance_log_start_offset(2)
        log.truncate_to(2)
        assert append(log, "2a") == 2
        log.flush()
        fs.unlink(f"{DATA}/{RECOVERY_POINT_FILE}")
        log = reopen(fs, SMALL)
        assert (log.log_start_offset, log.log_end_offset, values_of(log)) == (2, 3, [b"2a"])

    def test_an_empty_last_segment_is_fine(self) -> None:
        fs = written(5)
        log = reopen(fs, SMALL)
        log.roll()
        log = reopen(fs, SMALL)
        assert (numbers(log), log.segment_base_offsets) == ("01234", [0, 5])

    def test_what_was_recorded_is_not_read_again(self) -> None:
        """Recovery starts at the segment that holds the last flushed record."""
        fs = written(12, flushed=12, recorded=True)
        fs.fail("pread", path_part=FIRST, times=1000)
        assert open_log_dir(fs, SMALL).logs["t", 0].log_end_offset == 12

    def test_a_segment_sealed_after_the_recorded_end_is_gone_through(self) -> None:
        """Its records are synced, but neither its trim nor its indexes nor its successor's name need be."""
        for seed in range(40):
            fs = SimFileSystem()
            log_dir, log = create_log(SMALL, fs)
            for number in range(3):
                append(log, str(number))
            log.flush()
            log_dir.checkpoint()
            log.roll()
            append(log, "3")
            fs.crash(random.Random(seed))
            log = reopen(fs, SMALL)
            assert log.damage is None
            assert numbers(log) == "0123"[: log.log_end_offset]
            assert log.log_end_offset >= 3
            assert append(log, "n") == log.log_end_offset - 1

    def test_a_segment_sealed_after_all_its_records_were_deleted_is_gone_through(self) -> None:
        """Its trim and its successor's name are synced no more than those of any other."""
        for seed in range(40):
            fs = SimFileSystem()
            log_dir, log = create_log(SMALL, fs)
            append(log, "0")
            log.flush()
            log_dir.checkpoint()
            log_dir.record_log_starts({log: 1})
            log.advance_log_start_offset(1)
            log.roll()
            fs.kill()
            log_dir = open_log_dir(fs, SMALL)
            log = log_dir.logs["t", 0]
            append(log, "1")
            log.flush()
            log_dir.checkpoint()
            _, disk = next(random_states(fs, random.Random(seed)))
            log = open_log_dir(disk, SMALL).logs["t", 0]
            assert (log.damage, numbers(log)) == (None, "1"), f"seed {seed}"

    def test_recovery_may_be_interrupted_and_repeated(self) -> None:
        for stop in range(0, 60, 3):
            fs = written(12, flushed=7)
            overwrite(fs, "/data/t-0/00000000000000000010.log", BATCH_BYTES, b"\1" * 100)
            fs.stop_after(stop)
            with contextlib.suppress(SimulatedPowerLoss):
                open_log_dir(fs, SMALL)
            fs.crash(random.Random(stop))
            log = reopen(fs, SMALL)
            assert log.damage is None
            assert "012345678901"[: log.log_end_offset] == numbers(log), "the overwriting may be lost too"
            assert log.log_end_offset >= 7


SECTOR = 512


def large(count: int, size: int, flushed: int = 0) -> tuple[SimFileSystem, list[int]]:
    """A disk with batches of one `size`-byte value and where each starts; the first `flushed` are recorded as such."""
    fs = SimFileSystem()
    log_dir, log = create_log(fs=fs)
    starts = []
    for number in range(count):
        starts.append(log.size_bytes)
        append(log, b"%d" % (number % 10) * size)
        if number + 1 == flushed:
            log.flush()
            log_dir.checkpoint()
    fs.kill()
    return fs, starts


class TestSectorsThatWereNeverWritten:
    """The pages of one unsynced write reach the disk in any order, so a later batch may be there without an earlier."""

    @pytest.mark.parametrize("sector", range(1, 4))
    def test_a_lost_sector_before_valid_batches_is_a_torn_write(self, sector: int) -> None:
        fs, starts = large(6, 700, flushed=1)
        lost = max(sector * SECTOR, starts[1])  # the first sector has the end of the flushed batch too
        overwrite(fs, FIRST, lost, bytes((sector + 1) * SECTOR - lost))
        log = reopen(fs)
        assert log.damage is None
        assert log.log_end_offset == 1
        assert append(log, "on it goes") == log.log_end_offset - 1
        assert reopen(fs).damage is None

    def test_a_lost_sector_below_the_recorded_end_is_damage(self) -> None:
        fs, starts = large(6, 700, flushed=3)
        overwrite(fs, FIRST, starts[1] // SECTOR * SECTOR + SECTOR, bytes(SECTOR))
        assert "offsets up to 3 were synced" in str(reopen(fs).damage)

    def test_fewer_zeros_than_a_sector_are_damage(self) -> None:
        fs, _ = large(6, 700)
        overwrite(fs, FIRST, 2 * SECTOR, bytes(SECTOR - 1))
        assert "a valid batch follows" in str(reopen(fs).damage)

    def test_a_lost_sector_of_a_later_batch_does_not_excuse_an_earlier_one(self) -> None:
        fs, starts = large(6, 2000)
        fs.flip(FIRST, starts[1] + 300)
        overwrite(fs, FIRST, starts[3] // SECTOR * SECTOR + SECTOR, bytes(SECTOR))
        assert f"position {starts[1]} (offset 1), but a valid batch follows" in str(reopen(fs).damage)

    @pytest.mark.parametrize("inside", range(1, 20))
    @pytest.mark.parametrize("end", [3, 300])
    def test_the_start_of_a_header_in_a_lost_sector(self, inside: int, end: int) -> None:
        """Of so few bytes some are zero by nature; what tells is that the batch's offset or length cannot be so."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, *["x"] * end)
        room = -log.size_bytes % SECTOR - inside
        room += SECTOR if room < 200 else 0
        append(log, b"y" * (room - len(batch(b"y" * 200)) + 200))
        position = log.size_bytes
        assert position % SECTOR == SECTOR - inside
        append(log, b"z" * 900)
        append(log, "valid and next")
        fs.kill()
        overwrite(fs, FIRST, position, bytes(inside))
        log = reopen(fs)
        assert log.damage is None
        nothing_lost = inside <= (7 if end < 256 else 6)  # the bytes of a small offset that are zero anyhow
        assert log.log_end_offset == end + (3 if nothing_lost else 1)

    def test_a_wrong_offset_is_damage_where_no_sector_was_lost(self) -> None:
        fs, starts = large(4, 100)
        overwrite(fs, FIRST, starts[2], bytes(8))
        assert "one with offset 0 is there" in str(reopen(fs).damage)


class TestDamage:
    @pytest.mark.parametrize("victim", [0, 1, 3])
    def test_a_flipped_bit_before_a_valid_batch_is_named_not_cut(self, victim: int) -> None:
        fs = written(5)
        position = victim * BATCH_BYTES
        fs.flip(FIRST, position + 70)
        size = fs.size(FIRST)
        log = reopen(fs, SMALL)
        assert log.damage is not None
        text = str(log.damage)
        assert f"{FIRST}: no valid batch at position {position} (offset {victim})" in text
        assert f"a valid batch follows at position {position + BATCH_BYTES}" in text
        assert "kraftctl log repair /data/t-0" in text
        assert "\n" not in text
        assert numbers(log) == "01234"[:victim]
        assert fs.size(FIRST) == size, "nothing is cut"

    @pytest.mark.slow
    def test_every_bit_of_a_header_is_noticed(self) -> None:
        """Except the 4 bytes of leader epoch, which no CRC covers, and offsets that still ascend."""
        for bit in range(8 * 61):
            fs = written(5)
            fs.flip(FIRST, 2 * BATCH_BYTES + bit // 8, 1 << bit % 8)
            log = reopen(fs, SMALL)
            if log.damage is None:
                assert bit // 8 < 8 or 12 <= bit // 8 < 16, f"bit {bit} went unnoticed"
            else:
                assert numbers(log).startswith("01")

    def test_an_invalid_last_batch_below_the_recorded_end_is_damage(self) -> None:
        """It was flushed, so no crash tore it."""
        fs = written(4, flushed=4, recorded=True)
        fs.flip(FIRST, 3 * BATCH_BYTES + 70)
        before = fs.contents(FIRST)
        log = reopen(fs, SMALL)
        assert "offsets up to 4 were synced" in str(log.damage)
        assert fs.contents(FIRST) == before, "nothing is cut"

    def test_a_zeroed_tail_below_the_recorded_end_is_damage(self) -> None:
        fs = written(4, flushed=4, recorded=True)
        overwrite(fs, FIRST, 2 * BATCH_BYTES, bytes(2 * BATCH_BYTES))
        log = reopen(fs, SMALL)
        assert "position" in str(log.damage)
        assert numbers(log) == "01"

    def test_missing_flushed_records_are_damage(self) -> None:
        fs = written(4, flushed=4, recorded=True)
        fs.open(FIRST).truncate(3 * BATCH_BYTES)
        assert "offsets up to 4 were synced" in str(reopen(fs, SMALL).damage)

    def test_a_missing_flushed_segment_is_damage(self) -> None:
        fs = written(12, flushed=12, recorded=True)
        fs.unlink("/data/t-0/00000000000000000010.log")
        assert "offsets up to 12 were synced" in str(reopen(fs, SMALL).damage)
        fs = written(3, flushed=3, recorded=True)
        fs.unlink(FIRST)
        assert "offsets up to 3 were synced" in str(reopen(fs, SMALL).damage)

    def test_damage_after_a_clean_stop_is_found_if_the_end_does_not_fit(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(4):
            append(log, str(number))
        log_dir.close()
        fs.open(FIRST).truncate(3 * BATCH_BYTES + 7)
        assert "offsets up to 4 were synced" in str(reopen(fs, SMALL).damage)

    def test_records_that_were_deleted_cannot_be_missed(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(4):
            append(log, str(number))
        log.flush()
        log.advance_log_start_offset(4)
        log_dir.checkpoint()
        fs.kill()
        fs.open(FIRST).truncate(10)
        log = reopen(fs, SMALL)
        assert log.damage is None
        assert (log.log_start_offset, log.log_end_offset) == (4, 4)

    def test_damage_in_an_earlier_segment_hides_the_later_ones(self) -> None:
        fs = written(12)
        fs.flip(FIRST, 2 * BATCH_BYTES + 70)
        log = reopen(fs, SMALL)
        assert (log.log_end_offset, log.segment_base_offsets) == (2, [0])
        assert fs.size("/data/t-0/00000000000000000010.log"), "but leaves them where they are"


class TestDerivedFiles:
    """Indexes, snapshots and epochs are made again from the batches, whatever happened to their files."""

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
    @pytest.mark.parametrize("harm", ["missing", "empty", "odd", "garbage", "zeros"])
    def test_a_harmed_file_changes_no_answer(self, clean: bool, suffix: str, harm: str) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(23):
            timestamp = NOW_MS + 7 * number % 100
            log.append_as_leader(
                idempotent(number % 3, number // 3, timestamps=[timestamp]), leader_epoch=number // 5, now_ms=NOW_MS
            )
        answers = self._answers(log)
        if clean:
            log_dir.close()
        fs.kill()
        for name in fs.listdir("/data/t-0"):
            if name.endswith(suffix):
                self._harm(fs, f"/data/t-0/{name}", harm)
        log = reopen(fs, SMALL)
        assert log.damage is None
        assert self._answers(log) == answers

    def _answers(self, log: Log) -> object:
        return (
            values_of(log),
            [log.read(offset, 1, end_offset=23).next_offset for offset in range(23)],
            [log.offset_for_time(NOW_MS + timestamp) for timestamp in range(-1, 101, 3)],
            log.max_timestamp(),
            log.epochs.entries,
            {producer: entry.last_sequence for producer, entry in log.producers.entries.items()},
        )

    def _harm(self, fs: SimFileSystem, path: str, harm: str) -> None:
        content = fs.contents(path)
        match harm:
            case "missing":
                fs.unlink(path)
            case "empty":
                fs.put(path, b"")
            case "odd":
                fs.put(path, content[:-3])
            case "garbage":
                fs.put(path, random.Random(1).randbytes(max(24, len(content) // 24 * 24)))
            case _:
                fs.put(path, bytes(len(content)))

    def test_snapshots_of_a_future_that_was_lost_are_removed(self) -> None:
        """Otherwise a later truncation would restore sequences that nobody sent."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        for sequence in range(10):
            log.append_as_leader(idempotent(1, sequence), leader_epoch=0, now_ms=NOW_MS)
        log.roll()
        fs.kill()
        fs.open(FIRST).truncate(8 * len(idempotent(1, 0)))
        log = reopen(fs)
        assert log.log_end_offset == 8
        for number in range(8, 14):
            append(log, str(number))
        log.truncate_to(12)
        assert log.producers.entries[1].last_sequence == 7

    def test_epochs_are_those_of_the_batches_not_of_an_older_checkpoint(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        for number in range(10):
            append(log, str(number), leader_epoch=4 if number < 8 else 5)
        log.flush()
        log.truncate_to(6)
        append(log, "again", leader_epoch=5)
        log = reopen(fs)
        assert log.epochs.entries == ((4, 0), (5, 6))

    @pytest.mark.parametrize("how", ["truncation", "clean", "kill", "power loss"])
    def test_the_epoch_of_deleted_records_is_known_as_long_as_they_are_there(self, how: str) -> None:
        """However the log came to its end: what knows it once and not again would make two logs of one."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(12):
            append(log, str(number), leader_epoch=4)
        log_dir.record_log_starts({log: 10})
        log.advance_log_start_offset(10)
        log.flush()
        log.truncate_to(10)
        assert log.segment_base_offsets == [0, 5, 10]
        if how == "clean":
            log_dir.close()
        if how == "power loss":
            fs.forget_unsynced()
        if how != "truncation":
            log = reopen(fs, SMALL)
        assert (log.log_start_offset, log.log_end_offset) == (10, 10)
        assert log.epochs.entries == ((4, 10),)

    def test_a_new_beginning_below_the_start_that_was_not_finished_is_none(self) -> None:
        """The new segment reached the disk, the deletion of the old ones did not: the log is as it was before."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(6):
            append(log, str(number))
        log.append_as_leader(idempotent(1, 0, 3), leader_epoch=0, now_ms=NOW_MS)
        log_dir.record_log_starts({log: 8})
        log.advance_log_start_offset(8)
        log.flush()
        fs.put(f"/data/t-0/{7:020d}.log", b"")
        log = reopen(fs, SMALL)
        assert (log.log_start_offset, log.log_end_offset, log.segment_base_offsets) == (8, 9, [0, 5])
        assert [(b.first_offset, b.last_offset) for b in log.producers.entries[1].batches] == [(6, 8)]
        assert values_of(log) == [b"p1-2"]

    def test_index_files_without_a_log_are_removed(self) -> None:
        fs = written(5)
        fs.put("/data/t-0/00000000000000000700.index", b"12345678")
        fs.put("/data/t-0/00000000000000000700.timeindex", b"")
        fs.put("/data/t-0/00000000000000000000.index.tmp", b"12345678")
        fs.put("/data/t-0/00000000000000000000.log.deleted", b"12345678")
        log = reopen(fs, SMALL)
        assert numbers(log) == "01234"
        assert fs.listdir("/data/t-0") == ["00000000000000000000.log", "leader-epoch-checkpoint"]

    @pytest.mark.parametrize("how", ["clean", "kill"])
    def test_files_that_kafka_was_about_to_delete_go(self, how: str) -> None:
        """It renames them first and deletes them a minute later. Their names never stand for a segment of the log."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(8):
            append(log, str(number))
        if how == "clean":
            log_dir.close()
        fs.kill()
        before = {name: fs.contents(f"/data/t-0/{name}") for name in fs.listdir("/data/t-0")}
        for base_offset in (0, 5, 100):  # of a live segment, inside of one, behind the end
            for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
                fs.put(f"/data/t-0/{base_offset:020d}{suffix}.deleted", before[f"{0:020d}.log"])
        assert [problem for report in verify_log_dir(fs, "/data") for problem in report.problems] == []
        log = reopen(fs, SMALL)
        assert (log.damage, numbers(log), log.log_start_offset) == (None, "01234567", 0)
        assert not [name for name in fs.listdir("/data/t-0") if name.endswith(".deleted")]

    @pytest.mark.parametrize("how", ["clean", "kill"])
    def test_files_and_folders_that_are_nobodys_are_left_alone(self, how: str) -> None:
        """Among them what Kafka keeps beside its logs, and bytes that a repair kept aside."""
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(8):
            append(log, str(number))
        if how == "clean":
            log_dir.close()
        fs.kill()
        names = (
            "t-0/notes.txt",
            "t-0/quorum-state",
            "t-0/00000000000000000000-0000000001.checkpoint",
            "t-0/00000000000000000000.log.0.cut",
            "t-0/00000000000000000000.log.bak",
            "t-0/0.log",
            "t-0/99999999999999999999.log",
            "bootstrap.checkpoint",
            "lost+found/x",
            "t-0.0123456789abcdef-stray/00000000000000000000.log",
            "t-1.0123456789abcdef-future/00000000000000000000.log",
        )
        for name in names:
            fs.mkdir(os.path.dirname(f"/data/{name}"))
            fs.put(f"/data/{name}", name.encode())
        for _ in range(2):
            log_dir = open_log_dir(fs, SMALL)
            assert list(log_dir.logs) == [("t", 0)]
            assert (log_dir.logs["t", 0].damage, numbers(log_dir.logs["t", 0])) == (None, "01234567")
            log_dir.close()
            fs.kill()
            assert [fs.contents(f"/data/{name}") for name in names] == [name.encode() for name in names]
            assert [problem for report in verify_log_dir(fs, "/data") for problem in report.problems] == []

    @pytest.mark.parametrize("rolled", [True, False])
    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    def test_an_index_that_lies_in_the_middle_is_noticed_on_use(self, rolled: bool, suffix: str) -> None:
        """Its last entry is sound, so it passes the check at opening."""
        fs = SimFileSystem()
        log_dir, log = create_log(LogConfig(segment_bytes=20_000, index_interval_bytes=0), fs)
        for number in range(30):
            log.append_as_leader(batch("x", timestamps=[NOW_MS + number]), leader_epoch=0, now_ms=NOW_MS)
        if rolled:
            log.roll()
        log_dir.close()
        path, width = f"/data/t-0/00000000000000000000.{suffix}", 8 if suffix == "index" else 12
        damaged = bytearray(fs.contents(path))
        for entry in range(0, len(damaged) - width, width):
            damaged[entry + 7] ^= 0x11
        fs.put(path, bytes(damaged))
        log = reopen(fs)
        for offset in (20, 3, 7, 26, 11, 4, 19, 0):
            assert log.read(offset, 1, end_offset=30).next_offset == offset + 1
            assert log.read(offset, 500, end_offset=30).next_offset == min(30, offset + 500 // BATCH_BYTES)
            assert log.offset_for_time(NOW_MS + offset) == (offset, NOW_MS + offset, 0)
        if rolled:
            assert fs.contents(path) != bytes(damaged), "it was made anew"
        log.truncate_to(17)
        assert log.log_end_offset == 17

    def test_an_old_index_that_leads_into_an_old_tail_hinders_no_start(self) -> None:
        """A clean stop syncs neither the trim nor the index files: a power loss may take both back."""
        fs = SimFileSystem()
        config = LogConfig(index_interval_bytes=100)
        log_dir, log = create_log(config, fs)
        for number in range(10):
            log.append_as_leader(batch("x" * 60, timestamps=[NOW_MS + number]), leader_epoch=0, now_ms=NOW_MS)
        log_dir.close()
        path = FIRST.replace(LOG_SUFFIX, ".timeindex")
        old = fs.contents(path)
        log_dir = open_log_dir(fs, config)
        log = log_dir.logs["t", 0]
        log.truncate_to(2)
        append(log, "y")
        log_dir.close()
        fs.put(path, old)
        fs.open(FIRST).truncate(16384)
        log = open_log_dir(fs, config).logs["t", 0]
        assert (log.damage, values_of(log)) == (None, [b"x" * 60, b"x" * 60, b"y"])

    def test_a_rebuilt_index_stays_in_memory_if_the_disk_is_full(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(12):
            append(log, str(number % 10))
        log_dir.close()
        log = reopen(fs, SMALL)
        fs.put("/data/t-0/00000000000000000000.index", b"odd")
        fs.capacity_bytes = 0
        assert numbers(log) == "012345678901"


def test_only_log_files_make_a_log() -> None:
    fs = SimFileSystem()
    create_log(SMALL, fs)
    fs.kill()
    fs.put(f"/data/t-0/00000000000000000005{LOG_SUFFIX}x", b"x")
    assert reopen(fs, SMALL).log_end_offset == 0


@pytest.mark.parametrize("is_full", [False, True])
def test_a_log_that_ends_below_its_start_goes_on_there(is_full: bool) -> None:
    """A power loss took records that had been deleted. The producers of those that were flushed are known still, unless
    the disk is too full to write them down."""
    fs = SimFileSystem()
    log_dir, log = create_log(fs=fs)
    log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    append(log, "a", "b")
    log_dir.record_log_starts({log: 2})
    fs.forget_unsynced()
    if is_full:
        fs.fail("pwritev", errno.ENOSPC, path_part=".snapshot")
    log = open_log_dir(fs).logs["t", 0]
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset, log.damage) == (2, 2, None)
        assert list(log.producers.entries) == ([] if is_full else [1])
        log = reopen(fs)
    assert append(log, "c") == 2


@pytest.mark.parametrize("stops", [False, True])
def test_what_a_killed_process_cut_off_is_not_back_with_a_power_loss(stops: bool) -> None:
    """Its last file was cut, and not synced: the leader has been told since that the log ends there."""
    ends = set()
    for after in range(40):
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        for value in "abc":
            append(log, value)
        log.flush()
        log_dir.checkpoint()
        fs.stop_after(after)
        with contextlib.suppress(SimulatedPowerLoss):
            log.truncate_to(1)
        fs.kill()
        log_dir = open_log_dir(fs)
        log = log_dir.logs["t", 0]
        end = log.log_end_offset
        log.flush()
        log_dir.checkpoint()
        if stops:
            log_dir.close()
        fs.forget_unsynced()
        assert open_log_dir(fs).logs["t", 0].log_end_offset == end, f"killed at operation {after}"
        ends.add(end)
    assert ends == {1, 3}
