"""The disk seam: the few operations that the log store needs, and how they fail.

All methods raise `OSError`; the callers in this package map it once to `StorageError`. `RealFileSystem` is POSIX,
`kraftlog.testing.filesystem.SimFileSystem` keeps everything in memory and forgets what was not synced. There is no map
of a file, on purpose: an error of the disk below one is a signal that ends the process, and no `OSError`.

What is durable when:
- bytes of a file after `fdatasync` (with its size);
- a file's name (create, rename, unlink) after `fsync_dir` of its directory;
- state files go through `atomic_write`: a temporary file, synced, renamed over the old one, the directory synced.
  A reader sees the old or the complete new content, never a part.
"""

import errno
import fcntl
import itertools
import os
from collections.abc import Sequence
from typing import Protocol

from kraftlog.proto.seams import Buffer

TEMPORARY_SUFFIX = ".tmp"  # what a crash left half written; ignored and removed when a log is loaded
_MAX_BUFFERS = 1024  # IOV_MAX of Linux
_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


class File(Protocol):
    """One open file. Safe from any thread; `close` does not disturb an operation that runs in another thread."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Length in bytes, including what is preallocated."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other. After an `OSError` any prefix of them may have been written."""
        ...

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def preallocate(self, position: int, length: int) -> None:
        """Extend the file with real blocks of zeros up to `position + length`; ENOSPC leaves its data unchanged."""
        ...

    def truncate(self, size: int) -> None: ...

    def fdatasync(self) -> None:
        """Make data and size durable. After an error the unsynced pages must be taken as lost: never call it again."""
        ...

    def close(self) -> None:
        """May be repeated."""
        ...


class Lock(Protocol):
    """A held exclusive lock; the system drops it when the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Names and files. Paths are absolute or relative to the process; `/` separates. Safe from any thread."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file where there is none."""
        ...

    def size(self, path: str) -> int | None:
        """Length of the file (0 or more for a directory); None if there is nothing of that name."""
        ...

    def modified_ms(self, path: str) -> int | None:
        """When the file's content last changed, in wall-clock ms since 1970; None if there is nothing of that name."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Sorted names. `NotADirectoryError` for a file."""
        ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its missing parents; nothing to do if it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file `target`."""
        ...

    def unlink(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file or raise `BlockingIOError` at once if anybody holds it."""
        ...


def read_file(fs: FileSystem, path: str) -> bytes:
    """The whole content."""
    file = fs.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def write_unsynced(fs: FileSystem, path: str, data: Buffer) -> None:
    """Replace a file in one step as other readers see it; not durable. For what recovery can rebuild."""
    _write_temporary(fs, path, data, sync=False)
    fs.rename(path + TEMPORARY_SUFFIX, path)


def write_in_place(fs: FileSystem, path: str, data: Buffer) -> None:
    """Give a file its content; not durable, and a crash may leave a part. For a file that nobody has to read before."""
    file = fs.open(path, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
    finally:
        file.close()


def write_synced(fs: FileSystem, path: str, data: Buffer) -> None:
    """Replace a file in one step: a crash finds the old content or the new, for certain the new after `fsync_dir`."""
    _write_temporary(fs, path, data, sync=True)
    fs.rename(path + TEMPORARY_SUFFIX, path)


def atomic_write(fs: FileSystem, path: str, data: Buffer) -> None:
    """Replace a file durably: when this returns, a crash finds the new content; before, the old or the new."""
    write_synced(fs, path, data)
    fs.fsync_dir(os.path.dirname(path))


def _write_temporary(fs: FileSystem, path: str, data: Buffer, *, sync: bool) -> None:
    file = fs.open(path + TEMPORARY_SUFFIX, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
        if sync:
            file.fdatasync()
    finally:
        file.close()


def sync_file(fs: FileSystem, path: str) -> None:
    """Make a file's content durable, by path."""
    file = fs.open(path)
    try:
        file.fdatasync()
    finally:
        file.close()


def unlink_if_exists(fs: FileSystem, path: str) -> bool:
    """Whether there was something to remove."""
    try:
        fs.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_flat_directory(fs: FileSystem, path: str) -> None:
    """Remove a directory that holds only files (a partition's folder)."""
    for name in fs.listdir(path):
        unlink_if_exists(fs, os.path.join(path, name))
    fs.rmdir(path)


class _Descriptor:
    """Closes the descriptor when the last user lets go of it, so that no operation meets a reused number."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class _RealFile:
    __slots__ = ("_descriptor", "_path", "_preallocates")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._descriptor: _Descriptor | None = _Descriptor(fd)
        self._preallocates = True

    @property
    def path(self) -> str:
        return self._path

    def _open(self) -> _Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return descriptor

    def size(self) -> int:
        descriptor = self._open()
        return os.fstat(descriptor.fd).st_size

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        descriptor = self._open()
        left = sum(map(len, buffers))
        while left:
            written = os.pwritev(descriptor.fd, buffers[:_MAX_BUFFERS], position)
            left -= written
            if left:
                position += written
                buffers = _after(buffers, written)

    def pread(self, size: int, position: int) -> bytes:
        descriptor = self._open()
        data = os.pread(descriptor.fd, size, position)
        if len(data) == size or not data:
            return data
        pieces = [data]  # a read may stop early (a signal, 2 GiB); only an empty one means the end
        got = len(data)
        while got < size and (data := os.pread(descriptor.fd, size - got, position + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def preallocate(self, position: int, length: int) -> None:
        if not self._preallocates:
            return
        descriptor = self._open()
        try:
            os.posix_fallocate(descriptor.fd, position, length)
        except OSError as e:
            if e.errno not in _NO_PREALLOCATION:
                raise
            self._preallocates = False  # a file system without it: appends extend the file instead

    def truncate(self, size: int) -> None:
        descriptor = self._open()
        os.ftruncate(descriptor.fd, size)

    def fdatasync(self) -> None:
        descriptor = self._open()
        os.fdatasync(descriptor.fd)

    def close(self) -> None:
        self._descriptor = None


def _after(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """What remains of `buffers` when their first `written` bytes are gone, and empty ones."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if written < size:
            return [memoryview(buffer)[written:], *itertools.islice(buffers, index + 1, None)]
        written -= size
    return []


class _RealLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: _Descriptor) -> None:
        self._descriptor: _Descriptor | None = descriptor

    def release(self) -> None:
        self._descriptor = None


class RealFileSystem:
    """POSIX."""

    def open(self, path: str, *, create: bool = False) -> File:
        return _RealFile(path, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644))

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int | None:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path)
        except OSError:  # it exists, or a parent is missing
            os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        descriptor = _Descriptor(os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY))
        os.fsync(descriptor.fd)

    def lock(self, path: str) -> Lock:
        descriptor = _Descriptor(os.open(path, os.O_RDWR | os.O_CREAT, 0o644))
        fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _RealLock(descriptor)
