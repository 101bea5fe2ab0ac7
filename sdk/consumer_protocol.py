"""Kafka's ConsumerProtocol: what group members tell each other through the coordinator, which passes it on unread.

    Subscription: int16 version | topics: array of string | user data: nullable bytes
                  | v1: owned partitions: array of (string topic, array of int32)
                  | v2: int32 generation | v3: nullable string rack
    Assignment:   int16 version | partitions: array of (string topic, array of int32) | user data: nullable bytes

All integers are big-endian; arrays and bytes have an int32 length, strings an int16 length; -1 means null. A reader
takes any version from 0 on and ignores what later versions append, as Kafka's does.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from kraftlog.proto.errors import InvalidRequestError
from kraftlog.sdk.types import TopicPartition

PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants and has."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member gets."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    out = bytearray(_INT16.pack(SUBSCRIPTION_VERSION))
    out += _INT32.pack(len(subscription.topics))
    for topic in subscription.topics:
        _put_string(out, topic)
    _put_bytes(out, subscription.user_data)
    _put_partitions(out, subscription.owned_partitions)
    out += _INT32.pack(subscription.generation_id)
    _put_string(out, subscription.rack_id)
    return bytes(out)


def decode_subscription(data: bytes) -> Subscription:
    """Raises `InvalidRequestError` for bytes that are no subscription."""
    cursor = _Cursor(data, "subscription")
    version = cursor.version()
    topics = tuple(cursor.string() for _ in range(cursor.length(2)))
    user_data = cursor.nullable_bytes()
    owned = cursor.partitions() if version >= 1 else ()
    generation = cursor.int32() if version >= 2 else -1
    rack = cursor.nullable_string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(assignment: Assignment) -> bytes:
    out = bytearray(_INT16.pack(ASSIGNMENT_VERSION))
    _put_partitions(out, assignment.partitions)
    _put_bytes(out, assignment.user_data)
    return bytes(out)


def decode_assignment(data: bytes) -> Assignment:
    """Raises `InvalidRequestError` for bytes that are no assignment. No bytes at all mean: nothing assigned."""
    if not data:
        return Assignment(())
    cursor = _Cursor(data, "assignment")
    cursor.version()
    partitions = cursor.partitions()
    return Assignment(partitions, cursor.nullable_bytes())


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _INT16.pack(-1)
        return
    data = text.encode()
    out += _INT16.pack(len(data))
    out += data


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    out += _INT32.pack(-1 if data is None else len(data))
    out += data or b""


def _put_partitions(out: bytearray, partitions: Iterable[TopicPartition]) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    out += _INT32.pack(len(by_topic))
    for topic, numbers in by_topic.items():
        _put_string(out, topic)
        out += _INT32.pack(len(numbers))
        for number in numbers:
            out += _INT32.pack(number)


class _Cursor:
    """Reads foreign bytes; every length is checked before it is used."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._position = 0
        self._what = what

    def version(self) -> int:
        version = self._unpack(_INT16)
        if version < 0:
            raise self._malformed(f"version {version}")
        return version

    def int32(self) -> int:
        return self._unpack(_INT32)

    def length(self, item_bytes: int) -> int:
        """An array's length, which the remaining bytes can hold at `item_bytes` an item."""
        length = self.int32()
        if not 0 <= length <= (len(self._data) - self._position) // item_bytes:
            raise self._malformed(f"array of {length} items")
        return length

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self._malformed("null in place of a string")
        return text

    def nullable_string(self) -> str | None:
        length = self._unpack(_INT16)
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError:
            raise self._malformed("text that is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.length(6)):
            topic = self.string()
            found.extend(TopicPartition(topic, self.int32()) for _ in range(self.length(4)))
        return tuple(found)

    def _unpack(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def _take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise self._malformed(f"{size} bytes at position {self._position} of {len(self._data)}")
        data = self._data[self._position : end]
        self._position = end
        return data

    def _malformed(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(f"malformed ConsumerProtocol {self._what}: {what}")
