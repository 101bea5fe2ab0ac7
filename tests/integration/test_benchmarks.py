"""The benchmarks run, and check what they moved; their figures are for quiet machines."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.slow


def table(program: str, *arguments: str) -> list[list[str]]:
    """The rows that a benchmark printed below the headings, as cells."""
    command = [sys.executable, str(BENCHMARKS / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
    assert len({len(row) for row in rows}) == 1, done.stdout
    return rows[2:]


def test_the_benchmark_of_the_cleaner(tmp_path: Path) -> None:
    rows = table("bench_cleaner.py", "--megabytes", "1", "--directory", str(tmp_path))
    sizes = {row[0]: row[1] for row in rows}
    assert sizes["every key 5 times"] == "1, 1, 0"
    assert sizes["every key once"] == "1, 1, 1"
    passes = int(sizes["every key 5 times, map far too small"].split(",")[1])
    assert passes > 10, "the map holds less than a third of the keys"
    assert not list(tmp_path.iterdir())
