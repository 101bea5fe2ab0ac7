"""The metadata quorum in a running node: the driver that does the Raft core's effects, and the node's face of it."""

from kraftlog.server.quorum.driver import QuorumDriver, QuorumStorage
from kraftlog.server.quorum.node import QuorumConfig, QuorumNode

__all__ = ["QuorumConfig", "QuorumDriver", "QuorumNode", "QuorumStorage"]
