"""The facts in `__consumer_offsets`, byte for byte as Kafka's group coordinator writes them.

All integers are big endian. `string` is an int16 length and that many bytes of UTF-8, `nullable string` the same with
length -1 for null, `bytes` an int32 length and the bytes. A key starts with an int16 that says what the record is:

    0, 1  OffsetCommitKey      string group, string topic, int32 partition
    2     GroupMetadataKey     string group

and a value with an int16 version (we write the highest version that is not flexible, as Kafka does):

    OffsetCommitValue   v3     int64 offset, int32 leader_epoch, string metadata, int64 commit_timestamp
                        v0-v2  int64 offset, string metadata, int64 commit_timestamp, v1: int64 expire_timestamp
    GroupMetadataValue  v3     string protocol_type, int32 generation, nullable string protocol, nullable string leader,
                               v2+: int64 current_state_timestamp, int32 count, then per member:
                               string member_id, v3+: nullable string group_instance_id, string client_id,
                               string client_host, v1+: int32 rebalance_timeout, int32 session_timeout,
                               bytes subscription, bytes assignment

A record without a value is a tombstone. Keys of later versions are passed over, as Kafka's loader does: another
version of the software may have written them, and compaction keeps them.
"""

import struct
import sys
from dataclasses import dataclass

from kraftlog.proto.errors import CorruptRecordError, InvalidRequestError

OFFSET_COMMIT_KEY_VERSION = 1
GROUP_METADATA_KEY_VERSION = 2
OFFSET_COMMIT_VALUE_VERSION = 3
GROUP_METADATA_VALUE_VERSION = 3
MAX_STRING_BYTES = 0x7FFF  # an int16 length

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_KEY_START = _INT16.pack(OFFSET_COMMIT_KEY_VERSION)
_OFFSET_VALUE_HEAD = struct.Struct(">hqih")  # version, offset, leader_epoch, length of the metadata


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One fact as it stands in the log; `value` None is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """Names a committed offset."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """Names a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of a version that this code does not know."""

    version: int


Key = OffsetCommitKey | GroupMetadataKey | UnknownKey


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset: the next offset that the group reads, and what the committer said with it."""

    offset: int
    leader_epoch: int
    """Epoch of the last consumed record; -1 unknown."""
    metadata: str
    commit_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """One member of a persisted generation."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataValue:
    """One generation of a group with its assignment, or an empty group (no members)."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader: str | None
    current_state_timestamp_ms: int
    """Wall time of the change into this state; -1 unknown. Offsets of an empty group expire counted from here."""
    members: tuple[MemberMetadata, ...]


def offset_commit_record(key: OffsetCommitKey, value: OffsetCommitValue | None) -> CoordinatorRecord:
    """The record of a committed offset, or its tombstone."""
    return CoordinatorRecord(encode_key(key), None if value is None else _encode_offset_commit(value))


def group_metadata_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """The record of a generation, or the group's tombstone."""
    return CoordinatorRecord(encode_key(GroupMetadataKey(group_id)), None if value is None else _encode_group(value))


def encode_key(key: OffsetCommitKey | GroupMetadataKey) -> bytes:
    match key:
        case OffsetCommitKey(group_id, topic, partition):
            prefix = _INT16.pack(OFFSET_COMMIT_KEY_VERSION)
            return b"".join((prefix, _string(group_id), _string(topic), _INT32.pack(partition)))
        case GroupMetadataKey(group_id):
            return _INT16.pack(GROUP_METADATA_KEY_VERSION) + _string(group_id)


def decode_key(data: bytes) -> Key:
    """The key in `data`; raises `CorruptRecordError` if the bytes do not hold what its version says."""
    if (usual := _usual_offset_key(data)) is not None:
        return usual
    cursor = _Cursor(data)
    version = cursor.int16()
    if version < 0:
        raise CorruptRecordError(f"coordinator record key has version {version}")
    if version <= OFFSET_COMMIT_KEY_VERSION:
        key: Key = OffsetCommitKey(cursor.string(), cursor.string(), cursor.int32())
    elif version == GROUP_METADATA_KEY_VERSION:
        key = GroupMetadataKey(cursor.string())
    else:
        return UnknownKey(version)
    cursor.expect_end()
    return key


def decode_offset_commit(data: bytes) -> OffsetCommitValue:
    """An OffsetCommitValue of version 0 to 3; raises `CorruptRecordError` on anything else."""
    if (usual := _usual_offset_value(data)) is not None:
        return usual
    cursor = _Cursor(data)
    version = _value_version(cursor, "OffsetCommitValue", OFFSET_COMMIT_VALUE_VERSION)
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else -1
    metadata = cursor.string()
    commit_timestamp_ms = cursor.int64()
    if version == 1:
        cursor.int64()  # expire_timestamp: retention is the coordinator's matter since Kafka 2.1 (KIP-211)
    cursor.expect_end()
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp_ms)


def _usual_offset_key(data: bytes) -> OffsetCommitKey | None:
    """An OffsetCommitKey v1 in one go: it is nearly everything that a load reads. None: let the cursor look at it."""
    size_bytes = len(data)
    if size_bytes < 10 or not data.startswith(_OFFSET_KEY_START):
        return None
    topic_start = 6 + int.from_bytes(data[2:4])
    topic_stop = topic_start + int.from_bytes(data[topic_start - 2 : topic_start])
    if topic_start > size_bytes - 4 or topic_stop != size_bytes - 4:
        return None
    try:
        group_id, topic = data[4 : topic_start - 2].decode(), data[topic_start:topic_stop].decode()
    except UnicodeDecodeError:
        return None
    return OffsetCommitKey(group_id, sys.intern(topic), int.from_bytes(data[topic_stop:], signed=True))


