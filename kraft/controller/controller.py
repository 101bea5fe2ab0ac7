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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from kraftlog.kraft.controller.brokers import BrokerManager, BrokerRegistration, HeartbeatReply
from kraftlog.kraft.controller.config import ControllerConfig
from kraftlog.kraft.controller.configs import ConfigManager, ConfigRules
from kraftlog.kraft.controller.features import FeatureManager
from kraftlog.kraft.controller.producer_ids import ProducerIdBlock, ProducerIdManager
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.controller.sessions import BrokerSessions
from kraftlog.kraft.controller.topics import TopicManager
from kraftlog.kraft.image import BrokerImage
from kraftlog.kraft.records import MAX_OPERATION_BYTES, OffsetRecord, encode_records
from kraftlog.kraft.timeline import SnapshotRegistry
from kraftlog.proto.admin_pb2 import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
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


MIN_POLL_MS = 100  # where a fencing could not be written yet


class AppendTarget(Protocol):
    """The Raft log, as the active controller appends to it."""

    @property
    def next_offset(self) -> int:
        """The base offset that the next batch gets."""
        ...

    @property
    def leader_epoch(self) -> int: ...

    def append(self, batch: bytes, record_count: int) -> None:
        """Propose one batch. Raises `NotControllerError` or a retriable error, and then has appended nothing."""
        ...


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
        validate_topic_configs: ConfigRules,
    ) -> None:
        self.node_id = node_id
        self._config = config
        self._registry = SnapshotRegistry()
        self.sessions = BrokerSessions(config.broker_session_timeout_ms, exempt=[node_id])
        self.features = FeatureManager(self._registry)
        self.brokers = BrokerManager(self._registry, self.sessions)
        self.configs = ConfigManager(self._registry, validate_topic_configs)
        self.producer_ids = ProducerIdManager(self._registry, self.brokers)
        self.topics = TopicManager(
            self._registry, config=config, random=random, brokers=self.brokers, configs=self.configs
        )
        self._log: AppendTarget | None = None
        """Set exactly while active."""
        self._parked: deque[_Parked] = deque()
        """Offsets ascending."""
        self.committed_offset = -1
        """Last offset that is committed and in the state."""
        self.last_offset = -1
        """Last offset in the state; above `committed_offset` only while active."""

    @property
    def is_active(self) -> bool:
        return self._log is not None

    @property
    def pending_operations(self) -> int:
        return len(self._parked)

    # --- roles --------------------------------------------------------------------------------------------------

    def activate(self, log: AppendTarget, *, now_ms: float, wall_ms: int) -> None:
        """The first entry of this node's leadership is committed and everything before it has been replayed."""
        assert not self.is_active
        self._log = log
        self._registry.register(self.committed_offset)
        unfenced = [broker.node_id for broker in self.brokers.all() if not broker.is_fenced]
        self.sessions.restart(unfenced, now_ms)
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

    def poll(self, *, now_ms: float, wall_ms: int) -> float | None:
        """Fence brokers that are silent; returns when to call again (monotonic ms), None if nothing is watched."""
        if not self.is_active:
            return None
        for node_id in self.sessions.expired(now_ms):
            self.submit(partial(self._fence, node_id), _nobody_waits, wall_ms=wall_ms)
            broker = self.brokers.broker(node_id)
            if broker is None or broker.is_fenced:
                self.sessions.end(node_id)
        deadline = self.sessions.next_deadline_ms()
        return None if deadline is None else max(deadline, now_ms + MIN_POLL_MS)

    # --- the log ------------------------------------------------------------------------------------------------

    def submit(self, operation: Callable[[], Result[T]], complete: Completion, *, wall_ms: int) -> None:
        """Decide now, against state that may not be committed; `complete` is called when the decision is.

        An error of the operation is an answer, too, and may rest on uncommitted state: it waits as well.
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
            result = operation()
            if result.records:
                self._append(log, result.records, wall_ms)
        except KraftlogError as error:
            self._park(None, partial(_complete_with, complete, error))
            return
        self._park(result.response, complete)

    def _append(self, log: AppendTarget, records: Sequence[MetadataRecord], wall_ms: int) -> None:
        base = log.next_offset
        batch = encode_records(records, base_offset=base, leader_epoch=log.leader_epoch, timestamp_ms=wall_ms)
        if len(batch) > MAX_OPERATION_BYTES:
            raise PolicyViolationError(
                f"the operation needs {len(batch)} bytes of metadata, the limit is {MAX_OPERATION_BYTES}: split it"
            )
        log.append(batch, len(records))
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
        while self._parked and self._parked[0].offset <= offset:
            waiting = self._parked.popleft()
            waiting.complete(waiting.response, None)

    def _replay(self, record: MetadataRecord, offset: int) -> None:
        kind = record.WhichOneof("record")
        match kind:
            case "topic":
                self.topics.replay_topic(record.topic)
            case "partition":
                self.topics.replay_partition(record.partition)
            case "partition_change":
                self.topics.replay_partition_change(record.partition_change)
            case "remove_topic":
                self.topics.replay_remove(record.remove_topic)
            case "config":
                self.configs.replay(record.config)
            case "register_broker":
                self.brokers.replay_register(record.register_broker)
            case "unregister_broker":
                self.brokers.replay_unregister(record.unregister_broker)
            case "broker_registration_change":
                self.brokers.replay_change(record.broker_registration_change)
            case "producer_ids":
                self.producer_ids.replay(record.producer_ids)
            case "feature_level":
                self.features.replay(record.feature_level)
            case "begin_transaction" | "end_transaction" | "abort_transaction" | None:
                raise IllegalStateError(f"metadata record {kind} at offset {offset} is not supported here")

    # --- operations ---------------------------------------------------------------------------------------------

    def create_topics(self, request: CreateTopicsRequest, *, allow_internal: bool) -> Result[CreateTopicsResponse]:
        return self.topics.create_topics(request, allow_internal=allow_internal)

    def delete_topics(self, request: DeleteTopicsRequest, *, allow_internal: bool) -> Result[DeleteTopicsResponse]:
        return self.topics.delete_topics(request, allow_internal=allow_internal)

    def allocate_producer_ids(self, node_id: int, broker_epoch: int, count: int) -> Result[ProducerIdBlock]:
        return self.producer_ids.allocate(node_id, broker_epoch, count)

    def register_broker(self, registration: BrokerRegistration, *, now_ms: float) -> Result[int]:
        """The response is the broker epoch. A new process starts fenced, so its former leaderships move away."""
        assert self._log is not None
        result = self.brokers.register(registration, self._log.next_offset, now_ms)
        moves = self.topics.move_leaders_from(registration.node_id, may_leave_offline=True)
        return Result(result.response, result.records + moves)

    def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int,
        want_fence: bool,
        want_shut_down: bool,
        now_ms: float,
    ) -> Result[HeartbeatReply]:
        """A broker lives. It is unfenced once it has its own registration in its metadata and does not object."""
        broker = self.brokers.check_epoch(node_id, broker_epoch)
        self.sessions.touch(node_id, now_ms)
        if want_shut_down:
            return self._controlled_shutdown(broker)
        if want_fence:
            records = [] if broker.is_fenced else self._fence(node_id).records
            return Result(HeartbeatReply(is_fenced=True, should_shut_down=False), records)
        if broker.is_fenced and metadata_offset >= broker_epoch:
            change = self.brokers.change(broker, fenced=False, in_controlled_shutdown=False)
            records = [change, *self.topics.elect_where_missing(node_id)]
            return Result(HeartbeatReply(is_fenced=False, should_shut_down=False), records)
        return Result(HeartbeatReply(is_fenced=broker.is_fenced, should_shut_down=False))

    def _controlled_shutdown(self, broker: BrokerImage) -> Result[HeartbeatReply]:
        """First lead nothing that another broker can lead; what nobody else can lead is given up with the fencing."""
        if broker.is_fenced:
            return Result(HeartbeatReply(is_fenced=True, should_shut_down=True))
        moves = self.topics.move_leaders_from(broker.node_id, may_leave_offline=False)
        if moves or (not broker.in_controlled_shutdown and self.topics.leads(broker.node_id)):
            change = self.brokers.change(broker, fenced=False, in_controlled_shutdown=True)
            return Result(HeartbeatReply(is_fenced=False, should_shut_down=False), [change, *moves])
        fence = self._fence(broker.node_id)
        return Result(HeartbeatReply(is_fenced=True, should_shut_down=True), fence.records)

    def _fence(self, node_id: int) -> Result[None]:
        broker = self.brokers.broker(node_id)
        if broker is None or broker.is_fenced:
            return Result(None)
        change = self.brokers.change(broker, fenced=True, in_controlled_shutdown=broker.in_controlled_shutdown)
        return Result(None, [change, *self.topics.move_leaders_from(node_id, may_leave_offline=True)])

    def unregister_broker(self, node_id: int) -> Result[None]:
        result = self.brokers.unregister(node_id)
        return Result(None, result.records + self.topics.move_leaders_from(node_id, may_leave_offline=True))


def _nobody_waits(response: Any, error: KraftlogError | None) -> None:
    """The completion of what the controller does on its own account."""


def _complete_with(complete: Completion, refusal: KraftlogError, response: Any, error: KraftlogError | None) -> None:
    """Answer with what the operation refused for, unless leadership was lost before that was certain."""
    complete(None, error or refusal)
