"""Which segments go, and how they go: nothing that must stay, nothing half, nothing that comes back."""

import errno
import random
import threading
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.logstore import DiskFullError, Log, LogConfig, LogDir
from kraftlog.logstore.filesystem import read_file
from kraftlog.logstore.observer import Deletion, Recovery, SilentObserver
from kraftlog.logstore.retention import Reason, expired
from kraftlog.proto.errors import OffsetOutOfRangeError, StorageError
from kraftlog.testing.crash_points import random_states
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import (
    CLUSTER_ID,
    DATA,
    NOW_MS,
    SMALL,
    append,
    batch,
    create_log,
    idempotent,
    open_log_dir,
    reopen,
    retain,
    values_of,
)

DAY_MS = 24 * 60 * 60 * 1000
ANY_AGE = LogConfig(retention_ms=-1)


@dataclass
class FakeSegment:
    base_offset: int
    size_bytes: int
    newest: int
    asked: list[int] = field(default_factory=list)

    def newest_ms(self, now_ms: int) -> int:
        self.asked.append(self.base_offset)
        return self.newest


def decide(
    segments: list[FakeSegment], config: LogConfig, *, end: int = 100, start: int = 0, high_watermark: int = 100
) -> list[Reason]:
    return expired(
        segments,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=high_watermark,
        config=config,
        now_ms=1000,
    )


def three(
    sizes: tuple[int, int, int] = (10, 10, 10), newest: tuple[int, int, int] = (100, 200, 300)
) -> list[FakeSegment]:
    return [FakeSegment(10 * n, size, stamp) for n, (size, stamp) in enumerate(zip(sizes, newest, strict=True))]


