"""A node: log directory, metadata quorum, partitions, coordinators and listener, put together.

Start: lock and recover the log directory, lead the quorum, open the listener, register as broker (with the port that
is bound by then), serve. Stop: refuse new requests, answer those that wait, hand over leadership, flush, leave the
clean-shutdown marker. Everything that touches the world comes in as a seam.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping

from kraftlog.kraft.controller import ControllerConfig
from kraftlog.kraft.image import BrokerEndpoint
from kraftlog.kraft.log_adapter import METADATA_LOG_CONFIGS, METADATA_TOPIC_ID
from kraftlog.logstore import FileSystem, Log, LogConfig, LogDir, layout, validate_topic_configs
from kraftlog.logstore.checkpoints import read_properties
from kraftlog.logstore.observer import SILENT, LogObserver
from kraftlog.proto.errors import KraftlogError, StorageError
from kraftlog.proto.names import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.seams import BlockingExecutor, Clock, Handlers, Network, Random
from kraftlog.proto.uuids import uuid_from_text
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.replication.retention import Retention
from kraftlog.server.apis.admin import AdminHandler
from kraftlog.server.apis.delete_records import DeleteRecordsHandler
from kraftlog.server.apis.fetch import FetchHandler
from kraftlog.server.apis.groups import FindCoordinatorHandler
from kraftlog.server.apis.lifecycle import Lifecycle
from kraftlog.server.apis.log_dirs import LogDirsHandler
from kraftlog.server.apis.metadata import MetadataHandler
from kraftlog.server.apis.offsets import ListOffsetsHandler
from kraftlog.server.apis.produce import ProduceHandler
from kraftlog.server.apis.producer_ids import ProducerIdHandler
from kraftlog.server.apis.services import Services
from kraftlog.server.config import NodeConfig
from kraftlog.server.coordinator import GroupConfig, GroupCoordinator
from kraftlog.server.coordinator_log import ReplicaCoordinatorLog
from kraftlog.server.listening import Listening
from kraftlog.server.loading import LoadingProgress
from kraftlog.server.quorum import QuorumConfig, QuorumNode, SnapshotConfig
from kraftlog.server.registration import BrokerRegistration

logger = logging.getLogger("kraftlog.server")

_ID_BYTES = 16


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
        self._lifecycle = Lifecycle(config.node_id)
        self._log_dir: LogDir | None = None
        self._quorum: QuorumNode | None = None
        self._replicas: ReplicaManager | None = None
        self._groups: GroupCoordinator | None = None
        self._listening = Listening(config, network)
        self._registration: BrokerRegistration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()
        self._failure: Exception | None = None
        self._is_stopped = False
        self.address = ""
        """`host:port` that other brokers, and clients of the same listener, are told; empty before `start`."""

    async def start(self) -> None:
        """Return when the node serves. Raises what stands in the way; call `stop` then as well."""
        config = self.config
        await self._listening.prepare(self._executor)
        log_dir = self._log_dir = await self._executor.run(self._open_log_dir)
        now_ms = self._clock.wall_ms()
        quorum = self._quorum = self._make_quorum(
            log_dir, await self._executor.run(lambda: _metadata_log(log_dir, now_ms))
        )
        await quorum.start()
        replicas = self._replicas = ReplicaManager(
            node_id=config.node_id,
            log_dir=log_dir,
            clock=self._clock,
            executor=self._executor,
            random=self._random,
            topic_defaults=config.topic_defaults,
            high_watermarks=await self._executor.run(log_dir.high_watermarks),
            on_leadership=self._on_leadership,
            on_storage_failure=self._fail,
            cleaner_limits=config.cleaner_limits,
        )
        self._groups = self._make_groups(quorum, replicas)
        services = self._make_services(log_dir, quorum, replicas, self._groups)
        await self._listening.open(broker=services.handlers(), controller=Handlers())
        self.address = self._listening.endpoint(self._listening.plan.inter_broker.name).address
        await self._groups.start()
        quorum.add_publisher(replicas)
        await replicas.wait_applied()
        quorum.add_publisher(self._groups)  # when all that is old is known: it acts on deletions
        self._registration = self._make_registration(log_dir, quorum)
        await self._registration.start()
        await replicas.wait_applied()
        high_watermarks = HighWatermarkCheckpoint(log_dir, replicas)
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._watch_quorum(quorum)),
            loop.create_task(self._repeat(config.replica_high_watermark_checkpoint_interval_ms, high_watermarks.write)),
            loop.create_task(self._retain(replicas.retention)),
            loop.create_task(self._expire_producers(replicas.retention)),
            *(
                loop.create_task(replicas.cleaner.run(config.log_cleaner_backoff_ms))
                for _ in range(config.log_cleaner_threads if config.log_cleaner_enable else 0)
            ),
            loop.create_task(self._repeat(config.log_flush_offset_checkpoint_interval_ms, log_dir.checkpoint)),
        ]
        self._lifecycle.begin_serving()

    async def wait_failed(self) -> Exception:
        """Return why the node cannot go on, once it cannot: a failed disk, a failed quorum."""
        await self._failed.wait()
        assert self._failure is not None
        return self._failure

    @property
    def waiting_requests(self) -> int:
        """Requests and streams that wait for an event; 0 on an idle node."""
        return 0 if self._replicas is None else self._replicas.waiting

    @property
    def addresses(self) -> Mapping[str, str]:
        """The `host:port` that each open listener is bound to, by listener name."""
        return self._listening.bound

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The replicas of this broker, for tests and tools that look on; empty before `start` has loaded them."""
        return {} if self._replicas is None else self._replicas.partitions

    async def stop(self) -> None:
        """Stop in order. May be repeated, and called after a failed start."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._lifecycle.begin_stopping()
        if self._groups is not None:
            await self._groups.stop()
        await self._listening.stop(self.config.shutdown_grace_ms)
        if self._registration is not None:
            if self._failure is None:
                await self._registration.leave(self.config.shutdown_grace_ms)
            await self._registration.stop()
        if self._replicas is not None:
            await (
                self._replicas.cleaner.stop()
            )  # it ends between two steps; nothing else may be in the middle of a file
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._replicas is not None:
            await self._replicas.stop()
        if self._quorum is not None:
            await self._quorum.stop()
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

    def _make_quorum(self, log_dir: LogDir, log: Log) -> QuorumNode:
        config = self.config
        factor = config.default_replication_factor
        defaults = LogConfig.from_configs(config.topic_defaults)
        return QuorumNode(
            config=QuorumConfig(
                node_id=config.node_id,
                cluster_id=log_dir.cluster_id,
                directory_id=_directory_id(log_dir),
                controller=ControllerConfig(
                    num_partitions=config.num_partitions,
                    default_replication_factor=None if factor < 0 else factor,
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
        )

    def _make_groups(self, quorum: QuorumNode, replicas: ReplicaManager) -> GroupCoordinator:
        config = self.config
        topic = quorum.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        return GroupCoordinator(
            config=GroupConfig(
                group_min_session_timeout_ms=config.group_min_session_timeout_ms,
                group_max_session_timeout_ms=config.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                group_max_size=config.group_max_size,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_minutes=config.offsets_retention_minutes,
                offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            ),
            log=ReplicaCoordinatorLog(replicas),
            clock=self._clock,
            random=self._random,
            node_id=config.node_id,
            partition_count=config.offsets_topic_num_partitions if topic is None else len(topic.partitions),
            partition_exists=lambda name, number: replicas.image.partition(name, number) is not None,
        )

    def _make_services(
        self, log_dir: LogDir, quorum: QuorumNode, replicas: ReplicaManager, groups: GroupCoordinator
    ) -> Services:
        config = self.config
        lifecycle = self._lifecycle
        admin = AdminHandler(
            replicas,
            quorum,
            cluster_id=log_dir.cluster_id,
            topic_defaults=config.topic_defaults,
            broker_configs=config.described(),
        )
        return Services(
            lifecycle=lifecycle,
            produce=ProduceHandler(replicas, self._executor, lifecycle),
            fetch=FetchHandler(
                replicas, self._clock, self._executor, lifecycle, max_message_bytes=config.fetch_max_bytes
            ),
            offsets=ListOffsetsHandler(replicas),
            metadata=MetadataHandler(
                replicas,
                quorum,
                cluster_id=log_dir.cluster_id,
                create_topic=admin.create_topic if config.auto_create_topics_enable else None,
            ),
            producer_ids=ProducerIdHandler(self._allocate_producer_ids),
            admin=admin,
            delete_records=DeleteRecordsHandler(replicas),
            log_dirs=LogDirsHandler(log_dir, replicas, self._executor),
            coordinators=FindCoordinatorHandler(replicas, self._offsets_topic_creator(admin)),
            groups=groups,
        )

    def _offsets_topic_creator(self, admin: AdminHandler) -> Callable[[], Awaitable[None]]:
        config = self.config

        async def create() -> None:
            await admin.create_topic(
                CONSUMER_OFFSETS_TOPIC,
                num_partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                configs={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "flush.policy": "ack",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )

        return create

    def _make_registration(self, log_dir: LogDir, quorum: QuorumNode) -> BrokerRegistration:
        listening = self._listening
        endpoint = listening.endpoint(listening.plan.inter_broker.name)
        told = [listening.endpoint(listener.name) for listener in listening.plan.broker_listeners]
        return BrokerRegistration(
            quorum,
            self._clock,
            node_id=self.config.node_id,
            incarnation_id=self._random.getrandbits(8 * _ID_BYTES).to_bytes(_ID_BYTES, "big"),
            host=endpoint.host,
            port=endpoint.port,
            rack=self.config.rack,
            log_dirs=(_directory_id(log_dir),),
            endpoints=tuple(BrokerEndpoint(each.name, each.host, each.port) for each in told),
            heartbeat_interval_ms=self.config.broker_heartbeat_interval_ms,
        )

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        assert self._quorum is not None, "serving begins after it started"
        assert self._registration is not None, "serving begins after it started"
        return await self._quorum.allocate_producer_ids(self.config.node_id, self._registration.broker_epoch)

    # while it runs

    def _on_leadership(self, partition: Partition) -> None:
        if partition.topic == CONSUMER_OFFSETS_TOPIC and self._groups is not None:
            if partition.is_leader:
                self._groups.on_elected(partition.partition, partition.leader_epoch)
            else:
                self._groups.on_resigned(partition.partition)

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            self._failed.set()

    async def _watch_quorum(self, quorum: QuorumNode) -> None:
        error = await quorum.wait_failed()
        if error is not None:
            logger.critical("the metadata quorum failed", exc_info=error)
            self._fail(error if isinstance(error, Exception) else StorageError(str(error)))

    async def _repeat(self, interval_ms: int, work: Callable[[], None]) -> None:
        """Write a checkpoint from time to time. Losing the last one costs nothing but time at the next start."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self._executor.run(work)
            except KraftlogError as error:
                logger.warning("a checkpoint was not written: %s", error)

    async def _retain(self, retention: Retention) -> None:
        """Delete old segments from time to time."""
        while True:
            await asyncio.sleep(self.config.log_retention_check_interval_ms / 1000)
            try:
                await retention.run()
            except KraftlogError as error:
                logger.warning("old segments were not deleted: %s", error)

    async def _expire_producers(self, retention: Retention) -> None:
        """Forget silent producers from time to time."""
        while True:
            await asyncio.sleep(self.config.producer_id_expiration_check_interval_ms / 1000)
            retention.expire_producers(self.config.producer_id_expiration_ms)

    async def _close_log_dir(self, log_dir: LogDir, *, clean: bool) -> None:
        marks = self._replicas.high_watermarks() if self._replicas is not None else {}

        def close() -> None:
            if clean:
                log_dir.checkpoint_high_watermarks(marks)
            log_dir.close(clean=clean)

        await self._executor.run(close)


class HighWatermarkCheckpoint:
    """Writes `replication-offset-checkpoint` when it would say something new. Used by one thread at a time."""

    def __init__(self, log_dir: LogDir, replicas: ReplicaManager) -> None:
        self._log_dir = log_dir
        self._replicas = replicas
        self._written: dict[tuple[str, int], int] = {}

    def write(self) -> None:
        """Blocks."""
        marks = self._replicas.high_watermarks()
        if marks != self._written:
            self._log_dir.checkpoint_high_watermarks(marks)
            self._written = marks


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


def _directory_id(log_dir: LogDir) -> bytes:
    """The directory's id as 16 bytes: Kafka's spelling is decoded, any other is hashed."""
    try:
        return uuid_from_text(log_dir.directory_id)
    except ValueError:
        return hashlib.sha256(log_dir.directory_id.encode()).digest()[:_ID_BYTES]
