"""`kraftctl cluster bootstrap`: makes a local cluster, starts it, and lets it grow. May be given again at any time.

The first voters are written down (`initial_controllers` in the state) before the first log directory is formatted, so that
whatever comes between is completed by the next bootstrap with the same ones. Where other nodes have their log directory, one
that is missing is that of a lost disk: it is formatted without voters, for a quorum that exists.
"""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from kraftlog.proto.errors import DuplicateVoterError, KraftlogError
from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.exit_codes import ExitCode, exit_code_of
from kraftlog.sdk.cli.local import LocalCluster, LocalNode
from kraftlog.sdk.cli.options import client_options, format_option, parse_pairs
from kraftlog.sdk.cli.output import note, print_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.cluster_id import check_cluster_id, random_uuid
from kraftlog.server.cli.cluster_plan import (
    BOOTSTRAP_KEY,
    FIRST_CONTROLLER_ID,
    MAX_CONTROLLERS,
    MAX_NODES,
    PlannedNode,
    Shape,
    added_nodes,
    check_common,
    controller_address,
    main_address,
    moved_to,
    new_cluster,
    new_node,
)
from kraftlog.server.cli.local_home import dir_option, locked
from kraftlog.server.cli.local_node import (
    NodeStarter,
    data_directory,
    is_running,
    known_nodes,
    node_directory,
    properties_path,
    read_pairs,
    write_pairs,
)
from kraftlog.server.cli.storage import cluster_id_of, format_directory

START_TIMEOUT_S = 60.0  # recovery after an unclean stop reads the logs' unflushed parts
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 9092  # Kafka's
MAX_PORT = 65535


