"""Making a damaged log whole again, offline: whatever is valid stays, whatever is cut is kept beside and told.

    repair = repair_partition(fs, "/var/kraftlog/orders-0", dry_run=True)    # the log directory's lock is held
    repair.cuts, repair.mends, repair.rebuilt                                # what would be done, and what is lost

Afterwards the log opens without damage. Indexes, transaction index, snapshots and epochs that do not fit the batches are
made anew. The recorded recovery point is lowered only if the log really ends before it.

What is cut out of `<file>` at a position is kept, byte for byte, in `<file>.<position>.cut` (with `-<n>` before `.cut` if
that name is taken), a whole damaged checkpoint in `<file>.cut`. Nothing reads these files.

A compaction that a crash interrupted is completed first, as the next start would (`swaps`).

The order of effects, so that a crash at any moment leaves a log that is still damaged (and repaired by running this
again) or whole, and never one whose next start drops a valid batch:
1. the clean-shutdown marker goes, and everything in the log is synced;
2. a recovery point below the log's new end is raised to it: recovery takes a gap before a segment for a loss otherwise;
3. the bytes that are cut are written to files of their own, synced with their names;
4. each changed `.log` loses its indexes, is written as a whole to a temporary file, synced, renamed, the name synced;
5. snapshots, epochs and indexes are replaced;
6. a recovery point or another checkpoint beyond the log's new end is lowered to it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftlog.logstore import layout
from kraftlog.logstore.batches import walk_headers
from kraftlog.logstore.checkpoints import read_offset_checkpoint, write_epoch_checkpoint, write_offset_checkpoint
from kraftlog.logstore.config import LogConfig
from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.filesystem import (
    TEMPORARY_SUFFIX,
    File,
    FileSystem,
    atomic_write,
    read_file,
    sync_file,
    unlink_if_exists,
)
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerStateManager
from kraftlog.logstore.recorded import Recorded, partition_folders, recorded_of, recorded_offsets
from kraftlog.logstore.repair_plan import Cut, LogPlan, Mend, SegmentPlan, plan_log
from kraftlog.logstore.replay import apply_to_producers
from kraftlog.logstore.segment_indexes import INDEX_SUFFIXES, SegmentIndexes
from kraftlog.logstore.snapshots import decode_snapshot, encode_snapshot
from kraftlog.logstore.swaps import complete_swaps
from kraftlog.logstore.transaction_index import decode_aborted
from kraftlog.logstore.verify import Finding, verify_partition
from kraftlog.proto.records import BatchHeader

_COPY_BYTES = 1 << 20
_ENDS = (layout.HIGH_WATERMARK_FILE, layout.CLEANER_OFFSET_FILE)  # beyond a log's end they mean nothing


@dataclass(slots=True)
class Repair:
    """What was done (or would be) to one folder."""

    path: str
    problems: list[Finding] = field(default_factory=list)
    """What was wrong before."""
    cuts: list[Cut] = field(default_factory=list)
    mends: list[Mend] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    """Files that are made anew from the batches."""
    moved: list[tuple[str, str]] = field(default_factory=list)
    """(damaged file, where its content is kept now)"""
    recovery_point: tuple[int, int] | None = None
    """(before, after), if it changes."""
    notes: list[str] = field(default_factory=list)
    remaining: list[Finding] = field(default_factory=list)
    """What is still wrong afterwards; not known of a dry run."""


def repair_log_dir(fs: FileSystem, path: str, *, dry_run: bool) -> list[Repair]:
    """Damaged checkpoints, then every partition. The caller holds the directory's lock. Raises `OSError`."""
    repair = Repair(path)
    are_points_lost = False
    for name in (layout.RECOVERY_POINT_FILE, layout.LOG_START_OFFSET_FILE, *_ENDS):
        file = os.path.join(path, name)
        if recorded_offsets(fs, path, name) is not None:
            continue
        are_points_lost |= name == layout.RECOVERY_POINT_FILE
        repair.problems.append(Finding(file, "not a checkpoint of offsets"))
        kept_in = _free_name(fs, file)
        repair.moved.append((file, kept_in))
        if not dry_run:
            _remove_marker(fs, path)
            fs.rename(file, kept_in)
            fs.fsync_dir(path)
    repairs = [repair]
    for folder in partition_folders(fs, path):
        repairs.append(repair_partition(fs, folder, dry_run=dry_run))
        if are_points_lost and not dry_run:
            _record_end(fs, path, folder)
    return repairs


