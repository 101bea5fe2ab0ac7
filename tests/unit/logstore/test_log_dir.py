"""A node's directory of logs: whose it is, who has it, what is recorded in it."""

import contextlib
import errno
import random
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlog.logstore import (
    NO_TOPIC_ID,
    DiskFullError,
    LogConfig,
    LogDir,
    LogDirLockedError,
    RealFileSystem,
    format_log_dir,
)
from kraftlog.logstore.checkpoints import read_offset_checkpoint
from kraftlog.logstore.filesystem import write_synced
from kraftlog.logstore.layout import (
    STRAY_DIRECTORY_SUFFIX,
    deleted_directory_name,
    parse_log_directory,
    parse_segment_file,
)
from kraftlog.proto.errors import (
    CorruptRecordError,
    InconsistentClusterIdError,
    InvalidTopicError,
    LogDirNotFoundError,
    StorageError,
    TopicAlreadyExistsError,
)
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import (
    CLUSTER_ID,
    DATA,
    DIRECTORY_ID,
    NOW_MS,
    SMALL,
    append,
    create_log,
    open_log_dir,
    reopen,
    values_of,
)

TOPIC_ID = bytes(range(16))


def open_as(fs: SimFileSystem, cluster_id: str = CLUSTER_ID, node_id: int = 1) -> LogDir:
    return LogDir.open(DATA, fs=fs, node_id=node_id, cluster_id=cluster_id, now_ms=NOW_MS)


