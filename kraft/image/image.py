"""The committed metadata at one offset. Every value here is immutable and safe from any thread."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlog.kraft.image.completed_operations import CompletedOperations
from kraftlog.kraft.image.persistent import PersistentMap

NO_LEADER = -1
NO_DIRECTORY = bytes(16)  # Kafka's DirectoryId.UNASSIGNED
RESOURCE_TOPIC = 2  # Kafka's ConfigResource.Type
RESOURCE_BROKER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    """`leader_epoch` grows with each election, `partition_epoch` with each change; both start at 0."""

    partition: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    leader_id: int
    """A member of `in_sync_replicas`, or NO_LEADER."""
    leader_epoch: int
    partition_epoch: int
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    """Left the ISR when it fell below min.insync.replicas: they have all that was acknowledged and may lead (KIP-966)."""
    last_known_elr: tuple[int, ...] = ()
    """Were in the ISR or ELR before a stop that may have cost them records; led by one of them only as an unclean leader."""
    is_recovering: bool = False
    """The leader was elected although it may lack acknowledged records, and has not said yet that it is ready (KIP-704)."""
    directories: tuple[bytes, ...] = ()
    """Directory of each replica, in the order of `replicas`; NO_DIRECTORY where it is not known. Empty: of none."""
    is_flushed: bool = False
    """Each replica in the ISR or ELR has on disk all that was acknowledged, and acknowledgments wait for the disk: an
    unclean stop costs none of them its place. Else some may have been acknowledged from memory (`flush.policy`)."""

    @property
    def is_reassigning(self) -> bool:
        """Whether it is on its way from `original_replicas` to `target_replicas` (KIP-455)."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Its replicas when no reassignment is under way any more."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)

    @property
    def original_replicas(self) -> tuple[int, ...]:
        """Those that it had before the reassignment; the whole time through, min.insync.replicas is held against
        their number, so that replicas that are only just being filled neither stop writes nor allow any."""
        return tuple(replica for replica in self.replicas if replica not in self.adding_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where clients of one listener reach a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    node_id: int
    incarnation_id: bytes
    broker_epoch: int
    """Offset of the registration record."""
    host: str
    port: int
    rack: str
    is_fenced: bool
    """A fenced broker leads nothing and gets no clients."""
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    """Ids of the directories that work."""
    features: Mapping[str, tuple[int, int]] = field(default_factory=PersistentMap)
    """Feature -> lowest and highest level that the broker works with; empty: metadata.version 1 alone."""
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """One for each listener that serves clients; `host` and `port` are those for other brokers."""

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Where to send a client that came in on `listener`: to the same listener of this broker, or nowhere. A broker that
        has told no listeners has one for all."""
        if not self.endpoints:
            return BrokerEndpoint(listener, self.host, self.port)
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


_NO_CONFIGS: Mapping[str, str] = PersistentMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """Iteration of every mapping is in key order."""

    offset: int = -1
    """Last offset included; -1 for the empty image."""
    leader_epoch: int = 0
    """Of the record at `offset`."""
    topics: PersistentMap[str, TopicImage] = field(default_factory=PersistentMap)
    topic_names: PersistentMap[bytes, str] = field(default_factory=PersistentMap)
    """By topic id."""
    brokers: PersistentMap[int, BrokerImage] = field(default_factory=PersistentMap)
    resource_configs: PersistentMap[tuple[int, str], PersistentMap[str, str]] = field(default_factory=PersistentMap)
    """(resource type, name) -> what is set there; defaults are not included."""
    features: PersistentMap[str, int] = field(default_factory=PersistentMap)
    next_producer_id: int = 0
    completed_operations: CompletedOperations = field(default_factory=CompletedOperations)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What is set for a topic (RESOURCE_TOPIC) or broker; empty if nothing is."""
        return self.resource_configs.get((resource_type, name), _NO_CONFIGS)

    def live_brokers(self) -> tuple[BrokerImage, ...]:
        """Those that are not fenced, by id."""
        return tuple(broker for broker in self.brokers.values() if not broker.is_fenced)


EMPTY_IMAGE = MetadataImage()
