"""`kraftctl log`: tools for a node's log files, without a running node."""

import click

from kraftlog.sdk.cli.lazy import Entry, LazyGroup

COMMANDS = {
    "inspect": Entry("kraftlog.server.cli.log_inspect:inspect", "Show segments, batches, records, indexes, snapshots."),
    "verify": Entry("kraftlog.server.cli.log_verify:verify", "Check every byte and every index entry."),
    "repair": Entry("kraftlog.server.cli.log_repair:repair", "Make a damaged log whole; what is cut is kept beside."),
    "export": Entry("kraftlog.server.cli.log_export:export", "Write the records as JSON lines, Arrow or Parquet."),
}


@click.command("log", cls=LazyGroup, entries=COMMANDS)
def log() -> None:
    """Look into a node's log files and mend them, without a running node."""
