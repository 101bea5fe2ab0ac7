"""The metadata quorum as the rest of the node sees it: operations that are answered when they are durable, the newest
committed image, and publishers that hear of every change.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from kraftlog.kraft.controller import (
    BrokerRegistration,
    ConfigSchema,
    Controller,
    ControllerConfig,
    HeartbeatReply,
    IsrAnswer,
    IsrChange,
    OperationKind,
    RequestId,
    Result,
    UncleanElection,
    operations,
)
from kraftlog.kraft.endpoints import AddressBook
from kraftlog.kraft.image import EMPTY_IMAGE, BrokerEndpoint, MetadataDelta, MetadataImage, MetadataPublisher
from kraftlog.kraft.log_adapter import BatchLog, MetadataLog
from kraftlog.kraft.raft import (
    BusyError,
    Entry,
    EntryKind,
    Message,
    NotLeaderError,
    RaftConfig,
    RaftCore,
    Ready,
    ReplicaKey,
    Snapshot,
)
from kraftlog.kraft.raft.messages import NO_DIRECTORY, NO_OFFSET
from kraftlog.kraft.records import ControlBatches, OffsetRecord, decode_records, voter_endpoints_of
from kraftlog.kraft.snapshot import SnapshotContents
from kraftlog.logstore import TOPIC_CONFIGS
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.proto.admin_pb2 import (
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
    KraftlogError,
    NotControllerError,
    ThrottlingQuotaExceededError,
    UnknownServerError,
)
from kraftlog.proto.records import read_header
from kraftlog.proto.seams import BlockingExecutor, Clock, Random
from kraftlog.server.quorum.driver import QuorumDriver
from kraftlog.server.quorum.snapshots import SnapshotConfig, Snapshotter

logger = logging.getLogger("kraftlog.server")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumConfig:
    node_id: int
    cluster_id: str
    directory_id: bytes = NO_DIRECTORY
    """Of the directory that holds the metadata log."""
    voters: frozenset[ReplicaKey] = frozenset()
    """The first voters, where the directory was not formatted with any; empty: this node alone."""
    tick_ms: int = 100
    """Length of a Raft tick: an election timeout is `raft.election_ticks` of them, 1000 ms by default."""
    raft: RaftConfig = field(default_factory=RaftConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    snapshots: SnapshotConfig = field(default_factory=SnapshotConfig)

    def __post_init__(self) -> None:
        if self.tick_ms < 1:
            raise ValueError(f"tick_ms={self.tick_ms} is below 1")

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def first_voters(self) -> frozenset[ReplicaKey]:
        return self.voters or frozenset({self.key})


class QuorumNode:
    """One voter of the metadata quorum with its controller. Used from one event loop.

    `log` is the opened `__cluster_metadata-0`; whoever opened it closes it, after `stop`. Answers come in the order:
    durable, then in `image` and told to the publishers, then the operation returns. An operation that fails with
    `NotControllerError` after it was accepted may still take effect: the next leader decides.
    """

    def __init__(
        self,
        *,
        config: QuorumConfig,
        log: BatchLog,
        fs: FileSystem,
        clock: Clock,
        random: Random,
        executor: BlockingExecutor,
        validate_topic_configs: Callable[[Mapping[str, str]], object],
        send: Callable[[Message], None] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._random = random
        self._executor = executor
        self._send = send or _nobody_to_send_to
        self._storage = MetadataLog(
            log, fs, cluster_id=config.cluster_id, voters=config.first_voters, node_id=config.node_id
        )
        self._controller = Controller(
            node_id=config.node_id,
            config=config.controller,
            random=random,
            topic_configs=ConfigSchema(
                names=TOPIC_CONFIGS.keys(),
                validate=validate_topic_configs,
                list_defaults={name: known.default for name, known in TOPIC_CONFIGS.items() if known.type == "list"},
            ),
            on_unclean_election=self._report_unclean_election,
        )
        self._snapshotter = Snapshotter(
            config=config.snapshots, clock=clock, take=self._take_snapshot, on_failed=self._stop_for
        )
        self._last_timestamp_ms = -1
        """Of the newest committed batch."""
        self._addresses = AddressBook()
        self._publishers: list[MetadataPublisher] = []
        self._core_or_none: RaftCore | None = None
        self._driver: QuorumDriver | None = None
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._active = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._active_term = -1
        self.image: MetadataImage = EMPTY_IMAGE
        """The newest committed metadata."""

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, join the quorum and, if this node is the only voter, lead it: then everything committed is in `image`.

        Raises what stops the node: a damaged or foreign log directory, a failing disk.
        """
        assert self._task is None, "started twice"
        loaded = await self._executor.run(self._storage.load)
        core = RaftCore(
            self._config.key,
            config=self._config.raft,
            random=self._random,
            control=ControlBatches(self._clock.wall_ms, self._addresses.known),
            hard_state=loaded.hard_state,
            snapshot=loaded.snapshot,
            entries=loaded.entries,
        )
        if loaded.contents is not None:
            self._load(loaded.snapshot, loaded.contents)
        self._learn_voters(loaded.entries)
        self._core_or_none = core
        self._driver = QuorumDriver(
            core=core,
            storage=self._storage,
            executor=self._executor,
            send=self._send,
            load=self._load,
            apply=self._apply,
        )
        self._task = asyncio.get_running_loop().create_task(self._run(self._driver), name="metadata-quorum")
        if core.voters == {core.key}:
            core.campaign()
            self._driver.wake()
            await self._wait_for(self._active)
        else:
            self._schedule_tick()

    async def stop(self) -> None:
        """End after the effects under way; operations that wait fail with `NotControllerError`. May be repeated."""
        self._cancel_timers()
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # known already, see `wait_failed`
        await self._snapshotter.stop()
        self._controller.resign(NotControllerError(f"node {self._config.node_id} is stopping"))

    async def wait_failed(self) -> BaseException | None:
        """Wait until the quorum ends; returns why, None after `stop`. After a failure the node must stop."""
        await self._ended.wait()
        return self._failure

    async def _run(self, driver: QuorumDriver) -> None:
        try:
            await driver.run()
        except Exception as error:
            self._fail(error)
        except BaseException as error:  # the loop is going down
            self._fail(error)
            raise
        finally:
            self._ended.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self._cancel_timers()
        self._controller.resign(_as_kraftlog_error(error))

    async def _wait_for(self, event: asyncio.Event) -> None:
        """Wait for `event` or for the end of the driver, whichever is first."""
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(event.wait()), loop.create_task(self._ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._failure is not None:
            raise self._failure

    # --- what it looks like -------------------------------------------------------------------------------------

    @property
    def _core(self) -> RaftCore:
        assert self._core_or_none is not None, "not started"
        return self._core_or_none

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and its controller takes operations."""
        return self._controller.is_active

    @property
    def leader_id(self) -> int | None:
        """Node id of the leader as far as this node knows."""
        leader = self._core.leader
        return None if leader is None else leader.node_id

    @property
    def metadata_leader_epoch(self) -> int:
        return self._core.term

    @property
    def high_watermark(self) -> int:
        """Exclusive end of the committed metadata log."""
        return self._core.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._core.next_offset

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """It hears at once of everything that is committed already, then of each change."""
        if self.image.offset >= 0:
            publisher.on_metadata_update(MetadataDelta.of_everything(self.image), self.image)
        self._publishers.append(publisher)

    # --- operations ---------------------------------------------------------------------------------------------

    # A `request_id` (16 random bytes, the same on each repeat) makes an operation safe to repeat after a lost answer and
    # over a change of the leader: it is answered as it was the first time, and not done again.

    async def create_topics(
        self, request: CreateTopicsRequest, *, allow_internal: bool = False, request_id: bytes | None = None
    ) -> CreateTopicsResponse:
        """`allow_internal`: also the cluster's own topics; never set for a client's request."""
        return await self._submit(
            lambda: self._controller.create_topics(request, allow_internal=allow_internal),
            operations.CREATE_TOPICS,
            request_id,
        )

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, allow_internal: bool = False, request_id: bytes | None = None
    ) -> DeleteTopicsResponse:
        return await self._submit(
            lambda: self._controller.delete_topics(request, allow_internal=allow_internal),
            operations.DELETE_TOPICS,
            request_id,
        )

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, request_id: bytes | None = None
    ) -> CreatePartitionsResponse:
        return await self._submit(
            lambda: self._controller.create_partitions(request), operations.CREATE_PARTITIONS, request_id
        )

    async def alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, request_id: bytes | None = None
    ) -> IncrementalAlterConfigsResponse:
        return await self._submit(lambda: self._controller.alter_configs(request), operations.ALTER_CONFIGS, request_id)

    async def elect_leaders(
        self, request: ElectLeadersRequest, *, request_id: bytes | None = None
    ) -> ElectLeadersResponse:
        return await self._submit(lambda: self._controller.elect_leaders(request), operations.ELECT_LEADERS, request_id)

    async def update_features(
        self, request: UpdateFeaturesRequest, *, request_id: bytes | None = None
    ) -> UpdateFeaturesResponse:
        return await self._submit(
            lambda: self._controller.update_features(request), operations.UPDATE_FEATURES, request_id
        )

    async def alter_partition(self, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> list[IsrAnswer]:
        """The in-sync replicas of partitions that `node_id` leads; one answer for each change."""
        return await self._submit(lambda: self._controller.alter_partition(node_id, broker_epoch, changes))

    async def register_broker(
        self,
        node_id: int,
        incarnation_id: bytes,
        host: str,
        port: int,
        rack: str = "",
        log_dirs: tuple[bytes, ...] = (),
        endpoints: tuple[BrokerEndpoint, ...] = (),
    ) -> int:
        """The broker epoch. The broker is fenced until its first heartbeat with up-to-date metadata."""
        registration = BrokerRegistration(
            node_id=node_id,
            incarnation_id=incarnation_id,
            host=host,
            port=port,
            rack=rack,
            log_dirs=tuple(log_dirs),
            endpoints=tuple(endpoints),
        )
        return await self._submit(
            lambda: self._controller.register_broker(registration, now_ms=self._clock.monotonic_ms())
        )

    async def heartbeat(
        self,
        node_id: int,
        broker_epoch: int,
        *,
        metadata_offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: Collection[bytes] = (),
    ) -> HeartbeatReply:
        """A broker lives, and has applied metadata up to `metadata_offset` (None: what this node has).

        Unfences a caught-up broker. With `want_shut_down`, repeat it until the reply says `should_shut_down`.
        `offline_log_dirs`: ids of directories that have failed since the registration.
        """
        reply = await self._submit(
            lambda: self._controller.heartbeat(
                node_id,
                broker_epoch,
                metadata_offset=self.image.offset if metadata_offset is None else metadata_offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=offline_log_dirs,
                now_ms=self._clock.monotonic_ms(),
            )
        )
        self._schedule_poll()
        return reply

    async def unregister_broker(self, node_id: int, *, request_id: bytes | None = None) -> None:
        await self._submit(
            lambda: self._controller.unregister_broker(node_id), operations.UNREGISTER_BROKER, request_id
        )

    async def allocate_producer_ids(
        self, node_id: int, broker_epoch: int, count: int = 1000, *, request_id: bytes | None = None
    ) -> tuple[int, int]:
        """(first id, number of ids): given out once in the life of the cluster."""
        block = await self._submit(
            lambda: self._controller.allocate_producer_ids(node_id, broker_epoch, count),
            operations.ALLOCATE_PRODUCER_IDS,
            request_id,
        )
        return block.first_id, block.id_count

    async def _submit(
        self,
        operation: Callable[[], Result[T]],
        kind: OperationKind[T] | None = None,
        request_id: bytes | None = None,
    ) -> T:
        """Decide now, return when it is committed. Cancelling the caller does not undo it."""
        request = None if kind is None or request_id is None else RequestId(request_id, kind)
        if self._driver is None or self._failure is not None or self._ended.is_set():
            raise self._why_not_running()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def complete(response: Any, error: KraftlogError | None) -> None:
            if future.done():
                return  # the caller has gone
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(response)

        self._controller.submit(operation, complete, wall_ms=self._clock.wall_ms(), request=request)
        self._driver.wake()
        return await future

    def _why_not_running(self) -> KraftlogError:
        if self._failure is not None:
            return _as_kraftlog_error(self._failure)
        return NotControllerError(f"node {self._config.node_id} is not running")

    # --- the core's inputs and effects --------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message of another voter or observer. Before `start` and after the end it is lost, as on a dead node."""
        if self._core_or_none is not None and not self._ended.is_set():
            self._guarded(partial(self._step, self._core_or_none, message))

    def _step(self, core: RaftCore, message: Message) -> None:
        core.step(message)
        self._after_input()

    def _after_input(self) -> None:
        if self._controller.is_active and not (self._core.is_leader and self._core.term == self._active_term):
            leader = self._core.leader
            where = f"node {leader.node_id} leads" if leader is not None else "the new leader is not known yet"
            self._controller.resign(NotControllerError(f"node {self._config.node_id} lost the leadership: {where}"))
            self._active.clear()
        if self._driver is not None:
            self._driver.wake()

    def _apply(self, ready: Ready) -> None:
        """Committed entries: into the image, to the publishers, then to the controller, which answers."""
        self._learn_voters(ready.entries)
        batches = [(entry, _records_of(entry)) for entry in ready.committed]
        if batches:
            self._publish(batches)
        for entry, records in batches:
            self._controller.commit(entry.last_offset, records)
            if self._is_start_of_leadership(entry):
                self._activate()

        if batches:
            self._last_timestamp_ms = read_header(batches[-1][0].data).max_timestamp
            self._snapshotter.applied(sum(len(entry.data) for entry, _ in batches))

    def _load(self, snapshot: Snapshot, contents: SnapshotContents) -> None:
        """A snapshot takes the place of the state: at the start, or of a follower that is far behind."""
        self._addresses.record(contents.endpoints)
        self._controller.load_snapshot(snapshot.last_offset, contents.records)
        if snapshot.last_offset == NO_OFFSET:
            return  # the genesis says nothing of committed metadata
        self._last_timestamp_ms = contents.timestamp_ms
        self._publish_delta(MetadataDelta.between(self.image, contents.image), snapshot.last_offset, snapshot.term)
        self._snapshotter.covered()

    def _learn_voters(self, entries: Sequence[Entry]) -> None:
        """A voter set is in force, and its members must be reached, as soon as it is in the log."""
        for entry in entries:
            if entry.kind is EntryKind.VOTERS:
                self._addresses.record(voter_endpoints_of(entry))

    def _publish(self, batches: list[tuple[Entry, list[OffsetRecord]]]) -> None:
        delta = MetadataDelta(self.image)
        for _, records in batches:
            for record in records:
                delta.replay(record.record, record.offset)
        last = batches[-1][0]
        self._publish_delta(delta, last.last_offset, last.term)

    def _publish_delta(self, delta: MetadataDelta, offset: int, leader_epoch: int) -> None:
        self.image = delta.apply(offset, leader_epoch)
        if not delta.is_empty:
            for publisher in self._publishers:
                publisher.on_metadata_update(delta, self.image)

    def _is_start_of_leadership(self, entry: Entry) -> bool:
        leadership = self._core.leadership
        return (
            entry.kind is EntryKind.LEADER_CHANGE
            and leadership is not None
            and leadership.first_offset == entry.last_offset
        )

    def _activate(self) -> None:
        self._active_term = self._core.term
        self._controller.activate(
            _CoreLog(self._core), now_ms=self._clock.monotonic_ms(), wall_ms=self._clock.wall_ms()
        )
        self._active.set()
        self._schedule_poll()

    def _report_unclean_election(self, election: UncleanElection) -> None:
        topic = self.image.topic_names.get(election.topic_id, election.topic_id.hex())
        logger.error(
            "unclean election (metadata offset %d): broker %d leads %s-%d and may lack acknowledged records",
            election.offset,
            election.leader_id,
            topic,
            election.partition,
        )

    # --- snapshots ----------------------------------------------------------------------------------------------

    async def _take_snapshot(self) -> None:
        """Of what is committed by now. The image never changes, so all the work is done beside the event loop."""
        image, voters = self.image, self._core.voters_at(self.image.offset)
        write = partial(
            self._storage.write_snapshot,
            image,
            voters,
            self._addresses.known(voters),
            timestamp_ms=self._last_timestamp_ms,
        )
        data = await self._executor.run(write)
        if self._driver is not None:
            self._driver.submit(partial(self._adopt_snapshot, image.offset, data))

    async def _adopt_snapshot(self, offset: int, data: bytes) -> None:
        """It is durable: the log before it goes, in memory and (up to the snapshot before) on disk."""
        if offset > self._core.log.snapshot.last_offset:  # else a newer one was received meanwhile
            self._core.compact(offset, data)
        await self._executor.run(partial(self._storage.trim, now_ms=self._clock.wall_ms()))

    # --- timers -------------------------------------------------------------------------------------------------

    def _schedule_tick(self) -> None:
        self._schedule("tick", self._config.tick_ms, self._tick)

    def _tick(self) -> None:
        self._core.tick()
        self._after_input()
        self._schedule_tick()

    def _schedule_poll(self) -> None:
        now = self._clock.monotonic_ms()
        deadline = self._controller.poll(now_ms=now, wall_ms=self._clock.wall_ms())
        if deadline is not None:
            self._schedule("poll", deadline - now, self._schedule_poll)
        if self._driver is not None:
            self._driver.wake()  # it may have fenced somebody

    def _schedule(self, name: str, delay_ms: float, work: Callable[[], None]) -> None:
        if name in self._timers:
            self._timers[name].cancel()
        if not self._ended.is_set():
            self._timers[name] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._guarded, work)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Outside of the driver's task: what goes wrong here is as fatal as there."""
        try:
            work()
        except Exception as error:
            self._stop_for(error)

    def _stop_for(self, error: BaseException) -> None:
        self._fail(error)
        if self._driver is not None:
            self._driver.stop()

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class _CoreLog:
    """The Raft log as the active controller appends to it."""

    def __init__(self, core: RaftCore) -> None:
        self._core = core

    @property
    def next_offset(self) -> int:
        return self._core.next_offset

    @property
    def leader_epoch(self) -> int:
        return self._core.term

    def append(self, batch: bytes, record_count: int) -> None:
        try:
            self._core.propose(batch, record_count)
        except NotLeaderError as error:
            raise NotControllerError(str(error)) from None
        except BusyError as error:
            raise ThrottlingQuotaExceededError(str(error)) from None


def _records_of(entry: Entry) -> list[OffsetRecord]:
    return decode_records(entry.data) if entry.kind is EntryKind.DATA else []


def _as_kraftlog_error(error: BaseException) -> KraftlogError:
    return error if isinstance(error, KraftlogError) else UnknownServerError(f"the metadata quorum failed: {error!r}")


def _nobody_to_send_to(message: Message) -> None:
    raise AssertionError(f"a single voter has nobody to send {type(message).__name__} to")
