"""Every disk that a power loss may leave, at every point of a run (the way of ALICE, OSDI 2014).

`RecordingFileSystem` is a `SimFileSystem` that writes down each change of the disk. `Trace.crash_points` plays them
again, one by one, and `legal_states` gives disks that a power loss right after a change may leave:

- a file's unsynced writes are there in any subset of its 512-byte sectors, with the length of any moment since the last
  sync; what was cut off does not come back;
- a directory's unsynced creates, renames and unlinks are there up to some point, or in any subset that keeps the order
  of those that share a name (POSIX promises no more);
- what was synced is there. A file's name and its content are synced apart.

First come the states near "nothing unsynced is there" and "all of it is there": one unit (a sector, a length, a name)
differs from the rest. Then come random ones.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from kraftlog.logstore.filesystem import File, Lock
from kraftlog.proto.seams import Buffer, Random
from kraftlog.testing.filesystem import SECTOR_BYTES, Directory, Inode, SimFileSystem, Write

_SHARES = (0.1, 0.5, 0.9)
"""How much of the unsynced a random state keeps."""


@dataclass(frozen=True, slots=True)
class Change:
    """One call that changed the disk: `method` of the file system, or of the file that was opened as number `file`."""

    method: str
    arguments: tuple[Any, ...]
    file: int | None = None

    def __str__(self) -> str:
        shown = [f"<{len(a)} bytes>" if isinstance(a, bytes) else str(a) for a in self.arguments]
        where = "" if self.file is None else f"file {self.file}: "
        return f"{where}{self.method}({', '.join(shown)})"


@dataclass(slots=True)
class Trace:
    changes: list[Change] = field(default_factory=list)
    opened: int = 0

    def crash_points(self) -> Iterator[tuple[int, SimFileSystem]]:
        """(number of changes made, the disk after them), from none to all; one disk, which goes on."""
        disk, files = SimFileSystem(), list[File]()
        yield 0, disk
        for number, change in enumerate(self.changes):
            _play(change, disk, files)
            yield number + 1, disk


def _play(change: Change, disk: SimFileSystem, files: list[File]) -> None:
    if change.method == "open":
        path, create = change.arguments
        files.append(disk.open(path, create=create))
    elif change.method == "pwritev":
        data, position = change.arguments
        files[change.file or 0].pwritev([data], position)
    elif change.file is not None:
        getattr(files[change.file], change.method)(*change.arguments)
    else:
        getattr(disk, change.method)(*change.arguments)


class RecordingFileSystem:
    """A `FileSystem` in memory whose changes are in `trace`. Used from one thread."""

    def __init__(self) -> None:
        self.disk = SimFileSystem()
        self.trace = Trace()

    def open(self, path: str, *, create: bool = False) -> File:
        file = self.disk.open(path, create=create)
        number = self.trace.opened
        self.trace.opened += 1
        self.note(Change("open", (path, create)))
        return _RecordingFile(self, file, number)

    def size(self, path: str) -> int | None:
        return self.disk.size(path)

    def modified_ms(self, path: str) -> int | None:
        return self.disk.modified_ms(path)

    def listdir(self, path: str) -> list[str]:
        return self.disk.listdir(path)

    def mkdir(self, path: str) -> None:
        self.disk.mkdir(path)
        self.note(Change("mkdir", (path,)))

    def rename(self, source: str, target: str) -> None:
        self.disk.rename(source, target)
        self.note(Change("rename", (source, target)))

    def unlink(self, path: str) -> None:
        self.disk.unlink(path)
        self.note(Change("unlink", (path,)))

    def rmdir(self, path: str) -> None:
        self.disk.rmdir(path)
        self.note(Change("rmdir", (path,)))

    def fsync_dir(self, path: str) -> None:
        self.disk.fsync_dir(path)
        self.note(Change("fsync_dir", (path,)))

    def lock(self, path: str) -> Lock:
        self.open(path, create=True)
        return self.disk.lock(path)

    def note(self, change: Change) -> None:
        self.trace.changes.append(change)


class _RecordingFile:
    def __init__(self, recorder: RecordingFileSystem, file: File, number: int) -> None:
        self._recorder = recorder
        self._file = file
        self._number = number

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        self._file.pwritev([data], position)
        self._note("pwritev", data, position)

    def preallocate(self, position: int, length: int) -> None:
        self._file.preallocate(position, length)
        self._note("preallocate", position, length)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._note("truncate", size)

    def fdatasync(self) -> None:
        self._file.fdatasync()
        self._note("fdatasync")

    def close(self) -> None:
        self._file.close()

    def _note(self, method: str, *arguments: Any) -> None:
        self._recorder.note(Change(method, arguments, self._number))


# States.

_PickVersion = Callable[[int, int, int], int]
"""Which version of a sector is there: (sector, oldest, latest) -> version; sector -1 is the file's length."""
_PickChange = Callable[[int], bool]
"""Whether a directory's unsynced change of that number is there."""


