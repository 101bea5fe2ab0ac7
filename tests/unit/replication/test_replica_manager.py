"""The partitions of a broker over a real log store on a simulated disk: what is acknowledged, made, removed, failed."""

import asyncio
import errno
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pytest

from kraftlog.kraft.image import MetadataDelta, MetadataImage
from kraftlog.logstore import LogDir, format_log_dir
from kraftlog.proto import metadata_pb2
from kraftlog.proto.errors import (
    DataLossError,
    KraftlogError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.hotpath import PartitionRecords, ProduceRequest, ProduceResponse
from kraftlog.proto.records import BatchBuilder
from kraftlog.proto.seams import CallContext
from kraftlog.replication.cleaner import DEFAULT_LIMITS, CleanerLimits
from kraftlog.replication.delayed import PendingWrite
from kraftlog.replication.in_sync import ReplicaEnds
from kraftlog.replication.partition import Partition
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.lifecycle import Lifecycle
from kraftlog.server.apis.produce import ProduceHandler
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.replication.fake_replica_log import GatedExecutor, settle

T = TypeVar("T")

PATH = "/data"
TOPIC = "orders"
TOPIC_ID = bytes(15) + b"\x07"


class ManualClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000.0

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


class SwitchedExecutor(GatedExecutor):
    """Runs work at once until it is closed by the test; then every piece waits to be released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gated = False

    async def run(self, work: Callable[[], T]) -> T:
        if self.is_gated:
            return await super().run(work)
        return work()


class Broker:
    """A replica manager whose metadata the test writes."""

    def __init__(
        self,
        fs: SimFileSystem,
        defaults: Mapping[str, str] | None = None,
        cleaner_limits: CleanerLimits = DEFAULT_LIMITS,
        incarnation_id: bytes = b"",
    ) -> None:
        self.fs = fs
        self.clock = ManualClock()
        self.executor = SwitchedExecutor()
        self.leadership: list[tuple[int, bool]] = []
        self.failures: list[StorageError] = []
        format_log_dir(PATH, fs, cluster_id="c", node_id=1, directory_id="d")
        self.log_dir = LogDir.open(PATH, fs=fs, node_id=1, cluster_id="c", now_ms=self.clock.wall_ms())
        self.image = MetadataImage()
        self.replicas = ReplicaManager(
            node_id=1,
            log_dir=self.log_dir,
            clock=self.clock,
            executor=self.executor,
            random=random.Random(1),
            topic_defaults=defaults or {},
            high_watermarks=self.log_dir.high_watermarks(),
            on_leadership=self._on_leadership,
            on_storage_failure=self.failures.append,
            cleaner_limits=cleaner_limits,
            incarnation_id=incarnation_id,
        )

    def _on_leadership(self, partition: Partition) -> None:
        self.leadership.append((partition.leader_epoch, partition.is_leader))

    async def publish(self, *records: metadata_pb2.MetadataRecord) -> None:
        """Commit metadata records and wait until they took effect."""
        delta = MetadataDelta(self.image)
        offset = self.image.offset
        for record in records:
            offset += 1
            delta.replay(record, offset)
        self.image = delta.apply(offset, 0)
        self.replicas.on_metadata_update(delta, self.image)
        await self.replicas.wait_applied()

    async def create(
        self, topic_id: bytes = bytes(15) + b"\x07", replicas: Sequence[int] = (1,), /, **configs: str
    ) -> Partition:
        """All of `replicas` are in sync."""
        await self.publish(
            metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=topic_id)),
            *(
                metadata_pb2.MetadataRecord(
                    config=metadata_pb2.ConfigRecord(
                        resource_type=2, resource_name=TOPIC, key=key.replace("_", "."), value=value
                    )
                )
                for key, value in configs.items()
            ),
            metadata_pb2.MetadataRecord(
                partition=metadata_pb2.PartitionRecord(
                    topic_id=topic_id, replicas=replicas, in_sync_replicas=replicas, leader_id=1
                )
            ),
        )
        return self.replicas.leader(TOPIC, 0)

    async def delete(self, topic_id: bytes = bytes(15) + b"\x07") -> None:
        await self.publish(metadata_pb2.MetadataRecord(remove_topic=metadata_pb2.RemoveTopicRecord(topic_id=topic_id)))

    def write(self, partition: Partition, acks: int = -1, timeout_ms: float = 1e9) -> PendingWrite:
        """Append one record; `is_done` of what is returned says whether it was answered."""
        info = self.replicas.append(partition, batch(), acks=acks)
        write = PendingWrite(partition, partition.leader_epoch, info.last_offset + 1, acks)
        self.replicas.acknowledge([write], timeout_ms=timeout_ms, completed=lambda: None)
        return write


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"value")
    return builder.build()


@pytest.fixture
def fs() -> SimFileSystem:
    return SimFileSystem()


@pytest.mark.parametrize("acks", [1, -1])
async def test_with_ack_nothing_is_answered_before_its_fdatasync_has_returned(fs: SimFileSystem, acks: int) -> None:
    """flush.policy=ack: each answer follows a sync that began after its append, and readers see nothing before it."""
    broker = Broker(fs)
    partition = await broker.create()
    handler = ProduceHandler(broker.replicas, broker.executor, Lifecycle(1))
    broker.executor.is_gated = True
    answers: list[ProduceResponse] = []

    def produce() -> None:
        request = ProduceRequest(acks=acks, timeout_ms=1000, partitions=[PartitionRecords(TOPIC, 0, batch())])
        verdicts = handler.validate_inline(request)
        assert verdicts is not None
        handler.append(request, verdicts, answers.append)

    log_path = f"{PATH}/{TOPIC}-0/00000000000000000000.log"
    size_of_one = len(batch())
    produce()
    await settle()
    assert (answers, partition.high_watermark, partition.log.log_end_offset) == ([], 0, 1)
    assert fs.surely_durable(log_path) in (None, b"")
    produce()  # comes while the first sync runs: it needs one of its own
    produce()
    await settle()
    assert len(broker.executor.waiting) == 1
    work, future = broker.executor.waiting.pop(0)
    end_at_begin = 1
    partition_log = broker.log_dir.logs[TOPIC, 0]
    partition_log.log_end_offset, end = end_at_begin, partition_log.log_end_offset
    work()  # what a sync covers that began before the other two were appended
    partition_log.log_end_offset = end
    assert answers == []
    future.set_result([None])
    await settle()
    assert [answer.partitions[0].base_offset for answer in answers] == [0]
    assert partition.high_watermark == 1
    await broker.executor.release()
    assert [answer.partitions[0].base_offset for answer in answers] == [0, 1, 2]
    assert len(fs.surely_durable(log_path) or b"") >= 3 * size_of_one
    assert not broker.executor.waiting


async def test_a_failed_fsync_fails_all_who_wait_and_everything_after(fs: SimFileSystem) -> None:
    """EIO at fdatasync: no waiting write succeeds, later ones are refused although the disk works again."""
    broker = Broker(fs)
    partition = await broker.create()
    broker.executor.is_gated = True
    writes = [broker.write(partition, acks) for acks in (1, -1)]
    await settle()
    fs.fail("fdatasync", error=errno.EIO)
    await broker.executor.release()
    assert [type(write.error) for write in writes] == [StorageError, StorageError]
    fs.heal()
    with pytest.raises(StorageError):
        broker.write(partition)
    await settle()
    assert not broker.executor.waiting
    assert partition.high_watermark == 0
    assert len(broker.failures) == 1


async def test_a_failed_log_takes_the_whole_directory_offline(fs: SimFileSystem) -> None:
    """One disk under all logs of a directory: an fsync error on one is fatal for the directory."""
    broker = Broker(fs)
    await broker.create()
    other = bytes(15) + b"\x08"
    await broker.publish(
        metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name="other", topic_id=other)),
        metadata_pb2.MetadataRecord(
            partition=metadata_pb2.PartitionRecord(topic_id=other, replicas=[1], in_sync_replicas=[1], leader_id=1)
        ),
    )
    broker.replicas.fail(DataLossError("the disk is gone"))
    for topic in (TOPIC, "other"):
        with pytest.raises(StorageError):
            broker.replicas.leader(topic, 0)


async def test_a_full_disk_is_waited_out(fs: SimFileSystem) -> None:
    """ENOSPC at an append is an answer, not a failure: with space again the same partition goes on."""
    broker = Broker(fs)
    partition = await broker.create()
    fs.fail("preallocate", error=errno.ENOSPC)
    fs.fail("pwritev", error=errno.ENOSPC)
    with pytest.raises(StorageError, match="full"):
        broker.write(partition)
    fs.heal()
    write = broker.write(partition)
    await settle()
    assert (write.is_done, write.error) == (True, None)
    assert broker.failures == []


async def test_with_interval_the_flush_follows_later(fs: SimFileSystem) -> None:
    """flush.policy=interval: answered at once, flushed after flush.messages records or flush.ms, whichever is first."""
    broker = Broker(fs)
    partition = await broker.create(flush_policy="interval", flush_messages="3", flush_ms="50")
    writes = [broker.write(partition), broker.write(partition)]
    assert all(write.is_done for write in writes)
    await settle()
    assert partition.log.flushed_end_offset == 0
    broker.clock.now_ms += 50
    broker.replicas.timers.advance(broker.clock.monotonic_ms())
    await settle()
    assert partition.log.flushed_end_offset == 2
    for _ in range(3):
        broker.write(partition)
    await settle()
    assert partition.log.flushed_end_offset == 5


def policy(value: str, *, flushed: bool) -> list[metadata_pb2.MetadataRecord]:
    """As the controller writes it."""
    record = metadata_pb2.ConfigRecord(resource_type=2, resource_name=TOPIC, key="flush.policy", value=value)
    change = metadata_pb2.PartitionChangeRecord(topic_id=bytes(15) + b"\x07", flushed=flushed)
    return [
        metadata_pb2.MetadataRecord(config=record),
        metadata_pb2.MetadataRecord(partition_change=change),
    ]


async def test_switch_to_ack_flushes_what_is_there_and_tells_when_it_is(fs: SimFileSystem) -> None:
    """Also of a topic to which nobody writes any more."""
    broker = Broker(fs)
    told: list[int] = []
    broker.replicas.report_switches_to(lambda partition: told.append(partition.log.flushed_end_offset))
    partition = await broker.create(flush_policy="interval")
    assert broker.write(partition).is_done
    await settle()
    assert partition.log.flushed_end_offset == 0
    await broker.publish(*policy("ack", flushed=False))
    assert partition.is_switching_to_ack
    await settle()
    assert partition.log.flushed_end_offset == 1
    assert told[-1] == 1
    await broker.publish(*policy("ack", flushed=True))
    assert not partition.is_switching_to_ack


async def test_leader_acknowledges_from_memory_only_when_the_metadata_say_so(fs: SimFileSystem) -> None:
    """A node whose own default is interval: the controller counts on the disk."""
    broker = Broker(fs)
    partition = await broker.create(flush_policy="interval")
    await broker.publish(*policy("interval", flushed=True))
    broker.executor.is_gated = True
    write = broker.write(partition)
    await settle()
    assert not write.is_done
    await broker.executor.release()
    await settle()
    assert write.is_done


def minimum(value: str) -> metadata_pb2.MetadataRecord:
    """Of replicas in sync."""
    record = metadata_pb2.ConfigRecord(resource_type=2, resource_name=TOPIC, key="min.insync.replicas", value=value)
    return metadata_pb2.MetadataRecord(config=record)


def change(isr: Sequence[int], elr: Sequence[int] = (), leader_id: int | None = None) -> metadata_pb2.MetadataRecord:
    record = metadata_pb2.PartitionChangeRecord(topic_id=TOPIC_ID, leader_id=leader_id)
    record.in_sync_replicas.replicas.extend(isr)
    record.eligible_leader_replicas.replicas.extend(elr)
    return metadata_pb2.MetadataRecord(partition_change=record)


async def test_a_raised_minimum_holds_for_the_isr_that_has_shrunk_since(fs: SimFileSystem) -> None:
    """One delta brings both. The replica in the ELR lacks the write: nobody may count on it (KIP-966)."""
    broker = Broker(fs)
    partition = await broker.create(TOPIC_ID, [1, 2], min_insync_replicas="1")
    write = broker.write(partition)
    await settle()
    await broker.publish(minimum("2"), change([1], [2]))
    assert (partition.high_watermark, write.is_done) == (0, False)


async def test_a_lowered_minimum_acknowledges_nothing_for_a_leader_that_was_replaced(fs: SimFileSystem) -> None:
    """One delta brings both: another one leads, without the write, since before the minimum was lowered."""
    broker = Broker(fs)
    partition = await broker.create(TOPIC_ID, [1, 2], min_insync_replicas="2")
    write = broker.write(partition)
    await settle()
    await broker.publish(change([1], [2]))
    await broker.publish(change([2], leader_id=2), minimum("1"))
    assert partition.log.config.min_insync_replicas == 1
    assert partition.high_watermark == 0
    assert isinstance(write.error, NotLeaderOrFollowerError)


async def test_a_lowered_minimum_acknowledges_what_waits_for_more_replicas(fs: SimFileSystem) -> None:
    """At once, and not with the next write: there may be none."""
    broker = Broker(fs)
    partition = await broker.create(TOPIC_ID, [1, 2], min_insync_replicas="2")
    write = broker.write(partition)
    await settle()
    await broker.publish(change([1], [2]))
    assert not write.is_done
    await broker.publish(minimum("1"))
    assert (partition.high_watermark, write.is_done, write.error) == (1, True, None)


async def test_a_deletion_waits_for_as_many_replicas_as_a_write(fs: SimFileSystem) -> None:
    """Its records are gone here, but another one may lead that has them. A lowered minimum is an end of that."""
    broker = Broker(fs)
    partition = await broker.create(TOPIC_ID, [1, 2], min_insync_replicas="1")
    write = broker.write(partition)
    await broker.publish(change([1]))
    await settle()
    assert write.is_done
    await broker.publish(minimum("2"))
    await broker.replicas.retention.advance_starts({partition: 1})
    assert partition.log.log_start_offset == 1
    waiting = asyncio.ensure_future(broker.replicas.wait_deleted({partition: 1}, timeout_ms=100))
    await settle()
    broker.replicas.timers.advance(broker.clock.monotonic_ms() + 100)
    error = (await waiting)[partition]
    assert isinstance(error, RequestTimedOutError)
    assert error.retriable
    waiting = asyncio.ensure_future(broker.replicas.wait_deleted({partition: 1}, timeout_ms=100))
    await settle()
    assert not waiting.done()
    await broker.publish(minimum("1"))
    assert await waiting == {partition: None}


async def test_with_interval_a_full_segment_is_flushed(fs: SimFileSystem) -> None:
    """As in Kafka: however late flush.ms is, a crash leaves one segment to check, not all of them."""
    broker = Broker(fs)
    partition = await broker.create(flush_policy="interval", segment_bytes=str(2 * len(batch())))
    for _ in range(2):
        broker.write(partition)
    await settle()
    assert partition.log.flushed_end_offset == 0
    broker.write(partition)
    await settle()
    assert partition.log.flushed_end_offset == 3
    assert not partition.log.has_unsynced_segments


async def test_a_write_that_is_not_acknowledged_in_time_says_so(fs: SimFileSystem) -> None:
    """timeout_ms: REQUEST_TIMED_OUT, although the records are in the log and may be acknowledged to a retry."""
    broker = Broker(fs)
    partition = await broker.create()
    broker.executor.is_gated = True
    write = broker.write(partition, timeout_ms=100)
    await settle()
    broker.replicas.timers.advance(broker.clock.monotonic_ms() + 99)
    assert not write.is_done
    broker.replicas.timers.advance(broker.clock.monotonic_ms() + 100)
    assert isinstance(write.error, RequestTimedOutError)
    await broker.executor.release()
    assert isinstance(write.error, RequestTimedOutError)
    assert partition.high_watermark == 1


async def test_a_lost_leadership_fails_the_waiting_writes(fs: SimFileSystem) -> None:
    """A write of an earlier epoch is not vouched for, whatever is flushed later."""
    broker = Broker(fs)
    partition = await broker.create()
    broker.executor.is_gated = True
    write = broker.write(partition)
    change = metadata_pb2.PartitionChangeRecord(topic_id=bytes(15) + b"\x07", partition=0, leader_id=-1)
    await broker.publish(metadata_pb2.MetadataRecord(partition_change=change))
    assert isinstance(write.error, NotLeaderOrFollowerError)
    assert broker.leadership == [(0, True), (1, False)]
    await broker.executor.release()


async def test_waiting_for_a_commit(fs: SimFileSystem) -> None:
    """Coordinators: returns when the high watermark has passed, raises when the epoch cannot commit any more."""
    broker = Broker(fs)
    partition = await broker.create()
    broker.executor.is_gated = True
    broker.write(partition)
    first = asyncio.create_task(broker.replicas.wait_committed(partition, 0, 1))
    second = asyncio.create_task(broker.replicas.wait_committed(partition, 0, 2))
    await settle()
    assert not first.done()
    await broker.executor.release()
    await first
    assert not second.done()
    broker.executor.is_gated = False
    await broker.delete()
    with pytest.raises(NotLeaderOrFollowerError):
        await second


async def test_a_deleted_topic_answers_its_waiters_and_leaves_no_files(fs: SimFileSystem) -> None:
    """Deletion ends every wait; the directory is gone, and a new topic of that name is empty."""
    broker = Broker(fs)
    partition = await broker.create()
    events: list[tuple[str, int]] = []
    broker.replicas.subscribe((TOPIC, 0), events.append)
    broker.write(partition)
    await settle()
    assert events
    broker.executor.is_gated = True
    write = broker.write(partition)
    await settle()
    deleting = asyncio.create_task(broker.delete())
    await settle()
    assert isinstance(write.error, KraftlogError)
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.replicas.leader(TOPIC, 0)
    while not deleting.done():
        await broker.executor.release()
    await deleting
    assert f"{TOPIC}-0" not in fs.listdir(PATH)
    broker.executor.is_gated = False
    again = await broker.create(bytes(15) + b"\x09")
    assert again.log.log_end_offset == 0


async def test_a_topic_that_is_about_to_go_takes_no_records(fs: SimFileSystem) -> None:
    """The quorum has deleted it, and whoever made it anew would look for the record there; the log goes a moment later."""
    broker = Broker(fs)
    await broker.create()
    broker.executor.is_gated = True
    other = bytes(15) + b"\x08"
    partition = metadata_pb2.PartitionRecord(topic_id=other, replicas=[1], in_sync_replicas=[1], leader_id=1)
    updates = [
        asyncio.ensure_future(
            broker.publish(
                metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name="other", topic_id=other)),
                metadata_pb2.MetadataRecord(partition=partition),
            )
        )
    ]
    await settle()
    assert broker.replicas.is_being_made("other", 0)
    assert broker.replicas.leader(TOPIC, 0).log.log_end_offset == 0
    updates.append(asyncio.ensure_future(broker.delete()))
    await settle()
    with pytest.raises(NotLeaderOrFollowerError):
        broker.replicas.leader(TOPIC, 0)
    broker.executor.is_gated = False
    await broker.executor.release()
    await asyncio.gather(*updates)
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.replicas.leader(TOPIC, 0)


async def test_a_log_of_a_topic_that_was_deleted_while_the_broker_was_down_is_replaced(fs: SimFileSystem) -> None:
    """The directory's topic id decides, not its name: old records never appear in a new topic."""
    broker = Broker(fs)
    broker.write(await broker.create())
    await settle()
    await broker.replicas.stop()
    broker.log_dir.close()
    restarted = Broker(fs)
    partition = await restarted.create(bytes(15) + b"\x09")
    assert partition.log.log_end_offset == 0


async def test_a_leader_epoch_of_an_earlier_process_is_not_led_again(fs: SimFileSystem) -> None:
    """What that process acknowledged may be lost here; replicas that follow in that epoch would cut their logs to this one."""
    broker = Broker(fs, incarnation_id=b"b" * 16)
    register = metadata_pb2.RegisterBrokerRecord(node_id=1, incarnation_id=b"a" * 16, host="h", port=1)
    topic_id = bytes(15) + b"\x07"
    partition = metadata_pb2.PartitionRecord(
        topic_id=topic_id, replicas=[1, 2], in_sync_replicas=[1, 2], leader_id=1, leader_epoch=3
    )
    await broker.publish(
        metadata_pb2.MetadataRecord(register_broker=register),
        metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=topic_id)),
        metadata_pb2.MetadataRecord(partition=partition),
    )
    with pytest.raises(NotLeaderOrFollowerError):
        broker.replicas.leader(TOPIC, 0)
    register.incarnation_id, register.broker_epoch = b"b" * 16, broker.image.offset + 1
    change = metadata_pb2.PartitionChangeRecord(topic_id=topic_id, leader_id=-1)
    await broker.publish(
        metadata_pb2.MetadataRecord(register_broker=register), metadata_pb2.MetadataRecord(partition_change=change)
    )
    with pytest.raises(NotLeaderOrFollowerError):
        broker.replicas.leader(TOPIC, 0)
    change.leader_id = 1
    await broker.publish(metadata_pb2.MetadataRecord(partition_change=change))
    assert broker.replicas.leader(TOPIC, 0).leader_epoch == 5
    assert broker.leadership[-1] == (5, True)


