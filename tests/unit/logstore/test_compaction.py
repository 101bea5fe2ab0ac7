"""What compaction leaves of one log, what it never touches, and what a crash in the middle leaves."""

import os
import random
from dataclasses import replace

import pytest

from kraftlog.logstore import Log, LogConfig, LogDir
from kraftlog.logstore.cleaning import CleanerManager, Dirtiness, Step, look_for_dirt
from kraftlog.logstore.cleaning.transactions import CleanedTransactions
from kraftlog.logstore.layout import CLEANED_FILE_SUFFIX, CLEANER_OFFSET_FILE, SWAP_FILE_SUFFIX
from kraftlog.logstore.observer import CleanerPass, SilentObserver
from kraftlog.logstore.producer_state import AbortedTransaction
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import (
    BatchBuilder,
    BatchHeader,
    CompressionType,
    ControlType,
    Record,
    TimestampType,
    decode_batch,
    end_transaction_marker,
    iter_headers,
    read_header,
)
from kraftlog.proto.records.compaction import OffsetMap, emptied, is_placeholder, placeholder, with_delete_horizon
from kraftlog.testing.crash_points import RecordingFileSystem, legal_states
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import (
    CLUSTER_ID,
    DATA,
    NOW_MS,
    SIP_KEY,
    begin_compaction,
    compact,
    create_log,
    open_log_dir,
    reopen,
    retain,
    run_pass,
)

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=400, index_interval_bytes=100, delete_retention_ms=1000
)
DIRECTORY = f"{DATA}/t-0"

Pair = tuple[str | None, str | None]


def build(
    *pairs: Pair, codec: CompressionType = CompressionType.NONE, timestamp: int = NOW_MS, **more: object
) -> bytes:
    builder = BatchBuilder(compression_type=codec, is_transactional=bool(more.pop("is_transactional", False)))
    for number, (key, value) in enumerate(pairs):
        builder.append(
            timestamp + number, None if key is None else key.encode(), None if value is None else value.encode()
        )
    return builder.build(**more)  # type: ignore[arg-type]


def put(log: Log, *pairs: Pair, now_ms: int = NOW_MS, **more: object) -> int:
    """One batch; its first offset."""
    return log.append_as_leader(build(*pairs, **more), leader_epoch=0, now_ms=now_ms).first_offset  # type: ignore[arg-type]


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> None:
    marker = end_transaction_marker(commit, 0, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)


def batches(log: Log) -> list[tuple[BatchHeader, bytes]]:
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        for position, header in iter_headers(result.records):
            found.append((header, result.records[position : position + header.size_bytes]))
        offset = result.next_offset
    return found


def records(log: Log) -> list[Record]:
    return [record for header, data in batches(log) if not header.is_control for record in decode_batch(data)]


def contents(log: Log) -> list[tuple[int, str, str | None]]:
    return [(r.offset, (r.key or b"").decode(), None if r.value is None else r.value.decode()) for r in records(log)]


def markers(log: Log) -> list[int]:
    return [header.base_offset for header, _ in batches(log) if header.is_control]


def names(fs: SimFileSystem | RecordingFileSystem) -> list[str]:
    return fs.listdir(DIRECTORY)


