"""The state machine of one classic consumer group: who is a member, which generation it is, who must answer by when.

A pure object: every input brings `now_ms` (monotonic), every output is an `Effects`: answers to parked requests and
at most one generation to write to the log. Names and rules are those of Kafka's classic group protocol (KIP-62,
KIP-134, KIP-345, KIP-394, KIP-559, KIP-814); deviations stand where they live.

    Empty ── join ──► PreparingRebalance ── all (re)joined, or time-out ──► CompletingRebalance
      ▲                 │  ▲    ▲                                             │          │
      └── nobody left ──┘  │    └──────── member joins, leaves, fails ────────┘          │
                           └───── member joins, leaves, fails ──── Stable ◄── assignment committed

Two kinds of state. The *persisted* one is the generation with its assignment, or the empty group: it changes by
records alone, and the shard that owns this object replays them. What is here is *soft*: the course of one rebalance,
sessions and parked requests. It dies with the leadership, and the next coordinator starts from the last persisted
generation (`load`); members of a generation that never was persisted get ILLEGAL_GENERATION and join again. Nobody is
given an assignment before the generation that holds it has been committed, and at most one assignment is written per
generation, so within one generation a partition has one owner whatever coordinator answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kraftlog.proto.errors import ErrorCode, IllegalStateError
from kraftlog.proto.names import display
from kraftlog.server.coordinator.config import MAX_INT32, GroupConfig
from kraftlog.server.coordinator.effects import LEGAL_TRANSITIONS, Effects, GroupState, GroupWrite, WriteKind
from kraftlog.server.coordinator.members import (
    UNKNOWN_MEMBER_ID,
    JoinedMember,
    JoinRequest,
    JoinResult,
    Member,
    Roster,
    SyncRequest,
    SyncResult,
    Ticket,
    loaded_member,
    new_member,
)
from kraftlog.server.coordinator.records import GroupMetadataValue
from kraftlog.server.coordinator.subscription import same_subscription


@dataclass(slots=True)
class _InitialDelay:
    """The first rebalance waits for company: while members keep coming, up to `remaining_ms` longer."""

    remaining_ms: float
    member_came: bool = False


class ClassicGroup:
    """One group. Used only from the coordinator's event loop.

    Invariants: Empty and Dead have no members; Stable has an assignment that is committed in the log; a ticket is held
    by exactly one member, and answered when the member lets go of it.
    """

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self.leader = ""
        self.members = Roster()
        self.pending_joins: dict[str, float] = {}
        """Ids that were given out and not used yet (KIP-394), with the time when they lapse."""
        self.rebalances = 0
        """How often a rebalance began here; a count for metrics and tests."""
        self._config = config
        self._pending_syncs: dict[str, None] = {}
        self._join_deadline_ms: float | None = None
        self._sync_deadline_ms: float | None = None
        self._initial_delay: _InitialDelay | None = None
        self._assignment_in_flight = False

    # Inputs that park a request ---------------------------------------------------------------------------------

    def join(self, request: JoinRequest, ticket: Ticket, fresh_member_id: str, now_ms: float) -> Effects:
        """JoinGroup. `fresh_member_id` is used if the request brings none."""
        effects = Effects()
        if refusal := self._refuse_join(request):
            error, message = refusal
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id in self.members:
                self._remove(request.member_id, error, message, effects)  # its parked request, if any, goes with it
                self._after_removal(now_ms, effects)
            effects.answer(ticket, JoinResult(error=error, message=message, member_id=request.member_id))
        elif request.member_id == UNKNOWN_MEMBER_ID:
            self._join_unknown(request, ticket, fresh_member_id, now_ms, effects)
        elif request.member_id in self.pending_joins:
            self._join_pending(request, ticket, now_ms, effects)
        else:
            self._join_known(request, ticket, now_ms, effects)
        return effects

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: float) -> Effects:
        """SyncGroup."""
        effects = Effects()
        refusal = self._check_member(request.member_id, request.group_instance_id, request.generation_id)
        if refusal is None and (
            request.protocol_type not in ("", self.protocol_type)
            or request.protocol_name not in ("", self.protocol_name)
        ):
            refusal = (
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id} uses protocol {self.protocol_type}/{self.protocol_name}: join again",
            )
        if refusal is None and self.state is GroupState.PREPARING_REBALANCE:
            refusal = self._rebalancing()
        if refusal is not None:
            effects.answer(ticket, SyncResult(error=refusal[0], message=refusal[1]))
            return effects
        member = self._member(request.member_id)
        self._pending_syncs.pop(member.member_id, None)
        if not self._pending_syncs:
            self._sync_deadline_ms = None
        if self.state is GroupState.STABLE:
            member.refresh(now_ms)
            effects.answer(ticket, self._assignment_of(member))
            return effects
        self._supersede_sync(member, effects)
        member.sync_ticket = ticket
        # One assignment a generation: a leader that asks again while its first one is being written waits for that.
        if member.member_id == self.leader and not self._assignment_in_flight:
            self._assignment_in_flight = True
            effects.write = GroupWrite(WriteKind.ASSIGNMENT, self._generation(request.assignments))
        return effects

    # Inputs that are answered at once -----------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> tuple[ErrorCode, str]:
        refusal = self._check_member(member_id, group_instance_id, generation_id)
        if refusal is not None:
            return refusal
        self._member(member_id).refresh(now_ms)
        return self._rebalancing() if self.state is GroupState.PREPARING_REBALANCE else (ErrorCode.NONE, "")

    def leave(
        self, member_id: str, group_instance_id: str | None, now_ms: float
    ) -> tuple[tuple[ErrorCode, str], Effects]:
        """LeaveGroup of one member, by its id or (an operator, KIP-345) by its instance id alone."""
        effects = Effects()
        static_id = self.members.static_member_id(group_instance_id)
        if group_instance_id is not None and member_id in self.pending_joins:
            return self._unknown_member(member_id), effects
        if member_id in self.pending_joins:
            del self.pending_joins[member_id]
            self._maybe_complete_join(now_ms, effects)
            return (ErrorCode.NONE, ""), effects
        if group_instance_id is not None and static_id is None:
            return self._unknown_member(member_id), effects
        if static_id is not None and member_id not in (UNKNOWN_MEMBER_ID, static_id):
            return self._fenced(group_instance_id, member_id), effects
        leaving = static_id or member_id
        if leaving not in self.members:
            return self._unknown_member(member_id), effects
        self._remove(leaving, *self._unknown_member(leaving), effects)
        self._after_removal(now_ms, effects)
        return (ErrorCode.NONE, ""), effects

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: float
    ) -> tuple[ErrorCode, str]:
        """Whether this committer may commit offsets; from a member it is a sign of life.

        Without generation, member and instance it comes from outside of the group protocol (an operator, or a consumer
        with assigned partitions): accepted only while the group has no members, or it could undo what they commit.
        """
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE, ""
        if generation_id < 0 and member_id == UNKNOWN_MEMBER_ID and group_instance_id is None:
            return (
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.group_id} is {self.state} with {len(self.members)} members: "
                "offsets can be committed from outside only while it is empty",
            )
        refusal = self._check_member(member_id, group_instance_id, generation_id)
        if refusal is not None:
            return refusal
        member = self._member(member_id)
        if self.state is GroupState.COMPLETING_REBALANCE or member.is_new:  # it owns nothing of this generation
            return self._rebalancing()
        member.refresh(now_ms)
        return ErrorCode.NONE, ""

    # What becomes of writes ---------------------------------------------------------------------------------------

    def write_committed(self, write: GroupWrite, now_ms: float) -> Effects:
        """The log has committed `write`."""
        effects = Effects()
        if write.value.generation_id != self.generation_id:
            return effects  # the group has moved on; who waited was answered then
        match write.kind:
            case WriteKind.ASSIGNMENT if self.state is GroupState.COMPLETING_REBALANCE:
                self._assignment_in_flight = False
                for persisted in write.value.members:
                    if (member := self.members.get(persisted.member_id)) is not None:
                        member.assignment = persisted.assignment
                self._transition(GroupState.STABLE)
                for member in self.members:
                    self._answer_sync(member, self._assignment_of(member), now_ms, effects)
            case WriteKind.STATIC_MEMBER if self.state is GroupState.STABLE:
                self._answer_static(write, now_ms, effects)
            case _:
                pass
        return effects

    def write_failed(self, write: GroupWrite, error: ErrorCode, message: str, now_ms: float) -> Effects:
        """The log refused `write`, while this coordinator stays in charge. The members hear why."""
        effects = Effects()
        if write.value.generation_id != self.generation_id:
            return effects
        match write.kind:
            case WriteKind.ASSIGNMENT if self.state is GroupState.COMPLETING_REBALANCE:
                for member in self.members:
                    self._answer_sync(member, SyncResult(error=error, message=message), now_ms, effects)
                self._prepare_rebalance(now_ms, effects)
            case WriteKind.STATIC_MEMBER if self.state is GroupState.STABLE:
                for member in self.members:
                    if write.ticket is not None and member.join_ticket == write.ticket:
                        self._answer_join(member, JoinResult(error=error, message=message), now_ms, effects)
            case _:
                pass
        return effects

    # Time ---------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> float | None:
        """When `poll` must be called next; None while nothing can lapse."""
        deadlines = [member.expires_at_ms for member in self.members]
        deadlines += self.pending_joins.values()
        deadlines += (self._join_deadline_ms, self._sync_deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def poll(self, now_ms: float) -> Effects:
        """Let lapse what is due at `now_ms`. At most one rebalance begins or completes."""
        effects = Effects()
        for member_id in [key for key, deadline in self.pending_joins.items() if deadline <= now_ms]:
            del self.pending_joins[member_id]
        gone = [m.member_id for m in self.members if m.expires_at_ms is not None and m.expires_at_ms <= now_ms]
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            # KAFKA-12890: who was told of the generation and never asked for its assignment holds everybody up.
            gone += [member_id for member_id in self._pending_syncs if member_id not in gone]
            self._sync_deadline_ms = None
        for member_id in gone:
            self._remove(member_id, *self._unknown_member(member_id), effects)
        if gone:
            self._after_removal(now_ms, effects)
        if self._join_deadline_ms is not None and self._join_deadline_ms <= now_ms:
            self._join_phase_is_over(now_ms, effects)
        else:
            self._maybe_complete_join(now_ms, effects)
        return effects

    # Life -----------------------------------------------------------------------------------------------------------

    def load(self, value: GroupMetadataValue, now_ms: float) -> Effects:
        """Take over what the log says of the group; every session starts now. Called once, on a fresh object."""
        effects = Effects()
        self.generation_id = value.generation_id
        self.protocol_type = value.protocol_type
        for metadata in value.members:
            member = loaded_member(metadata, value.protocol_name or "")
            member.refresh(now_ms)
            self.members.add(member)
        if not value.members:
            return effects
        self.protocol_name = value.protocol_name or ""
        self.leader = value.leader or value.members[0].member_id
        self.state = GroupState.STABLE  # not a transition: the log is where this group was already
        if len(self.members) > self._config.group_max_size:
            self._prepare_rebalance(now_ms, effects)
        return effects

    def kill(self, error: ErrorCode, message: str) -> Effects:
        """The group is deleted, or its coordinator moved: answer everybody who waits, then it is Dead."""
        effects = Effects()
        for member in list(self.members):
            self._remove(member.member_id, error, message, effects)
        self.pending_joins.clear()
        self._join_deadline_ms = self._sync_deadline_ms = self._initial_delay = None
        self._transition(GroupState.DEAD)
        return effects

    def empty_generation(self) -> GroupMetadataValue:
        """What is to be written of a group whose last member is gone."""
        return self._generation({})

    @property
    def is_idle(self) -> bool:
        """Nobody is here and nobody was promised a place."""
        return self.state in (GroupState.EMPTY, GroupState.DEAD) and not self.members and not self.pending_joins

    # Joining --------------------------------------------------------------------------------------------------------

    def _refuse_join(self, request: JoinRequest) -> tuple[ErrorCode, str] | None:
        if not self._has_room(request):
            return (
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {self.group_id} has {len(self.members)} members and {len(self.pending_joins)} about to join; "
                f"group.max.size={self._config.group_max_size}",
            )
        besides = self.members.get(request.member_id or self.members.static_member_id(request.group_instance_id) or "")
        type_differs = bool(self.members) and request.protocol_type != self.protocol_type
        if type_differs or not self.members.supports(request.protocols, besides=besides):
            return (
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self.group_id} of type {self.protocol_type!r}: no protocol of "
                f"{[protocol.name for protocol in request.protocols]} is offered by all its members",
            )
        return None

    def _has_room(self, request: JoinRequest) -> bool:
        if request.member_id in self.pending_joins:
            return True
        member = self.members.get(request.member_id)
        if member is None:
            replaces = self.members.static_member_id(request.group_instance_id) is not None
            return replaces or len(self.members) + len(self.pending_joins) < self._config.group_max_size
        if self.state is GroupState.PREPARING_REBALANCE and not member.is_awaiting_join:
            # A group that is over its size (the limit was lowered) sheds who joins last.
            return self._awaiting_join() < self._config.group_max_size
        return True

    def _join_unknown(
        self, request: JoinRequest, ticket: Ticket, fresh_member_id: str, now_ms: float, effects: Effects
    ) -> None:
        replaced = self.members.static_member_id(request.group_instance_id)
        if replaced is not None:
            self._replace_static(replaced, request, ticket, fresh_member_id, now_ms, effects)
        elif request.group_instance_id is not None:
            self._add_member(fresh_member_id, request, ticket, now_ms, effects)
        else:
            # KIP-394: who never comes back with the id leaves nothing behind.
            self.pending_joins[fresh_member_id] = now_ms + request.session_timeout_ms
            message = "join again with this member id"
            result = JoinResult(error=ErrorCode.MEMBER_ID_REQUIRED, message=message, member_id=fresh_member_id)
            effects.answer(ticket, result)

    def _join_pending(self, request: JoinRequest, ticket: Ticket, now_ms: float, effects: Effects) -> None:
        if request.group_instance_id is not None:  # ids are put aside for dynamic members alone
            error, message = self._unknown_member(request.member_id)
            effects.answer(ticket, JoinResult(error=error, message=message, member_id=request.member_id))
            return
        del self.pending_joins[request.member_id]
        self._add_member(request.member_id, request, ticket, now_ms, effects)

    def _join_known(self, request: JoinRequest, ticket: Ticket, now_ms: float, effects: Effects) -> None:
        refusal = self._check_identity(request.member_id, request.group_instance_id)
        if refusal is not None:
            error, message = refusal
            effects.answer(ticket, JoinResult(error=error, message=message, member_id=request.member_id))
            return
        member = self._member(request.member_id)
        unchanged = member.protocols == request.protocols
        if self.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The answer of its JoinGroup was lost.
            effects.answer(ticket, self._generation_for(member))
        elif self.state is GroupState.STABLE and unchanged and member.member_id != self.leader:
            effects.answer(ticket, self._generation_for(member))
        else:
            # A leader joins again when it has seen a change that concerns the assignment, such as new partitions.
            self._rejoin(member, request, ticket, now_ms, effects)

    def _rejoin(self, member: Member, request: JoinRequest, ticket: Ticket, now_ms: float, effects: Effects) -> None:
        self.members.update(member, request)
        self._supersede_join(member, effects)
        member.join_ticket = ticket
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(now_ms, effects)
        self._maybe_complete_join(now_ms, effects)

    def _add_member(
        self, member_id: str, request: JoinRequest, ticket: Ticket, now_ms: float, effects: Effects
    ) -> None:
        member = new_member(member_id, request)
        member.join_ticket = ticket
        member.is_new = True
        member.deadline_ms = now_ms + self._config.group_new_member_join_timeout_ms
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        if not self.leader:
            self.leader = member_id
        if self._initial_delay is not None:
            self._initial_delay.member_came = True
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(now_ms, effects)
        self._maybe_complete_join(now_ms, effects)

    def _replace_static(
        self, old_id: str, request: JoinRequest, ticket: Ticket, new_id: str, now_ms: float, effects: Effects
    ) -> None:
        """A static member starts again and has forgotten its id: it takes its place, and the older one is fenced."""
        error, message = self._fenced(request.group_instance_id, old_id)
        old = self.members.remove(old_id)
        assert old is not None
        effects.answer(old.join_ticket, JoinResult(error=error, message=message, member_id=old_id))
        effects.answer(old.sync_ticket, SyncResult(error=error, message=message))
        self._pending_syncs.pop(old_id, None)
        member = new_member(new_id, request)
        member.assignment = old.assignment
        member.join_ticket = ticket
        member.refresh(now_ms)
        self.members.add(member)
        if self.leader == old_id:
            self.leader = new_id
        chosen = self.protocol_name
        if (
            self.state is GroupState.STABLE
            and self.members.select_protocol() == chosen
            and same_subscription(self.protocol_type, old.metadata_for(chosen), member.metadata_for(chosen))
        ):
            # Kafka looks at the protocol alone here; a changed subscription would then wait for the next rebalance.
            effects.write = GroupWrite(WriteKind.STATIC_MEMBER, self._generation(self._assignments()), ticket)
            return
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._prepare_rebalance(now_ms, effects)
        self._maybe_complete_join(now_ms, effects)

    def _answer_static(self, write: GroupWrite, now_ms: float, effects: Effects) -> None:
        for member in self.members:
            if write.ticket is not None and member.join_ticket == write.ticket:
                self._answer_join(member, self._generation_for(member, skip_assignment=True), now_ms, effects)

    # The rebalance --------------------------------------------------------------------------------------------------

    def _prepare_rebalance(self, now_ms: float, effects: Effects) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            error, message = self._rebalancing()
            for member in self.members:
                member.assignment = b""
                self._answer_sync(member, SyncResult(error=error, message=message), now_ms, effects)
        self._pending_syncs.clear()
        self._sync_deadline_ms = None
        self._assignment_in_flight = False
        is_initial = self.state is GroupState.EMPTY
        self._transition(GroupState.PREPARING_REBALANCE)
        self.rebalances += 1
        timeout_ms = self._rebalance_timeout_ms()
        if is_initial and self._config.group_initial_rebalance_delay_ms:
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, timeout_ms)
            self._initial_delay = _InitialDelay(timeout_ms - delay_ms)
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._initial_delay = None
            self._join_deadline_ms = now_ms + timeout_ms

    def _join_phase_is_over(self, now_ms: float, effects: Effects) -> None:
        delay = self._initial_delay
        if delay is not None and delay.member_came and delay.remaining_ms > 0:
            delay.member_came = False
            wait_ms = min(self._config.group_initial_rebalance_delay_ms, delay.remaining_ms)
            delay.remaining_ms -= wait_ms
            self._join_deadline_ms = now_ms + wait_ms
            return
        self._complete_join(now_ms, effects)

    def _maybe_complete_join(self, now_ms: float, effects: Effects) -> None:
        """End the join phase as soon as all members are here and no promised id is outstanding."""
        if self.state is not GroupState.PREPARING_REBALANCE or self._initial_delay is not None or self.pending_joins:
            return
        if all(member.is_awaiting_join for member in self.members):
            self._complete_join(now_ms, effects)

    def _complete_join(self, now_ms: float, effects: Effects) -> None:
        late = [m.member_id for m in self.members if not m.is_awaiting_join and m.group_instance_id is None]
        for member_id in late:
            self._remove(member_id, *self._unknown_member(member_id), effects)
        if self.members and not self._elect_leader():
            # Only static members, all away: their sessions decide, and until then there is nobody to lead.
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms()
            return
        self._join_deadline_ms = None
        self._initial_delay = None
        self.generation_id = self.generation_id + 1 if self.generation_id < MAX_INT32 else 1
        if not self.members:
            self.leader = self.protocol_name = ""
            self._transition(GroupState.EMPTY)
            effects.write = GroupWrite(WriteKind.EMPTY, self.empty_generation())
            return
        self.protocol_name = self.members.select_protocol()
        self._transition(GroupState.COMPLETING_REBALANCE)
        for member in self.members:
            # A static member that is away is not waited for here, and its session goes on: it joins when it is back.
            # (Kafka starts its session again, and drops it when the sync phase ends.)
            if member.is_awaiting_join:
                self._pending_syncs[member.member_id] = None
                self._answer_join(member, self._generation_for(member), now_ms, effects)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms()

    def _elect_leader(self) -> bool:
        """Keep the leader if it has joined, else the first who has. False if nobody has."""
        leader = self.members.get(self.leader)
        if leader is None or not leader.is_awaiting_join:
            joined = next((member for member in self.members if member.is_awaiting_join), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    # Leaving ----------------------------------------------------------------------------------------------------------

    def _remove(self, member_id: str, error: ErrorCode, message: str, effects: Effects) -> None:
        member = self.members.remove(member_id)
        if member is None:
            return
        effects.answer(member.join_ticket, JoinResult(error=error, message=message, member_id=member_id))
        effects.answer(member.sync_ticket, SyncResult(error=error, message=message))
        self._pending_syncs.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next((other.member_id for other in self.members), "")

    def _after_removal(self, now_ms: float, effects: Effects) -> None:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms, effects)
        self._maybe_complete_join(now_ms, effects)

    # Answers ----------------------------------------------------------------------------------------------------------

    def _answer_join(self, member: Member, result: JoinResult, now_ms: float, effects: Effects) -> None:
        effects.answer(member.join_ticket, result)
        member.join_ticket = None
        member.is_new = False
        member.refresh(now_ms)

    def _answer_sync(self, member: Member, result: SyncResult, now_ms: float, effects: Effects) -> None:
        if member.sync_ticket is not None:
            effects.answer(member.sync_ticket, result)
            member.sync_ticket = None
            member.refresh(now_ms)

    def _supersede_join(self, member: Member, effects: Effects) -> None:
        """A second request of one member: the first one's caller has given up, and its answer must not be acted on."""
        error, message = self._rebalancing()
        effects.answer(member.join_ticket, JoinResult(error=error, message=message, member_id=member.member_id))
        member.join_ticket = None

    def _supersede_sync(self, member: Member, effects: Effects) -> None:
        error, message = self._rebalancing()
        effects.answer(member.sync_ticket, SyncResult(error=error, message=message))
        member.sync_ticket = None

    def _generation_for(self, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        leads = member.member_id == self.leader
        everybody = tuple(
            JoinedMember(
                member_id=other.member_id,
                group_instance_id=other.group_instance_id,
                metadata=other.metadata_for(self.protocol_name),
            )
            for other in (self.members if leads else ())
        )
        return JoinResult(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            member_id=member.member_id,
            members=everybody,
            skip_assignment=skip_assignment and leads,
        )

    def _assignment_of(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    # Checks and small parts -------------------------------------------------------------------------------------------

    def _check_member(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> tuple[ErrorCode, str] | None:
        refusal = self._check_identity(member_id, group_instance_id)
        if refusal is None and generation_id != self.generation_id:
            refusal = (
                ErrorCode.ILLEGAL_GENERATION,
                f"member {member_id} is of generation {generation_id}, group {self.group_id} "
                f"is at {self.generation_id}: join again",
            )
        return refusal

    def _check_identity(self, member_id: str, group_instance_id: str | None) -> tuple[ErrorCode, str] | None:
        if group_instance_id is not None:
            holder = self.members.static_member_id(group_instance_id)
            if holder is None:
                return self._unknown_member(member_id)
            if holder != member_id:
                return self._fenced(group_instance_id, member_id)
        return None if member_id in self.members else self._unknown_member(member_id)

    def _unknown_member(self, member_id: str) -> tuple[ErrorCode, str]:
        return (
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {self.group_id} has no member {display(member_id)}: join again without member id",
        )

    def _fenced(self, group_instance_id: str | None, member_id: str) -> tuple[ErrorCode, str]:
        return (
            ErrorCode.FENCED_INSTANCE_ID,
            f"group.instance.id {group_instance_id!r} of group {self.group_id} is held by a newer member "
            f"than {display(member_id)}: stop this one, or give it another instance id",
        )

    def _rebalancing(self) -> tuple[ErrorCode, str]:
        return ErrorCode.REBALANCE_IN_PROGRESS, f"group {self.group_id} is rebalancing: join again"

    def _generation(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """The present generation; a member that `assignments` leaves out gets nothing."""
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation_id=self.generation_id,
            protocol_name=self.protocol_name or None,
            leader=self.leader or None,
            current_state_timestamp_ms=-1,
            members=tuple(
                member.to_metadata(self.protocol_name, assignments.get(member.member_id, b""))
                for member in self.members
            ),
        )

    def _assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members}

    def _member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        assert member is not None, "checked by _check_identity"
        return member

    def _awaiting_join(self) -> int:
        return sum(member.is_awaiting_join for member in self.members)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    def _transition(self, state: GroupState) -> None:
        if state not in LEGAL_TRANSITIONS[self.state]:
            raise IllegalStateError(f"group {self.group_id}: {self.state} may not become {state}")
        self.state = state
