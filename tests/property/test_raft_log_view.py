"""The core's log view against a naive list."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraftlog.kraft.raft import NO_OFFSET, Entry, EntryKind, Snapshot
from kraftlog.kraft.raft.log_view import LogView


def snapshot(offset: int, term: int) -> Snapshot:
    return Snapshot(offset, term, frozenset(), b"")


class LogViewAgainstList(RuleBasedStateMachine):
    """Entries with gaps, terms that grow, cuts at boundaries, snapshots at boundaries."""

    def __init__(self) -> None:
        super().__init__()
        self.view = LogView(snapshot(NO_OFFSET, 0))
        self.entries: list[Entry] = []
        self.base = (NO_OFFSET, 0)

    @rule(term_up=st.integers(0, 1), count=st.integers(1, 3), size=st.integers(0, 4))
    def append(self, term_up: int, count: int, size: int) -> None:
        last, term = (self.entries[-1].last_offset, self.entries[-1].term) if self.entries else self.base
        entry = Entry(last + count, max(1, term + term_up), EntryKind.DATA, b"x" * size, count)
        self.view.append(entry)
        self.entries.append(entry)

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        keep = data.draw(st.integers(0, len(self.entries)))
        offset = self.entries[keep - 1].last_offset if keep else self.base[0]
        self.view.truncate_to(offset)
        del self.entries[keep:]

    @precondition(lambda self: self.entries)
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.entries)))
        last = self.entries[count - 1]
        self.view.compact(snapshot(last.last_offset, last.term))
        self.base = (last.last_offset, last.term)
        del self.entries[:count]

    @rule(after=st.integers(-1, 40), through=st.integers(-1, 40), max_bytes=st.integers(0, 12))
    def ask(self, after: int, through: int, max_bytes: int) -> None:
        found = tuple(e for e in self.entries if after < e.last_offset <= through)
        assert self.view.between(after, through) == (found if through >= after else ())
        assert self.view.bytes_between(after, max(after, through)) == sum(len(e.data) for e in found)
        following = [e for e in self.entries if e.last_offset > after]
        taken: list[Entry] = []
        for entry in following:
            if taken and sum(len(e.data) for e in taken) + len(entry.data) > max_bytes:
                break
            taken.append(entry)
        got = self.view.entries_after(after, max_bytes)
        assert got == tuple(taken[: len(got)])
        assert sum(len(e.data) for e in got) <= max_bytes or len(got) == 1
        assert len(got) >= len([e for e in taken if sum(len(x.data) for x in taken) <= max_bytes])

    @invariant()
    def boundaries(self) -> None:
        terms = {self.base[0]: self.base[1]} | {e.last_offset: e.term for e in self.entries}
        last = self.entries[-1] if self.entries else None
        assert (self.view.last_offset, self.view.last_term) == (
            self.base if last is None else (last.last_offset, last.term)
        )
        for offset in range(-1, self.view.last_offset + 3):
            assert self.view.term_at(offset) == terms.get(offset)
            below = [boundary for boundary in terms if boundary <= offset]
            assert self.view.floor(offset) == (max(below) if below else offset)


LogViewAgainstList.TestCase.settings = settings(stateful_step_count=30)
TestLogViewAgainstList = LogViewAgainstList.TestCase


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=12), st.data())
def test_conflict_hint_is_before_the_whole_term(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    """A boundary below the conflict, not below the commit offset, with no entry of the conflicting term right before
    it unless that is committed."""
    view, offset, term = LogView(snapshot(NO_OFFSET, 0)), NO_OFFSET, 0
    entries = []
    for count, step in shape:
        term += step - 1 if term else step
        offset += count
        entries.append(Entry(offset, term, EntryKind.DATA, b"", count))
        view.append(entries[-1])
    conflict = data.draw(st.integers(0, len(entries) - 1))
    committed = data.draw(st.integers(-1, conflict - 1))
    lowest = entries[committed].last_offset if committed >= 0 else NO_OFFSET
    inside = data.draw(st.integers(entries[conflict].base_offset, entries[conflict].last_offset))
    hint = view.before_term_of(inside, lowest)
    assert view.term_at(hint) is not None
    assert lowest <= hint < entries[conflict].base_offset
    assert hint == lowest or view.term_at(hint) != entries[conflict].term
