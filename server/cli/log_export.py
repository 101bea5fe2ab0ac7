"""`kraftctl log export`: a partition's records out of its files, as JSON lines, Arrow IPC or Parquet."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import note, plural, print_json
from kraftlog.sdk.cli.record_format import to_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.log_paths import PathKind, check_folder, readable_errors

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {".jsonl": "json", ".json": "json", ".arrow": "arrow", ".parquet": "parquet"}


@click.command()
@click.argument("path", metavar="FOLDER", type=click.Path(path_type=Path))
@click.argument("target", metavar="FILE", default="-")
@click.option("--from-offset", type=click.IntRange(min=0), default=0, help="First offset.", show_default=True)
@click.option("--to-offset", type=click.IntRange(min=0), help="End, exclusive. [default: the log's end]")
@click.option("--as", "kind", type=click.Choice(["json", "arrow", "parquet"]), help="[default: by the name of FILE]")
@click.option("--skip-damage", is_flag=True, help="Leave out what is damaged instead of stopping there.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@format_option
def export(
    path: Path,
    target: str,
    from_offset: int,
    to_offset: int | None,
    kind: str | None,
    skip_damage: bool,
    force: bool,
    output_format: str,
) -> None:
    """Write the records in FOLDER, a partition's, to FILE: .jsonl, .arrow (IPC file) or .parquet; - is standard output.

    JSON lines are those of `kraftctl consume --format json`. Arrow and Parquet have the columns of Spark's Kafka source
    (key, value, topic, partition, offset, timestamp, timestampType, headers) and need pyarrow. All records that are
    stored come, those of aborted transactions too; control records do not.

    Exits 7 at damage; FILE then is not written.

    \b
    Examples:
      kraftctl log export data/orders-0 | head
      kraftctl log export data/orders-0 orders.parquet --from-offset 1000 --to-offset 2000
      kraftctl log export data/orders-0 orders.arrow --skip-damage
    """
    if check_folder(path) is not PathKind.PARTITION:
        raise CommandError(
            f"{path} is a log directory: name one partition's folder in it", exit_code=ExitCode.INVALID_INPUT
        )
    kind = kind or ("json" if target == "-" else KINDS.get(Path(target).suffix))
    if kind is None:
        raise CommandError(
            f"{target}: neither .jsonl, .arrow nor .parquet",
            exit_code=ExitCode.INVALID_INPUT,
            advice="Name one, or give --as.",
        )
    if target != "-" and os.path.exists(target) and not force:
        raise CommandError(f"{target} exists", exit_code=ExitCode.CONFLICT, advice="Give another name, or --force.")
    write = _writer(kind)
    from kraftlog.logstore.export import iter_runs
    from kraftlog.logstore.filesystem import RealFileSystem

    with readable_errors():
        runs = iter_runs(
            RealFileSystem(), str(path), start_offset=from_offset, end_offset=to_offset, skip_damage=skip_damage
        )
        with _sink(target) as sink:
            count = write(runs, sink, _name(path), from_offset, to_offset)
    if target == "-":
        return
    if output_format == "json":
        print_json({"file": target, "records": count, "bytes": os.path.getsize(target)})
    else:
        note(f"{plural(count, 'record')} in {target}")


Write = Callable[[Iterator[bytes], IO[bytes], tuple[str, int], int, int | None], int]
"""(runs of batches, file, (topic, partition), first offset, end offset) -> number of records"""


def _writer(kind: str) -> Write:
    if kind == "json":
        return _write_json
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise CommandError(
            f"{kind} needs pyarrow",
            exit_code=ExitCode.FAILED,
            advice="Run: pip install 'kraftlog[arrow]', or export .jsonl.",
        ) from None
    return _write_arrow if kind == "arrow" else _write_parquet


def _name(path: Path) -> tuple[str, int]:
    from kraftlog.logstore.layout import parse_log_directory

    name = parse_log_directory(path.absolute().name)
    assert name is not None, "checked by check_folder"
    return name


@contextlib.contextmanager
def _sink(target: str) -> Iterator[IO[bytes]]:
    """The file to write, which takes its name only when it is complete; or standard output."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    temporary = f"{target}.tmp"
    try:
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _write_json(runs: Iterator[bytes], sink: IO[bytes], name: tuple[str, int], start: int, end: int | None) -> int:
    from kraftlog.proto.records import decode_records

    count = 0
    for run in runs:
        records = decode_records(run, topic=name[0], partition=name[1], min_offset=start, check=False)
        lines = [to_json(record) for record in records if end is None or record.offset < end]
        sink.write(b"".join(lines))
        count += len(lines)
    return count


def _tables(runs: Iterator[bytes], name: tuple[str, int], start: int, end: int | None) -> "Iterator[pa.RecordBatch]":
    from kraftlog.proto.records.arrow import COLUMN_TYPES, decode_arrow

    for run in runs:
        yield decode_arrow(
            [run],
            topic=name[0],
            partition=name[1],
            min_offset=start,
            end_offset=end,
            columns=list(COLUMN_TYPES),
            check=False,
        )


def _write_arrow(runs: Iterator[bytes], sink: IO[bytes], name: tuple[str, int], start: int, end: int | None) -> int:
    import pyarrow as pa

    def new_writer(schema: pa.Schema) -> Any:
        return pa.ipc.new_file(sink, schema)

    return _write_tables(_tables(runs, name, start, end), new_writer)


def _write_parquet(runs: Iterator[bytes], sink: IO[bytes], name: tuple[str, int], start: int, end: int | None) -> int:
    import pyarrow.parquet

    def new_writer(schema: "pa.Schema") -> Any:
        return pyarrow.parquet.ParquetWriter(sink, schema)

    return _write_tables(_tables(runs, name, start, end), new_writer)


def _write_tables(tables: "Iterator[pa.RecordBatch]", new_writer: "Callable[[pa.Schema], Any]") -> int:
    from kraftlog.proto.records.arrow import COLUMN_TYPES, schema

    count = 0
    with new_writer(schema(list(COLUMN_TYPES))) as writer:
        for table in tables:
            writer.write_batch(table)
            count += table.num_rows
    return count
