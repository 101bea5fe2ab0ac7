"""The quorum as an operator sees it: who votes, who observes, and how far each of them is (KIP-836)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import RaftCore, ReplicaKey

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """One voter or observer. Only the leader knows of others; what is not known is -1."""

    key: ReplicaKey
    endpoint: Endpoint | None = None
    log_end_offset: int = UNKNOWN
    """Exclusive; what the leader knows to be durable there."""
    lag: int = UNKNOWN
    """Records that it lacks of the leader's log."""
    last_fetch_timestamp_ms: int = UNKNOWN
    """Wall clock of the leader when it last heard from it."""
    last_caught_up_timestamp_ms: int = UNKNOWN
    """Wall clock of the leader at which the replica had all that the leader had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    node_id: int
    """Who describes."""
    leader_id: int
    """-1: unknown."""
    leader_epoch: int
    high_watermark: int
    """Exclusive end of what is committed, as far as this node knows."""
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    """Those that the leader feeds at the moment; empty where another node leads."""

    @property
    def is_of_leader(self) -> bool:
        return self.node_id == self.leader_id


@dataclass(slots=True)
class _Times:
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    log_end_at_last_fetch: int = UNKNOWN


@dataclass(slots=True)
class FetchTimes:
    """When the leader heard from whom. A replica has caught up to the time t if it has what the leader had at t."""

    _times: dict[ReplicaKey, _Times] = field(default_factory=dict)

    def heard(self, key: ReplicaKey, *, replica_end: int, leader_end: int, now_ms: int) -> None:
        """`replica_end`, `leader_end`: log end offsets, exclusive."""
        times = self._times.setdefault(key, _Times())
        if replica_end >= leader_end:
            times.last_caught_up_ms = now_ms
        elif times.log_end_at_last_fetch != UNKNOWN and replica_end >= times.log_end_at_last_fetch:
            times.last_caught_up_ms = max(times.last_caught_up_ms, times.last_fetch_ms)
        times.last_fetch_ms, times.log_end_at_last_fetch = now_ms, leader_end

    def keep(self, keys: set[ReplicaKey]) -> None:
        """Forget all others: those that are not fed any more."""
        for key in self._times.keys() - keys:
            del self._times[key]

    def of(self, key: ReplicaKey) -> tuple[int, int]:
        """(last fetch, last caught up), -1 where it is not known."""
        times = self._times.get(key, _Times())
        return times.last_fetch_ms, times.last_caught_up_ms


def describe_quorum(
    core: RaftCore, endpoints: Mapping[ReplicaKey, Endpoint | None], times: FetchTimes, *, now_ms: int
) -> QuorumDescription:
    fed = set() if core.leadership is None else set(core.leadership.progress)

    def state_of(key: ReplicaKey) -> ReplicaState:
        return _state_of(core, key, endpoints.get(key), times, now_ms)

    return QuorumDescription(
        node_id=core.key.node_id,
        leader_id=UNKNOWN if core.leader is None else core.leader.node_id,
        leader_epoch=core.term,
        high_watermark=core.high_watermark,
        voters=tuple(map(state_of, sorted(core.voters))),
        observers=tuple(map(state_of, sorted(fed - core.voters))),
    )


def _state_of(
    core: RaftCore, key: ReplicaKey, endpoint: Endpoint | None, times: FetchTimes, now_ms: int
) -> ReplicaState:
    if key == core.key:
        heard_ms = now_ms if core.is_leader else UNKNOWN
        return ReplicaState(
            key=key,
            endpoint=endpoint,
            log_end_offset=core.next_offset,
            lag=0 if core.is_leader else UNKNOWN,
            last_fetch_timestamp_ms=heard_ms,
            last_caught_up_timestamp_ms=heard_ms,
        )
    if core.leadership is None or key not in core.leadership.progress:
        return ReplicaState(key=key, endpoint=endpoint)
    last_fetch_ms, last_caught_up_ms = times.of(key)
    if last_fetch_ms == UNKNOWN:  # not heard of since this leader leads: where it is, is a guess
        return ReplicaState(key=key, endpoint=endpoint)
    match_offset = core.leadership.progress[key].match_offset
    return ReplicaState(
        key=key,
        endpoint=endpoint,
        log_end_offset=match_offset + 1,
        lag=core.log.last_offset - match_offset,
        last_fetch_timestamp_ms=last_fetch_ms,
        last_caught_up_timestamp_ms=last_caught_up_ms,
    )
