"""What `cluster bootstrap` finds in its folder, without a node."""

import shutil
from pathlib import Path

import pytest

from kraftlog.sdk.cli import local
from kraftlog.sdk.descriptions import directory_bytes
from kraftlog.server.cli.cluster_bootstrap import _format_missing, _found_state
from kraftlog.server.cli.cluster_plan import BOOTSTRAP_KEY
from kraftlog.server.cli.local_node import data_directory, properties_path, write_pairs
from kraftlog.server.cli.storage import METADATA_LOG, directory_id_of


def write_node(home: Path, node_id: int, cluster_id: str = "", **more: str) -> None:
    data = data_directory(home, node_id)
    pairs = {"node.id": str(node_id), "listeners": f"PLAINTEXT://h:{9090 + node_id}", "log.dirs": str(data)}
    write_pairs(home, node_id, pairs | {key.replace("_", "."): value for key, value in more.items()})
    if cluster_id:
        data.mkdir()
        (data / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n")


def test_a_cluster_whose_state_is_gone_is_known_by_its_folders(tmp_path: Path) -> None:
    assert _found_state(tmp_path / "missing") is None
    servers = {BOOTSTRAP_KEY: "h:9091,h:9092"}
    write_node(tmp_path, 1, "abc", **servers)
    write_node(tmp_path, 2, **servers)
    write_node(tmp_path, 11, "abc", **servers, process_roles="broker")
    found = _found_state(tmp_path)
    assert found is not None
    assert found.cluster_id == "abc"
    assert [(node.node_id, node.address, node.is_controller) for node in found.nodes] == [
        (1, "h:9091", True),
        (2, "h:9092", True),
        (11, "h:9101", False),
    ]
    assert found.bootstrap_servers == "h:9091,h:9092,h:9101"


def test_the_first_voters_are_the_controllers_of_a_cluster_without_any_log_directory(tmp_path: Path) -> None:
    """After an interruption, or when all was removed: formatted to join, all of them would wait for each other for ever."""
    servers = {BOOTSTRAP_KEY: "h:9091,h:9092"}
    for node_id, roles in ((1, "broker,controller"), (2, "controller"), (3, "broker")):
        write_node(tmp_path, node_id, **servers, process_roles=roles)
    state = _found_state(tmp_path)
    assert state is not None
    made = _format_missing(tmp_path, state, "MkU3OEVBNTcwNTJENDM2Qk")
    assert (made.cluster_id, made.initial_controllers) == ("MkU3OEVBNTcwNTJENDM2Qk", "")
    assert local.read_state(tmp_path) == made
    genesis = [
        next((data_directory(tmp_path, node_id) / METADATA_LOG).glob("*.checkpoint")).read_bytes()
        for node_id in (1, 2, 3)
    ]
    ids = [directory_bytes(directory_id_of(data_directory(tmp_path, node_id))) for node_id in (1, 2, 3)]
    for voters in genesis[:2]:
        assert [each in voters for each in ids] == [True, True, False]
    assert not any(each in genesis[2] for each in ids)


def test_a_lost_directory_is_formatted_to_join_and_the_others_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {BOOTSTRAP_KEY: "h:9091,h:9092"}
    for node_id in (1, 2):
        write_node(tmp_path, node_id, **servers)
    state = _found_state(tmp_path)
    assert state is not None
    made = _format_missing(tmp_path, state, None)
    kept = directory_id_of(data_directory(tmp_path, 1))
    shutil.rmtree(data_directory(tmp_path, 2))
    assert _format_missing(tmp_path, made, None) == made
    assert "node 2 has a new log directory and no vote" in capsys.readouterr().err
    assert directory_id_of(data_directory(tmp_path, 1)) == kept
    (snapshot,) = (data_directory(tmp_path, 2) / METADATA_LOG).glob("*.checkpoint")
    assert directory_bytes(kept) not in snapshot.read_bytes()


def test_a_node_alone_with_a_file_of_ones_own_is_made_from_it(tmp_path: Path) -> None:
    write_node(tmp_path, 1, num_partitions="3")
    found = _found_state(tmp_path)
    assert found is not None
    assert (found.cluster_id, [node.node_id for node in found.nodes]) == ("", [1])
    before = properties_path(tmp_path, 1).stat().st_mtime_ns
    write_node(tmp_path, 1, num_partitions="3")
    assert properties_path(tmp_path, 1).stat().st_mtime_ns == before, "what says the same is left alone"
