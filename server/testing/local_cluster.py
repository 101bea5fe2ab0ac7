"""A real cluster inside a test: `with kraftlog.testing.cluster() as c: Producer(bootstrap_servers=c.bootstrap_servers)`.

The node is a process of its own with real gRPC, a real disk (a temporary directory) and a port of the kernel's choice. It
ends with the block, and at the latest when the interpreter exits.
"""

import atexit
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.testing.processes import NodeProcess

NODES_MAX = 1  # more with replication between nodes


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
    nodes: int = 1, *, config: Mapping[str, str] | None = None, directory: Path | None = None
) -> Iterator[Cluster]:
    """Run a cluster for the length of a `with` block.

    `config` adds keys of `server.properties` (`{"num.partitions": "3"}`). `directory` keeps the files; None: a temporary
    directory that is removed at the end. Raises `NodeStartError` with the node's own words if it does not start.

        with kraftlog.testing.cluster() as c, Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            producer.send("greetings", b"hello").result()
    """
    if not 1 <= nodes <= NODES_MAX:
        raise InvalidConfigError(f"cluster of {nodes} nodes: only {NODES_MAX} is possible")
    with contextlib.ExitStack() as stack:
        home = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftlog-")))
        processes = []
        for node_id in range(1, nodes + 1):
            node_directory = home / f"node-{node_id}"
            node_directory.mkdir(parents=True, exist_ok=True)
            process = stack.enter_context(NodeProcess(node_directory, node_id=node_id, config=config))
            atexit.register(process.close)
            stack.callback(atexit.unregister, process.close)
            processes.append(process)
        for process in processes:
            process.start()
        yield Cluster(tuple(processes))