def repair_partition(fs: FileSystem, directory: str, *, dry_run: bool) -> Repair:
    """One partition's folder. The caller holds the lock of the log directory around it, if there is one.

    Nothing is touched if `verify` finds nothing wrong: a torn tail is the next start's. Raises `OSError`.
    """
    recorded = recorded_of(fs, directory)
    found = verify_partition(fs, directory, recorded)
    repair = Repair(directory, found.problems)
    if not found.problems:
        _lower_ends(fs, recorded, found.log_end_offset, repair, dry_run=dry_run)
        return repair
    if not dry_run and complete_swaps(fs, directory):
        found = verify_partition(fs, directory, recorded)  # under the names that the files have now
        repair.problems = found.problems
        if not found.problems:
            return repair
    plan = plan_log(fs, directory, recorded.required_end)
    repair.cuts, repair.mends = plan.cuts, plan.mends
    work = _Work(fs, directory, recorded, plan, repair)
    work.decide()
    if not dry_run:
        work.carry_out()
    _lower_ends(fs, recorded, plan.end_offset, repair, dry_run=dry_run)
    if not dry_run:
        repair.remaining = verify_partition(fs, directory).problems
    return repair


class _Work:
    def __init__(self, fs: FileSystem, directory: str, recorded: Recorded, plan: LogPlan, repair: Repair) -> None:
        self._fs = fs
        self._directory = directory
        self._recorded = recorded
        self._plan = plan
        self._repair = repair
        self._indexed: list[SegmentPlan] = []
        """Segments whose indexes are made anew."""
        self._changed_from: int | None = None
        """From this offset on snapshots are made anew; None: all hold."""
        self._saves_epochs = False

    def decide(self) -> None:
        plan, repair, recorded = self._plan, self._repair, self._recorded
        wrong = {problem.path for problem in repair.problems}
        for number, segment in enumerate(plan.segments):
            following = plan.segments[number + 1].base_offset if number + 1 < len(plan.segments) else None
            # The next start trusts the indexes of all segments below the recovery point, which is raised.
            is_settled = recorded.was_clean is not False or (following or plan.end_offset) <= recorded.recovery_point
            lies = any(self._path(segment.base_offset, suffix) in wrong for suffix in INDEX_SUFFIXES)
            if segment.is_rewritten or lies or not is_settled:
                self._indexed.append(segment)
                repair.rebuilt += [self._path(segment.base_offset, suffix) for suffix in INDEX_SUFFIXES[:2]]
        snapshots = [
            p.offset for p in repair.problems if p.path.endswith(layout.SNAPSHOT_SUFFIX) and p.offset is not None
        ]
        changed = [*snapshots, *([] if plan.first_changed_offset is None else [plan.first_changed_offset])]
        self._changed_from = min(changed, default=None)
        epochs = os.path.join(self._directory, layout.LEADER_EPOCH_FILE)
        self._saves_epochs = epochs in wrong or plan.first_changed_offset is not None
        if self._saves_epochs:
            repair.rebuilt.append(epochs)
        if self._changed_from is not None:
            offsets = {s.base_offset for s in plan.segments if s.base_offset > self._changed_from} | {plan.end_offset}
            repair.rebuilt += [self._path(offset, layout.SNAPSHOT_SUFFIX) for offset in sorted(offsets)]
        if recorded.log_dir is not None and recorded.recovery_point != plan.end_offset:
            repair.recovery_point = (recorded.recovery_point, plan.end_offset)
        if recorded.log_dir is None and plan.first_changed_offset is not None:
            repair.notes.append(
                "the folder is in no log directory: no recovery point was recorded, so a node that gets it may take a "
                "gap between segments for a loss"
            )

    def carry_out(self) -> None:
        fs, plan, log_dir = self._fs, self._plan, self._recorded.log_dir
        if log_dir is not None:
            _remove_marker(fs, log_dir)
        for segment in plan.segments:
            sync_file(fs, segment.path)
        fs.fsync_dir(self._directory)
        self._record_point(max(self._recorded.recovery_point, plan.end_offset))
        self._keep_cuts()
        for segment in plan.segments:
            if segment.is_rewritten:
                self._rewrite(segment)
        self._rebuild()
        self._record_point(plan.end_offset)

    # The log.

    def _keep_cuts(self) -> None:
        for cut in self._plan.cuts:
            if cut.kept_in is not None:
                source = self._fs.open(cut.path)
                try:
                    self._write_copy(source, [(cut.position, cut.position + cut.size_bytes)], {}, cut.kept_in)
                finally:
                    source.close()
        self._fs.fsync_dir(self._directory)

    def _rewrite(self, segment: SegmentPlan) -> None:
        for suffix in INDEX_SUFFIXES[:2]:  # their positions are the old ones'; without them the log loads as well
            unlink_if_exists(self._fs, self._path(segment.base_offset, suffix))
        self._fs.fsync_dir(self._directory)
        source = self._fs.open(segment.path)
        try:
            self._write_copy(source, segment.runs, segment.heads, segment.path)
        finally:
            source.close()
        self._fs.fsync_dir(self._directory)

    def _write_copy(self, source: File, runs: list[tuple[int, int]], heads: dict[int, bytes], path: str) -> None:
        """Parts of a file as a new file `path`, whose name is not synced yet."""
        target = self._fs.open(path + TEMPORARY_SUFFIX, create=True)
        try:
            target.truncate(0)
            moved_to: dict[int, int] = {}
            at = 0
            for start, end in runs:
                moved_to |= {position: at + position - start for position in heads if start <= position < end}
                while start < end:
                    chunk = source.pread(min(_COPY_BYTES, end - start), start)
                    target.pwritev([chunk], at)
                    start, at = start + len(chunk), at + len(chunk)
            for position, head in heads.items():
                target.pwritev([head], moved_to[position])
            target.fdatasync()
        finally:
            target.close()
        self._fs.rename(path + TEMPORARY_SUFFIX, path)

    # What is made from it.

    def _rebuild(self) -> None:
        """One pass over all batches: producers, epochs, and the indexes of the segments that need them."""
        producers, epochs = ProducerStateManager(), LeaderEpochCache()
        replayed = ProducerStateManager()  # from the log's start, for the transaction indexes
        known_from = self._restore(producers, replayed)
        end_offset = self._plan.segments[0].base_offset if self._plan.segments else 0
        for segment in self._plan.segments:
            if self._changed_from is not None and known_from < segment.base_offset:
                self._write_snapshot(segment.base_offset, producers)
            aborted = []
            for header, batch in self._batches(segment):
                epochs.assign(header.leader_epoch, end_offset)  # as `Log.append_as_follower` has it
                end_offset = header.next_offset
                ended = apply_to_producers(replayed, header, header.base_offset, batch)
                if ended is not None:
                    aborted.append(ended)
                if header.base_offset >= known_from:
                    apply_to_producers(producers, header, header.base_offset, batch)
            if segment in self._indexed:
                self._write_indexes(segment, aborted)
        if self._changed_from is not None:
            self._write_snapshot(self._plan.end_offset, producers)
        if self._saves_epochs:
            write_epoch_checkpoint(self._fs, os.path.join(self._directory, layout.LEADER_EPOCH_FILE), epochs.entries)
        self._fs.fsync_dir(self._directory)
        if self._plan.cuts:
            for producer_id, offset in sorted(producers.open_transactions().items()):
                self._repair.notes.append(
                    f"the transaction of producer {producer_id} from offset {offset} has no end in the log: committed "
                    "data is read only up to there until it is ended"
                )

    def _restore(self, producers: ProducerStateManager, replayed: ProducerStateManager) -> int:
        """Remove the snapshots that do not hold any more, start from the latest one that does; its offset.

        It knows of batches that compaction removed since. `replayed` starts from the one at the log's start.
        """
        wrong = {problem.path for problem in self._repair.problems}
        start = self._plan.segments[0].base_offset if self._plan.segments else 0
        parsed = (layout.parse_segment_file(name) for name in self._fs.listdir(self._directory))
        offsets = sorted(p[0] for p in parsed if p is not None and p[1] == layout.SNAPSHOT_SUFFIX)
        known_from = start
        for offset in offsets:
            path = self._path(offset, layout.SNAPSHOT_SUFFIX)
            if path in wrong or (self._changed_from is not None and offset > self._changed_from):
                unlink_if_exists(self._fs, path)
                continue
            entries = decode_snapshot(read_file(self._fs, path), path)
            producers.restore(entries)
            known_from = offset
            if offset == start:
                replayed.restore(decode_snapshot(read_file(self._fs, path), path))
        return known_from

    def _batches(self, segment: SegmentPlan) -> Iterator[tuple[BatchHeader, memoryview]]:
        file = self._fs.open(segment.path)
        try:
            for _, header, batch in walk_headers(file, 0, file.size()):
                yield header, batch
        finally:
            file.close()

    def _write_snapshot(self, offset: int, producers: ProducerStateManager) -> None:
        path = self._path(offset, layout.SNAPSHOT_SUFFIX)
        atomic_write(self._fs, path, encode_snapshot(producers.entries.values()))

    def _write_indexes(self, segment: SegmentPlan, replayed: list[AbortedTransaction]) -> None:
        indexes = SegmentIndexes.growing(segment.base_offset, LogConfig().index_interval_bytes)
        file = self._fs.open(segment.path)
        try:
            end_offset = segment.base_offset
            for position, header, _ in walk_headers(file, 0, file.size(), with_control=False):
                indexes.note_batch(position, header.size_bytes, header.last_offset, header.max_timestamp)
                end_offset = header.next_offset
        finally:
            file.close()
        indexes.aborted = self._aborted(segment, end_offset, replayed)
        indexes.write(self._fs, lambda suffix: self._path(segment.base_offset, suffix))
        for suffix in INDEX_SUFFIXES[: 3 if indexes.aborted else 2]:
            sync_file(self._fs, self._path(segment.base_offset, suffix))

    def _aborted(
        self, segment: SegmentPlan, end_offset: int, replayed: list[AbortedTransaction]
    ) -> list[AbortedTransaction]:
        """The replay's, and what a sound index knows besides: their batches may have been compacted away since."""
        try:
            listed = list(decode_aborted(read_file(self._fs, self._path(segment.base_offset, layout.TXN_INDEX_SUFFIX))))
        except (FileNotFoundError, ValueError):
            listed = []
        is_wrong = any(
            p.path == self._path(segment.base_offset, layout.TXN_INDEX_SUFFIX) for p in self._repair.problems
        )
        ends = {(each.producer_id, each.last_offset) for each in replayed}
        kept = [] if is_wrong else [
            each
            for each in listed
            if (each.producer_id, each.last_offset) not in ends and segment.base_offset <= each.last_offset < end_offset
        ]  # fmt: skip
        return sorted([*replayed, *kept], key=lambda each: each.last_offset)

    def _record_point(self, offset: int) -> None:
        recorded = self._recorded
        if recorded.log_dir is not None:
            _record(self._fs, recorded.log_dir, self._directory, layout.RECOVERY_POINT_FILE, offset)

    def _path(self, offset: int, suffix: str) -> str:
        return os.path.join(self._directory, layout.segment_file_name(offset, suffix))


