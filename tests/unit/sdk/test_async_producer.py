"""The asyncio producer against a cluster in memory, on virtual time."""

import asyncio
import gc
import logging
import random
import tracemalloc
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    BufferExhaustedError,
    ClientClosedError,
    ErrorCode,
    IllegalStateError,
    InvalidConfigError,
    KraftlogError,
    RecordTooLargeError,
    RequestTimedOutError,
    SerializationFailedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.testing.loop import run_virtual as run_unbounded
from tests.unit.sdk.fake_broker import LOSE_CONNECTION, FakeCluster, FakePartition

SERVERS = "broker1:9092"

run_virtual = partial(run_unbounded, max_seconds=7_200)  # a wait that never ends is an error


def producer(cluster: FakeCluster, **options) -> AsyncProducer:
    return AsyncProducer(bootstrap_servers=SERVERS, connector=cluster.connector(), random=random.Random(7), **options)


def answers(*codes: int | None, when: str = "before", every: int = 1):
    """A hook that answers the next batches with `codes`, then lets all pass."""
    left = list(codes)

    def hook(moment: str, partition: FakePartition, records: bytes) -> int | None:
        return left.pop(0) if moment == when and left else None

    return hook


def test_records_arrive_in_order_with_their_offsets() -> None:
    """What is sent is there, in send order, and each future names its place."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster) as p:
            futures = [await p.send("orders", b"%d" % i, key=b"k", headers=[("h", b"1")]) for i in range(1000)]
            metadata = [await future for future in futures]
        assert [m.offset for m in metadata] == list(range(1000))
        assert metadata[0].durability == "quorum-fsync"
        assert metadata[0].topic_partition == ("orders", 0)
        assert cluster.partition("orders").values() == [b"%d" % i for i in range(1000)]
        assert cluster.partition("orders").records()[3].headers == (("h", b"1"),)

    run_virtual(main())


def test_a_batch_waits_for_linger_and_no_longer() -> None:
    """A lone record is sent after linger_ms; a full batch at once."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        async with producer(cluster, linger_ms=300, batch_size=1000) as p:
            await p.partitions_for("orders")
            await p.send_and_wait("orders", b"first")
            started = loop.time()
            await p.send_and_wait("orders", b"x")
            assert loop.time() - started == pytest.approx(0.3, abs=0.01)
            started = loop.time()
            futures = [await p.send("orders", b"x" * 100) for _ in range(20)]
            await futures[0]
            assert loop.time() - started < 0.01
            assert len(cluster.partition("orders").batches) < 10

    run_virtual(main())


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_acks_are_as_asked(acks: object) -> None:
    """acks=0 promises nothing and is not answered; 1 and all are answered with what holds."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, acks=acks) as p:
            metadata = await p.send_and_wait("orders", b"v")
        assert metadata.durability == ("none" if acks == 0 else "quorum-fsync")
        assert metadata.offset == (-1 if acks == 0 else 0)
        await asyncio.sleep(1)
        assert cluster.partition("orders").values() == [b"v"]
        assert bool(cluster.partition("orders").producers) is (acks == "all")

    run_virtual(main())


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_is_the_producers_unless_the_topic_says(compression: str) -> None:
    """compression_type names the codec; a topic's own compression.type wins."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, compression_type=compression) as p:
            await p.send_and_wait("orders", b"v" * 1000)
        cluster.compression_type = "gzip"
        async with producer(cluster, compression_type=compression) as p:
            await p.send_and_wait("orders", b"v" * 1000)
        codecs = [data[22] & 7 for _, data in cluster.partition("orders").batches]
        assert codecs == [["none", "gzip", "snappy", "lz4", "zstd"].index(compression), 1]
        assert cluster.partition("orders").values() == [b"v" * 1000] * 2

    run_virtual(main())


