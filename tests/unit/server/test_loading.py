"""What the node says while it loads its logs."""

import logging

import pytest

from kraftlog.server.loading import LoadingProgress


class SteppedClock:
    def __init__(self) -> None:
        self.now_ms = 5_000.0

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.now_ms


def test_counts_rate_and_what_remains_are_told_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteppedClock()
    progress = LoadingProgress("/data", clock)
    with caplog.at_level(logging.INFO, "kraftlog.server"):
        progress(0, 1000)
        for loaded in range(1, 1001):
            clock.now_ms += 4
            progress(loaded, 1000)
    assert [record.getMessage() for record in caplog.records] == [
        "/data: 250 of 1000 logs loaded, 250 logs/s, about 3 s left",
        "/data: 500 of 1000 logs loaded, 250 logs/s, about 2 s left",
        "/data: 750 of 1000 logs loaded, 250 logs/s, about 1 s left",
        "/data: 1000 logs loaded in 4.0 s",
    ]


def test_an_empty_directory_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kraftlog.server"):
        LoadingProgress("/data", SteppedClock())(0, 0)
    assert [record.getMessage() for record in caplog.records] == ["/data: 0 logs loaded in 0.0 s"]
