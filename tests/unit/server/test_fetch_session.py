"""The fetch stream's session: positions with generations, byte credit, min_bytes with a deadline, fairness."""

import random
from collections.abc import Sequence

import pytest

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.hotpath import (
    FetchChunk,
    FetchControl,
    FetchPosition,
    FetchRequest,
    PartitionChunk,
    TopicPartition,
)
from kraftlog.server.apis import fetch_session
from kraftlog.server.apis.fetch_session import FetchSession, PartitionRead, StreamPosition

MAX_MESSAGE = 1000


class FakeLogs:
    """Partitions of topic `t` whose records are batches of one offset and `batch_bytes` bytes."""

    def __init__(self, ends: Sequence[int], batch_bytes: int = 100) -> None:
        self.ends = list(ends)
        self.batch_bytes = batch_bytes
        self.errors: dict[int, int] = {}
        self.reads = 0

    def read(self, position: StreamPosition, max_bytes: int, at_least_one_batch: bool) -> PartitionRead:
        self.reads += 1
        _, number = position.key
        if number in self.errors:
            chunk = PartitionChunk("t", number, error_code=self.errors[number], next_offset=position.fetch_offset)
            return PartitionRead(chunk, 0, 0, is_final=True)
        end = self.ends[number]
        count = max_bytes // self.batch_bytes
        if count == 0 and at_least_one_batch:
            count = 1
        next_offset = max(position.fetch_offset, min(end, position.fetch_offset + count))
        size_bytes = (next_offset - position.fetch_offset) * self.batch_bytes
        chunk = PartitionChunk("t", number, records=bytes(size_bytes), next_offset=next_offset, high_watermark=end)
        return PartitionRead(chunk, size_bytes, end)


def session(*, min_bytes: int = 0, max_bytes: int = 0, max_wait_ms: int = 0) -> FetchSession:
    params = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes)
    return FetchSession(params, max_message_bytes=MAX_MESSAGE)


def at(
    partition: int, offset: int = 0, generation: int = 1, *, end_offset: int = 0, max_bytes: int = 0
) -> FetchPosition:
    return FetchPosition("t", partition, offset, generation, end_offset=end_offset, max_bytes=max_bytes)


def sizes(chunk: FetchChunk | None) -> dict[int, int]:
    assert chunk is not None
    return {part.partition: len(part.records) for part in chunk.partitions}


def test_nothing_is_sent_without_credit() -> None:
    """Flow control is the client's: no credit, no message, however much there is."""
    logs = FakeLogs([5])
    stream = session()
    stream.control(FetchControl(set=[at(0)]))
    assert stream.poll(logs.read, 0) is None
    assert logs.reads == 0
    stream.control(FetchControl(credit_bytes=250))
    assert sizes(stream.poll(logs.read, 0)) == {0: 200}
    assert stream.credit_bytes == 50


def test_credit_is_overdrawn_by_at_most_one_batch() -> None:
    """A batch is never cut, so one that is larger than the credit is sent and the rest waits until it is paid back."""
    logs = FakeLogs([5])
    stream = session()
    stream.control(FetchControl(set=[at(0)], credit_bytes=30))
    assert sizes(stream.poll(logs.read, 0)) == {0: 100}
    assert stream.credit_bytes == -70
    assert stream.poll(logs.read, 0) is None
    stream.control(FetchControl(credit_bytes=71))
    assert sizes(stream.poll(logs.read, 0)) == {0: 100}


def test_chunks_carry_the_generation_and_follow_each_other() -> None:
    """next_offset of one chunk is the fetch offset of the next; the generation is the position's."""
    logs = FakeLogs([25])
    stream = session()
    stream.control(FetchControl(set=[at(0, generation=7)], credit_bytes=10_000))
    found = []
    while (chunk := stream.poll(logs.read, 0)) is not None:
        [part] = chunk.partitions
        assert part.generation == 7
        found.append(part.next_offset)
    assert found == [10, 20, 25]


def test_a_newer_generation_moves_the_position_and_an_older_one_is_void() -> None:
    """After a seek only the newest position counts, in whatever order controls are repeated."""
    logs = FakeLogs([100])
    stream = session(max_bytes=100)
    stream.control(FetchControl(set=[at(0, 0, 2)], credit_bytes=10_000))
    stream.poll(logs.read, 0)
    stream.control(FetchControl(set=[at(0, 50, 3)]))
    stream.control(FetchControl(set=[at(0, 10, 3), at(0, 20, 2)]))
    chunk = stream.poll(logs.read, 0)
    assert chunk is not None
    assert [(part.generation, part.next_offset) for part in chunk.partitions] == [(3, 51)]


