"""What a repair would do to the `.log` files of a partition: which bytes are cut, which header fields are set right.

No valid batch is given up. Where invalid bytes lie between valid batches, only they go; the offsets that they held become
a gap, as compaction leaves them. Three fields of a header are outside of its checksum - base offset, length, magic - and
so is the leader epoch. A batch whose checksum holds once they are what they can only have been is mended, not cut: the
length, if it is the distance to the next valid batch; the base offset, if the batch just fills the gap between its
neighbours; the leader epoch, if it does not fit between those before and behind.

A batch that is valid but out of place (its offsets are taken by others before it, and it cannot be mended) is no part of
the log: it is kept aside like any other bytes that are cut.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftlog.logstore import layout
from kraftlog.logstore.batches import ScannedBatch, unpack_header
from kraftlog.logstore.checkpoints import read_epoch_checkpoint
from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.filesystem import File, FileSystem
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.scan import InvalidBytes, scan_file
from kraftlog.logstore.swaps import settled_names
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.records import HEADER_BYTES, MAGIC, BatchHeader, check_crc

_LOG_OVERHEAD = 12  # base offset and batch length, which batch length does not count
_MENDED_RUN = 16  # so many batches in a row may have a wrong leader epoch
_UNCHECKED = struct.Struct(">qiib")  # base offset, length, leader epoch, magic: the checksum does not cover them


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that are no part of the log. Positions are those before the repair."""

    path: str
    position: int
    size_bytes: int
    first_offset: int
    """From here on offsets are missing now,"""
    end_offset: int | None
    """up to here, exclusive; None if nothing tells how many there were."""
    reason: str
    kept_in: str | None
    """The file that holds the bytes; None if they are all zero, or were never there."""


@dataclass(frozen=True, slots=True)
class Mend:
    """A header field that was set right, at a position before the repair."""

    path: str
    position: int
    offset: int
    message: str


@dataclass(slots=True)
class SegmentPlan:
    """How a `.log` file is put together again: `runs` of bytes (start, end), with new heads of batches by position."""

    base_offset: int
    path: str
    size_bytes: int
    runs: list[tuple[int, int]] = field(default_factory=list)
    heads: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_rewritten(self) -> bool:
        return bool(self.heads) or self.runs != ([(0, self.size_bytes)] if self.size_bytes else [])

    def keep(self, position: int, size_bytes: int) -> None:
        if self.runs and self.runs[-1][1] == position:
            self.runs[-1] = (self.runs[-1][0], position + size_bytes)
        else:
            self.runs.append((position, position + size_bytes))


@dataclass(slots=True)
class LogPlan:
    """Of all segments, in order. `end_offset` is where the log ends afterwards."""

    segments: list[SegmentPlan] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    mends: list[Mend] = field(default_factory=list)
    end_offset: int = 0

    @property
    def first_changed_offset(self) -> int | None:
        """What is known of the log below holds on."""
        changed = [cut.first_offset for cut in self.cuts] + [mend.offset for mend in self.mends]
        return min(changed, default=None)


def plan_log(fs: FileSystem, directory: str, required_end: int) -> LogPlan:
    """Read every batch and decide. `required_end`: the recorded flushed end. Raises `OSError`."""
    planner = _Planner(fs, directory)
    planner.run(required_end)
    return planner.plan


@dataclass(frozen=True, slots=True)
class _Behind:
    """What is known of the offsets behind something in a segment."""

    limit: int | None
    """Base offset of the next valid batch, or at most of the next segment."""
    adjacent: int | None
    """The same, if no invalid bytes lie in between."""


@dataclass(slots=True)
class _Head:
    """Where a kept batch lies and what is in the fields that its checksum does not cover."""

    segment: SegmentPlan
    position: int
    base_offset: int
    length: int
    leader_epoch: int


@dataclass(slots=True, eq=False)
class _EpochRun:
    """Consecutive batches of one leader epoch; `heads` are complete if there are few."""

    epoch: int
    count: int = 0
    weight: int = 0
    """How many batches, and once more each that the leader epoch checkpoint agrees with."""
    heads: list[_Head] = field(default_factory=list)

    def add(self, head: _Head, *, is_confirmed: bool) -> None:
        self.count += 1
        self.weight += 1 + is_confirmed
        if self.count <= _MENDED_RUN:
            self.heads.append(head)


def _ascending(runs: list[_EpochRun]) -> list[_EpochRun]:
    """The runs with the most weight among those whose epochs do not fall."""
    best: list[tuple[int, int | None]] = []  # weight up to each run, and the run before it
    for number, run in enumerate(runs):
        before = max(
            (n for n in range(number) if runs[n].epoch <= run.epoch), key=lambda n: (best[n][0], n), default=None
        )
        best.append((run.weight + (best[before][0] if before is not None else 0), before))
    chosen: list[_EpochRun] = []
    at: int | None = max(range(len(runs)), key=lambda n: best[n][0], default=None)
    while at is not None:
        chosen.append(runs[at])
        at = best[at][1]
    return chosen[::-1]


