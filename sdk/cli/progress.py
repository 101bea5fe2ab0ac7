"""Progress of long work, on standard error: a bar on a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_INTERVAL_S = 5.0
BAR_INTERVAL_S = 0.1


class ProgressBar:
    """Counts records, or another `unit`, and, where the total is known, shows how much of the input is done.

    `total` is in whatever unit `update(done=...)` uses. Used by one thread.
    """

    def __init__(self, what: str, *, total: int | None = None, enabled: bool = True, unit: str = "records") -> None:
        self._what = what
        self._unit = unit
        self._total = total
        self._enabled = enabled
        self._begin = time.monotonic()
        self._next = self._begin
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self.records = 0
        self.remark = ""
        """What else there is to say."""

    def __enter__(self) -> Self:
        if self._enabled and sys.stderr.isatty():
            bar, self._task = _rich_bar(self._what, self._total, self._unit)
            bar.start()
            self._bar = bar
        else:
            self._next += PLAIN_INTERVAL_S
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, records: int, done: int | None = None) -> None:
        """Tell how many records are done in all, and how much of `total`. Cheap enough to call for each batch."""
        self.records = records
        current = time.monotonic()
        if not self._enabled or current < self._next:
            return
        if self._bar is not None and self._task is not None:
            self._next = current + BAR_INTERVAL_S
            self._bar.update(
                self._task,
                description=self._described,
                completed=done if done is not None else records,
                records=f"{records:,}",
            )
            return
        self._next = current + PLAIN_INTERVAL_S
        share = f" ({100 * done // self._total} %)" if self._total and done is not None else ""
        print(
            f"{self._what}: {records:,} {self._unit}{share}, {self.rate(current):,.0f}/s{self._remark}",
            file=sys.stderr,
            flush=True,
        )

    @property
    def _remark(self) -> str:
        return f", {self.remark}" if self.remark else ""

    @property
    def _described(self) -> str:
        return f"{self._what}{self._remark}"

    def finish(self, records: int) -> None:
        """Show the end: everything is done."""
        self.records = records
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task, total=self._total or records, completed=self._total or records, records=f"{records:,}"
            )

    def rate(self, current: float | None = None) -> float:
        """Records a second since the start."""
        elapsed = (time.monotonic() if current is None else current) - self._begin
        return self.records / elapsed if elapsed > 0 else 0.0


def _rich_bar(what: str, total: int | None, unit: str) -> "tuple[Progress, TaskID]":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[records]} " + unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    return bar, bar.add_task(what, total=total, records="0")
