"""Raw Snappy blocks in pure Python: the fallback where the C twin is missing.

A block is the plain size as an unsigned varint, then elements. The low two bits of an element's first byte say what it
is: 0 a literal (length - 1 in the upper six bits, or in the next 1-4 little-endian bytes for 60-63), 1 a copy of 4-11
bytes with an 11-bit offset, 2 a copy of 1-64 bytes with a 16-bit offset, 3 one with a 32-bit offset.
"""

from kraftlog.proto.errors import InvalidRecordError
from kraftlog.proto.varint import encode_unsigned, read_unsigned

Buffer = bytes | bytearray | memoryview

_BLOCK = 1 << 16  # matches reach back at most this far, so that 16-bit offsets do
_MAX_EXPANSION = 64  # a 3-byte copy gives at most 64 bytes: what claims more is a lie


def compress(data: Buffer, /) -> bytes:
    """One raw block. Finds matches of four bytes and more with one table of earlier positions."""
    plain = bytes(data)
    out = bytearray(encode_unsigned(len(plain)))
    for start in range(0, len(plain), _BLOCK):
        _compress_block(plain[start : start + _BLOCK], out)
    return bytes(out)


def _compress_block(plain: bytes, out: bytearray) -> None:
    seen: dict[bytes, int] = {}
    end = len(plain)
    literal = position = 0
    misses = 32  # after 32 misses in a row look at every second position, and so on
    while position + 4 <= end:
        word = plain[position : position + 4]
        candidate = seen.get(word)
        seen[word] = position
        if candidate is None:
            position += misses >> 5
            misses += 1
            continue
        misses = 32
        length = 4
        while position + length < end and plain[candidate + length] == plain[position + length]:
            length += 1
        _put_literal(out, plain[literal:position])
        _put_copy(out, position - candidate, length)
        position += length
        literal = position
    _put_literal(out, plain[literal:])


def _put_literal(out: bytearray, literal: bytes) -> None:
    size = len(literal)
    if not size:
        return
    if size <= 60:
        out.append((size - 1) << 2)
    elif size <= 256:
        out += bytes((60 << 2, size - 1))
    else:
        out.append(61 << 2)
        out += (size - 1).to_bytes(2, "little")
    out += literal


def _put_copy(out: bytearray, offset: int, length: int) -> None:
    while length:
        step = min(length, 64)
        out.append((step - 1) << 2 | 2)
        out += offset.to_bytes(2, "little")
        length -= step


def decompress(data: Buffer, limit: int, /) -> bytes:
    """The plain bytes of one raw block; `InvalidRecordError` if it is damaged or gives more than `limit` bytes."""
    block = bytes(data)
    end = len(block)
    try:
        size, position = read_unsigned(block, 0, end, 32)
    except ValueError as error:
        raise InvalidRecordError(f"snappy size: {error}") from None
    if size > limit:
        raise InvalidRecordError(f"snappy block of {size} bytes exceeds the limit of {limit}")
    if size > end * _MAX_EXPANSION:
        raise InvalidRecordError(f"snappy block claims {size} bytes from {end}")
    out = bytearray()
    while position < end:
        tag = block[position]
        position += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                if width > end - position:
                    raise InvalidRecordError("snappy literal is cut")
                length = int.from_bytes(block[position : position + width], "little") + 1
                position += width
            if length > end - position or length > size - len(out):
                raise InvalidRecordError("snappy literal runs past the end")
            out += block[position : position + length]
            position += length
            continue
        width = (0, 1, 2, 4)[kind]
        if width > end - position:
            raise InvalidRecordError("snappy copy is cut")
        offset = int.from_bytes(block[position : position + width], "little")
        position += width
        if kind == 1:
            length = (tag >> 2 & 7) + 4
            offset |= (tag & 0xE0) << 3
        else:
            length = (tag >> 2) + 1
        if not 0 < offset <= len(out) or length > size - len(out):
            raise InvalidRecordError("snappy copy points outside of the block")
        pattern = bytes(out[-offset:][:length])
        out += (pattern * (length // len(pattern) + 1))[:length]
    if len(out) != size:
        raise InvalidRecordError(f"snappy block gave {len(out)} bytes instead of {size}")
    return bytes(out)
