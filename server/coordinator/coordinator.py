"""`GroupCoordinator`: the consumer-group requests of this node, on the partitions of `__consumer_offsets` it leads.

Takes and returns the messages of `group.proto`; knows no transport. Errors are codes in the answers: no request makes
these methods raise a `KraftlogError`. JoinGroup and SyncGroup wait for other members; they end by an answer, at the
latest at the rebalance timeout, or with NOT_COORDINATOR when the partition moves.

Deviation from Kafka: while a partition loads, every request is answered COORDINATOR_LOAD_IN_PROGRESS. Kafka, for its
older clients, answers heartbeats with success and SyncGroup with REBALANCE_IN_PROGRESS; the latter makes members join
again whose assignment is about to be loaded.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable

from kraftlog.kraft.image import MetadataDelta, MetadataImage
from kraftlog.proto import group_pb2
from kraftlog.proto.errors import (
    CoordinatorNotAvailableError,
    ErrorCode,
    GroupIdNotFoundError,
    KraftlogError,
    NotCoordinatorError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
    code_of,
    raise_for,
)
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC, validate_group_id
from kraftlog.proto.seams import CallContext, Clock, Random
from kraftlog.server.coordinator import validation
from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.effects import GroupState
from kraftlog.server.coordinator.members import JoinResult, SyncResult
from kraftlog.server.coordinator.partition import (
    COMMIT_ERRORS,
    GROUP_ERRORS,
    GroupPartition,
    PartitionState,
    moved,
)
from kraftlog.server.coordinator.partitioning import partition_for
from kraftlog.server.coordinator.records import (
    CoordinatorRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    offset_commit_record,
)
from kraftlog.server.coordinator.runtime import CoordinatorLog
from kraftlog.server.coordinator.shard import GroupView, Refusal

logger = logging.getLogger(__name__)

MAX_LOAD_BACKOFF_MS = 30_000  # a log that cannot be read is tried again at least this often
PartitionExists = Callable[[str, int], bool]


class GroupCoordinator:
    """Used only from the node's event loop."""

    def __init__(
        self,
        *,
        config: GroupConfig,
        log: CoordinatorLog,
        clock: Clock,
        random: Random,
        node_id: int,
        partition_count: Callable[[], int],
        partition_exists: PartitionExists | None = None,
    ) -> None:
        """`partition_count`: of `__consumer_offsets`, once it exists. `partition_exists`, if given, refuses commits for partitions that the cluster does not have."""
        self._config = config
        self._log = log
        self._clock = clock
        self._random = random
        self._node_id = node_id
        self._partition_count = partition_count
        self._partition_exists = partition_exists
        self._partitions: dict[int, GroupPartition] = {}
        self._loads: dict[int, asyncio.Task[None]] = {}
        self._retention_timer: asyncio.TimerHandle | None = None
        self._running = False

    # Life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to serve; partitions come by `on_elected`, before or after."""
        self._running = True
        self._arm_retention()

    async def stop(self) -> None:
        """Answer everybody who waits and let go of every partition. May be repeated."""
        self._running = False
        if self._retention_timer is not None:
            self._retention_timer.cancel()
            self._retention_timer = None
        loads = list(self._loads.values())
        for partition in list(self._partitions):
            self.on_resigned(partition)
        await asyncio.gather(*loads, return_exceptions=True)

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This node leads `partition` from `leader_epoch` on: load it. An epoch that is not newer changes nothing."""
        held = self._partitions.get(partition)
        if held is not None:
            if held.leader_epoch >= leader_epoch:
                return
            self.on_resigned(partition)
        self._begin_load(partition, leader_epoch)

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """This node leads `partition` no longer. Who waits is answered NOT_COORDINATOR.

        With `leader_epoch`, the epoch from which on it does not: an older message than the last election is ignored.
        """
        held = self._partitions.get(partition)
        if held is None or (leader_epoch is not None and leader_epoch < held.leader_epoch):
            return
        del self._partitions[partition]
        load = self._loads.pop(partition, None)
        if load is not None:
            load.cancel()
        held.close(moved(partition))

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A `MetadataPublisher`: all groups' offsets of deleted topics are forgotten.

        To be added to the quorum after the replica manager. Its first delta must be that of everything: a deletion
        that is old, and is replayed only to catch up, would take the offsets of a later topic of the same name.
        """
        names = frozenset(topic.name for topic in delta.deleted_topics)
        if not names:
            return
        for held in list(self._partitions.values()):
            if held.state is PartitionState.ACTIVE:
                held.delete_topics(names)

    async def wait_loaded(self) -> None:
        """Return when no load is under way; for a node that wants to start warm, and for tests."""
        while self._loads:
            await asyncio.wait(list(self._loads.values()))

    @property
    def active_partitions(self) -> list[int]:
        """The partitions that are served."""
        return sorted(p for p, held in self._partitions.items() if held.state is PartitionState.ACTIVE)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` whose leader coordinates `group_id`."""
        return partition_for(group_id, self._partition_count())

    def _begin_load(self, partition: int, leader_epoch: int, *, delay_ms: int = 0, cause: str = "") -> None:
        held = GroupPartition(
            partition,
            leader_epoch,
            config=self._config,
            log=self._log,
            clock=self._clock,
            on_failed=self._reload,
            cause=cause,
        )
        self._partitions[partition] = held
        self._loads[partition] = asyncio.get_running_loop().create_task(self._load(held, delay_ms))

    async def _load(self, held: GroupPartition, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)
        try:
            await held.load()
        except KraftlogError as error:
            held.close(moved(held.partition, error))
            self._reload(held, error, delay_ms)
        finally:
            if self._loads.get(held.partition) is asyncio.current_task():
                del self._loads[held.partition]

    def _reload(self, failed: GroupPartition, error: KraftlogError, delayed_ms: int = 0) -> None:
        """The log failed under us. If we still lead when the pause is over, build the state again from the log."""
        if self._partitions.get(failed.partition) is failed:
            least_ms = self._config.load_retry_backoff_ms
            delay_ms = min(max(2 * delayed_ms, least_ms), max(MAX_LOAD_BACKOFF_MS, least_ms))
            level = logging.INFO if error.refresh_metadata else logging.WARNING  # a fenced leader is nothing unusual
            logger.log(level, "%s: loading again in %d ms: %s", failed, delay_ms, error)
            self._begin_load(failed.partition, failed.leader_epoch, delay_ms=delay_ms, cause=str(error))

    def _arm_retention(self) -> None:
        delay_seconds = self._config.offsets_retention_check_interval_ms / 1000
        self._retention_timer = asyncio.get_running_loop().call_later(delay_seconds, self._check_retention)

    def _check_retention(self) -> None:
        self._arm_retention()
        for held in list(self._partitions.values()):
            if held.state is PartitionState.ACTIVE:
                held.expire_offsets()

    def _held(self, group_id: str) -> GroupPartition:
        """The partition that serves the group. Raises for a bad group id, and if it is not served here and now."""
        validate_group_id(group_id)
        if not self._running:
            raise CoordinatorNotAvailableError(f"broker {self._node_id} is stopping: ask for the group's coordinator")
        partition = self.partition_for(group_id)
        held = self._partitions.get(partition)
        if held is None:
            raise NotCoordinatorError(
                f"broker {self._node_id} does not lead {CONSUMER_OFFSETS_TOPIC}-{partition} of group {group_id}: "
                "ask for the group's coordinator"
            )
        held.check_active()
        return held

    # Membership -----------------------------------------------------------------------------------------------------

    async def join_group(
        self, request: group_pb2.JoinGroupRequest, context: CallContext
    ) -> group_pb2.JoinGroupResponse:
        """Waits until the join phase ends."""
        try:
            join = validation.join_request(request, validation.client_host(context.peer), self._config)
            held = self._held(request.group_id)
            fresh_id = self._member_id(join.group_instance_id or join.client_id)
            result = await held.join(request.group_id, join, fresh_id)
        except KraftlogError as error:
            code, message = _refusal(error)
            result = JoinResult(error=code, message=message, member_id=request.member_id)
        assert isinstance(result, JoinResult)
        return _join_response(result)

    async def sync_group(
        self, request: group_pb2.SyncGroupRequest, context: CallContext
    ) -> group_pb2.SyncGroupResponse:
        """Waits until the leader's assignment is committed."""
        try:
            sync = validation.sync_request(request)
            result = await self._held(request.group_id).sync(sync)
        except KraftlogError as error:
            code, message = _refusal(error)
            result = SyncResult(error=code, message=message)
        assert isinstance(result, SyncResult)
        return group_pb2.SyncGroupResponse(
            error_code=result.error,
            error_message=result.message,
            protocol_type=result.protocol_type,
            protocol_name=result.protocol_name,
            assignment=result.assignment,
        )

    async def heartbeat(self, request: group_pb2.HeartbeatRequest, context: CallContext) -> group_pb2.HeartbeatResponse:
        try:
            validation.check_member_id(request.member_id)
            instance_id = validation.instance_id(request.group_instance_id)
            held = self._held(request.group_id)
            code, message = held.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
        except KraftlogError as error:
            code, message = _refusal(error)
        return group_pb2.HeartbeatResponse(error_code=code, error_message=message)

    async def leave_group(
        self, request: group_pb2.LeaveGroupRequest, context: CallContext
    ) -> group_pb2.LeaveGroupResponse:
        """If the last member leaves, waits until it is committed that the group is empty."""
        try:
            validation.check_member_id(request.member_id)
            instance_id = validation.instance_id(request.group_instance_id)
            (code, message), writes = self._held(request.group_id).leave(
                request.group_id, request.member_id, instance_id
            )
            for write in writes:
                if (failure := await write) is not None:
                    code, message = _mapped(failure, GROUP_ERRORS)
        except KraftlogError as error:
            code, message = _refusal(error)
        return group_pb2.LeaveGroupResponse(error_code=code, error_message=message)

    def _member_id(self, prefix: str) -> str:
        """Kafka's form: the client id or the instance id, and a random UUID."""
        return f"{prefix}-{uuid.UUID(int=self._random.getrandbits(128), version=4)}"

    # Offsets --------------------------------------------------------------------------------------------------------

    async def offset_commit(
        self, request: group_pb2.OffsetCommitRequest, context: CallContext
    ) -> group_pb2.OffsetCommitResponse:
        """All partitions that are in order are committed as one batch; answers when that is durable."""
        asked = request.partitions
        try:
            held = self._committer_checked(request)
        except KraftlogError as error:
            code, message = _refusal(error)
            return group_pb2.OffsetCommitResponse(partitions=[_partition_error(p, code, message) for p in asked])
        errors = [self._commit_error(partition) for partition in asked]
        good = [partition for partition, error in zip(asked, errors, strict=True) if error is None]
        failure = await self._commit(held, request.group_id, good) if good else None
        committed = _mapped(failure, COMMIT_ERRORS)
        answers = [committed if error is None else _refusal(error) for error in errors]
        return group_pb2.OffsetCommitResponse(
            partitions=[_partition_error(p, *answer) for p, answer in zip(asked, answers, strict=True)]
        )

    def _committer_checked(self, request: group_pb2.OffsetCommitRequest) -> GroupPartition:
        """The partition to commit on. Raises if this committer may not commit."""
        validation.check_member_id(request.member_id)
        group_instance_id = validation.instance_id(request.group_instance_id)
        held = self._held(request.group_id)
        code, message = held.shard.check_commit(
            request.group_id, request.member_id, group_instance_id, request.generation_id, held.now_ms()
        )
        raise_for(code, message)
        return held

    def _commit_error(self, partition: group_pb2.OffsetCommitPartition) -> KraftlogError | None:
        error = validation.commit_error(partition, self._config)
        if error is not None or self._partition_exists is None:
            return error
        if self._partition_exists(partition.topic, partition.partition):
            return None
        return UnknownTopicOrPartitionError(
            f"there is no partition {partition.topic}-{partition.partition} to commit an offset of"
        )

    async def _commit(
        self, held: GroupPartition, group_id: str, partitions: list[group_pb2.OffsetCommitPartition]
    ) -> KraftlogError | None:
        if not held.shard.has_room_for_offsets(group_id, ((p.topic, p.partition) for p in partitions)):
            return PolicyViolationError(
                f"group {group_id} would keep offsets of more than "
                f"max_offsets_per_group={self._config.max_offsets_per_group} partitions"
            )
        timestamp_ms = self._clock.wall_ms()
        return await held.append([_offset_record(group_id, partition, timestamp_ms) for partition in partitions])

    async def offset_fetch(
        self, request: group_pb2.OffsetFetchRequest, context: CallContext
    ) -> group_pb2.OffsetFetchResponse:
        """What is committed. Offset -1 says that nothing is; never given while that is not known (then an error)."""
        try:
            held = self._held(request.group_id)
        except KraftlogError as error:
            code, message = _refusal(error)
            return group_pb2.OffsetFetchResponse(error_code=code, error_message=message)
        at = held.read_offset
        if request.all_partitions:
            found = held.shard.committed_offsets(request.group_id, at).items()
            return group_pb2.OffsetFetchResponse(
                partitions=[_fetched(topic, partition, value) for (topic, partition), value in found]
            )
        return group_pb2.OffsetFetchResponse(
            partitions=[
                _fetched(
                    asked.topic,
                    asked.partition,
                    held.shard.committed_offset(request.group_id, (asked.topic, asked.partition), at),
                )
                for asked in request.partitions
            ]
        )

    # Operators --------------------------------------------------------------------------------------------------------

    async def list_groups(
        self, request: group_pb2.ListGroupsRequest, context: CallContext
    ) -> group_pb2.ListGroupsResponse:
        """The groups that this node coordinates. If a partition is still loading, the answer says so by its code."""
        wanted = validation.check_states(request.states, list(GroupState))
        response = group_pb2.ListGroupsResponse()
        for _, held in sorted(self._partitions.items()):
            try:
                held.check_active()
            except KraftlogError as error:
                response.error_code, response.error_message = _refusal(error)
                continue
            response.groups.extend(
                group_pb2.GroupListing(group_id=view.group_id, protocol_type=view.protocol_type, state=view.state.value)
                for view in held.shard.views()
                if view.state.lower() in wanted
            )
        return response

    async def describe_groups(
        self, request: group_pb2.DescribeGroupsRequest, context: CallContext
    ) -> group_pb2.DescribeGroupsResponse:
        return group_pb2.DescribeGroupsResponse(groups=[self._describe(group_id) for group_id in request.group_ids])

    def _describe(self, group_id: str) -> group_pb2.GroupDescription:
        try:
            view = self._held(group_id).shard.view(group_id)
            if view is None:
                raise GroupIdNotFoundError(f"there is no group {group_id}")
        except KraftlogError as error:
            code, message = _refusal(error)
            state = GroupState.DEAD.value if code == ErrorCode.GROUP_ID_NOT_FOUND else ""
            return group_pb2.GroupDescription(
                group_id=group_id, error_code=code, error_message=message, state=state, coordinator_id=self._node_id
            )
        return self._description(view)

    def _description(self, view: GroupView) -> group_pb2.GroupDescription:
        described = group_pb2.GroupDescription(
            group_id=view.group_id,
            state=view.state.value,
            protocol_type=view.protocol_type,
            coordinator_id=self._node_id,
        )
        if (group := view.group) is None:
            return described
        described.generation_id = group.generation_id
        described.leader = group.leader
        # Until the group is stable, neither the protocol nor an assignment is settled.
        is_stable = group.state is GroupState.STABLE
        described.protocol_name = group.protocol_name if is_stable else ""
        described.members.extend(
            group_pb2.GroupMemberDescription(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id or "",
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members
        )
        return described

    async def delete_group(self, group_id: str) -> Refusal:
        """Delete an empty group with its offsets; answers when that is committed."""
        try:
            held = self._held(group_id)
            refusal, records = held.shard.deletion(group_id)
        except KraftlogError as error:
            return _refusal(error)
        if refusal[0]:
            return refusal
        failure = await held.append(records) if records else None
        return _mapped(failure, GROUP_ERRORS)


def _refusal(error: KraftlogError) -> Refusal:
    return code_of(error), error.message


def _mapped(error: KraftlogError | None, table: dict[ErrorCode, ErrorCode]) -> Refusal:
    return (ErrorCode.NONE, "") if error is None else (table.get(error.code, error.code), error.message)


def _offset_record(group_id: str, partition: group_pb2.OffsetCommitPartition, timestamp_ms: int) -> CoordinatorRecord:
    return offset_commit_record(
        OffsetCommitKey(group_id, partition.topic, partition.partition),
        OffsetCommitValue(partition.offset, partition.leader_epoch, partition.metadata, timestamp_ms),
    )


def _partition_error(
    partition: group_pb2.OffsetCommitPartition, code: ErrorCode, message: str
) -> group_pb2.PartitionError:
    return group_pb2.PartitionError(
        topic=partition.topic, partition=partition.partition, error_code=code, error_message=message
    )


def _fetched(topic: str, partition: int, value: OffsetCommitValue | None) -> group_pb2.OffsetFetchPartition:
    if value is None:
        return group_pb2.OffsetFetchPartition(topic=topic, partition=partition, offset=-1, leader_epoch=-1)
    return group_pb2.OffsetFetchPartition(
        topic=topic,
        partition=partition,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _join_response(result: JoinResult) -> group_pb2.JoinGroupResponse:
    return group_pb2.JoinGroupResponse(
        error_code=result.error,
        error_message=result.message,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        leader=result.leader,
        member_id=result.member_id,
        members=[
            group_pb2.GroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id or "",
                metadata=member.metadata,
            )
            for member in result.members
        ],
        skip_assignment=result.skip_assignment,
    )
