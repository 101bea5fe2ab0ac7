"""The broker of a node: partitions, coordinators, what it answers clients, and its place in the cluster."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from kraftlog.kraft.controller import BrokerRegistration, IsrChange
from kraftlog.kraft.image import BrokerEndpoint
from kraftlog.logstore import LogDir
from kraftlog.proto.errors import KraftlogError
from kraftlog.proto.names import CONSUMER_OFFSETS_TOPIC
from kraftlog.proto.seams import BlockingExecutor, Clock, Connector, Handlers, Random
from kraftlog.replication.fetchers import ReplicaFetchers
from kraftlog.replication.isr_updates import IsrOutcome, IsrUpdates
from kraftlog.replication.leader_streams import LeaderStreams
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.quota import ReplicationQuotas
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
from kraftlog.server.apis.quorum import QuorumHandler
from kraftlog.server.apis.services import Services
from kraftlog.server.config import NodeConfig
from kraftlog.server.controller import ControllerClient
from kraftlog.server.coordinator import GroupConfig, GroupCoordinator
from kraftlog.server.coordinator_log import ReplicaCoordinatorLog
from kraftlog.server.directory_id import directory_id_bytes
from kraftlog.server.listeners import Listener
from kraftlog.server.membership import BrokerMembership
from kraftlog.server.quorum import QuorumNode

logger = logging.getLogger("kraftlog.server")

_INCARNATION_ID_BYTES = 16


class Broker:
    """Used from one event loop: `start` once, when the metadata are known; then `hand_over`, `drain`, `leave` and `stop`,
    each also after a failed start."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        random: Random,
        executor: BlockingExecutor,
        log_dir: LogDir,
        high_watermarks: Mapping[TopicPartition, int],
        quorum: QuorumNode,
        controller: ControllerClient,
        connector: Connector,
        on_failed: Callable[[Exception], None],
    ) -> None:
        """`connector`: to other brokers. `high_watermarks`: as `replication-offset-checkpoint` had them. `on_failed`: the broker cannot go on."""
        self._config = config
        self._clock = clock
        self._executor = executor
        self._log_dir = log_dir
        self._quorum = quorum
        self._controller = controller
        self._incarnation_id = random.getrandbits(8 * _INCARNATION_ID_BYTES).to_bytes(_INCARNATION_ID_BYTES, "big")
        self._lifecycle = Lifecycle(config.node_id)
        self._membership: BrokerMembership | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.replicas = ReplicaManager(
            node_id=config.node_id,
            log_dir=log_dir,
            clock=clock,
            executor=executor,
            random=random,
            topic_defaults=config.topic_defaults,
            high_watermarks=high_watermarks,
            on_leadership=self._on_leadership,
            on_storage_failure=on_failed,
            cleaner_limits=config.cleaner_limits,
            incarnation_id=self._incarnation_id,
            directory_id=directory_id_bytes(log_dir.directory_id),
        )
        self._groups = GroupCoordinator(
            config=GroupConfig(
                group_min_session_timeout_ms=config.group_min_session_timeout_ms,
                group_max_session_timeout_ms=config.group_max_session_timeout_ms,
                group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                group_max_size=config.group_max_size,
                offset_metadata_max_bytes=config.offset_metadata_max_bytes,
                offsets_retention_minutes=config.offsets_retention_minutes,
                offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            ),
            log=ReplicaCoordinatorLog(self.replicas),
            clock=clock,
            random=random,
            node_id=config.node_id,
            partition_count=self._offsets_partition_count,
            partition_exists=lambda name, number: self.replicas.image.partition(name, number) is not None,
        )
        self._quotas = ReplicationQuotas(config.node_id, clock.monotonic_ms, self._throttle_changed)
        self._fetchers = ReplicaFetchers(
            node_id=config.node_id,
            cluster_id=log_dir.cluster_id,
            connector=connector,
            clock=clock,
            random=random,
            executor=executor,
            address_of=self._address_of,
            quota=self._quotas.follower,
            append=self.replicas.append_as_follower,
            progress=self.replicas.follow_progress,
            on_storage_failure=self.replicas.fail,
        )
        self.replicas.replicate_with(self._fetchers)
        self._isr_updates = IsrUpdates(
            clock=clock,
            alter=self._alter_isr,
            image=lambda: self.replicas.image,
            partitions=self.replicas.partitions,
            progressed=self.replicas.progressed,
            max_lag_ms=config.replica_lag_time_max_ms,
        )
        self.replicas.report_switches_to(self._isr_updates.look)
        self._leader_streams = LeaderStreams(
            self.replicas,
            clock,
            cluster_id=log_dir.cluster_id,
            broker_epoch=lambda: self._broker_epoch,
            quota=self._quotas.leader,
            on_ends=self._isr_updates.look,
        )
        self._services = self._make_services()
        self._has_loaded = False

    def handlers(self) -> Handlers:
        """Requests wait until the broker has started, and are refused when it stops."""
        return self._services.handlers()

    async def start(self, endpoints: Mapping[str, Listener], inter_broker_name: str) -> None:
        """Take the metadata, register, and serve. `endpoints`: what others are told, by listener name."""
        replicas = self.replicas
        await self._groups.start()
        self._quorum.add_publisher(self._quotas)  # before the first stream: a throttle outlives a restart
        self._quorum.add_publisher(replicas)
        await replicas.wait_applied()
        self._has_loaded = True
        self._quorum.add_publisher(self._groups)  # when all that is old is known: it acts on deletions
        inter_broker = endpoints[inter_broker_name]
        registration = BrokerRegistration(
            node_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            host=inter_broker.host,
            port=inter_broker.port,
            rack=self._config.rack,
            log_dirs=(directory_id_bytes(self._log_dir.directory_id),),
            previous_broker_epoch=self._log_dir.clean_broker_epoch,
            endpoints=tuple(BrokerEndpoint(each.name, each.host, each.port) for each in endpoints.values()),
        )
        self._membership = BrokerMembership(
            self._controller,
            self._clock,
            registration,
            lost_replicas=lambda: replicas.lost_replicas,
            damaged_replicas=lambda: replicas.damaged_replicas,
            metadata_offset=lambda: replicas.image.offset,
            on_registered=self._fetchers.begin,
            heartbeat_interval_ms=self._config.broker_heartbeat_interval_ms,
            duplicate_patience_ms=2 * self._config.broker_session_timeout_ms,
        )
        await self._membership.start()
        await replicas.wait_applied()
        self._isr_updates.start()
        self._tasks = self._make_tasks()
        self._lifecycle.begin_serving()

    async def drain(self) -> None:
        """Refuse new requests and let the running ones end, for a while."""
        self._lifecycle.begin_stopping()
        await self._groups.stop()
        await self._lifecycle.wait_idle(self._config.shutdown_grace_ms)

    async def hand_over(self) -> None:
        """Let the controller give to others what they can lead, for a while; requests are answered meanwhile."""
        if self._membership is not None and self._lifecycle.is_serving:
            await self._membership.hand_over(self._has_handed_over, self._config.shutdown_grace_ms)

    async def leave(self) -> None:
        """Let the controller take this broker out of the cluster, for a while."""
        if self._membership is not None:
            await self._membership.leave(self._config.shutdown_grace_ms)

    async def give_up(self) -> None:
        """The log directory has failed: let the others take over at once."""
        if self._membership is not None and self._broker_epoch >= 0:
            directories = [directory_id_bytes(self._log_dir.directory_id)]
            await self._membership.give_up(directories, self._config.broker_session_timeout_ms)

    async def stop(self) -> None:
        """End everything; the logs may be closed then."""
        if self._membership is not None:
            await self._membership.stop()
        self._leader_streams.close()
        await self._isr_updates.stop()
        await self.replicas.cleaner.stop()  # it ends between two steps; nothing else may be in the middle of a file
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.replicas.stop()

    def checkpoint_high_watermarks(self) -> None:
        """At the end. Blocks. Where the start did not get as far as the partitions, the last checkpoint stays."""
        if self._has_loaded:
            self._log_dir.checkpoint_high_watermarks(self.replicas.high_watermarks)

    # assembly

    def _make_services(self) -> Services:
        config, replicas = self._config, self.replicas
        admin = AdminHandler(
            replicas,
            self._controller,
            cluster_id=self._log_dir.cluster_id,
            topic_defaults=config.topic_defaults,
            broker_configs=config.described(),
        )
        return Services(
            lifecycle=self._lifecycle,
            produce=ProduceHandler(replicas, self._executor, self._lifecycle),
            fetch=FetchHandler(
                replicas,
                self._clock,
                self._lifecycle,
                max_message_bytes=config.fetch_max_bytes,
                reads_by_rack=config.replica_selector_class == "RackAwareReplicaSelector",
            ),
            offsets=ListOffsetsHandler(replicas),
            metadata=MetadataHandler(
                replicas,
                self._quorum,
                cluster_id=self._log_dir.cluster_id,
                create_topic=admin.create_topic if config.auto_create_topics_enable else None,
            ),
            producer_ids=ProducerIdHandler(self._allocate_producer_ids),
            admin=admin,
            quorum=QuorumHandler(self._controller),
            delete_records=DeleteRecordsHandler(replicas),
            log_dirs=LogDirsHandler(self._log_dir, replicas, self._executor),
            coordinators=FindCoordinatorHandler(replicas, self._offsets_topic_creator(admin)),
            groups=self._groups,
            replicate=self._leader_streams.replicate,
        )

    def _offsets_topic_creator(self, admin: AdminHandler) -> Callable[[], Awaitable[None]]:
        config = self._config

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

    def _offsets_partition_count(self) -> int:
        topic = self.replicas.image.topics.get(CONSUMER_OFFSETS_TOPIC)
        return self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions)

    def _make_tasks(self) -> list[asyncio.Task[None]]:
        config, replicas = self._config, self.replicas
        loop = asyncio.get_running_loop()
        high_watermarks = partial(self._log_dir.checkpoint_high_watermarks, replicas.high_watermarks)
        return [
            loop.create_task(self._repeat(config.replica_high_watermark_checkpoint_interval_ms, high_watermarks)),
            loop.create_task(self._retain(replicas.retention)),
            loop.create_task(self._expire_producers(replicas.retention)),
            *(
                loop.create_task(replicas.cleaner.run(config.log_cleaner_backoff_ms))
                for _ in range(config.log_cleaner_threads if config.log_cleaner_enable else 0)
            ),
            loop.create_task(self._repeat(config.log_flush_offset_checkpoint_interval_ms, self._log_dir.checkpoint)),
        ]

    @property
    def registered_epoch(self) -> int | None:
        """The broker epoch; None before the first registration."""
        return None if self._broker_epoch < 0 else self._broker_epoch

    @property
    def _broker_epoch(self) -> int:
        return -1 if self._membership is None else self._membership.broker_epoch

    def _has_handed_over(self) -> bool:
        """Whether this broker leads nothing that another one could lead, as far as it knows."""
        image, node_id = self.replicas.image, self._config.node_id
        usable = {
            other.node_id
            for other in image.live_brokers()
            if other.node_id != node_id and not other.in_controlled_shutdown
        }
        return not usable or not any(
            partition.is_leader and not usable.isdisjoint(partition.in_sync_replicas)
            for partition in self.replicas.partitions.values()
        )

    def _address_of(self, node_id: int) -> str | None:
        """Where the listener of another broker is that is for brokers."""
        broker = self.replicas.image.brokers.get(node_id)
        return None if broker is None else f"{broker.host}:{broker.port}"

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        return await self._controller.allocate_producer_ids(self._config.node_id, self._broker_epoch)

    async def _alter_isr(self, changes: Sequence[IsrChange]) -> list[IsrOutcome]:
        return await self._controller.alter_partition(self._config.node_id, self._broker_epoch, changes)

    # while it runs

    def _throttle_changed(self) -> None:
        self._fetchers.throttle_changed()
        self._leader_streams.throttle_changed()

    def _on_leadership(self, partition: Partition) -> None:
        if partition.topic == CONSUMER_OFFSETS_TOPIC:
            if partition.is_leader:
                self._groups.on_elected(partition.partition, partition.leader_epoch)
            else:
                self._groups.on_resigned(partition.partition)

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
            await asyncio.sleep(self._config.log_retention_check_interval_ms / 1000)
            try:
                await retention.run()
            except KraftlogError as error:
                logger.warning("old segments were not deleted: %s", error)

    async def _expire_producers(self, retention: Retention) -> None:
        """Forget silent producers from time to time."""
        while True:
            await asyncio.sleep(self._config.producer_id_expiration_check_interval_ms / 1000)
            retention.expire_producers(self._config.producer_id_expiration_ms)
