"""Where the local cluster's state is kept, and what clients make of it."""

from dataclasses import replace
from pathlib import Path

import pytest

from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.local import LocalCluster, LocalNode
from kraftlog.sdk.cli.report import CommandError

NODE = LocalNode(node_id=1, directory="/d", address="127.0.0.1:4711", pid=1, process="boot:1")
STATE = LocalCluster(cluster_id="abc", nodes=(NODE,))


def test_state_comes_back_as_written(tmp_path: Path) -> None:
    assert local.read_state(tmp_path) is None
    local.write_state(tmp_path, STATE)
    assert local.read_state(tmp_path) == STATE


def test_a_state_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It had one node that was everything."""
    local.state_path(tmp_path).write_text(
        '{"version": 1, "cluster_id": "abc", "nodes": [{"node_id": 1, "directory": "/d", '
        '"address": "127.0.0.1:4711", "pid": 1, "process": "boot:1"}]}'
    )
    assert local.read_state(tmp_path) == STATE
    assert NODE.is_broker
    assert NODE.is_controller


def test_clients_are_told_of_brokers_only(tmp_path: Path) -> None:
    controller = replace(NODE, node_id=1001, address="127.0.0.1:9093", roles=(local.CONTROLLER,))
    second = replace(NODE, node_id=2, address="127.0.0.1:9094", roles=(local.BROKER,))
    cluster = STATE.with_nodes([controller, second])
    assert [node.node_id for node in cluster.nodes] == [1, 2, 1001]
    assert cluster.bootstrap_servers == "127.0.0.1:4711,127.0.0.1:9094"
    grown = replace(cluster, initial_controllers="1@h:1:AAAA", joining=(1001,))
    local.write_state(tmp_path, grown)
    assert local.read_state(tmp_path) == grown


def test_a_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    local.state_path(tmp_path).write_text("{")
    with pytest.raises(CommandError, match="not a cluster state"):
        local.read_state(tmp_path)


def test_clients_find_a_started_cluster_and_else_kafkas_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(local.HOME_VARIABLE, str(tmp_path))
    assert local.default_bootstrap_servers() == "localhost:9092"
    local.write_state(tmp_path, STATE)
    assert local.default_bootstrap_servers() == "127.0.0.1:4711"
    stopped = LocalNode(node_id=1, directory="/d", address="127.0.0.1:4711", pid=None, process=None)
    local.write_state(tmp_path, LocalCluster(cluster_id="abc", nodes=(stopped,)))
    assert local.default_bootstrap_servers() == "localhost:9092"


def test_home_is_the_option_then_the_variable_then_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(local.HOME_VARIABLE, str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert local.home_directory(str(tmp_path / "option")) == tmp_path / "option"
    assert local.home_directory() == tmp_path / "variable"
    monkeypatch.delenv(local.HOME_VARIABLE)
    assert local.home_directory() == tmp_path / "data" / "kraftlog"
