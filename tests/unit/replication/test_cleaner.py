"""Compaction of a broker's partitions, over a real log store on a simulated disk."""

import asyncio
import errno
import math

import pytest

from kraftlog.logstore import Log
from kraftlog.logstore.cleaning import CleaningPass, Step
from kraftlog.proto.records import BatchBuilder, decode_records
from kraftlog.replication.cleaner import CleanerLimits
from kraftlog.replication.partition import Partition
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.replication.fake_replica_log import settle
from tests.unit.replication.test_replica_manager import TOPIC, Broker

COMPACT = {"cleanup_policy": "compact", "segment_bytes": "400"}
TOPIC_ID = bytes(15) + b"\x07"


@pytest.fixture
def broker() -> Broker:
    return Broker(SimFileSystem())


def write(broker: Broker, partition: Partition, *keys: int) -> Log:
    for key in keys:
        builder = BatchBuilder()
        builder.append(broker.clock.wall_ms(), b"k%d" % key, b"v" * 30)
        broker.replicas.append(partition, builder.build(), acks=-1)
        broker.clock.now_ms += 1000
    return broker.log_dir.logs[partition.key]


def keys_of(log: Log) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, end_offset=log.log_end_offset)
        found += [(record.offset, record.key) for record in decode_records(result.records, min_offset=offset)]
        offset = result.next_offset
    return found


class TestChoice:
    async def test_the_dirty_log_is_compacted_and_then_there_is_nothing_to_do(self, broker: Broker) -> None:
        partition = await broker.create(TOPIC_ID, **COMPACT)
        log = write(broker, partition, *[1, 2] * 10)
        await settle()
        assert await broker.replicas.cleaner.clean_one()
        sealed = log.segment_base_offsets[-1]
        assert [it for it in keys_of(log) if it[0] < sealed] == [(sealed - 2, b"k1"), (sealed - 1, b"k2")]
        assert broker.log_dir.cleaned_to(log) == sealed
        assert not await broker.replicas.cleaner.clean_one()

    async def test_topics_that_only_delete_are_left_alone(self, broker: Broker) -> None:
        log = write(broker, await broker.create(segment_bytes="400"), *[1] * 20)
        await settle()
        assert not await broker.replicas.cleaner.clean_one()
        assert len(keys_of(log)) == 20

    async def test_what_is_not_committed_is_not_compacted(self, broker: Broker) -> None:
        partition = await broker.create(TOPIC_ID, **COMPACT)
        broker.executor.is_gated = True  # nothing is flushed, so nothing is committed
        write(broker, partition, *[1] * 20)
        broker.executor.is_gated = False
        assert partition.high_watermark == 0
        assert not await broker.replicas.cleaner.clean_one()

    async def test_little_dirt_waits_until_it_is_overdue(self, broker: Broker) -> None:
        partition = await broker.create(
            TOPIC_ID, **COMPACT, min_cleanable_dirty_ratio="0.9", max_compaction_lag_ms=str(3_600_000)
        )
        log = write(broker, partition, *range(20))
        await settle()
        assert await broker.replicas.cleaner.clean_one()
        write(broker, partition, *[1, 2, 3, 4] * 2)
        await settle()
        assert not await broker.replicas.cleaner.clean_one()
        broker.clock.now_ms += 3_600_000
        assert await broker.replicas.cleaner.clean_one()
        assert broker.log_dir.cleaned_to(log) == log.segment_base_offsets[-1]


