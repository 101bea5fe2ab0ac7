"""The state machine of one classic group, driven by hand: every input brings its time."""

from collections.abc import Iterator

import pytest

from kraftlog.proto.errors import ErrorCode, IllegalStateError
from kraftlog.server.coordinator.config import GroupConfig
from kraftlog.server.coordinator.effects import LEGAL_TRANSITIONS, Effects, GroupState, WriteKind
from kraftlog.server.coordinator.group import ClassicGroup
from kraftlog.server.coordinator.members import (
    Answer,
    JoinRequest,
    JoinResult,
    Protocol,
    SyncRequest,
    SyncResult,
    Ticket,
)

SESSION_MS = 10_000
REBALANCE_MS = 30_000


class Driver:
    """A group, a clock, and who was answered what."""

    def __init__(self, **config: int) -> None:
        config.setdefault("group_initial_rebalance_delay_ms", 0)
        self.group = ClassicGroup("g", GroupConfig(**config))
        self.now_ms = 1_000.0
        self.answers: dict[int, Answer] = {}
        self._tickets: Iterator[int] = iter(range(1, 10_000))

    def join(
        self,
        member_id: str = "",
        *,
        fresh: str = "fresh",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
    ) -> int:
        ticket = next(self._tickets)
        request = JoinRequest(
            member_id=member_id,
            group_instance_id=instance,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=rebalance_ms,
            session_timeout_ms=session_ms,
            protocol_type=protocol_type,
            protocols=tuple(Protocol(*item) for item in ({"range": b""} if protocols is None else protocols).items()),
        )
        self.take(self.group.join(request, Ticket(ticket), fresh, self.now_ms))
        return ticket

    def add(self, member_id: str, **options: object) -> int:
        """Both rounds of a dynamic member's first join."""
        self.join(fresh=member_id, **options)  # type: ignore[arg-type] # options are those of join
        return self.join(member_id, **options)  # type: ignore[arg-type] # options are those of join

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, *, commit: bool = True) -> int:
        ticket = next(self._tickets)
        effects = self.group.sync(_sync(member_id, self.group.generation_id, assignments), Ticket(ticket), self.now_ms)
        self.take(effects)
        if commit and effects.write is not None:
            self.take(self.group.write_committed(effects.write, self.now_ms))
        return ticket

    def wait(self, milliseconds: float) -> None:
        """Let time pass, stopping at every deadline."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.group.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.take(self.group.poll(self.now_ms))
        self.now_ms = end_ms

    def heartbeat(self, member_id: str, generation_id: int | None = None) -> ErrorCode:
        generation = self.group.generation_id if generation_id is None else generation_id
        return self.group.heartbeat(member_id, None, generation, self.now_ms)[0]

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        refusal, effects = self.group.leave(member_id, instance, self.now_ms)
        self.take(effects)
        return refusal[0]

    def commit(self, member_id: str = "", generation_id: int = -1) -> ErrorCode:
        return self.group.check_commit(member_id, None, generation_id, self.now_ms)[0]

    def take(self, effects: Effects) -> None:
        for ticket, answer in effects.answers:
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = answer

    def joined(self, ticket: int) -> JoinResult:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinResult)
        return answer

    def synced(self, ticket: int) -> SyncResult:
        answer = self.answers[ticket]
        assert isinstance(answer, SyncResult)
        return answer

    def stable(self, *member_ids: str) -> None:
        """A stable generation of dynamic members; each is assigned its own id."""
        for member_id in member_ids:
            self.add(member_id)
        for member_id in member_ids:  # all but the newest have to join again
            if not self.group.members.get(member_id).is_awaiting_join:  # type: ignore[union-attr] # it was added
                self.join(member_id)
        for member_id in reversed(member_ids):
            self.sync(member_id, {other: other.encode() for other in member_ids})
        assert self.group.state is GroupState.STABLE


def _sync(
    member_id: str,
    generation_id: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_name: str = "",
) -> SyncRequest:
    return SyncRequest(
        group_id="g",
        member_id=member_id,
        group_instance_id=instance,
        generation_id=generation_id,
        assignments=assignments or {},
        protocol_name=protocol_name,
    )


def test_only_the_transitions_of_the_table_are_possible() -> None:
    """Kafka's ClassicGroupState: Dead is the end, and an assignment needs a join phase before it."""
    for state in GroupState:
        for other in GroupState:
            group = ClassicGroup("g", GroupConfig())
            group.state = state
            if other in LEGAL_TRANSITIONS[state]:
                group._transition(other)
                assert group.state is other
            else:
                with pytest.raises(IllegalStateError):
                    group._transition(other)


