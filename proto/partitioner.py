"""Which partition a key belongs to: Kafka's murmur2, so that keys land where Kafka's Java client puts them."""

from kraftlog.proto.records import backend

Buffer = bytes | bytearray | memoryview


def murmur2(data: Buffer) -> int:
    """Kafka's 32-bit murmur2 of `data` as an unsigned number (`Utils.murmur2` gives the same bits signed)."""
    return backend.current.murmur2(data)


def partition_for_key(key: Buffer, count: int) -> int:
    """The partition of `key` among `count`: the hash without its sign bit, modulo the count (`Utils.toPositive`)."""
    return (backend.current.murmur2(key) & 0x7FFFFFFF) % count
