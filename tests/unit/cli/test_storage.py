"""`kraftctl storage format` on real directories, without a node."""

import json
from pathlib import Path
from typing import Any

import pytest

from kraftlog.sdk.cli import main
from kraftlog.server.cli.cluster_id import random_uuid
from kraftlog.server.cli.storage import META_PROPERTIES, METADATA_LOG

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
OTHERS = '"controller.quorum.bootstrap.servers" = ["h1:9093", "h2:9093"]\n'


def write(folder: Path, node_id: int, more: str = "") -> Path:
    """A node.toml."""
    path = folder / f"node-{node_id}.toml"
    path.write_text(f'node.id = {node_id}\n"log.dirs" = "{folder / f"data-{node_id}"}"\n{more}')
    return path


def format_storage(path: Path, *arguments: str) -> int:
    return main.run(["storage", "format", "-c", str(path), *arguments, "--format", "json"])


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    captured = capsys.readouterr()
    return json.loads(captured.out or captured.err)


def test_each_controller_gets_the_same_voters_and_its_own_directory_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {1: random_uuid(), 2: random_uuid()}
    text = ",".join(f"{node}@h{node}:9093:{directory}" for node, directory in ids.items())
    snapshots = []
    for node, directory in ids.items():
        assert format_storage(write(tmp_path, node, OTHERS), "-t", CLUSTER_ID, "--initial-controllers", text) == 0
        made = answer(capsys)
        assert (made["node_id"], made["directory_id"], made["voters"]) == (node, directory, [1, 2])
        data = tmp_path / f"data-{node}"
        assert f"directory.id={directory}" in (data / META_PROPERTIES).read_text()
        snapshots += list((data / METADATA_LOG).glob("*.checkpoint"))
    assert [path.name for path in snapshots] == ["00000000000000000000-0000000000.checkpoint"] * 2
    assert all(b"h1" in path.read_bytes() and b"h2" in path.read_bytes() for path in snapshots)


def test_a_node_that_joins_has_a_genesis_without_voters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert format_storage(write(tmp_path, 3, OTHERS), "-t", CLUSTER_ID, "--no-initial-controllers") == 0
    assert answer(capsys)["voters"] == []
    broker = write(tmp_path, 4, OTHERS + 'process.roles = "broker"\n')
    assert format_storage(broker, "-t", CLUSTER_ID) == 0
    assert answer(capsys)["voters"] == []


def test_a_controller_among_others_is_asked_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert format_storage(write(tmp_path, 3, OTHERS), "-t", CLUSTER_ID) == 6
    assert "--no-initial-controllers" in answer(capsys)["error"]["message"]
    assert not (tmp_path / "data-3").exists()


def test_what_a_crash_left_is_formatted_again_and_what_a_node_used_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """meta.properties comes last: without it, the directory was never used, unless its log says so."""
    path = write(tmp_path, 1)
    assert format_storage(path, "-t", CLUSTER_ID) == 0
    first = answer(capsys)["directory_id"]
    assert format_storage(path, "-t", CLUSTER_ID) == 5
    assert "formatted already" in answer(capsys)["error"]["message"]
    assert format_storage(path, "--ignore-formatted") == 0
    assert answer(capsys) == {
        "log_dir": str(tmp_path / "data-1"),
        "cluster_id": CLUSTER_ID,
        "node_id": 1,
        "directory_id": first,
        "voters": None,
        "formatted": False,
    }
    meta = tmp_path / "data-1" / META_PROPERTIES
    meta.unlink()
    assert format_storage(path, "-t", CLUSTER_ID) == 0
    assert answer(capsys)["directory_id"] != first
    meta.unlink()
    (tmp_path / "data-1" / METADATA_LOG / "quorum-state").write_text("")
    assert format_storage(path, "-t", CLUSTER_ID) == 7
    assert "holds the metadata log of a node" in answer(capsys)["error"]["message"]
    (tmp_path / "data-1" / "stranger").touch()
    assert format_storage(path, "-t", CLUSTER_ID) == 5
    assert "is not empty" in answer(capsys)["error"]["message"]
