"""`kraftctl partition`: which replicas partitions have, who leads them, and how that is changed."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.lazy import Entry, LazyGroup
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import print_json, table
from kraftlog.sdk.cli.remote import admin_client

if TYPE_CHECKING:
    from kraftlog.sdk.types import PartitionDescription

_COMMANDS = {
    "describe": Entry("kraftlog.sdk.cli.partition:describe", "Show replicas and leaders, or those that lack some."),
    "reassign": Entry("kraftlog.sdk.cli.reassign:reassign", "Give partitions other replicas, or more or fewer."),
    "elect-leader": Entry("kraftlog.sdk.cli.partition:elect_leader", "Let the preferred leaders lead."),
}


@click.command(cls=LazyGroup, entries=_COMMANDS)
def partition() -> None:
    """Show which replicas partitions have, give them others, and other leaders."""


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("-p", "--partition", "numbers", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option("--under-replicated", is_flag=True, help="Only those of which a replica is not in sync.")
@click.option("--under-min-isr", is_flag=True, help="Only those that refuse writes with acks=all.")
@click.option("--offline", is_flag=True, help="Only those without a leader.")
@click.option("--reassigning", is_flag=True, help="Only those that are getting other replicas.")
@bootstrap_option
@client_options
@format_option
def describe(
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    under_replicated: bool,
    under_min_isr: bool,
    offline: bool,
    reassigning: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Show the partitions of some topics or of all, internal ones too. Of several conditions one is enough.

    \b
    Examples:
      kraftctl partition describe orders
      kraftctl partition describe --under-replicated --offline
    """
    for name in topics:
        validate_topic_name(name)

    def is_wanted(each: "PartitionDescription") -> bool:
        if numbers and each.partition not in numbers:
            return False
        return not (under_replicated or under_min_isr or offline or reassigning) or (
            (under_replicated and each.is_under_replicated)
            or (under_min_isr and each.is_under_min_isr)
            or (offline and each.is_offline)
            or (reassigning and each.is_reassigning)
        )

    with admin_client(bootstrap_servers, extra) as admin:
        found = [
            (topic.name, each)
            for topic in admin.describe_topics(topics or None)
            for each in topic.partitions
            if is_wanted(each)
        ]
    if output_format == "json":
        print_json([{"topic": name, **asdict(each)} for name, each in found])
        return
    columns = ("topic", "partition", "leader", "epoch", "replicas", "in sync", "min", "eligible", "state")
    click.echo(table(columns, [_row(name, each) for name, each in found]))


def _row(name: str, each: "PartitionDescription") -> tuple[object, ...]:
    states = [
        word
        for word, is_so in (
            ("offline", each.is_offline),
            ("recovering", each.recovering),
            ("under min ISR", each.is_under_min_isr),
            ("under-replicated", each.is_under_replicated),
            ("not flushed", not each.flushed),
            (f"adding {_list(each.adding_replicas)}", bool(each.adding_replicas)),
            (f"removing {_list(each.removing_replicas)}", bool(each.removing_replicas)),
        )
        if is_so
    ]
    return (
        name,
        each.partition,
        None if each.is_offline else each.leader_id,
        each.leader_epoch,
        _list(each.replicas),
        _list(each.in_sync_replicas) or None,
        each.min_in_sync_replicas,
        _list(each.eligible_leader_replicas) or None,
        ", ".join(states) or "ok",
    )


def _list(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))


@click.command("elect-leader")
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
@click.option("--dry-run", is_flag=True, help="Only show which partitions have another leader than they should.")
@bootstrap_option
@client_options
@format_option
def elect_leader(
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    unclean: bool,
    dry_run: bool,
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
        described = {
            TopicPartition(topic.name, each.partition): each
            for topic in (admin.describe_topics(topics or None) if topics or dry_run else ())
            for each in topic.partitions
            if not numbers or each.partition in numbers
        }
        if dry_run:
            elected = {tp: each.replicas[0] for tp, each in described.items() if _needs_election(each, unclean)}
        else:
            elected = admin.elect_leaders(list(described) if topics else None, unclean=unclean)
    if output_format == "json":
        results: list[dict[str, Any]] = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "leader_id": leader,
                **({"dry_run": True} if dry_run else {}),
            }
            for tp, leader in sorted(elected.items())
        ]
        print_json(results)
        return
    for tp, leader in sorted(elected.items()):
        click.echo(f"{tp}: broker {leader} {'would lead, if it can' if dry_run else 'leads'}")
    if not elected:
        click.echo("nothing to do: the preferred leaders lead")


def _needs_election(each: "PartitionDescription", unclean: bool) -> bool:
    return each.is_offline if unclean else each.leader_id != each.replicas[0]