def test_keys_land_by_hash_and_others_stick_to_a_batch() -> None:
    """murmur2: one partition per key. Without keys a batch's records share a partition, and batches spread."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 8)
        async with producer(cluster, linger_ms=1) as p:
            places = {(await p.send_and_wait("orders", b"v", key=b"carrier")).partition for _ in range(5)}
            assert len(places) == 1
            spread = set()
            for _ in range(30):
                futures = [await p.send("orders", b"v") for _ in range(10)]
                batch = {(await future).partition for future in futures}
                assert len(batch) == 1
                spread |= batch
            assert len(spread) > 4

    run_virtual(main())


def test_round_robin_and_custom_partitioners() -> None:
    """The choice is explicit; a custom partitioner's mistake is a clear error."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 3)
        async with producer(cluster, partitioner="round_robin") as p:
            assert sorted([(await p.send_and_wait("orders", b"v")).partition for _ in range(6)]) == [0, 0, 1, 1, 2, 2]
        async with producer(cluster, partitioner=lambda topic, key, value, count: int(key)) as p:
            assert (await p.send_and_wait("orders", b"v", key=b"2")).partition == 2
            with pytest.raises(UnknownTopicOrPartitionError, match="partitioner chose partition 7, but it has"):
                await p.send("orders", b"v", key=b"7")
        async with producer(cluster) as p:
            assert (await p.send_and_wait("orders", b"v", partition=1)).partition == 1
            for wrong in (-1, 3):
                with pytest.raises(UnknownTopicOrPartitionError, match=f"asked for partition {wrong}"):
                    await p.send("orders", b"v", partition=wrong)

    run_virtual(main())


def test_bad_input_is_refused_before_anything_is_sent() -> None:
    """Wrong types, sizes and names raise from send, with the value and the limit."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, max_block_ms=100) as p:
            with pytest.raises(SerializationFailedError, match="value is a str, not bytes"):
                await p.send("orders", "text")
            with pytest.raises(SerializationFailedError, match="key is a int, not bytes"):
                await p.send("orders", b"v", key=1)
            with pytest.raises(SerializationFailedError, match="header"):
                await p.send("orders", b"v", headers=[(b"name", b"v")])  # type: ignore[list-item]  # what a user may try  # pyright: ignore[reportArgumentType]  # on purpose
            with pytest.raises(RecordTooLargeError, match=r"exceeds max_request_size=1048576 \(topic 'orders'\)"):
                await p.send("orders", b"v" * 1048577)
            with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist"):
                await p.send("nowhere", b"v")
            await p.send_and_wait("orders", b"fine")
        assert cluster.partition("orders").values() == [b"fine"]

    run_virtual(main())


def test_serializers_turn_values_into_bytes() -> None:
    """With serializers any object goes; a failing one is a SerializationFailedError that names it."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, value_serializer=lambda v: str(v).encode(), key_serializer=str.encode) as p:
            await p.send_and_wait("orders", 42, key="k")
            with pytest.raises(SerializationFailedError, match="key_serializer failed: TypeError"):
                await p.send("orders", 42, key=7)
        assert [(r.key, r.value) for r in cluster.partition("orders").records()] == [(b"k", b"42")]

    run_virtual(main())