async def test_a_topic_that_was_made_again_is_led_in_its_first_epoch(fs: SimFileSystem) -> None:
    """Though the topic of that name, which an earlier process led, was in a later one."""
    broker = Broker(fs, incarnation_id=b"b" * 16)
    register = metadata_pb2.RegisterBrokerRecord(node_id=1, incarnation_id=b"a" * 16, host="h", port=1)
    topic_id = bytes(15) + b"\x07"
    partition = metadata_pb2.PartitionRecord(
        topic_id=topic_id, replicas=[1], in_sync_replicas=[1], leader_id=1, leader_epoch=3
    )
    await broker.publish(
        metadata_pb2.MetadataRecord(register_broker=register),
        metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=topic_id)),
        metadata_pb2.MetadataRecord(partition=partition),
    )
    register.incarnation_id, register.broker_epoch = b"b" * 16, broker.image.offset + 1
    await broker.publish(metadata_pb2.MetadataRecord(register_broker=register))
    await broker.delete()
    assert (await broker.create(bytes(15) + b"\x08")).leader_epoch == 0


async def test_a_new_log_that_a_power_loss_takes_is_made_anew() -> None:
    """Making it syncs nothing: all of it may be lost, or a part, such as its topic id."""
    for seed in range(30):
        fs = SimFileSystem(records_operations=True)
        broker = Broker(fs)
        fs.operations.clear()
        await broker.create()
        assert not [it for it in fs.operations if "sync" in it.name]
        fs.crash(random.Random(seed))
        broker = Broker(fs)
        partition = await broker.create()
        assert (partition.log.log_end_offset, broker.log_dir.logs[partition.key].damage) == (0, None), f"seed {seed}"
        write = broker.write(partition)
        await settle()
        assert (write.is_done, write.error) == (True, None)
        fs.crash(random.Random(seed))
        assert (await Broker(fs).create()).log.log_end_offset == 1, (
            f"seed {seed}: the first acknowledged record is lost"
        )


