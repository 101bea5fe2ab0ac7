"""One topic as a client sees it: there or not, with one config that each creation and alteration sets to another value.

No value is used twice, so that a description says which operation it shows.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Create:
    value: int


@dataclass(frozen=True, slots=True)
class Delete:
    pass


@dataclass(frozen=True, slots=True)
class Alter:
    value: int


@dataclass(frozen=True, slots=True)
class Describe:
    pass


TopicCall = Create | Delete | Alter | Describe


class Outcome(Enum):
    DONE = "done"
    EXISTS = "exists already"
    MISSING = "does not exist"

    def __repr__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Described:
    value: int


TopicAnswer = Outcome | Described
TopicState = int | None
"""The value; None: there is no topic."""


class TopicModel:
    """The model for `linearizability.find_violation`."""

    initial: TopicState = None

    def apply(self, state: TopicState, call: TopicCall) -> tuple[TopicState, TopicAnswer]:
        match call:
            case Create(value):
                return (value, Outcome.DONE) if state is None else (state, Outcome.EXISTS)
            case Delete():
                return None, Outcome.MISSING if state is None else Outcome.DONE
            case Alter(value):
                return (None, Outcome.MISSING) if state is None else (value, Outcome.DONE)
            case Describe():
                return state, Outcome.MISSING if state is None else Described(state)

    def changes_nothing(self, call: TopicCall, answer: TopicAnswer) -> bool:
        return answer is not Outcome.DONE
