"""What segments hold open is bounded, and nothing unsynced or in use is closed for it."""

import errno
import os
import resource
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from kraftlog.logstore import FileSystem, Log, LogConfig, LogDir, RealFileSystem
from kraftlog.logstore.open_segments import OpenSegments
from kraftlog.logstore.segment import Segment
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import CLUSTER_ID, NOW_MS, append, batch, open_log_dir, values_of

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=200)


class Holder:
    """Lets go unless told not to."""

    def __init__(self, *, may_let_go: bool = True) -> None:
        self.was_used = False
        self.may_let_go = may_let_go
        self.has_let_go = False

    def let_go(self) -> bool:
        self.has_let_go = self.may_let_go
        return self.may_let_go


class TestTheRing:
    def test_whoever_was_used_since_the_last_round_stays(self) -> None:
        shared = OpenSegments(max_files=3)
        holders = [Holder() for _ in range(4)]
        for holder in holders[:3]:
            shared.note(holder, files=1, index_bytes=0)
        holders[0].was_used = True
        shared.note(holders[3], files=1, index_bytes=0)
        assert [holder.has_let_go for holder in holders] == [False, True, False, False]
        assert shared.files == 3
        assert not holders[0].was_used, "one more round, not more"

    def test_what_cannot_be_let_go_of_exceeds_the_bound(self) -> None:
        shared = OpenSegments(max_files=1)
        busy = [Holder(may_let_go=False) for _ in range(5)]
        for holder in busy:
            shared.note(holder, files=1, index_bytes=0)
        assert shared.files == 5
        for holder in busy:
            holder.may_let_go = True
        last = Holder()
        shared.note(last, files=1, index_bytes=0)
        assert shared.files == 1
        assert not last.has_let_go, "who has just opened something is spared"

    def test_index_bytes_have_a_bound_of_their_own(self) -> None:
        shared = OpenSegments(max_files=100, max_index_bytes=1_000)
        holders = [Holder() for _ in range(4)]
        for holder in holders:
            shared.note(holder, files=0, index_bytes=400)
        assert [holder.has_let_go for holder in holders] == [True, True, False, False]
        assert shared.index_bytes == 800

    def test_a_holder_is_counted_once(self) -> None:
        shared = OpenSegments()
        holder = Holder()
        shared.note(holder, files=1, index_bytes=10)
        shared.note(holder, files=1, index_bytes=30)
        assert (shared.files, shared.index_bytes) == (1, 30)
        shared.forget(holder)
        shared.forget(holder)
        assert (shared.files, shared.index_bytes) == (0, 0)

    def test_without_descriptors_everything_that_can_be_is_closed_before_the_second_attempt(self) -> None:
        def open_one() -> str:
            if shared.files > 4:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return "opened"

        shared = OpenSegments(max_files=100)
        for _ in range(8):
            holder = Holder()
            holder.was_used = True
            shared.note(holder, files=1, index_bytes=0)
        assert shared.with_descriptors(open_one) == "opened"
        assert shared.files == 4
        for _ in range(8):
            shared.note(Holder(may_let_go=False), files=1, index_bytes=0)
        with pytest.raises(OSError, match="Too many open files"):
            shared.with_descriptors(open_one)


