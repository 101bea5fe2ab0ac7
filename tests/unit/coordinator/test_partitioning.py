"""A group is coordinated by the partition that Kafka would take."""

import pytest

from kraftlog.server.coordinator.partitioning import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units: 0xd83d * 31 + 0xde00
    ],
)
def test_hash_is_that_of_a_java_string(text: str, expected: int) -> None:
    """`java.lang.String.hashCode`: s[0] * 31^(n-1) + ... over UTF-16 code units, in 32 bits."""
    assert java_string_hash(text) == expected


def test_every_group_has_a_partition() -> None:
    """`Utils.abs` makes the smallest int 0; every other hash counts without its sign."""
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 22
    assert all(0 <= partition_for(f"group-{n}", 50) < 50 for n in range(1_000))
    assert len({partition_for(f"group-{n}", 50) for n in range(1_000)}) == 50
