"""What `cluster bootstrap` finds in its folder, without a node."""

from pathlib import Path

from kraftlog.server.cli.cluster_bootstrap import _found_state
from kraftlog.server.cli.cluster_plan import BOOTSTRAP_KEY
from kraftlog.server.cli.local_node import data_directory, properties_path, write_pairs


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


def test_files_without_first_voters_are_no_cluster_yet(tmp_path: Path) -> None:
    """Formatted as they are, all of the nodes would wait for a quorum that nobody has begun."""
    for node_id in (1, 2, 3):
        write_node(tmp_path, node_id, **{BOOTSTRAP_KEY: "h:9091,h:9092,h:9093"})
    assert _found_state(tmp_path) is None


def test_a_node_alone_with_a_file_of_ones_own_is_made_from_it(tmp_path: Path) -> None:
    write_node(tmp_path, 1, num_partitions="3")
    found = _found_state(tmp_path)
    assert found is not None
    assert (found.cluster_id, [node.node_id for node in found.nodes]) == ("", [1])
    before = properties_path(tmp_path, 1).stat().st_mtime_ns
    write_node(tmp_path, 1, num_partitions="3")
    assert properties_path(tmp_path, 1).stat().st_mtime_ns == before, "what says the same is left alone"
