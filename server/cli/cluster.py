"""`kraftctl cluster`: a local cluster in the background, for development and tests.

`bootstrap` is the one command between `pip install` and the first record. It may be given again at any time: a running
cluster stays as it is, a stopped one is started with its data.
"""

import fcntl
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from kraftlog.proto.errors import KraftlogError
from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalCluster, LocalNode
from kraftlog.sdk.cli.options import client_options, format_option, parse_pairs
from kraftlog.sdk.cli.output import note, print_json, table
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli import processes
from kraftlog.server.cli.cluster_id import random_uuid
from kraftlog.server.cli.local_node import node_directory, properties_of, start_node

START_TIMEOUT_S = 60.0  # recovery after an unclean stop reads the logs' unflushed parts
STOP_TIMEOUT_S = 30.0
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092  # Kafka's
COMMENT = "Made by kraftctl cluster bootstrap."

dir_option = click.option(
    "--dir", "directory", metavar="DIR", help="Where the cluster lives. [env KRAFTLOG_HOME; ~/.local/share/kraftlog]"
)


@click.group()
def cluster() -> None:
    """Start, stop and look at a local cluster."""


@cluster.command(short_help="Format and start a local cluster.")
@click.option("--nodes", type=click.IntRange(1, 99), default=1, show_default=True, help="How many nodes.")
@dir_option
@click.option("--host", help=f"Address to listen on; default: {DEFAULT_HOST}.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="KRAFTLOG_PORT",
    help=f"Port to listen on; default: {DEFAULT_PORT}; 0: a free one. [env KRAFTLOG_PORT]",
)
@click.option("--cluster-id", help="Cluster id of 22 characters; default: a random one.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="More of server.properties.")
@click.option("--timeout", type=float, default=START_TIMEOUT_S, show_default=True, help="Seconds to wait for a node.")
@format_option
def bootstrap(
    nodes: int,
    directory: str | None,
    host: str | None,
    port: int | None,
    cluster_id: str | None,
    configs: tuple[str, ...],
    timeout: float,
    output_format: str,
) -> None:
    """Format and start a local cluster in the background, and print its address.

    A running cluster is left alone. A stopped one starts with its data and its server.properties, in which --host,
    --port and -c change what they name.

    \b
    Examples:
      kraftctl cluster bootstrap
      kraftctl cluster bootstrap --dir /tmp/try --port 0
      kraftctl cluster bootstrap -c log.retention.hours=1
    """
    if nodes > 1:
        raise CommandError(
            f"a local cluster of {nodes} nodes is not possible yet: this version runs one node per cluster",
            exit_code=ExitCode.USAGE,
            advice="Use --nodes 1.",
        )
    more = parse_pairs(configs, "-c")
    home = local.home_directory(directory)
    with _locked(home, create=True):
        state = local.read_state(home)
        if state is not None and all(_is_running(node) for node in state.nodes):
            _show_bootstrap(state, "already running", home, output_format)
            return
        made = _format_once(home, _listeners(host, port), cluster_id, more)
        if output_format == "text":
            note(f"starting node 1 in {home} ...")
        started = start_node(home, 1, timeout)
        state = LocalCluster(cluster_id=made, nodes=(started,))
        local.write_state(home, state)
    _show_bootstrap(state, "running", home, output_format)


def _listeners(host: str | None, port: int | None) -> str | None:
    """The `listeners` that the command line asks for, or None if it says nothing."""
    if host is None and port is None:
        return None
    return f"PLAINTEXT://{host or DEFAULT_HOST}:{DEFAULT_PORT if port is None else port}"


def _format_once(home: Path, listeners: str | None, cluster_id: str | None, more: dict[str, str]) -> str:
    """Make the node's configuration and log directory unless they are there; returns the cluster id."""
    from kraftlog.proto.properties import format_properties
    from kraftlog.server.cli.storage import cluster_id_of, format_directory
    from kraftlog.server.config import NodeConfig
    from kraftlog.server.config_file import read_node_config
    from kraftlog.server.first_voters import choose_first_voters

    directory = node_directory(home, 1)
    data = directory / "data"
    properties = directory / "server.properties"
    existing = cluster_id_of(data)
    if existing is not None and cluster_id not in (None, existing):
        raise CommandError(
            f"{data} belongs to cluster {existing}, not to {cluster_id}",
            exit_code=ExitCode.CONFLICT,
            advice="Leave out --cluster-id, or choose another --dir.",
        )
    if not properties.exists():
        pairs = properties_of(home, 1, listeners or f"PLAINTEXT://{DEFAULT_HOST}:{DEFAULT_PORT}", more)
        NodeConfig.from_properties(pairs)
        directory.mkdir(parents=True, exist_ok=True)
        properties.write_text(format_properties(pairs, COMMENT), encoding="utf-8")
    else:
        _change_properties(properties, listeners, more)
    if existing is not None:
        return existing
    made = cluster_id or random_uuid()
    config = read_node_config(properties)
    chosen = choose_first_voters(config, fresh_directory_id=random_uuid())
    format_directory(data, cluster_id=made, node_id=config.node_id, chosen=chosen)
    return made


def _change_properties(properties: Path, listeners: str | None, more: dict[str, str]) -> None:
    from kraftlog.proto.properties import format_properties, read_properties
    from kraftlog.server.config import NodeConfig

    old = read_properties(properties)
    new = {**old, **({"listeners": listeners} if listeners else {}), **more}
    if new != old:
        NodeConfig.from_properties(new)
        properties.write_text(format_properties(new, COMMENT), encoding="utf-8")


def _show_bootstrap(state: LocalCluster, word: str, home: Path, output_format: str) -> None:
    if output_format == "json":
        print_json({"status": word, "bootstrap_servers": state.bootstrap_servers, "home": str(home), **asdict(state)})
        return
    click.echo(f"cluster {state.cluster_id} is {word} at {state.bootstrap_servers} (in {home})")


@cluster.command()
@dir_option
@click.option("--timeout", type=float, default=STOP_TIMEOUT_S, show_default=True, help="Seconds to wait for a node.")
@click.option("--force", is_flag=True, help="Kill a node that has not stopped in time (it recovers at its next start).")
@format_option
def stop(directory: str | None, timeout: float, force: bool, output_format: str) -> None:
    """Stop the local cluster; its data stay. Succeeds also when nothing runs."""
    home = local.home_directory(directory)
    state = local.read_state(home)
    running = [] if state is None else [node for node in state.nodes if _is_running(node)]
    if state is not None:
        with _locked(home, create=False):
            for node in running:
                _stop_node(node, timeout, force)
            stopped = tuple(replace(node, pid=None, process=None) for node in state.nodes)
            local.write_state(home, replace(state, nodes=stopped))
    if output_format == "json":
        print_json({"stopped": [node.node_id for node in running], "home": str(home)})
    elif running:
        click.echo(f"cluster {state.cluster_id if state else ''} is stopped (in {home})")
    else:
        click.echo(f"no cluster runs in {home}")


def _stop_node(node: LocalNode, timeout: float, force: bool) -> None:
    assert node.pid is not None
    assert node.process is not None
    processes.send_signal(node.pid, node.process, signal.SIGTERM)
    if processes.wait_for_exit(node.pid, node.process, timeout):
        return
    if not force:
        raise CommandError(
            f"node {node.node_id} (pid {node.pid}) did not stop within {timeout:.0f} s",
            exit_code=ExitCode.UNREACHABLE,
            advice="Wait longer with --timeout, or use --force.",
        )
    processes.send_signal(node.pid, node.process, signal.SIGKILL)
    processes.wait_for_exit(node.pid, node.process, timeout)


@cluster.command()
@dir_option
@click.option("-b", "--bootstrap-server", "bootstrap_servers", metavar="HOST:PORT", help="Ask this cluster instead.")
@client_options
@format_option
def status(directory: str | None, bootstrap_servers: str | None, extra: tuple[str, ...], output_format: str) -> None:
    """Show the local cluster, or the one at -b. Exits 0 when it answers, else 3."""
    home = local.home_directory(directory)
    state = None if bootstrap_servers else local.read_state(home)
    if state is None and bootstrap_servers is None:
        raise CommandError(
            f"no cluster was made in {home}",
            exit_code=ExitCode.UNREACHABLE,
            advice="Make and start one with `kraftctl cluster bootstrap`, or name one with -b HOST:PORT.",
        )
    running = state is not None and all(_is_running(node) for node in state.nodes)
    description: dict[str, Any] | None = None
    problem: KraftlogError | None = None
    if bootstrap_servers or running:
        try:
            description = _describe(bootstrap_servers or (state.bootstrap_servers if state else ""), extra)
        except KraftlogError as error:
            problem = error
    if output_format == "json":
        print_json(_status_document(home, state, description, problem))
    else:
        _print_status(home, state, description)
    if problem is not None:
        raise problem
    if state is not None and not running:
        raise click.exceptions.Exit(int(ExitCode.UNREACHABLE))


def _describe(bootstrap_servers: str, extra: tuple[str, ...]) -> dict[str, Any]:
    from kraftlog.sdk.cli.remote import describe_cluster

    return describe_cluster(bootstrap_servers, extra)


def _status_document(
    home: Path, state: LocalCluster | None, description: dict[str, Any] | None, problem: KraftlogError | None
) -> dict[str, Any]:
    document: dict[str, Any] = {"reachable": description is not None, "cluster": description}
    if state is not None:
        nodes = [{**asdict(node), "running": _is_running(node)} for node in state.nodes]
        document |= {"home": str(home), "cluster_id": state.cluster_id, "nodes": nodes}
    if problem is not None:
        document["error"] = problem.message
    return document


def _print_status(home: Path, state: LocalCluster | None, description: dict[str, Any] | None) -> None:
    if state is not None:
        click.echo(f"cluster {state.cluster_id} in {home}")
        rows = [
            (node.node_id, node.address, node.pid, "running" if _is_running(node) else "stopped")
            for node in state.nodes
        ]
        click.echo(table(("node", "address", "pid", "process"), rows))
    if description is not None:
        nodes = description.pop("nodes", [])
        if state is None:
            click.echo(
                table(
                    ("node", "host", "port", "rack"), [(n["node_id"], n["host"], n["port"], n["rack"]) for n in nodes]
                )
            )
        for key, value in description.items():
            click.echo(f"{key.replace('_', ' ')}: {value}")


def _is_running(node: LocalNode) -> bool:
    return processes.is_running(node.pid, node.process)


@contextmanager
def _locked(home: Path, *, create: bool) -> Iterator[None]:
    """One `kraftctl cluster` verb at a time works on `home`."""
    if create:
        home.mkdir(parents=True, exist_ok=True)
    with (home / ".kraftctl.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another kraftctl starts or stops the cluster in {home}",
                exit_code=ExitCode.CONFLICT,
                advice="Wait for it and try again.",
            ) from None
        yield
