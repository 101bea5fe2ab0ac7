"""`kraftctl log inspect` on files made for the purpose: sound, torn, damaged, foreign."""

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlog.proto.records import BatchBuilder, CompressionType
from kraftlog.sdk.cli import main

SEGMENT = "00000000000000000000.log"


def batch(base_offset: int, *values: bytes) -> bytes:
    builder = BatchBuilder(compression_type=CompressionType.LZ4)
    for value in values:
        builder.append(1_700_000_000_000, b"key", value)
    return builder.build(
        base_offset=base_offset, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=base_offset
    )


def partition(home: Path, data: bytes, name: str = "orders-0") -> Path:
    folder = home / name
    folder.mkdir(parents=True)
    (folder / SEGMENT).write_bytes(data)
    return folder


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main.run(["log", "inspect", *arguments, "--format", "json"]) == code
    return json.loads(capsys.readouterr().out)


GOOD = batch(0, b"one", b"two") + batch(2, b"three")


def test_a_partition_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (document,) = inspect(capsys, str(partition(tmp_path, GOOD)))
    assert (document["kind"], document["topic"], document["partition"]) == ("partition", "orders", 0)
    (segment,) = document["segments"]
    assert (segment["base_offset"], segment["next_offset"]) == (0, 3)
    assert (segment["batch_count"], segment["record_count"]) == (2, 3)
    assert segment["tail"] is None
    assert "batches" not in segment


def test_batches_and_records_are_shown_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partition(tmp_path, GOOD)
    (document,) = inspect(capsys, str(folder / SEGMENT), "--records")
    first, second = document["batches"]
    assert (first["leader_epoch"], first["producer_id"], first["compression"]) == (3, 9, "lz4")
    assert [record["value"] for record in first["records"] + second["records"]] == ["one", "two", "three"]
    assert main.run(["log", "inspect", str(folder), "--records"]) == 0
    text = capsys.readouterr().out
    assert "offsets 0 to 2, 3 records in 2 batches" in text
    assert "key=key  three" in text


@pytest.mark.parametrize(
    ("tail", "kind"), [(b"\0" * 4096, "preallocated"), (batch(3, b"four")[:50], "torn")], ids=["preallocated", "torn"]
)
def test_what_a_crash_leaves_is_not_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tail: bytes, kind: str
) -> None:
    (document,) = inspect(capsys, str(partition(tmp_path, GOOD + tail)))
    assert document["segments"][0]["tail"]["kind"] == kind
    assert document["segments"][0]["record_count"] == 3


def test_a_flipped_bit_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(GOOD)
    data[70] ^= 1
    folder = partition(tmp_path, bytes(data))
    assert main.run(["log", "inspect", str(folder)]) == 7
    captured = capsys.readouterr()
    assert captured.err.startswith(f"kraftctl: error: {folder / SEGMENT}: 1 of 2 batches fail their checksum")
    assert captured.err.count("\n") == 1


def test_rubbish_before_a_valid_batch_is_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partition(tmp_path, batch(0, b"one") + b"rubbish" * 20 + batch(1, b"two"))
    assert main.run(["log", "inspect", str(folder)]) == 7
    assert "are no batch, and valid ones follow" in capsys.readouterr().err


def test_a_log_directory_lists_its_partitions_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=abc\nnode.id=4\n")
    for number in (10, 2):
        partition(tmp_path, GOOD, f"orders-{number}")
    (document,) = inspect(capsys, str(tmp_path))
    assert document["meta"]["cluster.id"] == "abc"
    assert [each["partition"] for each in document["partitions"]] == [2, 10]
    assert main.run(["log", "inspect", str(tmp_path)]) == 0
    assert "cluster abc, node 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("missing", 4, "no such file"),
        ("plain", 6, "neither a log directory"),
        ("plain/file.txt", 6, "not a file of a log"),
    ],
)
def test_what_is_no_log_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, code: int, text: str
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file.txt").write_text("x")
    assert main.run(["log", "inspect", str(tmp_path / name)]) == code
    assert text in capsys.readouterr().err


def test_a_damaged_snapshot_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partition(tmp_path, GOOD)
    snapshot = folder / "00000000000000000003.snapshot"
    snapshot.write_bytes(b"rubbish")
    assert main.run(["log", "inspect", str(snapshot)]) == 7
    assert str(snapshot) in capsys.readouterr().err
