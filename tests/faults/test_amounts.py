"""The table of faults is kept: the amounts add up to what is wanted, the tests that it names are there and are what
`make test-deep` runs, and docs/testing.md shows it."""

import importlib
from pathlib import Path

import pytest

from tests.faults.amounts import FAULTS, Kind, markdown, total

HERE = Path(__file__).parent


@pytest.mark.parametrize("fault", FAULTS)
def test_as_many_as_are_wanted(fault: str) -> None:
    assert total(fault) >= FAULTS[fault].wanted


@pytest.mark.parametrize("kind", Kind)
def test_a_deep_test_strikes_so_often(kind: Kind) -> None:
    module = importlib.import_module(f"tests.faults.{kind.file.removesuffix('.py')}")
    marks = {mark.name: mark for mark in getattr(module, kind.test).pytestmark}
    assert "deep" in marks
    runs = marks["parametrize"].args[1] if "parametrize" in marks else [None]
    assert len(runs) == kind.runs
    assert f"Kind.{kind.name}" in (HERE / kind.file).read_text(encoding="utf-8")


def test_the_page_on_tests_shows_the_table() -> None:
    """`python -m tests.faults.amounts` prints it."""
    page = HERE.parents[1].joinpath("docs/testing.md").read_text(encoding="utf-8")
    assert "\n".join(markdown()) in page
