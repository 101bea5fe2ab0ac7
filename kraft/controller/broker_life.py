"""What a broker's coming, going and failing means for the partitions: one operation for each step of its life.

step                      its partitions
register                  it leaves every ISR; also the ELR of what it says it has lost, and of what it may have lost in
                          an unclean stop (KIP-966)
heartbeat, caught up      unfenced: partitions without a leader may get it
heartbeat, disk failed    leaves ISR and ELR of what was on it (KIP-858); fenced if it has no disk left
controlled shutdown       its leaderships move, and it leaves the ISRs, where somebody else can lead; when the other
                          brokers know that, it is fenced and may stop
session expired           fenced: it leaves every ISR and leads nothing
unregister                as lost for good: it also leaves the ELR
"""

from collections.abc import Callable, Collection, Iterable

from kraftlog.kraft.controller.brokers import BrokerManager, BrokerRegistration, HeartbeatReply
from kraftlog.kraft.controller.elections import ElectionManager, directory_of
from kraftlog.kraft.controller.features import FeatureManager
from kraftlog.kraft.controller.partitions import PartitionKey, PartitionStore
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import NO_DIRECTORY, BrokerImage, PartitionImage
from kraftlog.proto.metadata_pb2 import MetadataRecord

MAX_BROKERS_PER_FENCING = 1_000