State = tuple[str, SimFileSystem]
"""What it is, and a disk that a power loss may leave."""


def legal_states(disk: SimFileSystem, rng: Random, random_count: int) -> Iterator[State]:
    """States that a power loss may leave of `disk`. The same disk may come twice."""
    for make in near_states(disk):
        yield make()
    yield from itertools.islice(random_states(disk, rng), random_count)


def near_states(disk: SimFileSystem) -> list[Callable[[], State]]:
    """Makers of those of `legal_states` that are near to nothing and to all of the unsynced."""
    histories = {id(node): _History(node) for node in _unsynced(disk.root)}
    makers: list[Callable[[], State]] = []
    for keep_all in (False, True):
        rest = f"{'all' if keep_all else 'nothing'} of the unsynced"
        makers.append(partial(_made, disk, histories, rest, _Near(keep_all, {})))
        for key, history in histories.items():
            for unit in history.units():
                text = f"{rest}, but for {history.name(unit)}"
                makers.append(partial(_made, disk, histories, text, _Near(keep_all, {key: unit})))
    return makers


def random_states(disk: SimFileSystem, rng: Random) -> Iterator[State]:
    """Those of `legal_states` that are random, without end."""
    histories = {id(node): _History(node) for node in _unsynced(disk.root)}
    for number in itertools.count():
        yield f"random state {number}", _state(disk, histories, _Some(rng))


def _made(disk: SimFileSystem, histories: "dict[int, _History]", text: str, picker: "_Picker") -> State:
    return text, _state(disk, histories, picker)


