"""What a client knows of the cluster: an immutable snapshot and the object that keeps it fresh.

`Cluster` owns the channels of one client. It starts from the bootstrap list, learns the brokers' addresses, and asks
any of them for metadata; when none answers it goes back to the bootstrap list, so that a cluster that came back on
other addresses is found again. One refresh runs at a time; callers that ask meanwhile share its result.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from kraftlog.proto import broker_pb2
from kraftlog.proto.errors import (
    BrokerNotAvailableError,
    ClientClosedError,
    InvalidTopicError,
    KraftlogError,
    LeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kraftlog.proto.seams import Channel, Clock, Connector, Random
from kraftlog.sdk.config import ClientConfig
from kraftlog.sdk.failures import again
from kraftlog.sdk.types import NodeInfo, TopicPartition
from kraftlog.sdk.waiting import Backoff, Tasks, sleep_ms

log = logging.getLogger("kraftlog.sdk")

METADATA_METHOD = "/kraftlog.v1.Broker/Metadata"
PATIENCE_MS = 2_000.0  # with a broker that does not answer, while there are others to ask
UNKNOWN_TOPIC_GRACE_MS = 10_000  # a topic that was just created may not be known to every broker yet
MAX_TRACKED_TOPICS = 100_000  # of one client; beyond it the oldest interest is dropped


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    partition: int
    leader_id: int
    """-1: no leader at present."""
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    """Index = partition number."""
    error_code: int = 0
    error_message: str = ""
    internal: bool = False
    compression_type: str = "producer"
    max_message_bytes: int = 0
    """Largest record batch; 0: not told."""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One consistent view."""

    cluster_id: str = ""
    controller_id: int = -1
    nodes: Mapping[int, NodeInfo] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    metadata_offset: int = -1

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        known = self.topics.get(topic)
        if known is None or known.error_code or not 0 <= partition < len(known.partitions):
            return None
        return known.partitions[partition]

    def leader(self, topic: str, partition: int) -> NodeInfo | None:
        """The broker that leads the partition, if both are known."""
        known = self.partition(topic, partition)
        return None if known is None else self.nodes.get(known.leader_id)


