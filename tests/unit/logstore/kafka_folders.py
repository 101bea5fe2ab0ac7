"""What must hold of a log directory that Apache Kafka wrote, by what Kafka itself said of it (`expected.json`).

Used on the captured directories in `tests/data/kafka_folders` and on fresh ones (`tests/peers`).
"""

import base64
import functools
import json
import tarfile
from pathlib import Path
from typing import Any

from kraftlog.logstore import Log, LogConfig, LogDir, RealFileSystem
from kraftlog.logstore.checkpoints import read_epoch_checkpoint, read_properties
from kraftlog.logstore.export import iter_runs
from kraftlog.logstore.inspect import (
    inspect_directory,
    iter_batches,
    read_snapshot,
    read_transaction_index,
    to_dict,
)
from kraftlog.logstore.verify import verify_log_dir
from kraftlog.proto.records import Record, decode_batch, decode_records, iter_headers
from tests.unit.logstore.builders import NOW_MS, batch, idempotent
from tests.unit.logstore.kafka_dump import Lines, aborted_line, batch_line, last_of_each, producer_line

VECTORS = Path(__file__).parents[2] / "data" / "kafka_folders"
FS = RealFileSystem()


def unpack(name: str, directory: Path) -> Path:
    """A captured log directory, in `directory`."""
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
    return directory


@functools.cache
def members(name: str) -> dict[str, bytes | None]:
    """The files of a captured log directory by their path in it; None for folders."""
    with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
        files = {each.name: archive.extractfile(each) for each in archive.getmembers()}
        return {path: file.read() if file is not None else None for path, file in files.items()}


def expected_of(log_dir: Path) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = json.loads((log_dir / "expected.json").read_text())
    return document


def open_written_by_kafka(log_dir: Path, config: LogConfig | None = None) -> LogDir:
    meta = read_properties(FS, str(log_dir / "meta.properties"))
    assert meta is not None
    return LogDir.open(
        str(log_dir), fs=FS, node_id=int(meta["node.id"]), cluster_id=meta["cluster.id"], now_ms=NOW_MS, config=config
    )


def segment_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def read_all(log: Log, start_offset: int, max_bytes: int = 700) -> bytes:
    """What readers get, from `start_offset` to the end."""
    offset, found = start_offset, []
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes, end_offset=log.log_end_offset)
        found.append(bytes(result.records))
        assert result.next_offset > offset
        offset = result.next_offset
    return b"".join(found)


def row(record: Record) -> list[str]:
    """A record as `expected.json` has it."""
    fields = [record.offset, record.timestamp, int(record.timestamp_type), record.leader_epoch]
    parts = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    return [*map(str, fields), *("-" if part is None else base64.b64encode(part).decode() for part in parts)]


def committed_offsets(log: Log, records: list[Record], data: bytes) -> list[int]:
    """Offsets that a read_committed consumer is given: as the consumer does it, by the list of aborted transactions."""
    stable = log.last_stable_offset(log.log_end_offset)
    aborted = log.aborted_transactions(log.log_start_offset, stable)
    doomed = set()
    for _, header in iter_headers(data):
        is_aborted = any(
            header.producer_id == each.producer_id and each.first_offset <= header.base_offset < each.last_offset
            for each in aborted
        )
        if header.is_transactional and is_aborted:
            doomed |= set(range(header.base_offset, header.next_offset))
    return [record.offset for record in records if record.offset < stable and record.offset not in doomed]


def check_agrees_with_dump(folder: Path, dump: dict[str, Lines]) -> int:
    """Every batch, aborted transaction and producer as `kafka-dump-log` printed them; how many there were."""
    compared = 0
    for name, lines in dump.items():
        path = str(folder / name)
        if name.endswith(".log"):
            ours = [batch_line(to_dict(found)) for found in iter_batches(FS, path)]
            theirs = lines
        elif name.endswith(".txnindex"):
            ours, theirs = [aborted_line(to_dict(found)) for found in read_transaction_index(FS, path)], lines
        else:
            ours = [producer_line(to_dict(found)) for found in read_snapshot(FS, path)]
            theirs = last_of_each(lines)
        assert ours == theirs, path
        compared += len(ours)
    return compared


