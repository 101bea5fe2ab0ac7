"""Administration on an event loop."""

import asyncio
import random as random_module
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from kraftlog.proto import admin_pb2, group_pb2
from kraftlog.proto.errors import (
    BrokerIdNotRegisteredError,
    DuplicateVoterError,
    ErrorCode,
    GroupIdNotFoundError,
    InvalidRequestError,
    KraftlogError,
    NotControllerError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    VoterNotFoundError,
    error_class,
    error_for,
)
from kraftlog.proto.names import validate_group_id, validate_topic_name
from kraftlog.proto.seams import Channel, Clock, Connector, Random
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.sdk.clock import LoopClock
from kraftlog.sdk.config import AdminConfig
from kraftlog.sdk.descriptions import (
    describe_log_dir,
    describe_member,
    describe_quorum,
    describe_topic,
    directory_bytes,
)
from kraftlog.sdk.group_client import GROUP_SERVICE, GroupClient
from kraftlog.sdk.leaders import LeaderAnswer, LeaderQuestions
from kraftlog.sdk.metadata import Cluster, TopicMetadata
from kraftlog.sdk.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetFinder
from kraftlog.sdk.options import AdminOptions
from kraftlog.sdk.producer.async_producer import default_connector
from kraftlog.sdk.reassignments import alteration, ongoing
from kraftlog.sdk.replication_throttle import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    needed,
    of_reassignments,
    present,
    throttle_alterations,
    to_remove,
    to_set,
)
from kraftlog.sdk.types import (
    ClusterDescription,
    ClusterNodeDescription,
    ConfigEntry,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    GroupOffset,
    LogDirDescription,
    NewTopic,
    NodeInfo,
    OffsetAndMetadata,
    PartitionReassignment,
    QuorumDescription,
    ReplicationThrottle,
    TopicDescription,
    TopicPartition,
)
from kraftlog.sdk.waiting import Backoff, sleep_ms

T = TypeVar("T")

ADMIN_SERVICE = "/kraftlog.v1.Admin/"
OFFSET_WORDS: Mapping[str, int] = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
CLOSE_TIMEOUT_S = 2.0
RESOURCES_PER_REQUEST = 1_000
UPGRADE_TYPES = {
    "upgrade": admin_pb2.FeatureUpdate.UPGRADE,
    "safe_downgrade": admin_pb2.FeatureUpdate.SAFE_DOWNGRADE,
    "unsafe_downgrade": admin_pb2.FeatureUpdate.UNSAFE_DOWNGRADE,
}


