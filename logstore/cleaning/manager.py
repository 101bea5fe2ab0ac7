"""Which log is to be compacted next, and which ones cannot be."""

from collections.abc import Iterable
from dataclasses import dataclass

from kraftlog.logstore.cleaning.dirtiness import Dirtiness
from kraftlog.logstore.log import Log


@dataclass(frozen=True, slots=True)
class Uncleanable:
    """A log that compaction leaves alone until the node starts again or the topic is made anew."""

    reason: str
    since_ms: int
    """Wall clock."""


class CleanerManager:
    """Used by one thread. A log is worked on by one pass at a time."""

    def __init__(self) -> None:
        self.in_progress: set[Log] = set()
        self.uncleanable: dict[Log, Uncleanable] = {}

    def may_clean(self, log: Log) -> bool:
        return log.config.is_compacted and log not in self.in_progress and log not in self.uncleanable

    def choose(self, found: Iterable[tuple[Log, Dirtiness]]) -> tuple[Log, Dirtiness] | None:
        """The dirtiest log among those that are dirty enough or overdue; it is in progress from now on, until `release`."""
        due = [
            (log, dirtiness)
            for log, dirtiness in found
            if self.may_clean(log) and (dirtiness.is_overdue or dirtiness.ratio > log.config.min_cleanable_dirty_ratio)
        ]
        if not due:
            return None
        chosen = max(due, key=lambda it: (it[1].ratio, it[1].dirty_bytes))
        self.in_progress.add(chosen[0])
        return chosen

    def release(self, log: Log) -> None:
        """The pass over that log has ended, in whatever way."""
        self.in_progress.discard(log)

    def mark_uncleanable(self, log: Log, reason: str, now_ms: int) -> None:
        """Trying again would fail again, and starve the others."""
        self.uncleanable[log] = Uncleanable(reason, now_ms)

    def forget_all_but(self, logs: Iterable[Log]) -> None:
        """Other logs are not there any more."""
        here = set(logs)
        self.uncleanable = {log: why for log, why in self.uncleanable.items() if log in here}
