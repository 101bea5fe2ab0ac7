"""Configs of brokers that are in the metadata and change while the brokers run: of one broker, or (broker "") of all.

They are set like those of topics, with `kraftctl broker alter` or `Admin.alter_configs`, and no file knows them.
"""

from collections.abc import Mapping

from kraftlog.logstore.config import TopicConfig
from kraftlog.replication.quota import FOLLOWER_RATE, LEADER_RATE

NO_LIMIT = str((1 << 63) - 1)  # Kafka's default: Long.MAX_VALUE

BROKER_CONFIGS: Mapping[str, TopicConfig] = {
    # Kafka takes 0, too: such a replica would never come into sync, and nothing would say why.
    FOLLOWER_RATE: TopicConfig(
        NO_LIMIT,
        "long",
        "bytes a second that the broker asks for at most, for its replicas in follower.replication.throttled.replicas of"
        " their topics that are not in sync",
        minimum=1,
    ),
    LEADER_RATE: TopicConfig(
        NO_LIMIT,
        "long",
        "bytes a second that the broker sends at most, of the partitions that it leads and that are in"
        " leader.replication.throttled.replicas of their topics, to replicas that are not in sync",
        minimum=1,
    ),
}
"""By Kafka's name."""


def validate_broker_configs(configs: Mapping[str, str]) -> None:
    """Raise `InvalidConfigError` for a bad value."""
    for key, value in configs.items():
        BROKER_CONFIGS[key].check(key, value)
