"""`kraftctl cluster stop` and `restart`. Brokers stop before controllers, for they take leave of them."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlog.proto.errors import KraftlogError
from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalCluster, LocalNode
from kraftlog.sdk.cli.options import client_options, format_option
from kraftlog.sdk.cli.output import note, print_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.local_home import dir_option, locked, made_cluster
from kraftlog.server.cli.local_node import NodeStarter, is_running, stop_nodes

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin
    from kraftlog.sdk.types import QuorumDescription

STOP_TIMEOUT_S = 30.0
RESTART_TIMEOUT_S = 60.0
LOOK_AGAIN_S = 0.1

node_option = click.option(
    "--node", "node_ids", metavar="ID", type=int, multiple=True, help="Only this node; may be repeated. Default: all."
)


@click.command()
@dir_option
@node_option
@click.option("--timeout", type=float, default=STOP_TIMEOUT_S, show_default=True, help="Seconds to wait for the nodes.")
@click.option("--force", is_flag=True, help="Kill a node that has not stopped in time (it recovers at its next start).")
@format_option
def stop(directory: str | None, node_ids: tuple[int, ...], timeout: float, force: bool, output_format: str) -> None:
    """Stop the local cluster; its data stay. Succeeds also when nothing runs."""
    home = local.home_directory(directory)
    state = local.read_state(home)
    stopped: list[LocalNode] = []
    if state is not None:
        stopped = [node for node in _chosen(state, node_ids) if is_running(node)]
        with locked(home):
            _stop(home, state, _chosen(state, node_ids), timeout, force=force)
    if output_format == "json":
        print_json({"stopped": [node.node_id for node in stopped], "home": str(home)})
    elif stopped and node_ids:
        click.echo(f"stopped {_named(stopped)} (in {home})")
    elif stopped:
        click.echo(f"cluster {state.cluster_id if state else ''} is stopped (in {home})")
    else:
        click.echo(f"no cluster runs in {home}")


def _chosen(state: LocalCluster, node_ids: tuple[int, ...]) -> list[LocalNode]:
    known = {node.node_id: node for node in state.nodes}
    for node_id in node_ids:
        if node_id not in known:
            raise CommandError(
                f"the cluster has no node {node_id}, only {', '.join(map(str, known))}", exit_code=ExitCode.NOT_FOUND
            )
    return [node for node in state.nodes if not node_ids or node.node_id in node_ids]


def _named(nodes: list[LocalNode]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(str(node.node_id) for node in nodes)


def _stop(home: Path, state: LocalCluster, nodes: list[LocalNode], timeout_s: float, *, force: bool) -> LocalCluster:
    """Brokers, then controllers; those of a kind at the same time."""
    for is_controller in (False, True):
        part = [node for node in nodes if node.is_controller is is_controller]
        state = state.with_nodes(stop_nodes(part, timeout_s, force=force))
        local.write_state(home, state)
    return state


def _start(home: Path, state: LocalCluster, nodes: list[LocalNode], timeout_s: float) -> LocalCluster:
    starter = NodeStarter()
    try:
        local.write_state(home, state.with_nodes([starter.launch(node) for node in nodes]))
        state = state.with_nodes(starter.wait_ready(timeout_s))
    finally:
        starter.kill()
        local.write_state(home, state)
    return state


@click.command()
@dir_option
@click.option(
    "--rolling",
    is_flag=True,
    help="One node after the other, each when the one before has caught up: without an outage.",
)
@click.option(
    "--timeout", type=float, default=RESTART_TIMEOUT_S, show_default=True, help="Seconds to wait at each step."
)
@client_options
@format_option
def restart(directory: str | None, rolling: bool, timeout: float, extra: tuple[str, ...], output_format: str) -> None:
    """Stop the nodes of the local cluster and start them again, with what stands in their server.properties now."""
    home = local.home_directory(directory)
    state = made_cluster(home)
    with locked(home):
        if rolling:
            state, order = _restart_one_by_one(home, state, extra, timeout)
        else:
            state = _stop(home, state, list(state.nodes), timeout, force=False)
            order = list(state.nodes)
            state = _start(home, state, order, timeout)
    if output_format == "json":
        print_json({"restarted": [node.node_id for node in order], "home": str(home)})
    else:
        click.echo(f"cluster {state.cluster_id} was restarted, runs at {state.bootstrap_servers} (in {home})")


def _restart_one_by_one(
    home: Path, state: LocalCluster, extra: tuple[str, ...], timeout_s: float
) -> tuple[LocalCluster, list[LocalNode]]:
    """Who leads the quorum comes last, so that it has to hand over only once."""
    down = [node for node in state.nodes if not is_running(node)]
    if down:
        raise CommandError(
            f"{_named(down)} of the cluster in {home} runs not",
            exit_code=ExitCode.UNREACHABLE,
            advice="Start it with `kraftctl cluster bootstrap`.",
        )
    leader_id = _wait_healthy(state, extra, timeout_s).leader_id
    order = sorted(state.nodes, key=lambda node: (node.node_id == leader_id, node.node_id))
    for number, node in enumerate(order, 1):
        state = _stop(home, state, [node], timeout_s, force=False)
        stopped = next(each for each in state.nodes if each.node_id == node.node_id)
        state = _start(home, state, [stopped], timeout_s)
        described = _wait_healthy(state, extra, timeout_s)
        note(
            f"node {node.node_id} was restarted ({number} of {len(order)}), node {described.leader_id} leads the quorum"
        )
    return state, order


def _wait_healthy(state: LocalCluster, extra: tuple[str, ...], timeout_s: float) -> "QuorumDescription":
    """Until every node has what is committed now, and every broker serves. Raises `CommandError` with what is missing."""
    from kraftlog.sdk.cli.remote import admin_client

    deadline = time.monotonic() + timeout_s
    missing = "the metadata quorum does not answer"
    with admin_client(state.bootstrap_servers, extra) as admin:
        committed = -1
        while True:
            try:
                described = admin.describe_metadata_quorum()
                committed = max(committed, described.high_watermark)
                missing = _missing(admin, state, described, committed)
            except KraftlogError as error:
                if not error.retriable:
                    raise
                missing = error.message
            else:
                if not missing:
                    return described
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"the cluster is not whole after {timeout_s:.0f} s: {missing}",
                    exit_code=ExitCode.UNREACHABLE,
                    advice="Look at `kraftctl cluster status`; nothing more was stopped.",
                )
            time.sleep(LOOK_AGAIN_S)


def _missing(admin: "Admin", state: LocalCluster, described: "QuorumDescription", committed: int) -> str:
    """What has to be waited for; empty: nothing."""
    ends = {replica.node_id: replica.log_end_offset for replica in (*described.voters, *described.observers)}
    behind = [node.node_id for node in state.nodes if ends.get(node.node_id, -1) < committed]
    if behind:
        return f"node {behind[0]} has not caught up with offset {committed}"
    active = {node.node_id for node in admin.describe_cluster().nodes if not node.fenced}
    absent = [node.node_id for node in state.nodes if node.is_broker and node.node_id not in active]
    return f"broker {absent[0]} does not serve yet" if absent else ""
