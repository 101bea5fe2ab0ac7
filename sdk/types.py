"""The values that clients take and return. All are immutable and may cross threads and processes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kraftlog.proto.records import Record as ConsumerRecord

__all__ = [
    "ConsumerRecord",
    "Headers",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

Headers = Sequence[tuple[str, bytes | None]]
"""Record headers in order; a name may repeat."""


class TopicPartition(NamedTuple):
    """One partition of a topic. Sorts by topic, then number; equals a plain tuple."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What a group commits: the offset of the *next* record to read, with a note of the application."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    """Epoch of the last record read; -1: unknown."""


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """Answer of `offsets_for_times`: the first record at or after the asked time."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written and what the acknowledgment promises."""

    topic: str
    partition: int
    offset: int
    """-1 when unknown: with acks=0, or for a retry that the broker had stored long before."""
    timestamp: int
    """Milliseconds since the epoch; the broker's with message.timestamp.type=LogAppendTime."""
    durability: str = ""
    """`none` (acks=0), `leader-memory`, `leader-fsync`, `quorum-memory` or `quorum-fsync`."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A broker as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str = ""
    fenced: bool = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    num_partitions: int = -1
    """-1: the cluster's num.partitions."""
    replication_factor: int = -1
    """-1: the cluster's default.replication.factor."""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    partition: int
    leader_id: int
    """-1: no leader."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    partition_epoch: int = -1
    eligible_leader_replicas: tuple[int, ...] = ()
    """Not in sync, but with everything that was acknowledged: they may lead (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """Were in sync or eligible before a stop that may have cost them records."""
    recovering: bool = False
    """Led by a replica that may lack acknowledged records, after an unclean election."""
    adding_replicas: tuple[int, ...] = ()
    """Of `replicas`: those that a reassignment is filling."""
    removing_replicas: tuple[int, ...] = ()
    """Of `replicas`: those that leave when the reassignment is done."""
    min_in_sync_replicas: int = 1
    """What acks=all needs: min.insync.replicas, or all replicas if they are fewer."""
    flushed: bool = True
    """All that was acknowledged is on the disks of the replicas in sync. Not so with flush.policy=interval, and after a
    switch to ack until they have flushed: a broker that stops uncleanly then counts as having lost records."""

    @property
    def is_offline(self) -> bool:
        """Nobody leads: no reads, no writes."""
        return self.leader_id < 0

    @property
    def is_under_replicated(self) -> bool:
        """Fewer replicas are in sync than it has, without those that are being added."""
        return len(self.in_sync_replicas) < len(self.replicas) - len(self.adding_replicas)

    @property
    def is_under_min_isr(self) -> bool:
        """Writes with acks=all are refused."""
        return len(self.in_sync_replicas) < self.min_in_sync_replicas

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Its replicas when no reassignment is under way any more."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """On its way to other replicas (KIP-455)."""

    replicas: tuple[int, ...]
    """Those that it is to have, then those that leave."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]

    @property
    def target_replicas(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationThrottle:
    """How fast replicas that are not in sync are filled (KIP-73): two rates of brokers, and the replicas for which they hold."""

    leader_rates: Mapping[int, int] = field(default_factory=dict)
    """Bytes a second that a broker sends to such replicas, by broker."""
    follower_rates: Mapping[int, int] = field(default_factory=dict)
    """Bytes a second that a broker asks for, for its own such replicas, by broker."""
    leader_replicas: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where the records come from, by topic: `partition:broker`, or `*`."""
    follower_replicas: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where they go."""

    def __bool__(self) -> bool:
        return bool(self.leader_rates or self.follower_rates or self.leader_replicas or self.follower_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: str
    """22 characters, as Kafka spells it."""
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    """What the topic sets itself; `describe_configs` shows all that hold."""
    stale: bool = False
    """Only with allow_stale: no controller confirmed that there is nothing newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    name: str
    topic_id: str
    """22 characters, as Kafka spells it."""
    num_partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str
    source: str
    """`default`, `broker` (its file), `topic`, or `dynamic` and `dynamic default`: set for one broker, or for all, and changed
    while they run."""
    documentation: str = ""
    stale: bool = False
    """Only with allow_stale: no controller confirmed that there is nothing newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNodeDescription:
    node_id: int
    host: str
    port: int
    rack: str
    fenced: bool
    broker_epoch: int
    roles: tuple[str, ...]
    configs: Mapping[str, str] = field(default_factory=dict)
    """What is set for this broker and changes while it runs; `describe_configs` shows all that hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    nodes: tuple[ClusterNodeDescription, ...]
    metadata_log_end_offset: int
    metadata_high_watermark: int
    metadata_leader_epoch: int
    version: str
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """What is set for all brokers and changes while they run."""
    stale: bool = False
    """Only with allow_stale: no controller confirmed that there is nothing newer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """A node as the leader of the metadata quorum sees it; -1: not known."""

    node_id: int
    directory_id: str
    """Of the log directory with the metadata log: 22 characters, as Kafka spells it."""
    host: str
    """Where the node listens for controllers; empty: unknown."""
    port: int
    log_end_offset: int
    """Exclusive end of what it has on disk."""
    lag: int
    """Records of the leader that it lacks."""
    last_fetch_timestamp_ms: int
    """When the leader last heard from it, by the leader's clock."""
    last_caught_up_timestamp_ms: int
    """When it last had all that the leader had, by the leader's clock."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}" if self.host else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The metadata quorum (KIP-836)."""

    leader_id: int
    """-1: unknown."""
    leader_epoch: int
    high_watermark: int
    """Exclusive end of what is committed."""
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    """Those that follow at the moment."""
    described_by: int
    """The node whose knowledge this is."""
    stale: bool = False
    """Only with allow_stale: no leader answered, so `described_by` tells what it knew last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """One replica on a broker's disk."""

    topic: str
    partition: int
    size_bytes: int
    """Of its batches, without indexes."""
    segments: int
    log_start_offset: int
    log_end_offset: int
    flushed_end_offset: int
    """Everything below is synced."""
    recovery_point: int
    """From here on the log is checked at a start that follows an unclean stop."""
    cleanup_policy: tuple[str, ...]
    cleaned_to_offset: int
    """Compacted below; 0: never."""
    problem: str
    """Why the log takes no writes; empty: it does."""
    uncleanable_reason: str
    """Why the log is not compacted any more; empty: it is, if its policy says so."""
    uncleanable_since_ms: int
    """Milliseconds since the epoch; -1 without a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """A directory in which a broker keeps logs."""

    node_id: int
    path: str
    error: str
    """Why the directory is offline; empty: it is not."""
    size_bytes: int
    """Of all of its logs, also those that were not asked for."""
    logs: tuple[LogDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberDescription:
    member_id: str
    group_instance_id: str
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    """`Empty`, `PreparingRebalance`, `CompletingRebalance`, `Stable` or `Dead`."""
    protocol_type: str
    protocol_name: str
    generation_id: int
    leader: str
    members: tuple[GroupMemberDescription, ...]
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed offset with its distance to the end of the partition."""

    topic: str
    partition: int
    offset: int
    log_start_offset: int
    log_end_offset: int
    lag: int
    """Records that the group has not read yet. An offset below the log's start counts from the start."""
    metadata: str = ""