def test_topic_limits_bound_the_batches() -> None:
    """A topic's max.message.bytes is honoured by batches and checked by send."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.max_message_bytes = 5_000
        cluster.create("orders")
        async with producer(cluster) as p:
            for _ in range(200):
                await p.send("orders", b"v" * 100)
            with pytest.raises(RecordTooLargeError, match=r"max.message.bytes=5000"):
                await p.send("orders", b"v" * 5_000)
        assert cluster.max_batch_bytes_seen <= 5_000
        assert len(cluster.partition("orders").values()) == 200

    run_virtual(main())


# -- retries, order, duplicates


def test_a_lost_answer_is_retried_with_the_same_sequence() -> None:
    """P07: an unexpected error after the append, or a lost connection, leads to no duplicate."""

    async def main() -> None:
        for code in (int(ErrorCode.UNKNOWN_SERVER_ERROR), LOSE_CONNECTION, int(ErrorCode.REQUEST_TIMED_OUT)):
            cluster = FakeCluster()
            cluster.create("orders")
            cluster.on_produce = answers(code, when="after")
            async with producer(cluster) as p:
                metadata = await p.send_and_wait("orders", b"once")
                assert metadata.offset == 0
                assert (await p.send_and_wait("orders", b"next")).offset == 1
            assert cluster.partition("orders").values() == [b"once", b"next"]

    run_virtual(main())


def test_five_batches_in_flight_survive_a_leader_that_died_after_the_append() -> None:
    """P03: each is stored once and the original offsets come back, wherever the connection broke."""

    async def main() -> None:
        for lost_after in range(1, 6):
            cluster = FakeCluster(latency_ms=5)
            cluster.create("orders")
            cluster.on_produce = answers(*[None] * (lost_after - 1), LOSE_CONNECTION, when="after")
            async with producer(cluster, linger_ms=0, batch_size=100) as p:
                futures = [await p.send("orders", b"%03d" % i + b"x" * 60) for i in range(12)]
                assert [(await future).offset for future in futures] == list(range(12))
            assert [v[:3] for v in cluster.partition("orders").values()] == [b"%03d" % i for i in range(12)]

    run_virtual(main())


def test_unknown_outcome_after_too_few_replicas_is_no_duplicate_and_no_loss() -> None:
    """L11: NOT_ENOUGH_REPLICAS_AFTER_APPEND and time-outs are retried with the same sequence."""

    async def main() -> None:
        code = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        cluster = FakeCluster()
        cluster.create("orders")
        cluster.on_produce = answers(code, code, int(ErrorCode.REQUEST_TIMED_OUT), when="after")
        async with producer(cluster) as p:
            waiting = asyncio.ensure_future(p.send_and_wait("orders", b"once"))
            await asyncio.sleep(0.05)
            waiting.cancel()  # the caller goes away; the record does not
            assert (await p.send_and_wait("orders", b"next")).offset == 1
        assert cluster.partition("orders").values() == [b"once", b"next"]

    run_virtual(main())


def test_the_order_is_kept_when_one_of_several_batches_is_refused_for_a_while() -> None:
    """In flight 0..4, the second is refused with a retriable error: later ones wait for it, nothing is reordered."""

    async def main() -> None:
        cluster = FakeCluster(latency_ms=5)
        cluster.create("orders")
        cluster.on_produce = answers(None, int(ErrorCode.NOT_ENOUGH_REPLICAS), None, int(ErrorCode.KAFKA_STORAGE_ERROR))
        async with producer(cluster, linger_ms=0, batch_size=100) as p:
            futures = [await p.send("orders", b"%03d" % i + b"x" * 60) for i in range(30)]
            assert [(await f).offset for f in futures] == list(range(30))
        assert [v[:3] for v in cluster.partition("orders").values()] == [b"%03d" % i for i in range(30)]

    run_virtual(main())


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_moved_leader_is_followed_without_reordering(acks: str) -> None:
    """NOT_LEADER: metadata are fetched, and the batches go to the new leader in their order, with sequences or without.

    Nothing goes to the new leader while an answer of the old one is outstanding.
    """

    async def main() -> None:
        cluster = FakeCluster(3, latency_ms=2)
        cluster.create("orders")
        async with producer(cluster, linger_ms=0, batch_size=100, acks=acks) as p:
            futures = []
            for i in range(60):
                futures.append(await p.send("orders", b"%03d" % i + b"x" * 60))
                if i in (20, 40):
                    cluster.move("orders", 0, 2 if i == 20 else 3)
                    p._cluster.refresh_soon()
                await asyncio.sleep(0.001)
            assert [(await f).offset for f in futures] == list(range(60))
        assert [v[:3] for v in cluster.partition("orders").values()] == [b"%03d" % i for i in range(60)]

    run_virtual(main())


def test_after_out_of_order_the_epoch_is_raised_and_every_partition_starts_again_at_zero() -> None:
    """P05 (KAFKA-12152): the broker lost state of p0; p1, with nothing in flight, is accepted in the new epoch."""

    async def main() -> None:
        cluster = FakeCluster()
        zero, one = cluster.create("orders", 2)
        async with producer(cluster) as p:
            for partition in (0, 1):
                for _ in range(3):
                    await p.send_and_wait("orders", b"a", partition=partition)
            (entry,) = zero.producers.values()
            entry.batches.clear()
            entry.batches.append((90, 99, 0))  # expects 100, knows nothing of ours
            assert (await p.send_and_wait("orders", b"b", partition=0)).offset == 3
            assert (await p.send_and_wait("orders", b"b", partition=1)).offset == 3
        assert {e.epoch for e in zero.producers.values()} == {1}
        assert {e.epoch for e in one.producers.values()} == {1}
        assert one.values() == [b"a", b"a", b"a", b"b"]

    run_virtual(main())


def test_a_refused_batch_does_not_take_the_following_ones_with_it() -> None:
    """A batch refused for good leaves a hole in the sequence: the next ones go on in a new epoch, in order."""

    async def main() -> None:
        cluster = FakeCluster(latency_ms=5)
        cluster.create("orders")
        cluster.on_produce = answers(None, int(ErrorCode.INVALID_RECORD))
        async with producer(cluster, linger_ms=0, batch_size=100) as p:
            futures = [await p.send("orders", b"%03d" % i + b"x" * 60) for i in range(10)]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        failed = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, KraftlogError)]
        assert failed == [1]
        assert "broker 1, orders-0: INVALID_RECORD" in str(outcomes[1])
        expected = [b"%03d" % i for i in range(10) if i != 1]
        assert [v[:3] for v in cluster.partition("orders").values()] == expected

    run_virtual(main())


def test_an_exhausted_epoch_leads_to_a_new_producer_id() -> None:
    """After epoch 32767 the producer asks for another id and loses nothing."""

    async def main() -> None:
        cluster = FakeCluster()
        (partition,) = cluster.create("orders")
        async with producer(cluster) as p:
            await p.send_and_wait("orders", b"a")
            p._accumulator.producer_epoch = 32_767
            await p.send_and_wait("orders", b"b")
            (entry,) = partition.producers.values()
            assert entry.epoch == 32_767
            entry.batches.append((500, 500, 0))
            await p.send_and_wait("orders", b"c")
        assert len(partition.producers) == 2
        assert partition.values() == [b"a", b"b", b"c"]

    run_virtual(main())


def test_a_broker_that_restarts_is_found_again() -> None:
    """Outage of the only broker for 20 s: everything sent meanwhile arrives once and in order."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, linger_ms=0) as p:
            futures = [await p.send("orders", b"0")]
            await asyncio.sleep(0.5)
            cluster.stop(1)
            for i in range(1, 20):
                futures.append(await p.send("orders", b"%d" % i))
                await asyncio.sleep(1)
            cluster.down.clear()
            assert [(await f).offset for f in futures] == list(range(20))

    run_virtual(main())


