"""The clients of a simulated cluster: producers that never send a value twice, readers that report what they are given.

Each client is a process of its own on a host of its own. What a client is told goes to the `History`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from kraftlog.proto.errors import (
    InvalidTimestampError,
    KraftlogError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.sdk.admin import AsyncAdmin
from kraftlog.sdk.consumer import AsyncConsumer, ConsumerRebalanceListener
from kraftlog.sdk.producer import AsyncProducer
from kraftlog.sdk.producer.batch import AsyncSendFuture, SendFuture
from kraftlog.sdk.types import ConsumerRecord, NewTopic, TopicPartition
from kraftlog.testing.clock import SimClock
from kraftlog.testing.loop import SimProcess
from kraftlog.testing.sim.world import World

COMPRESSION_TYPES = ("none", "none", "gzip", "snappy", "lz4", "zstd")
GROUP = "readers"
POLL_MS = 1_000
STORM_PAUSE_S = 0.12  # virtual, between two bursts of one producer
CALM_PAUSE_S = 4.0
TOPICS_MAX = 5  # that the metadata client lets exist
READ_BACK_TIMEOUT_S = 300.0  # virtual


class Client:
    """What clients share: a host, a process, a clock and chance of their own."""

    def __init__(self, world: World, host: str) -> None:
        self.world = world
        self.host = host
        self.process = SimProcess(host)
        self.random = world.seeds.stream(host)
        self.clock = SimClock(world.loop)
        self.network = world.network.host(host)


class Worker(Client, ABC):
    """A client that is at work until it is told to leave."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__(world, host)
        self.is_leaving = False

    @abstractmethod
    async def run(self) -> None:
        """What the client does until `is_leaving`."""

    def _poll_failed(self, error: KraftlogError) -> None:
        """What a reader may meet: anything that passes. That its position is gone means that records are."""
        self.world.note(f"{self.host} poll: {type(error).__name__}")
        if isinstance(error, OffsetOutOfRangeError):
            self.world.history.violate("I-01", f"{self.host}: {error}")
        elif not error.retriable:
            raise error


class ProducerClient(Worker):
    """Sends bursts of records, some with a key, some to a partition by number."""

    def __init__(self, world: World, host: str, topic: str, partitions: int) -> None:
        super().__init__(world, host)
        self.is_storm = False
        """Whether the load is heavy at present."""
        self._topic = topic
        self._partitions = partitions
        self._count = 0
        self._compression = self.random.choice(COMPRESSION_TYPES)
        self._linger_ms = self.random.choice((0, 1, 5, 50))
        self._batch_size = self.random.choice((512, 2_000, 7_000))  # a batch must fit into the smallest segment

    async def run(self) -> None:
        """Send until told to leave; return when every record is answered."""
        producer = AsyncProducer(
            bootstrap_servers=self.world.address,
            client_id=self.host,
            acks="all",
            compression_type=self._compression,
            linger_ms=self._linger_ms,
            batch_size=self._batch_size,
            request_timeout_ms=3_000,
            delivery_timeout_ms=120_000,
            buffer_memory=2 * 1024 * 1024,
            metadata_max_age_ms=10_000,
            connector=self.network,
            clock=self.clock,
            random=self.random,
        )
        try:
            while not self.is_leaving:
                for _ in range(self.random.choice((1, 1, 3, 20))):
                    await self._send(producer)
                await asyncio.sleep(self.random.expovariate(1 / (STORM_PAUSE_S if self.is_storm else CALM_PAUSE_S)))
            await producer.flush(timeout=180)
        except KraftlogError as error:
            self.world.note(f"{self.host} failed: {error}")
        finally:
            await producer.close()

    async def _send(self, producer: AsyncProducer) -> None:
        self._count += 1
        size = self.random.choice((0, 10, 100, 1_000))
        value = f"{self.host}:{self._count}:".encode() + b"x" * size
        has_key = self.world.history.is_compacted or self.random.random() < 0.5
        key = f"key-{self.random.randrange(20)}".encode() if has_key else None
        partition = None if key is not None else self.random.randrange(self._partitions)
        sent_ms = self.clock.wall_ms()
        try:
            future = await producer.send(self._topic, value, key=key, partition=partition)
        except KraftlogError as error:
            self.world.note(f"{self.host} could not send: {type(error).__name__}")
            return
        history, where = self.world.history, (self._topic, future.partition)
        if key is not None and future.partition != partition_for_key(key, self._partitions):
            history.violate("KEY", f"{key!r} went to partition {future.partition}")
        history.on_send(self.host, where, value, key, sent_ms=sent_ms)
        future.add_done_callback(lambda done: self._answered(done, value))

    def _answered(self, future: SendFuture, value: bytes) -> None:
        history = self.world.history
        if future.failed():
            error = future._failure()
            self.world.note(f"{self.host} failed {value[:20]!r}: {type(error).__name__}")
            history.on_failure(value, f"{type(error).__name__}: {error}")
            if not isinstance(
                error, InvalidTimestampError
            ):  # after a jump of the node's clock the record is rightly refused
                history.violate("FAIL", f"{self.host}: {type(error).__name__}: {error}")
        else:
            metadata = future._outcome()
            history.on_ack(value, (metadata.topic, metadata.partition), metadata.offset)


