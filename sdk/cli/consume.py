"""`kraftctl consume`: records of topics to standard output."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.names import validate_group_id, validate_topic_name
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.progress import ProgressBar
from kraftlog.sdk.cli.record_format import DEFAULT_FORMAT, compile_format, to_json
from kraftlog.sdk.cli.remote import admin_client, client_config, for_admin
from kraftlog.sdk.cli.report import CommandError

if TYPE_CHECKING:
    from kraftlog.sdk.consumer import Consumer
    from kraftlog.sdk.types import TopicPartition

POLL_MS = 200
MAX_POLL_RECORDS = 5_000


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-g", "--group", help="Read as a member of this group, and commit what was printed.")
@click.option("--from-beginning", is_flag=True, help="Start at the first record; the same as -o start.")
@click.option(
    "-o", "--offset", metavar="WHERE", help="start, end (the default), N, -N (the last N of each partition), or @TIME."
)
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Stop at what was the end at the start.")
@click.option("-f", "--print", "template", help="What to print of each record, as '%t-%p %o %k %v\\n'.")
@bootstrap_option
@client_options
@format_option
def consume(
    topics: tuple[str, ...],
    group: str | None,
    from_beginning: bool,
    offset: str | None,
    partitions: tuple[int, ...],
    count: int | None,
    exit_at_end: bool,
    template: str | None,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Read records of topics; Ctrl-C ends it.

    -f knows %t topic, %p partition, %o offset, %T timestamp (ms), %k key, %v value, %h headers, %K and %S the sizes of
    key and value, and the escapes \\n \\t \\r. --format json prints an object a line. @TIME is in milliseconds since
    1970 or as 2026-11-27T12:00.

    \b
    Examples:
      kraftctl consume orders --from-beginning -n 10
      kraftctl consume orders -g billing -f '%k: %v\\n'
      kraftctl consume orders -o @2026-11-27T12:00 -e --format json
    """
    for topic in topics:
        validate_topic_name(topic)
    if from_beginning and offset is not None:
        raise click.UsageError("--from-beginning and -o exclude each other.")
    start = Start.parse("start" if from_beginning else offset or "end")
    if group is not None:
        validate_group_id(group)
        if start.kind not in ("start", "end") or partitions:
            raise click.UsageError(
                "with -g the group's offsets and partitions count: only -o start and -o end go along."
            )
    if template is not None and output_format == "json":
        raise click.UsageError("-f and --format json exclude each other.")
    render = (
        to_json if output_format == "json" else compile_format(template if template is not None else DEFAULT_FORMAT)
    )
    config = client_config(
        bootstrap_servers,
        extra,
        group_id=group,
        auto_offset_reset="earliest" if start.kind == "start" else "latest",
        enable_auto_commit=False,
        max_poll_records=MAX_POLL_RECORDS,
    )
    with admin_client(bootstrap_servers, for_admin(extra)) as admin:
        numbers = {
            each.name: [one.partition for one in each.partitions] for each in admin.describe_topics(list(topics))
        }
    from kraftlog.sdk.consumer import Consumer

    with Consumer(**config) as consumer:
        if group is None:
            _assign(consumer, _wanted(numbers, partitions), start)
        else:
            consumer.subscribe(list(topics))
        _Printer(consumer, render, count, exit_at_end, commit=group is not None).run()


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: `kind` is start, end, offset, last or time; `number` an offset, a count or milliseconds."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> "Start":
        if text in ("start", "beginning", "earliest"):
            return cls("start")
        if text in ("end", "latest"):
            return cls("end")
        if text.startswith("@"):
            return cls("time", _milliseconds(text[1:]))
        try:
            number = int(text)
        except ValueError:
            raise click.UsageError(f"-o {text!r} is none of start, end, N, -N, @TIME.") from None
        return cls("last", -number) if number < 0 else cls("offset", number)


def _milliseconds(text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise click.UsageError(f"-o @{text}: give milliseconds since 1970, or a time as 2026-11-27T12:00.") from None


def _wanted(numbers: Mapping[str, Sequence[int]], only: tuple[int, ...]) -> "list[TopicPartition]":
    from kraftlog.sdk.types import TopicPartition

    for topic, existing in numbers.items():
        missing = sorted(set(only) - set(existing))
        if missing:
            raise CommandError(
                f"topic {topic} has no partition {missing[0]}: it has {len(existing)}, from 0 on",
                exit_code=ExitCode.NOT_FOUND,
            )
    return [TopicPartition(topic, number) for topic, existing in numbers.items() for number in (only or existing)]


def _assign(consumer: "Consumer", wanted: "list[TopicPartition]", start: Start) -> None:
    consumer.assign(wanted)
    match start.kind:
        case "start":
            consumer.seek_to_beginning(*wanted)
        case "end":
            consumer.seek_to_end(*wanted)
        case "offset":
            for each in wanted:
                consumer.seek(each, start.number)
        case "last":
            ends = consumer.end_offsets(wanted)
            starts = consumer.beginning_offsets(wanted)
            for each in wanted:
                consumer.seek(each, max(starts[each], ends[each] - start.number))
        case "time":
            found = consumer.offsets_for_times(dict.fromkeys(wanted, start.number))
            ends = consumer.end_offsets(wanted)
            for each in wanted:
                answer = found.get(each)
                consumer.seek(each, ends[each] if answer is None else answer.offset)


class _Printer:
    """Polls and prints until it is told to stop: by the count, by the end, or by Ctrl-C."""

    def __init__(
        self, consumer: "Consumer", render: Any, count: int | None, exit_at_end: bool, *, commit: bool
    ) -> None:
        self._consumer = consumer
        self._render = render
        self._count = count
        self._exit_at_end = exit_at_end
        self._commit = commit
        self._printed = 0
        self._ends: dict[TopicPartition, int] = {}

    def run(self) -> None:
        out = sys.stdout.buffer
        to_terminal = sys.stdout.isatty()
        with ProgressBar("consuming", total=self._count, enabled=not to_terminal) as bar:
            while not self._is_done():
                left = MAX_POLL_RECORDS if self._count is None else min(MAX_POLL_RECORDS, self._count - self._printed)
                for records in self._consumer.poll(timeout_ms=POLL_MS, max_records=left).values():
                    for record in records:
                        if self._exit_at_end and record.offset >= self._end_of(record.topic, record.partition):
                            continue
                        out.write(self._render(record))
                        self._printed += 1
                out.flush()
                if self._commit and self._consumer.assignment():
                    self._consumer.commit()
                bar.update(self._printed)

    def _is_done(self) -> bool:
        if self._count is not None and self._printed >= self._count:
            return True
        if not self._exit_at_end:
            return False
        assigned = self._consumer.assignment()
        if not assigned:
            return False  # a member waits for its first assignment
        fresh = [each for each in assigned if each not in self._ends]
        if fresh:
            self._ends |= self._consumer.end_offsets(fresh)
        return all(self._consumer.position(each) >= self._ends[each] for each in assigned)

    def _end_of(self, topic: str, partition: int) -> int:
        from kraftlog.sdk.types import TopicPartition

        return self._ends.get(TopicPartition(topic, partition), sys.maxsize)
