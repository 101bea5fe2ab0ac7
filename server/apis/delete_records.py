"""DeleteRecords: let partitions start later. Their files follow with the next look at retention."""

from kraftlog.proto.admin_pb2 import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResult,
)
from kraftlog.proto.errors import InvalidRequestError, InvalidTopicError, KraftlogError
from kraftlog.proto.names import is_internal_topic
from kraftlog.proto.seams import CallContext
from kraftlog.replication.partition import Partition
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.limits import MAKING_WAIT_MS, check_entries

NO_OFFSET = -1
DEFAULT_TIMEOUT_MS = 30_000  # for timeout_ms 0: Kafka's request.timeout.ms


class DeleteRecordsHandler:
    """Answers DeleteRecords. Used from one event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def delete_records(self, request: DeleteRecordsRequest, context: CallContext) -> DeleteRecordsResponse:
        """One result a partition, in the order of the request; each succeeds or fails by itself.

        Answered once the new starts are on disk on every replica in sync: no crash brings the records back. With fewer in
        sync than min.insync.replicas others may come to lead that have them: `RequestTimedOutError` then, unless enough are
        in time; the records are gone here, and Kafka would answer. With `validate_only` nothing changes and the answer
        says where the partitions would start. Repeating a request is harmless.
        """
        check_entries("partitions", request.partitions)
        if len({(asked.topic, asked.partition) for asked in request.partitions}) != len(request.partitions):
            raise InvalidRequestError("a partition is named twice: name each once")
        await self._replicas.wait_made([(asked.topic, asked.partition) for asked in request.partitions], MAKING_WAIT_MS)
        results = [
            DeleteRecordsResult(topic=asked.topic, partition=asked.partition, low_watermark=NO_OFFSET)
            for asked in request.partitions
        ]
        starts: dict[Partition, int] = {}
        found: list[tuple[DeleteRecordsResult, Partition]] = []
        for asked, result in zip(request.partitions, results, strict=True):
            try:
                partition, start_offset = self._check(asked)
            except KraftlogError as error:
                _refuse(result, error)
            else:
                starts[partition] = start_offset
                found.append((result, partition))
        outcomes = (
            dict(starts)
            if request.validate_only
            else await self._advance(starts, request.timeout_ms or DEFAULT_TIMEOUT_MS)
        )
        for result, partition in found:
            outcome = outcomes[partition]
            if isinstance(outcome, KraftlogError):
                _refuse(result, outcome)
            else:
                result.low_watermark = outcome
        return DeleteRecordsResponse(partitions=results)

    def _check(self, asked: DeleteRecordsPartition) -> tuple[Partition, int]:
        if is_internal_topic(asked.topic):
            raise InvalidTopicError(f"records of the internal topic {asked.topic} cannot be deleted")
        partition = self._replicas.leader(asked.topic, asked.partition)
        return partition, partition.deletion_end(asked.before_offset)

    async def _advance(self, starts: dict[Partition, int], timeout_ms: int) -> dict[Partition, int | KraftlogError]:
        try:
            outcomes = await self._replicas.retention.advance_starts(starts)
            begun = {partition: starts[partition] for partition, start in outcomes.items() if isinstance(start, int)}
            errors = await self._replicas.wait_deleted(begun, timeout_ms=timeout_ms)
        except KraftlogError as error:
            return dict.fromkeys(starts, error)
        return {partition: errors.get(partition) or outcome for partition, outcome in outcomes.items()}


def _refuse(result: DeleteRecordsResult, error: KraftlogError) -> None:
    result.error_code = int(error.code)
    result.error_message = error.message
