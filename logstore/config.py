"""Topic configuration: one table of Kafka's keys (and two of ours), and the typed `LogConfig` made from it.

The table serves the controller (validation), describe-configs (defaults and documentation) and the log itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from kraftlog.proto.config import parse_bool, parse_int, reject_unknown
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.records import CompressionType, TimestampType

ConfigType = Literal["int", "long", "boolean", "double", "choice", "list", "replicas"]

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1
_DAY_MS = 24 * 60 * 60 * 1000


class FlushPolicy(Enum):
    """When a write counts as done."""

    ACK = "ack"
    """Once it is synced to disk; `flush.messages` and `flush.ms` play no part."""
    INTERVAL = "interval"
    """Once it is in the page cache, as Kafka does; synced every `flush.ms` or `flush.messages`."""


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """Replicas whose copying is throttled (KIP-73)."""

    pairs: frozenset[tuple[int, int]] = frozenset()
    """(partition, broker)"""
    is_all: bool = False

    def has(self, partition: int, broker: int) -> bool:
        return self.is_all or (partition, broker) in self.pairs

    @classmethod
    def parse(cls, key: str, value: str) -> "ThrottledReplicas":
        """`*`, or a list such as `0:1,0:2`. Raises `InvalidConfigError`."""
        items = _items(value)
        if items == ["*"]:
            return cls(is_all=True)
        return cls(frozenset(_replica(key, item) for item in items))


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One key: its default as text, what values it takes, and what it means."""

    default: str
    type: ConfigType
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    or_else: int | None = None
    """Taken as well, though it is below the minimum."""
    choices: tuple[str, ...] = ()

    def check(self, key: str, value: str) -> None:
        """Raise `InvalidConfigError` unless `value` is legal."""
        if self.or_else is not None and value.strip() == str(self.or_else):
            return
        match self.type:
            case "int":
                parse_int(key, value, minimum=self.minimum, maximum=_INT_MAX if self.maximum is None else self.maximum)
            case "long":
                parse_int(key, value, minimum=self.minimum, maximum=_LONG_MAX if self.maximum is None else self.maximum)
            case "boolean":
                parse_bool(key, value)
            case "double":
                _parse_fraction(key, value)
            case "choice":
                self._check_choice(key, value)
            case "list":
                for item in _items(value) or [""]:
                    self._check_choice(key, item)
            case "replicas":
                ThrottledReplicas.parse(key, value)

    @property
    def is_list(self) -> bool:
        """Whether single items can be appended and subtracted."""
        return self.type in ("list", "replicas")

    def _check_choice(self, key: str, value: str) -> None:
        if value not in self.choices:
            raise InvalidConfigError(f"config {key}={value!r} is none of {', '.join(self.choices)}")


TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    "cleanup.policy": TopicConfig(
        "delete", "list", "delete old segments, compact by key, or both", choices=("delete", "compact")
    ),
    "compression.type": TopicConfig(
        "producer",
        "choice",
        "the codec that batches must have; producer: any",
        choices=("producer", "uncompressed", "none", "gzip", "snappy", "lz4", "zstd"),
    ),
    "delete.retention.ms": TopicConfig(
        str(_DAY_MS), "long", "how long a compacted topic keeps tombstones readable", minimum=0
    ),
    "flush.messages": TopicConfig(
        str(_LONG_MAX), "long", "with flush.policy=interval: sync after so many records", minimum=1
    ),
    "flush.ms": TopicConfig(
        str(_LONG_MAX), "long", "with flush.policy=interval: sync records at most so much later", minimum=0
    ),
    "flush.policy": TopicConfig(
        "ack",
        "choice",
        "ack: acknowledge what is synced to disk; interval: what is in the page cache, as Kafka does",
        choices=("ack", "interval"),
    ),
    "follower.replication.throttled.replicas": TopicConfig(
        "",
        "replicas",
        "replicas that are filled no faster than their brokers' follower.replication.throttled.rate while they are not in"
        " sync: partition:broker, comma-separated, or * for all",
    ),
    "index.interval.bytes": TopicConfig("4096", "int", "bytes of batches per offset index entry", minimum=0),
    "leader.replication.throttled.replicas": TopicConfig(
        "",
        "replicas",
        "replicas that, while they lead, fill others that are not in sync no faster than their brokers'"
        " leader.replication.throttled.rate: partition:broker, comma-separated, or * for all",
    ),
    "max.compaction.lag.ms": TopicConfig(
        str(_LONG_MAX), "long", "after so long a record is compacted whatever the dirty ratio", minimum=1
    ),
    "max.message.bytes": TopicConfig("1048588", "int", "largest record batch accepted, in bytes", minimum=0),
    "message.timestamp.after.max.ms": TopicConfig(
        "3600000", "long", "how far a record's timestamp may lie in the broker's future", minimum=0
    ),
    "message.timestamp.before.max.ms": TopicConfig(
        str(_LONG_MAX), "long", "how far a record's timestamp may lie in the broker's past", minimum=0
    ),
    "message.timestamp.type": TopicConfig(
        "CreateTime", "choice", "who stamps records: producer or broker", choices=("CreateTime", "LogAppendTime")
    ),
    "min.cleanable.dirty.ratio": TopicConfig("0.5", "double", "share of uncompacted bytes from which to compact"),
    "min.compaction.lag.ms": TopicConfig("0", "long", "for so long a record is not compacted", minimum=0),
    "min.insync.replicas": TopicConfig(
        "-1", "int", "replicas that must have a record at acks=all; -1: all but one", minimum=1, or_else=-1
    ),
    "retention.bytes": TopicConfig(
        "-1", "long", "size of a partition from which old segments go; -1: none", minimum=-1
    ),
    "retention.ms": TopicConfig(str(7 * _DAY_MS), "long", "age from which old segments go; -1: none", minimum=-1),
    "segment.bytes": TopicConfig(str(1 << 30), "int", "size at which a new segment starts", minimum=14),
    "segment.index.bytes": TopicConfig(str(10 << 20), "int", "largest index of a segment", minimum=24),
    "segment.ms": TopicConfig(str(7 * _DAY_MS), "long", "age at which a new segment starts", minimum=1),
    "unclean.leader.election.enable": TopicConfig(
        "false", "boolean", "whether a replica that may lack acknowledged records may lead"
    ),
    "validate.records": TopicConfig(
        "full",
        "choice",
        "full: the leader reads every record of a batch (decompressing it); header: only header and CRC",
        choices=("full", "header"),
    ),
}
"""By Kafka's name. Defaults, bounds and meaning are Kafka's; flush.policy and validate.records are ours."""


