"""One log in memory: appending, rolling, reading, truncation, flushing, failing."""

import contextlib
import errno
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kraftlog.logstore import DiskFullError, LogConfig
from kraftlog.logstore.filesystem import File
from kraftlog.logstore.segment import Segment
from kraftlog.proto.errors import (
    CorruptRecordError,
    IllegalStateError,
    InvalidRecordError,
    InvalidTimestampError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    RecordTooLargeError,
    StorageError,
)
from kraftlog.proto.records import (
    BatchBuilder,
    CompressionType,
    TimestampType,
    control_batch,
    decode_records,
    end_transaction_marker,
    iter_headers,
    validate_batches,
)
from kraftlog.testing.crash_points import near_states
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import (
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

LOG_FILE = "/data/t-0/00000000000000000000.log"


class SlowFile:
    """A file with another `fdatasync`."""

    def __init__(self, file: File, fdatasync: Callable[[], None]) -> None:
        self._file = file
        self.fdatasync = fdatasync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TestAppending:
    def test_offsets_are_consecutive_and_epochs_written(self) -> None:
        _, log = create_log()
        info = log.append_as_leader(batch("a", "b") + batch("c"), leader_epoch=4, now_ms=NOW_MS)
        assert (info.first_offset, info.last_offset, info.record_count) == (0, 2, 3)
        assert (info.log_append_time_ms, info.log_start_offset, info.is_duplicate) == (-1, 0, False)
        assert append(log, "d", leader_epoch=5) == 3
        records = log.read(0, 1 << 20, end_offset=4).records
        assert [(h.base_offset, h.leader_epoch) for _, h in iter_headers(records)] == [(0, 4), (2, 4), (3, 5)]
        assert [r.value for r in decode_records(records)] == [b"a", b"b", b"c", b"d"]
        assert log.epochs.entries == ((4, 0), (5, 3))

    def test_only_offset_and_epoch_are_rewritten(self) -> None:
        """What the producer compressed is stored as it came, byte for byte."""
        _, log = create_log()
        append(log, "first")
        sent = batch("x" * 100, compression_type=CompressionType.GZIP)
        log.append_as_leader(sent, leader_epoch=1, now_ms=NOW_MS)
        assert log.read(1, 1 << 20, end_offset=2).records[16:] == sent[16:]

    def test_batches_validated_by_the_caller_are_not_validated_again(self) -> None:
        _, log = create_log()
        sent = batch("a")
        batches = validate_batches(sent, max_batch_bytes=1000)
        log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS, batches=batches)
        assert values_of(log) == [b"a"]

    def test_log_append_time_stamps_a_copy(self) -> None:
        _, log = create_log(LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
        sent = bytes(batch("a", "b", timestamps=[1, 2]))
        before = bytes(sent)
        info = log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
        assert info.log_append_time_ms == NOW_MS
        assert sent == before
        records = decode_records(log.read(0, 1000, end_offset=2).records)
        assert [(r.timestamp, r.timestamp_type) for r in records] == [(NOW_MS, 1)] * 2
        assert log.offset_for_time(NOW_MS) == (0, NOW_MS, 0)

    def test_a_batch_over_the_limit_is_refused(self) -> None:
        _, log = create_log(LogConfig(max_message_bytes=100))
        with pytest.raises(RecordTooLargeError, match="100"):
            append(log, "x" * 100)
        assert log.log_end_offset == 0

    def test_more_than_a_segment_at_once_is_refused(self) -> None:
        """One append is one unit: it must fit in a segment."""
        _, log = create_log(LogConfig(segment_bytes=200))
        with pytest.raises(RecordListTooLargeError, match=r"segment.bytes=200"):
            log.append_as_leader(batch("x" * 60) + batch("x" * 60), leader_epoch=0, now_ms=NOW_MS)

    def test_timestamps_far_from_the_clock_are_refused(self) -> None:
        """A timestamp ten years ahead would keep its segment for ever."""
        _, log = create_log(LogConfig(message_timestamp_before_max_ms=1000))
        ten_years = 10 * 365 * 86_400_000
        for wrong in (NOW_MS + ten_years, NOW_MS + 3_600_001, NOW_MS - 1001):
            with pytest.raises(InvalidTimestampError, match=r"message.timestamp.(after|before).max.ms"):
                log.append_as_leader(batch("a", timestamps=[wrong]), leader_epoch=0, now_ms=NOW_MS)
        for right in (NOW_MS + 3_600_000, NOW_MS - 1000):
            log.append_as_leader(batch("a", timestamps=[right]), leader_epoch=0, now_ms=NOW_MS)
        assert log.log_end_offset == 2

    def test_the_topics_codec_is_required(self) -> None:
        _, log = create_log(LogConfig(compression_type=CompressionType.LZ4))
        with pytest.raises(InvalidRecordError, match=r"compression.type=lz4"):
            append(log, "a")
        log.append_as_leader(batch("a", compression_type=CompressionType.LZ4), leader_epoch=0, now_ms=NOW_MS)
        marker = end_transaction_marker(True, 1, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
        log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)

    def test_compacted_topics_need_keys(self) -> None:
        _, log = create_log(LogConfig(cleanup_policy=frozenset({"compact"})))
        builder = BatchBuilder()
        builder.append(NOW_MS, None, b"v")
        with pytest.raises(InvalidRecordError, match="key"):
            log.append_as_leader(builder.build(), leader_epoch=0, now_ms=NOW_MS)
        append(log, "a")

    def test_control_batches_need_permission(self) -> None:
        _, log = create_log()
        marker = control_batch([(b"\0\0\0\2", b"")], timestamp_ms=NOW_MS)
        with pytest.raises(InvalidRecordError):
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS)
        log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)
        assert log.log_end_offset == 1

    def test_damaged_batches_leave_the_log_unchanged(self) -> None:
        _, log = create_log()
        damaged = bytearray(batch("a") + batch("b"))
        damaged[-1] ^= 1
        with pytest.raises(CorruptRecordError):
            log.append_as_leader(damaged, leader_epoch=0, now_ms=NOW_MS)
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(damaged)
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(b"")
        assert log.log_end_offset == 0
        assert log.size_bytes == 0

    def test_a_repeated_batch_is_answered_not_stored(self) -> None:
        _, log = create_log()
        append(log, "before")
        first = log.append_as_leader(idempotent(1, 0, 3), leader_epoch=0, now_ms=NOW_MS)
        again = log.append_as_leader(idempotent(1, 0, 3), leader_epoch=2, now_ms=NOW_MS + 5)
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (1, 3)
        assert (again.is_duplicate, again.record_count) == (True, 3)
        assert log.log_end_offset == 4

    def test_a_follower_keeps_offsets_epochs_and_bytes(self) -> None:
        _, leader = create_log()
        for number in range(5):
            append(leader, str(number), leader_epoch=number // 2)
        copied = leader.read(0, 1 << 20, end_offset=5).records
        _, follower = create_log()
        info = follower.append_as_follower(copied)
        assert (info.first_offset, info.last_offset, info.record_count, info.size_bytes) == (0, 4, 5, len(copied))
        assert follower.read(0, 1 << 20, end_offset=5).records == copied
        assert follower.epochs.entries == leader.epochs.entries

    @pytest.mark.parametrize("is_reopened", [False, True])
    def test_what_compaction_left_out_counts_as_of_the_epoch_after_it(self, is_reopened: bool) -> None:
        """Of epoch 1, which began at 1, there is nothing below 7 any more: epoch 0 did not go on to there."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        log.append_as_follower(batch("a", base_offset=0, leader_epoch=0))
        log.append_as_follower(batch("b", base_offset=7, leader_epoch=1) + batch("c", base_offset=9, leader_epoch=3))
        if is_reopened:
            log.flush()
            fs.put(f"{log.directory}/leader-epoch-checkpoint", b"")
            log = reopen(fs)
        assert log.epochs.entries == ((0, 0), (1, 1), (3, 8))

    def test_a_follower_refuses_what_it_has(self) -> None:
        """A follower appends only at its own log end."""
        _, log = create_log()
        log.append_as_follower(batch("a", base_offset=0))
        with pytest.raises(CorruptRecordError, match="ends at 1"):
            log.append_as_follower(batch("b", base_offset=0))
        with pytest.raises(CorruptRecordError, match="ends at 6"):
            log.append_as_follower(batch("b", base_offset=5) + batch("c", base_offset=3))
        assert log.log_end_offset == 1

    def test_a_new_leader_epoch_starts_at_the_end(self) -> None:
        _, log = create_log()
        append(log, "a", leader_epoch=1)
        log.assign_epoch(2)
        assert log.end_offset_for_epoch(1) == (1, 1)
        assert log.end_offset_for_epoch(2) == (2, 1)
        append(log, "b", leader_epoch=2)
        assert log.end_offset_for_epoch(2) == (2, 2)


class TestRolling:
    def test_by_size(self) -> None:
        _, log = create_log(SMALL)
        for number in range(20):
            append(log, str(number))
        assert log.segment_base_offsets == [0, 5, 10, 15]
        assert values_of(log) == [str(number).encode() for number in range(20)]

    def test_by_age_of_the_first_record(self) -> None:
        _, log = create_log(LogConfig(segment_ms=100))
        for timestamp in (NOW_MS, NOW_MS + 100, NOW_MS + 101, NOW_MS + 150):
            log.append_as_leader(batch("a", timestamps=[timestamp]), leader_epoch=0, now_ms=NOW_MS)
        assert log.segment_base_offsets == [0, 2]

    def test_by_the_clock_where_records_have_no_timestamps(self) -> None:
        _, log = create_log(LogConfig(segment_ms=100))
        for now in (NOW_MS, NOW_MS + 100, NOW_MS + 101):
            log.append_as_leader(batch("a", timestamps=[-1]), leader_epoch=0, now_ms=now)
        assert log.segment_base_offsets == [0, 2]

    def test_by_a_full_index(self) -> None:
        _, log = create_log(LogConfig(index_interval_bytes=0, segment_index_bytes=36))
        for number in range(9):
            append(log, str(number))
        assert log.segment_base_offsets == [0, 5]

    def test_an_empty_segment_is_not_rolled(self) -> None:
        """Two segments with one base offset would be one file."""
        _, log = create_log()
        assert not log.roll()
        append(log, "a")
        assert log.roll()
        assert not log.roll()
        assert log.segment_base_offsets == [0, 1]

    def test_sealed_files_are_trimmed_and_have_indexes(self) -> None:
        log_dir, log = create_log(LogConfig(index_interval_bytes=0))
        for number in range(3):
            append(log, str(number))
        fs = log_dir._fs
        assert isinstance(fs, SimFileSystem)
        assert fs.size(LOG_FILE) == 16384, "preallocated"
        log.roll()
        assert fs.size(LOG_FILE) == 3 * len(batch("0"))
        assert fs.size(LOG_FILE.replace(".log", ".index")) == 16
        assert fs.size(LOG_FILE.replace(".log", ".timeindex")) == 12
        assert "00000000000000000003.snapshot" in fs.listdir("/data/t-0")

    def test_a_roll_without_space_leaves_the_log_as_it_was(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(5):
            append(log, str(number))
        fs.capacity_bytes = fs._used + 20
        with pytest.raises(DiskFullError, match="disk full"):
            append(log, "x")
        assert log.segment_base_offsets == [0]
        assert log.failure is None
        fs.capacity_bytes = None
        assert append(log, "x") == 5
        log_dir.close()
        assert values_of(reopen(fs, SMALL)) == [b"0", b"1", b"2", b"3", b"4", b"x"]

    def test_a_roll_without_space_leaves_no_segment_that_a_power_loss_brings_back(self) -> None:
        """The log goes on beyond its first offset."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        log.flush()
        fs.fail("pwritev", errno.ENOSPC, path_part=".index")
        with pytest.raises(DiskFullError):
            log.roll()
        append(log, "b")
        log.flush()
        log_dir.checkpoint()
        for make in near_states(fs):
            text, disk = make()
            log = open_log_dir(disk).logs["t", 0]
            assert (log.damage, log.log_end_offset) == (None, 2), text


class TestReading:
    def test_from_inside_a_batch_gives_the_whole_batch(self) -> None:
        _, log = create_log()
        append(log, "a", "b", "c")
        append(log, "d")
        result = log.read(1, 1 << 20, end_offset=4)
        assert [r.value for r in decode_records(result.records)] == [b"a", b"b", b"c", b"d"]
        assert result.next_offset == 4

    def test_stops_before_a_batch_that_starts_at_the_end(self) -> None:
        _, log = create_log()
        for values in (("a", "b"), ("c", "d"), ("e",)):
            append(log, *values)
        assert log.read(0, 1 << 20, end_offset=2).next_offset == 2
        assert log.read(0, 1 << 20, end_offset=3).next_offset == 4, "the batch that holds the end comes whole"
        assert log.read(0, 1 << 20, end_offset=4).next_offset == 4
        assert log.read(2, 1 << 20, end_offset=2) == (b"", 2)
        assert log.read(4, 1 << 20, end_offset=3) == (b"", 4)

    def test_gives_at_least_one_batch_if_asked(self) -> None:
        _, log = create_log()
        append(log, "x" * 1000)
        append(log, "y")
        assert log.read(0, 10, end_offset=2).next_offset == 1
        assert log.read(0, 10, end_offset=2, at_least_one_batch=False) == (b"", 0)

    def test_fills_but_does_not_exceed_the_limit(self) -> None:
        _, log = create_log(LogConfig(index_interval_bytes=200))
        for number in range(50):
            append(log, f"{number:03d}")
        size = len(batch("000"))
        for wanted in (1, 2, 7, 23):
            for spare in (0, 1, size - 1):
                result = log.read(5, wanted * size + spare, end_offset=50)
                assert result.next_offset == 5 + wanted

    def test_a_large_answer_ends_where_an_index_entry_does(self) -> None:
        """So that it need not be copied to be cut; it is nearly full all the same."""
        _, log = create_log(LogConfig(index_interval_bytes=4_000))
        for _ in range(300):
            append(log, "x" * 1_000)
        size = len(batch("x" * 1_000))
        offset = 3
        while offset < 290:
            result = log.read(offset, 100 * size + 7, end_offset=300)
            assert len(result.records) % size == 0
            assert result.next_offset == offset + len(result.records) // size
            assert 94 <= result.next_offset - offset <= 100 or result.next_offset == 300
            offset = result.next_offset
        assert values_of(log) == [b"x" * 1_000] * 300

    def test_a_large_answer_follows_no_index_that_lies(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(LogConfig(index_interval_bytes=4_000), fs)
        for _ in range(300):
            append(log, "x" * 1_000)
        log_dir.close()
        size = len(batch("x" * 1_000))
        index = "/data/t-0/00000000000000000000.index"
        for entry in range(1, len(fs.contents(index)) // 8 - 1):
            fs.flip(index, 8 * entry + 7, 1)  # positions that are no batch's start
        log = open_log_dir(fs).logs["t", 0]
        result = log.read(0, 100 * size + 7, end_offset=300)
        assert len(result.records) == result.next_offset * size
        assert values_of(log) == [b"x" * 1_000] * 300

    def test_outside_of_the_log_is_an_error(self) -> None:
        _, log = create_log()
        append(log, "a", "b")
        log.advance_log_start_offset(1)
        for offset in (-1, 0, 3):
            with pytest.raises(OffsetOutOfRangeError, match="1 to 2"):
                log.read(offset, 100, end_offset=2)
        assert log.read(2, 100, end_offset=2) == (b"", 2)

    def test_passes_over_gaps(self) -> None:
        """Compaction leaves gaps between batches and between segments."""
        _, log = create_log(SMALL)
        for offset in range(0, 100, 10):
            log.append_as_follower(batch(str(offset), base_offset=offset))
        assert values_of(log) == [str(offset).encode() for offset in range(0, 100, 10)]
        assert log.read(1, 1, end_offset=91).next_offset == 11
        assert log.read(1, 1000, end_offset=9) == (b"", 9)

    def test_the_start_moves_up_only(self) -> None:
        _, log = create_log()
        append(log, "a", "b", "c")
        assert log.advance_log_start_offset(2)
        assert not log.advance_log_start_offset(1)
        with pytest.raises(OffsetOutOfRangeError, match="ends at 3"):
            log.advance_log_start_offset(4)
        assert log.advance_log_start_offset(3)

    def test_a_segment_that_goes_away_meanwhile_is_looked_for_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A reader in another thread has picked a segment, then the log is truncated and written anew."""
        _, log = create_log(SMALL)
        for number in range(10):
            append(log, f"old {number} {'x' * 100}")
        read = Segment.read

        def read_late(segment: Segment, *arguments: Any) -> Any:
            monkeypatch.setattr(Segment, "read", read)
            log.truncate_fully_and_start_at(0)
            append(log, "new")
            return read(segment, *arguments)

        monkeypatch.setattr(Segment, "read", read_late)
        assert [r.value for r in decode_records(log.read(0, 1000, end_offset=10).records)] == [b"new"]

    def test_a_deleted_log_is_a_storage_error(self) -> None:
        _, log = create_log(SMALL)
        append(log, "a")
        log.delete()
        with pytest.raises(StorageError, match="No such file"):
            log.read(0, 1000, end_offset=1)

    def test_a_read_error_is_a_storage_error(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        fs.fail("pread")
        with pytest.raises(StorageError, match="cannot read"):
            log.read(0, 100, end_offset=1)
        assert values_of(log) == [b"a"], "a failed read does not end the log"


class TestTruncation:
    def test_cuts_at_a_batch(self) -> None:
        _, log = create_log(SMALL)
        for number in range(20):
            append(log, str(number), leader_epoch=number // 6)
        assert log.truncate_to(7)
        assert (log.log_end_offset, log.segment_base_offsets) == (7, [0, 5])
        assert log.epochs.entries == ((0, 0), (1, 6))
        assert append(log, "new", leader_epoch=9) == 7
        assert values_of(log)[-2:] == [b"6", b"new"]

    def test_removes_a_batch_that_holds_the_offset(self) -> None:
        _, log = create_log()
        append(log, "a")
        append(log, "b", "c", "d")
        assert log.truncate_to(2)
        assert log.log_end_offset == 1

    def test_at_or_after_the_end_does_nothing(self) -> None:
        _, log = create_log()
        append(log, "a")
        assert not log.truncate_to(1)
        assert not log.truncate_to(5)

    def test_to_a_segments_base_leaves_it_empty(self) -> None:
        _, log = create_log(SMALL)
        for number in range(20):
            append(log, str(number))
        log.truncate_to(10)
        assert log.segment_base_offsets == [0, 5, 10]
        for number in range(8):
            append(log, f"n{number}")
        assert log.segment_base_offsets == [0, 5, 10, 15]
        assert len(values_of(log)) == 18

    def test_into_a_gap_keeps_the_end_exact_over_a_crash(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        for offset in (0, 10, 20):
            log.append_as_follower(batch("a", base_offset=offset))
        log.truncate_to(15)
        assert log.log_end_offset == 15
        fs.crash(random.Random(1))
        log = reopen(fs)
        assert log.log_end_offset == 15
        assert append(log, "b") == 15
        assert log.read(11, 1000, end_offset=16).next_offset == 16

    def test_is_durable_when_it_returns(self) -> None:
        """What was cut does not come back, and recovery takes nothing for lost."""
        for seed in range(30):
            fs = SimFileSystem()
            log_dir, log = create_log(SMALL, fs)
            for number in range(20):
                append(log, str(number))
            log.flush()
            log_dir.checkpoint()
            log.truncate_to(8)
            fs.crash(random.Random(seed))
            log = reopen(fs, SMALL)
            assert log.damage is None
            assert values_of(log) == [str(number).encode() for number in range(8)]

    def test_undoes_sequences_and_transactions(self) -> None:
        _, log = create_log()
        log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
        log.append_as_leader(idempotent(1, 1, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
        assert log.last_stable_offset(2) == 1
        log.truncate_to(1)
        assert log.last_stable_offset(1) == 1
        assert log.append_as_leader(idempotent(1, 1), leader_epoch=0, now_ms=NOW_MS).first_offset == 1

    def test_below_the_start_empties_the_log(self) -> None:
        _, log = create_log()
        append(log, "a", "b", "c")
        append(log, "d")
        log.advance_log_start_offset(3)
        log.truncate_to(1)
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)

    def test_starting_over_elsewhere(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(SMALL, fs)
        for number in range(20):
            log.append_as_leader(idempotent(1, number), leader_epoch=3, now_ms=NOW_MS)
        log.truncate_fully_and_start_at(5000)
        assert (log.log_start_offset, log.log_end_offset, log.flushed_end_offset) == (5000, 5000, 5000)
        assert log.producers.entries == {}
        assert log.epochs.entries == ()
        log.append_as_follower(batch("a", base_offset=5000))
        fs.crash(random.Random(3))
        log = reopen(fs, SMALL)
        assert log.log_start_offset == 5000
        assert log.damage is None

    def test_starting_over_leaves_no_producer_whatever_a_power_loss_takes(self) -> None:
        """A transaction of the old log would hold back the last stable offset of the new one for good."""
        for stop in itertools.count():
            fs = SimFileSystem()
            log_dir, log = create_log(fs=fs)
            log.append_as_leader(idempotent(1, 0, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
            log.roll()
            append(log, "b")
            log.flush()
            log_dir.checkpoint()
            fs.stop_after(stop)
            is_whole = False
            with contextlib.suppress(SimulatedPowerLoss):
                log.truncate_fully_and_start_at(100)
                is_whole = True
            for make in near_states(fs):
                text, disk = make()
                log = open_log_dir(disk).logs["t", 0]
                assert log.log_start_offset < 100 or not log.producers.entries, f"stop {stop}, {text}"
            if is_whole:
                break

    def test_a_failing_disk_ends_the_log(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        append(log, "b")
        fs.fail("truncate")
        with pytest.raises(StorageError, match="cannot truncate"):
            log.truncate_to(1)
        with pytest.raises(StorageError, match="takes no more writes"):
            append(log, "c")


class TestTime:
    def test_lookups_by_time(self) -> None:
        _, log = create_log(SMALL)
        for number in range(30):
            log.append_as_leader(
                batch("a", "b", timestamps=[1000 + 10 * number, 1005 + 10 * number]), leader_epoch=2, now_ms=1000
            )
        assert log.offset_for_time(0) == (0, 1000, 2)
        assert log.offset_for_time(1100) == (20, 1100, 2)
        assert log.offset_for_time(1101) == (21, 1105, 2)
        assert log.offset_for_time(1296) is None
        assert log.max_timestamp() == (59, 1295, 2)

    def test_an_empty_log_has_no_times(self) -> None:
        _, log = create_log()
        assert log.offset_for_time(0) is None
        assert log.max_timestamp() is None

    def test_deleted_records_are_not_found(self) -> None:
        _, log = create_log()
        log.append_as_leader(batch("a", "b", "c", timestamps=[30, 20, 10]), leader_epoch=0, now_ms=30)
        log.advance_log_start_offset(1)
        assert log.offset_for_time(5) == (1, 20, 0)
        assert log.offset_for_time(25) is None
        assert log.max_timestamp() == (1, 20, 0)


class TestFlushing:
    def test_says_what_is_durable(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a", "b")
        assert log.flushed_end_offset == 0
        assert log.flush() == 2
        append(log, "c")
        assert (log.flushed_end_offset, log.log_end_offset) == (2, 3)

    def test_one_sync_serves_all_appends_before_it(self) -> None:
        fs = SimFileSystem(records_operations=True)
        _, log = create_log(fs=fs)
        for number in range(10):
            append(log, str(number))
        fs.operations.clear()
        log.flush()
        log.flush()
        synced = [operation.path for operation in fs.operations if operation.name == "fdatasync"]
        assert [path for path in synced if path.endswith(".log")] == [LOG_FILE]

    def test_appends_go_on_while_a_sync_runs(self) -> None:
        """What comes after its start is not reported by it."""
        fs = SimFileSystem()
        _, log = create_log(SMALL, fs)
        append(log, "first")
        entered, leave = threading.Event(), threading.Event()
        fdatasync = log._active.file.fdatasync

        def slow_fdatasync() -> None:
            entered.set()
            assert leave.wait(10)
            fdatasync()

        slow: Any = SlowFile(log._active.file, slow_fdatasync)
        log._active._file = slow
        flushed: list[int] = []
        thread = threading.Thread(target=lambda: flushed.append(log.flush()))
        thread.start()
        assert entered.wait(10)
        for number in range(12):
            append(log, str(number))
        leave.set()
        thread.join(10)
        assert flushed == [1]
        assert log.flushed_end_offset == 1
        assert len(log.segment_base_offsets) > 1
        assert log.flush() == 13

    def test_a_failed_sync_ends_the_log_for_good(self) -> None:
        """The kernel may have dropped the pages that failed: a second fsync would succeed without them."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        log.flush()
        append(log, "b")
        fs.fail("fdatasync", path_part=".log")
        with pytest.raises(StorageError, match="cannot sync"):
            log.flush()
        for attempt in (log.flush, lambda: append(log, "c"), lambda: log.truncate_to(1), log.roll):
            with pytest.raises(StorageError):
                attempt()
        assert (log.flushed_end_offset, log.log_end_offset) == (1, 2)
        assert values_of(log) == [b"a", b"b"], "it still serves reads"
        assert not log.close()

    @pytest.mark.parametrize("operation", ["pwritev", "preallocate"])
    def test_a_failed_write_ends_the_log(self, operation: str) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        fs.fail(operation, errno.EIO, path_part=".log")
        with pytest.raises(StorageError, match="cannot append"):
            append(log, "a")
        with pytest.raises(StorageError, match="takes no more writes"):
            append(log, "a")
        assert log.log_end_offset == 0

    def test_a_full_disk_refuses_and_goes_on_when_there_is_space(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        fs.capacity_bytes = fs._used
        with pytest.raises(DiskFullError, match="disk full; free space"):
            append(log, "x" * 20_000)
        assert (log.log_end_offset, log.failure) == (1, None)
        assert values_of(log) == [b"a"]
        append(log, "b")
        fs.capacity_bytes += 30_000
        append(log, "x" * 20_000)
        log.flush()
        assert len(values_of(log)) == 3

    def test_the_last_bytes_of_a_disk_are_used(self) -> None:
        """Preallocation takes no more than it must when space is short."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        fs.capacity_bytes = fs._used + 1000
        append(log, "x" * 800)
        assert values_of(log) == [b"x" * 800]

    def test_a_half_written_append_is_taken_back(self) -> None:
        """Where there is no preallocation, a write can run out of space half-way."""
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        log._active._allocated = 1 << 30
        fs.capacity_bytes = fs._used + 100
        with pytest.raises(DiskFullError):
            log.append_as_leader(batch("b") + batch("x" * 17_000), leader_epoch=0, now_ms=NOW_MS)
        assert fs.size(LOG_FILE) == log.size_bytes
        fs.kill()
        fs.heal()
        log = reopen(fs)
        assert values_of(log) == [b"a"]

    def test_what_cannot_be_taken_back_ends_the_log(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        fs.fail("pwritev", errno.ENOSPC, path_part=".log")
        fs.fail("truncate", errno.EIO, path_part=".log")
        with pytest.raises(StorageError):
            append(log, "a")
        with pytest.raises(StorageError, match="takes no more writes"):
            append(log, "a")

    def test_no_space_for_a_state_file_is_no_failure(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(fs=fs)
        append(log, "a")
        fs.capacity_bytes = fs._used
        with pytest.raises(DiskFullError):
            log.flush()
        assert log.flushed_end_offset == 0
        fs.capacity_bytes = None
        assert log.flush() == 1


class TestClosing:
    def test_a_closed_log_refuses_writes(self) -> None:
        _, log = create_log()
        append(log, "a")
        assert log.close()
        assert not log.close()
        with pytest.raises(IllegalStateError, match="closed"):
            append(log, "b")
        with pytest.raises(StorageError, match="closed"):
            log.flush()

    def test_a_clean_close_leaves_files_as_kafka_does(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a", leader_epoch=4)
        log_dir.close()
        assert fs.size(LOG_FILE) == len(batch("a"))
        assert fs.listdir("/data/t-0") == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000001.snapshot",
            "leader-epoch-checkpoint",
        ]

    def test_delete_removes_everything(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(SMALL, fs)
        for number in range(20):
            append(log, str(number))
        log.delete()
        assert fs.size("/data/t-0") is None


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_oldest_transaction(self) -> None:
        _, log = create_log()
        append(log, "plain")
        for producer in (1, 2):
            log.append_as_leader(idempotent(producer, 0, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
        assert log.last_stable_offset(3) == 1
        assert log.last_stable_offset(0) == 0
        for producer, commit in ((1, True), (2, False)):
            marker = end_transaction_marker(commit, 0, producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS)
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)
        assert log.last_stable_offset(4) == 2, "the second marker is not replicated"
        assert log.last_stable_offset(5) == 5

    def test_an_aborted_transaction_that_was_cut_is_not_back_after_a_clean_stop_and_a_power_loss(self) -> None:
        """Its list is a file, which goes at the stop; the same records were sent again, and committed."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        for epoch, commit in enumerate((False, True)):
            log.append_as_leader(idempotent(1, 0, is_transactional=True), leader_epoch=epoch, now_ms=NOW_MS)
            marker = end_transaction_marker(commit, 0, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
            log.append_as_leader(marker, leader_epoch=epoch, now_ms=NOW_MS, allow_control=True)
            log.flush()
            log_dir.close()
            if not commit:
                log_dir = open_log_dir(fs)
                log = log_dir.logs["t", 0]
                log.truncate_to(0)
        for make in near_states(fs):
            text, disk = make()
            log = open_log_dir(disk).logs["t", 0]
            assert (log.log_end_offset, log.aborted_transactions(0, 2)) == (2, []), text

    def test_aborted_transactions_are_found_over_segments_and_restarts(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(SMALL, fs)
        for producer in (1, 2, 3):
            log.append_as_leader(idempotent(producer, 0, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
        for number in range(8):
            append(log, str(number))
        for producer in (3, 1):
            marker = end_transaction_marker(False, 0, producer_id=producer, producer_epoch=0, timestamp_ms=NOW_MS)
            log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)
        for _ in range(3):
            found = [(t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_transactions(0, 13)]
            assert found == [(1, 0, 12), (3, 2, 11)]
            assert [t.producer_id for t in log.aborted_transactions(12, 13)] == [1]
            assert [t.producer_id for t in log.aborted_transactions(0, 2)] == [1]
            log.roll()
            log = reopen(fs, SMALL)
            assert log.last_stable_offset(13) == 1
