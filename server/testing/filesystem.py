"""A disk in memory that keeps what was synced apart from what was only written.

`crash(rng)` is a power loss: each file keeps what was synced plus a prefix of its later operations, the last write torn;
each directory keeps what was synced plus a prefix of its later creates, renames and unlinks. `kill()` is the end of
the process only: the page cache stays. Both make every open handle useless and drop the locks.

Faults to order: `fail` (EIO and the like at a chosen operation), `capacity_bytes` (a full disk), `stop_after`
(power goes out in the middle of a method), `flip` (a bad sector), `syncs = False` (a lying disk: the planted bug that
every durability test must notice).
"""

import errno
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kraftlog.logstore.filesystem import File, Lock
from kraftlog.proto.seams import Buffer, Random

SECTOR_BYTES = 512


class SimulatedPowerLoss(BaseException):
    """Raised inside the operation at which `stop_after` ends. No handler of ordinary errors catches it."""


@dataclass(frozen=True, slots=True)
class Write:
    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        end = self.position + len(self.data)
        if end > len(content):
            content.extend(bytes(end - len(content)))
        content[self.position : end] = self.data


@dataclass(frozen=True, slots=True)
class Resize:
    size: int

    def apply(self, content: bytearray) -> None:
        if self.size < len(content):
            del content[self.size :]
        else:
            content.extend(bytes(self.size - len(content)))


class Inode:
    """A file's content as processes see it, as the disk has it, and the operations between the two."""

    __slots__ = ("durable", "modified_ms", "pending", "volatile")

    def __init__(self) -> None:
        self.modified_ms = 0
        """Survives crashes: how much of it a power loss may take back tests nothing."""
        self.volatile = bytearray()
        self.durable = bytearray()
        self.pending: list[Write | Resize] = []

    @classmethod
    def holding(cls, content: bytes | bytearray) -> "Inode":
        """A file with that content, synced."""
        inode = cls()
        inode.volatile, inode.durable = bytearray(content), bytearray(content)
        return inode

    def apply(self, operation: Write | Resize) -> None:
        operation.apply(self.volatile)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            operation.apply(self.durable)
        self.pending.clear()

    def forget_unsynced(self) -> None:
        self.pending.clear()
        self.volatile = bytearray(self.durable)

    def crash(self, rng: Random) -> None:
        kept = rng.randrange(len(self.pending) + 1)
        for operation in self.pending[:kept]:
            operation.apply(self.durable)
        if kept < len(self.pending):
            self._tear(self.pending[kept], rng)
        self.pending.clear()
        self.volatile = bytearray(self.durable)

    def _tear(self, operation: Write | Resize, rng: Random) -> None:
        """What a half-done write may leave: nothing, a prefix of bytes or sectors, or its length without its bytes."""
        if not isinstance(operation, Write):
            return
        size = len(operation.data)
        match rng.randrange(4):
            case 0:
                return
            case 1:
                size = rng.randrange(size + 1)
            case 2:
                size = rng.randrange(size + 1) // SECTOR_BYTES * SECTOR_BYTES
            case _:
                Resize(max(len(self.durable), operation.position + size)).apply(self.durable)
                return
        Write(operation.position, operation.data[:size]).apply(self.durable)


class Directory:
    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[tuple[str, Inode | Directory | None, str]] = []
        """(name, node to put there or None, name to remove with it or "")"""

    @classmethod
    def holding(cls, names: "dict[str, Inode | Directory]") -> "Directory":
        """A directory with those names, synced."""
        directory = cls()
        directory.names, directory.durable = names, dict(names)
        return directory

    def change(self, name: str, node: "Inode | Directory | None", removed: str = "") -> None:
        self.pending.append((name, node, removed))
        self.apply(self.names, name, node, removed)

    @staticmethod
    def apply(names: "dict[str, Inode | Directory]", name: str, node: "Inode | Directory | None", removed: str) -> None:
        if removed:
            names.pop(removed, None)
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def forget_unsynced(self) -> None:
        self.pending.clear()
        self.names = dict(self.durable)
        for node in self.names.values():
            node.forget_unsynced()

    def crash(self, rng: Random) -> None:
        for change in self.pending[: rng.randrange(len(self.pending) + 1)]:
            self.apply(self.durable, *change)
        self.pending.clear()
        self.names = dict(self.durable)
        for name in sorted(self.names):
            self.names[name].crash(rng)


