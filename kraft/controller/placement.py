"""Where replicas go: round robin from a start position, over racks first (Kafka's AdminUtils rule).

The first replica of partition p is broker (start + p) of the arranged list, so leaders spread evenly. The others
follow with a distance that grows on each round over the list, so that the followers of one broker's leaders spread as
well. No two replicas share a rack while a rack without one is left.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest


def place(racks: Mapping[int, str], partition_count: int, replication_factor: int, start: int) -> list[tuple[int, ...]]:
    """Replicas of each partition, preferred leader first. `racks`: usable broker -> rack (may be empty), at least
    `replication_factor` of them. `start` is any number."""
    assert 1 <= replication_factor <= len(racks)
    arranged = _arrange(racks)
    return [_replicas(arranged, racks, start, partition, replication_factor) for partition in range(partition_count)]


def extend(
    replicas: Sequence[int], racks: Mapping[int, str], replication_factor: int, load: Mapping[int, int]
) -> tuple[int, ...]:
    """More replicas behind those that there are, up to so many if there are enough usable brokers in `racks`: in racks
    without one first, then on the brokers with the least `load`."""
    extended = list(replicas)
    while len(extended) < replication_factor and racks.keys() - extended:
        used_racks = {racks[broker] for broker in extended if broker in racks}
        extended.append(
            min(
                racks.keys() - extended,
                key=lambda broker: (racks[broker] in used_racks, load.get(broker, 0), broker),
            )
        )
    return tuple(extended)


def _arrange(racks: Mapping[int, str]) -> list[int]:
    """Brokers taken from the racks in turn, so that neighbours differ in rack as far as possible."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for taken in rounds for broker in taken if broker is not None]


def _replicas(
    arranged: list[int], racks: Mapping[int, str], start: int, partition: int, replication_factor: int
) -> tuple[int, ...]:
    count = len(arranged)
    rack_count = len(set(racks.values()))
    first, shift = (start + partition) % count, partition // count
    replicas = [arranged[first]]
    used_racks = {racks[arranged[first]]}
    step = 0
    while len(replicas) < replication_factor:
        broker = arranged[(first + 1 + (shift + step) % (count - 1)) % count]
        step += 1
        if broker in replicas or (racks[broker] in used_racks and len(used_racks) < rack_count):
            continue
        replicas.append(broker)
        used_racks.add(racks[broker])
    return tuple(replicas)
