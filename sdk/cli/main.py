"""The entry point of `kraftctl`, and the table of its commands."""

import os
import sys
from collections.abc import Sequence

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.lazy import Entry, LazyGroup
from kraftlog.sdk.cli.options import format_of
from kraftlog.sdk.cli.report import report

COMMANDS = {
    "cluster": Entry("kraftlog.server.cli.cluster:cluster", "Start, stop and look at a local cluster."),
    "topic": Entry("kraftlog.sdk.cli.topic:topic", "Create, list, describe, alter and delete topics."),
    "produce": Entry("kraftlog.sdk.cli.produce:produce", "Write lines or CSV rows to a topic."),
    "consume": Entry("kraftlog.sdk.cli.consume:consume", "Read records of topics."),
    "group": Entry("kraftlog.sdk.cli.group:group", "List and describe consumer groups, with their lag."),
    "partition": Entry(
        "kraftlog.sdk.cli.partition:partition", "Show replicas of partitions, give them others, and other leaders."
    ),
    "quorum": Entry("kraftlog.sdk.cli.quorum:quorum", "Show and change the voters of the metadata quorum."),
    "broker": Entry(
        "kraftlog.sdk.cli.broker:broker", "List brokers and what they have on their disks, empty or forget them."
    ),
    "log": Entry("kraftlog.server.cli.log:log", "Look into a node's log files, without a running node."),
    "server": Entry("kraftlog.server.cli.server:server", "Run a node in the foreground."),
    "storage": Entry("kraftlog.server.cli.storage:storage", "Format a node's log directory."),
    "config": Entry("kraftlog.server.cli.config:config", "Look up configuration keys."),
    "doctor": Entry("kraftlog.sdk.cli.doctor:doctor", "Check this machine: Python, codec, Java, Spark, disk."),
    "explain": Entry("kraftlog.sdk.cli.explain:explain", "Say what an error code means and what to do about it."),
}

EPILOG = """\b
A first tour:
  kraftctl cluster bootstrap
  kraftctl topic create greetings -p 3
  echo hello | kraftctl produce greetings
  kraftctl consume greetings --from-beginning -n 1
  kraftctl cluster stop"""


def _version(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        import kraftlog

        click.echo(f"kraftctl {kraftlog.__version__}")
        ctx.exit()


@click.command(
    "kraftctl",
    cls=LazyGroup,
    entries=COMMANDS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
def kraftctl() -> None:
    """Run and use kraftlog, a replicated log service with Kafka's semantics.

    Every command takes --format json. Exit codes are listed in docs/cli.md.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; everything that goes wrong ends in `report`."""
    context: click.Context | None = None
    try:
        with kraftctl.make_context("kraftctl", list(arguments)) as context:
            kraftctl.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as request:
        return request.exit_code
    except BaseException as error:
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        return report(error, as_json=format_of(context) == "json")
    return ExitCode.OK


def main() -> None:
    """What the `kraftctl` script calls."""
    if "_KRAFTCTL_COMPLETE" in os.environ:
        kraftctl.main(prog_name="kraftctl")
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
