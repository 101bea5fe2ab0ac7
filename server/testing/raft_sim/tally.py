"""How many seeds were ever run, on which state of the code: a table that is kept with the code.

One line for each time that seeds were run, fields separated by commas:

    date, commit (with a + if files differed from it), first seed, seeds, seeds per second of CPU, bad seeds (usually none)
"""

import csv
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

GOAL = 100_000
FIRST_SEED = 20_001  # those below are run by the tests, again and again
_HEADER = ["date", "commit", "first_seed", "seeds", "seeds_per_cpu_second", "bad_seeds"]


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def next_seed(path: Path) -> int:
    """The seed after all that were run."""
    return max((int(row["first_seed"]) + int(row["seeds"]) for row in _rows(path)), default=FIRST_SEED)


def total(path: Path) -> int:
    return sum(int(row["seeds"]) for row in _rows(path))


def add(path: Path, *, first: int, count: int, bad: Sequence[int], cpu_seconds: float) -> None:
    """Add one line, and the heading to an empty file."""
    date = datetime.now(UTC).date().isoformat()
    row = [date, _commit(path), first, count, f"{count / cpu_seconds:.1f}", " ".join(map(str, bad))]
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([_HEADER, row] if is_new else [row])


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
