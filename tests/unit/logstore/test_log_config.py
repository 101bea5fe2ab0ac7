"""Topic configuration: Kafka's keys, defaults and bounds."""

import dataclasses

import pytest

from kraftlog.logstore.config import TOPIC_CONFIGS, FlushPolicy, LogConfig, validate_topic_configs
from kraftlog.proto.config import snake
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.records import CompressionType, TimestampType


def test_no_configs_give_the_defaults() -> None:
    assert LogConfig.from_configs({}) == LogConfig()


def test_every_key_has_a_field_and_a_meaning() -> None:
    fields = {field.name for field in dataclasses.fields(LogConfig)} - {"validate_records_fully"}
    assert {snake(key) for key in TOPIC_CONFIGS} == fields | {"validate_records"}
    assert all(config.doc for config in TOPIC_CONFIGS.values())


def test_values_are_parsed() -> None:
    config = LogConfig.from_configs(
        {
            "cleanup.policy": "compact, delete",
            "compression.type": "zstd",
            "flush.policy": "interval",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "retention.ms": " -1 ",
            "segment.bytes": "1048576",
            "unclean.leader.election.enable": "TRUE",
            "validate.records": "header",
        }
    )
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.is_compacted
    assert config.compression_type is CompressionType.ZSTD
    assert config.flush_policy is FlushPolicy.INTERVAL
    assert config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.retention_ms == -1
    assert config.segment_bytes == 1 << 20
    assert config.unclean_leader_election_enable
    assert not config.validate_records_fully


def test_compression_none_is_not_the_producers_choice() -> None:
    assert LogConfig().compression_type is None
    for name in ("none", "uncompressed"):
        assert LogConfig.from_configs({"compression.type": name}).compression_type is CompressionType.NONE


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(InvalidConfigError, match=r"'retention.mss' \(topic\): did you mean 'retention.ms'"):
        validate_topic_configs({"retention.mss": "1"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("retention.ms", str(1 << 63)),
        ("segment.bytes", "13"),
        ("segment.bytes", str(1 << 31)),
        ("max.message.bytes", "-1"),
        ("flush.messages", "0"),
        ("min.insync.replicas", "0"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ""),
        ("compression.type", "brotli"),
        ("flush.policy", "never"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "half"),
        ("unclean.leader.election.enable", "perhaps"),
        ("validate.records", "some"),
    ],
)
def test_a_bad_value_names_key_and_value(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match=key):
        validate_topic_configs({key: value})


def test_a_bad_pair_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms=10 exceeds max.compaction.lag.ms=5"):
        validate_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
