"""Configs that are set for a topic, for one broker, or (broker "") for all brokers."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kraftlog.kraft.controller.config import (
    MAX_CONFIG_VALUE_CHARACTERS,
    MAX_CONFIGS_PER_TOPIC,
    MAX_RESOURCES_PER_REQUEST,
)
from kraftlog.kraft.controller.result import Result
from kraftlog.kraft.image import RESOURCE_BROKER, RESOURCE_TOPIC, PersistentMap
from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict
from kraftlog.proto.admin_pb2 import (
    AlterConfigsResource,
    ConfigChange,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.proto.config import reject_unknown, unknown_key
from kraftlog.proto.errors import InvalidConfigError, InvalidRequestError, KraftlogError, PolicyViolationError, code_of
from kraftlog.proto.metadata_pb2 import ConfigRecord, MetadataRecord
from kraftlog.proto.names import display

ResourceKey = tuple[int, str]
"""Resource type and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSchema:
    """Which configs there are. It comes from outside: what a config means is the log store's or the node's matter."""

    names: Collection[str] = frozenset()
    validate: Callable[[Mapping[str, str]], object] = lambda configs: None
    """Raises `InvalidConfigError` for a bad value, or for values that do not go together."""
    list_defaults: Mapping[str, str] = field(default_factory=dict)
    """Those that are lists, to which may be appended, with their defaults."""


class ConfigManager:
    """Used only by the controller."""

    def __init__(self, registry: SnapshotRegistry, topics: ConfigSchema, brokers: ConfigSchema) -> None:
        self._configs: TimelineDict[ResourceKey, PersistentMap[str, str]] = TimelineDict(registry)
        self._schemas = {RESOURCE_TOPIC: ("topic", topics), RESOURCE_BROKER: ("broker", brokers)}

    def configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self._configs.get((resource_type, name), PersistentMap[str, str]())

    def check_topic_configs(self, configs: Mapping[str, str]) -> None:
        """Raise `InvalidConfigError` if a topic may not have them."""
        self._check(RESOURCE_TOPIC, configs)

    def _check(self, resource_type: int, configs: Mapping[str, str]) -> None:
        kind, schema = self._schemas[resource_type]
        if len(configs) > MAX_CONFIGS_PER_TOPIC:
            raise InvalidConfigError(f"{len(configs)} configs for one {kind} exceed the limit {MAX_CONFIGS_PER_TOPIC}")
        for key, value in sorted(configs.items()):
            if len(value) > MAX_CONFIG_VALUE_CHARACTERS:
                raise InvalidConfigError(
                    f"config {display(key)}: a value of {len(value)} characters exceeds {MAX_CONFIG_VALUE_CHARACTERS}"
                )
        reject_unknown(dict(sorted(configs.items())), schema.names, kind)
        schema.validate(dict(sorted(configs.items())))

    def records_for_topic(self, name: str, configs: Mapping[str, str]) -> list[MetadataRecord]:
        return [_record((RESOURCE_TOPIC, name), key, value) for key, value in sorted(configs.items())]

    # --- alteration ---------------------------------------------------------------------------------------------

    def alter(
        self, request: IncrementalAlterConfigsRequest, check: Callable[[AlterConfigsResource], None]
    ) -> Result[IncrementalAlterConfigsResponse]:
        """Each resource succeeds or fails alone and whole: what it sets is judged as it is after all its changes.

        `check` raises for a resource that does not exist, or may not be changed like that. A change that changes nothing leaves no record.
        """
        if len(request.resources) > MAX_RESOURCES_PER_REQUEST:
            raise PolicyViolationError(
                f"{len(request.resources)} resources in one request exceed the limit {MAX_RESOURCES_PER_REQUEST}:"
                " send several"
            )
        times_named = Counter(_key_of(alteration) for alteration in request.resources)
        response, records = IncrementalAlterConfigsResponse(), list[MetadataRecord]()
        for alteration in request.resources:
            result = response.resources.add(resource=alteration.resource)
            key = _key_of(alteration)
            try:
                if times_named[key] > 1:
                    raise InvalidRequestError(f"{display(key[1])} is named twice in the request")
                if key[0] not in self._schemas:
                    raise InvalidRequestError(
                        f"config resource type {key[0]} is not known: use 2 (topic) or 4 (broker)"
                    )
                check(alteration)
                after = self._altered(key, alteration.changes)
            except KraftlogError as error:
                result.error_code, result.error_message = code_of(error), str(error)
            else:
                records += [] if request.validate_only else self._difference(key, after)
        return Result(response, records)

    def _altered(self, resource: ResourceKey, changes: Iterable[ConfigChange]) -> dict[str, str]:
        kind, schema = self._schemas[resource[0]]
        before = self.configs(*resource)
        after = dict(before)
        named: set[str] = set()
        for change in changes:
            if change.name in named:
                raise InvalidRequestError(f"config {display(change.name)} is changed twice in the request")
            named.add(change.name)
            if change.name not in schema.names and change.name not in before:
                raise unknown_key(change.name, schema.names, kind)
            match change.operation:
                case ConfigChange.SET:
                    after[change.name] = change.value
                case ConfigChange.DELETE:
                    after.pop(change.name, None)
                case ConfigChange.APPEND | ConfigChange.SUBTRACT:
                    value = _changed_list(change, after.get(change.name), schema)
                    if value or schema.list_defaults[change.name]:
                        after[change.name] = value
                    else:
                        after.pop(change.name, None)  # empty, as by default
                case _:
                    raise InvalidRequestError(f"config operation {change.operation} is not known")
        if after != dict(before):
            self._check(resource[0], after)
        return after

    def _difference(self, resource: ResourceKey, after: Mapping[str, str]) -> list[MetadataRecord]:
        before = self.configs(*resource)
        return [
            _record(resource, key, after.get(key))
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]

    # --- replay -------------------------------------------------------------------------------------------------

    def replay(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = self._configs.get(resource, PersistentMap[str, str]())
        if record.HasField("value"):
            self._configs[resource] = configs.updated({record.key: record.value})
        elif len(configs.updated({}, [record.key])):
            self._configs[resource] = configs.updated({}, [record.key])
        else:
            self._configs.pop(resource, None)

    def forget(self, resource_type: int, name: str) -> None:
        """Part of replaying the removal of a topic or broker."""
        self._configs.pop((resource_type, name), None)


def _key_of(alteration: AlterConfigsResource) -> ResourceKey:
    return alteration.resource.type, alteration.resource.name


def _record(resource: ResourceKey, key: str, value: str | None) -> MetadataRecord:
    return MetadataRecord(
        config=ConfigRecord(resource_type=resource[0], resource_name=resource[1], key=key, value=value)
    )


def _changed_list(change: ConfigChange, value: str | None, schema: ConfigSchema) -> str:
    """Kafka's rule: what is appended is there once, what is subtracted need not be there; a config that is not set
    starts from its default."""
    if change.name not in schema.list_defaults:
        raise InvalidConfigError(f"config {change.name} is not a list: set it instead of appending or subtracting")
    items = _items(schema.list_defaults[change.name] if value is None else value)
    given = _items(change.value)
    if change.operation == ConfigChange.APPEND:
        return ",".join(items + [item for item in dict.fromkeys(given) if item not in items])
    return ",".join(item for item in items if item not in given)


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",") if item.strip()]