class _History:
    """What is unsynced of one file or directory."""

    def __init__(self, node: Inode | Directory) -> None:
        self.node = node
        self.versions: list[bytes] = []
        self.sectors: list[int] = []
        self._cuts: list[tuple[int, int]] = []
        """(version made by a cut, length that it left)"""
        if isinstance(node, Inode):
            self._read(node)

    def _read(self, node: Inode) -> None:
        content, touched = bytearray(node.durable), set[int]()
        self.versions.append(bytes(content))
        for number, operation in enumerate(node.pending):
            if isinstance(operation, Write):
                last = (operation.position + len(operation.data) - 1) // SECTOR_BYTES
                touched.update(range(operation.position // SECTOR_BYTES, last + 1))
            elif operation.size < len(content):
                self._cuts.append((number + 1, operation.size))
            operation.apply(content)
            self.versions.append(bytes(content))
        self.sectors = sorted(touched)

    def units(self) -> list[int]:
        """What may be there or not by itself: sectors and (-1) the length of a file, changes of a directory."""
        return [-1, *self.sectors] if isinstance(self.node, Inode) else list(range(len(self.node.pending)))

    def name(self, unit: int) -> str:
        if isinstance(self.node, Inode):
            return f"sector {unit}" if unit >= 0 else "the length"
        name, node, removed = self.node.pending[unit]
        return f"{removed} -> {name}" if removed else f"{'unlink' if node is None else 'create'} {name}"

    def content(self, pick: _PickVersion) -> bytes:
        latest = len(self.versions) - 1
        length_of = pick(-1, 0, latest)
        content = bytearray(self.versions[length_of])
        for sector in self.sectors:
            start = sector * SECTOR_BYTES
            end = min(start + SECTOR_BYTES, len(content))
            if start < end:
                version = pick(sector, *self._era(start + SECTOR_BYTES, length_of))
                piece = self.versions[version][start:end]
                content[start:end] = piece + bytes(end - start - len(piece))
        return bytes(content)

    def _era(self, sector_end: int, length_of: int) -> tuple[int, int]:
        """The versions of a sector between the cuts around the version that gives the length."""
        cuts = [version for version, length in self._cuts if length < sector_end]
        oldest = max((version for version in cuts if version <= length_of), default=0)
        latest = min((version for version in cuts if version > length_of), default=len(self.versions)) - 1
        return oldest, latest

    def names(self, pick: _PickChange) -> dict[str, Inode | Directory]:
        assert isinstance(self.node, Directory)
        names, lost = dict(self.node.durable), set[str]()
        for number, (name, node, removed) in enumerate(self.node.pending):
            if lost.isdisjoint((name, removed or name)) and pick(number):
                Directory.apply(names, name, node, removed)
            else:
                lost.update((name, removed or name))
        return names


def _unsynced(directory: Directory) -> list[Inode | Directory]:
    found: dict[int, Inode | Directory] = {}

    def look(node: Inode | Directory | None) -> None:
        if node is None or id(node) in found:
            return
        found[id(node)] = node
        if isinstance(node, Directory):
            for child in (*node.durable.values(), *node.names.values(), *(change[1] for change in node.pending)):
                look(child)

    look(directory)
    return [node for node in found.values() if node.pending]


class _Picker(Protocol):
    """What of the unsynced is there."""

    def version_of(self, key: int) -> _PickVersion: ...

    def change_of(self, key: int, count: int) -> _PickChange: ...


class _Near:
    """All or nothing, but for one unit."""

    def __init__(self, keep_all: bool, exceptions: dict[int, int]) -> None:
        self._keep_all = keep_all
        self._exceptions = exceptions

    def version_of(self, key: int) -> _PickVersion:
        exception = self._exceptions.get(key)
        return lambda sector, oldest, latest: latest if self._keep_all != (sector == exception) else oldest

    def change_of(self, key: int, count: int) -> _PickChange:
        exception = self._exceptions.get(key)
        return lambda number: self._keep_all != (number == exception)


class _Some:
    """A random part."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def version_of(self, key: int) -> _PickVersion:
        rng, share = self._rng, self._share()

        def pick(sector: int, oldest: int, latest: int) -> int:
            if rng.randrange(4) == 0:
                return rng.randrange(oldest, latest + 1)
            return latest if rng.random() < share else oldest

        return pick

    def change_of(self, key: int, count: int) -> _PickChange:
        if self._rng.randrange(2):
            kept = self._rng.randrange(count + 1)  # in order, as journals keep them
            return lambda number: number < kept
        share = self._share()
        return lambda number: self._rng.random() < share

    def _share(self) -> float:
        return _SHARES[self._rng.randrange(len(_SHARES))]


def _state(disk: SimFileSystem, histories: dict[int, _History], picker: _Picker) -> SimFileSystem:
    def copy(node: Inode | Directory) -> Inode | Directory:
        history = histories.get(id(node))
        if isinstance(node, Inode):
            return Inode.holding(node.durable if history is None else history.content(picker.version_of(id(node))))
        names = node.durable if history is None else history.names(picker.change_of(id(node), len(node.pending)))
        return Directory.holding({name: copy(child) for name, child in sorted(names.items())})

    root = copy(disk.root)
    assert isinstance(root, Directory)
    return SimFileSystem.holding(root)
