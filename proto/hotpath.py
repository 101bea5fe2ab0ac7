"""Produce and fetch messages of `broker.proto`, framed by hand (see `framing`): the records are never copied.

Names, fields and defaults are those of `broker.proto`; any protobuf client speaks to this code. A decoded `records` is
a memoryview into the message, and `encode` returns pieces among which the records' buffers are the caller's own.
"""

from dataclasses import dataclass, field
from typing import Any

from kraftlog.proto import framing
from kraftlog.proto.framing import Buffer, Kind, Records, Schema

__all__ = [
    "AbortedTransaction",
    "Buffer",
    "FetchChunk",
    "FetchControl",
    "FetchPosition",
    "FetchRequest",
    "Message",
    "PartitionChunk",
    "PartitionRecords",
    "ProduceRequest",
    "ProduceResponse",
    "ProduceResult",
    "Records",
    "TopicPartition",
    "decode_fetch_chunk",
    "decode_fetch_control",
    "decode_fetch_request",
    "decode_produce_request",
    "decode_produce_response",
    "encode",
]


@dataclass(slots=True)
class PartitionRecords:
    topic: str = ""
    partition: int = 0
    records: Records = b""


@dataclass(slots=True)
class ProduceRequest:
    correlation_id: int = 0
    acks: int = 0
    timeout_ms: int = 0
    partitions: list[PartitionRecords] = field(default_factory=list)
    transactional_id: str = ""


@dataclass(slots=True)
class ProduceResult:
    topic: str = ""
    partition: int = 0
    error_code: int = 0
    error_message: str = ""
    base_offset: int = 0
    log_append_time_ms: int = 0
    log_start_offset: int = 0
    durability: str = ""


@dataclass(slots=True)
class ProduceResponse:
    correlation_id: int = 0
    partitions: list[ProduceResult] = field(default_factory=list)
    throttle_time_ms: int = 0
    credit_bytes: int = 0


@dataclass(slots=True)
class TopicPartition:
    topic: str = ""
    partition: int = 0


@dataclass(slots=True)
class FetchPosition:
    topic: str = ""
    partition: int = 0
    fetch_offset: int = 0
    generation: int = 0
    max_bytes: int = 0
    current_leader_epoch: int = 0
    last_fetched_epoch: int = 0
    end_offset: int = 0
    any_replica: bool = False


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0
    isolation_level: int = 0
    partitions: list[FetchPosition] = field(default_factory=list)
    rack: str = ""


@dataclass(slots=True)
class FetchControl:
    params: FetchRequest | None = None
    set: list[FetchPosition] = field(default_factory=list)
    forget: list[TopicPartition] = field(default_factory=list)
    credit_bytes: int = 0


@dataclass(slots=True)
class AbortedTransaction:
    producer_id: int = 0
    first_offset: int = 0


@dataclass(slots=True)
class PartitionChunk:
    topic: str = ""
    partition: int = 0
    generation: int = 0
    error_code: int = 0
    error_message: str = ""
    high_watermark: int = 0
    last_stable_offset: int = 0
    log_start_offset: int = 0
    aborted_transactions: list[AbortedTransaction] = field(default_factory=list)
    records: Records = b""
    diverging_epoch: int = 0
    diverging_end_offset: int = 0
    next_offset: int = 0
    preferred_read_replica: int = 0


@dataclass(slots=True)
class FetchChunk:
    partitions: list[PartitionChunk] = field(default_factory=list)


