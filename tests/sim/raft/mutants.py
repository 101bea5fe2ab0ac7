"""Deliberately broken cores and drivers. The simulator must convict each of them: a checker that sees nothing proves
nothing."""

from kraftlog.kraft.raft import (
    AppendRequest,
    AppendResponse,
    RaftCore,
    ReadResult,
    Snapshot,
    SnapshotRequest,
    VoteRequest,
    Voters,
)
from kraftlog.kraft.raft.core import Role
from kraftlog.kraft.raft.leadership import Leadership
from kraftlog.kraft.raft.messages import Entry, Ready, VoteResponse
from kraftlog.testing.raft_sim.core_engine import CoreEngine
from kraftlog.testing.raft_sim.disk import DAMAGED, is_damaged


class NoFsync(CoreEngine):
    """Answers before the disk has it."""

    syncs = False


class SendsFirst(CoreEngine):
    """Sends all messages of a Ready before it has persisted anything of it."""

    def _write(self, ready: Ready) -> None:
        for message in ready.messages:
            self.send(message)
        super()._write(ready)


class _CutsMatching(RaftCore):
    def on_append(self, request: AppendRequest) -> None:
        matches = self.log.term_at(request.prev_offset) == request.prev_term
        if matches and self.commit_offset <= request.prev_offset < self.log.last_offset:
            self._cut(request.prev_offset)
        super().on_append(request)


class CutsMatching(CoreEngine):
    """Cuts the log after every append's predecessor, also entries that match (pysyncobj's way)."""

    core_class = _CutsMatching


class _VotesForAll(RaftCore):
    def is_up_to_date(self, request: VoteRequest) -> bool:
        return True


class VotesForAll(CoreEngine):
    """Votes for candidates with older logs."""

    core_class = _VotesForAll


class _ForgetsVote(RaftCore):
    def _on_vote_request(self, request: VoteRequest) -> None:
        if request.term == self.term and self.role is Role.FOLLOWER and not request.is_pre_vote:
            self.vote = None
        super()._on_vote_request(request)


class ForgetsVote(CoreEngine):
    """Votes twice in a term."""

    core_class = _ForgetsVote


class SavesNoVote(CoreEngine):
    """Its term survives a restart, its vote in it does not."""

    def _write(self, ready: Ready) -> None:
        hard_state = ready.hard_state
        super()._write(ready if hard_state is None else ready._replace(hard_state=hard_state._replace(vote=None)))


class _AsksNobody(RaftCore):
    def _campaign(self, *, is_pre_vote: bool, is_forced: bool = False) -> None:
        super()._campaign(is_pre_vote=False, is_forced=is_forced)


class AsksNobody(CoreEngine):
    """Begins a term without a pre-vote (W05)."""

    core_class = _AsksNobody


class _ChangesAtCommit(RaftCore):
    @property
    def voters(self) -> Voters:
        return self.voters_at(self.commit_offset)


class ChangesAtCommit(CoreEngine):
    """A voter change is in force when it is known to be committed, and not when it is in the log."""

    core_class = _ChangesAtCommit


class _DropsTail(RaftCore):
    def _on_snapshot(self, request: SnapshotRequest) -> None:
        if request.last_offset <= self.commit_offset:
            super()._on_snapshot(request)
            return
        self._follow(request.src, request.term)
        data = self._collect(request)
        if data is not None:
            self._install(Snapshot(request.last_offset, request.last_term, request.voters, data))
            self._accept(request, self.commit_offset)


class DropsTail(CoreEngine):
    """A snapshot takes the place of the whole log, also of what comes after it and matches."""

    core_class = _DropsTail


class TrustsDamage(CoreEngine):
    """Takes damage for a torn tail and starts with what is left."""

    def _check_disk(self) -> None:
        disk = self.disk
        if DAMAGED in disk.meta.current:
            disk.meta.spoil({})
        disk.files = {name: file for name, file in disk.files.items() if file.current != DAMAGED}
        bad = next((i for i, item in enumerate(disk.log.current) if is_damaged(item)), None)
        if bad is not None:
            disk.log.spoil(disk.log.current[:bad])


class _CommitsOldTerms(Leadership):
    def maybe_commit(self) -> None:
        core = self._core
        offset = core.log.floor(self.quorum_offset())
        if offset > core.commit_offset:
            core.commit_offset = offset
            self._has_commit_to_send = True
            if core.key not in core.voters and core.voters_offset <= offset:
                self.send_news()
                core.become_follower(core.term, None)


class _OldTermCore(RaftCore):
    leadership_class = _CommitsOldTerms


class CommitsOldTerms(CoreEngine):
    """Counts replicas of entries of earlier terms (Raft figure 8; W01)."""

    core_class = _OldTermCore


class _CommitsUnverified(RaftCore):
    def on_append(self, request: AppendRequest) -> None:
        super().on_append(request)
        if self.log.term_at(request.prev_offset) == request.prev_term:
            self.commit_offset = max(self.commit_offset, self.log.floor(request.commit_offset))


class CommitsUnverified(CoreEngine):
    """Believes the leader's commit offset for what it has beyond the verified prefix."""

    core_class = _CommitsUnverified


class _ReadsAtOnce(Leadership):
    def read_index(self, context: object) -> None:
        self._core.answer_read(ReadResult(context, self._core.commit_offset))


class _ReadsAtOnceCore(RaftCore):
    leadership_class = _ReadsAtOnce


class ReadsAtOnce(CoreEngine):
    """Answers reads without asking whether it still leads."""

    core_class = _ReadsAtOnceCore


