"""Which segments at the front of a log have had their time: the decision, without touching a file.

Whole segments go, oldest first, up to the first one that must stay, and only such as lie wholly below the high
watermark. A segment goes if one of Kafka's three rules says so:

- all its records lie below the log start offset (`delete_records` moved it);
- `retention.bytes`: without the segment the log still holds that much;
- `retention.ms`: its newest record is older than that.

The last two hold only for logs with `cleanup.policy=delete` (or `compact,delete`). When the growing segment is among
those that go, a new one must be started first.

Two deviations from Kafka. A newest timestamp that lies in the future says nothing of an age, so the time of the last
write counts instead: one record stamped ten years ahead would otherwise keep its segment for ten years (KIP-937). And the
growing segment goes too when `delete_records` has reached its end; Kafka keeps those records on disk until a roll.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from typing import Protocol

from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.observer import Deletion
from kraftlog.logstore.segment import Segment


class Reason(StrEnum):
    """Why a segment goes; the words of `observer.Deletion`."""

    LOG_START_OFFSET = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


class Ageing(Protocol):
    """The part of a segment that the decision looks at."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def newest_ms(self, now_ms: int) -> int:
        """When its newest record was written. Asked only for segments that nothing else decides: it may open files."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What `Log` was found to need at some moment. Carried out only if the log is still like that."""

    segments: tuple[Segment, ...]
    """To be deleted, oldest first. Perhaps none."""
    reasons: tuple[Reason, ...]
    """One for each of them."""
    start_offset: int
    """Where the log starts without them."""
    rolls: bool
    """A new segment has to be started first: the growing one goes, or is older than `segment.ms`."""
    log_end_offset: int
    """Where the log ended when this was found."""

    def without_growing(self) -> "RetentionPlan":
        """The same for a log whose growing segment has to stay."""
        if self.start_offset != self.log_end_offset or not self.segments:
            return replace(self, rolls=False)
        *sealed, growing = self.segments
        return replace(
            self, segments=tuple(sealed), reasons=self.reasons[:-1], start_offset=growing.base_offset, rolls=False
        )

    def up_to(self, offset: int) -> "RetentionPlan":
        """The same with only the segments that end at or below `offset`."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.start_offset]
        count = sum(end <= offset for end in ends[: len(self.segments)])
        start_offset = ends[count - 1] if count else self.start_offset
        return replace(self, segments=self.segments[:count], reasons=self.reasons[:count], start_offset=start_offset)

    def deletions(self) -> list[Deletion]:
        """What to tell the observer."""
        pairs = zip(self.reasons, self.segments, strict=True)
        return [
            Deletion(reason.value, len(sizes), sum(sizes))
            for reason, group in groupby(pairs, key=lambda pair: pair[0])
            for sizes in [[segment.size_bytes for _, segment in group]]
        ]


def expired(
    segments: Sequence[Ageing],
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    config: LogConfig,
    now_ms: int,
) -> list[Reason]:
    """Why each of the first segments goes; the others stay. As many reasons as segments: the growing one goes too."""
    deletes = "delete" in config.cleanup_policy
    has_size_limit, has_time_limit = deletes and config.retention_bytes >= 0, deletes and config.retention_ms >= 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes if has_size_limit else 0
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    reasons: list[Reason] = []
    for segment, end_offset in zip(segments, ends, strict=True):
        if end_offset > high_watermark or (len(reasons) == len(segments) - 1 and not segment.size_bytes):
            break
        if end_offset <= log_start_offset:
            reasons.append(Reason.LOG_START_OFFSET)
        elif has_size_limit and excess_bytes >= segment.size_bytes:
            reasons.append(Reason.SIZE)
        elif has_time_limit and now_ms - segment.newest_ms(now_ms) > config.retention_ms:
            reasons.append(Reason.TIME)
        else:
            break
        excess_bytes -= segment.size_bytes
    return reasons
