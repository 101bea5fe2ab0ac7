"""NodeConfig: Kafka's keys, checked in one place."""

import dataclasses
import math

import pytest

from kraftlog.logstore.config import TOPIC_CONFIGS
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.server.config import TOPIC_DEFAULT_KEYS, NodeConfig
from kraftlog.server.listeners import Listener


def test_defaults_need_nothing() -> None:
    """An empty file is a valid configuration."""
    config = NodeConfig.from_properties({})
    assert config == NodeConfig()
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert not config.auto_create_topics_enable


def test_kafkas_keys_are_read() -> None:
    """Numbers, booleans, lists, listeners and topic defaults."""
    config = NodeConfig.from_properties(
        {
            "node.id": " 7 ",
            "listeners": "PLAINTEXT://0.0.0.0:0",
            "advertised.listeners": "PLAINTEXT://broker.example:9092",
            "log.dirs": "/data",
            "num.partitions": "6",
            "auto.create.topics.enable": "true",
            "message.max.bytes": "2000000",
            "flush.policy": "interval",
            "log.retention.hours": "24",
        }
    )
    assert config.node_id == 7
    assert config.listeners == (Listener("PLAINTEXT", "0.0.0.0", 0),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "broker.example", 9092),)
    assert (config.log_dir, config.num_partitions, config.auto_create_topics_enable) == ("/data", 6, True)
    assert config.topic_defaults == {
        "max.message.bytes": "2000000",
        "flush.policy": "interval",
        "retention.ms": "86400000",
    }


def test_an_unknown_key_names_the_nearest_one() -> None:
    """A misspelt key is an error, never ignored."""
    with pytest.raises(InvalidConfigError) as caught:
        NodeConfig.from_properties({"num.partitons": "3"})
    assert str(caught.value) == (
        "unknown config key 'num.partitons' (node configuration): did you mean 'num.partitions'?"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node.id", "x"),
        ("node.id", "-1"),
        ("node.id", str(2**31)),
        ("listeners", "127.0.0.1:9092"),
        ("listeners", "PLAINTEXT://127.0.0.1"),
        ("listeners", "PLAINTEXT://127.0.0.1:65536"),
        ("listeners", "EXTERNAL://127.0.0.1:1"),
        ("listeners", "A B://127.0.0.1:1"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2"),
        ("listeners", "PLAINTEXT://a:1,SSL://a:1"),
        ("listeners", ""),
        ("advertised.listeners", "SSL://a:1"),
        ("inter.broker.listener.name", "SSL"),
        ("controller.listener.names", "CONTROLLER"),
        ("listener.security.protocol.map", "A"),
        ("listener.security.protocol.map", "A:SASL_SSL"),
        ("listener.security.protocol.map", "A:SSL,a:PLAINTEXT"),
        ("listener.name.internal.ssl.client.auth", "none"),
        ("listener.name.plaintext.ssl.client.auth", "maybe"),
        ("listener.name.plaintext.ssl.client.outh", "none"),
        ("listener.name.plaintext.num.partitions", "2"),
        ("ssl.client.auth", "requested"),
        ("ssl.keystore.type", "JKS"),
        ("ssl.endpoint.identification.algorithm", "ldaps"),
        ("process.roles", "observer"),
        ("process.roles", ""),
        ("log.dirs", "/a,/b"),
        ("num.partitions", "0"),
        ("default.replication.factor", "0"),
        ("auto.create.topics.enable", "maybe"),
        ("group.min.session.timeout.ms", "9999999"),
        ("log.retention.hours", "-2"),
        ("flush.policy", "sometimes"),
        ("message.max.bytes", "-1"),
        *(
            (key, value)
            for key in (
                "log.cleaner.threads",
                "log.cleaner.backoff.ms",
                "log.cleaner.dedupe.buffer.size",
                "log.cleaner.io.max.bytes.per.second",
                "log.cleaner.max.compaction.lag.ms",
                "offsets.topic.segment.bytes",
            )
            for value in ("0", "-1", "many", "", "nan")
        ),
        ("log.cleaner.enable", "maybe"),
        ("log.cleaner.threads", "65"),
        ("offsets.topic.segment.bytes", "13"),
        ("offsets.retention.check.interval.ms", "0"),
        ("log.cleaner.dedupe.buffer.size", "1048575"),
        ("log.cleaner.min.cleanable.ratio", "1.1"),
        ("log.cleaner.min.cleanable.ratio", "-0.1"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.cleaner.min.compaction.lag.ms", "-1"),
        ("log.cleaner.delete.retention.ms", "-1"),
        ("log.cleanup.policy", "compress"),
    ],
)
def test_bad_values_name_the_key(key: str, value: str) -> None:
    """Each refusal is one line that names the key."""
    with pytest.raises(InvalidConfigError) as caught:
        NodeConfig.from_properties({key: value})
    assert key in str(caught.value) or TOPIC_DEFAULT_KEYS.get(key, "?") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_compaction_threads_share_the_memory_and_each_needs_some() -> None:
    config = NodeConfig.from_properties({"log.cleaner.threads": "4", "log.cleaner.io.max.bytes.per.second": "1e6"})
    assert (config.cleaner_limits.map_bytes, config.cleaner_limits.bytes_per_second) == (32 << 20, 1e6)
    assert NodeConfig().cleaner_limits.bytes_per_second == math.inf
    shared = {"log.cleaner.dedupe.buffer.size": str(4 << 20), "log.cleaner.threads": "4"}
    assert NodeConfig.from_properties(shared).cleaner_limits.map_bytes == 1 << 20
    with pytest.raises(InvalidConfigError, match=r"buffer\.size=4194304 is less than 1048576 bytes for each of .*=5"):
        NodeConfig.from_properties({**shared, "log.cleaner.threads": "5"})


def test_aliases_may_not_contradict() -> None:
    """log.dir and log.dirs say the same or one of them is a mistake."""
    assert NodeConfig.from_properties({"log.dir": "/a", "log.dirs": "/a"}).log_dir == "/a"
    with pytest.raises(InvalidConfigError, match="contradicts"):
        NodeConfig.from_properties({"log.dir": "/a", "log.dirs": "/b"})


def test_every_topic_default_is_a_topic_config() -> None:
    """The two tables cannot drift apart."""
    assert set(TOPIC_DEFAULT_KEYS.values()) <= set(TOPIC_CONFIGS)


def test_every_setting_has_a_key_and_is_described() -> None:
    """describe-configs shows all of them, in the words of the file; reading those again gives the same values."""
    keys = {setting.metadata["key"] for setting in dataclasses.fields(NodeConfig) if setting.metadata}
    described = NodeConfig().described()
    assert set(described) == keys
    assert NodeConfig.from_properties({key: value for key, (value, _) in described.items()}) == NodeConfig()
    assert not any(is_set for _, is_set in described.values())
    assert NodeConfig.from_properties({"log.retention.ms": "5"}).described()["log.retention.ms"] == ("5", True)