def test_a_forgotten_partition_is_not_sent_and_may_come_back() -> None:
    """Pause and revoke give the position up; a later set starts anew, whatever its generation."""
    logs = FakeLogs([5, 5])
    stream = session()
    stream.control(FetchControl(set=[at(0), at(1)], credit_bytes=10_000))
    stream.control(FetchControl(forget=[TopicPartition("t", 0)]))
    assert stream.keys == {("t", 1)}
    assert sizes(stream.poll(logs.read, 0)) == {1: 500}
    assert not stream.data_available(("t", 0))
    stream.control(FetchControl(set=[at(0, 3)]))
    assert sizes(stream.poll(logs.read, 0)) == {0: 200}


def test_a_partition_that_is_caught_up_costs_nothing_until_data_come() -> None:
    """Idle partitions are not looked at: polls read only what an event put in line."""
    logs = FakeLogs([1] * 50)
    stream = session()
    stream.control(FetchControl(set=[at(number, 1) for number in range(50)], credit_bytes=10_000))
    assert stream.poll(logs.read, 0) is None
    logs.reads = 0
    logs.ends[3] = 2
    assert stream.data_available(("t", 3))
    assert sizes(stream.poll(logs.read, 0)) == {3: 100}
    assert logs.reads == 1


def test_a_busy_partition_does_not_starve_the_others() -> None:
    """Partitions take turns: with three full ones, each message begins with the next."""
    logs = FakeLogs([100, 100, 100])
    stream = session(max_bytes=500)
    stream.control(FetchControl(set=[at(number, max_bytes=500) for number in range(3)], credit_bytes=100_000))
    first = [next(iter(sizes(stream.poll(logs.read, 0)))) for _ in range(6)]
    assert first == [0, 1, 2, 0, 1, 2]


def test_a_message_carries_many_partitions_within_its_limit() -> None:
    """Small partitions share a message; the limit holds over all of them together."""
    logs = FakeLogs([2] * 10)
    stream = session()
    stream.control(FetchControl(set=[at(number) for number in range(10)], credit_bytes=100_000))
    assert sizes(stream.poll(logs.read, 0)) == dict.fromkeys(range(5), 200)
    assert sizes(stream.poll(logs.read, 0)) == dict.fromkeys(range(5, 10), 200)


def test_a_batch_that_does_not_fit_waits_for_the_next_message() -> None:
    """What is left of a message may be too small for the next partition's batch: it then comes first, alone."""
    logs = FakeLogs([8, 5], batch_bytes=120)
    stream = session()
    stream.control(FetchControl(set=[at(0), at(1)], credit_bytes=100_000))
    assert sizes(stream.poll(logs.read, 0)) == {0: 960}
    assert sizes(stream.poll(logs.read, 0)) == {1: 600}


def test_fewer_than_min_bytes_are_held_until_the_deadline() -> None:
    """min_bytes and max_wait_ms: held from the first byte on, sent with what there is when the wait ends."""
    logs = FakeLogs([1, 0])
    stream = session(min_bytes=300, max_wait_ms=50)
    stream.control(FetchControl(set=[at(0), at(1)], credit_bytes=10_000))
    assert stream.poll(logs.read, 1000) is None
    assert stream.next_deadline_ms == 1050
    logs.ends[1] = 1
    stream.data_available(("t", 1))
    assert stream.poll(logs.read, 1020) is None
    assert stream.next_deadline_ms == 1050
    assert sizes(stream.poll(logs.read, 1050)) == {0: 100, 1: 100}
    assert stream.poll(logs.read, 1051) is None
    assert stream.next_deadline_ms is None


def test_min_bytes_are_sent_as_soon_as_they_are_there() -> None:
    """The wait ends by data as well."""
    logs = FakeLogs([1])
    stream = session(min_bytes=300, max_wait_ms=50)
    stream.control(FetchControl(set=[at(0)], credit_bytes=10_000))
    assert stream.poll(logs.read, 0) is None
    logs.ends[0] = 3
    stream.data_available(("t", 0))
    assert sizes(stream.poll(logs.read, 1)) == {0: 300}


def test_min_bytes_above_the_credit_cannot_block_the_stream() -> None:
    """A client that grants less than min_bytes gets what its credit allows."""
    logs = FakeLogs([10])
    stream = session(min_bytes=900, max_wait_ms=10_000)
    stream.control(FetchControl(set=[at(0)], credit_bytes=200))
    assert sizes(stream.poll(logs.read, 0)) == {0: 200}


def test_an_error_is_sent_at_once_and_ends_the_position() -> None:
    """Errors are not held for min_bytes, and are told once until the client sets the position again."""
    logs = FakeLogs([5, 5])
    logs.errors[1] = 6
    stream = session(min_bytes=100_000, max_wait_ms=1000)
    stream.control(FetchControl(set=[at(0), at(1)], credit_bytes=10_000))
    chunk = stream.poll(logs.read, 0)
    assert chunk is not None
    assert [(part.partition, part.error_code) for part in chunk.partitions] == [(0, 0), (1, 6)]
    assert stream.keys == {("t", 0)}


