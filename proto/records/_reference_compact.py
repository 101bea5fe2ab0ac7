"""Log compaction in pure Python, record by record: what `_codec_compact.h` must do.

The offset map is one block of 24-byte slots (`_codec_compact.h` has the layout), so its memory is fixed before the
first key. It holds hashes, not keys. A collision of the keyed 128-bit hash would drop a live record; with a random key
for each pass nobody can search for one, and by chance it takes some 2^64 keys.
"""

import struct

from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.records._reference import Buffer, record_timestamp, walk
from kraftlog.proto.varint import encode_zigzag, read_zigzag

SLOT_BYTES = 24
SIP_KEY_BYTES = 16

_SLOT = struct.Struct("<16sQ")
_MASK = (1 << 64) - 1
_MAX_BASE_OFFSET = (1 << 63) - (1 << 31)
_INT64 = 1 << 63
_MAX_RECORD_BYTES = (1 << 31) - 1


def sip_hash(key: Buffer, data: Buffer, /) -> bytes:
    """SipHash-2-4 with 128 bits of output."""
    if len(key) != SIP_KEY_BYTES:
        raise ValueError("sip_hash() needs a key of 16 bytes")
    k0, k1 = struct.unpack("<QQ", key)
    state = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]
    size = len(data)
    whole = size - size % 8
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append((size & 0xFF) << 56 | int.from_bytes(data[whole:], "little"))
    for word in words:
        state[3] ^= word
        _sip_rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xEE
    _sip_rounds(state, 4)
    first = state[0] ^ state[1] ^ state[2] ^ state[3]
    state[1] ^= 0xDD
    _sip_rounds(state, 4)
    return struct.pack("<QQ", first, state[0] ^ state[1] ^ state[2] ^ state[3])


def _sip_rounds(state: list[int], count: int) -> None:
    a, b, c, d = state
    for _ in range(count):
        a = (a + b) & _MASK
        b = (b << 13 & _MASK | b >> 51) ^ a
        a = a << 32 & _MASK | a >> 32
        c = (c + d) & _MASK
        d = (d << 16 & _MASK | d >> 48) ^ c
        a = (a + d) & _MASK
        d = (d << 21 & _MASK | d >> 43) ^ a
        c = (c + b) & _MASK
        b = (b << 17 & _MASK | b >> 47) ^ c
        c = c << 32 & _MASK | c >> 32
    state[:] = a, b, c, d


def _find(table: Buffer, digest: bytes) -> tuple[int, int] | None:
    """(position, offset + 1) of the key's slot or of the free one where it would go; None: neither."""
    slots = len(table) // SLOT_BYTES
    if not slots:
        return None
    start = int.from_bytes(digest[:8], "little") % slots
    for probe in range(slots):
        position = (start + probe) % slots * SLOT_BYTES
        found, stored = _SLOT.unpack_from(table, position)
        if not stored or found == digest:
            return position, stored
    return None


def _check(table: Buffer, sip_key: Buffer, base_offset: int) -> None:
    if len(table) % SLOT_BYTES or len(sip_key) != SIP_KEY_BYTES:
        raise ValueError("a table has slots of 24 bytes and a key of 16")
    if not 0 <= base_offset <= _MAX_BASE_OFFSET:
        raise InvalidRecordError("base offset is out of range")


def add_keys(
    table: bytearray | memoryview,
    sip_key: Buffer,
    section: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    min_offset: int,
    used: int,
    max_used: int,
    /,
) -> tuple[int, int]:
    """Note the offsets of a section's keys from `min_offset` on, in ascending order: the last one of a key counts.

    (used slots, -1), or, when a key would need a slot beyond `max_used`, (used slots, the offset delta of its record):
    that record and those after it are not in the map. Records without a key are passed over.
    """
    _check(table, sip_key, base_offset)
    for offset_delta, _, key, _, _ in walk(section, record_count, last_offset_delta):
        offset = base_offset + offset_delta
        if key is None or offset < min_offset:
            continue
        digest = sip_hash(sip_key, key)
        found = _find(table, digest)
        if found is None or (not found[1] and used >= max_used):
            return used, offset_delta
        used += not found[1]
        _SLOT.pack_into(table, found[0], digest, offset + 1)
    return used, -1


def filter_records(
    table: Buffer,
    sip_key: Buffer,
    section: Buffer,
    record_count: int,
    last_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    end_offset: int,
    drop_tombstones: bool,
    horizon: int | None,
    force_horizon: bool,
    /,
) -> tuple[int, int, bool, bytes | None]:
    """What compaction leaves of a section: (records, largest timestamp or -1, whether the horizon is set, section).

    The section is None if it stays as it is. Records from `end_offset` on stay. Below it those without a key go, and
    those whose key has a later offset in the map, and with `drop_tombstones` those without a value.

    With a `horizon` in ms, survivors among which there is a tombstone (any survivors with `force_horizon`) have their
    timestamps counted from it: it is to be the batch's base timestamp (KIP-534). Else deltas stay as they are.
    """
    _check(table, sip_key, base_offset)
    data = bytes(section)
    kept: list[tuple[bytes, int]] = []
    largest, has_tombstones, position = -1, False, 0
    for offset_delta, timestamp_delta, key, value, _ in walk(data, record_count, last_offset_delta):
        start, timestamp = position, record_timestamp(base_timestamp, timestamp_delta, offset_delta)
        size, body = read_zigzag(data, position, len(data), 32)
        position = body + size
        offset = base_offset + offset_delta
        if offset < end_offset:
            if key is None or (value is None and drop_tombstones):
                continue
            found = _find(table, sip_hash(sip_key, key))
            if found is not None and found[1] - 1 > offset:
                continue
        has_tombstones |= value is None
        largest = timestamp if not kept else max(largest, timestamp)
        kept.append((data[start:position], timestamp))
    if horizon is not None and kept and (has_tombstones or force_horizon):
        return len(kept), largest, True, b"".join(_rebased(record, at, horizon) for record, at in kept)
    return len(kept), largest, False, None if len(kept) == record_count else b"".join(record for record, _ in kept)


def _rebased(record: bytes, timestamp: int, horizon: int) -> bytes:
    """The record with its timestamp as a difference to `horizon`."""
    delta = timestamp - horizon
    if not -_INT64 <= delta < _INT64:
        raise InvalidRecordError(f"timestamp {timestamp} is too far from the delete horizon {horizon}")
    _, body = read_zigzag(record, 0, len(record), 32)
    _, rest = read_zigzag(record, body + 1, len(record))
    offset_delta, rest = read_zigzag(record, rest, len(record), 32)
    key_size, after_key = read_zigzag(record, rest, len(record), 32)
    after_key += max(key_size, 0)
    value_size, after_value = read_zigzag(record, after_key, len(record), 32)
    after_value += max(value_size, 0)
    header_count, headers = read_zigzag(record, after_value, len(record), 32)
    encoded = b"\0%b%b%b%b%b%b%b%b" % (
        encode_zigzag(delta),
        encode_zigzag(offset_delta),
        encode_zigzag(key_size),
        record[after_key - max(key_size, 0) : after_key],
        encode_zigzag(value_size),
        record[after_value - max(value_size, 0) : after_value],
        encode_zigzag(header_count),
        record[headers:],
    )
    if len(encoded) > _MAX_RECORD_BYTES:
        raise InvalidRecordError(f"record of {len(encoded)} bytes does not fit in 32 bits")
    return encode_zigzag(len(encoded)) + encoded
