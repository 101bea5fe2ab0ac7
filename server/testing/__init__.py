"""What a user imports to test against kraftlog: a cluster inside a test, the simulator and its fakes.

`cluster()`           a real node process with real gRPC and a temporary directory
`kraftlog.testing.sim`  the deterministic simulator: node, producers and consumers on virtual time, with faults
`kraftlog.testing.raft_sim`  the same for the quorum alone, with more faults, for any implementation of Raft
`loop`, `network`, `filesystem`, `clock`, `executor`   its parts, for tests of one's own

Names load on first use, so that the simulator does not import gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftlog.testing.local_cluster import Cluster, cluster
    from kraftlog.testing.loop import run_virtual
    from kraftlog.testing.processes import NodeProcess, NodeStartError

_PUBLIC = {
    "Cluster": "kraftlog.testing.local_cluster",
    "cluster": "kraftlog.testing.local_cluster",
    "NodeProcess": "kraftlog.testing.processes",
    "NodeStartError": "kraftlog.testing.processes",
    "run_virtual": "kraftlog.testing.loop",
}

__all__ = ["Cluster", "NodeProcess", "NodeStartError", "cluster", "run_virtual"]


def __getattr__(name: str) -> Any:
    try:
        module = _PUBLIC[name]
    except KeyError:
        raise AttributeError(f"module 'kraftlog.testing' has no attribute {name!r}") from None
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