_PARTITION_RECORDS = Schema(
    PartitionRecords,
    (1, "topic", Kind.STRING),
    (2, "partition", Kind.INT32),
    (3, "records", Kind.RECORDS),
)
_PRODUCE_REQUEST = Schema(
    ProduceRequest,
    (1, "correlation_id", Kind.UINT64),
    (2, "acks", Kind.SINT32),
    (3, "timeout_ms", Kind.UINT32),
    (4, "partitions", Kind.REPEATED, _PARTITION_RECORDS),
    (5, "transactional_id", Kind.STRING),
)
_PRODUCE_RESULT = Schema(
    ProduceResult,
    (1, "topic", Kind.STRING),
    (2, "partition", Kind.INT32),
    (3, "error_code", Kind.INT32),
    (4, "error_message", Kind.STRING),
    (5, "base_offset", Kind.INT64),
    (6, "log_append_time_ms", Kind.INT64),
    (7, "log_start_offset", Kind.INT64),
    (8, "durability", Kind.STRING),
)
_PRODUCE_RESPONSE = Schema(
    ProduceResponse,
    (1, "correlation_id", Kind.UINT64),
    (2, "partitions", Kind.REPEATED, _PRODUCE_RESULT),
    (3, "throttle_time_ms", Kind.INT32),
    (4, "credit_bytes", Kind.UINT64),
)
_TOPIC_PARTITION = Schema(
    TopicPartition,
    (1, "topic", Kind.STRING),
    (2, "partition", Kind.INT32),
)
_FETCH_POSITION = Schema(
    FetchPosition,
    (1, "topic", Kind.STRING),
    (2, "partition", Kind.INT32),
    (3, "fetch_offset", Kind.INT64),
    (4, "generation", Kind.UINT32),
    (5, "max_bytes", Kind.UINT32),
    (6, "current_leader_epoch", Kind.SINT32),
    (7, "last_fetched_epoch", Kind.SINT32),
    (8, "end_offset", Kind.INT64),
    (9, "any_replica", Kind.BOOL),
)
_FETCH_REQUEST = Schema(
    FetchRequest,
    (1, "max_wait_ms", Kind.UINT32),
    (2, "min_bytes", Kind.UINT32),
    (3, "max_bytes", Kind.UINT32),
    (4, "isolation_level", Kind.INT32),
    (5, "partitions", Kind.REPEATED, _FETCH_POSITION),
    (6, "rack", Kind.STRING),
)
_FETCH_CONTROL = Schema(
    FetchControl,
    (1, "params", Kind.MESSAGE, _FETCH_REQUEST),
    (2, "set", Kind.REPEATED, _FETCH_POSITION),
    (3, "forget", Kind.REPEATED, _TOPIC_PARTITION),
    (4, "credit_bytes", Kind.UINT64),
)
_ABORTED_TRANSACTION = Schema(
    AbortedTransaction,
    (1, "producer_id", Kind.INT64),
    (2, "first_offset", Kind.INT64),
)
_PARTITION_CHUNK = Schema(
    PartitionChunk,
    (1, "topic", Kind.STRING),
    (2, "partition", Kind.INT32),
    (3, "generation", Kind.UINT32),
    (4, "error_code", Kind.INT32),
    (5, "error_message", Kind.STRING),
    (6, "high_watermark", Kind.INT64),
    (7, "last_stable_offset", Kind.INT64),
    (8, "log_start_offset", Kind.INT64),
    (9, "aborted_transactions", Kind.REPEATED, _ABORTED_TRANSACTION),
    (10, "records", Kind.RECORDS),
    (11, "diverging_epoch", Kind.SINT32),
    (12, "diverging_end_offset", Kind.INT64),
    (13, "next_offset", Kind.INT64),
    (14, "preferred_read_replica", Kind.INT32),
)
_FETCH_CHUNK = Schema(FetchChunk, (1, "partitions", Kind.REPEATED, _PARTITION_CHUNK))

_SCHEMAS: dict[type[Any], Schema] = {
    schema.message: schema
    for schema in (
        _PARTITION_RECORDS,
        _PRODUCE_REQUEST,
        _PRODUCE_RESULT,
        _PRODUCE_RESPONSE,
        _TOPIC_PARTITION,
        _FETCH_POSITION,
        _FETCH_REQUEST,
        _FETCH_CONTROL,
        _ABORTED_TRANSACTION,
        _PARTITION_CHUNK,
        _FETCH_CHUNK,
    )
}

Message = (
    ProduceRequest
    | ProduceResponse
    | FetchRequest
    | FetchControl
    | FetchChunk
    | PartitionRecords
    | ProduceResult
    | FetchPosition
    | TopicPartition
    | PartitionChunk
    | AbortedTransaction
)


def encode(message: Message) -> list[Buffer]:
    """The message as pieces that follow each other; the buffers of `records` are pieces of their own, uncopied."""
    return framing.encode(message, _SCHEMAS[type(message)])


def decode_produce_request(data: Buffer) -> ProduceRequest:
    return framing.decode(data, ProduceRequest, _PRODUCE_REQUEST)


def decode_produce_response(data: Buffer) -> ProduceResponse:
    return framing.decode(data, ProduceResponse, _PRODUCE_RESPONSE)


def decode_fetch_request(data: Buffer) -> FetchRequest:
    return framing.decode(data, FetchRequest, _FETCH_REQUEST)


def decode_fetch_control(data: Buffer) -> FetchControl:
    return framing.decode(data, FetchControl, _FETCH_CONTROL)


def decode_fetch_chunk(data: Buffer) -> FetchChunk:
    return framing.decode(data, FetchChunk, _FETCH_CHUNK)