def test_a_frozen_broker_is_given_up_after_the_request_timeout_and_the_batch_sent_again() -> None:
    """SIGSTOP of the leader: the request times out, the stream is dropped, the retry has the same sequence."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, request_timeout_ms=2_000) as p:
            await p.send_and_wait("orders", b"0")
            cluster.frozen.add(1)
            future = await p.send("orders", b"1")
            await asyncio.sleep(10)
            assert not future.done()
            cluster.frozen.clear()
            assert (await future).offset == 1
        assert cluster.partition("orders").values() == [b"0", b"1"]

    run_virtual(main())


def test_a_frozen_leader_is_left_for_one_that_had_nothing_yet(caplog: pytest.LogCaptureFixture) -> None:
    """The connection to the new leader is made while all connections are looked at (seed 80 of the simulated cluster)."""

    async def main() -> None:
        cluster = FakeCluster(brokers=2)
        cluster.create("orders")
        servers = "broker1:9092,broker2:9092"
        options = {"bootstrap_servers": servers, "connector": cluster.connector(), "random": random.Random(7)}
        async with AsyncProducer(**options, request_timeout_ms=20_000) as p:
            await p.send_and_wait("orders", b"0")
            leader = cluster.partition("orders").leader
            cluster.frozen.add(leader)
            future = await p.send("orders", b"1")
            cluster.move("orders", 0, 3 - leader)
            async with asyncio.timeout(10):
                assert (await future).offset == 1
            cluster.frozen.clear()
        assert cluster.partition("orders").values() == [b"0", b"1"]

    run_virtual(main())
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_record_that_is_never_acknowledged_fails_after_the_delivery_timeout() -> None:
    """The error says how long, how often, whether it may have been written, and the last reason."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        async with producer(cluster, delivery_timeout_ms=5_000, request_timeout_ms=1_000) as p:
            await p.send_and_wait("orders", b"0")
            cluster.on_produce = lambda when, *_: int(ErrorCode.NOT_ENOUGH_REPLICAS) if when == "before" else None
            started = loop.time()
            with pytest.raises(RequestTimedOutError, match=r"orders-0: 1 record.*outcome is unknown.*NOT_ENOUGH"):
                await p.send_and_wait("orders", b"1")
            assert loop.time() - started == pytest.approx(5, abs=0.2)
            cluster.on_produce = None
            assert (await p.send_and_wait("orders", b"2")).offset == 1

    run_virtual(main())


