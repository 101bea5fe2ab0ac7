"""Bounds and timings of one Raft node. Time is counted in ticks; the driver decides how long a tick is."""

from dataclasses import dataclass

KiB = 1024
MiB = 1024 * KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    election_ticks: int = 10
    """Ticks without a leader before a voter asks for pre-votes; a random 0..election_ticks-1 is added on each wait.
    A leader that heard no majority for this long steps down (check-quorum), and a follower that heard its leader
    within it grants no vote (stickiness). At least 2 x heartbeat_ticks + 1."""

    heartbeat_ticks: int = 3
    """Ticks between heartbeats of a leader. At least 1."""

    fetch_ticks: int = 20
    """Ticks without a message of its leader after which an observer takes it for lost and looks for another
    (`controller.quorum.fetch.timeout.ms`). At least 2 x heartbeat_ticks + 1."""

    max_append_bytes: int = 1 * MiB
    """Entry bytes in one append; one entry may exceed it, since an entry is never split."""

    max_inflight_bytes: int = 8 * MiB
    """Entry bytes sent to one follower beyond what it has acknowledged."""

    max_uncommitted_bytes: int = 64 * MiB
    """Entry bytes that a leader holds beyond its commit offset before `propose` refuses. At least max_append_bytes."""

    max_apply_bytes: int = 1 * MiB
    """Committed entry bytes in one Ready, so that a long replay does not hold up messages and ticks."""

    max_snapshot_chunk_bytes: int = 1 * MiB
    """Snapshot bytes in one message."""

    max_pending_reads: int = 10_000
    """Read-index requests that wait for their round before `read_index` refuses."""

    def __post_init__(self) -> None:
        if self.heartbeat_ticks < 1:
            raise ValueError(f"heartbeat_ticks={self.heartbeat_ticks} is below 1")
        if self.election_ticks <= 2 * self.heartbeat_ticks:
            raise ValueError(
                f"election_ticks={self.election_ticks} must exceed 2 x heartbeat_ticks={self.heartbeat_ticks}"
            )
        if self.fetch_ticks <= 2 * self.heartbeat_ticks:
            raise ValueError(f"fetch_ticks={self.fetch_ticks} must exceed 2 x heartbeat_ticks={self.heartbeat_ticks}")
        for name in (
            "max_append_bytes",
            "max_inflight_bytes",
            "max_apply_bytes",
            "max_snapshot_chunk_bytes",
            "max_pending_reads",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1")
        if self.max_uncommitted_bytes < self.max_append_bytes:
            raise ValueError(
                f"max_uncommitted_bytes={self.max_uncommitted_bytes} is below max_append_bytes={self.max_append_bytes}"
            )
