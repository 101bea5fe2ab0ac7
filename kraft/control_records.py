"""The control records of the metadata log and of its snapshots, in Kafka's bytes (KIP-595, KIP-630, KIP-853), so that
Kafka's tools read them.

A control batch of the log holds one record, with the key of `proto.records.control`; a snapshot begins with a batch of
types 3, 5 and 6 and ends with one of type 4. Here are the values. Integers are big-endian;
`uvarint` is an unsigned varint; a compact array of n starts with uvarint n + 1, a compact string of n bytes likewise;
every structure ends with uvarint 0 (no tagged fields).

    type 2  int16 version 1 | int32 leader id | compact array of voters | compact array of granting voters
            voter: int32 node id | 16 bytes directory id
    type 3  int16 version 0 | int64 timestamp (ms) of the last batch that the snapshot contains
    type 4  int16 version 0
    type 5  int16 version 0 | int16 kraft.version
    type 6  int16 version 0 | compact array of voters
            voter: int32 node id | 16 bytes directory id | compact array of endpoints |
                   lowest and highest supported kraft.version, int16 each, as a structure
            endpoint: compact string name of the listener | compact string host | uint16 port

A voter has one endpoint, or none if it is not known (a cluster of one node that never grew).
"""

import struct
from collections.abc import Mapping

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey, Voters
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from kraftlog.proto.varint import encode_unsigned, read_unsigned

LISTENER = "CONTROLLER"
"""The name that endpoints are written with; any is read."""
KRAFT_VERSION = 1
"""Kafka's feature `kraft.version`: the voters are in the log (KIP-853)."""

_VOTER = struct.Struct(">i16s")
_PORT = struct.Struct(">H")
_NO_TAGS = b"\x00"
_HEADER = struct.Struct(">hq")
_FOOTER = struct.Struct(">h")
_VERSION = struct.Struct(">hh")
_MAX_VOTERS = 1000  # far beyond any quorum: a bound on what a damaged count may allocate
_MAX_ENDPOINTS = 16  # of one voter
_MAX_STRING_BYTES = 255  # of a host or listener name


def encode_leader_change(leader: ReplicaKey, voters: Voters) -> bytes:
    members = _array([_VOTER.pack(*voter) + _NO_TAGS for voter in sorted(voters)])
    return struct.pack(">hi", 1, leader.node_id) + members + _array([]) + _NO_TAGS


def encode_snapshot_header(last_contained_log_timestamp_ms: int) -> bytes:
    return _HEADER.pack(0, last_contained_log_timestamp_ms) + _NO_TAGS


def decode_snapshot_header(value: bytes | None) -> int:
    """The timestamp (ms) of the last batch that the snapshot contains."""
    return _fixed("snapshot header", _HEADER, value)[1]


def encode_snapshot_footer() -> bytes:
    return _FOOTER.pack(0) + _NO_TAGS


def check_snapshot_footer(value: bytes | None) -> None:
    _fixed("snapshot footer", _FOOTER, value)


def encode_kraft_version() -> bytes:
    return _VERSION.pack(0, KRAFT_VERSION) + _NO_TAGS


def check_kraft_version(value: bytes | None) -> None:
    """Raise `UnsupportedVersionError` unless it is the version of this code."""
    _, version = _fixed("kraft.version", _VERSION, value)
    if version != KRAFT_VERSION:
        raise UnsupportedVersionError(f"kraft.version {version} is not {KRAFT_VERSION}: another kraftlog wrote this")


def _fixed(name: str, fields: struct.Struct, value: bytes | None) -> tuple[int, ...]:
    """The fields of a record of fixed size; the first one is its version, 0."""
    if value is None or len(value) < fields.size:
        raise CorruptRecordError(f"a {name} record of {0 if value is None else len(value)} bytes cannot be read")
    numbers: tuple[int, ...] = fields.unpack_from(value)
    if numbers[0] != 0:
        raise UnsupportedVersionError(f"{name} record of version {numbers[0]}: a later kraftlog wrote this")
    if value[fields.size :] != _NO_TAGS:
        raise CorruptRecordError(f"a {name} record of {len(value)} bytes cannot be read")
    return numbers


