"""The persistent mapping against a plain dict, and what it shares."""

from hypothesis import given
from hypothesis import strategies as st

from kraftlog.kraft.image.persistent import CHUNK_SIZE, PersistentMap

CHANGES = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 400), st.integers(), max_size=40), st.sets(st.integers(0, 400))),
    max_size=12,
)


@given(st.dictionaries(st.integers(0, 400), st.integers()), CHANGES)
def test_equals_a_dict_after_any_changes(start: dict[int, int], changes: list[tuple[dict[int, int], set[int]]]) -> None:
    """Contents, order, length and look-ups; earlier mappings stay as they were."""
    mapping, model = PersistentMap(start), dict(start)
    for changed, removed in changes:
        before, before_model = mapping, dict(model)
        mapping = mapping.updated(changed, removed)
        for key in removed:
            model.pop(key, None)
        model.update(changed)
        assert list(mapping.items()) == sorted(model.items())
        assert len(mapping) == len(model)
        assert [mapping.get(key) for key in range(0, 401, 7)] == [model.get(key) for key in range(0, 401, 7)]
        assert dict(before) == before_model
        assert all(0 < len(chunk) <= CHUNK_SIZE for chunk in mapping._chunks)


@given(st.integers(0, 9_999))
def test_one_change_copies_one_chunk(key: int) -> None:
    """10,000 keys: all chunks but the touched one are the same objects."""
    mapping = PersistentMap((number, str(number)) for number in range(10_000))
    changed = mapping.updated({key: "x"})
    kept = {id(chunk) for chunk in mapping._chunks} & {id(chunk) for chunk in changed._chunks}
    assert len(kept) == len(mapping._chunks) - 1
    assert changed[key] == "x"
    assert mapping[key] == str(key)


def test_growing_one_by_one_stays_balanced() -> None:
    """Chunks split before they get long, and vanish when they are empty."""
    mapping: PersistentMap[int, int] = PersistentMap()
    for number in range(2_000):
        mapping = mapping.updated({number * 7 % 2_003: number})
    assert len(mapping._chunks) <= 2 * 2_000 / CHUNK_SIZE * 2 + 1
    for number in range(2_000):
        mapping = mapping.updated({}, [number * 7 % 2_003])
    assert len(mapping) == 0
    assert mapping.updated({}) is mapping
