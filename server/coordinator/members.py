"""The members of one classic group and what they are answered. Plain values and bookkeeping; no clock, no I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NewType

from kraftlog.proto.errors import ErrorCode
from kraftlog.server.coordinator.records import MemberMetadata

Ticket = NewType("Ticket", int)
"""Stands for one request that waits for its answer; the caller maps it to the request. Answered exactly once."""

NO_GENERATION = -1
UNKNOWN_MEMBER_ID = ""


@dataclass(frozen=True, slots=True)
class Protocol:
    """One assignor that a member offers, with the member's subscription in that assignor's terms."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup that passed the checks of form. `rebalance_timeout_ms` is set."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup that passed the checks of form."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    assignments: Mapping[str, bytes]
    """By member id; counts only from the leader."""
    protocol_type: str = ""
    protocol_name: str = ""
    """Empty: not given. Else they must be those of the generation (KIP-559)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """What the leader is told of a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Answer of a JoinGroup."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    generation_id: int = NO_GENERATION
    protocol_type: str = ""
    protocol_name: str = ""
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    """Everybody, for the leader; empty for others."""
    skip_assignment: bool = False
    """The leader came back by its instance id (KIP-814): it leads, but the present assignment stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Answer of a SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    assignment: bytes = b""


Answer = JoinResult | SyncResult


@dataclass(slots=True, kw_only=True)
class Member:
    """One member. Used only by its group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """Waits for its first JoinGroup answer, so it cannot send heartbeats yet."""
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    deadline_ms: float = 0.0
    """When the member is taken for gone. Not looked at while a known member waits for an answer of ours."""

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_ticket is not None

    @property
    def expires_at_ms(self) -> float | None:
        """The deadline, or None while only the coordinator keeps the member waiting."""
        if not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None):
            return None
        return self.deadline_ms

    def metadata_for(self, protocol_name: str) -> bytes:
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")

    def offers(self, protocol_name: str) -> bool:
        return any(protocol.name == protocol_name for protocol in self.protocols)

    def refresh(self, now_ms: float) -> None:
        """A sign of life: the session starts again."""
        self.deadline_ms = now_ms + self.session_timeout_ms

    def to_metadata(self, protocol_name: str, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol_name),
            assignment=assignment,
        )


def new_member(member_id: str, request: JoinRequest) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )


def loaded_member(metadata: MemberMetadata, protocol_name: str) -> Member:
    """A member as the log has it: of its protocols only the chosen one is recorded."""
    return Member(
        member_id=metadata.member_id,
        group_instance_id=metadata.group_instance_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        session_timeout_ms=metadata.session_timeout_ms,
        protocols=(Protocol(protocol_name, metadata.subscription),),
        assignment=metadata.assignment,
    )


@dataclass(slots=True)
class Roster:
    """Members by id in the order of their arrival, and the instance ids of the static ones.

    Invariants: `_static` maps exactly the instance ids of the members to their ids; `_offered` counts how many members
    offer each protocol; if there are members, at least one protocol is offered by all (callers ask `supports` first).
    """

    _members: dict[str, Member] = field(default_factory=dict)
    _static: dict[str, str] = field(default_factory=dict)
    _offered: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        return None if group_instance_id is None else self._static.get(group_instance_id)

    def add(self, member: Member) -> None:
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        self._count(member, 1)
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static
            self._static[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        """Take over what a later JoinGroup of the member says."""
        self._count(member, -1)
        member.client_id = request.client_id
        member.client_host = request.client_host
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.protocols = request.protocols
        self._count(member, 1)

    def supports(self, protocols: Iterable[Protocol], *, besides: Member | None = None) -> bool:
        """Whether one of `protocols` is offered by every member, `besides` excepted."""
        wanted = len(self) - (besides is not None)

        def offered(name: str) -> int:
            return self._offered.get(name, 0) - (besides is not None and besides.offers(name))

        return any(offered(protocol.name) == wanted for protocol in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its first that all support; ties go to the first
        vote, so that the choice does not depend on hashing."""
        votes: dict[str, int] = {}
        for member in self:
            vote = next(p.name for p in member.protocols if self._offered[p.name] == len(self))
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def _count(self, member: Member, change: int) -> None:
        for protocol in member.protocols:
            left = self._offered.get(protocol.name, 0) + change
            if left:
                self._offered[protocol.name] = left
            else:
                del self._offered[protocol.name]
