"""The metadata quorum in lines for people: `quorum describe` and `cluster status` show the same."""

from typing import TYPE_CHECKING

from kraftlog.sdk.cli.output import table

if TYPE_CHECKING:
    from kraftlog.sdk.types import QuorumDescription, QuorumReplica

STALE_NOTE = "no leader answers: this is what node {node} knows, it may be old"
_COLUMNS = ("node", "status", "directory id", "address", "log end", "lag", "last fetch", "caught up")


def quorum_summary(described: "QuorumDescription") -> str:
    leader = "no leader" if described.leader_id < 0 else f"leader {described.leader_id}"
    return f"quorum: {leader}, epoch {described.leader_epoch}, high watermark {described.high_watermark}"


def quorum_table(described: "QuorumDescription") -> str:
    """Voters, then observers. Ages are by the leader's clock, and as of its answer."""
    now_ms = max((replica.last_fetch_timestamp_ms for replica in _replicas(described)), default=-1)
    return table(_COLUMNS, [_row(each, _status(each, described), now_ms) for each in _replicas(described)])


def _replicas(described: "QuorumDescription") -> tuple["QuorumReplica", ...]:
    return (*described.voters, *described.observers)


def _status(replica: "QuorumReplica", described: "QuorumDescription") -> str:
    if replica in described.observers:
        return "observer"
    return "leader" if replica.node_id == described.leader_id else "voter"


def _row(replica: "QuorumReplica", status: str, now_ms: int) -> tuple[object, ...]:
    return (
        replica.node_id,
        status,
        replica.directory_id,
        replica.address or None,
        _known(replica.log_end_offset),
        _known(replica.lag),
        _age(now_ms, replica.last_fetch_timestamp_ms),
        _age(now_ms, replica.last_caught_up_timestamp_ms),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _age(now_ms: int, timestamp_ms: int) -> str | None:
    return None if timestamp_ms < 0 else f"{(now_ms - timestamp_ms) / 1000:.1f} s ago"
