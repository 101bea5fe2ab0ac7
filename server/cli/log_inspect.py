"""`kraftctl log inspect`: a node's files as they lie."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import plural, print_json, table
from kraftlog.sdk.cli.record_format import to_document
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.log_paths import PathKind, check_path, readable_errors

if TYPE_CHECKING:
    from kraftlog.logstore.inspect import BatchInfo, PartitionInfo, SegmentInfo

TORN_NOTE = "a write that a crash cut off; the next start removes it"


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--batches", is_flag=True, help="Also each record batch.")
@click.option(
    "--records", is_flag=True, help="Also each record, and what indexes and snapshots hold (implies --batches)."
)
@format_option
def inspect(paths: tuple[Path, ...], batches: bool, records: bool, output_format: str) -> None:
    """Show what is in PATH: a node's log directory, a partition's folder, or one of its files.

    Of a folder, --records also shows the aborted transactions of each segment and the producers of each snapshot.

    Every batch is read and its checksum verified. Exits 7 if something is damaged; the torn end of a log after a crash
    is not damage. The files may belong to a running node, whose last segment is then read as far as it is written.

    \b
    Examples:
      kraftctl log inspect ~/.local/share/kraftlog/node-1/data
      kraftctl log inspect data/orders-0 --batches
      kraftctl log inspect data/orders-0/00000000000000000000.log --records --format json
      kraftctl log inspect data/orders-0/*.txnindex data/orders-0/*.snapshot
    """
    documents = []
    for path in paths:
        with readable_errors():
            document = _inspect(path, batches or records, records)
        documents.append(document)
        if output_format == "text":
            _print(document)
    if output_format == "json":
        print_json(documents)
    damage = [line for document in documents for line in _damage(document)]
    if damage:
        raise CommandError(
            f"{damage[0]}" + (f" (and {plural(len(damage) - 1, 'more finding')})" if len(damage) > 1 else ""),
            exit_code=ExitCode.DAMAGED,
            advice="Stop the node and run: kraftctl log verify, then kraftctl log repair --dry-run.",
        )


def _inspect(path: Path, batches: bool, records: bool) -> dict[str, Any]:
    """What lies at `path`, as plain values; the key `kind` says which."""
    from kraftlog.logstore.layout import META_PROPERTIES_FILE, parse_log_directory

    if check_path(path) is PathKind.FILE:
        return _inspect_file(path, batches, records)
    if check_path(path) is PathKind.PARTITION:
        return _inspect_partition(path, batches, records)
    named = [(parse_log_directory(each.name), each) for each in path.iterdir() if each.is_dir()]
    folders = [folder for name, folder in sorted((name, folder) for name, folder in named if name is not None)]
    return {
        "kind": "log_dir",
        "path": str(path),
        "meta": _properties(path / META_PROPERTIES_FILE),
        "partitions": [_inspect_partition(folder, batches, records) for folder in folders],
    }


def _properties(path: Path) -> dict[str, str]:
    from kraftlog.proto.properties import read_properties

    return read_properties(path)


def _inspect_partition(path: Path, batches: bool, records: bool) -> dict[str, Any]:
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import inspect_directory, to_dict
    from kraftlog.logstore.layout import LOG_SUFFIX, TXN_INDEX_SUFFIX

    info: PartitionInfo = inspect_directory(RealFileSystem(), str(path))
    document: dict[str, Any] = {"kind": "partition", **to_dict(info)}
    document["segments"] = [_segment(segment, batches, records) for segment in info.segments]
    if records:
        for segment in document["segments"]:
            index = segment["path"].removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
            segment["aborted"] = _entries(Path(index)) if os.path.exists(index) else []
        document["snapshots"] = [
            {"path": snapshot, "offset": int(os.path.basename(snapshot)[:20]), "producers": _entries(Path(snapshot))}
            for snapshot in info.snapshot_paths
        ]
    return document


def _inspect_file(path: Path, batches: bool, records: bool) -> dict[str, Any]:
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import inspect_segment
    from kraftlog.logstore.layout import parse_segment_file

    if parse_segment_file(path.name) is None:
        raise CommandError(
            f"{path}: not a file of a log",
            exit_code=ExitCode.INVALID_INPUT,
            advice="Name a .log, .index, .timeindex, .txnindex or .snapshot file, 20 digits before the dot.",
        )
    if path.suffix == ".log":
        return {"kind": "segment", **_segment(inspect_segment(RealFileSystem(), str(path)), batches, records)}
    return {"kind": path.suffix[1:], "path": str(path), "entries": _entries(path)}


def _entries(path: Path) -> list[dict[str, Any]]:
    """What an index or a snapshot holds."""
    from kraftlog.logstore import inspect as files
    from kraftlog.logstore.filesystem import FileSystem, RealFileSystem
    from kraftlog.proto.errors import CorruptRecordError

    readers: dict[str, Callable[[FileSystem, str], Iterable[Any]]] = {
        ".index": files.iter_offset_index,
        ".timeindex": files.iter_time_index,
        ".txnindex": files.read_transaction_index,
        ".snapshot": files.read_snapshot,
    }
    try:
        return [files.to_dict(entry) for entry in readers[path.suffix](RealFileSystem(), str(path))]
    except (ValueError, CorruptRecordError) as error:
        text = str(error).removeprefix(f"{path}: ")
        raise CommandError(f"{path}: {text}", exit_code=ExitCode.DAMAGED) from error


def _segment(segment: "SegmentInfo", batches: bool, records: bool) -> dict[str, Any]:
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import iter_batches, to_dict

    document: dict[str, Any] = to_dict(segment)
    if batches:
        found = iter_batches(RealFileSystem(), segment.path)
        document["batches"] = [
            {**to_dict(batch), **({"records": _records(segment.path, batch)} if records else {})} for batch in found
        ]
    return document


def _records(path: str, batch: "BatchInfo") -> list[dict[str, Any]]:
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import read_records

    if not batch.is_crc_valid:
        return []
    return [to_document(record) for record in read_records(RealFileSystem(), path, batch)]


def _damage(document: dict[str, Any]) -> Iterator[str]:
    """What is wrong, one sentence each."""
    for partition in document.get("partitions", ()):
        yield from _damage(partition)
    segments = [document] if document["kind"] == "segment" else document.get("segments", ())
    for segment in segments:
        if segment["invalid_batch_count"]:
            yield f"{segment['path']}: {segment['invalid_batch_count']} of {segment['batch_count']} batches fail their checksum"
        tail = segment["tail"]
        if tail is not None and tail["kind"] == "damaged":
            yield (
                f"{segment['path']}: {tail['next_valid_position'] - tail['position']} bytes at position "
                f"{tail['position']} are no batch, and valid ones follow"
            )


def _print(document: dict[str, Any]) -> None:
    match document["kind"]:
        case "log_dir":
            meta = document["meta"]
            click.echo(
                f"log directory {document['path']}: cluster {meta.get('cluster.id')}, node {meta.get('node.id')}"
            )
            rows = [_partition_row(partition) for partition in document["partitions"]]
            if rows:
                click.echo(table(("partition", "segments", "start", "end", "records", "bytes", "sound"), rows))
            for partition in document["partitions"]:
                if any("batches" in segment for segment in partition["segments"]):
                    _print(partition)
        case "partition":
            name = os.path.basename(os.path.abspath(document["path"]))
            topic_id = f", topic id {document['topic_id']}" if document["topic_id"] else ""
            click.echo(f"partition {name}{topic_id}")
            epochs = ", ".join(f"{epoch} from offset {start}" for epoch, start in document["leader_epochs"])
            click.echo(f"leader epochs: {epochs or 'none'}")
            for segment in document["segments"]:
                _print_segment(segment)
            for snapshot in document.get("snapshots", ()):
                click.echo(
                    f"snapshot {os.path.basename(snapshot['path'])}: {plural(len(snapshot['producers']), 'producer')}"
                )
                for producer in snapshot["producers"]:
                    click.echo(f"  {_producer_line(producer)}")
        case "segment":
            _print_segment(document)
        case "snapshot":
            for entry in document["entries"]:
                click.echo(_producer_line(entry))
        case _:
            for entry in document["entries"]:
                click.echo(_entry_line(entry))


def _entry_line(entry: dict[str, Any]) -> str:
    return "  ".join(f"{key}={value}" for key, value in entry.items())


def _producer_line(producer: dict[str, Any]) -> str:
    batches = ", ".join(
        f"sequences {batch['base_sequence']} to {batch['last_sequence']} at offset {batch['first_offset']}"
        for batch in producer["batches"]
    )
    start = producer["transaction_first_offset"]
    return (
        f"producer {producer['producer_id']}/{producer['producer_epoch']}: {batches or 'no batches'}, "
        f"last timestamp {producer['last_timestamp']}, coordinator epoch {producer['coordinator_epoch']}"
        f"{'' if start is None else f', transaction open from offset {start}'}"
    )


def _partition_row(partition: dict[str, Any]) -> tuple[object, ...]:
    segments = partition["segments"]
    return (
        os.path.basename(os.path.abspath(partition["path"])),
        len(segments),
        segments[0]["base_offset"] if segments else None,
        segments[-1]["next_offset"] if segments else None,
        sum(segment["record_count"] for segment in segments),
        sum(segment["size_bytes"] for segment in segments),
        "no" if list(_damage(partition)) else "yes",
    )


def _print_segment(segment: dict[str, Any]) -> None:
    click.echo(
        f"segment {os.path.basename(segment['path'])}: offsets {segment['base_offset']} to {segment['next_offset'] - 1}, "
        f"{plural(segment['record_count'], 'record')} in {segment['batch_count']:,} batches, {segment['size_bytes']:,} bytes"
        if segment["batch_count"]
        else f"segment {os.path.basename(segment['path'])}: empty, from offset {segment['base_offset']}"
    )
    tail = segment["tail"]
    if tail is not None and tail["kind"] != "preallocated":
        meaning = TORN_NOTE if tail["kind"] == "torn" else "valid batches follow: this is damage"
        click.echo(f"  {tail['kind']} from position {tail['position']}, {tail['size_bytes']:,} bytes: {meaning}")
    for batch in segment.get("batches", ()):
        _print_batch(batch)
    for aborted in segment.get("aborted", ()):
        click.echo(f"  aborted: {_entry_line(aborted)}")


def _print_batch(batch: dict[str, Any]) -> None:
    marks = [name for name in ("is_control", "is_transactional") if batch[name]]
    producer = f", producer {batch['producer_id']}/{batch['producer_epoch']} from {batch['base_sequence']}"
    click.echo(
        f"  at {batch['position']}: offsets {batch['base_offset']} to {batch['last_offset']}, epoch {batch['leader_epoch']}, "
        f"{batch['compression']}, {batch['size_bytes']} bytes"
        f"{producer if batch['producer_id'] >= 0 else ''}{''.join(', ' + mark[3:] for mark in marks)}"
        f"{'' if batch['is_crc_valid'] else ', CHECKSUM WRONG'}"
    )
    for record in batch.get("records", ()):
        click.echo(
            f"    {record['offset']}  {record['timestamp']}  "
            f"key={record.get('key', record.get('key_base64'))}  {record.get('value', record.get('value_base64'))}"
        )
