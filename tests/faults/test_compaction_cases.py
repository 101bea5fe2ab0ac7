"""Public bug reports of other cleaners, tried on this one. Each test names its case and says what went wrong there."""

from dataclasses import replace

import pytest

from kraftlog.logstore import Log, LogConfig, LogDir
from kraftlog.logstore.cleaning import Step
from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.records import BatchBuilder, decode_batch, iter_headers
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import NOW_MS, begin_compaction, compact, create_log, open_log_dir, retain, run_pass
from tests.unit.logstore.test_compaction import COMPACT, contents, end_transaction, put

SMALL = replace(COMPACT, segment_bytes=300)


def filled(count: int, config: LogConfig = SMALL) -> tuple[SimFileSystem, LogDir, Log]:
    fs = SimFileSystem()
    log_dir, log = create_log(config, fs)
    for number in range(count):
        put(log, (f"k{number % 3}", f"v{number}"))
    log.flush()
    return fs, log_dir, log


def reopened(fs: SimFileSystem, config: LogConfig = SMALL) -> tuple[LogDir, Log]:
    """After the process is gone."""
    fs.kill()
    log_dir = open_log_dir(fs, config)
    return log_dir, log_dir.logs["t", 0]


def steps_until_idle(log_dir: LogDir, log: Log) -> int:
    """How many passes it takes; the cleaner must come to rest."""
    for passes in range(10):
        if not compact(log_dir, log):
            assert begin_compaction(log_dir, log) is None
            return passes
    raise AssertionError("the cleaner works in circles")


def committed(log: Log) -> dict[str, str | None]:
    """By key, the latest value that a consumer with read_committed sees; fetched in small pieces from the start."""
    latest: dict[str, str | None] = {}
    end = log.last_stable_offset(log.log_end_offset)
    offset = log.log_start_offset
    while offset < end:
        result = log.read(offset, 150, end_offset=end)
        aborted = {
            (t.producer_id, t.first_offset, t.last_offset) for t in log.aborted_transactions(offset, result.next_offset)
        }
        for position, header in iter_headers(result.records):
            is_aborted = header.is_transactional and any(
                header.producer_id == producer and first <= header.base_offset <= last
                for producer, first, last in aborted
            )
            if not header.is_control and not is_aborted:
                for record in decode_batch(result.records[position : position + header.size_bytes]):
                    latest[(record.key or b"").decode()] = None if record.value is None else record.value.decode()
        offset = result.next_offset
    return latest


# C01 (KAFKA-8764, KAFKA-9133, KAFKA-9826): gaps, deleted records beyond the first dirty offset, or a dirty offset in the
# growing segment made the cleaner go through the same log for ever.


def test_c01_records_deleted_beyond_the_first_dirty_offset() -> None:
    _, log_dir, log = filled(30)
    assert compact(log_dir, log)
    for number in range(30):
        put(log, (f"k{number % 3}", f"w{number}"))
    start = log_dir.cleaned_to(log) + 11
    log_dir.record_log_starts({log: start})
    log.advance_log_start_offset(start)
    assert steps_until_idle(log_dir, log) == 1
    assert log_dir.cleaned_to(log) == log.segment_base_offsets[-1]
    retain(log_dir, log)
    assert steps_until_idle(log_dir, log) == 0


def test_c01_gaps_around_the_first_dirty_offset() -> None:
    _, log_dir, log = filled(0)
    for base_offset in (0, 100, 101, 5000, 5001, 5002, 9000):
        builder = BatchBuilder()
        builder.append(NOW_MS, b"k", b"x" * 150)
        log.append_as_follower(builder.build(base_offset=base_offset))
    assert steps_until_idle(log_dir, log) == 1
    assert [offset for offset, _, _ in contents(log)] == [5002, 9000]


def test_c01_a_first_dirty_offset_in_the_growing_segment() -> None:
    _, log_dir, log = filled(30)
    log_dir.record_cleaned_to(log, 30, log.truncations)
    assert log.segment_base_offsets[-1] < 30
    assert steps_until_idle(log_dir, log) == 0
    for number in range(30):
        put(log, (f"k{number % 3}", f"w{number}"))
    assert steps_until_idle(log_dir, log) == 1


# C03 (KAFKA-7385, KAFKA-5490, KAFKA-8335): empty batches, kept for what they say of a producer, made the cleaner fail or
# lost the producer's last sequence.


@pytest.mark.parametrize("snapshots", [True, False])
def test_c03_a_producer_whose_records_are_all_compacted_away(snapshots: bool) -> None:
    fs, log_dir, log = filled(0)
    for sequence in range(5):
        put(log, ("k1", f"a{sequence}"), producer_id=1, producer_epoch=0, base_sequence=sequence)
    put(log, ("k1", "b"), producer_id=2, producer_epoch=0, base_sequence=0)
    for _ in range(3):
        put(log, ("other", "x" * 100))
        log.roll()
        assert compact(log_dir, log)
    assert next((key, value) for _, key, value in contents(log)) == ("k1", "b"), "no reader sees the empty batch"
    if not snapshots:
        fs.kill()
        for name in fs.listdir(log.directory):
            if name.endswith(".snapshot"):
                fs.unlink(f"{log.directory}/{name}")
    log_dir, log = reopened(fs)
    repeated = put(log, ("k1", "a4"), producer_id=1, producer_epoch=0, base_sequence=4)
    assert repeated == 4
    end = log.log_end_offset
    assert put(log, ("k1", "a5"), producer_id=1, producer_epoch=0, base_sequence=5) == end
    log.roll()
    assert compact(log_dir, log)


