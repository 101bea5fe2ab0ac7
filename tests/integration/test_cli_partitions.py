"""kraftctl and the replicas of partitions, on three real brokers: raised, moved, drained, described."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftlog import Admin, NewTopic, Producer
from kraftlog.testing import Cluster, cluster
from tests.integration.kraftctl import Cli

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(3) as running, Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name="raised", num_partitions=3, replication_factor=1)])
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(300):
                producer.send("raised", b"%d" % number, partition=number % 3)
        yield running


def test_replicas_are_raised_described_moved_and_drained(nodes: Cluster, tmp_path: Path) -> None:
    cli, at = Cli(tmp_path / "home"), ("-b", nodes.bootstrap_servers)
    planned = cli.json("partition", "reassign", "raised", "-r", "3", "--dry-run", *at)
    assert (planned["dry_run"], len(planned["partitions"])) == (True, 3)
    assert all(len(each["replicas"]) == 1 for each in cli.json("partition", "describe", "raised", *at))

    assert cli.ok("partition", "reassign", "raised", "-r", "3", *at).endswith("reassigned 3 partitions\n")
    described = cli.json("partition", "describe", "raised", *at)
    assert all(sorted(each["in_sync_replicas"]) == [1, 2, 3] for each in described)
    assert cli.json("partition", "describe", "raised", "--under-replicated", "--offline", *at) == []
    assert cli.json("partition", "reassign", "--list", *at) == []
    assert cli.ok("partition", "reassign", "raised", "--cancel", *at) == "no reassignment is under way\n"

    cli.fails(6, "3 replicas need", "broker", "drain", "3", "--dry-run", *at)
    plan = tmp_path / "plan.json"
    wanted = [{"topic": "raised", "partition": number, "replicas": [3, 1]} for number in range(3)]
    plan.write_text(json.dumps({"version": 1, "partitions": wanted}))
    cli.ok("partition", "reassign", "--plan", str(plan), *at)
    cli.ok("broker", "drain", "3", *at)
    replicas = [each["replicas"] for each in cli.json("partition", "describe", "raised", *at)]
    assert all(sorted(each) == [1, 2] for each in replicas)
    brokers = {each["node_id"]: each for each in cli.json("broker", "list", *at)}
    assert (brokers[3]["replicas"], brokers[3]["leaders"]) == (0, 0)
    assert cli.ok("partition", "elect-leader", "raised", "--dry-run", *at)

    health = cli.json("cluster", "status", *at)["health"]
    assert health == {"partitions": 3, "under_replicated": 0, "under_min_isr": 0, "offline": 0, "reassigning": 0}
    assert "partitions: 3, 0 under-replicated, 0 under min ISR, 0 offline" in cli.ok("cluster", "status", *at)


def test_what_cannot_be_is_one_line(nodes: Cluster, tmp_path: Path) -> None:
    cli, at = Cli(tmp_path / "home"), ("-b", nodes.bootstrap_servers)
    cli.fails(2, "say what is wanted", "partition", "reassign", "raised", *at)
    cli.fails(2, "names a node twice", "partition", "reassign", "raised", "--replicas", "1,1", *at)
    cli.fails(4, "does not exist", "partition", "reassign", "absent", "-r", "2", *at)
    cli.fails(4, "broker 9", "broker", "drain", "9", *at)
