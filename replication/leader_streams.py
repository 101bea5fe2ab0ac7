"""The replica streams of brokers that follow this one: one for each, the newest counts."""

from collections.abc import Callable

from kraftlog.proto.errors import (
    InconsistentClusterIdError,
    InvalidRequestError,
    StaleBrokerEpochError,
    ThrottlingQuotaExceededError,
)
from kraftlog.proto.replica_frames import ReplicaBody, ReplicaHello, ReplicaHelloAnswer
from kraftlog.proto.seams import CallContext, Clock, Stream
from kraftlog.replication.exchange import Exchange, first_frames, joined
from kraftlog.replication.feed import FollowerFeed
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.quota import ReplicationQuota
from kraftlog.replication.replica_manager import ReplicaManager

MAX_MESSAGE_BYTES = 4 << 20  # of records in one message
MAX_FOLLOWERS = 1_000
HELLO_TIMEOUT_MS = 3_000.0


class LeaderStreams:
    """Serves `Replica.Replicate`. Used from one event loop."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        *,
        cluster_id: str,
        broker_epoch: Callable[[], int],
        quota: ReplicationQuota,
        on_ends: Callable[[Partition], None],
    ) -> None:
        """`quota`: of this broker as leader. `on_ends`: a follower of the partition has reported."""
        self._replicas = replicas
        self._clock = clock
        self._cluster_id = cluster_id
        self._broker_epoch = broker_epoch
        self._quota = quota
        self._on_ends = on_ends
        self._streams: dict[int, tuple[int, Exchange]] = {}
        self._feeds: dict[FollowerFeed, Exchange] = {}
        self._is_stopped = False

    async def replicate(self, stream: Stream, context: CallContext) -> None:
        """The handler of one follower's stream."""
        frames = await first_frames(stream, HELLO_TIMEOUT_MS)
        hello = self._checked(frames)
        feed = FollowerFeed(
            hello.node_id,
            hello.broker_epoch,
            partition_of=self._partition,
            quota=self._quota,
            on_ends=self._ends_changed,
            on_unreadable=self._replicas.look_at_failure,
        )
        watched: set[TopicPartition] = set()

        def on_change(key: TopicPartition) -> None:
            if feed.data_available(key):
                exchange.wake()

        def receive(body: ReplicaBody) -> None:
            feed.receive(body, self._clock.monotonic_ms())
            if feed.keys != watched:
                self._watch(watched, feed.keys, on_change)

        async def warm() -> None:
            await self._warm(feed)

        exchange = Exchange(
            stream,
            self._clock,
            receive=receive,
            poll=lambda: feed.poll(self._clock.monotonic_ms(), MAX_MESSAGE_BYTES),
            prepare=warm,
            next_deadline_ms=lambda: feed.next_deadline_ms,
            peer=f"broker {hello.node_id}",
        )
        former = self._streams.get(hello.node_id)
        if former is not None:
            former[1].close()
        self._streams[hello.node_id] = (hello.broker_epoch, exchange)
        self._feeds[feed] = exchange
        try:
            answer = ReplicaHelloAnswer(self._replicas.node_id, self._broker_epoch())
            await stream.send(joined([answer]))
            await exchange.run(frames[1:])
        finally:
            self._watch(watched, frozenset(), on_change)
            del self._feeds[feed]
            if self._streams.get(hello.node_id) == (hello.broker_epoch, exchange):
                del self._streams[hello.node_id]

    def throttle_changed(self) -> None:
        """The rate is another one."""
        for feed, exchange in self._feeds.items():
            feed.throttle_changed()
            exchange.wake()

    def close(self) -> None:
        """End every stream, and take no more. May be repeated."""
        self._is_stopped = True
        for _, exchange in self._streams.values():
            exchange.close()

    def _checked(self, frames: list[ReplicaBody]) -> ReplicaHello:
        hello = frames[0] if frames else None
        if not isinstance(hello, ReplicaHello):
            raise InvalidRequestError("a replica stream begins with a hello")
        own_id = self._replicas.node_id
        if hello.cluster_id != self._cluster_id:
            raise InconsistentClusterIdError(
                f"broker {own_id} belongs to cluster {self._cluster_id!r}, the follower to {hello.cluster_id!r}"
            )
        if hello.to_node_id != own_id:
            raise InvalidRequestError(f"this is broker {own_id}, not {hello.to_node_id}")
        known = self._replicas.image.brokers.get(hello.node_id)
        current = self._streams.get(hello.node_id)
        newest = max(-1 if known is None else known.broker_epoch, -1 if current is None else current[0])
        if hello.broker_epoch < newest:
            raise StaleBrokerEpochError(
                f"broker {hello.node_id} is known with epoch {newest}, {hello.broker_epoch} is an older process"
            )
        if self._is_stopped or (current is None and len(self._streams) >= MAX_FOLLOWERS):
            raise ThrottlingQuotaExceededError(f"broker {own_id} takes no more followers")
        return hello

    def _partition(self, topic_id: bytes, number: int) -> Partition:
        return self._replicas.partition_by_id(topic_id, number)

    def _ends_changed(self, partition: Partition, has_moved: bool) -> None:
        if has_moved:
            self._replicas.progressed(partition.key)
        else:
            self._replicas.deletions.check_and_complete(partition.key)
        self._on_ends(partition)

    def _watch(
        self,
        watched: set[TopicPartition],
        keys: frozenset[TopicPartition],
        listener: Callable[[TopicPartition], None],
    ) -> None:
        for key in sorted(watched - keys):
            self._replicas.unwatch_log(key, listener)
        for key in sorted(keys - watched):
            self._replicas.watch_log(key, listener)
        watched.clear()
        watched.update(keys)

    async def _warm(self, feed: FollowerFeed) -> None:
        """Have the disk do its part off the loop, where records are not known to be in the page cache."""
        await self._replicas.cold_reads.read(feed.cold_ranges(self._clock.monotonic_ms())[:8])
