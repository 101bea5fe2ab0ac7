"""The controller as one object: operations in, batches out, answers when they are committed.

                 activate                        submit: decide → append → replay at once → park the answer
    following ────────────► active ──┐           commit:  answer what is parked up to there
        ▲   replays what     │  ▲    │
        │   is committed     │  └────┘
        └────────────────────┘
          resign: state goes back to what is committed; every parked answer fails

While it follows, its state is the committed state, record by record. While it is active, its state is ahead of the
commit by the batches that are parked. `replay` is the same in both, and the only way that state changes.

Used only from the event loop that also drives the Raft core.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from kraftlog.kraft.controller.broker_life import BrokerLife
from kraftlog.kraft.controller.brokers import BrokerManager, BrokerRegistration, HeartbeatReply
from kraftlog.kraft.controller.config import MAX_ELECTIONS_PER_BALANCE, ControllerConfig
from kraftlog.kraft.controller.configs import ConfigManager, ConfigSchema
from kraftlog.kraft.controller.elections import ElectionManager
from kraftlog.kraft.controller.features import SUPPORTED_FEATURES, Feature, FeatureManager
from kraftlog.kraft.controller.flush_defaults import FlushDefaults
from kraftlog.kraft.controller.in_sync_replicas import IsrAnswer, IsrChange, IsrManager
from kraftlog.kraft.controller.operations import OperationManager, RequestId
from kraftlog.kraft.controller.partitions import PartitionKey
from kraftlog.kraft.controller.producer_ids import ProducerIdBlock, ProducerIdManager
from kraftlog.kraft.controller.raising import ReplicationRaiser
from kraftlog.kraft.controller.reassignments import ReassignmentManager
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.controller.sessions import BrokerSessions
from kraftlog.kraft.controller.topics import TopicManager
from kraftlog.kraft.image import RESOURCE_TOPIC
from kraftlog.kraft.image.partition_state import RECOVERING
from kraftlog.kraft.records import MAX_OPERATION_BYTES, OffsetRecord, encode_value
from kraftlog.kraft.timeline import SnapshotRegistry
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kraftlog.proto.errors import (
    IllegalStateError,
    KraftlogError,
    NotControllerError,
    PolicyViolationError,
    ThrottlingQuotaExceededError,
)
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.seams import Random

T = TypeVar("T")

Completion = Callable[[Any, KraftlogError | None], None]
"""Called exactly once with (response, None) or (None, error). It must not raise and must not call the controller."""


MIN_POLL_MS = 100  # where a fencing or an election could not be written yet
NO_CONFIGS = ConfigSchema()


class AppendTarget(Protocol):
    """The Raft log, as the active controller appends to it."""

    @property
    def next_offset(self) -> int:
        """What the next record gets."""
        ...

    @property
    def leader_epoch(self) -> int: ...

    def append(self, values: Sequence[bytes], timestamp_ms: int) -> None:
        """The records of one operation: all of them are committed, or none. Raises `NotControllerError` or a retriable
        error, and then has appended nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection:
    """A replica leads that may lack acknowledged records."""

    topic_id: bytes
    partition: int
    leader_id: int
    offset: int
    """Of the record in the metadata log, or up to where the metadata were read when it was found."""


@dataclass(slots=True)
class _Parked:
    offset: int
    """The answer waits until this offset is committed."""
    response: Any
    complete: Completion


