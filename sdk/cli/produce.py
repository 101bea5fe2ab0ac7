"""`kraftctl produce`: standard input, files line by line, or CSV files, into a topic."""

import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kraftlog.proto.errors import InvalidRecordError, KraftlogError, error_for
from kraftlog.proto.names import validate_topic_name
from kraftlog.sdk.cli.options import bootstrap_option, client_options, format_option
from kraftlog.sdk.cli.output import note, plural, print_json
from kraftlog.sdk.cli.progress import ProgressBar
from kraftlog.sdk.cli.remote import PATIENCE_MS, admin_client, client_config, for_admin
from kraftlog.sdk.cli.sources import CsvSource, LineSource, Source, open_input

if TYPE_CHECKING:
    from kraftlog.sdk.producer import Producer
    from kraftlog.sdk.producer.batch import ThreadSendFuture

PROGRESS_EVERY = 512  # records between two looks at the clock


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1)
@click.option("-k", "--key-separator", help="What stands before it in a line is the key: -k : reads k1:hello.")
@click.option("--key", "fixed_key", help="One key for all records.")
@click.option("--csv", "as_csv", is_flag=True, help="Files are CSV with a header; a row becomes a JSON object.")
@click.option("--key-column", help="With --csv: the column that holds the key.")
@click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header on every record.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Write to this partition; default: by the key's hash.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="When a record counts as written.",
)
@click.option(
    "--compression",
    "-z",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@bootstrap_option
@client_options
@format_option
def produce(
    topic: str,
    files: tuple[str, ...],
    key_separator: str | None,
    fixed_key: str | None,
    as_csv: bool,
    key_column: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
    bootstrap_servers: str,
    extra: tuple[str, ...],
    output_format: str,
) -> None:
    """Write the lines of FILES (or standard input) to TOPIC, one record a line.

    Ends after the last record is acknowledged, and fails if one was not.

    \b
    Examples:
      echo hello | kraftctl produce greetings
      kraftctl produce orders orders.txt -k : --compression zstd
      kraftctl produce flights flights.csv --csv --key-column carrier
    """
    validate_topic_name(topic)
    _check_options(key_separator, fixed_key, as_csv, key_column)
    record_headers = [_header(text) for text in headers]
    config = client_config(
        bootstrap_servers, extra, acks=acks, compression_type=compression, max_block_ms=PATIENCE_MS, linger_ms=20
    )
    inputs = files or ("-",)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_input(path)) for path in inputs]
        sources: list[Source] = []
        for path, (stream, _) in zip(inputs, opened, strict=True):
            name = "standard input" if path == "-" else path
            if as_csv:
                sources.append(CsvSource(stream, name, key_column))
            else:
                separator = key_separator.encode() if key_separator else None
                key = fixed_key.encode() if fixed_key is not None else None
                sources.append(LineSource(stream, name, separator, key))
        sizes = [size for _, size in opened]
        total = sum(size for size in sizes if size) if all(sizes) else None
        _check_topic(topic, bootstrap_servers, extra)
        tally = Tally()
        begin = time.monotonic()
        try:
            _write(config, topic, partition, record_headers, sources, total, tally)
        except KeyboardInterrupt:
            note(f"interrupted: {plural(tally.acknowledged, 'record')} acknowledged")
            raise
        _summarise(topic, tally, time.monotonic() - begin, acks, output_format)


def _check_options(key_separator: str | None, fixed_key: str | None, as_csv: bool, key_column: str | None) -> None:
    if as_csv and (key_separator is not None or fixed_key is not None):
        raise click.UsageError("--csv takes its keys from --key-column, not from -k or --key.")
    if key_column is not None and not as_csv:
        raise click.UsageError("--key-column needs --csv.")
    if key_separator is not None and fixed_key is not None:
        raise click.UsageError("-k and --key exclude each other.")
    if key_separator == "":
        raise click.UsageError("-k needs at least one character.")


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition(":")
    if not separator or not name:
        raise click.UsageError(f"-H {text!r} is not NAME:VALUE.")
    return name, value.encode()


def _check_topic(topic: str, bootstrap_servers: str, extra: tuple[str, ...]) -> None:
    """A misspelt topic fails at once, where a producer would wait for it to appear."""
    with admin_client(bootstrap_servers, for_admin(extra)) as admin:
        admin.describe_topics([topic])


@dataclass(slots=True)
class Tally:
    """Counts acknowledgments. `done` is called from the producer's thread, the rest from the command's."""

    acknowledged: int = 0
    partitions: Counter[int] = field(default_factory=Counter)
    failed: int = 0
    first_error: KraftlogError | None = None
    first_place: str = ""
    durability: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def done(self, place: str, future: "ThreadSendFuture") -> None:
        error = future.exception()
        with self.lock:
            if error is None:
                metadata = future.result()
                self.acknowledged += 1
                self.partitions[metadata.partition] += 1
                self.durability = metadata.durability
                return
            self.failed += 1
            if self.first_error is None:
                self.first_error, self.first_place = error, place

    def raise_first(self) -> None:
        """Raise the first failure, with the place of its record."""
        if self.first_error is not None:
            raise error_for(self.first_error.code, f"{self.first_place}: {self.first_error.message}")


def _write(
    config: dict[str, Any],
    topic: str,
    partition: int | None,
    headers: list[tuple[str, bytes]],
    sources: list[Source],
    total: int | None,
    tally: Tally,
) -> None:
    from kraftlog.sdk.producer import Producer

    shown = total is not None or not sys.stdin.isatty()
    try:
        with (
            Producer(**config) as producer,
            ProgressBar(f"producing to {topic}", total=total, enabled=shown) as bar,
        ):
            sent = 0
            finished_bytes = 0
            for source in sources:
                for key, value in source:
                    _send(producer, topic, key, value, headers, partition, source.place, tally)
                    sent += 1
                    if sent % PROGRESS_EVERY == 0:
                        bar.update(sent, finished_bytes + source.position_bytes)
                    if tally.first_error is not None:
                        break
                finished_bytes += source.position_bytes
            producer.flush()
            bar.finish(sent)
    except KraftlogError:
        tally.raise_first()  # knows the place of the record
        raise
    tally.raise_first()


def _send(
    producer: "Producer",
    topic: str,
    key: bytes | None,
    value: bytes,
    headers: list[tuple[str, bytes]],
    partition: int | None,
    place: str,
    tally: Tally,
) -> None:
    try:
        future = producer.send(topic, value, key=key, headers=headers or None, partition=partition)
    except KraftlogError as error:
        raise error_for(error.code, f"{place}: {error.message}") from error
    except (TypeError, ValueError) as error:
        raise InvalidRecordError(f"{place}: {error}") from error
    future.add_done_callback(partial(tally.done, place))


def _summarise(topic: str, tally: Tally, seconds: float, acks: str, output_format: str) -> None:
    rate = tally.acknowledged / seconds if seconds > 0 else 0.0
    if output_format == "json":
        print_json(
            {
                "topic": topic,
                "records": tally.acknowledged,
                "partitions": {str(number): count for number, count in sorted(tally.partitions.items())},
                "seconds": round(seconds, 3),
                "records_per_second": round(rate, 1),
                "durability": tally.durability,
            }
        )
        return
    word = "sent (acks=0 promises nothing)" if acks == "0" else "acknowledged"
    durability = f", {tally.durability}" if tally.durability not in ("", "none") else ""
    click.echo(f"{plural(tally.acknowledged, 'record')} {word} in {seconds:.1f} s ({rate:,.0f}/s{durability})")