def encode_voters(voters: Voters, endpoints: Mapping[ReplicaKey, Endpoint] | None = None) -> bytes:
    """The value of a type 6 record; `endpoints` of others than `voters` are passed over."""
    feature = struct.pack(">hh", 0, KRAFT_VERSION) + _NO_TAGS
    known = endpoints or {}
    members = [
        _VOTER.pack(*voter) + _array(_endpoints(known.get(voter))) + feature + _NO_TAGS for voter in sorted(voters)
    ]
    return struct.pack(">h", 0) + _array(members) + _NO_TAGS


def _endpoints(endpoint: Endpoint | None) -> list[bytes]:
    if endpoint is None:
        return []
    return [_string(LISTENER) + _string(endpoint.host) + _PORT.pack(endpoint.port) + _NO_TAGS]


def decode_voters(value: bytes | None) -> Voters:
    """The voters of a type 6 record. Raises `CorruptRecordError`, or `UnsupportedVersionError` for a later version."""
    return frozenset(_decode_voters_value(value))


def decode_voter_endpoints(value: bytes | None) -> dict[ReplicaKey, Endpoint]:
    """The endpoints of a type 6 record, by voter; without those that have none. Raises as `decode_voters` does."""
    return {key: endpoint for key, endpoint in _decode_voters_value(value).items() if endpoint is not None}


def _decode_voters_value(value: bytes | None) -> dict[ReplicaKey, Endpoint | None]:
    if value is None:
        raise CorruptRecordError("a voters record without a value")
    try:
        return _decode_voters(value)
    except (struct.error, ValueError) as error:
        raise CorruptRecordError(f"a voters record of {len(value)} bytes cannot be read: {error}") from None


def _decode_voters(value: bytes) -> dict[ReplicaKey, Endpoint | None]:
    (version,) = struct.unpack_from(">h", value)
    if version != 0:
        raise UnsupportedVersionError(f"voters record of version {version}: a later kraftlog wrote this log")
    count, position = _read_count(value, 2, _MAX_VOTERS)
    voters: dict[ReplicaKey, Endpoint | None] = {}
    for _ in range(count):
        node_id, directory_id = _VOTER.unpack_from(value, position)
        endpoint, position = _read_endpoints(value, position + _VOTER.size)
        position = _skip_tags(value, position + 4)
        position = _skip_tags(value, position)
        voters[ReplicaKey(node_id, directory_id)] = endpoint
    return voters


def _read_endpoints(value: bytes, position: int) -> tuple[Endpoint | None, int]:
    """The first endpoint, and where the array ends."""
    count, position = _read_count(value, position, _MAX_ENDPOINTS)
    first: Endpoint | None = None
    for _ in range(count):
        _, position = _read_string(value, position)
        host, position = _read_string(value, position)
        (port,) = _PORT.unpack_from(value, position)
        position = _skip_tags(value, position + _PORT.size)
        first = first or Endpoint(host, port)
    return first, position


def _array(items: list[bytes]) -> bytes:
    return encode_unsigned(len(items) + 1) + b"".join(items)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _MAX_STRING_BYTES:
        raise ValueError(f"{text[:40]!r}... has {len(data)} bytes, the limit is {_MAX_STRING_BYTES}")
    return encode_unsigned(len(data) + 1) + data


def _read_count(value: bytes, position: int, limit: int) -> tuple[int, int]:
    number, position = read_unsigned(value, position, len(value), 32)
    if not 1 <= number <= limit + 1:
        raise ValueError(f"array of {number - 1} items")
    return number - 1, position


def _read_string(value: bytes, position: int) -> tuple[str, int]:
    size, position = _read_count(value, position, _MAX_STRING_BYTES)
    if size > len(value) - position:
        raise ValueError(f"string of {size} bytes, {len(value) - position} left")
    return value[position : position + size].decode(), position + size


def _skip_tags(value: bytes, position: int) -> int:
    number, position = read_unsigned(value, position, len(value), 32)
    if number:
        raise ValueError("tagged fields are not known")
    return position
