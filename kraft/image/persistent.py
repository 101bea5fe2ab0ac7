"""An immutable sorted mapping that shares most of itself with the mapping it was made from.

Keys are kept in sorted chunks of at most `CHUNK_SIZE` under one tuple of chunks. A change copies the chunks that it
touches and the tuple: for n keys that is O(CHUNK_SIZE + n / CHUNK_SIZE) references instead of n, and one walk for many
changes at once. Iteration is in key order, so it does not depend on hashes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CHUNK_SIZE = 128  # a changed chunk is copied whole; 10,000 keys then cost about 130 + 80 references a change


class PersistentMap(Mapping[K, V]):
    """Keys must be hashable and comparable with each other, values immutable. Safe from any thread."""

    __slots__ = ("_chunks", "_firsts", "_length")

    _chunks: tuple[dict[K, V], ...]
    """Each not empty and in key order; all keys of a chunk are below those of the next."""
    _firsts: tuple[Any, ...]
    """First key of each chunk."""

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        pairs = dict(items)
        ordered = [(key, pairs[key]) for key in sorted(pairs)]  # type: ignore[type-var] # keys compare, see above
        self._assign(_split(ordered))

    @classmethod
    def _of(cls, chunks: list[dict[K, V]]) -> "PersistentMap[K, V]":
        made = cls.__new__(cls)
        made._assign(chunks)
        return made

    def _assign(self, chunks: list[dict[K, V]]) -> None:
        self._chunks = tuple(chunks)
        self._firsts = tuple(next(iter(chunk)) for chunk in chunks)
        self._length = sum(map(len, chunks))

    def updated(self, changes: Mapping[K, V], removed: Iterable[K] = ()) -> "PersistentMap[K, V]":
        """A mapping with `removed` taken out and then `changes` put in. Keys that are not there may be removed."""
        touched: dict[int, tuple[dict[K, V], set[K]]] = {}
        for key, value in changes.items():
            touched.setdefault(self._chunk_of(key), ({}, set()))[0][key] = value
        for key in removed:
            touched.setdefault(self._chunk_of(key), ({}, set()))[1].add(key)
        if not touched:
            return self
        chunks: list[dict[K, V]] = []
        for index, chunk in enumerate(self._chunks or ({},)):
            if index in touched:
                chunks += _changed(chunk, *touched[index])
            else:
                chunks.append(chunk)
        return self._of(chunks)

    def _chunk_of(self, key: K) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def __getitem__(self, key: K) -> V:
        if not self._chunks:
            raise KeyError(key)
        return self._chunks[self._chunk_of(key)][key]

    def __iter__(self) -> Iterator[K]:
        for chunk in self._chunks:
            yield from chunk

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"


def _changed(chunk: dict[K, V], changes: dict[K, V], removed: set[K]) -> list[dict[K, V]]:
    merged = {key: value for key, value in chunk.items() if key not in removed}
    is_sorted = all(key in merged for key in changes)  # values replaced in place keep the order
    merged.update(changes)
    if is_sorted and len(merged) <= CHUNK_SIZE:
        return [merged] if merged else []
    return _split([(key, merged[key]) for key in sorted(merged)])  # type: ignore[type-var] # keys compare


def _split(ordered: list[tuple[K, V]]) -> list[dict[K, V]]:
    """Chunks of about equal size."""
    count = -(-len(ordered) // CHUNK_SIZE)
    return [dict(ordered[i * len(ordered) // count : (i + 1) * len(ordered) // count]) for i in range(count)]
