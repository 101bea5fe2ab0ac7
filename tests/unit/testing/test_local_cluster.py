"""`kraftlog.testing.cluster`: a real node for users' tests, and nothing left behind."""

import os
import socket
from pathlib import Path

import pytest

import kraftlog.testing
from kraftlog import Admin, Consumer, Producer, TopicPartition
from kraftlog.proto.errors import InvalidConfigError
from kraftlog.testing import NodeProcess, NodeStartError

pytestmark = pytest.mark.processes


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_cluster_serves_for_the_length_of_a_with_block() -> None:
    """Produce, consume, and afterwards neither the process nor its directory is there."""
    with kraftlog.testing.cluster(config={"num.partitions": "3"}) as cluster:
        node = cluster.nodes[0]
        pid = node.pid
        assert pid is not None
        assert _is_running(pid)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert admin.create_topics(["greetings"])[0].num_partitions == 3
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("greetings", b"hello", partition=0).result(30)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            partition = TopicPartition("greetings", 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            polled = consumer.poll(timeout_ms=30_000)
        assert [record.value for record in polled[partition]] == [b"hello"]
    assert not _is_running(pid)
    assert not node.directory.exists()


@pytest.mark.slow
def test_a_failing_test_leaves_no_node_behind() -> None:
    """An exception in the block ends the node as well."""
    pids: list[int | None] = []

    def fail_inside_of_the_block() -> None:
        with kraftlog.testing.cluster() as cluster:
            pids.append(cluster.nodes[0].pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside_of_the_block()
    assert pids[0] is not None
    assert not _is_running(pids[0])


@pytest.mark.slow
def test_three_nodes_are_one_cluster() -> None:
    """Each is asked through its own address; partitions are on all of them; the loss of one leaves a quorum."""
    with kraftlog.testing.cluster(3) as cluster:
        with kraftlog.Admin(bootstrap_servers=cluster.nodes[2].address) as admin:
            admin.create_topics([kraftlog.NewTopic(name="orders", num_partitions=6, replication_factor=1)])
            (topic,) = admin.describe_topics(["orders"])
            assert {partition.leader_id for partition in topic.partitions} == {1, 2, 3}
        with kraftlog.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            sent = [producer.send("orders", b"%d" % number, partition=number % 6) for number in range(60)]
            assert {future.result(30).partition for future in sent} == set(range(6))
        cluster.nodes[0].kill9()
        with kraftlog.Admin(bootstrap_servers=cluster.nodes[1].address) as admin:
            admin.create_topics([kraftlog.NewTopic(name="after", num_partitions=1, replication_factor=1)])
            assert "after" in admin.list_topics()


def test_a_node_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The error holds the node's own words: here, of a port that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        with NodeProcess(tmp_path, config=config) as node:
            with pytest.raises(NodeStartError, match="in use"):
                node.start()
            assert node.pid is None


def test_more_nodes_than_there_can_be_are_refused() -> None:
    """The bound is told, not met by a hanging cluster."""
    with pytest.raises(InvalidConfigError, match="cluster of 10 nodes"), kraftlog.testing.cluster(10):
        pass
