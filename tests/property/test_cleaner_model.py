"""Compaction against a naive model: every record ever written, by offset, and what became of its transaction.

The rules: whoever reads committed records sees the latest one of every key, and nothing that was not written or was
aborted; a record goes only if a later committed one has its key, if it is a tombstone past its horizon, or if it has no
key; producers are known as before. They hold in the middle of a pass, when a pass is given up, and after any power loss.
"""

import logging
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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
from kraftlog.logstore.layout import RECOVERY_POINT_FILE
from kraftlog.logstore.producer_state import ProducerEntry
from kraftlog.proto.records import (
    BatchBuilder,
    CompressionType,
    ControlType,
    Record,
    decode_batch,
    end_transaction_marker,
    iter_headers,
    read_control_type,
)
from kraftlog.testing.crash_points import random_states
from kraftlog.testing.filesystem import SimFileSystem, SimulatedPowerLoss
from tests.unit.logstore.builders import begin_compaction, run_pass

PATH = "/data"
DELETE_RETENTION_MS = 1000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=120,
    delete_retention_ms=DELETE_RETENTION_MS,
)
WITHOUT_KEYS = replace(CONFIG, cleanup_policy=frozenset({"delete"}))
START_MS = 1_000_000
SLOT_BYTES = 24
KEYS = 15
"""More than most logs here have records of: else a later record hides what was wrongly dropped."""

Content = tuple[bytes | None, bytes | None, int]
"""(key, value, timestamp)"""


@dataclass
class Transaction:
    first_offset: int
    marker_offset: int | None = None
    is_committed: bool = False