def test_a_newcomer_gets_an_id_first_and_joins_with_it() -> None:
    """KIP-394: a dynamic member without id is answered MEMBER_ID_REQUIRED and the id to use."""
    driver = Driver()
    first = driver.join(fresh="m1")
    assert driver.joined(first).error is ErrorCode.MEMBER_ID_REQUIRED
    assert driver.joined(first).member_id == "m1"
    assert driver.group.state is GroupState.EMPTY
    second = driver.join("m1")
    result = driver.joined(second)
    assert (result.error, result.generation_id, result.leader, result.member_id) == (ErrorCode.NONE, 1, "m1", "m1")
    assert [member.member_id for member in result.members] == ["m1"]
    assert driver.group.state is GroupState.COMPLETING_REBALANCE


def test_an_id_that_is_not_used_lapses() -> None:
    """KIP-394: who never comes back leaves nothing behind."""
    driver = Driver()
    driver.join(fresh="m1")
    assert driver.group.next_deadline_ms() == 1_000 + SESSION_MS
    driver.wait(SESSION_MS)
    assert driver.group.is_idle
    assert driver.joined(driver.join("m1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_waits_for_a_promised_id() -> None:
    """KIP-394: the group does not complete a rebalance that the newcomer would at once start again."""
    driver = Driver()
    driver.stable("m1")
    driver.join(fresh="m2")
    driver.join(fresh="m3")
    third = driver.join("m3")
    again = driver.join("m1")
    assert third not in driver.answers
    second = driver.join("m2")
    assert {driver.joined(ticket).generation_id for ticket in (second, third, again)} == {2}


def test_an_id_that_leaves_before_it_joins_frees_the_join_phase() -> None:
    driver = Driver()
    driver.stable("m1")
    driver.join(fresh="m2")
    rejoin = driver.join("m1")
    assert rejoin not in driver.answers
    assert driver.leave("m2") is ErrorCode.NONE
    assert driver.joined(rejoin).error is ErrorCode.NONE


def test_assignments_are_given_only_when_they_are_committed() -> None:
    """The assignment is persisted before SyncGroup answers; a member that the leader left out gets nothing."""
    driver = Driver()
    driver.add("m1")
    driver.add("m2")
    driver.join("m1")
    follower = driver.sync("m2")
    leader = driver.sync("m1", {"m1": b"p0"}, commit=False)
    assert not {follower, leader} & driver.answers.keys()
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    write = driver.group.sync(_sync("m1", 2, {"m1": b"other"}), Ticket(99), driver.now_ms).write
    assert write is None, "one assignment a generation: the first is being written"


def test_commit_of_the_assignment_answers_everybody() -> None:
    driver = Driver()
    driver.add("m1")
    driver.add("m2")
    driver.join("m1")
    follower = driver.sync("m2")
    leader = driver.sync("m1", {"m1": b"p0", "stranger": b"p1"})
    assert driver.group.state is GroupState.STABLE
    assert driver.synced(leader).assignment == b"p0"
    assert driver.synced(follower).assignment == b""
    assert driver.synced(driver.sync("m1", {"m1": b"changed"})).assignment == b"p0", "stable keeps what is committed"


def test_a_failed_write_tells_the_members_and_starts_over() -> None:
    driver = Driver()
    driver.add("m1")
    ticket = 500
    effects = driver.group.sync(_sync("m1", 1), Ticket(ticket), driver.now_ms)
    assert effects.write is not None
    driver.take(driver.group.write_failed(effects.write, ErrorCode.UNKNOWN_SERVER_ERROR, "why", driver.now_ms))
    assert driver.synced(ticket).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert driver.synced(ticket).message == "why"
    assert driver.group.state is GroupState.PREPARING_REBALANCE


def test_a_write_of_an_old_generation_changes_nothing() -> None:
    """A member may join while the assignment is being written; that generation is then over."""
    driver = Driver()
    driver.add("m1")
    effects = driver.group.sync(_sync("m1", 1, {"m1": b"p0"}), Ticket(500), driver.now_ms)
    assert effects.write is not None
    driver.add("m2")
    assert driver.synced(500).error is ErrorCode.REBALANCE_IN_PROGRESS
    driver.take(driver.group.write_committed(effects.write, driver.now_ms))
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    driver.join("m1")
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    assert driver.group.members.get("m1").assignment == b""  # type: ignore[union-attr] # it is a member


def test_late_members_are_dropped_when_the_rebalance_times_out() -> None:
    """KIP-62: who has not joined again within the rebalance timeout is out, the others go on."""
    driver = Driver()
    driver.stable("m1", "m2")
    driver.add("m3", rebalance_ms=1_000)
    rejoin = driver.join("m2")
    for _ in range(6):
        driver.wait(5_000)
        driver.heartbeat("m1")
    assert driver.joined(rejoin).generation_id == driver.group.generation_id
    assert [member.member_id for member in driver.group.members] == ["m2", "m3"]
    assert driver.group.leader == "m2", "the leader is one that has joined"


def test_a_silent_member_is_dropped_after_its_session() -> None:
    driver = Driver()
    driver.stable("m1", "m2")
    for _ in range(3):
        driver.wait(SESSION_MS / 2 - 1)
        driver.heartbeat("m1")
    assert [member.member_id for member in driver.group.members] == ["m1"]
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat("m1") is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.heartbeat("m2") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_at_the_last_moment_counts() -> None:
    """A session of n ms ends at n, not before."""
    driver = Driver()
    driver.stable("m1")
    driver.wait(SESSION_MS - 1)
    assert driver.heartbeat("m1") is ErrorCode.NONE
    driver.wait(SESSION_MS - 1)
    assert driver.heartbeat("m1") is ErrorCode.NONE
    driver.wait(SESSION_MS)
    assert driver.heartbeat("m1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_we_keep_waiting_do_not_expire() -> None:
    """A parked member sends no heartbeats through the same connection; only a newcomer's wait is bounded."""
    driver = Driver()
    driver.stable("m1", "m2")
    parked = driver.join("m1")
    for _ in range(5):
        driver.wait(5_000)
        driver.heartbeat("m2")
    assert "m1" in driver.group.members
    assert parked not in driver.answers


def test_a_newcomer_that_gave_up_waiting_is_dropped() -> None:
    """Kafka's NEW_MEMBER_JOIN_TIMEOUT: a client that went away in a long rebalance does not pile up."""
    driver = Driver(group_new_member_join_timeout_ms=5_000)
    driver.stable("m1")
    newcomer = driver.add("m2", rebalance_ms=600_000)
    for _ in range(2):
        driver.wait(2_500)
        driver.heartbeat("m1")
    assert driver.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert "m2" not in driver.group.members


def test_the_last_member_leaves_an_empty_generation_behind() -> None:
    driver = Driver()
    driver.stable("m1")
    _, effects = driver.group.leave("m1", None, driver.now_ms)
    assert driver.group.state is GroupState.EMPTY
    assert effects.write is not None
    assert (effects.write.kind, effects.write.value.generation_id) == (WriteKind.EMPTY, 2)
    assert (effects.write.value.protocol_name, effects.write.value.leader) == (None, None)
    assert effects.write.value.protocol_type == "consumer", "Kafka keeps it: retention differs for simple groups"
    assert driver.group.next_deadline_ms() is None


def test_a_member_that_is_removed_hears_of_it_in_what_it_waits_for() -> None:
    """An operator, or a second thread of the client, removes a member that is parked in JoinGroup or SyncGroup."""
    driver = Driver()
    driver.add("m1")
    driver.add("m2")
    driver.join("m1")
    syncing = driver.sync("m2")
    driver.leave("m2")
    assert driver.synced(syncing).error is ErrorCode.UNKNOWN_MEMBER_ID
    joining = driver.add("m3")
    driver.leave("m3")
    assert driver.joined(joining).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_generations_only_grow_through_emptiness() -> None:
    """A member of an earlier life of the group must never pass for one of the present generation."""
    driver = Driver()
    driver.stable("m1")
    driver.leave("m1")
    ticket = driver.add("m2")
    assert driver.joined(ticket).generation_id == 3


class TestStaticMembers:
    """KIP-345: a member with an instance id keeps its place through a restart."""

    def start(self) -> Driver:
        driver = Driver()
        driver.join(fresh="s1", instance="one")
        driver.add("m2")
        driver.join("s1", instance="one")
        driver.sync("m2")
        driver.sync("s1", {"s1": b"p0", "m2": b"p1"})
        assert driver.group.state is GroupState.STABLE
        return driver

    def test_needs_no_round_for_an_id(self) -> None:
        driver = Driver()
        assert driver.joined(driver.join(fresh="s1", instance="one")).error is ErrorCode.NONE

    def test_restart_keeps_generation_and_assignment(self) -> None:
        """The new id is persisted before the answer; nobody else notices. The leader is told not to assign."""
        driver = self.start()
        effects = driver.group.join(_static_join("one"), Ticket(900), "s1-again", driver.now_ms)
        assert not effects.answers
        assert effects.write is not None
        assert effects.write.kind is WriteKind.STATIC_MEMBER
        assert {m.member_id: m.assignment for m in effects.write.value.members} == {"s1-again": b"p0", "m2": b"p1"}
        driver.take(driver.group.write_committed(effects.write, driver.now_ms))
        result = driver.joined(900)
        assert (result.generation_id, result.leader, result.skip_assignment) == (2, "s1-again", True)
        assert driver.group.state is GroupState.STABLE
        assert driver.synced(driver.sync("s1-again", {"m2": b"stolen"})).assignment == b"p0"
        assert driver.heartbeat("m2") is ErrorCode.NONE

    def test_the_older_instance_is_fenced_everywhere(self) -> None:
        """Every request with the instance id and the former member id is answered FENCED_INSTANCE_ID."""
        driver = self.start()
        driver.take(driver.group.join(_static_join("one"), Ticket(900), "s1-again", driver.now_ms))
        group, now_ms = driver.group, driver.now_ms
        assert group.heartbeat("s1", "one", 2, now_ms)[0] is ErrorCode.FENCED_INSTANCE_ID
        assert group.check_commit("s1", "one", 2, now_ms)[0] is ErrorCode.FENCED_INSTANCE_ID
        assert group.leave("s1", "one", now_ms)[0][0] is ErrorCode.FENCED_INSTANCE_ID
        driver.take(group.sync(_sync("s1", 2, instance="one"), Ticket(901), now_ms))
        assert driver.synced(901).error is ErrorCode.FENCED_INSTANCE_ID
        assert driver.joined(driver.join("s1", instance="one")).error is ErrorCode.FENCED_INSTANCE_ID
        assert group.heartbeat("s1", None, 2, now_ms)[0] is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_parked_request_of_the_older_instance_is_fenced(self) -> None:
        driver = self.start()
        parked = driver.join("s1", instance="one")
        driver.take(driver.group.join(_static_join("one"), Ticket(900), "s1-again", driver.now_ms))
        assert driver.joined(parked).error is ErrorCode.FENCED_INSTANCE_ID

    def test_a_changed_subscription_rebalances(self) -> None:
        driver = self.start()
        ticket = driver.join(fresh="s1-again", instance="one", protocols={"range": b"other topics"})
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        driver.join("m2")
        assert driver.joined(ticket).generation_id == 3

    def test_is_kept_while_away_until_its_session_ends(self) -> None:
        """A rebalance of the others does not wait for it longer than its timeout, and does not drop it."""
        driver = Driver()
        driver.join(fresh="s1", instance="one", session_ms=120_000)
        driver.sync("s1")
        driver.add("m2")
        driver.wait(REBALANCE_MS)
        assert driver.group.leader == "m2"
        driver.sync("m2", {"m2": b"p1", "s1": b"p0"})
        assert "s1" in driver.group.members
        assert driver.group.state is GroupState.STABLE
        for _ in range(16):
            driver.wait(5_000)
            driver.heartbeat("m2")
        assert "s1" in driver.group.members
        for _ in range(4):
            driver.wait(5_000)
            driver.heartbeat("m2")
        assert "s1" not in driver.group.members

    def test_an_operator_removes_it_by_its_instance_id(self) -> None:
        driver = self.start()
        assert driver.leave("", "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
        assert driver.leave("", "one") is ErrorCode.NONE
        assert [member.member_id for member in driver.group.members] == ["m2"]

    def test_all_away_postpones_the_join_phase(self) -> None:
        """Nobody is there to lead, and nobody may be dropped before its session ends."""
        driver = Driver()
        driver.join(fresh="s1", instance="one", session_ms=120_000)
        driver.sync("s1")
        driver.add("m2")
        driver.leave("m2")
        driver.wait(REBALANCE_MS * 2)
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        ticket = driver.join("s1", instance="one")
        assert driver.joined(ticket).leader == "s1"


def _static_join(instance: str) -> JoinRequest:
    return JoinRequest(
        member_id="",
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=REBALANCE_MS,
        session_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=(Protocol("range", b""),),
    )


class TestProtocols:
    """One protocol for all, chosen by vote."""

    def test_most_votes_win_among_what_all_support(self) -> None:
        driver = Driver()
        driver.add("m1", protocols={"sticky": b"", "range": b"1", "round": b""})
        driver.add("m2", protocols={"round": b"", "range": b"2"})
        driver.add("m3", protocols={"range": b"3", "round": b""})
        driver.join("m1", protocols={"sticky": b"", "range": b"1", "round": b""})
        driver.join("m2", protocols={"round": b"", "range": b"2"})
        ticket = driver.join("m3", protocols={"range": b"3", "round": b""})
        assert driver.group.protocol_name == "range"
        assert driver.joined(ticket).protocol_name == "range"
        leader = next(answer for answer in driver.answers.values() if isinstance(answer, JoinResult) and answer.members)
        assert leader.member_id == "m1"

    def test_a_member_without_a_common_protocol_is_refused(self) -> None:
        driver = Driver()
        driver.stable("m1")
        refused = driver.joined(driver.join(protocols={"sticky": b""}))
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert "sticky" in refused.message
        refused = driver.joined(driver.join(protocol_type="connect"))
        assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert driver.group.state is GroupState.STABLE

    def test_a_lone_member_may_change_its_protocol(self) -> None:
        """It is compared with the others, not with its own past."""
        driver = Driver()
        driver.stable("m1")
        ticket = driver.join("m1", protocols={"sticky": b""})
        assert driver.joined(ticket).protocol_name == "sticky"

    def test_sync_names_the_protocol_of_the_generation(self) -> None:
        """KIP-559: a sync for another protocol is refused."""
        driver = Driver()
        driver.add("m1")
        effects = driver.group.sync(_sync("m1", 1, protocol_name="sticky"), Ticket(700), driver.now_ms)
        driver.take(effects)
        assert driver.synced(700).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_an_empty_group_takes_any_type(self) -> None:
        driver = Driver()
        driver.stable("m1")
        driver.leave("m1")
        driver.add("m2", protocol_type="connect", protocols={"x": b""})
        assert driver.group.protocol_type == "connect"


class TestInitialDelay:
    """group.initial.rebalance.delay.ms: the first generation waits for company (KIP-134)."""

    def test_members_that_come_together_share_the_first_generation(self) -> None:
        driver = Driver(group_initial_rebalance_delay_ms=100)
        first = driver.add("m1")
        driver.wait(60)
        second = driver.add("m2")
        driver.wait(60)
        assert first not in driver.answers, "each arrival starts the wait again"
        driver.wait(140)
        assert driver.joined(first).generation_id == driver.joined(second).generation_id == 1

    def test_the_wait_ends_with_the_rebalance_timeout(self) -> None:
        driver = Driver(group_initial_rebalance_delay_ms=100)
        first = driver.add("m0", rebalance_ms=1_000)
        for n in range(1, 11):
            driver.wait(99)
            driver.add(f"m{n}", rebalance_ms=1_000)
        driver.wait(10)
        assert driver.joined(first).generation_id == 1

    def test_later_rebalances_do_not_wait(self) -> None:
        driver = Driver(group_initial_rebalance_delay_ms=100)
        driver.add("m1")
        driver.wait(100)
        driver.sync("m1")
        ticket = driver.add("m2")
        driver.join("m1")
        assert driver.joined(ticket).generation_id == 2


class TestSize:
    """group.max.size counts members and promised ids."""

    def test_one_too_many_is_refused(self) -> None:
        driver = Driver(group_max_size=2)
        driver.join(fresh="m1")
        driver.join(fresh="m2")
        refused = driver.joined(driver.join(fresh="m3"))
        assert refused.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert "group.max.size=2" in refused.message
        driver.join("m1")
        driver.join("m2")
        assert len(driver.group.members) == 2

    def test_a_promised_id_may_still_be_used_at_the_bound(self) -> None:
        driver = Driver(group_max_size=1)
        assert driver.joined(driver.add("m1")).error is ErrorCode.NONE
        assert driver.joined(driver.join()).error is ErrorCode.GROUP_MAX_SIZE_REACHED

    def test_a_static_member_comes_back_at_the_bound(self) -> None:
        driver = Driver(group_max_size=1)
        driver.join(fresh="s1", instance="one")
        ticket = driver.join(fresh="s1-again", instance="one")
        assert driver.joined(ticket).error is ErrorCode.NONE

    def test_a_loaded_group_over_the_bound_sheds_who_joins_last(self) -> None:
        """The limit was lowered and the coordinator moved."""
        big = Driver()
        big.stable("m1", "m2", "m3")
        small = Driver(group_max_size=2)
        assignments = {"m1": b"", "m2": b"", "m3": b""}
        small.take(small.group.load(big.group._generation(assignments), small.now_ms))
        assert small.group.state is GroupState.PREPARING_REBALANCE
        tickets = [small.join(member_id) for member_id in assignments]
        errors = [small.joined(ticket).error for ticket in tickets]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


class TestRejoin:
    """What a JoinGroup of a known member does."""

    def test_lost_join_answer_is_given_again(self) -> None:
        driver = Driver()
        first = driver.add("m1")
        again = driver.join("m1")
        assert driver.joined(again) == driver.joined(first)
        assert driver.group.rebalances == 1

    def test_an_unchanged_follower_gets_the_present_generation(self) -> None:
        driver = Driver()
        driver.stable("m1", "m2")
        rebalances = driver.group.rebalances
        ticket = driver.join("m2")
        assert (driver.joined(ticket).generation_id, driver.joined(ticket).members) == (2, ())
        assert (driver.group.state, driver.group.rebalances) == (GroupState.STABLE, rebalances)

    def test_the_leader_starts_a_rebalance(self) -> None:
        """It does so when it has seen new partitions, say."""
        driver = Driver()
        driver.stable("m1", "m2")
        driver.join("m1")
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_changed_metadata_starts_a_rebalance(self) -> None:
        driver = Driver()
        driver.stable("m1", "m2")
        driver.join("m2", protocols={"range": b"other topics"})
        assert driver.group.state is GroupState.PREPARING_REBALANCE

    def test_a_second_join_of_one_member_takes_over(self) -> None:
        """The first caller gave up; it must not act on the answer, and it is answered all the same."""
        driver = Driver()
        driver.stable("m1", "m2")
        first = driver.join("m1")
        second = driver.join("m1")
        assert driver.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
        driver.join("m2")
        assert driver.joined(second).error is ErrorCode.NONE

    def test_a_second_sync_of_one_member_takes_over(self) -> None:
        driver = Driver()
        driver.add("m1")
        driver.add("m2")
        driver.join("m1")
        first = driver.sync("m2")
        second = driver.sync("m2")
        assert driver.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
        driver.sync("m1", {"m2": b"p"})
        assert driver.synced(second).assignment == b"p"

    def test_an_unknown_id_is_told_so(self) -> None:
        driver = Driver()
        driver.stable("m1")
        assert driver.joined(driver.join("ghost")).error is ErrorCode.UNKNOWN_MEMBER_ID


class TestCommits:
    """Who may commit offsets."""

    def test_members_of_the_generation_may(self) -> None:
        driver = Driver()
        driver.stable("m1")
        assert driver.commit("m1", 1) is ErrorCode.NONE
        assert driver.commit("m1", 0) is ErrorCode.ILLEGAL_GENERATION
        assert driver.commit("m1", 2) is ErrorCode.ILLEGAL_GENERATION
        assert driver.commit("ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_outsiders_may_only_while_the_group_is_empty(self) -> None:
        driver = Driver()
        assert driver.commit() is ErrorCode.NONE
        driver.stable("m1")
        assert driver.commit() is ErrorCode.UNKNOWN_MEMBER_ID
        driver.leave("m1")
        assert driver.commit() is ErrorCode.NONE

    def test_members_may_while_partitions_are_handed_over(self) -> None:
        """They commit what they have done before they give their partitions up."""
        driver = Driver()
        driver.stable("m1")
        driver.add("m2")
        assert driver.group.state is GroupState.PREPARING_REBALANCE
        assert driver.commit("m1", 1) is ErrorCode.NONE

    def test_nobody_may_before_the_assignment_is_known(self) -> None:
        driver = Driver()
        driver.add("m1")
        assert driver.commit("m1", 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_newcomer_may_not_commit_for_the_generation_before_it(self) -> None:
        driver = Driver()
        driver.stable("m1")
        driver.add("m2")
        assert driver.commit("m2", 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_a_commit_is_a_sign_of_life(self) -> None:
        driver = Driver()
        driver.stable("m1")
        for _ in range(5):
            driver.wait(SESSION_MS - 1)
            assert driver.commit("m1", 1) is ErrorCode.NONE


def test_loading_restores_the_generation_and_starts_sessions() -> None:
    """The next coordinator starts from the last persisted generation."""
    before = Driver()
    before.stable("m1", "m2")
    after = Driver()
    assignments = {"m1": b"m1", "m2": b"m2"}
    after.take(after.group.load(before.group._generation(assignments), after.now_ms))
    assert (after.group.state, after.group.generation_id, after.group.leader) == (GroupState.STABLE, 2, "m1")
    assert after.synced(after.sync("m2")).assignment == b"m2"
    assert after.heartbeat("m1") is ErrorCode.NONE
    after.wait(SESSION_MS)
    assert after.group.state is GroupState.EMPTY


def test_killing_a_group_answers_everybody() -> None:
    driver = Driver()
    driver.stable("m1", "m2")
    parked = driver.join("m1")
    driver.take(driver.group.kill(ErrorCode.NOT_COORDINATOR, "moved"))
    assert driver.joined(parked).error is ErrorCode.NOT_COORDINATOR
    assert driver.group.state is GroupState.DEAD
    assert driver.group.next_deadline_ms() is None


def test_the_generation_number_starts_again_before_it_overflows() -> None:
    """It is an int32 on the wire and in the log."""
    driver = Driver()
    driver.group.generation_id = 2**31 - 1
    assert driver.joined(driver.add("m1")).generation_id == 1
