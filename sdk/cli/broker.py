"""`kraftctl broker`: what brokers have on their disks; brokers that will not come back."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import plural, print_json, table
from kraftlog.sdk.cli.remote import admin_client

if TYPE_CHECKING:
    from kraftlog.sdk.types import LogDescription, LogDirDescription

_COLUMNS = (
    "topic",
    "partition",
    "bytes",
    "segments",
    "start",
    "end",
    "flushed",
    "recovery point",
    "policy",
    "compacted to",
)


@click.group()
def broker() -> None:
    """Look at what brokers have on their disks, forget those that are gone."""


@broker.command()
@click.argument("node", type=click.IntRange(min=0))
@bootstrap_option
@client_options
@format_option
def unregister(node: int, bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Forget broker NODE, which is down and will not come back. One that starts again is known again."""
    with admin_client(bootstrap_servers, extra) as admin:
        admin.unregister_broker(node)
    if output_format == "json":
        print_json({"node_id": node, "registered": False})
    else:
        click.echo(f"broker {node} is forgotten")


@broker.command("log-dirs")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--node", "nodes", type=int, multiple=True, help="Only this node; may be repeated. Default: all that live."
)
@bootstrap_option
@client_options
@format_option
def log_dirs(
    topics: tuple[str, ...], nodes: tuple[int, ...], bootstrap_servers: str, extra: tuple[str, ...], output_format: str
) -> None:
    """Show log directories: sizes and offsets of all logs or those of some topics, and what is wrong with them.

    A line below the table names each log that takes no writes or is not compacted any more, with the reason.

    \b
    Examples:
      kraftctl broker log-dirs
      kraftctl broker log-dirs orders --node 1 --format json
    """
    for name in topics:
        validate_topic_name(name)
    with admin_client(bootstrap_servers, extra) as admin:
        described = admin.describe_log_dirs(nodes or None, topics=topics or None)
    if output_format == "json":
        print_json([asdict(each) for each in described])
        return
    for log_dir in described:
        _print(log_dir)


def _print(log_dir: "LogDirDescription") -> None:
    state = f"offline: {log_dir.error}" if log_dir.error else "online"
    click.echo(f"node {log_dir.node_id}, {log_dir.path}: {state}, {plural(log_dir.size_bytes, 'byte')}")
    if log_dir.logs:
        click.echo(table(_COLUMNS, map(_row, log_dir.logs)))
    for log in log_dir.logs:
        name = f"{log.topic}-{log.partition}"
        if log.problem:
            click.echo(f"{name} takes no writes: {log.problem}")
        if log.uncleanable_reason:
            since = datetime.fromtimestamp(log.uncleanable_since_ms / 1000, UTC).isoformat(timespec="seconds")
            click.echo(f"{name} is not compacted since {since}: {log.uncleanable_reason}")


def _row(log: "LogDescription") -> tuple[object, ...]:
    return (
        log.topic,
        log.partition,
        log.size_bytes,
        log.segments,
        log.log_start_offset,
        log.log_end_offset,
        log.flushed_end_offset,
        log.recovery_point,
        ",".join(log.cleanup_policy),
        log.cleaned_to_offset if "compact" in log.cleanup_policy else None,
    )