# C05 (KAFKA-8351): a transaction over several segments lost its marker when segments were compacted in small groups, or
# cleaning after a restart did not know what was aborted: aborted data came back.


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("map_bytes", [1 << 20, 24 * 4])
def test_c05_an_aborted_transaction_over_three_segments(restart: bool, map_bytes: int) -> None:
    fs, log_dir, log = filled(0)
    expected: dict[str, str | None] = {}
    sequences = {1: 0, 2: 0}

    def put_in_transaction(producer_id: int, key: str, value: str) -> None:
        sequence = sequences[producer_id]
        put(log, (key, value), is_transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        sequences[producer_id] += 1

    for round_ in range(3):
        for number in range(8):
            put(log, (f"k{number}", f"plain{round_}"))
            expected[f"k{number}"] = f"plain{round_}"
            put_in_transaction(1, f"k{number}", "aborted")
            put_in_transaction(2, f"c{number}", f"committed{round_}")
            expected[f"c{number}"] = f"committed{round_}"
        assert len(log.segment_base_offsets) > 3 * (round_ + 1)
        end_transaction(log, 1, commit=False)
        end_transaction(log, 2, commit=True)
        log.roll()
        log.flush()
        if restart:
            log_dir, log = reopened(fs)
        for pass_ in range(8):
            compact(log_dir, log, map_bytes=map_bytes, now_ms=NOW_MS + 2000 * (8 * round_ + pass_))
            assert committed(log) == expected
            put(log, ("tick", "x"))
            expected["tick"] = "x"
            log.roll()


# C07 (KAFKA-3894, KAFKA-3587): more keys than the offset map holds in one segment stopped the cleaner for good.


def test_c07_more_keys_in_one_segment_than_the_map_holds() -> None:
    keys, map_bytes = 500_000, 1 << 20
    log_dir, log = create_log(LogConfig(cleanup_policy=frozenset({"compact"})))
    for value in (b"old", b"new"):
        for first in range(0, keys, 50_000):
            builder = BatchBuilder()
            for number in range(first, first + 50_000):
                builder.append(NOW_MS, b"%d" % number, value)
            log.append_as_follower(builder.build(base_offset=log.log_end_offset))
    log.roll()
    passes = 0
    while (cleaning := begin_compaction(log_dir, log, map_bytes=map_bytes)) is not None:
        before = log_dir.cleaned_to(log)
        assert run_pass(log_dir, cleaning) is Step.DONE
        assert log_dir.cleaned_to(log) > before
        passes += 1
    assert passes > 10
    seen: dict[bytes | None, bytes | None] = {}
    offset = 0
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        for position, header in iter_headers(result.records):
            for record in decode_batch(result.records[position : position + header.size_bytes]):
                assert record.key not in seen
                seen[record.key] = record.value
        offset = result.next_offset
    assert seen == {b"%d" % number: b"new" for number in range(keys)}


# C09 (redpanda #5991, #5979): a segment was truncated while it was compacted, and the stale result replaced it; a
# truncation to an offset in a gap left by compaction failed.


@pytest.mark.parametrize("at", [Step.WORKED, Step.COMMIT])
def test_c09_a_truncation_while_the_log_is_compacted(at: Step) -> None:
    fs, log_dir, log = filled(30)
    assert compact(log_dir, log)
    gap = next(base for base in range(log_dir.cleaned_to(log)) if base not in [it[0] for it in contents(log)])
    for number in range(30):
        put(log, (f"k{number % 3}", f"w{number}"))
    log.flush()
    cleaning = begin_compaction(log_dir, log)
    assert cleaning is not None
    is_cut = False

    def before_step(last: Step | None) -> None:
        nonlocal is_cut
        if last is at and not is_cut:
            is_cut = True
            log.truncate_to(gap + 1)

    assert run_pass(log_dir, cleaning, before_step) is Step.VOID
    assert is_cut
    expected = contents(log)
    assert log.log_end_offset == gap + 1
    assert log_dir.cleaned_to(log) <= gap + 1
    assert not [name for name in fs.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]
    log_dir, log = reopened(fs)
    assert (log.log_end_offset, contents(log)) == (gap + 1, expected)
    assert put(log, ("k0", "more")) == gap + 1


def test_c09_a_truncation_after_which_the_same_segments_are_sealed_again() -> None:
    """They look as they were planned, and hold something else."""
    fs, log_dir, log = filled(20)
    log.roll()
    last = log.segment_base_offsets[-2]
    log.config = replace(SMALL, segment_bytes=100_000)
    cleaning = begin_compaction(log_dir, log)
    assert cleaning is not None

    def before_step(last_step: Step | None) -> None:
        if last_step is Step.COMMIT:
            log.truncate_to(last + 1)
            put(log, ("k9", "instead"))
            log.roll()
            log.flush()

    assert run_pass(log_dir, cleaning, before_step) is Step.VOID
    assert contents(log)[-1] == (last + 1, "k9", "instead")
    assert contents(reopened(fs)[1])[-1] == (last + 1, "k9", "instead")


# C11 (KAFKA-1755): records without a key came into compacted topics and stopped the cleaner.


def test_c11_a_compacted_topic_takes_no_records_without_a_key() -> None:
    _, log_dir, log = filled(3)
    with pytest.raises(InvalidRecordError, match="key"):
        put(log, ("k", "x"), (None, "y"))
    assert log.log_end_offset == 3
    log.config = replace(SMALL, cleanup_policy=frozenset({"delete"}))
    put(log, ("k", "x"), (None, "y"))
    put(log, (None, "z"))
    log.config = SMALL
    log.roll()
    assert compact(log_dir, log)
    assert [key for _, key, _ in contents(log)] == ["k0", "k1", "k2", "k"]