def test_a_partition_that_is_refused_again_and_again_is_tried_less_and_less_often() -> None:
    """Pauses double from retry_backoff_ms to retry_backoff_max_ms, for all batches under way at once, and begin anew after a
    success. A broker that has too few replicas in sync is not asked hundreds of times a second."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        times: list[float] = []

        def refuse(when: str, *_: object) -> int | None:
            if when == "after":
                return None
            if not times or loop.time() - times[-1] > 0.01:
                times.append(loop.time())
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)

        async with producer(cluster, linger_ms=0, batch_size=100) as p:
            await p.send_and_wait("orders", b"0")
            for _ in range(2):
                times.clear()
                cluster.on_produce = refuse
                futures = [await p.send("orders", b"x" * 60) for _ in range(10)]
                await asyncio.sleep(10)
                pauses = [after - before for before, after in pairwise(times)]
                doubled = [0.1, 0.2, 0.4, 0.8, *[1.0] * (len(pauses) - 4)]
                assert all(0.8 * most <= pause <= most + 0.02 for pause, most in zip(pauses, doubled, strict=True))
                assert len(pauses) > 8
                cluster.on_produce = None
                for future in futures:
                    await future

    run_virtual(main())


def test_a_record_without_a_leader_fails_as_never_sent() -> None:
    """No leader for longer than the delivery time-out."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, delivery_timeout_ms=5_000, request_timeout_ms=1_000) as p:
            await p.send_and_wait("orders", b"0")
            cluster.move("orders", 0, -1)
            with pytest.raises(RequestTimedOutError, match=r"outcome is unknown|never sent.*no known leader"):
                await p.send_and_wait("orders", b"1")

    run_virtual(main())


@pytest.mark.parametrize("away_s", [3, 20])
def test_a_new_leader_gets_the_records_as_soon_as_it_is_known(away_s: float) -> None:
    """However long the dead one was tried: neither its pauses nor those between metadata grow to a second."""

    async def main() -> None:
        cluster = FakeCluster(3)
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        async with producer(cluster, linger_ms=0) as p:
            await p.send_and_wait("orders", b"0")
            cluster.stop(1)
            future = await p.send("orders", b"1")
            await asyncio.sleep(away_s)
            assert not future.done()
            cluster.move("orders", 0, 2)
            moved = loop.time()
            assert (await future).offset == 1
            assert loop.time() - moved < 0.26
            assert cluster.calls.count((2, "Metadata")) + cluster.calls.count((3, "Metadata")) < 8 * (away_s + 1)

    run_virtual(main())


def test_a_partition_that_had_no_leader_goes_on_when_it_has_one() -> None:
    """With one record and nothing else that would make the producer look."""

    async def main() -> None:
        cluster = FakeCluster(3)
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        async with producer(cluster, linger_ms=0) as p:
            await p.send_and_wait("orders", b"0")
            cluster.stop(1)
            cluster.move("orders", 0, -1)
            future = await p.send("orders", b"1")
            await asyncio.sleep(10)
            cluster.move("orders", 0, 3)
            moved = loop.time()
            assert (await future).offset == 1
            assert loop.time() - moved < 0.26

    run_virtual(main())


