"""Reading batches into records, on both twins."""

import gc
import mmap
import pickle
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto import records
from kraftlog.proto.errors import CorruptRecordError, InvalidRecordError
from kraftlog.proto.records import CompressionType, arrow


def batch(twin: Any, base_offset: int, count: int, codec: CompressionType = CompressionType.NONE) -> bytes:
    builder = twin.BatchBuilder(compression_type=codec)
    for index in range(count):
        builder.append(1000 + index, b"k%d" % index, b"v%d" % (base_offset + index), [("h", b"%d" % index)])
    return builder.build(base_offset=base_offset, leader_epoch=4)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_records_carry_place_time_and_contents(codec: CompressionType, twin: Any) -> None:
    (first, second) = records.decode_records(batch(twin, 7, 2, codec), topic="orders", partition=3)
    assert (first.topic, first.partition, first.offset, first.leader_epoch) == ("orders", 3, 7, 4)
    assert (second.offset, second.timestamp, second.timestamp_type) == (8, 1001, 0)
    assert (second.key, second.value, second.headers) == (b"k1", b"v8", (("h", b"1"),))
    assert (second.serialized_key_size, second.serialized_value_size) == (2, 2)


@pytest.mark.parametrize("min_offset", [0, 1, 9, 10, 11, 15, 19, 20, 21, 30])
def test_records_before_the_fetch_offset_are_dropped(min_offset: int, twin: Any) -> None:
    """A fetch starts at a batch; the reader drops what lies before the position."""
    log = batch(twin, 0, 10) + batch(twin, 10, 10, CompressionType.LZ4)
    offsets = [record.offset for record in records.decode_records(log, min_offset=min_offset)]
    assert offsets == list(range(min_offset, 20))


def test_control_batches_are_skipped(twin: Any) -> None:
    marker = records.end_transaction_marker(True, 1, producer_id=1, producer_epoch=0, timestamp_ms=5)
    log = batch(twin, 0, 2) + marker + batch(twin, 3, 1)
    assert [record.offset for record in records.decode_records(log)] == [0, 1, 3]


def test_neighbouring_batches_keep_their_own_epoch_and_timestamp_type(twin: Any) -> None:
    """What batches share when they are alike must not spread to one that differs."""
    log, expected = b"", []
    for index, (epoch, stamp) in enumerate([(4, None), (4, None), (5, None), (5, 9000), (4, 9000), (4, None)]):
        piece = bytearray(batch(twin, 2 * index, 2))
        records.rewrite_header(piece, 0, base_offset=2 * index, leader_epoch=epoch)
        if stamp is not None:
            records.set_log_append_time(piece, 0, stamp)
        log += piece
        times = (1000, 1001) if stamp is None else (stamp, stamp)
        expected += [(2 * index + step, epoch, 0 if stamp is None else 1, times[step]) for step in range(2)]
    found = records.decode_records(log)
    assert [(it.offset, it.leader_epoch, it.timestamp_type, it.timestamp) for it in found] == expected
    columns = arrow.decode_arrow([log], topic="t", partition=0, columns=["offset", "timestampType", "timestamp"])
    assert columns.column("timestampType").to_pylist() == [kind for _, _, kind, _ in expected]
    assert columns.column("timestamp").cast("int64").to_pylist() == [time * 1000 for *_, time in expected]


def test_cut_tail_is_ignored(twin: Any) -> None:
    log = batch(twin, 0, 2) + batch(twin, 2, 2)[:-1]
    assert [record.offset for record in records.decode_records(log)] == [0, 1]


def test_bad_crc_is_an_error_unless_checking_is_off(twin: Any) -> None:
    """check=False is for a caller that has checked already."""
    damaged = bytearray(batch(twin, 0, 1))
    damaged[17] ^= 1
    with pytest.raises(CorruptRecordError):
        records.decode_records(damaged)
    with pytest.raises(CorruptRecordError):
        records.decode_batch(damaged)
    assert len(records.decode_records(damaged, check=False)) == len(records.decode_batch(damaged, check=False)) == 1


def test_error_names_topic_partition_and_offset(twin: Any) -> None:
    whole = bytearray(batch(twin, 5, 1))
    whole[61] = 5  # the record's length
    with pytest.raises(InvalidRecordError, match="orders-3, batch at offset 5"):
        records.decode_records(whole, topic="orders", partition=3, check=False)


