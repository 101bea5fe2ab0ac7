"""Which partition of `__consumer_offsets` coordinates a group: Kafka's `Utils.abs(groupId.hashCode) % partitions`."""

_INT32_MASK = 0xFFFFFFFF
_INT32_SIGN = 0x80000000


def java_string_hash(text: str) -> int:
    """`java.lang.String.hashCode`: over UTF-16 code units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & _INT32_MASK
    return value - (1 << 32) if value & _INT32_SIGN else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition whose leader coordinates `group_id`."""
    value = java_string_hash(group_id)
    # Kafka's Utils.abs: Integer.MIN_VALUE has no positive twin and counts as 0.
    positive = 0 if value == -_INT32_SIGN else abs(value)
    return positive % partition_count
