"""Offset and time index: Kafka's bytes, and lookups that never lead past what is looked for."""

from kraftlog.logstore.indexes import OffsetIndex, OffsetPosition, TimeIndex, TimestampOffset
from kraftlog.logstore.segment_indexes import SegmentIndexes

BASE = 1000


def offset_index() -> OffsetIndex:
    index = OffsetIndex(BASE, bytearray())
    for offset, position in ((1004, 50), (1010, 120), (1020, 300)):
        index.append(offset, position)
    return index


def time_index() -> TimeIndex:
    index = TimeIndex(BASE, bytearray())
    for timestamp, offset in ((10, 1004), (20, 1010), (30, 1020)):
        assert index.maybe_append(timestamp, offset)
    return index


def test_offset_index_has_kafkas_bytes() -> None:
    assert offset_index().data.hex() == "00000004000000320000000a00000078000000140000012c"


def test_time_index_has_kafkas_bytes() -> None:
    expected = "000000000000000a0000000400000000000000140000000a000000000000001e00000014"
    assert time_index().data.hex() == expected


def test_offset_lookup_gives_the_last_entry_not_beyond() -> None:
    index = offset_index()
    assert index.lookup(1003) is None
    assert index.lookup(1004) == OffsetPosition(1004, 50)
    assert index.lookup(1019) == OffsetPosition(1010, 120)
    assert index.lookup(99999) == OffsetPosition(1020, 300)
    assert OffsetIndex(BASE, b"").lookup(1004) is None


def test_position_lookup_gives_the_last_entry_not_beyond() -> None:
    index = offset_index()
    assert index.lookup_position(49) is None
    assert index.lookup_position(50) == OffsetPosition(1004, 50)
    assert index.lookup_position(299) == OffsetPosition(1010, 120)


def test_time_lookup_stays_before_equal_timestamps() -> None:
    """A record with exactly the timestamp asked for must not be passed by."""
    index = time_index()
    assert index.lookup(10) is None
    assert index.lookup(11) == TimestampOffset(10, 1004)
    assert index.lookup(20) == TimestampOffset(10, 1004)
    assert index.lookup(31) == TimestampOffset(30, 1020)


def test_time_index_ascends_strictly() -> None:
    index = time_index()
    assert not index.maybe_append(30, 1030)
    assert not index.maybe_append(29, 1031)
    assert index.last() == TimestampOffset(30, 1020)
    assert not TimeIndex(BASE, bytearray()).maybe_append(-1, 1000)


def test_implausible_indexes_are_recognised() -> None:
    assert offset_index().is_plausible(301)
    assert not offset_index().is_plausible(300), "the last entry points at or beyond the end"
    assert not OffsetIndex(BASE, bytes(7)).is_plausible(500)
    assert OffsetIndex(BASE, b"").is_plausible(0)
    assert not OffsetIndex(BASE, b"\xff" * 8).is_plausible(500)
    assert time_index().is_plausible(1)
    assert not time_index().is_plausible(0)
    assert not TimeIndex(BASE, bytes(13)).is_plausible(500)
    assert not TimeIndex(BASE, b"\xff" * 12).is_plausible(500)


def test_an_entry_comes_with_the_first_batch_after_each_interval() -> None:
    """As Kafka: the entry is the batch that is written once more than `interval_bytes` lie behind the last entry."""
    indexes = SegmentIndexes.growing(BASE, 100)
    for number in range(8):
        indexes.note_batch(number * 40, 40, BASE + number, 500 - number if number != 5 else 600)
    assert [indexes.offsets.entry(n) for n in range(len(indexes.offsets))] == [(BASE + 3, 120), (BASE + 6, 240)]
    assert [indexes.times.entry(n) for n in range(len(indexes.times))] == [(500, BASE), (600, BASE + 5)]
    assert indexes.largest == (600, BASE + 5)


def test_growing_again_goes_on_as_if_never_written() -> None:
    straight = SegmentIndexes.growing(BASE, 100)
    resumed = SegmentIndexes.growing(BASE, 100)
    for number in range(40):
        if number % 7 == 0:
            resumed = resumed.growing_again(100, number * 40)
        for indexes in (straight, resumed):
            indexes.note_batch(number * 40, 40, BASE + number, number)
    assert resumed.offsets.data == straight.offsets.data
    assert resumed.times.data == straight.times.data


def test_room_counts_the_wider_entry() -> None:
    indexes = SegmentIndexes.growing(BASE, 0)
    assert indexes.has_room(12)
    for number in range(3):
        indexes.note_batch(number * 40, 40, BASE + number, number)
    assert len(indexes.times.data) == 24
    assert indexes.has_room(36)
    assert not indexes.has_room(35)
