"""A log on a disk that loses what was not synced, against a naive model: a list of batches.

The rules: what is appended is read back, in order and once; what was flushed survives every crash; what recovery keeps
is a prefix of what was written; producer state, epochs and transactions after any restart are those of the batches that
are there. Crashes come between operations and inside of them.
"""

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kraftlog.logstore import LogConfig, LogDir, format_log_dir
from kraftlog.logstore.cleaning import Step
from kraftlog.logstore.producer_state import ProducerStateManager
from kraftlog.logstore.replay import apply_to_producers
from kraftlog.proto.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceNumberError,
)
from kraftlog.proto.records import (
    BatchBuilder,
    BatchHeader,
    decode_batch,
    end_transaction_marker,
    iter_headers,
    read_control_type,
)
from kraftlog.testing.crash_points import random_states
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import begin_compaction, retain, run_pass

PATH = "/data"
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=120, segment_index_bytes=120)
COMPACTED = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
NOW_MS = 1_000_000


@dataclass(frozen=True)
class Written:
    """A batch as the model remembers it."""

    header: BatchHeader
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset


def build(values: list[int], timestamp: int, **producer: Any) -> bytes:
    builder = BatchBuilder(is_transactional=producer.pop("is_transactional", False))
    for value in values:
        builder.append(timestamp + value % 7, b"k%d" % value, b"x" * (value % 40))
    return builder.build(**producer)