class _Planner:
    def __init__(self, fs: FileSystem, directory: str) -> None:
        self.plan = LogPlan()
        self._fs = fs
        self._names = set(fs.listdir(directory))
        self._settled = settled_names(fs, directory)
        self._directory = directory
        parsed = map(layout.parse_segment_file, self._settled)
        self._bases = sorted(p[0] for p in parsed if p is not None and p[1] == layout.LOG_SUFFIX)
        self._end_offset = self._bases[0] if self._bases else 0
        self._epochs: list[_EpochRun] = []
        recorded = read_epoch_checkpoint(fs, os.path.join(directory, layout.LEADER_EPOCH_FILE))
        self._recorded_epochs = LeaderEpochCache(recorded or ())

    def run(self, required_end: int) -> None:
        for number, base_offset in enumerate(self._bases):
            next_base = self._bases[number + 1] if number + 1 < len(self._bases) else None
            self._end_offset = max(self._end_offset, base_offset)
            self._plan_segment(base_offset, next_base)
        self._mend_epochs()
        self.plan.end_offset = self._end_offset
        if self._end_offset < required_end:
            self._tell_missing(required_end)

    def _tell_missing(self, required_end: int) -> None:
        """Records were synced that are not there any more: as the end of the last cut, or as a cut of nothing."""
        cuts = self.plan.cuts
        if cuts and cuts[-1].first_offset == self._end_offset and cuts[-1].end_offset is None:
            last = cuts.pop()
            cuts.append(
                Cut(
                    last.path,
                    last.position,
                    last.size_bytes,
                    last.first_offset,
                    required_end,
                    last.reason,
                    last.kept_in,
                )
            )
            return
        path = self.plan.segments[-1].path if self.plan.segments else self._directory
        size = self.plan.segments[-1].size_bytes if self.plan.segments else 0
        reason = f"the file ends here, but offsets up to {required_end} were synced"
        cuts.append(Cut(path, size, 0, self._end_offset, required_end, reason, None))

    def _plan_segment(self, base_offset: int, next_base: int | None) -> None:
        path = os.path.join(self._directory, self._settled[layout.segment_file_name(base_offset, layout.LOG_SUFFIX)])
        file = self._fs.open(path)
        try:
            segment = SegmentPlan(base_offset, path, file.size())
            self.plan.segments.append(segment)
            for found, is_alone, next_batch in _with_next(scan_file(file, base_offset, end_offset=next_base)):
                limit = next_base if next_batch is None else next_batch.header.base_offset
                if limit is not None and next_base is not None:
                    limit = min(limit, next_base)
                behind = _Behind(limit, limit if is_alone else None)
                if isinstance(found, ScannedBatch):
                    self._plan_batch(segment, found, behind)
                else:
                    self._plan_invalid(segment, file, found, behind)
        finally:
            file.close()

    def _plan_batch(self, segment: SegmentPlan, found: ScannedBatch, behind: "_Behind") -> None:
        header, position = found.header, found.position
        base_offset = self._true_base(segment, header, behind)
        if base_offset is None:
            expected = f"at least {self._end_offset}" + (f", below {behind.limit}," if behind.limit is not None else "")
            reason = f"a batch with offset {header.base_offset} where {expected} was expected"
            self._cut(segment, position, header.size_bytes, behind.adjacent, reason)
        else:
            self._keep(segment, position, header, base_offset, header.batch_length)

    def _plan_invalid(self, segment: SegmentPlan, file: File, found: InvalidBytes, behind: "_Behind") -> None:
        if found.is_zero and not found.is_followed and (behind.limit is None or behind.limit <= self._end_offset):
            return  # preallocated space; if records are missing, the end of the log tells
        header = None if found.is_zero else _with_true_length(file, found)
        base_offset = None if header is None else self._true_base(segment, header, behind)
        if header is not None and base_offset is not None:
            self._keep(segment, found.position, header, base_offset, found.size_bytes - _LOG_OVERHEAD)
            return
        reason = "nothing but zeros" if found.is_zero else found.reason
        self._cut(segment, found.position, found.size_bytes, behind.adjacent, reason, is_zero=found.is_zero)

    def _true_base(self, segment: SegmentPlan, header: BatchHeader, behind: "_Behind") -> int | None:
        """The batch's base offset, corrected if it can only be another one; None if the batch is out of place."""
        end, limit = self._end_offset, behind.limit
        # A batch that goes on where the one before it ends is right: if it overlaps, the following one is wrong.
        overlaps = limit is not None and end <= limit <= header.last_offset and header.base_offset > end
        if (
            header.base_offset >= end
            and header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
            and not overlaps
        ):
            return header.base_offset
        if behind.adjacent is not None and behind.adjacent - end == header.last_offset_delta + 1:
            return end
        return None

    def _keep(self, segment: SegmentPlan, position: int, header: BatchHeader, base_offset: int, length: int) -> None:
        segment.keep(position, _LOG_OVERHEAD + length)
        head = _Head(segment, position, base_offset, length, header.leader_epoch)
        fields = (
            ("base offset", header.base_offset, base_offset),
            ("batch length", header.batch_length, length),
            ("magic", header.magic, MAGIC),
        )
        for name, old, new in fields:
            if old != new:
                self._mend(head, name, old, new)
        self._end_offset = base_offset + header.last_offset_delta + 1
        if not self._epochs or self._epochs[-1].epoch != header.leader_epoch:
            self._epochs.append(_EpochRun(header.leader_epoch))
        is_confirmed = self._recorded_epochs.epoch_for(base_offset) == header.leader_epoch
        self._epochs[-1].add(head, is_confirmed=is_confirmed)

    def _mend(self, head: "_Head", name: str, old: int, new: int) -> None:
        self.plan.mends.append(Mend(head.segment.path, head.position, head.base_offset, f"{name} {old} set to {new}"))
        head.segment.heads[head.position] = _UNCHECKED.pack(head.base_offset, head.length, head.leader_epoch, MAGIC)

    def _mend_epochs(self) -> None:
        """Epochs never fall along a log: those of few batches that do not fit to those of many are set right.

        In doubt the checkpoint of leader epochs decides.
        """
        true = _ascending(self._epochs)
        epoch = next((run.epoch for run in true), -1)
        for run in self._epochs:
            if run in true:
                epoch = run.epoch
            elif run.count <= _MENDED_RUN:
                for head in run.heads:
                    old, head.leader_epoch = head.leader_epoch, epoch
                    self._mend(head, "leader epoch", old, epoch)

    def _cut(
        self,
        segment: SegmentPlan,
        position: int,
        size: int,
        end_offset: int | None,
        reason: str,
        *,
        is_zero: bool = False,
    ) -> None:
        kept_in = None if is_zero else self._aside(segment.path, position)
        first = self._end_offset
        if end_offset is not None and end_offset < first:
            end_offset = first
        self.plan.cuts.append(Cut(segment.path, position, size, first, end_offset, reason, kept_in))

    def _aside(self, path: str, position: int) -> str:
        """A name that no earlier repair has used; loading a log ignores it."""
        for number in range(len(self._names) + 1):
            name = f"{os.path.basename(path)}.{position}{'' if not number else f'-{number}'}{layout.CUT_FILE_SUFFIX}"
            if name not in self._names:
                self._names.add(name)
                return os.path.join(self._directory, name)
        raise AssertionError("more names than files")


