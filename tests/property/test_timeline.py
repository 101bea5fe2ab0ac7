"""The timeline structures against a naive model that copies everything at every version."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraftlog.kraft.timeline import SnapshotRegistry, TimelineDict, TimelineInt

Version = tuple[dict[int, int], dict[int, int], int]
KEYS = st.integers(0, 5)
VALUES = st.integers(-3, 3)


class TimelineAgainstCopies(RuleBasedStateMachine):
    """Each version is a full copy in the model; the structures must answer the same at every registered offset."""

    @initialize()
    def start(self) -> None:
        self.registry = SnapshotRegistry()
        self.first: TimelineDict[int, int] = TimelineDict(self.registry)
        self.second: TimelineDict[int, int] = TimelineDict(self.registry)
        self.number = TimelineInt(self.registry)
        self.model: Version = ({}, {}, 0)
        self.versions: dict[int, Version] = {}
        self.next_offset = 0

    def copy(self) -> Version:
        return dict(self.model[0]), dict(self.model[1]), self.model[2]

    @rule(which=st.booleans(), key=KEYS, value=VALUES)
    def put(self, which: bool, key: int, value: int) -> None:
        (self.first if which else self.second)[key] = value
        (self.model[0] if which else self.model[1])[key] = value

    @rule(which=st.booleans(), key=KEYS)
    def remove(self, which: bool, key: int) -> None:
        mine, model = (self.first, self.model[0]) if which else (self.second, self.model[1])
        assert mine.pop(key, None) == model.pop(key, None)

    @rule(by=VALUES)
    def increment(self, by: int) -> None:
        self.model = (self.model[0], self.model[1], self.model[2] + by)
        assert self.number.increment(by) == self.model[2]

    @rule(gap=st.integers(1, 3))
    def register(self, gap: int) -> None:
        self.next_offset += gap
        self.registry.register(self.next_offset)
        self.versions[self.next_offset] = self.copy()

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.versions)))
        self.registry.revert_to(offset)
        self.versions = {o: v for o, v in self.versions.items() if o <= offset}
        self.model = self.versions[offset]
        self.model = self.copy()
        self.next_offset = offset

    @precondition(lambda self: self.versions)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.versions)))
        self.registry.forget_before(offset)
        self.versions = {o: v for o, v in self.versions.items() if o >= offset}

    @rule()
    def forget_all(self) -> None:
        self.registry.forget_all()
        self.versions = {}

    @invariant()
    def answers_like_the_copies(self) -> None:
        if not hasattr(self, "registry"):
            return
        assert (dict(self.first), dict(self.second), self.number.get()) == self.model
        assert self.registry.offsets == tuple(sorted(self.versions))
        for offset, (first, second, number) in self.versions.items():
            assert dict(self.first.items_at(offset)) == first
            assert dict(self.second.items_at(offset)) == second
            assert {
                k: self.first.get_at(offset, k) for k in range(6) if self.first.get_at(offset, k) is not None
            } == first
            assert self.number.get_at(offset) == number


TestTimelineAgainstCopies = TimelineAgainstCopies.TestCase


@pytest.mark.deep
class TestTimelineDeep(TimelineAgainstCopies.TestCase):
    """The same with KRAFTLOG_EXAMPLES examples."""
