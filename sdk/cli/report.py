"""How a command ends when it fails: one line on standard error (cause, place, next step) and an exit code.

Never a traceback, unless KRAFTLOG_DEBUG=1 asks for it. With `--format json` the line is a JSON object.
"""

import json
import os
import sys
import traceback

import click

from kraftlog.proto.errors import ErrorCode, KraftlogError
from kraftlog.sdk.cli.advice import next_step
from kraftlog.sdk.cli.exit_codes import ExitCode, exit_code_of

DEBUG = "KRAFTLOG_DEBUG"


class CommandError(Exception):
    """A failure that a command has worded itself. `message` says cause and place, `advice` what to do next."""

    def __init__(self, message: str, *, exit_code: ExitCode = ExitCode.FAILED, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.advice = advice


def report(error: BaseException, *, as_json: bool) -> ExitCode:
    """Print the line for `error` and return the exit code."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error, file=sys.stderr)
    match error:
        case KeyboardInterrupt() | click.Abort():
            return ExitCode.INTERRUPTED
        case BrokenPipeError():
            _silence_stdout()
            return ExitCode.BROKEN_PIPE
        case click.exceptions.NoArgsIsHelpError():
            print(error.format_message(), file=sys.stderr)
            return ExitCode.USAGE
        case click.ClickException():
            return _print(_usage_line(error), ExitCode(error.exit_code), "", None, as_json)
        case CommandError():
            return _print(error.message, error.exit_code, error.advice, None, as_json)
        case KraftlogError():
            return _print(error.message, exit_code_of(error), next_step(error.code), error.code, as_json)
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            code = ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.FAILED
            return _print(f"{place}{error.strerror or error}", code, "", None, as_json)
        case _ if _is_of_ctrl_c(error):
            return ExitCode.INTERRUPTED
        case _:
            advice = f"This is a bug in kraftlog: run again with {DEBUG}=1 and report the traceback."
            return _print(f"{type(error).__name__}: {error}", ExitCode.INTERNAL, advice, None, as_json)


def _is_of_ctrl_c(error: BaseException) -> bool:
    """Whether it was raised while Ctrl-C went through: code that is not ours may stumble over it anywhere."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause is not None


def _print(message: str, exit_code: ExitCode, advice: str, code: ErrorCode | None, as_json: bool) -> ExitCode:
    message = " ".join(message.split())
    if as_json:
        name = None if code is None else code.name
        line = json.dumps({"error": {"code": name, "message": message, "next": advice, "exit_code": int(exit_code)}})
    else:
        mark = f" [{code.name}]" if code is not None else ""
        line = f"kraftctl: error: {message}{mark}" + (f" Next: {advice}" if advice else "")
    print(line, file=sys.stderr)
    return exit_code


def _usage_line(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is None:
        return message
    return f"{context.command_path}: {message} See `{context.command_path} --help`."


def _silence_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