def test_an_authorization_error_fails_at_once() -> None:
    """What cannot be retried is not."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        cluster.on_produce = answers(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with producer(cluster) as p:
            with pytest.raises(TopicAuthorizationFailedError, match="broker 1, orders-0"):
                await p.send_and_wait("orders", b"1")

    run_virtual(main())


# -- memory


def test_memory_is_bounded_and_send_blocks_then_raises() -> None:
    """buffer_memory is never exceeded; a send waits up to max_block_ms and then says what is full."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        loop = asyncio.get_running_loop()
        p = producer(cluster, buffer_memory=1 << 20, batch_size=1 << 16, max_block_ms=3_000)
        await p.partitions_for("orders")
        cluster.frozen.add(1)
        accepted = 0
        started = loop.time()

        async def fill() -> None:
            nonlocal accepted
            while True:
                await p.send("orders", b"x" * 1000)
                accepted += 1
                assert p._accumulator.used_bytes <= 1 << 20

        with pytest.raises(BufferExhaustedError, match=r"of buffer_memory=1048576 bytes.*max_block_ms=3000"):
            await fill()
        assert loop.time() - started == pytest.approx(3, abs=0.1)
        assert accepted > 900
        with pytest.raises(BufferExhaustedError):
            p.send_nowait("orders", b"x" * 1000)
        cluster.frozen.clear()
        await p.flush()
        assert p._accumulator.used_bytes == 0
        assert len(cluster.partition("orders").values()) == accepted
        await p.close()

    run_virtual(main())


@pytest.mark.slow
def test_fifty_thousand_senders_wait_on_a_full_buffer_without_recursion() -> None:
    """L05: concurrent sends on a full buffer all end, first come, first served."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(
            cluster, buffer_memory=1 << 16, batch_size=1 << 14, max_request_size=1 << 14, max_block_ms=600_000
        ) as p:
            await p.partitions_for("orders")
            futures = await asyncio.gather(*(p.send("orders", b"%06d" % i) for i in range(50_000)))
            assert [(await f).offset for f in futures] == list(range(50_000))
        assert cluster.partition("orders").values() == [b"%06d" % i for i in range(50_000)]
        assert p._accumulator.used_bytes == 0

    run_virtual(main())


def test_cancelled_senders_pass_the_memory_on() -> None:
    """A send that is cancelled while it waits neither takes memory nor keeps others from it."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster, buffer_memory=1 << 16, batch_size=1 << 14, max_request_size=1 << 14) as p:
            await p.partitions_for("orders")
            cluster.frozen.add(1)
            tasks = [asyncio.ensure_future(p.send("orders", b"%03d" % i + b"x" * 1000)) for i in range(200)]
            await asyncio.sleep(1)
            for task in tasks[100:150]:
                task.cancel()
            cluster.frozen.clear()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert sum(isinstance(d, asyncio.CancelledError) for d in done) == 50
        assert len(cluster.partition("orders").values()) == 150
        assert not p._memory_waiters

    run_virtual(main())


def test_a_long_linger_does_not_lock_up_a_full_buffer() -> None:
    """With memory used up open batches are sent at once, whatever linger_ms says."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders", 16)
        loop = asyncio.get_running_loop()
        async with producer(
            cluster,
            linger_ms=50_000,
            buffer_memory=1 << 17,
            batch_size=1 << 16,
            max_request_size=1 << 16,
            partitioner="round_robin",
        ) as p:
            started = loop.time()
            for _ in range(2_000):
                await p.send("orders", b"x" * 500)
            assert loop.time() - started < 10

    run_virtual(main())


# -- flush, close, callbacks


def test_flush_raises_what_failed_and_only_once() -> None:
    """A failure that nobody has read comes out of flush, of the class of the first; the next flush is clean."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        cluster.on_produce = answers(int(ErrorCode.INVALID_RECORD))
        async with producer(cluster) as p:
            futures = [await p.send("orders", b"x") for _ in range(3)]
            with pytest.raises(KraftlogError, match=r"3 record\(s\) were not delivered; the first: broker 1, orders-0"):
                await p.flush()
            await p.flush()
            assert all(f.failed() for f in futures)
            await p.flush()

    run_virtual(main())