def test_gaps_of_compaction_are_read(twin: Any) -> None:
    """The cleaner removes records and keeps offsets: deltas ascend, last_offset_delta may point past the last one."""
    survivors = twin.BatchBuilder()
    survivors.append(10, b"a", b"1")
    survivors.append(11, b"b", b"2")
    gapped = bytearray(survivors.build(base_offset=100))
    # Each record is 10 bytes: length, attributes, timestamp delta, then the offset delta.
    gapped[61 + len(bytes(survivors.section())) // 2 + 3] = 5 << 1
    struct.pack_into(">i", gapped, 23, 9)
    assert [it.offset for it in records.decode_records(gapped, check=False)] == [100, 105]
    struct.pack_into(">i", gapped, 23, 4)
    with pytest.raises(InvalidRecordError, match="offset delta"):
        records.decode_records(gapped, check=False)


def test_empty_batch_of_the_cleaner_has_no_records(twin: Any) -> None:
    """KAFKA-5490: batches kept for producer state alone are invisible, whatever their codec bits say."""
    for attributes in range(5):
        tail = struct.pack(">hiqqqhii", attributes, 3, 0, 0, 7, 0, 0, 0)
        empty = struct.pack(">qiibI", 50, 49, 1, 2, twin.codec.crc32c(tail)) + tail
        assert records.decode_records(empty) == records.decode_batch(empty) == []


def test_header_key_that_is_not_utf8_gets_replacement_characters(twin: Any) -> None:
    """As in Kafka: a reader must not stop at a producer's odd bytes."""
    builder = twin.BatchBuilder()
    builder.append(0, None, b"v", [("ab", b"x")])
    odd = bytearray(builder.build())
    odd[odd.index(b"ab")] = 0xFF
    (record,) = records.decode_records(odd, check=False)
    assert record.headers == (("\ufffdb", b"x"),)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))[:]])
def test_records_are_read_from_any_buffer(wrap: Any, twin: Any) -> None:
    log = batch(twin, 0, 3)
    assert [record.value for record in records.decode_records(wrap(log))] == [b"v0", b"v1", b"v2"]
    assert records.validate_batches(wrap(log), max_batch_bytes=1000) == [(0, records.read_header(log))]


def test_records_outlive_the_callers_buffer(twin: Any) -> None:
    """A record keeps alive what it points into; nothing else does once the records are gone."""

    class Owner(bytearray):
        """A bytearray that can be watched."""

    owner = Owner(batch(twin, 0, 3))
    watch = weakref.ref(owner)
    with memoryview(owner)[:] as view:
        kept = records.decode_records(view)[1]
    if twin.name == "c":
        with pytest.raises(BufferError):
            owner.append(0)  # would move the bytes under the record
    del owner, view
    gc.collect()
    assert (kept.key, kept.value, kept.headers) == (b"k1", b"v1", (("h", b"1"),))
    assert (watch() is not None) == (twin.name == "c")
    del kept
    gc.collect()
    assert watch() is None


def test_records_of_a_mapped_file_hold_the_mapping(tmp_path: Path, twin: Any) -> None:
    path = tmp_path / "segment"
    path.write_bytes(batch(twin, 0, 3))
    with path.open("rb") as file:
        mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    kept = records.decode_records(mapped)
    assert [record.value for record in kept] == [b"v0", b"v1", b"v2"]
    if twin.name == "c":
        with pytest.raises(BufferError):
            mapped.close()
    del kept
    mapped.close()


def test_buffer_that_changes_under_a_record_is_still_read_within_bounds(twin: Any) -> None:
    """Positions were checked when the batch was decoded; headers are parsed again, against the record's own end."""
    if twin.name == "python":
        pytest.skip("the reference copies")
    mutable = bytearray(batch(twin, 0, 1))
    (record,) = records.decode_records(mutable)
    start = mutable.index(b"h", 61)
    mutable[start - 1] = 0x7E  # the header key's length: 63
    with pytest.raises(InvalidRecordError, match="changed"):
        _ = record.headers


def test_records_compare_hash_and_show_themselves(twin: Any) -> None:
    log = batch(twin, 0, 2)
    one, other = records.decode_records(log, topic="t", partition=1)
    same = records.decode_records(log, topic="t", partition=1)[0]
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != records.decode_records(log, topic="u", partition=1)[0]
    assert one != "record"
    assert repr(one) == ("Record(topic='t', partition=1, offset=0, timestamp=1000, key=b'k0', value=b'v0', headers=1)")
    assert "'+9968 bytes" in repr(make(twin, value=b"x" * 10_000))


def make(twin: Any, **changes: Any) -> Any:
    fields = {
        "topic": "t",
        "partition": 2,
        "offset": 3,
        "timestamp": 4,
        "timestamp_type": 1,
        "key": b"k",
        "value": None,
        "headers": [("a", b"b"), ("c", None)],
        "leader_epoch": 5,
    }
    return twin.codec.Record(**(fields | changes))


def test_record_is_made_from_its_fields(twin: Any) -> None:
    """For tests of user code, and for unpickling."""
    record = make(twin)
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 2, 3, 4)
    assert (record.timestamp_type, record.key, record.value, record.leader_epoch) == (1, b"k", None, 5)
    assert record.headers == (("a", b"b"), ("c", None))
    assert make(twin, offset=-1, timestamp=-(1 << 63)).timestamp == -(1 << 63)
    plain = twin.codec.Record("t", 0, 0, 0, 0, None, b"v")
    assert (plain.headers, plain.leader_epoch) == ((), -1)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_record_is_pickled_by_value(protocol: int, twin: Any) -> None:
    """Spark and multiprocessing move records; the reader's process may run the other twin."""
    copy = pickle.loads(pickle.dumps(make(twin), protocol))
    assert type(copy) is records.Record
    for name in ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"):
        assert getattr(copy, name) == getattr(make(twin), name)


def test_c_record_cannot_be_changed(twin: Any) -> None:
    if twin.name == "python":
        pytest.skip("immutable by convention")
    with pytest.raises(AttributeError):
        make(twin).offset = 1