class Probe(Worker):
    """Sends one record to each partition, and is done when all are acknowledged."""

    def __init__(self, world: World, host: str, topic: str, partitions: int) -> None:
        super().__init__(world, host)
        self._topic = topic
        self._partitions = partitions
        self.waits_for = f"{topic}-0"

    async def run(self) -> None:
        """As its class says."""
        history = self.world.history
        async with AsyncProducer(
            bootstrap_servers=self.world.address,
            client_id=self.host,
            acks="all",
            request_timeout_ms=3_000,
            metadata_max_age_ms=10_000,
            connector=self.network,
            clock=self.clock,
            random=self.random,
        ) as producer:
            sent: list[tuple[bytes, AsyncSendFuture]] = []
            for partition in range(self._partitions):
                value = f"{self.host}:{partition}".encode()
                sent_ms = self.clock.wall_ms()
                history.on_send(self.host, (self._topic, partition), value, value, sent_ms=sent_ms)
                sent.append((value, await producer.send(self._topic, value, key=value, partition=partition)))
            for value, future in sent:
                self.waits_for = f"{self._topic}-{future.partition}"
                metadata = await future
                history.on_ack(value, (metadata.topic, metadata.partition), metadata.offset)


class MetadataClient(Worker):
    """Creates topics, deletes some of them, and looks whether the list is right."""

    def __init__(self, world: World, host: str) -> None:
        super().__init__(world, host)
        self._count = 0

    async def run(self) -> None:
        """Go on until told to leave; ends with a last look at the list."""
        async with AsyncAdmin(
            bootstrap_servers=self.world.address,
            client_id=self.host,
            request_timeout_ms=3_000,
            default_api_timeout_ms=10_000,
            connector=self.network,
            clock=self.clock,
            random=self.random,
        ) as admin:
            while not self.is_leaving:
                await self._change(admin)
                await self._list(admin)
                await asyncio.sleep(self.random.uniform(0, 12))
            await self._list(admin)

    async def _change(self, admin: AsyncAdmin) -> None:
        history = self.world.history
        existing = [name for name, exists in history.topics.items() if exists]
        if len(existing) > TOPICS_MAX or (existing and self.random.random() < 0.3):
            name = self.random.choice(existing)
            try:
                await admin.delete_topics([name])
            except UnknownTopicOrPartitionError:  # a retry after a lost answer
                history.on_topic_deleted(name)
            except KraftlogError as error:
                self._failed(name, error)
            else:
                history.on_topic_deleted(name)
            return
        self._count += 1
        name = f"topic-{self._count}"
        try:
            await admin.create_topics(
                [NewTopic(name=name, num_partitions=1, replication_factor=len(self.world.machines))]
            )
        except TopicAlreadyExistsError:  # a retry after a lost answer
            history.on_topic_created(name)
        except KraftlogError as error:
            self._failed(name, error)
        else:
            history.on_topic_created(name)

    def _failed(self, name: str, error: KraftlogError) -> None:
        self.world.note(f"{self.host} {name}: {type(error).__name__}")
        self.world.history.on_topic_unknown(name)

    async def _list(self, admin: AsyncAdmin) -> None:
        try:
            names = await admin.list_topics()
        except KraftlogError as error:
            self.world.note(f"{self.host} list: {type(error).__name__}")
        else:
            self.world.history.on_topics_listed(names)


class _Listener(ConsumerRebalanceListener):
    """Tells the history where a member's reading is interrupted."""

    def __init__(self, reader: "GroupReader") -> None:
        self._reader = reader

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self._reader.note("assigned", assigned)

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self._reader.note("revoked", revoked)


