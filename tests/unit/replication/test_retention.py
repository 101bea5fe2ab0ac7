"""Old segments and deleted records of a broker's partitions, over a real log store on a simulated disk."""

import asyncio
import errno
import random
from dataclasses import replace

import pytest

from kraftlog.logstore import Log, LogDir
from kraftlog.proto import metadata_pb2
from kraftlog.proto.admin_pb2 import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResult
from kraftlog.proto.errors import ErrorCode, InvalidRequestError
from kraftlog.proto.records import BatchBuilder
from kraftlog.proto.seams import CallContext
from kraftlog.replication.partition import Partition
from kraftlog.replication.retention import Retention
from kraftlog.server.apis.delete_records import DeleteRecordsHandler
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.replication.fake_replica_log import settle
from tests.unit.replication.test_replica_manager import PATH, TOPIC, Broker, SwitchedExecutor

BYTES = 69  # of one batch as `fill` writes it


@pytest.fixture
def fs() -> SimFileSystem:
    return SimFileSystem()


def fill(broker: Broker, partition: Partition, count: int) -> Log:
    """Append batches of one record, a second apart by the clock, which ends a second after the last; flushed."""
    for _ in range(count):
        builder = BatchBuilder()
        builder.append(broker.clock.wall_ms(), None, b"")
        broker.replicas.append(partition, builder.build(), acks=-1)
        broker.clock.now_ms += 1000
    return broker.log_dir.logs[partition.key]


def reopened(fs: SimFileSystem) -> Log:
    """The log after a power loss."""
    fs.crash(random.Random(7))
    return LogDir.open(PATH, fs=fs, node_id=1, cluster_id="c", now_ms=0).logs[TOPIC, 0]


async def set_config(broker: Broker, key: str, value: str) -> None:
    await broker.publish(
        metadata_pb2.MetadataRecord(
            config=metadata_pb2.ConfigRecord(resource_type=2, resource_name=TOPIC, key=key, value=value)
        )
    )