class Cluster:
    """Metadata and channels of one client. Used only on the client's event loop; `metadata` may be read anywhere."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        connector: Connector,
        clock: Clock,
        random: Random,
        allow_auto_topic_creation: bool = False,
    ) -> None:
        """`allow_auto_topic_creation` asks for unknown topics to be created; the brokers' configuration decides."""
        self._config = config
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._connector = connector
        self._clock = clock
        self._random = random
        self.metadata = ClusterMetadata()
        self.wants_all_topics = False
        """Refresh every topic, not only those asked for (pattern subscriptions)."""
        self._topics: dict[str, None] = {}
        self._channels: dict[str, Channel] = {}
        self._listeners: list[Callable[[ClusterMetadata], None]] = []
        self._refreshing: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._refreshed_at_ms = float("-inf")
        self._last_error: KraftlogError | None = None
        self._avoided: dict[str, None] = {}
        """Addresses that did not answer last time; asked last."""
        self._is_closed = False

    def add_listener(self, listener: Callable[[ClusterMetadata], None]) -> None:
        """Call `listener` after each refresh, on the loop."""
        self._listeners.append(listener)

    def is_stale(self, now_ms: float) -> bool:
        return now_ms - self._refreshed_at_ms >= self._config.metadata_max_age_ms

    def track(self, topics: Iterable[str]) -> bool:
        """Include `topics` in every refresh; True if some are new."""
        fresh = [topic for topic in topics if topic not in self._topics]
        for topic in fresh:
            if len(self._topics) >= MAX_TRACKED_TOPICS:
                del self._topics[next(iter(self._topics))]
            self._topics[topic] = None
        return bool(fresh)

    def channel(self, node: NodeInfo) -> Channel:
        return self._channel(node.address)

    async def call(self, node: NodeInfo, method: str, request: bytes, *, timeout_ms: float) -> bytes:
        """Ask this broker. One that does not answer in time is avoided from then on: it may hang or be cut off, and others
        know who leads since."""
        try:
            return await self.channel(node).unary(method, request, timeout_ms=timeout_ms)
        except RequestTimedOutError:
            self.avoid(node.node_id)
            self.refresh_soon()
            raise

    def node(self, node_id: int) -> NodeInfo | None:
        return self.metadata.nodes.get(node_id)

    def avoid(self, node_id: int) -> None:
        """This broker did not answer: ask others first."""
        node = self.metadata.nodes.get(node_id)
        if node is not None:
            self._avoided[node.address] = None

    def is_avoided(self, node: NodeInfo) -> bool:
        """Whether it did not answer last time."""
        return node.address in self._avoided

    def refresh_soon(self) -> None:
        """Start a refresh unless one is under way; failures are retried with a growing pause while nobody waits."""
        if not self._is_closed:
            self._start_refresh()

    async def refresh(self, timeout_ms: float) -> ClusterMetadata:
        """One refresh that started after this call. Raises why no broker answered."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if self._refreshing is not None:
            await self._wait(self._refreshing, deadline_ms)
        self._check_open()
        await self._wait(self._start_refresh(), deadline_ms)
        if self._last_error is not None:
            raise again(self._last_error)
        return self.metadata

    async def wait_for_topic(self, topic: str, timeout_ms: float) -> TopicMetadata:
        """The topic's metadata as soon as it is known and usable.

        Raises `InvalidTopicError`, authorization errors and the like at once, `UnknownTopicOrPartitionError` when brokers
        have said so for ten seconds, and after `timeout_ms` the last reason.
        """
        self.track((topic,))
        started_ms = self._clock.monotonic_ms()
        deadline_ms = started_ms + timeout_ms
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        while True:
            known = self.metadata.topics.get(topic)
            if known is not None and not known.error_code and known.partitions:
                return known
            reason = self._reason(topic, known)
            if reason is not None and not reason.retriable:
                raise reason
            if isinstance(reason, UnknownTopicOrPartitionError):
                deadline_ms = min(deadline_ms, started_ms + UNKNOWN_TOPIC_GRACE_MS)
            remaining_ms = deadline_ms - self._clock.monotonic_ms()
            if remaining_ms <= 0:
                raise reason or self._unreachable(timeout_ms)
            if known is not None:
                await sleep_ms(min(remaining_ms, backoff.next_ms()))
            try:
                await self.refresh(max(1.0, deadline_ms - self._clock.monotonic_ms()))
            except KraftlogError as error:
                if not error.retriable:
                    raise
                remaining_ms = deadline_ms - self._clock.monotonic_ms()
                if remaining_ms <= 0:
                    raise reason or error from None
                await sleep_ms(min(remaining_ms, backoff.next_ms()))

    async def any_node(self, timeout_ms: float) -> NodeInfo:
        """Some broker; those that did not answer last time only where there is no other."""
        if not self.metadata.nodes:
            await self.refresh(timeout_ms)
        known = list(self.metadata.nodes.values())
        usable = [node for node in known if not node.fenced and node.address not in self._avoided] or known
        if not usable:
            raise BrokerNotAvailableError(f"no broker is known: asked {', '.join(self._config.bootstrap_servers)}")
        return usable[self._random.randrange(len(usable))]

    async def close(self) -> None:
        self._is_closed = True
        await self._tasks.cancel()
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()

    # -- refreshing

    def _start_refresh(self) -> "asyncio.Task[None]":
        if self._refreshing is None:
            self._refreshing = self._tasks.start(self._refresh(), "metadata refresh")
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    def _refreshed(self, task: "asyncio.Task[None]") -> None:
        if self._refreshing is task:
            self._refreshing = None

    async def _wait(self, task: "asyncio.Task[None]", deadline_ms: float) -> None:
        done, _ = await asyncio.wait({task}, timeout=max(0.0, deadline_ms - self._clock.monotonic_ms()) / 1000)
        if not done:
            raise self._unreachable(0)
        self._check_open()

    async def _refresh(self) -> None:
        """Ask brokers in random order, then the bootstrap list; keep the error of the last one."""
        request = broker_pb2.MetadataRequest(
            topics=() if self.wants_all_topics else sorted(self._topics),
            all_topics=self.wants_all_topics,
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        ).SerializeToString()
        candidates = self._candidates()
        for address in candidates:
            patience_ms: float = self._config.request_timeout_ms
            if address != candidates[-1]:
                patience_ms = min(patience_ms, PATIENCE_MS)
            try:
                answer = await self._channel(address).unary(METADATA_METHOD, request, timeout_ms=patience_ms)
            except KraftlogError as error:
                log.debug("metadata from %s: %s", address, error)
                self._last_error = error
                self._avoided[address] = None
                continue
            self._last_error = None
            self._avoided.pop(address, None)
            self._backoff.reset()
            self._refreshed_at_ms = self._clock.monotonic_ms()
            self._publish(broker_pb2.MetadataResponse.FromString(answer))
            return
        await sleep_ms(self._backoff.next_ms())  # callers that need it at once share this pause: no storm

    def _candidates(self) -> list[str]:
        learned = [node.address for node in self.metadata.nodes.values() if not node.fenced]
        addresses = self._shuffled(learned) + self._shuffled(list(self._config.bootstrap_servers))
        return sorted(dict.fromkeys(addresses), key=lambda address: address in self._avoided)

    def _shuffled(self, items: list[str]) -> list[str]:
        for index in range(len(items) - 1, 0, -1):
            other = self._random.randrange(index + 1)
            items[index], items[other] = items[other], items[index]
        return items

    def _publish(self, response: broker_pb2.MetadataResponse) -> None:
        self.metadata = merged(self.metadata, response, keep=self._topics)
        addresses = {node.address for node in self.metadata.nodes.values()} | set(self._config.bootstrap_servers)
        self._avoided = {address: None for address in self._avoided if address in addresses}
        for address in [address for address in self._channels if address not in addresses]:
            self._tasks.start(self._channels.pop(address).close(), f"close of {address}")
        for listener in self._listeners:
            listener(self.metadata)

    def _channel(self, address: str) -> Channel:
        self._check_open()
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._connector.connect(address)
        return channel

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client is closed: make a new one")

    def _reason(self, topic: str, known: TopicMetadata | None) -> KraftlogError | None:
        """Why `topic` is not usable, if a broker said so."""
        if known is None:
            return None
        if known.error_code == int(UnknownTopicOrPartitionError.code):
            return UnknownTopicOrPartitionError(
                f"topic {topic!r} does not exist: create it (kraftctl topic create {topic}) or check the name"
            )
        if known.error_code:
            return error_for(known.error_code, known.error_message or f"topic {topic!r}")
        return LeaderNotAvailableError(f"topic {topic!r} has no partitions yet")

    def _unreachable(self, timeout_ms: float) -> KraftlogError:
        if self._last_error is not None:
            return again(self._last_error)
        waited = f" within {timeout_ms:.0f} ms" if timeout_ms else ""
        servers = ", ".join(self._config.bootstrap_servers)
        return BrokerNotAvailableError(
            f"no metadata{waited} from {servers}: is the cluster running? kraftctl cluster status"
        )


def merged(old: ClusterMetadata, response: broker_pb2.MetadataResponse, *, keep: Iterable[str]) -> ClusterMetadata:
    """The view after an answer.

    Brokers learn of changes at different moments, so an answer may be older than what is known: a partition's
    metadata never goes back to a lower leader epoch of the same topic id, and topics of an answer that is older as a
    whole do not replace newer ones.
    """
    nodes = {b.node_id: NodeInfo(b.node_id, b.host, b.port, b.rack, b.fenced) for b in response.brokers}
    kept = set(keep)
    topics = {name: topic for name, topic in old.topics.items() if name in kept}
    for info in response.topics:
        topics[info.name] = _newer(old.topics.get(info.name), _topic(info))
    return ClusterMetadata(response.cluster_id, response.controller_id, nodes, topics, response.metadata_offset)


def _topic(info: broker_pb2.TopicInfo) -> TopicMetadata:
    partitions = sorted(info.partitions, key=lambda p: p.partition)
    return TopicMetadata(
        name=info.name,
        topic_id=info.topic_id,
        partitions=tuple(
            PartitionMetadata(p.partition, p.leader_id, p.leader_epoch, tuple(p.replicas), tuple(p.in_sync_replicas))
            for p in partitions
        ),
        error_code=info.error_code,
        error_message=info.error_message,
        internal=info.internal,
        compression_type=info.compression_type or "producer",
        max_message_bytes=info.max_message_bytes,
    )


def _newer(old: TopicMetadata | None, new: TopicMetadata) -> TopicMetadata:
    if old is None or old.error_code or new.error_code or old.topic_id != new.topic_id:
        return new
    partitions = tuple(
        old.partitions[p.partition]
        if p.partition < len(old.partitions) and old.partitions[p.partition].leader_epoch > p.leader_epoch
        else p
        for p in new.partitions
    )
    return replace(new, partitions=partitions)


def leaders_of(
    metadata: ClusterMetadata, partitions: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Partitions by the node id of their leader, and those whose leader is not known."""
    by_node: dict[int, list[TopicPartition]] = {}
    unknown: list[TopicPartition] = []
    for tp in partitions:
        node = metadata.leader(*tp)
        if node is None:
            unknown.append(tp)
        else:
            by_node.setdefault(node.node_id, []).append(tp)
    return by_node, unknown


def check_topic_name(topic: object) -> None:
    """A clear error for the commonest slips; the broker checks the rest."""
    if not isinstance(topic, str):
        raise InvalidTopicError(f"topic is a {type(topic).__name__}, not a string")
