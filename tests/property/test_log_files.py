"""Whatever a log has been through, its files are in order, and say the same after a stop or a crash."""

import random

import pytest

from kraftlog.logstore import LogDir
from kraftlog.logstore.verify import verify_log_dir
from kraftlog.testing.filesystem import SimFileSystem
from tests.property.random_logs import NOW_MS, RandomWriter, random_config
from tests.unit.logstore.builders import DATA, open_log_dir


def state_of(log_dir: LogDir) -> object:
    log = log_dir.logs["t", 0]
    producers = {
        entry.producer_id: (
            entry.producer_epoch,
            entry.last_sequence,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
            entry.last_timestamp,
        )
        for entry in log.producers.entries.values()
    }
    return (
        log.log_end_offset,
        log.epochs.entries,
        producers,
        log.aborted_transactions(0, log.log_end_offset),
        log.last_stable_offset(log.log_end_offset),
        log.max_timestamp(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["clean", "kill", "crash"])
def test_files_are_in_order_after_anything(ending: str) -> None:
    for seed in range(40):
        print("seed", seed)
        rng = random.Random(seed)
        fs = SimFileSystem()
        config = random_config(rng)
        log_dir = open_log_dir(fs, config)
        RandomWriter(log_dir.create_log("t", 0, now_ms=NOW_MS), rng).write(rng.choice((10, 60, 150)))
        log_dir.logs["t", 0].flush()
        before = state_of(log_dir)
        if ending == "clean":
            log_dir.close()
        else:
            log_dir.checkpoint()
            if ending == "crash":
                fs.crash(rng)
        fs.kill()
        problems = [str(problem) for report in verify_log_dir(fs, DATA) for problem in report.problems]
        assert problems == []
        log_dir = open_log_dir(fs, config)
        assert log_dir.logs["t", 0].damage is None
        assert state_of(log_dir) == before
        log_dir.close()
        fs.kill()
        assert [problem for report in verify_log_dir(fs, DATA) for problem in report.problems] == []
