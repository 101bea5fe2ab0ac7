"""The documents under docs/ say what the code does."""

import re
from pathlib import Path

import click
import pytest

from kraftlog.sdk.cli import main
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.server.cli.config import SUBJECTS, keys_of, to_markdown

DOCS = Path(__file__).parents[3] / "docs"
ALIASES = {"topic produce", "topic consume"}


def command_names(group: click.Command, prefix: str = "") -> set[str]:
    if not isinstance(group, click.Group):
        return {prefix.strip()}
    context = click.Context(group)
    found: set[str] = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found |= command_names(command, f"{prefix} {name}")
    return found


def test_cli_md_names_every_command() -> None:
    text = (DOCS / "cli.md").read_text()
    assert {name for name in command_names(main.kraftctl) if f"`{name}`" not in text} == set()


def test_cli_md_names_every_exit_code() -> None:
    rows = re.findall(r"^\| (\d+) \|", (DOCS / "cli.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == [int(code) for code in ExitCode]


def test_configuration_md_is_current() -> None:
    """After a change of a key: kraftctl config keys --markdown > docs/configuration.md"""
    assert (DOCS / "configuration.md").read_text() == to_markdown({subject: keys_of(subject) for subject in SUBJECTS})


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_key_is_explained(subject: str) -> None:
    assert [key.name for key in keys_of(subject) if not key.doc] == []
