"""The asyncio consumer against a cluster in memory, on virtual time."""

import asyncio
import gc
import logging
import random
import tracemalloc
from collections import deque
from functools import partial

import pytest

from kraftlog.proto.errors import (
    ClientClosedError,
    CorruptRecordError,
    ErrorCode,
    FencedInstanceIdError,
    IllegalGenerationError,
    IllegalStateError,
    KraftlogError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.records import BatchBuilder, end_transaction_marker, read_header
from kraftlog.proto.records.compaction import emptied
from kraftlog.sdk.consumer import AsyncConsumer, CommitFailedError, ConsumerRebalanceListener
from kraftlog.sdk.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kraftlog.testing.loop import run_virtual as run_unbounded
from tests.unit.sdk.fake_broker import FakeCluster, FakePartition

SERVERS = "broker1:9092"

run_virtual = partial(run_unbounded, max_seconds=7_200)  # a wait that never ends is an error


def consumer(cluster: FakeCluster, **options) -> AsyncConsumer:
    return AsyncConsumer(bootstrap_servers=SERVERS, connector=cluster.connector(), random=random.Random(7), **options)


def fill(cluster: FakeCluster, topic: str, partition: int, values: range, batch: int = 100) -> None:
    for first in range(values.start, values.stop, batch):
        builder = BatchBuilder()
        for i in range(first, min(first + batch, values.stop)):
            builder.append(1000 + i, b"k", b"%d" % i)
        cluster.partition(topic, partition).append(builder.build())
    cluster.notify()


def test_assigned_partitions_are_read_from_the_start() -> None:
    """assign + earliest: every record once, in order."""

    async def main() -> None:
        cluster = FakeCluster(2)
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(1000))
        fill(cluster, "orders", 1, range(500))
        async with consumer(cluster, auto_offset_reset="earliest") as c:
            tps = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
            c.assign(tps)
            got = {tp: [] for tp in tps}
            while sum(map(len, got.values())) < 1500:
                for tp, records in (await c.poll(1000)).items():
                    assert len(records) <= 500
                    got[tp] += records
            assert [r.value for r in got[tps[0]]] == [b"%d" % i for i in range(1000)]
            assert [r.offset for r in got[tps[1]]] == list(range(500))
            assert await c.position(tps[0]) == 1000
            assert await c.poll(100) == {}
            assert c.lag() == dict.fromkeys(tps, 0)
            fill(cluster, "orders", 0, range(1000, 1010))
            assert [r.offset for r in (await c.poll(1000))[tps[0]]] == list(range(1000, 1010))

    run_virtual(main())


TP = TopicPartition("orders", 0)


async def read(c: AsyncConsumer, count: int, timeout_ms: float = 60_000) -> list:
    """Poll until `count` records came."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    got: list = []
    while len(got) < count:
        assert loop.time() < deadline, f"{len(got)} of {count} records"
        for records in (await c.poll(500)).values():
            got += records
    return got


# -- positions


def test_a_seek_drops_what_was_buffered_and_returns_its_credit() -> None:
    """After seek the next record is the asked one, whatever is under way; the stream's credit comes back."""

    async def main() -> None:
        cluster = FakeCluster(latency_ms=1)
        cluster.create("orders")
        fill(cluster, "orders", 0, range(5_000))
        async with consumer(
            cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=10_000, fetch_max_bytes=30_000
        ) as c:
            c.assign([TP])
            await read(c, 100)
            for target in (4_000, 17, 4_999, 250):
                c.seek(TP, target)
                assert await c.position(TP) == target
                got = await read(c, 1)
                assert got[0].offset == target
            for _ in range(200):
                c.seek(TP, 10)
                await asyncio.sleep(0.001)
            got = await read(c, 4_990)  # stalls if the credit of dropped chunks were lost
            assert [r.offset for r in got] == list(range(10, 5_000))
            await asyncio.sleep(1)
            (stream,) = c._core.fetcher._streams.values()
            assert stream.window_bytes == 30_000
            assert 0.7 * 30_000 < stream.outstanding_bytes <= 30_000

    run_virtual(main())


