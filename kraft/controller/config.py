"""Defaults and bounds of the controller."""

from dataclasses import dataclass

MAX_PARTITIONS_PER_TOPIC = 10_000
MAX_PARTITIONS_PER_REQUEST = 10_000  # one request is one batch of about 60 bytes a partition; Kafka's limit too
MAX_TOPICS_PER_REQUEST = 2_000
MAX_REPLICATION_FACTOR = 32_767  # Kafka's field is an int16
MAX_CONFIGS_PER_TOPIC = 200
MAX_RESOURCES_PER_REQUEST = 2_000  # of an alteration of configs
MAX_ELECTIONS_PER_BATCH = 2_000  # 60 us each: the event loop has other things to do; at most 100 bytes each
MAX_LOSSES_PER_BATCH = 50_000  # must be in the batch of the registration; still below MAX_OPERATION_BYTES
MAX_ELECTIONS_PER_BALANCE = 1_000  # Kafka's MAX_ELECTIONS_PER_IMBALANCE: clients follow in steps
MAX_FEATURES = 100
MAX_CONFIG_VALUE_CHARACTERS = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    num_partitions: int = 1
    """Partitions of a topic that asks for -1. Kafka's num.partitions."""

    default_replication_factor: int | None = None
    """Replicas of a topic that asks for -1. None: min(3, live brokers). Kafka's default.replication.factor."""

    internal_replication_factor: int | None = None
    """Replicas that internal topics are raised to when brokers join, as far as there are brokers. None: as many as a topic
    that asks for -1, or 3. Kafka's offsets.topic.replication.factor."""

    max_replication_factor: int = MAX_REPLICATION_FACTOR
    """More replicas of a partition are refused."""

    broker_session_timeout_ms: int = 3000
    """A broker without a heartbeat for this long is fenced. Kafka's broker.session.timeout.ms."""

    min_insync_replicas: int = 1
    """Of a topic that does not set it; must be what the brokers take. -1: one less than it has replicas, at least one.
    Kafka's min.insync.replicas."""

    unclean_leader_election_enable: bool = False
    """Of a topic that does not set it. Kafka's unclean.leader.election.enable."""

    default_flush_policy: str = "ack"
    """Of a topic that does not set flush.policy: whether a replica has all that it acknowledged after an unclean stop."""

    auto_leader_rebalance_enable: bool = True
    """Whether leadership returns to preferred leaders by itself. Kafka's auto.leader.rebalance.enable."""

    leader_imbalance_check_interval_seconds: int = 300
    """Kafka's leader.imbalance.check.interval.seconds."""

    leader_imbalance_per_broker_percentage: int = 10
    """A broker gets leaderships back when more than this share of the partitions that prefer it has another leader.
    Kafka's leader.imbalance.per.broker.percentage."""

    max_topics: int = 100_000
    """Topics in the cluster before more are refused."""

    max_partitions: int = 200_000
    """Partitions in the cluster before more are refused; what a quorum on ordinary machines carries."""

    max_pending_operations: int = 10_000
    """Operations that wait for their commit before more are refused."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise ValueError(f"num_partitions={self.num_partitions} is not within 1..{MAX_PARTITIONS_PER_TOPIC}")
        if not 1 <= self.max_replication_factor <= MAX_REPLICATION_FACTOR:
            raise ValueError(
                f"max_replication_factor={self.max_replication_factor} is not within 1..{MAX_REPLICATION_FACTOR}"
            )
        for name in ("default_replication_factor", "internal_replication_factor"):
            factor = getattr(self, name)
            if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
                raise ValueError(f"{name}={factor} is not within 1..{MAX_REPLICATION_FACTOR}")
        if self.broker_session_timeout_ms < 1:
            raise ValueError(f"broker_session_timeout_ms={self.broker_session_timeout_ms} is below 1")
        if self.min_insync_replicas < 1 and self.min_insync_replicas != -1:
            raise ValueError(f"min_insync_replicas={self.min_insync_replicas} is neither -1 nor 1 or more")
        for name in (
            "leader_imbalance_check_interval_seconds",
            "max_topics",
            "max_partitions",
            "max_pending_operations",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1")
        if not 0 <= self.leader_imbalance_per_broker_percentage <= 100:
            raise ValueError(
                f"leader_imbalance_per_broker_percentage={self.leader_imbalance_per_broker_percentage}"
                " is not within 0..100"
            )