class GroupReader(Worker):
    """A member of the group `readers`; commits by itself or automatically."""

    GROUP = GROUP

    def __init__(self, world: World, host: str, topic: str) -> None:
        super().__init__(world, host)
        self._topic = topic
        self._commits_itself = self.random.random() < 0.5

    def note(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        """Partitions came or went: the next record of each may be any that the group has not passed over."""
        names = " ".join(str(where) for where in sorted(partitions))
        self.world.note(f"{self.host} {what} {names}")
        for where in partitions:
            self.world.history.forget_position(self.host, (where.topic, where.partition))

    async def run(self) -> None:
        """Read until told to leave."""
        consumer = AsyncConsumer(
            bootstrap_servers=self.world.address,
            client_id=self.host,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=not self._commits_itself,
            auto_commit_interval_ms=self.random.choice((200, 1_000)),
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_500,
            request_timeout_ms=3_000,
            max_poll_records=self.random.choice((1, 50, 500)),
            metadata_max_age_ms=10_000,
            connector=self.network,
            clock=self.clock,
            random=self.random,
        )
        consumer.subscribe([self._topic], listener=_Listener(self))
        history = self.world.history
        uncommitted = 0
        try:
            while not self.is_leaving:
                records = await self._poll(consumer)
                for record in records:
                    assert record.value is not None
                    where = (record.topic, record.partition)
                    history.on_read(self.host, where, record.offset, record.value)
                    history.on_group_read(GROUP, where, record.offset)
                uncommitted += len(records)
                if self._commits_itself and uncommitted and (self.random.random() < 0.2 or not records):
                    uncommitted = 0
                    await self._commit(consumer)
        finally:
            await consumer.close()

    async def _poll(self, consumer: AsyncConsumer) -> Sequence[ConsumerRecord]:
        try:
            return _flat(await consumer.poll(timeout_ms=POLL_MS))
        except KraftlogError as error:
            self._poll_failed(error)
            return []

    async def _commit(self, consumer: AsyncConsumer) -> None:
        try:
            await consumer.commit()
        except KraftlogError as error:  # the records will be read again, by whoever owns the partition then
            self.world.note(f"{self.host} commit: {type(error).__name__}")


class Observer(Worker):
    """Reads every partition from the beginning, without a group."""

    def __init__(self, world: World, host: str, topic: str, partitions: int) -> None:
        super().__init__(world, host)
        self._partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
        self.positions: dict[tuple[str, int], int] = {}
        """One past the last record that was read."""

    async def run(self) -> None:
        """Read until told to leave."""
        consumer = await self._consumer()
        try:
            while not self.is_leaving:
                await self._read(consumer)
        finally:
            await consumer.close()

    async def run_to_the_end(self, records: dict[tuple[str, int], list[tuple[int, bytes]]]) -> None:
        """Read what is there now into `records`."""
        consumer = await self._consumer()
        try:
            starts = await consumer.beginning_offsets(self._partitions)
            ends = await consumer.end_offsets(self._partitions)
            while any(max(starts[w], self.positions.get((w.topic, w.partition), 0)) < end for w, end in ends.items()):
                for record in await self._read(consumer):
                    assert record.value is not None
                    records[record.topic, record.partition].append((record.offset, record.value))
        finally:
            await consumer.close()

    async def _consumer(self) -> AsyncConsumer:
        consumer = AsyncConsumer(
            bootstrap_servers=self.world.address,
            client_id=self.host,
            auto_offset_reset="none",
            request_timeout_ms=3_000,
            metadata_max_age_ms=10_000,
            fetch_max_wait_ms=self.random.choice((50, 500)),
            max_partition_fetch_bytes=self.random.choice((1_000, 100_000)),
            client_rack=f"rack-{self.random.randrange(4)}",  # one that no node is in, too
            connector=self.network,
            clock=self.clock,
            random=self.random,
        )
        consumer.assign(self._partitions)
        for where in self._partitions:
            consumer.seek(where, 0)
            self.world.history.on_position(self.host, (where.topic, where.partition), 0)
        return consumer

    async def _read(self, consumer: AsyncConsumer) -> Sequence[ConsumerRecord]:
        try:
            records = _flat(await consumer.poll(timeout_ms=POLL_MS))
        except KraftlogError as error:
            if not (isinstance(error, OffsetOutOfRangeError) and await self._pass_over_deleted(consumer)):
                self._poll_failed(error)
            return []
        for record in records:
            assert record.value is not None
            where = (record.topic, record.partition)
            self.world.history.on_read(self.host, where, record.offset, record.value)
            self.positions[where] = record.offset + 1
        return records

    async def _pass_over_deleted(self, consumer: AsyncConsumer) -> bool:
        """Go on where the logs start now, in partitions of which the next records are deleted; whether there are any.

        Never back: those may be deleted in one replica, and the leader may have them still.
        """
        history = self.world.history
        behind = {
            where: position
            for where in self._partitions
            if (position := self.positions.get((key := (where.topic, where.partition)), 0))
            < history.partition(key).gone_below
        }
        if behind:
            self.world.note(f"{self.host} goes on where logs start: {' '.join(map(str, behind))}")
            try:
                starts = await consumer.beginning_offsets(behind)
            except KraftlogError as error:
                self._poll_failed(error)  # the next poll comes here again
                return True
            for where, position in behind.items():
                consumer.seek(where, max(position, starts[where]))
        return bool(behind)


def _flat(polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> list[ConsumerRecord]:
    return [record for records in polled.values() for record in records]


async def read_back(world: World, topic: str, partitions: int) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """The whole log of each partition as a fresh client finds it: (offset, value) in order."""
    records: dict[tuple[str, int], list[tuple[int, bytes]]] = {(topic, number): [] for number in range(partitions)}
    reader = Observer(world, "read-back", topic, partitions)
    task = world.spawn_client(reader.process, reader.run_to_the_end(records), name="read-back")
    _, running = await asyncio.wait([task], timeout=READ_BACK_TIMEOUT_S)
    if running:
        world.history.violate("LIVENESS", "the log could not be read back")
    return records