class TestFailures:
    async def test_damage_makes_one_log_uncleanable_and_is_shown(self, broker: Broker) -> None:
        partition = await broker.create(TOPIC_ID, **COMPACT)
        log = write(broker, partition, *[1] * 20)
        await settle()
        path = f"{log.directory}/00000000000000000000.log"
        broker.fs.flip(path, 80)
        assert await broker.replicas.cleaner.clean_one(), "the next log has its turn at once"
        assert "no valid batch at position 0" in broker.replicas.cleaner.uncleanable[TOPIC, 0].reason
        assert not await broker.replicas.cleaner.clean_one()
        assert broker.failures == []
        assert broker.replicas.damaged_replicas == {(TOPIC_ID, 0)}, "another replica may take over"
        assert not [name for name in broker.fs.listdir(log.directory) if name.endswith(".cleaned")]
        write(broker, partition, 1)
        await settle()
        assert partition.high_watermark == 21

    async def test_an_error_that_nobody_thought_of_stops_one_log_only(
        self, broker: Broker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
        await settle()

        def step(self: CleaningPass) -> Step:
            raise RuntimeError("out of order")

        monkeypatch.setattr(CleaningPass, "step", step)
        assert await broker.replicas.cleaner.clean_one()
        assert broker.replicas.cleaner.uncleanable[log.topic, 0].reason == "RuntimeError: out of order"
        assert broker.failures == []

    async def test_a_topic_made_anew_is_cleanable_again(self, broker: Broker) -> None:
        partition = await broker.create(TOPIC_ID, **COMPACT)
        log = write(broker, partition, *[1] * 20)
        await settle()
        broker.fs.flip(f"{log.directory}/00000000000000000000.log", 80)
        await broker.replicas.cleaner.clean_one()
        await broker.delete()
        log = write(broker, await broker.create(bytes(15) + b"\x08", **COMPACT), *[1] * 20)
        await settle()
        assert broker.log_dir.cleaned_to(log) == 0
        assert await broker.replicas.cleaner.clean_one()
        assert broker.replicas.cleaner.uncleanable == {}

    async def test_a_full_disk_only_makes_it_wait(self, broker: Broker) -> None:
        log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *range(20))
        await settle()
        broker.fs.capacity_bytes = 0
        assert not await broker.replicas.cleaner.clean_one()
        assert (broker.failures, broker.replicas.cleaner.uncleanable) == ([], {})
        assert not [name for name in broker.fs.listdir(log.directory) if name.endswith(".cleaned")]
        broker.fs.capacity_bytes = None
        assert await broker.replicas.cleaner.clean_one()

    async def test_a_failed_disk_takes_the_log_directory_offline(self, broker: Broker) -> None:
        write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
        await settle()
        broker.fs.fail("fdatasync", errno.EIO)
        assert not await broker.replicas.cleaner.clean_one()
        assert len(broker.failures) == 1


class TestGivingUp:
    async def test_deleting_the_topic_waits_for_the_step_that_runs(self, broker: Broker) -> None:
        log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
        await settle()
        broker.executor.is_gated = True
        cleaning = asyncio.create_task(broker.replicas.cleaner.clean_one())
        await settle()
        await broker.executor.release()  # the look
        await broker.executor.release()  # one step
        deletion = asyncio.create_task(broker.delete())
        await settle()
        assert log.directory.split("/")[-1] in broker.fs.listdir("/data"), "a step is running"
        broker.executor.is_gated = False
        while broker.executor.waiting:
            await broker.executor.release()
        await deletion
        assert not await cleaning
        assert log.directory.split("/")[-1] not in broker.fs.listdir("/data")
        assert broker.failures == []

    async def test_a_stop_leaves_a_log_that_opens(self, broker: Broker) -> None:
        log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
        await settle()
        running = asyncio.create_task(broker.replicas.cleaner.run(10_000))
        broker.executor.is_gated = True
        await settle()
        stopping = asyncio.create_task(broker.replicas.cleaner.stop())
        while not stopping.done() or not running.done():
            await settle()
            if broker.executor.waiting:
                await broker.executor.release()
        await running
        assert not [name for name in broker.fs.listdir(log.directory) if name.endswith((".cleaned", ".swap"))]


async def test_the_throttle_bounds_what_is_read_and_written() -> None:
    fs = SimFileSystem()
    broker = Broker(fs, cleaner_limits=CleanerLimits(bytes_per_second=1000))
    log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
    await settle()
    waits: list[float] = []
    cleaner = broker.replicas.cleaner

    async def wait(delay_ms: float) -> None:
        waits.append(delay_ms)
        broker.clock.now_ms += delay_ms

    cleaner._wait = wait  # type: ignore[method-assign]
    dirty = log.size_bytes - 5
    assert await cleaner.clean_one()
    assert math.fsum(waits) >= dirty, "a byte a millisecond"
