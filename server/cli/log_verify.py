"""`kraftctl log verify`: whether a log directory or a partition's folder is what it claims to be."""

from pathlib import Path
from typing import Any

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import plural, print_json, table
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.log_paths import PathKind, check_folder, quiet_logstore, readable_errors


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
def verify(paths: tuple[Path, ...], output_format: str) -> None:
    """Check PATH, a node's log directory or a partition's folder, and list what is wrong. Changes nothing.

    Reads every byte: checksums, records, offsets and leader epochs of all batches; whether every index entry leads to
    its batch and every time index entry is true; whether transaction index and producer snapshots are what a replay
    gives; whether the checkpoints are sane and the log reaches the recorded flushed end.

    Notes are what a crash or a running node leaves and the next start takes care of. Exits 7 if there is any problem.

    \b
    Examples:
      kraftctl log verify ~/.local/share/kraftlog/node-1/data
      kraftctl log verify data/orders-0 data/orders-1 --format json
    """
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import to_dict
    from kraftlog.logstore.verify import verify_log_dir, verify_partition

    fs = RealFileSystem()
    reports = []
    with readable_errors(), quiet_logstore():
        for path in paths:
            if check_folder(path) is PathKind.LOG_DIR:
                reports += verify_log_dir(fs, str(path))
            else:
                reports.append(verify_partition(fs, str(path)))
    if output_format == "json":
        print_json([to_dict(report) for report in reports])
    else:
        _print([to_dict(report) for report in reports])
        for report in reports:
            for problem in report.problems:
                click.echo(f"problem: {problem}")
            for finding in report.notes:
                click.echo(f"note: {finding}")
    problems = [problem for report in reports for problem in report.problems]
    if problems:
        raise CommandError(
            f"{problems[0]}" + (f" (and {plural(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""),
            exit_code=ExitCode.DAMAGED,
            advice="A replica elsewhere has the records; without one stop the node and run: kraftctl log repair --dry-run.",
        )


def _print(reports: list[dict[str, Any]]) -> None:
    rows = [
        (
            report["path"],
            report["segment_count"],
            report["log_start_offset"],
            report["log_end_offset"],
            report["batch_count"],
            report["record_count"],
            report["size_bytes"],
            len(report["problems"]),
        )
        for report in reports
        if report["segment_count"]
    ]
    if rows:
        click.echo(table(("folder", "segments", "start", "end", "batches", "records", "bytes", "problems"), rows))
