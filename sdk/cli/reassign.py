"""`kraftctl partition reassign` and `broker drain`: partitions get other replicas, and the command waits until they have."""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.errors import BrokerIdNotRegisteredError, UnknownTopicOrPartitionError
from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.byte_rates import byte_rate
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import note, plural, print_json, table
from kraftlog.sdk.cli.progress import ProgressBar
from kraftlog.sdk.cli.remote import admin_client

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin
    from kraftlog.sdk.cli.reassign_plan import Plan
    from kraftlog.sdk.cli.reassign_throttle import Backlog
    from kraftlog.sdk.types import PartitionDescription, TopicPartition

LOOK_INTERVAL_S = 0.5
PARTITIONS_PER_REQUEST = 1_000


def throttle_option(command: Any) -> Any:
    """`--throttle RATE`."""
    return click.option(
        "--throttle",
        type=byte_rate,
        metavar="RATE",
        help="Copy no more than this on each broker, such as 50MB (a second), and take the throttle away when all is done.",
    )(command)


def wait_options(command: Any) -> Any:
    """`--dry-run` and `--wait/--no-wait`."""
    command = click.option("--dry-run", is_flag=True, help="Only show which replicas would move.")(command)
    return click.option(
        "--wait/--no-wait", "wait", default=True, help="Wait until the replicas have moved (the default), or not."
    )(command)


