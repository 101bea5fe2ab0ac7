"""What all tests share: how they are spread over processes, and how many examples hypothesis draws."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kraftlog", deadline=None, print_blob=True)
settings.register_profile(
    "deep", settings.get_profile("kraftlog"), max_examples=int(os.environ.get("KRAFTLOG_EXAMPLES", "100"))
)
settings.load_profile("deep" if "KRAFTLOG_EXAMPLES" in os.environ else "kraftlog")

_BY_FILE = {"integration", "faults"}  # their module fixtures are clusters
_TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`--dist loadgroup`: Spark tests share one process (and so one session), packaging tests too (and so
    one build), tests with real nodes one per file."""
    for item in items:
        area = item.path.relative_to(_TESTS).parts[0] if item.path.is_relative_to(_TESTS) else ""
        if area == "spark" or item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif area == "packaging":
            item.add_marker(pytest.mark.xdist_group("packaging"))
        elif area in _BY_FILE:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(_TESTS))))
