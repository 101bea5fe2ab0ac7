"""Being a member of a group, by the classic protocol: join, sync, heartbeats, leave. Used only on the client's loop.

One task per consumer goes round:

    (find coordinator) -> [give up partitions] -> JoinGroup -> SyncGroup -> [take partitions] -> stable -> ...

The steps in brackets happen inside of the application's `poll`, because they change what it owns and call its listener;
all else goes on by itself. Heartbeats run beside, from the first SyncGroup on, whatever the application does; only
`max_poll_interval_ms` without a poll ends the membership.

What an answer means (one rejoin each, KAFKA-9140; `join_reason` is the only flag, so that several of them in one
generation cause one join):

    REBALANCE_IN_PROGRESS  join again as the same member; partitions are kept until the poll that gives them up
    ILLEGAL_GENERATION     the partitions are lost; join again as the same member
    UNKNOWN_MEMBER_ID      the partitions are lost; join as a new member
    FENCED_INSTANCE_ID     another consumer uses this instance id: fatal
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a lost connection: find the coordinator again, keep the membership
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kraftlog.proto import group_pb2
from kraftlog.proto.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    KraftlogError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
    error_for,
)
from kraftlog.proto.seams import Clock, Random
from kraftlog.sdk.assignors import ASSIGNORS, MemberSubscription
from kraftlog.sdk.config import ConsumerConfig
from kraftlog.sdk.consumer_protocol import (
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kraftlog.sdk.failures import again
from kraftlog.sdk.group_client import GroupClient
from kraftlog.sdk.types import TopicPartition
from kraftlog.sdk.waiting import Backoff, Event, Tasks, sleep_ms

log = logging.getLogger("kraftlog.sdk")

JOIN_GRACE_MS = 5_000  # JoinGroup waits for the other members up to the rebalance time-out, and so long for the network


class ChangeKind(Enum):
    """What a poll has to do with partitions."""

    REVOKED = "revoked"
    LOST = "lost"
    ASSIGNED = "assigned"


@dataclass(slots=True, eq=False)
class Change:
    """A step that waits for a poll, which ends it with `Membership.change_done`."""

    kind: ChangeKind
    partitions: tuple[TopicPartition, ...]


class Membership:
    """See the module's text."""

    def __init__(
        self,
        config: ConsumerConfig,
        group: GroupClient,
        *,
        clock: Clock,
        random: Random,
        topics: Callable[[], Sequence[str]],
        partition_counts: Callable[[Sequence[str]], Awaitable[Mapping[str, int]]],
        on_change: Callable[[], None],
    ) -> None:
        """`topics` says what to join for, `partition_counts` fetches the topics' sizes (only leaders ask), `on_change`
        is called when there is something for `poll` to do."""
        self._config = config
        self._group = group
        self._clock = clock
        self._random = random
        self._topics = topics
        self._partition_counts = partition_counts
        self._on_change = on_change
        self._tasks = Tasks()
        self._changed = Event()
        self.member_id = ""
        self.generation_id = -1
        self.protocol_name = ""
        self.is_leader = False
        self.owned: tuple[TopicPartition, ...] = ()
        """What the application has; changes only inside of a poll."""
        self.pending: Change | None = None
        self.join_reason: str | None = "the first join"
        """Why the group must be joined again; None: the membership is fine."""
        self.error: KraftlogError | None = None
        """What ended the membership for good."""
        self.joined_topics: tuple[str, ...] = ()
        self.seen_counts: Mapping[str, int] = {}
        """Sizes that the leader's assignment was computed from."""
        self.join_requests = 0
        self._is_started = False
        self._is_joining = False
        self._is_closed = False
        self._is_polling = False
        self._polled_at_ms = 0.0
        self._must_poll = False
        """The processing limit was passed: join again only when the application polls."""

    # -- the application's side

    def start(self) -> None:
        """Join in the background; at the first poll."""
        if not self._is_started and not self._is_closed:
            self._is_started = True
            self._polled_at_ms = self._clock.monotonic_ms()
            self._tasks.start(self._run(), "group membership")
            self._tasks.start(self._beat(), "heartbeats")

    def poll_begins(self) -> None:
        self._is_polling = True
        self._polled_at_ms = self._clock.monotonic_ms()
        if self._must_poll:
            self._must_poll = False
            self._changed.notify()

    def poll_ends(self) -> None:
        self._is_polling = False
        self._polled_at_ms = self._clock.monotonic_ms()

    def touch(self) -> None:
        """A poll was answered from the buffers. Safe from any thread."""
        self._polled_at_ms = self._clock.monotonic_ms()

    def change_done(self, change: Change) -> None:
        """The poll has done its part."""
        if self.pending is change:
            self.owned = change.partitions if change.kind is ChangeKind.ASSIGNED else ()
            self.pending = None
            self._changed.notify()

    def request_rejoin(self, reason: str) -> None:
        """Join again; nothing happens if that is under way or asked for already."""
        if self.join_reason is None and not self._is_joining:
            self.join_reason = reason
            log.info("group %s: joining again: %s", self._group.group_id, reason)
            self._changed.notify()

    @property
    def is_stable(self) -> bool:
        """Whether this is a member and no rebalance is known to be under way."""
        return self.generation_id >= 0 and self.join_reason is None

    def check_usable_for_commit(self) -> None:
        """Raise unless a commit could be accepted at present."""
        if self.error is not None:
            raise again(self.error)
        if self.generation_id < 0 or self._is_joining:
            raise RebalanceInProgressError(
                f"group {self._group.group_id} is rebalancing: poll, then commit what is still assigned"
            )

    def on_error(self, error: KraftlogError, generation_id: int) -> None:
        """Act on the error of a request that was sent in `generation_id`; a stale one has no effect."""
        self._group.note(error)
        if generation_id != self.generation_id or self._is_joining:
            return
        if isinstance(error, FencedInstanceIdError):
            self._end(error)
        elif isinstance(error, UnknownMemberIdError):
            self._lose("the coordinator does not know this member any more", forget_member=True)
        elif isinstance(error, IllegalGenerationError):
            self._lose("the group went on without this member", forget_member=False)
        elif isinstance(error, RebalanceInProgressError):
            self.request_rejoin("the group is rebalancing")

    async def close(self, timeout_ms: float, *, leave: bool) -> None:
        """Stop; leave the group at once unless this is a static member."""
        self._is_closed = True
        await self._tasks.cancel()
        if leave and self.member_id and not self._config.group_instance_id:
            await self._leave("the consumer was closed", timeout_ms)

    # -- the round

    async def _run(self) -> None:
        backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms, self._random)
        while self.error is None:
            if self.pending is not None:
                await self._at_poll(self.pending)
            elif self._must_poll or self.join_reason is None:
                await self._changed.wait()
            elif self.owned:  # a poll gives up what is owned, before the group may hand it to others
                await self._at_poll(Change(ChangeKind.REVOKED, self.owned))
            else:
                await self._join_once(backoff)

    async def _join_once(self, backoff: Backoff) -> None:
        try:
            assigned = await self._join()
        except KraftlogError as error:
            self._group.note(error)
            if not (error.retriable or isinstance(error, UnknownServerError)):
                self._end(error)
                return
            log.debug("group %s: %s", self._group.group_id, error)
            assigned = None
        if assigned is None:
            await sleep_ms(backoff.next_ms())
            return
        backoff.reset()
        if tuple(self._topics()) != self.joined_topics:
            self.request_rejoin("the subscription changed")
        await self._at_poll(Change(ChangeKind.ASSIGNED, assigned))

    async def _at_poll(self, change: Change) -> None:
        """Wait until a poll has done `change`. An assignment that is outdated meanwhile is dropped."""
        self.pending = change
        self._on_change()
        while self.pending is change:
            if change.kind is ChangeKind.ASSIGNED and self.join_reason is not None:
                self.pending = None
                return
            await self._changed.wait()

    async def _join(self) -> tuple[TopicPartition, ...] | None:
        """JoinGroup and SyncGroup; what is assigned, or None if it has to be tried again."""
        self._is_joining = True
        reason, self.join_reason = self.join_reason, None
        try:
            joined = await self._join_group()
            assigned = None if joined is None else await self._sync_group(joined)
        except BaseException:
            self.join_reason = self.join_reason or reason
            raise
        finally:
            self._is_joining = False
        if assigned is None:
            self.join_reason = self.join_reason or reason
        return assigned

    async def _join_group(self) -> group_pb2.JoinGroupResponse | None:
        config = self._config
        topics = tuple(self._topics())
        subscription = encode_subscription(
            Subscription(topics, None, self.owned, self.generation_id, config.client_rack or None)
        )
        request = group_pb2.JoinGroupRequest(
            group_id=self._group.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=config.group_instance_id or "",
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                group_pb2.GroupProtocol(name=name, metadata=subscription)
                for name in config.partition_assignment_strategy
            ],
            client_id=config.client_id,
        )
        response = await self._send_join(request)
        if response.error_code == MemberIdRequiredError.code:
            request.member_id = self.member_id = response.member_id
            response = await self._send_join(request)
        if response.error_code:
            error = error_for(
                response.error_code, f"group {self._group.group_id}: {response.error_message}".rstrip(": ")
            )
            if isinstance(error, UnknownMemberIdError):
                self.member_id, self.generation_id = "", -1
                return None
            raise error
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self.protocol_name = response.protocol_name
        self.is_leader = response.leader == response.member_id
        self.joined_topics = topics
        return response

    async def _send_join(self, request: group_pb2.JoinGroupRequest) -> group_pb2.JoinGroupResponse:
        self.join_requests += 1
        data = await self._group.call(
            "JoinGroup",
            request.SerializeToString(),
            timeout_ms=self._config.max_poll_interval_ms + JOIN_GRACE_MS,
        )
        return group_pb2.JoinGroupResponse.FromString(data)

    async def _sync_group(self, joined: group_pb2.JoinGroupResponse) -> tuple[TopicPartition, ...] | None:
        request = group_pb2.SyncGroupRequest(
            group_id=self._group.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self._config.group_instance_id or "",
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol_name,
        )
        if self.is_leader:
            for member_id, partitions in (await self._assign(joined)).items():
                encoded = encode_assignment(Assignment(tuple(partitions)))
                request.assignments.add(member_id=member_id, assignment=encoded)
        timeout_ms = self._config.max_poll_interval_ms + JOIN_GRACE_MS
        data = await self._group.call("SyncGroup", request.SerializeToString(), timeout_ms=timeout_ms)
        response = group_pb2.SyncGroupResponse.FromString(data)
        if not response.error_code:
            return decode_assignment(response.assignment).partitions
        error = error_for(response.error_code, f"group {self._group.group_id}: {response.error_message}".rstrip(": "))
        if isinstance(error, UnknownMemberIdError):
            self.member_id, self.generation_id = "", -1
            return None
        if isinstance(error, IllegalGenerationError | RebalanceInProgressError):
            return None
        raise error

    async def _assign(self, joined: group_pb2.JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        """Compute the group's assignment, as its leader."""
        members = [
            MemberSubscription(member.member_id, decode_subscription(member.metadata), member.group_instance_id or None)
            for member in joined.members
        ]
        topics = sorted({topic for member in members for topic in member.subscription.topics})
        counts = await self._partition_counts(topics)
        self.seen_counts = counts
        return ASSIGNORS[self.protocol_name].assign(counts, members)

    # -- heartbeats

    async def _beat(self) -> None:
        while self.error is None:
            await sleep_ms(self._config.heartbeat_interval_ms)
            self._check_poll_interval()
            if self.generation_id < 0 or self._is_joining or self._must_poll:
                continue
            generation_id = self.generation_id
            request = group_pb2.HeartbeatRequest(
                group_id=self._group.group_id,
                generation_id=generation_id,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id or "",
            ).SerializeToString()
            try:
                timeout_ms = min(self._config.request_timeout_ms, self._config.session_timeout_ms)
                data = await self._group.call("Heartbeat", request, timeout_ms=timeout_ms)
            except KraftlogError as error:
                log.debug("group %s: heartbeat: %s", self._group.group_id, error)
                if not error.retriable and not isinstance(error, UnknownServerError):
                    self._end(error)
                continue
            answer = group_pb2.HeartbeatResponse.FromString(data)
            if answer.error_code and not self._is_joining:
                self.on_error(error_for(answer.error_code, answer.error_message), generation_id)

    def _check_poll_interval(self) -> None:
        waited_ms = self._clock.monotonic_ms() - self._polled_at_ms
        if self._is_polling or self._must_poll or waited_ms < self._config.max_poll_interval_ms:
            return
        text = (
            f"no poll for max_poll_interval_ms={self._config.max_poll_interval_ms}: left the group, its partitions go to "
            "other members. Poll more often, lower max_poll_records or raise max_poll_interval_ms"
        )
        log.warning("group %s: %s", self._group.group_id, text)
        member_id = self.member_id
        self._must_poll = True
        self._lose("the application did not poll", forget_member=not self._config.group_instance_id)
        if member_id and not self._config.group_instance_id:
            self._tasks.start(self._leave_as(member_id, "max.poll.interval.ms exceeded"), "leave group")

    # -- ends

    def _lose(self, reason: str, *, forget_member: bool) -> None:
        """The partitions are no longer ours: the next poll says so to the application."""
        self.generation_id = -1
        if forget_member:
            self.member_id = ""
        if self.owned:
            log.warning("group %s: partitions lost: %s", self._group.group_id, reason)
            self.pending = Change(ChangeKind.LOST, self.owned)
        elif self.pending is not None:
            self.pending = None
        self.join_reason = self.join_reason or reason
        self._on_change()
        self._changed.notify()

    def _end(self, error: KraftlogError) -> None:
        self.error = error
        self.generation_id = -1
        if self.owned:
            self.pending = Change(ChangeKind.LOST, self.owned)
        self._on_change()

    async def _leave(self, reason: str, timeout_ms: float) -> None:
        try:
            await self._leave_as(self.member_id, reason, timeout_ms)
        finally:
            self.member_id, self.generation_id = "", -1

    async def _leave_as(self, member_id: str, reason: str, timeout_ms: float | None = None) -> None:
        request = group_pb2.LeaveGroupRequest(group_id=self._group.group_id, member_id=member_id, reason=reason)
        limit_ms = self._config.request_timeout_ms if timeout_ms is None else max(1.0, timeout_ms)
        try:
            await self._group.call("LeaveGroup", request.SerializeToString(), timeout_ms=limit_ms)
        except KraftlogError as error:  # the session time-out removes the member
            log.debug("group %s: leaving: %s", self._group.group_id, error)
