"""The controller against a naive model, with commits, failures and failovers at any batch.

What the model knows: topics, their configs, producer ids and feature levels as plain dicts, one version of them for each
batch in the log; and of each partition which replicas really have every acknowledged record, which no controller sees.
The rules: a leader has all of them unless the partition was led uncleanly; epochs only grow; no topic is half there; ids
are given out once; what was answered stays; a request id is done once; every controller, image and snapshot agree.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kraftlog.kraft.controller import (
    BrokerRegistration,
    IsrChange,
    RequestId,
    Result,
    elections,
    operations,
    reassignments,
)
from kraftlog.kraft.controller import controller as controller_module
from kraftlog.kraft.image import NO_LEADER, PartitionImage, completed_operations
from kraftlog.kraft.records import OffsetRecord
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    AlterPartitionReassignmentsRequest,
    ConfigChange,
    ConfigResource,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectionTopic,
    ElectLeadersRequest,
    FeatureUpdate,
    IncrementalAlterConfigsRequest,
    NewPartitions,
    NewTopic,
    PartitionReassignment,
    UpdateFeaturesRequest,
)
from kraftlog.proto.errors import ErrorCode, KraftlogError, NotControllerError, ThrottlingQuotaExceededError
from tests.property.controller_cluster import CONFIG, Cluster, state_in, state_of
from tests.unit.kraft.controllers import Answer

NODES = (1, 2, 3, 4)
NAMES = ("a", "b", "c.d", "c_d")
REMEMBERED = 4
ELECTIONS_PER_BATCH = 3
SESSION_MS = CONFIG.broker_session_timeout_ms
Key = tuple[bytes, int]
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "min.insync.replicas": st.sampled_from(["2", "2", "3"]),
        "unclean.leader.election.enable": st.just("true"),
        "flush.policy": st.just("interval"),
    },
)


@dataclass(frozen=True)
class Known:
    """What the log up to some batch says, in the model's words."""

    topics: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name -> how many replicas each partition is to have."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=lambda: {"metadata.version": 1})
    next_producer_id: int = 0
    operations: tuple[tuple[bytes, Any], ...] = ()
    """(request id, response), the last ones."""


@dataclass
class Asked:
    """An operation under a request id, to be repeated."""

    request: RequestId[Any]
    again: Callable[[], Result[Any]]
    effect: Callable[[Known, Any], Known]


