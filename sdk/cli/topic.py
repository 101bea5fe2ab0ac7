"""`kraftctl topic`: create, list, describe, alter and delete topics, delete their records."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.errors import TopicAlreadyExistsError
from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.lazy import Entry, LazyGroup
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option, parse_pairs
from kraftlog.sdk.cli.output import plural, print_json, table
from kraftlog.sdk.cli.remote import admin_client

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin
    from kraftlog.sdk.types import TopicDescription

_COMMANDS = {
    "create": Entry("kraftlog.sdk.cli.topic:create", "Create topics."),
    "list": Entry("kraftlog.sdk.cli.topic:list_topics", "List topics."),
    "describe": Entry("kraftlog.sdk.cli.topic:describe", "Show partitions, leaders, offsets and configuration."),
    "alter": Entry("kraftlog.sdk.cli.topic:alter", "Change the configuration of a topic, add partitions."),
    "delete": Entry("kraftlog.sdk.cli.topic:delete", "Delete topics with their records."),
    "delete-records": Entry("kraftlog.sdk.cli.topic:delete_records", "Delete the oldest records of a topic."),
    "produce": Entry("kraftlog.sdk.cli.produce:produce", "The same as kraftctl produce."),
    "consume": Entry("kraftlog.sdk.cli.consume:consume", "The same as kraftctl consume."),
}


@click.command(cls=LazyGroup, entries=_COMMANDS)
def topic() -> None:
    """Create, list, describe, alter and delete topics, delete their records."""


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=int, help="How many partitions; default: the broker's num.partitions.")
@click.option("-r", "--replication-factor", type=int, help="How many replicas of each; default: min(3, brokers).")
@click.option(
    "-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="A topic config: -c retention.ms=3600000."
)
@click.option("--if-not-exists", is_flag=True, help="Leave a topic alone that exists already.")
@bootstrap_option
@client_options
@format_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Create topics.

    \b
    Examples:
      kraftctl topic create orders -p 6
      kraftctl topic create log -p 3 -c flush.policy=interval -c retention.ms=3600000
    """
    from kraftlog.sdk.types import NewTopic

    pairs = parse_pairs(configs, "-c")
    for name in names:
        validate_topic_name(name)
    results: list[dict[str, Any]] = []
    with admin_client(bootstrap_servers, extra) as admin:
        for name in names:
            wanted = NewTopic(
                name=name,
                num_partitions=-1 if partitions is None else partitions,
                replication_factor=-1 if replication_factor is None else replication_factor,
                configs=pairs,
            )
            try:
                results += [{"created": True, **asdict(made)} for made in admin.create_topics([wanted])]
            except TopicAlreadyExistsError:
                if not if_not_exists:
                    raise
                results.append({"created": False, "name": name})
    if output_format == "json":
        print_json(results)
        return
    for result in results:
        if result["created"]:
            replicas = plural(result["replication_factor"], "replica")
            click.echo(f"created topic {result['name']}: {plural(result['num_partitions'], 'partition')}, {replicas}")
        else:
            click.echo(f"topic {result['name']} exists already")


@click.command("list")
@click.option("--internal", is_flag=True, help="Also topics in which the cluster keeps its own state.")
@bootstrap_option
@client_options
@format_option
def list_topics(internal: bool, bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """List topics."""
    with admin_client(bootstrap_servers, extra) as admin:
        topics = [topic for topic in admin.describe_topics() if internal or not topic.internal]
    if output_format == "json":
        print_json([_summary(topic) for topic in topics])
        return
    if not topics:
        click.echo("no topics: make one with kraftctl topic create NAME")
        return
    rows = [(topic.name, len(topic.partitions), _replication_factor(topic)) for topic in topics]
    click.echo(table(("topic", "partitions", "replicas"), rows))


def _summary(topic: "TopicDescription") -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replication_factor": _replication_factor(topic),
    }


