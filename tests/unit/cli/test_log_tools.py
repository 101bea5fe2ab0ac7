"""`kraftctl log verify`, `repair` and `export` on a real directory."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from kraftlog.logstore import LogConfig, LogDir, RealFileSystem
from kraftlog.proto.records import CompressionType, end_transaction_marker
from kraftlog.sdk.cli import main
from tests.unit.logstore.builders import CLUSTER_ID, NOW_MS, append, batch, idempotent, open_log_dir

SEGMENT = "00000000000000000000.log"
COUNT = 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A log directory after an orderly stop; `t-0` has several segments."""
    log_dir = open_log_dir(RealFileSystem(), LogConfig(segment_bytes=600), str(tmp_path / "data"))
    log = log_dir.create_log("t", 0, bytes(15) + b"\1", now_ms=NOW_MS)
    for number in range(0, COUNT, 2):
        records = batch(f"v{number}", f"v{number + 1}", compression_type=CompressionType(number % 5))
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log_dir.close()
    return tmp_path / "data"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    """The JSON document that a command prints."""
    assert main.run([*map(str, arguments), "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


def damage(home: Path) -> None:
    path = home / "t-0" / SEGMENT
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)


def test_verify_says_that_all_is_well(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    top, report = run(capsys, "log", "verify", home)
    assert (top["problems"], report["problems"], report["notes"]) == ([], [], [])
    assert (report["record_count"], report["log_end_offset"]) == (COUNT, COUNT)
    assert main.run(["log", "verify", str(home / "t-0")]) == 0
    assert str(COUNT) in capsys.readouterr().out


def test_verify_lists_problems_with_file_position_and_offset(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(home)
    _, report = run(capsys, "log", "verify", home, code=7)
    problem = report["problems"][0]
    assert (problem["path"], problem["position"], problem["offset"]) == (str(home / "t-0" / SEGMENT), 0, 0)
    assert main.run(["log", "verify", str(home)]) == 7
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert f"problem: {home}/t-0/{SEGMENT}: position 0, offset 0: " in captured.out


def test_repair_tells_what_it_cut_and_the_log_opens(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(home)
    before = (home / "t-0" / SEGMENT).read_bytes()
    planned = run(capsys, "log", "repair", home, "--dry-run")
    assert (home / "t-0" / SEGMENT).read_bytes() == before
    assert main.run(["log", "repair", str(home)]) == 0
    captured = capsys.readouterr()
    (cut,) = planned["repairs"][1]["cuts"]
    kept = home / "t-0" / f"{SEGMENT}.0.cut"
    assert f"cut: {home}/t-0/{SEGMENT}: position 0, {cut['size_bytes']} bytes, lost offsets 0 to 1" in captured.out
    assert f"kept in {kept}" in captured.out
    assert captured.err == ""
    assert kept.read_bytes() == before[: cut["size_bytes"]]
    run(capsys, "log", "verify", home)
    log_dir = LogDir.open(str(home), fs=RealFileSystem(), node_id=1, cluster_id=CLUSTER_ID, now_ms=NOW_MS)
    assert log_dir.logs["t", 0].damage is None
    log_dir.close()
    assert main.run(["log", "repair", str(home)]) == 0
    assert capsys.readouterr().out == "nothing to repair\n"
    assert kept.exists(), "loading leaves it alone"


@pytest.mark.parametrize("folder", ["", "t-0"])
def test_repair_refuses_while_a_node_runs(home: Path, capsys: pytest.CaptureFixture[str], folder: str) -> None:
    lock = RealFileSystem().lock(str(home / ".lock"))
    try:
        assert main.run(["log", "repair", str(home / folder)]) == 5
    finally:
        lock.release()
    assert "in use by a running node" in capsys.readouterr().err


def test_export_writes_json_lines(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["log", "export", str(home / "t-0"), "--from-offset", "3", "--to-offset", "9"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(record["offset"], record["value"]) for record in records] == [(n, f"v{n}") for n in range(3, 9)]
    assert records[0]["topic"] == "t"
    assert records[0]["timestamp"] == NOW_MS + 1


@pytest.mark.parametrize("suffix", [".arrow", ".parquet", ".jsonl"])
def test_export_writes_files(home: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    target = home.parent / f"out{suffix}"
    document = run(capsys, "log", "export", home / "t-0", target, "--from-offset", 5)
    assert (document["records"], document["bytes"]) == (COUNT - 5, target.stat().st_size)
    if suffix == ".jsonl":
        rows = [(row["offset"], row["value"].encode()) for row in map(json.loads, target.read_text().splitlines())]
    else:
        table = pyarrow.parquet.read_table(target) if suffix == ".parquet" else pa.ipc.open_file(target).read_all()
        assert table.schema.names == [
            "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
        ]  # fmt: skip
        rows = list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert rows == [(n, b"v%d" % n) for n in range(5, COUNT)]
    assert main.run(["log", "export", str(home / "t-0"), str(target)]) == 5
    assert "exists" in capsys.readouterr().err
    assert main.run(["log", "export", str(home / "t-0"), str(target), "--force"]) == 0


def test_export_stops_at_damage_unless_it_is_told_otherwise(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(home)
    target = home.parent / "out.arrow"
    assert main.run(["log", "export", str(home / "t-0"), str(target)]) == 7
    assert f"{SEGMENT}: " in capsys.readouterr().err
    assert list(home.parent.iterdir()) == [home], "no half file is left"
    document = run(capsys, "log", "export", home / "t-0", target, "--skip-damage")
    assert document["records"] == COUNT - 2


def test_export_without_pyarrow_says_how_to_get_it(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main.run(["log", "export", str(home / "t-0"), str(home.parent / "x.parquet")]) == 1
    assert "pip install 'kraftlog[arrow]'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "repair", "export", "inspect"])
@pytest.mark.parametrize(
    ("name", "code", "text"), [("missing", 4, "no such file"), ("plain", 6, "neither a log directory")]
)
def test_bad_input_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, code: int, text: str
) -> None:
    (tmp_path / "plain").mkdir()
    assert main.run(["log", command, str(tmp_path / name)]) == code
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["verify", "repair", "export", "inspect"])
def test_files_that_may_not_be_read_are_told(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Root may read everything, so the refusal is planted."""
    real_open = os.open

    def refuse(path: str, *rest: Any, **more: Any) -> int:
        if str(path).endswith(".log"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    assert main.run(["log", command, str(home / "t-0")]) == 6
    error = capsys.readouterr().err
    assert f"{SEGMENT}: Permission denied" in error
    assert error.count("\n") == 1


def test_inspect_shows_transactions_and_producers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir = open_log_dir(RealFileSystem(), None, str(tmp_path / "data"))
    log = log_dir.create_log("t", 0, now_ms=NOW_MS)
    append(log, "plain")
    log.append_as_leader(idempotent(8, 0, 2, is_transactional=True), leader_epoch=0, now_ms=NOW_MS)
    marker = end_transaction_marker(False, 3, producer_id=8, producer_epoch=0, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, leader_epoch=0, now_ms=NOW_MS, allow_control=True)
    log_dir.close()
    (document,) = run(capsys, "log", "inspect", tmp_path / "data" / "t-0", "--records")
    aborted = {"producer_id": 8, "first_offset": 1, "last_offset": 3, "last_stable_offset": 4}
    assert document["segments"][0]["aborted"] == [aborted]
    (snapshot,) = document["snapshots"]
    assert (snapshot["offset"], [producer["producer_id"] for producer in snapshot["producers"]]) == (4, [8])
    assert main.run(["log", "inspect", str(tmp_path / "data"), "--records"]) == 0
    text = capsys.readouterr().out
    assert "aborted: producer_id=8  first_offset=1  last_offset=3  last_stable_offset=4" in text
    assert "producer 8/0: sequences 0 to 1 at offset 1" in text
    index = tmp_path / "data" / "t-0" / "00000000000000000000.txnindex"
    (document,) = run(capsys, "log", "inspect", index)
    assert document["entries"] == [aborted]