class TestOldSegments:
    async def test_they_go_and_the_earliest_offset_follows(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_ms="5500")
        log = fill(broker, partition, 12)
        await settle()
        assert log.segment_base_offsets == [0, 4, 8]
        assert await broker.replicas.retention.run() == 1
        assert (log.segment_base_offsets, log.log_start_offset) == ([4, 8], 4)
        assert await broker.replicas.retention.run() == 0
        broker.clock.now_ms += 10_000
        assert await broker.replicas.retention.run() == 2, "the growing one too, after a roll"
        assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (12, 12, 12)
        assert reopened(fs).log_start_offset == 12

    async def test_a_changed_topic_config_takes_effect(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES))
        log = fill(broker, partition, 12)
        await settle()
        assert await broker.replicas.retention.run() == 0
        await set_config(broker, "retention.bytes", "1")
        assert await broker.replicas.retention.run() == 2
        assert log.segment_base_offsets == [8]

    async def test_the_brokers_own_defaults_hold_for_topics_without(self, fs: SimFileSystem) -> None:
        broker = Broker(fs, {"retention.ms": "1000"})
        partition = await broker.create()
        fill(broker, partition, 1)
        await settle()
        broker.clock.now_ms += 1000
        assert await broker.replicas.retention.run() == 1

    async def test_what_is_not_committed_stays(self, fs: SimFileSystem) -> None:
        """Nothing at or above the high watermark is deleted, however old."""
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_ms="0")
        broker.executor.is_gated = True
        log = fill(broker, partition, 12)
        assert partition.high_watermark == 0
        assert log.plan_retention(now_ms=broker.clock.wall_ms(), high_watermark=partition.high_watermark) is None

    async def test_a_topic_deleted_and_made_anew_meanwhile_is_left_alone(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_ms="5500")
        fill(broker, partition, 12)
        await settle()
        broker.executor.is_gated = True
        running = asyncio.create_task(broker.replicas.retention.run())
        for _ in range(2):  # planned, recorded
            await settle()
            await broker.executor.release()
        deletion, future = broker.executor.waiting.pop(0)  # about to delete files
        broker.executor.is_gated = False
        await broker.delete()
        again = await broker.create(bytes(15) + b"\x08")
        fill(broker, again, 2)
        await settle()
        future.set_result(deletion())
        await running
        assert fs.size(f"{PATH}/{TOPIC}-0/00000000000000000000.log")
        assert reopened(fs).log_end_offset == 2

    async def test_a_full_disk_does_not_keep_what_makes_room(self, fs: SimFileSystem) -> None:
        """No roll and no checkpoint can be written; the sealed segments go all the same."""
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_ms="0")
        log = fill(broker, partition, 12)
        await settle()
        fs.capacity_bytes = 0
        assert await broker.replicas.retention.run() == 2
        assert log.segment_base_offsets == [8]
        assert log.failure is None
        fs.heal()
        assert await broker.replicas.retention.run() == 1
        assert reopened(fs).log_start_offset == 12

    async def test_a_start_on_a_full_disk_does_not_keep_what_makes_room(self, fs: SimFileSystem) -> None:
        """The end of the last segments cannot be recorded: those below go all the same."""
        broker = Broker(fs)
        log = fill(broker, await broker.create(segment_bytes=str(4 * BYTES)), 12)
        await settle()
        assert broker.log_dir.synced_end(log) == 8
        fill(broker, broker.replicas.leader(TOPIC, 0), 8)
        fs.kill()
        fs.fail("pwritev", errno.ENOSPC, path_part="-offset-checkpoint", times=1000)
        log_dir = LogDir.open(PATH, fs=fs, node_id=1, cluster_id="c", now_ms=0)
        log = log_dir.logs[TOPIC, 0]
        log.config = replace(log.config, retention_bytes=0)
        partition = Partition(TOPIC, 0, log, node_id=1, high_watermark=log.log_end_offset)
        failures: list[Exception] = []
        retention = Retention(
            {partition.key: partition},
            log_dir,
            SwitchedExecutor(),
            broker.clock,
            on_flushed=lambda _: None,
            on_start=lambda _: None,
            on_failed=failures.append,
        )
        assert await retention.run() == 2
        assert log.segment_base_offsets[0] == 8
        assert not failures

    async def test_a_start_that_was_decided_before_a_cut_is_not_recorded_after_it(self, fs: SimFileSystem) -> None:
        """It would hide what another leader wrote there since, from the next start of the process on."""
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_bytes="0")
        log = fill(broker, partition, 12)
        await settle()
        broker.executor.is_gated = True
        running = asyncio.get_running_loop().create_task(broker.replicas.retention.run())
        await settle()
        await broker.executor.release()  # it has looked, and waits to record the start
        partition.truncate_to(3)
        await broker.executor.release()
        assert await running == 0
        broker.executor.is_gated = False
        fill(broker, partition, 12)
        await settle()
        assert log.log_start_offset == 0
        assert reopened(fs).log_start_offset == 0

    async def test_a_disk_that_fails_takes_the_broker_offline(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES), retention_ms="0")
        fill(broker, partition, 12)
        await settle()
        fs.fail("unlink")
        await broker.replicas.retention.run()
        assert len(broker.failures) == 1
        assert partition.failure is not None

    async def test_an_idle_segment_is_rolled(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create(segment_ms="5000")
        log = fill(broker, partition, 1)
        await settle()
        await broker.replicas.retention.run()
        assert log.segment_base_offsets == [0]
        broker.clock.now_ms += 5000
        await broker.replicas.retention.run()
        assert log.segment_base_offsets == [0, 1]


class TestDeletedRecords:
    async def ask(
        self, broker: Broker, offset: int, topic: str = TOPIC, *, dry_run: bool = False
    ) -> DeleteRecordsResult:
        request = DeleteRecordsRequest(
            partitions=[DeleteRecordsPartition(topic=topic, partition=0, before_offset=offset)], validate_only=dry_run
        )
        handler = DeleteRecordsHandler(broker.replicas)
        return (await handler.delete_records(request, CallContext())).partitions[0]

    async def test_they_are_gone_for_readers_at_once_and_from_disk_with_the_next_look(self, fs: SimFileSystem) -> None:
        """K03: delete_records to the middle of a segment; segments wholly below the log start offset go first."""
        broker = Broker(fs)
        partition = await broker.create(segment_bytes=str(4 * BYTES))
        log = fill(broker, partition, 12)
        await settle()
        assert (await self.ask(broker, 9)).low_watermark == 9
        assert (log.log_start_offset, log.segment_base_offsets) == (9, [0, 4, 8])
        assert await broker.replicas.retention.run() == 2
        assert (log.log_start_offset, log.segment_base_offsets) == (9, [8])

    async def test_they_stay_deleted_after_a_power_loss(self, fs: SimFileSystem) -> None:
        """The answer comes after the new start is on disk, and nobody sees the start before."""
        broker = Broker(fs)
        partition = await broker.create()
        log = fill(broker, partition, 5)
        await settle()
        broker.executor.is_gated = True
        asked = asyncio.create_task(self.ask(broker, 3))
        await settle()
        assert (log.log_start_offset, asked.done()) == (0, False)
        await broker.executor.release()
        assert (await asked).low_watermark == 3
        assert reopened(fs).log_start_offset == 3

    async def test_minus_one_means_all_that_is_committed(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create()
        fill(broker, partition, 5)
        await settle()
        assert (await self.ask(broker, -1)).low_watermark == 5
        assert (await self.ask(broker, 2)).low_watermark == 5, "a start never moves back"
        assert await broker.replicas.retention.run() == 1, "nothing of the deleted records is left on disk"

    async def test_a_dry_run_changes_nothing(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create()
        log = fill(broker, partition, 5)
        await settle()
        assert (await self.ask(broker, 4, dry_run=True)).low_watermark == 4
        assert log.log_start_offset == 0

    @pytest.mark.parametrize("offset", [6, 1 << 62, -2])
    async def test_beyond_the_high_watermark_is_out_of_range(self, fs: SimFileSystem, offset: int) -> None:
        broker = Broker(fs)
        partition = await broker.create()
        log = fill(broker, partition, 5)
        await settle()
        result = await self.ask(broker, offset)
        assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert "high watermark 5" in result.error_message
        assert (result.low_watermark, log.log_start_offset) == (-1, 0)

    async def test_topics_that_refuse(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        await broker.create(cleanup_policy="compact")
        assert (await self.ask(broker, 0)).error_code == ErrorCode.POLICY_VIOLATION
        assert (await self.ask(broker, 0, "__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await self.ask(broker, 0, "nowhere")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await set_config(broker, "cleanup.policy", "compact,delete")
        assert (await self.ask(broker, 0)).error_code == 0

    async def test_a_partition_named_twice_is_refused(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        await broker.create()
        part = DeleteRecordsPartition(topic=TOPIC, partition=0, before_offset=0)
        with pytest.raises(InvalidRequestError, match="twice"):
            await DeleteRecordsHandler(broker.replicas).delete_records(
                DeleteRecordsRequest(partitions=[part, part]), CallContext()
            )

    async def test_a_disk_that_cannot_record_the_start_deletes_nothing(self, fs: SimFileSystem) -> None:
        broker = Broker(fs)
        partition = await broker.create()
        log = fill(broker, partition, 5)
        await settle()
        fs.capacity_bytes = 0
        result = await self.ask(broker, 3)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.log_start_offset == 0


async def test_silent_producers_are_forgotten_by_the_clock(fs: SimFileSystem) -> None:
    broker = Broker(fs)
    partition = await broker.create()
    for producer_id in (1, 2):
        builder = BatchBuilder()
        builder.append(5, None, b"of 1970")
        data = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=0)
        broker.replicas.append(partition, data, acks=-1)
        broker.clock.now_ms += 1000
    await settle()
    log = broker.log_dir.logs[partition.key]
    assert broker.replicas.retention.expire_producers(2000) == 0
    assert broker.replicas.retention.expire_producers(1500) == 1
    assert list(log.producers.entries) == [2]