async def test_nobody_leads_who_was_elected_as_the_process_before(fs: SimFileSystem) -> None:
    """Back before its session has ended, perhaps with an empty disk: as long as the controller does not know, it may elect
    this broker, for the process that it takes to be alive (a simulated cluster, seed 105)."""
    broker = Broker(fs, incarnation_id=b"b" * 16)
    register = metadata_pb2.RegisterBrokerRecord(node_id=1, incarnation_id=b"a" * 16, host="h", port=1)
    topic_id = bytes(15) + b"\x07"
    partition = metadata_pb2.PartitionRecord(topic_id=topic_id, replicas=[1, 2], in_sync_replicas=[1, 2], leader_id=2)
    await broker.publish(
        metadata_pb2.MetadataRecord(register_broker=register),
        metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=topic_id)),
        metadata_pb2.MetadataRecord(partition=partition),
    )
    change = metadata_pb2.PartitionChangeRecord(topic_id=topic_id, leader_id=1)
    elected = metadata_pb2.MetadataRecord(partition_change=change)
    await broker.publish(elected)
    with pytest.raises(NotLeaderOrFollowerError):
        broker.replicas.leader(TOPIC, 0)
    register.incarnation_id, register.broker_epoch = b"b" * 16, broker.image.offset + 2
    await broker.publish(elected, metadata_pb2.MetadataRecord(register_broker=register))
    with pytest.raises(NotLeaderOrFollowerError):
        broker.replicas.leader(TOPIC, 0)
    await broker.publish(elected)
    assert broker.replicas.leader(TOPIC, 0).leader_epoch == 3


