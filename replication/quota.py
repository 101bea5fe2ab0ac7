"""How fast replicas that are not in sync may be filled (KIP-73): `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` of a broker, for the replicas in the topics' lists of throttled ones.

- A rate holds for all streams of the broker together. It bounds what is sent; a batch is never cut, so a large one is paid for
  afterwards.
- Who waits does so for a *turn*: the moment at which all that was spent before it asked is paid. Each turn is worth a piece,
  and several streams that wait take turns by themselves, because each one's piece puts off the others' next turn. What goes in
  a turn is paid from the moment on at which it was due, so a busy event loop, which is late, does not lower the rate.
- Followers for which the high watermark waits are never throttled: their leader leaves both lists out of account.

Pure. Used from one event loop.
"""

import math
from collections.abc import Callable

from kraftlog.kraft.image import RESOURCE_BROKER, MetadataDelta, MetadataImage
from kraftlog.replication.partition import Partition
from kraftlog.replication.throttle import Throttle

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MAX_PIECE_BYTES = 1 << 20  # as much as is read of a partition at a time
PIECES_PER_SECOND = 10  # so many turns at least: at a low rate, small pieces keep the flow even
EVERY_BROKER = ""  # the name of the resource with the defaults of all


class ReplicationQuota:
    """Of a broker as leader, or as follower."""

    def __init__(self, covers: Callable[[Partition], bool]) -> None:
        """`covers`: whether the topic's list has this broker's replica."""
        self._covers = covers
        self.throttle = Throttle()

    @classmethod
    def of_leader(cls, node_id: int) -> "ReplicationQuota":
        return cls(
            lambda partition: partition.log.config.leader_replication_throttled_replicas.has(
                partition.partition, node_id
            )
        )

    @classmethod
    def of_follower(cls, node_id: int) -> "ReplicationQuota":
        return cls(
            lambda partition: partition.log.config.follower_replication_throttled_replicas.has(
                partition.partition, node_id
            )
        )

    def holds_for(self, partition: Partition) -> bool:
        """Whether the partition is throttled here, as far as its followers are not in sync."""
        return self.throttle.is_limited and self._covers(partition)

    @property
    def piece_bytes(self) -> int:
        """What a turn is worth, at least one batch."""
        return max(int(min(self.throttle.bytes_per_second / PIECES_PER_SECOND, MAX_PIECE_BYTES)), 1)


class ReplicationQuotas:
    """Both, as the metadata have them: a publisher."""

    def __init__(self, node_id: int, now_ms: Callable[[], float], on_change: Callable[[], None]) -> None:
        """`on_change`: a rate is another one."""
        self._node_id = node_id
        self._now_ms = now_ms
        self._on_change = on_change
        self.leader = ReplicationQuota.of_leader(node_id)
        self.follower = ReplicationQuota.of_follower(node_id)

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if all(kind != RESOURCE_BROKER for kind, _ in delta.changed_configs):
            return
        has_changed = False
        for key, quota in ((LEADER_RATE, self.leader), (FOLLOWER_RATE, self.follower)):
            rate = self._rate(key, image)
            if rate != quota.throttle.bytes_per_second:
                quota.throttle.set_rate(rate, self._now_ms())
                has_changed = True
        if has_changed:
            self._on_change()

    def _rate(self, key: str, image: MetadataImage) -> float:
        """The broker's own, else that of all brokers, else none."""
        own, common = (image.configs(RESOURCE_BROKER, name) for name in (str(self._node_id), EVERY_BROKER))
        text = own.get(key, common.get(key))
        return math.inf if text is None else float(text)
