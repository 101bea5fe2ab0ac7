"""Configs that are set for a topic or broker."""

from collections.abc import Callable, Mapping

from kraftlog.kraft.controller.config import MAX_CONFIG_VALUE_CHARACTERS, MAX_CONFIGS_PER_TOPIC
from kraftlog.kraft.image import RESOURCE_TOPIC, PersistentMap
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.metadata_pb2 import ConfigRecord, MetadataRecord
from kraftlog.proto.names import display

ConfigRules = Callable[[Mapping[str, str]], object]
"""Raises `InvalidConfigError` for an unknown topic config key (naming the nearest one) or a bad value."""


class ConfigManager:
    """Used only by the controller. The rules come from outside: what a topic config means is the log store's matter."""

    def __init__(self, registry: SnapshotRegistry, validate_topic_configs: ConfigRules) -> None:
        self._configs: TimelineDict[tuple[int, str], PersistentMap[str, str]] = TimelineDict(registry)
        self._validate_topic_configs = validate_topic_configs

    def check_topic_configs(self, configs: Mapping[str, str]) -> None:
        """Raise `InvalidConfigError` if a topic may not have them."""
        if len(configs) > MAX_CONFIGS_PER_TOPIC:
            raise InvalidConfigError(f"{len(configs)} configs for one topic exceed the limit {MAX_CONFIGS_PER_TOPIC}")
        for key, value in sorted(configs.items()):
            if len(value) > MAX_CONFIG_VALUE_CHARACTERS:
                raise InvalidConfigError(
                    f"config {display(key)}: a value of {len(value)} characters exceeds {MAX_CONFIG_VALUE_CHARACTERS}"
                )
        self._validate_topic_configs(dict(sorted(configs.items())))

    def records_for_topic(self, name: str, configs: Mapping[str, str]) -> list[MetadataRecord]:
        return [
            MetadataRecord(config=ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=name, key=key, value=value))
            for key, value in sorted(configs.items())
        ]

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self._configs.get((resource_type, name), PersistentMap[str, str]())

    def replay(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._configs.get(resource, PersistentMap[str, str]())
        if record.HasField("value"):
            self._configs[resource] = configs.updated({record.key: record.value})
        elif len(configs.updated({}, [record.key])):
            self._configs[resource] = configs.updated({}, [record.key])
        else:
            self._configs.pop(resource, None)

    def forget_topic(self, name: str) -> None:
        """Part of replaying a topic's removal."""
        self._configs.pop((RESOURCE_TOPIC, name), None)
