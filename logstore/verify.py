"""Whether the files of a partition, or of a whole log directory, are what they claim to be. Changes nothing.

    report = verify_partition(RealFileSystem(), "/var/kraftlog/orders-0")
    for problem in report.problems: ...        # file, position, offset, what is wrong
    report.notes                               # what a crash or a running node leaves: the next start takes care of it

Every byte of every batch is read: sizes, checksums, records, offsets that ascend, leader epochs that never fall and are
those of the checkpoint. Index entries lead to their batches, time index entries are true and ascend, the transaction
index and the producer snapshots are what a replay of the batches gives, and the log reaches the recorded flushed end.

Two things are not held against a log. Files of segments that the next start recovers anyhow (after a crash: those beyond
the recovery point; of a running node: those that grow) may be missing, stale or torn. And where compaction or retention
took batches away, a replay does not see all that producers did: there transactions and snapshots are compared as far as
the remaining batches tell.
"""

import os
from dataclasses import dataclass, field

from kraftlog.logstore import layout
from kraftlog.logstore.batches import ScannedBatch
from kraftlog.logstore.checkpoints import (
    read_epoch_checkpoint,
    read_partition_metadata,
    read_properties,
)
from kraftlog.logstore.epochs import LeaderEpochCache
from kraftlog.logstore.filesystem import FileSystem, read_file
from kraftlog.logstore.indexes import MAX_RELATIVE_OFFSET
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerEntry, ProducerStateManager
from kraftlog.logstore.recorded import Recorded, partition_folders, recorded_of, recorded_offsets
from kraftlog.logstore.replay import apply_to_producers
from kraftlog.logstore.scan import InvalidBytes, scan_file
from kraftlog.logstore.snapshots import decode_snapshot
from kraftlog.logstore.swaps import settled_names
from kraftlog.logstore.verify_indexes import IndexCheck, compare_aborted
from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.proto.records import BatchHeader, validate_batches

_CHECKPOINTS = (
    layout.RECOVERY_POINT_FILE,
    layout.LOG_START_OFFSET_FILE,
    layout.HIGH_WATERMARK_FILE,
    layout.CLEANER_OFFSET_FILE,
)
_ANY_SIZE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a file; `position` in bytes and `offset` in the log as far as they are known."""

    path: str
    message: str
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        places = [f"position {self.position}"] if self.position is not None else []
        places += [f"offset {self.offset}"] if self.offset is not None else []
        return f"{self.path}{': ' if places else ''}{', '.join(places)}: {self.message}"


@dataclass(slots=True)
class Verification:
    """Of one folder. `problems` are what is wrong, `notes` what is unfinished but in order."""

    path: str
    problems: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    segment_count: int = 0
    batch_count: int = 0
    """Valid ones."""
    record_count: int = 0
    size_bytes: int = 0
    """Of valid batches."""
    log_start_offset: int = 0
    log_end_offset: int = 0


def verify_log_dir(fs: FileSystem, path: str) -> list[Verification]:
    """The directory's own files first, then each partition. Raises `OSError`."""
    report = Verification(path)
    partitions = [verify_partition(fs, folder) for folder in partition_folders(fs, path)]
    meta = os.path.join(path, layout.META_PROPERTIES_FILE)
    values = read_properties(fs, meta) or {}
    missing = [key for key in ("cluster.id", "node.id") if not values.get(key)]
    if missing:
        report.problems.append(Finding(meta, f"{' and '.join(missing)} missing"))
    ends = {layout.parse_log_directory(os.path.basename(each.path)): each for each in partitions}
    for name in _CHECKPOINTS:
        checkpoint = os.path.join(path, name)
        offsets = recorded_offsets(fs, path, name)
        if offsets is None:
            report.problems.append(Finding(checkpoint, "not a checkpoint of offsets"))
        for (topic, partition), offset in (offsets or {}).items():
            verified = ends.get((topic, partition))
            if verified is None:
                report.notes.append(Finding(checkpoint, f"names {topic}-{partition}, which is not here", offset=offset))
            elif offset > verified.log_end_offset and name != layout.RECOVERY_POINT_FILE:  # that is the log's problem
                message = f"lies beyond the end of {topic}-{partition} at offset {verified.log_end_offset}"
                findings = report.notes if name == layout.LOG_START_OFFSET_FILE else report.problems
                findings.append(Finding(checkpoint, message, offset=offset))
    return [report, *partitions]


def verify_partition(fs: FileSystem, directory: str, recorded: Recorded | None = None) -> Verification:
    """One partition's folder. `recorded`: by default what the log directory around it says. Raises `OSError`."""
    verifier = _Verifier(fs, directory, recorded_of(fs, directory) if recorded is None else recorded)
    verifier.run()
    return verifier.report


