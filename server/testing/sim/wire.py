"""Checks on what the node says on the wire, at the moment at which it says it.

An acknowledgment that leaves the node before its fsync is wrong even if the fsync wins the race against the client; only
here can that be seen. Rules: see `history`, and

ACK    the acknowledgment of a produce request or of an offset commit covers only what is surely durable
I-06   nothing is served at or above the high watermark, and nothing that a power loss could take back
"""

from collections.abc import Callable
from typing import cast

from kraftlog.proto import group_pb2, hotpath
from kraftlog.proto.records import iter_headers
from kraftlog.testing.sim.durable import DurableLogs, DurableOffsets
from kraftlog.testing.sim.history import History, TopicPartition

PRODUCE = frozenset({"/kraftlog.v1.Broker/Produce", "/kraftlog.v1.Broker/ProduceStream"})
FETCH = frozenset({"/kraftlog.v1.Broker/Fetch", "/kraftlog.v1.Broker/FetchStream"})
OFFSET_COMMIT = "/kraftlog.v1.Group/OffsetCommit"
OFFSET_FETCH = "/kraftlog.v1.Group/OffsetFetch"


class WireChecks:
    """A `kraftlog.testing.network.Tap`."""

    def __init__(
        self, history: History, durable: DurableLogs, offsets: DurableOffsets, is_user_topic: Callable[[str], bool]
    ) -> None:
        self._history = history
        self._durable = durable
        self._offsets = offsets
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

    def _on_produce_response(self, response: hotpath.ProduceResponse) -> None:
        for result in response.partitions:
            if result.error_code or result.base_offset < 0:
                continue
            end = self._durable.end_offset(result.topic, result.partition)
            if result.base_offset >= end:
                self._history.violate(
                    "ACK",
                    f"{result.topic}-{result.partition}@{result.base_offset} is acknowledged, but only what is below "
                    f"{end} is durable",
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
            durable = self._durable.end_offset(part.topic, part.partition)
            if part.high_watermark > durable:
                self._history.violate(
                    "I-06", f"{where}: high watermark {part.high_watermark}, but only {durable} is durable"
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
            durable = self._offsets.committed(request.group_id, *where)
            if durable < committed.offset:
                self._history.violate(
                    "ACK", f"{where}: commit of {committed.offset} is acknowledged, but only {durable} is durable"
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
