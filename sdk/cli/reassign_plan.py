"""Which replicas partitions should have: the fewest moves that give each of them as many as wanted, on brokers that may be
used, one in each rack as far as there are racks, and the same load on all. Pure.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kraftlog.proto.errors import InvalidReplicationFactorError, InvalidRequestError
from kraftlog.sdk.types import PartitionDescription, TopicPartition

Plan = dict[TopicPartition, tuple[int, ...]]


class Planner:
    """Decides partition by partition, and counts what it has given to whom."""

    def __init__(self, racks: Mapping[int, str], everything: Iterable[PartitionDescription]) -> None:
        """`racks`: rack by id of the brokers that may be used; `everything`: all partitions of the cluster, for the load."""
        self._racks = dict(racks)
        self._replicas: Counter[int] = Counter()
        self._preferred: Counter[int] = Counter()
        for partition in everything:
            self._count(partition.target_replicas, 1)

    def replicas_of(
        self, where: TopicPartition, partition: PartitionDescription, factor: int | None
    ) -> tuple[int, ...]:
        """`factor` None: as many as it has. Raises `InvalidReplicationFactorError` where there are not so many brokers."""
        current = partition.target_replicas
        wanted = len(current) if factor is None else factor
        if not 1 <= wanted <= len(self._racks):
            raise InvalidReplicationFactorError(
                f"{where}: {wanted} replicas need as many live brokers that may be used, there are {len(self._racks)}"
            )
        self._count(current, -1)
        staying = self._staying(partition, wanted)
        added = self._added(staying, wanted - len(staying))
        replicas = _in_places(current, staying, added)
        if set(replicas) != set(current):  # who leads is free, once all are in sync
            first = min(replicas, key=lambda broker: (self._preferred[broker], replicas.index(broker)))
            replicas = (first, *(broker for broker in replicas if broker != first))
        self._count(replicas, 1)
        return replicas

    def _staying(self, partition: PartitionDescription, wanted: int) -> list[int]:
        """In order; of too many, those that lead or are in sync, and then the first."""
        able = [broker for broker in partition.target_replicas if broker in self._racks]
        in_sync = partition.in_sync_replicas
        best = sorted(able, key=lambda broker: (broker != partition.leader_id, broker not in in_sync))
        chosen = set(best[:wanted])
        return [broker for broker in able if broker in chosen]

    def _added(self, staying: Sequence[int], count: int) -> list[int]:
        added: list[int] = []
        while len(added) < count:
            taken = {*staying, *added}
            used_racks = {self._racks[broker] for broker in taken}
            free = [broker for broker in self._racks if broker not in taken]
            added.append(
                min(free, key=lambda broker: (self._racks[broker] in used_racks, self._replicas[broker], broker))
            )
        return added

    def _count(self, replicas: Sequence[int], sign: int) -> None:
        for broker in replicas:
            self._replicas[broker] += sign
        if replicas:
            self._preferred[replicas[0]] += sign


def _in_places(current: Sequence[int], staying: Sequence[int], added: Sequence[int]) -> tuple[int, ...]:
    """What is added takes the places of what goes."""
    left = iter(added)
    replicas = [broker if broker in staying else next(left, None) for broker in current]
    return tuple(broker for broker in [*replicas, *left] if broker is not None)


def read_plan(path: Path) -> Plan:
    """A file in Kafka's format: `{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}`."""
    try:
        document = json.loads(path.read_text("utf-8"))
        plan = {
            TopicPartition(str(each["topic"]), int(each["partition"])): tuple(map(int, each["replicas"]))
            for each in document["partitions"]
        }
        is_whole = len(plan) == len(document["partitions"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{path} is no plan of a reassignment: {type(error).__name__}: {error}") from None
    if not is_whole:
        raise InvalidRequestError(f"{path} names a partition twice")
    return plan


def plan_document(plan: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """The same, as a document: what `--dry-run` shows can be carried out by `--plan`, or by Kafka's own tool."""
    return {
        "version": 1,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
            for tp, replicas in sorted(plan.items())
        ],
    }