def test_a_failure_that_was_read_is_not_raised_again() -> None:
    """Awaited failures are known; flush and close raise only the others."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        cluster.on_produce = answers(int(ErrorCode.INVALID_RECORD))
        p = producer(cluster)
        futures = [await p.send("orders", b"x") for _ in range(3)]
        for future in futures[:2]:
            with pytest.raises(KraftlogError):
                await future
        with pytest.raises(KraftlogError, match=r"1 record\(s\) were not delivered"):
            await p.close()
        await p.close()

    run_virtual(main())


def test_flush_with_a_timeout_says_what_is_left() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster) as p:
            await p.partitions_for("orders")
            cluster.frozen.add(1)
            await p.send("orders", b"x")
            with pytest.raises(RequestTimedOutError, match=r"flush: 1 record\(s\) not acknowledged within 2 s"):
                await p.flush(timeout=2)
            cluster.frozen.clear()

    run_virtual(main())


def test_close_is_bounded_when_the_brokers_are_gone() -> None:
    """L01: close(5) returns in time, from two tasks at once, and reports what was buffered."""

    async def main() -> None:
        for kind in ("down", "frozen"):
            cluster = FakeCluster()
            cluster.create("orders")
            loop = asyncio.get_running_loop()
            p = producer(cluster)
            await p.send_and_wait("orders", b"x")
            if kind == "down":
                cluster.stop(1)
            else:
                cluster.frozen.add(1)
            future = await p.send("orders", b"lost")
            started = loop.time()
            results = await asyncio.gather(p.close(5), p.close(5), return_exceptions=True)
            assert loop.time() - started <= 6
            assert all(isinstance(r, ClientClosedError) for r in results)
            with pytest.raises(ClientClosedError, match="not acknowledged when the producer was closed"):
                await future
            with pytest.raises(ClientClosedError, match="the producer is closed"):
                await p.send("orders", b"x")
            assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == [] or kind == "frozen"

    run_virtual(main())


def test_closing_while_senders_wait_ends_them() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        p = producer(cluster, buffer_memory=1 << 16, batch_size=1 << 14, max_request_size=1 << 14)
        await p.partitions_for("orders")
        cluster.frozen.add(1)
        tasks = [asyncio.ensure_future(p.send("orders", b"x" * 1000)) for i in range(200)]
        await asyncio.sleep(1)
        with pytest.raises(ClientClosedError):
            await p.close(timeout=1)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(o, ClientClosedError) for o in outcomes) > 100

    run_virtual(main())


def test_callbacks_that_raise_send_or_close_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """L07: what a callback raises is logged; the others run; sending from one works; so does closing."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        seen: list[str] = []
        p = producer(cluster, linger_ms=0)
        await p.partitions_for("orders")

        def bad(_: object) -> None:
            seen.append("bad")
            raise ValueError("a user's mistake")

        (await p.send("orders", b"1")).add_done_callback(bad).add_done_callback(lambda f: seen.append("good"))
        (await p.send("orders", b"2")).add_done_callback(lambda f: p.send_nowait("orders", b"3"))
        (await p.send("orders", b"4")).add_callback(lambda m: seen.append(f"offset {m.offset}"))
        cluster.on_produce = None
        await p.flush()
        await p.flush()
        closing: list[asyncio.Task[None]] = []
        (await p.send("orders", b"5")).add_done_callback(
            lambda f: closing.append(asyncio.get_running_loop().create_task(p.close()))
        )
        await p.flush()
        await closing[0]
        assert seen == ["bad", "good", "offset 2"]
        assert cluster.partition("orders").values() == [b"1", b"2", b"4", b"3", b"5"]

    with caplog.at_level(logging.ERROR):
        run_virtual(main())
    assert "a delivery callback raised" in caplog.text


