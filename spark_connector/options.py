"""The options of `spark.read.format("kraftlog")`: the words and defaults of Spark's Kafka source.

Spark hands option names over in any case, so they are compared in lower case. A client option comes with the prefix
`kafka.` or `kraftlog.` (`kafka.bootstrap.servers`); `bootstrap.servers` alone is taken too. An option that does not
exist is an error with the nearest name that does. Pure: touches neither Spark nor the network.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlog.proto.config import parse_bool, parse_int, unknown_key
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.spark_connector.schema import COLUMN_TYPES, DEFAULT_COLUMNS

EARLIEST = -2  # as in Kafka's JSON offsets
LATEST = -1

PartitionOffsets = dict[str, dict[int, int]]
"""{topic: {partition: offset}}"""

OffsetSpec = int | PartitionOffsets
"""EARLIEST, LATEST, or offsets by partition (in which both may stand)."""

_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_CLIENT_PREFIXES = ("kafka.", "kraftlog.")
_NAMES = (
    "bootstrap.servers",
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "columns",
)
_BY_LOWER = {name.lower(): name for name in _NAMES}


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions to read; exactly one field is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None  # Python's `re`, matched against the whole name
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Checked options of one reader. Picklable: it travels to the tasks."""

    client: Mapping[str, str] = field(repr=False)  # a user may take a password for an option of ours
    """Options of the kraftlog client in snake case, `bootstrap_servers` among them."""
    subscription: Subscription
    starting_offsets: OffsetSpec
    ending_offsets: OffsetSpec = LATEST
    """Batch only; exclusive."""
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    min_partitions: int | None = None
    max_partitions: int | None = None
    fail_on_data_loss: bool = True
    columns: tuple[str, ...] = DEFAULT_COLUMNS


