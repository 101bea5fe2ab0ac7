"""Comparing `kafka-dump-log` with `kraftctl log inspect`, file by file, on whole log directories."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import kafka
from tests.unit.logstore.kafka_dump import (
    Lines,
    aborted_line,
    batch_line,
    entry_line,
    last_of_each,
    parse_dump,
    producer_line,
    record_line,
)

_COMPLAINT = re.compile(
    r"^mismatch|index timestamp.* log timestamp: (?!-1$)|out of order|corrupt|exception|isvalid: false|error|not found",
    re.IGNORECASE,
)
_GAP = re.compile(r"^ {2}(-?\d+) is followed by (\d+)$", re.MULTILINE)
_MAX_ARGUMENT = 100_000  # the system takes 128 KiB


def dump(paths: list[Path], *options: str) -> str:
    """The tool's output for files that have content."""
    arguments = [""]
    for path in paths:
        if path.stat().st_size:
            if len(arguments[-1]) + len(str(path)) > _MAX_ARGUMENT:
                arguments.append("")
            arguments[-1] += f",{path}"
    return "\n".join(kafka.dump_log("--files", files[1:], *options) for files in arguments if files)


def complaints_in(output: str) -> list[str]:
    """What the tool finds wrong, but for two things that it says of Kafka's own files as well.

    Gaps between offsets are for the caller to judge, see `gaps_in`. And where a time index leads to a batch that
    compaction emptied, it misses the record ("log timestamp: -1"); the batch's header has the timestamp.
    """
    return [line for line in output.splitlines() if _COMPLAINT.search(line.strip())]


def gaps_in(output: str) -> set[tuple[int, int]]:
    """(last offset before, first offset after) wherever a file's record offsets do not go on; -1 before its first."""
    return {(int(last), int(first)) for last, first in _GAP.findall(output)}


def inspect(*paths: Path) -> list[dict[str, Any]]:
    """What `kraftctl log inspect --records` prints."""
    kraftctl = Path(sys.executable).with_name("kraftctl")
    command = [kraftctl, "log", "inspect", *map(str, paths), "--records", "--format", "json"]
    documents: list[dict[str, Any]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return documents


def check_agreement(log_dir: Path) -> dict[str, int]:
    """Every file of every partition; how many things of each kind were compared, by the file's suffix."""
    folders = [path for path in sorted(log_dir.iterdir()) if path.is_dir()]
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    logs = [path for path in files if path.suffix == ".log"]
    dumped_logs = dump(logs, "--print-data-log", "--deep-iteration")
    dumped_rest = dump([path for path in files if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot")])
    assert complaints_in(dumped_logs) == []
    assert complaints_in(dumped_rest) == []
    theirs = parse_dump(f"{dumped_logs}\n{dumped_rest}")
    ours = _ours(log_dir)
    compared: dict[str, int] = {}
    for path, lines in theirs.items():
        suffix = Path(path).suffix
        expected = last_of_each(lines) if suffix == ".snapshot" else lines
        assert ours.pop(path) == expected, path
        compared[suffix] = compared.get(suffix, 0) + len(expected)
    assert not any(ours.values()), "files that Kafka's tool did not read"
    return compared


def _ours(log_dir: Path) -> dict[str, Lines]:
    (document,) = inspect(log_dir)
    found: dict[str, Lines] = {}
    for partition in document["partitions"]:
        for segment in partition["segments"]:
            lines: Lines = []
            for batch in segment["batches"]:
                lines.append(batch_line(batch))
                lines += [record_line(record, batch) for record in batch["records"]]
            found[segment["path"]] = lines
            found[segment["path"].removesuffix(".log") + ".txnindex"] = [
                aborted_line(each) for each in segment["aborted"]
            ]
        for snapshot in partition["snapshots"]:
            found[snapshot["path"]] = [producer_line(each) for each in snapshot["producers"]]
    indexes = [path for path in sorted(log_dir.glob("*/*index")) if path.suffix in (".index", ".timeindex")]
    for index in inspect(*indexes):
        found[index["path"]] = [entry_line(entry) for entry in index["entries"]]
    return found
