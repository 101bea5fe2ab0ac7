"""Prints how fast the simulator was, over all processes of the test run."""

import pytest

_NAMES = ("simulated_seeds", "simulated_cpu_seconds", "simulated_virtual_seconds")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seeds per second of CPU, and virtual seconds, at the end of the run."""
    totals = dict.fromkeys(_NAMES, 0.0)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name in totals:
                        totals[name] += float(value)
    seeds, cpu_seconds, virtual_seconds = (totals[name] for name in _NAMES)
    if seeds and cpu_seconds:
        terminalreporter.write_line(
            f"simulator: {seeds:.0f} seeds, {seeds / cpu_seconds:.2f} seeds per second of CPU, "
            f"{virtual_seconds:.0f} virtual seconds in {cpu_seconds:.0f}"
        )
