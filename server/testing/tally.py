"""How many seeds of a simulation were ever run, on which state of the code: a table that is kept with the code.

One line for each time that seeds were run, fields separated by commas:

    date, commit (with a + if files differed from it), first seed, seeds, seeds per second of CPU, what else the simulation
    counts, bad seeds (usually none)
"""

import csv
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """Of one seed."""

    seed: int
    is_bad: bool
    counts: Mapping[str, float] = {}
    """What is added up beside the seeds; always of the same names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The table of one kind of simulation. One process adds to it at a time."""

    path: Path
    first_seed: int
    """Those below are run by the tests, again and again."""
    goal: int

    @property
    def next_seed(self) -> int:
        """The seed after all that were run."""
        return max((int(row["first_seed"]) + int(row["seeds"]) for row in self._rows()), default=self.first_seed)

    @property
    def total(self) -> int:
        return sum(int(row["seeds"]) for row in self._rows())

    def soak(self, outcomes: Iterable[Outcome]) -> bool:
        """Add a line for the seeds from `next_seed` on, which are run meanwhile; whether all were good.

        Whatever ends it, Ctrl-C and SIGTERM too, what was run is in the table.
        """
        first, done, bad = self.next_seed, 0, list[int]()
        counts: dict[str, float] = {}
        started = time.process_time()
        try:
            for seed, is_bad, numbers in outcomes:
                done += 1
                for name, number in numbers.items():
                    counts[name] = counts.get(name, 0) + number
                if is_bad:
                    bad.append(seed)
        finally:
            seconds = time.process_time() - started
            if done:
                self.add(first=first, count=done, counts=counts, bad=bad, cpu_seconds=seconds)
                print(f"{done} seeds from {first} on, {len(bad)} bad, {done / seconds:.2f} seeds per second of CPU")
                print(f"{self.total} of {self.goal} seeds in {self.path}")
        return not bad

    def add(
        self,
        *,
        first: int,
        count: int,
        bad: Sequence[int],
        cpu_seconds: float,
        counts: Mapping[str, float] | None = None,
    ) -> None:
        """Add one line, and the heading to an empty file."""
        row = {
            "date": datetime.now(UTC).date().isoformat(),
            "commit": _commit(self.path),
            "first_seed": first,
            "seeds": count,
            "seeds_per_cpu_second": f"{count / cpu_seconds:.2f}",
            **{name: f"{number:.0f}" for name, number in (counts or {}).items()},
            "bad_seeds": " ".join(map(str, bad)),
        }
        is_new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(row)

    def _rows(self) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))


def _commit(path: Path) -> str:
    folder = path.absolute().parent
    try:
        commit = _git(folder, "rev-parse", "--short", "HEAD").strip()
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no").splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if any(path.name not in change for change in changes) else "")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout
