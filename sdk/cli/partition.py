"""`kraftctl partition`: who leads partitions."""

from typing import Any

import click

from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import print_json
from kraftlog.sdk.cli.remote import admin_client


@click.group()
def partition() -> None:
    """Give partitions another leader."""


@partition.command("elect-leader")
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition of each topic; may be repeated. Default: all.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Also a replica that may lack acknowledged records, where no other lives. What it lacks is gone for good.",
)
@bootstrap_option
@client_options
@format_option
def elect_leader(
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    unclean: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Let the preferred leaders lead: of all partitions, or of those of some topics.

    \b
    Examples:
      kraftctl partition elect-leader
      kraftctl partition elect-leader orders -p 0 --unclean
    """
    from kraftlog.sdk.types import TopicPartition

    if not topics and (numbers or unclean):
        raise click.UsageError("--partition and --unclean need a TOPIC")
    for name in topics:
        validate_topic_name(name)
    with admin_client(bootstrap_servers, extra) as admin:
        wanted = [
            TopicPartition(described.name, each.partition)
            for described in (admin.describe_topics(topics) if topics else ())
            for each in described.partitions
            if not numbers or each.partition in numbers
        ]
        elected = admin.elect_leaders(wanted if topics else None, unclean=unclean)
    if output_format == "json":
        results: list[dict[str, Any]] = [
            {"topic": tp.topic, "partition": tp.partition, "leader_id": leader}
            for tp, leader in sorted(elected.items())
        ]
        print_json(results)
        return
    for tp, leader in sorted(elected.items()):
        click.echo(f"{tp}: broker {leader} leads")
    if not elected:
        click.echo("nothing to do: the preferred leaders lead")
