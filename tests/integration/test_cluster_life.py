"""The life of a local cluster of several nodes, with kraftctl alone: made, damaged, restarted, grown and shrunk."""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftlog import Admin, NewTopic
from tests.integration.kraftctl import Cli

pytestmark = pytest.mark.processes

FREE_PORTS = ("--port", "0", "-c", "offsets.topic.num.partitions=3")
MIN_CHANGES = 3


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """A home of one's own; what is started there is stopped."""
    made = Cli(tmp_path / "home")
    yield made
    made.ok("cluster", "stop", "--force")


def voters(cli: Cli) -> list[int]:
    return [voter["node_id"] for voter in cli.json("quorum", "describe")["voters"]]


class MetadataWriter:
    """Creates and deletes topics all the time; every one of its requests has to succeed."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._stopping = threading.Event()
        self._changed = threading.Semaphore(0)
        self.kept: list[str] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Admin(bootstrap_servers=self._bootstrap_servers) as admin:
                number = 0
                while not self._stopping.is_set():
                    kept, deleted = f"kept-{number}", f"deleted-{number}"
                    admin.create_topics([NewTopic(name=name, num_partitions=1) for name in (kept, deleted)])
                    self.kept.append(kept)
                    admin.delete_topics([deleted])
                    self._changed.release()
                    number += 1
        except BaseException as error:
            self.failure = error
            self._changed.release(MIN_CHANGES)

    def wait_changes(self) -> None:
        """Until some more changes were made: what the test does next does not happen on an idle cluster."""
        for _ in range(MIN_CHANGES):
            assert self._changed.acquire(timeout=60)
        assert self.failure is None, self.failure

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def written(cli: Cli) -> Iterator[MetadataWriter]:
    """A client that writes metadata for the length of the block. At the end all that it made is there, and no more."""
    writer = MetadataWriter(cli.json("cluster", "status")["nodes"][0]["address"])
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        writer.wait_changes()
        yield writer
        writer.wait_changes()
    finally:
        writer.stop()
        thread.join(90)
    assert writer.failure is None, writer.failure
    topics = {topic["name"] for topic in cli.json("topic", "list")}
    assert set(writer.kept) <= topics
    assert not [name for name in topics if name.startswith("deleted-")]


def test_three_nodes_serve_lose_one_and_get_it_back(cli: Cli) -> None:
    made = cli.json("cluster", "bootstrap", "--nodes", "3", *FREE_PORTS)
    assert [node["node_id"] for node in made["nodes"]] == [1, 2, 3]
    assert cli.json("cluster", "bootstrap", "--nodes", "3", "--port", "0")["status"] == "already running"
    assert voters(cli) == [1, 2, 3]
    addresses = made["bootstrap_servers"].split(",")
    for number, address in enumerate(addresses, 1):
        at = ("-b", address)
        cli.ok("topic", "create", f"topic-{number}", "-p", "3", *at)
        cli.ok("produce", f"topic-{number}", "-k", ":", *at, stdin=b"a:1\nb:2\nc:3\nd:4\n")
        again = addresses[number % 3]
        lines = cli.ok("consume", f"topic-{number}", "--from-beginning", "-e", "-f", "%k%v\\n", "-b", again).split()
        assert sorted(lines) == ["a1", "b2", "c3", "d4"]
    spread = {each["leader_id"] for each in cli.json("topic", "describe", "topic-1")[0]["partitions"]}
    assert spread == {1, 2, 3}

    killed = cli.json("cluster", "status")["quorum"]["leader_id"]
    os.kill(made["nodes"][killed - 1]["pid"], signal.SIGKILL)
    cli.ok("topic", "create", "without-one", "-p", "1")
    status = cli.json("cluster", "status")
    assert [node["running"] for node in status["nodes"]] == [number != killed for number in (1, 2, 3)]
    assert status["quorum"]["leader_id"] not in (killed, -1)
    assert not status["quorum"]["stale"]
    assert f"\n   {killed}  broker,controller" in cli.ok("cluster", "status")

    other = next(node for node in made["nodes"] if node["node_id"] not in (killed, status["quorum"]["leader_id"]))
    os.kill(other["pid"], signal.SIGKILL)
    told = cli.run("cluster", "status")
    assert told.returncode == 3
    assert f"this is what node {status['quorum']['leader_id']} knows, it may be old" in told.stderr
    assert "quorum: no leader" in told.stdout

    again = cli.json("cluster", "bootstrap", "--port", "0")
    assert (again["status"], again["bootstrap_servers"]) == ("running", made["bootstrap_servers"])
    assert all(node["running"] for node in cli.json("cluster", "status")["nodes"])
    assert sorted(cli.ok("consume", "topic-1", "--from-beginning", "-e").split()) == ["1", "2", "3", "4"]
    cli.fails(5, "would take 2 of 3 nodes away", "cluster", "bootstrap", "--nodes", "1")


@pytest.mark.deep
def test_a_stopped_cluster_starts_at_other_addresses(cli: Cli) -> None:
    """The voters' addresses in the log are old then; the files have the new ones."""
    made = cli.json("cluster", "bootstrap", "--nodes", "3", *FREE_PORTS)
    os.kill(made["nodes"][1]["pid"], signal.SIGKILL)
    assert cli.json("cluster", "stop")["stopped"] == [1, 3]
    assert cli.run("cluster", "status").returncode == 3
    moved = cli.json("cluster", "bootstrap", *FREE_PORTS)
    assert moved["cluster_id"] == made["cluster_id"]
    assert not {node["address"] for node in made["nodes"]} & {node["address"] for node in moved["nodes"]}
    assert voters(cli) == [1, 2, 3]
    assert cli.json("cluster", "restart")["restarted"] == [1, 2, 3]
    after = cli.json("cluster", "status")["nodes"]
    assert [node["address"] for node in after] == [node["address"] for node in moved["nodes"]]


