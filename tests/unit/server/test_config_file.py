"""A node's configuration as server.properties and as node.toml."""

from pathlib import Path

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.properties import format_properties
from kraftlog.server.config import NodeConfig
from kraftlog.server.config_file import parse_toml, read_node_config, read_node_file

TOML = """
node.id = 7
process.roles = ["broker", "controller"]
"log.dirs" = "/data"
auto.create.topics.enable = true
log.cleaner.min.cleanable.ratio = 0.25

[controller.quorum]
bootstrap.servers = ["h1:9093", "h2:9093"]
election.timeout.ms = 2_000
"""


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    toml, properties = tmp_path / "node.toml", tmp_path / "server.properties"
    toml.write_text(TOML)
    properties.write_text(format_properties(read_node_file(toml)))
    assert read_node_file(toml) == {
        "node.id": "7",
        "process.roles": "broker,controller",
        "log.dirs": "/data",
        "auto.create.topics.enable": "true",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "controller.quorum.bootstrap.servers": "h1:9093,h2:9093",
        "controller.quorum.election.timeout.ms": "2000",
    }
    assert read_node_config(toml) == read_node_config(properties)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node.id = ", "not a TOML file"),
        ('node.id = 1\n"node.id" = 2', "node.id is set twice"),
        ("node.id = 2026-11-28", "node.id is datetime.date(2026, 11, 28): write a text"),
        ("log.dirs = [{a = 1}]", "log.dirs is {'a': 1}: write a text"),
    ],
    ids=["syntax", "twice", "date", "table in a list"],
)
def test_what_is_no_configuration_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_toml(text, "node.toml")
    assert str(caught.value).startswith("node.toml: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"), [("node.toml", "[num]\npartitons = 3\n"), ("server.properties", "num.partitons=3\n")]
)
def test_an_unknown_key_is_told_with_the_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidConfigError, match=r"did you mean 'num\.partitions'") as caught:
        read_node_config(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


def test_a_missing_or_binary_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"node\.toml: cannot read"):
        read_node_file(tmp_path / "node.toml")
    (tmp_path / "node.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfigError, match=r"node\.toml: not a UTF-8"):
        read_node_file(tmp_path / "node.toml")


def test_every_key_can_be_written_in_toml() -> None:
    """No key is the beginning of another: in TOML it would have to be a value and a table."""
    keys = {*NodeConfig().described(), "log.retention.hours", "log.dir", "broker.id"}
    assert {(a, b) for a in keys for b in keys if b.startswith(f"{a}.")} == set()