def _replication_factor(topic: "TopicDescription") -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
@client_options
@format_option
def describe(names: tuple[str, ...], bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Show partitions, leaders, offsets and configuration of topics."""
    for name in names:
        validate_topic_name(name)
    with admin_client(bootstrap_servers, extra) as admin:
        topics = admin.describe_topics(list(names))
        documents = [_document(admin, topic) for topic in topics]
    if output_format == "json":
        print_json(documents)
        return
    for document in documents:
        _print(document)


def _document(admin: "Admin", topic: "TopicDescription") -> dict[str, Any]:
    offsets = admin.list_offsets  # one request for each end of all partitions
    from kraftlog.sdk.types import TopicPartition

    wanted: Sequence[TopicPartition] = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
    starts = offsets(wanted, "earliest")
    ends = offsets(wanted, "latest")
    partitions = [
        {
            **asdict(each),
            "start_offset": starts[TopicPartition(topic.name, each.partition)],
            "end_offset": ends[TopicPartition(topic.name, each.partition)],
        }
        for each in topic.partitions
    ]
    return {**_summary(topic), "configs": dict(topic.configs), "partitions": partitions}


def _print(document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    records = sum(each["end_offset"] - each["start_offset"] for each in partitions)
    click.echo(f"topic {document['name']} (id {document['topic_id']}): {plural(records, 'offset')} held")
    for key, value in sorted(document["configs"].items()):
        click.echo(f"  {key}={value}")
    rows = [
        (
            each["partition"],
            each["leader_id"],
            each["leader_epoch"],
            ",".join(map(str, each["replicas"])),
            ",".join(map(str, each["in_sync_replicas"])),
            each["start_offset"],
            each["end_offset"],
        )
        for each in partitions
    ]
    click.echo(table(("partition", "leader", "epoch", "replicas", "in sync", "start", "end"), rows))


@click.command()
@click.argument("name", metavar="NAME")
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="How many partitions it is to have; never fewer.")
@click.option("-c", "--config", "configs", metavar="KEY=VALUE", multiple=True, help="Set a topic config.")
@click.option(
    "--delete-config", "deleted", metavar="KEY", multiple=True, help="Set a topic config back to its default."
)
@bootstrap_option
@client_options
@format_option
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Change the configuration of a topic, all of it or nothing, then add partitions.

    Records stay where they are: with more partitions, those of a key may be in two from then on.

    \b
    Examples:
      kraftctl topic alter orders -p 12
      kraftctl topic alter orders -c retention.ms=3600000 --delete-config segment.ms
    """
    pairs = parse_pairs(configs, "-c")
    validate_topic_name(name)
    if not pairs and not deleted and partitions is None:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    with admin_client(bootstrap_servers, extra) as admin:
        if pairs or deleted:
            admin.alter_configs(name, set=pairs, delete=deleted)
        if partitions is not None:
            admin.create_partitions({name: partitions})
        [topic] = admin.describe_topics([name])
    if output_format == "json":
        print_json({**_summary(topic), "configs": dict(topic.configs)})
        return
    click.echo(f"topic {name}: {plural(len(topic.partitions), 'partition')}")
    for key, value in sorted(topic.configs.items()):
        click.echo(f"  {key}={value}")


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@bootstrap_option
@client_options
@format_option
def delete(names: tuple[str, ...], bootstrap_servers: str, extra: tuple[str, ...], output_format: str) -> None:
    """Delete topics with all their records. There is no way back."""
    for name in names:
        validate_topic_name(name)
    with admin_client(bootstrap_servers, extra) as admin:
        admin.delete_topics(list(names))
    if output_format == "json":
        print_json([{"name": name, "deleted": True} for name in names])
        return
    for name in names:
        click.echo(f"deleted topic {name}")


@click.command("delete-records")
@click.argument("name", metavar="NAME")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=int,
    multiple=True,
    help="Only this partition; may be repeated. Default: all.",
)
@click.option(
    "--before",
    "before",
    metavar="OFFSET|latest",
    required=True,
    help="The first offset that stays; latest: nothing stays that is committed.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@bootstrap_option
@client_options
@format_option
def delete_records(
    name: str,
    partitions: tuple[int, ...],
    before: str,
    dry_run: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Delete the records of a topic below an offset. There is no way back.

    \b
    Examples:
      kraftctl topic delete-records orders -p 0 --before 1000 --dry-run
      kraftctl topic delete-records orders --before latest
    """
    from kraftlog.sdk.types import TopicPartition

    validate_topic_name(name)
    offset = _deletion_offset(before)
    with admin_client(bootstrap_servers, extra) as admin:
        numbers = partitions or tuple(each.partition for each in admin.describe_topics([name])[0].partitions)
        wanted = [TopicPartition(name, number) for number in sorted(set(numbers))]
        old_starts = admin.list_offsets(wanted, "earliest")
        starts = admin.delete_records(dict.fromkeys(wanted, offset), validate_only=dry_run)
    results: list[dict[str, Any]] = [
        {
            "topic": name,
            "partition": tp.partition,
            "dry_run": dry_run,
            "old_start_offset": old_starts[tp],
            "start_offset": starts[tp],
            "deleted_offsets": max(0, starts[tp] - old_starts[tp]),
        }
        for tp in wanted
    ]
    if output_format == "json":
        print_json(results)
        return
    verb = "would delete" if dry_run else "deleted"
    for result in results:
        click.echo(
            f"{name}-{result['partition']}: {verb} {plural(result['deleted_offsets'], 'offset')}, "
            f"start {result['old_start_offset']} -> {result['start_offset']}"
        )


def _deletion_offset(text: str) -> int:
    """-1 for the high watermark."""
    if text == "latest":
        return -1
    if not text.isascii() or not text.isdigit():
        raise click.BadParameter(f"{text!r} is neither an offset nor latest", param_hint="--before")
    return int(text)