@dataclass
class Node:
    """A broker's process and its disk."""

    incarnation: int = 0
    epoch: int = -1
    """The last one that any of its processes was given."""
    has_epoch: bool = False
    """Whether the process that runs was given it: the only epoch that it may write down when it stops in order."""
    directory: int = 0
    is_up: bool = False
    last_clean_epoch: int = -1


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(elections, "MAX_ELECTIONS_PER_BATCH", ELECTIONS_PER_BATCH)
        self.patch.setattr(reassignments, "HAND_OVER_MS", 0.0)  # what can be done is done when it has settled
        self.patch.setattr(elections, "MAX_ELECTIONS_PER_BALANCE", 2)
        self.patch.setattr(controller_module, "MAX_ELECTIONS_PER_BALANCE", 2)
        self.patch.setattr(completed_operations, "MAX_COMPLETED_OPERATIONS", REMEMBERED)
        self.cluster = Cluster(seed=7)
        self.cluster.on_commit = self.committed
        self.known: list[tuple[int, Known]] = [(-1, Known())]
        """(offset, model after the batch that ends there), ascending; the first is committed."""
        self.nodes = {node_id: Node() for node_id in NODES}
        self.complete: dict[Key, set[int]] = {}
        """Replicas that have every acknowledged record, of partitions that were ever seen."""
        self.entering: dict[Key, tuple[int, set[int]]] = {}
        """Leader epoch, and replicas that its leader has asked to take into the ISR."""
        self.epochs: dict[Key, tuple[int, int, int]] = {}
        self.topic_ids: dict[bytes, str] = {}
        self.given_ids: set[int] = set()
        self.asked: list[Asked] = []
        self.requests = 0
        self.waiting: list[tuple[Answer, int, Callable[[Any, KraftlogError | None], None]]] = []

    def teardown(self) -> None:
        self.patch.undo()

    @initialize(
        shapes=st.lists(
            st.tuples(st.sampled_from(NAMES[:3]), st.integers(1, 3), st.sampled_from([1, 2, 3, 3]), CONFIGS),
            min_size=1,
            max_size=3,
            unique_by=lambda shape: shape[0],
        )
    )
    def begin(self, shapes: list[tuple[str, int, int, dict[str, str]]]) -> None:
        """Three brokers of four, and some topics."""
        for node_id in NODES[:3]:
            self.start(node_id, how="clean", disk="same")
        assert self.live() == set(NODES[:3])
        for name, partitions, factor, configs in shapes:
            self.create_topic(name, partitions, factor, configs, with_id=False, validate_only=False)
        self.commit(len(shapes))

    # --- helpers ------------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Known:
        return self.known[-1][1]

    def submit(
        self,
        operation: Callable[[], Result[Any]],
        *,
        effect: Callable[[Known, Any], Known] = lambda known, response: known,
        check: Callable[[Any, KraftlogError | None], None] = lambda response, error: None,
        request: RequestId[Any] | None = None,
    ) -> None:
        """`effect`: the model after the operation, if it wrote something; `check`: what it must have been answered."""
        end = self.cluster.log.next_offset
        decided: list[Any] = []

        def observed() -> Result[Any]:
            decided.append(operation())
            return decided[0]  # type: ignore[no-any-return] # a Result

        answer = self.cluster.submit(observed, request)
        if self.cluster.log.next_offset > end:
            after = effect(self.newest, decided[0].response)
            if request is not None:
                kept = (*after.operations, (request.id, decided[0].response))[-REMEMBERED:]
                after = replace(after, operations=kept)
            self.known.append((self.cluster.log.next_offset - 1, after))
        self.waiting.append((answer, self.cluster.log.next_offset - 1, check))
        self.look_at_answers()

    def look_at_answers(self) -> None:
        """What is answered is committed, or refused because the leadership was lost; never early, never twice."""
        still = []
        for answer, offset, check in self.waiting:
            if not answer.is_done:
                still.append((answer, offset, check))
                continue
            if isinstance(answer.error, NotControllerError | ThrottlingQuotaExceededError):
                continue
            assert offset <= self.cluster.committed, "answered before it was committed"
            check(answer.response, answer.error)
        self.waiting = still

    def committed(self, records: list[OffsetRecord]) -> None:
        """Called for each batch that is committed."""
        while len(self.known) > 1 and self.known[1][0] <= self.cluster.committed:
            del self.known[0]
        for _, record in records:
            if record.HasField("partition"):
                self.complete[record.partition.topic_id, record.partition.partition] = set(record.partition.replicas)
            change = record.partition_change
            key = (change.topic_id, change.partition)
            if change.leader_recovery_state == 1:
                self.complete[key] = {change.leader_id}
            if change.HasField("replicas"):
                self.complete[key] &= set(change.replicas.replicas)  # the others delete their logs
        self.look_at_answers()

    def ask(
        self,
        kind: operations.OperationKind[Any],
        operation: Callable[[], Result[Any]],
        *,
        effect: Callable[[Known, Any], Known],
        check: Callable[[Any, KraftlogError | None], None],
        with_id: bool,
    ) -> None:
        request = None
        if with_id:
            self.requests += 1
            request = RequestId(self.requests.to_bytes(16, "big"), kind)
            self.asked.append(Asked(request, operation, effect))
        self.submit(operation, effect=effect, check=check, request=request)

    def partitions(self) -> Iterator[tuple[Key, PartitionImage]]:
        """The committed ones."""
        for topic in self.cluster.image.topics.values():
            for partition in topic.partitions.values():
                yield (topic.topic_id, partition.partition), partition

    def live(self) -> set[int]:
        """Brokers that may get replicas, if everything gets committed."""
        brokers = self.cluster.newest.brokers.values()
        return {broker.node_id for broker in brokers if not broker.is_fenced and not broker.in_controlled_shutdown}

    # --- topics -------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NAMES),
        partitions=st.integers(0, 3),
        factor=st.sampled_from([1, 2, 3, 3, 4]),
        configs=CONFIGS,
        with_id=st.booleans(),
        validate_only=st.sampled_from([False, False, False, True]),
    )
    def create_topic(
        self, name: str, partitions: int, factor: int, configs: dict[str, str], with_id: bool, validate_only: bool
    ) -> None:
        topic = NewTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=configs)
        request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
        known = self.newest.topics
        if name in known:
            expected = ErrorCode.TOPIC_ALREADY_EXISTS
        elif any(other.replace(".", "_") == name.replace(".", "_") for other in known):
            expected = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not partitions:
            expected = ErrorCode.INVALID_PARTITIONS
        elif factor > len(self.live()):
            expected = ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            expected = ErrorCode.NONE

        def effect(known: Known, response: Any) -> Known:
            return replace(
                known,
                topics={**known.topics, name: (factor,) * partitions},
                configs={**known.configs, name: configs},
            )

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            (result,) = response.topics
            assert result.error_code == expected, result.error_message
            if expected == ErrorCode.NONE and not validate_only:
                assert self.topic_ids.setdefault(result.topic_id, name) == name, "an id was given twice"

        self.ask(
            operations.CREATE_TOPICS,
            lambda: self.cluster.active.create_topics(request, allow_internal=False),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(name=st.sampled_from(NAMES), with_id=st.booleans())
    def delete_topic(self, name: str, with_id: bool) -> None:
        request = DeleteTopicsRequest(names=[name])
        expected = ErrorCode.NONE if name in self.newest.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def effect(known: Known, response: Any) -> Known:
            return replace(
                known,
                topics={each: shape for each, shape in known.topics.items() if each != name},
                configs={each: configs for each, configs in known.configs.items() if each != name},
            )

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            assert response.topics[0].error_code == expected

        self.ask(
            operations.DELETE_TOPICS,
            lambda: self.cluster.active.delete_topics(request, allow_internal=False),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6), with_id=st.booleans(), validate_only=st.booleans())
    def create_partitions(self, name: str, count: int, with_id: bool, validate_only: bool) -> None:
        request = CreatePartitionsRequest(
            topics=[NewPartitions(name=name, total_count=count)], validate_only=validate_only
        )
        shape = self.newest.topics.get(name)
        if shape is None:
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif count <= len(shape):
            expected = ErrorCode.INVALID_PARTITIONS
        elif shape[0] > len(self.live()):
            expected = ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            expected = ErrorCode.NONE

        def effect(known: Known, response: Any) -> Known:
            before = known.topics[name]
            return replace(known, topics={**known.topics, name: before + before[:1] * (count - len(before))})

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            assert response.topics[0].error_code == expected, response

        self.ask(
            operations.CREATE_PARTITIONS,
            lambda: self.cluster.active.create_partitions(request),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(
        name=st.sampled_from(NAMES),
        key=st.sampled_from(["min.insync.replicas", "unclean.leader.election.enable", "retention.ms", "retenton.ms"]),
        value=st.sampled_from([None, "1", "2", "3"]),
        with_id=st.booleans(),
    )
    def alter_config(self, name: str, key: str, value: str | None, with_id: bool) -> None:
        if key.startswith("unclean") and value is not None:
            value = "true" if value == "1" else "false"
        operation = ConfigChange.DELETE if value is None else ConfigChange.SET
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource=ConfigResource(type=2, name=name),
                    changes=[ConfigChange(name=key, operation=operation, value=value or "")],
                )
            ]
        )
        expected = ErrorCode.NONE
        if name not in self.newest.topics:
            expected = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif key == "retenton.ms":
            expected = ErrorCode.INVALID_CONFIG

        def effect(known: Known, response: Any) -> Known:
            configs = {each: its for each, its in known.configs[name].items() if each != key}
            if value is not None:
                configs[key] = value
            return replace(known, configs={**known.configs, name: configs})

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            (result,) = response.resources
            assert result.error_code == expected, result.error_message
            assert expected != ErrorCode.INVALID_CONFIG or "retention.ms" in result.error_message

        self.ask(
            operations.ALTER_CONFIGS,
            lambda: self.cluster.active.alter_configs(request),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(level=st.integers(0, 4), downgrade=st.sampled_from([0, 0, 1, 2]), with_id=st.booleans())
    def update_feature(self, level: int, downgrade: int, with_id: bool) -> None:
        update = FeatureUpdate(name="group.version", level=level, upgrade_type=downgrade)  # type: ignore[arg-type]
        request = UpdateFeaturesRequest(updates=[update])
        now = self.newest.features.get("group.version", 0)
        ranges = [broker.features.get("group.version", (0, 0)) for broker in self.cluster.newest.brokers.values()]
        is_legal = (
            level <= 3
            and (level == 0 or all(low <= level <= high for low, high in ranges))
            and not (level < now and (downgrade == 0 or (downgrade == 1 and now == 3)))
            and not (level > now and downgrade)
        )

        def effect(known: Known, response: Any) -> Known:
            return replace(known, features={**known.features, "group.version": level})

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            assert (response.results[0].error_code == ErrorCode.NONE) == is_legal, response

        self.ask(
            operations.UPDATE_FEATURES,
            lambda: self.cluster.active.update_features(request),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(node_id=st.sampled_from(NODES), count=st.integers(1, 5), with_id=st.booleans(), is_stale=st.booleans())
    def allocate_producer_ids(self, node_id: int, count: int, with_id: bool, is_stale: bool) -> None:
        epoch = self.nodes[node_id].epoch - is_stale
        broker = self.cluster.newest.brokers.get(node_id)
        is_known = broker is not None and broker.broker_epoch == epoch

        def effect(known: Known, response: Any) -> Known:
            return replace(known, next_producer_id=known.next_producer_id + count)

        def check(response: Any, error: KraftlogError | None) -> None:
            assert (error is None) == is_known
            if error is None:
                ids = set(range(response.first_id, response.first_id + response.id_count))
                assert len(ids) == count
                assert not ids & self.given_ids, "an id was given twice"
                self.given_ids |= ids

        self.ask(
            operations.ALLOCATE_PRODUCER_IDS,
            lambda: self.cluster.active.allocate_producer_ids(node_id, epoch, count),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """The same request id once more: the first answer if the first time counts, else a first time."""
        asked = data.draw(st.sampled_from(self.asked))
        remembered = dict(self.newest.operations)
        end = self.cluster.log.next_offset

        def check(response: Any, error: KraftlogError | None) -> None:
            if asked.request.id in remembered:
                assert error is None
                assert response == remembered[asked.request.id], "not what was answered the first time"

        self.submit(asked.again, effect=asked.effect, check=check, request=asked.request)
        if asked.request.id in remembered:
            assert self.cluster.log.next_offset == end, "done twice"

    @rule()
    def refuse_an_append(self) -> None:
        """The log is full for a moment: the operation is refused and has changed nothing."""
        self.cluster.log.error = ThrottlingQuotaExceededError("full")
        request = CreateTopicsRequest(topics=[NewTopic(name="full", num_partitions=1, replication_factor=1)])
        self.submit(lambda: self.cluster.active.create_topics(request, allow_internal=False))
        self.cluster.log.error = None

    # --- brokers ------------------------------------------------------------------------------------------------

    @rule(
        node_id=st.sampled_from(NODES),
        how=st.sampled_from(["clean", "unclean", "again"]),
        disk=st.sampled_from(["same", "same", "lost"]),
    )
    def register(self, node_id: int, how: str, disk: str) -> None:
        """A process starts: after a stop in order or a crash, perhaps with an empty disk; or repeats its request."""
        node = self.nodes[node_id]
        previous = node.epoch if node.has_epoch else -1
        if how == "again" and node.incarnation:
            previous = -1
        else:
            self._restart(node_id, node, how, disk)
        registration = BrokerRegistration(
            node_id=node_id,
            incarnation_id=node.incarnation.to_bytes(16, "big"),
            host="localhost",
            port=9092,
            rack="r" + str(node_id % 2),
            log_dirs=((16 * node_id + node.directory).to_bytes(16, "big"),),
            previous_broker_epoch=previous if how == "clean" else -1,
            features={"metadata.version": (1, 1), "group.version": (0, 2 + node_id % 2)},
        )
        high = 2 + node_id % 2
        level = self.newest.features.get("group.version", 0)
        incarnation = node.incarnation

        def check(response: Any, error: KraftlogError | None) -> None:
            if error is None and self.nodes[node_id].incarnation == incarnation:
                node.epoch, node.has_epoch = response, True
            assert error is not None or level <= high, "registered without knowing the cluster's features"

        self.submit(lambda: self.cluster.active.register_broker(registration, now_ms=self.cluster.now_ms), check=check)

    @rule(
        node_id=st.sampled_from(NODES),
        how=st.sampled_from(["clean", "unclean"]),
        disk=st.sampled_from(["same", "same", "same", "lost"]),
    )
    def start(self, node_id: int, how: str, disk: str) -> None:
        """From the start of the process to its first heartbeats, all committed."""
        self.register(node_id, how=how, disk=disk)
        self.commit(100)
        self.heartbeat(node_id, behind=False)
        self.commit(100)

    @rule(node_id=st.sampled_from(NODES))
    def lose(self, node_id: int) -> None:
        """A broker is silent until it is fenced, and all is done that follows from it."""
        self.let_sessions_expire({node_id})
        self.nodes[node_id].is_up = False
        self.settle()

    def _restart(self, node_id: int, node: Node, how: str, disk: str) -> None:
        node.incarnation += 1
        node.is_up, node.has_epoch = True, False
        if disk == "lost":
            node.directory += 1
        for key, replicas in self.complete.items():
            name = self.cluster.newest.topic_names.get(key[0], "")
            is_interval = self.newest.configs.get(name, {}).get("flush.policy") == "interval"
            if disk == "lost" or (how != "clean" and is_interval):
                replicas.discard(node_id)

    @rule(node_id=st.sampled_from(NODES), behind=st.booleans())
    def heartbeat(self, node_id: int, behind: bool) -> None:
        node = self.nodes[node_id]
        if not node.is_up:
            return
        offset = node.epoch - 1 if behind else self.cluster.image.offset
        self._heartbeat(node_id, node.epoch, offset, want_shut_down=False)

    @rule(node_id=st.sampled_from(NODES))
    def heartbeat_of_an_old_process(self, node_id: int) -> None:
        epoch = self.nodes[node_id].epoch - 1

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is not None, "a stale broker was heard"

        self.submit(lambda: self._heartbeat_result(node_id, epoch, self.cluster.image.offset, False), check=check)

    @rule(node_id=st.sampled_from(NODES))
    def shut_down(self, node_id: int) -> None:
        """In order: it stops only when it leads nothing and the others know."""
        node = self.nodes[node_id]
        if node.is_up:
            self._heartbeat(node_id, node.epoch, self.cluster.image.offset, want_shut_down=True)

    def _heartbeat(self, node_id: int, epoch: int, offset: int, *, want_shut_down: bool) -> None:
        def check(response: Any, error: KraftlogError | None) -> None:
            if error is not None:
                return
            broker = self.cluster.image.brokers.get(node_id)
            if response.should_shut_down and broker is not None and broker.broker_epoch == epoch:
                for _, partition in self.partitions():
                    assert partition.leader_id != node_id, "told to stop while it leads"

        self.submit(lambda: self._heartbeat_result(node_id, epoch, offset, want_shut_down), check=check)

    def _heartbeat_result(self, node_id: int, epoch: int, offset: int, want_shut_down: bool) -> Result[Any]:
        return self.cluster.active.heartbeat(
            node_id,
            epoch,
            metadata_offset=offset,
            want_fence=False,
            want_shut_down=want_shut_down,
            now_ms=self.cluster.now_ms,
        )

    @rule(silent=st.sets(st.sampled_from(NODES), min_size=1))
    def let_sessions_expire(self, silent: set[int]) -> None:
        """Some brokers are not heard for a session timeout; perhaps several at once."""
        self.cluster.now_ms += SESSION_MS - 1
        for node_id, node in self.nodes.items():
            if node_id not in silent and node.is_up:
                self._heartbeat(node_id, node.epoch, self.cluster.image.offset, want_shut_down=False)
        self.cluster.now_ms += 1
        self.poll()

    @rule()
    def poll(self) -> None:
        end = self.cluster.log.next_offset
        self.cluster.poll()
        if self.cluster.log.next_offset > end:
            self.known.append((self.cluster.log.next_offset - 1, self.newest))

    @rule(node_id=st.sampled_from(NODES), with_id=st.booleans())
    def unregister(self, node_id: int, with_id: bool) -> None:
        is_known = node_id in self.cluster.newest.brokers

        def check(response: Any, error: KraftlogError | None) -> None:
            assert (error is None) == is_known

        self.ask(
            operations.UNREGISTER_BROKER,
            lambda: self.cluster.active.unregister_broker(node_id),
            effect=lambda known, response: known,
            check=check,
            with_id=with_id,
        )

    # --- partitions ---------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def acknowledge_a_record(self, data: st.DataObject) -> None:
        """A leader that has min.insync.replicas appends, and every member of the ISR, also of the one that it has asked
        for, has the record. It knows no more than what is committed."""
        key, partition = self._some_partition(data)
        if key is None or partition is None or partition.leader_id == NO_LEADER or partition.is_recovering:
            return
        configs = self.cluster.image.configs(2, self.cluster.image.topic_names[key[0]])
        wanted = min(int(configs.get("min.insync.replicas", "1")), len(partition.original_replicas))
        if len(partition.in_sync_replicas) < wanted:
            return
        epoch, entering = self.entering.get(key, (-1, set()))
        members = {*partition.in_sync_replicas, *(entering if epoch == partition.leader_epoch else ())}
        if all(self._follows(member) for member in members):
            self.complete[key] &= members

    def _follows(self, node_id: int) -> bool:
        """Whether the process that runs is the one that the controller knows: another one has not read the metadata."""
        broker = self.cluster.image.brokers.get(node_id)
        node = self.nodes[node_id]
        return node.is_up and broker is not None and broker.incarnation_id == node.incarnation.to_bytes(16, "big")

    @rule(data=st.data(), is_stale=st.booleans())
    def alter_isr(self, data: st.DataObject, is_stale: bool) -> None:
        """A leader takes replicas in that have caught up with it, or leaves some out."""
        key, partition = self._some_partition(data)
        if key is None or partition is None or partition.leader_id == NO_LEADER:
            return
        leader = partition.leader_id
        if not self._follows(leader):
            return
        chosen = data.draw(st.sets(st.sampled_from(partition.replicas)), label="isr") | {leader}
        self._alter_isr(key, partition, chosen, is_stale=is_stale)

    def _alter_isr(self, key: Key, partition: PartitionImage, chosen: set[int], *, is_stale: bool) -> None:
        leader, known = partition.leader_id, self.cluster.image.brokers
        members = [node_id for node_id in partition.replicas if node_id in chosen and node_id in known]
        wanted = tuple((node_id, known[node_id].broker_epoch - is_stale) for node_id in members)
        change = IsrChange(
            topic_id=key[0],
            partition=key[1],
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            in_sync_replicas=wanted,
        )
        entering = set(members) - set(partition.in_sync_replicas)
        if not all(self._follows(node_id) for node_id in entering):
            return
        if leader in self.complete[key]:
            self.complete[key] |= entering
        epoch, before = self.entering.get(key, (-1, set()))
        same = before if epoch == partition.leader_epoch else set()
        self.entering[key] = (partition.leader_epoch, same | entering)

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is not None or not is_stale or response[0].error is not None, "a stale request was heard"

        epoch_of_leader = known[leader].broker_epoch
        self.submit(lambda: self.cluster.active.alter_partition(leader, epoch_of_leader, [change]), check=check)

    def _some_partition(self, data: st.DataObject) -> tuple[Key | None, PartitionImage | None]:
        there = list(self.partitions())
        if not there:
            return None, None
        return data.draw(st.sampled_from(there), label="partition")

    @rule(data=st.data(), election=st.sampled_from([0, 0, 1]), all_of_them=st.booleans())
    def elect_leaders(self, data: st.DataObject, election: int, all_of_them: bool) -> None:
        key, _ = self._some_partition(data)
        if key is None:
            return
        topic = ElectionTopic(name=self.cluster.image.topic_names[key[0]], partitions=[key[1]])
        request = ElectLeadersRequest(type=election, topics=[] if all_of_them else [topic])  # type: ignore[arg-type]
        self.submit(lambda: self.cluster.active.elect_leaders(request))

    @rule(
        data=st.data(),
        replicas=st.lists(st.sampled_from(NODES), unique=True, min_size=1, max_size=3),
        cancels=st.sampled_from([False, False, True]),
        with_id=st.booleans(),
    )
    def reassign(self, data: st.DataObject, replicas: list[int], cancels: bool, with_id: bool) -> None:
        """Other replicas for a partition, in whatever state it and an earlier reassignment of it are."""
        key, _ = self._some_partition(data)
        if key is None:
            return
        name = self.cluster.image.topic_names[key[0]]
        wanted = PartitionReassignment(topic=name, partition=key[1])
        if not cancels:
            wanted.target.replicas.extend(replicas)
        request = AlterPartitionReassignmentsRequest(partitions=[wanted])
        before = self.cluster.newest.partition(name, key[1])
        may_succeed = before is not None and (
            before.is_reassigning if cancels else set(replicas) <= self.cluster.newest.brokers.keys()
        )

        def effect(known: Known, response: Any) -> Known:
            if response.partitions[0].error_code or before is None:
                return known
            counts = list(known.topics[name])
            counts[key[1]] = len(before.original_replicas if cancels else replicas)
            return replace(known, topics={**known.topics, name: tuple(counts)})

        def check(response: Any, error: KraftlogError | None) -> None:
            assert error is None
            assert may_succeed or response.partitions[0].error_code, "a reassignment to nowhere"

        self.ask(
            operations.ALTER_REASSIGNMENTS,
            lambda: self.cluster.active.alter_partition_reassignments(request),
            effect=effect,
            check=check,
            with_id=with_id,
        )

    @rule(data=st.data())
    def catch_up(self, data: st.DataObject) -> None:
        """All that lives and is a replica enters the ISR, and what follows from it happens."""
        key, partition = self._some_partition(data)
        if key is None or partition is None or partition.leader_id == NO_LEADER:
            return
        brokers = self.cluster.image.brokers
        able = [node_id for node_id in partition.replicas if self._follows(node_id) and not brokers[node_id].is_fenced]
        if self._follows(partition.leader_id):
            self._alter_isr(key, partition, {*able, partition.leader_id}, is_stale=False)
            self.commit(100)
            self.poll()

    # --- the quorum ---------------------------------------------------------------------------------------------

    @rule(batches=st.integers(1, 3))
    def commit(self, batches: int) -> None:
        self.cluster.commit(batches)

    @rule(surviving=st.sampled_from([0, 1, 2, 3, 4, 100]), how=st.sampled_from(["follower", "log", "snapshot"]))
    def fail_over(self, surviving: int, how: str) -> None:
        """The active controller is gone; the next one has some more than what is known to be committed."""
        waiting = [offset for offset, _ in self.cluster.log.batches if offset > self.cluster.committed]
        end = ([self.cluster.committed, *waiting])[min(surviving, len(waiting))]
        self.known = [(offset, known) for offset, known in self.known if offset <= end]
        self.cluster.fail_over(surviving, how)
        self.look_at_answers()
        assert not self.waiting, "a lost leadership answers all that wait"

    @rule()
    def settle(self) -> None:
        """Everything is committed, and polling finds nothing more to do: then nobody is led by who may not lead."""
        self.cluster.commit()
        for _ in range(100):
            end = self.cluster.log.next_offset
            self.poll()
            self.cluster.commit()
            if self.cluster.log.next_offset == end:
                break
        else:
            raise AssertionError("elections do not come to an end")
        self.look_at_answers()
        image = self.cluster.image
        usable = {
            broker.node_id
            for broker in image.brokers.values()
            if not broker.is_fenced and not broker.in_controlled_shutdown
        }
        fenced = {node_id for node_id in NODES if node_id not in image.brokers or image.brokers[node_id].is_fenced}
        for key, partition in self.partitions():
            assert not fenced & set(partition.in_sync_replicas), f"{key}: fenced brokers in the ISR {partition}"
            assert not self._is_ready(key, partition), f"{key}: a reassignment that could end goes on: {partition}"
            heirs = {*partition.in_sync_replicas, *partition.eligible_leader_replicas}
            if usable & heirs:
                assert partition.leader_id != NO_LEADER, f"{key}: nobody leads, but {usable & heirs} may"

    def _is_ready(self, key: Key, partition: PartitionImage) -> bool:
        """Whether its reassignment can end, with the leader that it has."""
        configs = self.cluster.image.configs(2, self.cluster.image.topic_names[key[0]])
        target = partition.target_replicas
        left = set(target) & set(partition.in_sync_replicas)
        return (
            partition.is_reassigning
            and partition.leader_id in left
            and set(partition.adding_replicas) <= left
            and len(left) >= min(int(configs.get("min.insync.replicas", "1")), len(target))
        )

    # --- invariants ---------------------------------------------------------------------------------------------

    @invariant()
    def everybody_knows_the_same(self) -> None:
        assert state_of(self.cluster.active) == state_in(self.cluster.newest)
        if not self.cluster.follower.is_active:
            assert state_of(self.cluster.follower) == state_in(self.cluster.image)

    @invariant()
    def images_are_what_the_model_says(self) -> None:
        for image, known in ((self.cluster.image, self.known[0][1]), (self.cluster.newest, self.newest)):
            assert {
                name: tuple(len(partition.target_replicas) for partition in topic.partitions.values())
                for name, topic in image.topics.items()
            } == known.topics
            for topic in image.topics.values():
                assert list(topic.partitions) == list(range(len(topic.partitions))), "half a topic"
                assert dict(image.configs(2, topic.name)) == known.configs[topic.name]
            assert {name for kind, name in image.resource_configs if kind == 2} <= known.topics.keys()
            assert image.next_producer_id == known.next_producer_id
            if image.offset > 0:
                assert {n: v for n, v in image.features.items() if v} == {n: v for n, v in known.features.items() if v}
            assert [each.request_id for each in image.completed_operations] == [r for r, _ in known.operations]

    @invariant()
    def leaders_have_what_was_acknowledged(self) -> None:
        for key, partition in self.partitions():
            leader = partition.leader_id
            assert leader == NO_LEADER or leader in partition.in_sync_replicas
            if leader != NO_LEADER and self._follows(leader):
                assert leader in self.complete[key], f"{key}: {leader} leads, {self.complete[key]} have all records"

    @invariant()
    def epochs_only_grow(self) -> None:
        for key, partition in self.partitions():
            leader_epoch, partition_epoch, leader = self.epochs.get(key, (0, 0, partition.leader_id))
            assert partition.leader_epoch >= leader_epoch
            assert partition.partition_epoch >= partition_epoch
            if leader != partition.leader_id:
                assert partition.leader_epoch > leader_epoch, "another leader in the same epoch"
            self.epochs[key] = (partition.leader_epoch, partition.partition_epoch, partition.leader_id)
        for broker in self.cluster.image.brokers.values():
            assert broker.broker_epoch <= self.cluster.image.offset

    @invariant()
    def unclean_elections_are_told(self) -> None:
        told = {(event.topic_id, event.partition) for event in self.cluster.unclean}
        for key, partition in self.partitions():
            assert not partition.is_recovering or key in told, "an unclean election that nobody was told of"


SETTINGS = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@pytest.mark.slow
def test_controller_behaves_like_a_dict_that_survives_failovers() -> None:
    """What was answered is there, what was not is there whole or not at all, and leaders have every record."""
    run_state_machine_as_test(ControllerMachine, settings=settings(SETTINGS, max_examples=200))


@pytest.mark.deep
def test_controller_behaves_like_a_dict_at_length() -> None:
    """The same with 5,000 examples."""
    run_state_machine_as_test(ControllerMachine, settings=settings(SETTINGS, max_examples=5000, stateful_step_count=60))
