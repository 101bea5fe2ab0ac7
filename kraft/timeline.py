"""Versioned structures: the present, and every registered past that may still be read or returned to.

A leader decides against state that is not committed yet. Before it changes anything it registers the offset that the
state stands at (`SnapshotRegistry.register`); then it may read the state as of that offset (`get(key, offset)`),
forget versions that nobody needs (`forget_before`), or undo everything after it (`revert_to`).

A registered version costs nothing by itself: each version keeps, per structure, what the values that were changed
after it had been. So the present is a plain dict or attribute, reading an old version looks through the versions from
that one up to the present, and reverting writes the old values back, newest version first.

Used by one thread. Keys and values must be immutable, as a version does not copy them.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, MutableMapping
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from kraftlog.proto.errors import IllegalStateError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


class _Absent:
    """Marks that a key had no value."""

    def __repr__(self) -> str:
        return "ABSENT"


_ABSENT: Final = _Absent()


class _Restorable(Protocol):
    def _restore(self, old_values: dict[Any, Any]) -> None: ...


class SnapshotRegistry:
    """The registered offsets, ascending. An offset names the state after that offset."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._changes: list[dict[int, tuple[_Restorable, dict[Any, Any]]]] = []
        """For each offset, by identity of the structure: the structure, and key -> value at that offset, for what was
        changed before the next one."""

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(self._offsets)

    def register(self, offset: int) -> None:
        """From here on the present state is readable as `offset`. Repeating the newest offset changes nothing, which
        is right only if the state has not changed since; lower offsets are refused."""
        if self._offsets and offset <= self._offsets[-1]:
            if offset == self._offsets[-1] and not self._changes[-1]:
                return
            raise IllegalStateError(f"offset {offset} is registered after offset {self._offsets[-1]}")
        self._offsets.append(offset)
        self._changes.append({})

    def revert_to(self, offset: int) -> None:
        """Make the present what it was at `offset`, which must be registered and stays so; later versions vanish."""
        index = self._index(offset)
        while len(self._changes) > index:
            for structure, old_values in self._changes.pop().values():
                structure._restore(old_values)
        del self._offsets[index + 1 :]
        self._changes.append({})

    def forget_before(self, offset: int) -> None:
        """Drop the versions below `offset`; `offset` itself stays, if it is registered."""
        count = bisect_left(self._offsets, offset)
        del self._offsets[:count], self._changes[:count]

    def forget_all(self) -> None:
        """Only the present remains."""
        self._offsets.clear()
        self._changes.clear()

    def _index(self, offset: int) -> int:
        index = bisect_left(self._offsets, offset)
        if index == len(self._offsets) or self._offsets[index] != offset:
            raise IllegalStateError(f"offset {offset} is not registered")
        return index

    # --- used by the structures ---------------------------------------------------------------------------------

    def _remember(self, structure: "_Restorable", key: Hashable, old_value: object) -> None:
        if self._changes:
            _, old_values = self._changes[-1].setdefault(id(structure), (structure, {}))
            old_values.setdefault(key, old_value)

    def _versions_from(self, structure: object, offset: int) -> Iterator[dict[Any, Any]]:
        """What was changed after `offset`, oldest change first."""
        for changes in self._changes[self._index(offset) :]:
            if id(structure) in changes:
                yield changes[id(structure)][1]


class TimelineDict(MutableMapping[K, V], Generic[K, V]):
    """A dict whose registered pasts can be read. The mapping methods mean the present.

    Iterates in insertion order; after a revert, keys that came back stand at the end.
    """

    __slots__ = ("_present", "_registry")

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry = registry
        self._present: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._present[key]

    def __setitem__(self, key: K, value: V) -> None:
        self._registry._remember(self, key, self._present.get(key, _ABSENT))
        self._present[key] = value

    def __delitem__(self, key: K) -> None:
        self._registry._remember(self, key, self._present[key])
        del self._present[key]

    def __len__(self) -> int:
        return len(self._present)

    def __iter__(self) -> Iterator[K]:
        return iter(self._present)

    def __contains__(self, key: object) -> bool:
        return key in self._present

    @overload
    def get_at(self, offset: int, key: K) -> V | None: ...
    @overload
    def get_at(self, offset: int, key: K, default: D) -> V | D: ...
    def get_at(self, offset: int, key: K, default: D | None = None) -> V | D | None:
        """The value that `key` had at the registered `offset`."""
        for old_values in self._registry._versions_from(self, offset):
            if key in old_values:
                value = old_values[key]
                return default if value is _ABSENT else value
        return self._present.get(key, default)

    def items_at(self, offset: int) -> Iterator[tuple[K, V]]:
        """The pairs at the registered `offset`; costs the present size plus the changes since."""
        changed: dict[K, V | _Absent] = {}
        for old_values in self._registry._versions_from(self, offset):
            for key, value in old_values.items():
                changed.setdefault(key, value)
        for key, value in self._present.items():
            if key not in changed:
                yield key, value
        for key, old_value in changed.items():
            if not isinstance(old_value, _Absent):
                yield key, old_value

    def _restore(self, old_values: dict[K, Any]) -> None:
        for key, value in old_values.items():
            if value is _ABSENT:
                self._present.pop(key, None)
            else:
                self._present[key] = value


class TimelineValue(Generic[V]):
    """One value whose registered pasts can be read."""

    __slots__ = ("_present", "_registry")

    def __init__(self, registry: SnapshotRegistry, value: V) -> None:
        self._registry = registry
        self._present = value

    def get(self) -> V:
        return self._present

    def set(self, value: V) -> None:
        self._registry._remember(self, None, self._present)
        self._present = value

    def get_at(self, offset: int) -> V:
        """The value at the registered `offset`."""
        for old_values in self._registry._versions_from(self, offset):
            value: V = old_values[None]
            return value
        return self._present

    def _restore(self, old_values: dict[None, V]) -> None:
        self._present = old_values[None]


class TimelineInt(TimelineValue[int]):
    """A number whose registered pasts can be read."""

    __slots__ = ()

    def __init__(self, registry: SnapshotRegistry, value: int = 0) -> None:
        super().__init__(registry, value)

    def increment(self, by: int = 1) -> int:
        """Add and return the new value."""
        self.set(self.get() + by)
        return self.get()