class _Verifier:
    """One pass over all segments. `_end_offset` is where the next batch may start at the earliest."""

    def __init__(self, fs: FileSystem, directory: str, recorded: Recorded) -> None:
        self.report = Verification(directory)
        self._fs = fs
        self._directory = directory
        self._recorded = recorded
        self._names = settled_names(fs, directory)
        parsed = [parsed for name in self._names if (parsed := layout.parse_segment_file(name)) is not None]
        self._bases = sorted(offset for offset, suffix in parsed if suffix == layout.LOG_SUFFIX)
        self._snapshots = sorted(offset for offset, suffix in parsed if suffix == layout.SNAPSHOT_SUFFIX)
        self._strays = [each for each in parsed if each[1] != layout.SNAPSHOT_SUFFIX and each[0] not in self._bases]
        self._producers = ProducerStateManager()
        self._have_records: set[int] = set()
        """Producers of whose present transaction the log holds a record."""
        self._is_complete = True
        """The replay has seen every batch that the log ever had, or a snapshot in their place."""
        self._end_offset = self._bases[0] if self._bases else 0
        self._latest_epoch = -1
        self._epochs: LeaderEpochCache | None = None
        self._wrong_epochs: set[int] = set()
        self._last_damage: Finding | None = None

    def run(self) -> None:
        report = self.report
        report.segment_count = len(self._bases)
        report.log_start_offset = max(self._recorded.log_start_offset, self._end_offset)
        for offset, suffix in self._strays:
            self._note(self._path(offset, suffix), "has no segment; the next start removes it")
        for name, path in self._names.items():
            if name != path and name.endswith(layout.LOG_SUFFIX):
                self._note(
                    os.path.join(self._directory, path), "replaces what was compacted; the next start completes it"
                )
        self._check_metadata()
        self._start_replay()
        for number, base_offset in enumerate(self._bases):
            self._check_segment(number, base_offset)
        report.log_end_offset = self._end_offset
        self._check_snapshots_up_to(self._end_offset, is_end=True)
        for offset in self._snapshots:
            self._unsettled_problem(
                self._path(offset, layout.SNAPSHOT_SUFFIX), "lies beyond the log's end", offset=offset
            )
        if self._end_offset < self._recorded.required_end:
            message = f"the log ends here, but offsets up to {self._recorded.required_end} were synced"
            last = self._path(self._bases[-1], layout.LOG_SUFFIX) if self._bases else self._directory
            self._problem(last, message, offset=self._end_offset)

    # Files beside the segments.

    def _check_metadata(self) -> None:
        metadata = os.path.join(self._directory, layout.PARTITION_METADATA_FILE)
        if self._fs.size(metadata) is not None and read_partition_metadata(self._fs, metadata) is None:
            is_new = self._recorded.log_dir is not None and not self._recorded.recovery_point
            findings = self.report.notes if is_new else self.report.problems  # nothing of a new log need be on the disk
            findings.append(Finding(metadata, "holds no topic id"))
        path = os.path.join(self._directory, layout.LEADER_EPOCH_FILE)
        entries = read_epoch_checkpoint(self._fs, path)
        if entries is None:
            self._problem(path, "not a checkpoint of leader epochs")
        elif entries:
            self._epochs = LeaderEpochCache(entries)

    def _start_replay(self) -> None:
        first = self._end_offset
        if first in self._snapshots:
            entries = self._read_snapshot(first)
            self._snapshots.remove(first)
            if entries is not None:
                self._producers.restore(entries)
                return
        self._is_complete = first == 0

    def _read_snapshot(self, offset: int) -> list[ProducerEntry] | None:
        path = self._path(offset, layout.SNAPSHOT_SUFFIX)
        try:
            return decode_snapshot(read_file(self._fs, path), path)
        except CorruptRecordError as e:
            self._problem(path, e.message.removeprefix(f"{path}: "), offset=offset)
            return None

    def _check_snapshots_up_to(self, offset: int, *, is_end: bool = False) -> None:
        """Compare the snapshots that the replay has reached: it knows all batches below `offset` by now."""
        while self._snapshots and self._snapshots[0] <= offset:
            at = self._snapshots.pop(0)
            entries = self._read_snapshot(at)
            if entries is None or not (self._is_complete or (is_end and at == offset)):
                continue
            for entry in entries:
                difference = _difference(entry, self._producers.entries.get(entry.producer_id), self._is_complete)
                if difference:
                    path = self._path(at, layout.SNAPSHOT_SUFFIX)
                    self._problem(path, f"producer {entry.producer_id}: {difference}", offset=at)
            open_ones = self._producers.open_transactions().keys() - {entry.producer_id for entry in entries}
            for producer_id in sorted(open_ones):
                message = f"producer {producer_id} with its open transaction is missing"
                self._problem(self._path(at, layout.SNAPSHOT_SUFFIX), message, offset=at)

    # Segments.

    def _check_segment(self, number: int, base_offset: int) -> None:
        path = self._path(base_offset, layout.LOG_SUFFIX)
        following = self._bases[number + 1] if number + 1 < len(self._bases) else None
        if number and base_offset > self._end_offset:
            self._is_complete = False
            is_dropped = self._recorded.was_clean is False and base_offset > self._recorded.recovery_point
            consequence = "the next start removes this segment" if is_dropped else "by compaction, or lost"
            self._note(path, f"offsets {self._end_offset} to {base_offset - 1} before it are missing: {consequence}")
        self._end_offset = max(self._end_offset, base_offset)
        aborted: list[AbortedTransaction] = []
        unfelt: list[AbortedTransaction] = []
        markers: set[tuple[int, int]] = set()
        indexes = IndexCheck(self._fs, lambda suffix: self._path(base_offset, suffix), base_offset)
        file = self._fs.open(path)
        is_sealed = True
        try:
            for found in scan_file(file, base_offset, end_offset=following):
                if isinstance(found, InvalidBytes):
                    is_sealed = self._check_invalid(path, found, number) and is_sealed
                    continue
                self._check_batch(path, base_offset, found, following)
                indexes.note_batch(found.position, found.header)
                ended = apply_to_producers(self._producers, found.header, found.header.base_offset, found.data)
                if ended is not None:
                    (aborted if ended.producer_id in self._have_records else unfelt).append(ended)
                if found.header.is_transactional and not found.header.is_control and found.header.record_count:
                    self._have_records.add(found.header.producer_id)
                if found.header.is_control:
                    self._have_records.discard(found.header.producer_id)
                    markers.add((found.header.producer_id, found.header.base_offset))
        finally:
            file.close()
        if is_sealed and self._is_settled(number):
            for suffix, position, offset, message in indexes.finish():
                self._problem(self._path(base_offset, suffix), message, position, offset)
            for suffix, position, offset, message in indexes.notes:
                self._note(self._path(base_offset, suffix), message, position, offset)
            if self._is_complete:  # else nobody misses those without a record
                aborted = sorted([*aborted, *unfelt], key=lambda each: each.last_offset)
            for offset, message in compare_aborted(indexes.aborted, aborted, markers, is_complete=self._is_complete):
                self._problem(self._path(base_offset, layout.TXN_INDEX_SUFFIX), message, offset=offset)

    def _is_settled(self, number: int) -> bool:
        """Whether the segment's other files must be in order: the next start takes them as they are."""
        if self._recorded.was_clean is not False:
            return True
        return number + 1 < len(self._bases) and self._bases[number + 1] <= self._recorded.recovery_point

    def _check_invalid(self, path: str, found: InvalidBytes, number: int) -> bool:
        """Report invalid bytes; whether the segment's writer may have sealed it nevertheless."""
        if self._end_offset < self._recorded.required_end or found.is_followed:
            what = "bytes of zeros" if found.is_zero else f"invalid bytes ({found.reason})"
            follow = (
                f"valid batches follow at position {found.end}" if found.is_followed else "synced records are missing"
            )
            self._problem(path, f"{found.size_bytes} {what}, {follow}", found.position, self._end_offset)
            self._is_complete = False
            return True
        if not found.is_zero:
            message = f"{found.size_bytes} bytes of a write that a crash cut off; the next start removes them"
            self._note(path, message, found.position, self._end_offset)
        return False

    def _check_batch(self, path: str, base_offset: int, found: ScannedBatch, following: int | None) -> None:
        header, position, report = found.header, found.position, self.report
        self._check_snapshots_up_to(header.base_offset)
        if header.base_offset < self._end_offset:
            message = f"offset {header.base_offset} where at least {self._end_offset} was expected"
            self._problem(path, message, position, header.base_offset)
        elif following is not None and header.last_offset >= following:
            message = f"ends at offset {header.last_offset}, but the next segment starts at offset {following}"
            self._problem(path, message, position, header.base_offset)
        elif header.last_offset - base_offset > MAX_RELATIVE_OFFSET:
            self._problem(path, "offset too far above the segment's base", position, header.base_offset)
        if header.base_offset > self._end_offset or header.record_count <= header.last_offset_delta:
            self._is_complete = False
        try:
            validate_batches(found.data, max_batch_bytes=_ANY_SIZE, allow_control=True)
        except KraftlogError as e:
            self._problem(path, f"the checksum holds, but: {e.message}", position, header.base_offset)
        self._check_epoch(path, position, header)
        report.batch_count += 1
        report.record_count += header.record_count
        report.size_bytes += header.size_bytes
        end_offset = header.next_offset if following is None else min(header.next_offset, following)
        self._end_offset = max(self._end_offset, end_offset)

    def _check_epoch(self, path: str, position: int, header: BatchHeader) -> None:
        epoch = header.leader_epoch
        if epoch < self._latest_epoch:
            message = f"leader epoch {epoch} after epoch {self._latest_epoch}"
            self._problem(path, message, position, header.base_offset)
        self._latest_epoch = max(epoch, self._latest_epoch)
        # The checkpoint begins with the log, which may begin inside of a batch.
        offset = max(header.base_offset, self.report.log_start_offset)
        known = -1 if self._epochs is None else self._epochs.epoch_for(offset)
        if epoch < 0 or epoch == known or epoch in self._wrong_epochs or header.last_offset < offset:
            return
        self._wrong_epochs.add(epoch)
        checkpoint = os.path.join(self._directory, layout.LEADER_EPOCH_FILE)
        message = f"says epoch {known} where the log has epoch {epoch}" if known >= 0 else f"lacks epoch {epoch}"
        # Saved by a flush: whatever was appended since is made anew from the batches.
        if self._recorded.was_clean is False and header.base_offset >= self._recorded.recovery_point:
            self._note(checkpoint, message, offset=header.base_offset)
        else:
            self._problem(checkpoint, message, offset=header.base_offset)

    # Telling.

    def _path(self, offset: int, suffix: str) -> str:
        name = layout.segment_file_name(offset, suffix)
        return os.path.join(self._directory, self._names.get(name, name))

    def _problem(self, path: str, message: str, position: int | None = None, offset: int | None = None) -> None:
        self.report.problems.append(Finding(path, message, position, offset))

    def _note(self, path: str, message: str, position: int | None = None, offset: int | None = None) -> None:
        self.report.notes.append(Finding(path, message, position, offset))

    def _unsettled_problem(self, path: str, message: str, *, offset: int) -> None:
        findings = self.report.notes if self._recorded.was_clean is False else self.report.problems
        findings.append(Finding(path, message, offset=offset))


