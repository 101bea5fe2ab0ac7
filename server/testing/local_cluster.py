"""A real cluster inside a test: `with kraftlog.testing.cluster() as c: Producer(bootstrap_servers=c.bootstrap_servers)`.

Each node is a process of its own with real gRPC, a real disk (a temporary directory) and a port of the kernel's choice.
They end with the block, and at the latest when the interpreter exits.
"""

import atexit
import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.testing.processes import NodeProcess, free_ports

NODES_MAX = 9


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    nodes: tuple[NodeProcess, ...]

    @property
    def bootstrap_servers(self) -> str:
        """What clients take as `bootstrap_servers`."""
        return ",".join(node.address for node in self.nodes)

    @property
    def cluster_id(self) -> str:
        return self.nodes[0].cluster_id


@contextlib.contextmanager
def cluster(
    nodes: int = 1,
    *,
    config: Mapping[str, str] | None = None,
    directory: Path | None = None,
    racks: Sequence[str] = (),
) -> Iterator[Cluster]:
    """Run a cluster for the length of a `with` block. Every node is a broker and a voter of the metadata quorum.

    `config` adds keys of `server.properties` (`{"num.partitions": "3"}`). `racks`: one for each node; none: no racks.
    `directory` keeps the files; None: a temporary directory that is removed at the end. Raises `NodeStartError` with the node's own words if it does not start.

        with kraftlog.testing.cluster() as c, Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            producer.send("greetings", b"hello").result()
    """
    if not 1 <= nodes <= NODES_MAX:
        raise InvalidConfigError(f"cluster of {nodes} nodes: 1 to {NODES_MAX} are possible")
    with contextlib.ExitStack() as stack:
        home = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlog-")))
        processes = nodes_of(home, nodes, config=config, racks=racks)
        for process in processes:
            stack.enter_context(process)
            atexit.register(process.close)
            stack.callback(atexit.unregister, process.close)
        for process in processes:
            process.launch()
        for process in processes:
            process.wait_ready()
        yield Cluster(tuple(processes))


def nodes_of(
    home: Path, count: int, *, config: Mapping[str, str] | None = None, racks: Sequence[str] = ()
) -> list[NodeProcess]:
    """The nodes 1 to `count` of a new cluster in `home`, not started. Start all of them with `launch`, then wait for them:
    the first ones wait for a majority."""
    cluster_id = str(uuid.uuid4())
    configs = [{**(config or {}), **({"broker.rack": rack} if rack else {})} for rack in racks or [""] * count]
    if count == 1:
        return [NodeProcess(_made(home, 1), cluster_id=cluster_id, config=configs[0])]
    keys = [ReplicaKey(node_id, os.urandom(16)) for node_id in range(1, count + 1)]
    voters = {key: Endpoint("127.0.0.1", port) for key, port in zip(keys, free_ports(count), strict=True)}
    return [
        NodeProcess(
            _made(home, key.node_id),
            node_id=key.node_id,
            cluster_id=cluster_id,
            config={"controller.quorum.bootstrap.servers": ",".join(map(str, voters.values())), **own},
            directory_id=key.directory_id,
            voters=voters,
            address=str(voters[key]),
        )
        for key, own in zip(keys, configs, strict=True)
    ]


def _made(home: Path, node_id: int) -> Path:
    directory = home / f"node-{node_id}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory
