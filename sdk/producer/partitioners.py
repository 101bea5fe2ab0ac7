"""Choosing a partition: by key hash, sticky, round robin or by the user's own function.

Sticky (KIP-480, KIP-794): records without a key go to one partition until its batch is closed, which keeps batches
large; then another is drawn, of two the one with the shorter queue. Caller holds the accumulator's lock.
"""

from kraftlog.proto.errors import InvalidPartitionsError, UnknownTopicOrPartitionError
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.proto.records import CompressionType
from kraftlog.proto.seams import Random
from kraftlog.sdk.config import Partitioner
from kraftlog.sdk.metadata import TopicMetadata
from kraftlog.sdk.producer.accumulator import Accumulator, PartitionQueue

COMPRESSED_MARGIN = 64  # incompressible data may grow by so many parts in a thousand, and a header


class TopicQueues:
    """A topic as the producer sees it: its partitions' queues and the choice among them."""

    __slots__ = (
        "_accumulator",
        "_random",
        "_round_robin",
        "count",
        "custom",
        "hashes_keys",
        "leaders",
        "max_message_bytes",
        "name",
        "queues",
        "sticky",
        "uses_sticky",
    )

    def __init__(self, name: str, accumulator: Accumulator, partitioner: str | Partitioner, random: Random) -> None:
        self.name = name
        self._accumulator = accumulator
        self._random = random
        self._round_robin = 0
        self.custom = None if isinstance(partitioner, str) else partitioner
        self.hashes_keys = partitioner == "murmur2"
        self.uses_sticky = partitioner in ("murmur2", "sticky")
        self.queues: list[PartitionQueue] = []
        self.leaders: list[int] = []
        """Partitions with a leader; all of them if none has one."""
        self.count = 0
        self.sticky: PartitionQueue | None = None
        """Where records without a key go; None: `choose` decides about each."""
        self.max_message_bytes = 0

    def update(self, metadata: TopicMetadata, compression: CompressionType) -> None:
        """Take over what the cluster says; the number of partitions only grows."""
        for partition in range(len(self.queues), len(metadata.partitions)):
            self.queues.append(PartitionQueue(self._accumulator, self.name, partition))
        self.count = len(self.queues)
        self.leaders = [p.partition for p in metadata.partitions if p.leader_id >= 0] or list(range(self.count))
        self.max_message_bytes = metadata.max_message_bytes
        if metadata.compression_type not in ("producer", "uncompressed"):
            compression = CompressionType.from_name(metadata.compression_type)
        elif metadata.compression_type == "uncompressed":
            compression = CompressionType.NONE
        limit = self._accumulator.batch_size
        if self.max_message_bytes:
            room = self.max_message_bytes
            if compression is not CompressionType.NONE:
                room -= room * COMPRESSED_MARGIN // 1000
            limit = min(limit, room)
        for queue in self.queues:
            queue.compression = compression
            queue.batch_limit = max(1, limit)
        if self.sticky is None and self.uses_sticky:
            self.next_sticky()

    def next_sticky(self) -> PartitionQueue:
        """Draw the partition that takes the next batch of records without a key."""
        first = self.queues[self.leaders[self._random.randrange(len(self.leaders))]]
        second = self.queues[self.leaders[self._random.randrange(len(self.leaders))]]
        self.sticky = first if first.depth() <= second.depth() else second
        return self.sticky

    def choose(self, key: bytes | None, value: bytes | None) -> PartitionQueue:
        """The partition of a record that names none."""
        if self.custom is not None:
            return self.at(self.custom(self.name, key, value, self.count), "the partitioner chose")
        if self.hashes_keys and key is not None:
            return self.queues[partition_for_key(key, self.count)]
        if self.uses_sticky:
            return self.sticky if self.sticky is not None else self.next_sticky()
        self._round_robin = (self._round_robin + 1) % self.count
        return self.queues[self._round_robin]

    def is_free_to_move(self, key: bytes | None) -> bool:
        """Whether the choice was the sticky partition, and so may be made anew; a key's or a user's choice is kept."""
        return self.custom is None and self.uses_sticky and not (self.hashes_keys and key is not None)

    def at(self, partition: int, who: str) -> PartitionQueue:
        """The queue of a partition named by the caller. Raises `UnknownTopicOrPartitionError`."""
        if not isinstance(partition, int) or isinstance(partition, bool):
            raise InvalidPartitionsError(f"topic {self.name!r}: {who} partition {partition!r}, which is not a number")
        if not 0 <= partition < self.count:
            raise UnknownTopicOrPartitionError(
                f"topic {self.name!r}: {who} partition {partition}, but it has partitions 0 to {self.count - 1}"
            )
        return self.queues[partition]
