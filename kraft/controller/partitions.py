"""The state of all partitions, and who has to do with which: what a broker's failure or return concerns."""

from kraftlog.kraft.image import NO_LEADER, PartitionImage
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict

PartitionKey = tuple[bytes, int]
"""Topic id and partition."""


class _Index:
    """Broker -> set of partitions. A set per broker; empty ones stay."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._sets: dict[int, TimelineDict[PartitionKey, None]] = {}

    def change(self, key: PartitionKey, before: tuple[int, ...], after: tuple[int, ...]) -> None:
        if before == after:
            return
        for node_id in before:
            if node_id not in after:
                del self._sets[node_id][key]
        for node_id in after:
            if node_id not in before:
                if node_id not in self._sets:
                    self._sets[node_id] = TimelineDict(self._registry)
                self._sets[node_id][key] = None

    def count(self, node_id: int) -> int:
        return len(self._sets.get(node_id, ()))

    def of(self, node_id: int) -> list[PartitionKey]:
        return sorted(self._sets.get(node_id, ()))

    def nodes(self) -> list[int]:
        """Those with a set that is not empty."""
        return sorted(node_id for node_id, keys in self._sets.items() if keys)


class PartitionStore:
    """Used only by the controller; changed only by its replay. Lists are in key order, whatever hashes are."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._partitions: TimelineDict[PartitionKey, PartitionImage] = TimelineDict(registry)
        self._led_by = _Index(registry)
        self._in_sync = _Index(registry)
        self._eligible = _Index(registry)
        self._preferring = _Index(registry)
        self._not_led_by_preferred = _Index(registry)
        self._reassigning: TimelineDict[PartitionKey, None] = TimelineDict(registry)

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, key: PartitionKey) -> PartitionImage | None:
        return self._partitions.get(key)

    def __getitem__(self, key: PartitionKey) -> PartitionImage:
        return self._partitions[key]

    def items(self) -> list[tuple[PartitionKey, PartitionImage]]:
        return [(key, self._partitions[key]) for key in sorted(self._partitions)]

    def led_by(self, node_id: int) -> list[PartitionKey]:
        return self._led_by.of(node_id)

    def led_count(self, node_id: int) -> int:
        return self._led_by.count(node_id)

    def without_leader(self) -> list[PartitionKey]:
        return self._led_by.of(NO_LEADER)

    def in_sync_with(self, node_id: int) -> list[PartitionKey]:
        """Where the broker is in the ISR; so also all that it leads."""
        return self._in_sync.of(node_id)

    def in_sync_count(self, node_id: int) -> int:
        return self._in_sync.count(node_id)

    def in_sync_nodes(self) -> list[int]:
        """Brokers that are in some ISR."""
        return self._in_sync.nodes()

    def eligible_for(self, node_id: int) -> list[PartitionKey]:
        """Where the broker is in the ELR."""
        return self._eligible.of(node_id)

    def eligible_nodes(self) -> list[int]:
        return self._eligible.nodes()

    def preferring_count(self, node_id: int) -> int:
        """How many partitions have this broker as their preferred leader."""
        return self._preferring.count(node_id)

    def imbalanced_nodes(self) -> list[int]:
        return self._not_led_by_preferred.nodes()

    def imbalanced(self, node_id: int) -> list[PartitionKey]:
        """Partitions that prefer this broker as leader and have another one, or none."""
        return self._not_led_by_preferred.of(node_id)

    def reassigning(self) -> list[PartitionKey]:
        return sorted(self._reassigning)

    @property
    def reassigning_count(self) -> int:
        return len(self._reassigning)

    def recovering(self) -> list[tuple[PartitionKey, PartitionImage]]:
        """Led uncleanly, and the leader has not recovered; looks at every partition."""
        return [(key, partition) for key, partition in self.items() if partition.is_recovering]

    def put(self, key: PartitionKey, partition: PartitionImage | None) -> None:
        """Part of replaying a record. None: the partition is deleted."""
        before = self._partitions.get(key)
        if partition is None:
            self._partitions.pop(key, None)
        else:
            self._partitions[key] = partition
        self._led_by.change(key, _leader(before), _leader(partition))
        self._in_sync.change(
            key, before.in_sync_replicas if before else (), partition.in_sync_replicas if partition else ()
        )
        self._eligible.change(
            key,
            before.eligible_leader_replicas if before else (),
            partition.eligible_leader_replicas if partition else (),
        )
        self._preferring.change(key, _preferred(before), _preferred(partition))
        self._not_led_by_preferred.change(key, _missed(before), _missed(partition))
        if partition is not None and partition.is_reassigning:
            self._reassigning[key] = None
        elif before is not None and before.is_reassigning:
            del self._reassigning[key]


def _leader(partition: PartitionImage | None) -> tuple[int, ...]:
    return () if partition is None else (partition.leader_id,)


def _preferred(partition: PartitionImage | None) -> tuple[int, ...]:
    return () if partition is None else partition.replicas[:1]


def _missed(partition: PartitionImage | None) -> tuple[int, ...]:
    return () if partition is None or partition.leader_id == partition.replicas[0] else partition.replicas[:1]
