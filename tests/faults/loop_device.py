"""A small file system of its own in a file, for tests that fill it up or take its power away. Needs root."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_EXT4_IOC_SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125  # _IOR('X', 125, __u32)
FROZEN, LOG_FLUSHED, LOG_DROPPED = 0, 1, 2
"""How the power goes out: with everything written to disk before, with the journal written, or with what of it was not
yet there lost."""


class LoopDevice:
    """An ext4 in a file, mounted at `path`."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.path = folder / "mounted"
        self._image = folder / "disk.img"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(size_mb << 20)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def cut_power(self, how: int) -> None:
        """From here on nothing reaches the disk; every write and sync fails. `unmount` and `mount` bring it back."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, _EXT4_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(folder)


@contextmanager
def loop_device(folder: Path, size_mb: int) -> Iterator[LoopDevice]:
    """Skips the test, with the reason, where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("mounting a loop device needs root")
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    try:
        device = LoopDevice(folder, size_mb)
    except subprocess.CalledProcessError as e:
        pytest.skip(f"no loop device: {e.stderr.strip()}")
    try:
        yield device
    finally:
        subprocess.run(["umount", "-l", str(device.path)], check=False, stderr=subprocess.DEVNULL)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