def validate_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfigError` for an unknown key (with the nearest name), a bad value or a bad pair of values."""
    LogConfig.from_configs(configs)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Typed topic configuration; field names are Kafka's keys in snake case, see `TOPIC_CONFIGS` for their meaning."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: CompressionType | None = None
    """None: whatever the producer used."""
    delete_retention_ms: int = _DAY_MS
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    flush_policy: FlushPolicy = FlushPolicy.ACK
    follower_replication_throttled_replicas: ThrottledReplicas = ThrottledReplicas()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: ThrottledReplicas = ThrottledReplicas()
    max_compaction_lag_ms: int = _LONG_MAX
    max_message_bytes: int = 1048588
    message_timestamp_after_max_ms: int = 3600000
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = -1
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False
    validate_records_fully: bool = True
    """validate.records=full"""

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfigError(
                f"config min.compaction.lag.ms={self.min_compaction_lag_ms} exceeds "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age at which a segment is sealed: what still grows is not compacted (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> "LogConfig":
        """From Kafka's names; keys that are not given have their defaults. Raises `InvalidConfigError`."""
        reject_unknown(configs, TOPIC_CONFIGS, "topic")
        for key, value in configs.items():
            TOPIC_CONFIGS[key].check(key, value.strip())
        text = {key: configs.get(key, known.default).strip() for key, known in TOPIC_CONFIGS.items()}
        return cls(
            cleanup_policy=frozenset(_items(text["cleanup.policy"])),
            compression_type=_compression(text["compression.type"]),
            delete_retention_ms=int(text["delete.retention.ms"]),
            flush_messages=int(text["flush.messages"]),
            flush_ms=int(text["flush.ms"]),
            flush_policy=FlushPolicy(text["flush.policy"]),
            follower_replication_throttled_replicas=ThrottledReplicas.parse(
                "", text["follower.replication.throttled.replicas"]
            ),
            index_interval_bytes=int(text["index.interval.bytes"]),
            leader_replication_throttled_replicas=ThrottledReplicas.parse(
                "", text["leader.replication.throttled.replicas"]
            ),
            max_compaction_lag_ms=int(text["max.compaction.lag.ms"]),
            max_message_bytes=int(text["max.message.bytes"]),
            message_timestamp_after_max_ms=int(text["message.timestamp.after.max.ms"]),
            message_timestamp_before_max_ms=int(text["message.timestamp.before.max.ms"]),
            message_timestamp_type=_timestamp_type(text["message.timestamp.type"]),
            min_cleanable_dirty_ratio=float(text["min.cleanable.dirty.ratio"]),
            min_compaction_lag_ms=int(text["min.compaction.lag.ms"]),
            min_insync_replicas=int(text["min.insync.replicas"]),
            retention_bytes=int(text["retention.bytes"]),
            retention_ms=int(text["retention.ms"]),
            segment_bytes=int(text["segment.bytes"]),
            segment_index_bytes=int(text["segment.index.bytes"]),
            segment_ms=int(text["segment.ms"]),
            unclean_leader_election_enable=parse_bool("", text["unclean.leader.election.enable"]),
            validate_records_fully=text["validate.records"] == "full",
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _replica(key: str, item: str) -> tuple[int, int]:
    partition, separator, broker = item.partition(":")
    if not separator or not (partition + broker).isascii() or not partition.isdigit() or not broker.isdigit():
        raise InvalidConfigError(f"config {key}: {item!r} is no replica: use partition:broker, such as 0:1, or * alone")
    return int(partition), int(broker)


def _compression(text: str) -> CompressionType | None:
    if text == "producer":
        return None
    return CompressionType.NONE if text == "uncompressed" else CompressionType.from_name(text)


def _timestamp_type(text: str) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if text == "LogAppendTime" else TimestampType.CREATE_TIME


def _parse_fraction(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise InvalidConfigError(f"config {key}={value!r} is not a number") from None
    if not 0 <= number <= 1:
        raise InvalidConfigError(f"config {key}={value} is not between 0 and 1")
    return number