def parse_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Check what the user gave. Raises `InvalidConfigError` with one line that names the option."""
    client: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, value in given.items():
        lowered = key.lower()
        if lowered == "path":  # Spark adds it for `.load(path)`
            raise InvalidConfigError("kraftlog topics have no path: use .option('subscribe', ...) and .load()")
        prefix = next((p for p in _CLIENT_PREFIXES if lowered.startswith(p)), None)
        if prefix is not None:
            client[lowered.removeprefix(prefix).replace(".", "_")] = value
        elif lowered in _BY_LOWER:
            own[_BY_LOWER[lowered]] = value
        else:
            raise unknown_key(key, _NAMES, "Spark option of format kraftlog")
    if "bootstrap.servers" in own:
        client.setdefault("bootstrap_servers", own["bootstrap.servers"])
    if not client.get("bootstrap_servers"):
        raise InvalidConfigError("option kafka.bootstrap.servers is missing: give host:port of a broker")
    if not streaming:
        _refuse(own, ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"), "a batch read")
    else:
        _refuse(own, ("endingOffsets",), "a streaming read")
    starting = _offsets("startingOffsets", own.get("startingOffsets", "latest" if streaming else "earliest"))
    if not streaming and _mentions(starting, LATEST):
        raise InvalidConfigError("startingOffsets of a batch read may not be latest (-1): nothing would be read")
    ending = _offsets("endingOffsets", own.get("endingOffsets", "latest"))
    if _mentions(ending, EARLIEST):
        raise InvalidConfigError("endingOffsets may not be earliest (-2): nothing would be read")
    return ReadOptions(
        client=client,
        subscription=_subscription(own),
        starting_offsets=starting,
        ending_offsets=ending,
        max_offsets_per_trigger=_positive(own, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_positive(own, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=_duration("maxTriggerDelay", own.get("maxTriggerDelay", "15m")),
        min_partitions=_positive(own, "minPartitions"),
        max_partitions=_positive(own, "maxPartitions"),
        fail_on_data_loss=parse_bool("failOnDataLoss", own.get("failOnDataLoss", "true")),
        columns=_columns(own),
    )


def _refuse(own: Mapping[str, str], names: tuple[str, ...], what: str) -> None:
    for name in names:
        if name in own:
            raise InvalidConfigError(f"option {name} has no meaning in {what}: remove it")


def _mentions(spec: OffsetSpec, special: int) -> bool:
    if isinstance(spec, int):
        return spec == special
    return any(offset == special for partitions in spec.values() for offset in partitions.values())


def _positive(own: Mapping[str, str], name: str) -> int | None:
    return parse_int(name, own[name], minimum=1) if name in own else None


def _duration(name: str, text: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h)\s*", text)
    if not match:
        raise InvalidConfigError(f"option {name}={text!r} is not a duration: write 500ms, 30s, 15m or 1h")
    return int(match[1]) * _DURATION_MS[match[2]]


def _columns(own: Mapping[str, str]) -> tuple[str, ...]:
    if "columns" not in own:
        with_headers = parse_bool("includeHeaders", own.get("includeHeaders", "false"))
        return tuple(COLUMN_TYPES) if with_headers else DEFAULT_COLUMNS
    columns = tuple(name.strip() for name in own["columns"].split(","))
    for name in columns:
        if name not in COLUMN_TYPES:
            raise unknown_key(name, COLUMN_TYPES, "option columns")
    if len(set(columns)) != len(columns):
        raise InvalidConfigError(f"option columns={own['columns']!r} names a column twice")
    return columns


def _subscription(own: Mapping[str, str]) -> Subscription:
    given = [name for name in ("subscribe", "assign", "subscribePattern") if name in own]
    if len(given) != 1:
        found = ", ".join(given) or "none"
        raise InvalidConfigError(f"give exactly one of subscribe, assign and subscribePattern (found: {found})")
    if "subscribe" in own:
        topics = tuple(dict.fromkeys(name.strip() for name in own["subscribe"].split(",") if name.strip()))
        if not topics:
            raise InvalidConfigError("option subscribe names no topic: write topic1,topic2")
        return Subscription(topics=topics)
    if "subscribePattern" in own:
        try:
            re.compile(own["subscribePattern"])
        except re.error as error:
            raise InvalidConfigError(f"option subscribePattern is not a Python regular expression: {error}") from None
        return Subscription(pattern=own["subscribePattern"])
    return Subscription(partitions=_assignment(own["assign"]))


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    example = """write {"topic": [0, 1]}"""
    parsed = _json("assign", text, example)
    result: dict[str, tuple[int, ...]] = {}
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not numbers or not all(_is_count(number) for number in numbers):
            raise InvalidConfigError(f"option assign: partitions of topic {topic!r} are no list of numbers: {example}")
        result[topic] = tuple(sorted(set(numbers)))
    if not result:
        raise InvalidConfigError(f"option assign names no partition: {example}")
    return result


def _offsets(name: str, text: str) -> OffsetSpec:
    lowered = text.strip().lower()
    if lowered == "earliest":
        return EARLIEST
    if lowered == "latest":
        return LATEST
    example = """write earliest, latest or {"topic": {"0": 23, "1": -1}}"""
    result: PartitionOffsets = {}
    for topic, partitions in _json(name, text, example).items():
        if not isinstance(partitions, dict):
            raise InvalidConfigError(f"option {name}: offsets of topic {topic!r} are no object: {example}")
        offsets: dict[int, int] = {}
        for partition, offset in partitions.items():
            if (
                not partition.isdecimal()
                or isinstance(offset, bool)
                or not isinstance(offset, int)
                or offset < EARLIEST
            ):
                raise InvalidConfigError(f"option {name}: {topic}-{partition}: {offset!r} is no offset: {example}")
            offsets[int(partition)] = offset
        result[topic] = offsets
    return result


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


def _json(name: str, text: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise InvalidConfigError(f"option {name}={text!r} is not valid: {example}")
    return parsed