def open_descriptors(below: Path) -> int:
    """How many files of a folder this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{below}/")
        except FileNotFoundError:
            continue
    return count


def take_all(taken: list[int]) -> None:
    """Use up the descriptors that the process may still open."""
    while True:
        try:
            taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return


def reopened(path: Path, max_open_files: int) -> LogDir:
    return LogDir.open(
        str(path),
        fs=RealFileSystem(),
        node_id=1,
        cluster_id=CLUSTER_ID,
        now_ms=NOW_MS,
        config=CONFIG,
        max_open_files=max_open_files,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestDescriptors:
    """On real files."""

    def test_reading_many_segments_and_logs_keeps_few_files_open(self, tmp_path: Path) -> None:
        log_dir = open_log_dir(RealFileSystem(), CONFIG, str(tmp_path))
        expected = [f"value {number}".encode() for number in range(300)]
        for number in range(3):
            log = log_dir.create_log("t", number, now_ms=NOW_MS)
            for value in expected:
                append(log, value)
            log.flush()
        log_dir.close()
        log_dir = reopened(tmp_path, 5)
        assert sum(log.segment_count for log in log_dir.logs.values()) > 20
        for log in log_dir.logs.values():
            assert values_of(log) == expected
            assert log.offset_for_time(NOW_MS) is not None
        assert log_dir.open_segments.files == 5
        assert open_descriptors(tmp_path) == 5 + 1, "and the lock"
        log_dir.close()
        assert open_descriptors(tmp_path) == 0

    def test_idle_partitions_give_up_their_files_too_and_go_on_when_they_are_written(self, tmp_path: Path) -> None:
        log_dir = open_log_dir(RealFileSystem(), CONFIG, str(tmp_path))
        log_dir.close()
        log_dir = reopened(tmp_path, 5)
        logs = [log_dir.create_log("t", number, now_ms=NOW_MS) for number in range(30)]
        for turn in range(4):
            for log in logs:
                append(log, f"turn {turn}")
                log.flush()
                assert open_descriptors(tmp_path) <= 5 + 1
        assert all(values_of(log) == [b"turn 0", b"turn 1", b"turn 2", b"turn 3"] for log in logs)
        log_dir.close()
        log_dir = reopened(tmp_path, 5)
        assert log_dir.was_clean
        assert all(len(values_of(log)) == 4 for log in log_dir.logs.values())

    def test_unsynced_files_stay_open_whatever_the_bound(self, tmp_path: Path) -> None:
        log_dir = open_log_dir(RealFileSystem(), CONFIG, str(tmp_path))
        log_dir.close()
        log_dir = reopened(tmp_path, 2)
        logs = [log_dir.create_log("t", number, now_ms=NOW_MS) for number in range(10)]
        for log in logs:
            append(log, "unsynced")
        assert open_descriptors(tmp_path) == 10 + 1
        for log in logs:
            log.flush()
        logs[0].roll(NOW_MS)
        assert open_descriptors(tmp_path) <= 2 + 1

    def test_the_process_may_run_out_of_descriptors(self, tmp_path: Path) -> None:
        """Others use them up: old segments are closed for the one that is needed now."""
        log_dir = open_log_dir(RealFileSystem(), CONFIG, str(tmp_path))
        log = log_dir.create_log("t", 0, now_ms=NOW_MS)
        for number in range(300):
            append(log, f"value {number}")
        log.flush()
        log_dir.close()
        log_dir = reopened(tmp_path, 1_000)
        log = log_dir.logs["t", 0]
        bases = log.segment_base_offsets
        log.read(bases[0], 1, end_offset=log.log_end_offset)
        log.read(bases[1], 1, end_offset=log.log_end_offset)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
        try:
            take_all(taken)
            os.close(taken.pop())  # for the index files, which are read and closed
            os.close(taken.pop())
            assert len(values_of(log, bases[2])) == 300 - bases[2]
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_readers_and_a_writer_meet_no_closed_file(tmp_path: Path) -> None:
    """Threads that read all over the log while it is appended to and flushed, with room for two open files."""
    log_dir = open_log_dir(RealFileSystem(), CONFIG, str(tmp_path))
    log_dir.close()
    log_dir = reopened(tmp_path, 2)
    logs = [log_dir.create_log("t", number, now_ms=NOW_MS) for number in range(2)]
    failures: list[BaseException] = []
    is_over = threading.Event()
    data = [batch(f"value {number}") for number in range(50)]

    def read(seed: int) -> None:
        randomness = Random(seed)
        try:
            while not is_over.is_set():
                log = randomness.choice(logs)
                end = log.log_end_offset
                if end:
                    offset = randomness.randrange(end)
                    records = log.read(offset, 500, end_offset=end).records
                    assert records.count(b"value ") >= 1, f"seed {seed}, offset {offset}"
        except BaseException as e:
            failures.append(e)

    def flush() -> None:
        try:
            while not is_over.is_set():
                for log in logs:
                    log.flush()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)] + [threading.Thread(target=flush)]
    for thread in threads:
        thread.start()
    try:
        for number in range(400):
            for log in logs:
                log.append_as_leader(data[number % 50], leader_epoch=0, now_ms=NOW_MS)
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    log_dir.close()
    assert all(len(values_of(log)) == 400 for log in reopened(tmp_path, 2).logs.values())


def test_a_segment_in_use_by_another_thread_is_not_let_go_of() -> None:
    fs = SimFileSystem()
    fs.mkdir("/d")
    segment = Segment.create(fs, "/d", 0, 100)
    is_held, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with segment._lock:
            is_held.set()
            may_end.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(30)
    assert not segment.let_go()
    may_end.set()
    thread.join()
    assert segment.let_go()


class TestWhatIsLetGoOf:
    def test_indexes_are_loaded_anew_and_say_the_same(self) -> None:
        _, segments = log_with_segments(SimFileSystem())
        before = [(segment.position_of(segment.base_offset + 3), segment.largest) for segment in segments]
        held = [segment.indexes for segment in segments]
        for segment in segments:
            assert segment.let_go()
            assert segment.indexes not in held
        assert [(segment.position_of(segment.base_offset + 3), segment.largest) for segment in segments] == before

    def test_the_largest_timestamp_needs_no_file_a_second_time(self) -> None:
        """Retention asks for it again and again, of every log."""
        fs = SimFileSystem()
        _, segments = log_with_segments(fs)
        largest = segments[0].largest
        assert segments[0].let_go()
        fs.fail("pread", times=100)
        assert segments[0].largest == largest

    def test_a_growing_segment_keeps_its_indexes(self) -> None:
        fs = SimFileSystem()
        log, _ = log_with_segments(fs)
        log.flush()
        active = log._segments[-1]
        indexes = active.indexes
        assert active.let_go()
        assert active.indexes is indexes
        append(log, "goes on")
        assert not active.let_go(), "that is not synced"
        assert values_of(log)[-1] == b"goes on"

    def test_late_readers_of_a_deleted_log_do_not_get_the_files_of_its_successor(self) -> None:
        fs: FileSystem = SimFileSystem()
        log_dir = open_log_dir(fs, CONFIG)
        old = log_dir.create_log("t", 0, now_ms=NOW_MS)
        append(old, "old")
        log_dir.delete_log("t", 0)
        append(log_dir.create_log("t", 0, now_ms=NOW_MS), "new")
        with pytest.raises(Exception, match="No such file"):
            old.read(0, 1_000, end_offset=1)


def log_with_segments(fs: SimFileSystem) -> tuple[Log, list[Segment]]:
    """A log and its sealed, synced segments."""
    log = open_log_dir(fs, CONFIG).create_log("t", 0, now_ms=NOW_MS)
    for number in range(100):
        append(log, f"value {number}")
    log.flush()
    return log, list(log._segments[:-1])

    def test_that_nothing_was_aborted_needs_no_file_a_second_time(self) -> None:
        """Readers of committed data ask every segment behind theirs, at every fetch."""
        fs = SimFileSystem()
        log, segments = log_with_segments(fs)
        assert log.aborted_transactions(0, 10) == []
        for segment in segments:
            assert segment.let_go()
        fs.fail("pread", times=100)
        assert log.aborted_transactions(0, 10) == []


class TestClosing:
    def test_logs_that_nobody_touched_are_left_alone(self) -> None:
        """A stop of a node with thousands of idle partitions writes nothing for them."""
        fs = SimFileSystem()
        log_dir = open_log_dir(fs, CONFIG)
        for number in range(4):
            log = log_dir.create_log("t", number, now_ms=NOW_MS)
            for value in range(50 * (number % 2)):
                append(log, f"value {value}")
        log_dir.close()
        log_dir = open_log_dir(fs, CONFIG)
        values_of(log_dir.logs["t", 1])
        append(log_dir.logs["t", 3], "one more")
        fs.records_operations = True
        log_dir.close()
        changed = {step.path for step in fs.operations if step.name == "rename" and step.path.startswith("/data/t-")}
        assert {path.split("/")[2] for path in changed} == {"t-3"}
        assert any(path.endswith(".index") for path in changed)
        log_dir = open_log_dir(fs, CONFIG)
        assert log_dir.was_clean
        assert [len(values_of(log)) for log in log_dir.logs.values()] == [0, 50, 0, 51]

    def test_an_index_that_had_to_be_made_anew_is_written(self) -> None:
        fs = SimFileSystem()
        log, _ = log_with_segments(fs)
        append(log, "x" * 300)
        append(log, "x" * 300)
        base = log.segment_base_offsets[-1]
        fs.kill()
        log_dir = open_log_dir(fs, CONFIG)
        log_dir.close()
        index = f"/data/t-0/{base:020d}.index"
        whole = fs.contents(index)
        assert whole
        fs.put(index, whole[:-3])
        fs.fail("rename", path_part=index)
        log_dir = open_log_dir(fs, CONFIG)
        assert fs.contents(index) == whole[:-3], "it could not be written at once"
        log_dir.close()
        assert fs.contents(index) == whole