def test_brokers_and_controllers_of_their_own_restart_one_by_one_under_load(cli: Cli) -> None:
    made = cli.json("cluster", "bootstrap", "--controllers", "3", "--brokers", "2", *FREE_PORTS)
    assert [(node["node_id"], node["roles"]) for node in made["nodes"]] == [
        (1, ["broker"]),
        (2, ["broker"]),
        (1001, ["controller"]),
        (1002, ["controller"]),
        (1003, ["controller"]),
    ]
    assert voters(cli) == [1001, 1002, 1003]
    assert made["bootstrap_servers"].count(",") == 1, "clients are told of brokers only"
    before = {node["node_id"]: node["pid"] for node in made["nodes"]}
    with written(cli):
        restarted = cli.json("cluster", "restart", "--rolling")["restarted"]
    assert sorted(restarted) == [1, 2, 1001, 1002, 1003]
    after = {node["node_id"]: node["pid"] for node in cli.json("cluster", "status")["nodes"]}
    assert not set(before.values()) & set(after.values())
    grown = cli.json("cluster", "bootstrap", "--controllers", "3", "--brokers", "3")
    assert grown["bootstrap_servers"].count(",") == 2
    cli.ok("topic", "create", "spread", "-p", "6")
    assert {each["leader_id"] for each in cli.json("topic", "describe", "spread")[0]["partitions"]} == {1, 2, 3}


def test_a_cluster_grows_from_one_voter_to_three_and_back_under_load(cli: Cli) -> None:
    cli.ok("cluster", "bootstrap", *FREE_PORTS)
    with written(cli) as writer:
        grown = cli.run("cluster", "bootstrap", "--nodes", "3")
        assert grown.returncode == 0, grown.stderr
        assert "node 2 is a voter\nnode 3 is a voter\n" in grown.stderr
        assert voters(cli) == [1, 2, 3]
        writer.wait_changes()
        cli.ok("quorum", "transfer", "3")
        writer.wait_changes()
        cli.ok("quorum", "remove-voter", "1")
        cli.ok("quorum", "remove-voter", "2")
        assert voters(cli) == [3]
        writer.wait_changes()
    assert cli.json("cluster", "bootstrap")["status"] == "already running"
    assert voters(cli) == [3], "who gave up its vote does not get it back by itself"


@pytest.mark.deep
def test_a_controller_with_a_new_disk_votes_again(cli: Cli) -> None:
    """The old vote is taken before the new one is given: a voter that has forgotten its votes may not vote again as itself."""
    made = cli.json("cluster", "bootstrap", "--controllers", "3", "--brokers", "1", *FREE_PORTS)
    cli.ok("topic", "create", "kept")
    directory = {each["node_id"]: each["directory_id"] for each in cli.json("quorum", "describe")["voters"]}[1002]
    assert cli.json("cluster", "stop", "--node", "1002")["stopped"] == [1002]
    shutil.rmtree(Path(made["nodes"][2]["directory"]) / "data")
    started = cli.run("cluster", "bootstrap")
    assert started.returncode == 0, started.stderr
    assert "node 1002 has a new log directory and no vote" in started.stderr
    cli.ok("topic", "create", "meanwhile")
    cli.fails(5, "remove that first", "quorum", "add-voter", "1002", "--directory-id", observer(cli, 1002))
    cli.ok("quorum", "remove-voter", "1002", "--directory-id", directory)
    cli.ok("quorum", "add-voter", "1002")
    now = {each["node_id"]: each["directory_id"] for each in cli.json("quorum", "describe")["voters"]}
    assert sorted(now) == [1001, 1002, 1003]
    assert now[1002] != directory
    cli.ok("quorum", "transfer", "1002")
    assert {topic["name"] for topic in cli.json("topic", "list")} == {"kept", "meanwhile"}


def observer(cli: Cli, node_id: int) -> str:
    """The directory with which a node follows."""
    observers: list[dict[str, Any]] = cli.json("quorum", "describe")["observers"]
    return str(next(each["directory_id"] for each in observers if each["node_id"] == node_id))


def test_what_an_interrupted_bootstrap_left_is_completed(cli: Cli) -> None:
    """The first voters were written down before the first directory was formatted, and stay the same."""
    made = cli.json("cluster", "bootstrap", "--nodes", "3", *FREE_PORTS)
    ids = [voter["directory_id"] for voter in cli.json("quorum", "describe")["voters"]]
    cli.ok("cluster", "stop")
    text = ",".join(f"{node['node_id']}@{node['address']}:{own}" for node, own in zip(made["nodes"], ids, strict=True))
    state = cli.home / "cluster.json"
    state.write_text(state.read_text().replace('"initial_controllers": ""', f'"initial_controllers": "{text}"'))
    for node_id in (1, 2, 3):
        shutil.rmtree(cli.home / f"node-{node_id}" / "data")
    again = cli.json("cluster", "bootstrap", "--port", "0")
    assert again["bootstrap_servers"] == made["bootstrap_servers"]
    assert [voter["directory_id"] for voter in cli.json("quorum", "describe")["voters"]] == ids