def _with_next(
    found: Iterator[ScannedBatch | InvalidBytes],
) -> Iterator[tuple[ScannedBatch | InvalidBytes, bool, ScannedBatch | None]]:
    """Each one, whether no invalid bytes follow it, and the next valid batch of the segment."""
    current, following = next(found, None), next(found, None)
    while current is not None:
        second = None if following is None else next(found, None)
        next_batch = second if isinstance(following, InvalidBytes) else following
        assert not isinstance(next_batch, InvalidBytes), "a valid batch follows invalid bytes, or nothing"
        yield current, not isinstance(following, InvalidBytes), next_batch
        current, following = following, second


def _with_true_length(file: File, found: InvalidBytes) -> BatchHeader | None:
    """The batch that these bytes are if only length or magic are wrong in them, with both as they are; None: no batch."""
    if found.size_bytes < HEADER_BYTES:
        return None
    data = bytearray(file.pread(found.size_bytes, found.position))
    base_offset, length, epoch, magic = _UNCHECKED.unpack_from(data)
    _UNCHECKED.pack_into(data, 0, base_offset, found.size_bytes - _LOG_OVERHEAD, epoch, MAGIC)
    header = unpack_header(data)
    if header is None:
        return None
    try:
        check_crc(data, 0, header)
    except KraftlogError:
        return None
    _UNCHECKED.pack_into(data, 0, base_offset, length, epoch, magic)
    return _raw_header(data, header)


def _raw_header(data: bytearray, header: BatchHeader) -> BatchHeader:
    base_offset, length, epoch, magic = _UNCHECKED.unpack_from(data)
    return BatchHeader(
        base_offset, length, epoch, magic, header.crc, header.attributes, header.last_offset_delta,
        header.base_timestamp, header.max_timestamp, header.producer_id, header.producer_epoch,
        header.base_sequence, header.record_count,
    )  # fmt: skip