def test_seek_to_beginning_and_end_and_offsets_by_time() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(300))
        async with consumer(cluster) as c:
            c.assign([TP])
            assert await c.position(TP) == 300
            c.seek_to_beginning()
            assert await c.position(TP) == 0
            assert (await read(c, 1))[0].offset == 0
            c.seek_to_end(TP)
            assert await c.position(TP) == 300
            assert await c.beginning_offsets([TP]) == {TP: 0}
            assert await c.end_offsets([TP]) == {TP: 300}
            found = await c.offsets_for_times({TP: 1_150})
            assert found == {TP: OffsetAndTimestamp(150, 1_150, 0)}
            assert await c.offsets_for_times({TP: 99_999}) == {TP: None}
            with pytest.raises(IllegalStateError, match=r"orders-5 is not assigned.*orders-0"):
                c.seek(TopicPartition("orders", 5), 0)
            with pytest.raises(IllegalStateError, match="offsets start at 0"):
                c.seek(TP, -1)

    run_virtual(main())


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 300), ("by_duration:PT0.1S", 200)])
def test_auto_offset_reset_is_the_start_without_a_committed_offset(reset: str, first: int) -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(300))
        c = consumer(cluster, auto_offset_reset=reset, group_id="g")
        c._core._clock.wall_ms = lambda: 1_300  # type: ignore[method-assign]  # records have timestamps 1000 to 1299
        async with c:
            c.assign([TP])
            assert await c.position(TP) == first

    run_virtual(main())


def test_without_a_reset_policy_a_missing_offset_is_an_error() -> None:
    """auto_offset_reset=none: poll raises, and again, until the application seeks."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(10))
        async with consumer(cluster, auto_offset_reset="none", group_id="g") as c:
            c.assign([TP])
            for _ in range(2):
                with pytest.raises(NoOffsetForPartitionError, match=r"orders-0: group 'g' has no committed offset"):
                    await c.poll(1_000)
            c.seek(TP, 3)
            assert (await read(c, 1))[0].offset == 3

    run_virtual(main())


def test_an_offset_that_is_gone_is_reset_loudly_or_raised(caplog: pytest.LogCaptureFixture) -> None:
    """Retention passed the position: with a policy a warning and a reset, without one an error; never silence."""

    async def main() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("orders")
        fill(cluster, "orders", 0, range(300))
        partition.start_offset = 200
        del partition.batches[:2]
        async with consumer(cluster, auto_offset_reset="earliest") as c:
            c.assign([TP])
            c.seek(TP, 50)
            assert (await read(c, 1))[0].offset == 200
        async with consumer(cluster, auto_offset_reset="none") as c:
            c.assign([TP])
            c.seek(TP, 50)
            with pytest.raises(OffsetOutOfRangeError, match=r"orders-0: offset 50 is not in the log \(200 to 300\)"):
                await c.poll(1_000)
            c.seek_to_beginning(TP)
            assert (await read(c, 1))[0].offset == 200

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert "offset 50 is not in the log (200 to 300); going on from earliest" in caplog.text


def test_a_paused_partition_keeps_its_place_and_holds_up_nobody() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(1_000))
        fill(cluster, "orders", 1, range(1_000))
        one = TopicPartition("orders", 1)
        async with consumer(cluster, auto_offset_reset="earliest", max_poll_records=10) as c:
            c.assign([TP, one])
            await read(c, 50)
            c.pause(TP)
            assert c.paused() == {TP}
            place = await c.position(TP)
            rest = await read(c, 500)
            assert {r.partition for r in rest} == {1}
            c.resume(TP)
            offsets: list[int] = []
            while not offsets:
                offsets = [r.offset for r in await read(c, 10) if r.partition == 0]
            assert offsets[0] == place

    run_virtual(main())


# -- reading


def test_an_empty_poll_is_empty() -> None:
    """Nothing to read is no error, with and without a time-out."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        async with consumer(cluster) as c:
            c.assign([TP])
            assert await c.poll() == {}
            started = loop.time()
            assert await c.poll(timeout_ms=2_000) == {}
            assert loop.time() - started == pytest.approx(2)

    run_virtual(main())


