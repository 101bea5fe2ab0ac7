"""Three real nodes whose controllers know each other by certificate, with a client over TLS."""

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

import kraftlog
from kraftlog.kraft.endpoints import Endpoint
from kraftlog.kraft.raft import ReplicaKey
from kraftlog.testing.certificates import Authority
from kraftlog.testing.processes import NodeProcess, free_ports

PATIENCE_S = 30

OURS = Authority.create("ours")
OTHERS = Authority.create("others")


def secured(
    directory: Path, key: ReplicaKey, voters: dict[ReplicaKey, Endpoint], port: int, by: Authority
) -> NodeProcess:
    """A node whose certificates `by` has signed; it trusts ours."""
    directory.mkdir()
    (directory / "ca.pem").write_bytes(OURS.pem)
    identity = by.issue(f"node-{key.node_id}", hosts=("127.0.0.1",))
    return NodeProcess(
        directory,
        node_id=key.node_id,
        cluster_id=CLUSTER_ID,
        directory_id=key.directory_id,
        voters=voters,
        config={
            "listeners": f"SSL://127.0.0.1:{port},CONTROLLER://{voters[key]}",
            "listener.security.protocol.map": "CONTROLLER:SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(map(str, voters.values())),
            "ssl.keystore.location": str(identity.keystore(directory / "node.pem")),
            "ssl.truststore.location": str(directory / "ca.pem"),
            "listener.name.controller.ssl.client.auth": "required",
        },
    )


CLUSTER_ID = str(uuid.uuid4())


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


@pytest.mark.slow
def test_controllers_that_know_each_other_by_certificate(tmp_path: Path) -> None:
    """Two of ours are a cluster, and do each other's work; a third with somebody else's certificate gets no say."""
    keys = [ReplicaKey(number, os.urandom(16)) for number in (1, 2, 3)]
    ports = free_ports(6)
    voters = {key: Endpoint("127.0.0.1", port) for key, port in zip(keys, ports, strict=False)}
    with contextlib.ExitStack() as stack:
        nodes = [
            stack.enter_context(secured(tmp_path / str(key.node_id), key, voters, port, by))
            for key, port, by in zip(keys, ports[3:], (OURS, OURS, OTHERS), strict=True)
        ]
        for node in nodes:
            node.launch()
        addresses = [node.wait_ready() for node in nodes[:2]]
        for number, address in enumerate(addresses):
            config = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_cafile": tmp_path / "1" / "ca.pem"}
            with kraftlog.Admin(config) as admin:
                admin.create_topics([f"topic-{number}"])
                assert f"topic-{number}" in admin.list_topics()
                assert {node.node_id for node in admin.describe_cluster().nodes} == {1, 2}
        assert "ready" not in nodes[2].output
        wait_for(lambda: any("certificate" in node.output.lower() for node in nodes), "nobody says what is wrong")