class TestTheDecision:
    def test_nothing_goes_by_default(self) -> None:
        assert decide(three(), LogConfig()) == []

    @pytest.mark.parametrize(("retention_ms", "count"), [(900, 0), (899, 1), (800, 1), (799, 2), (0, 3), (-1, 0)])
    def test_by_time_what_is_older_than_the_limit_goes(self, retention_ms: int, count: int) -> None:
        """The newest record decides; one exactly as old as the limit stays."""
        assert decide(three(), LogConfig(retention_ms=retention_ms)) == [Reason.TIME] * count

    @pytest.mark.parametrize(
        ("retention_bytes", "count"), [(-1, 0), (30, 0), (21, 0), (20, 1), (19, 1), (10, 2), (0, 3)]
    )
    def test_by_size_the_log_never_falls_below_the_limit(self, retention_bytes: int, count: int) -> None:
        config = replace(ANY_AGE, retention_bytes=retention_bytes)
        assert decide(three(), config) == [Reason.SIZE] * count

    @pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (29, 2), (99, 2), (100, 3)])
    def test_by_log_start_only_what_lies_wholly_below_goes(self, start: int, count: int) -> None:
        """Also of compacted topics. The growing segment goes when its last record was deleted."""
        for config in (ANY_AGE, replace(ANY_AGE, cleanup_policy=frozenset({"compact"}))):
            assert decide(three(), config, start=start) == [Reason.LOG_START_OFFSET] * count

    @pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (9, 0), (10, 1), (99, 2), (100, 3)])
    def test_nothing_that_is_not_wholly_below_the_high_watermark_goes(self, high_watermark: int, count: int) -> None:
        assert len(decide(three(), LogConfig(retention_ms=0), high_watermark=high_watermark)) == count

    def test_compaction_alone_knows_neither_time_nor_size(self) -> None:
        config = LogConfig(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
        assert decide(three(), config) == []
        assert len(decide(three(), replace(config, cleanup_policy=frozenset({"compact", "delete"})))) == 3

    def test_an_empty_growing_segment_stays(self) -> None:
        assert (
            decide(three(sizes=(10, 10, 0)), LogConfig(retention_ms=0, retention_bytes=0), end=20) == [Reason.SIZE] * 2
        )
        assert decide([FakeSegment(0, 0, 0)], LogConfig(retention_ms=0), end=0) == []

    def test_a_young_segment_in_between_keeps_the_older_ones_behind_it(self) -> None:
        """Only the front goes: a log has no holes."""
        segments = three(newest=(100, 900, 100))
        assert decide(segments, LogConfig(retention_ms=500)) == [Reason.TIME]
        assert all(segment.asked != [20] for segment in segments), "what lies behind it is not even looked at"

    @given(data=st.data())
    def test_it_is_the_longest_prefix_that_may_go(self, data: st.DataObject) -> None:
        """Against the rules said one by one."""
        count = data.draw(st.integers(1, 6))
        steps = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
        bases = [sum(steps[:n]) for n in range(count)]
        end = sum(steps)
        segments = [FakeSegment(b, data.draw(st.integers(1, 50)), data.draw(st.integers(0, 1000))) for b in bases]
        start, mark = data.draw(st.integers(0, end)), data.draw(st.integers(0, end))
        config = LogConfig(
            retention_ms=data.draw(st.sampled_from([-1, 0, 300, 700])),
            retention_bytes=data.draw(st.sampled_from([-1, 0, 30, 100])),
            cleanup_policy=frozenset(data.draw(st.sampled_from([("delete",), ("compact",), ("compact", "delete")]))),
        )
        reasons = decide(segments, config, end=end, start=start, high_watermark=mark)
        ends = [*bases[1:], end]
        deletes = "delete" in config.cleanup_policy

        def may_go(n: int) -> bool:
            kept_bytes = sum(segment.size_bytes for segment in segments[n + 1 :])
            return ends[n] <= mark and (
                ends[n] <= start
                or (deletes and config.retention_bytes >= 0 and kept_bytes >= config.retention_bytes)
                or (deletes and config.retention_ms >= 0 and 1000 - segments[n].newest > config.retention_ms)
            )

        assert len(reasons) == next((n for n in range(count) if not may_go(n)), count)


def filled(
    count: int = 20, config: LogConfig = SMALL, fs: SimFileSystem | None = None
) -> tuple[SimFileSystem, LogDir, Log]:
    """Records 0 to `count`, each a day older than the next one; the last one is a day old."""
    fs = fs or SimFileSystem()
    log_dir, log = create_log(config, fs)
    for number in range(count):
        stamp = NOW_MS - (count - number) * DAY_MS
        log.append_as_leader(batch(f"{number:02d}", timestamps=[stamp]), leader_epoch=number // 4, now_ms=NOW_MS)
    log.flush()
    return fs, log_dir, log


def files(fs: SimFileSystem) -> list[str]:
    return [name for name in fs.listdir(f"{DATA}/t-0") if name[0] == "0"]


class TestALog:
    def test_old_segments_go_with_all_their_files(self) -> None:
        fs, log_dir, log = filled()
        bases = log.segment_base_offsets
        assert bases == [0, 5, 10, 15]
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        assert retain(log_dir, log) == 2
        assert log.segment_base_offsets == bases[2:]
        assert log.log_start_offset == bases[2]
        assert files(fs)[0].startswith(f"{bases[2]:020d}"), "no index and no snapshot is left of what went"
        assert values_of(log) == [b"%02d" % number for number in range(bases[2], 20)]
        with pytest.raises(OffsetOutOfRangeError):
            log.read(bases[2] - 1, 100, end_offset=20)
        assert retain(log_dir, log) == 0, "what is left is younger"
        for _ in range(2):
            log = reopen(fs, SMALL)
            assert log.log_start_offset == bases[2]
            assert values_of(log) == [b"%02d" % number for number in range(bases[2], 20)]

    def test_epochs_follow_the_start(self) -> None:
        fs, log_dir, log = filled()
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        retain(log_dir, log)
        start = log.log_start_offset
        assert start == 10
        assert log.epochs.entries == ((2, 10), (3, 12), (4, 16))
        assert log.end_offset_for_epoch(1) == (1, 10), "an epoch that is gone ends where the log starts"
        assert reopen(fs, SMALL).epochs.entries == ((2, 10), (3, 12), (4, 16))

    def test_a_log_that_is_wholly_expired_goes_on_empty(self) -> None:
        fs, log_dir, log = filled()
        log.config = replace(SMALL, retention_ms=1)
        assert retain(log_dir, log) == 4
        assert (log.segment_base_offsets, log.log_start_offset, log.log_end_offset) == ([20], 20, 20)
        assert [name[-4:] for name in files(fs)] == [".log", "shot"]
        assert retain(log_dir, log) == 0
        assert append(log, "next") == 20
        log = reopen(fs, SMALL)
        assert (log.log_start_offset, values_of(log)) == (20, [b"next"])

    def test_what_was_appended_meanwhile_keeps_the_growing_segment(self) -> None:
        """The plan was made for a log that ended earlier: it is dropped as a whole."""
        _, _, log = filled()
        log.config = replace(SMALL, retention_ms=1)
        plan = log.plan_retention(now_ms=NOW_MS, high_watermark=20)
        assert plan is not None
        assert plan.rolls
        append(log, "new")
        bases = log.segment_base_offsets
        assert not log.begin_retention(plan, NOW_MS)
        assert log.segment_base_offsets == bases

    def test_a_plan_that_others_overtook_is_dropped(self) -> None:
        """Segments that truncation or cleaning replaced meanwhile are none of this plan's business."""
        _, _, log = filled()
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        plan = log.plan_retention(now_ms=NOW_MS, high_watermark=20)
        assert plan is not None
        log.truncate_to(5)
        assert log.begin_retention(plan, NOW_MS)
        assert not log.detach(plan)
        assert log.log_start_offset == 0

    def test_a_segment_that_is_not_synced_is_not_deleted(self) -> None:
        """Its end lies beyond the recovery point: a crash would find records missing that it was promised."""
        log_dir, log = create_log(SMALL)
        for number in range(12):
            append(log, f"{number:02d}")
        log.config = replace(SMALL, retention_bytes=0)
        plan = log.plan_retention(now_ms=NOW_MS, high_watermark=12)
        assert plan is not None
        assert log.begin_retention(plan, NOW_MS)
        assert log.needs_flush_before_deletion(plan)
        assert not log.detach(plan)
        log.flush()
        assert log.detach(plan)
        log.delete_detached(plan)
        log_dir.close()

    def test_a_closed_log_deletes_nothing_any_more(self) -> None:
        """Its directory may have been taken over by a topic of the same name."""
        fs, log_dir, log = filled()
        log.config = replace(SMALL, retention_ms=1)
        plan = log.plan_retention(now_ms=NOW_MS, high_watermark=20)
        assert plan is not None
        assert log.begin_retention(plan, NOW_MS)
        log.flush()
        assert log.detach(plan)
        log_dir.delete_log("t", 0)
        again = log_dir.create_log("t", 0, now_ms=NOW_MS)
        append(again, "other")
        log.delete_detached(plan)
        assert "00000000000000000000.log" in files(fs)
        assert values_of(again) == [b"other"]

    def test_a_reader_that_has_a_segment_open_reads_it_to_its_end(self) -> None:
        """Retention disturbs nobody in the middle of a read: the files live until they are let go."""
        _, log_dir, log = filled()
        segment = log._segments[0]
        file = segment.file
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        assert retain(log_dir, log) == 2
        assert file.pread(61, 0)[:8] == bytes(8)

    def test_readers_see_the_start_before_the_segments(self) -> None:
        """A reader in another thread gets the records that it asked for or OffsetOutOfRange, never later ones."""
        wrong: list[object] = []
        for _ in range(30):
            _, log_dir, log = filled()
            log.config = replace(SMALL, retention_ms=1)
            started = threading.Barrier(2)

            def read(log: Log = log, started: threading.Barrier = started) -> None:
                started.wait()
                for _ in range(200):
                    try:
                        result = log.read(1, 100, end_offset=20)
                    except OffsetOutOfRangeError:
                        return
                    if result.next_offset != 2:
                        wrong.append(result)

            reader = threading.Thread(target=read)
            reader.start()
            started.wait()
            retain(log_dir, log)
            reader.join()
        assert wrong == []

    def test_a_disk_error_while_deleting_fails_the_log(self) -> None:
        fs, log_dir, log = filled()
        log.config = replace(SMALL, retention_ms=1)
        fs.fail("unlink")
        with pytest.raises(StorageError, match="delete segments"):
            retain(log_dir, log)
        assert log.failure is not None

    def test_the_observer_learns_what_went_and_why(self) -> None:
        told: list[tuple[str, int, Deletion]] = []

        class Recorder(SilentObserver):
            def on_deletion(self, topic: str, partition: int, deletion: Deletion) -> None:
                told.append((topic, partition, deletion))

        fs, log_dir, log = filled()
        log_dir.close()
        fs.kill()
        log_dir = LogDir.open(
            DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=SMALL, observer=Recorder()
        )
        log = log_dir.logs["t", 0]
        size = log.size_bytes // 4
        log.advance_log_start_offset(5)
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        retain(log_dir, log)
        assert told == [
            ("t", 0, Deletion("log start offset", 1, size)),
            ("t", 0, Deletion("retention.ms", 1, size)),
        ]

    @pytest.mark.parametrize("retention_ms", [1, 10 * DAY_MS])
    def test_a_power_loss_at_any_moment_takes_nothing_back(self, retention_ms: int) -> None:
        """The start that readers have seen is never taken back, and what lies above it is all there."""
        operations = 0
        for stop in range(200):
            fs, log_dir, log = filled()
            log.config = replace(SMALL, retention_ms=retention_ms)
            fs.stop_after(stop)
            try:
                retain(log_dir, log)
                append(log, "more")
                log.flush()
                fs.stop_after(None)
                operations = stop
            except SimulatedPowerLoss:
                pass
            seen = log.log_start_offset
            fs.crash(random.Random(stop))
            log = open_log_dir(fs, SMALL).logs["t", 0]
            assert log.damage is None, f"stop {stop}"
            assert log.log_start_offset >= seen, f"stop {stop}: the start went back from {seen}"
            assert values_of(log)[: 20 - log.log_start_offset] == [b"%02d" % n for n in range(log.log_start_offset, 20)]
            assert append(log, "next") >= 20
            if operations:
                return
        pytest.fail("retention never came to its end")

    def test_leftovers_of_a_crash_go_with_the_next_round(self) -> None:
        fs, log_dir, log = filled()
        log.config = replace(SMALL, retention_ms=10 * DAY_MS)
        plan = log.plan_retention(now_ms=NOW_MS, high_watermark=20)
        assert plan is not None
        log_dir.record_log_starts({log: plan.start_offset})
        assert log.detach(plan)
        fs.kill()
        log_dir = open_log_dir(fs, replace(SMALL, retention_ms=-1))
        log = log_dir.logs["t", 0]
        assert log.segment_base_offsets[0] == 0
        assert log.log_start_offset == 10
        assert retain(log_dir, log) == 2
        assert log.segment_base_offsets[0] == 10


class TestIdleSegments:
    def test_an_idle_segment_is_rolled_when_segment_ms_is_over(self) -> None:
        config = LogConfig(segment_ms=1000, retention_ms=-1)
        log_dir, log = create_log(config)
        log.append_as_leader(batch("a", timestamps=[5]), leader_epoch=0, now_ms=NOW_MS)
        assert retain(log_dir, log, now_ms=NOW_MS + 1000) == 0
        assert log.segment_base_offsets == [0]
        retain(log_dir, log, now_ms=NOW_MS + 1001)
        assert log.segment_base_offsets == [0, 1]
        retain(log_dir, log, now_ms=NOW_MS + DAY_MS)
        assert log.segment_base_offsets == [0, 1], "an empty segment has no age"

    def test_the_age_counts_from_the_first_record(self) -> None:
        config = LogConfig(segment_ms=1000, retention_ms=-1)
        log_dir, log = create_log(config)
        log.append_as_leader(batch("late"), leader_epoch=0, now_ms=NOW_MS + DAY_MS)
        retain(log_dir, log, now_ms=NOW_MS + DAY_MS + 900)
        assert log.segment_base_offsets == [0]

    def test_a_restart_does_not_make_a_segment_young(self) -> None:
        config = LogConfig(segment_ms=DAY_MS, retention_ms=-1)
        fs = SimFileSystem()
        log_dir, log = create_log(config, fs)
        log.append_as_leader(batch("old", timestamps=[NOW_MS - 2 * DAY_MS]), leader_epoch=0, now_ms=NOW_MS)
        log.flush()
        fs.kill()
        log_dir = open_log_dir(fs, config)
        log = log_dir.logs["t", 0]
        retain(log_dir, log)
        assert log.segment_base_offsets == [0, 1]

    def test_old_timestamps_do_not_roll_a_segment_at_every_check(self) -> None:
        """Records of 1970 that are copied in: each check would otherwise seal what came since the last one."""
        config = LogConfig(segment_ms=DAY_MS, retention_ms=-1)
        log_dir, log = create_log(config)
        for number in range(10):
            log.append_as_leader(batch("x", timestamps=[number]), leader_epoch=0, now_ms=NOW_MS + number)
            retain(log_dir, log, now_ms=NOW_MS + number)
        assert log.segment_base_offsets == [0]


class TestAgeOfASegment:
    def test_without_timestamps_the_files_last_change_counts(self) -> None:
        now = [NOW_MS]
        fs = SimFileSystem(wall_ms=lambda: now[0])
        config = LogConfig(retention_ms=1000)
        log_dir, log = create_log(config, fs)
        log.append_as_leader(batch("x", timestamps=[-1]), leader_epoch=0, now_ms=NOW_MS)
        assert retain(log_dir, log, now_ms=NOW_MS + 1000) == 0
        assert retain(log_dir, log, now_ms=NOW_MS + 1001) == 1

    def test_the_largest_timestamp_counts_not_the_last(self) -> None:
        log_dir, log = create_log(LogConfig(retention_ms=1000))
        log.append_as_leader(batch("x", "y", timestamps=[NOW_MS, 5]), leader_epoch=0, now_ms=NOW_MS)
        log.append_as_leader(batch("z", timestamps=[7]), leader_epoch=0, now_ms=NOW_MS)
        assert retain(log_dir, log, now_ms=NOW_MS + 1000) == 0
        assert retain(log_dir, log, now_ms=NOW_MS + 1001) == 1


class TestRecordedStarts:
    def test_a_recorded_start_outlives_a_crash_before_anybody_saw_it(self) -> None:
        fs, log_dir, log = filled()
        log_dir.record_log_starts({log: 7})
        assert log.log_start_offset == 0
        log_dir.checkpoint()
        fs.crash(random.Random(1))
        assert open_log_dir(fs, SMALL).logs["t", 0].log_start_offset == 7

    def test_starts_only_grow(self) -> None:
        fs, log_dir, log = filled()
        log_dir.record_log_starts({log: 7})
        log_dir.record_log_starts({log: 3})
        log.advance_log_start_offset(3)
        log_dir.checkpoint()
        assert reopen(fs, SMALL).log_start_offset == 7

    def test_a_truncation_below_it_takes_a_recorded_start_back(self) -> None:
        fs, log_dir, log = filled()
        log_dir.record_log_starts({log: 15})
        log.truncate_to(10)
        log = reopen(fs, SMALL)
        assert (log.log_start_offset, log.log_end_offset) == (0, 10)

    def test_nothing_is_recorded_for_a_log_that_was_deleted_meanwhile(self) -> None:
        """A log of the same name would start there."""
        fs, log_dir, log = filled()
        log_dir.delete_log("t", 0)
        log_dir.create_log("t", 0, now_ms=NOW_MS)
        log_dir.record_log_starts({log: 7})
        assert reopen(fs, SMALL).log_start_offset == 0


class TestProducers:
    def test_state_of_producers_outlives_their_records(self) -> None:
        """As in Kafka since KIP-360: a repeated batch is known although it was deleted."""
        fs = SimFileSystem()
        log_dir, log = create_log(replace(SMALL, retention_ms=-1, retention_bytes=0), fs)
        sent = idempotent(1, 0, 2)
        log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
        log.flush()
        assert retain(log_dir, log) == 1
        for _ in range(2):
            assert log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS).is_duplicate
            assert log.log_start_offset == log.log_end_offset == 2
            log = reopen(fs)

    def test_a_clean_stop_puts_no_state_at_risk_that_no_record_can_bring_back(self) -> None:
        """The snapshot at the end of an emptied log is synced; a stop must not replace it by one that is not."""
        sent = idempotent(1, 0)
        for seed in range(20):
            fs = SimFileSystem()
            log_dir, log = create_log(replace(SMALL, retention_ms=-1, retention_bytes=0), fs)
            log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
            assert retain(log_dir, log) == 1
            log_dir.close()
            fs.crash(random.Random(seed))
            log = open_log_dir(fs).logs["t", 0]
            assert log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS).is_duplicate, f"seed {seed}"

    def test_the_last_stable_offset_is_not_below_the_start(self) -> None:
        log_dir, log = create_log(LogConfig(retention_bytes=0, retention_ms=-1))
        log.append_as_leader(idempotent(1, 0, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
        append(log, "x")
        log.flush()
        assert log.last_stable_offset(2) == 0
        assert retain(log_dir, log) == 1
        assert log.last_stable_offset(2) == 2


def test_a_producer_whose_records_are_gone_survives_a_stop_and_a_power_loss() -> None:
    """Only the snapshot knows of it; the one that the stop writes at the same offset must not put it at risk."""
    for seed in range(20):
        fs = SimFileSystem()
        log_dir, log = create_log(LogConfig(retention_ms=-1, retention_bytes=0), fs)
        log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
        retain(log_dir, log)
        assert log.log_start_offset == log.log_end_offset == 1
        log_dir.close()
        log_dir = open_log_dir(fs)
        _, disk = next(random_states(fs, random.Random(seed)))
        log = open_log_dir(disk).logs["t", 0]
        assert log.producers.entries[1].last_sequence == 0, f"seed {seed}"


def test_a_producer_is_known_after_a_power_loss_that_took_its_segment_and_left_an_older_one() -> None:
    """Deleted files go in any order. Recovery that begins at what is left of them has nothing to tell it of the producer."""
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(retention_ms=-1, retention_bytes=0), fs)
    append(log, "a")
    log.roll()
    log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    oldest = f"{DATA}/t-0/{0:020d}.log"
    left = read_file(fs, oldest)
    assert retain(log_dir, log) == 2
    fs.put(oldest, left)
    log = reopen(fs)
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (2, 2, None)
    assert log.producers.entries[1].last_sequence == 0


def test_a_producer_is_known_after_a_power_loss_that_left_its_segment_and_took_what_was_before() -> None:
    """What is left may reach the recovery point, as a segment does that was sealed after it was recorded."""
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(retention_ms=-1, retention_bytes=0), fs)
    log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.roll()
    append(log, "b")
    log.roll()
    log.flush()
    last = f"{DATA}/t-0/{1:020d}.log"
    left = read_file(fs, last)
    assert retain(log_dir, log) == 2
    fs.put(last, left)
    log = reopen(fs)
    assert (log.segment_base_offsets, log.log_start_offset, log.damage) == ([1, 2], 2, None)
    assert log.producers.entries[1].last_sequence == 0


