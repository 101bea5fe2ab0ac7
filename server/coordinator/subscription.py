"""The one thing that the coordinator looks at inside of a member's subscription: its topics.

Kafka's `ConsumerProtocolSubscription`, all versions: int16 version, int32 count, that many strings (int16 length and
UTF-8), then fields that change from one join to the next (user data, owned partitions, generation, rack).
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def same_subscription(protocol_type: str, old: bytes, new: bytes) -> bool:
    """Whether a member that comes back wants the same topics; of foreign protocols, whether it says the same bytes."""
    if old == new:
        return True
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    topics = subscribed_topics(old)
    return topics is not None and topics == subscribed_topics(new)


def subscribed_topics(metadata: bytes) -> frozenset[bytes] | None:
    """The topics of a `ConsumerProtocolSubscription`; None if the bytes are not one."""
    try:
        (version,) = _INT16.unpack_from(metadata, 0)
        (count,) = _INT32.unpack_from(metadata, 2)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length])
            position += length
    except struct.error:
        return None
    return frozenset(topics)