def _usual_offset_value(data: bytes) -> OffsetCommitValue | None:
    """An OffsetCommitValue v3 in one go. None: let the cursor look at it."""
    if len(data) < _OFFSET_VALUE_HEAD.size + 8:
        return None
    version, offset, leader_epoch, length = _OFFSET_VALUE_HEAD.unpack_from(data)
    stop = _OFFSET_VALUE_HEAD.size + length
    if version != OFFSET_COMMIT_VALUE_VERSION or length < 0 or stop + 8 != len(data):
        return None
    try:
        metadata = data[_OFFSET_VALUE_HEAD.size : stop].decode()
    except UnicodeDecodeError:
        return None
    return OffsetCommitValue(offset, leader_epoch, metadata, int.from_bytes(data[stop:], signed=True))


def decode_group_metadata(data: bytes) -> GroupMetadataValue:
    """A GroupMetadataValue of version 0 to 3; raises `CorruptRecordError` on anything else."""
    cursor = _Cursor(data)
    version = _value_version(cursor, "GroupMetadataValue", GROUP_METADATA_VALUE_VERSION)
    protocol_type = cursor.string()
    generation_id = cursor.int32()
    protocol_name = cursor.nullable_string()
    leader = cursor.nullable_string()
    timestamp_ms = cursor.int64() if version >= 2 else -1
    count = cursor.int32()
    if not 0 <= count <= cursor.remaining:  # a member has more than one byte
        raise CorruptRecordError(f"GroupMetadataValue claims {count} members in {cursor.remaining} bytes")
    members = tuple(_decode_member(cursor, version) for _ in range(count))
    cursor.expect_end()
    return GroupMetadataValue(
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader=leader,
        current_state_timestamp_ms=timestamp_ms,
        members=members,
    )


def _value_version(cursor: "_Cursor", name: str, highest: int) -> int:
    version = cursor.int16()
    if not 0 <= version <= highest:
        raise CorruptRecordError(f"{name} has version {version}; this software reads 0 to {highest}")
    return version


def _decode_member(cursor: "_Cursor", version: int) -> MemberMetadata:
    member_id = cursor.string()
    group_instance_id = cursor.nullable_string() if version >= 3 else None
    client_id = cursor.string()
    client_host = cursor.string()
    first_timeout_ms = cursor.int32()
    # Version 0 has the session timeout alone, which then stands for both.
    session_timeout_ms = cursor.int32() if version >= 1 else first_timeout_ms
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=first_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=cursor.blob(),
        assignment=cursor.blob(),
    )


def _encode_offset_commit(value: OffsetCommitValue) -> bytes:
    return b"".join(
        (
            _INT16.pack(OFFSET_COMMIT_VALUE_VERSION),
            _INT64.pack(value.offset),
            _INT32.pack(value.leader_epoch),
            _string(value.metadata),
            _INT64.pack(value.commit_timestamp_ms),
        )
    )


def _encode_group(value: GroupMetadataValue) -> bytes:
    parts = [
        _INT16.pack(GROUP_METADATA_VALUE_VERSION),
        _string(value.protocol_type),
        _INT32.pack(value.generation_id),
        _nullable_string(value.protocol_name),
        _nullable_string(value.leader),
        _INT64.pack(value.current_state_timestamp_ms),
        _INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.member_id),
            _nullable_string(member.group_instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _bytes(member.subscription),
            _bytes(member.assignment),
        )
    return b"".join(parts)


def _string(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > MAX_STRING_BYTES:
        raise InvalidRequestError(f"text of {len(encoded)} bytes exceeds {MAX_STRING_BYTES} in a coordinator record")
    return _INT16.pack(len(encoded)) + encoded


def _nullable_string(text: str | None) -> bytes:
    return _INT16.pack(-1) if text is None else _string(text)


def _bytes(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


class _Cursor:
    """A position in bytes that refuses to read beyond their end."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._end = len(data)

    @property
    def remaining(self) -> int:
        return self._end - self._position

    def _skip(self, count: int) -> int:
        """Go on by `count` bytes and return where they begin."""
        start = self._position
        stop = start + count
        if count < 0 or stop > self._end:
            raise CorruptRecordError(f"coordinator record needs {count} bytes at {start}, but has {self._end}")
        self._position = stop
        return start

    def int16(self) -> int:
        return _INT16.unpack_from(self._data, self._skip(2))[0]  # type: ignore[no-any-return] # the format says int

    def int32(self) -> int:
        return _INT32.unpack_from(self._data, self._skip(4))[0]  # type: ignore[no-any-return] # the format says int

    def int64(self) -> int:
        return _INT64.unpack_from(self._data, self._skip(8))[0]  # type: ignore[no-any-return] # the format says int

    def blob(self) -> bytes:
        return self._take(self.int32())

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptRecordError(f"coordinator record has a null text before {self._position}")
        return text

    def nullable_string(self) -> str | None:
        length = self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptRecordError(f"coordinator record has text that is not UTF-8: {error}") from error

    def expect_end(self) -> None:
        if self.remaining:
            raise CorruptRecordError(f"coordinator record has {self.remaining} bytes beyond its end")

    def _take(self, count: int) -> bytes:
        start = self._skip(count)
        return self._data[start : start + count]
