"""`kraftctl group`: consumer groups and how far they have read."""

from dataclasses import asdict
from typing import Any

import click

from kraftlog.proto.names import validate_group_id
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import plural, print_json, table
from kraftlog.sdk.cli.remote import admin_client


@click.group()
def group() -> None:
    """List and describe consumer groups, with their lag."""


@group.command("list")
@bootstrap_option
@client_options
@format_option
def list_groups(bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """List the groups of the cluster."""
    with admin_client(bootstrap_servers, extra) as admin:
        groups = admin.list_groups()
    if output_format == "json":
        print_json([asdict(each) for each in groups])
    elif groups:
        click.echo(
            table(("group", "state", "protocol"), [(each.group_id, each.state, each.protocol_type) for each in groups])
        )
    else:
        click.echo("no groups")


@group.command()
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@bootstrap_option
@client_options
@format_option
def describe(names: tuple[str, ...], bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Show members, committed offsets and lag of groups.

    Lag is the number of records that the group has not read yet; offsets below the log's start count from its start.
    """
    for name in names:
        validate_group_id(name)
    documents: list[dict[str, Any]] = []
    with admin_client(bootstrap_servers, extra) as admin:
        for description in admin.describe_groups(list(names)):
            offsets = [asdict(offset) for offset in admin.list_group_offsets(description.group_id)]
            total = sum(offset["lag"] for offset in offsets if offset["lag"] > 0)
            documents.append({**asdict(description), "offsets": offsets, "total_lag": total})
    if output_format == "json":
        print_json(documents)
        return
    for document in documents:
        _print(document)


def _print(document: dict[str, Any]) -> None:
    members = document["members"]
    click.echo(
        f"group {document['group_id']}: {document['state']}, {plural(len(members), 'member')}, "
        f"generation {document['generation_id']}, lag {document['total_lag']:,}"
    )
    owners = {(topic, partition): member for member in members for topic, partition in member["assignment"]}
    rows = []
    for offset in document["offsets"]:
        owner = owners.get((offset["topic"], offset["partition"]))
        rows.append(
            (
                offset["topic"],
                offset["partition"],
                offset["offset"],
                offset["log_end_offset"],
                offset["lag"],
                owner["member_id"] if owner else None,
                owner["client_host"] if owner else None,
            )
        )
    if rows:
        click.echo(table(("topic", "partition", "committed", "end", "lag", "member", "host"), rows))
