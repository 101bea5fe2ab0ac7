"""`CoordinatorLog` over the replica manager: internal topics' partitions that this node leads."""

from kraftlog.logstore import ReadResult
from kraftlog.proto.errors import StorageError
from kraftlog.replication.replica_manager import ReplicaManager

_ACKS_ALL = -1


class ReplicaCoordinatorLog:
    """Used from one event loop."""

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas

    def append(self, topic: str, partition: int, records: bytes) -> int:
        """Append one batch as the leader, now; its last offset."""
        leader = self._replicas.leader(topic, partition)
        return self._replicas.append(leader, records, acks=_ACKS_ALL).last_offset

    async def wait_committed(self, topic: str, partition: int, offset: int) -> None:
        """Return when the high watermark is above `offset`; raise if this node will not see that as the leader."""
        leader = self._replicas.leader(topic, partition)
        await self._replicas.wait_committed(leader, leader.leader_epoch, offset + 1)

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> ReadResult:
        """Read up to the log's end, at least one batch if there is one."""
        leader = self._replicas.leader(topic, partition)
        try:
            return leader.log.read(offset, max_bytes, end_offset=leader.log.log_end_offset)
        except StorageError:
            self._replicas.look_at_failure(leader)
            raise

    def log_start_offset(self, topic: str, partition: int) -> int:
        return self._replicas.leader(topic, partition).log.log_start_offset

    def log_end_offset(self, topic: str, partition: int) -> int:
        return self._replicas.leader(topic, partition).log.log_end_offset
