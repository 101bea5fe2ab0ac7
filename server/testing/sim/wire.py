"""Checks on what the node says on the wire, at the moment at which it says it.

An acknowledgment that leaves the node before its fsync is wrong even if the fsync wins the race against the client; only
here can that be seen. Rules: see `history`, and

ACK    the acknowledgment of a produce request or of an offset commit covers only what is surely durable
I-06   nothing is served at or above the high watermark, and nothing that a power loss could take back
"""

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from kraftlog.proto import group_pb2, hotpath
from kraftlog.proto.records import iter_headers
from kraftlog.testing.sim.durable import DurableLogs, DurableOffsets
from kraftlog.testing.sim.history import History, TopicPartition

PRODUCE = frozenset({"/kraftlog.v1.Broker/Produce", "/kraftlog.v1.Broker/ProduceStream"})
FETCH = frozenset({"/kraftlog.v1.Broker/Fetch", "/kraftlog.v1.Broker/FetchStream"})
OFFSET_COMMIT = "/kraftlog.v1.Group/OffsetCommit"
OFFSET_FETCH = "/kraftlog.v1.Group/OffsetFetch"
MIN_IN_SYNC_REPLICAS = 2
"""Of every topic, where there are so many nodes."""


class Disk(Protocol):
    """The part of `kraftlog.testing.sim.machine.Machine` that is looked at."""

    @property
    def durable(self) -> DurableLogs: ...

    @property
    def durable_offsets(self) -> DurableOffsets: ...

    @property
    def is_whole(self) -> bool: ...


class Disks:
    """Of all nodes. What is acknowledged is on all of them that are in sync: on `MIN_IN_SYNC_REPLICAS` at least, but for
    those that have gone since."""

    def __init__(self, disks: Sequence[Disk]) -> None:
        self._disks = disks

    def hold(self, topic: str, partition: int, end_offset: int) -> bool:
        """Whether enough disks surely have what is below `end_offset`."""
        if self._count(topic, partition, end_offset) >= self._wanted:
            return True
        for disk in self._disks:  # a log may have been cut and written again where it was read before
            disk.durable.forget_partition(topic, partition)
        return self._count(topic, partition, end_offset) >= self._wanted

    def hold_offset(self, group: str, topic: str, partition: int, offset: int) -> bool:
        """Whether enough disks surely have a committed offset that is not below `offset`."""
        if self._count_offsets(group, topic, partition, offset) >= self._wanted:
            return True
        for disk in self._disks:
            disk.durable_offsets.forget()
        return self._count_offsets(group, topic, partition, offset) >= self._wanted

    def describe(self, topic: str, partition: int) -> str:
        """What each has."""
        return ", ".join(str(disk.durable.end_offset(topic, partition)) for disk in self._disks)

    @property
    def _wanted(self) -> int:
        lost = sum(not disk.is_whole for disk in self._disks)
        return max(1, min(MIN_IN_SYNC_REPLICAS, len(self._disks)) - lost)

    def _count(self, topic: str, partition: int, end_offset: int) -> int:
        return sum(disk.durable.end_offset(topic, partition) >= end_offset for disk in self._disks)

    def _count_offsets(self, group: str, topic: str, partition: int, offset: int) -> int:
        return sum(disk.durable_offsets.committed(group, topic, partition) >= offset for disk in self._disks)


class WireChecks:
    """A `kraftlog.testing.network.Tap`."""

    def __init__(self, history: History, disks: Sequence[Disk], is_user_topic: Callable[[str], bool]) -> None:
        self._history = history
        self._disks = Disks(disks)
        self._is_user_topic = is_user_topic
        self._batches: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._commits: dict[int, group_pb2.OffsetCommitRequest] = {}
        self._floors: dict[int, tuple[str, dict[TopicPartition, int]]] = {}

    def __call__(
        self, source: str, target: str, method: str, *, is_request: bool, message: bytes, call_id: int
    ) -> None:
        if method in PRODUCE and not is_request:
            self._on_produce_response(hotpath.decode_produce_response(message))
        elif method in FETCH and not is_request:
            self._on_fetch_chunk(hotpath.decode_fetch_chunk(message))
        elif method == OFFSET_COMMIT:
            self._on_offset_commit(is_request, message, call_id)
        elif method == OFFSET_FETCH:
            self._on_offset_fetch(is_request, message, call_id)

    def _counts_memory(self, topic: str) -> bool:
        return self._history.counts_memory and self._is_user_topic(topic)

    def _on_produce_response(self, response: hotpath.ProduceResponse) -> None:
        for result in response.partitions:
            if result.error_code or result.base_offset < 0:
                continue
            if self._counts_memory(result.topic):
                continue
            if not self._disks.hold(result.topic, result.partition, result.base_offset + 1):
                self._history.violate(
                    "ACK",
                    f"{result.topic}-{result.partition}@{result.base_offset} is acknowledged, but only what is below "
                    f"{self._disks.describe(result.topic, result.partition)} is durable",
                )

    def _on_fetch_chunk(self, chunk: hotpath.FetchChunk) -> None:
        for part in chunk.partitions:
            if part.error_code or not self._is_user_topic(part.topic):
                continue
            where = (part.topic, part.partition)
            self._history.on_high_watermark(where, part.high_watermark, part.log_start_offset)
            for _, header in iter_headers(cast("memoryview[int]", part.records)):  # a memoryview once decoded
                if header.next_offset > part.high_watermark:
                    self._history.violate(
                        "I-06", f"{where}: served up to {header.next_offset}, high watermark {part.high_watermark}"
                    )
                identity = (header.next_offset, header.crc)
                if self._history.is_compacted:
                    continue  # a batch that compaction has thinned is another one; its records are seen by the readers
                if self._batches.setdefault((where, header.base_offset), identity) != identity:
                    self._history.violate("I-02", f"{where}@{header.base_offset}: another batch than before")
            if self._counts_memory(part.topic):
                continue
            if not self._disks.hold(part.topic, part.partition, part.high_watermark):
                self._history.violate(
                    "I-06",
                    f"{where}: high watermark {part.high_watermark}, but only what is below "
                    f"{self._disks.describe(part.topic, part.partition)} is durable",
                )

    def _on_offset_commit(self, is_request: bool, message: bytes, call_id: int) -> None:
        if is_request:
            self._commits[call_id] = group_pb2.OffsetCommitRequest.FromString(message)
            return
        request = self._commits.pop(call_id)
        failed = {
            (result.topic, result.partition)
            for result in group_pb2.OffsetCommitResponse.FromString(message).partitions
            if result.error_code
        }
        for committed in request.partitions:
            where = (committed.topic, committed.partition)
            if where in failed:
                continue
            self._history.on_committed(request.group_id, where, committed.offset)
            if not self._disks.hold_offset(request.group_id, *where, committed.offset):
                self._history.violate(
                    "ACK", f"{where}: commit of {committed.offset} is acknowledged, but it is not durable"
                )

    def _on_offset_fetch(self, is_request: bool, message: bytes, call_id: int) -> None:
        if is_request:
            group = group_pb2.OffsetFetchRequest.FromString(message).group_id
            floors = {where: floor for (name, where), floor in self._history.committed.items() if name == group}
            self._floors[call_id] = (group, floors)
            return
        group, floors = self._floors.pop(call_id)
        response = group_pb2.OffsetFetchResponse.FromString(message)
        if response.error_code:
            return
        for found in response.partitions:
            where = (found.topic, found.partition)
            if not found.error_code:
                self._history.on_committed_read(group, where, found.offset, floors.get(where, -1))
