"""What the controller decides while the disk is busy becomes one batch of the metadata log (KRaft's accumulator does the
same): a batch costs every node far more than a record in it.

An operation is never divided: it is committed with all of its batch, or lost with it.
"""

from collections.abc import Sequence

from kraftlog.kraft.raft import NotLeaderError, RaftCore
from kraftlog.kraft.records import RECORD_OVERHEAD_BYTES
from kraftlog.proto.errors import NotControllerError, ThrottlingQuotaExceededError
from kraftlog.proto.records import BatchBuilder


class GatheringLog:
    """The Raft log of one leadership as the active controller appends to it. `close` proposes what was gathered: whoever
    drives the core calls it before he asks for a Ready, and before anything else that appends to the log or hands the
    leadership over."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core
        self._term = core.term
        self._base_offset = core.next_offset
        self._builder = BatchBuilder()
        self._limit_bytes = 0.0
        """Of the open batch; none is open: 0."""

    @property
    def next_offset(self) -> int:
        """What the next record gets."""
        return self._core.next_offset + self._builder.record_count

    @property
    def leader_epoch(self) -> int:
        return self._term

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        """Raises `NotControllerError`, or `ThrottlingQuotaExceededError` (try again later), and then has taken nothing."""
        needed_bytes = sum(map(len, values)) + len(values) * RECORD_OVERHEAD_BYTES
        if self._builder.size_bytes + needed_bytes > self._limit_bytes:
            self.close()
            self._open(needed_bytes)
        append = self._builder.append
        for value in values:
            append(timestamp_ms, None, value)

    def _open(self, needed_bytes: int) -> None:
        """Begin a batch for this and what comes after it."""
        try:
            leadership = self._core.taking_proposals()
        except NotLeaderError as error:
            raise NotControllerError(str(error)) from None
        room_bytes = leadership.room_bytes
        if self._builder.size_bytes + needed_bytes > room_bytes:
            raise ThrottlingQuotaExceededError(leadership.why_busy)
        self._base_offset = self._core.next_offset
        self._limit_bytes = min(room_bytes, self._core.config.max_append_bytes)

    def close(self) -> None:
        """Propose the open batch, if there is one. It is dropped where the leadership is lost: then the controller resigns
        and fails the operations in it."""
        core, gathered = self._core, self._builder
        self._limit_bytes = 0.0
        if not gathered.record_count:
            return
        self._builder = BatchBuilder()
        if core.leadership is None or core.term != self._term:
            return
        assert core.next_offset == self._base_offset, "something else was appended before this batch was closed"
        core.propose(gathered.build(base_offset=self._base_offset, leader_epoch=self._term), gathered.record_count)