@click.command()
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("-p", "--partition", "numbers", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option("-r", "--replication-factor", "factor", type=click.IntRange(min=1), help="So many replicas of each.")
@click.option("--replicas", metavar="NODE,NODE...", help="Exactly these, the preferred leader first.")
@click.option("--brokers", metavar="NODE,NODE...", help="Only on these brokers. Default: on all that live.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="As a file in Kafka's JSON format says.")
@click.option("--cancel", is_flag=True, help="End what is under way: the former replicas stay.")
@click.option("--list", "lists", is_flag=True, help="Only show what is under way.")
@click.option(
    "--remove-throttle",
    "removes_throttle",
    is_flag=True,
    help="Take away all throttles but those of what is under way.",
)
@throttle_option
@wait_options
@bootstrap_option
@client_options
@format_option
def reassign(
    topics: tuple[str, ...],
    numbers: tuple[int, ...],
    factor: int | None,
    replicas: str | None,
    brokers: str | None,
    plan_file: Path | None,
    cancel: bool,
    lists: bool,
    removes_throttle: bool,
    throttle: int | None,
    wait: bool,
    dry_run: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Give partitions other replicas, of some topics or of all, while they are in use.

    New replicas catch up first, then the others leave. If the command is interrupted, the move goes on, with its throttle:
    the same command with another --throttle changes it, --cancel and --remove-throttle take it away.

    \b
    Examples:
      kraftctl partition reassign orders -r 3 --dry-run
      kraftctl partition reassign -r 3
      kraftctl partition reassign orders -p 0 --replicas 2,3,1
      kraftctl partition reassign --brokers 1,2,3 --throttle 50MB
      kraftctl partition reassign orders --cancel
    """
    for name in topics:
        validate_topic_name(name)
    moves = [factor is not None or brokers is not None, replicas is not None, plan_file is not None]
    if sum([*moves, cancel, lists, removes_throttle]) != 1:
        raise click.UsageError(
            "say what is wanted: --replication-factor and --brokers, or one of --replicas, --plan, --cancel, --list,"
            " --remove-throttle"
        )
    if throttle is not None and not any(moves):
        raise click.UsageError("--throttle is for a move")
    if removes_throttle and (topics or numbers):
        raise click.UsageError("--remove-throttle is for all topics")
    if replicas is not None and not topics:
        raise click.UsageError("--replicas needs a TOPIC")
    if plan_file is not None and (topics or numbers):
        raise click.UsageError("--plan names the partitions itself")
    with admin_client(bootstrap_servers, extra) as admin:
        if lists:
            _print_ongoing(admin, topics, numbers, output_format)
            return
        if cancel:
            _cancel(admin, topics, numbers, dry_run, output_format)
            return
        if removes_throttle:
            _remove_throttle(admin, dry_run, output_format)
            return
        everything = partitions_of(admin)
        if plan_file is not None:
            from kraftlog.sdk.cli.reassign_plan import read_plan

            plan = read_plan(plan_file)
            unknown = next((tp for tp in plan if tp not in everything), None)
            if unknown is not None:
                raise UnknownTopicOrPartitionError(f"{plan_file} names {unknown}, which does not exist")
        else:
            chosen = _chosen(everything, topics, numbers)
            if replicas is not None:
                plan = dict.fromkeys(chosen, _nodes(replicas, "--replicas"))
            else:
                allowed = None if brokers is None else _nodes(brokers, "--brokers")
                plan = planned(admin, everything, chosen, factor=factor, allowed=allowed)
        carry_out(admin, everything, plan, wait=wait, dry_run=dry_run, output_format=output_format, throttle=throttle)


@click.command()
@click.argument("node", type=click.IntRange(min=0))
@throttle_option
@wait_options
@bootstrap_option
@client_options
@format_option
def drain(
    node: int,
    throttle: int | None,
    wait: bool,
    dry_run: bool,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Move all replicas of broker NODE to other brokers, so that it can be taken away or repaired.

    Nothing keeps new topics from it meanwhile: stop the broker when the command is done.
    """
    with admin_client(bootstrap_servers, extra) as admin:
        nodes = admin.describe_cluster().nodes
        if node not in {each.node_id for each in nodes}:
            raise BrokerIdNotRegisteredError(f"broker {node} is not registered")
        everything = partitions_of(admin)
        chosen = {tp: each for tp, each in everything.items() if node in each.target_replicas}
        allowed = tuple(each.node_id for each in nodes if each.node_id != node)
        plan = planned(admin, everything, chosen, factor=None, allowed=allowed)
        carry_out(admin, everything, plan, wait=wait, dry_run=dry_run, output_format=output_format, throttle=throttle)


# --- what to do -------------------------------------------------------------------------------------------------


def partitions_of(admin: "Admin") -> "dict[TopicPartition, PartitionDescription]":
    from kraftlog.sdk.types import TopicPartition

    return {
        TopicPartition(topic.name, each.partition): each
        for topic in admin.describe_topics()
        for each in topic.partitions
    }


def _chosen(
    everything: "Mapping[TopicPartition, PartitionDescription]", topics: tuple[str, ...], numbers: tuple[int, ...]
) -> "dict[TopicPartition, PartitionDescription]":
    unknown = set(topics) - {tp.topic for tp in everything}
    if unknown:
        raise UnknownTopicOrPartitionError(f"topic {min(unknown)} does not exist")
    chosen = {
        tp: each
        for tp, each in everything.items()
        if (not topics or tp.topic in topics) and (not numbers or tp.partition in numbers)
    }
    if numbers and not chosen:
        raise UnknownTopicOrPartitionError(f"there is no partition {', '.join(map(str, sorted(numbers)))}")
    return chosen


def planned(
    admin: "Admin",
    everything: "Mapping[TopicPartition, PartitionDescription]",
    chosen: "Mapping[TopicPartition, PartitionDescription]",
    *,
    factor: int | None,
    allowed: tuple[int, ...] | None,
) -> "Plan":
    """Raises `BrokerIdNotRegisteredError` for a broker that is not known, and what the planner raises."""
    from kraftlog.sdk.cli.reassign_plan import Planner

    nodes = {each.node_id: each for each in admin.describe_cluster().nodes}
    for node in allowed or ():
        if node not in nodes:
            raise BrokerIdNotRegisteredError(f"broker {node} is not registered")
    racks = {
        node: each.rack
        for node, each in sorted(nodes.items())
        if not each.fenced and (allowed is None or node in allowed)
    }
    planner = Planner(racks, everything.values())
    return {tp: planner.replicas_of(tp, each, factor) for tp, each in sorted(chosen.items())}


def _nodes(text: str, option: str) -> tuple[int, ...]:
    try:
        nodes = tuple(int(each) for each in text.split(","))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of node ids such as 1,2,3", param_hint=option) from None
    if len(set(nodes)) != len(nodes):
        raise click.BadParameter(f"{text!r} names a node twice", param_hint=option)
    return nodes


# --- doing it ---------------------------------------------------------------------------------------------------


def carry_out(
    admin: "Admin",
    everything: "Mapping[TopicPartition, PartitionDescription]",
    plan: "Plan",
    *,
    wait: bool,
    dry_run: bool,
    output_format: str,
    throttle: int | None = None,
) -> None:
    """Ask for what is not as planned, in pieces, show it, and wait until none of it is under way any more. `throttle`: bytes
    a second, as long as it is."""
    from kraftlog.sdk.cli.reassign_throttle import Backlog, MoveThrottle

    moves = {
        tp: replicas
        for tp, replicas in sorted(plan.items())
        if everything[tp].is_reassigning or everything[tp].replicas != tuple(replicas)
    }
    if output_format == "text":
        _print_moves(everything, moves)
    limit = nullcontext() if throttle is None or not moves else MoveThrottle(admin, throttle, moves, dry_run=dry_run)
    backlog = None if throttle is None else Backlog(admin, throttle)
    with limit:
        keys = list(moves)
        for start in range(0, len(keys), PARTITIONS_PER_REQUEST):
            piece = {tp: moves[tp] for tp in keys[start : start + PARTITIONS_PER_REQUEST]}
            admin.alter_partition_reassignments(piece, validate_only=dry_run)
        left = 0 if dry_run or not moves else _wait(admin, set(moves), is_patient=wait, backlog=backlog)
    if output_format == "json":
        from kraftlog.sdk.cli.reassign_plan import plan_document

        more = {} if throttle is None else {"throttle_bytes_per_second": throttle}
        print_json({**plan_document(moves), "dry_run": dry_run, "under_way": left, **more})
    elif dry_run:
        click.echo(f"would reassign {plural(len(moves), 'partition')}")
    elif left:
        click.echo(f"{plural(left, 'reassignment')} under way: kraftctl partition reassign --list shows them")
    else:
        click.echo(f"reassigned {plural(len(moves), 'partition')}")


def _wait(admin: "Admin", moves: "set[TopicPartition]", *, is_patient: bool, backlog: "Backlog | None" = None) -> int:
    """How many are under way in the end."""
    topics = sorted({tp.topic for tp in moves})
    with ProgressBar("reassigning", total=len(moves), enabled=is_patient, unit="partitions") as bar:
        while True:
            ongoing = {tp: each for tp, each in admin.list_partition_reassignments(topics).items() if tp in moves}
            left = len(ongoing)
            if backlog is not None and is_patient:
                bar.remark = backlog.look(ongoing)
            bar.update(len(moves) - left, len(moves) - left)
            if not left or not is_patient:
                return left
            time.sleep(LOOK_INTERVAL_S)


def _cancel(
    admin: "Admin", topics: tuple[str, ...], numbers: tuple[int, ...], dry_run: bool, output_format: str
) -> None:
    from kraftlog.sdk.cli.reassign_throttle import print_removed, throttle_of

    ongoing = {
        tp: each
        for tp, each in sorted(admin.list_partition_reassignments(topics or None).items())
        if not numbers or tp.partition in numbers
    }
    found = list(ongoing)
    throttle = throttle_of(admin, ongoing) if found else None
    admin.alter_partition_reassignments(dict.fromkeys(found), validate_only=dry_run)
    if throttle and not dry_run:
        print_removed(admin.remove_replication_throttle(throttle), dry_run=False)
    if output_format == "json":
        print_json([{"topic": tp.topic, "partition": tp.partition, "dry_run": dry_run} for tp in found])
        return
    for tp in found:
        click.echo(f"{tp}: {'would cancel' if dry_run else 'cancelled'}")
    if not found:
        click.echo("no reassignment is under way")


def _remove_throttle(admin: "Admin", dry_run: bool, output_format: str) -> None:
    from kraftlog.sdk.cli.reassign_throttle import document, print_removed

    removed = admin.remove_replication_throttle(validate_only=dry_run)
    if output_format == "json":
        print_json({**document(removed), "dry_run": dry_run})
        return
    print_removed(removed, dry_run=dry_run)
    if not removed:
        note("no throttle is set, or what is under way needs it")


def _print_ongoing(admin: "Admin", topics: tuple[str, ...], numbers: tuple[int, ...], output_format: str) -> None:
    from dataclasses import asdict

    from kraftlog.sdk.cli.byte_rates import shown_bytes
    from kraftlog.sdk.cli.reassign_throttle import rates_of, throttle_of

    found = {
        tp: each
        for tp, each in sorted(admin.list_partition_reassignments(topics or None).items())
        if not numbers or tp.partition in numbers
    }
    rates = rates_of(throttle_of(admin, found), found)
    if output_format == "json":
        print_json(
            [
                {"topic": tp.topic, "partition": tp.partition, **asdict(each), "throttle_bytes_per_second": rates[tp]}
                for tp, each in found.items()
            ]
        )
        return
    if admin.remove_replication_throttle(validate_only=True):
        note("throttles are set that no reassignment under way needs: --remove-throttle takes them away")
    if not found:
        note("no reassignment is under way")
        return
    rows = [
        (
            tp.topic,
            tp.partition,
            _list(each.target_replicas),
            _list(each.adding_replicas),
            _list(each.removing_replicas),
            _list(each.in_sync_replicas),
            None if (rate := rates[tp]) is None else f"{shown_bytes(rate)}/s",
        )
        for tp, each in found.items()
    ]
    click.echo(table(("topic", "partition", "target", "adding", "removing", "in sync", "throttle"), rows))


def _print_moves(everything: "Mapping[TopicPartition, PartitionDescription]", moves: "Plan") -> None:
    rows = [(tp.topic, tp.partition, _list(everything[tp].replicas), _list(moves[tp])) for tp in moves]
    if rows:
        click.echo(table(("topic", "partition", "replicas", "target"), rows))


def _list(nodes: tuple[int, ...]) -> str | None:
    return ",".join(map(str, nodes)) or None
