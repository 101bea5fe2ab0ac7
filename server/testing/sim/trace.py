"""What happened in a simulation, as lines, and their hash: equal hashes mean equal runs."""

import hashlib


class Trace:
    """Collects lines. Only the hash is kept, unless `keep` is set."""

    def __init__(self, *, keep: bool = False, echo: bool = False, tail: int = 40) -> None:
        self.lines: list[str] = []
        self.count = 0
        self._keep = keep
        self._echo = echo
        self._tail = tail
        self._hash = hashlib.sha256()

    def add(self, line: str) -> None:
        """Add one line."""
        self.count += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.comment(line)

    def comment(self, line: str) -> None:
        """Add a line that is not part of the hash: what a component logs may hold addresses."""
        if self._echo:
            print(line)
        self.lines.append(line)
        if not self._keep and len(self.lines) > 2 * self._tail:
            del self.lines[: -self._tail]

    def tail(self) -> list[str]:
        """The last lines, for the report of a violation."""
        return self.lines[-self._tail :]

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far, in hexadecimal."""
        return self._hash.hexdigest()
