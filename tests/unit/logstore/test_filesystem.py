"""The disk seam: one contract for the real and the simulated one, then what is particular to each."""

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftlog.logstore.filesystem import (
    FileSystem,
    RealFileSystem,
    atomic_write,
    read_file,
    remove_flat_directory,
    unlink_if_exists,
    write_unsynced,
)
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FileSystem, str]]:
    if request.param == "real":
        yield RealFileSystem(), str(tmp_path)
    else:
        fs = SimFileSystem()
        fs.mkdir("/disk")
        yield fs, "/disk"


class TestEveryFileSystem:
    """What the log store relies on, whatever the disk."""

    def test_written_bytes_are_read_back(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"-ef-")[1:3]], 0)
        file.pwritev([b"X"], 3)
        assert file.pread(100, 0) == b"abcXef"
        assert file.pread(2, 4) == b"ef"
        assert file.pread(5, 50) == b""
        assert (file.size(), fs.size(f"{path}/a"), fs.size(f"{path}/b")) == (6, 6, None)
        assert read_file(fs, f"{path}/a") == b"abcXef"

    def test_a_write_of_more_buffers_than_one_call_takes(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b"%04d" % number for number in range(3000)], 0)
        assert file.pread(12000, 0) == b"".join(b"%04d" % number for number in range(3000))

    def test_nothing_to_write_is_no_error(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b""], 0)
        file.pwritev([], 10)
        assert file.size() == 0
        assert read_file(fs, f"{path}/a") == b""

    def test_preallocated_space_is_zeros_and_keeps_data(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b"abc"], 0)
        file.preallocate(3, 4093)
        assert file.size() == 4096
        assert file.pread(5, 0) == b"abc\0\0"

    def test_truncation_cuts_and_extends(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b"abcdef"], 0)
        file.truncate(2)
        file.truncate(4)
        assert file.pread(10, 0) == b"ab\0\0"

    def test_a_missing_file_is_not_made_by_accident(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        for use in (fs.open, fs.unlink, fs.listdir, fs.rmdir):
            with pytest.raises(FileNotFoundError):
                use(f"{path}/missing")
        with pytest.raises(FileNotFoundError):
            fs.rename(f"{path}/missing", f"{path}/other")
        assert not unlink_if_exists(fs, f"{path}/missing")

    def test_names_follow_create_rename_and_unlink(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        fs.mkdir(f"{path}/d/e")
        fs.mkdir(f"{path}/d/e")
        for name in ("b", "a"):
            fs.open(f"{path}/d/{name}", create=True).pwritev([name.encode()], 0)
        fs.rename(f"{path}/d/a", f"{path}/d/b")
        assert fs.listdir(f"{path}/d") == ["b", "e"]
        assert read_file(fs, f"{path}/d/b") == b"a"
        fs.unlink(f"{path}/d/b")
        fs.rename(f"{path}/d/e", f"{path}/d/f")
        assert fs.listdir(f"{path}/d") == ["f"]
        remove_flat_directory(fs, f"{path}/d/f")
        fs.rmdir(f"{path}/d")
        assert fs.listdir(path) == []

    def test_a_directory_is_no_file(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        fs.mkdir(f"{path}/d")
        fs.open(f"{path}/d/file", create=True)
        with pytest.raises(IsADirectoryError):
            fs.open(f"{path}/d")
        with pytest.raises(NotADirectoryError):
            fs.listdir(f"{path}/d/file")
        with pytest.raises(OSError, match="not empty"):
            fs.rmdir(f"{path}/d")

    def test_an_open_file_outlives_its_name(self, disk: tuple[FileSystem, str]) -> None:
        """A reader in another thread ends undisturbed when retention removes the segment."""
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.pwritev([b"abc"], 0)
        fs.unlink(f"{path}/a")
        assert file.pread(3, 0) == b"abc"

    def test_a_closed_file_refuses(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        file = fs.open(f"{path}/a", create=True)
        file.close()
        file.close()
        for use in (file.size, file.fdatasync, lambda: file.pread(1, 0), lambda: file.pwritev([b"x"], 0)):
            with pytest.raises(OSError, match="closed") as caught:
                use()
            assert caught.value.errno == errno.EBADF

    def test_a_lock_is_held_once(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        lock = fs.lock(f"{path}/.lock")
        with pytest.raises(BlockingIOError):
            fs.lock(f"{path}/.lock")
        lock.release()
        lock.release()
        fs.lock(f"{path}/.lock").release()

    def test_state_files_are_replaced_as_a_whole(self, disk: tuple[FileSystem, str]) -> None:
        fs, path = disk
        for content in (b"a long first content", b"short"):
            atomic_write(fs, f"{path}/state", content)
            assert read_file(fs, f"{path}/state") == content
        write_unsynced(fs, f"{path}/state", b"again")
        assert read_file(fs, f"{path}/state") == b"again"
        assert fs.listdir(path) == ["state"]


class TestRealFileSystem:
    def test_the_time_of_the_last_change_is_the_files_own(self, tmp_path: Path) -> None:
        fs, path = RealFileSystem(), str(tmp_path / "f")
        assert fs.modified_ms(path) is None
        fs.open(path, create=True).close()
        os.utime(path, (7.5, 5.25))
        assert fs.modified_ms(path) == 5250

    @pytest.mark.slow
    def test_a_second_process_does_not_get_the_lock(self, tmp_path: Path) -> None:
        lock = RealFileSystem().lock(str(tmp_path / ".lock"))
        code = (
            "import sys; from kraftlog.logstore.filesystem import RealFileSystem\n"
            "try: RealFileSystem().lock(sys.argv[1])\n"
            "except BlockingIOError: print('refused')"
        )
        run = subprocess.run([sys.executable, "-c", code, str(tmp_path / ".lock")], capture_output=True, text=True)
        assert (run.stdout, run.stderr) == ("refused\n", "")
        lock.release()

    def test_preallocated_space_is_real(self, tmp_path: Path) -> None:
        """Never sparse: space that is there cannot run out under a writer."""
        file = RealFileSystem().open(str(tmp_path / "a"), create=True)
        file.preallocate(0, 1 << 20)
        assert (tmp_path / "a").stat().st_blocks * 512 >= 1 << 20

    def test_a_file_system_without_preallocation_is_used_without(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "not supported")

        monkeypatch.setattr("os.posix_fallocate", refuse)
        file = RealFileSystem().open(str(tmp_path / "a"), create=True)
        file.preallocate(0, 4096)
        file.pwritev([b"abc"], 0)
        assert file.size() == 3

    def test_short_writes_are_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pwritev = os.pwritev
        monkeypatch.setattr("os.pwritev", lambda fd, buffers, at: pwritev(fd, [memoryview(buffers[0])[:2]], at))
        file = RealFileSystem().open(str(tmp_path / "a"), create=True)
        file.pwritev([b"abcde", b"f", b"ghi"], 0)
        assert file.pread(20, 0) == b"abcdefghi"


class TestSimFileSystem:
    """The disk that forgets."""

    def _written(self) -> SimFileSystem:
        fs = SimFileSystem()
        fs.put("/d/file", b"synced ")
        fs.open("/d/file").pwritev([b"unsynced"], 7)
        return fs

    def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest(self) -> None:
        seen = set()
        for seed in range(200):
            fs = self._written()
            fs.crash(random.Random(seed))
            seen.add(fs.contents("/d/file"))
        torn = {b"synced " + b"unsynced"[:size] for size in range(9)}
        unwritten = {b"synced " + bytes(8)}  # its length is there, its bytes are not
        assert seen == torn | unwritten

    def test_changes_are_stamped_with_the_clock(self) -> None:
        """A write, a cut, a preallocation; not a read, a sync, a rename or a crash."""
        now = [1]
        fs = SimFileSystem(wall_ms=lambda: now[0])
        assert fs.modified_ms("/f") is None
        file = fs.open("/f", create=True)
        assert fs.modified_ms("/f") == 1
        changes: list[Callable[[], None]] = [
            lambda: file.pwritev([b"abc"], 0),
            lambda: file.truncate(1),
            lambda: file.preallocate(1, 8),
        ]
        for change in changes:
            now[0] += 1
            change()
            assert fs.modified_ms("/f") == now[0]
        changed, now[0] = now[0], 100
        file.pread(1, 0)
        file.fdatasync()
        fs.rename("/f", "/g")
        fs.fsync_dir("/")
        fs.crash(random.Random(1))
        fs.open("/g", create=True)
        assert fs.modified_ms("/g") == changed

    def test_a_kill_loses_nothing_but_handles_and_locks(self) -> None:
        fs = self._written()
        file, lock = fs.open("/d/file"), fs.lock("/d/.lock")
        fs.kill()
        assert fs.contents("/d/file") == b"synced unsynced"
        with pytest.raises(OSError, match="before the crash"):
            file.pread(1, 0)
        fs.lock("/d/.lock")
        lock.release()  # of the dead process: not the new one's lock
        with pytest.raises(BlockingIOError):
            fs.lock("/d/.lock")

    def test_a_name_is_durable_only_with_its_directory(self) -> None:
        outcomes = set()
        for seed in range(50):
            fs = SimFileSystem()
            fs.put("/d/old", b"old")
            file = fs.open("/d/new", create=True)
            file.pwritev([b"new"], 0)
            file.fdatasync()
            fs.rename("/d/new", "/d/old")
            fs.crash(random.Random(seed))
            outcomes.add(tuple((name, fs.contents(f"/d/{name}")) for name in fs.listdir("/d")))
        assert outcomes == {(("old", b"old"),), (("new", b"new"), ("old", b"old")), (("old", b"new"),)}

    def test_a_renamed_file_without_sync_may_be_empty(self) -> None:
        """What makes the tmp + rename pattern wrong without fsync."""
        contents = set()
        for seed in range(50):
            fs = SimFileSystem()
            fs.put("/d/state", b"old")
            write_unsynced(fs, "/d/state", b"new")
            fs.fsync_dir("/d")
            fs.crash(random.Random(seed))
            contents.add(fs.contents("/d/state"))
        assert b"" in contents

    def test_an_atomic_write_is_old_or_new_whenever_power_fails(self) -> None:
        for stop in range(8):
            for seed in range(30):
                fs = SimFileSystem()
                fs.put("/d/state", b"old")
                fs.stop_after(stop)
                try:
                    atomic_write(fs, "/d/state", b"new content")
                    wanted = {b"new content"}
                except SimulatedPowerLoss:
                    wanted = {b"old", b"new content"}
                fs.crash(random.Random(seed))
                assert fs.contents("/d/state") in wanted, (stop, seed)

    def test_a_lying_disk_loses_synced_data(self) -> None:
        """The planted bug for others' tests works."""
        lost = 0
        for seed in range(20):
            fs = SimFileSystem(syncs=False)
            fs.mkdir("/d")
            atomic_write(fs, "/d/state", b"new")
            fs.crash(random.Random(seed))
            lost += fs.size("/d/state") is None
        assert lost

    def test_a_full_disk_takes_a_part_and_says_so(self) -> None:
        fs = SimFileSystem(capacity_bytes=10)
        file = fs.open("/a", create=True)
        file.pwritev([b"1234567"], 0)
        with pytest.raises(OSError, match="No space") as caught:
            file.pwritev([b"89012345"], 7)
        assert caught.value.errno == errno.ENOSPC
        assert fs.contents("/a") == b"1234567890"
        with pytest.raises(OSError, match="No space"):
            fs.open("/b", create=True).preallocate(0, 1)
        file.truncate(0)
        fs.open("/b").preallocate(0, 10)
        fs.unlink("/b")
        file.pwritev([b"1234567890"], 0)

    def test_ordered_faults_come_when_they_are_due(self) -> None:
        fs = SimFileSystem()
        file = fs.open("/a", create=True)
        other = fs.open("/b", create=True)
        fs.fail("fdatasync", path_part="/a", skip=1, times=2)
        file.fdatasync()
        other.fdatasync()
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                file.fdatasync()
        file.fdatasync()
        fs.fail("pread", errno.EACCES)
        fs.heal()
        assert file.pread(1, 0) == b""

    def test_a_bad_sector(self) -> None:
        fs = self._written()
        fs.flip("/d/file", 0, 0x20)
        assert fs.contents("/d/file") == b"Synced unsynced"
        assert fs.durable_contents("/d/file") == b"Synced "

    def test_operations_are_recorded(self) -> None:
        fs = SimFileSystem(records_operations=True)
        fs.mkdir("/d")
        atomic_write(fs, "/d/a", b"x")
        names = [operation.name for operation in fs.operations]
        assert names == ["mkdir", "create", "truncate", "pwritev", "fdatasync", "rename", "fsync_dir"]
