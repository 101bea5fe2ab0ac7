"""`kraftctl log repair`: make a damaged log whole again, without losing anything that is valid."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.options import format_option
from kraftlog.sdk.cli.output import plural, print_json
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.log_paths import PathKind, check_folder, quiet_logstore, readable_errors

if TYPE_CHECKING:
    from kraftlog.logstore.repair import Repair
    from kraftlog.logstore.repair_plan import Cut


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@format_option
def repair(path: Path, dry_run: bool, output_format: str) -> None:
    """Repair PATH, a stopped node's log directory or a partition's folder, so that it opens without damage.

    Every valid batch stays. Bytes that are no batch are cut out and kept in a .cut file beside, which nothing reads; each
    cut is told with file, position, size and the offsets that are lost. Wrong header fields that can only have had one
    value are set right. Indexes, snapshots and leader epochs that do not fit are made anew. The recorded recovery point
    is lowered only if the log now ends before it.

    If another replica has the partition, prefer that: remove the folder here and let the node fetch it again.

    Exits 5 while a node uses the directory, 7 if something remains that cannot be repaired.

    \b
    Examples:
      kraftctl log repair data/orders-0 --dry-run
      kraftctl log repair ~/.local/share/kraftlog/node-1/data
    """
    from kraftlog.logstore.filesystem import RealFileSystem
    from kraftlog.logstore.inspect import to_dict
    from kraftlog.logstore.layout import LOCK_FILE
    from kraftlog.logstore.recorded import is_log_dir
    from kraftlog.logstore.repair import repair_log_dir, repair_partition

    fs = RealFileSystem()
    with readable_errors(), quiet_logstore():
        kind = check_folder(path)
        log_dir = path if kind is PathKind.LOG_DIR else path.absolute().parent
        lock = None
        if is_log_dir(fs, str(log_dir)):
            try:
                lock = fs.lock(str(log_dir / LOCK_FILE))
            except BlockingIOError:
                raise CommandError(
                    f"{log_dir} is in use by a running node", exit_code=ExitCode.CONFLICT, advice="Stop the node first."
                ) from None
        try:
            if kind is PathKind.LOG_DIR:
                repairs = repair_log_dir(fs, str(path), dry_run=dry_run)
            else:
                repairs = [repair_partition(fs, str(path), dry_run=dry_run)]
        finally:
            if lock is not None:
                lock.release()
    if output_format == "json":
        print_json({"dry_run": dry_run, "repairs": [to_dict(each) for each in repairs]})
    else:
        _print(repairs, dry_run)
    remaining = [problem for each in repairs for problem in each.remaining]
    if remaining:
        raise CommandError(
            f"{remaining[0]}" + (f" (and {plural(len(remaining) - 1, 'more problem')})" if len(remaining) > 1 else ""),
            exit_code=ExitCode.DAMAGED,
            advice="This cannot be repaired from the log alone.",
        )


def _print(repairs: "list[Repair]", dry_run: bool) -> None:
    for each in repairs:
        for line in _lines(each, dry_run):
            click.echo(line)
    if not any(each.problems or each.notes for each in repairs):
        click.echo("nothing to repair")


def _lines(repair: "Repair", dry_run: bool) -> list[str]:
    would = "would be " if dry_run else ""
    lines = [f"found: {problem}" for problem in repair.problems]
    lines += [f"{would}moved: {path} to {kept_in}" for path, kept_in in repair.moved]
    lines += [f"{would}cut: {_cut_line(cut)}" for cut in repair.cuts]
    lines += [
        f"{would}set right: {mend.path}: position {mend.position}, offset {mend.offset}: {mend.message}"
        for mend in repair.mends
    ]
    lines += [f"{would}rebuilt: {path}" for path in repair.rebuilt]
    if repair.recovery_point is not None:
        before, after = repair.recovery_point
        why = "records that were synced are gone" if after < before else "the repaired log is synced up to there"
        lines.append(
            f"recovery point {would}{'lowered' if after < before else 'raised'} from {before} to {after}: {why}"
        )
    return lines + [f"note: {note}" for note in repair.notes]


def _cut_line(cut: "Cut") -> str:
    if cut.end_offset is None:
        lost = f"offsets from {cut.first_offset} on"
    elif cut.end_offset == cut.first_offset:
        lost = "no offsets"
    else:
        lost = f"offsets {cut.first_offset} to {cut.end_offset - 1}"
    kept = f"kept in {cut.kept_in}" if cut.kept_in else "nothing to keep"
    return f"{cut.path}: position {cut.position}, {plural(cut.size_bytes, 'byte')}, lost {lost}: {cut.reason}; {kept}"
