"""`kraftctl server`: a node in the foreground, as a service manager runs it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json
from kraftlog.server.cli.storage import config_option

if TYPE_CHECKING:
    from kraftlog.server.config import NodeConfig


@click.group()
def server() -> None:
    """Run a node in the foreground."""


@server.command()
@config_option
@format_option
def run(path: Path, output_format: str) -> None:
    """Run the node of this configuration until SIGTERM or Ctrl-C.

    Takes the place of this process, so that a service manager's signals reach the node itself. Its log directory has been
    formatted with `kraftctl storage format`.
    """
    _read_config(path)  # mistakes get kraftctl's exit codes
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "kraftlog.server.main", "--config", str(path)])


server.add_command(run, "start")


@server.command()
@config_option
@format_option
def check(path: Path, output_format: str) -> None:
    """Read a configuration, and the certificates that it names, and say whether a node would take them."""
    config = _read_config(path)
    if output_format == "json":
        print_json({"valid": True, "node_id": config.node_id, "log_dirs": list(config.log_dirs)})
    else:
        listeners = ", ".join(map(str, config.listeners))
        click.echo(f"{path}: node {config.node_id}, listens on {listeners}, logs in {config.log_dir}")


def _read_config(path: Path) -> "NodeConfig":
    from kraftlog.server.config_file import read_node_config
    from kraftlog.server.tls import check_listeners

    config = read_node_config(path)
    check_listeners(config)
    return config
