"""A click group that knows its commands by name and loads a command's module only to run it."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """One command: where it lives (`module:attribute`) and its line in the group's help."""

    target: str
    help: str


class LazyGroup(click.Group):
    """Commands come from `entries`; `--help` prints their lines without importing them."""

    def __init__(self, *arguments: Any, entries: Mapping[str, Entry], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.entries, n=1)
            ctx.fail(f"no command {args[0]!r}" + (f": did you mean {near[0]!r}?" if near else "."))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])
