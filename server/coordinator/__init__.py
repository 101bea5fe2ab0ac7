"""Coordinators: state of clients that lives in the partitions of an internal topic.

`GroupCoordinator` (`coordinator`) is what the node uses. Below it, from the outside in: `partition` joins one led
partition's parts; `runtime` appends, replays and waits for commits (rule 3: state changes only by replaying records);
`shard` decides for all groups of a partition; `group` is the state machine of one group; `records` are the bytes in
the log. `shard`, `group`, `members` and `records` are pure: no asyncio, clock or randomness.

Not here: where the log is (the node gives a `CoordinatorLog`), and which node coordinates a group (FindCoordinator is
answered from metadata, with `partitioning.partition_for`).
"""

from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.coordinator import GroupCoordinator
from kraftlog.server.coordinator.partitioning import partition_for
from kraftlog.server.coordinator.runtime import CoordinatorLog, LogRead

__all__ = ["CoordinatorLog", "GroupConfig", "GroupCoordinator", "LogRead", "partition_for"]
