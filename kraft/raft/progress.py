"""What a leader knows of one follower or observer."""

from dataclasses import dataclass

from kraftlog.kraft.raft.messages import NO_OFFSET, Snapshot


@dataclass(slots=True)
class Progress:
    """Three modes. *Probing*: the match is not known, one append at a time. *Pipelining*: appends are sent without
    waiting, up to the byte bound. *Snapshot*: `snapshot` is under way, chunk by chunk.

    A refusal, or a lost message noticed at a heartbeat, leads back to probing; the first match leads to pipelining.
    """

    sent_offset: int
    """Last offset that was sent; the next append names it as its predecessor. A boundary of the leader's log, or below
    the leader's snapshot. Invariant: match_offset <= sent_offset."""

    match_offset: int = NO_OFFSET
    """The follower's log equals the leader's up to here, durably. Never goes back while the leadership lasts."""

    is_probing: bool = True
    is_waiting: bool = False
    """A probe or a snapshot chunk is under way and unanswered."""

    waited_ticks: int = 0
    """Ticks since the unanswered snapshot chunk was sent."""

    is_active: bool = True
    """Heard from since the last quorum check."""

    round: int = 0
    """Highest round that was answered."""

    snapshot: Snapshot | None = None
    """Stays the same until its transfer ends, also when the leader takes newer ones meanwhile: a transfer that is
    slower than the snapshot interval would start again for ever."""

    snapshot_position: int = 0
    """Bytes of `snapshot` that the follower holds."""

    def probe_from(self, offset: int) -> None:
        self.sent_offset = max(offset, self.match_offset)
        self.is_probing, self.is_waiting = True, False

    def matched(self, offset: int) -> None:
        self.match_offset = max(self.match_offset, offset)
        if self.snapshot is not None and self.match_offset < self.snapshot.last_offset:
            return
        self.snapshot = None
        self.is_waiting = False
        if self.is_probing:
            self.is_probing = False
            self.sent_offset = self.match_offset
        self.sent_offset = max(self.sent_offset, self.match_offset)