class TestRecords:
    def test_the_latest_of_each_key_stays_where_it_was(self) -> None:
        log_dir, log = create_log(COMPACT)
        for number in range(20):
            put(log, (f"k{number % 3}", f"v{number}"))
        log.roll()
        assert compact(log_dir, log)
        assert contents(log) == [(17, "k2", "v17"), (18, "k0", "v18"), (19, "k1", "v19")]
        assert (log.log_start_offset, log.log_end_offset) == (0, 20)

    def test_what_still_grows_is_not_touched(self) -> None:
        log_dir, log = create_log(COMPACT)
        for number in range(20):
            put(log, ("k", f"v{number}"))
        active = log.segment_base_offsets[-1]
        assert compact(log_dir, log)
        assert [offset for offset, _, _ in contents(log)] == [active - 1, *range(active, 20)]

    @pytest.mark.parametrize("codec", list(CompressionType))
    def test_a_batch_that_loses_records_keeps_its_range_codec_and_times(self, codec: CompressionType) -> None:
        log_dir, log = create_log(replace(COMPACT, segment_bytes=100_000))
        put(log, ("a", "1" * 50), ("b", "2" * 50), ("a", "3" * 50), ("c", "4" * 50), codec=codec)
        put(log, ("c", "5"))
        log.roll()
        assert compact(log_dir, log)
        header, data = batches(log)[0]
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 2)
        assert header.compression_type is codec
        assert [(r.offset, r.key, r.timestamp) for r in decode_batch(data)] == [
            (1, b"b", NOW_MS + 1),
            (2, b"a", NOW_MS + 2),
        ]
        assert header.max_timestamp == NOW_MS + 2

    def test_a_batch_that_loses_nothing_stays_byte_for_byte(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "1"), ("b", "2"), codec=CompressionType.GZIP)
        put(log, ("c", "1"), ("c", "2"))
        before = batches(log)[0]
        log.roll()
        assert compact(log_dir, log)
        assert batches(log)[0] == before

    def test_a_placeholder_claims_no_epoch_that_the_log_does_not_know_there(self) -> None:
        """After deleted records that a power loss took, and an append that was cut off again."""
        fs = SimFileSystem()
        log_dir, log = create_log(COMPACT, fs)
        put(log, ("a", "1"), ("b", "1"))
        log_dir.record_log_starts({log: 2})
        log.advance_log_start_offset(2)
        fs.forget_unsynced()
        log_dir = open_log_dir(fs, COMPACT)
        log = log_dir.logs["t", 0]
        log.append_as_follower(build(("a", "3"), base_offset=3, leader_epoch=0))
        log.truncate_to(3)
        assert compact(log_dir, log)
        found = batches(log)
        assert [is_placeholder(header) for header, _ in found] == [True]
        for header, _ in found:
            assert log.epochs.epoch_for(header.base_offset) == header.leader_epoch

    def test_a_log_without_dirt_is_not_rewritten(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "1"))
        put(log, ("b", "1"))
        log.roll()
        cleaning = begin_compaction(log_dir, log)
        assert cleaning is not None
        steps: list[Step | None] = []
        assert run_pass(log_dir, cleaning, steps.append) is Step.DONE
        assert Step.COMMIT not in steps
        assert log_dir.cleaned_to(log) == 2
        assert begin_compaction(log_dir, log) is None

    def test_small_segments_become_one_of_at_most_the_configured_size(self) -> None:
        log_dir, log = create_log(COMPACT)
        for number in range(60):
            put(log, (f"k{number % 4}", f"v{number}" * 5))
        count = log.segment_count
        assert compact(log_dir, log)
        put(log, ("k0", "again"))
        log.roll()
        assert compact(log_dir, log)  # the first pass groups by the sizes before it
        assert log.segment_count < count / 2
        assert all(segment.size_bytes <= 400 for segment in log._segments)

    def test_times_are_found_after_compaction(self) -> None:
        log_dir, log = create_log(COMPACT)
        for number in range(20):
            put(log, (f"k{number % 3}", "v"), timestamp=NOW_MS + 100 * number)
        log.roll()
        assert compact(log_dir, log)
        assert log.offset_for_time(NOW_MS) == (17, NOW_MS + 1700, 0)
        assert log.offset_for_time(NOW_MS + 1750) == (18, NOW_MS + 1800, 0)
        assert log.max_timestamp() == (19, NOW_MS + 1900, 0)

    def test_the_largest_timestamp_may_have_been_of_a_record_that_is_gone(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "1"), timestamp=NOW_MS + 500, producer_id=1, producer_epoch=0, base_sequence=0)
        put(log, ("a", "2"), timestamp=NOW_MS)
        log.roll()
        assert compact(log_dir, log)
        assert [header.record_count for header, _ in batches(log)] == [0, 1]
        assert log.max_timestamp() == (1, NOW_MS, 0)

    def test_the_largest_timestamp_where_the_log_starts_inside_of_a_batch(self) -> None:
        """Neither that of a deleted record counts, nor that of a batch which lost its records."""
        log_dir, log = create_log(COMPACT)
        builder = BatchBuilder()
        builder.append(NOW_MS + 900, b"a", b"1")
        builder.append(NOW_MS, b"b", b"1")
        log.append_as_leader(builder.build(), leader_epoch=0, now_ms=NOW_MS)
        put(log, ("c", "1"), timestamp=NOW_MS + 500, producer_id=1, producer_epoch=0, base_sequence=0)
        put(log, ("c", "2"), timestamp=NOW_MS + 100)
        log.roll()
        log_dir.record_log_starts({log: 1})
        log.advance_log_start_offset(1)
        assert compact(log_dir, log)
        assert log.max_timestamp() == (3, NOW_MS + 100, 0)

    def test_keys_beyond_the_maps_end_wait_for_the_next_pass(self) -> None:
        log_dir, log = create_log(replace(COMPACT, segment_bytes=100_000))
        put(log, *[(f"k{number}", "old") for number in range(10)])
        put(log, *[(f"k{number}", "new") for number in range(10)])
        log.roll()
        for _ in range(20):
            if not compact(log_dir, log, map_bytes=24 * 5):
                break
        assert log_dir.cleaned_to(log) == 20
        assert contents(log) == [(10 + number, f"k{number}", "new") for number in range(10)]


