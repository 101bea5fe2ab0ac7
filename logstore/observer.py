"""What the log store tells a metrics system: one call for each append, flush, roll, recovery, deletion and cleaning pass.

An observer is handed to `LogDir.open`, which passes it on to every log. What can be asked for at any time is not
reported: `Log.size_bytes`, `Log.segment_base_offsets`, the offsets, `LogDir.sizes`.

The log store reads no clock: durations are measured by the observer's own `seconds`. The default observer's stands
still, so that whoever wants no figures pays for none.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Recovery:
    """What loading one log after an unclean stop took."""

    seconds: float
    checked_bytes: int
    """Read and checked, byte by byte."""
    cut_bytes: int
    """Of segments that nobody was promised, and from torn tails on to the end of their files; not of mere zeros."""
    is_damaged: bool


@dataclass(frozen=True, slots=True)
class Deletion:
    """Segments that went from the front of a log."""

    reason: str
    """`retention.ms`, `retention.bytes` or `log start offset`."""
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanerPass:
    """One pass of compaction over one log; a pass that was given up counts what it had read."""

    seconds: float
    read_bytes: int
    written_bytes: int
    read_records: int
    kept_records: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class LogSizes:
    """Of one log, or of all logs of a directory together."""

    logs: int
    segments: int
    size_bytes: int
    """Bytes of batches, without indexes and preallocated space."""


class LogObserver(Protocol):
    """Called in whatever thread does the work, also from several at the same time. Must be quick and must not raise."""

    def seconds(self) -> float:
        """A clock that never goes back; durations are differences of it."""
        ...

    def on_append(self, topic: str, partition: int, batches: int, records: int, size_bytes: int) -> None:
        """Batches are in the file; not yet durable. Not called for repeated batches."""
        ...

    def on_flush(self, topic: str, partition: int, seconds: float, records: int) -> None:
        """A flush made so many more records durable; called only if there was something to sync."""
        ...

    def on_roll(self, topic: str, partition: int, base_offset: int) -> None:
        """A segment was started at `base_offset`."""
        ...

    def on_recovery(self, topic: str, partition: int, recovery: Recovery) -> None:
        """A log was loaded that was not cleanly stopped."""
        ...

    def on_deletion(self, topic: str, partition: int, deletion: Deletion) -> None:
        """Retention or a moved log start deleted segments."""
        ...

    def on_cleaner_pass(self, topic: str, partition: int, cleaner_pass: CleanerPass) -> None:
        """Compaction went through a log."""
        ...


class SilentObserver:
    """Listens to nothing."""

    def seconds(self) -> float:
        return 0.0

    def on_append(self, topic: str, partition: int, batches: int, records: int, size_bytes: int) -> None:
        pass

    def on_flush(self, topic: str, partition: int, seconds: float, records: int) -> None:
        pass

    def on_roll(self, topic: str, partition: int, base_offset: int) -> None:
        pass

    def on_recovery(self, topic: str, partition: int, recovery: Recovery) -> None:
        pass

    def on_deletion(self, topic: str, partition: int, deletion: Deletion) -> None:
        pass

    def on_cleaner_pass(self, topic: str, partition: int, cleaner_pass: CleanerPass) -> None:
        pass


SILENT: LogObserver = SilentObserver()
