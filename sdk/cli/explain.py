"""`kraftctl explain CODE`: what an error code means and what to do about it. Needs no cluster."""

import difflib

import click

from kraftlog.proto.errors import ErrorCode, error_class
from kraftlog.sdk.cli.advice import next_step
from kraftlog.sdk.cli.exit_codes import ExitCode, exit_code_of
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import print_json
from kraftlog.sdk.cli.report import CommandError


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is a code
@click.argument("code")
@format_option
def explain(code: str, output_format: str) -> None:
    """Say what error CODE means, by Kafka's name or number or by our exception's name.

    \b
    Examples:
      kraftctl explain NOT_ENOUGH_REPLICAS
      kraftctl explain 19
      kraftctl explain RecordTooLargeError
    """
    found = _find(code)
    error = error_class(found)
    document = {
        "code": int(found),
        "name": found.name,
        "exception": error.__name__,
        "summary": error.summary,
        "retriable": error.retriable,
        "refresh_metadata": error.refresh_metadata,
        "fatal": error.fatal,
        "txn_requires_abort": error.txn_requires_abort,
        "exit_code": int(exit_code_of(error())),
        "next": next_step(found),
    }
    if output_format == "json":
        print_json(document)
        return
    click.echo(f"{found.name} ({int(found)}): {error.summary}")
    click.echo(f"  Python:    kraftlog.proto.errors.{error.__name__}")
    click.echo(f"  Retry:     {_retry_line(error.retriable, error.refresh_metadata, error.fatal)}")
    if error.txn_requires_abort:
        click.echo("  In a transaction: abort it.")
    click.echo(f"  Exit code: {document['exit_code']}")
    click.echo(f"  Next:      {next_step(found)}")


def _find(text: str) -> ErrorCode:
    """The code that `text` names, in any of its spellings."""
    wanted = text.strip().upper().replace("-", "_").replace(" ", "_")
    names = {code.name: code for code in ErrorCode if code is not ErrorCode.NONE}
    names |= {error_class(code).__name__.upper(): code for code in names.values()}
    if wanted in names:
        return names[wanted]
    numbers = {str(int(code)): code for code in names.values()}
    if text.strip() in numbers:
        return numbers[text.strip()]
    near = difflib.get_close_matches(wanted, [code.name for code in names.values()], n=1)
    hint = f": did you mean {near[0]}?" if near else ""
    raise CommandError(f"there is no error code {text!r}{hint}", exit_code=ExitCode.NOT_FOUND)


def _retry_line(retriable: bool, refresh_metadata: bool, fatal: bool) -> str:
    if fatal:
        return "no; this client cannot go on, make a new one"
    if not retriable:
        return "no; the same request fails again"
    return "yes, after fetching metadata (clients do so by themselves)" if refresh_metadata else "yes"
