"""A real disk that fails or fills up: what was flushed stays, errors are errors of the store, and no signal ends the
process. The same over the simulated disk, for every operation and N, is in `test_logstore_cases`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kraftlog.logstore import DiskFullError, RealFileSystem, format_log_dir
from kraftlog.proto.errors import CorruptRecordError, StorageError
from tests.faults.loop_device import loop_device
from tests.faults.power_loss_writer import open_directory, value_of
from tests.unit.logstore.builders import CLUSTER_ID, DIRECTORY_ID, NOW_MS, batch, values_of

CALLS = {
    "fdatasync": [*range(1, 61, 3)],
    "fsync": [1, 3, 4, *range(5, 61, 6)],
    "pwritev": [*range(1, 61, 3)],
    "pread": [1, 2, 5],
    "ftruncate": [1, 2, 3, 5, 8, 13],
}
ROUNDS = 60


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that lets calls fail, compiled here."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], capture_output=True, text=True
    )
    if built.returncode:
        pytest.skip(f"the shim does not compile here: {built.stderr[:200]}")
    return str(library)


def append_and_flush(path: str) -> None:
    """The process under the shim: says what was flushed, and how it ended."""
    try:
        log_dir = open_directory(path)
        log = log_dir.logs["t", 0] if log_dir.logs else log_dir.create_log("t", 0, now_ms=NOW_MS)
        for number in range(ROUNDS):
            offset = log.log_end_offset
            log.append_as_leader(batch(value_of("t", 0, offset)), leader_epoch=0, now_ms=NOW_MS)
            log.read(offset, 1, end_offset=offset + 1)
            if number % 2:
                print("flushed", log.flush(), flush=True)
        log_dir.close()
    except StorageError as e:
        print("failed", e, flush=True)


def run_under(shim: str, path: str, **environment: str) -> tuple[int, bool]:
    """(what was flushed, whether the call was made to fail)"""
    code = "import sys; from tests.faults.test_failing_disk import append_and_flush as run; run(sys.argv[1])"
    ran = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | environment | {"LD_PRELOAD": shim, "FAIL_FOLDER": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{environment}: {ran.returncode} {ran.stderr[-2000:]}"
    lines = [line.split() for line in ran.stdout.splitlines()]
    return max((int(words[1]) for words in lines if words[0] == "flushed"), default=0), "injected" in ran.stderr


def check(path: str, flushed: int, where: str) -> None:
    log_dir = open_directory(path)
    for log in log_dir.logs.values():
        assert log.damage is None, where
        assert log.log_end_offset >= flushed, where
        assert values_of(log) == [value_of("t", 0, offset) for offset in range(log.log_end_offset)], where
    assert log_dir.logs or not flushed, where
    log_dir.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "data")
    format_log_dir(folder, RealFileSystem(), cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_with_eio(call: str, shim: str, path: str) -> None:
    """The process ends in a `StorageError`, without a traceback; the next one finds what was flushed."""
    for nth in CALLS[call][:3]:
        flushed, injected = run_under(shim, path, FAIL_CALL=call, FAIL_AT=str(nth))
        assert injected, f"{call} number {nth} did not fail"
        check(path, flushed, f"{call} number {nth}")


@pytest.mark.deep
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_with_eio_at_length(call: str, shim: str, path: str) -> None:
    for nth in CALLS[call]:
        flushed, _ = run_under(shim, path, FAIL_CALL=call, FAIL_AT=str(nth))
        check(path, flushed, f"{call} number {nth}")


@pytest.mark.slow
def test_a_short_write_is_gone_on_with(shim: str, path: str) -> None:
    """The system may write less than it was given, without an error."""
    flushed_before = 0
    for nth in (1, 4, 9):
        flushed, injected = run_under(shim, path, FAIL_CALL="pwritev", FAIL_AT=str(nth), FAIL_SHORT="1")
        assert injected
        assert flushed == (flushed_before := flushed_before + ROUNDS)
        check(path, flushed, f"short write {nth}")


def read_cut_files(path: str) -> None:
    """A process that has read a log meets its files cut short, half and then to nothing."""
    log_dir = open_directory(path)
    log = log_dir.logs["t", 0]
    outcomes: list[str] = []

    def look() -> None:
        for base in log.segment_base_offsets[:-1]:
            for read in (
                lambda offset=base: log.read(offset + 1, 1 << 20, end_offset=log.log_end_offset),
                lambda: log.offset_for_time(NOW_MS),
            ):
                try:
                    read()
                    outcomes.append("answer")
                except (CorruptRecordError, StorageError) as e:
                    outcomes.append(type(e).__name__)

    look()
    assert set(outcomes) == {"answer"}
    for divisor in (2, 1 << 40):
        for suffix in (".index", ".timeindex", ".log"):
            for base in log.segment_base_offsets[:-1]:
                name = os.path.join(path, "t-0", f"{base:020d}{suffix}")
                os.truncate(name, os.path.getsize(name) // divisor)
            look()
    print("ended", *sorted(set(outcomes)), flush=True)


@pytest.mark.slow
def test_files_that_are_cut_under_a_reader_are_no_signal(path: str) -> None:
    """Somebody truncates index and log files of a running node."""
    append_and_flush(path)
    code = "import sys; from tests.faults.test_failing_disk import read_cut_files as run; run(sys.argv[1])"
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.returncode} {ran.stderr[-2000:]}"
    assert ran.stdout.split() == ["ended", "CorruptRecordError", "answer"]


def read_index(path: str) -> None:
    """Under the shim: what a lookup in an index says that the disk does not give back."""
    log = open_directory(path).logs["t", 0]
    try:
        print("answer", log.read(1, 1, end_offset=log.log_end_offset).next_offset)
    except StorageError as e:
        print("failed", e)
    print("again", log.read(1, 1, end_offset=log.log_end_offset).next_offset)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["index", "timeindex", "log"])
def test_an_old_file_that_cannot_be_read_is_an_error_of_that_read(suffix: str, shim: str, path: str) -> None:
    append_and_flush(path)
    code = "import sys; from tests.faults.test_failing_disk import read_index as run; run(sys.argv[1])"
    file = f"{path}/t-0/00000000000000000000.{suffix}"
    ran = subprocess.run(
        [sys.executable, "-c", code, path],
        env=os.environ | {"LD_PRELOAD": shim, "FAIL_FOLDER": file, "FAIL_CALL": "pread", "FAIL_AT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.returncode} {ran.stderr[-2000:]}"
    assert "injected" in ran.stderr
    failed, again = ran.stdout.splitlines()
    assert "Input/output error" in failed
    assert again == "again 2"


@pytest.mark.slow
def test_a_full_disk_refuses_appends_and_takes_them_again_when_there_is_space(tmp_path: Path) -> None:
    """On an ext4 of 16 MB: reads go on, nothing is lost, no SIGBUS; the same process goes on when there is space."""
    with loop_device(tmp_path, size_mb=16) as device:
        path = str(device.path / "data")
        format_log_dir(path, RealFileSystem(), cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
        ballast = device.path / "ballast"
        ballast.write_bytes(bytes(12 << 20))
        log_dir = open_directory(path)
        log = log_dir.create_log("t", 0, now_ms=NOW_MS)

        def append(count: int) -> None:
            for number in range(count):
                value = value_of("t", 0, log.log_end_offset)
                log.append_as_leader(batch(value), leader_epoch=0, now_ms=NOW_MS)
                if number % 50 == 0:
                    log.flush()

        for _ in range(3):
            with pytest.raises(DiskFullError, match="disk full"):  # the disk is smaller than this
                append(20_000)
            refused_at = log.log_end_offset
            assert values_of(log) == [value_of("t", 0, offset) for offset in range(refused_at)]
        ballast.unlink()
        append(500)
        assert log.flush() == refused_at + 500
        log_dir.close()
        check(path, refused_at + 500, "after the disk was full")