def test_error_callbacks_do_not_leak() -> None:
    """L07: 100,000 failures, each given to an error callback and raised once, leave nothing behind."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        cluster.on_produce = lambda when, *_: int(ErrorCode.INVALID_RECORD) if when == "before" else None
        failures = 0

        def count(_: KraftlogError) -> None:
            nonlocal failures
            failures += 1

        async with producer(cluster) as p:

            async def some(n: int) -> None:
                for _ in range(n // 1000):
                    for _ in range(1000):
                        (await p.send("orders", b"x")).add_errback(count)
                    await p.flush()

            await some(2_000)
            gc.collect()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await some(20_000)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
        assert failures == 22_000
        assert grown < 200_000

    run_virtual(main())


def test_a_future_may_be_awaited_many_times_and_looked_at() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster) as p:
            future = await p.send("orders", b"x")
            with pytest.raises(IllegalStateError, match="not known yet"):
                future.result()
            assert await future == await future == future.result()
            assert future.exception() is None
            assert future.succeeded()
            assert not future.failed()

    run_virtual(main())


def test_no_broker_at_all_is_an_error_that_names_the_servers() -> None:
    async def main() -> None:
        cluster = FakeCluster()
        cluster.stop(1)
        p = producer(cluster, max_block_ms=2_000)
        with pytest.raises(BrokerNotAvailableError, match="broker1:9092"):
            await p.send("orders", b"x")
        await p.close()

    run_virtual(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"linger": 5}, "unknown config key 'linger' (producer): did you mean 'linger_ms'?"),
        ({"acks": "2"}, "config acks='2': use one of all, 1, 0"),
        ({"acks": 1, "enable_idempotence": True}, "enable_idempotence=true needs acks=all"),
        ({"compression_type": "brotli"}, "use one of none, gzip, snappy, lz4, zstd"),
        ({"bootstrap_servers": "nohost"}, "'nohost' is not host:port"),
        ({"delivery_timeout_ms": 10}, "config delivery_timeout_ms=10 is below the minimum 30005"),
        ({"linger_ms": "soon"}, "config linger_ms='soon' is not an integer"),
        ({"max_in_flight_requests_per_connection": 6}, "exceeds the maximum 5"),
    ],
)
def test_bad_configuration_is_one_clear_line(options: dict[str, Any], text: str) -> None:
    arguments: dict[str, Any] = {"connector": FakeCluster().connector(), **options}
    with pytest.raises(InvalidConfigError) as caught:
        AsyncProducer(**arguments)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_configuration_takes_dotted_keys_and_text() -> None:
    p = AsyncProducer(
        {"bootstrap.servers": "a:1,b:2", "linger.ms": "7", "enable.idempotence": "false", "acks": "1"},
        connector=FakeCluster().connector(),
    )
    assert p.config.bootstrap_servers == ("a:1", "b:2")
    assert p.config.linger_ms == 7
    assert p.config.enable_idempotence is False
    assert p.config.wire_acks == 1


def test_a_topic_that_does_not_exist_is_reported_after_a_grace() -> None:
    """Metadata of a new topic may take a moment to spread; after ten seconds a name is wrong, whatever max_block_ms."""

    async def main() -> None:
        cluster = FakeCluster()
        loop = asyncio.get_running_loop()
        async with producer(cluster) as p:
            started = loop.time()
            with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist: create it"):
                await p.send("nowhere", b"x")
            assert loop.time() - started == pytest.approx(10, abs=2)
            loop.call_later(4, cluster.create, "late")
            assert (await p.send_and_wait("late", b"x")).offset == 0

    run_virtual(main())


def test_a_connection_that_gives_up_may_open_another_one() -> None:
    """Its batches go to the next leader at once, while the sender looks at its connections (found by a simulated cluster)."""

    async def main() -> None:
        cluster = FakeCluster()
        cluster.create("orders")
        async with producer(cluster) as p:
            await (await p.send("orders", b"1"))
            sender = p._sender
            assert sender is not None
            connection = next(iter(sender._connections.values()))
            connection.check_timeout = lambda now_ms: sender._connections.setdefault(99, connection)  # type: ignore[method-assign,assign,return-value]
            sender.tick()
            assert 99 in sender._connections

    run_virtual(main())
