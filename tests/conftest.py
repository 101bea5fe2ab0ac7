"""What all tests share: how they are spread over processes, and how many examples hypothesis draws."""

import os
import signal
from typing import Any

import pytest
from hypothesis import settings

# A test run in the background of a shell inherits "ignore" for Ctrl-C, and so would the processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("kraftlog", deadline=None, print_blob=True)
settings.register_profile(
    "deep", settings.get_profile("kraftlog"), max_examples=int(os.environ.get("KRAFTLOG_EXAMPLES", "100"))
)
settings.load_profile("deep" if "KRAFTLOG_EXAMPLES" in os.environ else "kraftlog")

_TOGETHER = {
    "tests/spark": "spark",
    "tests/integration/test_readme.py": "spark",
    "tests/packaging": "packaging",
    "tests/peers": "peers",
}
_BY_FILE = ("tests/integration", "tests/faults")  # their module fixtures are clusters


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`-n 2`: Spark tests share one process (and so one session), packaging tests too (and so one build), tests
    with Kafka too, tests with real nodes one per file; every other test goes to the process that is free.

    By path, in the process that hands them out: pytest 9.2 hides from xdist 3.8 what the mark `xdist_group` says.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            for folder, group in _TOGETHER.items():
                if nodeid.startswith(folder):
                    return group
            return nodeid.partition("::")[0] if nodeid.startswith(_BY_FILE) else nodeid

    return ByFolder(config, log)


_SIMULATORS = (
    "simulated_seeds",
    "simulated_cpu_seconds",
    "simulated_virtual_seconds",
    "quorum_seeds",
    "quorum_cpu_seconds",
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how fast the simulators were, over all processes of the run (`record_property` in tests/sim)."""
    totals = dict.fromkeys(_SIMULATORS, 0.0)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name in totals:
                        totals[name] += float(value)
    seeds, cpu_seconds, virtual_seconds, quorum_seeds, quorum_cpu_seconds = (totals[name] for name in _SIMULATORS)
    if seeds and cpu_seconds:
        terminalreporter.write_line(
            f"simulator: {seeds:.0f} seeds, {seeds / cpu_seconds:.2f} seeds per second of CPU, "
            f"{virtual_seconds:.0f} virtual seconds in {cpu_seconds:.0f}"
        )
    if quorum_seeds and quorum_cpu_seconds:
        terminalreporter.write_line(
            f"simulator of the quorum: {quorum_seeds:.0f} seeds, "
            f"{quorum_seeds / quorum_cpu_seconds:.1f} seeds per second of CPU"
        )
