"""The key partitioner; the vectors hold the hash itself."""

from typing import Any

from kraftlog.proto.partitioner import murmur2, partition_for_key


def test_partition_ignores_the_sign_of_the_hash(twin: Any) -> None:
    """Kafka's toPositive clears the sign bit, it does not take the absolute value."""
    assert murmur2(b"21") == (-973932308) & 0xFFFFFFFF
    assert partition_for_key(b"21", 1000) == (-973932308 & 0x7FFFFFFF) % 1000


def test_any_buffer_is_hashed_alike(twin: Any) -> None:
    for data in (b"", b"a", b"ab", b"abc", b"abcd", b"abcde" * 7):
        assert murmur2(data) == murmur2(bytearray(data)) == murmur2(memoryview(data))


def test_every_partition_is_reached(twin: Any) -> None:
    assert {partition_for_key(b"%d" % key, 6) for key in range(200)} == set(range(6))
