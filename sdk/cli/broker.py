"""`kraftctl broker`: who there is, what brokers have on their disks; brokers that are to be empty or will not come back."""

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kraftlog.proto.errors import BrokerIdNotRegisteredError
from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.lazy import Entry, LazyGroup
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option, parse_pairs
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


_COMMANDS = {
    "list": Entry("kraftlog.sdk.cli.broker:list_brokers", "List brokers with their replicas and leaderships."),
    "alter": Entry("kraftlog.sdk.cli.broker:alter", "Change configs of a broker, or of all, while they run."),
    "drain": Entry("kraftlog.sdk.cli.reassign:drain", "Move all replicas of a broker to others."),
    "unregister": Entry("kraftlog.sdk.cli.broker:unregister", "Forget a broker that will not come back."),
    "log-dirs": Entry("kraftlog.sdk.cli.broker:log_dirs", "Show what brokers have on their disks."),
}


@click.command(cls=LazyGroup, entries=_COMMANDS)
def broker() -> None:
    """List brokers and what they have on their disks, empty them, forget those that are gone."""


@click.command("list")
@bootstrap_option
@client_options
@format_option
def list_brokers(bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """List brokers: where they are, how many partitions they lead, and how many of their replicas are in sync."""
    with admin_client(bootstrap_servers, extra) as admin:
        nodes = admin.describe_cluster().nodes
        partitions = [each for topic in admin.describe_topics() for each in topic.partitions]
    leads = Counter(each.leader_id for each in partitions)
    replicas = Counter(node for each in partitions for node in each.replicas)
    in_sync = Counter(node for each in partitions for node in each.in_sync_replicas)
    documents = [
        {
            **asdict(node),
            "leaders": leads[node.node_id],
            "replicas": replicas[node.node_id],
            "in_sync": in_sync[node.node_id],
        }
        for node in nodes
    ]
    if output_format == "json":
        print_json(documents)
        return
    rows = [
        (
            node.node_id,
            f"{node.host}:{node.port}",
            node.rack or None,
            "fenced" if node.fenced else "active",
            leads[node.node_id],
            replicas[node.node_id],
            in_sync[node.node_id],
        )
        for node in nodes
    ]
    click.echo(table(("broker", "address", "rack", "state", "leads", "replicas", "in sync"), rows))


@click.command()
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


@click.command()
@click.argument("node", type=click.IntRange(min=0), required=False)
@click.option("--all", "is_all", is_flag=True, help="Of all brokers that have none of their own.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="Set a config.")
@click.option("--delete-config", "deleted", metavar="KEY", multiple=True, help="Set a config back to its default.")
@bootstrap_option
@client_options
@format_option
def alter(
    node: int | None,
    is_all: bool,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Change what can be changed while brokers run, of broker NODE or of all: see `kraftctl config keys broker`.

    Everything else is in the brokers' files. Without --config and --delete-config it only shows what is set.

    \b
    Examples:
      kraftctl broker alter 2 -c follower.replication.throttled.rate=50000000
      kraftctl broker alter --all --delete-config leader.replication.throttled.rate
    """
    pairs = parse_pairs(configs, "-c")
    if (node is None) != is_all:
        raise click.UsageError("name one broker, or give --all")
    with admin_client(bootstrap_servers, extra) as admin:
        if pairs or deleted:
            admin.alter_configs(broker=node, all_brokers=is_all, set=pairs, delete=deleted)
        cluster = admin.describe_cluster()
    found = {each.node_id: each.configs for each in cluster.nodes}
    if node is not None and node not in found:
        raise BrokerIdNotRegisteredError(f"broker {node} is not registered")
    shown = dict(cluster.broker_configs if node is None else found[node])
    if output_format == "json":
        print_json({"node_id": node, "configs": shown})
        return
    click.echo(f"{'all brokers' if node is None else f'broker {node}'}: {plural(len(shown), 'config')} set")
    for key, value in sorted(shown.items()):
        click.echo(f"  {key}={value}")


@click.command("log-dirs")
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
