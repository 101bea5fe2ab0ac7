"""`kraftctl cluster status`: what runs on this machine, and what the cluster says about itself."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.errors import KraftlogError
from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalCluster
from kraftlog.sdk.cli.options import client_options, format_option
from kraftlog.sdk.cli.output import note, print_json, table
from kraftlog.server.cli.local_home import dir_option, made_cluster
from kraftlog.server.cli.local_node import is_running

if TYPE_CHECKING:
    from kraftlog.sdk.types import ClusterDescription, ClusterNodeDescription, PartitionDescription, QuorumDescription


@dataclass(frozen=True, slots=True)
class _Health:
    """How many partitions there are, internal ones too, and how many of them lack something."""

    partitions: int
    under_replicated: int
    under_min_isr: int
    offline: int
    reassigning: int

    @classmethod
    def of(cls, partitions: "Iterable[PartitionDescription]") -> "_Health":
        each = list(partitions)
        return cls(
            partitions=len(each),
            under_replicated=sum(partition.is_under_replicated for partition in each),
            under_min_isr=sum(partition.is_under_min_isr for partition in each),
            offline=sum(partition.is_offline for partition in each),
            reassigning=sum(partition.is_reassigning for partition in each),
        )

    def line(self) -> str:
        reassigning = f", {self.reassigning} reassigning" if self.reassigning else ""
        return (
            f"partitions: {self.partitions}, {self.under_replicated} under-replicated, {self.under_min_isr} under min ISR,"
            f" {self.offline} offline{reassigning}"
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the cluster says, or why it does not."""

    cluster: "ClusterDescription | None" = None
    quorum: "QuorumDescription | None" = None
    health: "_Health | None" = None
    problem: KraftlogError | None = None

    @property
    def is_current(self) -> bool:
        return self.quorum is not None and not self.quorum.stale


@click.command()
@dir_option
@click.option("-b", "--bootstrap-server", "bootstrap_servers", metavar="HOST:PORT", help="Ask this cluster instead.")
@client_options
@format_option
def status(directory: str | None, bootstrap_servers: str | None, extra: tuple[str, ...], output_format: str) -> None:
    """Show the local cluster, or the one at -b: its nodes, how many partitions lack something, who leads and who votes.

    Exits 0 when the cluster answers and has a leader, else 3. What is told without a leader says that it may be old.
    """
    home = local.home_directory(directory)
    state = None if bootstrap_servers else made_cluster(home)
    asked = bootstrap_servers or _running_brokers(state)
    answer = _ask(asked, extra) if asked else _Answer()
    if output_format == "json":
        print_json(_document(home, state, answer))
    else:
        _print(home, state, answer)
    if answer.problem is not None:
        raise answer.problem
    if not answer.is_current:
        raise click.exceptions.Exit(int(ExitCode.UNREACHABLE))


def _running_brokers(state: LocalCluster | None) -> str:
    """The addresses to ask; the others would only cost time."""
    nodes = () if state is None else state.nodes
    return ",".join(node.address for node in nodes if node.is_broker and is_running(node))


def _ask(bootstrap_servers: str, extra: tuple[str, ...]) -> _Answer:
    from kraftlog.sdk.cli.remote import admin_client

    try:
        with admin_client(bootstrap_servers, extra) as admin:
            quorum = admin.describe_metadata_quorum(allow_stale=True)
            cluster = admin.describe_cluster(allow_stale=True)
            topics = admin.describe_topics(allow_stale=True)
            return _Answer(cluster, quorum, _Health.of(each for topic in topics for each in topic.partitions))
    except KraftlogError as error:
        return _Answer(problem=error)


def _document(home: Path, state: LocalCluster | None, answer: _Answer) -> dict[str, Any]:
    document: dict[str, Any] = {
        "reachable": answer.cluster is not None,
        "cluster": None if answer.cluster is None else asdict(answer.cluster),
        "quorum": None if answer.quorum is None else asdict(answer.quorum),
        "health": None if answer.health is None else asdict(answer.health),
    }
    if state is not None:
        nodes = [{**asdict(node), "running": is_running(node)} for node in state.nodes]
        document |= {"home": str(home), "cluster_id": state.cluster_id, "nodes": nodes}
    if answer.problem is not None:
        document["error"] = answer.problem.message
    return document


def _print(home: Path, state: LocalCluster | None, answer: _Answer) -> None:
    from kraftlog.sdk.cli.quorum_table import STALE_NOTE, quorum_summary, quorum_table

    if state is not None:
        click.echo(f"cluster {state.cluster_id} in {home}")
        click.echo(table(("node", "roles", "address", "pid", "process", "broker"), _node_rows(state, answer.cluster)))
    elif answer.cluster is not None:
        click.echo(f"cluster {answer.cluster.cluster_id}")
        click.echo(table(("broker", "host", "port", "rack", "state"), _broker_rows(answer.cluster)))
    if answer.cluster is not None:
        click.echo(f"version: {answer.cluster.version}")
    if answer.health is not None:
        click.echo(answer.health.line())
    if answer.quorum is not None:
        if answer.quorum.stale:
            note(STALE_NOTE.format(node=answer.quorum.described_by))
        click.echo(quorum_summary(answer.quorum))
        click.echo(quorum_table(answer.quorum))


def _node_rows(state: LocalCluster, cluster: "ClusterDescription | None") -> list[tuple[object, ...]]:
    brokers = {} if cluster is None else {node.node_id: _broker_state(node) for node in cluster.nodes}
    return [
        (
            node.node_id,
            ",".join(node.roles),
            node.address,
            node.pid,
            "running" if is_running(node) else "stopped",
            brokers.get(node.node_id),
        )
        for node in state.nodes
    ]


def _broker_rows(cluster: "ClusterDescription") -> list[tuple[object, ...]]:
    return [(node.node_id, node.host, node.port, node.rack or None, _broker_state(node)) for node in cluster.nodes]


def _broker_state(node: "ClusterNodeDescription") -> str:
    return "fenced" if node.fenced else "active"
