"""Defaults and bounds of the controller."""

from dataclasses import dataclass

MAX_PARTITIONS_PER_TOPIC = 10_000
MAX_PARTITIONS_PER_REQUEST = 10_000  # one request is one batch of about 60 bytes a partition; Kafka's limit too
MAX_TOPICS_PER_REQUEST = 2_000
MAX_REPLICATION_FACTOR = 32_767  # Kafka's field is an int16
MAX_CONFIGS_PER_TOPIC = 200
MAX_CONFIG_VALUE_CHARACTERS = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    num_partitions: int = 1
    """Partitions of a topic that asks for -1. Kafka's num.partitions."""

    default_replication_factor: int | None = None
    """Replicas of a topic that asks for -1. None: min(3, live brokers). Kafka's default.replication.factor."""

    broker_session_timeout_ms: int = 3000
    """A broker without a heartbeat for this long is fenced. Kafka's broker.session.timeout.ms."""

    max_pending_operations: int = 10_000
    """Operations that wait for their commit before more are refused."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_partitions <= MAX_PARTITIONS_PER_TOPIC:
            raise ValueError(f"num_partitions={self.num_partitions} is not within 1..{MAX_PARTITIONS_PER_TOPIC}")
        factor = self.default_replication_factor
        if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
            raise ValueError(f"default_replication_factor={factor} is not within 1..{MAX_REPLICATION_FACTOR}")
        if self.broker_session_timeout_ms < 1:
            raise ValueError(f"broker_session_timeout_ms={self.broker_session_timeout_ms} is below 1")
        if self.max_pending_operations < 1:
            raise ValueError(f"max_pending_operations={self.max_pending_operations} is below 1")
