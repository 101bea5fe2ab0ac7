"""ListOffsets: earliest, latest, largest timestamp, and the first offset at or after a time."""

from kraftlog.proto.broker_pb2 import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsResult
from kraftlog.proto.errors import InvalidRequestError, KraftlogError, StorageError
from kraftlog.proto.seams import CallContext
from kraftlog.replication.partition import Partition
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.apis.fetch_session import READ_COMMITTED
from kraftlog.server.apis.limits import MAKING_WAIT_MS, check_entries

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
NONE = -1


class ListOffsetsHandler:
    """Answers ListOffsets. Used from one event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    async def list_offsets(self, request: ListOffsetsRequest, context: CallContext) -> ListOffsetsResponse:
        """One result a partition, in the order of the request; errors are codes in the results."""
        check_entries("partitions", request.partitions)
        read_committed = request.isolation_level == READ_COMMITTED
        await self._replicas.wait_made([(asked.topic, asked.partition) for asked in request.partitions], MAKING_WAIT_MS)
        return ListOffsetsResponse(partitions=[self._result(asked, read_committed) for asked in request.partitions])

    def _result(self, asked: ListOffsetsPartition, read_committed: bool) -> ListOffsetsResult:
        result = ListOffsetsResult(
            topic=asked.topic, partition=asked.partition, timestamp=NONE, offset=NONE, leader_epoch=NONE
        )
        try:
            partition = self._replicas.leader(asked.topic, asked.partition, asked.current_leader_epoch)
            self._find(partition, asked.timestamp, read_committed, result)
        except KraftlogError as error:
            if isinstance(error, StorageError):
                self._replicas.look_at_failure(self._replicas.partition(asked.topic, asked.partition))
            result.error_code = int(error.code)
            result.error_message = error.message
        return result

    @staticmethod
    def _find(partition: Partition, timestamp: int, read_committed: bool, result: ListOffsetsResult) -> None:
        log = partition.log
        if timestamp == EARLIEST:
            result.offset = log.log_start_offset
            result.leader_epoch = partition.leader_epoch
            return
        end_offset = partition.latest_offset(read_committed=read_committed)
        if timestamp == LATEST:
            result.offset = end_offset
            result.leader_epoch = partition.leader_epoch
            return
        if timestamp < MAX_TIMESTAMP:
            raise InvalidRequestError(
                f"timestamp {timestamp} is not valid: use milliseconds since 1970, -1 (latest), -2 (earliest) or "
                "-3 (largest timestamp)"
            )
        found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
        if found is not None and found[0] < end_offset:
            result.offset, result.timestamp, result.leader_epoch = found
