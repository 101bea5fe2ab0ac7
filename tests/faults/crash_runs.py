"""A log directory on a recording disk, and what it promises at each moment.

A promise changes before the call that may break the old one, and again after the call that may rely on the new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kraftlog.logstore import Log, LogConfig, LogDir, format_log_dir
from kraftlog.logstore.checkpoints import TopicPartitionKey
from kraftlog.logstore.cleaning import Step
from kraftlog.proto.records import iter_headers
from kraftlog.testing.crash_points import RecordingFileSystem
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import CLUSTER_ID, DIRECTORY_ID, NOW_MS, begin_compaction, retain

PATH = "/data"
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300)
COMPACTED = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
KEY = ("t", 0)


@dataclass(frozen=True)
class LogPromise:
    """What must hold for one log, whenever the power goes out."""

    written: bytes = b""
    """The log holds a prefix of it, in whole batches."""
    flushed_end: int = 0
    """The prefix goes at least up to this offset: it was acknowledged."""
    starts: frozenset[int] = frozenset({0})
    """Where the log may start."""
    ends: frozenset[int] = frozenset()
    """Where it may end besides after a batch: in a gap."""
    high_watermarks: frozenset[int] = frozenset({0})
    """What may be recorded as its high watermark; 0: nothing."""
    or_written: bytes | None = None
    """What may be there instead of `written`: segments are being replaced by a compacted one."""
    history: bytes | None = None
    """Of a log that was compacted: all that `written` would be if it had not been."""
    cleaned_to: frozenset[int] = frozenset({0})
    """What may be recorded as the end of its compacted part."""
    forgets_producers: bool = False
    """It was cut within its compacted part (no replica does that), and with it the last batches of producers."""
    may_be_missing: bool = True
    """Or without its topic id: it is made anew. Such a log holds nothing that was acknowledged."""
    topic_id: bytes = b""


Promise = Mapping[TopicPartitionKey, LogPromise]


@dataclass
class Run:
    """A log directory on a recording disk. Its methods are `LogDir`'s and `Log`'s, and keep the promises."""

    fs: RecordingFileSystem = field(default_factory=RecordingFileSystem)
    promises: list[tuple[int, Promise]] = field(default_factory=list)
    """(number of changes from which on it holds, promise)"""

    created: int = 0

    def __post_init__(self) -> None:
        format_log_dir(PATH, self.fs, cluster_id=CLUSTER_ID, node_id=1, directory_id=DIRECTORY_ID)
        self.first_change = len(self.fs.trace.changes)
        """Before it there is no log directory."""
        self.current: Promise = {}
        self.log_dir = open_disk(self.fs)

    def log(self, key: TopicPartitionKey = KEY) -> Log:
        return self.log_dir.logs[key]

    def promise(self, key: TopicPartitionKey, **changed: Any) -> None:
        self.current = {**self.current, key: replace(self.current.get(key, LogPromise()), **changed)}
        self.promises.append((len(self.fs.trace.changes), self.current))

    def create(self, key: TopicPartitionKey = KEY, *, settles: bool = True) -> None:
        """Each with another topic's id."""
        self.created += 1
        self.promise(key, may_be_missing=True, topic_id=self.created.to_bytes(16, "big"))
        self.log_dir.create_log(*key, self.current[key].topic_id, now_ms=NOW_MS, settles=settles)
        self.promise(key, high_watermarks=frozenset({0}))
        if settles:
            self.promise(key, may_be_missing=False)

    def delete(self, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, may_be_missing=True)
        self.log_dir.delete_log(*key)
        marks = self.current[key].high_watermarks | {0}  # until there is a log of that name again, or of another one
        self.promise(key, written=b"", flushed_end=0, starts=frozenset({0}), ends=frozenset(), high_watermarks=marks)

    def append(self, data: bytes, epoch: int = 0, key: TopicPartitionKey = KEY) -> None:
        """As leader, markers too."""
        log = self.log(key)
        stored = bytearray(data)
        offset = log.log_end_offset
        for position, header in iter_headers(data):
            stored[position : position + 8] = offset.to_bytes(8, "big")
            stored[position + 12 : position + 16] = epoch.to_bytes(4, "big")
            offset += header.last_offset_delta + 1
        promise = self.current[key]
        history = None if promise.history is None else promise.history + stored
        self.promise(key, written=promise.written + stored, history=history)
        log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS, allow_control=True)

    def follow(self, *batches: tuple[int, bytes], key: TopicPartitionKey = KEY) -> None:
        """Append batches as follower, each at the offset that it is given with."""
        sent = b"".join(offset.to_bytes(8, "big") + data[8:] for offset, data in batches)
        promise = self.current[key]
        self.promise(key, written=promise.written + sent, ends=promise.ends | {offset for offset, _ in batches})
        self.log(key).append_as_follower(sent)

    def flush(self, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, flushed_end=self.log(key).flush(), may_be_missing=False)

    def roll(self, key: TopicPartitionKey = KEY) -> None:
        self.log(key).roll()
        self.promise(key, may_be_missing=False)

    def truncate(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        log, promise = self.log(key), self.current[key]
        flushed_end = min(promise.flushed_end, offset)
        safe = max((h.next_offset for _, h in iter_headers(promise.written) if h.next_offset <= flushed_end), default=0)
        last_end = max((h.next_offset for _, h in iter_headers(promise.written) if h.next_offset <= offset), default=0)
        marks = promise.high_watermarks
        self.promise(
            key,
            flushed_end=safe,
            high_watermarks=marks | {min(mark, end) for mark in marks for end in (last_end, offset)},
            starts=promise.starts | {min(offset, log.log_start_offset)},
            ends=promise.ends | {offset},
            cleaned_to=promise.cleaned_to | {safe, min(safe, *promise.cleaned_to)},
            forgets_producers=promise.forgets_producers or offset < max(promise.cleaned_to),
        )
        log.truncate_to(offset)
        end_offset = log.log_end_offset
        self.promise(
            key,
            written=up_to(promise.written, end_offset),
            history=None if promise.history is None else up_to(promise.history, end_offset),
            flushed_end=min(promise.flushed_end, end_offset),  # the cut is durable, what is left need not be
            high_watermarks=frozenset(min(mark, end_offset) for mark in marks),
            starts=frozenset({log.log_start_offset}),
            ends=promise.ends | {end_offset},
            cleaned_to=frozenset({self.log_dir.cleaned_to(log)}),
        )

    def start_over(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        """As a follower whose leader's log starts beyond its own end."""
        log = self.log(key)
        starts = self.current[key].starts | set(log.segment_base_offsets)  # files go in any order
        marks = self.current[key].high_watermarks
        lowered = frozenset(min(mark, offset) for mark in marks)
        self.promise(  # 0: no file is left, and no start was recorded
            key, flushed_end=0, starts=starts | {offset, 0}, high_watermarks=marks | lowered
        )
        log.truncate_fully_and_start_at(offset)
        self.promise(
            key,
            written=b"",
            flushed_end=offset,
            starts=frozenset({offset}),
            ends=frozenset({offset}),
            high_watermarks=lowered,
            may_be_missing=False,
        )

    def delete_records(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        """Reported when it is recorded."""
        log = self.log(key)
        self.promise(key, starts=self.current[key].starts | {offset})
        self.log_dir.record_log_starts({log: offset})
        self.promise(key, starts=frozenset({offset}), may_be_missing=False)
        log.advance_log_start_offset(offset)

    def record_high_watermark(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, high_watermarks=self.current[key].high_watermarks | {offset})
        marks = {**self.log_dir.high_watermarks(), key: offset}
        self.log_dir.checkpoint_high_watermarks(lambda: marks)
        self.promise(key, high_watermarks=frozenset({offset}))

    def retain(self, retention_bytes: int, key: TopicPartitionKey = KEY) -> None:
        """Delete old segments."""
        log = self.log(key)
        log.config = replace(CONFIG, retention_bytes=retention_bytes)
        self.promise(key, starts=self.current[key].starts | set(log.segment_base_offsets) | {log.log_end_offset})
        retain(self.log_dir, log, now_ms=NOW_MS + 1000)
        self.promise(key, starts=frozenset({log.log_start_offset}), flushed_end=log.flushed_end_offset)

    def compact(self, key: TopicPartitionKey = KEY) -> None:
        """One pass. Of each group of segments that it replaces, a crash leaves all or nothing."""
        log = self.log(key)
        log.config = COMPACTED
        cleaning = begin_compaction(self.log_dir, log)
        assert cleaning is not None, "nothing to compact"
        promise = self.current[key]
        if promise.history is None:
            self.promise(key, history=promise.written)
        while (step := cleaning.step()) is not Step.DONE:
            self.promise(key, flushed_end=log.flushed_end_offset)
            if step is Step.COMMIT:
                began = len(self.fs.trace.changes)
                assert cleaning.commit()
                cleaning.finish_commit()
                written = content(log)
                promise = self.current[key]
                self.promises.append((began, {**self.current, key: replace(promise, or_written=written)}))
                self.promise(key, written=written)
        self.promise(key, cleaned_to=self.current[key].cleaned_to | {cleaning.end_offset})
        cleaning.record_end(self.log_dir)
        cleaning.close()
        self.promise(key, cleaned_to=frozenset({cleaning.end_offset}))

    def kill(self) -> None:
        """The process ends, and another one starts: nothing is lost yet, but what was not synced still may be."""
        self.log_dir.close(clean=False)
        self.log_dir = open_disk(self.fs)

    def restart(self) -> None:
        """A clean stop and a start."""
        self.log_dir.close()
        for key, log in self.log_dir.logs.items():
            kept = self.current[key].may_be_missing and not log.log_end_offset
            self.promise(key, flushed_end=log.log_end_offset, may_be_missing=kept)
        self.log_dir = open_disk(self.fs)


def open_disk(fs: RecordingFileSystem | SimFileSystem) -> LogDir:
    return LogDir.open(PATH, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=CONFIG)


def up_to(batches: bytes, end_offset: int) -> bytes:
    return batches[: sum(header.size_bytes for _, header in iter_headers(batches) if header.next_offset <= end_offset)]


def content(log: Log) -> bytes:
    offset, pieces = log.log_start_offset, []
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert result.next_offset > offset
        pieces.append(result.records)
        offset = result.next_offset
    return b"".join(pieces)