def producer_view(producers: ProducerStateManager) -> dict[int, Any]:
    """All that must survive a restart; timestamps of single batches are not kept (see `snapshots`)."""
    return {
        entry.producer_id: (
            entry.producer_epoch,
            [(b.base_sequence, b.last_sequence, b.first_offset, b.last_offset) for b in entry.batches],
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for entry in producers.entries.values()
    }


def split(batches: bytes) -> list[Written]:
    return [Written(header, batches[at : at + header.size_bytes]) for at, header in iter_headers(batches)]


def replay(batches: list[Written]) -> ProducerStateManager:
    producers = ProducerStateManager()
    for batch in batches:
        apply_to_producers(producers, batch.header, batch.base_offset, batch.data)
    return producers


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fs = SimFileSystem()
        self.batches: list[Written] = []  # all that were written and not cut off
        self.stored: list[Written] = []  # what compaction has left of them
        self.is_compacted = False
        self.pasts: list[list[Written]] = []  # what else may be left of the batches before `past_end`
        self.past_end = 0
        self.end = 0
        self.safe = 0  # nothing below may be lost
        self.start = 0  # nothing below may come back
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        format_log_dir(PATH, self.fs, cluster_id="c", node_id=1, directory_id="d")
        self.log_dir = self.open_log_dir()
        self.log = self.log_dir.create_log("t", 0, config=CONFIG, now_ms=NOW_MS)

    def open_log_dir(self) -> LogDir:
        return LogDir.open(PATH, fs=self.fs, node_id=1, cluster_id="c", now_ms=NOW_MS, config=CONFIG)

    # What happens to a log.

    @rule(values=st.lists(st.integers(0, 200), min_size=1, max_size=4), timestamp=st.integers(0, 1000))
    def append(self, values: list[int], timestamp: int) -> None:
        self.append_bytes(build(values, timestamp))

    @rule(count=st.integers(2, 15), size=st.integers(1, 3))
    def append_many(self, count: int, size: int) -> None:
        """Enough for several segments and index entries."""
        for number in range(count):
            self.append_bytes(build([number] * size, 10 * number))

    @rule(producer=st.integers(1, 2), count=st.integers(1, 3), transactional=st.booleans())
    def append_idempotent(self, producer: int, count: int, transactional: bool) -> None:
        state = self.log.producers.entries.get(producer)
        epoch, sequence = (state.producer_epoch, state.last_sequence + 1) if state else (0, 0)
        transactional |= state is not None and state.transaction_first_offset is not None
        data = build(
            list(range(count)),
            500,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        self.append_bytes(data)

    @rule(producer=st.integers(1, 2), commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        state = self.log.producers.entries.get(producer)
        if state is not None and state.transaction_first_offset is not None:
            marker = end_transaction_marker(
                commit, 3, producer_id=producer, producer_epoch=state.producer_epoch, timestamp_ms=600
            )
            self.append_bytes(marker, allow_control=True)

    def append_bytes(self, data: bytes, allow_control: bool = False) -> None:
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW_MS, allow_control=allow_control)
        assert (info.first_offset, info.is_duplicate) == (self.end, False)
        stored = self.log.read(info.first_offset, 1, end_offset=self.log.log_end_offset).records
        self.remember(stored)

    def remember(self, stored: bytes) -> None:
        for batch in split(stored):
            self.batches.append(batch)
            self.stored.append(batch)
            self.end = batch.next_offset

    @rule(producer=st.integers(1, 2), back=st.integers(1, 5))
    def repeat_batch(self, producer: int, back: int) -> None:
        """A repeated batch gets its first offsets, from memory that no restart shortens."""
        state = self.log.producers.entries.get(producer)
        if state is None or len(state.batches) < back:
            return
        batch = state.batches[-back]
        data = build(
            list(range(batch.last_offset - batch.first_offset + 1)),
            500,
            producer_id=producer,
            producer_epoch=state.producer_epoch,
            base_sequence=batch.base_sequence,
        )
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW_MS)
        assert (info.first_offset, info.last_offset) == (batch.first_offset, batch.last_offset)
        assert info.is_duplicate

    @rule(producer=st.integers(1, 2), skip=st.integers(1, 9))
    def skip_sequences(self, producer: int, skip: int) -> None:
        state = self.log.producers.entries.get(producer)
        if state is not None:
            data = build(
                [1],
                1,
                producer_id=producer,
                producer_epoch=state.producer_epoch,
                base_sequence=state.last_sequence + 1 + skip,
            )
            with pytest.raises((OutOfOrderSequenceNumberError, InvalidTxnStateError)):
                self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=NOW_MS)

    @rule(producer=st.integers(1, 2))
    def new_instance(self, producer: int) -> None:
        """A higher producer epoch starts at sequence 0 and fences the old one."""
        state = self.log.producers.entries.get(producer)
        if state is None or state.transaction_first_offset is not None:
            return
        old = state.producer_epoch
        self.append_bytes(build([1], 1, producer_id=producer, producer_epoch=old + 1, base_sequence=0))
        late = build([1], 1, producer_id=producer, producer_epoch=old, base_sequence=0)
        with pytest.raises(InvalidProducerEpochError):
            self.log.append_as_leader(late, leader_epoch=self.epoch, now_ms=NOW_MS)

    @rule(gap=st.sampled_from([0, 1, 3, 1 << 31]), counts=st.lists(st.integers(1, 3), min_size=1, max_size=3))
    def follow(self, gap: int, counts: list[int]) -> None:
        """A follower takes offsets as they are, gaps (of compaction) too, also such as no segment can hold."""
        pieces, offset = [], self.end + gap
        for count in counts:
            pieces.append(build(list(range(count)), 700, base_offset=offset, leader_epoch=self.epoch))
            offset += count
        self.log.append_as_follower(b"".join(pieces))
        self.remember(b"".join(pieces))

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    @rule()
    def flush(self) -> None:
        self.safe = max(self.safe, self.log.flush())
        assert self.safe == self.end

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def checkpoint(self) -> None:
        self.log_dir.checkpoint()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        lowest = self.committed()
        self.truncate_to(lowest + int(share * (self.end - lowest)))

    @precondition(lambda self: self.batches)
    @rule(count=st.integers(1, 3))
    def truncate_last_batches(self, count: int) -> None:
        self.truncate_to(max(self.committed(), self.batches[-count:][0].base_offset))

    def committed(self) -> int:
        """What was compacted is."""
        return max(self.log.log_start_offset, self.log_dir.cleaned_to(self.log))

    def truncate_to(self, target: int) -> None:
        self.safe = min(self.safe, self.truncation_end(target))
        self.log.truncate_to(target)
        self.cut_model(target)

    def truncation_end(self, target: int) -> int:
        inside = [b.base_offset for b in self.stored if b.base_offset < target < b.next_offset]
        return max(inside[0], self.log.log_start_offset) if inside else min(target, self.end)

    def cut_model(self, target: int) -> None:
        self.end = self.truncation_end(target)
        self.forget_above(self.end)

    def forget_above(self, end: int) -> None:
        self.batches = [b for b in self.batches if b.next_offset <= end]
        self.stored = [b for b in self.stored if b.next_offset <= end]

    @rule(ahead=st.integers(0, 20))
    def start_over(self, ahead: int) -> None:
        self.log.truncate_fully_and_start_at(self.end + ahead)
        self.end = self.safe = self.start = self.end + ahead
        self.batches, self.stored, self.pasts = [], [], []

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = int(self.log.log_start_offset + share * (self.end - self.log.log_start_offset))
        self.log_dir.record_log_starts({self.log: start})
        self.start = max(start, self.start)
        self.log.advance_log_start_offset(start)

    @rule(retention_bytes=st.integers(0, 2500))
    def retain(self, retention_bytes: int) -> None:
        self.retain_as(replace(CONFIG, retention_ms=-1, retention_bytes=retention_bytes))
        assert self.log.size_bytes < retention_bytes + CONFIG.segment_bytes or len(self.log.segment_base_offsets) == 1

    @rule(oldest=st.integers(0, 1100))
    def retain_by_time(self, oldest: int) -> None:
        """Segments go up to the first one with a record that is as young as that."""
        self.retain_as(replace(CONFIG, retention_ms=NOW_MS - oldest))
        first, end = [*self.log.segment_base_offsets, self.end][:2]
        kept = [batch.header.max_timestamp for batch in self.stored if first < batch.next_offset <= end]
        assert max(kept, default=oldest) >= oldest

    def retain_as(self, config: LogConfig) -> None:
        self.log.config = config
        retain(self.log_dir, self.log, now_ms=NOW_MS)
        self.start = self.log.log_start_offset
        self.safe = max(self.safe, self.log.flushed_end_offset)

    @rule(rolls=st.booleans())
    def compact(self, rolls: bool) -> None:
        """What it leaves is checked here; what becomes of keys and tombstones, in `test_cleaner_model`."""
        self.log.config = COMPACTED
        if rolls:
            self.log.roll()
        cleaning = begin_compaction(self.log_dir, self.log, now_ms=NOW_MS)
        if cleaning is not None:
            self.is_compacted = True
            assert run_pass(self.log_dir, cleaning) is Step.DONE
            self.safe = self.end
            self.take_what_compaction_left()

    def take_what_compaction_left(self) -> None:
        """Some records of before, in their places: all latest ones of a key at least, but for aborted ones."""
        start, before = self.log.log_start_offset, self.stored
        self.stored = [b for b in before if b.next_offset <= start] + split(self.read_all())
        old, new = (
            {record.offset: (record.key, record.value) for b in batches for record in decode_batch(b.data)}
            for batches in (before, self.stored)
        )
        assert new.items() <= old.items()
        aborted = self.aborted_batches()
        latest = {
            record.key: record.offset
            for batch in before
            for record in decode_batch(batch.data)
            if not batch.header.is_control and batch.base_offset not in aborted
        }
        assert {offset for offset in latest.values() if offset >= start} <= new.keys()

    def aborted_batches(self) -> set[int]:
        """Base offsets of the data of transactions that were aborted."""
        found: set[int] = set()
        for producer, first, last in self.transactions_aborted():
            found |= {
                b.base_offset
                for b in self.batches
                if b.header.producer_id == producer and first <= b.base_offset < last
            }
        return found

    # What happens to the machine.

    @rule()
    def restart_cleanly(self) -> None:
        self.log_dir.close()
        self.reopen()
        assert self.log_dir.was_clean
        assert self.log.log_end_offset == self.end

    @rule()
    def kill(self) -> None:
        """Without a power loss not even unsynced data are lost."""
        self.fs.kill()
        self.reopen()
        assert self.log.log_end_offset == self.end

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        self.crash(seed)
        self.reopen()

    @rule(
        seed=st.integers(0, 1 << 32),
        after=st.integers(0, 30),
        operation=st.sampled_from(["kill", "restart_cleanly", "checkpoint", "flush", "roll", "new_leader"]),
    )
    def lose_power_inside(self, seed: int, after: int, operation: str) -> None:
        """Power goes out at one of the disk operations that a method makes."""
        self.interrupt(after, operation)
        self.crash(seed)
        self.reopen()

    @rule(
        seed=st.integers(0, 1 << 32),
        after=st.integers(0, 30),
        append=st.sampled_from(
            [
                ("append", [5], 5),
                ("append_many", 9, 2),
                ("append_idempotent", 1, 2, True),
                ("end_transaction", 1, False),
                ("follow", 2, [2, 1]),
                ("follow", 1 << 31, [1]),
            ]
        ),
    )
    def lose_power_inside_an_append(self, seed: int, after: int, append: tuple[Any, ...]) -> None:
        jump = self.end + append[1] if append[0] == "follow" else self.end
        self.interrupt(after, *append)
        self.crash(seed)
        self.reopen(jump)

    @rule(
        seed=st.integers(0, 1 << 32),
        after=st.integers(0, 30),
        operation=st.sampled_from(["truncate", "retain", "retain_by_time", "delete_records"]),
        share=st.floats(0, 1),
    )
    def lose_power_inside_a_deletion(self, seed: int, after: int, operation: str, share: float) -> None:
        """Power goes out at one of the disk operations that a method makes."""
        scale = {"retain": 2500, "retain_by_time": 1100}
        self.interrupt(after, operation, int(share * scale[operation]) if operation in scale else share)
        # Retention flushes, and what it has let readers know of the start holds.
        self.safe = max(self.safe, self.log.flushed_end_offset) if operation in scale else self.safe
        self.start = max(self.start, self.log.log_start_offset)
        self.crash(seed)
        self.reopen()

    @rule(seed=st.integers(0, 1 << 32), after=st.integers(0, 12), ahead=st.integers(0, 20))
    def lose_power_inside_a_new_beginning(self, seed: int, after: int, ahead: int) -> None:
        """Nothing of the old log has to be left, in no order; it opens, and starts over. A log that has begun anew knows
        nothing of the old one."""
        old_end, old = self.end, b"".join(batch.data for batch in self.stored)
        self.interrupt(after, "start_over", ahead)
        self.crash(seed)
        self.open_log()
        if self.log.log_start_offset > old_end:
            assert (self.log.log_end_offset, self.log.producers.entries) == (self.log.log_start_offset, {})
        before, self.end = self.end, self.log.log_end_offset
        assert self.read_all() in old
        self.end = max(before, self.end)
        self.start_over(ahead)

    @rule(seed=st.integers(0, 1 << 32), after=st.integers(0, 40))
    def lose_power_inside_a_compaction(self, seed: int, after: int) -> None:
        """Each group of segments that was to be replaced is there as it was, or compacted."""
        self.interrupt(after, "compact", True)
        self.crash(seed)
        self.reopen()
        self.take_what_compaction_left()

    def interrupt(self, after: int, operation: str, *arguments: Any) -> None:
        self.fs.stop_after(after)
        try:
            getattr(self, operation)(*arguments)
        except SimulatedPowerLoss:
            note(f"power went out inside {operation}")

    def crash(self, seed: int) -> None:
        """A third only ends the process. Half of the power losses keep what was written in order, half any of its sectors
        and names."""
        rng = random.Random(seed)
        match rng.randrange(3):
            case 0:
                self.fs.kill()
            case 1:
                self.fs.crash(rng)
            case _:
                syncs = self.fs.syncs
                _, self.fs = next(random_states(self.fs, rng))
                self.fs.syncs = syncs

    def open_log(self) -> None:
        self.log_dir = self.open_log_dir()
        self.log = self.log_dir.logs["t", 0]
        assert self.log.damage is None

    def reopen(self, jump: int = 0) -> None:
        """`jump`: an offset beyond the end to which the log was about to go on."""
        self.open_log()
        assert self.log.log_start_offset >= self.start, "deleted records came back"
        end = self.log.log_end_offset
        safe_records = max((b.next_offset for b in self.stored if b.next_offset <= self.safe), default=0)
        assert safe_records <= end, f"flushed up to {safe_records}, but only {end} are left"
        assert self.log.flushed_end_offset == end
        unfinished = self.log.read(self.end, 1 << 20, end_offset=end).records if end > self.end else b""
        self.remember(unfinished)  # an append that the power loss interrupted may have reached the disk
        assert end <= self.end or end == jump
        self.forget_above(end)
        self.forget_unreadable()
        self.end = self.safe = end

    def histories(self) -> list[list[Written]]:
        """The batches, and what they are if more of those before `past_end` is gone."""
        rest = [batch for batch in self.batches if batch.base_offset >= self.past_end]
        return [self.batches, *([*past, *rest] for past in self.pasts)]

    def forget_unreadable(self) -> None:
        """Of the batches below the log's start the crash may have taken some: what producers know tells which, now or, where
        a younger instance hides it, after a truncation.

        None that was flushed, and the log goes on after them with a segment that begins at the start or below.
        """
        start = self.log.log_start_offset
        known = producer_view(self.log.producers)
        matching: list[list[Written]] = []
        for batches in self.histories():
            safe = sum(batch.next_offset <= self.safe for batch in batches)
            bases = [base for base in self.log.segment_base_offsets if base <= start]
            ends = {sum(batch.base_offset < base for batch in batches) for base in bases}
            left = [batches[:n] + batches[end:] for end in sorted(ends) for n in range(safe, end + 1)]
            matching += [it for it in [batches, *left] if it not in matching and producer_view(replay(it)) == known]
        assert matching, f"producers are {known}, of batches that were flushed up to {self.safe}"
        self.choose(matching, start)

    def choose(self, matching: list[list[Written]], past_end: int) -> None:
        """The longest of these histories, which differ before `past_end`, and the others for later."""
        self.batches = max(matching, key=len)
        self.past_end = past_end
        others = [[batch for batch in it if batch.base_offset < past_end] for it in matching]
        own = [batch for batch in self.batches if batch.base_offset < past_end]
        self.pasts = [it for number, it in enumerate(others) if it != own and it not in others[:number]]

    # What must hold at any time.

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert 0 <= log.log_start_offset <= log.log_end_offset == self.end
        assert log.flushed_end_offset <= log.log_end_offset

    @invariant()
    def the_log_holds_the_batches_of_the_model(self) -> None:
        start = self.log.log_start_offset
        assert self.read_all() == b"".join(b.data for b in self.stored if b.next_offset > start)

    def read_all(self) -> bytes:
        offset, read = self.log.log_start_offset, b""
        while offset < self.end:
            result = self.log.read(offset, 300, end_offset=self.end)
            assert result.next_offset > offset
            read, offset = read + result.records, result.next_offset
        return read

    @rule(offset=st.floats(0, 1), end=st.floats(0, 1), max_bytes=st.integers(1, 600))
    def read_a_range(self, offset: float, end: float, max_bytes: int) -> None:
        start = self.log.log_start_offset
        first, stop = (start + round(share * (self.end - start)) for share in (offset, end))
        result = self.log.read(first, max_bytes, end_offset=stop)
        wanted = [b for b in self.stored if b.next_offset > first and b.base_offset < stop]
        got = [b for b in wanted if b.base_offset < result.next_offset] if result.records else []
        assert result.records == b"".join(b.data for b in got)
        if first < stop:
            assert bool(result.records) == bool(wanted)
            assert len(result.records) <= max_bytes or len(got) == 1
            assert result.next_offset > first

    @rule()
    def read_outside(self) -> None:
        for offset in (-1, self.log.log_start_offset - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, 100, end_offset=self.end)

    @rule(timestamp=st.integers(0, 1100))
    def look_up_a_time(self, timestamp: int) -> None:
        start = self.log.log_start_offset
        records = [r for b in self.stored for r in decode_batch(b.data) if r.offset >= start]
        at_or_after = [(r.offset, r.timestamp) for r in records if r.timestamp >= timestamp]
        found = self.log.offset_for_time(timestamp)
        assert (found[:2] if found else None) == (at_or_after[0] if at_or_after else None)
        largest = self.log.max_timestamp()
        assert (largest[1] if largest else None) == max((r.timestamp for r in records), default=None)

    @invariant()
    def producer_state_is_that_of_the_batches(self) -> None:
        """Restart = replay: kept, restored from a snapshot or rebuilt, it is the same."""
        known = producer_view(self.log.producers)
        matching = [it for it in self.histories() if producer_view(replay(it)) == known]
        if self.pasts and matching:
            self.choose(matching, self.past_end)
        expected = replay(self.batches)
        assert known == producer_view(expected)
        assert self.log.producers.first_unstable_offset(self.end) == expected.first_unstable_offset(self.end)

    def transactions_aborted(self) -> list[tuple[int, int, int]]:
        """(producer, first offset, offset of the marker); not those of which a power loss has left nothing but the marker, for the
        data were deleted before they were flushed."""
        opened: dict[int, int] = {}
        aborted = []
        for batch in self.batches:
            header = batch.header
            if header.is_control:
                first = opened.pop(header.producer_id, None)
                if first is not None and read_control_type(decode_batch(batch.data)[0]) == 0:
                    aborted.append((header.producer_id, first, header.base_offset))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return sorted(aborted, key=lambda t: t[1])

    @invariant()
    def aborted_transactions_are_listed(self) -> None:
        """After compaction at least those that have data."""
        listed = self.log.aborted_transactions(0, self.end)
        start = self.log.segment_base_offsets[0]
        found = [(t.producer_id, t.first_offset, t.last_offset) for t in listed if t.last_offset >= start]
        aborted = [t for t in self.transactions_aborted() if t[2] >= start]
        if self.is_compacted:
            assert set(found) <= set(aborted)
            there = [b.header for b in self.stored if b.next_offset > start]
            data = [header for header in there if not header.is_control and header.record_count]
            aborted = [t for t in aborted if any(h.producer_id == t[0] and t[1] <= h.base_offset < t[2] for h in data)]
            found = [t for t in found if t in aborted]
        assert found == aborted

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        start = self.log.log_start_offset
        for batch in self.stored:
            if batch.next_offset > start:
                assert self.log.epochs.epoch_for(max(start, batch.base_offset)) == batch.header.leader_epoch

    @precondition(lambda self: len(self.stored) > 1)
    @rule(epoch=st.integers(0, 20))
    def ask_for_an_epochs_end(self, epoch: int) -> None:
        found, end = self.log.end_offset_for_epoch(epoch)
        if epoch <= self.log.latest_epoch and found >= 0:
            start = self.log.log_start_offset
            held = [b for b in self.stored if b.next_offset > start]
            later = [max(b.base_offset, start) for b in held if b.header.leader_epoch > epoch]
            assert end <= min(later, default=self.end)
            assert all(b.next_offset <= end for b in held if b.header.leader_epoch <= found and b.base_offset < end)


PARTS = 8
SETTINGS = settings(stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery has much to say here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_log_behaves_like_a_list_of_batches_that_survives_crashes() -> None:
    """Nothing flushed is lost, nothing lost comes back, nothing is read twice or out of order."""
    run_state_machine_as_test(LogMachine, settings=SETTINGS)


@pytest.mark.deep
@pytest.mark.parametrize("part", range(PARTS))
def test_log_behaves_like_a_list_of_batches_at_length(part: int) -> None:
    """The same with as many examples as KRAFTLOG_EXAMPLES says, in parts: with all in one, hypothesis came to hold gigabytes."""
    more = settings(SETTINGS, stateful_step_count=60, max_examples=SETTINGS.max_examples // PARTS)
    run_state_machine_as_test(LogMachine, settings=more)