@pytest.mark.slow
def test_idle_polls_leak_nothing() -> None:
    """L03: very many short polls of an empty topic; memory does not grow."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster, group_id="g", enable_auto_commit=True) as c:
            c.subscribe(["orders"])
            for _ in range(2_000):
                await c.poll(1)
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(8_000):
                assert await c.poll(1) == {}
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            assert grown < 100_000

    run_virtual(main())


def test_iteration_gives_single_records_and_goes_on_after_a_break() -> None:
    """async for: nothing is lost or repeated by leaving the loop in the middle of a batch, or by a poll in between."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(1_000))
        async with consumer(cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=2_000) as c:
            c.assign([TP])
            got: list[int] = []
            async for record in c:
                got.append(record.offset)
                if len(got) == 123:
                    break
            assert await c.position(TP) == 123
            got.append((await c.getone()).offset)
            got += (await c.poll_arrow(100, max_bytes=1)).column("offset").to_pylist()
            assert len(got) > 124
            got.append((await c.getone()).offset)
            for records in (await c.poll(100)).values():
                got += [r.offset for r in records]
            async for record in c:
                got.append(record.offset)
                if record.offset == 999:
                    break
            assert got == list(range(1_000))
            c.seek(TP, 5)
            assert (await c.getone()).offset == 5
            assert (await c.getone()).offset == 6
            c.seek(TP, 3)
            assert (await c.getone()).offset == 3

    run_virtual(main())


def test_arrow_tables_hold_the_same_records() -> None:
    """poll_arrow: whole fetches as one table, bounded by bytes, mixed freely with poll."""
    pytest.importorskip("pyarrow")

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(2_000))
        async with consumer(cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=5_000) as c:
            c.assign([TP])
            offsets = [r.offset for r in (await c.poll(1_000, max_records=30))[TP]]
            sizes = []
            table = None
            while len(offsets) < 2_000:
                table = await c.poll_arrow(1_000, max_bytes=20_000)
                offsets += table.column("offset").to_pylist()
                sizes.append(table.num_rows)
            assert offsets == list(range(2_000))
            assert max(sizes) < 2_000
            assert table is not None
            assert table.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
            empty = await c.poll_arrow(10, columns=["value", "headers"])
            assert empty.num_rows == 0
            assert empty.column_names == ["value", "headers"]

    run_virtual(main())


@pytest.mark.parametrize("as_arrow", [False, True])
def test_gaps_and_empty_batches_are_passed(as_arrow: bool) -> None:
    """What compaction leaves: offsets that are gone, at the end of a range too, and batches without records."""
    pytest.importorskip("pyarrow")

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(100), batch=10)
        batches = cluster.partition("orders", 0).batches
        for number in (1, 2, 9):
            base, data = batches[number]
            batches[number] = base, emptied(read_header(data))
        del batches[3:6]  # 30 to 59
        left = [*range(10), *range(60, 90)]
        async with consumer(cluster, auto_offset_reset="none", max_partition_fetch_bytes=1) as c:
            c.assign([TP])
            started = asyncio.get_running_loop().time()
            for start, end in [(0, 100), (12, 28), (5, 45), (35, 50), (45, 62), (95, 97)]:
                c.seek(TP, start)
                c.stop_at(TP, end)
                found: list[int] = []
                while await c.position(TP) < end:
                    if as_arrow:
                        found += (await c.poll_arrow(1_000)).column("offset").to_pylist()
                    else:
                        found += [record.offset for record in (await c.poll(1_000)).get(TP, ())]
                assert await c.position(TP) == end
                assert found == [offset for offset in left if start <= offset < end], (start, end)
            assert asyncio.get_running_loop().time() - started < 1, "nobody waits where there is nothing to see"

    run_virtual(main())


def test_buffers_are_bounded_by_fetch_max_bytes() -> None:
    """A consumer that does not poll holds at most fetch_max_bytes plus one batch a stream."""

    async def main() -> None:
        cluster = FakeCluster(2)
        cluster.create("orders", 8)
        for p in range(8):
            fill(cluster, "orders", p, range(20_000), batch=500)
        limit = 200_000
        async with consumer(
            cluster, auto_offset_reset="earliest", fetch_max_bytes=limit, max_partition_fetch_bytes=20_000
        ) as c:
            c.assign([TopicPartition("orders", p) for p in range(8)])
            first = await read(c, 1)
            for _ in range(20):
                await asyncio.sleep(1)
                buffered = sum(
                    chunk.size_bytes for s in c._core.subscriptions.partitions.values() for chunk in s.buffer
                )
                assert limit / 3 < buffered <= limit + 2 * 20_000
            got = await read(c, 160_000 - len(first))
            assert len(first) + len(got) == 160_000

    run_virtual(main())


