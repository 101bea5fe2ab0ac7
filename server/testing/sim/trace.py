"""What happened in a simulation, as lines, and their hash: equal hashes mean equal runs."""

import hashlib

HASHED_TOGETHER = 256  # lines: one call of the hash for each would cost as much as making them


class Trace:
    """Collects lines. Only the hash is kept, unless `keep` is set."""

    def __init__(self, *, keep: bool = False, echo: bool = False, tail: int = 40) -> None:
        self.lines: list[str] = []
        self.count = 0
        self._keep = keep
        self._echo = echo
        self._tail = tail
        self._lines_max = 2 * tail
        self._hash = hashlib.sha256()
        self._unhashed: list[str] = []

    def add(self, line: str) -> None:
        """Add one line."""
        self.count += 1
        self._unhashed.append(line)
        if len(self._unhashed) >= HASHED_TOGETHER:
            self._hash_lines()
        self.comment(line)

    def comment(self, line: str) -> None:
        """Add a line that is not part of the hash: what a component logs may hold addresses."""
        if self._echo:
            print(line)
        self.lines.append(line)
        if len(self.lines) > self._lines_max and not self._keep:
            del self.lines[: -self._tail]

    def _hash_lines(self) -> None:
        self._hash.update("".join(f"{line}\n" for line in self._unhashed).encode())
        self._unhashed.clear()

    def tail(self) -> list[str]:
        """The last lines, for the report of a violation."""
        return self.lines[-self._tail :]

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far, in hexadecimal."""
        self._hash_lines()
        return self._hash.hexdigest()
