"""Three nodes under verifiable load, for the tests of replication under real faults."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kraftlog.testing.local_cluster import nodes_of
from tests.faults.namespaces import NetworkNamespaces, network_namespaces, nodes_in
from tests.faults.record_run import CONFIG, NODES, SHORT_TIMEOUTS, Run, started


@pytest.fixture
def seed() -> int:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    return seed


@pytest.fixture
def config(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Of the nodes. Where a fault strikes many times, each time is a short one; the others have the defaults."""
    return CONFIG | (SHORT_TIMEOUTS if request.node.get_closest_marker("deep") else {})


@pytest.fixture
def run(tmp_path: Path, seed: int, config: Mapping[str, str]) -> Iterator[Run]:
    nodes = nodes_of(tmp_path, NODES, config=config)
    with started(nodes), Run(nodes, tmp_path, seed).load() as run:
        yield run


@pytest.fixture
def network() -> Iterator[NetworkNamespaces]:
    with network_namespaces("node1", "node2", "node3", "clients") as network:
        yield network


@pytest.fixture
def run_in_network(tmp_path: Path, seed: int, config: Mapping[str, str], network: NetworkNamespaces) -> Iterator[Run]:
    nodes = nodes_in(network, tmp_path, NODES, config=config)
    prefix = network.command_prefix("clients")
    with started(nodes), Run(nodes, tmp_path, seed, command_prefix=prefix).load() as run:
        yield run
