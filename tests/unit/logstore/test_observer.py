"""What a metrics system is told by the log store."""

from kraftlog.logstore import LogDir
from kraftlog.logstore.observer import LogSizes, Recovery, SilentObserver
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import CLUSTER_ID, DATA, NOW_MS, SMALL, append, idempotent, open_log_dir


class Recorder(SilentObserver):
    """Notes every call; its clock goes on by one second whenever somebody looks."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._now = 0.0

    def seconds(self) -> float:
        self._now += 1.0
        return self._now

    def on_append(self, topic: str, partition: int, batches: int, records: int, size_bytes: int) -> None:
        self.calls.append(("append", topic, partition, batches, records, size_bytes))

    def on_flush(self, topic: str, partition: int, seconds: float, records: int) -> None:
        self.calls.append(("flush", topic, partition, seconds, records))

    def on_roll(self, topic: str, partition: int, base_offset: int) -> None:
        self.calls.append(("roll", topic, partition, base_offset))

    def on_recovery(self, topic: str, partition: int, recovery: Recovery) -> None:
        self.calls.append(("recovery", topic, partition, recovery))

    def taken(self) -> list[tuple[object, ...]]:
        """The calls since the last look."""
        calls, self.calls = self.calls, []
        return calls


def open_observed(fs: SimFileSystem, recorder: Recorder) -> LogDir:
    open_log_dir(fs).close()
    return LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=SMALL, observer=recorder)


def test_appends_flushes_and_rolls_are_told_with_their_figures() -> None:
    recorder = Recorder()
    log = open_observed(SimFileSystem(), recorder).create_log("t", 0, now_ms=NOW_MS)
    first = idempotent(7, 0, 3)
    log.append_as_leader(first, leader_epoch=0, now_ms=NOW_MS)
    log.append_as_leader(first, leader_epoch=0, now_ms=NOW_MS)
    assert recorder.taken() == [("append", "t", 0, 1, 3, len(first))], "a repeated batch is not written"
    log.flush()
    log.flush()
    assert recorder.taken() == [("flush", "t", 0, 1.0, 3)], "a flush with nothing to sync is none"
    log.roll(NOW_MS)
    log.flush()
    assert recorder.taken() == [("roll", "t", 0, 3), ("flush", "t", 0, 1.0, 0)]


def test_a_recovery_is_told_with_what_it_checked_and_cut() -> None:
    fs, recorder = SimFileSystem(), Recorder()
    log_dir = open_observed(fs, recorder)
    log = log_dir.create_log("t", 0, now_ms=NOW_MS)
    append(log, "kept")
    log.flush()
    kept = log.size_bytes
    append(log, "torn")
    torn = log.size_bytes - kept
    fs.kill()
    fs.flip("/data/t-0/00000000000000000000.log", kept + torn - 1)
    file_bytes = fs.size("/data/t-0/00000000000000000000.log") or 0
    recorder.taken()
    LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=SMALL, observer=recorder).close()
    told = [call for call in recorder.taken() if call[0] == "recovery"]
    assert [call[:3] for call in told] == [("recovery", "t", 0)]
    recovery = told[0][3]
    assert isinstance(recovery, Recovery)
    assert (recovery.checked_bytes, recovery.is_damaged) == (file_bytes, False)
    assert recovery.cut_bytes >= torn
    assert recovery.seconds > 0
    LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=SMALL, observer=recorder)
    assert recorder.taken() == [], "after a clean stop nothing is recovered"


def test_sizes_are_told_on_demand() -> None:
    log_dir = open_log_dir(SimFileSystem(), SMALL)
    logs = [log_dir.create_log("t", number, now_ms=NOW_MS) for number in range(2)]
    for _ in range(20):
        append(logs[0], "value" * 10)
    append(logs[1], "value")
    segments = len(logs[0].segment_base_offsets) + 1
    assert segments > 2
    assert log_dir.sizes() == LogSizes(2, segments, logs[0].size_bytes + logs[1].size_bytes)
