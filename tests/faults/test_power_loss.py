"""Power goes out under a process that writes: an ext4 of its own is shut down, mounted again, and must have it all.

What counts is what was flushed before the power began to go. The file system is shut down under a running process, and a
sync that runs at that very moment may report a success that is none (`shutdown_probe` shows it without kraftlog, and
says why); with real power nobody is left to hear it.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kraftlog.logstore import RealFileSystem, format_log_dir
from tests.faults.loop_device import LOG_DROPPED, LOG_FLUSHED, LoopDevice, loop_device
from tests.faults.power_loss_writer import LOGS, open_directory, value_of
from tests.faults.shutdown_probe import Space, probe
from tests.unit.logstore.builders import CLUSTER_ID, DIRECTORY_ID, values_of

MIN_FLUSHES = 5  # with fewer a cycle says nothing


def lose_power_again_and_again(folder: Path, cycles: int, seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    with loop_device(folder, size_mb=256) as device:
        path = str(device.path / "data")
        format_log_dir(path, RealFileSystem(), cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
        flushed = dict.fromkeys(range(LOGS), 0)
        for cycle in range(cycles):
            how = (LOG_FLUSHED, LOG_DROPPED)[cycle % 2]
            where = f"seed {seed}, cycle {cycle}, flag {how}"
            _write_until_the_power_goes(device, path, rng, how, flushed, where)
            device.unmount()
            device.mount()
            _check(path, flushed, where)


def _write_until_the_power_goes(
    device: LoopDevice, path: str, rng: random.Random, how: int, flushed: dict[int, int], where: str
) -> None:
    command = [sys.executable, "-m", "tests.faults.power_loss_writer", path, str(rng.randrange(1 << 30))]
    flushes, last = 0, rng.randrange(MIN_FLUSHES, 60)
    power_went_ns = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:  # up to the end: the writer stops when its disk is gone
            word, *numbers = line.split()
            if word == "flushed":
                partition, end, told_ns = map(int, numbers)
                flushes += 1
                if power_went_ns is None or told_ns < power_went_ns:
                    flushed[partition] = max(flushed[partition], end)
                else:
                    print(f"{where}: {end} of partition {partition} said to be flushed after the power went")
            if flushes == last and power_went_ns is None:
                power_went_ns = time.monotonic_ns()
                device.cut_power(how)
    assert power_went_ns is not None, f"{where}: the writer ended before the power did"


def _check(path: str, flushed: dict[int, int], where: str) -> None:
    log_dir = open_directory(path)
    for partition, end in flushed.items():
        log = log_dir.logs["t", partition]
        assert log.damage is None, f"{where}: {log.damage}"
        assert log.log_end_offset >= end, f"{where}: {end} was flushed, {log.log_end_offset} is left of {log.name}"
        wanted = [value_of("t", partition, offset) for offset in range(log.log_end_offset)]
        assert values_of(log) == wanted, f"{where}: {log.name}"
    log_dir.close(clean=False)


@pytest.mark.slow
def test_nothing_flushed_is_lost_with_the_power(tmp_path: Path) -> None:
    lose_power_again_and_again(tmp_path, cycles=4, seed=1)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_nothing_flushed_is_lost_with_the_power_at_length(tmp_path: Path) -> None:
    """30 times with the journal flushed, 30 times with it dropped."""
    lose_power_again_and_again(tmp_path, cycles=60, seed=2)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_what_a_bare_fdatasync_reported_before_the_shutdown_is_there(tmp_path: Path) -> None:
    """The rule of this module is sound: only reports of during the shutdown may be false. How many were, is printed."""
    with loop_device(tmp_path, size_mb=256) as device:
        for how in (LOG_FLUSHED, LOG_DROPPED):
            for space in Space:
                outcome = probe(device, how, space, cycles=20, rng=random.Random(5))
                print(f"flag {how}, {space.value}: {outcome}")
                assert outcome.synced > 0
                assert outcome.lost_before == 0
