"""What must be true of a disk that a power loss left: the check of the crash points."""

from dataclasses import replace

from kraftlog.logstore import Log, LogDir
from kraftlog.logstore.producer_state import AbortedTransaction, ProducerStateManager
from kraftlog.logstore.replay import apply_to_producers
from kraftlog.proto.records import iter_headers
from kraftlog.testing.filesystem import SimFileSystem
from tests.faults.crash_runs import LogPromise, Promise, content, open_disk, up_to
from tests.unit.logstore.builders import NOW_MS, batch


def check_disk(disk: SimFileSystem, promise: Promise) -> None:
    """Open what a power loss left: nothing acknowledged is lost, nothing else than what was written is there, the log
    goes on, and a second start finds the same. `AssertionError` says what is wrong."""
    log_dir = open_disk(disk)
    _make_anew(log_dir, promise)
    found = {key: content(log) for key, log in log_dir.logs.items()}
    recorded = log_dir.high_watermarks()
    for key, promised in promise.items():
        if key in found:
            assert log_dir.cleaned_to(log_dir.logs[key]) in promised.cleaned_to, f"{key} is compacted to elsewhere"
        _check_high_watermark(recorded.get(key, 0), log_dir.logs.get(key), promised)
        if key in found:
            _check_log(log_dir.logs[key], found[key], promised)
        else:
            assert promised.may_be_missing, f"{key} is missing"
            log_dir.create_log(*key, promised.topic_id, now_ms=NOW_MS, settles=False)
            found[key] = b""
            assert key not in log_dir.high_watermarks(), f"{key} is new, and seems to have committed records"
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
        assert log_dir.topic_id(*key) == promise[key].topic_id, f"{key} belongs to another topic at the second start"
        assert content(log) == found.pop(key), f"{key} is another one at the second start"
    assert not found, "missing at the second start"


def _make_anew(log_dir: LogDir, promise: Promise) -> None:
    """Remove what is not the log that is promised, as a broker does that has read its metadata."""
    for key, promised in promise.items():
        if key in log_dir.logs and log_dir.topic_id(*key) != promised.topic_id:
            assert promised.may_be_missing, f"{key} belongs to another topic"
            assert log_dir.logs[key].damage is None, f"{key} is new and taken for damaged: {log_dir.logs[key].damage}"
            log_dir.delete_log(*key)


def _check_high_watermark(recorded: int, log: Log | None, promised: LogPromise) -> None:
    """Of a log that ends below what was recorded it is lowered: what comes there next is not committed yet."""
    marks = promised.high_watermarks
    if log is not None:
        marks = frozenset(min(mark, log.log_end_offset) for mark in marks)
    assert recorded in marks, f"high watermark {recorded} instead of {sorted(marks)}"


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
        _check_producers(log, up_to(written, log.log_end_offset))
    else:
        _check_compacted_producers(log, up_to(promised.history, log.log_end_offset), promised.forgets_producers)


def _readable(written: bytes, log: Log) -> bytes:
    headers = [h for _, h in iter_headers(written) if h.next_offset <= log.log_start_offset]
    return up_to(written, log.log_end_offset)[sum(h.size_bytes for h in headers) :]


def _check_producers(log: Log, written: bytes) -> None:
    producers, aborted = _replay(written)
    _check_entries(log, producers)
    assert log.aborted_transactions(0, log.log_end_offset) == sorted(aborted, key=lambda t: t.first_offset)


def _check_entries(log: Log, producers: ProducerStateManager) -> None:
    assert log.producers.entries.keys() == producers.entries.keys()
    for producer_id, entry in producers.entries.items():
        kept = log.producers.entries[producer_id]
        assert [replace(b, timestamp=0) for b in kept.batches] == [replace(b, timestamp=0) for b in entry.batches]
        assert kept.producer_epoch == entry.producer_epoch
        assert kept.transaction_first_offset == entry.transaction_first_offset


def _check_compacted_producers(log: Log, history: bytes, forgets: bool) -> None:
    """Known is all of every producer, and of the aborted transactions those that have records."""
    producers, aborted = _replay(history)
    if not forgets:
        _check_entries(log, producers)
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


def _replay(written: bytes) -> tuple[ProducerStateManager, list[AbortedTransaction]]:
    producers, aborted = ProducerStateManager(), []
    for position, header in iter_headers(written):
        transaction = apply_to_producers(
            producers, header, header.base_offset, written[position : position + header.size_bytes]
        )
        if transaction is not None:
            aborted.append(transaction)
    return producers, aborted
