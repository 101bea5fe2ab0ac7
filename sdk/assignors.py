"""Who gets which partition: Kafka's range and round-robin assignors. Pure; run by the group's leader member.

Members are in order of their instance id if they have one, before those that have none, then of their member id, as in
Kafka, so that a group of mixed clients agrees with itself after a change of leader.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kraftlog.sdk.consumer_protocol import Subscription
from kraftlog.sdk.types import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """One member as the assignor sees it."""

    member_id: str
    subscription: Subscription
    group_instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        return (self.group_instance_id is None, self.group_instance_id or self.member_id)


class Assignor(Protocol):
    """Splits partitions among members."""

    name: str

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Partitions by member id; every member has an entry. Topics without a count do not exist."""
        ...


class RangeAssignor:
    """Each topic's partitions in contiguous ranges, so that equal numbers of two topics meet at one member."""

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic, takers in _takers_by_topic(members).items():
            count = partition_counts.get(topic, 0)
            per_member, extra = divmod(count, len(takers))
            start = 0
            for index, member in enumerate(takers):
                size = per_member + (index < extra)
                assigned[member.member_id] += (TopicPartition(topic, p) for p in range(start, start + size))
                start += size
        return assigned


class RoundRobinAssignor:
    """All partitions of all topics, dealt out one by one; members that do not want a topic are passed over."""

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        line = sorted(members, key=lambda member: member.rank)
        wanted = {member.member_id: set(member.subscription.topics) for member in line}
        turn = 0
        for topic in _takers_by_topic(members):
            for partition in range(partition_counts.get(topic, 0)):
                while topic not in wanted[line[turn % len(line)].member_id]:
                    turn += 1
                assigned[line[turn % len(line)].member_id].append(TopicPartition(topic, partition))
                turn += 1
        return assigned


ASSIGNORS: Mapping[str, Assignor] = {"range": RangeAssignor(), "roundrobin": RoundRobinAssignor()}


def _takers_by_topic(members: Sequence[MemberSubscription]) -> dict[str, list[MemberSubscription]]:
    """The members that want each topic, in order; topics by name."""
    takers: dict[str, list[MemberSubscription]] = {}
    for member in sorted(members, key=lambda member: member.rank):
        for topic in dict.fromkeys(member.subscription.topics):
            takers.setdefault(topic, []).append(member)
    return dict(sorted(takers.items()))
