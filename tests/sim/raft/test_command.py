"""`python -m kraftlog.testing.raft_sim`: what it prints, its exit code, and the tally."""

from pathlib import Path

import pytest

from kraftlog.testing.raft_sim.__main__ import FIRST_SOAKED_SEED, SOAK_GOAL, main
from kraftlog.testing.tally import Tally

MUTANT = "tests.sim.raft.mutants:ForgetsVote"


def test_one_seed_with_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """Events, messages, what became of the nodes; the verdict, and the hash of all that."""
    assert main(["--seed", "1", "--mode", "tcp", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("-> n1 AppendRequest term=" in line for line in lines)
    assert any("leads in term" in line for line in lines)
    assert lines[-3] == "seed 1, mode tcp, 3 voters + 0: no violation"
    assert lines[-1].startswith("trace hash ")


def test_many_seeds_in_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--seeds", "5"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("5 seeds, 0 bad, ")
    assert " acked, " in second


def test_a_bad_seed_is_named_and_made_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    """Of another engine; the exit code says so."""
    bad = ["--engine", MUTANT, "--mode", "chaos", "--voters", "5"]
    assert main([*bad, "--seed", "0", "--seeds", "3"]) == 1
    assert "violations: " in capsys.readouterr().out
    assert main([*bad, "--seed", "0", "--minimise", "--trace"]) == 1
    smaller = capsys.readouterr().out
    assert "two-votes" in smaller
    assert main([*bad, "--seed", "0", "--trace"]) == 1
    assert smaller.count(" event ") < capsys.readouterr().out.count(" event ") / 4


def test_the_tally_goes_on_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each time, with the seeds that were bad."""
    file = tmp_path / "tally.csv"
    tally = Tally(file, first_seed=FIRST_SOAKED_SEED, goal=SOAK_GOAL)
    assert main(["--tally", str(file), "--seeds", "4"]) == 0
    assert tally.next_seed == FIRST_SOAKED_SEED + 4
    assert main(["--tally", str(file), "--seeds", "2", "--engine", MUTANT, "--mode", "chaos", "--voters", "5"]) == 1
    assert (tally.next_seed, tally.total) == (FIRST_SOAKED_SEED + 6, 6)
    heading, good, bad = file.read_text().splitlines()
    assert heading.startswith("date,commit,first_seed,seeds,")
    assert good.split(",")[2:4] == ["20001", "4"]
    assert bad.split(",")[-1]
    assert f"6 of {SOAK_GOAL} seeds in {file}" in capsys.readouterr().out
