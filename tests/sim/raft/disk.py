"""A disk that keeps apart what was written and what is durable, and can lose the difference at a crash."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

S = TypeVar("S")


class Crash(BaseException):
    """The simulated process died, possibly in the middle of a handler. No `except Exception` catches it."""


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

    def crash(self, *, is_lossy: bool, random: Random) -> None:
        """Lossy: any prefix of what was not synced survives; else all of it does (kill -9)."""
        if is_lossy:
            self.pending = self.pending[: random.randint(0, len(self.pending))]
        self.sync()
        self.current = self._copy(self.durable)


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

    def crash(self, *, is_lossy: bool, random: Random) -> None:
        for file in self._all():
            file.crash(is_lossy=is_lossy, random=random)
        self.operations_left, self.is_dead = None, False
