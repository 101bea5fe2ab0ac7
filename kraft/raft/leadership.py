"""The leader's side: replication, commit, reads, voter changes, transfer. One object per leadership."""

import math
from collections.abc import Iterable
from typing import Protocol

from kraftlog.kraft.raft.config import RaftConfig
from kraftlog.kraft.raft.log_view import LogView
from kraftlog.kraft.raft.messages import (
    NO_OFFSET,
    AppendRequest,
    AppendResponse,
    Entry,
    EntryKind,
    Message,
    ReadResult,
    ReplicaKey,
    SnapshotRequest,
    SnapshotResponse,
    TimeoutNow,
    Voters,
)
from kraftlog.kraft.raft.progress import Progress


class BusyError(Exception):
    """Not now; the same call may succeed later."""


class ControlData(Protocol):
    """Encodes the batches that the core writes on its own account. Each is one batch of one record."""

    def leader_change(self, offset: int, term: int, leader: ReplicaKey, voters: Voters) -> bytes: ...

    def voters(self, offset: int, term: int, voters: Voters) -> bytes: ...


class LedCore(Protocol):
    """What a leadership needs of its RaftCore."""

    key: ReplicaKey
    config: RaftConfig
    control: ControlData
    log: LogView
    term: int
    commit_offset: int
    persisted_offset: int
    observers: set[ReplicaKey]

    @property
    def leadership(self) -> "Leadership | None": ...

    @property
    def voters(self) -> Voters: ...

    @property
    def voters_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    def quorum_of(self, values: Iterable[int]) -> int: ...

    def has_majority(self, keys: Iterable[ReplicaKey]) -> bool: ...

    def append(self, entry: Entry) -> None: ...

    def send(self, message: Message) -> None: ...

    def answer_read(self, read: ReadResult) -> None: ...

    def become_follower(self, term: int, leader: ReplicaKey | None) -> None: ...