async def test_a_restart_keeps_what_was_flushed(fs: SimFileSystem) -> None:
    """The high watermark of a sole replica is what its log holds after recovery."""
    broker = Broker(fs)
    partition = await broker.create()
    for _ in range(3):
        broker.write(partition)
    await settle()
    await broker.replicas.stop()
    broker.log_dir.close()
    restarted = Broker(fs)
    assert (await restarted.create()).high_watermark == 3


async def test_a_topic_that_is_made_again_has_nothing_of_the_high_watermark_before(fs: SimFileSystem) -> None:
    """After a power loss of all replicas its leader showed what was not committed, up to what had been in the topic before."""
    first, second = (bytes(15) + bytes([number]) for number in (7, 8))

    def topic(topic_id: bytes) -> list[metadata_pb2.MetadataRecord]:
        return [
            metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=topic_id)),
            metadata_pb2.MetadataRecord(
                config=metadata_pb2.ConfigRecord(
                    resource_type=2, resource_name=TOPIC, key="min.insync.replicas", value="2"
                )
            ),
            metadata_pb2.MetadataRecord(
                partition=metadata_pb2.PartitionRecord(
                    topic_id=topic_id, replicas=[1, 2], in_sync_replicas=[1, 2], leader_id=1, flushed=True
                )
            ),
        ]

    async def write_to(topic_id: bytes, count: int, committed: int) -> None:
        await broker.publish(*topic(topic_id))
        partition = broker.replicas.leader(TOPIC, 0)
        for _ in range(count):
            broker.write(partition)
        await settle()
        partition.on_follower_ends(2, partition.leader_epoch, ReplicaEnds(committed, committed))
        assert (partition.high_watermark, partition.log.flushed_end_offset) == (committed, count)

    broker = Broker(fs)
    await write_to(first, 5, committed=5)
    broker.log_dir.checkpoint_high_watermarks(broker.replicas.high_watermarks)
    await broker.delete(first)
    await write_to(second, 4, committed=2)
    fs.crash(random.Random(1))
    restarted = Broker(fs)
    await restarted.publish(*topic(second))
    partition = restarted.replicas.leader(TOPIC, 0)
    assert (partition.log.log_end_offset, partition.high_watermark) == (4, 0)


