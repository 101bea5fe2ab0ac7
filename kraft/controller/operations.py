"""Operations that are done once, however often they are asked for: a repeat by request id gets the first answer.

The answer is the last record of the operation's own batch. So it is there exactly if the operation is: after a failover,
in a snapshot, and, as state, also before the commit (then the repeat waits for the same commit). A refusal changed
nothing and is not remembered, nor is what an operation answers without a record. How much is remembered is
`kraft.image.completed_operations`.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from kraftlog.kraft.controller.brokers import ID_BYTES
from kraftlog.kraft.controller.producer_ids import ProducerIdBlock
from kraftlog.kraft.image.completed_operations import (
    CompletedOperation,
    completed_record,
    is_forgotten,
    new_completed,
)
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict, TimelineInt
from kraftlog.proto.admin_pb2 import (
    AlterPartitionReassignmentsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    ElectLeadersResponse,
    IncrementalAlterConfigsResponse,
    UpdateFeaturesResponse,
)
from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.metadata_pb2 import CompletedOperationRecord, MetadataRecord

T = TypeVar("T")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class OperationKind(Generic[T]):
    """A sort of operation, and how its response is kept. The name is in the log and never changes its meaning."""

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]


def _message(name: str, message: type[M]) -> OperationKind[M]:
    return OperationKind(
        name, lambda response: response.SerializeToString(deterministic=True), lambda data: message.FromString(data)
    )


_BLOCK = struct.Struct(">qq")  # first id, number of ids

CREATE_TOPICS = _message("create_topics", CreateTopicsResponse)
DELETE_TOPICS = _message("delete_topics", DeleteTopicsResponse)
CREATE_PARTITIONS = _message("create_partitions", CreatePartitionsResponse)
ALTER_CONFIGS = _message("incremental_alter_configs", IncrementalAlterConfigsResponse)
ELECT_LEADERS = _message("elect_leaders", ElectLeadersResponse)
ALTER_REASSIGNMENTS = _message("alter_partition_reassignments", AlterPartitionReassignmentsResponse)
UPDATE_FEATURES = _message("update_features", UpdateFeaturesResponse)
ALLOCATE_PRODUCER_IDS = OperationKind(
    "allocate_producer_ids", lambda block: _BLOCK.pack(*block), lambda data: ProducerIdBlock(*_BLOCK.unpack(data))
)
UNREGISTER_BROKER: OperationKind[None] = OperationKind("unregister_broker", lambda _: b"", lambda _: None)


@dataclass(frozen=True, slots=True)
class RequestId(Generic[T]):
    """Names one operation of one client: the same bytes on each repeat, other bytes (random ones) for anything else."""

    id: bytes
    kind: OperationKind[T]

    def __post_init__(self) -> None:
        if len(self.id) != ID_BYTES:
            raise InvalidRequestError(f"a request id of {len(self.id)} bytes was sent, it has {ID_BYTES}")


class OperationManager:
    """Used only by the controller."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._numbers: TimelineDict[bytes, int] = TimelineDict(registry)
        self._by_number: TimelineDict[int, CompletedOperation] = TimelineDict(registry)
        self._first = TimelineInt(registry)
        """The lowest number that is remembered; they ascend without a gap."""
        self._size_bytes = TimelineInt(registry)

    def __len__(self) -> int:
        return len(self._by_number)

    def answer(self, request: RequestId[T]) -> CompletedOperation | None:
        """What the operation was answered, None if it is not known. Raises `InvalidRequestError` if the id was used
        for something else."""
        number = self._numbers.get(request.id)
        if number is None:
            return None
        known = self._by_number[number]
        if known.kind != request.kind.name:
            raise InvalidRequestError(
                f"request id {request.id.hex()} was used for {known.kind}, now for {request.kind.name}:"
                " each operation needs an id of its own"
            )
        return known

    def completion_record(self, request: RequestId[T], response: T, wall_ms: int) -> MetadataRecord:
        """To be the last of the operation's batch."""
        newest = self._first.get() + len(self._by_number) - 1
        last = self._by_number.get(newest)
        completed = CompletedOperation(
            request_id=request.id,
            kind=request.kind.name,
            response=request.kind.encode(response),
            timestamp_ms=wall_ms if last is None else max(wall_ms, last.timestamp_ms),
        )
        return MetadataRecord(completed_operation=completed_record(completed))

    def replay(self, record: CompletedOperationRecord) -> None:
        completed = new_completed(record)
        number = self._first.get() + len(self._by_number)
        self._numbers[completed.request_id] = number
        self._by_number[number] = completed
        self._size_bytes.increment(len(completed.response))
        while is_forgotten(
            oldest := self._by_number[first := self._first.get()],
            completed,
            count=len(self._by_number),
            size_bytes=self._size_bytes.get(),
        ):
            del self._by_number[first]
            if self._numbers[oldest.request_id] == first:
                del self._numbers[oldest.request_id]
            self._first.increment()
            self._size_bytes.increment(-len(oldest.response))


def response_of(kind: OperationKind[Any], completed: CompletedOperation) -> Any:
    return kind.decode(completed.response)