class TestIdentity:
    def test_meta_properties_are_kafkas(self) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        assert fs.contents("/data/meta.properties").decode() == (
            f"cluster.id={CLUSTER_ID}\ndirectory.id={DIRECTORY_ID}\nnode.id=1\nversion=1\n"
        )
        assert (log_dir.cluster_id, log_dir.node_id, log_dir.directory_id) == (CLUSTER_ID, 1, DIRECTORY_ID)

    def test_formatting_is_durable_and_may_be_repeated(self) -> None:
        fs = SimFileSystem()
        for _ in range(2):
            format_log_dir(DATA, fs, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
        fs.crash(random.Random(0))
        assert open_as(fs).directory_id == DIRECTORY_ID

    def test_another_clusters_directory_is_refused(self) -> None:
        fs = SimFileSystem()
        open_log_dir(fs).close()
        with pytest.raises(InconsistentClusterIdError, match=r"belongs to cluster .*, not to 'other'"):
            open_as(fs, cluster_id="other")
        with pytest.raises(InconsistentClusterIdError, match=r"node '1', not to node 2"):
            open_as(fs, node_id=2)
        with pytest.raises(InconsistentClusterIdError):
            format_log_dir(DATA, fs, cluster_id="other", node_id=1, directory_id=DIRECTORY_ID)
        open_as(fs).close()

    def test_a_directory_without_identity_is_refused(self) -> None:
        fs = SimFileSystem()
        with pytest.raises(LogDirNotFoundError, match="does not exist"):
            open_as(fs)
        fs.mkdir(DATA)
        with pytest.raises(LogDirNotFoundError, match=r"no meta.properties"):
            open_as(fs)


class TestLock:
    def test_a_second_owner_is_refused_in_one_line(self) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        with pytest.raises(LogDirLockedError, match="in use by another process") as caught:
            open_as(fs)
        assert isinstance(caught.value, StorageError)
        assert "\n" not in str(caught.value)
        log_dir.close()
        open_as(fs).close()

    @pytest.mark.slow
    def test_w19_a_second_process_is_refused_and_the_first_unharmed(self, tmp_path: Path) -> None:
        """KAFKA-14557: the metadata log is in the directory, too."""
        fs = RealFileSystem()
        log_dir = open_log_dir(fs, path=str(tmp_path))
        log = log_dir.create_log("t", 0, now_ms=NOW_MS)
        code = (
            "import sys; from kraftlog.logstore import *\n"
            "try: LogDir.open(sys.argv[1], fs=RealFileSystem(), node_id=1, cluster_id=sys.argv[2], now_ms=0)\n"
            "except LogDirLockedError as e: print(e)"
        )
        arguments = [sys.executable, "-c", code, str(tmp_path), CLUSTER_ID]
        run = subprocess.run(arguments, capture_output=True, text=True)
        assert (run.stdout.count("\n"), run.stderr) == (1, "")
        assert "in use by another process" in run.stdout
        append(log, "a")
        log.flush()
        log_dir.close()
        assert subprocess.run(arguments, capture_output=True, text=True).stdout == ""

    def test_a_failed_open_gives_the_lock_back(self) -> None:
        fs = SimFileSystem()
        open_log_dir(fs).close()
        with pytest.raises(InconsistentClusterIdError):
            open_as(fs, cluster_id="other")
        open_as(fs)


class TestLogs:
    def test_a_created_log_is_there_after_power_loss(self) -> None:
        for seed in range(20):
            fs = SimFileSystem()
            log_dir = open_log_dir(fs)
            log_dir.create_log("orders", 3, TOPIC_ID, now_ms=NOW_MS)
            fs.crash(random.Random(seed))
            log_dir = open_log_dir(fs)
            assert set(log_dir.logs) == {("orders", 3)}
            assert log_dir.topic_id("orders", 3) == TOPIC_ID

    def test_logs_that_are_made_without_a_sync_are_there_when_they_are_settled(self) -> None:
        """Before, power loss may leave out any of them or its topic id, and those that are left open."""
        keys = {("orders", partition) for partition in range(5)}
        for seed in range(20):
            for is_settled in (True, False):
                fs = SimFileSystem()
                log_dir = open_log_dir(fs)
                logs = [log_dir.create_log(*key, TOPIC_ID, now_ms=NOW_MS, settles=False) for key in sorted(keys)]
                if is_settled:
                    for log in logs:
                        log.settle()
                fs.crash(random.Random(seed))
                log_dir = open_log_dir(fs)
                assert set(log_dir.logs) == keys if is_settled else set(log_dir.logs) <= keys
                ids = {log_dir.topic_id(*key) for key in log_dir.logs}
                assert ids == {TOPIC_ID} if is_settled else ids <= {TOPIC_ID, NO_TOPIC_ID}
                assert not any(log.damage or log.log_end_offset for log in log_dir.logs.values())

    def test_making_a_log_without_a_sync_syncs_nothing(self) -> None:
        fs = SimFileSystem(records_operations=True)
        log_dir = open_log_dir(fs)
        fs.operations.clear()
        logs = [log_dir.create_log("orders", number, TOPIC_ID, now_ms=NOW_MS, settles=False) for number in range(3)]
        names = [it.name for it in fs.operations]
        assert not [name for name in names if "sync" in name]
        assert "rename" not in names, "nobody reads the files of a log that is being made"
        for log in logs:
            append(log, "first")
            log.flush()
        synced = [it.path for it in fs.operations if it.name == "fsync_dir"]
        assert synced.count(DATA) == 1, "one sync serves the names of all logs"
        assert {log.directory for log in logs} < set(synced)

    @pytest.mark.parametrize("promise", ["flush", "roll", "start", "checkpoint of a start", "start over", "stop"])
    def test_nothing_of_a_log_is_durable_before_the_log_is(self, promise: str) -> None:
        for seed in range(20):
            fs = SimFileSystem()
            log_dir = open_log_dir(fs)
            log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS, settles=False)
            append(log, "a", "b", "c")
            end_offset = 3
            match promise:
                case "flush":
                    log.flush()
                case "roll":
                    log.roll()
                    end_offset = 0
                case "start":
                    log_dir.record_log_starts({log: 2})
                case "checkpoint of a start":
                    log.advance_log_start_offset(3)
                    log_dir.record_log_starts({log: 3})
                    log_dir.checkpoint()
                case "start over":
                    log.truncate_fully_and_start_at(7)
                    end_offset = 7
                case _:
                    log_dir.close()
            fs.crash(random.Random(seed))
            log_dir = open_log_dir(fs)
            assert log_dir.topic_id("t", 0) == TOPIC_ID
            log = log_dir.logs["t", 0]
            assert log.damage is None
            assert log.log_end_offset >= (2 if promise == "start" else end_offset)

    def test_a_log_that_failed_to_settle_acknowledges_nothing(self) -> None:
        """Nor does another whose name the same sync would have made durable: it might succeed without."""
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        logs = [log_dir.create_log("t", number, TOPIC_ID, now_ms=NOW_MS, settles=False) for number in range(2)]
        for log in logs:
            append(log, "a")
        fs.fail("fsync_dir", skip=1)
        for log in logs:
            with pytest.raises(StorageError):
                log.flush()
            assert log.flushed_end_offset == 0
            with pytest.raises(StorageError):
                append(log, "b")

    def test_what_a_killed_process_left_unsynced_is_durable_before_it_counts(self) -> None:
        """Its files are there, in memory; another process has to sync them before a power loss can show that."""
        for seed in range(20):
            fs = SimFileSystem()
            log_dir = open_log_dir(fs)
            for number in range(2):
                log_dir.create_log("t", number, TOPIC_ID, now_ms=NOW_MS, settles=False)
            append(log_dir.logs["t", 0], "unflushed")
            fs.kill()
            log_dir = open_log_dir(fs)
            append(log_dir.logs["t", 1], "flushed")
            log_dir.logs["t", 1].flush()
            fs.crash(random.Random(seed))
            log_dir = open_log_dir(fs)
            assert [log_dir.topic_id("t", number) for number in range(2)] == [TOPIC_ID] * 2, f"seed {seed}"
            assert [log.log_end_offset for log in log_dir.logs.values()] == [1, 1], f"seed {seed}"

    @pytest.mark.parametrize("has_records", [False, True])
    @pytest.mark.parametrize("left", [b"", b"version: 0\ntopic", bytes(44)])
    def test_a_torn_topic_id_is_what_a_power_loss_leaves_of_a_new_log(self, left: bytes, has_records: bool) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS, settles=False)
        if has_records:
            append(log, "of which nobody was told")
        fs.kill()
        write_synced(fs, f"{DATA}/t-0/partition.metadata", left)
        log_dir = open_log_dir(fs)
        assert not log_dir.logs
        aside = [name for name in fs.listdir(DATA) if name.startswith("t-0.")]
        assert [name.endswith(STRAY_DIRECTORY_SUFFIX) for name in aside] == [True] * has_records
        log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS)
        log_dir.close()
        assert open_log_dir(fs).logs["t", 0].log_end_offset == 0

    @pytest.mark.parametrize("name", ["t", CLUSTER_METADATA_TOPIC])
    def test_a_torn_topic_id_of_a_log_that_was_flushed_is_no_power_losss_doing(self, name: str) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        append(log_dir.create_log(name, 0, TOPIC_ID, now_ms=NOW_MS), "a")
        log_dir.logs[name, 0].flush()
        if name == "t":
            log_dir.checkpoint()
        fs.kill()
        write_synced(fs, f"{DATA}/{name}-0/partition.metadata", b"")
        log_dir = open_log_dir(fs)
        assert (log_dir.topic_id(name, 0), log_dir.logs[name, 0].log_end_offset) == (NO_TOPIC_ID, 1)

    def test_a_log_that_was_deleted_meanwhile_has_nothing_to_settle(self) -> None:
        """Retention records starts in another thread; that a log is gone is no failure of the disk."""
        log_dir = open_log_dir(SimFileSystem())
        log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS, settles=False)
        append(log, "a")
        log_dir.delete_log("t", 0)
        log_dir.record_log_starts({log: 1})
        assert not log_dir.logs

    def test_a_full_disk_is_no_failure_of_a_log_that_settles(self) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS, settles=False)
        append(log, "a")
        fs.fail("fsync_dir", errno.ENOSPC, skip=1)
        with pytest.raises(DiskFullError):
            log.flush()
        assert log.flush() == 1
        fs.forget_unsynced()
        assert values_of(open_log_dir(fs).logs["t", 0]) == [b"a"]

    def test_a_log_is_durable_also_in_a_directory_that_was_left_behind(self) -> None:
        """Its files are there, so that no first segment is made and synced with them."""
        for seed in range(20):
            fs = SimFileSystem()
            log_dir = open_log_dir(fs)
            fs.mkdir(f"{log_dir.path}/orders-3")
            fs.open(f"{log_dir.path}/orders-3/{0:020}.log", create=True).close()
            log_dir.create_log("orders", 3, TOPIC_ID, now_ms=NOW_MS)
            fs.crash(random.Random(seed))
            assert open_log_dir(fs).topic_id("orders", 3) == TOPIC_ID

    def test_names_are_checked_before_they_reach_the_disk(self) -> None:
        log_dir = open_log_dir(SimFileSystem())
        for name in ("..", "a/b", "", "x" * 250):
            with pytest.raises(InvalidTopicError):
                log_dir.create_log(name, 0, now_ms=NOW_MS)

    def test_a_log_exists_once(self) -> None:
        log_dir = open_log_dir(SimFileSystem())
        log_dir.create_log("t", 0, now_ms=NOW_MS)
        with pytest.raises(TopicAlreadyExistsError):
            log_dir.create_log("t", 0, now_ms=NOW_MS)

    def test_configs_come_by_topic(self) -> None:
        fs = SimFileSystem()
        format_log_dir(DATA, fs, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)

        def config_for(topic: str) -> LogConfig:
            return LogConfig(retention_ms=len(topic))

        log_dir = LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=config_for)
        assert log_dir.create_log("abc", 0, now_ms=NOW_MS).config.retention_ms == 3
        assert log_dir.create_log("abcd", 0, config=SMALL, now_ms=NOW_MS).config is SMALL
        log_dir.close()
        log_dir = LogDir.open(DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=config_for)
        assert log_dir.logs["abcd", 0].config.retention_ms == 4

    def test_a_deletion_is_whole_or_not_at_all(self) -> None:
        """Wherever power fails: the log is complete, or it is gone and its name is free."""
        outcomes = set()
        for stop in range(14):
            for seed in range(6):
                fs = SimFileSystem()
                log_dir = open_log_dir(fs, SMALL)
                log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS)
                for number in range(10):
                    append(log, str(number))
                log.flush()
                log_dir.checkpoint()
                fs.stop_after(stop)
                with contextlib.suppress(SimulatedPowerLoss):
                    log_dir.delete_log("t", 0)
                fs.crash(random.Random(seed))
                log_dir = open_log_dir(fs, SMALL)
                outcomes.add(len(log_dir.logs))
                if log_dir.logs:
                    assert len(values_of(log_dir.logs["t", 0])) == 10
                else:
                    log = log_dir.create_log("t", 0, TOPIC_ID, now_ms=NOW_MS)
                    append(log, "other")
                    log.flush()
                    fs.crash(random.Random(seed))
                    assert values_of(reopen(fs, SMALL)) == [b"other"], "no recovery point of the old log counts"
                assert not [name for name in fs.listdir(DATA) if name.endswith("-delete")]
        assert outcomes == {0, 1}

    def test_deleting_what_is_not_there_does_nothing(self) -> None:
        open_log_dir(SimFileSystem()).delete_log("t", 0)

    def test_foreign_files_are_left_alone(self) -> None:
        fs = SimFileSystem()
        open_log_dir(fs).close()
        fs.put("/data/notes.txt", b"mine")
        fs.mkdir("/data/lost+found")
        assert not open_log_dir(fs).logs
        assert fs.contents("/data/notes.txt") == b"mine"

    def test_progress_is_told(self) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        for partition in range(3):
            log_dir.create_log("t", partition, now_ms=NOW_MS)
        log_dir.close()
        told: list[tuple[int, int]] = []
        LogDir.open(
            DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, on_progress=lambda n, of: told.append((n, of))
        )
        assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


