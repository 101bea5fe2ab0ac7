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


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
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


_SIMULATOR = ("simulated_seeds", "simulated_cpu_seconds", "simulated_virtual_seconds")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how fast the simulator was, over all processes of the run (`record_property` in tests/sim)."""
    totals = dict.fromkeys(_SIMULATOR, 0.0)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name in totals:
                        totals[name] += float(value)
    seeds, cpu_seconds, virtual_seconds = (totals[name] for name in _SIMULATOR)
    if seeds and cpu_seconds:
        terminalreporter.write_line(
            f"simulator: {seeds:.0f} seeds, {seeds / cpu_seconds:.2f} seeds per second of CPU, "
            f"{virtual_seconds:.0f} virtual seconds in {cpu_seconds:.0f}"
        )