def test_a_producer_is_known_after_a_power_loss_that_took_the_snapshot_of_a_new_segment() -> None:
    """Its records are deleted, and the segment that has them goes next: the snapshot is made anew before that, durably."""
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(), fs)
    log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    log_dir.checkpoint()
    log_dir.record_log_starts({log: 1})
    log.advance_log_start_offset(1)
    log.roll()
    fs.kill()
    fs.unlink(f"{DATA}/t-0/{1:020d}.snapshot")
    log_dir = open_log_dir(fs)
    log = log_dir.logs["t", 0]
    assert retain(log_dir, log) == 1
    fs.forget_unsynced()
    assert open_log_dir(fs).logs["t", 0].producers.entries[1].last_sequence == 0


def test_a_stop_inside_of_a_roll_lets_recovery_read_no_more_than_the_segment_that_was_rolled() -> None:
    """Not all that was deleted and is still there: the rolled one alone is not trimmed yet."""
    read: list[int] = []

    class Recorder(SilentObserver):
        def on_recovery(self, topic: str, partition: int, recovery: Recovery) -> None:
            read.append(recovery.checked_bytes)

    fs, log_dir, log = filled()
    log_dir.checkpoint()
    log_dir.record_log_starts({log: 20})
    log.advance_log_start_offset(20)
    last = f"{DATA}/t-0/{15:020d}.log"
    before_the_trim = read_file(fs, last)
    log.roll()
    fs.kill()
    fs.put(last, before_the_trim)
    log_dir = LogDir.open(
        DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=SMALL, observer=Recorder()
    )
    log = log_dir.logs["t", 0]
    assert (log.segment_base_offsets, log.log_end_offset, log.damage) == ([0, 5, 10, 15, 20], 20, None)
    assert read == [len(before_the_trim)]
    assert [name for name in files(fs) if name.endswith("5.snapshot")] == [f"{n:020d}.snapshot" for n in (5, 15)]