def _difference(stored: ProducerEntry, replayed: ProducerEntry | None, is_complete: bool) -> str:
    """What a snapshot says of a producer against what the batches say; "" if they agree.

    Kafka stores one batch of a producer, we up to five: those that are stored must be the replay's last ones. A producer
    that is not stored had expired.
    """
    if replayed is None:
        return "no batch of it is in the log" if is_complete else ""
    if stored.producer_epoch > replayed.producer_epoch and not is_complete:
        return ""  # it remembers batches that are gone
    if stored.producer_epoch != replayed.producer_epoch:
        return f"epoch {stored.producer_epoch}, in the log {replayed.producer_epoch}"
    if stored.transaction_first_offset != replayed.transaction_first_offset and (
        is_complete or not _may_know_more(stored, replayed)
    ):
        return (
            f"open transaction from {stored.transaction_first_offset}, in the log {replayed.transaction_first_offset}"
        )
    if stored.coordinator_epoch != replayed.coordinator_epoch and (
        is_complete or stored.coordinator_epoch < replayed.coordinator_epoch
    ):
        return f"coordinator epoch {stored.coordinator_epoch}, in the log {replayed.coordinator_epoch}"
    if stored.last_timestamp != replayed.last_timestamp and is_complete:
        return f"last timestamp {stored.last_timestamp}, in the log {replayed.last_timestamp}"
    ours = [(b.base_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in replayed.batches]
    theirs = [(b.base_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in stored.batches]
    if not is_complete:
        ours, theirs = ours[-1:], theirs[-1:]
        if theirs and (not ours or theirs[0][3] > ours[0][3]):
            return ""  # it remembers a batch that is gone
    if theirs != ours[len(ours) - len(theirs) :] or (ours and not theirs):
        return f"sequences {_sequences(theirs)}, in the log {_sequences(ours)}"
    return ""


def _may_know_more(stored: ProducerEntry, replayed: ProducerEntry) -> bool:
    """Whether the difference may be that the transaction's first batches, or its end, are gone."""
    first, known = stored.transaction_first_offset, replayed.transaction_first_offset
    return first is None or known is None or first < known


def _sequences(batches: list[tuple[int, int, int, int]]) -> str:
    return ", ".join(f"{first}-{last} at {at}" for first, last, at, _ in batches) or "none"
