"""Progress of long work: quiet where nobody looks, plain lines in a log, a bar on a terminal."""

import pytest

from kraftlog.sdk.cli import progress
from kraftlog.sdk.cli.progress import PLAIN_INTERVAL_S, ProgressBar


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress.time, "monotonic", made)
    return made


def test_short_work_prints_nothing_into_a_log(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("producing") as bar:
        bar.update(1)
        clock.seconds += PLAIN_INTERVAL_S - 1
        bar.update(2)
        bar.finish(2)
    assert capsys.readouterr().err == ""


def test_long_work_prints_a_line_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("producing", total=1000) as bar:
        clock.seconds += PLAIN_INTERVAL_S
        bar.update(5000, 250)
        bar.update(5001, 251)
        clock.seconds += PLAIN_INTERVAL_S
        bar.update(20_000, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "producing: 5,000 records (25 %), 1,000/s",
        "producing: 20,000 records (100 %), 2,000/s",
    ]


def test_disabled_progress_is_silent(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("producing", enabled=False) as bar:
        clock.seconds += 10 * PLAIN_INTERVAL_S
        bar.update(1)
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar("producing", total=10) as bar:
        bar.update(3, 5)
        bar.finish(7)
    assert "7 records" in capsys.readouterr().err