def test_aborted_and_open_transactions_stay_invisible_by_default() -> None:
    """read_committed hides aborted batches wherever they lie, and control batches always; read_uncommitted shows them."""

    async def main() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("orders")

        def transactional(producer_id: int, value: bytes) -> None:
            builder = BatchBuilder(is_transactional=True)
            builder.append(1, None, value)
            partition.append(builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0))

        def end(producer_id: int, commit: bool) -> None:
            marker = end_transaction_marker(commit, 0, producer_id=producer_id, producer_epoch=0, timestamp_ms=1)
            partition.append(marker)

        transactional(1, b"aborted 1")  # 0
        transactional(2, b"committed 2")  # 1
        end(1, False)  # 2
        transactional(3, b"aborted 3")  # 3
        end(2, True)  # 4
        end(3, False)  # 5
        partition.producers.clear()
        transactional(1, b"committed 1")  # 6
        end(1, True)  # 7
        partition.producers.clear()
        transactional(4, b"open 4")  # 8
        partition.aborted = [(3, 3, 5), (1, 0, 2)]  # in any order
        partition.stable_end = 8
        for size in (1, 1 << 20):
            async with consumer(cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=size) as c:
                c.assign([TP])
                assert [r.value for r in await read(c, 2)] == [b"committed 2", b"committed 1"]
                assert await c.poll(1_000) == {}
                assert await c.position(TP) == 8
                assert await c.end_offsets([TP]) == {TP: 8}
        async with consumer(cluster, auto_offset_reset="earliest", isolation_level="read_uncommitted") as c:
            c.assign([TP])
            assert len(await read(c, 5)) == 5

    run_virtual(main())


@pytest.mark.parametrize("as_arrow", [False, True])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_a_damaged_batch_is_an_error_that_says_where(as_arrow: bool, chunk_bytes: int) -> None:
    """CRC mismatch: what precedes it is handed out; then poll raises with partition and offset, again and again,
    the other partitions go on, and a seek past it too."""

    async def main() -> None:
        cluster = FakeCluster()
        partition, _ = cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(300))
        fill(cluster, "orders", 1, range(300))
        base, data = partition.batches[1]
        partition.batches[1] = (base, data[:-1] + bytes([data[-1] ^ 1]))
        got: dict[int, int] = {0: 0, 1: 0}
        errors = 0
        async with consumer(cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=chunk_bytes) as c:
            c.assign([TP, TopicPartition("orders", 1)])

            position = -1

            async def step() -> None:
                if as_arrow:
                    for number in (await c.poll_arrow(1_000)).column("partition").to_pylist():
                        got[number] += 1
                else:
                    for tp, records in (await c.poll(1_000)).items():
                        got[tp.partition] += len(records)

            while errors < 3:
                try:
                    await step()
                except CorruptRecordError as error:
                    errors += str(error).startswith("orders-0 at offset 100: ") and "seek past it" in str(error)
                    position = await c.position(TP)
            assert position == 100
            c.seek(TP, 200)
            while sum(got.values()) < 500:
                await step()
            assert got == {0: 200, 1: 300}
            assert await c.position(TP) == 300

    run_virtual(main())


# -- brokers that move, die, freeze


def test_a_moved_leader_is_followed_without_loss_or_repetition() -> None:
    async def main() -> None:
        cluster = FakeCluster(3, latency_ms=2)
        cluster.create("orders")
        fill(cluster, "orders", 0, range(3_000))
        async with consumer(cluster, auto_offset_reset="earliest", max_partition_fetch_bytes=2_000) as c:
            c.assign([TP])
            got: list = []
            for node in (2, 3, 1, 2):
                got += await read(c, 500)
                cluster.move("orders", 0, node)
            got += await read(c, 3_000 - len(got))
            assert [r.offset for r in got] == list(range(3_000))

    run_virtual(main())


def test_a_consumer_resumes_after_its_broker_restarts() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(100))
        async with consumer(cluster, auto_offset_reset="earliest", group_id="g") as c:
            c.subscribe(["orders"])
            got = await read(c, 100)
            cluster.stop(1)
            for _ in range(20):
                assert await c.poll(1_000) == {}
            cluster.down.clear()
            fill(cluster, "orders", 0, range(100, 150))
            got += await read(c, 50)
            assert [r.offset for r in got] == list(range(150))

    run_virtual(main())