@dataclass
class Producer:
    epoch: int = 0
    next_sequence: int = 0
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(base sequence, first offset, last offset) of the last five at most."""
    transaction: Transaction | None = None


def batches_of(entry: ProducerEntry) -> list[tuple[int, int, int]]:
    return [(batch.base_sequence, batch.first_offset, batch.last_offset) for batch in entry.batches]


@dataclass
class Written:
    content: Content
    transaction: Transaction | None = None

    @property
    def is_visible(self) -> bool:
        """To whoever reads committed records."""
        return self.transaction is None or self.transaction.is_committed


@dataclass
class Model:
    records: dict[int, Written] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)
    tombstones_seen: dict[int, int] = field(default_factory=dict)
    """Offset: when a pass met the tombstone first."""
    may_be_gone: set[int] = field(default_factory=set)


class CleanerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fs = SimFileSystem()
        self.model = Model()
        self.now_ms = START_MS
        self.high_watermark = 0
        """As the last pass was told: no truncation goes below."""
        self.number = 0
        format_log_dir(PATH, self.fs, cluster_id="c", node_id=1, directory_id="d")
        self.log_dir = self.open_log_dir()
        self.log = self.log_dir.create_log("t", 0, config=CONFIG, now_ms=self.now_ms)

    def open_log_dir(self) -> LogDir:
        return LogDir.open(PATH, fs=self.fs, node_id=1, cluster_id="c", now_ms=self.now_ms, config=CONFIG)

    # Writing. Whatever is written is flushed.

    def write(
        self,
        keys: list[int],
        *,
        codec: CompressionType = CompressionType.NONE,
        transaction: bool = False,
        **producer: Any,
    ) -> int:
        """The last offset. Key 0: none; every fifth value is a tombstone."""
        builder = BatchBuilder(compression_type=codec, is_transactional=transaction)
        contents: list[Content] = []
        for key in keys:
            self.number += 1
            value = None if key and self.number % 5 == 0 else b"%d" % self.number * (1 + self.number % 9)
            timestamp = self.now_ms + self.number % 7
            contents.append((b"k%d" % key if key else None, value, timestamp))
            builder.append(timestamp, contents[-1][0], value)
        self.log.config = CONFIG if all(keys) else WITHOUT_KEYS
        info = self.log.append_as_leader(builder.build(**producer), leader_epoch=0, now_ms=self.now_ms)
        self.log.config = CONFIG
        self.log.flush()
        state = self.model.producers.get(producer.get("producer_id", -1))
        if transaction and state is not None and state.transaction is None:
            state.transaction = Transaction(info.first_offset)
        for number, content in enumerate(contents):
            self.model.records[info.first_offset + number] = Written(
                content, state.transaction if transaction and state else None
            )
        return info.last_offset

    @rule(
        keys=st.lists(st.integers(1, KEYS), min_size=1, max_size=5),
        codec=st.sampled_from([CompressionType.NONE, CompressionType.LZ4, CompressionType.GZIP]),
    )
    def append(self, keys: list[int], codec: CompressionType) -> None:
        self.write(keys, codec=codec)

    @rule(keys=st.lists(st.integers(0, 3), min_size=1, max_size=3))
    def append_some_without_a_key(self, keys: list[int]) -> None:
        self.write(keys)

    @rule(count=st.integers(2, 12))
    def append_many(self, count: int) -> None:
        for number in range(count):
            self.write([1 + (self.number + number) % 6])

    @rule(
        producer_id=st.integers(1, 3),
        keys=st.lists(st.integers(1, KEYS), min_size=1, max_size=3),
        transactional=st.booleans(),
    )
    def append_of_producer(self, producer_id: int, keys: list[int], transactional: bool) -> None:
        state = self.model.producers.setdefault(producer_id, Producer())
        last_offset = self.write(
            keys,
            transaction=transactional or state.transaction is not None,
            producer_id=producer_id,
            producer_epoch=state.epoch,
            base_sequence=state.next_sequence,
        )
        batch = (state.next_sequence, last_offset - len(keys) + 1, last_offset)
        state.batches = [*state.batches[-4:], batch]
        state.next_sequence += len(keys)

    @rule(producer_id=st.integers(1, 3), commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        state = self.model.producers.get(producer_id)
        if state is None or state.transaction is None:
            return
        marker = end_transaction_marker(
            commit, 0, producer_id=producer_id, producer_epoch=state.epoch, timestamp_ms=self.now_ms
        )
        info = self.log.append_as_leader(marker, leader_epoch=0, now_ms=self.now_ms, allow_control=True)
        self.log.flush()
        state.transaction.marker_offset, state.transaction.is_committed = info.first_offset, commit
        state.transaction = None

    @rule(producer_id=st.integers(1, 3))
    def fence(self, producer_id: int) -> None:
        """An epoch that has only a marker so far: nothing else says that the producer was fenced."""
        state = self.model.producers.get(producer_id)
        if state is None or state.transaction is not None:
            return
        state.epoch, state.next_sequence, state.batches = state.epoch + 1, 0, []
        marker = end_transaction_marker(
            False, 0, producer_id=producer_id, producer_epoch=state.epoch, timestamp_ms=self.now_ms
        )
        self.log.append_as_leader(marker, leader_epoch=0, now_ms=self.now_ms, allow_control=True)
        self.log.flush()

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(ms=st.integers(1, DELETE_RETENTION_MS))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """As a deposed leader does, never below what was committed."""
        low = max(self.high_watermark, self.log.log_start_offset)
        self.log.truncate_to(low + int(share * (self.log.log_end_offset - low)))
        self.forget_from(self.log.log_end_offset)

    def forget_from(self, end: int) -> None:
        model = self.model
        model.records = {offset: written for offset, written in model.records.items() if offset < end}
        entries = self.log.producers.entries  # what a truncation makes of them is another model's business
        model.producers = {id_: state for id_, state in model.producers.items() if id_ in entries}
        transactions: dict[int, Transaction] = {}
        for written in model.records.values():
            transaction = written.transaction
            if transaction is not None and (transaction.marker_offset is None or transaction.marker_offset >= end):
                transaction.marker_offset, transaction.is_committed = None, False
                transactions[transaction.first_offset] = transaction
        for id_, state in model.producers.items():
            entry = entries[id_]
            state.epoch, state.next_sequence = entry.producer_epoch, entry.last_sequence + 1
            state.batches = batches_of(entry)
            first = entry.transaction_first_offset
            state.transaction = None if first is None else transactions[first]

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        low = self.log.log_start_offset
        start = low + int(share * (self.log.last_stable_offset(self.log.log_end_offset) - low))
        self.high_watermark = max(self.high_watermark, start)
        self.log_dir.record_log_starts({self.log: start})
        self.log.advance_log_start_offset(start)

    # Compaction.

    @rule(
        keys_in_map=st.sampled_from([1, 2, 3, 1000]),
        steps=st.sampled_from([1, 2, 3, 5, 1000]),
        committed=st.sampled_from([0.3, 0.7, 1]),
    )
    def compact(self, keys_in_map: int, steps: int, committed: float) -> None:
        """A pass, perhaps given up after some steps; that share of what was not committed is."""
        self.run_compaction(keys_in_map, steps=steps, committed=committed)

    @rule(
        keys_in_map=st.sampled_from([2, 1000]),
        after=st.integers(0, 4),
        what=st.sampled_from(["append_many", "roll", "truncate", "delete_records"]),
        share=st.floats(0, 1),
    )
    def compact_while(self, keys_in_map: int, after: int, what: str, share: float) -> None:
        arguments = {"append_many": (3,), "roll": ()}.get(what, (share,))
        count = 0

        def before_step(last: Step | None) -> None:
            nonlocal count
            if count == after:
                getattr(self, what)(*arguments)
            count += 1
            self.check()

        self.run_compaction(keys_in_map, before_step)

    def run_compaction(
        self, keys_in_map: int, before_step: Any = None, *, steps: int = 1000, committed: float = 1
    ) -> bool:
        log, model = self.log, self.model
        self.high_watermark += int(committed * (log.log_end_offset - self.high_watermark))
        stable = self.stable_offset(self.high_watermark)
        cleaning = begin_compaction(
            self.log_dir,
            log,
            now_ms=self.now_ms,
            stable_offset=stable,
            map_bytes=(int(keys_in_map / 0.9) + 2) * SLOT_BYTES,
        )
        if cleaning is None:
            return False
        for offset, written in model.records.items():
            key, value, _ = written.content
            if offset < stable and (key is None or value is None):
                seen = model.tombstones_seen.setdefault(offset, self.now_ms)
                if key is None or self.now_ms >= seen + DELETE_RETENTION_MS:
                    model.may_be_gone.add(offset)

        class GivenUp(Exception):
            pass

        count = 0

        def step(last: Step | None) -> None:
            nonlocal count
            if count == steps:
                raise GivenUp
            count += 1
            if before_step is not None:
                before_step(last)

        try:
            result = run_pass(self.log_dir, cleaning, step)
        except GivenUp:
            return False
        if result is Step.DONE:
            self.check_that_it_helped(cleaning.end_offset)
        return result is Step.DONE

    def stable_offset(self, high_watermark: int) -> int:
        """Below it everything is committed and decided."""
        transactions = [w.transaction for w in self.model.records.values() if w.transaction is not None]
        unstable = [
            t.first_offset for t in transactions if t.marker_offset is None or t.marker_offset >= high_watermark
        ]
        return max(self.log.log_start_offset, min([high_watermark, *unstable]))

    def check_that_it_helped(self, end_offset: int) -> None:
        keys: dict[bytes | None, int] = {}
        for offset, (key, _, _) in self.read(committed=False):
            if offset < end_offset:
                assert key is not None, f"the record {offset} has no key and stayed"
                assert key not in keys, f"key {key!r} is at {keys[key]} and at {offset}"
                assert self.model.records[offset].is_visible, f"the aborted record {offset} stayed"
                keys[key] = offset

    @rule()
    def settle(self) -> None:
        """Two passes with time in between: no tombstone, and one pass more has nothing to do."""
        if self.log.producers.open_transactions():
            return
        self.write([6])
        self.roll()
        end = self.log.log_end_offset
        if not self.run_compaction(1000):
            return
        self.now_ms += DELETE_RETENTION_MS
        last = self.write([6])
        if self.model.records[last].content[1] is None:
            last = self.write([6])
        self.roll()
        assert self.run_compaction(1000)
        tombstones = [offset for offset, (_, value, _) in self.read(committed=True) if value is None and offset < end]
        assert tombstones == []
        assert not self.run_compaction(1000)

    # What happens to the machine.

    @rule(snapshots=st.booleans())
    def restart_cleanly(self, snapshots: bool) -> None:
        self.log_dir.close()
        if not snapshots:
            self.remove_snapshots()
        self.reopen()

    @rule(snapshots=st.booleans(), recovery_points=st.booleans())
    def kill(self, snapshots: bool, recovery_points: bool) -> None:
        self.fs.kill()
        if not recovery_points and self.fs.size(f"{PATH}/{RECOVERY_POINT_FILE}") is not None:
            self.fs.unlink(f"{PATH}/{RECOVERY_POINT_FILE}")
        if not snapshots:
            self.remove_snapshots()
        self.reopen()

    def remove_snapshots(self) -> None:
        directory = f"{PATH}/t-0"
        for name in self.fs.listdir(directory):
            if name.endswith(".snapshot"):
                self.fs.unlink(f"{directory}/{name}")

    @rule(seed=st.integers(0, 1 << 32), after=st.integers(0, 60), keys_in_map=st.sampled_from([2, 1000]))
    def lose_power_while_compacting(self, seed: int, after: int, keys_in_map: int) -> None:
        self.fs.stop_after(after)
        try:
            self.run_compaction(keys_in_map)
        except SimulatedPowerLoss:
            note("power went out")
        self.lose_power(seed)

    @rule(seed=st.integers(0, 1 << 32))
    def lose_power(self, seed: int) -> None:
        rng = random.Random(seed)
        if rng.randrange(2):
            self.fs.crash(rng)
        else:
            _, self.fs = next(random_states(self.fs, rng))
        self.reopen()

    def reopen(self) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log_dir = self.open_log_dir()
        self.log = self.log_dir.logs["t", 0]
        assert self.log.damage is None
        assert (self.log.log_start_offset, self.log.log_end_offset) == (start, end)

    # What must hold at any time.

    def fetch(self, *, committed: bool, max_bytes: int = 300) -> Iterator[Record]:
        """As a consumer: what is aborted is known of each answer on its own."""
        log = self.log
        end = log.last_stable_offset(log.log_end_offset) if committed else log.log_end_offset
        offset = log.log_start_offset
        while offset < end:
            result = log.read(offset, max_bytes, end_offset=end)
            assert result.next_offset > offset
            coming = deque(log.aborted_transactions(offset, result.next_offset))
            aborted: set[int] = set()
            for position, header in iter_headers(result.records):
                batch = result.records[position : position + header.size_bytes]
                while coming and coming[0].first_offset <= header.last_offset:
                    aborted.add(coming.popleft().producer_id)
                records = decode_batch(batch)
                if header.is_control:
                    if records and read_control_type(records[0]) is ControlType.ABORT:
                        aborted.discard(header.producer_id)
                elif not (committed and header.is_transactional and header.producer_id in aborted):
                    yield from (record for record in records if record.offset >= offset)
            offset = result.next_offset

    def read(self, *, committed: bool) -> list[tuple[int, Content]]:
        return [(r.offset, (r.key, r.value, r.timestamp)) for r in self.fetch(committed=committed)]

    @invariant()
    def check(self) -> None:
        log, model = self.log, self.model
        start, stable = log.log_start_offset, log.last_stable_offset(log.log_end_offset)
        visible = self.read(committed=True)
        offsets = [offset for offset, _ in visible]
        assert offsets == sorted(set(offsets))
        for offset, content in visible:
            assert model.records[offset].content == content
            assert model.records[offset].is_visible, f"the record {offset} was aborted and is visible"
        there = set(offsets)
        latest = {w.content[0]: o for o, w in sorted(model.records.items()) if w.is_visible and o < stable}
        for offset, written in model.records.items():
            if not written.is_visible or not start <= offset < stable or offset in there or offset in model.may_be_gone:
                continue
            key = written.content[0]
            assert key is not None
            assert latest[key] > offset, f"the record {offset} is gone"
        everything = {offset for offset, _ in self.read(committed=False)}
        assert all(o in everything for o in model.records if o >= max(stable, start))

    @invariant()
    def producers_are_known(self) -> None:
        for producer_id, state in self.model.producers.items():
            entry = self.log.producers.entries[producer_id]
            assert entry.producer_epoch == state.epoch
            assert entry.last_sequence + 1 == state.next_sequence
            assert batches_of(entry) == state.batches
            assert entry.transaction_first_offset == (state.transaction.first_offset if state.transaction else None)

    @precondition(lambda self: self.model.producers)
    @rule(producer_id=st.integers(1, 3), back=st.integers(1, 5))
    def repeat_batch(self, producer_id: int, back: int) -> None:
        """Of all that a producer may have sent without an answer."""
        state = self.model.producers.get(producer_id)
        if state is None or len(state.batches) < back:
            return
        base_sequence, first_offset, last_offset = state.batches[-back]
        builder = BatchBuilder()
        for number in range(last_offset - first_offset + 1):
            builder.append(self.now_ms, b"k", b"%d" % number)
        repeated = builder.build(producer_id=producer_id, producer_epoch=state.epoch, base_sequence=base_sequence)
        info = self.log.append_as_leader(repeated, leader_epoch=0, now_ms=self.now_ms)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (first_offset, last_offset)


SETTINGS = settings(stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Recovery has much to say here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_compaction_keeps_what_the_model_keeps() -> None:
    run_state_machine_as_test(CleanerMachine, settings=SETTINGS)


@pytest.mark.deep
def test_compaction_keeps_what_the_model_keeps_at_length() -> None:
    """The same with as many examples as KRAFTLOG_EXAMPLES says."""
    run_state_machine_as_test(CleanerMachine, settings=settings(SETTINGS, stateful_step_count=60))
