"""The states of a classic group, its legal transitions, and what its state machine tells the caller to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from kraftlog.server.coordinator.members import Answer, Ticket
from kraftlog.server.coordinator.records import GroupMetadataValue


class GroupState(StrEnum):
    """Kafka's names, as DescribeGroups shows them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""From each state, the states that may follow it (`ClassicGroupState.validPreviousStates`, turned around)."""


class WriteKind(Enum):
    """Why a generation is written; says what its commit sets free."""

    ASSIGNMENT = "assignment"
    """The leader's assignment: the members waiting in SyncGroup."""
    STATIC_MEMBER = "static member"
    """A static member's new id in the same generation (Kafka persists it, so that no fail-over fences it): its join."""
    EMPTY = "empty"
    """The last member is gone: nothing, but retention counts from here."""


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """One generation to append; afterwards the group hears `write_committed` or `write_failed` with it, once."""

    kind: WriteKind
    value: GroupMetadataValue
    """Without its timestamp, which is wall time and the writer's matter."""
    ticket: Ticket | None = None


@dataclass(slots=True)
class Effects:
    """What the caller must do: give the answers, append the write."""

    answers: list[tuple[Ticket, Answer]] = field(default_factory=list)
    write: GroupWrite | None = None

    def answer(self, ticket: Ticket | None, answer: Answer) -> None:
        if ticket is not None:
            self.answers.append((ticket, answer))