def after_a_start_on_a_full_disk() -> tuple[SimFileSystem, LogDir, Log]:
    """Records 0 to 2, each in a segment, and a producer known by the second one. Where they end could not be recorded."""
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(), fs)
    append(log, "a")
    log.roll()
    log.append_as_leader(idempotent(1, 0), leader_epoch=0, now_ms=NOW_MS)
    log.roll()
    append(log, "c")
    fs.kill()
    fs.fail("pwritev", errno.ENOSPC, path_part="-offset-checkpoint", times=1000)
    log_dir = open_log_dir(fs)
    log = log_dir.logs["t", 0]
    assert log.flushed_end_offset == 3
    log.config = LogConfig(retention_bytes=72, retention_ms=-1)
    return fs, log_dir, log


def test_what_was_recovered_on_a_full_disk_is_not_deleted_before_its_end_is_recorded() -> None:
    """Recovery would begin at what a power loss leaves of it, and take the flushed record behind it for one that never was."""
    fs, _, log = after_a_start_on_a_full_disk()
    plan = log.plan_retention(now_ms=NOW_MS, high_watermark=3)
    assert plan is not None
    assert (plan.start_offset, plan.rolls) == (2, False)
    for _ in range(2):
        assert log.needs_flush_before_deletion(plan)
        with pytest.raises(DiskFullError):
            log.flush_before_deletion(plan)
        assert not log.detach(plan)
    fs.heal()
    log.flush_before_deletion(plan)
    assert log.detach(plan)
    log.delete_detached(plan)
    assert reopen(fs).log_end_offset == 3


