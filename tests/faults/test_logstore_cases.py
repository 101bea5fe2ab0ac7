"""Public bug reports of other log stores, tried on this one. Each test names its case and says what went wrong there.

Also torn files cut at every byte, flipped bits, disks that fail or fill up at every operation.
"""

import contextlib
import errno
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from kraftlog.logstore import DiskFullError, Log, LogConfig, LogDir, RealFileSystem
from kraftlog.logstore.filesystem import File
from kraftlog.logstore.inspect import inspect_segment
from kraftlog.logstore.verify import verify_log_dir
from kraftlog.proto.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KraftlogError,
    OutOfOrderSequenceNumberError,
    StorageError,
)
from kraftlog.proto.records import backend, check_crc, end_transaction_marker, read_header
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import (
    DATA,
    NOW_MS,
    SMALL,
    append,
    batch,
    create_log,
    idempotent,
    open_log_dir,
    reopen,
    retain,
    values_of,
)

FIRST = "/data/t-0/00000000000000000000.log"
LAST_SEQUENCE = (1 << 31) - 1
LAST_TIMESTAMP = (1 << 63) - 1
YEAR_MS = 365 * 86_400_000


def filled(count: int, config: LogConfig = SMALL, *, flush: bool = True) -> tuple[SimFileSystem, LogDir, Log]:
    fs = SimFileSystem()
    log_dir, log = create_log(config, fs)
    for number in range(count):
        data = batch(f"{number:02d}", timestamps=[NOW_MS + number])
        log.append_as_leader(data, leader_epoch=number // 4, now_ms=NOW_MS)
    if flush:
        log.flush()
    return fs, log_dir, log


def expected(count: int) -> list[bytes]:
    return [b"%02d" % number for number in range(count)]


# Log recovery.


def test_r01_a_crash_while_loading_leads_to_a_full_recovery() -> None:
    """KAFKA-10471: the clean-shutdown marker was still there at the start after next, which skipped recovery."""
    for stop in range(40):
        fs, log_dir, _ = filled(30)
        log_dir.close()
        fs.kill()
        fs.stop_after(stop)
        loaded = False
        with contextlib.suppress(SimulatedPowerLoss):
            log = open_log_dir(fs, SMALL).logs["t", 0]
            loaded = True
            for number in range(30, 40):
                append(log, f"{number:02d}")
        fs.crash(random.Random(stop))
        marker_is_left = fs.size("/data/.kafka_cleanshutdown") is not None
        log_dir = open_log_dir(fs, SMALL)
        log = log_dir.logs["t", 0]
        assert not (loaded and marker_is_left), f"stop {stop}: the marker outlived the loading"
        assert log_dir.was_clean == marker_is_left
        assert values_of(log)[:30] == expected(30)
        assert values_of(log) == expected(log.log_end_offset), "no half batch"


def _batch_with_crc_zero() -> bytes:
    """CRC-32C is linear over GF(2) in the message: choose 32 bits of the value so that the CRC comes out as 0."""
    data = bytearray(batch(b"\0" * 8))
    where = data.index(b"\0" * 8, 61)

    def crc(word: int) -> int:
        data[where : where + 4] = word.to_bytes(4, "big")
        return int(backend.current.crc32c(memoryview(data)[21:]))

    constant = crc(0)
    rows = [(crc(1 << bit) ^ constant, 1 << bit) for bit in range(32)]
    word, rest = 0, constant
    for bit in range(31, -1, -1):  # Gaussian elimination
        pivot = next((row for row in rows if row[0] >> bit & 1), None)
        assert pivot is not None
        rows = [(r[0] ^ pivot[0], r[1] ^ pivot[1]) if r[0] >> bit & 1 else r for r in rows if r is not pivot]
        if rest >> bit & 1:
            rest, word = rest ^ pivot[0], word ^ pivot[1]
    assert crc(word) == 0
    data[17:21] = bytes(4)
    return bytes(data)


def test_r05_a_batch_whose_crc_is_zero_is_a_batch() -> None:
    """redpanda #4113: it was taken for preallocated space and skipped."""
    sent = _batch_with_crc_zero()
    header = read_header(sent)
    assert header.crc == 0
    check_crc(sent, 0, header)
    fs = SimFileSystem()
    _, log = create_log(fs=fs)
    append(log, "before")
    log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    append(log, "after")
    log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    assert (fs.size(FIRST) or 0) > log.size_bytes, "a preallocated tail of zeros follows"
    values = values_of(log)
    for _ in range(2):
        log = reopen(fs)
        assert log.damage is None
        assert values_of(log) == values
        assert fs.size(FIRST) == log.size_bytes


HARMS = ["none", "missing", "empty", "header only", "odd"]


@pytest.mark.slow
@pytest.mark.parametrize("segment", ["middle", "last"])
@pytest.mark.parametrize("flushed", [True, False])
def test_r07_empty_missing_and_cut_files_do_not_keep_the_node_from_starting(segment: str, flushed: bool) -> None:
    """osiris #87, #142: after a power cut an empty or header-only segment, or one half of a pair, crashed every start."""
    base = 10 if segment == "middle" else 20
    for log_harm in HARMS:
        for index_harm in HARMS:
            for time_harm in HARMS:
                fs, log_dir, _ = filled(23, flush=flushed)
                if flushed:
                    log_dir.checkpoint()
                fs.kill()
                for suffix, harm in ((".log", log_harm), (".index", index_harm), (".timeindex", time_harm)):
                    _harm(fs, f"/data/t-0/{base:020d}{suffix}", harm)
                log = reopen(fs, SMALL)  # starts
                where = (log_harm, index_harm, time_harm)
                readable = values_of(log, 0) if log_harm == "none" or segment == "last" or not flushed else None
                if readable is not None:
                    assert readable == expected(log.log_end_offset), where
                    for offset in range(log.log_end_offset):
                        assert log.offset_for_time(NOW_MS + offset) == (offset, NOW_MS + offset, offset // 4), where
                if log_harm == "none":
                    assert log.log_end_offset == 23, where
                    assert log.damage is None
                elif segment == "last" and flushed:
                    assert log.damage is not None, f"{where}: flushed records are gone, and nobody says so"
                else:
                    assert log.damage is None
                    append(log, "on it goes")


def _harm(fs: SimFileSystem, path: str, harm: str) -> None:
    size = fs.size(path)
    if harm == "none" or size is None:
        return
    if path.endswith(".log"):
        size = inspect_segment(fs, path).size_bytes  # without what is preallocated
    if harm == "missing":
        fs.unlink(path)
    else:
        fs.put(path, fs.contents(path)[: {"empty": 0, "header only": 61, "odd": size - 3}[harm]])


CHECKPOINTS = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
]
GARBAGE = {
    "random bytes": random.Random(9).randbytes(300),
    "negative number": b"0\n1\nt 0 -5\n",
    "no last newline": b"0\n1\nt 0 3",
    "a megabyte of zeros": bytes(1 << 20),
    "nothing": b"",
    "text": b"hello\n",
}


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("clean", [True, False])
def test_r09_a_damaged_checkpoint_file_is_ignored(name: str, garbage: bytes, clean: bool) -> None:
    """KAFKA-1758, KAFKA-2012: it stopped the broker at start. Right: say so, ignore it, recover everything."""
    fs, log_dir, log = filled(23)
    epochs = log.epochs.entries
    log_dir.checkpoint()
    if clean:
        log_dir.close()
    fs.kill()
    fs.put(f"/data/{name}", garbage)
    for _ in range(2):
        log = reopen(fs, SMALL)
        assert log.damage is None
        start = 3 if "log-start" in name and garbage == GARBAGE["no last newline"] else 0
        assert log.log_start_offset == start
        assert values_of(log) == expected(23)[start:]
        assert log.epochs.entries == ((0, start), *epochs[1:])
        assert append(log, "next") == 23
        log.truncate_to(23)


# Index.


@pytest.mark.parametrize("how", ["clean", "kill", "crash"])
def test_i01_offsets_more_than_31_bits_above_a_segments_base(how: str) -> None:
    """KAFKA-4451, 6530: replicating a compacted topic overflowed the index's 4-byte relative offset."""
    offsets = [0, (1 << 31) - 2, (1 << 31) + 5, 1 << 40, (1 << 40) + (1 << 31)]
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(index_interval_bytes=0), fs)
    for number, offset in enumerate(offsets):
        log.append_as_follower(
            batch(str(number), base_offset=offset, timestamps=[NOW_MS + number], leader_epoch=number)
        )
    log.flush()
    if how == "clean":
        log_dir.close()
    elif how == "crash":
        fs.crash(random.Random(4))
    for restarted in (False, True) if how == "kill" else (True,):
        log = reopen(fs) if restarted else log
        assert log.damage is None
        bases = log.segment_base_offsets
        assert len(set(bases)) == len(bases) == 4
        for number, offset in enumerate(offsets):
            base = max(base for base in bases if base <= offset)
            assert offset - base < 1 << 31
            read = log.read(offset, 1, end_offset=log.log_end_offset)
            assert (read_header(read.records).base_offset, read.next_offset) == (offset, offset + 1)
            assert log.offset_for_time(NOW_MS + number) == (offset, NOW_MS + number, number)
        assert len(values_of(log)) == 5
        assert log.log_end_offset == offsets[-1] + 1


