"""Hand-framed produce and fetch messages: the bytes are protobuf of `broker.proto`, the records are never copied.

The generated classes copy every `bytes` field in and out, which doubles the cost of a 1 MiB message. Here a decoded
`records` is a memoryview into the message, and `encode` returns pieces among which the records' buffers are the
caller's own. Names, fields and defaults are those of `broker.proto`; any protobuf client speaks to this code.

Rules kept from protobuf (proto3): fields of value zero are absent; the last value of a repeated scalar wins; a repeated
sub-message merges; unknown fields and known fields of another wire type are skipped; strings are UTF-8. Groups, which
proto3 cannot express, are refused. Whatever is malformed is an `InvalidRequestError`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from operator import attrgetter
from typing import Any, TypeVar

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.varint import encode_unsigned

Buffer = bytes | bytearray | memoryview
Records = Buffer | Sequence[Buffer]
"""Record batches: one buffer, or several that follow each other. A memoryview after decoding."""

_M = TypeVar("_M")


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


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 0
    isolation_level: int = 0
    partitions: list[FetchPosition] = field(default_factory=list)


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


@dataclass(slots=True)
class FetchChunk:
    partitions: list[PartitionChunk] = field(default_factory=list)


class _Kind(Enum):
    """How a field travels."""

    UINT32 = auto()
    UINT64 = auto()
    INT32 = auto()
    INT64 = auto()
    SINT32 = auto()
    STRING = auto()
    RECORDS = auto()
    MESSAGE = auto()
    REPEATED = auto()


# Read in the loops below, where looking up a member of an Enum class would cost as much as the work.
_SINT32, _STRING, _RECORDS, _MESSAGE, _REPEATED = (
    _Kind.SINT32,
    _Kind.STRING,
    _Kind.RECORDS,
    _Kind.MESSAGE,
    _Kind.REPEATED,
)

_VARINT, _BYTES = 0, 2  # wire types
_U64 = (1 << 64) - 1
_MAX_TAG = (1 << 32) - 1


def _uint32(number: int) -> int:
    return number & 0xFFFFFFFF


def _int32(number: int) -> int:
    return (number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _int64(number: int) -> int:
    return (number ^ 1 << 63) - (1 << 63)


def _sint32(number: int) -> int:
    number &= 0xFFFFFFFF
    return (number >> 1) ^ -(number & 1)


_FROM_VARINT: dict[_Kind, Callable[[int], int] | None] = {
    _Kind.UINT32: _uint32,
    _Kind.UINT64: None,
    _Kind.INT32: _int32,
    _Kind.INT64: _int64,
    _Kind.SINT32: _sint32,
}


class _Schema:
    """A message class and, both ways, what its fields are."""

    def __init__(self, message: type[Any], *fields: "tuple[int, str, _Kind] | tuple[int, str, _Kind, _Schema]") -> None:
        self.message = message
        self.by_tag: dict[int, tuple[str, _Kind, Any]] = {}
        encoders: list[tuple[_Kind, bytes, Any]] = []
        for number, name, kind, *nested in fields:
            tag = number << 3 | (_VARINT if kind in _FROM_VARINT else _BYTES)
            self.by_tag[tag] = (name, kind, nested[0] if nested else _FROM_VARINT.get(kind))
            encoders.append((kind, encode_unsigned(tag), nested[0] if nested else None))
        self.encoders = tuple(encoders)
        names = [name for _, name, *_ in fields]
        # attrgetter of one name gives the value itself, of several a tuple
        self.values: Callable[[Any], tuple[Any, ...]] = (
            attrgetter(*names) if len(names) > 1 else lambda message: (getattr(message, names[0]),)
        )


_PARTITION_RECORDS = _Schema(
    PartitionRecords,
    (1, "topic", _Kind.STRING),
    (2, "partition", _Kind.INT32),
    (3, "records", _Kind.RECORDS),
)
_PRODUCE_REQUEST = _Schema(
    ProduceRequest,
    (1, "correlation_id", _Kind.UINT64),
    (2, "acks", _Kind.SINT32),
    (3, "timeout_ms", _Kind.UINT32),
    (4, "partitions", _Kind.REPEATED, _PARTITION_RECORDS),
    (5, "transactional_id", _Kind.STRING),
)
_PRODUCE_RESULT = _Schema(
    ProduceResult,
    (1, "topic", _Kind.STRING),
    (2, "partition", _Kind.INT32),
    (3, "error_code", _Kind.INT32),
    (4, "error_message", _Kind.STRING),
    (5, "base_offset", _Kind.INT64),
    (6, "log_append_time_ms", _Kind.INT64),
    (7, "log_start_offset", _Kind.INT64),
    (8, "durability", _Kind.STRING),
)
_PRODUCE_RESPONSE = _Schema(
    ProduceResponse,
    (1, "correlation_id", _Kind.UINT64),
    (2, "partitions", _Kind.REPEATED, _PRODUCE_RESULT),
    (3, "throttle_time_ms", _Kind.INT32),
    (4, "credit_bytes", _Kind.UINT64),
)
_TOPIC_PARTITION = _Schema(
    TopicPartition,
    (1, "topic", _Kind.STRING),
    (2, "partition", _Kind.INT32),
)
_FETCH_POSITION = _Schema(
    FetchPosition,
    (1, "topic", _Kind.STRING),
    (2, "partition", _Kind.INT32),
    (3, "fetch_offset", _Kind.INT64),
    (4, "generation", _Kind.UINT32),
    (5, "max_bytes", _Kind.UINT32),
    (6, "current_leader_epoch", _Kind.SINT32),
    (7, "last_fetched_epoch", _Kind.SINT32),
    (8, "end_offset", _Kind.INT64),
)
_FETCH_REQUEST = _Schema(
    FetchRequest,
    (1, "max_wait_ms", _Kind.UINT32),
    (2, "min_bytes", _Kind.UINT32),
    (3, "max_bytes", _Kind.UINT32),
    (4, "isolation_level", _Kind.INT32),
    (5, "partitions", _Kind.REPEATED, _FETCH_POSITION),
)
_FETCH_CONTROL = _Schema(
    FetchControl,
    (1, "params", _Kind.MESSAGE, _FETCH_REQUEST),
    (2, "set", _Kind.REPEATED, _FETCH_POSITION),
    (3, "forget", _Kind.REPEATED, _TOPIC_PARTITION),
    (4, "credit_bytes", _Kind.UINT64),
)
_ABORTED_TRANSACTION = _Schema(
    AbortedTransaction,
    (1, "producer_id", _Kind.INT64),
    (2, "first_offset", _Kind.INT64),
)
_PARTITION_CHUNK = _Schema(
    PartitionChunk,
    (1, "topic", _Kind.STRING),
    (2, "partition", _Kind.INT32),
    (3, "generation", _Kind.UINT32),
    (4, "error_code", _Kind.INT32),
    (5, "error_message", _Kind.STRING),
    (6, "high_watermark", _Kind.INT64),
    (7, "last_stable_offset", _Kind.INT64),
    (8, "log_start_offset", _Kind.INT64),
    (9, "aborted_transactions", _Kind.REPEATED, _ABORTED_TRANSACTION),
    (10, "records", _Kind.RECORDS),
    (11, "diverging_epoch", _Kind.SINT32),
    (12, "diverging_end_offset", _Kind.INT64),
    (13, "next_offset", _Kind.INT64),
)
_FETCH_CHUNK = _Schema(FetchChunk, (1, "partitions", _Kind.REPEATED, _PARTITION_CHUNK))

_SCHEMAS: dict[type[Any], _Schema] = {
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
    pieces: list[Buffer] = []
    _encode(message, _SCHEMAS[type(message)], pieces)
    return _joined(pieces)


def _encode(message: Any, schema: _Schema, pieces: list[Buffer]) -> int:
    """Append the fields of `message` to `pieces`; return their size in bytes."""
    total = 0
    for value, (kind, tag, nested) in zip(schema.values(message), schema.encoders, strict=True):
        if not value:  # a message object is true, however empty
            continue
        if kind is _REPEATED or kind is _MESSAGE:
            for item in value if kind is _REPEATED else (value,):
                slot = len(pieces)
                pieces.append(b"")
                size = _encode(item, nested, pieces)
                pieces[slot] = head = tag + encode_unsigned(size)
                total += len(head) + size
            continue
        if kind is _STRING:
            body = value.encode()
            head = tag + encode_unsigned(len(body)) + body
        elif kind is _RECORDS:
            buffers = (value,) if isinstance(value, Buffer) else value
            size = sum(map(len, buffers))
            if not size:
                continue
            pieces.append(tag + encode_unsigned(size))
            total += len(pieces[-1]) + size
            pieces += buffers
            continue
        else:
            head = tag + encode_unsigned((value << 1) ^ (value >> 31) if kind is _SINT32 else value & _U64)
        pieces.append(head)
        total += len(head)
    return total


_SMALL_PIECE = 4096  # pieces below are joined; copying so little is cheaper than passing on one more buffer


def _joined(pieces: list[Buffer]) -> list[Buffer]:
    """The same bytes with runs of small pieces joined."""
    out: list[Buffer] = []
    run: list[Buffer] = []
    for piece in pieces:
        if len(piece) < _SMALL_PIECE:
            run.append(piece)
            continue
        if run:
            out.append(b"".join(run))
            run = []
        out.append(piece)
    if run or not out:
        out.append(b"".join(run))
    return out


def decode_produce_request(data: Buffer) -> ProduceRequest:
    return _decode(data, ProduceRequest, _PRODUCE_REQUEST)


def decode_produce_response(data: Buffer) -> ProduceResponse:
    return _decode(data, ProduceResponse, _PRODUCE_RESPONSE)


def decode_fetch_request(data: Buffer) -> FetchRequest:
    return _decode(data, FetchRequest, _FETCH_REQUEST)


def decode_fetch_control(data: Buffer) -> FetchControl:
    return _decode(data, FetchControl, _FETCH_CONTROL)


def decode_fetch_chunk(data: Buffer) -> FetchChunk:
    return _decode(data, FetchChunk, _FETCH_CHUNK)


def _decode(data: Buffer, message_class: type[_M], schema: _Schema) -> _M:
    message = message_class()
    try:
        _merge(message, schema, memoryview(data), 0, len(data))
    except (_MalformedError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed {message_class.__name__} of {len(data)} bytes: {error}") from None
    return message


class _MalformedError(Exception):
    """The bytes are no protobuf message; never leaves this module."""


def _merge(message: Any, schema: _Schema, view: memoryview, position: int, end: int) -> None:
    """Set the fields of `message` from view[position:end]. Numbers of one byte, nearly all, are read in line."""
    by_tag = schema.by_tag
    while position < end:
        tag = view[position]
        position += 1
        if tag >= 0x80:
            tag, position = _read_varint(view, position - 1, end)
            if tag > _MAX_TAG:
                raise _MalformedError(f"tag {tag} is out of range")
        known = by_tag.get(tag)
        if known is None:
            position = _skip(view, tag, position, end)
            continue
        if position < end and view[position] < 0x80:
            number = view[position]
            position += 1
        else:
            number, position = _read_varint(view, position, end)
        name, kind, detail = known
        if tag & 7 == _VARINT:
            setattr(message, name, detail(number) if detail is not None else number)
            continue
        if number > end - position:
            raise _MalformedError(f"{name} of {number} bytes, {end - position} left")
        stop = position + number
        if kind is _STRING:
            setattr(message, name, str(view[position:stop], "utf-8"))
        elif kind is _RECORDS:
            setattr(message, name, view[position:stop])
        else:
            item = getattr(message, name) if kind is _MESSAGE else None
            if item is None:
                item = detail.message()
                if kind is _MESSAGE:
                    setattr(message, name, item)
                else:
                    getattr(message, name).append(item)
            _merge(item, detail, view, position, stop)
        position = stop


def _read_varint(view: memoryview, position: int, end: int) -> tuple[int, int]:
    """(unsigned number of 64 bits, next position); more bits are dropped, as protobuf does."""
    number = shift = 0
    while position < end:
        byte = view[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _U64, position
        shift += 7
        if shift >= 70:
            raise _MalformedError("varint of more than 10 bytes")
    raise _MalformedError("the message is cut inside a number")


def _skip(view: memoryview, tag: int, position: int, end: int) -> int:
    """The position after an unknown field's value."""
    if not tag >> 3:
        raise _MalformedError("field number 0")
    match tag & 7:
        case 0:
            return _read_varint(view, position, end)[1]
        case 1:
            size = 8
        case 2:
            size, position = _read_varint(view, position, end)
        case 5:
            size = 4
        case wire_type:
            raise _MalformedError(f"wire type {wire_type} of field {tag >> 3} is not supported")
    if size > end - position:
        raise _MalformedError(f"unknown field of {size} bytes, {end - position} left")
    return position + size
