"""Which nodes a local cluster has, and what stands in their files."""

from itertools import count
from pathlib import Path

import pytest

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import BROKER, COMBINED, CONTROLLER
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli.cluster_plan import (
    BOOTSTRAP_KEY,
    PlannedNode,
    Shape,
    added_nodes,
    check_common,
    main_address,
    moved_to,
    new_cluster,
    new_node,
)
from kraftlog.server.config import NodeConfig

ONE = {1: COMBINED}
SPLIT = {1: (BROKER,), 1001: (CONTROLLER,)}


def planned(shape: Shape, *, host: str = "127.0.0.1", port: int = 9092, **more: str) -> list[PlannedNode]:
    kernel = count(40_000)
    made = new_cluster(
        shape,
        host=host,
        port=port,
        more={key.replace("_", "."): value for key, value in more.items()},
        data_of=lambda node_id: Path(f"/home/node-{node_id}/data"),
        free_ports=lambda number: [next(kernel) for _ in range(number)],
    )
    for node in made:
        NodeConfig.from_properties(node.pairs)
    return made


def listeners(nodes: list[PlannedNode]) -> list[str]:
    return [node.pairs["listeners"] for node in nodes]


@pytest.mark.parametrize(
    ("options", "said"),
    [((3, 3, None), "excludes"), ((None, 3, None), "go together"), ((None, None, 2), "go together")],
)
def test_options_that_do_not_go_together(options: tuple[int | None, ...], said: str) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        Shape.of(*options)
    assert caught.value.exit_code is ExitCode.USAGE


def test_combined_nodes_and_brokers_count_from_1_and_controllers_from_1001() -> None:
    assert Shape.of(2, None, None).roles == {1: COMBINED, 2: COMBINED}
    assert Shape.of(None, 2, 2).roles == {1: (BROKER,), 2: (BROKER,), 1001: (CONTROLLER,), 1002: (CONTROLLER,)}
    assert not Shape.of(None, None, None).is_said


def test_a_cluster_grows_by_what_it_lacks() -> None:
    assert added_nodes(ONE, Shape()) == {}
    assert added_nodes(ONE, Shape(combined=1)) == {}
    assert added_nodes(ONE, Shape(combined=3)) == {2: COMBINED, 3: COMBINED}
    assert added_nodes(SPLIT, Shape(controllers=2, brokers=2)) == {2: (BROKER,), 1002: (CONTROLLER,)}


@pytest.mark.parametrize(
    ("existing", "wanted", "said"),
    [
        ({1: COMBINED, 2: COMBINED, 3: COMBINED}, Shape(combined=1), "would take 2 of 3 nodes away"),
        (SPLIT | {2: (BROKER,)}, Shape(controllers=1, brokers=1), "--brokers 1 would take 1 of 2"),
        (ONE, Shape(controllers=3, brokers=1), "broker and controller"),
        (SPLIT, Shape(combined=3), "of their own"),
    ],
)
def test_a_cluster_neither_shrinks_nor_changes_its_kind(
    existing: dict[int, tuple[str, ...]], wanted: Shape, said: str
) -> None:
    with pytest.raises(CommandError, match=said) as caught:
        added_nodes(existing, wanted)
    assert caught.value.exit_code is ExitCode.CONFLICT
    assert caught.value.advice


def test_a_node_alone_names_no_other_and_keeps_port_0() -> None:
    [node] = planned(Shape(combined=1), port=0, num_partitions="3")
    assert node.pairs["listeners"] == "PLAINTEXT://127.0.0.1:0"
    assert node.pairs["num.partitions"] == "3"
    assert BOOTSTRAP_KEY not in node.pairs


def test_several_nodes_take_the_next_ports_and_know_of_each_other() -> None:
    nodes = planned(Shape(combined=3), host="0.0.0.0")
    assert listeners(nodes) == [f"PLAINTEXT://0.0.0.0:{port}" for port in (9092, 9093, 9094)]
    assert {node.pairs[BOOTSTRAP_KEY] for node in nodes} == {"127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"}
    assert [main_address(node.pairs) for node in nodes] == ["127.0.0.1:9092", "127.0.0.1:9093", "127.0.0.1:9094"]