class _ReadsEarly(RaftCore):
    def read_index(self, context: object) -> None:
        if self.leadership is None:
            super().read_index(context)
        else:
            self.leadership.read_index(context)


class ReadsEarly(CoreEngine):
    """Answers reads before an entry of its own term is committed (W13)."""

    core_class = _ReadsEarly


class _ManyChanges(Leadership):
    def check_may_change_voters(self) -> None:
        """Anything goes."""


class _ManyChangesCore(RaftCore):
    leadership_class = _ManyChanges


class ManyChanges(CoreEngine):
    """Several voter changes at a time, and before an entry of the own term is committed."""

    core_class = _ManyChangesCore


class _TakesOldSnapshots(RaftCore):
    def _on_snapshot(self, request: SnapshotRequest) -> None:
        self._follow(request.src, request.term)
        data = self._collect(request)
        if data is not None:
            self._install(Snapshot(request.last_offset, request.last_term, request.voters, data))
            self._accept(request, self.commit_offset)


class TakesOldSnapshots(CoreEngine):
    """A late snapshot replaces newer entries (W09)."""

    core_class = _TakesOldSnapshots


class _CountsVotes(RaftCore):
    def _count_vote(self, response: VoteResponse) -> None:
        self._extra = getattr(self, "_extra", 0) + (response.src in self._votes)
        self._votes.add(response.src)
        if 2 * (len(self._votes) + self._extra) > len(self.voters):
            self._extra = 0
            self._won(response.is_pre_vote)


class CountsVotes(CoreEngine):
    """Counts answers instead of voters: a repeated one makes a minority leader."""

    core_class = _CountsVotes


class _AcceptsOldAnswers(RaftCore):
    def step(self, message: object) -> None:
        if isinstance(message, AppendResponse) and message.term < self.term and self.is_leader:
            message = message._replace(term=self.term)
        super().step(message)  # type: ignore[arg-type] # as given


class AcceptsOldAnswers(CoreEngine):
    """Counts acknowledgements that were given to an earlier leadership."""

    core_class = _AcceptsOldAnswers


class _KeepsConflicts(RaftCore):
    def _merge(self, entries: tuple[Entry, ...]) -> None:
        fresh = tuple(entry for entry in entries if entry.base_offset > self.log.last_offset)
        if fresh and fresh[0].base_offset == self.log.last_offset + 1 and fresh[0].term >= self.log.last_term:
            super()._merge(fresh)


class KeepsConflicts(CoreEngine):
    """Never cuts a conflicting tail and acknowledges all the same."""

    core_class = _KeepsConflicts


class _CountsUnwritten(Leadership):
    def quorum_offset(self) -> int:
        core = self._core
        return core.quorum_of(
            core.log.last_offset if voter == core.key else self.progress[voter].match_offset for voter in core.voters
        )


class _CountsUnwrittenCore(RaftCore):
    leadership_class = _CountsUnwritten


class CountsUnwritten(CoreEngine):
    """The leader counts its own entries before they are durable."""

    core_class = _CountsUnwrittenCore


class _CountsObservers(Leadership):
    def quorum_offset(self) -> int:
        core = self._core
        return core.quorum_of([core.persisted_offset, *(progress.match_offset for progress in self.progress.values())])


class _CountsObserversCore(RaftCore):
    leadership_class = _CountsObservers


class CountsObservers(CoreEngine):
    """Counts everybody who has an entry, with a vote or without."""

    core_class = _CountsObserversCore


class _CampaignsWithoutVote(RaftCore):
    def _campaign(self, *, is_pre_vote: bool, is_forced: bool = False) -> None:
        voters = self.voters
        self._voter_sets.append((self.voters_offset, voters | {self.key}))
        super()._campaign(is_pre_vote=is_pre_vote, is_forced=is_forced)
        if self._voter_sets[-1][1] == voters | {self.key}:
            self._voter_sets.pop()

    def tick(self) -> None:
        super().tick()
        if self.key not in self.voters and self.leader is None and self.leadership is None:
            self.campaign()


class CampaignsWithoutVote(CoreEngine):
    """An observer that hears no leader stands for election."""

    core_class = _CampaignsWithoutVote


class _StaysWithItsLeader(RaftCore):
    def tick(self) -> None:
        if self.key in self.voters or self.leader is None:
            super().tick()


class StaysWithItsLeader(CoreEngine):
    """An observer that waits for ever for the leader that it had."""

    core_class = _StaysWithItsLeader


MUTANTS: dict[str, type[CoreEngine]] = {
    "saves-no-vote": SavesNoVote,
    "asks-nobody": AsksNobody,
    "changes-at-commit": ChangesAtCommit,
    "drops-tail": DropsTail,
    "trusts-damage": TrustsDamage,
    "no-fsync": NoFsync,
    "sends-first": SendsFirst,
    "cuts-matching": CutsMatching,
    "votes-for-all": VotesForAll,
    "forgets-vote": ForgetsVote,
    "commits-old-terms": CommitsOldTerms,
    "commits-unverified": CommitsUnverified,
    "reads-at-once": ReadsAtOnce,
    "reads-early": ReadsEarly,
    "many-changes": ManyChanges,
    "takes-old-snapshots": TakesOldSnapshots,
    "counts-votes": CountsVotes,
    "accepts-old-answers": AcceptsOldAnswers,
    "keeps-conflicts": KeepsConflicts,
    "counts-unwritten": CountsUnwritten,
    "counts-observers": CountsObservers,
    "campaigns-without-vote": CampaignsWithoutVote,
    "stays-with-its-leader": StaysWithItsLeader,
}
