"""`kraftctl quorum`: the voters of the metadata quorum, who leads them, and how far each node is."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import note, print_json
from kraftlog.sdk.cli.quorum_table import STALE_NOTE, quorum_summary, quorum_table
from kraftlog.sdk.cli.remote import admin_client

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kraftlog.sdk.admin import Admin

CHANGE_TIMEOUT_S = 60.0  # a new voter catches up first

directory_option = click.option(
    "--directory-id",
    metavar="ID",
    help="Of its log directory, 22 characters; needed only where one node has several, as after the loss of a disk.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=CHANGE_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait; after that the change may still take effect, and may be asked for again.",
)


@click.group()
def quorum() -> None:
    """Show and change the voters of the metadata quorum."""


@quorum.command()
@bootstrap_option
@client_options
@format_option
def describe(bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Show leader, epoch, voters and observers, and how far each of them is.

    Without a leader the broker that is asked tells what it knew last, and that is said.
    """
    with admin_client(bootstrap_servers, extra) as admin:
        described = admin.describe_metadata_quorum(allow_stale=True)
    if described.stale:
        note(STALE_NOTE.format(node=described.described_by))
    if output_format == "json":
        print_json(asdict(described))
        return
    click.echo(quorum_summary(described))
    click.echo(quorum_table(described))


@quorum.command("add-voter")
@click.argument("node", type=click.IntRange(min=0))
@directory_option
@timeout_option
@bootstrap_option
@client_options
@format_option
def add_voter(
    node: int,
    directory_id: str | None,
    timeout: float,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Give a vote to controller NODE, which runs and follows the quorum already. Waits until it has caught up.

    \b
    Examples:
      kraftctl quorum add-voter 2
      kraftctl quorum add-voter 2 --directory-id 8sZpXPyzR4aJcgnVHVJ2gA
    """
    with _patient(bootstrap_servers, extra, timeout) as admin:
        admin.add_voter(node, directory_id)
    _done({"node_id": node, "voter": True}, f"node {node} is a voter", output_format)


@quorum.command("remove-voter")
@click.argument("node", type=click.IntRange(min=0))
@directory_option
@timeout_option
@bootstrap_option
@client_options
@format_option
def remove_voter(
    node: int,
    directory_id: str | None,
    timeout: float,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Take the vote of NODE, which may be gone for good. One that runs goes on as an observer."""
    with _patient(bootstrap_servers, extra, timeout) as admin:
        admin.remove_voter(node, directory_id)
    _done({"node_id": node, "voter": False}, f"node {node} is no voter", output_format)


@quorum.command()
@click.argument("node", type=click.IntRange(min=0))
@timeout_option
@bootstrap_option
@client_options
@format_option
def transfer(node: int, timeout: float, bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Let voter NODE lead the quorum."""
    with _patient(bootstrap_servers, extra, timeout) as admin:
        leader = admin.transfer_quorum_leadership(node)
    _done({"leader_id": leader}, f"node {leader} leads the quorum", output_format)


def _patient(bootstrap_servers: str, extra: tuple[str, ...], timeout_s: float) -> "AbstractContextManager[Admin]":
    timeout_ms = round(timeout_s * 1000)
    return admin_client(bootstrap_servers, extra, request_timeout_ms=timeout_ms, default_api_timeout_ms=timeout_ms)


def _done(document: dict[str, Any], line: str, output_format: str) -> None:
    if output_format == "json":
        print_json(document)
    else:
        click.echo(line)
