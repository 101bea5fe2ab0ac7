"""Options that many commands share, and how they get their values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.properties import read_properties
from kraftlog.sdk.cli import local

F = TypeVar("F", bound=Callable[..., Any])

_FORMAT = "kraftctl.format"
_COMMAND_CONFIG = "kraftctl.command-config"


def format_of(context: click.Context | None) -> str:
    """The output format that this command line asked for, also after the command failed."""
    return "text" if context is None else str(context.meta.get(_FORMAT, "text"))


def _keep_format(context: click.Context, parameter: click.Parameter, value: str) -> str:
    context.meta[_FORMAT] = value
    return value


def format_option(command: F) -> F:
    """`--format text|json`, as the argument `output_format`."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        is_eager=True,
        callback=_keep_format,
        help="text for people (the default), json for programs.",
    )(command)


def _bootstrap(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    return value or local.default_bootstrap_servers()


def bootstrap_option(command: F) -> F:
    """`-b HOST:PORT`, as the argument `bootstrap_servers`."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap_servers",
        metavar="HOST:PORT",
        envvar="KRAFTLOG_BOOTSTRAP_SERVERS",
        callback=_bootstrap,
        help="Where the cluster is; the local cluster if one runs, else localhost:9092. [env KRAFTLOG_BOOTSTRAP_SERVERS]",
    )(command)


def parse_pairs(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    """`key=value` arguments as a dict. Raises `InvalidConfigError` for one without `=`."""
    parsed: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise InvalidConfigError(f"{option} {pair!r} is not key=value")
        parsed[key.strip()] = value.strip()
    return parsed


def _read_command_config(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[_COMMAND_CONFIG] = read_properties(value)


def _after_command_config(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    pairs: dict[str, str] = context.meta.get(_COMMAND_CONFIG, {})
    return (*(f"{key}={text}" for key, text in pairs.items()), *value)


def client_options(command: F) -> F:
    """`--command-config FILE` and `-X key=value`: more configuration of the client, as the argument `extra`. What comes later
    in it wins."""
    with_file = click.option(
        "--command-config",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="KRAFTLOG_COMMAND_CONFIG",
        is_eager=True,  # -X adds to it
        expose_value=False,
        callback=_read_command_config,
        help="A properties file with client configuration, such as security.protocol. [env KRAFTLOG_COMMAND_CONFIG]",
    )
    return with_file(
        click.option(
            "-X",
            "extra",
            metavar="KEY=VALUE",
            multiple=True,
            callback=_after_command_config,
            help="More client configuration, with Kafka's names: -X linger.ms=20.",
        )(command)
    )
