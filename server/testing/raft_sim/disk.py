"""A disk that keeps apart what was written and what is durable, and can lose the difference at a crash.

It stands above the log store and behaves as that one does: each item of the log is a batch with a CRC, so that half of one
or flipped bits are seen when it is read (`DAMAGED`). What a node may make of that is the log store's rule: an unreadable
batch at the very end and above the recorded flushed end was never acknowledged and is cut; any other is damage
(`Disk.find_damage`).
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

S = TypeVar("S")


class Crash(BaseException):
    """The simulated process died, possibly in the middle of a handler. No `except Exception` catches it."""


class DiskDamagedError(Exception):
    """What was synced cannot be read: a node that started all the same could have forgotten a vote or an entry."""


DAMAGED = "damaged"
"""In the place of a payload, a snapshot or a quorum state that fails its checksum."""


class LogItem(NamedTuple):
    """One entry of an engine's log on disk, as far as the checker needs to know it."""

    offset: int
    """Its place in the log: an index where the engine has no batches."""
    term: int
    payload: Any


class WrittenFile(Generic[S]):
    """A file as a sequence of operations: `current` is what the process sees, `durable` what survives a power cut."""

    def __init__(self, state: S, apply: Callable[[S, Any], S]) -> None:
        self.durable = state
        self._apply = apply
        self.current = self._copy(state)
        self.pending: list[Any] = []

    @staticmethod
    def _copy(state: S) -> S:
        return state.copy() if isinstance(state, list | dict) else state  # type: ignore[return-value] # copies keep types

    def write(self, operation: Any) -> None:
        self.current = self._apply(self.current, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            self.durable = self._apply(self.durable, operation)
        self.pending = []

    def crash(self, *, is_lossy: bool, random: Random) -> Any:
        """Lossy: any prefix of what was not synced survives; else all of it does (kill -9). The answer is the first
        operation that did not."""
        lost: Any = None
        if is_lossy:
            keep = random.randint(0, len(self.pending))
            lost = self.pending[keep] if keep < len(self.pending) else None
            self.pending = self.pending[:keep]
        self.sync()
        self.current = self._copy(self.durable)
        return lost

    def spoil(self, state: S) -> None:
        """Let the file hold this, whatever was written to it. Only while nobody has it open."""
        self.durable, self.current, self.pending = state, self._copy(state), []


def _apply_to_log(log: list[LogItem], operation: tuple[str, Any]) -> list[LogItem]:
    kind, argument = operation
    match kind:
        case "add":
            log.append(argument)
        case "cut":  # keep the first n items
            del log[argument:]
        case "drop":  # drop the first n items
            del log[:argument]
        case "set":
            log = list(argument)
        case _:
            raise ValueError(kind)
    return log


class Disk:
    """What one node has: its log, its term and vote, and named files."""

    def __init__(self) -> None:
        self.log: WrittenFile[list[LogItem]] = WrittenFile([], _apply_to_log)
        self.meta: WrittenFile[dict[str, Any]] = WrittenFile({}, lambda meta, change: {**meta, **change})
        self.files: dict[str, WrittenFile[Any]] = {}
        self.flushed_end = -1
        """The last offset of the log that is recorded as flushed. Below it, nothing can be a torn tail."""
        self.operations_left: int | None = None
        """Crash after that many further operations; None: no crash is planned."""
        self.is_dead = False

    def _touch(self) -> None:
        if self.is_dead:
            raise Crash
        if self.operations_left is not None:
            self.operations_left -= 1
            if self.operations_left < 0:
                self.operations_left, self.is_dead = None, True
                raise Crash

    def log_add(self, item: LogItem) -> None:
        self._touch()
        self.log.write(("add", item))

    def log_cut(self, keep: int) -> None:
        self._touch()
        self.log.write(("cut", keep))

    def log_drop(self, count: int) -> None:
        self._touch()
        self.log.write(("drop", count))

    def log_set(self, items: Sequence[LogItem]) -> None:
        self._touch()
        self.log.write(("set", tuple(items)))

    def record_flushed_end(self, last_offset: int) -> None:
        """Durable at once. Goes back before a cut."""
        self._touch()
        self.flushed_end = last_offset

    def meta_write(self, **change: Any) -> None:
        self._touch()
        self.meta.write(change)

    def file(self, name: str) -> WrittenFile[Any]:
        if name not in self.files:
            self.files[name] = WrittenFile(None, lambda _, content: content)
        return self.files[name]

    def file_write(self, name: str, content: Any) -> None:
        self._touch()
        self.file(name).write(content)

    def sync(self) -> None:
        self.log.sync()
        self.meta.sync()

    def _all(self) -> list[WrittenFile[Any]]:
        return [self.log, self.meta, *self.files.values()]

    def background_flush(self, random: Random) -> None:
        """The kernel may write pages back at any time."""
        for file in self._all():
            if random.random() < 0.3:
                file.sync()

    def crash(self, *, is_lossy: bool, random: Random, torn: float = 0.0) -> None:
        """`torn`: how likely it is that half of the first lost log entry is there."""
        for file in self._all():
            lost = file.crash(is_lossy=is_lossy, random=random)
            if file is self.log and torn and lost is not None and lost[0] == "add" and random.random() < torn:
                self.log.spoil([*self.log.durable, lost[1]._replace(payload=DAMAGED)])
        self.operations_left, self.is_dead = None, False

    def flip_bits(self, where: float) -> str | None:
        """Damage something that was synced, the `where`-th part of all that there is; what it was, None for an empty
        disk. Only while no node runs on it."""
        log = self.log.durable
        places: list[str | int] = [
            i for i in range(1, len(log)) if log[i].offset <= self.flushed_end or i + 1 < len(log)
        ]
        places += [name for name, file in sorted(self.files.items()) if file.durable is not None]
        if self.meta.durable:
            places.append("meta")
        if not places:
            return None
        place = places[int(where * len(places))]
        if isinstance(place, int):
            self.log.spoil([*log[:place], log[place]._replace(payload=DAMAGED), *log[place + 1 :]])
            return f"log at {log[place].offset}"
        if place == "meta":
            self.meta.spoil({DAMAGED: True})
        else:
            self.files[place].spoil(DAMAGED)
        return place

    def find_damage(self) -> str | None:
        """What recovery says of this disk; it cuts a torn tail."""
        if DAMAGED in self.meta.current:
            return "meta"
        for name, file in sorted(self.files.items()):
            if isinstance(file.current, str) and file.current == DAMAGED:
                return name
        log = self.log.current
        bad = next((i for i, item in enumerate(log) if is_damaged(item)), None)
        if bad is None:
            return None
        if bad + 1 < len(log) or log[bad].offset <= self.flushed_end:
            return f"log at {log[bad].offset}"
        self.log_cut(bad)
        self.log.sync()
        return None


def is_damaged(item: LogItem) -> bool:
    return isinstance(item.payload, str) and item.payload == DAMAGED
