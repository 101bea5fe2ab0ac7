"""The runs whose crash points are tried: each does one kind of thing to a log directory."""

from collections.abc import Callable
from typing import Any

from kraftlog.proto.records import BatchBuilder, CompressionType, end_transaction_marker
from kraftlog.testing.filesystem import SECTOR_BYTES
from tests.faults.crash_runs import KEY, Run
from tests.unit.logstore.builders import NOW_MS, batch, idempotent


def keyed(*keys: str, size: int = 100, **producer: Any) -> bytes:
    """A batch of records with those keys."""
    builder = BatchBuilder(is_transactional=producer.pop("is_transactional", False))
    for number, key in enumerate(keys):
        builder.append(NOW_MS + number, key.encode(), key.encode() * size)
    return builder.build(**producer)


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
    run.record_high_watermark(10)
    run.truncate(8)
    for number in range(3):
        run.append(batch(b"again" * 100 * number), epoch=4)
    run.flush()
    run.record_high_watermark(11)
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
    run.record_high_watermark(far + 6)
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
    run.record_high_watermark(103)
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
        for producer_id in run.log().producers.open_transactions():  # what was left of its batches lost its marker
            end = marker(False, 3, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
            run.append(end, epoch=round_)
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
        run.record_high_watermark(1)
        run.record_high_watermark(2, other)
        run.delete()
        run.create()
        run.append(batch(b"a new log of that name" * 50))
        run.append(batch(b"b" * 2000))
        run.flush()
        run.log_dir.checkpoint()
        run.delete()
    run.delete(("t", 2))


def made_without_sync(run: Run) -> None:
    """Logs that are durable with their first flush or with the first other thing that is; some never are. Another process
    does not know which."""
    flushed, rolled, cut, copied, idle, left = (("t", number) for number in range(6))
    run.create(left, settles=False)
    run.append(batch("before"), key=left)
    run.create(flushed, settles=False)
    run.append(batch("first"), key=flushed)
    run.flush(flushed)
    run.kill()
    run.promise(left, flushed_end=run.log(left).log_end_offset, may_be_missing=False)
    for key in (rolled, cut, copied, idle):
        run.create(key, settles=False)
    run.log_dir.checkpoint()
    for round_ in range(2):
        run.append(batch(b"r" * 900), epoch=round_, key=rolled)
        run.append(batch("a", "b", "c"), epoch=round_, key=cut)
        run.roll(rolled)
    run.delete_records(2, cut)
    run.start_over(100, copied)
    run.follow((100, batch("copied")), key=copied)
    run.record_high_watermark(1, flushed)
    run.delete(flushed)
    run.create(flushed, settles=False)
    run.append(batch(b"a new log of that name" * 50), key=flushed)
    run.log_dir.checkpoint()
    run.delete(flushed)
    run.create(flushed, settles=False)
    run.append(batch(b"and another" * 30), key=flushed)
    run.kill()
    run.append(batch("of another process"), key=idle)
    for key in (flushed, idle):
        run.flush(key)
    run.log_dir.checkpoint()


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
    made_without_sync,
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
