"""Internal topics follow the cluster as it grows: made on one broker, they get more replicas when others join.

The cluster has made them itself, when it first needed them, with min(3, live brokers) replicas; a cluster that has grown
since would lose its groups with its first broker. So whenever brokers come, partitions of internal topics that have fewer
replicas than they would be made with now are reassigned to more (KIP-455). Nothing is ever lowered.

Topics of users are left alone: whether one replica was meant so is not in the metadata, and copying them is for somebody to
decide (`kraftctl partition reassign -r 3`).
"""

from collections import Counter
from collections.abc import Sequence

from kraftlog.kraft.controller.brokers import BrokerManager
from kraftlog.kraft.controller.config import MAX_ELECTIONS_PER_BATCH, ControllerConfig
from kraftlog.kraft.controller.placement import extend
from kraftlog.kraft.controller.reassignments import ReassignmentManager
from kraftlog.kraft.controller.topics import TopicManager
from kraftlog.proto.metadata_pb2 import MetadataRecord
from kraftlog.proto.names import INTERNAL_TOPICS


class ReplicationRaiser:
    """Used only by the controller. Decides; the state is the partition store's."""

    def __init__(
        self,
        config: ControllerConfig,
        topics: TopicManager,
        brokers: BrokerManager,
        reassignments: ReassignmentManager,
    ) -> None:
        self._factor = config.internal_replication_factor or config.default_replication_factor or 3
        self._topics = topics
        self._brokers = brokers
        self._reassignments = reassignments
        self._is_due = True
        """Whether some may lack replicas. Soft state."""

    def brokers_changed(self) -> None:
        """Part of replaying a record; or another controller has taken over."""
        self._is_due = True

    def records(self) -> list[MetadataRecord]:
        """The next batch of reassignments; empty when there is none to begin."""
        if not self._is_due:
            return []
        racks = self._brokers.usable_racks()
        factor = min(self._factor, len(racks))
        partitions, records = self._topics.partitions, list[MetadataRecord]()
        replicas = Counter({node_id: partitions.in_sync_count(node_id) for node_id in racks})
        preferred = Counter({node_id: partitions.preferring_count(node_id) for node_id in racks})
        self._is_due = False
        for topic_id in self._internal_topics():
            for number in range(self._topics.partition_count(topic_id)):
                partition = partitions[topic_id, number]
                if len(partition.target_replicas) >= factor:
                    continue
                self._is_due = True  # until it has them, whatever becomes of the record
                if partition.is_reassigning:
                    continue
                extended = extend(partition.replicas, racks, factor, replicas)
                target = _with_first(extended, preferred)
                replicas.update(set(target) - set(partition.replicas))
                preferred.subtract(partition.replicas[:1])
                preferred.update(target[:1])
                record = self._reassignments.begin((topic_id, number), partition, target)
                if record is not None:
                    records.append(record)
                if len(records) == MAX_ELECTIONS_PER_BATCH:
                    return records
        return records

    def _internal_topics(self) -> list[bytes]:
        found = (self._topics.topic_id(name) for name in sorted(INTERNAL_TOPICS))
        return [topic_id for topic_id in found if topic_id is not None]


def _with_first(replicas: Sequence[int], preferred: Counter[int]) -> tuple[int, ...]:
    """The one that is the preferred leader of the fewest goes to the front, if that makes it more even."""
    first = min(replicas, key=lambda node_id: preferred[node_id])
    if preferred[first] + 1 >= preferred[replicas[0]]:
        first = replicas[0]
    return (first, *(node_id for node_id in replicas if node_id != first))