@pytest.mark.parametrize("how", ["running", "clean", "kill"])
def test_i03_an_emptied_segment_takes_appends_and_its_index_grows_again(how: str) -> None:
    """KAFKA-6492: truncation to an empty segment left the index size unset; the next roll made the same base twice."""
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=60)
    fs, log_dir, log = filled(17, config)
    base = log.segment_base_offsets[-1]
    assert log.log_end_offset - base > 2, "its index has entries"
    log.truncate_to(base)
    if how != "running":
        if how == "clean":
            log_dir.close()
        fs.kill()
        log_dir = open_log_dir(fs, config)
        log = log_dir.logs["t", 0]
    assert (log.segment_base_offsets[-1], log.log_end_offset) == (base, base)
    assert not log.roll(), "an empty segment is not rolled into another one with its base"
    for number in range(base, 40):
        data = batch(f"{number:02d}", timestamps=[NOW_MS + number])
        log.append_as_leader(data, leader_epoch=9, now_ms=NOW_MS)
    bases = log.segment_base_offsets
    assert len(set(bases)) == len(bases)
    assert {following - base for base, following in pairwise(bases)} == {6}, (
        "one that is not indexed, and five entries in 60 bytes"
    )
    assert values_of(log) == expected(40)
    log_dir.close()
    assert [problem for report in verify_log_dir(fs, "/data") for problem in report.problems] == []