def test_a_range_ends_at_its_end_offset() -> None:
    """end_offset is exclusive; a range that is empty from the start is answered with an empty chunk."""
    logs = FakeLogs([100, 100])
    stream = session()
    stream.control(FetchControl(set=[at(0, 0, end_offset=10), at(1, 4, end_offset=4)], credit_bytes=10_000))
    assert sizes(stream.poll(logs.read, 0)) == {0: 1000}
    assert stream.keys == {("t", 1)}
    logs.ends[1] = 4  # the reader of a finished range returns nothing
    assert sizes(stream.poll(logs.read, 0)) == {1: 0}
    assert stream.keys == frozenset()


def test_a_gap_without_records_is_passed_over() -> None:
    """Compaction and truncation leave gaps: the reader says where to go on, and the stream goes on at once."""
    logs = FakeLogs([12])

    def read(position: StreamPosition, max_bytes: int, at_least_one_batch: bool) -> PartitionRead:
        if position.fetch_offset < 10:
            return PartitionRead(PartitionChunk("t", 0, next_offset=10), 0, 12)
        return logs.read(position, max_bytes, at_least_one_batch)

    stream = session()
    stream.control(FetchControl(set=[at(0, 3)], credit_bytes=10_000))
    chunk = stream.poll(read, 0)
    assert sizes(chunk) == {0: 200}
    assert stream.poll(read, 0) is None


def test_positions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """MAX_POSITIONS is reached: one more is refused, moving one that exists is not."""
    monkeypatch.setattr(fetch_session, "MAX_POSITIONS", 3)
    stream = session()
    stream.control(FetchControl(set=[at(number) for number in range(3)]))
    stream.control(FetchControl(set=[at(2, 9, 2)]))
    with pytest.raises(InvalidRequestError):
        stream.control(FetchControl(set=[at(3)]))


def test_random_streams_deliver_every_offset_once_and_in_order() -> None:
    """Whatever the mix of credit, data, seeks and time: per generation, chunks are contiguous and credit holds."""
    seed = random.randrange(2**32)
    print(f"seed={seed}")
    chooser = random.Random(seed)
    for _ in range(50):
        logs = FakeLogs([0] * 4, batch_bytes=chooser.randrange(50, 400))
        stream = session(min_bytes=chooser.choice([1, 500]), max_wait_ms=20)
        expected: dict[tuple[int, int], int] = {}
        generation = 0
        granted = sent = 0
        now = 0.0
        for _ in range(200):
            now += chooser.randrange(10)
            number = chooser.randrange(4)
            match chooser.randrange(5):
                case 0:
                    generation += 1
                    offset = chooser.randrange(logs.ends[number] + 1)
                    expected[number, generation] = offset
                    stream.control(FetchControl(set=[at(number, offset, generation)]))
                case 1:
                    credit = chooser.randrange(2000)
                    granted += credit
                    stream.control(FetchControl(credit_bytes=credit))
                case 2:
                    logs.ends[number] += chooser.randrange(5)
                    stream.data_available(("t", number))
                case _:
                    chunk = stream.poll(logs.read, now)
                    for part in [] if chunk is None else chunk.partitions:
                        key = (part.partition, part.generation)
                        count = len(part.records) // logs.batch_bytes
                        assert part.next_offset == expected[key] + count
                        expected[key] = part.next_offset
                        sent += len(part.records)
                    assert sent <= granted + logs.batch_bytes
        stream.control(FetchControl(credit_bytes=1 << 30))
        chunk = stream.poll(logs.read, now)
        while chunk is not None or stream.next_deadline_ms is not None:
            for part in [] if chunk is None else chunk.partitions:
                expected[part.partition, part.generation] = part.next_offset
            now = stream.next_deadline_ms or now
            chunk = stream.poll(logs.read, now)
        newest = {number: max((g for n, g in expected if n == number), default=None) for number in range(4)}
        assert all(expected[n, g] == logs.ends[n] for n, g in newest.items() if g is not None)


def test_the_upcoming_positions_are_those_of_the_next_message() -> None:
    """What may have to come from the disk is read ahead in the order of the line, no more than a message takes."""
    stream = session(max_bytes=250)
    stream.control(FetchControl(set=[at(number, max_bytes=100) for number in range(5)]))
    assert stream.upcoming() == []
    stream.control(FetchControl(credit_bytes=10_000))
    assert [position.key[1] for position in stream.upcoming()] == [0, 1, 2]
