"""A node: log directory, metadata quorum, listeners and, by `process.roles`, a broker and a controller, put together.

Start: lock and recover the log directory, open the listeners, join the quorum, wait for its leader; then the broker takes
the metadata, registers and serves. A node waits for a leader as long as it takes: the other nodes of a new cluster may
start later. Stop: hand over what others can lead, refuse new requests, answer those that wait, leave the cluster, hand
over the quorum's leadership, flush, leave the clean-shutdown marker. Everything that touches the world comes in as a seam.
"""

import asyncio
import logging
import math
import os
from collections.abc import Mapping

from kraftlog.kraft.controller import ControllerConfig
from kraftlog.kraft.endpoints import AddressBook, Endpoint
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS, METADATA_TOPIC_ID
from kraftlog.kraft.raft import RaftConfig, ReplicaKey
from kraftlog.logstore import FileSystem, Log, LogConfig, LogDir, layout, validate_topic_configs
from kraftlog.logstore.checkpoints import read_properties
from kraftlog.logstore.observer import SILENT, LogObserver
from kraftlog.proto.errors import NotControllerError, StorageError
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC
from kraftlog.proto.seams import BlockingExecutor, Clock, Handlers, Network, Random
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.server.broker import Broker
from kraftlog.server.config import NodeConfig
from kraftlog.server.controller import ControllerClient, ControllerService
from kraftlog.server.directory_id import directory_id_bytes
from kraftlog.server.listening import Listening
from kraftlog.server.loading import LoadingProgress
from kraftlog.server.quorum import Peers, PeersConfig, QuorumConfig, QuorumNode, SnapshotConfig

logger = logging.getLogger("kraftlog.server")

ELECTION_TICKS = 10
"""Ticks of the Raft core in `controller.quorum.election.timeout.ms`."""
STOP_GRACE_MS = 1_000.0
"""For streams and calls that end by themselves when the node does."""