class CountingFileSystem(RealFileSystem):
    """Counts how often each file is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self._count_lock = threading.Lock()

    def open(self, path: str, *, create: bool = False) -> File:
        with self._count_lock:
            self.opened[path] += 1
        return super().open(path, create=create)


def _hammer(path: str, rounds: int) -> None:
    fs = CountingFileSystem()
    log_dir = open_log_dir(fs, SMALL, path)
    log = log_dir.create_log("t", 0, now_ms=NOW_MS)
    for number in range(200):
        log.append_as_leader(batch(f"{number:03d}", timestamps=[NOW_MS + number]), leader_epoch=0, now_ms=NOW_MS)
    end = 200
    log_dir.close()
    with ThreadPoolExecutor(32) as pool:
        for _ in range(rounds):
            log_dir = open_log_dir(fs, SMALL, path)
            log = log_dir.logs["t", 0]
            start = threading.Barrier(33)
            fs.opened.clear()

            def fetch(number: int, log: Log = log, start: threading.Barrier = start) -> object:
                start.wait()
                offset = number * 6 % 200
                found = log.offset_for_time(NOW_MS + offset)
                return log.read(offset, 1, end_offset=200).next_offset == offset + 1 and found is not None and found[0]

            answers = [pool.submit(fetch, number) for number in range(32)]
            start.wait()
            append(log, "more")
            assert [answer.result() for answer in answers] == [number * 6 % 200 for number in range(32)]
            end += 1
            assert log.log_end_offset == end
            assert len(fs.opened) > 100, "segments that nobody had touched"
            assert set(fs.opened.values()) == {1}, "one descriptor, and one copy of each index"
            log_dir.close()


@pytest.mark.slow
def test_i05_many_threads_open_one_lazy_index(tmp_path: Path) -> None:
    """KAFKA-9156, 14792: two threads mapped the same index; its position went to the end, the next append overflowed."""
    _hammer(str(tmp_path), rounds=12)


@pytest.mark.deep
def test_i05_many_threads_open_one_lazy_index_at_length(tmp_path: Path) -> None:
    _hammer(str(tmp_path), rounds=200)


# Retention and time.


@pytest.mark.parametrize("stamp", [NOW_MS + 10 * YEAR_MS, NOW_MS * 1000], ids=["in ten years", "microseconds"])
def test_k01_a_timestamp_in_the_future_keeps_no_segment_for_ever(stamp: int) -> None:
    """KIP-937, KAFKA-14991: one such record kept its segment, and all behind it, for years.

    It is refused; where a topic allows it, the segment's age counts from its last write.
    """
    now = [NOW_MS]
    fs = SimFileSystem(wall_ms=lambda: now[0])
    config = LogConfig(segment_bytes=400, retention_ms=1000)
    log_dir, log = create_log(config, fs)
    with pytest.raises(InvalidTimestampError, match=r"message\.timestamp\.after\.max\.ms"):
        log.append_as_leader(batch("x", timestamps=[stamp]), leader_epoch=0, now_ms=now[0])
    log.config = replace(config, message_timestamp_after_max_ms=LAST_TIMESTAMP)
    log.append_as_leader(batch("x", timestamps=[stamp]), leader_epoch=0, now_ms=now[0])
    log.config = config
    for number in range(20):
        log.append_as_leader(batch("y", timestamps=[now[0] + number]), leader_epoch=0, now_ms=now[0] + number)
    log.roll()
    assert retain(log_dir, log, now_ms=now[0] + 1000) == 0
    now[0] += 2000
    assert retain(log_dir, log, now_ms=now[0]) >= 4
    assert log.log_start_offset == 21


@pytest.mark.parametrize("how", ["running", "clean", "kill"])
def test_k03_an_idle_growing_segment_expires_too(how: str) -> None:
    """KAFKA-15047: without new records it was never rolled, hence never deleted."""
    fs = SimFileSystem()
    config = LogConfig(retention_ms=1000)
    log_dir, log = create_log(config, fs)
    append(log, "only")
    log.flush()
    if how != "running":
        if how == "clean":
            log_dir.close()
        fs.kill()
        log_dir = open_log_dir(fs, config)
        log = log_dir.logs["t", 0]
    assert retain(log_dir, log, now_ms=NOW_MS + 1000) == 0
    assert retain(log_dir, log, now_ms=NOW_MS + 1001) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1, 1, 0)
    assert fs.size(FIRST) is None


def test_k03_segments_below_the_log_start_go_first() -> None:
    """KAFKA-12177: they came last. Records are deleted up to the middle of the third segment."""
    fs, log_dir, log = filled(20)
    bases = log.segment_base_offsets
    log_dir.record_log_starts({log: bases[2] + 2})
    log.advance_log_start_offset(bases[2] + 2)
    log.config = replace(SMALL, retention_ms=-1, retention_bytes=log.size_bytes)
    assert retain(log_dir, log) == 2
    assert log.segment_base_offsets == bases[2:]
    log = reopen(fs, SMALL)
    assert log.log_start_offset == bases[2] + 2
    assert values_of(log) == expected(20)[bases[2] + 2 :]


@pytest.mark.parametrize("how", ["open", "rolled", "clean", "kill"])
def test_k05_a_lookup_by_time_includes_the_very_timestamp(how: str) -> None:
    """kfake TestIssueTimestampInclusivity: the record with exactly that timestamp was left out."""
    stamps = [100, 100, 105, 110, 110, 110, 110, 120, 90, 120, 120]  # out of order, ties in two segments
    fs = SimFileSystem()
    log_dir, log = create_log(LogConfig(segment_bytes=300, index_interval_bytes=0), fs)
    for stamp in stamps:
        log.append_as_leader(batch("x", timestamps=[stamp]), leader_epoch=3, now_ms=NOW_MS)
    assert len(log.segment_base_offsets) == 3
    if how == "rolled":
        log.roll()
    elif how == "clean":
        log_dir.close()
    if how in ("clean", "kill"):
        log = reopen(fs)
    for asked in range(80, 130):
        first = next(((offset, stamp, 3) for offset, stamp in enumerate(stamps) if stamp >= asked), None)
        assert log.offset_for_time(asked) == first
    assert log.max_timestamp() == (7, 120, 3)


# Idempotent producers.


@pytest.mark.parametrize("how", ["running", "clean", "kill"])
def test_p01_sequence_numbers_wrap(how: str) -> None:
    """KAFKA-7692, 7693: they did not wrap at 2^31-1."""
    fs = SimFileSystem()
    log_dir, log = create_log(fs=fs)
    sent = [
        idempotent(1, LAST_SEQUENCE),
        idempotent(1, 0),
        idempotent(2, 2147483640, 10),
        idempotent(2, 2, 3),
    ]
    for data in sent:
        assert not log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS).is_duplicate
    if how == "clean":
        log_dir.close()
    if how != "running":
        log = reopen(fs)
    for data, offsets in zip(sent, ((0, 0), (1, 1), (2, 11), (12, 14)), strict=True):
        again = log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == offsets
    with pytest.raises(InvalidRecordError, match="negative"):
        log.append_as_leader(idempotent(1, -5), leader_epoch=0, now_ms=NOW_MS)
    with pytest.raises(OutOfOrderSequenceNumberError):
        log.append_as_leader(idempotent(1, LAST_SEQUENCE - 5), leader_epoch=0, now_ms=NOW_MS)
    assert log.log_end_offset == 15


@pytest.mark.parametrize("how", ["running", "clean", "kill"])
def test_p09_old_timestamps_do_not_expire_a_producer(how: str) -> None:
    """KAFKA-9144: state expired by record timestamps, so a producer that stamps with 1970 was forgotten while it lived.

    It counts when this process last saw it, and loading its state counts as seeing it.
    """
    day_ms = 86_400_000
    fs = SimFileSystem()
    log_dir, log = create_log(fs=fs)
    data = idempotent(1, 0, timestamps=[1000])
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
    now_ms = NOW_MS + day_ms
    if how != "running":
        if how == "clean":
            log_dir.close()
        log = reopen(fs)
        now_ms = NOW_MS  # `reopen` loads at that time
    assert log.producers.expire(now_ms, day_ms) == 0
    assert log.append_as_leader(data, leader_epoch=0, now_ms=now_ms).is_duplicate
    log.append_as_leader(idempotent(1, 1, timestamps=[1001]), leader_epoch=0, now_ms=now_ms)
    assert log.producers.expire(now_ms + day_ms, day_ms) == 0
    assert log.producers.expire(now_ms + day_ms + 1, day_ms) == 1
    assert not log.append_as_leader(idempotent(1, 7), leader_epoch=0, now_ms=now_ms).is_duplicate


@pytest.mark.parametrize("how", ["running", "rolled and clean", "rolled and killed", "killed", "power loss"])
def test_p03_five_batches_in_flight_are_recognised_whatever_the_order(how: str) -> None:
    """redpanda #3039: no memory of the last five batches, so retries after a crash gave duplicates or fatal errors."""
    fs = SimFileSystem()
    log_dir, log = create_log(fs=fs)
    first = {}
    for sequence in range(8):
        first[sequence] = log.append_as_leader(
            idempotent(5, sequence * 2, 2), leader_epoch=0, now_ms=NOW_MS
        ).first_offset
        if "rolled" in how and sequence in (4, 6, 7):
            log.roll()
    log.flush()
    if how == "rolled and clean":
        log_dir.close()
    elif how == "power loss":
        fs.crash(random.Random(8))
    if how != "running":
        log = reopen(fs)
    for sequence in (7, 3, 5, 4, 6, 3, 7):
        again = log.append_as_leader(idempotent(5, sequence * 2, 2), leader_epoch=0, now_ms=NOW_MS)
        assert (again.is_duplicate, again.first_offset) == (True, first[sequence])
    assert log.append_as_leader(idempotent(5, 16), leader_epoch=0, now_ms=NOW_MS).first_offset == 16
    assert log.log_end_offset == 17


