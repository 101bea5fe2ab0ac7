"""The replica streams of this broker to those that lead what it follows: one to each."""

import asyncio
import logging
from collections.abc import Callable

from kraftlog.logstore import DiskFullError
from kraftlog.proto.errors import InvalidRequestError, KraftlogError
from kraftlog.proto.replica_frames import REPLICATE, ReplicaHello, ReplicaHelloAnswer, ReplicaRecords
from kraftlog.proto.seams import BlockingExecutor, Clock, Connector, Random, Stream
from kraftlog.replication.exchange import Exchange, first_frames, joined
from kraftlog.replication.following import LeaderFollowing, Truncation
from kraftlog.replication.partition import Partition, TopicPartition
from kraftlog.replication.quota import ReplicationQuota

logger = logging.getLogger("kraftlog.replication")

HELLO_TIMEOUT_MS = 3_000.0
BACKOFF_MS = 50.0
BACKOFF_MAX_MS = 1_000.0

AddressOf = Callable[[int], str | None]
"""`host:port` of a broker; None while it is not known."""


class ReplicaFetchers:
    """Used from one event loop. `begin` once the broker is registered; `close` at the end."""

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        connector: Connector,
        clock: Clock,
        random: Random,
        executor: BlockingExecutor,
        address_of: AddressOf,
        quota: ReplicationQuota,
        append: Callable[[Partition, ReplicaRecords], None],
        progress: Callable[[Partition, int, int], None],
        on_storage_failure: Callable[[Exception], None],
    ) -> None:
        """See `LeaderFollowing` for `quota`, `append` and `progress`."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.connector = connector
        self.clock = clock
        self.random = random
        self.executor = executor
        self.address_of = address_of
        self.quota = quota
        self.append = append
        self.progress = progress
        self.on_storage_failure = on_storage_failure
        self.broker_epoch = -1
        """Of this broker's registration; -1: there is none yet, and nobody is asked."""
        self._fetchers: dict[int, _Fetcher] = {}
        self._leader_of: dict[TopicPartition, int] = {}
        self._is_closed = False

    def begin(self, broker_epoch: int) -> None:
        """Connect as this incarnation; again after another registration."""
        self.broker_epoch = broker_epoch
        for fetcher in self._fetchers.values():
            fetcher.reconnect()

    def follow(self, partition: Partition) -> None:
        """Follow the partition's leader in its present epoch."""
        if self._is_closed:
            return
        key, leader_id = partition.key, partition.leader_id
        former = self._leader_of.get(key)
        if former is not None and former != leader_id:
            self.unfollow(key)
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = _Fetcher(self, leader_id)
        self._leader_of[key] = leader_id
        fetcher.following.follow(partition)
        fetcher.wake()

    def unfollow(self, key: TopicPartition) -> None:
        """Nothing to do if it is not followed. A log that is being cut is so until `wait_unchanging`; one that was about to be is
        left as it is."""
        leader_id = self._leader_of.pop(key, None)
        if leader_id is not None:
            fetcher = self._fetchers[leader_id]
            fetcher.following.unfollow(key)
            fetcher.wake()

    async def wait_unchanging(self, key: TopicPartition) -> None:
        """Return when no cutting of this log is under way; it must not be followed."""
        for fetcher in list(self._fetchers.values()):
            await fetcher.wait_unchanging(key)

    def ends_changed(self, key: TopicPartition) -> None:
        """A log was flushed: its leader should know."""
        leader_id = self._leader_of.get(key)
        if leader_id is not None:
            fetcher = self._fetchers[leader_id]
            if fetcher.following.ends_changed(key):
                fetcher.wake()

    def throttle_changed(self, key: TopicPartition | None = None) -> None:
        """The list of throttled replicas of its topic is another one; None: the rate is."""
        for fetcher in self._fetchers.values():
            if fetcher.following.throttle_changed(key):
                fetcher.wake()

    def addresses_changed(self) -> None:
        """A broker may be where none was."""
        for fetcher in self._fetchers.values():
            fetcher.try_now()

    async def close(self) -> None:
        """End every stream. May be repeated."""
        self._is_closed = True
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()))