def test_a_silent_broker_is_noticed() -> None:
    """A fetch stream to a frozen node looks idle: after request_timeout_ms the node is asked, then given up."""

    async def main() -> None:
        cluster = FakeCluster(2)
        cluster.create("orders")
        fill(cluster, "orders", 0, range(10))
        async with AsyncConsumer(
            bootstrap_servers="broker2:9092",
            connector=cluster.connector(),
            auto_offset_reset="earliest",
            request_timeout_ms=5_000,
        ) as c:
            c.assign([TP])
            await read(c, 10)
            cluster.frozen.add(1)
            cluster.move("orders", 0, 2)
            fill(cluster, "orders", 0, range(10, 20))
            assert len(await read(c, 10, timeout_ms=20_000)) == 10

    run_virtual(main())


def test_a_topic_that_does_not_exist_is_no_silent_wait() -> None:
    """After a grace for metadata that spread, poll says so; when the topic comes, reading starts."""

    async def main() -> None:
        cluster = FakeCluster()
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest") as c:
            c.subscribe(["orders"])
            with pytest.raises(UnknownTopicOrPartitionError, match="'orders' does not exist: create it"):
                await c.poll(60_000)
            cluster.create("orders")
            fill(cluster, "orders", 0, range(5))
            assert len(await read(c, 5)) == 5

    run_virtual(main())


def test_an_authorization_error_comes_out_of_poll() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("orders")
        partition.error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with consumer(cluster, auto_offset_reset="earliest") as c:
            c.assign([TP])
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailedError, match="orders-0"):
                    await c.poll(5_000)

    run_virtual(main())


# -- groups


class Recording(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[int, ...]]] = []

    def on_partitions_revoked(self, revoked) -> None:
        self.events.append(("revoked", tuple(sorted(tp.partition for tp in revoked))))

    def on_partitions_assigned(self, assigned) -> None:
        self.events.append(("assigned", tuple(sorted(tp.partition for tp in assigned))))

    def on_partitions_lost(self, lost) -> None:
        self.events.append(("lost", tuple(sorted(tp.partition for tp in lost))))


def test_a_group_shares_partitions_and_goes_on_from_committed_offsets() -> None:
    """Two members own disjoint halves; after both left, a third goes on where they committed."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 4)
        for p in range(4):
            fill(cluster, "orders", p, range(100))
        options = {"group_id": "g", "auto_offset_reset": "earliest"}
        seen = []

        async def member(count: int) -> frozenset[TopicPartition]:
            async with consumer(cluster, **options) as c:
                c.subscribe(["orders"])
                while len(seen) < count:
                    for records in (await c.poll(200)).values():
                        seen.extend((r.partition, r.offset) for r in records)
                owned = c.assignment()
                await c.commit()
                await asyncio.sleep(1)
                return owned

        first, second = await asyncio.gather(member(400), member(400))
        assert len(first | second) == 4
        assert not first & second
        assert sorted(seen) == [(p, o) for p in range(4) for o in range(100)]
        assert {k: v[0] for k, v in cluster.group("g").offsets.items()} == {("orders", p): 100 for p in range(4)}
        fill(cluster, "orders", 0, range(100, 103))
        seen.clear()
        await member(3)
        assert seen == [(0, 100), (0, 101), (0, 102)]

    run_virtual(main())


def test_heartbeats_go_on_while_the_handler_works_and_only_the_processing_limit_ends_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """L09: a handler that sleeps three session time-outs keeps its partitions; past max_poll_interval_ms it loses
    them with a clear warning, its commit is refused, and the next poll joins again."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(10))
        listener = Recording()
        async with consumer(
            cluster,
            group_id="g",
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=60_000,
            enable_auto_commit=False,
        ) as c:
            c.subscribe(["orders"], listener=listener)
            assert len(await read(c, 10)) == 10
            await asyncio.sleep(18)
            await c.poll(60_000)  # a long poll without data
            group = cluster.group("g")
            assert group.rebalances == 1
            assert len(group.members) == 1
            assert max(group.heartbeats.values()) > 70
            await c.commit()
            await asyncio.sleep(70)
            assert not group.members
            with pytest.raises(RebalanceInProgressError, match="poll, then commit"):
                await c.commit()
            await c.poll(1_000)
            assert listener.events == [("assigned", (0, 1)), ("lost", (0, 1)), ("assigned", (0, 1))]
            assert c.assignment()

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert "no poll for max_poll_interval_ms=60000: left the group" in caplog.text