class TestTombstones:
    def test_one_stays_for_delete_retention_ms_after_the_first_pass(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "1"))
        put(log, ("a", None))
        log.roll()
        assert compact(log_dir, log, now_ms=NOW_MS)
        assert contents(log) == [(1, "a", None)]
        header, _ = batches(log)[0]
        assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + 1000)
        for now_ms, expected in ((NOW_MS + 999, [(1, "a", None)]), (NOW_MS + 1000, [])):
            put(log, ("b", "x"))
            log.roll()
            assert compact(log_dir, log, now_ms=now_ms)
            assert [it for it in contents(log) if it[1] == "a"] == expected
            assert records(log)[0].timestamp == NOW_MS

    def test_one_that_the_map_did_not_reach_gets_no_horizon_yet(self) -> None:
        """Else it could go before a reader that saw the old value came by."""
        log_dir, log = create_log(replace(COMPACT, segment_bytes=100_000))
        put(log, ("a", "1"), ("b", "1"), ("c", None))
        log.roll()
        assert compact(log_dir, log, map_bytes=24 * 3)  # two keys
        assert log_dir.cleaned_to(log) == 2
        assert not batches(log)[0][0].has_delete_horizon

    def test_a_horizon_of_a_batch_with_one_time_for_all_records(self) -> None:
        log_dir, log = create_log(replace(COMPACT, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
        put(log, ("a", None), ("b", "1"))
        log.roll()
        assert compact(log_dir, log)
        header, data = batches(log)[0]
        assert header.has_delete_horizon
        assert [record.timestamp for record in decode_batch(data)] == [NOW_MS, NOW_MS]


class TestTransactions:
    def test_aborted_data_go_at_once_and_their_markers_after_them(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "kept"))
        put(log, ("a", "aborted"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        end_transaction(log, 1, commit=False)
        for sequence in range(1, 6):  # the batch need not be remembered any more
            put(log, (f"b{sequence}", "x"), producer_id=1, producer_epoch=0, base_sequence=sequence)
        log.roll()
        assert compact(log_dir, log)
        assert contents(log) == [(0, "a", "kept"), *((offset, f"b{offset - 2}", "x") for offset in range(3, 8))]
        assert (markers(log), len(log.aborted_transactions(0, 4))) == ([2], 1)
        for now_ms, left in ((NOW_MS, [2]), (NOW_MS + 1000, [])):  # first it gets its horizon, then it goes
            put(log, ("c", "x"))
            log.roll()
            assert compact(log_dir, log, now_ms=now_ms)
            assert markers(log) == left
            assert log.aborted_transactions(0, 4) == []

    @pytest.mark.parametrize("is_snapshot_lost", [False, True])
    def test_a_marker_stays_where_a_snapshot_says_that_its_transaction_is_open(self, is_snapshot_lost: bool) -> None:
        """Loading may begin with that snapshot; without the marker the last stable offset would stay there for ever."""
        fs = SimFileSystem()
        config = replace(COMPACT, segment_bytes=1000)
        log_dir, log = create_log(config, fs)
        put(log, ("a", "1"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        put(log, ("large", "x" * 700))
        log.roll()
        base = log.log_end_offset
        end_transaction(log, 1, commit=True)
        put(log, ("a", "2"))
        for sequence in range(1, 6):  # the batch of the transaction need not be remembered any more
            put(log, (f"b{sequence}", "x"), producer_id=1, producer_epoch=0, base_sequence=sequence)
        if is_snapshot_lost:
            fs.put(f"{DIRECTORY}/{base:020d}.snapshot", b"damaged")
        for now_ms in (NOW_MS, NOW_MS, NOW_MS + 1000):
            put(log, ("c", "x"))
            log.roll()
            assert compact(log_dir, log, now_ms=now_ms)
        assert log.segment_base_offsets[:2] == [0, base]
        assert (0, "a", "1") not in contents(log)
        log_dir.checkpoint()
        if not is_snapshot_lost:
            fs.put(f"{DIRECTORY}/{log.log_end_offset:020d}.snapshot", b"damaged")
        log = reopen(fs, config)
        assert log.producers.open_transactions() == {}
        assert markers(log) == [base]

    def test_a_marker_stays_as_long_as_the_transaction_has_data(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "x"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        end_transaction(log, 1, commit=True)
        for _ in range(3):
            put(log, ("c", "x"))
            log.roll()
            assert compact(log_dir, log, now_ms=NOW_MS + 5000)
        assert markers(log) == [1]

    def test_transactions_of_a_segment_in_which_the_map_was_full_are_known_whole(self) -> None:
        """The aborted data there lie beyond the map's end: they, or at least their marker, must stay."""
        log_dir, log = create_log(replace(COMPACT, segment_bytes=100_000))
        put(log, *[(f"k{number}", "x") for number in range(10)])
        put(log, ("z", "aborted"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        end_transaction(log, 1, commit=False)
        log.roll()
        for _ in range(4):
            compact(log_dir, log, map_bytes=24 * 4, now_ms=NOW_MS + 5000)
            aborted = log.aborted_transactions(0, log.log_end_offset)
            assert "aborted" not in [value for _, _, value in contents(log)] or aborted

    def test_an_open_transaction_holds_everything_from_it_on_back(self) -> None:
        log_dir, log = create_log(COMPACT)
        put(log, ("a", "1"))
        log.roll()
        put(log, ("b", "1"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        put(log, ("a", "2"))
        log.roll()
        cleaning = begin_compaction(log_dir, log)
        assert cleaning is not None
        assert run_pass(log_dir, cleaning) is Step.DONE
        assert cleaning.end_offset == 1

    def test_which_batches_may_go(self) -> None:
        aborted = AbortedTransaction(producer_id=1, first_offset=5, last_offset=9, last_stable_offset=5)
        transactions = CleanedTransactions([aborted])

        def header(offset: int, producer_id: int = 1) -> BatchHeader:
            attributes = 16  # transactional
            return BatchHeader(offset, 49, 0, 2, 0, attributes, 0, 0, 0, producer_id, 0, 0, 1)

        assert not transactions.is_aborted(header(3))
        assert transactions.end(header(4), ControlType.COMMIT) == (False, None)
        assert transactions.is_aborted(header(5))
        assert not transactions.is_aborted(header(6, producer_id=2))
        assert transactions.end(header(9), ControlType.ABORT) == (False, aborted)
        assert transactions.end(header(10), ControlType.ABORT) == (True, None)


class TestProducers:
    def test_the_last_batches_of_a_producer_stay_without_records(self) -> None:
        """All that a producer may repeat, because it had no answer when the node went down (seed 138)."""
        fs = SimFileSystem()
        log_dir, log = create_log(COMPACT, fs)
        for sequence in range(0, 12, 2):
            put(log, ("a", "1"), ("a", "2"), producer_id=7, producer_epoch=3, base_sequence=sequence)
        put(log, ("a", "3"))
        log.roll()
        before = log.producers.entries[7]
        assert compact(log_dir, log)
        kept = [(h.record_count, h.producer_id, h.base_sequence, h.last_sequence) for h, _ in batches(log)[:-1]]
        assert kept == [(0, 7, sequence, sequence + 1) for sequence in range(2, 12, 2)]
        self._remove_snapshots(fs)
        entry = reopen(fs, COMPACT).producers.entries[7]
        assert (entry.producer_epoch, entry.last_sequence) == (3, 11)
        assert [(b.base_sequence, b.first_offset, b.last_offset) for b in entry.batches] == [
            (b.base_sequence, b.first_offset, b.last_offset) for b in before.batches
        ]

    @pytest.mark.parametrize("is_busy", [False, True])
    def test_they_go_when_the_producer_has_written_others_later(self, is_busy: bool) -> None:
        """Also of one that never stops, whose last batches of all are in the growing segment."""
        log_dir, log = create_log(COMPACT)
        for number in range(20):
            put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=2 * number)
            put(log, ("a", "2"), producer_id=7, producer_epoch=0, base_sequence=2 * number + 1)
            log.roll()
            if is_busy:
                for further in range(6):
                    put(log, ("b", "1"), producer_id=8, producer_epoch=0, base_sequence=6 * number + further)
            assert compact(log_dir, log)
        compacted = [header for header, _ in batches(log) if header.base_offset < log.segment_base_offsets[-1]]
        assert [header.producer_id for header in compacted].count(7) == 5
        assert [header.producer_id for header in compacted].count(8) == 5 * is_busy

    def test_all_stay_where_it_is_not_known_which_were_the_last(self) -> None:
        """The snapshot at the end of what is compacted is damaged."""
        fs = SimFileSystem()
        log_dir, log = create_log(COMPACT, fs)
        for sequence in range(7):
            put(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=sequence)
        put(log, ("a", "2"))
        log.roll()
        fs.put(f"{DIRECTORY}/{log.log_end_offset:020d}.snapshot", b"damaged")
        assert compact(log_dir, log)
        assert [header.base_offset for header, _ in batches(log)] == list(range(8))

    @pytest.mark.parametrize("uncommitted", [1, 5, 6])
    def test_its_last_committed_batch_stays_though_it_has_written_more(self, uncommitted: int) -> None:
        """What is not committed may be cut off again, and only five batches are remembered."""
        fs = SimFileSystem()
        log_dir, log = create_log(COMPACT, fs)
        for sequence in range(3):
            put(log, ("a", "x"), producer_id=7, producer_epoch=0, base_sequence=sequence)
        put(log, ("a", "y"))
        log.roll()
        committed = log.log_end_offset
        for number in range(uncommitted):
            put(log, ("a", "x"), producer_id=7, producer_epoch=0, base_sequence=3 + number)
        assert compact(log_dir, log, stable_offset=committed)
        log.truncate_to(committed)
        self._remove_snapshots(fs)
        entry = reopen(fs, COMPACT).producers.entries[7]
        assert (entry.producer_epoch, [b.base_sequence for b in entry.batches]) == (0, [0, 1, 2])

    @staticmethod
    def _remove_snapshots(fs: SimFileSystem) -> None:
        for name in names(fs):
            if name.endswith(".snapshot"):
                fs.unlink(f"{DIRECTORY}/{name}")


class TestWhatIsCompacted:
    def look(
        self, log: Log, *, cleaned_to: int = 0, stable: int | None = None, now_ms: int = NOW_MS
    ) -> Dirtiness | None:
        stable_offset = log.log_end_offset if stable is None else stable
        return look_for_dirt(
            log, cleaned_to=cleaned_to, stable_offset=stable_offset, truncations=log.truncations, now_ms=now_ms
        )

    def filled(self, config: LogConfig = COMPACT, count: int = 20, step_ms: int = 100) -> Log:
        _, log = create_log(config)
        for number in range(count):
            put(log, (f"k{number}", "x" * 20), timestamp=NOW_MS + step_ms * number)
        return log

    def test_the_ratio_is_that_of_bytes(self) -> None:
        log = self.filled()
        bases = log.segment_base_offsets
        found = self.look(log, cleaned_to=bases[1])
        assert found is not None
        sealed = [segment.size_bytes for segment in log._segments[:-1]]
        assert (found.clean_bytes, found.dirty_bytes) == (sealed[0], sum(sealed[1:]))
        assert found.ratio == pytest.approx(sum(sealed[1:]) / sum(sealed))

    def test_young_records_wait(self) -> None:
        log = self.filled(replace(COMPACT, min_compaction_lag_ms=1000))
        now_ms = NOW_MS + 2000  # records 0 to 10 are old enough
        found = self.look(log, now_ms=now_ms)
        assert found is not None
        ends = [end for _, end in found.segments]
        assert ends == [base for base in log.segment_base_offsets[1:] if base <= 11]

    def test_old_records_are_overdue(self) -> None:
        log = self.filled(replace(COMPACT, max_compaction_lag_ms=5000))
        for now_ms, overdue in ((NOW_MS + 5000, False), (NOW_MS + 5001, True)):
            found = self.look(log, now_ms=now_ms)
            assert found is not None
            assert found.is_overdue is overdue

    def test_a_growing_segment_is_sealed_when_its_records_are_overdue(self) -> None:
        log = self.filled(replace(COMPACT, max_compaction_lag_ms=5000), count=1)
        put(log, ("b", "x"), now_ms=NOW_MS + 5001, timestamp=NOW_MS + 5001)
        assert log.segment_base_offsets == [0, 1]

    def test_nothing_beyond_what_is_committed(self) -> None:
        log = self.filled()
        bases = log.segment_base_offsets
        assert self.look(log, stable=bases[1] - 1) is None
        found = self.look(log, stable=bases[1])
        assert found is not None
        assert [end for _, end in found.segments] == [bases[1]]

    @pytest.mark.parametrize("cleaned_to", [-1, 1, 99])
    def test_a_checkpoint_outside_of_the_log_means_its_start(self, cleaned_to: int) -> None:
        log = self.filled()
        log.advance_log_start_offset(2)
        found = self.look(log, cleaned_to=cleaned_to)
        assert found is not None
        assert found.first_dirty_offset == 2

    def test_the_dirtiest_log_is_first_and_none_twice(self) -> None:
        manager = CleanerManager()
        config = replace(COMPACT, min_cleanable_dirty_ratio=0.5)
        logs = [self.filled(config) for _ in range(4)]
        found = [
            (log, Dirtiness([], 0, 0, clean, 100, is_overdue))
            for log, clean, is_overdue in zip(logs, (50, 10, 1000, 1000), (False, False, True, False), strict=True)
        ]
        order = []
        while (chosen := manager.choose(found)) is not None:
            order.append(chosen[0])
        assert order == [logs[1], logs[0], logs[2]]
        manager.release(logs[0])
        assert manager.choose(found) == found[0]

    def test_an_uncleanable_log_is_left_alone(self) -> None:
        manager, log = CleanerManager(), self.filled()
        manager.mark_uncleanable(log, "why", NOW_MS)
        assert manager.choose([(log, Dirtiness([], 0, 0, 0, 100, True))]) is None
        manager.forget_all_but([])
        assert manager.uncleanable == {}


class TestChangesMeanwhile:
    def filled(self, config: LogConfig = COMPACT, fs: SimFileSystem | None = None) -> tuple[LogDir, Log]:
        log_dir, log = create_log(config, fs)
        for number in range(20):
            put(log, (f"k{number % 3}", f"v{number}"))
        log.flush()
        return log_dir, log

    def test_a_truncation_below_what_was_compacted_lowers_the_checkpoint(self) -> None:
        """As after an unclean election: what is appended instead is dirty. The checkpoint is lowered first."""
        fs = SimFileSystem()
        log_dir, log = self.filled(fs=fs)
        assert compact(log_dir, log)
        sealed = log_dir.cleaned_to(log)
        log.truncate_to(sealed - 1)
        assert log_dir.cleaned_to(log) <= sealed - 1
        fs.kill()
        log_dir = open_log_dir(fs, COMPACT)
        assert log_dir.cleaned_to(log_dir.logs["t", 0]) <= sealed - 1

    def test_an_end_that_a_truncation_overtook_is_not_recorded(self) -> None:
        log_dir, log = self.filled()
        truncations = log.truncations
        log.truncate_to(15)
        log_dir.record_cleaned_to(log, 18, truncations)
        assert log_dir.cleaned_to(log) == 0

    def test_a_log_made_anew_begins_dirty(self) -> None:
        fs = SimFileSystem()
        log_dir, log = self.filled(fs=fs)
        assert compact(log_dir, log)
        log_dir.delete_log("t", 0)
        log = log_dir.create_log("t", 0, config=COMPACT, now_ms=NOW_MS)
        assert log_dir.cleaned_to(log) == 0
        assert b"t 0 " not in fs.contents(f"{DATA}/{CLEANER_OFFSET_FILE}")

    @pytest.mark.parametrize("after", [Step.WORKED, Step.COMMIT])
    def test_retention_that_comes_first_makes_the_pass_void(self, after: Step) -> None:
        log_dir, log = self.filled(replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"})))
        first = log._segments[0].size_bytes
        log.config = replace(log.config, retention_bytes=log.size_bytes - first, retention_ms=-1)
        cleaning = begin_compaction(log_dir, log)
        assert cleaning is not None

        def before_step(last: Step | None) -> None:
            if last is after:
                retain(log_dir, log)

        assert run_pass(log_dir, cleaning, before_step) is Step.VOID
        assert log_dir.cleaned_to(log) == 0
        assert [offset for offset, _, _ in contents(log)] == list(range(log.log_start_offset, 20))

    def test_compact_and_delete_do_both(self) -> None:
        fs = SimFileSystem()
        config = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=10_000)
        log_dir, log = self.filled(config, fs)
        put(log, ("k9", "young"), timestamp=NOW_MS + 20_000)
        log.roll()
        assert compact(log_dir, log)
        assert [value for _, _, value in contents(log)] == ["v17", "v18", "v19", "young"]
        put(log, ("k9", "younger"), timestamp=NOW_MS + 40_000)
        log.roll()
        assert retain(log_dir, log, now_ms=NOW_MS + 45_000) >= 1
        assert [value for _, _, value in contents(log)] == ["younger"]
        assert [value for _, _, value in contents(reopen(fs, config))] == ["younger"]

    def test_retention_of_a_segment_whose_swap_is_not_finished(self) -> None:
        fs = SimFileSystem()
        log_dir, log = self.filled(replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"})), fs)
        log.config = replace(log.config, segment_bytes=100_000, retention_bytes=0, retention_ms=-1)
        cleaning = begin_compaction(log_dir, log)
        assert cleaning is not None
        while cleaning.step() is not Step.COMMIT:
            pass
        assert cleaning.commit()
        assert retain(log_dir, log) >= 1
        cleaning.finish_commit()
        cleaning.close()
        start = log.log_start_offset
        assert {name[:20] for name in names(fs) if name[0] == "0" and not name.endswith(".snapshot")} == {
            f"{start:020d}"
        }
        assert reopen(fs, COMPACT).log_start_offset == start

    def test_a_reader_goes_on_over_a_segment_that_is_replaced(self) -> None:
        log_dir, log = self.filled()
        result = log.read(0, 100, end_offset=20)
        assert compact(log_dir, log)
        offsets = []
        offset = result.next_offset
        while offset < 20:
            result = log.read(offset, 1 << 20, end_offset=20)
            offsets += [
                r.offset
                for p, h in iter_headers(result.records)
                for r in decode_batch(result.records[p : p + h.size_bytes])
            ]
            offset = result.next_offset
        assert offsets == [offset for offset, _, _ in contents(log)]

    def test_damage_ends_the_pass_and_leaves_nothing(self) -> None:
        fs = SimFileSystem()
        log_dir, log = self.filled(fs=fs)
        fs.flip(f"{DIRECTORY}/{0:020d}.log", 80)
        with pytest.raises(CorruptRecordError, match="no valid batch at position 72"):
            compact(log_dir, log)
        assert not [name for name in names(fs) if name.endswith((CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX))]

    def test_the_observer_learns_what_a_pass_did(self) -> None:
        told: list[tuple[str, int, CleanerPass]] = []

        class Recorder(SilentObserver):
            def on_cleaner_pass(self, topic: str, partition: int, cleaner_pass: CleanerPass) -> None:
                told.append((topic, partition, cleaner_pass))

        fs = SimFileSystem()
        log_dir, log = self.filled(fs=fs)
        log_dir.close()
        fs.kill()
        log_dir = LogDir.open(
            DATA, fs=fs, node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS, config=COMPACT, observer=Recorder()
        )
        log = log_dir.logs["t", 0]
        sealed = log.segment_base_offsets[-1]
        sealed_bytes = sum(segment.size_bytes for segment in log._segments[:-1])
        assert compact(log_dir, log)
        ((topic, partition, done),) = told
        assert (topic, partition, done.is_complete) == ("t", 0, True)
        assert (done.read_records, done.kept_records) == (sealed, 3)
        assert done.read_bytes == 2 * sealed_bytes
        assert 0 < done.written_bytes < sealed_bytes


class TestCrashes:
    def run(self, fs: RecordingFileSystem) -> tuple[int, list[tuple[int, str, str | None]], int]:
        """(changes before the pass, records that readers of committed data must find, log end)"""
        log_dir, log = create_log(COMPACT, fs)  # type: ignore[arg-type]
        for number in range(9):
            put(log, (f"k{number % 3}", f"v{number}"))
        put(log, ("k1", "aborted"), is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
        for number in range(4):
            put(log, ("k2", "more"), (f"k{number}", "more"))
        end_transaction(log, 1, commit=False)
        for number in range(6):
            put(log, (f"k{number % 2}", f"w{number}"), producer_id=2, producer_epoch=0, base_sequence=number)
        log.roll()
        put(log, ("k9", "tail"))
        log.flush()
        log_dir.checkpoint()  # so that loading trusts the segment before the tail
        log.config = replace(COMPACT, segment_bytes=100_000)
        before = len(fs.trace.changes)
        assert compact(log_dir, log)
        left = contents(log)
        assert "aborted" not in [value for _, _, value in left]
        assert len(log.segment_base_offsets) == 2
        return before, left, log.log_end_offset

    def test_whatever_disk_a_power_loss_leaves_nothing_is_lost_and_nothing_comes_back(self) -> None:
        fs = RecordingFileSystem()
        before, left, end_offset = self.run(fs)
        rng, checked = random.Random(5), 0
        for number, disk in fs.trace.crash_points():
            if number < before:
                continue
            for name, state in legal_states(disk, rng, 6):
                log_dir = open_log_dir(state, COMPACT)
                log = log_dir.logs["t", 0]
                where = f"after change {number}, {name}"
                assert (log.damage, log.log_end_offset) == (None, end_offset), where
                found = contents(log)
                assert [it[0] for it in found] == sorted({it[0] for it in found}), where
                assert set(left) <= set(found), where
                assert [t.first_offset for t in log.aborted_transactions(0, end_offset)] == [9], where
                bases = log.segment_base_offsets
                assert bases == sorted(set(bases)), where
                assert not [n for n in state.listdir(DIRECTORY) if n.endswith((".cleaned", ".swap"))], where
                if log_dir.cleaned_to(log):
                    assert found == left, where
                compact(log_dir, log)
                assert contents(log) == left, where
                checked += 1
        assert checked > 300

    @pytest.mark.parametrize("index_end", [CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX])
    @pytest.mark.parametrize("renamed", [0, 1, 2])
    def test_a_swap_is_completed_when_the_log_is_loaded(self, index_end: str, renamed: int) -> None:
        """Its indexes may have Kafka's names or ours, and some may be in their place already."""
        fs = SimFileSystem()
        log_dir, log = create_log(COMPACT, fs)
        for number in range(20):
            put(log, (f"k{number % 3}", f"v{number}"))
        cleaning = begin_compaction(log_dir, log)
        assert cleaning is not None
        while cleaning.step() is not Step.COMMIT:
            pass
        assert cleaning.commit()
        expected = contents(log)
        suffixes = (".index", ".timeindex", ".txnindex")
        for suffix in suffixes:
            path = f"{DIRECTORY}/{0:020d}{suffix}"
            fs.rename(path + CLEANED_FILE_SUFFIX, path + ("" if suffix in suffixes[:renamed] else index_end))
        assert contents(reopen(fs, COMPACT)) == expected
        assert not [n for n in names(fs) if n.endswith((CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX, ".txnindex"))]

    def test_an_unfinished_pass_is_removed(self) -> None:
        fs = SimFileSystem()
        _, log = create_log(COMPACT, fs)
        put(log, ("a", "1"))
        log.flush()
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            fs.put(f"{DIRECTORY}/{0:020d}{suffix}{CLEANED_FILE_SUFFIX}", b"half")
        fs.put(f"{DIRECTORY}/{0:020d}.index{SWAP_FILE_SUFFIX}", b"half")
        assert contents(reopen(fs, COMPACT)) == [(0, "a", "1")]
        assert not [n for n in names(fs) if n.endswith((CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX))]


def test_a_segment_before_a_gap_that_none_can_hold_is_compacted() -> None:
    """What it ends with would not fit into its indexes if it reached up to the next segment."""
    fs = SimFileSystem()
    log_dir, log = create_log(COMPACT, fs)
    put(log, ("k1", "old"), ("k2", "kept"))
    put(log, ("k1", "new"), ("k2", "new"))
    far = 1 << 32
    log.append_as_follower(build(("k1", "newer"), ("k2", "newer"), base_offset=far))
    log.roll()
    for _ in range(2):
        assert compact(log_dir, log)
        put(log, ("k3", "more"))
        log.roll()
        assert [value for _, _, value in contents(log)][:2] == ["newer", "newer"]
    expected = contents(log)
    log.flush()
    for _ in range(2):
        log = reopen(fs, COMPACT)
        assert (log.damage, contents(log)) == (None, expected)


class TestBatches:
    """What `kraftlog.proto.records.compaction` makes besides filtered batches."""

    def test_an_emptied_batch_says_what_its_producer_did(self) -> None:
        data = build(
            ("a", "1"), ("b", "2"), codec=CompressionType.LZ4, producer_id=5, producer_epoch=2, base_sequence=8
        )
        header = read_header(emptied(read_header(data)))
        assert (header.record_count, header.size_bytes, header.last_sequence) == (0, 61, 9)
        assert decode_batch(emptied(read_header(data))) == []
        assert not is_placeholder(header)

    def test_a_placeholder_is_a_batch_of_nobody(self) -> None:
        header = read_header(placeholder(41, 3, NOW_MS))
        assert (header.base_offset, header.next_offset, header.leader_epoch) == (41, 42, 3)
        assert is_placeholder(header)
        assert decode_batch(placeholder(41, 3, NOW_MS)) == []

    def test_a_marker_gets_a_horizon_and_stays_the_same(self) -> None:
        marker = end_transaction_marker(True, 4, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
        cleaned = with_delete_horizon(marker, read_header(marker), OffsetMap(100, SIP_KEY), NOW_MS + 77)
        header = read_header(cleaned.data)
        assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW_MS + 77)
        assert decode_batch(cleaned.data) == decode_batch(marker)


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_memory_of_an_offset_map_comes_as_keys_do() -> None:
    """Filling it when it is made would hold up every thread of the node."""
    before = resident_bytes()
    offset_map = OffsetMap(256 << 20, SIP_KEY)
    assert offset_map.max_keys == int(((256 << 20) // 24) * 0.9)
    assert resident_bytes() - before < 32 << 20
    assert offset_map.table[:48] == bytes(48)