class Leadership:
    """Used only by its RaftCore. Dropped, with all that waits in it, when the role changes."""

    def __init__(self, core: LedCore) -> None:
        self._core = core
        self._config = core.config
        self.progress: dict[ReplicaKey, Progress] = {}
        self._peers: tuple[ReplicaKey, ...] = ()
        """Its keys, in order."""
        self.first_offset = NO_OFFSET
        """Where the leader-change entry of this leadership stands."""
        self.transferee: ReplicaKey | None = None
        self._transfer_ticks = 0
        self._round = 0
        self._pending_reads: list[tuple[object, int, int]] = []
        """(context, commit offset when asked, round that must be answered by a majority), rounds ascending."""
        self._ticks_since_check = 0
        self._ticks_since_heartbeat = 0
        self._has_entries_to_send = False
        self._has_commit_to_send = False

    def begin(self) -> None:
        core = self._core
        self._sync_progress()
        offset = core.next_offset
        data = core.control.leader_change(offset, core.term, core.key, core.voters)
        core.append(Entry(offset, core.term, EntryKind.LEADER_CHANGE, data))
        self.first_offset = offset
        self._has_entries_to_send = True

    def end(self) -> None:
        """Not leader any more: what waits for this leadership fails."""
        for context, _, _ in self._pending_reads:
            self._core.answer_read(ReadResult(context, None))
        self._pending_reads = []

    @property
    def has_committed_own_term(self) -> bool:
        """Before that the commit offset of the quorum is not known here (KIP-595; W13 of the fault list)."""
        return self._core.commit_offset >= self.first_offset

    # --- time ---------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        self._ticks_since_check += 1
        self._ticks_since_heartbeat += 1
        self._tick_transfer()
        for progress in self.progress.values():
            progress.waited_ticks += 1
        if self._ticks_since_check >= self._config.election_ticks and not self._check_quorum():
            return
        if self._ticks_since_heartbeat >= self._config.heartbeat_ticks:
            self._ticks_since_heartbeat = 0
            self._round += 1
            for progress in self.progress.values():
                self._retry_lost(progress)
            self._broadcast(is_heartbeat=True)

    def _tick_transfer(self) -> None:
        if self.transferee is not None:
            self._transfer_ticks += 1
            if self._transfer_ticks > self._config.election_ticks:
                self.transferee = None

    def _check_quorum(self) -> bool:
        """Step down if no majority was heard for an election timeout: another leader may exist already."""
        self._ticks_since_check = 0
        active = [peer for peer, progress in self.progress.items() if progress.is_active]
        for progress in self.progress.values():
            progress.is_active = False
        if self._core.has_majority([*active, self._core.key]):
            return True
        self._core.become_follower(self._core.term, None)
        return False

    def _retry_lost(self, progress: Progress) -> None:
        if progress.snapshot is None or progress.waited_ticks >= self._config.election_ticks // 2:
            progress.is_waiting = False

    # --- requests -----------------------------------------------------------------------------------------------

    def propose(self, data: bytes, record_count: int) -> Entry:
        if len(data) > self.room_bytes:
            raise BusyError(self.why_busy)
        core = self._core
        entry = Entry(core.log.last_offset + record_count, core.term, EntryKind.DATA, data, record_count)
        core.append(entry)
        self._has_entries_to_send = True
        return entry

    @property
    def room_bytes(self) -> float:
        """What may be appended now. While nothing is pending, an entry of any size."""
        return self._config.max_uncommitted_bytes - self._pending_bytes if self._pending_bytes else math.inf

    @property
    def why_busy(self) -> str:
        return f"{self._pending_bytes} bytes are not committed yet, max_uncommitted_bytes={self._config.max_uncommitted_bytes}"

    @property
    def _pending_bytes(self) -> int:
        core = self._core
        return core.log.bytes_between(core.commit_offset, core.log.last_offset)

    def add_voter(self, key: ReplicaKey) -> Entry | None:
        core = self._core
        self.check_may_change_voters()
        if key in core.voters:
            return None
        progress = self.progress.get(key)
        if progress is None:
            core.observers.add(key)
            self.sync_observers()
            raise BusyError(f"node {key.node_id} observes from now on; add it when it has caught up")
        if progress.match_offset < core.commit_offset or not progress.is_active:
            raise BusyError(
                f"node {key.node_id} has offset {progress.match_offset}, the commit offset is {core.commit_offset}"
            )
        return self._append_voters(core.voters | {key})

    def remove_voter(self, key: ReplicaKey) -> Entry | None:
        core = self._core
        self.check_may_change_voters()
        if key not in core.voters or len(core.voters) == 1:
            return None
        return self._append_voters(core.voters - {key})

    def sync_observers(self) -> None:
        """The core's `observers` have changed. A new one gets a first append at once: it may have waited long."""
        known = set(self.progress)
        self._sync_progress()
        for key in sorted(self.progress.keys() - known):
            self._replicate(key, is_heartbeat=True)

    def record_voters(self) -> Entry | None:
        """Write the voters to the log if only the genesis has them; None: it has them, or it is too early.

        So whoever joins without a genesis learns who votes, and where (KIP-853: the first leader writes them).
        """
        core = self._core
        if core.voters_offset != NO_OFFSET or not self.has_committed_own_term:
            return None
        return self._append_voters(core.voters)

    def check_may_change_voters(self) -> None:
        """One change at a time, and none before an entry of the own term is committed: else two majorities that do
        not overlap are possible (the bug in the original single-server change, raft-dev 2015)."""
        core = self._core
        if core.voters_offset > core.commit_offset:
            raise BusyError(f"the voter change at offset {core.voters_offset} is not committed yet")
        if not self.has_committed_own_term:
            raise BusyError(f"nothing of term {core.term} is committed yet")

    def _append_voters(self, voters: Voters) -> Entry:
        core = self._core
        offset = core.next_offset
        entry = Entry(
            offset, core.term, EntryKind.VOTERS, core.control.voters(offset, core.term, voters), voters=voters
        )
        core.append(entry)
        self._sync_progress()
        self._has_entries_to_send = True
        return entry

    def _sync_progress(self) -> None:
        core = self._core
        wanted = (core.voters | core.observers) - {core.key}
        for peer in sorted(wanted - self.progress.keys()):
            self.progress[peer] = Progress(sent_offset=core.log.last_offset)
        for peer in self.progress.keys() - wanted:
            del self.progress[peer]
        self._peers = tuple(sorted(self.progress))

    def read_index(self, context: object) -> None:
        if len(self._pending_reads) >= self._config.max_pending_reads:
            raise BusyError(
                f"{len(self._pending_reads)} reads wait, max_pending_reads={self._config.max_pending_reads}"
            )
        self._round += 1
        self._pending_reads.append((context, self._core.commit_offset, self._round))
        if self._core.has_majority([self._core.key]):
            self._answer_reads()
        else:
            self._broadcast(is_heartbeat=True)

    def transfer(self, target: ReplicaKey) -> None:
        self.transferee, self._transfer_ticks = target, 0
        if self.progress[target].match_offset == self._core.log.last_offset:
            self._tell_to_campaign(target)
        else:
            self._replicate(target)

    def _tell_to_campaign(self, target: ReplicaKey) -> None:
        self._core.send(TimeoutNow(self._core.key, target, self._core.term))

    # --- replication --------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        return self._has_entries_to_send or self._has_commit_to_send

    def send_news(self) -> None:
        """What was appended or committed since the last Ready, in as few messages as possible."""
        if self.has_news:
            self._broadcast(is_heartbeat=self._has_commit_to_send)
            self._has_entries_to_send = self._has_commit_to_send = False

    def _broadcast(self, *, is_heartbeat: bool = False) -> None:
        for peer in self._peers:
            self._replicate(peer, is_heartbeat=is_heartbeat)

    def _replicate(self, peer: ReplicaKey, *, is_heartbeat: bool = False) -> None:
        """Send what the peer lacks, as far as its mode and the byte bounds allow; a heartbeat goes out in any case."""
        core, progress = self._core, self.progress[peer]
        if progress.snapshot is not None or progress.sent_offset < core.log.snapshot.last_offset:
            self._send_snapshot(peer, progress, is_heartbeat)
            return
        while True:
            prev = progress.sent_offset
            entries = self._next_entries(progress)
            if not entries and not is_heartbeat:
                return
            self._send_append(peer, prev, entries, core.commit_offset)
            is_heartbeat = False
            if progress.is_probing:
                progress.is_waiting = True
                return
            if entries:
                progress.sent_offset = entries[-1].last_offset

    def _next_entries(self, progress: Progress) -> tuple[Entry, ...]:
        log, config = self._core.log, self._config
        if progress.sent_offset >= log.last_offset or (progress.is_probing and progress.is_waiting):
            return ()
        if log.bytes_between(progress.match_offset, progress.sent_offset) >= config.max_inflight_bytes:
            return ()
        return log.entries_after(progress.sent_offset, config.max_append_bytes)

    def _send_append(self, peer: ReplicaKey, prev: int, entries: tuple[Entry, ...], commit_offset: int) -> None:
        core = self._core
        prev_term = core.log.term_at(prev) if prev != NO_OFFSET else 0
        assert prev_term is not None, f"offset {prev} is not a boundary"
        core.send(AppendRequest(core.key, peer, core.term, prev, prev_term, entries, commit_offset, self._round))

    def _send_snapshot(self, peer: ReplicaKey, progress: Progress, is_heartbeat: bool) -> None:
        core = self._core
        if progress.is_waiting:
            if is_heartbeat:  # keeps the follower quiet, asks nothing
                self._send_append(peer, NO_OFFSET, (), NO_OFFSET)
            return
        if progress.snapshot is None:
            progress.snapshot, progress.snapshot_position = core.log.snapshot, 0
            progress.is_probing = True
        snapshot, position = progress.snapshot, progress.snapshot_position
        end = position + self._config.max_snapshot_chunk_bytes
        progress.is_waiting, progress.waited_ticks = True, 0
        core.send(
            SnapshotRequest(
                core.key,
                peer,
                core.term,
                last_offset=snapshot.last_offset,
                last_term=snapshot.term,
                voters=snapshot.voters,
                position=position,
                data=snapshot.data[position:end],
                is_last=end >= len(snapshot.data),
                round=self._round,
            )
        )

    # --- answers ------------------------------------------------------------------------------------------------

    def _heard(self, peer: ReplicaKey, round_: int) -> Progress | None:
        progress = self.progress.get(peer)
        if progress is not None:
            progress.is_active = True
            if round_ > progress.round:
                progress.round = round_
                self._answer_reads()
        return progress

    def on_append_response(self, response: AppendResponse) -> None:
        core = self._core
        progress = self._heard(response.src, response.round)
        if progress is None:
            return
        if not response.is_accepted:
            self._on_refusal(response, progress)
            return
        if core.log.floor(response.match_offset) != response.match_offset:
            return  # no log that this leader has sent ends there: a broken peer
        progress.matched(response.match_offset)
        self.maybe_commit()
        if core.leadership is not self:
            return  # it has just removed itself
        if self.transferee == response.src and progress.match_offset == core.log.last_offset:
            self._tell_to_campaign(response.src)
        self._replicate(response.src)

    def _on_refusal(self, response: AppendResponse, progress: Progress) -> None:
        rejected = response.rejected_offset
        if rejected <= progress.match_offset or progress.snapshot is not None:
            return  # stale: what matched once does not change
        if progress.is_probing and rejected != progress.sent_offset:
            return  # an answer to an earlier probe
        progress.probe_from(self._core.log.floor(min(response.match_offset, rejected - 1)))
        self._replicate(response.src)

    def on_snapshot_response(self, response: SnapshotResponse) -> None:
        progress = self._heard(response.src, response.round)
        if progress is None or progress.snapshot is None or progress.snapshot.last_offset != response.last_offset:
            return
        if response.position != progress.snapshot_position or progress.waited_ticks > 0:
            progress.snapshot_position = min(response.position, len(progress.snapshot.data))
            progress.is_waiting = False
            self._replicate(response.src)

    def maybe_commit(self) -> None:
        """Raft §5.4.2: an entry of an earlier term is committed only through one of the current term."""
        core = self._core
        if core.commit_offset == core.log.last_offset:
            return  # all of it is
        offset = core.log.floor(self.quorum_offset())
        if offset > core.commit_offset and core.log.term_at(offset) == core.term:
            core.commit_offset = offset
            self._has_commit_to_send = True
            if core.key not in core.voters and core.voters_offset <= offset:
                self.send_news()
                core.become_follower(core.term, None)  # it has removed itself

    def quorum_offset(self) -> int:
        """The last offset that a majority of the voters has on disk. A leader that removes itself does not count."""
        core = self._core
        return core.quorum_of(
            core.persisted_offset if voter == core.key else self.progress[voter].match_offset for voter in core.voters
        )

    def _answer_reads(self) -> None:
        if not self._pending_reads:
            return
        core = self._core
        answered = core.quorum_of(
            self._round if voter == core.key else self.progress[voter].round for voter in core.voters
        )
        while self._pending_reads and self._pending_reads[0][2] <= answered:
            context, offset, _ = self._pending_reads.pop(0)
            core.answer_read(ReadResult(context, offset))
