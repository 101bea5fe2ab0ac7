"""`kraftctl config keys`: every configuration key with default and meaning, from the tables that the code itself uses.

`docs/configuration.md` is the output of `kraftctl config keys --markdown`, and a test holds it to that.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json, table

if TYPE_CHECKING:
    from kraftlog.logstore.config import TopicConfig

SUBJECTS = {
    "node": "Keys of a node's server.properties",
    "broker": "Keys of a broker that change while it runs (broker alter -c)",
    "topic": "Keys of a topic (topic create -c)",
    "producer": "Options of Producer and AsyncProducer",
    "consumer": "Options of Consumer and AsyncConsumer",
}
WIDTH = 100


@dataclass(frozen=True, slots=True)
class Key:
    """One key as documented."""

    name: str
    default: str
    doc: str


@click.group()
def config() -> None:
    """Look up configuration keys."""


@config.command()
@click.argument("subject", type=click.Choice([*SUBJECTS]), required=False)
@click.option("--markdown", is_flag=True, help="As a document, the text of docs/configuration.md.")
@format_option
def keys(subject: str | None, markdown: bool, output_format: str) -> None:
    """List the keys of a node, a broker, a topic, a producer or a consumer, with default and meaning."""
    wanted = [subject] if subject else [*SUBJECTS]
    found = {name: keys_of(name) for name in wanted}
    if output_format == "json":
        print_json({name: [dataclasses.asdict(key) for key in listed] for name, listed in found.items()})
    elif markdown:
        click.echo(to_markdown(found), nl=False)
    else:
        for name, listed in found.items():
            click.echo(f"{SUBJECTS[name]}:\n")
            click.echo(table(("key", "default", "meaning"), _wrapped(listed)) + "\n")


def keys_of(subject: str) -> list[Key]:
    """The keys of one subject, in the order of their table."""
    match subject:
        case "node":
            return _node_keys()
        case "broker":
            from kraftlog.server.dynamic_config import BROKER_CONFIGS

            return _table_keys(BROKER_CONFIGS)
        case "topic":
            from kraftlog.logstore.config import TOPIC_CONFIGS

            return _table_keys(TOPIC_CONFIGS)
        case "producer":
            from kraftlog.sdk.config import ProducerConfig

            return _field_keys(ProducerConfig)
        case _:
            from kraftlog.sdk.config import ConsumerConfig

            return _field_keys(ConsumerConfig)


def to_markdown(found: dict[str, list[Key]]) -> str:
    lines = ["# Configuration", "", "Made by `kraftctl config keys --markdown`; the code's own tables are the source."]
    for subject, listed in found.items():
        lines += ["", f"## {SUBJECTS[subject]}", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key.name}` | {_code(key.default)} | {_escaped(key.doc)} |" for key in listed]
    return "\n".join([*lines, ""])


def _node_keys() -> list[Key]:
    from kraftlog.server.config import TOPIC_DEFAULT_KEYS, NodeConfig

    docs = attribute_docs(NodeConfig)
    own = [
        Key(field.metadata["key"], _text(field.default), docs.get(field.name, ""))
        for field in dataclasses.fields(NodeConfig)
        if field.metadata
    ]
    return own + [Key(key, "", f"Default of the topic config {topic}.") for key, topic in TOPIC_DEFAULT_KEYS.items()]


def _table_keys(entries: "Mapping[str, TopicConfig]") -> list[Key]:
    return [Key(name, entry.default, _sentence(entry.doc)) for name, entry in entries.items()]


def _field_keys(config_class: type[Any]) -> list[Key]:
    docs = attribute_docs(config_class)
    return [Key(each.name, _text(each.default), docs.get(each.name, "")) for each in dataclasses.fields(config_class)]


def attribute_docs(config_class: type[Any]) -> dict[str, str]:
    """The strings below the fields of a class and its bases. They exist only in the source."""
    docs: dict[str, str] = {}
    for each in reversed(config_class.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                docs[field.target.id] = inspect.cleandoc(below.value.value)
    return docs


def _text(default: object) -> str:
    match default:
        case None:
            return "none"
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(str(part) for part in default)
        case _:
            return str(default)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _wrapped(listed: list[Key]) -> list[tuple[str, str, str]]:
    rows = []
    for key in listed:
        lines = textwrap.wrap(" ".join(key.doc.split()), WIDTH) or [""]
        rows.append((key.name, key.default, lines[0]))
        rows += [("", "", line) for line in lines[1:]]
    return rows
