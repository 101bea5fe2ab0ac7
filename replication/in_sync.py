"""Which replicas are in sync with the leader of a partition, and how far the records are that all of them have.

Rules (DESIGN section 5, KIP-497, KIP-966):

- A replica counts with its flushed end where acknowledgments wait for the disk (`flush.policy=ack`), else with its log end.
- The high watermark is the minimum over the *maximal* ISR: the committed one and everybody whom the leader has asked the
  controller to take in. It does not move while the committed ISR is smaller than min.insync.replicas.
- A follower leaves when it was last level with the leader longer ago than `replica.lag.time.max.ms`. It enters when its
  end has reached the high watermark and the start of the leader's epoch: before that it may lack what was acknowledged.
  Its log must start where the leader's does, too: what was deleted on request must not come back with it as leader.
- Where flush.policy has become `ack`, the leader tells the controller when everybody in the ISR has flushed through where
  its log ended at that moment. Until then an unclean stop costs a replica its place, for some was acknowledged from memory.
- One change of the ISR at a time is under way. Whether one whose answer was lost has happened, only a newer partition
  epoch or a refusal says; until then both ISRs hold.

Pure; times are monotonic milliseconds. Used from one event loop.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReplicaEnds:
    """How far a follower has come, as it reported last."""

    log_end_offset: int
    flushed_end_offset: int
    log_start_offset: int = 0


@dataclass(slots=True)
class Follower:
    """What the leader knows of one follower in the present leader epoch."""

    last_level_ms: float
    """When it last had all that the leader had."""
    ends: ReplicaEnds = ReplicaEnds(0, 0)
    broker_epoch: int = UNKNOWN_EPOCH
    """Of the process that reported last."""
    reported_ms: float = -1.0
    leader_end_at_report: int = -1

    def end(self, *, flushed: bool) -> int:
        """Exclusive end of what counts."""
        return self.ends.flushed_end_offset if flushed else self.ends.log_end_offset


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What a leader asks the controller for."""

    partition_epoch: int
    """In which the leader has found it."""
    in_sync_replicas: tuple[tuple[int, int], ...]
    """(broker, broker epoch), the leader included."""
    has_flushed: bool = False
    """All of them have on disk what was acknowledged from memory before."""


class BrokerState(Protocol):
    """What the metadata say of a broker; `kraft.image.BrokerImage` is one."""

    @property
    def broker_epoch(self) -> int: ...

    @property
    def is_fenced(self) -> bool: ...

    @property
    def in_controlled_shutdown(self) -> bool: ...