class Controller:
    """See the module."""

    def __init__(
        self,
        *,
        node_id: int,
        config: ControllerConfig,
        random: Random,
        topic_configs: ConfigSchema,
        broker_configs: ConfigSchema = NO_CONFIGS,
        supported_features: Mapping[str, Feature] = SUPPORTED_FEATURES,
        on_unclean_election: Callable[[UncleanElection], None] | None = None,
    ) -> None:
        """`on_unclean_election` is told of each partition that may have lost acknowledged records: when its election is
        committed, and again by each later controller until the leader has recovered."""
        self.node_id = node_id
        self._config = config
        self._random = random
        self._topic_configs = topic_configs
        self._broker_configs = broker_configs
        self._supported_features = supported_features
        self._start_empty()
        self._on_unclean_election = on_unclean_election
        self._next_balance_ms = 0.0
        self._log: AppendTarget | None = None
        """Set exactly while active."""
        self._parked: deque[_Parked] = deque()
        """Offsets ascending."""
        self.committed_offset = -1
        """Last offset that is committed and in the state."""
        self.last_offset = -1
        """Last offset in the state; above `committed_offset` only while active."""

    def _start_empty(self) -> None:
        """Managers without any state."""
        self._registry = SnapshotRegistry()
        self.sessions = BrokerSessions(self._config.broker_session_timeout_ms, exempt=[self.node_id])
        self.brokers = BrokerManager(self._registry, self.sessions)
        self.features = FeatureManager(self._registry, self.brokers.all, self._supported_features)
        self.configs = ConfigManager(self._registry, self._topic_configs, self._broker_configs)
        self.producer_ids = ProducerIdManager(self._registry, self.brokers)
        self.operations = OperationManager(self._registry)
        self.topics = TopicManager(
            self._registry, config=self._config, random=self._random, brokers=self.brokers, configs=self.configs
        )
        self.elections = ElectionManager(
            self.topics.partitions,
            self.brokers,
            rules_of=self.topics.rules_of,
            topic_id_of=self.topics.topic_id,
            topic_name_of=self.topics.name_of,
        )
        self.in_sync_replicas = IsrManager(
            self.topics.partitions,
            self.brokers,
            rules_of=self.topics.rules_of,
            may_lead_now=lambda: self.elections.may_lead(self.brokers.usable_racks()),
        )
        self.reassignments = ReassignmentManager(
            self.topics.partitions,
            self.brokers,
            assigner=self.topics.assigner,
            rules_of=self.topics.rules_of,
            topic_id_of=self.topics.topic_id,
            may_lead_now=lambda: self.elections.may_lead(self.brokers.usable_racks()),
        )
        self.raiser = ReplicationRaiser(self._config, self.topics, self.brokers, self.reassignments)
        self.life = BrokerLife(
            brokers=self.brokers,
            partitions=self.topics.partitions,
            elections=self.elections,
            features=self.features,
        )
        self.flush_defaults = FlushDefaults(self.topics)

    @property
    def is_active(self) -> bool:
        return self._log is not None

    @property
    def pending_operations(self) -> int:
        return len(self._parked)

    # --- roles --------------------------------------------------------------------------------------------------

    def activate(
        self,
        log: AppendTarget,
        *,
        now_ms: float,
        wall_ms: int,
        last_heard: Mapping[int, float] = MappingProxyType({}),
    ) -> None:
        """The first entry of this node's leadership is committed and everything before it has been replayed.

        `last_heard`: when this node last heard from nodes that led before it, by node id (monotonic ms)."""
        assert not self.is_active
        self._log = log
        self._registry.register(self.committed_offset)
        unfenced = [broker.node_id for broker in self.brokers.all() if not broker.is_fenced]
        self.sessions.restart(unfenced, now_ms, last_heard)
        self.elections.restart()
        self.reassignments.look_at_all()
        self.raiser.brokers_changed()
        self.flush_defaults.restart()
        self._report_recovering()
        self._next_balance_ms = now_ms + self._balance_interval_ms
        records = self.features.bootstrap_records()
        if records:
            self.submit(lambda: Result(None, records), _nobody_waits, wall_ms=wall_ms)

    def resign(self, error: KraftlogError) -> None:
        """Leadership is lost. Whether what was parked will be committed is not known: another leader decides."""
        if not self.is_active:
            return
        self._log = None
        self._registry.revert_to(self.committed_offset)
        self._registry.forget_all()
        self.last_offset = self.committed_offset
        parked, self._parked = self._parked, deque()
        for waiting in parked:
            waiting.complete(None, error)

    @property
    def _balance_interval_ms(self) -> int:
        return 1000 * self._config.leader_imbalance_check_interval_seconds

    def poll(self, *, now_ms: float, wall_ms: int) -> float | None:
        """Fence brokers that are silent, go on with elections that were too many for one batch, end reassignments that are
        done, give internal topics the replicas that they lack, follow another default of flush.policy, and balance leaders.

        At most one batch of each. Returns when to call again (monotonic ms), None while not active.
        """
        if not self.is_active:
            return None
        deadlines = [
            self._fence_silent(now_ms, wall_ms),
            self._elect_left_over(now_ms, wall_ms),
            self._complete_reassignments(now_ms, wall_ms),
            self._raise_replication(now_ms, wall_ms),
            self._follow_flush_defaults(now_ms, wall_ms),
            self._balance(now_ms, wall_ms),
        ]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _fence_silent(self, now_ms: float, wall_ms: int) -> float | None:
        expired = self.sessions.expired(now_ms)
        if expired:
            self.submit(partial(self.life.fence, expired), _nobody_waits, wall_ms=wall_ms)
        for node_id in expired:
            broker = self.brokers.broker(node_id)
            if broker is None or broker.is_fenced:
                self.sessions.end(node_id)
        deadline = self.sessions.next_deadline_ms()
        return None if deadline is None else max(deadline, now_ms + MIN_POLL_MS)

    def _elect_left_over(self, now_ms: float, wall_ms: int) -> float | None:
        records = self.elections.left_over()
        return None if not records else self._carry_out(records, now_ms, wall_ms)

    def _complete_reassignments(self, now_ms: float, wall_ms: int) -> float | None:
        records = self.reassignments.completions(now_ms)
        return self.reassignments.next_deadline_ms if not records else self._carry_out(records, now_ms, wall_ms)

    def _raise_replication(self, now_ms: float, wall_ms: int) -> float | None:
        records = self.raiser.records()
        return None if not records else self._carry_out(records, now_ms, wall_ms)

    def _follow_flush_defaults(self, now_ms: float, wall_ms: int) -> float | None:
        records = self.flush_defaults.records()
        return None if not records else self._carry_out(records, now_ms, wall_ms)

    def _balance(self, now_ms: float, wall_ms: int) -> float | None:
        if not self._config.auto_leader_rebalance_enable:
            return None
        if now_ms < self._next_balance_ms:
            return self._next_balance_ms
        records = self.elections.balance(self._config.leader_imbalance_per_broker_percentage)
        if records:
            again_ms = self._carry_out(records, now_ms, wall_ms)
            if len(records) == MAX_ELECTIONS_PER_BALANCE:
                return again_ms
        self._next_balance_ms = now_ms + self._balance_interval_ms
        return self._next_balance_ms

    def _carry_out(self, records: list[MetadataRecord], now_ms: float, wall_ms: int) -> float:
        """When to go on: at once, or later if the log takes nothing now."""
        before = self.last_offset
        self.submit(lambda: Result(None, records), _nobody_waits, wall_ms=wall_ms)
        return now_ms if self.last_offset > before else now_ms + MIN_POLL_MS

    # --- the log ------------------------------------------------------------------------------------------------

    def submit(
        self,
        operation: Callable[[], Result[T]],
        complete: Completion,
        *,
        wall_ms: int,
        request: RequestId[T] | None = None,
    ) -> None:
        """Decide now, against state that may not be committed; `complete` is called when the decision is.

        An error of the operation is an answer, too, and may rest on uncommitted state: it waits as well. With
        `request`, an operation that was done under this id is answered as it was and not done again.
        """
        log = self._log
        if log is None:
            complete(None, NotControllerError(f"node {self.node_id} is not the active controller"))
            return
        if len(self._parked) >= self._config.max_pending_operations:
            complete(
                None,
                ThrottlingQuotaExceededError(f"{len(self._parked)} operations wait for the metadata log: try later"),
            )
            return
        try:
            response = self._decide(log, operation, wall_ms, request)
        except KraftlogError as error:
            self._park(None, partial(_complete_with, complete, error))
            return
        self._park(response, complete)

    def _decide(
        self, log: AppendTarget, operation: Callable[[], Result[T]], wall_ms: int, request: RequestId[T] | None
    ) -> T:
        if request is not None:
            completed = self.operations.answer(request)
            if completed is not None:
                return request.kind.decode(completed.response)
        result = operation()
        if result.records:
            completion = [self.operations.completion_record(request, result.response, wall_ms)] if request else []
            self._append(log, [*result.records, *completion], wall_ms)
        return result.response

    def _append(self, log: AppendTarget, records: Sequence[MetadataRecord], wall_ms: int) -> None:
        base = log.next_offset
        values = [encode_value(record) for record in records]
        size_bytes = sum(map(len, values))
        if size_bytes > MAX_OPERATION_BYTES:
            raise PolicyViolationError(
                f"the operation needs {size_bytes} bytes of metadata, the limit is {MAX_OPERATION_BYTES}: split it"
            )
        log.append(values, wall_ms)
        for index, record in enumerate(records):
            self._replay(record, base + index)
        self.last_offset = base + len(records) - 1
        self._registry.register(self.last_offset)

    def _park(self, response: Any, complete: Completion) -> None:
        if self.last_offset <= self.committed_offset:
            complete(response, None)
        else:
            self._parked.append(_Parked(self.last_offset, response, complete))

    def commit(self, offset: int, records: Sequence[OffsetRecord]) -> None:
        """The batch that ends at `offset` is committed. `records` is empty for a batch of the quorum's own.

        What an active controller has appended itself is in its state already and is not replayed again.
        """
        if offset > self.last_offset:
            assert not self.is_active or not records, "an active controller is the only one that appends records"
            for record in records:
                self._replay(record.record, record.offset)
            self.last_offset = offset
            if self.is_active:
                self._registry.register(offset)
        self.committed_offset = offset
        if self.is_active:
            self._registry.forget_before(offset)
            self._report_unclean_elections(records)
        while self._parked and self._parked[0].offset <= offset:
            waiting = self._parked.popleft()
            waiting.complete(waiting.response, None)

    def load_snapshot(self, offset: int, records: Iterable[MetadataRecord]) -> None:
        """A snapshot that ends at `offset` takes the place of the whole state: at the start, or for a follower that is
        far behind. A leader never loads one.

        The genesis, at -1, is no state: it says which feature levels the first leader writes.
        """
        if self.is_active:
            raise IllegalStateError(f"a snapshot at offset {offset} for the active controller")
        self._start_empty()
        if offset < 0:
            self.features.bootstrap_levels = {r.feature_level.name: r.feature_level.level for r in records}
        else:
            for record in records:
                self._replay(record, offset)
        self.committed_offset = self.last_offset = offset

    def _report_unclean_elections(self, records: Sequence[OffsetRecord]) -> None:
        for offset, record in records:
            change = record.partition_change
            if change.leader_recovery_state == RECOVERING:
                self._report_unclean((change.topic_id, change.partition), change.leader_id, offset)

    def _report_recovering(self) -> None:
        for key, partition in self.topics.partitions.recovering():
            self._report_unclean(key, partition.leader_id, self.committed_offset)

    def _report_unclean(self, key: PartitionKey, leader_id: int, offset: int) -> None:
        if self._on_unclean_election is not None:
            topic_id, partition = key
            self._on_unclean_election(
                UncleanElection(topic_id=topic_id, partition=partition, leader_id=leader_id, offset=offset)
            )

    def _replay(self, record: MetadataRecord, offset: int) -> None:
        kind = record.WhichOneof("record")
        match kind:
            case "topic":
                self.topics.replay_topic(record.topic)
            case "partition":
                self.topics.replay_partition(record.partition)
                self.reassignments.partition_changed((record.partition.topic_id, record.partition.partition))
            case "partition_change":
                change = record.partition_change
                self.topics.replay_partition_change(change)
                self.reassignments.partition_changed((change.topic_id, change.partition))
            case "remove_topic":
                self.topics.replay_remove(record.remove_topic)
            case "config":
                self.configs.replay(record.config)
                self.reassignments.look_at_all()
            case "register_broker":
                self.brokers.replay_register(record.register_broker)
            case "unregister_broker":
                self.brokers.replay_unregister(record.unregister_broker)
            case "broker_registration_change":
                self.brokers.replay_change(record.broker_registration_change)
                self.raiser.brokers_changed()
                self.reassignments.look_at_all()
            case "producer_ids":
                self.producer_ids.replay(record.producer_ids)
            case "feature_level":
                self.features.replay(record.feature_level)
            case "completed_operation":
                self.operations.replay(record.completed_operation)
            case "begin_transaction" | "end_transaction" | "abort_transaction" | None:
                raise IllegalStateError(f"metadata record {kind} at offset {offset} is not supported here")

    # --- operations ---------------------------------------------------------------------------------------------

    def create_topics(self, request: CreateTopicsRequest, *, allow_internal: bool) -> Result[CreateTopicsResponse]:
        return self.topics.create_topics(request, allow_internal=allow_internal)

    def delete_topics(self, request: DeleteTopicsRequest, *, allow_internal: bool) -> Result[DeleteTopicsResponse]:
        return self.topics.delete_topics(request, allow_internal=allow_internal)

    def create_partitions(self, request: CreatePartitionsRequest) -> Result[CreatePartitionsResponse]:
        return self.topics.create_partitions(request)

    def alter_configs(self, request: IncrementalAlterConfigsRequest) -> Result[IncrementalAlterConfigsResponse]:
        """Of topics and brokers. What it means for leaders and their replicas is in the same batch."""
        rules = {
            topic_id: self.topics.rules_of(topic_id)
            for each in request.resources
            if each.resource.type == RESOURCE_TOPIC
            and (topic_id := self.topics.topic_id(each.resource.name)) is not None
        }
        result = self.configs.alter(request, self._check_alteration)
        changed = {
            record.config.resource_name for record in result.records if record.config.resource_type == RESOURCE_TOPIC
        }
        moves = [
            move
            for topic_id, before in rules.items()
            if self.topics.name_of(topic_id) in changed
            for move in self.elections.rules_changed(
                topic_id,
                self.topics.partition_count(topic_id),
                before,
                self.topics.rules_after(topic_id, result.records),
            )
        ]
        return Result(result.response, [*result.records, *moves])

    def _check_alteration(self, alteration: AlterConfigsResource) -> None:
        resource = alteration.resource
        if resource.type == RESOURCE_TOPIC:
            self.topics.check_alterable(resource.name, alteration.changes)
        elif resource.name:
            self.brokers.check_registered(resource.name)

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        return self.elections.elect(request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Result[AlterPartitionReassignmentsResponse]:
        return self.reassignments.alter(request)

    def update_features(self, request: UpdateFeaturesRequest) -> Result[UpdateFeaturesResponse]:
        return self.features.update(request)

    def alter_partition(self, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Result[list[IsrAnswer]]:
        return self.in_sync_replicas.alter(node_id, broker_epoch, changes)

    def allocate_producer_ids(self, node_id: int, broker_epoch: int, count: int) -> Result[ProducerIdBlock]:
        return self.producer_ids.allocate(node_id, broker_epoch, count)

    def register_broker(self, registration: BrokerRegistration, *, now_ms: float) -> Result[int]:
        return self.life.register(registration, next_offset=self._next_offset, now_ms=now_ms)

    def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int,
        want_fence: bool,
        want_shut_down: bool,
        now_ms: float,
        offline_log_dirs: Collection[bytes] = (),
        lost_replicas: Collection[PartitionKey] = (),
    ) -> Result[HeartbeatReply]:
        return self.life.heartbeat(
            node_id,
            broker_epoch,
            metadata_offset=metadata_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            now_ms=now_ms,
            next_offset=self._next_offset,
            offline_log_dirs=offline_log_dirs,
            lost_replicas=lost_replicas,
        )

    def unregister_broker(self, node_id: int) -> Result[None]:
        return self.life.unregister(node_id)

    @property
    def _next_offset(self) -> int:
        assert self._log is not None
        return self._log.next_offset


def _nobody_waits(response: Any, error: KraftlogError | None) -> None:
    """The completion of what the controller does on its own account."""


def _complete_with(complete: Completion, refusal: KraftlogError, response: Any, error: KraftlogError | None) -> None:
    """Answer with what the operation refused for, unless leadership was lost before that was certain."""
    complete(None, error or refusal)