class AsyncAdmin:
    """Administers a cluster. Used from one event loop. Options are those of `AdminConfig`.

        async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic(name="orders", num_partitions=6)])

    Every method retries what is retriable for up to default_api_timeout_ms, then raises the last reason.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | AdminConfig | None = None,
        *,
        connector: Connector | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        self.config = config if isinstance(config, AdminConfig) else AdminConfig.of(config, **options)
        self._clock = clock or LoopClock()
        self._random = random or random_module.Random()
        self._connector = connector or default_connector(self.config)
        self._cluster = Cluster(self.config, connector=self._connector, clock=self._clock, random=self._random)
        self._leaders = LeaderQuestions(self.config, self._cluster, clock=self._clock, random=self._random)
        self._finder = OffsetFinder(self.config, self._cluster, clock=self._clock, random=self._random)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect. May be repeated."""
        await self._cluster.close()

    # -- topics

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics; returns when the metadata quorum has them on disk and their partitions have leaders. Every broker
        knows them then. It makes its logs meanwhile, and what comes for a partition waits for its log.

        Raises the first topic's error, for instance `TopicAlreadyExistsError`, `InvalidTopicError`,
        `InvalidReplicationFactorError`, `InvalidConfigError`; the other topics are created nevertheless. Retried safely:
        what was done is not done again.
        """
        wanted = [NewTopic(name=topic) if isinstance(topic, str) else topic for topic in topics]
        request = admin_pb2.CreateTopicsRequest(
            timeout_ms=self.config.request_timeout_ms, validate_only=validate_only, request_id=self._request_id()
        )
        for topic in wanted:
            validate_topic_name(topic.name)
            request.topics.add(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                configs={key: str(value) for key, value in topic.configs.items()},
            )
        answer = admin_pb2.CreateTopicsResponse.FromString(
            await self._admin("CreateTopics", request.SerializeToString(deterministic=True))
        )
        for result in answer.topics:
            _raise(result.error_code, f"topic {result.name!r}", result.error_message)
        if not validate_only:
            await self._wait_until_led([topic.name for topic in wanted])
        return [
            CreatedTopic(
                name=result.name,
                topic_id=uuid_to_text(result.topic_id),
                num_partitions=result.num_partitions,
                replication_factor=result.replication_factor,
            )
            for result in answer.topics
        ]

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with their records. Raises the first topic's error, `UnknownTopicOrPartitionError` above all. Retried
        safely: what was done is not done again."""
        wanted = list(names)
        for name in wanted:
            validate_topic_name(name)
        request = admin_pb2.DeleteTopicsRequest(
            names=wanted, timeout_ms=self.config.request_timeout_ms, request_id=self._request_id()
        )
        answer = admin_pb2.DeleteTopicsResponse.FromString(
            await self._admin("DeleteTopics", request.SerializeToString())
        )
        for result in answer.topics:
            _raise(result.error_code, f"topic {result.name!r}", result.error_message)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let topics grow to so many partitions; returns when the new ones have leaders, as `create_topics` does. Records stay
        where they are, so the records of a key may be in two partitions from then on.

            await admin.create_partitions({"orders": 12})

        `assignments`: topic -> replicas of each added partition, the preferred leader first; without, the cluster places
        them. Raises the first topic's error, `InvalidPartitionsError` above all; others may have grown. Retried
        safely: what was done is not done again.
        """
        request = admin_pb2.CreatePartitionsRequest(
            timeout_ms=self.config.request_timeout_ms, validate_only=validate_only, request_id=self._request_id()
        )
        for name, count in counts.items():
            validate_topic_name(name)
            growth = request.topics.add(name=name, total_count=count)
            for replicas in (assignments or {}).get(name, ()):
                growth.assignments.add(replicas=replicas)
        answer = admin_pb2.CreatePartitionsResponse.FromString(
            await self._admin("CreatePartitions", request.SerializeToString())
        )
        for result in answer.topics:
            _raise(result.error_code, f"topic {result.name!r}", result.error_message)
        if not validate_only:
            await self._wait_until_led(list(counts), counts)

    async def alter_configs(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        all_brokers: bool = False,
        set: Mapping[str, object] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, object] | None = None,
        subtract: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Change the configuration of a topic, all of it or nothing; what is not named stays.

            await admin.alter_configs("orders", set={"retention.ms": 86_400_000}, append={"cleanup.policy": "compact"})
            await admin.alter_configs(broker=2, set={"follower.replication.throttled.rate": 50_000_000})

        Or of a broker, or with `all_brokers` of those that have none of their own: what changes while they run. `delete`: back to the default. `append` and `subtract` are for lists. Raises `InvalidConfigError` (an unknown name
        with the nearest one), `UnknownTopicOrPartitionError`, `BrokerIdNotRegisteredError`. Retried safely: what was done
        is not done again.
        """
        if (topic is not None) + (broker is not None) + all_brokers != 1:
            raise InvalidRequestError("alter_configs needs one of a topic, a broker and all_brokers")
        if topic is not None:
            validate_topic_name(topic)
            resource = admin_pb2.ConfigResource(type=TOPIC_RESOURCE, name=topic)
        else:
            resource = admin_pb2.ConfigResource(type=BROKER_RESOURCE, name="" if broker is None else str(broker))
        request = admin_pb2.IncrementalAlterConfigsRequest(
            timeout_ms=self.config.request_timeout_ms, validate_only=validate_only, request_id=self._request_id()
        )
        changes = request.resources.add(resource=resource).changes
        for operation, values in (
            (admin_pb2.ConfigChange.SET, set),
            (admin_pb2.ConfigChange.DELETE, dict.fromkeys(delete, "")),
            (admin_pb2.ConfigChange.APPEND, append),
            (admin_pb2.ConfigChange.SUBTRACT, subtract),
        ):
            for name, value in (values or {}).items():
                changes.add(name=name, operation=operation, value=_config_text(value))
        await self._alter_configs(request)

    async def _alter_configs(self, request: admin_pb2.IncrementalAlterConfigsRequest) -> None:
        answer = admin_pb2.IncrementalAlterConfigsResponse.FromString(
            await self._admin("IncrementalAlterConfigs", request.SerializeToString())
        )
        for result in answer.resources:
            kind = "topic" if result.resource.type == TOPIC_RESOURCE else "broker"
            _raise(result.error_code, f"{kind} {result.resource.name!r}", result.error_message)

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, validate_only: bool = False
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset of each partition; -1: all that are committed. There is no way back.

            await admin.delete_records({TopicPartition("orders", 0): 1_000})

        Returns where each partition starts, once that is on disk on every replica in sync, and these are as many as
        min.insync.replicas; the files go within log.retention.check.interval.ms. With `validate_only` nothing is deleted,
        and the answer says where the partitions would start. Consumers below the start meet `OffsetOutOfRangeError`, or go
        on as auto_offset_reset says.

        Raises the first partition's error, while others may have moved: `OffsetOutOfRangeError` beyond the high
        watermark, `PolicyViolationError` for a topic that is only compacted, `InvalidTopicError` for an internal one,
        `RequestTimedOutError` after default_api_timeout_ms with too few replicas in sync. A retry is safe.
        """

        async def ask(
            channel: Channel, offsets: Mapping[TopicPartition, int], limit_ms: float
        ) -> list[LeaderAnswer[int]]:
            request = admin_pb2.DeleteRecordsRequest(timeout_ms=round(limit_ms), validate_only=validate_only)
            for tp, offset in offsets.items():
                request.partitions.add(topic=tp.topic, partition=tp.partition, before_offset=offset)
            data = await channel.unary(
                ADMIN_SERVICE + "DeleteRecords", request.SerializeToString(), timeout_ms=limit_ms
            )
            return [
                LeaderAnswer(
                    TopicPartition(result.topic, result.partition),
                    result.error_code,
                    result.error_message,
                    result.low_watermark,
                )
                for result in admin_pb2.DeleteRecordsResponse.FromString(data).partitions
            ]

        wanted = {TopicPartition(*tp): offset for tp, offset in before_offsets.items()}
        for tp in wanted:
            validate_topic_name(tp.topic)
        timeout_ms = self.config.default_api_timeout_ms
        found = await self._leaders.ask("deletion of records", wanted, ask, timeout_ms=timeout_ms)
        return {tp: found[tp] for tp in wanted}

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Names of all topics, sorted; the cluster's own only on request."""
        topics = await self.describe_topics()
        return [topic.name for topic in topics if include_internal or not topic.internal]

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, allow_stale: bool = False
    ) -> list[TopicDescription]:
        """Topics with partitions, replicas and own configuration; None: all, sorted by name.

        The answer has every change that was answered before, on whichever node. With `allow_stale` a broker that finds no
        controller tells what it knows, and the descriptions say `stale`.
        """
        wanted = None if names is None else list(names)
        for name in wanted or ():
            validate_topic_name(name)
        if wanted is not None and not wanted:
            return []
        request = admin_pb2.DescribeTopicsRequest(names=wanted or (), allow_stale=allow_stale)
        data = await self._admin("DescribeTopics", request.SerializeToString())
        answer = admin_pb2.DescribeTopicsResponse.FromString(data)
        for topic in answer.topics:
            _raise(topic.error_code, f"topic {topic.name!r}", topic.error_message)
        described = [describe_topic(topic, stale=answer.stale) for topic in answer.topics]
        return described if wanted is not None else sorted(described, key=lambda topic: topic.name)

    async def describe_configs(
        self, *, topic: str | None = None, broker: int | None = None, allow_stale: bool = False
    ) -> list[ConfigEntry]:
        """All configuration that holds for a topic or a broker, with where each value comes from. `allow_stale`: see
        `describe_topics`. Raises `BrokerIdNotRegisteredError` for a broker that does not live."""
        if (topic is None) == (broker is None):
            raise InvalidRequestError("describe_configs needs a topic or a broker, not both")
        resource = (
            admin_pb2.ConfigResource(type=TOPIC_RESOURCE, name=topic)
            if topic is not None
            else admin_pb2.ConfigResource(type=BROKER_RESOURCE, name=str(broker))
        )
        request = admin_pb2.DescribeConfigsRequest(resources=[resource], allow_stale=allow_stale)
        data = await self._admin("DescribeConfigs", request.SerializeToString(), node_id=broker)
        answer = admin_pb2.DescribeConfigsResponse.FromString(data)
        entries: list[ConfigEntry] = []
        for described in answer.resources:
            _raise(described.error_code, described.resource.name, described.error_message)
            entries += (
                ConfigEntry(
                    name=e.name, value=e.value, source=e.source, documentation=e.documentation, stale=answer.stale
                )
                for e in described.entries
            )
        return entries

    # -- the cluster

    async def describe_cluster(self, *, allow_stale: bool = False) -> ClusterDescription:
        """Nodes, controller and the state of the metadata log. `allow_stale`: see `describe_topics`."""
        request = admin_pb2.DescribeClusterRequest(allow_stale=allow_stale)
        data = await self._admin("DescribeCluster", request.SerializeToString())
        answer = admin_pb2.DescribeClusterResponse.FromString(data)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            nodes=tuple(
                ClusterNodeDescription(
                    node_id=n.node_id,
                    host=n.host,
                    port=n.port,
                    rack=n.rack,
                    fenced=n.fenced,
                    broker_epoch=n.broker_epoch,
                    roles=tuple(n.roles),
                    configs=dict(n.configs),
                )
                for n in answer.nodes
            ),
            metadata_log_end_offset=answer.metadata_log_end_offset,
            metadata_high_watermark=answer.metadata_high_watermark,
            metadata_leader_epoch=answer.metadata_leader_epoch,
            version=answer.version,
            broker_configs=dict(answer.broker_configs),
            stale=answer.stale,
        )

    async def unregister_broker(self, node_id: int) -> None:
        """Forget a broker that will not come back. Raises `BrokerIdNotRegisteredError` for an unknown one. Retried safely."""
        request = admin_pb2.UnregisterBrokerRequest(node_id=node_id, request_id=self._request_id())
        await self._admin("UnregisterBroker", request.SerializeToString())

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, int]:
        """Give partitions (None: all) to their preferred leaders; returns the new leaders of those that had another.

        With `unclean`, partitions that nobody can lead without a loss get a leader nevertheless: acknowledged records may be
        gone for good. Raises the first partition's error, while others may have changed. Retried safely.
        """
        kind = admin_pb2.ElectLeadersRequest.UNCLEAN if unclean else admin_pb2.ElectLeadersRequest.PREFERRED
        request = admin_pb2.ElectLeadersRequest(
            type=kind, timeout_ms=self.config.request_timeout_ms, request_id=self._request_id()
        )
        wanted: dict[str, list[int]] = {}
        for tp in () if partitions is None else partitions:
            validate_topic_name(tp[0])
            wanted.setdefault(tp[0], []).append(tp[1])
        if partitions is not None and not wanted:
            return {}
        for topic, numbers in wanted.items():
            request.topics.add(name=topic, partitions=numbers)
        data = await self._admin("ElectLeaders", request.SerializeToString())
        elected: dict[TopicPartition, int] = {}
        for result in admin_pb2.ElectLeadersResponse.FromString(data).partitions:
            if result.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                _raise(result.error_code, f"{result.topic}-{result.partition}", result.error_message)
                elected[TopicPartition(result.topic, result.partition)] = result.leader_id
        return elected

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        validate_only: bool = False,
        keep_replication_factor: bool = False,
        throttle_bytes_per_second: int | None = None,
    ) -> None:
        """Give partitions other replicas, the preferred leader first; None: cancel what is under way (KIP-455).

            await admin.alter_partition_reassignments({TopicPartition("orders", 0): [1, 2, 3]})

        Returns when they have begun: added replicas catch up first, then the others leave; `list_partition_reassignments`
        tells which are still under way. With `keep_replication_factor` a target with more or fewer replicas is refused.
        `throttle_bytes_per_second`: first see `throttle_reassignments`; call `remove_replication_throttle` when they are done.
        Raises the first partition's error, for instance `InvalidReplicaAssignmentError` or
        `NoReassignmentInProgressError`, while others may have begun. Retried safely.
        """
        if not reassignments:
            return
        if throttle_bytes_per_second is not None:
            moves = {tp: replicas for tp, replicas in reassignments.items() if replicas is not None}
            await self.throttle_reassignments(moves, throttle_bytes_per_second, validate_only=validate_only)
        request = alteration(
            reassignments,
            timeout_ms=self.config.request_timeout_ms,
            request_id=self._request_id(),
            validate_only=validate_only,
            keep_replication_factor=keep_replication_factor,
        )
        data = await self._admin("AlterPartitionReassignments", request.SerializeToString())
        for result in admin_pb2.AlterPartitionReassignmentsResponse.FromString(data).partitions:
            _raise(result.error_code, f"{result.topic}-{result.partition}", result.error_message)

    async def list_partition_reassignments(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way, of all topics or of these."""
        names = None if topics is None else list(topics)
        if names is not None and not names:
            return {}
        request = admin_pb2.ListPartitionReassignmentsRequest(topics=names)
        data = await self._admin("ListPartitionReassignments", request.SerializeToString())
        return ongoing(admin_pb2.ListPartitionReassignmentsResponse.FromString(data))

    async def describe_replication_throttle(self) -> ReplicationThrottle:
        """How fast replicas that are not in sync are filled (KIP-73), as far as brokers and topics say so themselves."""
        return (await self._throttles())[0]

    async def throttle_reassignments(
        self, moves: Mapping[TopicPartition, Sequence[int]], bytes_per_second: int, *, validate_only: bool = False
    ) -> ReplicationThrottle:
        """Let reassignments to these replicas, under way or about to begin, move no more than this on each broker.

            throttle = await admin.throttle_reassignments(moves, 50_000_000)
            await admin.alter_partition_reassignments(moves)
            ...  # until they are done
            await admin.remove_replication_throttle(throttle)

        Both rates of every broker that takes part are set, and the replicas that move are put on the lists of their topics
        (KIP-73). Replicas in sync are never throttled; with less than what is written to the partitions the move never ends.
        Returns what goes when the reassignments are done. Raises `InvalidConfigError` where a broker has another rate that
        no reassignment under way has: it is never overwritten. Retried safely.
        """
        found, running = await self._throttles()
        described = {
            TopicPartition(topic.name, each.partition): each
            for topic in await self.describe_topics({tp[0] for tp in moves})
            for each in topic.partitions
        }
        moves = {TopicPartition(*tp): replicas for tp, replicas in moves.items()}
        unknown = next((tp for tp in moves if tp not in described), None)
        if unknown is not None:
            raise UnknownTopicOrPartitionError(f"{unknown} does not exist")
        throttle = to_set(needed(moves, described, bytes_per_second), found, running)
        await self._change_throttle(throttle, is_removal=False, validate_only=True)
        if not validate_only:
            await self._change_throttle(throttle, is_removal=False)
        return throttle

    async def remove_replication_throttle(
        self, throttle: ReplicationThrottle | None = None, *, validate_only: bool = False
    ) -> ReplicationThrottle:
        """Take away what `throttle_reassignments` has set, or everything; returns what went.

        What reassignments under way need stays, and so does what has been changed since. Retried safely.
        """
        found, running = await self._throttles()
        removed = to_remove(found if throttle is None else throttle, found, running)
        await self._change_throttle(removed, is_removal=True, validate_only=validate_only)
        return removed

    async def _throttles(self) -> tuple[ReplicationThrottle, ReplicationThrottle]:
        """All that is set, and what of it belongs to reassignments under way."""
        ongoing = await self.list_partition_reassignments()
        found = present((await self.describe_cluster()).nodes, await self.describe_topics())
        return found, of_reassignments(found, ongoing)

    async def _change_throttle(
        self, throttle: ReplicationThrottle, *, is_removal: bool, validate_only: bool = False
    ) -> None:
        resources = throttle_alterations(throttle, is_removal=is_removal)
        for start in range(0, len(resources), RESOURCES_PER_REQUEST):
            request = admin_pb2.IncrementalAlterConfigsRequest(
                resources=resources[start : start + RESOURCES_PER_REQUEST],
                timeout_ms=self.config.request_timeout_ms,
                request_id=self._request_id(),
                validate_only=validate_only,
            )
            await self._alter_configs(request)

    async def update_features(
        self, levels: Mapping[str, int], *, upgrade_type: str = "upgrade", validate_only: bool = False
    ) -> None:
        """Set feature levels of the cluster, all of them or none; 0 turns a feature off.

        `upgrade_type`: `upgrade`, `safe_downgrade` (only where no metadata gets lost) or `unsafe_downgrade`. Raises
        `InvalidUpdateVersionError` for a level that a node does not know, among others. Retried safely.
        """
        if upgrade_type not in UPGRADE_TYPES:
            raise InvalidRequestError(f"upgrade_type={upgrade_type!r}: use {', '.join(UPGRADE_TYPES)}")
        request = admin_pb2.UpdateFeaturesRequest(
            timeout_ms=self.config.request_timeout_ms, validate_only=validate_only, request_id=self._request_id()
        )
        for name, level in levels.items():
            request.updates.add(name=name, level=level, upgrade_type=UPGRADE_TYPES[upgrade_type])
        data = await self._admin("UpdateFeatures", request.SerializeToString())
        for result in admin_pb2.UpdateFeaturesResponse.FromString(data).results:
            _raise(result.error_code, f"feature {result.name!r}", result.error_message)

    # -- the metadata quorum

    async def describe_metadata_quorum(self, *, allow_stale: bool = False) -> QuorumDescription:
        """Who leads the metadata quorum, who votes and who follows, and how far each of them is.

            quorum = await admin.describe_metadata_quorum()
            print(quorum.leader_id, {voter.node_id: voter.lag for voter in quorum.voters})

        Only the leader knows all that. With `allow_stale` a broker that finds none tells what it knows, and the answer says
        `stale`.
        """
        request = admin_pb2.DescribeQuorumRequest(allow_stale=allow_stale)
        data = await self._admin("DescribeQuorum", request.SerializeToString())
        return describe_quorum(admin_pb2.DescribeQuorumResponse.FromString(data))

    async def add_voter(self, node_id: int, directory_id: str | None = None) -> None:
        """Give a vote in the metadata quorum to a controller that follows it; returns when the quorum has decided so.

        It waits until the node has caught up. `directory_id` (22 characters): of its log directory; None: the only one that
        follows. Raises `DuplicateVoterError` for a voter, `VoterNotFoundError` for a node that does not follow,
        `RequestTimedOutError` where the node is too far behind. Retried safely.
        """
        request = admin_pb2.AddVoterRequest(
            node_id=node_id, directory_id=directory_bytes(directory_id), timeout_ms=self.config.request_timeout_ms
        )
        await self._admin("AddVoter", request.SerializeToString(), done_before=DuplicateVoterError)

    async def remove_voter(self, node_id: int, directory_id: str | None = None) -> None:
        """Take the vote of a node, which may be gone for good; returns when the quorum has decided so. A node that runs goes
        on as an observer.

        Raises `VoterNotFoundError` for a node that does not vote, `InvalidRequestError` for the last voter. Retried safely.
        """
        request = admin_pb2.RemoveVoterRequest(
            node_id=node_id, directory_id=directory_bytes(directory_id), timeout_ms=self.config.request_timeout_ms
        )
        await self._admin("RemoveVoter", request.SerializeToString(), done_before=VoterNotFoundError)

    async def transfer_quorum_leadership(self, node_id: int) -> int:
        """Let a voter lead the metadata quorum; returns who leads then, which may be a third one. Retried safely."""
        request = admin_pb2.TransferLeadershipRequest(node_id=node_id, timeout_ms=self.config.request_timeout_ms)
        data = await self._admin("TransferLeadership", request.SerializeToString())
        return admin_pb2.TransferLeadershipResponse.FromString(data).leader_id

    async def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, *, topics: Iterable[str] | None = None
    ) -> list[LogDirDescription]:
        """The log directories of brokers, by node id: sizes, offsets, how far logs are flushed and compacted, problems.

            for log_dir in await admin.describe_log_dirs(topics=["orders"]):
                print(log_dir.path, sum(log.size_bytes for log in log_dir.logs))

        `nodes`: node ids; None: all that live. `topics`: only their logs; None: all. Raises `BrokerIdNotRegisteredError`
        for a node that is not in the cluster or does not live.
        """
        wanted = None if nodes is None else sorted(set(nodes))
        names = None if topics is None else list(topics)
        for name in names or ():
            validate_topic_name(name)
        if names is not None and not names:
            return []
        request = admin_pb2.DescribeLogDirsRequest(topics=names or ()).SerializeToString()

        async def attempt(limit_ms: float) -> list[LogDirDescription]:
            metadata = await self._cluster.refresh(limit_ms)
            asked = _living(metadata.nodes, wanted)
            answers = await asyncio.gather(
                *(
                    self._cluster.channel(node).unary(ADMIN_SERVICE + "DescribeLogDirs", request, timeout_ms=limit_ms)
                    for node in asked
                )
            )
            return [
                describe_log_dir(node.node_id, log_dir)
                for node, data in zip(asked, answers, strict=True)
                for log_dir in admin_pb2.DescribeLogDirsResponse.FromString(data).log_dirs
            ]

        return await self._retrying(attempt)

    async def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: str | int = "latest",
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, int]:
        """The offset of each partition at `earliest`, `latest`, `max_timestamp` or a time in ms; -1: no such record."""
        if isinstance(at, str) and at not in OFFSET_WORDS:
            raise InvalidRequestError(f"at={at!r}: use {', '.join(OFFSET_WORDS)} or milliseconds since the epoch")
        time = OFFSET_WORDS[at] if isinstance(at, str) else at
        times = {TopicPartition(*tp): time for tp in partitions}
        found = await self._finder.find(
            times,
            timeout_ms=self.config.default_api_timeout_ms,
            read_committed=isolation_level == "read_committed",
        )
        return {tp: found[tp].offset for tp in times}

    # -- groups

    async def list_groups(self) -> list[GroupListing]:
        """The groups of all coordinators, sorted by name."""

        async def attempt(limit_ms: float) -> list[GroupListing]:
            metadata = await self._cluster.refresh(limit_ms)
            nodes = [node for node in metadata.nodes.values() if not node.fenced]
            request = group_pb2.ListGroupsRequest().SerializeToString()
            answers = await asyncio.gather(
                *(
                    self._cluster.channel(node).unary(GROUP_SERVICE + "ListGroups", request, timeout_ms=limit_ms)
                    for node in nodes
                )
            )
            groups: dict[str, GroupListing] = {}
            for data in answers:
                answer = group_pb2.ListGroupsResponse.FromString(data)
                _raise(answer.error_code, "list of groups", answer.error_message)
                for g in answer.groups:
                    groups[g.group_id] = GroupListing(group_id=g.group_id, protocol_type=g.protocol_type, state=g.state)
            return [groups[name] for name in sorted(groups)]

        return await self._retrying(attempt)

    async def describe_groups(self, group_ids: Iterable[str]) -> list[GroupDescription]:
        """Members, state and assignments. Raises `GroupIdNotFoundError` for a group that does not exist."""
        return [await self._describe_group(group_id) for group_id in group_ids]

    async def _describe_group(self, group_id: str) -> GroupDescription:
        group = self._group(group_id)
        request = group_pb2.DescribeGroupsRequest(group_ids=[group_id]).SerializeToString()

        async def attempt(limit_ms: float) -> group_pb2.GroupDescription:
            data = await group.call("DescribeGroups", request, timeout_ms=limit_ms)
            described = group_pb2.DescribeGroupsResponse.FromString(data).groups[0]
            _raise(described.error_code, f"group {group_id!r}", described.error_message)
            return described

        described = await group.retrying(attempt, timeout_ms=self.config.default_api_timeout_ms)
        if described.state == "Dead":
            raise GroupIdNotFoundError(f"group {group_id!r} does not exist: kraftctl group list shows those that do")
        return GroupDescription(
            group_id=described.group_id,
            state=described.state,
            protocol_type=described.protocol_type,
            protocol_name=described.protocol_name,
            generation_id=described.generation_id,
            leader=described.leader,
            coordinator_id=described.coordinator_id,
            members=tuple(describe_member(member) for member in described.members),
        )

    async def list_group_offsets(self, group_id: str) -> list[GroupOffset]:
        """What the group has committed, with the lag of each partition, sorted. Works without live members too."""
        committed = await self._group(group_id).committed(None, timeout_ms=self.config.default_api_timeout_ms)
        self._cluster.track(tp.topic for tp in committed)
        metadata = await self._retrying(self._cluster.refresh)
        existing = {name for name, topic in metadata.topics.items() if not topic.error_code}
        partitions = [tp for tp in committed if tp.topic in existing]
        timeout_ms = self.config.default_api_timeout_ms
        starts = await self._finder.find(dict.fromkeys(partitions, EARLIEST), timeout_ms=timeout_ms)
        ends = await self._finder.find(dict.fromkeys(partitions, LATEST), timeout_ms=timeout_ms)
        return [group_offset(tp, committed[tp], starts[tp].offset, ends[tp].offset) for tp in sorted(partitions)]

    def _group(self, group_id: str) -> GroupClient:
        validate_group_id(group_id)
        return GroupClient(group_id, self.config, self._cluster, clock=self._clock, random=self._random)

    # -- inside

    def _request_id(self) -> bytes:
        """Of one operation and all its repeats."""
        return self._random.getrandbits(128).to_bytes(16, "big")

    async def _admin(
        self,
        method: str,
        request: bytes,
        *,
        node_id: int | None = None,
        done_before: type[KraftlogError] | None = None,
    ) -> bytes:
        """Call the controller if it is known as a node and answers, else any broker; `node_id`: call this one.

        `done_before`: what a repeat is refused with where the first attempt, whose answer was lost, has done it.
        """
        attempts = 0

        async def attempt(limit_ms: float) -> bytes:
            nonlocal attempts
            node = await (self._controller(limit_ms) if node_id is None else self._node(node_id, limit_ms))
            attempts += 1
            try:
                return await self._cluster.call(node, ADMIN_SERVICE + method, request, timeout_ms=limit_ms)
            except KraftlogError as error:
                if attempts > 1 and done_before is not None and isinstance(error, done_before):
                    return b""
                raise

        return await self._retrying(attempt)

    async def _controller(self, timeout_ms: float) -> NodeInfo:
        metadata = self._cluster.metadata
        if not metadata.nodes:
            metadata = await self._cluster.refresh(timeout_ms)
        node = metadata.nodes.get(metadata.controller_id)
        if node is None or self._cluster.is_avoided(node):
            return await self._cluster.any_node(timeout_ms)
        return node

    async def _node(self, node_id: int, timeout_ms: float) -> NodeInfo:
        metadata = await self._cluster.refresh(timeout_ms)
        return _living(metadata.nodes, [node_id])[0]

    async def _retrying(self, attempt: Callable[[float], Awaitable[T]]) -> T:
        timeout_ms = self.config.default_api_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self._random)
        before: KraftlogError | None = None
        while True:
            remaining_ms = max(1.0, deadline_ms - self._clock.monotonic_ms())
            limit_ms = min(remaining_ms, self.config.request_timeout_ms)
            try:
                return await attempt(limit_ms)
            except KraftlogError as error:
                if not error.retriable:
                    raise
                is_cut_short = isinstance(error, RequestTimedOutError) and limit_ms < self.config.request_timeout_ms
                if before is not None and is_cut_short:
                    raise before from None  # that the last attempt had little time says nothing
                pause_ms = backoff.next_ms()
                if deadline_ms - self._clock.monotonic_ms() <= pause_ms:
                    raise
                before = error
                await sleep_ms(pause_ms)
                if error.refresh_metadata or isinstance(error, NotControllerError):
                    self._cluster.refresh_soon()

    async def _wait_until_led(self, names: Sequence[str], counts: Mapping[str, int] = {}) -> None:
        """Creation is committed; the brokers follow a moment later. `counts`: how many partitions there have to be."""
        deadline_ms = self._clock.monotonic_ms() + self.config.request_timeout_ms
        backoff = Backoff(1, self.config.retry_backoff_ms, self._random)
        self._cluster.track(names)
        while True:
            remaining_ms = max(1.0, deadline_ms - self._clock.monotonic_ms())
            reason = ""
            try:
                topics = (await self._cluster.refresh(remaining_ms)).topics
            except KraftlogError as error:  # nobody answers just now, which takes nothing back
                if not error.retriable:
                    raise
                reason = f": {error.message}"
            else:
                if all(_is_led(topics.get(name), counts.get(name, 1)) for name in names):
                    return
            if self._clock.monotonic_ms() >= deadline_ms:
                raise RequestTimedOutError(
                    f"created, but not every partition of {', '.join(names)} is known to have a leader yet{reason}"
                )
            await sleep_ms(backoff.next_ms())


def _is_led(topic: TopicMetadata | None, count: int) -> bool:
    """Whether it has so many partitions, and each of them a leader."""
    return (
        topic is not None
        and len(topic.partitions) >= count
        and all(partition.leader_id >= 0 for partition in topic.partitions)
    )


def _living(nodes: Mapping[int, NodeInfo], wanted: Sequence[int] | None) -> list[NodeInfo]:
    """Those of `wanted` (None: all), which all have to live."""
    alive = {node.node_id: node for node in nodes.values() if not node.fenced}
    for node_id in wanted or ():
        if node_id not in alive:
            raise BrokerIdNotRegisteredError(f"no node {node_id} lives; those that do: {sorted(alive)}")
    return [alive[node_id] for node_id in (sorted(alive) if wanted is None else wanted)]


def _config_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def group_offset(tp: TopicPartition, committed: OffsetAndMetadata, start: int, end: int) -> GroupOffset:
    """A committed offset with its lag; what retention removed is no lag."""
    return GroupOffset(
        topic=tp.topic,
        partition=tp.partition,
        offset=committed.offset,
        log_start_offset=start,
        log_end_offset=end,
        lag=max(0, end - max(committed.offset, start)),
        metadata=committed.metadata,
    )


def _raise(code: int, place: str, message: str) -> None:
    if code:
        raise error_for(code, message or f"{place}: {error_class(code).summary}")