def test_port_0_of_several_nodes_becomes_a_port_that_the_others_can_be_told() -> None:
    nodes = planned(Shape(combined=3), port=0)
    assert listeners(nodes) == [f"PLAINTEXT://127.0.0.1:{port}" for port in (40_000, 40_001, 40_002)]


def test_controllers_of_their_own_listen_after_the_brokers() -> None:
    nodes = planned(Shape(controllers=2, brokers=1))
    assert listeners(nodes) == [
        "PLAINTEXT://127.0.0.1:9092",
        "CONTROLLER://127.0.0.1:9093",
        "CONTROLLER://127.0.0.1:9094",
    ]
    assert {node.pairs[BOOTSTRAP_KEY] for node in nodes} == {"127.0.0.1:9093,127.0.0.1:9094"}
    assert [node.pairs["process.roles"] for node in nodes] == ["broker", "controller", "controller"]


def test_listeners_of_ones_own_move_by_the_number_of_the_node() -> None:
    nodes = planned(
        Shape(combined=2),
        listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9192",
        controller_listener_names="CONTROLLER",
    )
    assert listeners(nodes)[1] == "PLAINTEXT://localhost:9093,CONTROLLER://localhost:9193"
    assert nodes[0].pairs[BOOTSTRAP_KEY] == "localhost:9192,localhost:9193"


def test_what_no_two_nodes_share_cannot_be_given_to_all() -> None:
    check_common({"node.id": "7", "listeners": "PLAINTEXT://:1"}, Shape(combined=1), is_new=False)
    check_common({"listeners": "PLAINTEXT://:1", "num.partitions": "3"}, Shape(combined=3), is_new=True)
    for key in ("node.id", "log.dirs", "process.roles", BOOTSTRAP_KEY):
        with pytest.raises(CommandError, match=f"-c {key} would be the same on 3 nodes"):
            check_common({key: "7"}, Shape(combined=3), is_new=True)
    for shape, is_new in ((Shape(controllers=1, brokers=1), True), (Shape(combined=3), False)):
        with pytest.raises(CommandError, match="-c listeners"):
            check_common({"listeners": "PLAINTEXT://:1"}, shape, is_new=is_new)


def test_a_node_that_joins_is_like_one_of_its_kind_elsewhere() -> None:
    """Protocols and `ssl.` keys included."""
    model = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "SSL://localhost:9092",
        "log.dirs": "/home/node-1/data",
        "ssl.keystore.location": "/certs/node.pem",
    }
    joined = new_node(2, COMBINED, model=model, more={"num.partitions": "3"}, ports=[9500], data=Path("/home/2"))
    assert joined.pairs == model | {
        "node.id": "2",
        "listeners": "SSL://localhost:9500",
        "log.dirs": "/home/2",
        "num.partitions": "3",
    }


def test_a_move_changes_only_the_address_of_the_clients_listener() -> None:
    pairs = {
        "listeners": "CONTROLLER://10.0.0.1:9093,EXTERNAL://10.0.0.1:9092",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "EXTERNAL:SSL,CONTROLLER:SSL",
    }
    moved = moved_to(pairs, "localhost", None)
    assert moved == pairs | {"listeners": "CONTROLLER://10.0.0.1:9093,EXTERNAL://localhost:9092"}
    assert moved_to(pairs, None, 9099)["listeners"] == "CONTROLLER://10.0.0.1:9093,EXTERNAL://10.0.0.1:9099"
    assert moved_to(pairs, None, None) == pairs
    assert moved_to({}, None, 7000) == {"listeners": "PLAINTEXT://127.0.0.1:7000"}
    with pytest.raises(InvalidConfigError):
        moved_to({"listeners": "nonsense"}, "localhost", None)
