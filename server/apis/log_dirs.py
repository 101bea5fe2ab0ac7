"""DescribeLogDirs: what a broker has on its disk, log by log, and what is wrong with it."""

from collections.abc import Collection, Mapping

from kraftlog.logstore import Log, LogDir
from kraftlog.logstore.cleaning import Uncleanable
from kraftlog.proto.admin_pb2 import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDescription,
    LogDirDescription,
)
from kraftlog.proto.errors import ErrorCode
from kraftlog.proto.seams import BlockingExecutor, CallContext
from kraftlog.replication.partition import TopicPartition
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.limits import MAKING_WAIT_MS

NO_TIME = -1


class LogDirsHandler:
    """Answers DescribeLogDirs from what the logs know: no file is read. Used from one event loop."""

    def __init__(self, log_dir: LogDir, replicas: ReplicaManager, executor: BlockingExecutor) -> None:
        self._log_dir = log_dir
        self._replicas = replicas
        self._executor = executor

    async def describe_log_dirs(self, request: DescribeLogDirsRequest, context: CallContext) -> DescribeLogDirsResponse:
        """The broker's directory with its logs, those of the named topics or all, by name; also `__cluster_metadata`.

        A topic without a log here is left out, as in Kafka. In the executor, because thousands of segments are summed.
        """
        topics = frozenset(request.topics)
        made = self._replicas.published.topics
        await self._replicas.wait_made(
            ((name, number) for name in topics or made if name in made for number in made[name].partitions),
            MAKING_WAIT_MS,
        )
        uncleanable = self._replicas.cleaner.uncleanable
        described = await self._executor.run(lambda: _describe(self._log_dir, topics, uncleanable))
        failure = self._replicas.failure
        if failure is not None:
            described.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
            described.error_message = str(failure)
        return DescribeLogDirsResponse(log_dirs=[described])


def _describe(
    log_dir: LogDir, topics: Collection[str], uncleanable: Mapping[TopicPartition, Uncleanable]
) -> LogDirDescription:
    return LogDirDescription(
        path=log_dir.path,
        size_bytes=log_dir.sizes().size_bytes,
        logs=[
            _describe_log(log, log_dir.cleaned_to(log), uncleanable.get(key))
            for key, log in sorted(log_dir.logs.items(), key=lambda it: it[0])
            if not topics or key[0] in topics
        ],
    )


def _describe_log(log: Log, cleaned_to: int, uncleanable: Uncleanable | None) -> LogDescription:
    problem = log.failure or log.damage
    return LogDescription(
        topic=log.topic,
        partition=log.partition,
        size_bytes=log.size_bytes,
        segments=log.segment_count,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        flushed_end_offset=log.flushed_end_offset,
        recovery_point=log.recovery_point,
        cleanup_policy=sorted(log.config.cleanup_policy),
        cleaned_to_offset=cleaned_to,
        problem="" if problem is None else str(problem),
        uncleanable_reason="" if uncleanable is None else uncleanable.reason,
        uncleanable_since_ms=NO_TIME if uncleanable is None else uncleanable.since_ms,
    )