class _Fetcher:
    """The stream to one leader broker, made again whenever it breaks."""

    def __init__(self, owner: ReplicaFetchers, leader_id: int) -> None:
        self._owner = owner
        self.leader_id = leader_id
        self.following = LeaderFollowing(leader_id, quota=owner.quota, append=owner.append, progress=owner.progress)
        self._exchange: Exchange | None = None
        self._wanted = asyncio.Event()
        self._try_now = asyncio.Event()
        self._cutting: dict[TopicPartition, asyncio.Task[None]] = {}
        self._problem = ""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"replicate from broker {leader_id}")

    def wake(self) -> None:
        """There is something to follow, or to say."""
        self._wanted.set()
        if self._exchange is not None:
            self._exchange.wake()

    def reconnect(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
        self.try_now()

    def try_now(self) -> None:
        self._try_now.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task, *self._cutting.values()])

    async def wait_unchanging(self, key: TopicPartition) -> None:
        task = self._cutting.get(key)
        if task is not None:
            await asyncio.wait([task])

    async def _run(self) -> None:
        backoff_ms = BACKOFF_MS
        while True:
            self._wanted.clear()
            if self.following.is_idle:
                await self._wanted.wait()
                continue
            self._try_now.clear()
            if await self._converse():
                backoff_ms = BACKOFF_MS
            await self._pause(backoff_ms * (0.5 + self._owner.random.random() / 2))
            backoff_ms = min(2 * backoff_ms, BACKOFF_MAX_MS)

    async def _pause(self, pause_ms: float) -> None:
        scope = asyncio.timeout(pause_ms / 1000)
        try:
            async with scope:
                await self._try_now.wait()
        except TimeoutError:
            if not scope.expired():
                raise

    async def _converse(self) -> bool:
        """One stream, to its end; whether the leader answered."""
        owner = self._owner
        address = owner.address_of(self.leader_id)
        if address is None or owner.broker_epoch < 0:
            return False
        channel = owner.connector.connect(address)
        stream: Stream | None = None
        has_answered = False
        try:
            stream = channel.stream(REPLICATE)
            hello = ReplicaHello(owner.cluster_id, owner.node_id, owner.broker_epoch, self.leader_id)
            await stream.send(joined([hello]))
            frames = await first_frames(stream, HELLO_TIMEOUT_MS)
            answer = frames[0] if frames else None
            if not isinstance(answer, ReplicaHelloAnswer) or answer.node_id != self.leader_id:
                raise InvalidRequestError(f"who listens at {address} is not broker {self.leader_id}")
            has_answered = True
            self._note("")
            self.following.connected()
            exchange = self._exchange = Exchange(
                stream,
                owner.clock,
                receive=lambda body: self.following.receive(body, owner.clock.monotonic_ms()),
                poll=lambda: self.following.poll(owner.clock.monotonic_ms()),
                prepare=self._cut_logs,
                next_deadline_ms=lambda: self.following.next_deadline_ms,
                peer=f"broker {self.leader_id}",
            )
            await exchange.run(frames[1:])
        except KraftlogError as error:
            self._note(str(error))
        finally:
            self._exchange = None
            if stream is not None:
                stream.cancel()
            await channel.close()
        return has_answered

    async def _cut_logs(self) -> None:
        """Begin what takes the disk; the other partitions go on meanwhile."""
        truncations, self.following.truncations = self.following.truncations, []
        for truncation in truncations:
            key = truncation.partition.key
            task = asyncio.get_running_loop().create_task(self._cut(truncation))
            self._cutting[key] = task

    async def _cut(self, truncation: Truncation) -> None:
        partition = truncation.partition
        is_cut = True
        try:
            if not partition.is_leader and partition.leader_epoch == truncation.leader_epoch:
                partition.is_being_cut = True
                await self._owner.executor.run(truncation.run)
        except DiskFullError as error:
            logger.warning("%s cannot be cut yet: %s", partition, error)
            is_cut = False
        except KraftlogError as error:
            self._owner.on_storage_failure(error)
        finally:
            partition.is_being_cut = False
            del self._cutting[partition.key]
            self.following.truncated(truncation, is_cut=is_cut, now_ms=self._owner.clock.monotonic_ms())
            self.wake()

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            logger.info("replicating from broker %d: %s", self.leader_id, problem)
        self._problem = problem
