"""The frame around every command: the table, errors, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from kraftlog.proto import errors
from kraftlog.proto.errors import ErrorCode, KraftlogError
from kraftlog.sdk.cli import main
from kraftlog.sdk.cli.advice import NEXT_STEP
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.lazy import Entry, LazyGroup
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.report import DEBUG, CommandError


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below `group` that is not itself a group."""
    if not isinstance(group, click.Group):
        yield path, group
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from commands(command, (*path, name))


ALL_COMMANDS = dict(commands(main.kraftctl))


@pytest.mark.parametrize("path", ALL_COMMANDS, ids=" ".join)
def test_every_command_takes_format_and_explains_itself(path: tuple[str, ...]) -> None:
    command = ALL_COMMANDS[path]
    assert any("--format" in parameter.opts for parameter in command.params)
    assert command.help


@pytest.mark.parametrize("name", main.COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    """The table's line is what `--help` shows without importing; it names the same thing as the command's own help."""
    command = main.kraftctl.get_command(click.Context(main.kraftctl), name)
    assert command is not None
    assert command.name == name


class _Fails:
    """A command line `kraftctl fail` that raises `error`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: BaseException = RuntimeError()

        @click.command()
        @format_option
        def fail(output_format: str) -> None:
            raise self.error

        group = LazyGroup("kraftctl", entries={"fail": Entry("fake:fail", "fails")})
        monkeypatch.setattr(group, "get_command", lambda context, name: fail)
        monkeypatch.setattr(main, "kraftctl", group)

    def run(self, error: BaseException, *arguments: str) -> int:
        self.error = error
        return main.run(["fail", *arguments])


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> _Fails:
    monkeypatch.delenv(DEBUG, raising=False)
    return _Fails(monkeypatch)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.UnknownTopicOrPartitionError("no topic 'x'"), 4, "no topic 'x' [UNKNOWN_TOPIC_OR_PARTITION] Next: "),
        (errors.BrokerNotAvailableError("localhost:9 refused"), 3, "localhost:9 refused"),
        (errors.InvalidTopicError("bad name"), 6, "Next: Choose 1 to 249"),
        (
            CommandError("port taken", exit_code=ExitCode.CONFLICT, advice="Use another."),
            5,
            "port taken Next: Use another.",
        ),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 4, "x.csv: No such file or directory"),
        (PermissionError(13, "Permission denied", "x.csv"), 1, "x.csv: Permission denied"),
        (click.UsageError("wrong"), 2, "wrong"),
        (ValueError("two\nlines"), 70, "ValueError: two lines"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_is_one_line_and_an_exit_code(
    failing: _Fails, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    assert failing.run(error) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("kraftctl: error: ")


def test_with_format_json_the_failure_is_a_json_object(failing: _Fails, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing.run(errors.InvalidTopicError("bad name"), "--format", "json") == 6
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["code"] == "INVALID_TOPIC_EXCEPTION"
    assert error["message"] == "bad name"
    assert error["exit_code"] == 6
    assert error["next"]


def test_ctrl_c_ends_with_130_and_says_nothing(failing: _Fails, capsys: pytest.CaptureFixture[str]) -> None:
    assert failing.run(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_what_stumbles_over_ctrl_c_ends_the_same_way(failing: _Fails, capsys: pytest.CaptureFixture[str]) -> None:
    """`Condition.wait` of the standard library, for one, may then give back a lock that it does not hold."""
    error = RuntimeError("cannot release un-acquired lock")
    error.__context__ = KeyboardInterrupt()
    assert failing.run(error) == 130
    assert capsys.readouterr().err == ""


def test_the_traceback_is_for_those_who_ask(
    failing: _Fails, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG, "1")
    assert failing.run(ValueError("x")) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_verb_gets_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topik"]) == 2
    assert "topic" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["topic"], ["cluster"]], ids=" ".join)
def test_a_group_alone_shows_its_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("Usage: kraftctl")
    assert captured.out == ""


def test_a_broken_pipe_is_quiet() -> None:
    """`kraftctl ... | head` must end without a word."""
    script = "import sys\nfrom kraftlog.sdk.cli.main import run\nsys.exit(run(['explain', '19', '--format', 'json']))"
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([sys.executable, "-c", script], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode == ExitCode.BROKEN_PIPE


@pytest.mark.parametrize("code", NEXT_STEP, ids=lambda code: code.name)
def test_advice_is_a_sentence(code: ErrorCode) -> None:
    assert NEXT_STEP[code][0].isupper()
    assert NEXT_STEP[code].endswith(".")


def test_every_retriable_error_that_a_user_meets_has_advice() -> None:
    """`explain` must not fall back to the general sentence for what clients retry by themselves."""
    common = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS}
    assert common <= NEXT_STEP.keys()
    assert issubclass(errors.error_class(19), KraftlogError)


@pytest.mark.parametrize("spelling", ["19", "NOT_ENOUGH_REPLICAS", "not-enough-replicas", "NotEnoughReplicasError"])
def test_explain_knows_every_spelling(spelling: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", spelling, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["code"], document["retriable"]) == (19, True)


def test_explain_takes_negative_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", "-1"]) == 0
    assert "UNKNOWN_SERVER_ERROR" in capsys.readouterr().out


@pytest.mark.parametrize("code", [code for code in ErrorCode if code], ids=lambda code: code.name)
def test_explain_answers_for_every_code(code: ErrorCode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", code.name]) == 0
    assert capsys.readouterr().out.startswith(f"{code.name} ({int(code)}): ")