def _record_end(fs: FileSystem, log_dir: str, directory: str) -> None:
    """Sync a log and record its end: without a recovery point the next start takes a gap between segments for a loss."""
    for name in fs.listdir(directory):
        if name.endswith(layout.LOG_SUFFIX):
            sync_file(fs, os.path.join(directory, name))
    fs.fsync_dir(directory)
    _record(fs, log_dir, directory, layout.RECOVERY_POINT_FILE, verify_partition(fs, directory).log_end_offset)


def _lower_ends(fs: FileSystem, recorded: Recorded, end_offset: int, repair: Repair, *, dry_run: bool) -> None:
    """Checkpoints of offsets that the log does not reach (any more)."""
    if recorded.log_dir is None:
        return
    key = layout.parse_log_directory(os.path.basename(os.path.abspath(repair.path)))
    for name in _ENDS:
        path = os.path.join(recorded.log_dir, name)
        offset = (read_offset_checkpoint(fs, path) or {}).get(key or ("", -1), 0)
        if offset > end_offset:
            repair.notes.append(f"{path}: lowered from {offset} to {end_offset}, where the log ends")
            if not dry_run:
                _record(fs, recorded.log_dir, repair.path, name, end_offset)


def _record(fs: FileSystem, log_dir: str, directory: str, name: str, offset: int) -> None:
    key = layout.parse_log_directory(os.path.basename(os.path.abspath(directory)))
    assert key is not None, "what lies in a log directory under another name has no recorded offsets"
    path = os.path.join(log_dir, name)
    offsets = read_offset_checkpoint(fs, path) or {}
    if offsets.get(key) != offset:
        write_offset_checkpoint(fs, path, {**offsets, key: offset})


def _remove_marker(fs: FileSystem, log_dir: str) -> None:
    """The next start checks from the recovery points on."""
    if unlink_if_exists(fs, os.path.join(log_dir, layout.CLEAN_SHUTDOWN_FILE)):
        fs.fsync_dir(log_dir)


def _free_name(fs: FileSystem, path: str) -> str:
    number = 0
    while fs.size(name := f"{path}{'' if not number else f'-{number}'}{layout.CUT_FILE_SUFFIX}") is not None:
        number += 1
    return name