class Node:
    """See the module's text. Used from one event loop; `start` once, `stop` at the end, also after a failed start."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        random: Random,
        fs: FileSystem,
        network: Network,
        executor: BlockingExecutor,
        log_observer: LogObserver = SILENT,
    ) -> None:
        """The executor is the caller's to close, after `stop`. `log_observer` is told what the log store does."""
        self.config = config
        self._clock = clock
        self._random = random
        self._fs = fs
        self._executor = executor
        self._log_observer = log_observer
        self._log_dir: LogDir | None = None
        self._peers: Peers | None = None
        self._quorum: QuorumNode | None = None
        self._controller: ControllerClient | None = None
        self._broker: Broker | None = None
        self._listening = Listening(config, network)
        self._watch: asyncio.Task[None] | None = None
        self._failed = asyncio.Event()
        self._failure: Exception | None = None
        self._is_stopped = False
        self.address = ""
        """`host:port` that other nodes, and clients of the same listener, are told; empty before `start`."""

    async def start(self) -> None:
        """Return when the node serves. Raises what stands in the way; call `stop` then as well."""
        await self._listening.prepare(self._executor)
        log_dir = self._log_dir = await self._executor.run(self._open_log_dir)
        now_ms = self._clock.wall_ms()
        log = await self._executor.run(lambda: _metadata_log(log_dir, now_ms))
        peers = self._peers = self._make_peers(log_dir)
        quorum = self._quorum = self._make_quorum(log_dir, log, peers)
        controller = self._controller = ControllerClient(
            quorum,
            self._listening.network(self._listening.plan.controller_name),
            clock=self._clock,
            random=self._random,
            request_timeout_ms=self.config.controller_quorum_request_timeout_ms,
        )
        broker = self._broker = await self._make_broker(log_dir, quorum, controller) if self.config.is_broker else None
        await self._listening.open(
            broker=Handlers() if broker is None else broker.handlers(),
            controller=_all_of(peers.handlers(), ControllerService(quorum).handlers()),
        )
        plan = self._listening.plan
        self.address = self._listening.endpoint(plan.main.name).address
        if self.config.is_controller:
            told = self._listening.endpoint(plan.controller_listeners[0].name)
            peers.advertise(Endpoint(told.host, told.port))
        await quorum.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_quorum(quorum))
        await self._wait_for_leader(quorum)
        if broker is not None:
            endpoints = {each.name: self._listening.endpoint(each.name) for each in plan.broker_listeners}
            await broker.start(endpoints, plan.inter_broker.name)

    async def _wait_for_leader(self, quorum: QuorumNode) -> None:
        """Until this node has all metadata that were committed before. Raises what the quorum fails with."""
        is_told = False
        while True:
            try:
                return await quorum.read_barrier()
            except NotControllerError as error:
                if quorum.is_stopped:
                    failure = await quorum.wait_failed()
                    raise error if failure is None else failure from None
                if not is_told:
                    logger.info("node %d waits for the metadata quorum: %s", self.config.node_id, error)
                    is_told = True

    async def wait_failed(self) -> Exception:
        """Return why the node cannot go on, once it cannot: a failed disk, a failed quorum."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    @property
    def failure(self) -> Exception | None:
        """Why the node cannot go on; None while it can."""
        return self._failure

    @property
    def waiting_requests(self) -> int:
        """Requests and streams that wait for an event; 0 on an idle node."""
        return 0 if self._broker is None else self._broker.replicas.waiting

    @property
    def addresses(self) -> Mapping[str, str]:
        """The `host:port` that each open listener is bound to, by listener name."""
        return self._listening.bound

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The replicas of this broker, for tests and tools that look on; empty before `start` has loaded them."""
        return {} if self._broker is None else self._broker.replicas.partitions

    async def stop(self) -> None:
        """Stop in order. May be repeated, and called after a failed start."""
        if self._is_stopped:
            return
        self._is_stopped = True
        broker = self._broker
        if broker is not None:
            if self._failure is None:
                await broker.hand_over()
                await broker.drain()
                await broker.leave()
            else:
                if isinstance(self._failure, StorageError):
                    await broker.give_up()
                await broker.drain()
            await broker.stop()
        if self._quorum is not None:
            await self._quorum.stop()
        if self._watch is not None:
            await asyncio.wait([self._watch])
        if self._controller is not None:
            await self._controller.close()
        await self._listening.stop(STOP_GRACE_MS)  # whoever had to be answered was
        if self._log_dir is not None:
            await self._close_log_dir(self._log_dir, clean=self._failure is None)

    # assembly

    def _open_log_dir(self) -> LogDir:
        """Blocks: takes the lock, and after an unclean stop recovers every log."""
        config = self.config
        return LogDir.open(
            config.log_dir,
            fs=self._fs,
            node_id=config.node_id,
            cluster_id=config.cluster_id or _cluster_id_of(self._fs, config.log_dir),
            config=LogConfig.from_configs(config.topic_defaults),
            now_ms=self._clock.wall_ms(),
            on_progress=LoadingProgress(config.log_dir, self._clock),
            threads=config.num_recovery_threads_per_data_dir,
            max_open_files=config.log_max_open_files,
            observer=self._log_observer,
        )

    def _make_peers(self, log_dir: LogDir) -> Peers:
        config = self.config
        silence_ms = config.controller_quorum_fetch_timeout_ms
        return Peers(
            cluster_id=log_dir.cluster_id,
            key=ReplicaKey(config.node_id, directory_id_bytes(log_dir.directory_id)),
            connector=self._listening.network(self._listening.plan.controller_name),
            clock=self._clock,
            random=self._random,
            addresses=AddressBook(config.controller_quorum_bootstrap_servers),
            config=PeersConfig(silence_timeout_ms=silence_ms, keep_alive_ms=silence_ms * 0.4),
        )

    def _make_quorum(self, log_dir: LogDir, log: Log, peers: Peers) -> QuorumNode:
        config = self.config
        defaults = LogConfig.from_configs(config.topic_defaults)
        tick_ms = config.controller_quorum_election_timeout_ms // ELECTION_TICKS
        factor, internal_factor = config.default_replication_factor, config.offsets_topic_replication_factor
        return QuorumNode(
            config=QuorumConfig(
                node_id=config.node_id,
                cluster_id=log_dir.cluster_id,
                directory_id=peers.key.directory_id,
                needs_genesis=not config.is_controller or bool(config.controller_quorum_bootstrap_servers),
                tick_ms=tick_ms,
                read_timeout_ms=config.controller_quorum_request_timeout_ms,
                raft=RaftConfig(
                    election_ticks=ELECTION_TICKS,
                    fetch_ticks=math.ceil(config.controller_quorum_fetch_timeout_ms / tick_ms),
                ),
                controller=ControllerConfig(
                    num_partitions=config.num_partitions,
                    default_replication_factor=None if factor < 0 else factor,
                    internal_replication_factor=None if internal_factor < 0 else internal_factor,
                    broker_session_timeout_ms=config.broker_session_timeout_ms,
                    min_insync_replicas=defaults.min_insync_replicas,
                    unclean_leader_election_enable=defaults.unclean_leader_election_enable,
                    default_flush_policy=defaults.flush_policy.value,
                    auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
                    leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
                    leader_imbalance_per_broker_percentage=config.leader_imbalance_per_broker_percentage,
                ),
                snapshots=SnapshotConfig(
                    max_record_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
                    max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
                ),
            ),
            log=log,
            fs=self._fs,
            clock=self._clock,
            random=self._random,
            executor=self._executor,
            validate_topic_configs=validate_topic_configs,
            peers=peers,
        )

    async def _make_broker(self, log_dir: LogDir, quorum: QuorumNode, controller: ControllerClient) -> Broker:
        return Broker(
            self.config,
            clock=self._clock,
            random=self._random,
            executor=self._executor,
            log_dir=log_dir,
            high_watermarks=await self._executor.run(log_dir.high_watermarks),
            quorum=quorum,
            controller=controller,
            connector=self._listening.network(self._listening.plan.inter_broker.name),
            on_failed=self._fail,
        )

    # while it runs

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()

    async def _watch_quorum(self, quorum: QuorumNode) -> None:
        error = await quorum.wait_failed()
        if error is not None:
            logger.critical("the metadata quorum failed", exc_info=error)
            self._fail(error if isinstance(error, Exception) else StorageError(str(error)))

    async def _close_log_dir(self, log_dir: LogDir, *, clean: bool) -> None:
        broker = self._broker

        def close() -> None:
            if clean and broker is not None:
                broker.checkpoint_high_watermarks()
            log_dir.close(clean=clean, broker_epoch=None if broker is None else broker.registered_epoch)

        await self._executor.run(close)


def _metadata_log(log_dir: LogDir, now_ms: int) -> Log:
    """`__cluster_metadata-0`, made at the first start. Blocks."""
    log = log_dir.logs.get((CLUSTER_METADATA_TOPIC, 0))
    config = LogConfig.from_configs(METADATA_LOG_CONFIGS)
    if log is None:
        return log_dir.create_log(CLUSTER_METADATA_TOPIC, 0, METADATA_TOPIC_ID, config, now_ms=now_ms)
    log.config = config
    return log


def _cluster_id_of(fs: FileSystem, path: str) -> str:
    """Whatever cluster the directory was formatted for; "" if it was not. Blocks."""
    try:
        return (read_properties(fs, os.path.join(path, layout.META_PROPERTIES_FILE)) or {}).get("cluster.id", "")
    except FileNotFoundError:
        return ""


def _all_of(*parts: Handlers) -> Handlers:
    return Handlers(
        unary={name: handler for part in parts for name, handler in part.unary.items()},
        streams={name: handler for part in parts for name, handler in part.streams.items()},
    )