class BrokerLife:
    """Used only by the controller."""

    def __init__(
        self,
        *,
        brokers: BrokerManager,
        partitions: PartitionStore,
        elections: ElectionManager,
        features: FeatureManager,
    ) -> None:
        self._brokers = brokers
        self._partitions = partitions
        self._elections = elections
        self._features = features

    def register(self, registration: BrokerRegistration, *, next_offset: int, now_ms: float) -> Result[int]:
        """The response is the broker epoch. A new process starts fenced, so its former leaderships move away."""
        before = self._brokers.broker(registration.node_id)
        result = self._brokers.register(registration, next_offset, now_ms)
        self._features.check_broker(registration.node_id, registration.features)
        self._brokers.sessions.end(registration.node_id)  # a session starts with the first heartbeat
        has_lost = self._has_lost(before, registration)
        losses = self._elections.lose(registration.node_id, has_lost, must_be_whole=True)
        return Result(result.response, [*result.records, *losses, *self._leave([registration.node_id], losses)])

    def _has_lost(
        self, before: BrokerImage | None, registration: BrokerRegistration
    ) -> Callable[[PartitionKey, PartitionImage], bool]:
        """Which replicas may lack records that they once acknowledged (KIP-966, adapted).

        A disk that is not there any more had some, and a damaged log may have. After an unclean stop a replica has all
        of them if all that was acknowledged is on disk.
        """
        if before is None:
            return lambda key, partition: True
        is_restart = before.incarnation_id != registration.incarnation_id
        was_clean = registration.previous_broker_epoch in (None, before.broker_epoch)
        has_all_disks = set(before.log_dirs) <= set(registration.log_dirs)

        def has_lost(key: PartitionKey, partition: PartitionImage) -> bool:
            if key in registration.lost_replicas:
                return True
            directory = directory_of(partition, registration.node_id)
            if not (has_all_disks if directory == NO_DIRECTORY else directory in registration.log_dirs):
                return True
            if was_clean or not is_restart:
                return False
            return not partition.is_flushed

        return has_lost

    def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int,
        want_fence: bool,
        want_shut_down: bool,
        now_ms: float,
        next_offset: int,
        offline_log_dirs: Collection[bytes] = (),
        lost_replicas: Collection[PartitionKey] = (),
    ) -> Result[HeartbeatReply]:
        """A broker lives. It is unfenced once it has left every ISR, which may take several batches, has its own
        registration in its metadata, and does not object."""
        broker = self._brokers.check_epoch(node_id, broker_epoch)
        self._brokers.sessions.touch(node_id, now_ms, metadata_offset)
        failed = set(offline_log_dirs) & set(broker.log_dirs)
        if failed:
            return self._disk_failure(broker, failed)
        if offline_log_dirs and not broker.log_dirs:
            return Result(HeartbeatReply(is_fenced=broker.is_fenced, should_shut_down=False))
        damages = self._elections.lose_where_others_can_lead(node_id, lost_replicas)
        if damages:
            return Result(HeartbeatReply(is_fenced=broker.is_fenced, should_shut_down=False), damages)
        if want_shut_down:
            return self._controlled_shutdown(broker, next_offset)
        if want_fence:
            records = [] if broker.is_fenced else self.fence([node_id]).records
            return Result(HeartbeatReply(is_fenced=True, should_shut_down=False), records)
        if broker.is_fenced and metadata_offset >= broker_epoch and not self._partitions.in_sync_count(node_id):
            change = self._brokers.change(broker, fenced=False, in_controlled_shutdown=False)
            usable = self._brokers.usable_racks().keys() | {node_id}
            records = [change, *self._elections.elect_where_missing(usable)]
            return Result(HeartbeatReply(is_fenced=False, should_shut_down=False), records)
        return Result(HeartbeatReply(is_fenced=broker.is_fenced, should_shut_down=False))

    def _disk_failure(self, broker: BrokerImage, failed: Collection[bytes]) -> Result[HeartbeatReply]:
        """Replicas of which it is not known where they are count as lost, if some of the disks still work."""
        left = [directory for directory in broker.log_dirs if directory not in failed]
        if not left:
            fencing = [] if broker.is_fenced else self._leave([broker.node_id], [])
            change = self._brokers.change(broker, fenced=True, log_dirs=[])
            return Result(HeartbeatReply(is_fenced=True, should_shut_down=False), [change, *fencing])
        change = self._brokers.change(broker, log_dirs=left)

        def has_lost(key: PartitionKey, partition: PartitionImage) -> bool:
            return directory_of(partition, broker.node_id) in (NO_DIRECTORY, *failed)

        losses = self._elections.lose(broker.node_id, has_lost, must_be_whole=True)
        return Result(HeartbeatReply(is_fenced=broker.is_fenced, should_shut_down=False), [change, *losses])

    def _controlled_shutdown(self, broker: BrokerImage, next_offset: int) -> Result[HeartbeatReply]:
        """First lead nothing that another broker can lead; what nobody else can lead is given up with the fencing."""
        if broker.is_fenced:
            leads_nothing = not self._partitions.led_count(broker.node_id)  # else a fencing in several batches goes on
            return Result(HeartbeatReply(is_fenced=True, should_shut_down=leads_nothing))
        node_id, sessions = broker.node_id, self._brokers.sessions
        moves = self._elections.leave([node_id], may_go_offline=False)
        if moves or not broker.in_controlled_shutdown:
            records = [self._brokers.change(broker, in_controlled_shutdown=True), *moves]
            sessions.shutdown_offset(node_id, next_offset + len(records) - 1, moves=True)
            return Result(HeartbeatReply(is_fenced=False, should_shut_down=False), records)
        others = [other.node_id for other in self._brokers.all() if not other.is_fenced and other.node_id != node_id]
        if not sessions.all_know(others, sessions.shutdown_offset(node_id, next_offset - 1, moves=False)):
            return Result(HeartbeatReply(is_fenced=False, should_shut_down=False))
        leads_nothing = self._elections.can_leave_at_once(node_id)
        return Result(HeartbeatReply(is_fenced=True, should_shut_down=leads_nothing), self.fence([node_id]).records)

    def fence(self, node_ids: Iterable[int]) -> Result[None]:
        """All of them at once, so that no leadership moves to a broker that is about to lose it."""
        brokers = [self._brokers.broker(node_id) for node_id in node_ids]
        live = [broker for broker in brokers if broker is not None and not broker.is_fenced][:MAX_BROKERS_PER_FENCING]
        if not live:
            return Result(None)
        changes = [self._brokers.change(broker, fenced=True) for broker in live]
        return Result(None, [*changes, *self._leave([broker.node_id for broker in live], [])])

    def unregister(self, node_id: int) -> Result[None]:
        """It is not expected back: should it come, nothing is known of its disks."""
        result = self._brokers.unregister(node_id)
        self._brokers.sessions.end(node_id)
        losses = self._elections.lose(node_id, lambda key, partition: True, must_be_whole=False)
        return Result(None, [*result.records, *losses])

    def _leave(self, node_ids: Collection[int], decided: list[MetadataRecord]) -> list[MetadataRecord]:
        """`decided` are changes of this batch: their partitions are not changed twice."""
        done = {(record.partition_change.topic_id, record.partition_change.partition) for record in decided}
        return [
            record
            for record in self._elections.leave(node_ids)
            if (record.partition_change.topic_id, record.partition_change.partition) not in done
        ]