# Torn files, flipped bits, failing and full disks.


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_file_cut_at_any_byte_of_its_end_loses_no_flushed_record(suffix: str) -> None:
    """Every byte of the last two batches, or of the whole derived file; the last sector zeroed as well."""
    fs, _, _ = filled(13)
    fs.kill()
    name = next(n for n in reversed(fs.listdir("/data/t-0")) if n.endswith(suffix))
    content = fs.contents(f"/data/t-0/{name}")
    if suffix == ".log":
        content = content[: inspect_segment(fs, f"/data/t-0/{name}").size_bytes]
    oldest = max(0, len(content) - 2 * len(batch("00"))) if suffix == ".log" else 0
    for cut in range(oldest, len(content)):
        for zeros in (0, len(content) - cut):
            fs, _, _ = filled(13)
            fs.kill()
            fs.put(f"/data/t-0/{name}", content[:cut] + bytes(zeros))
            log = reopen(fs, SMALL)
            values = values_of(log)
            assert values == expected(len(values))
            if suffix != ".log":
                assert len(values) == 13
            elif log.damage is None:
                assert len(values) >= 11, "recorded: the segments before; torn: at most the last two batches"


@pytest.mark.slow
def test_a_write_that_is_torn_at_any_sector_is_cut() -> None:
    """The file ends there, or is zero from there on, or lacks that one sector: what was flushed stays, the rest is torn."""
    config = LogConfig(index_interval_bytes=300)
    fs = SimFileSystem()
    log_dir, log = create_log(config, fs)
    append(log, b"a" * 1900)
    log.flush()
    flushed_bytes = log.size_bytes
    log_dir.checkpoint()
    sizes = [30, 2500, 480, 5000, 70]
    for number, size in enumerate(sizes):
        append(log, bytes([98 + number]) * size)
    written, size_bytes = values_of(log), log.size_bytes
    content, recorded = fs.contents(FIRST), fs.contents("/data/recovery-point-offset-checkpoint")
    for start in range(-(-flushed_bytes // 512) * 512, size_bytes, 512):
        for torn in (
            content[:start],
            content[:start] + bytes(len(content) - start),
            content[:start] + bytes(512) + content[start + 512 :],
        ):
            fs.kill()
            fs.put(FIRST, torn)
            fs.put("/data/recovery-point-offset-checkpoint", recorded)
            log = open_log_dir(fs, config).logs["t", 0]
            assert log.damage is None, f"sector at {start}"
            values = values_of(log)
            assert values == written[: len(values)]
            assert 1 <= len(values) < len(written)


@pytest.mark.slow
def test_every_flipped_bit_of_a_header_is_noticed_but_for_the_leader_epoch() -> None:
    """Kafka's CRC begins after the base offset, the length, the leader epoch and the magic byte: order, size and the batches
    around give away all of them but the epoch."""
    fs, log_dir, _ = filled(14)
    log_dir.checkpoint()
    fs.kill()
    path, at = "/data/t-0/00000000000000000010.log", len(batch("00"))
    content = fs.contents(path)
    for bit in range(8 * 61):
        fs.kill()
        fs.put("/data/recovery-point-offset-checkpoint", b"0\n0\n")  # read everything again
        fs.put(path, content)
        fs.flip(path, at + bit // 8, 1 << bit % 8)
        log = open_log_dir(fs, SMALL).logs["t", 0]
        if 12 <= bit // 8 < 16:
            assert (log.damage, log.log_end_offset) == (None, 14)
        else:
            assert log.damage is not None, f"bit {bit}"
            noticed_at = 12 if bit // 8 < 8 and log.log_end_offset > 12 else 11  # a larger offset, by the next batch
            assert values_of(log) == expected(noticed_at), f"bit {bit}"


@pytest.mark.slow
def test_flipped_bits_never_pass_for_records() -> None:
    """500 bits anywhere in the log files: what is still served is a prefix of what was written, or the log says why."""
    seed = 20
    rng = random.Random(seed)
    print("seed", seed)
    fs, log_dir, log = filled(23)
    log_dir.checkpoint()
    fs.kill()
    files = {n: fs.contents(f"/data/t-0/{n}") for n in fs.listdir("/data/t-0") if n.endswith(".log")}
    sizes = {name: inspect_segment(fs, f"/data/t-0/{name}").size_bytes for name in files}
    for _ in range(500):
        name = rng.choice(sorted(files))
        size = sizes[name]
        position, bit = rng.randrange(size), rng.randrange(8)
        fs.put("/data/recovery-point-offset-checkpoint", b"0\n0\n")  # read everything again
        for each, content in files.items():
            fs.put(f"/data/t-0/{each}", content)
        fs.flip(f"/data/t-0/{name}", position, 1 << bit)
        log = reopen(fs, SMALL)
        values = []
        with contextlib.suppress(KraftlogError):
            values = values_of(log)
        if log.damage is None and values != expected(23):
            at = position % len(batch("00"))
            last_of_its_file = size - position <= len(batch("00"))
            assert at < 16 or last_of_its_file, f"seed {seed}: bit {bit} of byte {position} of {name} went unnoticed"
        fs.kill()


@pytest.mark.parametrize(
    "operation", ["pwritev", "fdatasync", "rename", "fsync_dir", "truncate", "preallocate", "create"]
)
def test_an_io_error_at_any_operation_loses_nothing_acknowledged(operation: str) -> None:
    """EIO at the Nth call: the log may end, but what was flushed is there after a restart, and only whole batches."""
    for nth in range(60):
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        fs.fail(operation, errno.EIO, skip=nth)
        safe = _append_until_it_fails(log_dir, log)
        fs.crash(random.Random(nth))
        log = reopen(fs, SMALL)
        assert log.damage is None
        assert log.log_end_offset >= safe
        assert values_of(log) == expected(log.log_end_offset)


QUESTIONS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: values_of(log),
    "lookup by time": lambda log: [log.offset_for_time(NOW_MS + after) for after in range(2)],
    "largest timestamp": lambda log: log.max_timestamp(),
    "aborted transactions": lambda log: log.aborted_transactions(0, log.log_end_offset),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_io_error_at_any_read_is_an_error_and_ends_the_writing(question: str) -> None:
    """EIO at the Nth read: no wrong answer. As in Kafka the log takes no more writes; what can be read still is."""
    ask = QUESTIONS[question]
    fs, log_dir, log = filled(23)
    right = ask(log)
    log_dir.close()
    failed = 0
    for nth in range(60):
        fs.kill()
        log_dir = open_log_dir(fs, SMALL)
        log = log_dir.logs["t", 0]
        fs.fail("pread", errno.EIO, skip=nth)
        answer, error = _try(lambda log=log: ask(log))
        assert answer == right if error is None else "Input/output error" in str(error)
        assert log.failure is error
        fs.heal()
        assert ask(log) == right
        if error is not None:
            failed += 1
            with pytest.raises(StorageError, match="takes no more writes"):
                append(log, "no")
            with pytest.raises(StorageError, match="cannot read"):
                log.flush()
        log_dir.close()
        assert (fs.size("/data/.kafka_cleanshutdown") is None) == (error is not None)
    assert failed
    assert values_of(reopen(fs, SMALL)) == expected(23)


@pytest.mark.parametrize("clean", [True, False])
def test_an_io_error_at_any_read_of_a_start_keeps_the_node_from_starting(clean: bool) -> None:
    """As in Kafka, where the directory is offline then. It changes nothing: with the disk healed all is there."""
    fs, log_dir, _ = filled(23)
    if clean:
        log_dir.close()
    failed = 0
    for nth in range(80):
        fs.kill()
        fs.fail("pread", errno.EIO, skip=nth)
        _, error = _try(lambda: open_log_dir(fs, SMALL).close())
        assert error is None or "Input/output error" in str(error)
        failed += error is not None
    assert failed > 3
    assert values_of(reopen(fs, SMALL)) == expected(23)


def _try(ask: Callable[[], object]) -> tuple[object, StorageError | None]:
    try:
        return ask(), None
    except StorageError as error:
        return None, error


@pytest.mark.slow
def test_a_disk_that_fills_up_at_any_point_loses_nothing_acknowledged() -> None:
    for capacity in range(0, 40_000, 611):
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        fs.capacity_bytes = fs._used + capacity
        safe = _append_until_it_fails(log_dir, log)
        fs.capacity_bytes = None
        if log.failure is None:
            append(log, f"{log.log_end_offset:02d}")
            safe = log.flush()
        fs.crash(random.Random(capacity))
        log = reopen(fs, SMALL)
        assert log.damage is None
        assert log.log_end_offset >= safe
        assert values_of(log) == expected(log.log_end_offset)


STATE_FILES = [
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
]


@pytest.mark.slow
@pytest.mark.parametrize("file", STATE_FILES)
def test_a_disk_that_is_full_for_any_file_is_waited_out(file: str) -> None:
    """ENOSPC at the Nth file or write of a kind: an error, reads go on, the same call works when there is space."""
    refusals = 0
    for operation in ("create", "preallocate", "pwritev"):
        for nth in range(6):
            fs = SimFileSystem()
            log_dir, log = create_log(SMALL, fs)
            fs.fail(operation, errno.ENOSPC, path_part=file, skip=nth, times=2)

            def insist(work: Callable[[], object], log: Log = log) -> int:
                for attempt in range(5):
                    before = (log.log_start_offset, log.log_end_offset, values_of(log))
                    try:
                        work()
                    except DiskFullError:
                        assert log.failure is None
                        assert (log.log_start_offset, log.log_end_offset, values_of(log)) == before
                    else:
                        return attempt
                raise AssertionError("still full")

            def write_transactions(log_dir: LogDir = log_dir, log: Log = log) -> int:
                refused, marker = (
                    0,
                    end_transaction_marker(False, 3, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS),
                )
                for sequence in range(8):
                    data = idempotent(1, sequence, is_transactional=True)
                    refused += insist(
                        lambda data=data, epoch=sequence: log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS)
                    )
                    refused += insist(
                        lambda epoch=sequence: log.append_as_leader(
                            marker, leader_epoch=epoch, now_ms=NOW_MS, allow_control=True
                        )
                    )
                    refused += insist(log.flush)
                    if sequence % 3 == 1:
                        refused += insist(log_dir.checkpoint)
                        refused += insist(
                            lambda: log_dir.checkpoint_high_watermarks(lambda: {("t", 0): log.flushed_end_offset})
                        )
                return refused

            refusals += write_transactions()
            refusals += insist(lambda log_dir=log_dir, log=log: log_dir.record_log_starts({log: 3}))
            log.advance_log_start_offset(3)
            refusals += insist(lambda log=log: log.truncate_to(11))
            refusals += insist(lambda log=log: append(log, "last", leader_epoch=9))
            refusals += insist(log.flush)
            values = values_of(log)
            assert (log.log_start_offset, log.log_end_offset, values[-1]) == (3, 12, b"last")
            fs.crash(random.Random(nth))
            log = reopen(fs, SMALL)
            assert log.damage is None
            assert values_of(log) == values
    assert refusals > 1


@pytest.mark.slow
def test_a_node_that_died_on_a_full_disk_starts_on_it() -> None:
    """kill -9 at any fill: all that was flushed is served without any space, and appends go on with some.

    Only where recovery has to write the indexes of a segment anew, and there is no room for them, it asks for space.
    """
    starts, refused = 0, 0
    for capacity in range(0, 20_000, 397):
        fs = SimFileSystem()
        log_dir, log = create_log(SMALL, fs)
        fs.capacity_bytes = fs._used + capacity
        safe = _append_until_it_fails(log_dir, log)
        fs.kill()
        fs.capacity_bytes = fs._used
        try:
            log = open_log_dir(fs, SMALL).logs["t", 0]
            starts += 1
        except DiskFullError:
            refused += 1
            fs.capacity_bytes += 1000
            log = open_log_dir(fs, SMALL).logs["t", 0]
        assert log.log_end_offset >= safe, f"capacity {capacity}"
        assert values_of(log) == expected(log.log_end_offset)
        fs.capacity_bytes = None
        append(log, f"{log.log_end_offset:02d}")
        assert log.flush() == len(values_of(log))
    assert starts > 5 * refused


def _append_until_it_fails(log_dir: LogDir, log: Log) -> int:
    """Append, flush, checkpoint and truncate; the offset below which everything was acknowledged."""
    safe = 0
    with contextlib.suppress(StorageError):
        for _ in range(2):
            while log.log_end_offset < 40:
                append(log, f"{log.log_end_offset:02d}")
                if log.log_end_offset % 3 == 0:
                    safe = log.flush()
                if log.log_end_offset % 11 == 0:
                    log_dir.checkpoint()
            safe = min(safe, 17)
            log.truncate_to(17)
    return safe


def test_a_node_starts_while_its_disk_is_full() -> None:
    """Reads are served; appends are refused until there is space."""
    fs, log_dir, _ = filled(23)
    log_dir.checkpoint()
    fs.kill()
    fs.capacity_bytes = fs._used
    log = open_log_dir(fs, SMALL).logs["t", 0]
    assert values_of(log) == expected(23)
    fs.capacity_bytes = fs._used
    refused = 0
    for _ in range(20):
        try:
            append(log, f"{log.log_end_offset:02d}")
        except DiskFullError:
            refused += 1
    assert refused
    fs.capacity_bytes = None
    while log.log_end_offset < 40:
        append(log, f"{log.log_end_offset:02d}")
    assert values_of(log) == expected(40)
    assert fs.size(DATA) is not None
