"""Idempotent producers and transactions of one partition, by Kafka's rules."""

import tracemalloc

import pytest

from kraftlog.logstore.producer_state import AbortedTransaction, ProducerEntry, ProducerStateManager
from kraftlog.logstore.snapshots import decode_snapshot, encode_snapshot
from kraftlog.logstore.transaction_index import decode_aborted, encode_aborted
from kraftlog.proto.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
)
from kraftlog.proto.records import BatchHeader, EndTransactionMarker

LAST_SEQUENCE = (1 << 31) - 1
TRANSACTIONAL, CONTROL = 0x10, 0x20


def header(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    return BatchHeader(
        0, 49, 0, 2, 0, attributes, count - 1, 100, 100 + sequence % 10, producer, epoch, sequence, count
    )


class Partition:
    """Appends to a manager as a leader does, without a log."""

    def __init__(self) -> None:
        self.manager = ProducerStateManager()
        self.end = 0

    def append(self, *headers: BatchHeader) -> list[int]:
        """First offsets: new ones, or those of the batches repeated."""
        duplicates = self.manager.check(headers)
        if duplicates:
            return [batch.first_offset for batch in duplicates]
        offsets = []
        for one in headers:
            self.manager.apply(one, self.end)
            offsets.append(self.end)
            self.end += one.last_offset_delta + 1
        return offsets

    def end_transaction(self, *, commit: bool, producer: int = 7, epoch: int = 0) -> AbortedTransaction | None:
        marker = header(-1, producer=producer, epoch=epoch, attributes=TRANSACTIONAL | CONTROL)
        self.manager.check([marker])
        aborted = self.manager.apply(marker, self.end, EndTransactionMarker(commit, 3))
        self.end += 1
        return aborted


def test_sequences_must_be_consecutive() -> None:
    partition = Partition()
    partition.append(header(0, 3))
    partition.append(header(3))
    for wrong in (5, 2, 0, LAST_SEQUENCE):
        with pytest.raises(OutOfOrderSequenceNumberError, match="expected 4"):
            partition.append(header(wrong))
    assert partition.append(header(4)) == [4]


def test_a_batch_of_an_unknown_producer_may_start_anywhere() -> None:
    """Its state may be gone with its records; Kafka accepts it too."""
    assert Partition().append(header(17)) == [0]


def test_sequences_wrap_to_zero() -> None:
    partition = Partition()
    partition.append(header(LAST_SEQUENCE - 5, 10))
    assert partition.manager.entries[7].last_sequence == 3
    assert partition.append(header(4)) == [10]
    assert partition.append(header(LAST_SEQUENCE - 5, 10)) == [0]
    partition = Partition()
    partition.append(header(LAST_SEQUENCE))
    with pytest.raises(OutOfOrderSequenceNumberError, match="expected 0"):
        partition.append(header(1))
    assert partition.append(header(0)) == [1]


def test_the_last_five_batches_are_remembered() -> None:
    partition = Partition()
    for sequence in range(6):
        partition.append(header(sequence))
    for sequence in (5, 1, 3, 2, 4):
        assert partition.append(header(sequence)) == [sequence]
    with pytest.raises(OutOfOrderSequenceNumberError):
        partition.append(header(0))


def test_a_repetition_must_be_the_whole_batch() -> None:
    partition = Partition()
    partition.append(header(0, 3))
    for part in (header(0, 2), header(1, 2), header(0, 4)):
        with pytest.raises(OutOfOrderSequenceNumberError):
            partition.append(part)


def test_one_request_may_hold_several_batches_of_a_producer() -> None:
    partition = Partition()
    assert partition.append(header(0, 2), header(2, 2), header(4)) == [0, 2, 4]
    assert partition.append(header(0, 2), header(2, 2), header(4)) == [0, 2, 4]
    with pytest.raises(OutOfOrderSequenceNumberError, match="expected 6"):
        partition.append(header(5), header(7))
    with pytest.raises(OutOfOrderSequenceNumberError, match="mixes"):
        partition.append(header(4), header(5))


def test_a_refused_request_changes_nothing() -> None:
    partition = Partition()
    partition.append(header(0))
    with pytest.raises(OutOfOrderSequenceNumberError):
        partition.append(header(1), header(3))
    assert partition.manager.entries[7].last_sequence == 0


def test_a_new_epoch_starts_at_sequence_zero_and_fences_the_old() -> None:
    partition = Partition()
    partition.append(header(0, 4))
    with pytest.raises(OutOfOrderSequenceNumberError, match="instead of 0"):
        partition.append(header(4, epoch=1))
    assert partition.append(header(0, epoch=1)) == [4]
    with pytest.raises(InvalidProducerEpochError):
        partition.append(header(4, epoch=0))
    with pytest.raises(InvalidProducerEpochError):
        partition.append(header(0, 4, epoch=0))
    assert partition.append(header(0, epoch=1)) == [4]


def test_silent_producers_are_forgotten_but_none_in_a_transaction() -> None:
    """The age counts from the last batch; the oldest come first, so that those who stay cost nothing."""
    producers = ProducerStateManager()
    for now_ms, producer_id, transactional in ((10, 1, True), (20, 2, False), (30, 3, False), (40, 2, False)):
        producers.now_ms = now_ms
        attributes = TRANSACTIONAL if transactional else 0
        producers.apply(header(0, producer=producer_id, attributes=attributes), now_ms)
    assert producers.expire(60, 30) == 0
    assert producers.expire(61, 30) == 1
    assert list(producers.entries) == [1, 2]
    assert producers.expire(1000, 30) == 1
    assert list(producers.entries) == [1]
    assert producers.first_unstable_offset(100) == 10


@pytest.mark.slow
def test_a_hundred_thousand_producers_take_bounded_memory() -> None:
    """Short-lived producers with one batch each: under half a KiB a producer, and nothing once they are expired."""
    count = 100_000
    producers = ProducerStateManager()
    tracemalloc.start()
    try:
        for number in range(count):
            producers.now_ms = number
            producers.apply(header(0, producer=number), number)
        held, _ = tracemalloc.get_traced_memory()
        assert held / count < 512
        assert producers.expire(count + 9, 10) == count - 1
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 8 << 20, "the table's own slots"


def test_batches_without_a_producer_are_not_tracked() -> None:
    partition = Partition()
    partition.append(header(-1, producer=-1, epoch=-1))
    assert partition.append(header(-1, producer=-1, epoch=-1)) == [1]
    assert partition.manager.entries.keys() <= {-1}


def test_a_transaction_is_open_until_its_marker() -> None:
    partition = Partition()
    partition.append(header(0, 2, attributes=TRANSACTIONAL))
    partition.append(header(2, attributes=TRANSACTIONAL))
    assert partition.manager.first_unstable_offset(3) == 0
    assert partition.manager.open_transactions() == {7: 0}
    with pytest.raises(InvalidTxnStateError):
        partition.append(header(3))
    assert partition.end_transaction(commit=True) is None
    assert partition.manager.open_transactions() == {}
    assert partition.append(header(3)) == [4]


def test_a_decided_transaction_is_stable_once_its_marker_is_replicated() -> None:
    """The marker below the high watermark, not merely written."""
    partition = Partition()
    partition.append(header(0, attributes=TRANSACTIONAL))
    partition.end_transaction(commit=True)
    assert partition.manager.first_unstable_offset(1) == 0
    assert partition.manager.first_unstable_offset(2) is None


def test_an_aborted_transaction_is_described_for_readers() -> None:
    partition = Partition()
    partition.append(header(0, attributes=TRANSACTIONAL, producer=1))
    partition.append(header(0, attributes=TRANSACTIONAL, producer=2))
    aborted = partition.end_transaction(commit=False, producer=2)
    assert aborted is not None
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (2, 1, 2, 0)
    aborted = partition.end_transaction(commit=False, producer=1)
    assert aborted is not None
    assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (0, 3, 4)


def test_a_marker_without_a_transaction_ends_none() -> None:
    partition = Partition()
    assert partition.end_transaction(commit=False) is None
    assert partition.manager.first_unstable_offset(1) is None
    with pytest.raises(InvalidProducerEpochError):
        partition.end_transaction(commit=True, epoch=-1)


def test_a_marker_of_a_newer_epoch_fences_and_restarts_the_sequence() -> None:
    partition = Partition()
    partition.append(header(0, 3, attributes=TRANSACTIONAL))
    partition.end_transaction(commit=False, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        partition.append(header(3, attributes=TRANSACTIONAL))
    assert partition.append(header(0, epoch=1)) == [4]


def _some_state() -> ProducerStateManager:
    partition = Partition()
    for sequence in range(7):
        partition.append(header(sequence, producer=9))
    partition.append(header(LAST_SEQUENCE, 3, producer=4, epoch=6))
    partition.append(header(0, producer=5, attributes=TRANSACTIONAL))
    partition.end_transaction(commit=True, producer=6, epoch=2)
    return partition.manager


def _view(entries: list[ProducerEntry]) -> dict[int, object]:
    return {
        e.producer_id: (e.producer_epoch, list(e.batches), e.coordinator_epoch, e.transaction_first_offset)
        for e in entries
    }


def test_a_snapshot_keeps_all_five_batches_and_the_open_transaction() -> None:
    manager = _some_state()
    restored = decode_snapshot(encode_snapshot(manager.entries.values()))
    assert _view(restored) == _view(list(manager.entries.values()))
    other = ProducerStateManager()
    other.restore(restored)
    assert other.open_transactions() == manager.open_transactions() == {5: 10}
    assert len(other.entries[9].batches) == 5


def test_the_last_entry_of_a_producer_is_the_one_kafka_would_write() -> None:
    entry = ProducerEntry(3, 2)
    entry.last_timestamp, entry.coordinator_epoch, entry.transaction_first_offset = 111, 5, 40
    partition = ProducerStateManager()
    partition.entries[3] = entry
    for sequence in (8, 9):
        partition.apply(header(sequence, producer=3, epoch=2), 40 + sequence)
    data = encode_snapshot(partition.entries.values())
    assert data[:2].hex() == "0001"
    assert data[6:10].hex() == "00000002"
    last = data[-46:].hex()
    expected = ("0000000000000003", "0002", "00000009", "0000000000000031", "00000000", "000000000000006d", "00000005")
    assert last == "".join(expected) + "0000000000000028"


def test_an_empty_snapshot_is_a_snapshot() -> None:
    assert decode_snapshot(encode_snapshot([])) == []


@pytest.mark.parametrize("cut", [0, 5, 9, 20, -1])
def test_a_cut_snapshot_is_refused(cut: int) -> None:
    with pytest.raises(CorruptRecordError):
        decode_snapshot(encode_snapshot(_some_state().entries.values())[:cut])


def test_every_flipped_bit_of_a_snapshot_is_noticed() -> None:
    data = encode_snapshot(_some_state().entries.values())
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(CorruptRecordError):
            decode_snapshot(bytes(damaged))


def test_the_transaction_index_has_kafkas_bytes() -> None:
    partition = Partition()
    partition.append(header(0, 5, attributes=TRANSACTIONAL))
    aborted = partition.end_transaction(commit=False)
    assert aborted is not None
    data = encode_aborted(aborted)
    assert data.hex() == "00000000000000000007000000000000000000000000000000050000000000000006"
    assert list(decode_aborted(data * 2)) == [aborted] * 2
    for damaged in (b"\1" + data[1:], data[:10] + b"\xff" * 24):
        with pytest.raises(ValueError, match="entry"):
            list(decode_aborted(damaged))
