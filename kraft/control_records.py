"""The control records of the metadata log, in Kafka's bytes (KIP-595, KIP-853), so that Kafka's tools read them.

A control batch holds one record, with the key of `proto.records.control`. Here are the values. Integers are big-endian; `uvarint` is an unsigned varint; a compact array of n starts
with uvarint n + 1; every structure ends with uvarint 0 (no tagged fields).

    type 2  int16 version 1 | int32 leader id | compact array of voters | compact array of granting voters
            voter: int32 node id | 16 bytes directory id
    type 6  int16 version 0 | compact array of voters
            voter: int32 node id | 16 bytes directory id | compact array of endpoints (empty here) |
                   lowest and highest supported kraft.version, int16 each, as a structure
"""

import struct

from kraftlog.kraft.raft import ReplicaKey, Voters
from kraftlog.proto.errors import CorruptRecordError, UnsupportedVersionError
from kraftlog.proto.varint import encode_unsigned, read_unsigned

_VOTER = struct.Struct(">i16s")
_NO_TAGS = b"\x00"
_MAX_KRAFT_VERSION = 1
_MAX_VOTERS = 1000  # far beyond any quorum: a bound on what a damaged count may allocate


def encode_leader_change(leader: ReplicaKey, voters: Voters) -> bytes:
    members = _array([_VOTER.pack(*voter) + _NO_TAGS for voter in sorted(voters)])
    return struct.pack(">hi", 1, leader.node_id) + members + _array([]) + _NO_TAGS


def encode_voters(voters: Voters) -> bytes:
    feature = struct.pack(">hh", 0, _MAX_KRAFT_VERSION) + _NO_TAGS
    members = [_VOTER.pack(*voter) + _array([]) + feature + _NO_TAGS for voter in sorted(voters)]
    return struct.pack(">h", 0) + _array(members) + _NO_TAGS


def decode_voters(value: bytes | None) -> Voters:
    """The voters of a type 6 record."""
    if value is None:
        raise CorruptRecordError("a voters record without a value")
    try:
        return _decode_voters(value)
    except (struct.error, ValueError) as error:
        raise CorruptRecordError(f"a voters record of {len(value)} bytes cannot be read: {error}") from None


def _decode_voters(value: bytes) -> Voters:
    (version,) = struct.unpack_from(">h", value)
    if version != 0:
        raise UnsupportedVersionError(f"voters record of version {version}: a later kraftlog wrote this log")
    count, position = _read_count(value, 2)
    voters: set[ReplicaKey] = set()
    for _ in range(count):
        node_id, directory_id = _VOTER.unpack_from(value, position)
        endpoints, position = _read_count(value, position + _VOTER.size)
        if endpoints:
            raise UnsupportedVersionError("a voters record with endpoints: a later kraftlog wrote this log")
        position = _skip_tags(value, position + 4)
        position = _skip_tags(value, position)
        voters.add(ReplicaKey(node_id, directory_id))
    return frozenset(voters)


def _array(items: list[bytes]) -> bytes:
    return encode_unsigned(len(items) + 1) + b"".join(items)


def _read_count(value: bytes, position: int) -> tuple[int, int]:
    number, position = read_unsigned(value, position, len(value), 32)
    if not 1 <= number <= _MAX_VOTERS:
        raise ValueError(f"array of {number - 1} items")
    return number - 1, position


def _skip_tags(value: bytes, position: int) -> int:
    number, position = read_unsigned(value, position, len(value), 32)
    if number:
        raise ValueError("tagged fields are not known")
    return position
