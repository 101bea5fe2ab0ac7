"""The sans-IO Raft core. What it is not: it owns no thread, clock, socket, file or random source.

A driver calls `step`, `tick`, `propose`, `change_voter`, `read_index`, `transfer`, takes `ready()` and does its effects
in the order that `Ready` documents, then calls `advance`. Reading order: messages, log_view, progress, core, leadership.
"""

from kraftlog.kraft.raft.config import RaftConfig
from kraftlog.kraft.raft.core import BusyError, ControlData, NotLeaderError, RaftCore, Role
from kraftlog.kraft.raft.messages import (
    NO_DIRECTORY,
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    HardState,
    Message,
    ReadResult,
    Ready,
    ReplicaKey,
    Snapshot,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    Voters,
)

__all__ = [
    "NO_DIRECTORY",
    "NO_OFFSET",
    "AppendRequest",
    "AppendResponse",
    "BusyError",
    "ControlData",
    "Entry",
    "EntryKind",
    "HardState",
    "Message",
    "NotLeaderError",
    "RaftConfig",
    "RaftCore",
    "ReadResult",
    "Ready",
    "ReplicaKey",
    "Role",
    "Snapshot",
    "SnapshotRequest",
    "SnapshotResponse",
    "TimeoutNow",
    "VoteRequest",
    "VoteResponse",
    "Voters",
]
