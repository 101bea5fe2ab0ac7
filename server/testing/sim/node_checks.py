"""White-box rules of the running node, looked at after every event.

W-1  log start <= high watermark <= log end and flushed end <= log end, of every partition
W-2  within one life of the node: log start, log end, flushed end and high watermark of a partition never go back
W-3  with flush.policy=ack the high watermark never passes the leader's flushed end
W-4  what was acknowledged is below the log end
"""

from collections.abc import Mapping
from typing import Protocol

from kraftlog.testing.sim.history import History, TopicPartition

Ends = tuple[int, int, int, int]
"""(log start, log end, flushed end, high watermark)"""


class _Log(Protocol):
    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def flushed_end_offset(self) -> int: ...


class _Partition(Protocol):
    """The part of `kraftlog.replication.partition.Partition` that is looked at."""

    @property
    def log(self) -> _Log: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def is_leader(self) -> bool: ...

    @property
    def flushes_before_ack(self) -> bool: ...


class NodeChecks:
    """Of one life of the node; make a new one for the next."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._seen: dict[TopicPartition, Ends] = {}
        """As of the last event."""

    def check(self, partitions: Mapping[TopicPartition, _Partition]) -> None:
        """Look at all partitions; cheap where nothing has changed."""
        seen = self._seen
        for where, partition in partitions.items():
            log = partition.log
            ends = (log.log_start_offset, log.log_end_offset, log.flushed_end_offset, partition.high_watermark)
            if seen.get(where) != ends:
                self._check_change(where, partition, ends)
                seen[where] = ends

    def _check_change(self, where: TopicPartition, partition: _Partition, ends: Ends) -> None:
        log_start, log_end, flushed_end, high_watermark = ends
        name = f"{where[0]}-{where[1]}"
        if not (log_start <= high_watermark <= log_end and flushed_end <= log_end):
            self._history.violate("W-1", f"{name}: {_text(ends)}")
        before = self._seen.get(where)
        if before is not None and any(now < then for now, then in zip(ends, before, strict=True)):
            self._history.violate("W-2", f"{name}: from {_text(before)} to {_text(ends)}")
        if partition.is_leader and partition.flushes_before_ack and high_watermark > flushed_end:
            self._history.violate("W-3", f"{name}: {_text(ends)}")
        known = self._history.partitions.get(where)
        if known is not None and log_end < known.acked_end:
            self._history.violate("W-4", f"{name}: acknowledged below {known.acked_end}, {_text(ends)}")


def _text(ends: Ends) -> str:
    return "log start {}, log end {}, flushed end {}, high watermark {}".format(*ends)
