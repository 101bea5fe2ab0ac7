"""Topics that do not set flush.policy follow the controllers' default, which may be another one after a restart.

To `interval`: the partitions stop being flushed, and only then do their leaders acknowledge from memory. To `ack` there is
nothing to do: who leads with that policy says by itself when all is flushed (`in_sync_replicas`).
"""

from itertools import islice

from kraftlog.kraft.controller.config import MAX_ELECTIONS_PER_BATCH
from kraftlog.kraft.controller.partition_change import flush_policy_change_of
from kraftlog.kraft.controller.topics import TopicManager
from kraftlog.proto.metadata_pb2 import MetadataRecord


class FlushDefaults:
    """Used only by the controller. Decides; the state is the partition store's."""

    def __init__(self, topics: TopicManager) -> None:
        self._topics = topics
        self._is_due = True
        """Whether some may be flushed that should not be. Soft state."""

    def restart(self) -> None:
        """Another controller has taken over, perhaps with another default."""
        self._is_due = True

    def records(self) -> list[MetadataRecord]:
        """The next batch; empty when every partition is as the policies say."""
        if not self._is_due:
            return []
        partitions = self._topics.partitions
        wrong = (
            flush_policy_change_of(key[0], partition)
            for key, partition in partitions.items()
            if partition.is_flushed and not self._topics.rules_of(key[0]).flushes_before_ack
        )
        records = list(islice(wrong, MAX_ELECTIONS_PER_BATCH))
        self._is_due = bool(records)
        return records
