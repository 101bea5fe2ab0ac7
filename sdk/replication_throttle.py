"""Throttles of reassignments (KIP-73): what is set, what a move needs, and what goes when it is done. Pure.

A throttle is two rates of each broker that takes part, and for each topic two lists of replicas, `partition:broker`: those that
the records come from, and those that they go to. Which part of it belongs to reassignments under way is read from the lists:
nobody but a reassignment throttles a replica that is being added. The rest has been set by hand, or was left over, and is
never changed unasked.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kraftlog.proto import admin_pb2
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.types import (
    ClusterNodeDescription,
    PartitionDescription,
    PartitionReassignment,
    ReplicationThrottle,
    TopicDescription,
    TopicPartition,
)

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"
TOPIC_RESOURCE = 2  # Kafka's number
BROKER_RESOURCE = 4

Replicas = Mapping[str, tuple[str, ...]]


class _Side(NamedTuple):
    """Of brokers as leaders, or as followers."""

    rates: Mapping[int, int]
    replicas: Replicas


_KEYS = ((LEADER_RATE, LEADER_REPLICAS), (FOLLOWER_RATE, FOLLOWER_REPLICAS))


def present(nodes: Iterable[ClusterNodeDescription], topics: Iterable[TopicDescription]) -> ReplicationThrottle:
    """All that is set for single brokers and topics."""
    nodes, topics = list(nodes), list(topics)
    return _throttle(
        _Side(
            {node.node_id: int(node.configs[rate]) for node in nodes if rate in node.configs},
            {topic.name: _items(topic.configs[replicas]) for topic in topics if replicas in topic.configs},
        )
        for rate, replicas in _KEYS
    )


def of_reassignments(
    present: ReplicationThrottle, ongoing: Mapping[TopicPartition, PartitionReassignment]
) -> ReplicationThrottle:
    """The part of it that belongs to these reassignments under way."""
    moving = _replicas_of(
        {
            tp: (_without(each.replicas, each.adding_replicas), each.adding_replicas)
            for tp, each in ongoing.items()
            if each.adding_replicas
        }
    )
    lists = [_common(side.replicas, moved) for side, moved in zip(_sides(present), moving, strict=True)]
    brokers = _brokers(*lists)
    return _throttle(
        _Side({broker: rate for broker, rate in side.rates.items() if broker in brokers}, replicas)
        for side, replicas in zip(_sides(present), lists, strict=True)
    )


def needed(
    moves: Mapping[TopicPartition, Sequence[int]],
    described: Mapping[TopicPartition, PartitionDescription],
    bytes_per_second: int,
) -> ReplicationThrottle:
    """For partitions on their way to these replicas; where none is added, nothing."""
    ends: dict[TopicPartition, tuple[Sequence[int], Sequence[int]]] = {}
    for tp, target in moves.items():
        sources = _without(described[tp].replicas, described[tp].adding_replicas)
        added = _without(dict.fromkeys([*target, *described[tp].adding_replicas]), sources)
        if added:
            ends[tp] = (sources, added)
    lists = _replicas_of(ends)
    rates = dict.fromkeys(sorted(_brokers(*lists)), bytes_per_second)
    return _throttle(_Side(rates, replicas) for replicas in lists)


def to_set(
    needed: ReplicationThrottle, present: ReplicationThrottle, running: ReplicationThrottle
) -> ReplicationThrottle:
    """What of it is not as needed, or belongs to reassignments, so that it goes with them.

    Raises `InvalidConfigError` where a broker has another rate that is no running reassignment's.
    """
    sides = list(zip(_KEYS, _sides(needed), _sides(present), _sides(running), strict=True))
    for (key, _), wanted, found, own in sides:
        for broker, rate in wanted.rates.items():
            if found.rates.get(broker, rate) != rate and broker not in own.rates:
                raise InvalidConfigError(
                    f"broker {broker} has {key}={found.rates[broker]}, which was set by hand or left over: remove it"
                    " (kraftctl partition reassign --remove-throttle), or reassign without a throttle"
                )
    return _throttle(
        _Side(
            {broker: rate for broker, rate in wanted.rates.items() if broker not in found.rates or broker in own.rates},
            _but(wanted.replicas, _but(found.replicas, own.replicas)),
        )
        for _, wanted, found, own in sides
    )


def to_remove(
    unwanted: ReplicationThrottle, present: ReplicationThrottle, running: ReplicationThrottle
) -> ReplicationThrottle:
    """What of it is still there as it was set, and is not needed by a reassignment under way."""
    busy = _brokers(running.leader_replicas, running.follower_replicas)
    return _throttle(
        _Side(
            {
                broker: rate
                for broker, rate in side.rates.items()
                if found.rates.get(broker) == rate and broker not in busy
            },
            _but(_common(found.replicas, side.replicas), own.replicas),
        )
        for side, found, own in zip(_sides(unwanted), _sides(present), _sides(running), strict=True)
    )


def throttle_alterations(throttle: ReplicationThrottle, *, is_removal: bool) -> list[admin_pb2.AlterConfigsResource]:
    """What sets it, or takes it away; other replicas in the lists stay."""
    operation, list_operation = (
        (admin_pb2.ConfigChange.DELETE, admin_pb2.ConfigChange.SUBTRACT)
        if is_removal
        else (admin_pb2.ConfigChange.SET, admin_pb2.ConfigChange.APPEND)
    )
    brokers: dict[int, admin_pb2.AlterConfigsResource] = {}
    topics: dict[str, admin_pb2.AlterConfigsResource] = {}
    for (rate_key, list_key), side in zip(_KEYS, _sides(throttle), strict=True):
        for broker, rate in sorted(side.rates.items()):
            resource = brokers.setdefault(broker, _resource(BROKER_RESOURCE, str(broker)))
            resource.changes.add(name=rate_key, operation=operation, value="" if is_removal else str(rate))
        for topic, items in sorted(side.replicas.items()):
            resource = topics.setdefault(topic, _resource(TOPIC_RESOURCE, topic))
            resource.changes.add(name=list_key, operation=list_operation, value=",".join(items))
    return [*brokers.values(), *topics.values()]


def _resource(kind: int, name: str) -> admin_pb2.AlterConfigsResource:
    return admin_pb2.AlterConfigsResource(resource=admin_pb2.ConfigResource(type=kind, name=name))


def _sides(throttle: ReplicationThrottle) -> tuple[_Side, _Side]:
    return (
        _Side(throttle.leader_rates, throttle.leader_replicas),
        _Side(throttle.follower_rates, throttle.follower_replicas),
    )


def _throttle(sides: Iterable[_Side]) -> ReplicationThrottle:
    leader, follower = sides
    return ReplicationThrottle(
        leader_rates=leader.rates,
        follower_rates=follower.rates,
        leader_replicas=leader.replicas,
        follower_replicas=follower.replicas,
    )


def _replicas_of(ends: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]) -> list[Replicas]:
    """`ends`: where the records of each partition come from, and where they go."""
    lists: list[dict[str, tuple[str, ...]]] = [{}, {}]
    for (topic, number), both in sorted(ends.items()):
        for side, brokers in zip(lists, both, strict=True):
            side[topic] = (*side.get(topic, ()), *(f"{number}:{broker}" for broker in brokers))
    return list(lists)


def _common(lists: Replicas, others: Replicas) -> Replicas:
    """Those of `lists` that are in `others`."""
    return _but(lists, _but(lists, others))


def _but(lists: Replicas, others: Replicas) -> Replicas:
    """Those of `lists` that are not in `others`: neither themselves, nor all of their topic."""
    left: dict[str, tuple[str, ...]] = {}
    for topic, items in lists.items():
        gone = frozenset(others.get(topic, ()))
        kept = () if EVERY_REPLICA in gone and EVERY_REPLICA not in items else _without_items(items, gone)
        if kept:
            left[topic] = kept
    return left


def _brokers(*lists: Replicas) -> set[int]:
    return {int(item.partition(":")[2]) for each in lists for items in each.values() for item in items if ":" in item}


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _without_items(items: Iterable[str], gone: frozenset[str]) -> tuple[str, ...]:
    return tuple(item for item in items if item not in gone)


def _without(brokers: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    gone = frozenset(others)
    return tuple(broker for broker in brokers if broker not in gone)
