"""kraftctl and the replicas of partitions, on three real brokers: raised, moved, drained, described."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftlog import Admin, NewTopic, Producer, TopicPartition
from kraftlog.sdk.cli import main
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


@pytest.fixture
def slow(nodes: Cluster) -> Iterator[str]:
    """A topic of three batches on broker 1: with a throttle of one byte a second, its move does not end."""
    name = "slow"
    with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name=name, num_partitions=1, replication_factor=1)])
        admin.alter_partition_reassignments({TopicPartition(name, 0): [1]})
        while admin.list_partition_reassignments():
            pass
        with Producer(bootstrap_servers=nodes.bootstrap_servers) as producer:
            for _ in range(3):
                producer.send(name, bytes(10_000)).result(30)
        yield name
        admin.delete_topics([name])
        assert not admin.describe_replication_throttle()


class Here:
    """kraftctl without a process of its own."""

    def __init__(self, nodes: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.at = ("-b", nodes.bootstrap_servers)
        self._capsys = capsys

    def run(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        """What it prints as result, and beside it."""
        ended = main.run([*arguments, *self.at])
        captured = self._capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--format", "json")[0])


def test_a_throttle_comes_and_goes_with_its_move(
    nodes: Cluster, slow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = Here(nodes, capsys)
    move = ("partition", "reassign", slow, "--replicas", "1,2")
    _, planned = cli.run(*move, "--throttle", "1", "--dry-run")
    rates = "leader.replication.throttled.rate=1 of brokers 1, 2"
    assert f"would set {rates}" in planned
    assert "would set follower.replication.throttled.replicas of slow: 0:2" in planned
    assert cli.json("partition", "reassign", "--remove-throttle", "--dry-run")["leader_rates"] == {}

    waiting = Cli(tmp_path / "home").start(*move, "--throttle", "1", *cli.at)
    while not (ongoing := cli.json("partition", "reassign", "--list")):
        assert waiting.poll() is None
    assert ongoing[0]["throttle_bytes_per_second"] == 1
    waiting.send_signal(signal.SIGINT)
    _, notes = waiting.communicate(timeout=60)
    assert waiting.returncode == 130
    assert f"set {rates}" in notes.decode()
    assert "the throttle stays meanwhile" in notes.decode()

    _, changed = cli.run(*move, "--throttle", "2", "--no-wait")
    assert "set leader.replication.throttled.rate=2 of brokers 1, 2, which was 1" in changed
    assert "the throttle stays meanwhile" in changed
    assert "2 B/s" in cli.run("partition", "reassign", "--list")[0]
    _, kept = cli.run("partition", "reassign", "--remove-throttle")
    assert "no throttle is set, or what is under way needs it" in kept
    result, cancelled = cli.run("partition", "reassign", slow, "--cancel")
    assert result == "slow-0: cancelled\n"
    assert "removed follower.replication.throttled.rate=2 of brokers 1, 2" in cancelled

    cli.run("broker", "alter", "2", "-c", "follower.replication.throttled.rate=5")
    _, refused = cli.run(*move, "--throttle", "50MB", code=6)
    assert "broker 2 has follower.replication.throttled.rate=5, which was set by hand or left over" in refused
    assert "that no reassignment under way needs" in cli.run("partition", "reassign", "--list")[1]
    shown = cli.json("broker", "alter", "2", "--delete-config", "follower.replication.throttled.rate")
    assert shown == {"node_id": 2, "configs": {}}
    result, moved = cli.run(*move, "--throttle", "50MB")
    assert result.endswith("reassigned 1 partition\n")
    assert "removed leader.replication.throttled.rate=50000000 of brokers 1, 2" in moved


def test_a_throttle_that_was_left_over_is_taken_away(
    nodes: Cluster, slow: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command was interrupted, and the move has ended since."""
    cli = Here(nodes, capsys)
    with Admin(bootstrap_servers=nodes.bootstrap_servers) as admin:
        moves = {TopicPartition(slow, 0): [1, 3]}
        admin.alter_partition_reassignments(moves, throttle_bytes_per_second=1 << 30)
        while admin.list_partition_reassignments():
            pass
    assert "would remove" in cli.run("partition", "reassign", "--remove-throttle", "--dry-run")[1]
    removed = cli.json("partition", "reassign", "--remove-throttle")
    rates = {"1": 1 << 30, "3": 1 << 30}
    assert (removed["leader_rates"], removed["follower_rates"]) == (rates, rates)
    assert (removed["leader_replicas"], removed["follower_replicas"]) == ({slow: ["0:1"]}, {slow: ["0:3"]})


def test_what_cannot_be_is_one_line(nodes: Cluster, tmp_path: Path) -> None:
    cli, at = Cli(tmp_path / "home"), ("-b", nodes.bootstrap_servers)
    cli.fails(2, "say what is wanted", "partition", "reassign", "raised", *at)
    cli.fails(2, "names a node twice", "partition", "reassign", "raised", "--replicas", "1,1", *at)
    cli.fails(4, "does not exist", "partition", "reassign", "absent", "-r", "2", *at)
    cli.fails(4, "broker 9", "broker", "drain", "9", *at)
