"""Runs of a log directory with what they promise at each moment, and the check of a disk that a power loss left.

A promise changes before the call that may break the old one, and again after the call that may rely on the new one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kraftlog.logstore import Log, LogConfig, LogDir, format_log_dir
from kraftlog.logstore.checkpoints import TopicPartitionKey
from kraftlog.logstore.cleaning import Step
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerStateManager
from kraftlog.logstore.replay import apply_to_producers
from kraftlog.proto.records import BatchBuilder, CompressionType, end_transaction_marker, iter_headers
from kraftlog.testing.crash_points import RecordingFileSystem
from kraftlog.testing.filesystem import SECTOR_BYTES, SimFileSystem
from tests.unit.logstore.builders import CLUSTER_ID, DIRECTORY_ID, NOW_MS, batch, begin_compaction, idempotent, retain

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


Promise = Mapping[TopicPartitionKey, LogPromise]


@dataclass
class Run:
    """A log directory on a recording disk. Its methods are `LogDir`'s and `Log`'s, and keep the promises."""

    fs: RecordingFileSystem = field(default_factory=RecordingFileSystem)
    promises: list[tuple[int, Promise]] = field(default_factory=list)
    """(number of changes from which on it holds, promise)"""

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

    def create(self, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, may_be_missing=True)
        self.log_dir.create_log(*key, bytes(range(16)), now_ms=NOW_MS)
        self.promise(key, may_be_missing=False)

    def delete(self, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, may_be_missing=True)
        self.log_dir.delete_log(*key)
        self.promise(key, written=b"", flushed_end=0, starts=frozenset({0}), ends=frozenset())

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
        self.promise(key, flushed_end=self.log(key).flush())

    def truncate(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        log, promise = self.log(key), self.current[key]
        flushed_end = min(promise.flushed_end, offset)
        safe = max((h.next_offset for _, h in iter_headers(promise.written) if h.next_offset <= flushed_end), default=0)
        self.promise(
            key,
            flushed_end=safe,
            starts=promise.starts | {min(offset, log.log_start_offset)},
            ends=promise.ends | {offset},
            cleaned_to=promise.cleaned_to | {safe, min(safe, *promise.cleaned_to)},
            forgets_producers=promise.forgets_producers or offset < max(promise.cleaned_to),
        )
        log.truncate_to(offset)
        end_offset = log.log_end_offset
        self.promise(
            key,
            written=_up_to(promise.written, end_offset),
            history=None if promise.history is None else _up_to(promise.history, end_offset),
            flushed_end=min(promise.flushed_end, end_offset),  # the cut is durable, what is left need not be
            starts=frozenset({log.log_start_offset}),
            ends=promise.ends | {end_offset},
            cleaned_to=frozenset({self.log_dir.cleaned_to(log)}),
        )

    def start_over(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        """As a follower whose leader's log starts beyond its own end."""
        log = self.log(key)
        starts = self.current[key].starts | set(log.segment_base_offsets)  # files go in any order
        self.promise(key, flushed_end=0, starts=starts | {offset, 0})  # 0: no file is left, and no start was recorded
        log.truncate_fully_and_start_at(offset)
        self.promise(key, written=b"", flushed_end=offset, starts=frozenset({offset}), ends=frozenset({offset}))

    def delete_records(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        """Reported when it is recorded."""
        log = self.log(key)
        self.promise(key, starts=self.current[key].starts | {offset})
        self.log_dir.record_log_starts({log: offset})
        self.promise(key, starts=frozenset({offset}))
        log.advance_log_start_offset(offset)

    def record_high_watermark(self, offset: int, key: TopicPartitionKey = KEY) -> None:
        self.promise(key, high_watermarks=self.current[key].high_watermarks | {offset})
        self.log_dir.checkpoint_high_watermarks({**self.log_dir.high_watermarks(), key: offset})
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

    def restart(self) -> None:
        """A clean stop and a start."""
        self.log_dir.close()
        for key, log in self.log_dir.logs.items():
            self.promise(key, flushed_end=log.log_end_offset)
        self.log_dir = open_disk(self.fs)


def open_disk(fs: RecordingFileSystem | SimFileSystem) -> LogDir:
    return LogDir.open(PATH, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=CONFIG)


def _up_to(batches: bytes, end_offset: int) -> bytes:
    return batches[: sum(header.size_bytes for _, header in iter_headers(batches) if header.next_offset <= end_offset)]


def keyed(*keys: str, size: int = 100, **producer: Any) -> bytes:
    """A batch of records with those keys."""
    builder = BatchBuilder(is_transactional=producer.pop("is_transactional", False))
    for number, key in enumerate(keys):
        builder.append(NOW_MS + number, key.encode(), key.encode() * size)
    return builder.build(**producer)


# Traces.


def append_flush_and_roll(run: Run) -> None:
    """Batches smaller and larger than a sector, several between two flushes, over several segments."""
    run.create()
    sizes = [10, 700, 90, 1600, 480, 5, 5, 450, 3000, 30]
    for number, size in enumerate(sizes * 2):
        run.append(batch(bytes([65 + number]) * size))
        if number % 4 == 3:
            run.flush()
        if number % 7 == 6:
            run.log().roll()
        if number % 5 == 4:
            run.log_dir.checkpoint()
    run.flush()


def large_writes(run: Run) -> None:
    """Many pages of several batches wait for one flush."""
    run.create()
    for round_ in range(3):
        for number in range(4):
            run.append(batch(bytes([65 + 4 * round_ + number]) * (300 + 200 * number)))
        run.append(batch("a", "b") + batch("c" * 600) + batch("d"))
        run.flush()
        run.log_dir.checkpoint()


def headers_across_sectors(run: Run) -> None:
    """Unsynced batches that start so near to the end of a sector that only a part of their offset or length is in it."""
    run.create()
    run.append(batch(*["x"] * 300, compression_type=CompressionType.GZIP))
    for number in range(12):
        room = -run.log().size_bytes % SECTOR_BYTES - (1 + number * 5 % 12) + SECTOR_BYTES
        run.append(batch(b"f" * (room - len(batch(b"f" * 200)) + 200)))
        run.flush()
        run.append(batch(b"h" * 200))


def truncate_and_append_again(run: Run) -> None:
    run.create()
    for number in range(12):
        run.append(batch(b"x" * 80 * number), epoch=number // 5)
        if number in (3, 9):
            run.flush()
    run.log_dir.checkpoint()
    run.truncate(8)
    for number in range(3):
        run.append(batch(b"again" * 100 * number), epoch=4)
    run.flush()
    run.truncate(1)
    run.append(batch("and again"), epoch=5)
    run.log().roll()
    run.append(batch("and more"), epoch=5)
    run.truncate(2)
    run.flush()


def truncate_transactions(run: Run) -> None:
    """Cuts inside of open and aborted transactions, below producer snapshots, over segments, to nothing."""
    run.create()
    for target in (14, 9, 6, 2, 0):
        end_offset = run.log().log_end_offset
        while end_offset < 18:
            entries = run.log().producers.entries
            for producer in (1, 2):
                entry = entries.get(producer)
                sequence = entry.last_sequence + 1 if entry else 0
                run.append(idempotent(producer, sequence, 2, is_transactional=True), epoch=20 - target)
            run.log().roll()
            marker = end_transaction_marker(False, 3, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
            run.append(marker, epoch=20 - target)
            end_offset = run.log().log_end_offset
            if end_offset % 2:
                run.flush()
        run.truncate(target)
    run.append(batch("last"), epoch=20)
    run.flush()


def delete_records(run: Run) -> None:
    """At batches and inside of them, up to the end, of what is flushed and what is not; cuts above and below it."""
    run.create()
    for number in range(12):
        run.append(batch(*[b"%02d" % number * 60] * 3), epoch=number // 3)
        if number % 4 == 3:
            run.flush()
    run.append(idempotent(1, 0, 3), epoch=4)
    for offset in (4, 15, 16, 38):
        run.delete_records(offset)
        run.log_dir.checkpoint()
        run.append(batch(b"more" * 100), epoch=4)
    run.retain(1 << 20)
    run.restart()
    run.truncate(40)
    run.truncate(36)
    run.append(idempotent(1, 0, 2), epoch=5)
    run.flush()
    run.delete_records(run.log().log_end_offset)
    run.retain(1 << 20)
    run.append(idempotent(1, 2, 2), epoch=5)
    run.flush()


def clean_stops(run: Run) -> None:
    """The preallocated tails of three logs are trimmed at the end; one was never appended to, one has unsynced records."""
    keys = [("t", number) for number in range(3)]
    for key in keys:
        run.create(key)
    for round_ in range(4):
        for number, key in enumerate(keys[:2]):
            run.append(batch(b"%d" % round_ * (900 * number + 200)), epoch=round_, key=key)
            run.append(idempotent(number, 2 * round_, 2), epoch=round_, key=key)
            if number == 0:
                run.flush(key)
        if round_ == 2:
            run.log_dir.checkpoint()
        run.restart()
    run.append(batch("last"), epoch=4, key=keys[2])
    run.flush(keys[2])


def state_files(run: Run) -> None:
    """High watermarks, recovery points, log starts and epochs of two logs, written again and again."""
    other = ("t", 1)
    run.create()
    run.create(other)
    for number in range(10):
        for key in (KEY, other):
            run.append(batch(b"%d" % number * 500), epoch=number, key=key)
        run.flush()
        run.record_high_watermark(number)
        if number % 3 == 2:
            run.record_high_watermark(number, other)
            run.flush(other)
            run.delete_records(number, other)
        if number % 4 == 3:
            run.log().roll()
            run.log_dir.checkpoint()
    run.restart()
    run.record_high_watermark(10)


def follow_a_leader(run: Run) -> None:
    """Gaps as compaction leaves them, also such as need a segment of their own; cuts into them; starts beyond the end."""
    run.create()
    far = 1 << 40
    run.follow((0, batch("a" * 600)), (3, batch("b", "c")))
    run.follow((9, batch("d" * 700)))
    run.flush()
    run.follow((far, batch("e" * 300)), (far + 5, batch("f")))
    run.follow((far + (1 << 31), batch("g")))
    run.truncate(far + 3)
    run.follow((far + 3, batch("h" * 1200)), (far + 4, batch("i")))
    run.flush()
    run.truncate(7)
    run.follow((8, batch("j" * 800)))
    run.log().roll()
    run.follow((20, batch("k" * 800)))
    run.start_over(100)
    run.follow((102, batch("l" * 500)), (103, batch("m" * 500)))
    run.flush()
    run.start_over(50)
    run.follow((50, batch("n")))
    run.flush()


def compact(run: Run) -> None:
    """Three passes with restarts and appends in between; some groups are of several segments, some keep them all."""
    run.create()
    for round_ in range(3):
        for number in range(8):
            run.append(keyed(f"{number % 3}", f"only-{round_}-{number}", f"{number % 2}"), epoch=round_)
            run.append(idempotent(number % 2, 4 * round_ + number // 2), epoch=round_)
            if number % 3 == round_:
                run.log().roll()
        run.log().roll()
        run.append(keyed("tail"), epoch=round_)
        run.compact()
        if round_ == 1:
            run.restart()
    run.append(keyed("last"), epoch=3)
    run.flush()


def compact_and_truncate(run: Run) -> None:
    """Cuts within the compacted part, at a gap and at a batch; aborted and committed transactions."""
    run.create()
    marker = end_transaction_marker
    for round_, target in enumerate((22, 9, 3)):
        sequence = 0
        while run.log().log_end_offset < 30:
            is_new = {"producer_id": round_, "producer_epoch": 0, "base_sequence": sequence}
            run.append(keyed("a", "b", is_transactional=True, **is_new), epoch=round_)
            run.append(keyed("a", "c", "b"), epoch=round_)
            is_committed = sequence % 4 == 2
            end = marker(is_committed, 3, producer_id=round_, producer_epoch=0, timestamp_ms=NOW_MS)
            run.append(end, epoch=round_)
            run.log().roll()
            sequence += 2
        run.append(keyed("d"), epoch=round_)
        run.compact()
        run.truncate(target)
        run.log_dir.checkpoint()
    run.append(keyed("last"), epoch=5)
    run.flush()


def create_and_delete(run: Run) -> None:
    """Logs come and go, also under the name of one that was deleted."""
    for number in range(3):
        run.create()
        run.append(batch(b"first" * 300))
        other = ("t", number + 1)
        run.create(other)
        run.append(batch(b"other" * 300), key=other)
        run.append(batch(b"unflushed" * 200), key=other)
        run.flush()
        if number == 1:
            run.flush(other)
        run.log_dir.checkpoint()
        run.delete()
        run.create()
        run.append(batch(b"a new log of that name" * 50))
        run.append(batch(b"b" * 2000))
        run.flush()
        run.log_dir.checkpoint()
        run.delete()
    run.delete(("t", 2))


def stop_and_start(run: Run) -> None:
    run.create()
    for round_ in range(3):
        for number in range(4):
            run.append(idempotent(1, 4 * round_ + number), epoch=round_)
        if round_ == 1:
            run.log().roll()
        run.restart()
    run.append(batch("last"), epoch=3)
    run.flush()


def leader_epochs(run: Run) -> None:
    run.create()
    for epoch in range(6):
        run.log().assign_epoch(2 * epoch)
        run.append(batch("e" * 300 * epoch), epoch=2 * epoch)
        if epoch % 2:
            run.flush()
    run.truncate(4)
    run.append(batch("other"), epoch=11)
    run.flush()
    run.delete_records(3)
    run.restart()
    for epoch in range(12, 16):
        run.append(batch("e" * 200 * epoch), epoch=epoch)
        run.flush()
        run.log_dir.checkpoint()


def idempotent_producers(run: Run) -> None:
    """Snapshots at rolls and at the clean stop; a new instance of a producer."""
    run.create()
    for sequence in range(6):
        run.append(idempotent(1, sequence))
        run.append(idempotent(2, 3 * sequence, 3))
        if sequence in (1, 4):
            run.log().roll()
        if sequence in (2, 4):
            run.flush()
    run.append(idempotent(1, 0, epoch=1))
    run.truncate(17)
    run.append(idempotent(3, 0, 2))
    run.flush()
    run.restart()
    run.append(idempotent(3, 2))
    run.flush()


def transactions(run: Run) -> None:
    """Aborted and committed ones over several segments, with a clean stop in between."""
    run.create()
    for number in range(3):
        for producer in (1, 2):
            run.append(idempotent(producer, number * 2, 2, is_transactional=True))
        run.log().roll()
        marker: Callable[..., bytes] = end_transaction_marker
        run.append(marker(False, 3, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS))
        run.flush()
        if number == 1:
            run.restart()
            run.append(marker(True, 3, producer_id=2, producer_epoch=0, timestamp_ms=NOW_MS))
    run.log().roll()
    run.append(marker(False, 4, producer_id=2, producer_epoch=0, timestamp_ms=NOW_MS))
    run.restart()
    run.append(batch("last"))
    run.flush()


def retention(run: Run) -> None:
    """Old segments go, and in the end the growing one too."""
    run.create()
    for number in range(24):
        run.append(batch(b"%02d" % number * 400), epoch=number // 6)
        if number % 5 == 4:
            run.flush()
        if number in (9, 14, 21):
            run.retain(6000)
    run.delete_records(20)
    run.retain(5000)
    run.append(batch("more"), epoch=4)
    run.flush()
    run.delete_records(25)
    run.retain(5000)
    run.append(batch("last"), epoch=5)
    run.flush()


TRACES: list[Callable[[Run], None]] = [
    append_flush_and_roll,
    large_writes,
    headers_across_sectors,
    truncate_and_append_again,
    truncate_transactions,
    delete_records,
    create_and_delete,
    stop_and_start,
    clean_stops,
    state_files,
    follow_a_leader,
    compact,
    compact_and_truncate,
    leader_epochs,
    retention,
    idempotent_producers,
    transactions,
]


# The check.


def check_disk(disk: SimFileSystem, promise: Promise) -> None:
    """Open what a power loss left: nothing acknowledged is lost, nothing else than what was written is there, the log
    goes on, and a second start finds the same. `AssertionError` says what is wrong."""
    log_dir = open_disk(disk)
    found = {key: content(log) for key, log in log_dir.logs.items()}
    recorded = log_dir.high_watermarks()
    for key, promised in promise.items():
        if key in found:
            assert log_dir.cleaned_to(log_dir.logs[key]) in promised.cleaned_to, f"{key} is compacted to elsewhere"
        assert recorded.get(key, 0) in promised.high_watermarks, f"high watermark {recorded.get(key, 0)} of {key}"
        if key in found:
            _check_log(log_dir.logs[key], found[key], promised)
        else:
            assert promised.may_be_missing, f"{key} is missing"
    assert promise.keys() >= found.keys()
    for key, log in log_dir.logs.items():
        log.append_as_leader(batch("and on"), leader_epoch=20, now_ms=NOW_MS)
        log.flush()
        found[key] = content(log)
    disk.forget_unsynced()
    log_dir = open_disk(disk)
    assert not log_dir.was_clean
    for key, log in log_dir.logs.items():
        assert log.damage is None, f"{key} at the second start: {log.damage}"
        assert content(log) == found.pop(key), f"{key} is another one at the second start"
    assert not found, "missing at the second start"


def _check_log(log: Log, found: bytes, promised: LogPromise) -> None:
    assert log.damage is None, f"{log.name}: {log.damage}"
    assert log.log_start_offset in promised.starts, f"{log.name} starts at {log.log_start_offset}"
    assert log.log_end_offset >= promised.flushed_end, (
        f"{log.name} ends at {log.log_end_offset}, but {promised.flushed_end} was flushed"
    )
    written = promised.written
    if promised.or_written is not None and found != _readable(written, log):
        written = promised.or_written
    assert found == _readable(written, log), f"{log.name} holds other batches than were written"
    headers = [(position, h) for position, h in iter_headers(written) if h.next_offset <= log.log_end_offset]
    end_offset = max(log.log_start_offset, *(h.next_offset for _, h in headers), 0)
    assert log.log_end_offset in (end_offset, *promised.ends)
    for _, header in headers:
        if header.next_offset > log.log_start_offset:
            offset = max(header.base_offset, log.log_start_offset)
            assert log.epochs.epoch_for(offset) == header.leader_epoch, f"epoch of offset {offset}"
    if promised.history is None:
        _check_producers(log, _up_to(written, log.log_end_offset))
    else:
        _check_compacted_producers(log, _up_to(promised.history, log.log_end_offset), promised.forgets_producers)


def _readable(written: bytes, log: Log) -> bytes:
    headers = [h for _, h in iter_headers(written) if h.next_offset <= log.log_start_offset]
    return _up_to(written, log.log_end_offset)[sum(h.size_bytes for h in headers) :]


def _check_producers(log: Log, written: bytes) -> None:
    producers, aborted = _replay(written)
    assert log.producers.entries.keys() == producers.entries.keys()
    for producer_id, entry in producers.entries.items():
        kept = log.producers.entries[producer_id]
        assert [replace(b, timestamp=0) for b in kept.batches] == [replace(b, timestamp=0) for b in entry.batches]
        assert kept.producer_epoch == entry.producer_epoch
        assert kept.transaction_first_offset == entry.transaction_first_offset
    assert log.aborted_transactions(0, log.log_end_offset) == sorted(aborted, key=lambda t: t.first_offset)


def _check_compacted_producers(log: Log, history: bytes, forgets: bool) -> None:
    """Known are at least the last batch of a producer, and the aborted transactions that have records."""
    producers, aborted = _replay(history)
    for producer_id, entry in producers.entries.items():
        kept = log.producers.entries.get(producer_id)
        if not forgets:
            assert kept is not None
            assert [b.last_sequence for b in kept.batches[-1:]] == [b.last_sequence for b in entry.batches[-1:]]
            assert kept.producer_epoch == entry.producer_epoch
            assert kept.transaction_first_offset == entry.transaction_first_offset
    listed = {t.first_offset for t in log.aborted_transactions(0, log.log_end_offset)}
    assert listed <= {transaction.first_offset for transaction in aborted}
    assert not any(_has_records(log, transaction) for transaction in aborted if transaction.first_offset not in listed)


def _has_records(log: Log, transaction: AbortedTransaction) -> bool:
    offsets = range(transaction.first_offset, transaction.last_offset)
    return any(
        h.producer_id == transaction.producer_id and h.is_transactional and h.record_count and h.base_offset in offsets
        for _, h in iter_headers(content(log))
        if not h.is_control
    )


def content(log: Log) -> bytes:
    offset, pieces = log.log_start_offset, []
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        assert result.next_offset > offset
        pieces.append(result.records)
        offset = result.next_offset
    return b"".join(pieces)


def _replay(written: bytes) -> tuple[ProducerStateManager, list[AbortedTransaction]]:
    producers, aborted = ProducerStateManager(), []
    for position, header in iter_headers(written):
        transaction = apply_to_producers(
            producers, header, header.base_offset, written[position : position + header.size_bytes]
        )
        if transaction is not None:
            aborted.append(transaction)
    return producers, aborted