async def test_a_produce_handler_answers_through_its_future(fs: SimFileSystem) -> None:
    """Unary produce: the answer comes when the write is safe."""
    broker = Broker(fs)
    await broker.create()
    handler = ProduceHandler(broker.replicas, broker.executor, Lifecycle(1))
    request = ProduceRequest(acks=-1, timeout_ms=1000, partitions=[PartitionRecords(TOPIC, 0, batch())])
    response = await handler.produce(request, CallContext())
    assert response.partitions[0].durability == "quorum-fsync"


@pytest.mark.parametrize(("acks", "promise"), [(1, "leader"), (-1, "quorum")])
async def test_an_answer_promises_no_more_than_what_it_waited_for(fs: SimFileSystem, acks: int, promise: str) -> None:
    """The topic goes from ack to interval while a write waits for its fsync, and back: what is answered in between is in memory,
    also if the answer leaves later; what was written in between says so, whatever holds at its answer."""
    broker = Broker(fs)
    await broker.create(flush_policy="ack")
    await broker.publish(
        metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name="other", topic_id=bytes(15) + b"\x08")),
        metadata_pb2.MetadataRecord(
            partition=metadata_pb2.PartitionRecord(
                topic_id=bytes(15) + b"\x08", replicas=[1], in_sync_replicas=[1], leader_id=1
            )
        ),
    )
    await broker.publish(*policy("ack", flushed=True))
    handler = ProduceHandler(broker.replicas, broker.executor, Lifecycle(1))
    answers: list[ProduceResponse] = []

    def produce(*topics: str) -> None:
        parts = [PartitionRecords(topic, 0, batch()) for topic in topics]
        request = ProduceRequest(acks=acks, timeout_ms=1000, partitions=parts)
        verdicts = handler.validate_inline(request)
        assert verdicts is not None
        handler.append(request, verdicts, answers.append)

    broker.executor.is_gated = True
    produce(TOPIC)
    produce(TOPIC, "other")
    await settle()
    assert answers == []
    await broker.publish(*policy("interval", flushed=False))
    [answer] = answers
    assert [result.durability for result in answer.partitions] == [f"{promise}-memory"]
    assert broker.replicas.leader(TOPIC, 0).log.flushed_end_offset == 0
    produce(TOPIC, "other")
    await broker.publish(*policy("ack", flushed=False))
    while broker.executor.waiting:
        await broker.executor.release()
    assert len(answers) == 3
    for answer in answers[1:]:
        assert [result.durability for result in answer.partitions] == [f"{promise}-memory", f"{promise}-fsync"]