@click.command(short_help="Format and start a local cluster, or let it grow.")
@click.option(
    "--nodes",
    type=click.IntRange(1, MAX_CONTROLLERS),
    help="How many nodes, each broker and controller, numbered from 1; default: 1, or what is there.",
)
@click.option(
    "--controllers",
    type=click.IntRange(1, MAX_CONTROLLERS),
    help=f"With --brokers: how many controllers of their own, numbered from {FIRST_CONTROLLER_ID}.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, MAX_NODES),
    help="With --controllers: how many brokers that are no controllers, numbered from 1.",
)
@dir_option
@click.option("--host", help=f"Address to listen on; default: {DEFAULT_HOST}.")
@click.option(
    "--port",
    type=click.IntRange(0, MAX_PORT),
    envvar="KRAFTLOG_PORT",
    help=f"Port of the first node, the others take the next ones; default: {DEFAULT_PORT}; 0: free ones. [env KRAFTLOG_PORT]",
)
@click.option("--cluster-id", help="Cluster id of 22 characters; default: a random one.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="More of server.properties.")
@click.option(
    "--timeout", type=float, default=START_TIMEOUT_S, show_default=True, help="Seconds to wait for the nodes."
)
@client_options
@format_option
def bootstrap(
    nodes: int | None,
    controllers: int | None,
    brokers: int | None,
    directory: str | None,
    host: str | None,
    port: int | None,
    cluster_id: str | None,
    configs: tuple[str, ...],
    timeout: float,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Format and start a local cluster in the background, and print its address.

    A running cluster is left alone, but that more nodes than it has are added: each joins, and a controller gets a vote as
    soon as it has caught up. A stopped cluster, or what has stopped of it, starts with its data and its server.properties, in
    which --host, --port and -c change what they name.

    \b
    Examples:
      kraftctl cluster bootstrap
      kraftctl cluster bootstrap --nodes 3
      kraftctl cluster bootstrap --controllers 3 --brokers 2
      kraftctl cluster bootstrap --dir /tmp/try --port 0
      kraftctl cluster bootstrap -c log.retention.hours=1
    """
    wanted = Shape.of(nodes, controllers, brokers)
    more = parse_pairs(configs, "-c")
    home = local.home_directory(directory)
    with locked(home, create=True):
        found = local.read_state(home) or _found_state(home)
        shape = wanted if wanted.is_said else Shape(combined=1)
        state = found or _new_state(home, shape, host, port, cluster_id, more)
        _check_cluster_id(home, state, cluster_id)
        added = added_nodes({node.node_id: node.roles for node in state.nodes}, wanted)
        check_common(more, wanted if wanted.is_said else _shape_of(state), is_new=found is None)
        was_running = all(is_running(node) for node in state.nodes)
        if not was_running:
            if found is not None and not state.initial_controllers:
                state = _with_changes(home, state, host, port, more)
            state = _format_missing(home, state, cluster_id)
            state = _start(home, state, timeout, output_format)
        if added:
            state = _grow(home, state, added, port, more)
            state = _start(home, state, timeout, output_format)
        if state.joining:
            state = _give_votes(home, state, extra, timeout)
    _show(state, "already running" if was_running and not added else "running", home, output_format)


def _show(state: LocalCluster, word: str, home: Path, output_format: str) -> None:
    if output_format == "json":
        print_json({"status": word, "bootstrap_servers": state.bootstrap_servers, "home": str(home), **asdict(state)})
        return
    click.echo(f"cluster {state.cluster_id} is {word} at {state.bootstrap_servers} (in {home})")


# what there is


def _found_state(home: Path) -> LocalCluster | None:
    """A cluster whose state was not written or was removed: its nodes' folders are there."""
    nodes = tuple(_stopped_node(home, node_id, read_pairs(home, node_id)) for node_id in known_nodes(home))
    ids = filter(None, (cluster_id_of(_log_dir(home, node)) for node in nodes))
    return LocalCluster(cluster_id=next(ids, ""), nodes=nodes) if nodes else None


def _stopped_node(home: Path, node_id: int, pairs: dict[str, str]) -> LocalNode:
    from kraftlog.server.config import NodeConfig

    return LocalNode(
        node_id=node_id,
        directory=str(node_directory(home, node_id)),
        address=main_address(pairs),
        pid=None,
        process=None,
        roles=tuple(role for role in local.COMBINED if role in NodeConfig.from_properties(pairs).process_roles),
    )


def _log_dir(home: Path, node: LocalNode) -> Path:
    from kraftlog.server.config_file import read_node_config

    return Path(read_node_config(properties_path(home, node.node_id)).log_dir)


def _shape_of(state: LocalCluster) -> Shape:
    kinds = [node.roles for node in state.nodes]
    return Shape(kinds.count(local.COMBINED), kinds.count((local.CONTROLLER,)), kinds.count((local.BROKER,)))


def _check_cluster_id(home: Path, state: LocalCluster, cluster_id: str | None) -> None:
    if cluster_id is not None and state.cluster_id not in ("", cluster_id):
        raise CommandError(
            f"{home} belongs to cluster {state.cluster_id}, not to {cluster_id}",
            exit_code=ExitCode.CONFLICT,
            advice="Leave out --cluster-id, or choose another --dir.",
        )


# making


def _new_state(
    home: Path, shape: Shape, host: str | None, port: int | None, cluster_id: str | None, more: dict[str, str]
) -> LocalCluster:
    """Write down the nodes of a new cluster."""
    check_common(more, shape, is_new=True)
    if cluster_id is not None:
        check_cluster_id(cluster_id)
    planned = new_cluster(
        shape,
        host=host or DEFAULT_HOST,
        port=DEFAULT_PORT if port is None else port,
        more=more,
        data_of=lambda node_id: data_directory(home, node_id),
        free_ports=_kernel_ports,
    )
    return LocalCluster(cluster_id=cluster_id or random_uuid(), nodes=_written(home, planned))


def _written(home: Path, planned: list[PlannedNode]) -> tuple[LocalNode, ...]:
    for node in planned:
        write_pairs(home, node.node_id, node.pairs)
    return tuple(_stopped_node(home, node.node_id, node.pairs) for node in planned)


def _format_missing(home: Path, state: LocalCluster, cluster_id: str | None) -> LocalCluster:
    """Format the log directories that are not; returns the state with the cluster's id."""
    from kraftlog.server.config_file import read_node_config
    from kraftlog.server.first_voters import choose_first_voters

    ids = {node.node_id: cluster_id_of(_log_dir(home, node)) for node in state.nodes}
    made = state.cluster_id or cluster_id or random_uuid()
    state = replace(state, cluster_id=made)
    if not any(ids.values()) and not state.initial_controllers:
        state = replace(state, initial_controllers=_first_voters(home, state))
    local.write_state(home, state)
    for node in state.nodes:
        config = read_node_config(properties_path(home, node.node_id))
        existing = ids[node.node_id]
        if existing not in (None, made):
            raise CommandError(
                f"{config.log_dir} belongs to cluster {existing}, not to {made}",
                exit_code=ExitCode.CONFLICT,
                advice="Choose another --dir.",
            )
        if existing is None:
            joins = not state.initial_controllers and bool(config.controller_quorum_bootstrap_servers)
            chosen = choose_first_voters(
                config,
                fresh_directory_id=random_uuid(),
                initial_controllers=state.initial_controllers or None,
                no_initial_controllers=joins,
            )
            format_directory(Path(config.log_dir), cluster_id=made, node_id=config.node_id, chosen=chosen)
            if joins and node.is_controller and node.node_id not in state.joining:
                note(f"node {node.node_id} has a new log directory and no vote: see docs/clusters.md, a lost disk")
    state = replace(state, initial_controllers="")
    local.write_state(home, state)
    return state


def _first_voters(home: Path, state: LocalCluster) -> str:
    """All controllers, with new directories; empty for a node that knows of no other: it says itself where it listens."""
    from kraftlog.kraft.endpoints import Endpoint
    from kraftlog.kraft.raft import ReplicaKey
    from kraftlog.proto.uuids import uuid_from_text
    from kraftlog.server.first_voters import format_initial_controllers

    pairs = {node.node_id: read_pairs(home, node.node_id) for node in state.nodes}
    if not any(own.get(BOOTSTRAP_KEY) for own in pairs.values()):
        return ""
    return format_initial_controllers(
        {
            ReplicaKey(node.node_id, uuid_from_text(random_uuid())): Endpoint.parse(
                controller_address(pairs[node.node_id])
            )
            for node in state.nodes
            if node.is_controller
        }
    )


def _with_changes(
    home: Path, state: LocalCluster, host: str | None, port: int | None, more: dict[str, str]
) -> LocalCluster:
    """Change the files of the nodes that do not run. Addresses change only where no node runs: the others were told them."""
    stopped = [node for node in state.nodes if not is_running(node)]
    moves = len(stopped) == len(state.nodes)
    if not moves and (host is not None or port):
        note("a part of the cluster runs: its addresses stay as they are")
    pairs = {node.node_id: {**read_pairs(home, node.node_id), **more} for node in stopped}
    if moves and (host is not None or port is not None):
        ports = _ports_for(len(stopped), port)
        pairs = {
            node_id: moved_to(own, host, own_port)
            for (node_id, own), own_port in zip(pairs.items(), ports, strict=True)
        }
        if len(pairs) > 1:
            servers = ",".join(controller_address(pairs[node.node_id]) for node in stopped if node.is_controller)
            pairs = {node_id: {**own, BOOTSTRAP_KEY: servers} for node_id, own in pairs.items()}
    for node_id, own in pairs.items():
        write_pairs(home, node_id, own)
    return state.with_nodes(_stopped_node(home, node_id, own) for node_id, own in pairs.items())


def _ports_for(count: int, port: int | None) -> list[int | None]:
    if port is None:
        return [None] * count
    if port == 0 and count > 1:
        return [*_kernel_ports(count)]
    return [port + index if port else 0 for index in range(count)]


# starting


def _start(home: Path, state: LocalCluster, timeout_s: float, output_format: str) -> LocalCluster:
    """Start the nodes that do not run, and wait until all answer."""
    stopped = [node for node in state.nodes if not is_running(node)]
    if output_format == "text":
        word = "node" if len(stopped) == 1 else "nodes"
        note(f"starting {word} {', '.join(str(node.node_id) for node in stopped)} in {home} ...")
    starter = NodeStarter()
    try:
        launched = [starter.launch(node) for node in stopped]
        local.write_state(home, state.with_nodes(launched))
        state = state.with_nodes(starter.wait_ready(timeout_s))
    except BaseException:
        starter.kill()
        local.write_state(home, state)
        raise
    local.write_state(home, state)
    return state


# growing


def _grow(
    home: Path, state: LocalCluster, added: dict[int, tuple[str, ...]], port: int | None, more: dict[str, str]
) -> LocalCluster:
    """Write down the nodes that join. From then on every node's file names all controllers, and where it listens itself."""
    existing = {node.node_id: _pinned(read_pairs(home, node.node_id), node) for node in state.nodes}
    planned: list[PlannedNode] = []
    for node_id, roles in added.items():
        model = existing[next(node.node_id for node in state.nodes if node.roles == roles)]
        taken = [each for own in (*existing.values(), *(node.pairs for node in planned)) for each in _ports_of(own)]
        count = len(_ports_of(model))
        ports = _kernel_ports(count) if port == 0 else _next_ports(count, max(taken))
        planned.append(
            new_node(node_id, roles, model=model, more=more, ports=ports, data=data_directory(home, node_id))
        )
    everybody = {**existing, **{node.node_id: node.pairs for node in planned}}
    voting = [node.node_id for node in state.nodes if node.is_controller]
    joining = [node.node_id for node in planned if local.CONTROLLER in node.roles]
    servers = ",".join(controller_address(everybody[node_id]) for node_id in (*voting, *joining))
    for node_id, pairs in existing.items():
        write_pairs(home, node_id, {**pairs, BOOTSTRAP_KEY: servers})
    joined = [replace(node, pairs={**node.pairs, BOOTSTRAP_KEY: servers}) for node in planned]
    state = replace(state.with_nodes(_written(home, joined)), joining=(*state.joining, *joining))
    local.write_state(home, state)
    return _format_missing(home, state, None)


def _pinned(pairs: dict[str, str], node: LocalNode) -> dict[str, str]:
    """A port of the kernel's choice becomes fixed: the nodes that join are told it."""
    from kraftlog.server.config import NodeConfig

    plan = NodeConfig.from_properties(pairs).listener_plan
    return pairs if plan.main.port else moved_to(pairs, None, int(node.address.rpartition(":")[2]))


def _ports_of(pairs: dict[str, str]) -> list[int]:
    from kraftlog.server.config import NodeConfig

    return [listener.port for listener in NodeConfig.from_properties(pairs).listeners]


def _give_votes(home: Path, state: LocalCluster, extra: tuple[str, ...], timeout_s: float) -> LocalCluster:
    """To the nodes that have joined, one after the other."""
    from kraftlog.sdk.cli.remote import admin_client

    timeout_ms = round(timeout_s * 1000)
    settings = {"request_timeout_ms": timeout_ms, "default_api_timeout_ms": timeout_ms}
    with admin_client(state.bootstrap_servers, extra, **settings) as admin:
        for node_id in state.joining:
            try:
                admin.add_voter(node_id)
            except DuplicateVoterError:
                pass  # the answer to the first attempt was lost
            except KraftlogError as error:
                raise CommandError(
                    f"node {node_id} runs and has no vote: {error.message}",
                    exit_code=exit_code_of(error),
                    advice="Try again with `kraftctl cluster bootstrap`, or with `kraftctl quorum add-voter`.",
                ) from error
            note(f"node {node_id} is a voter")
            state = replace(state, joining=tuple(each for each in state.joining if each != node_id))
            local.write_state(home, state)
    return state


# ports


def _kernel_ports(count: int) -> list[int]:
    """Ports that nobody listens on, each another one."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(_bound(0)).getsockname()[1] for _ in range(count)]


def _next_ports(count: int, above: int) -> list[int]:
    """The next ports that nobody listens on."""
    return [port for port, _ in zip(_free_above(above), range(count), strict=False)]


def _free_above(above: int) -> Iterator[int]:
    for port in range(above + 1, MAX_PORT + 1):
        try:
            _bound(port).close()
        except OSError:
            continue
        yield port
    raise CommandError(f"no port above {above} is free", exit_code=ExitCode.CONFLICT, advice="Use --port 0.")


def _bound(port: int) -> socket.socket:
    made = socket.socket()
    try:
        made.bind((DEFAULT_HOST, port))
    except OSError:
        made.close()
        raise
    return made