class InSync:
    """Of one leader epoch of one partition."""

    def __init__(self, node_id: int, replicas: Iterable[int], now_ms: float) -> None:
        self._node_id = node_id
        self.followers: dict[int, Follower] = {}
        self.committed: frozenset[int] = frozenset()
        """The ISR that the metadata have."""
        self.pending: IsrProposal | None = None
        self._flush_refused_in = -1
        """The partition epoch in which the controller did not take it that everything is flushed."""
        self.set_replicas(replicas, now_ms)

    def set_replicas(self, replicas: Iterable[int], now_ms: float) -> None:
        """Replicas may come and go within an epoch (KIP-455); a new one has its time to catch up."""
        wanted = [replica for replica in replicas if replica != self._node_id]
        self.followers = {replica: self.followers.get(replica) or Follower(now_ms) for replica in wanted}

    def commit(self, in_sync_replicas: Iterable[int], partition_epoch: int) -> None:
        """The metadata have this ISR in this partition epoch."""
        self.committed = frozenset(in_sync_replicas)
        if self.pending is not None and partition_epoch > self.pending.partition_epoch:
            self.pending = None  # this one, or another change that made it void

    @property
    def maximal(self) -> frozenset[int]:
        """The ISR as it may be by now."""
        if self.pending is None:
            return self.committed
        return self.committed | {replica for replica, _ in self.pending.in_sync_replicas}

    def end(self, own_end: int, *, flushed: bool) -> int:
        """Exclusive end of what every replica of the maximal ISR has; `own_end`: the leader's."""
        ends = [own_end]
        for replica in self.maximal:
            if replica != self._node_id:
                follower = self.followers.get(replica)
                ends.append(0 if follower is None else follower.end(flushed=flushed))
        return min(ends)

    def start(self, own_start: int) -> int:
        """Below this no replica of the maximal ISR has anything; `own_start`: the leader's."""
        starts = [own_start]
        for replica in self.maximal:
            if replica != self._node_id:
                follower = self.followers.get(replica)
                starts.append(0 if follower is None else follower.ends.log_start_offset)
        return min(starts)

    # --- what happens

    def on_report(
        self, replica: int, ends: ReplicaEnds, broker_epoch: int, *, leader_end: int, flushed: bool, now_ms: float
    ) -> bool:
        """A follower says how far it is; False: it is no replica."""
        follower = self.followers.get(replica)
        if follower is None:
            return False
        if broker_epoch != follower.broker_epoch:  # another process: what the old one had on the disk it may have lost
            follower.leader_end_at_report = -1
        follower.ends, follower.broker_epoch = ends, broker_epoch
        end = follower.end(flushed=flushed)
        if end >= leader_end:
            follower.last_level_ms = now_ms
        elif follower.leader_end_at_report >= 0 and end >= follower.leader_end_at_report:
            follower.last_level_ms = max(follower.last_level_ms, follower.reported_ms)
        follower.reported_ms, follower.leader_end_at_report = now_ms, leader_end
        return True

    def on_append(self, end_before: int, *, flushed: bool, now_ms: float) -> None:
        """The leader gets more: who had everything until now has nothing to say, and was level until now."""
        for follower in self.followers.values():
            if follower.end(flushed=flushed) >= end_before:
                follower.last_level_ms = now_ms

    # --- what to ask for

    def proposal(
        self,
        *,
        partition_epoch: int,
        leader_start: int,
        leader_end: int,
        high_watermark: int,
        epoch_start_offset: int,
        flushed: bool,
        is_recovering: bool,
        max_lag_ms: float,
        now_ms: float,
        brokers: Mapping[int, BrokerState],
        end_to_flush: int | None = None,
    ) -> IsrProposal | None:
        """The change of the ISR that is due, if any. It is under way from now on: call `refuse` if it is refused.

        `is_recovering`: this leader was elected uncleanly, and says with any proposal that it is ready (KIP-704).
        `end_to_flush`: what the leader itself has flushed, and the controller wants to know of the others.
        """
        if self.pending is not None or self._node_id not in brokers:
            return None
        wanted = {self._node_id}
        entry = max(high_watermark, epoch_start_offset)
        for replica, follower in self.followers.items():
            broker, end = brokers.get(replica), follower.end(flushed=flushed)
            if broker is None:
                continue
            if replica in self.committed:
                if end >= leader_end or now_ms - follower.last_level_ms <= max_lag_ms:
                    wanted.add(replica)
            elif (
                end >= entry
                and follower.ends.log_start_offset >= leader_start
                and follower.broker_epoch == broker.broker_epoch
                and not broker.is_fenced
                and not broker.in_controlled_shutdown
            ):
                wanted.add(replica)
        has_flushed = (
            end_to_flush is not None
            and wanted == self.committed
            and partition_epoch != self._flush_refused_in
            and self._have_flushed(end_to_flush, brokers)
        )
        if wanted == self.committed and not is_recovering and not has_flushed:
            return None
        members = tuple((replica, brokers[replica].broker_epoch) for replica in sorted(wanted))
        self.pending = IsrProposal(partition_epoch, members, has_flushed)
        return self.pending

    def _have_flushed(self, end: int, brokers: Mapping[int, BrokerState]) -> bool:
        """Whether each follower in the ISR has, as the process that it is."""
        return all(
            (follower := self.followers.get(replica)) is not None
            and follower.ends.flushed_end_offset >= end
            and follower.broker_epoch == brokers[replica].broker_epoch
            for replica in self.committed
            if replica != self._node_id
        )

    def refuse(self, proposal: IsrProposal) -> bool:
        """The controller has not done it, and never will; whether it was under way."""
        if self.pending is not proposal:
            return False
        self.pending = None
        if proposal.has_flushed:
            self._flush_refused_in = proposal.partition_epoch
        return True
