"""The file in which `kraftctl cluster bootstrap` keeps what it made and started: `<home>/cluster.json`.

    {"version": 2, "cluster_id": "...", "initial_controllers": "", "joining": [],
     "nodes": [{"node_id": 1, "directory": "...", "address": "localhost:9092", "pid": 4711, "process": "...",
                "roles": ["broker", "controller"]}]}

`pid` and `process` are null while a node is stopped. `process` tells this process from a later one with the same pid.
`initial_controllers` is who votes first, from before the first log directory is formatted until the last one is; `joining`
are nodes that were added and have no vote yet. Version 1 had neither these nor `roles`, and one node. Written whole to a temporary file and renamed, so a reader sees the old or the
new state.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.report import CommandError

HOME_VARIABLE = "KRAFTLOG_HOME"
DEFAULT_ADDRESS = "localhost:9092"  # Kafka's port
_VERSION = 2
BROKER, CONTROLLER = "broker", "controller"
COMBINED = (BROKER, CONTROLLER)


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node of the local cluster."""

    node_id: int
    directory: str
    address: str
    pid: int | None
    process: str | None
    roles: tuple[str, ...] = COMBINED

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """The local cluster as last seen by `kraftctl`."""

    cluster_id: str
    nodes: tuple[LocalNode, ...]
    initial_controllers: str = ""
    """As `storage format --initial-controllers` takes it; empty once every node is formatted."""
    joining: tuple[int, ...] = ()
    """Controllers that were added and still have to get a vote."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients take them."""
        return ",".join(node.address for node in self.nodes if node.is_broker)

    def with_nodes(self, changed: Iterable[LocalNode]) -> "LocalCluster":
        """The same cluster, with these nodes changed or added; in the order of their ids."""
        nodes = {node.node_id: node for node in (*self.nodes, *changed)}
        return replace(self, nodes=tuple(nodes[node_id] for node_id in sorted(nodes)))


def home_directory(given: str | None = None) -> Path:
    """Where the local cluster lives: `given`, else KRAFTLOG_HOME, else the user's data directory."""
    if given:
        return Path(given).expanduser().absolute()
    if from_environment := os.environ.get(HOME_VARIABLE):
        return Path(from_environment).expanduser().absolute()
    data_home = os.environ.get("XDG_DATA_HOME")
    return (Path(data_home) if data_home else Path.home() / ".local" / "share") / "kraftlog"


def state_path(home: Path) -> Path:
    return home / "cluster.json"


def read_state(home: Path) -> LocalCluster | None:
    """The state kept in `home`, or None if no cluster was ever made there."""
    path = state_path(home)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        nodes = tuple(LocalNode(**{**node, "roles": tuple(node.get("roles", COMBINED))}) for node in document["nodes"])
        return LocalCluster(
            cluster_id=document["cluster_id"],
            nodes=nodes,
            initial_controllers=document.get("initial_controllers", ""),
            joining=tuple(document.get("joining", ())),
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{path}: not a cluster state of this version of kraftctl: {error}",
            exit_code=ExitCode.INVALID_INPUT,
            advice="Stop the nodes by hand and remove the file; the data in node-*/ are not touched by that.",
        ) from error


def write_state(home: Path, state: LocalCluster) -> None:
    """Replace the state kept in `home`."""
    path = state_path(home)
    temporary = path.with_suffix(".json.tmp")
    temporary.write_text(json.dumps({"version": _VERSION, **asdict(state)}, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def default_bootstrap_servers() -> str:
    """The started local cluster's addresses, else localhost:9092."""
    state = read_state(home_directory())
    if state is None or not any(node.pid and node.is_broker for node in state.nodes):
        return DEFAULT_ADDRESS
    return state.bootstrap_servers