@pytest.mark.parametrize("method", ["Heartbeat", "OffsetCommit", "SyncGroup"])
@pytest.mark.parametrize(
    "code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
)
def test_each_group_error_leads_to_one_rejoin(method: str, code: ErrorCode) -> None:
    """G09 (KAFKA-9140): whichever request is refused, the member joins once more and goes on where it was."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(50))
        listener = Recording()
        group = cluster.group("g")
        async with consumer(
            cluster, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=10
        ) as c:
            c.subscribe(["orders"], listener=listener)
            if method == "SyncGroup":
                group.next_error["SyncGroup"] = deque([int(code)])
            got = await read(c, 50)
            membership = c._core.membership
            assert membership is not None
            joins = membership.join_requests
            if method != "SyncGroup":
                await c.commit()
                group.next_error[method] = deque([int(code)])
                if method == "OffsetCommit":
                    with pytest.raises(KraftlogError):
                        await c.commit()
                loop = asyncio.get_running_loop()
                until = loop.time() + 20
                while loop.time() < until:
                    for records in (await c.poll(1_000)).values():
                        got += records
                again = membership.join_requests - joins
                assert again == (2 if code is ErrorCode.UNKNOWN_MEMBER_ID else 1)  # a new member is told its id first
            fill(cluster, "orders", 0, range(50, 100))
            got += await read(c, 100 - len(got))
            assert [r.offset for r in got] == list(range(100))
            lost = code is not ErrorCode.REBALANCE_IN_PROGRESS
            if method != "SyncGroup":
                assert listener.events == [
                    ("assigned", (0, 1)),
                    ("lost" if lost else "revoked", (0, 1)),
                    ("assigned", (0, 1)),
                ]
            await asyncio.sleep(30)
            assert membership.generation_id == group.generation

    run_virtual(main())


def test_a_late_answer_of_an_earlier_generation_has_no_effect() -> None:
    """A commit or heartbeat that was under way during a rebalance says nothing about the new generation."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster, group_id="g") as c:
            c.subscribe(["orders"])
            await c.poll(1_000)
            membership = c._core.membership
            assert membership is not None
            for error in (IllegalGenerationError(), UnknownMemberIdError(), RebalanceInProgressError()):
                membership.on_error(error, membership.generation_id - 1)
            await c.poll(20_000)
            assert membership.is_stable
            assert cluster.group("g").rebalances == 1

    run_virtual(main())


def test_timed_commits_do_not_cause_a_storm_of_rebalances() -> None:
    """G11: 20 members, auto commit every 50 ms, one slow to poll: a join of one more member is one rebalance."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 40)
        for p in range(40):
            fill(cluster, "orders", p, range(50), batch=10)
        stop = asyncio.Event()
        options = {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 50,
            "heartbeat_interval_ms": 500,
            "session_timeout_ms": 10_000,
            "max_poll_records": 5,
        }

        async def member(pause: float) -> None:
            async with consumer(cluster, **options) as c:
                c.subscribe(["orders"])
                while not stop.is_set():
                    await c.poll(100)
                    await asyncio.sleep(pause)

        members = [asyncio.ensure_future(member(5.0 if i == 0 else 0.05)) for i in range(20)]
        await asyncio.sleep(60)
        group = cluster.group("g")
        assert len(group.members) == 20
        before = group.rebalances
        members.append(asyncio.ensure_future(member(0.05)))
        await asyncio.sleep(60)
        assert len(group.members) == 21
        assert group.state == "Stable"
        assert group.rebalances - before == 1
        stop.set()
        await asyncio.gather(*members)

    run_virtual(main())


def test_auto_commit_never_covers_the_batch_in_hand() -> None:
    """Only what the application came back from is committed; a crash in the handler repeats its batch."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(100))
        group = cluster.group("g")
        async with consumer(
            cluster, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=100, max_poll_records=10
        ) as c:
            c.subscribe(["orders"])
            assert (await read(c, 1))[-1].offset == 9
            await asyncio.sleep(1)
            assert group.offsets == {}
            assert (await read(c, 1))[-1].offset == 19
            await asyncio.sleep(1)
            assert group.offsets["orders", 0][0] == 10
        assert group.offsets["orders", 0][0] == 10
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=100) as c:
            c.subscribe(["orders"])
            async for record in c:
                if record.offset == 15:
                    break
            await asyncio.sleep(1)
        assert group.offsets["orders", 0][0] == 15

    run_virtual(main())


