"""The configuration file of a node: Kafka's `server.properties`, or the same keys as TOML in a file named `*.toml`.

    node.id = 1                                   "node.id" = "1" is the same
    process.roles = ["broker", "controller"]      a list is joined by commas
    listeners = "PLAINTEXT://10.0.0.1:9092"

    [controller.quorum]                           a table is the beginning of its keys
    bootstrap.servers = ["10.0.0.1:9092", "10.0.0.2:9092"]

Either way the result is text, which `NodeConfig` parses: a value means the same in both formats.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.properties import read_properties
from kraftlog.server.config import NodeConfig

TOML_SUFFIX = ".toml"


def read_node_config(path: Path) -> NodeConfig:
    """Read and check a node's file. Blocks. Raises `InvalidConfigError`, which names the file."""
    pairs = read_node_file(path)
    try:
        return NodeConfig.from_properties(pairs)
    except InvalidConfigError as error:
        raise InvalidConfigError(f"{path}: {error.message}") from None


def read_node_file(path: Path) -> dict[str, str]:
    """The pairs of a node's file, whichever the format. Blocks. Raises `InvalidConfigError`, which names the file."""
    return _read_toml(path) if path.suffix.lower() == TOML_SUFFIX else read_properties(path)


def parse_toml(text: str, source: str = "toml") -> dict[str, str]:
    """The pairs of a TOML text; `source` names it in errors."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfigError(f"{source}: not a TOML file: {error}") from None
    pairs: dict[str, str] = {}
    for key, value in _flattened(document, ""):
        if key in pairs:
            raise InvalidConfigError(f"{source}: {key} is set twice: keep one of them")
        pairs[key] = _text(value, f"{source}: {key}")
    return pairs


def _read_toml(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfigError(f"{path}: not a UTF-8 text file") from None
    except OSError as error:
        raise InvalidConfigError(f"{path}: cannot read the configuration: {error.strerror}") from error
    return parse_toml(text, str(path))


def _flattened(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _text(value: object, place: str) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() | float():
            return str(value)
        case list():
            return ",".join(_text(each, place) for each in value)
        case _:
            raise InvalidConfigError(f"{place} is {value!r}: write a text, a number, true, false or a list of them")
