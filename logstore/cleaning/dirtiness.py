"""How much of a log is there to compact: Kafka's rules (`LogCleanerManager.cleanableOffsets`, KIP-354)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kraftlog.logstore.log import Log
from kraftlog.logstore.segment import Segment, SegmentGoneError

SegmentEnds = Sequence[tuple[Segment, int]]
"""Segments, each with where the next one begins."""


@dataclass(frozen=True, slots=True)
class Dirtiness:
    """What a pass over a log would have to do, by what the log was at one moment."""

    segments: SegmentEnds
    """What may be compacted now, from the log's first segment on: sealed, decided, and old enough."""
    first_dirty_offset: int
    """From here on nothing has been compacted yet."""
    truncations: int
    """Of the log, when it was looked at (`Log.truncations`)."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether the oldest dirty record has been waiting for more than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """Share of the bytes that is dirty, 0 to 1."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


def look_for_dirt(log: Log, *, cleaned_to: int, stable_offset: int, truncations: int, now_ms: int) -> Dirtiness | None:
    """None: the log has nothing that could be compacted. Any thread; may read indexes. Raises `StorageError`.

    `cleaned_to`: what the cleaner's checkpoint says. `stable_offset`: everything below it is committed and its
    transactions are decided. `truncations`: the log's, read by its writer before.
    """
    config = log.config
    first_dirty = cleaned_to if log.log_start_offset <= cleaned_to <= log.log_end_offset else log.log_start_offset
    segments: SegmentEnds = log.sealed_segments(stable_offset)
    try:
        if config.min_compaction_lag_ms:
            segments = _old_enough(segments, first_dirty, now_ms - config.min_compaction_lag_ms)
        dirty = [segment for segment, end_offset in segments if end_offset > first_dirty]
        if not dirty:
            return None
        oldest_ms = min(
            (t for t in (segment.first_timestamp() for segment in dirty) if t is not None and t >= 0), default=now_ms
        )
    except SegmentGoneError:
        return None  # it is being deleted or was just compacted: next time
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    return Dirtiness(
        segments,
        first_dirty,
        truncations,
        sum(segment.size_bytes for segment, _ in segments) - dirty_bytes,
        dirty_bytes,
        now_ms - oldest_ms > config.max_compaction_lag_ms,
    )


def _old_enough(segments: SegmentEnds, first_dirty: int, newest_ms: int) -> SegmentEnds:
    """Those before the first dirty one that holds a record younger than `newest_ms`."""
    for number, (segment, end_offset) in enumerate(segments):
        if end_offset > first_dirty and segment.largest.timestamp > newest_ms:
            return segments[:number]
    return segments