def test_a_producer_is_known_after_a_start_on_a_full_disk_and_a_power_loss_inside_of_retention() -> None:
    """Of the deleted segments the older one was left."""
    fs, log_dir, log = after_a_start_on_a_full_disk()
    fs.heal()
    oldest = f"{DATA}/t-0/{0:020d}.log"
    left = read_file(fs, oldest)
    assert retain(log_dir, log) == 2
    fs.put(oldest, left)
    log = reopen(fs)
    assert (log.log_start_offset, log.log_end_offset, log.damage) == (2, 3, None)
    assert log.producers.entries[1].last_sequence == 0


def test_a_plan_is_cut_to_the_segments_that_end_below_an_offset() -> None:
    _, _, log = filled(20, replace(SMALL, retention_bytes=0, retention_ms=-1))
    plan = log.plan_retention(now_ms=NOW_MS, high_watermark=20)
    assert plan is not None
    assert [segment.base_offset for segment in plan.segments] == [0, 5, 10, 15]
    for offset, start_offset, bases in [(4, 20, []), (5, 5, [0]), (14, 10, [0, 5]), (20, 20, [0, 5, 10, 15])]:
        shorter = plan.up_to(offset)
        assert [segment.base_offset for segment in shorter.segments] == bases
        assert (shorter.start_offset, len(shorter.reasons)) == (start_offset, len(bases))
