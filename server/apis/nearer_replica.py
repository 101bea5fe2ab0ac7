"""Which replica should serve a reader: one in its own rack, so that records cross racks once and not for every reader (KIP-392).

The leader chooses, because it knows who is in sync and how far. What a follower serves is what the leader would: whole batches
below a high watermark that it has from the leader, only later.
"""

from collections.abc import Mapping

from kraftlog.kraft.image import BrokerImage
from kraftlog.replication.partition import Partition


def nearer_replica(
    partition: Partition, brokers: Mapping[int, BrokerImage], rack: str, fetch_offset: int
) -> int | None:
    """The follower in `rack` that is in sync, live and furthest, and has what comes before `fetch_offset`; None: stay with
    this leader, as always when it is in that rack itself."""
    own = brokers.get(partition.node_id)
    if own is None or own.rack == rack:
        return None
    ends = partition.follower_ends
    able = [
        replica
        for replica in sorted(partition.in_sync_replicas & ends.keys())
        if ends[replica].log_end_offset >= fetch_offset and _is_live_in(rack, brokers.get(replica))
    ]
    return max(able, key=lambda replica: ends[replica].log_end_offset, default=None)


def _is_live_in(rack: str, broker: BrokerImage | None) -> bool:
    return broker is not None and broker.rack == rack and not (broker.is_fenced or broker.in_controlled_shutdown)
