"""Which nodes a local cluster has, and what stands in their files. Decides without touching any of it.

Combined nodes are numbered from 1, and so are brokers; controllers of their own are numbered from 1001. The ports of a new
cluster follow each other: brokers first, in the order of their ids. Port 0 stands for one of the kernel's choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import BROKER, COMBINED, CONTROLLER
from kraftlog.sdk.cli.report import CommandError

if TYPE_CHECKING:
    from kraftlog.server.listeners import Listener

FIRST_CONTROLLER_ID = 1001
MAX_NODES = 99
MAX_CONTROLLERS = 9
CONTROLLER_LISTENER = "CONTROLLER"
BOOTSTRAP_KEY = "controller.quorum.bootstrap.servers"
OWN_KEYS = frozenset(
    {"node.id", "broker.id", "process.roles", "log.dirs", "log.dir", "advertised.listeners", BOOTSTRAP_KEY}
)
"""What no two nodes of a cluster share, or all nodes are told by the plan."""

Roles = Mapping[int, tuple[str, ...]]
"""Node id -> roles."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes of which kind the command line asks for; 0: it does not say."""

    combined: int = 0
    controllers: int = 0
    brokers: int = 0

    @classmethod
    def of(cls, nodes: int | None, controllers: int | None, brokers: int | None) -> "Shape":
        """Raises `CommandError` for options that do not go together."""
        if nodes is not None and (controllers is not None or brokers is not None):
            raise CommandError(
                "--nodes makes nodes that are broker and controller: it excludes --controllers and --brokers",
                exit_code=ExitCode.USAGE,
            )
        if (controllers is None) != (brokers is None):
            raise CommandError("--controllers and --brokers go together", exit_code=ExitCode.USAGE)
        return cls(nodes or 0, controllers or 0, brokers or 0)

    @property
    def is_said(self) -> bool:
        return self != Shape()

    @property
    def roles(self) -> dict[int, tuple[str, ...]]:
        """All of its nodes, in the order of their ids."""
        if self.combined:
            return dict.fromkeys(range(1, self.combined + 1), COMBINED)
        found: dict[int, tuple[str, ...]] = {}
        found |= dict.fromkeys(range(1, self.brokers + 1), (BROKER,))
        found |= dict.fromkeys(range(FIRST_CONTROLLER_ID, FIRST_CONTROLLER_ID + self.controllers), (CONTROLLER,))
        return found


def added_nodes(existing: Roles, wanted: Shape) -> dict[int, tuple[str, ...]]:
    """The nodes by which a cluster grows to the shape asked for. Raises `CommandError` where it would shrink or change."""
    if not wanted.is_said:
        return {}
    for roles, verb in ((COMBINED, "--nodes"), ((BROKER,), "--brokers"), ((CONTROLLER,), "--controllers")):
        has = sum(1 for own in existing.values() if own == roles)
        asked = sum(1 for own in wanted.roles.values() if own == roles)
        if has and not asked:
            raise CommandError(
                f"the cluster has {_kinds(existing)}: {verb} is not given",
                exit_code=ExitCode.CONFLICT,
                advice="Grow it with the options that it was made with, or choose another --dir.",
            )
        if asked < has:
            raise CommandError(
                f"{verb} {asked} would take {has - asked} of {has} nodes away",
                exit_code=ExitCode.CONFLICT,
                advice="Take a vote with `kraftctl quorum remove-voter NODE`; stop a node with `kraftctl cluster stop --node NODE`.",
            )
        if asked and not has and existing:
            raise CommandError(
                f"the cluster has {_kinds(existing)}: {verb} does not fit",
                exit_code=ExitCode.CONFLICT,
                advice="Grow it with the options that it was made with, or choose another --dir.",
            )
    return {node_id: roles for node_id, roles in wanted.roles.items() if node_id not in existing}


def _kinds(existing: Roles) -> str:
    if all(roles == COMBINED for roles in existing.values()):
        return "nodes that are broker and controller"
    return "brokers and controllers of their own"


