"""Directories with many logs: loaded and closed in several threads, and what each log costs."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kraftlog.logstore import LogConfig, LogDir, RealFileSystem
from kraftlog.logstore.parallel import run_all
from kraftlog.proto.errors import StorageError
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import CLUSTER_ID, DATA, NOW_MS, append, open_log_dir, values_of

THREADS = 4


def make_logs(fs: SimFileSystem, count: int, records: int = 3) -> LogDir:
    """Logs `t-0` and so on, each with records of its own."""
    log_dir = open_log_dir(fs, LogConfig(segment_bytes=200))
    for number in range(count):
        log = log_dir.create_log("t", number, bytes([number] * 16), now_ms=NOW_MS)
        for record in range(records):
            append(log, f"{number}-{record}" * 10)
    return log_dir


def load(fs: SimFileSystem, threads: int = THREADS) -> LogDir:
    return LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, threads=threads)


class MeetingFileSystem(SimFileSystem):
    """Whoever opens the log of a partition to recover it, or renames a state file there, waits for a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.meetings: threading.Barrier | None = None

    def listdir(self, path: str) -> list[str]:
        if self.meetings is not None and path.startswith(f"{DATA}/t-"):
            self.meetings.wait(timeout=30)
        return super().listdir(path)


class TestThreads:
    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_logs_are_the_same_whatever_the_number_of_threads(self, threads: int) -> None:
        fs = SimFileSystem()
        make_logs(fs, 20)
        fs.kill()
        log_dir = load(fs, threads)
        assert not log_dir.was_clean
        assert list(log_dir.logs) == [("t", number) for number in range(20)]
        for (topic, number), log in log_dir.logs.items():
            assert values_of(log) == [(f"{number}-{record}" * 10).encode() for record in range(3)]
            assert log_dir.topic_id(topic, number) == bytes([number] * 16)
        log_dir.close()
        assert load(fs, threads).was_clean

    def test_logs_are_loaded_at_the_same_time(self) -> None:
        fs = MeetingFileSystem()
        make_logs(fs, 2).close()
        fs.meetings = threading.Barrier(2)
        assert len(load(fs, threads=2).logs) == 2

    def test_one_thread_is_the_callers(self) -> None:
        callers: list[threading.Thread] = []
        outcomes = run_all(lambda item: callers.append(threading.current_thread()), [1, 2, 3], threads=1)
        assert [item for item, _ in outcomes] == [1, 2, 3]
        assert callers == [threading.current_thread()] * 3


class TestFailures:
    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_a_disk_error_in_one_log_fails_the_directory_after_all_were_tried(
        self, threads: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        fs = SimFileSystem()
        make_logs(fs, 8)
        fs.kill()
        fs.fail("pread", path_part="/t-2/")
        fs.fail("pread", path_part="/t-5/")
        with caplog.at_level(logging.ERROR), pytest.raises(StorageError, match="t-2"):
            load(fs, threads)
        assert sum("cannot be loaded" in record.message for record in caplog.records) == 2
        assert len(load(fs, threads).logs) == 8, "the lock was given up, and nothing was lost"

    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_a_damaged_log_does_not_concern_the_others(self, threads: int) -> None:
        fs = SimFileSystem()
        log_dir = make_logs(fs, 8)
        for log in log_dir.logs.values():
            log.flush()
        log_dir.checkpoint()
        fs.kill()
        fs.flip(f"/data/t-3/{log_dir.logs['t', 3].segment_base_offsets[-1]:020d}.log", 80)
        log_dir = load(fs, threads)
        assert [log.partition for log in log_dir.logs.values() if log.damage] == [3]
        append(log_dir.logs["t", 4], "goes on")

    @pytest.mark.parametrize("threads", [1, THREADS])
    def test_a_log_that_cannot_be_closed_makes_the_stop_unclean_and_hinders_no_other(self, threads: int) -> None:
        fs = SimFileSystem()
        log_dir = make_logs(fs, 8)
        fs.fail("fdatasync", path_part="/t-6/")
        log_dir.close()
        fs.kill()
        log_dir = load(fs, threads)
        assert not log_dir.was_clean
        assert all(len(values_of(log)) == 3 for log in log_dir.logs.values())


MEASURE = """
import sys
from kraftlog.logstore import LogDir, RealFileSystem

def anonymous_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024

before = anonymous_bytes()
log_dir = LogDir.open(sys.argv[1], fs=RealFileSystem(), node_id=1, cluster_id=sys.argv[2], now_ms=0, threads=2)
print(len(log_dir.logs), log_dir.was_clean, anonymous_bytes() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_idle_partitions_cost_little_memory(tmp_path: Path) -> None:
    """Less than 64 MiB, as a node with that many partitions has many other things to keep."""
    log_dir = open_log_dir(RealFileSystem(), path=str(tmp_path))
    for number in range(1_000):
        append(log_dir.create_log("t", number, now_ms=NOW_MS), "value")
    log_dir.close()
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), CLUSTER_ID], check=True, capture_output=True, text=True
    )
    logs, was_clean, grown = result.stdout.split()
    assert (logs, was_clean) == ("1000", "True")
    assert int(grown) < 64 << 20
