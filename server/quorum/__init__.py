"""The metadata quorum in a running node: the driver that does the Raft core's effects, the transport between nodes, and
the node's face of it."""

from kraftlog.server.quorum.describe import QuorumDescription, ReplicaState
from kraftlog.server.quorum.driver import QuorumDriver, QuorumStorage
from kraftlog.server.quorum.node import QuorumConfig, QuorumNode
from kraftlog.server.quorum.peers import Peers, PeersConfig
from kraftlog.server.quorum.snapshots import SnapshotConfig

__all__ = [
    "Peers",
    "PeersConfig",
    "QuorumConfig",
    "QuorumDescription",
    "QuorumDriver",
    "QuorumNode",
    "QuorumStorage",
    "ReplicaState",
    "SnapshotConfig",
]
