"""The benchmarks run, and check what they moved; their figures are for quiet machines."""

import importlib
import json
import os
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


def test_the_benchmark_of_the_quorum(tmp_path: Path) -> None:
    figures = quorum_figures(["core", "commit", "partitions"], tmp_path)
    assert [what.split(",")[0].partition(" of ")[0] for what in figures] == [
        *["core"] * 6,
        *["commit"] * 2,
        "6 partitions created in metadata",
        "6 partitions loaded from a snapshot",  # of half a kB, a little more or less
    ]
    assert not list(tmp_path.iterdir())


def test_a_table_for_a_file_that_is_not_there_is_refused_before_it_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--only", "quorum", "--output", str(tmp_path / "none.md")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no" in done.stderr


@pytest.mark.deep
def test_the_benchmark_of_replication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    bench = importlib.import_module("bench_replication")
    sizes = bench.Sizes(
        rounds=1, records=2_000, latency_s=1, failovers=1, partitions=3, behind_records=2_000, with_kafka=False
    )
    figures = list(bench.run(list(bench.PARTS), sizes, tmp_path))
    assert [figure.what.split(",")[0] for figure in figures] == [
        "acks=all",
        *["resident memory of a node"] * 2,
        *["latency at 1"] * 4,
        "leader kill -9 to the next acknowledged record",
        "restart of three nodes with 3 partitions to the first acknowledged record",
        "a follower that missed 2 MB catches up",
    ]
    assert all(figure.measured for figure in figures)
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_the_benchmark_of_failover(tmp_path: Path) -> None:
    (what,) = quorum_figures(["failover"], tmp_path)
    assert "2 times" in what


MEASURE = """
import json, sys
from pathlib import Path
import bench_quorum as bench
sizes = bench.Sizes(
    single_commands=3, batched_commands=2_000, core_rounds=1, commits=4, topics=2, partitions=3, failovers=2
)
figures = list(bench.run(sys.argv[2:], sizes, Path(sys.argv[1])))
assert {figure.row.count("|") for figure in figures} == {bench.HEAD[0].count("|")}
assert all(figure.measured for figure in figures)
print(json.dumps([figure.what for figure in figures]))
"""


def quorum_figures(parts: list[str], directory: Path) -> list[str]:
    """What was measured, with very little of everything; in a process of its own, where pysyncobj gets another clock."""
    command = [sys.executable, "-c", MEASURE, str(directory), *parts]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def test_a_table_that_is_measured_alone_takes_the_place_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others stay as they are, with the days on which they were measured."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    run = importlib.import_module("run")
    text = "# All\n\n| a |\n\n## Log store\n\n| b |\n\n## Quorum\n\n| c |\n"
    once = run.with_section(text, ["## Log store", "", "| new |"])
    assert once == "# All\n\n| a |\n\n## Log store\n\n| new |\n\n## Quorum\n\n| c |\n"
    assert run.with_section(once, ["## Quorum", "", "| d |"]).endswith("| new |\n\n## Quorum\n\n| d |\n")
    assert run.with_section(once, ["## Start-up", "", "| e |"]) == f"{once}\n## Start-up\n\n| e |\n", "new ones follow"
    assert "| b |" not in once