class TestCleanStop:
    def test_the_marker_is_there_only_while_stopped(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        assert not log_dir.was_clean
        log_dir.close()
        assert fs.contents("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'
        log_dir = open_log_dir(fs)
        assert log_dir.was_clean
        assert fs.size("/data/.kafka_cleanshutdown") is None
        fs.kill()
        assert not open_log_dir(fs).was_clean

    def test_the_marker_says_in_which_broker_epoch_the_node_stopped(self) -> None:
        """As Kafka's file does (KIP-966); a start that registers no broker leaves it as it was."""
        fs = SimFileSystem()
        log_dir, _ = create_log(fs=fs)
        log_dir.close(broker_epoch=17)
        assert fs.contents("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":17}'
        log_dir = open_log_dir(fs)
        assert log_dir.clean_broker_epoch == 17
        log_dir.close()
        log_dir = open_log_dir(fs)
        assert log_dir.clean_broker_epoch == 17
        fs.kill()
        log_dir = open_log_dir(fs)
        assert (log_dir.was_clean, log_dir.clean_broker_epoch) == (False, -1)
        log_dir.close()
        assert open_log_dir(fs).clean_broker_epoch == -1

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b'{"version":0}',
            b'{"version":1,"brokerEpoch":5}',
            b'{"version":0,"brokerEpoch":"5"}',
            b'{"version":0,"brokerEpoch":true}',
            b'{"version":0,"brokerEpoch":9223372036854775808}',
            b'{"version":0,"brokerEpoch":-2}',
            b"[0]",
            b"\xff\x00",
            b"[" * 4000,
            b" " * 5000 + b'{"version":0,"brokerEpoch":5}',
        ],
    )
    def test_a_marker_without_an_epoch_is_still_one(self, content: bytes) -> None:
        """An older version wrote nothing into it; and whatever it holds must not keep a node from starting."""
        fs = SimFileSystem()
        log_dir, _ = create_log(fs=fs)
        log_dir.close(broker_epoch=5)
        write_synced(fs, "/data/.kafka_cleanshutdown", content)
        log_dir = open_log_dir(fs)
        assert (log_dir.was_clean, log_dir.clean_broker_epoch) == (True, -1)

    def test_an_unclean_close_leaves_no_marker(self) -> None:
        fs = SimFileSystem()
        log_dir, _ = create_log(fs=fs)
        log_dir.close(clean=False)
        assert fs.size("/data/.kafka_cleanshutdown") is None

    def test_a_log_that_failed_prevents_the_marker(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        fs.fail("fdatasync", path_part="t-0")
        log_dir.close()
        assert fs.size("/data/.kafka_cleanshutdown") is None
        assert values_of(reopen(fs)) == [b"a"]

    def test_a_clean_stop_reads_no_data_at_the_next_start(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        for number in range(100):
            append(log, str(number))
        log_dir.close()
        fs.fail("pread", path_part="00000000000000000000.log", times=1000)
        assert reopen(fs, SMALL).log_end_offset == 100


class TestCheckpoints:
    def test_flushed_ends_are_recorded(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a", "b")
        log_dir.checkpoint()
        assert read_offset_checkpoint(fs, "/data/recovery-point-offset-checkpoint") == {("t", 0): 0}
        log.flush()
        log_dir.checkpoint()
        assert read_offset_checkpoint(fs, "/data/recovery-point-offset-checkpoint") == {("t", 0): 2}

    def test_an_idle_directory_is_not_written_to(self) -> None:
        """So that recording flushed ends every second costs nothing while nothing happens."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        fs.records_operations = True
        for _ in range(3):
            append(log, "a")
            log.flush()
            log.advance_log_start_offset(log.log_end_offset)
            fs.operations.clear()
            log_dir.checkpoint()
            written = [operation.path for operation in fs.operations if operation.name == "rename"]
            assert written == ["/data/recovery-point-offset-checkpoint", "/data/log-start-offset-checkpoint"]
            fs.operations.clear()
            log_dir.checkpoint()
            assert not fs.operations

    def test_a_checkpoint_that_failed_is_written_again(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        log.flush()
        fs.fail("rename")
        with pytest.raises(StorageError):
            log_dir.checkpoint()
        log_dir.checkpoint()
        assert read_offset_checkpoint(fs, "/data/recovery-point-offset-checkpoint") == {("t", 0): 1}

    def test_a_flushed_roll_is_recorded_before_anything_after_it_counts(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(SMALL, fs)
        for number in range(12):
            append(log, str(number))
        log.flush()
        assert read_offset_checkpoint(fs, "/data/recovery-point-offset-checkpoint") == {("t", 0): 10}

    def test_log_start_offsets_survive(self) -> None:
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        append(log, "b")
        log.flush()
        log.advance_log_start_offset(1)
        log_dir.checkpoint()
        fs.crash(random.Random(5))
        log = reopen(fs)
        assert (log.log_start_offset, values_of(log)) == (1, [b"b"])

    def test_a_log_deleted_up_to_its_lost_end_goes_on_there(self) -> None:
        """Offsets that were deleted are not given again."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        append(log, "b")
        log.advance_log_start_offset(2)
        log_dir.checkpoint()
        fs.crash(random.Random(1))
        log = reopen(fs)
        assert (log.log_start_offset, log.log_end_offset) == (2, 2)

    def test_high_watermarks_are_kept(self) -> None:
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        assert log_dir.high_watermarks() == {}
        log_dir.checkpoint_high_watermarks(lambda: {("t", 0): 17})
        assert fs.contents("/data/replication-offset-checkpoint") == b"0\n1\nt 0 17\n"
        assert log_dir.high_watermarks() == {("t", 0): 17}
        fs.put("/data/replication-offset-checkpoint", b"garbage")
        assert log_dir.high_watermarks() == {}

    def test_a_name_that_is_used_again_has_no_high_watermark(self) -> None:
        """Of a topic that was deleted. Those of all that are gone go together: deleting writes nothing for them."""
        fs = SimFileSystem()
        log_dir = open_log_dir(fs)
        for partition in range(4):
            append(log_dir.create_log("t", partition, now_ms=0), "a")
        log_dir.checkpoint_high_watermarks(lambda: {("t", partition): 1 for partition in range(4)})
        for partition in range(2):
            log_dir.delete_log("t", partition)
        log_dir.set_aside_log("t", 2, STRAY_DIRECTORY_SUFFIX)
        assert len(log_dir.high_watermarks()) == 4
        log_dir.create_log("t", 1, now_ms=0, settles=False)
        assert log_dir.high_watermarks() == {("t", 3): 1}

    @pytest.mark.parametrize("cut_at", [1, 0], ids=["a part goes", "all goes"])
    def test_a_high_watermark_is_lowered_before_a_log_is_cut_below_it(self, cut_at: int) -> None:
        """Or it would hold for what comes in place of the rest. On a disk that is too full to say so, nothing is cut."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        for value in "abc":
            append(log, value)
        cut = log.truncate_to if cut_at else log.truncate_fully_and_start_at
        log_dir.checkpoint_high_watermarks(lambda: {("t", 0): 3})
        fs.fail("pwritev", error=errno.ENOSPC, path_part="replication-offset-checkpoint")
        with pytest.raises(DiskFullError):
            cut(cut_at)
        assert values_of(log) == [b"a", b"b", b"c"]
        fs.heal()
        cut(cut_at)
        assert log_dir.high_watermarks() == {("t", 0): cut_at}

    def test_a_high_watermark_is_lowered_to_where_a_power_loss_has_left_the_log(self) -> None:
        """With flush.policy=interval it may be beyond; what is written there next is not committed because of it."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        log.flush()
        append(log, "b")
        log_dir.checkpoint_high_watermarks(lambda: {("t", 0): 2})
        fs.forget_unsynced()
        log_dir = open_log_dir(fs)
        assert log_dir.logs["t", 0].log_end_offset == 1
        assert log_dir.high_watermarks() == {("t", 0): 1}

    def test_a_full_disk_is_a_storage_error(self) -> None:
        fs = SimFileSystem()
        log_dir, _ = create_log(fs=fs)
        fs.capacity_bytes = 0
        with pytest.raises(StorageError, match="disk full"):
            log_dir.checkpoint()

    def test_damage_stays_recorded(self) -> None:
        """Neither a checkpoint nor a stop makes a damaged log look whole."""
        fs = SimFileSystem()
        log_dir, log = create_log(fs=fs)
        append(log, "a")
        append(log, "b")
        log.flush()
        log_dir.close()
        fs.flip("/data/t-0/00000000000000000000.log", 90)
        fs.unlink("/data/.kafka_cleanshutdown")
        for _ in range(3):
            log_dir = open_log_dir(fs)
            log = log_dir.logs["t", 0]
            assert log.damage is not None
            assert values_of(log) == [b"a"], "what lies below the damage is readable"
            with pytest.raises(CorruptRecordError, match="kraftctl log repair /data/t-0"):
                append(log, "c")
            log_dir.checkpoint()
            log_dir.close()


def test_names_of_directories_and_files() -> None:
    assert parse_log_directory("a-b.c_d-12") == ("a-b.c_d", 12)
    for name in ("orders", "orders-", "-1", "orders-x", "orders-99999999999", "a b-1", "lost+found", "o-1.x-delete"):
        assert parse_log_directory(name) is None
    assert parse_segment_file("00000000000000000042.log") == (42, ".log")
    for name in ("42.log", "00000000000000000042.LOG", "99999999999999999999.log", "00000000000000000042.log.deleted"):
        assert parse_segment_file(name) is None
    long = deleted_directory_name("x" * 249, 123456, TOPIC_ID)
    assert len(long) == 255
    assert long.endswith(f"-123456.{TOPIC_ID.hex()}-delete")