@dataclass(slots=True)
class _Fault:
    operation: str
    error: int
    path_part: str
    skip: int
    times: int


@dataclass(slots=True)
class Operation:
    """One change of the disk, for traces and for choosing where to stop."""

    name: str
    path: str


@dataclass(slots=True)
class SimFileSystem:
    """In-memory `FileSystem`. Safe from any thread."""

    capacity_bytes: int | None = None
    """Bytes of all files together; what goes beyond fails with ENOSPC. None: no limit."""
    syncs: bool = True
    """False: `fdatasync` and `fsync_dir` report success and do nothing."""
    operations: list[Operation] = field(default_factory=list)
    """Every change so far, while `records_operations`."""
    records_operations: bool = False
    on_power_loss: Callable[[], None] | None = None
    """Told when `stop_after` has come to its end, just before `SimulatedPowerLoss` is raised."""
    wall_ms: Callable[[], int] = lambda: 0
    """The clock that stamps files."""

    root: Directory = field(default_factory=Directory)
    _locks: set[str] = field(default_factory=set)
    _faults: list[_Fault] = field(default_factory=list)
    _generation: int = 0
    _steps_left: int | None = None
    _used: int = 0
    _mutex: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def holding(cls, root: Directory) -> "SimFileSystem":
        """A disk on which everything in `root` is synced."""
        disk = cls()
        disk.root, disk._used = root, _size(root)
        return disk

    # The seam.

    def open(self, path: str, *, create: bool = False) -> File:
        with self._mutex:
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if node is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                self._step("create", path)
                node = Inode()
                node.modified_ms = self.wall_ms()
                directory.change(name, node)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            return _SimFile(self, path, node, self._generation)

    def size(self, path: str) -> int | None:
        with self._mutex:
            node = self._find(path)
            return None if node is None else len(node.volatile) if isinstance(node, Inode) else 0

    def modified_ms(self, path: str) -> int | None:
        with self._mutex:
            node = self._find(path)
            return None if node is None else node.modified_ms if isinstance(node, Inode) else 0

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            return sorted(self._directory(path).names)

    def mkdir(self, path: str) -> None:
        with self._mutex:
            directory = self.root
            for part in _parts(path):
                node = directory.names.get(part)
                if node is None:
                    self._step("mkdir", path)
                    node = Directory()
                    directory.change(part, node)
                if not isinstance(node, Directory):
                    raise FileExistsError(errno.EEXIST, "is a file", path)
                directory = node

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            directory, old = self._parent(source)
            other, new = self._parent(target)
            assert directory is other, "only renames within one directory are modelled"
            node = directory.names.get(old)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            self._step("rename", target)
            if old == new:
                return
            replaced = directory.names.get(new)
            if isinstance(replaced, Directory) and replaced.names:
                raise OSError(errno.ENOTEMPTY, "directory not empty", target)
            self._release(replaced)
            directory.change(new, node, old)

    def unlink(self, path: str) -> None:
        with self._mutex:
            directory, name = self._parent(path)
            node = directory.names.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            if isinstance(node, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            self._step("unlink", path)
            self._release(node)
            directory.change(name, None)

    def rmdir(self, path: str) -> None:
        with self._mutex:
            directory, name = self._parent(path)
            if self._directory(path).names:
                raise OSError(errno.ENOTEMPTY, "directory not empty", path)
            self._step("rmdir", path)
            directory.change(name, None)

    def fsync_dir(self, path: str) -> None:
        with self._mutex:
            directory = self._directory(path)
            self._step("fsync_dir", path)
            if self.syncs:
                directory.sync()

    def lock(self, path: str) -> Lock:
        with self._mutex:
            self.open(path, create=True)
            if path in self._locks:
                raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
            self._locks.add(path)
            return _SimLock(self, path, self._generation)

    # What tests order.

    def crash(self, rng: Random) -> None:
        """Power loss: each file and directory keeps its synced state and some prefix of what came later."""
        with self._mutex:
            self.root.crash(rng)
            self._used = _size(self.root)
            self.kill()

    def forget_unsynced(self) -> None:
        """Power loss of the worst kind: nothing is left that was not synced."""
        with self._mutex:
            self.root.forget_unsynced()
            self._used = _size(self.root)
            self.kill()

    def kill(self) -> None:
        """The process dies, the system lives: nothing written is lost; handles and locks are gone."""
        with self._mutex:
            self._generation += 1
            self._locks.clear()
            self._faults.clear()
            self._steps_left = None

    def stop_after(self, operations: int | None) -> None:
        """Raise `SimulatedPowerLoss` at the operation after that many more, and at each one until `crash` or `kill`."""
        self._steps_left = operations

    def fail(
        self, operation: str, error: int = errno.EIO, *, path_part: str = "", skip: int = 0, times: int = 1
    ) -> None:
        """Let `operation` (pwritev, pread, fdatasync, preallocate, rename ...) on a matching path fail `times` times."""
        self._faults.append(_Fault(operation, error, path_part, skip, times))

    def heal(self) -> None:
        """Forget all ordered faults and the capacity limit."""
        self._faults.clear()
        self.capacity_bytes = None
        self.syncs = True

    def flip(self, path: str, position: int, mask: int = 1) -> None:
        """Change bits of one byte, on the disk and in the cache."""
        with self._mutex:
            node = self._file(path)
            for content in (node.volatile, node.durable):
                if position < len(content):
                    content[position] ^= mask

    def contents(self, path: str) -> bytes:
        """What a reader sees."""
        with self._mutex:
            return bytes(self._file(path).volatile)

    def durable_contents(self, path: str) -> bytes:
        """What is surely there after a power loss, provided that the name is."""
        with self._mutex:
            return bytes(self._file(path).durable)

    def fingerprint(self) -> int:
        """Equal for disks with the same names and contents, as processes see them."""
        with self._mutex:
            return hash(_frozen(self.root))

    def surely_durable(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        """What a power loss at this moment surely leaves of a file from `start` (to `end`); None if not even its name."""
        with self._mutex:
            node = self._find_durable(path)
            return bytes(node.durable[start:end]) if isinstance(node, Inode) else None

    def surely_durable_names(self, path: str) -> list[str]:
        """The names that a power loss at this moment surely leaves in a directory; empty if not even the directory."""
        with self._mutex:
            node = self._find_durable(path)
            return sorted(node.durable.keys() & node.names.keys()) if isinstance(node, Directory) else []

    def has_surely_durable(self, directory: str, name: str) -> bool:
        """Whether a power loss at this moment surely leaves that name in the directory."""
        with self._mutex:
            node = self._find_durable(directory)
            return isinstance(node, Directory) and name in node.durable and name in node.names

    def has_cached(self, directory: str, name: str) -> bool:
        """Whether processes see that name in the directory. No operation of the disk."""
        with self._mutex:
            node = self._find(directory)
            return isinstance(node, Directory) and name in node.names

    def cached(self, path: str, start: int = 0, end: int | None = None) -> bytes | None:
        """What processes see of a file from `start` (to `end`); None if there is none. No operation of the disk."""
        with self._mutex:
            node = self._find(path)
            return bytes(node.volatile[start:end]) if isinstance(node, Inode) else None

    def cached_names(self, path: str) -> list[str]:
        """The names that processes see in a directory; empty if there is none. No operation of the disk."""
        with self._mutex:
            node = self._find(path)
            return sorted(node.names) if isinstance(node, Directory) else []

    def put(self, path: str, data: bytes) -> None:
        """Write a file durably by one call, with its directories: how tests lay out a disk."""
        with self._mutex:
            parts = _parts(path)
            self.mkdir("/".join(parts[:-1]))
            for depth in range(len(parts) - 1):
                self._directory("/".join(parts[:depth])).sync()
            file = self.open(path, create=True)
            file.truncate(0)
            file.pwritev([data], 0)
            self._file(path).sync()
            self._parent(path)[0].sync()

    # Internals.

    def _step(self, operation: str, path: str) -> None:
        if self.records_operations:
            self.operations.append(Operation(operation, path))
        if self._steps_left is not None:
            if self._steps_left <= 0:
                if self.on_power_loss is not None:
                    self.on_power_loss()
                raise SimulatedPowerLoss(f"{operation} {path}")
            self._steps_left -= 1
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path and fault.times > 0:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def _find(self, path: str) -> "Inode | Directory | None":
        node: Inode | Directory | None = self.root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(part)
        return node

    def _find_durable(self, path: str) -> "Inode | Directory | None":
        node: Inode | Directory | None = self.root
        for part in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.durable.get(part)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _file(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parts = _parts(path)
        return self._directory("/".join(parts[:-1])), parts[-1]

    def _release(self, node: "Inode | Directory | None") -> None:
        if isinstance(node, Inode):
            self._used -= len(node.volatile)

    def _room(self) -> int | None:
        return None if self.capacity_bytes is None else max(0, self.capacity_bytes - self._used)


class _SimFile:
    __slots__ = ("_closed", "_fs", "_generation", "_node", "_path")

    def __init__(self, fs: SimFileSystem, path: str, node: Inode, generation: int) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._generation = generation
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def _check(self, operation: str = "") -> None:
        if self._closed or self._generation != self._fs._generation:
            raise OSError(errno.EBADF, "handle is closed or of before the crash", self._path)
        if operation:
            self._fs._step(operation, self._path)

    def _apply(self, operation: Write | Resize) -> None:
        before = len(self._node.volatile)
        self._node.apply(operation)
        self._node.modified_ms = self._fs.wall_ms()
        self._fs._used += len(self._node.volatile) - before

    def size(self) -> int:
        with self._fs._mutex:
            self._check()
            return len(self._node.volatile)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        with self._fs._mutex:
            self._check("pwritev")
            data = b"".join(buffers)
            room = self._fs._room()
            growth = position + len(data) - len(self._node.volatile)
            if room is not None and growth > room:
                short = max(0, len(data) - (growth - room))
                self._apply(Write(position, data[:short]))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            if data:
                self._apply(Write(position, data))

    def pread(self, size: int, position: int) -> bytes:
        with self._fs._mutex:
            self._check("pread")
            return bytes(self._node.volatile[position : position + size])

    def preallocate(self, position: int, length: int) -> None:
        with self._fs._mutex:
            self._check("preallocate")
            end = position + length
            room = self._fs._room()
            if room is not None and end - len(self._node.volatile) > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
            if end > len(self._node.volatile):
                self._apply(Resize(end))

    def truncate(self, size: int) -> None:
        with self._fs._mutex:
            self._check("truncate")
            self._apply(Resize(size))

    def fdatasync(self) -> None:
        with self._fs._mutex:
            self._check("fdatasync")
            if self._fs.syncs:
                self._node.sync()

    def close(self) -> None:
        self._closed = True


class _SimLock:
    __slots__ = ("_fs", "_generation", "_path")

    def __init__(self, fs: SimFileSystem, path: str, generation: int) -> None:
        self._fs = fs
        self._path = path
        self._generation = generation

    def release(self) -> None:
        if self._generation == self._fs._generation:
            self._fs._locks.discard(self._path)


@lru_cache(maxsize=4096)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _frozen(node: Inode | Directory) -> Hashable:
    if isinstance(node, Inode):
        return bytes(node.volatile)
    return tuple((name, _frozen(child)) for name, child in sorted(node.names.items()))


def _size(node: Inode | Directory) -> int:
    if isinstance(node, Inode):
        return len(node.volatile)
    return sum(_size(child) for child in node.names.values())
