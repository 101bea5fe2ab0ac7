"""The metadata quorum as the rest of the node sees it: operations that are answered when they are durable, the newest
committed image, and publishers that hear of every change.

Every node of a cluster has one. Without a vote it observes: it has the log and the image, and refuses operations.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, cast

from kraftlog.kraft.controller import (
    ConfigSchema,
    Controller,
    ControllerConfig,
    UncleanElection,
)
from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.gathering import GatheringLog
from kraftlog.kraft.image import EMPTY_IMAGE, MetadataDelta, MetadataImage, MetadataPublisher
from kraftlog.kraft.log_adapter import BatchLog, MetadataLog
from kraftlog.kraft.raft import (
    AppendResponse,
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
    SnapshotResponse,
    Voters,
)
from kraftlog.kraft.raft.messages import NO_DIRECTORY, NO_OFFSET
from kraftlog.kraft.records import ControlBatches, OffsetRecord, decode_records, voter_endpoints_of
from kraftlog.kraft.snapshot import SnapshotContents
from kraftlog.logstore import TOPIC_CONFIGS
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.proto.errors import (
    KraftlogError,
    NotControllerError,
    RequestTimedOutError,
    UnknownServerError,
    VoterNotFoundError,
)
from kraftlog.proto.records import read_header
from kraftlog.proto.seams import BlockingExecutor, Clock, Random
from kraftlog.server.dynamic_config import BROKER_CONFIGS, validate_broker_configs
from kraftlog.server.quorum.describe import FetchTimes, QuorumDescription, describe_quorum
from kraftlog.server.quorum.driver import QuorumDriver
from kraftlog.server.quorum.local_controller import LocalController
from kraftlog.server.quorum.peers import Peers
from kraftlog.server.quorum.reads import ReadBarrier
from kraftlog.server.quorum.snapshots import SnapshotConfig, Snapshotter
from kraftlog.server.quorum.voter_changes import VoterChanges
from kraftlog.server.quorum.waiting import Conditions

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
    needs_genesis: bool = False
    """Whether a directory that was not formatted with the first voters is refused."""
    tick_ms: int = 100
    """Length of a Raft tick: an election timeout is `raft.election_ticks` of them, 1000 ms by default."""
    read_timeout_ms: float = 2_000
    """How long `read_barrier` waits for the leader (`controller.quorum.request.timeout.ms`)."""
    voter_change_timeout_ms: float = 30_000
    """How long `add_voter` and `remove_voter` wait: a new voter must have caught up first."""
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
    def election_timeout_ms(self) -> float:
        return self.tick_ms * self.raft.election_ticks

    @property
    def first_voters(self) -> frozenset[ReplicaKey]:
        return self.voters or frozenset({self.key})


class QuorumNode:
    """One voter or observer of the metadata quorum with its controller. Used from one event loop.

    `log` is the opened `__cluster_metadata-0`; whoever opened it closes it, after `stop`. Answers come in the order:
    durable, then in `image` and told to the publishers, then the operation of `controller` returns.
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
        peers: Peers | None = None,
        send: Callable[[Message], None] | None = None,
    ) -> None:
        """`peers`: the way to other nodes, which this one starts and stops; in its place `send` takes the messages, and
        whoever gives it calls `receive`. Neither: a cluster of one node."""
        self._config = config
        self._clock = clock
        self._random = random
        self._executor = executor
        self._peers = peers
        self._send = send or (_nobody_to_send_to if peers is None else peers.send)
        self._told_peers: object = None
        self._addresses = AddressBook() if peers is None else peers.addresses
        self._storage = MetadataLog(
            log,
            fs,
            cluster_id=config.cluster_id,
            voters=config.first_voters,
            node_id=config.node_id,
            needs_genesis=config.needs_genesis,
        )
        self._controller = Controller(
            node_id=config.node_id,
            config=config.controller,
            random=random,
            topic_configs=ConfigSchema(
                names=TOPIC_CONFIGS.keys(),
                validate=validate_topic_configs,
                list_defaults={name: known.default for name, known in TOPIC_CONFIGS.items() if known.is_list},
            ),
            broker_configs=ConfigSchema(names=BROKER_CONFIGS.keys(), validate=validate_broker_configs),
            on_unclean_election=self._report_unclean_election,
        )
        self.controller = LocalController(
            self._controller,
            clock,
            wake=self._wake,
            poll=self._schedule_poll,
            why_not_running=self._why_not_running,
            term=lambda: self._core.term,
            confirm_leadership=self._confirm_leadership,
        )
        self._snapshotter = Snapshotter(
            config=config.snapshots, clock=clock, take=self._take_snapshot, on_failed=self._stop_for
        )
        self._last_timestamp_ms = -1
        """Of the newest committed batch."""
        self._publishers: list[MetadataPublisher] = []
        self._core_or_none: RaftCore | None = None
        self._driver: QuorumDriver | None = None
        self._gathering: GatheringLog | None = None
        """Of the newest leadership of this node."""
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._active = asyncio.Event()
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self.is_stopped = False
        """Nothing is answered any more, and there is no use in waiting."""
        self._active_term = -1
        self._may_elect_early = True
        """Until a leader is known."""
        self._conditions = Conditions()
        self._fetch_times = FetchTimes()
        self._leaders_heard: dict[int, float] = {}
        """When each node that led was last heard while it did (monotonic ms)."""
        self._voter_changes = VoterChanges(
            self._conditions,
            clock,
            timeout_ms=config.voter_change_timeout_ms,
            retry_ms=config.tick_ms,
            before_input=self._gather,
            after_input=self._after_input,
        )
        self._reads = ReadBarrier(
            read_index=self._read_index,
            wait_applied=self.wait_image,
            now_ms=clock.monotonic_ms,
        )
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
            gather=self._gather,
            send=self._send,
            load=self._load,
            apply=self._apply,
        )
        self._task = asyncio.get_running_loop().create_task(self._run(self._driver), name="metadata-quorum")
        if self._peers is not None:
            self._peers.start(self)
        if core.voters == {core.key}:
            core.campaign()
            self._driver.wake()
            await self._wait_for(self._active)
        self._update_ticks()

    async def stop(self) -> None:
        """End after the effects under way; operations that wait fail with `NotControllerError`. May be repeated.

        A leader of several voters first hands its leadership to one of them, which takes a few round trips and at most
        an election timeout: the cluster has a controller again before this one is gone.
        """
        if self._driver is not None and not self._ended.is_set():
            await self._hand_over()
        self._end_waits(self._stopping())
        if self._peers is not None:
            await self._peers.stop()
        self._cancel_timers()
        if self._driver is not None and self._task is not None:
            self._driver.stop()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # known already, see `wait_failed`
        await self._snapshotter.stop()
        self._controller.resign(self._stopping())

    async def _hand_over(self) -> None:
        core = self._core
        leadership = core.leadership
        others = core.voters - {core.key}
        if leadership is None or not others:
            return
        progress = leadership.progress
        # Sorted: which of equals it is must not depend on the order of a set, or a simulated run could not be repeated.
        successor = max(sorted(others), key=lambda key: (progress[key].is_active, progress[key].match_offset))
        with contextlib.suppress(KraftlogError):  # nobody took it in time, or this node fails just now
            await self.transfer_leadership(successor)

    def _stopping(self) -> NotControllerError:
        return NotControllerError(f"node {self._config.node_id} is stopping")

    def _end_waits(self, error: KraftlogError) -> None:
        self.is_stopped = True
        self._reads.close(error)
        self._conditions.fail(error)

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
        self._end_waits(_as_kraftlog_error(error))

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
    def node_id(self) -> int:
        return self._config.node_id

    @property
    def leader_id(self) -> int | None:
        """Node id of the leader as far as this node knows; before `start` it knows nothing, and may be asked already."""
        leader = None if self._core_or_none is None else self._core_or_none.leader
        return None if leader is None else leader.node_id

    @property
    def voters(self) -> Voters:
        """Those of the newest voters record in the log, committed or not."""
        return self._core.voters

    @property
    def leader(self) -> ReplicaKey | None:
        """The leader as far as this node knows."""
        return self._core.leader

    @property
    def leader_endpoint(self) -> Endpoint | None:
        """Where the leader listens, as far as this node knows."""
        return None if self._core.leader is None else self._addresses.endpoint(self._core.leader)

    async def wait_leader_change(self, leader: ReplicaKey | None, timeout_ms: float) -> bool:
        """Wait until this node takes another one than `leader` for the leader; False after `timeout_ms`. Raises
        `NotControllerError` when the node stops."""
        return await self._conditions.wait(lambda: self._core.leader != leader, timeout_ms)

    def watching_leader(
        self, leader: ReplicaKey, on_change: Callable[[], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Within the block call `on_change` once, when this node takes another one for the leader or stops."""
        return self._conditions.watching(lambda: self._core.leader != leader, on_change)

    async def wait_image(self, offset: int, timeout_ms: float) -> bool:
        """Wait until `image` has `offset`; False after `timeout_ms`. Raises `NotControllerError` when the node stops."""
        return await self._conditions.wait(lambda: self.image.offset >= offset, timeout_ms)

    @property
    def term(self) -> int:
        return self._core.term

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

    def describe(self) -> QuorumDescription:
        """What this node knows; only the leader knows how far the others are."""
        return describe_quorum(
            self._core,
            {key: self._addresses.endpoint(key) for key in self._core.voters | self._core.observers}
            | ({} if self._peers is None else {self._core.key: self._peers.endpoint}),
            self._fetch_times,
            now_ms=self._clock.wall_ms(),
        )

    def add_publisher(self, publisher: MetadataPublisher) -> None:
        """It hears at once of everything that is committed already, then of each change."""
        if self.image.offset >= 0:
            publisher.on_metadata_update(MetadataDelta.of_everything(self.image), self.image)
        self._publishers.append(publisher)

    # --- reads and membership -----------------------------------------------------------------------------------

    async def read_barrier(self, timeout_ms: float | None = None) -> None:
        """Return when `image` is at least as new as every write that was answered, anywhere, before this call.

        Works on every node. Raises `NotControllerError` if no leader could be asked within `timeout_ms` (None:
        `read_timeout_ms`); may be repeated.
        """
        refusal = self._why_not_running()
        if refusal is not None:
            raise refusal
        await self._reads.wait(self._config.read_timeout_ms if timeout_ms is None else timeout_ms)

    async def _confirm_leadership(self, term: int) -> None:
        """Return when a majority has said after this call that this node leads in `term`. Raises `NotControllerError`."""
        await self.read_barrier()
        if self._core.term != term or not self.is_leader:
            raise NotControllerError(f"node {self._config.node_id} lost the leadership of term {term}")

    async def _read_index(self) -> int:
        leader = self._core.leader
        if leader is None:
            raise NotControllerError("the leader of the metadata quorum is not known")
        if leader != self._core.key:
            if self._peers is None:
                raise NotControllerError(f"node {leader.node_id} leads the metadata quorum")
            return await self._peers.read_index(leader)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def answer(offset: int | None) -> None:
            if future.done():
                return
            if offset is None:
                future.set_exception(NotControllerError("the leadership was lost, or is not established yet"))
            else:
                future.set_result(offset)

        self.answer_read_index(answer)
        return await future

    def answer_read_index(self, answer: Callable[[int | None], None]) -> None:
        """Call `answer`, now or later, with the offset that a linearizable read needs; None: not the leader, or not able
        to take more reads."""
        try:
            self._core.read_index(answer)
        except (NotLeaderError, BusyError):
            answer(None)
        else:
            self._after_input()

    async def add_voter(self, key: ReplicaKey, endpoint: Endpoint | None = None) -> None:
        """Give an observer a vote, once it has caught up (KIP-853). `endpoint`: where it listens, if it has not said so.

        Raises `DuplicateVoterError` if its node votes already, also with another directory (remove that first);
        `NotControllerError` where another node leads; `RequestTimedOutError` with what it waits for, after which the
        change may still take effect only if it was appended already. May be repeated.
        """
        if endpoint is not None and not self._addresses.candidates(key):
            self._addresses.tell(key, endpoint)
        await self._voter_changes.add(self._core, key)

    async def remove_voter(self, key: ReplicaKey) -> None:
        """Take a node's vote; it observes from then on. A leader that removes itself steps down when that is committed.

        Raises `VoterNotFoundError`; `InvalidRequestError` for the last voter; else as `add_voter`.
        """
        await self._voter_changes.remove(self._core, key)

    async def transfer_leadership(self, key: ReplicaKey) -> None:
        """Let the voter `key` lead, once it has the whole log; return when this node follows it, or another one that was
        elected meanwhile. No operation is taken until then.

        Raises `NotControllerError` where another node leads, `VoterNotFoundError`, and `RequestTimedOutError` after an
        election time-out: this node leads on then. May be repeated; nothing is done where `key` leads already.
        """
        core = self._core
        if core.leadership is None:
            raise NotControllerError(str(NotLeaderError(core.leader)))
        if key not in core.voters:
            raise VoterNotFoundError(f"node {key.node_id} with directory {key.directory_id.hex()} is not a voter")
        if key == core.key:
            return
        self._gather()
        core.transfer(key)
        self._after_input()
        # Not only until it follows: its vote for the new leader must be out as well, if the node is to stop.
        followed = await self._conditions.wait(
            lambda: core.leader not in (None, core.key), self._config.election_timeout_ms
        )
        if not followed:
            raise RequestTimedOutError(
                f"node {key.node_id} did not take over within {self._config.election_timeout_ms:.0f} ms"
            )

    def _why_not_running(self) -> KraftlogError | None:
        if self._failure is not None:
            return _as_kraftlog_error(self._failure)
        if self._driver is None or self._ended.is_set():
            return NotControllerError(f"node {self._config.node_id} is not running")
        return None

    def _gather(self) -> None:
        """What the controller has decided since the last time becomes one batch."""
        if self._gathering is not None:
            self._gathering.close()

    def _wake(self) -> None:
        """The core has an input."""
        if self._driver is not None:
            self._driver.wake()

    # --- the core's inputs and effects --------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """A message of another voter or observer. Before `start` and after the end it is lost, as on a dead node."""
        if self._core_or_none is not None and not self._ended.is_set():
            self._guarded(partial(self._step, self._core_or_none, message))

    def _step(self, core: RaftCore, message: Message) -> None:
        core.step(message)
        if message.src == core.leader:
            self._leaders_heard[message.src.node_id] = self._clock.monotonic_ms()
        if isinstance(message, AppendResponse | SnapshotResponse):
            self._note_fetch(core, message.src)
        self._after_input()

    def _note_fetch(self, core: RaftCore, key: ReplicaKey) -> None:
        leadership = core.leadership
        if leadership is not None and key in leadership.progress:
            self._fetch_times.heard(
                key,
                replica_end=leadership.progress[key].match_offset + 1,
                leader_end=core.next_offset,
                now_ms=self._clock.wall_ms(),
            )

    def observe(self, key: ReplicaKey) -> None:
        """`key` is connected: feed it while this node leads. Also for voters, who so learn that they were removed."""
        self._guarded(partial(self._observe, key, self._core.observe))
        self._elect_early()

    def forget_observer(self, key: ReplicaKey) -> None:
        """`key` has gone."""
        self._guarded(partial(self._observe, key, self._core.forget_observer))

    def _observe(self, key: ReplicaKey, change: Callable[[ReplicaKey], None]) -> None:
        change(key)
        self._after_input()

    def _elect_early(self) -> None:
        """Once, when this voter is connected to a majority after its start: if nobody leads, as in a cluster that starts as a
        whole, an election timeout would be waited for in vain. Pre-votes disturb nobody if somebody does."""
        core = self._core
        connected = frozenset() if self._peers is None else self._peers.connected
        is_majority = 2 * len(core.voters & (connected | {core.key})) > len(core.voters)
        if self._may_elect_early and core.key in core.voters and is_majority and "early election" not in self._timers:
            turn = sorted(core.voters).index(core.key)  # one after the other, or each votes for itself
            self._schedule("early election", turn * self._config.tick_ms, self._campaign_early)

    def _campaign_early(self) -> None:
        if self._may_elect_early:
            self._may_elect_early = False
            self._core.campaign()
            self._after_input()

    def _after_input(self) -> None:
        self._look_around()
        if self._core.has_ready():  # most ticks and answers leave nothing to do
            self._wake()

    def _look_around(self) -> None:
        """The core may have changed: tell everybody who depends on it."""
        core = self._core
        if self._controller.is_active and not (core.is_leader and core.term == self._active_term):
            where = (
                f"node {core.leader.node_id} leads" if core.leader is not None else "the new leader is not known yet"
            )
            self._controller.resign(NotControllerError(f"node {self._config.node_id} lost the leadership: {where}"))
            self._active.clear()
        if core.leader is not None:
            self._may_elect_early = False
        self._fetch_times.keep(set() if core.leadership is None else set(core.leadership.progress))
        self._update_ticks()
        self._conditions.look()
        if self._peers is not None and (core.term, core.leader, core.voters_offset) != self._told_peers:
            self._told_peers = core.term, core.leader, core.voters_offset
            self._peers.changed()

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
        for read in ready.reads:
            answer = cast(Callable[[int | None], None], read.context)
            answer(read.offset)
        if batches:
            self._last_timestamp_ms = read_header(batches[-1][0].data).max_timestamp
            self._snapshotter.applied(sum(len(entry.data) for entry, _ in batches))
        self._look_around()

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
        self._core.record_voters()
        self._gathering = GatheringLog(self._core)
        self._controller.activate(
            self._gathering,
            now_ms=self._clock.monotonic_ms(),
            wall_ms=self._clock.wall_ms(),
            last_heard=self._leaders_heard,
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
        image = self.image
        if image.offset <= self._core.log.snapshot.last_offset:
            return  # a received one is about to take the place of this image
        voters = self._core.voters_at(image.offset)
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

    def _update_ticks(self) -> None:
        """Time matters as soon as there is anybody else: a single voter without observers leads for ever."""
        core = self._core
        is_alone = core.voters == {core.key} and core.is_leader and not core.observers
        if is_alone and "tick" in self._timers:
            self._timers.pop("tick").cancel()
        elif not is_alone and "tick" not in self._timers:
            self._schedule("tick", self._config.tick_ms, self._tick)

    def _tick(self) -> None:
        del self._timers["tick"]
        self._core.tick()
        self._after_input()

    def _schedule_poll(self) -> None:
        now = self._clock.monotonic_ms()
        deadline = self._controller.poll(now_ms=now, wall_ms=self._clock.wall_ms())
        if deadline is not None:
            self._schedule("poll", deadline - now, self._schedule_poll)
        self._wake()  # it may have fenced somebody

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


def _records_of(entry: Entry) -> list[OffsetRecord]:
    return decode_records(entry.data) if entry.kind is EntryKind.DATA else []


def _as_kraftlog_error(error: BaseException) -> KraftlogError:
    return error if isinstance(error, KraftlogError) else UnknownServerError(f"the metadata quorum failed: {error!r}")


def _nobody_to_send_to(message: Message) -> None:
    raise AssertionError(f"a single voter has nobody to send {type(message).__name__} to")
