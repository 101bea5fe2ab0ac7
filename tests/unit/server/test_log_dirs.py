"""DescribeLogDirs over a real log store on a simulated disk."""

from kraftlog.proto.admin_pb2 import DescribeLogDirsRequest, LogDirDescription
from kraftlog.proto.errors import ErrorCode, StorageError
from kraftlog.proto.seams import CallContext
from kraftlog.server.apis.log_dirs import LogDirsHandler
from kraftlog.testing.filesystem import SimFileSystem
from tests.unit.replication.fake_replica_log import settle
from tests.unit.replication.test_cleaner import COMPACT, TOPIC_ID, write
from tests.unit.replication.test_replica_manager import TOPIC, Broker


async def describe(broker: Broker, *topics: str) -> LogDirDescription:
    handler = LogDirsHandler(broker.log_dir, broker.replicas, broker.executor)
    [log_dir] = (await handler.describe_log_dirs(DescribeLogDirsRequest(topics=topics), CallContext())).log_dirs
    return log_dir


async def test_sizes_offsets_and_how_far_compaction_is() -> None:
    broker = Broker(SimFileSystem())
    log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1, 2] * 10)
    await settle()
    assert await broker.replicas.cleaner.clean_one()
    log_dir = await describe(broker)
    assert (log_dir.path, log_dir.error_code, log_dir.size_bytes) == ("/data", 0, log.size_bytes)
    [found] = log_dir.logs
    assert (found.topic, found.partition, found.size_bytes, found.segments) == (
        TOPIC,
        0,
        log.size_bytes,
        len(log.segment_base_offsets),
    )
    assert (found.log_start_offset, found.log_end_offset) == (0, 20)
    assert (found.flushed_end_offset, found.recovery_point) == (20, 20)
    assert (list(found.cleanup_policy), found.cleaned_to_offset) == (["compact"], log.segment_base_offsets[-1])
    assert (found.problem, found.uncleanable_reason, found.uncleanable_since_ms) == ("", "", -1)


async def test_other_topics_are_left_out_but_for_their_size() -> None:
    broker = Broker(SimFileSystem())
    log = write(broker, await broker.create(), 1)
    log_dir = await describe(broker, "other")
    assert (list(log_dir.logs), log_dir.size_bytes) == ([], log.size_bytes)


async def test_an_uncleanable_log_is_shown_with_reason_and_time() -> None:
    broker = Broker(SimFileSystem())
    log = write(broker, await broker.create(TOPIC_ID, **COMPACT), *[1] * 20)
    await settle()
    broker.fs.flip(f"{log.directory}/{0:020d}.log", 80)
    await broker.replicas.cleaner.clean_one()
    [found] = (await describe(broker)).logs
    assert "no valid batch at position 0" in found.uncleanable_reason
    assert found.uncleanable_since_ms == broker.clock.wall_ms()
    assert found.problem == "", "it takes writes"


async def test_an_offline_directory_and_a_failed_log_say_why() -> None:
    broker = Broker(SimFileSystem())
    log = write(broker, await broker.create(), 1)
    log.failure = StorageError("fsync failed")
    broker.replicas.fail(StorageError("the disk is gone"))
    log_dir = await describe(broker)
    assert (log_dir.error_code, log_dir.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")
    assert [found.problem for found in log_dir.logs] == ["fsync failed"]