def problems_in(log_dir: Path) -> list[str]:
    """What `verify` finds, but in Kafka's metadata log: its indexes are unfinished also after an orderly stop."""
    problems = [problem for report in verify_log_dir(FS, str(log_dir)) for problem in report.problems]
    return [str(problem) for problem in problems if "/__cluster_metadata-0/" not in problem.path]


def check_tools(log_dir: Path, expected: dict[str, dict[str, Any]]) -> None:
    """The offline tools, before anything has opened the directory: no false alarm, every byte."""
    assert problems_in(log_dir) == []
    for topic, facts in expected.items():
        folder = log_dir / f"{topic}-0"
        assert check_agrees_with_dump(folder, facts["dump"])
        assert b"".join(iter_runs(FS, str(folder))) == segment_bytes(folder)
        info = inspect_directory(FS, str(folder))
        assert info.segments[-1].next_offset == facts["offsets"][1]


def check_log(log: Log, folder: Path, facts: dict[str, Any], written: bytes) -> None:
    """An opened log against what Kafka's clients saw of it. `written`: what Kafka wrote into its segments."""
    assert log.damage is None
    start, end, stable, _ = facts["offsets"]
    assert log.log_start_offset <= start
    log.advance_log_start_offset(start)  # a killed Kafka has not recorded it
    assert (log.log_end_offset, log.last_stable_offset(log.log_end_offset)) == (end, stable)
    assert segment_bytes(folder)[: len(written)] == written, "opening changes no batch"
    data = read_all(log, log.log_start_offset)
    assert data == written[-len(data) :], "readers get Kafka's bytes"
    assert len(data) == len(written) - before(written, log.log_start_offset)
    is_compacted = any(header.record_count <= header.last_offset_delta for _, header in iter_headers(data))
    records = decode_records(data, topic=log.topic, partition=0, min_offset=start)
    assert [row(record) for record in records] == facts["records"]
    assert committed_offsets(log, records, data) == facts["committed"]
    for asked, *answer in facts["times"]:
        found = log.offset_for_time(asked)
        ours = ["-", "-"] if found is None else [str(found[0]), str(found[1])]
        # Kafka gives up in a segment whose largest timestamp is that of an emptied batch; the record is in a later one.
        assert ours == answer or (is_compacted and answer == ["-", "-"] and ours == first_from(asked, data)), asked


def first_from(timestamp: int, data: bytes) -> list[str]:
    """Offset and timestamp of the first record with at least that timestamp, markers included; looks at each."""
    batches = (decode_batch(data, position) for position, _ in iter_headers(data))
    found = next((each for records in batches for each in records if each.timestamp >= timestamp), None)
    return ["-", "-"] if found is None else [str(found.offset), str(found.timestamp)]


def before(data: bytes, offset: int) -> int:
    """Bytes of the batches that end before `offset`."""
    return sum(header.size_bytes for _, header in iter_headers(data) if header.last_offset < offset)


def append_more(log: Log, rounds: int = 12) -> None:
    """What a node goes on with: batches of new producers, with rolls in between."""
    assert log.epochs.latest_epoch <= 7
    for number in range(rounds):
        log.append_as_leader(idempotent(1_000_000, number), leader_epoch=7, now_ms=NOW_MS)
        log.append_as_leader(batch("more", timestamps=[NOW_MS + number]), leader_epoch=7, now_ms=NOW_MS)
        if number % 4 == 3:
            log.roll()


def epochs_in(folder: Path) -> tuple[tuple[int, int], ...]:
    return tuple(read_epoch_checkpoint(FS, str(folder / "leader-epoch-checkpoint")) or ())
