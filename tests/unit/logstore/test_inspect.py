"""Reading a partition's files as they lie."""

import json

import pytest

from kraftlog.logstore import LogConfig
from kraftlog.logstore.inspect import (
    TailKind,
    inspect_directory,
    inspect_segment,
    iter_batches,
    iter_offset_index,
    iter_time_index,
    read_records,
    read_snapshot,
    read_transaction_index,
    to_dict,
)
from kraftlog.proto.errors import CorruptRecordError
from kraftlog.proto.records import CompressionType, end_transaction_marker
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.logstore.builders import NOW_MS, append, batch, idempotent, open_log_dir

FOLDER = "/data/orders-7"
FIRST = f"{FOLDER}/00000000000000000000"
TOPIC_ID = bytes(range(16))


@pytest.fixture
def fs() -> SimFileSystem:
    """Two segments: a plain and a compressed batch, an aborted transaction; then one more batch."""
    fs = SimFileSystem()
    log_dir = open_log_dir(fs)
    log = log_dir.create_log("orders", 7, TOPIC_ID, LogConfig(index_interval_bytes=0), now_ms=NOW_MS)
    append(log, "a", "b", leader_epoch=1)
    log.append_as_leader(batch("c" * 200, compression_type=CompressionType.ZSTD), leader_epoch=1, now_ms=NOW_MS)
    log.append_as_leader(idempotent(9, 0, 2, is_transactional=True), leader_epoch=2, now_ms=NOW_MS)
    marker = end_transaction_marker(False, 4, producer_id=9, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, leader_epoch=2, now_ms=NOW_MS, allow_control=True)
    log.roll()
    append(log, "d", leader_epoch=2)
    log.flush()
    return fs


def test_a_folder_is_summed_up(fs: SimFileSystem) -> None:
    fs.put(f"{FOLDER}/notes.txt", b"")
    partition = inspect_directory(fs, FOLDER)
    assert (partition.topic, partition.partition, partition.topic_id) == ("orders", 7, "AAECAwQFBgcICQoLDA0ODw")
    assert partition.leader_epochs == ((1, 0), (2, 3))
    assert partition.snapshot_paths == (f"{FOLDER}/00000000000000000006.snapshot",)
    assert partition.other_files == ("notes.txt",)
    first, second = partition.segments
    assert (first.base_offset, first.next_offset, first.batch_count, first.record_count) == (0, 6, 4, 6)
    assert (first.max_timestamp, first.invalid_batch_count, first.tail) == (NOW_MS + 1, 0, None)
    assert (first.offset_index_entries, first.time_index_entries, first.aborted_transactions) == (3, 1, 1)
    assert (second.base_offset, second.next_offset, second.offset_index_entries) == (6, 7, None)
    assert second.tail is not None
    assert second.tail.kind is TailKind.PREALLOCATED
    assert second.tail.position == second.size_bytes


def test_batches_and_records_are_read(fs: SimFileSystem) -> None:
    batches = list(iter_batches(fs, f"{FIRST}.log"))
    assert [(b.base_offset, b.last_offset, b.compression, b.leader_epoch) for b in batches] == [
        (0, 1, "none", 1),
        (2, 2, "zstd", 1),
        (3, 4, "none", 2),
        (5, 5, "none", 2),
    ]
    assert [b.is_control for b in batches] == [False, False, False, True]
    assert (batches[2].producer_id, batches[2].base_sequence, batches[2].last_sequence) == (9, 0, 1)
    assert [r.value for b in batches[:2] for r in read_records(fs, f"{FIRST}.log", b)] == [b"a", b"b", b"c" * 200]
    assert all(b.is_crc_valid for b in batches)


def test_derived_files_are_read(fs: SimFileSystem) -> None:
    positions = [b.position for b in iter_batches(fs, f"{FIRST}.log")]
    assert list(iter_offset_index(fs, f"{FIRST}.index")) == [(2, positions[1]), (4, positions[2]), (5, positions[3])]
    assert list(iter_time_index(fs, f"{FIRST}.timeindex")) == [(NOW_MS + 1, 1)]
    (aborted,) = read_transaction_index(fs, f"{FIRST}.txnindex")
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (9, 3, 5)
    (entry,) = read_snapshot(fs, f"{FOLDER}/00000000000000000006.snapshot")
    assert (entry.producer_id, entry.last_sequence, entry.coordinator_epoch) == (9, 1, 4)


def test_damage_is_told_not_raised(fs: SimFileSystem) -> None:
    path = f"{FIRST}.log"
    second = list(iter_batches(fs, path))[1]
    fs.flip(path, second.position + 70)
    segment = inspect_segment(fs, path)
    assert (segment.batch_count, segment.invalid_batch_count) == (4, 1)
    with pytest.raises(CorruptRecordError):
        read_records(fs, path, second)
    fs.flip(path, second.position + 16)
    segment = inspect_segment(fs, path)
    assert segment.batch_count == 1
    assert segment.tail is not None
    assert (segment.tail.kind, segment.tail.position) == (TailKind.DAMAGED, second.position)
    assert segment.tail.next_valid_position == second.position + second.size_bytes


def test_a_torn_tail_is_told(fs: SimFileSystem) -> None:
    path = f"{FIRST}.log"
    last = list(iter_batches(fs, path))[3]
    fs.open(path).truncate(last.position + 30)
    tail = inspect_segment(fs, path).tail
    assert tail is not None
    assert (tail.kind, tail.position, tail.size_bytes) == (TailKind.TORN, last.position, 30)


def test_everything_becomes_json(fs: SimFileSystem) -> None:
    partition = to_dict(inspect_directory(fs, FOLDER))
    assert json.loads(json.dumps(partition))["segments"][1]["tail"]["kind"] == "preallocated"
    assert to_dict(next(iter_offset_index(fs, f"{FIRST}.index")))["offset"] == 2
    json.dumps(to_dict(read_snapshot(fs, f"{FOLDER}/00000000000000000006.snapshot")))


def test_nothing_is_changed(fs: SimFileSystem) -> None:
    before = {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)}
    fs.records_operations = True
    inspect_directory(fs, FOLDER)
    assert fs.operations == [] or {operation.name for operation in fs.operations} == {"pread"}
    assert {name: fs.contents(f"{FOLDER}/{name}") for name in fs.listdir(FOLDER)} == before


def test_other_names_are_refused(fs: SimFileSystem) -> None:
    fs.put("/data/orders-7/x.log", b"")
    with pytest.raises(ValueError, match="not named like"):
        inspect_segment(fs, "/data/orders-7/x.log")