def test_an_explicit_commit_is_not_undone_by_auto_commit() -> None:
    """commit() covers the batch in hand; the auto commit at close does not bring an older offset back."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        fill(cluster, "orders", 0, range(100))
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest", max_poll_records=30) as c:
            c.subscribe(["orders"])
            await read(c, 60)
            await c.commit()
            assert await c.committed(TP) == 60
        assert cluster.group("g").offsets["orders", 0][0] == 60

    run_virtual(main())


def test_a_commit_for_a_partition_of_somebody_else_is_refused_by_the_client() -> None:
    """I-10: a member commits only what it owns, so that a former owner cannot move an offset back."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(10))
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest") as c:
            c.subscribe(["orders"])
            await read(c, 10)
            with pytest.raises(CommitFailedError, match="orders-7 is not assigned to this member"):
                await c.commit({TopicPartition("orders", 7): 5})
            await c.commit({TP: OffsetAndMetadata(7, "note")})
            assert cluster.group("g").offsets["orders", 0] == (7, -1, "note")
            done: list[object] = []
            c.commit_async({TP: 8}, lambda offsets, error: done.append((offsets[TP].offset, error)))
            c.commit_async({TP: 9}, lambda offsets, error: done.append((offsets[TP].offset, error)))
            await asyncio.sleep(1)
            assert done == [(8, None), (9, None)]

    run_virtual(main())


def test_listeners_run_inside_of_poll_and_may_use_the_consumer() -> None:
    """on_partitions_assigned may seek, on_partitions_revoked may commit; coroutines are awaited."""

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned) -> None:
            await asyncio.sleep(0.1)
            for tp in assigned:
                c.seek(tp, 5)

        async def on_partitions_revoked(self, revoked) -> None:
            await c.commit()

    cluster = FakeCluster()

    async def main() -> None:
        nonlocal c
        cluster.create("orders", 2)
        fill(cluster, "orders", 0, range(10))
        c = consumer(cluster, group_id="g", enable_auto_commit=False)
        async with c:
            c.subscribe(["orders"], listener=Listener())
            assert [r.offset for r in await read(c, 5)] == [5, 6, 7, 8, 9]
            other = consumer(cluster, group_id="g", enable_auto_commit=False)
            other.subscribe(["orders"])
            await asyncio.gather(other.poll(10_000), c.poll(10_000))
            assert cluster.group("g").offsets["orders", 0][0] == 10
            await other.close()

    c: AsyncConsumer = None  # type: ignore[assignment]
    run_virtual(main())


def test_what_a_listener_raises_comes_out_of_poll() -> None:
    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned) -> None:
            raise ValueError("a user's mistake")

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster, group_id="g") as c:
            c.subscribe(["orders"], listener=Listener())
            with pytest.raises(ValueError, match="a user's mistake"):
                await c.poll(5_000)
            assert await c.poll(1_000) == {}

    run_virtual(main())


