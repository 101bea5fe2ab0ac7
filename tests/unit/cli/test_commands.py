"""What commands make of their options, before any cluster is asked."""

import click
import pytest

from kraftlog.proto.errors import InvalidConfigError, KraftlogError, RecordTooLargeError
from kraftlog.sdk.cli import main
from kraftlog.sdk.cli.consume import Start
from kraftlog.sdk.cli.options import parse_pairs
from kraftlog.sdk.cli.output import plural, table
from kraftlog.sdk.cli.produce import Tally
from kraftlog.sdk.cli.remote import PATIENCE_MS, client_config


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("start", Start("start")),
        ("earliest", Start("start")),
        ("end", Start("end")),
        ("42", Start("offset", 42)),
        ("-3", Start("last", 3)),
        ("@1700000000000", Start("time", 1_700_000_000_000)),
        ("@2026-11-27T12:00+00:00", Start("time", 1_795_780_800_000)),
    ],
)
def test_starting_points(text: str, start: Start) -> None:
    assert Start.parse(text) == start


@pytest.mark.parametrize("text", ["middle", "@yesterday", "1.5", ""])
def test_a_starting_point_that_is_none(text: str) -> None:
    with pytest.raises(click.UsageError):
        Start.parse(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["produce", "t", "--key-column", "x"], "--key-column needs --csv"),
        (["produce", "t", "--csv", "-k", ":"], "--csv takes its keys"),
        (["produce", "t", "--key", "a", "-k", ":"], "exclude each other"),
        (["produce", "t", "-k", ""], "at least one character"),
        (["produce", "t", "-H", "x"], "is not NAME:VALUE"),
        (["produce", "t", "--acks", "2"], "--acks"),
        (["consume", "t", "--from-beginning", "-o", "3"], "exclude each other"),
        (["consume", "t", "-f", "%v", "--format", "json"], "exclude each other"),
        (["consume", "t", "-g", "g", "-o", "5"], "the group's offsets"),
        (["consume", "t", "-n", "0"], "-n"),
        (["topic", "create"], "NAME"),
        (["partition", "reassign", "t", "-r", "2", "--throttle", "fast"], "'fast' is no rate"),
        (["partition", "reassign", "t", "-r", "2", "--throttle", "0"], "'0' is no rate"),
        (["partition", "reassign", "--cancel", "--throttle", "1MB"], "--throttle is for a move"),
        (["partition", "reassign", "t", "--remove-throttle"], "for all topics"),
        (["broker", "alter", "-c", "a=b"], "name one broker"),
        (["broker", "alter", "1", "--all"], "name one broker"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_go_together(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    captured = capsys.readouterr()
    assert text in captured.err
    assert captured.err.count("\n") == 1


def test_pairs() -> None:
    assert parse_pairs(("a=1", "b = x=y"), "-c") == {"a": "1", "b": "x=y"}
    for wrong in ("a", "=1"):
        with pytest.raises(InvalidConfigError, match="-c"):
            parse_pairs((wrong,), "-c")


def test_the_command_line_wins_over_our_defaults() -> None:
    config = client_config("h:1", ("request.timeout.ms=5",), acks="1", group_id=None)
    assert config["request_timeout_ms"] == "5"
    assert config["default_api_timeout_ms"] == PATIENCE_MS
    assert config["acks"] == "1"
    assert "group_id" not in config


def test_the_first_failure_is_raised_with_its_place() -> None:
    class Failed:
        def __init__(self, error: KraftlogError) -> None:
            self.error = error

        def exception(self) -> KraftlogError:
            return self.error

    tally = Tally()
    tally.raise_first()
    tally.done("line 7", Failed(RecordTooLargeError("too large")))  # type: ignore[arg-type]  # all that it needs
    tally.done("line 9", Failed(RecordTooLargeError("also")))  # type: ignore[arg-type]  # as above
    with pytest.raises(RecordTooLargeError, match="line 7: too large"):
        tally.raise_first()
    assert tally.failed == 2


def test_tables_align_numbers_right_and_text_left() -> None:
    assert table(("name", "count"), [("a", 5), ("longer", 1234)]) == "name    count\na           5\nlonger   1234"
    assert table(("x",), [(None,), (True,)]) == "x\n-\nyes"
    assert plural(1, "record") == "1 record"
    assert plural(336_776, "record") == "336,776 records"
