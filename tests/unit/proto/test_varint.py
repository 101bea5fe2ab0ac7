"""Varints: limits of the types, padding, and bytes that are no number."""

import pytest

from kraftlog.proto.varint import encode_unsigned, encode_zigzag, read_unsigned, read_zigzag


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, (1 << 32) - 1, 1 << 63, (1 << 64) - 1])
def test_unsigned_round_trip(number: int) -> None:
    data = encode_unsigned(number)
    assert read_unsigned(b"x" + data + b"y", 1, 1 + len(data)) == (number, 1 + len(data))


@pytest.mark.parametrize("number", [0, -1, 1, 63, -64, 64, -65, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)])
def test_zigzag_round_trip(number: int) -> None:
    data = encode_zigzag(number)
    assert read_zigzag(data, 0, len(data)) == (number, len(data))


def test_numbers_out_of_range_are_refused() -> None:
    for number in (-1, 1 << 64):
        with pytest.raises(ValueError, match="64 unsigned bits"):
            encode_unsigned(number)
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="64 signed bits"):
            encode_zigzag(number)


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        (b"", 64),
        (b"\x80", 64),
        (b"\x80" * 10, 64),
        (b"\x80" * 9 + b"\x02", 64),
        (b"\x80" * 10 + b"\x00", 64),
        (b"\x80" * 4 + b"\x10", 32),
        (b"\x80" * 5 + b"\x00", 32),
    ],
)
def test_cut_or_too_long_is_refused(data: bytes, bits: int) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_unsigned(data, 0, len(data), bits)


def test_nothing_is_read_past_the_end() -> None:
    with pytest.raises(ValueError, match="cut"):
        read_unsigned(b"\x80\x01", 0, 1)


def test_padding_with_zero_groups_is_legal() -> None:
    assert read_unsigned(b"\x80" * 9 + b"\x00", 0, 10) == (0, 10)
    assert read_zigzag(b"\x82\x80\x80\x80\x00", 0, 5, 32) == (1, 5)
