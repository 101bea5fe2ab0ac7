"""Variable-length integers: base 128, least significant group first, as protobuf and Kafka's records use them.

`unsigned` ones carry 7 bits a byte; `zigzag` ones map 0, -1, 1, -2 ... to 0, 1, 2, 3 ... first. Readers take a
position, return (value, next position) and raise `ValueError` for a number that is cut, longer than its type allows or
out of its range. A number may be padded with zero groups, as Kafka and protobuf accept it.
"""

Buffer = bytes | bytearray | memoryview

MAX_BYTES_32 = 5
MAX_BYTES_64 = 10
_TABLE_SIZE = 1 << 14  # numbers of one and two bytes
_U64 = (1 << 64) - 1


def _encode(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


UNSIGNED = [_encode(number) for number in range(_TABLE_SIZE)]
"""Encodings of the small numbers; looking up beats computing by five times."""


def encode_unsigned(number: int) -> bytes:
    """A number from 0 to 2^64 - 1."""
    if 0 <= number < _TABLE_SIZE:
        return UNSIGNED[number]
    if not 0 <= number <= _U64:
        raise ValueError(f"{number} does not fit in 64 unsigned bits")
    return _encode(number)


def encode_zigzag(number: int) -> bytes:
    """A signed number of at most 64 bits."""
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{number} does not fit in 64 signed bits")
    return encode_unsigned(number << 1 if number >= 0 else ~(number << 1))


def read_unsigned(buffer: Buffer, position: int, end: int, bits: int = 64) -> tuple[int, int]:
    """(number, next position); reads nothing at or after `end`."""
    number = shift = 0
    while position < end:
        byte = buffer[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> bits:
                raise ValueError(f"varint of more than {bits} bits")
            return number, position
        shift += 7
        if shift >= bits:
            raise ValueError(f"varint of more than {bits} bits")
    raise ValueError("varint is cut")


def read_zigzag(buffer: Buffer, position: int, end: int, bits: int = 64) -> tuple[int, int]:
    """(signed number, next position); reads nothing at or after `end`."""
    number, position = read_unsigned(buffer, position, end, bits)
    return (number >> 1) ^ -(number & 1), position