def check_common(more: Mapping[str, str], shape: Shape, *, is_new: bool) -> None:
    """`-c` is for every node of the cluster. Raises `CommandError` for what cannot be the same on several. A new cluster
    of combined nodes may be given listeners, at which each node takes its own ports."""
    count = len(shape.roles)
    own = sorted(OWN_KEYS & more.keys()) if count > 1 else []
    if "listeners" in more and (shape.controllers or (count > 1 and not is_new)):
        own.append("listeners")
    if own:
        raise CommandError(
            f"-c {own[0]} would be the same on {count} nodes",
            exit_code=ExitCode.USAGE,
            advice="Edit the files in node-*/server.properties instead, and start again.",
        )


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node that does not exist yet."""

    node_id: int
    roles: tuple[str, ...]
    pairs: dict[str, str]
    """Its server.properties."""


def new_cluster(
    shape: Shape,
    *,
    host: str,
    port: int,
    more: Mapping[str, str],
    data_of: Callable[[int], Path],
    free_ports: Callable[[int], list[int]],
) -> list[PlannedNode]:
    """The nodes of a new cluster. `data_of`: node id -> log directory. `free_ports`: asked where port 0 must become a port
    that the other nodes can be told."""
    from kraftlog.server.listeners import Listener, parse_listeners

    planned: list[PlannedNode] = []
    several = len(shape.roles) > 1
    for index, (node_id, roles) in enumerate(shape.roles.items()):
        name = CONTROLLER_LISTENER if roles == (CONTROLLER,) else "PLAINTEXT"
        listeners = parse_listeners("listeners", more.get("listeners", str(Listener(name, host, port))))
        moved = [each if each.port == 0 else replace(each, port=each.port + index) for each in listeners]
        if several:
            unknown = iter(free_ports(sum(1 for each in moved if each.port == 0)))
            moved = [each if each.port else replace(each, port=next(unknown)) for each in moved]
        pairs = {
            "node.id": str(node_id),
            "process.roles": ",".join(roles),
            "log.dirs": str(data_of(node_id)),
            "group.initial.rebalance.delay.ms": "0",  # as Kafka's own quick start: one user, who does not want to wait
            **({"controller.listener.names": CONTROLLER_LISTENER} if roles != COMBINED else {}),
            **more,
            "listeners": ",".join(map(str, moved)),
        }
        planned.append(PlannedNode(node_id, roles, pairs))
    if several:
        servers = ",".join(controller_address(node.pairs) for node in planned if CONTROLLER in node.roles)
        for node in planned:
            node.pairs[BOOTSTRAP_KEY] = servers
    return planned


def new_node(
    node_id: int,
    roles: tuple[str, ...],
    *,
    model: Mapping[str, str],
    more: Mapping[str, str],
    ports: Sequence[int],
    data: Path,
) -> PlannedNode:
    """A node that joins: like `model`, one of the same roles, at other ports, in the order of its listeners."""
    from kraftlog.server.listeners import parse_listeners

    listeners = parse_listeners("listeners", model["listeners"])
    moved = [replace(each, port=port) for each, port in zip(listeners, ports, strict=True)]
    pairs = {
        **model,
        **more,
        "node.id": str(node_id),
        "process.roles": ",".join(roles),
        "log.dirs": str(data),
        "listeners": ",".join(map(str, moved)),
    }
    return PlannedNode(node_id, roles, pairs)


def moved_to(pairs: Mapping[str, str], host: str | None, port: int | None) -> dict[str, str]:
    """The same node at another address: that of the listener through which clients come, in which only what is given
    changes. Other listeners, names and protocols stay."""
    from kraftlog.server.config import NodeConfig

    if host is None and port is None:
        return dict(pairs)
    plan = NodeConfig.from_properties(pairs).listener_plan
    listeners = [
        replace(each, host=each.host if host is None else host, port=each.port if port is None else port)
        if each.name == plan.main.name
        else each
        for each in plan.listeners
    ]
    return {**pairs, "listeners": ",".join(map(str, listeners))}


def main_address(pairs: Mapping[str, str]) -> str:
    """Where the node is reached on this machine: by clients if it is a broker, else by other nodes."""
    from kraftlog.server.config import NodeConfig

    return _local(NodeConfig.from_properties(pairs).listener_plan.main)


def controller_address(pairs: Mapping[str, str]) -> str:
    """Where other nodes reach a controller on this machine."""
    from kraftlog.server.config import NodeConfig

    return _local(NodeConfig.from_properties(pairs).listener_plan.controller_listeners[0])


def _local(listener: "Listener") -> str:
    from kraftlog.server.listening import ANY_HOST

    return f"{'127.0.0.1' if listener.host in ANY_HOST else listener.host}:{listener.port}"