def test_a_pattern_follows_topics_that_come() -> None:
    """subscribe(pattern=...): a new matching topic causes a rejoin; internal and other topics do not."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders.eu")
        cluster.create("payments")
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=5_000) as c:
            c.subscribe(pattern=r"orders\..*")
            await c.poll(3_000)
            assert c.assignment() == {TopicPartition("orders.eu", 0)}
            cluster.create("orders.us", 2)
            for _ in range(20):
                await c.poll(1_000)
            assert len(c.assignment()) == 3
            assert c.subscription() == {"orders.eu", "orders.us"}

    run_virtual(main())


def test_more_partitions_of_a_topic_are_taken_up() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest", metadata_max_age_ms=5_000) as c:
            c.subscribe(["orders"])
            await c.poll(1_000)
            assert len(c.assignment()) == 1
            cluster.topics["orders"].append(FakePartition("orders", 1))
            for _ in range(20):
                await c.poll(1_000)
            assert len(c.assignment()) == 2

    run_virtual(main())


def test_close_is_bounded_when_the_brokers_are_gone_for_consumers() -> None:
    """L01: close(5) of a group member with auto commit returns in time whether brokers are down or frozen."""

    async def main() -> None:
        for kind in ("down", "frozen"):
            cluster = FakeCluster()
            cluster.create("orders")
            fill(cluster, "orders", 0, range(100))
            loop = asyncio.get_running_loop()
            c = consumer(cluster, group_id="g", auto_offset_reset="earliest", max_poll_records=10)
            c.subscribe(["orders"])
            await read(c, 20)
            if kind == "down":
                cluster.stop(1)
            else:
                cluster.frozen.add(1)
            started = loop.time()
            await asyncio.gather(c.close(5), c.close(5))
            assert loop.time() - started <= 6
            with pytest.raises(ClientClosedError, match="the consumer is closed"):
                await c.poll()

    run_virtual(main())


def test_leaving_hands_the_partitions_over_at_once_but_a_static_member_keeps_them() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        group = cluster.group("g")
        async with consumer(cluster, group_id="g") as c:
            c.subscribe(["orders"])
            await c.poll(1_000)
            assert len(group.members) == 1
        assert not group.members
        async with consumer(cluster, group_id="g", group_instance_id="one") as c:
            c.subscribe(["orders"])
            await c.poll(1_000)
        assert len(group.members) == 1

    run_virtual(main())


def test_a_fenced_instance_id_is_fatal() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster, group_id="g", group_instance_id="one") as c:
            c.subscribe(["orders"])
            await c.poll(1_000)
            cluster.group("g").next_error["Heartbeat"] = deque([int(ErrorCode.FENCED_INSTANCE_ID)])
            with pytest.raises(FencedInstanceIdError):
                await c.poll(20_000)
            with pytest.raises(FencedInstanceIdError):
                await c.poll(20_000)

    run_virtual(main())


def test_a_coordinator_that_moves_is_found_without_a_rebalance() -> None:
    async def main() -> None:
        cluster = FakeCluster(2)
        cluster.create("orders")
        fill(cluster, "orders", 0, range(10))
        group = cluster.group("g")
        async with consumer(cluster, group_id="g", auto_offset_reset="earliest") as c:
            c.subscribe(["orders"])
            await read(c, 10)
            cluster.coordinator = 2
            group.next_error["Heartbeat"] = deque([int(ErrorCode.NOT_COORDINATOR)])
            group.next_error["OffsetCommit"] = deque(
                [int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), int(ErrorCode.NOT_COORDINATOR)]
            )
            await c.commit()
            await c.poll(10_000)
            assert group.rebalances == 1
            assert {node for node, name in cluster.calls[-5:] if name == "Heartbeat"} == {2}
        assert group.offsets["orders", 0][0] == 10

    run_virtual(main())


def test_misuse_is_one_clear_error() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with consumer(cluster) as c:
            with pytest.raises(IllegalStateError, match="subscribe\\(\\) or assign\\(\\) first"):
                await c.poll()
            with pytest.raises(IllegalStateError, match="set group_id"):
                c.subscribe(["orders"])
            c.assign([TP])
            with pytest.raises(IllegalStateError, match="committed offsets need a group: set group_id"):
                await c.commit({TP: 1})
        async with consumer(cluster, group_id="g") as c:
            c.subscribe(["orders"])
            with pytest.raises(IllegalStateError, match="unsubscribe\\(\\) before assign\\(\\)"):
                c.assign([TP])
            await c.unsubscribe()
            c.assign([TP])
            await c.poll()

    run_virtual(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"auto_offset_rest": "x"},
            "unknown config key 'auto_offset_rest' (consumer): did you mean 'auto_offset_reset'?",
        ),
        ({"auto_offset_reset": "newest"}, "use one of earliest, latest, none, by_duration:PT1H"),
        ({"auto_offset_reset": "by_duration:soon"}, "'soon' is not a duration such as PT1H"),
        ({"session_timeout_ms": 1000}, "session_timeout_ms=1000 must exceed heartbeat_interval_ms=3000"),
        ({"partition_assignment_strategy": "sticky"}, "use one of range, roundrobin"),
        ({"group_id": ""}, "group id is empty"),
        ({"fetch_max_bytes": 1}, "config fetch_max_bytes=1 is below the minimum 1048576"),
    ],
)
def test_bad_configuration_is_one_clear_line(options: dict, text: str) -> None:
    with pytest.raises(KraftlogError) as caught:
        AsyncConsumer(connector=FakeCluster().connector(), **options)
    assert text in str(caught.value)
