"""Protobuf framed by hand: messages as slotted dataclasses, `bytes` fields as buffers that are never copied.

The generated classes copy every `bytes` field in and out, which doubles the cost of a 1 MiB message. Here a decoded
field of kind RECORDS is a memoryview into the message, and `encode` returns pieces among which the buffers are the
caller's own.

Rules kept from protobuf (proto3): fields of value zero are absent; the last value of a repeated scalar wins; a repeated
sub-message merges; unknown fields and known fields of another wire type are skipped; strings are UTF-8. Groups, which
proto3 cannot express, are refused. Whatever is malformed is an `InvalidRequestError`.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from operator import attrgetter
from typing import Any, TypeVar

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.proto.varint import encode_unsigned

Buffer = bytes | bytearray | memoryview
Records = Buffer | Sequence[Buffer]
"""Record batches: one buffer, or several that follow each other. A memoryview after decoding."""

_M = TypeVar("_M")


class Kind(Enum):
    """How a field travels."""

    UINT32 = auto()
    UINT64 = auto()
    INT32 = auto()
    INT64 = auto()
    SINT32 = auto()
    BOOL = auto()
    STRING = auto()
    RECORDS = auto()
    MESSAGE = auto()
    REPEATED = auto()


# Read in the loops below, where looking up a member of an Enum class would cost as much as the work.
_SINT32, _STRING, _RECORDS, _MESSAGE, _REPEATED = (
    Kind.SINT32,
    Kind.STRING,
    Kind.RECORDS,
    Kind.MESSAGE,
    Kind.REPEATED,
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


_FROM_VARINT: dict[Kind, Callable[[int], int] | None] = {
    Kind.UINT32: _uint32,
    Kind.UINT64: None,
    Kind.INT32: _int32,
    Kind.INT64: _int64,
    Kind.SINT32: _sint32,
    Kind.BOOL: bool,
}


class Schema:
    """A message class and, both ways, what its fields are."""

    def __init__(self, message: type[Any], *fields: "tuple[int, str, Kind] | tuple[int, str, Kind, Schema]") -> None:
        self.message = message
        self.by_tag: dict[int, tuple[str, Kind, Any]] = {}
        encoders: list[tuple[Kind, bytes, Any]] = []
        for number, name, kind, *nested in fields:
            tag = number << 3 | (_VARINT if kind in _FROM_VARINT else _BYTES)
            self.by_tag[tag] = (name, kind, nested[0] if nested else _FROM_VARINT.get(kind))
            encoders.append((kind, encode_unsigned(tag), nested[0] if nested else None))
        self.encoders = tuple(encoders)
        names = [name for _, name, *_ in fields]
        # attrgetter of one name gives the value itself, of several a tuple
        self.values: Callable[[Any], tuple[Any, ...]] = (
            attrgetter(*names) if len(names) > 1 else lambda message: tuple(getattr(message, name) for name in names)
        )


def encode(message: Any, schema: Schema) -> list[Buffer]:
    """The message as pieces that follow each other; the buffers of `records` are pieces of their own, uncopied."""
    pieces: list[Buffer] = []
    _encode(message, schema, pieces)
    return _joined(pieces)


def _encode(message: Any, schema: Schema, pieces: list[Buffer]) -> int:
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


def decode(data: Buffer, message_class: type[_M], schema: Schema) -> _M:
    """Raises `InvalidRequestError`."""
    message = message_class()
    try:
        _merge(message, schema, memoryview(data), 0, len(data))
    except (_MalformedError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed {message_class.__name__} of {len(data)} bytes: {error}") from None
    return message


def split_repeated(data: Buffer, *, max_count: int, what: str) -> Iterator[memoryview]:
    """The sub-messages of a message that has nothing but one repeated field of number 1, one by one; `what` names them.

    Raises `InvalidRequestError` where the message is malformed or has more than `max_count` of them: a small message
    does not become millions of objects.
    """
    view, position, count = memoryview(data), 0, 0
    try:
        while position < len(view):
            tag, position = _read_varint(view, position, len(view))
            if tag != 1 << 3 | _BYTES:
                position = _skip(view, tag, position, len(view))
                continue
            size, position = _read_varint(view, position, len(view))
            if size > len(view) - position:
                raise _MalformedError(f"{what} of {size} bytes, {len(view) - position} left")
            count += 1
            if count > max_count:
                raise _MalformedError(f"more than {max_count} of {what}")
            yield view[position : position + size]
            position += size
    except _MalformedError as error:
        raise InvalidRequestError(f"malformed message of {len(view)} bytes: {error}") from None


class _MalformedError(Exception):
    """The bytes are no protobuf message; never leaves this module."""


def _merge(message: Any, schema: Schema, view: memoryview, position: int, end: int) -> None:
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
