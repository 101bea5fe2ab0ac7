"""The Raft state machine: roles, elections, the follower's side, and what the driver must do next.

Sources: Raft (Ongaro's thesis: §3 core, §4.2 voter changes one at a time, §6.4 read index, §9.6 pre-vote, §3.10
transfer), etcd-io/raft (Ready, check-quorum), KIP-595 and KIP-853 (directory ids, observers catch up first).

    FOLLOWER ──timeout──► PRE_CANDIDATE ──majority would vote──► CANDIDATE ──majority voted──► LEADER
        ▲                      │                                    │                            │
        └──────────────────────┴── higher term, or a leader's message ┴── also: no majority heard ┘

What the leader knows and does is in `leadership.Leadership`, which exists only while the role is LEADER.
"""

from collections.abc import Iterable
from enum import Enum

from kraftlog.kraft.raft.config import RaftConfig
from kraftlog.kraft.raft.leadership import BusyError, ControlData, Leadership
from kraftlog.kraft.raft.log_view import LogView
from kraftlog.kraft.raft.messages import (
    AppendRequest,
    AppendResponse,
    Entry,
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
from kraftlog.proto.errors import IllegalStateError
from kraftlog.proto.seams import Random

_FROM_LEADER = (AppendRequest, SnapshotRequest)

__all__ = ["BusyError", "ControlData", "NotLeaderError", "RaftCore", "Role"]


class Role(Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class NotLeaderError(Exception):
    """Only a leader does this. `leader` is who leads as far as this node knows."""

    def __init__(self, leader: ReplicaKey | None) -> None:
        super().__init__(f"not the leader (leader: {leader.node_id if leader else 'unknown'})")
        self.leader = leader


class RaftCore:
    """One node of the quorum. Used only from the quorum driver.

    Rules that other code relies on:

    - A started node is a follower, whatever it was before, and has committed nothing but its snapshot.
    - `commit_offset` never goes back, and moves only over an entry of the leader's own term (Raft §5.4.2).
    - An own entry counts towards a commit only after `advance` has said that it is durable.
    - Entries that match are never cut; an entry at or below `commit_offset` is never cut: that is a lost invariant and
      raises `IllegalStateError`, upon which the node must stop.
    """

    leadership_class: type[Leadership] = Leadership

    def __init__(
        self,
        key: ReplicaKey,
        *,
        config: RaftConfig,
        random: Random,
        control: ControlData,
        hard_state: HardState,
        snapshot: Snapshot,
        entries: Iterable[Entry] = (),
    ) -> None:
        self.key = key
        self.config = config
        self.control = control
        self._random = random
        self.log = LogView(snapshot, entries)
        self.term = max(hard_state.term, self.log.last_term)
        self.vote = hard_state.vote if self.term == hard_state.term else None
        self._saved = hard_state
        self.persisted_offset = self.log.last_offset
        """Last offset that is durable here."""
        self.commit_offset = snapshot.last_offset
        """Last offset known to be committed. Invariant: snapshot <= applied_offset <= commit_offset <= log end."""
        self.applied_offset = snapshot.last_offset
        """Last offset handed to the driver in `Ready.committed` and acknowledged by `advance`."""
        self._voter_sets: list[tuple[int, Voters]] = [(snapshot.last_offset, snapshot.voters)]
        self._voter_sets += [(e.last_offset, e.voters) for e in self.log.between(-1, self.log.last_offset) if e.voters]
        self.role = Role.FOLLOWER
        self.leader: ReplicaKey | None = None
        self.leadership: Leadership | None = None
        """Set exactly while the role is LEADER."""
        self.observers: set[ReplicaKey] = set()
        """Replicas that get the log from this node when it leads, whether they are voters or not. Kept in memory only.
        A voter that is among them learns of its own removal, because it is fed on."""
        self._votes: set[ReplicaKey] = set()
        self._incoming: tuple[tuple[ReplicaKey, int, int], bytearray] | None = None
        self._messages: list[Message] = []
        self._reads: list[ReadResult] = []
        self._truncate_to: int | None = None
        self._snapshot_to_save: Snapshot | None = None
        self._in_flight: Ready | None = None
        self._elapsed_ticks = 0
        self._timeout_ticks = 0
        self._reset_timer()

    # --- what it looks like from outside ------------------------------------------------------------------------

    @property
    def voters(self) -> Voters:
        """The voter set in force: the newest in the log, committed or not."""
        return self._voter_sets[-1][1]

    @property
    def voters_offset(self) -> int:
        """Where that set stands in the log."""
        return self._voter_sets[-1][0]

    def voters_at(self, offset: int) -> Voters:
        """The voter set that was in force at `offset`, which is not below the newest snapshot."""
        return [voters for where, voters in self._voter_sets if where <= offset][-1]

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def next_offset(self) -> int:
        """The base offset that the next proposal gets."""
        return self.log.last_offset + 1

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed."""
        return self.commit_offset + 1

    def quorum_of(self, values: Iterable[int]) -> int:
        """The largest number that a majority of the voters, one value each, has reached."""
        ordered = sorted(values, reverse=True)
        return ordered[len(ordered) // 2]

    def has_majority(self, keys: Iterable[ReplicaKey]) -> bool:
        return 2 * len(self.voters.intersection(keys)) > len(self.voters)

    # --- inputs -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time passes; the driver calls it at a steady pace.

        Who has no vote never campaigns. It takes its leader for lost after `fetch_ticks` without a message of it, and
        the driver then connects it to another node (KIP-595: an observer looks for the leader among the voters).
        """
        self._elapsed_ticks += 1
        if self.leadership is not None:
            self.leadership.tick()
        elif self.key in self.voters:
            if self._elapsed_ticks >= self._timeout_ticks:
                self.campaign()
        elif self._elapsed_ticks >= self.config.fetch_ticks:
            self.become_follower(self.term, None)

    def observe(self, key: ReplicaKey) -> None:
        """`key` asks for the log: it gets it while this node leads, now or later, until `forget_observer` (KIP-595: an
        observer fetches, but neither votes nor counts towards a commit). May be repeated."""
        if key == self.key or key in self.observers:
            return
        self.observers.add(key)
        if self.leadership is not None:
            self.leadership.sync_observers()

    def forget_observer(self, key: ReplicaKey) -> None:
        """`key` has gone. A voter goes on getting the log. May be repeated."""
        self.observers.discard(key)
        if self.leadership is not None:
            self.leadership.sync_observers()

    def campaign(self) -> None:
        """Try to become leader now instead of at the timeout; starts with pre-votes, so it disturbs nobody.

        A single voter leads when this returns.
        """
        if self.role is not Role.LEADER:
            self._campaign(is_pre_vote=True)

    def propose(self, data: bytes, record_count: int = 1) -> Entry:
        """Append one batch; its offsets are `next_offset` and the following ones.

        Raises NotLeaderError, also while leadership is being handed over; BusyError above `max_uncommitted_bytes`.
        """
        return self.taking_proposals().propose(data, record_count)

    def taking_proposals(self) -> Leadership:
        """This node's leadership. Raises NotLeaderError, also while it is being handed over."""
        if self.leadership is None or self.leadership.transferee is not None:
            raise NotLeaderError(self.leader)
        return self.leadership

    def change_voter(self, *, add: ReplicaKey | None = None, remove: ReplicaKey | None = None) -> Entry | None:
        """Add or remove one voter. None: it is so already. Raises NotLeaderError and BusyError (may be retried)."""
        if self.leadership is None:
            raise NotLeaderError(self.leader)
        if add is not None:
            return self.leadership.add_voter(add)
        assert remove is not None
        return self.leadership.remove_voter(remove)

    def record_voters(self) -> Entry | None:
        """Write the voter set in force to the log if no entry or snapshot has it yet. Raises NotLeaderError."""
        if self.leadership is None:
            raise NotLeaderError(self.leader)
        return self.leadership.record_voters()

    def read_index(self, context: object) -> None:
        """Ask for the offset that a linearizable read needs; comes as a ReadResult with the same context."""
        if self.leadership is None or not self.leadership.has_committed_own_term:
            raise NotLeaderError(self.leader)
        self.leadership.read_index(context)

    def transfer(self, target: ReplicaKey) -> None:
        """Hand leadership to another voter, as far as it can be done within an election timeout; else nothing."""
        if self.leadership is not None and target in self.voters and target != self.key:
            self.leadership.transfer(target)

    def compact(self, last_offset: int, data: bytes) -> Snapshot:
        """The state machine up to `last_offset`, which ends an applied batch, is `data`: forget those entries.

        Returns the snapshot, which the driver makes durable before it drops the log below.
        """
        term = self.log.term_at(last_offset)
        if term is None or last_offset > self.applied_offset:
            raise IllegalStateError(f"snapshot at offset {last_offset}, applied {self.applied_offset}")
        voters = self.voters_at(last_offset)
        snapshot = Snapshot(last_offset, term, voters, data)
        self.log.compact(snapshot)
        self._voter_sets = [(last_offset, voters)] + [v for v in self._voter_sets if v[0] > last_offset]
        return snapshot

    def step(self, message: Message) -> None:
        """A message arrived; late, repeated, reordered and stale ones do no harm. Votes first: they have own rules."""
        if message.dst != self.key:
            return
        match message:
            case VoteRequest():
                self._on_vote_request(message)
                return
            case VoteResponse() if message.is_pre_vote:
                self._on_pre_vote_response(message)
                return
            case _:
                pass
        is_from_leader = isinstance(message, _FROM_LEADER)
        if message.term > self.term:
            self.become_follower(message.term, message.src if is_from_leader else None)
        elif message.term < self.term:
            if is_from_leader:  # tell a deposed leader the term
                self.send(AppendResponse(self.key, message.src, self.term, is_accepted=False))
            return
        match message:
            case AppendRequest():
                self.on_append(message)
            case AppendResponse():
                if self.leadership is not None:
                    self.leadership.on_append_response(message)
            case SnapshotRequest():
                self._on_snapshot(message)
            case VoteResponse():
                self._on_vote_response(message)
            case TimeoutNow():
                if self.role is not Role.LEADER:
                    self._campaign(is_pre_vote=False, is_forced=True)
            case SnapshotResponse():
                if self.leadership is not None:
                    self.leadership.on_snapshot_response(message)

    # --- outputs ------------------------------------------------------------------------------------------------

    def has_ready(self) -> bool:
        return bool(
            self._messages
            or (self.leadership is not None and self.leadership.has_news)
            or self.persisted_offset < self.log.last_offset
            or self.applied_offset < self.commit_offset
            or self._snapshot_to_save
            or self._truncate_to is not None
            or not self._is_saved
            or (self._reads and any(_is_answerable(read, self.applied_offset) for read in self._reads))
        )

    @property
    def _is_saved(self) -> bool:
        saved = self._saved
        return self.term == saved.term and self.vote == saved.vote

    def ready(self) -> Ready:
        """Everything to do now. Every Ready is followed by `advance` before the next one is asked for."""
        assert self._in_flight is None, "advance() is missing"
        if self.leadership is not None:
            self.leadership.send_news()
        is_saved = self._is_saved
        entries = self.log.between(self.persisted_offset, self.log.last_offset)
        early, messages = self._divided_messages(may_be_early=bool(entries) and is_saved)
        committed = self._next_committed()
        ready = Ready(
            hard_state=None if is_saved else HardState(self.term, self.vote),
            snapshot=self._snapshot_to_save,
            truncate_to=self._truncate_to,
            entries=entries,
            early_messages=early,
            messages=messages,
            committed=committed,
            reads=self._take_reads(committed[-1].last_offset if committed else self.applied_offset),
        )
        self._messages = []
        self._snapshot_to_save = self._truncate_to = None
        self._in_flight = ready
        return ready

    def _divided_messages(self, *, may_be_early: bool) -> tuple[tuple[AppendRequest, ...], tuple[Message, ...]]:
        """Those that need not wait for the disk, and the others. Of a leader only, whose log is not cut."""
        if not may_be_early or self.leadership is None or self._truncate_to is not None:
            return (), tuple(self._messages)
        early = tuple(message for message in self._messages if isinstance(message, AppendRequest))
        return early, tuple(message for message in self._messages if not isinstance(message, AppendRequest))

    def _take_reads(self, applied_offset: int) -> tuple[ReadResult, ...]:
        """Those that can be answered when so much is applied."""
        if not self._reads:
            return ()
        taken = tuple(read for read in self._reads if _is_answerable(read, applied_offset))
        self._reads = [read for read in self._reads if not _is_answerable(read, applied_offset)]
        return taken

    def advance(self, ready: Ready) -> None:
        """All of `ready` is done."""
        assert ready is self._in_flight, "not the Ready that was handed out last"
        self._in_flight = None
        if ready.hard_state is not None:
            self._saved = ready.hard_state
        if ready.entries and self._snapshot_to_save is None:
            self._persisted(ready.entries)
        if ready.committed:
            self.applied_offset = max(self.applied_offset, ready.committed[-1].last_offset)
        if self.leadership is not None and ready.entries:
            self.leadership.maybe_commit()

    def _persisted(self, entries: tuple[Entry, ...]) -> None:
        """Count as durable those of the entries that were not cut while the driver wrote them. What the *next* Ready cuts
        does not count either, even if the same entries came back meanwhile: they are cut first and written again. But what
        stays counts, or it would be written twice."""
        kept = (entry.last_offset for entry in reversed(entries) if self.log.term_at(entry.last_offset) == entry.term)
        durable = next(kept, self.persisted_offset)
        if self._truncate_to is not None:
            durable = min(durable, self._truncate_to)
        self.persisted_offset = max(self.persisted_offset, durable)

    def _next_committed(self) -> tuple[Entry, ...]:
        if self.applied_offset >= self.commit_offset:
            return ()
        entries = self.log.entries_after(self.applied_offset, self.config.max_apply_bytes)
        if entries and entries[-1].last_offset <= self.commit_offset:
            return entries
        committed = tuple(entry for entry in entries if entry.last_offset <= self.commit_offset)
        if not committed:
            raise IllegalStateError(f"commit offset {self.commit_offset} is inside of a batch or beyond the log")
        return committed

    # --- used by Leadership -------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        self._messages.append(message)

    def answer_read(self, read: ReadResult) -> None:
        self._reads.append(read)

    def append(self, entry: Entry) -> None:
        self.log.append(entry)
        if entry.voters is not None:
            self._voter_sets.append((entry.last_offset, entry.voters))

    def become_follower(self, term: int, leader: ReplicaKey | None) -> None:
        if term > self.term:
            self.term, self.vote = term, None
        if self.leadership is not None:
            self.leadership.end()
            self.leadership = None
        self.role, self.leader = Role.FOLLOWER, leader
        self._reset_timer()

    # --- elections ----------------------------------------------------------------------------------------------

    def _reset_timer(self) -> None:
        self._elapsed_ticks = 0
        self._timeout_ticks = self.config.election_ticks + self._random.randrange(self.config.election_ticks)

    def _campaign(self, *, is_pre_vote: bool, is_forced: bool = False) -> None:
        if self.key not in self.voters:
            return
        self.leader = None
        self._reset_timer()
        self._votes = {self.key}
        if is_pre_vote:
            self.role = Role.PRE_CANDIDATE
        else:
            self.role = Role.CANDIDATE
            self.term, self.vote = self.term + 1, self.key
        if self.has_majority(self._votes):
            self._won(is_pre_vote)
            return
        for peer in sorted(self.voters - {self.key}):
            self.send(
                VoteRequest(
                    self.key,
                    peer,
                    self.term + 1 if is_pre_vote else self.term,
                    last_offset=self.log.last_offset,
                    last_term=self.log.last_term,
                    is_pre_vote=is_pre_vote,
                    is_forced=is_forced,
                )
            )

    def _won(self, is_pre_vote: bool) -> None:
        if is_pre_vote:
            self._campaign(is_pre_vote=False)
        else:
            self._become_leader()

    def _become_leader(self) -> None:
        self.role, self.leader = Role.LEADER, self.key
        self._incoming = None
        self.leadership = self.leadership_class(self)
        self.leadership.begin()

    def is_up_to_date(self, request: VoteRequest) -> bool:
        """Raft §5.4.1: the candidate's log is at least as new as this one."""
        return (request.last_term, request.last_offset) >= (self.log.last_term, self.log.last_offset)

    def _on_vote_request(self, request: VoteRequest) -> None:
        hears_leader = self.leader is not None and self._elapsed_ticks < self.config.election_ticks
        if not request.is_forced and (self.role is Role.LEADER or hears_leader):
            return  # stickiness: who hears a live leader does not help to depose it, and its term stays as it is
        if request.is_pre_vote:
            granted = request.term > self.term and self.is_up_to_date(request)
            self._answer_vote(request, request.term if granted else self.term, granted)
            return
        if request.term > self.term:
            self.become_follower(request.term, None)
        granted = (
            request.term == self.term
            and self.vote in (None, request.src)
            and self.role is not Role.LEADER
            and self.is_up_to_date(request)
        )
        if granted:
            self.vote = request.src
            self._reset_timer()
        self._answer_vote(request, self.term, granted)

    def _answer_vote(self, request: VoteRequest, term: int, is_granted: bool) -> None:
        self.send(VoteResponse(self.key, request.src, term, request.is_pre_vote, is_granted))

    def _on_pre_vote_response(self, response: VoteResponse) -> None:
        if not response.is_granted:
            if response.term > self.term:
                self.become_follower(response.term, None)
        elif self.role is Role.PRE_CANDIDATE and response.term == self.term + 1:
            self._count_vote(response)

    def _on_vote_response(self, response: VoteResponse) -> None:
        if self.role is Role.CANDIDATE and response.is_granted:
            self._count_vote(response)

    def _count_vote(self, response: VoteResponse) -> None:
        self._votes.add(response.src)
        if self.has_majority(self._votes):
            self._won(response.is_pre_vote)

    # --- follower -----------------------------------------------------------------------------------------------

    def _follow(self, leader: ReplicaKey, term: int) -> None:
        if self.role is Role.LEADER:
            raise IllegalStateError(f"two leaders in term {term}: {self.key} and {leader}")
        if self.role is not Role.FOLLOWER or self.leader != leader:
            self.become_follower(term, leader)
        self._elapsed_ticks = 0

    def on_append(self, request: AppendRequest) -> None:
        self._follow(request.src, request.term)
        prev, entries = request.prev_offset, request.entries
        end = entries[-1].last_offset if entries else prev
        base = self.log.snapshot.last_offset
        if end < base:  # all of it is in the snapshot
            self._accept(request, min(self.commit_offset, end))
            return
        if prev < base:  # the leader has what is committed here: compare from the snapshot on
            prev, entries = base, tuple(entry for entry in entries if entry.last_offset > base)
        elif self.log.term_at(prev) != request.prev_term:
            self._refuse(request)
            return
        self._merge(entries)
        verified = max(prev, end)
        # floor: where a right leader commits, an entry ends
        self.commit_offset = max(self.commit_offset, self.log.floor(min(request.commit_offset, verified)))
        self._accept(request, verified)

    def _merge(self, entries: tuple[Entry, ...]) -> None:
        """Append what is missing. Entries that match stay, and so does everything behind them (a late message knows
        less than the log); only a real conflict cuts."""
        for index, entry in enumerate(entries):
            known = self.log.term_at(entry.last_offset)
            if known == entry.term:
                continue
            if entry.base_offset <= self.log.last_offset:
                self._cut(entry.base_offset - 1)
            for missing in entries[index:]:
                self.append(missing)
            return

    def _cut(self, last_offset: int) -> None:
        if last_offset < self.commit_offset:
            raise IllegalStateError(
                f"the leader's log differs at offset {last_offset + 1}, below the high watermark {self.high_watermark}:"
                " committed metadata of this node and of its leader disagree; stop and compare the logs"
            )
        self.log.truncate_to(last_offset)
        self._truncate_to = last_offset if self._truncate_to is None else min(last_offset, self._truncate_to)
        self.persisted_offset = min(self.persisted_offset, last_offset)
        while self._voter_sets[-1][0] > last_offset:
            self._voter_sets.pop()

    def _accept(self, request: AppendRequest | SnapshotRequest, match_offset: int) -> None:
        self.send(
            AppendResponse(
                self.key, request.src, self.term, is_accepted=True, match_offset=match_offset, round=request.round
            )
        )

    def _refuse(self, request: AppendRequest) -> None:
        prev = request.prev_offset
        if prev <= self.commit_offset:
            raise IllegalStateError(
                f"the leader's log differs at or before offset {prev}, below the high watermark {self.high_watermark}:"
                " committed metadata of this node and of its leader disagree; stop and compare the logs"
            )
        too_short = prev > self.log.last_offset
        hint = self.log.last_offset if too_short else self.log.before_term_of(prev, self.commit_offset)
        self.send(
            AppendResponse(
                self.key,
                request.src,
                self.term,
                is_accepted=False,
                match_offset=hint,
                rejected_offset=prev,
                round=request.round,
            )
        )

    def _on_snapshot(self, request: SnapshotRequest) -> None:
        self._follow(request.src, request.term)
        if request.last_offset <= self.commit_offset:  # late or unneeded: what is committed is never replaced
            self._incoming = None
            self._accept(request, self.commit_offset)
            return
        if self.log.term_at(request.last_offset) == request.last_term:  # the log is right: keep it and its tail
            self._incoming = None
            self.commit_offset = request.last_offset
            self._accept(request, self.commit_offset)
            return
        data = self._collect(request)
        if data is not None:
            self._install(Snapshot(request.last_offset, request.last_term, request.voters, data))
            self._accept(request, self.commit_offset)

    def _install(self, snapshot: Snapshot) -> None:
        """Start again from the snapshot; nothing of the log is worth keeping."""
        self._incoming = None
        self.log = LogView(snapshot)
        self._voter_sets = [(snapshot.last_offset, snapshot.voters)]
        self.commit_offset = self.applied_offset = self.persisted_offset = snapshot.last_offset
        self._snapshot_to_save, self._truncate_to = snapshot, None

    def _collect(self, request: SnapshotRequest) -> bytes | None:
        """Add a chunk and return the whole snapshot when it is complete. Chunks of another leader, term or snapshot
        never mix; lost, repeated and reordered ones are asked for again."""
        identity = (request.src, request.term, request.last_offset)
        if self._incoming is None or self._incoming[0] != identity:
            self._incoming = (identity, bytearray())
        buffer = self._incoming[1]
        if request.position == len(buffer):
            buffer += request.data
            if request.is_last:
                return bytes(buffer)
        self.send(SnapshotResponse(self.key, request.src, self.term, request.last_offset, len(buffer), request.round))
        return None


def _is_answerable(read: ReadResult, applied_offset: int) -> bool:
    return read.offset is None or read.offset <= applied_offset
