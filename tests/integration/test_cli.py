"""kraftctl against a real local cluster: the verbs, and every kind of bad input as one clear line."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.kraftctl import Cli

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A started cluster."""
    made = Cli(tmp_path_factory.mktemp("cli") / "home")
    made.ok("cluster", "bootstrap", "--port", "0", "-c", "offsets.topic.num.partitions=4")
    yield made
    made.ok("cluster", "stop", "--force")


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Cli]:
    """A home of one's own; what is started there is stopped."""
    made = Cli(tmp_path / "home")
    yield made
    made.ok("cluster", "stop", "--force")


@pytest.fixture
def topic(cli: Cli, request: pytest.FixtureRequest) -> str:
    """A fresh topic of three partitions, named after the test."""
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:100]
    cli.ok("topic", "create", name, "-p", "3")
    return name


# A cluster's life


def test_bootstrap_again_says_so_and_does_no_harm(cli: Cli) -> None:
    before = cli.json("cluster", "status")
    again = cli.json("cluster", "bootstrap", "--port", "0")
    assert again["status"] == "already running"
    assert again["bootstrap_servers"] == before["nodes"][0]["address"]
    assert cli.json("cluster", "status")["nodes"] == before["nodes"]


def test_a_stopped_cluster_starts_again_with_its_data(stopped: Cli) -> None:
    first = stopped.json("cluster", "bootstrap", "--port", "0")
    stopped.ok("topic", "create", "kept")
    stopped.ok("produce", "kept", stdin=b"record\n")
    assert stopped.json("cluster", "stop")["stopped"] == [1]
    assert stopped.run("cluster", "status").returncode == 3
    second = stopped.json("cluster", "bootstrap", "--port", "0")
    assert second["cluster_id"] == first["cluster_id"]
    assert stopped.ok("consume", "kept", "--from-beginning", "-e") == "record\n"


def test_a_killed_cluster_is_seen_as_stopped_and_starts_again(stopped: Cli) -> None:
    pid = stopped.json("cluster", "bootstrap", "--port", "0")["nodes"][0]["pid"]
    stopped.ok("topic", "create", "kept")
    stopped.ok("produce", "kept", stdin=b"record\n")
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while stopped.run("cluster", "status").returncode == 0:
        assert time.monotonic() < deadline
    stopped.ok("cluster", "bootstrap", "--port", "0")
    assert stopped.ok("consume", "kept", "--from-beginning", "-e") == "record\n"


def test_stop_is_repeatable_and_leaves_strangers_alone(stopped: Cli) -> None:
    """The pid in the state file may belong to another process by now: only ours is ever signalled."""
    assert stopped.ok("cluster", "stop").startswith("no cluster runs")
    stranger = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        stopped.home.mkdir(parents=True)
        node = {"node_id": 1, "directory": "x", "address": "127.0.0.1:1", "pid": stranger.pid, "process": "boot:1"}
        (stopped.home / "cluster.json").write_text(json.dumps({"version": 1, "cluster_id": "x", "nodes": [node]}))
        assert stopped.ok("cluster", "stop").startswith("no cluster runs")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_status_shows_the_cluster(cli: Cli) -> None:
    document = cli.json("cluster", "status")
    assert document["reachable"]
    assert document["nodes"][0]["running"]
    assert document["cluster"]["cluster_id"] == document["cluster_id"]
    assert document["nodes"][0]["address"] in cli.ok("cluster", "status")


# Topics


def test_records_are_deleted_up_to_an_offset(cli: Cli, topic: str) -> None:
    """A dry run changes nothing; a partition that does not hold so much is an error."""
    cli.ok("produce", topic, "--partition", "1", stdin=b"a\nb\nc\n")
    command = ["topic", "delete-records", topic, "-p", "1", "--before", "2"]
    would = cli.ok(*command, "--dry-run")
    assert would.strip() == f"{topic}-1: would delete 2 offsets, start 0 -> 2"
    [result] = cli.json(*command)
    assert (result["partition"], result["old_start_offset"], result["start_offset"]) == (1, 0, 2)
    assert cli.ok("consume", topic, "--from-beginning", "-n", "1").strip() == "c"
    everything = cli.json("topic", "delete-records", topic, "--before", "latest")
    assert [(each["partition"], each["start_offset"]) for each in everything] == [(0, 0), (1, 3), (2, 0)]
    assert [each["start_offset"] for each in cli.json("topic", "describe", topic)[0]["partitions"]] == [0, 3, 0]


def test_log_dirs_show_what_a_topic_takes(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "--partition", "1", stdin=b"a\nb\n")
    [log_dir] = cli.json("broker", "log-dirs", topic)
    assert [(each["partition"], each["log_end_offset"]) for each in log_dir["logs"]] == [(0, 0), (1, 2), (2, 0)]
    assert log_dir["logs"][1]["size_bytes"] > log_dir["logs"][0]["size_bytes"] == 0
    assert (log_dir["node_id"], log_dir["error"]) == (1, "")
    first, columns, *rows = cli.ok("broker", "log-dirs", topic, "--node", "1").splitlines()
    assert first.startswith(f"node 1, {log_dir['path']}: online, ")
    assert (columns.split()[0], len(rows)) == ("topic", 3)
    assert cli.json("broker", "log-dirs", "there-is-no-such-topic")[0]["logs"] == []
    cli.fails(4, "no node 9 lives", "broker", "log-dirs", "--node", "9")


def test_topics_are_created_listed_described_and_deleted(cli: Cli) -> None:
    made = cli.json("topic", "create", "one", "two", "-p", "2", "-c", "retention.ms=1000")
    assert [(each["name"], each["num_partitions"]) for each in made] == [("one", 2), ("two", 2)]
    assert {"one", "two"} <= {each["name"] for each in cli.json("topic", "list")}
    described = cli.json("topic", "describe", "one")[0]
    assert described["configs"] == {"retention.ms": "1000"}
    assert [each["end_offset"] for each in described["partitions"]] == [0, 0]
    assert "partition  leader" in cli.ok("topic", "describe", "one")
    cli.ok("topic", "delete", "one", "two")
    assert not {"one", "two"} & {each["name"] for each in cli.json("topic", "list")}


def test_if_not_exists_leaves_a_topic_alone(cli: Cli, topic: str) -> None:
    assert cli.json("topic", "create", topic, "--if-not-exists") == [{"created": False, "name": topic}]
    cli.fails(5, "exists", "topic", "create", topic)


def test_topics_are_altered(cli: Cli, topic: str) -> None:
    altered = cli.json("topic", "alter", topic, "-p", "5", "-c", "retention.ms=1000", "-c", "segment.ms=7")
    assert (altered["partitions"], altered["configs"]) == (5, {"retention.ms": "1000", "segment.ms": "7"})
    assert cli.ok("topic", "alter", topic, "--delete-config", "segment.ms") == (
        f"topic {topic}: 5 partitions\n  retention.ms=1000\n"
    )
    cli.fails(6, "5", "topic", "alter", topic, "-p", "2")
    cli.fails(6, "did you mean 'retention.ms'", "topic", "alter", topic, "-c", "retention.mss=1")
    cli.fails(2, "nothing to change", "topic", "alter", topic)
    cli.fails(4, "missing-topic", "topic", "alter", "missing-topic", "-p", "2")


def test_preferred_leaders_lead(cli: Cli, topic: str) -> None:
    assert cli.json("partition", "elect-leader", topic) == []
    assert cli.ok("partition", "elect-leader").startswith("nothing to do")
    cli.fails(2, "need a TOPIC", "partition", "elect-leader", "--unclean")
    cli.fails(4, "missing-topic", "partition", "elect-leader", "missing-topic")


def test_a_broker_that_lives_is_not_forgotten(cli: Cli) -> None:
    cli.fails(4, "9", "broker", "unregister", "9")


# Records


def test_lines_go_in_and_out_with_keys_and_headers(cli: Cli, topic: str) -> None:
    summary = cli.json("produce", topic, "-k", ":", "-H", "source:test", "-z", "lz4", stdin=b"a:1\nb:2\na:3\n")
    assert summary["records"] == 3
    assert summary["durability"] == "quorum-fsync"
    lines = cli.ok("consume", topic, "-o", "start", "-e", "-f", "%k=%v %h\\n").splitlines()
    assert sorted(lines) == ["a=1 source=test", "a=3 source=test", "b=2 source=test"]
    documents = [
        json.loads(line)
        for line in cli.ok("consume", topic, "--from-beginning", "-n", "3", "--format", "json").splitlines()
    ]
    assert sorted(document["value"] for document in documents) == ["1", "2", "3"]
    of_a = [document for document in documents if document["key"] == "a"]
    assert len({document["partition"] for document in of_a}) == 1
    assert [document["value"] for document in sorted(of_a, key=lambda document: document["offset"])] == ["1", "3"]


def test_csv_rows_become_json_keyed_by_a_column(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("carrier,delay\nUA,5\nDL,-3\n")
    assert cli.json("produce", topic, str(file), "--csv", "--key-column", "carrier")["records"] == 2
    lines = sorted(cli.ok("consume", topic, "-o", "start", "-e", "-f", "%k %v\\n").splitlines())
    assert lines == ['DL {"carrier": "DL", "delay": "-3"}', 'UA {"carrier": "UA", "delay": "5"}']


def test_starting_points(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-p", "0", stdin=b"0\n1\n2\n3\n")
    read = lambda *more: cli.ok("consume", topic, "-p", "0", "-e", *more).split()  # noqa: E731
    assert read("-o", "start") == ["0", "1", "2", "3"]
    assert read("-o", "2") == ["2", "3"]
    assert read("-o", "-1") == ["3"]
    assert read("-o", "end") == []
    assert read("-o", "@0") == ["0", "1", "2", "3"]
    assert read("-o", f"@{int(time.time() * 1000) + 3_600_000}") == []


def test_a_group_goes_on_where_it_stopped_and_its_lag_is_shown(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, "-p", "1", stdin=b"0\n1\n2\n3\n4\n")
    group = f"group-{topic}"
    assert cli.ok("consume", topic, "-g", group, "-o", "start", "-n", "2").split() == ["0", "1"]
    described = cli.json("group", "describe", group)[0]
    assert described["total_lag"] == 3
    assert cli.ok("consume", topic, "-g", group, "-e").split() == ["2", "3", "4"]
    assert cli.json("group", "describe", group)[0]["total_lag"] == 0
    assert group in {each["group_id"] for each in cli.json("group", "list")}
    assert f"group {group}: Empty" in cli.ok("group", "describe", group)


def test_ctrl_c_ends_a_consumer_at_once_and_quietly(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, stdin=b"seen\n")
    process = cli.start("consume", topic, "--from-beginning")
    assert process.stdout is not None
    assert process.stdout.readline() == b"seen\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_a_closed_pipe_ends_a_consumer_quietly(cli: Cli, topic: str) -> None:
    cli.ok("produce", topic, stdin=b"line\n" * 5_000)
    process = cli.start("consume", topic, "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    cli.ok("produce", topic, stdin=b"line\n" * 5_000)
    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


# Bad input


@pytest.mark.parametrize(
    ("name", "text"),
    [("..", "reserved"), ("a/b", "character other than"), ("x" * 250, "250 characters exceeds 249"), ("", "empty")],
    ids=["dots", "slash", "long", "empty"],
)
@pytest.mark.parametrize(
    "verb", [["topic", "create"], ["produce"], ["consume"], ["topic", "describe"], ["topic", "delete"]], ids=" ".join
)
def test_bad_topic_names(cli: Cli, verb: list[str], name: str, text: str) -> None:
    cli.fails(6, text, *verb, name)


@pytest.mark.parametrize("verb", [["produce"], ["consume"], ["topic", "describe"], ["topic", "delete"]], ids=" ".join)
def test_unknown_topics(cli: Cli, verb: list[str]) -> None:
    line = cli.fails(4, "missing-topic", *verb, "missing-topic")
    assert "kraftctl topic list" in line


def test_an_unknown_group(cli: Cli) -> None:
    assert "kraftctl group list" in cli.fails(4, "missing-group", "group", "describe", "missing-group")


def test_a_record_over_the_limit_is_named_by_its_line(cli: Cli, topic: str) -> None:
    line = cli.fails(6, "standard input line 2", "produce", topic, stdin=b"small\n" + b"x" * 2_000_000 + b"\n")
    assert "[MESSAGE_TOO_LARGE]" in line
    assert "max_request_size" in line


def test_a_record_over_the_topics_limit_is_named_by_its_line(cli: Cli) -> None:
    cli.ok("topic", "create", "tight", "-c", "max.message.bytes=1000")
    line = cli.fails(6, "standard input line 2", "produce", "tight", stdin=b"small\n" + b"x" * 5_000 + b"\n")
    assert "[MESSAGE_TOO_LARGE]" in line


def test_unknown_config_keys_get_the_nearest_name(cli: Cli, topic: str) -> None:
    cli.fails(6, "did you mean 'retention.ms'", "topic", "create", "t", "-c", "retention.mss=1")
    cli.fails(6, "did you mean 'linger_ms'", "produce", topic, "-X", "linger.m=1")
    cli.fails(6, "is not key=value", "topic", "create", "t", "-c", "retention.ms")


def test_bad_topic_settings(cli: Cli) -> None:
    cli.fails(6, "0", "topic", "create", "t", "-p", "0")
    cli.fails(6, "2", "topic", "create", "t", "-r", "2")
    cli.fails(6, "retention.ms", "topic", "create", "t", "-c", "retention.ms=soon")


def test_a_csv_without_the_key_column(cli: Cli, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text("carier,delay\nUA,5\n")
    line = cli.fails(
        6,
        "no key column 'carrier': did you mean 'carier'?",
        "produce",
        topic,
        str(file),
        "--csv",
        "--key-column",
        "carrier",
    )
    assert "Its columns are carier, delay." in line


def test_a_file_that_is_not_there(cli: Cli, topic: str) -> None:
    cli.fails(4, "none.txt: no such file", "produce", topic, "none.txt")


def test_an_offset_that_is_not_there(cli: Cli, topic: str) -> None:
    cli.fails(4, "has no partition 7", "consume", topic, "-p", "7")
    cli.fails(2, "none of start, end", "consume", topic, "-o", "somewhere")


@pytest.mark.parametrize(
    "verb",
    [["topic", "list"], ["topic", "create", "t"], ["produce", "t"], ["consume", "t"], ["group", "list"]],
    ids=" ".join,
)
def test_a_stopped_cluster(stopped: Cli, verb: list[str]) -> None:
    with socket.socket() as closed:  # bound but not listening: connections are refused
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        begin = time.monotonic()
        line = stopped.fails(3, address, *verb, "-b", address)
        assert "kraftctl cluster bootstrap" in line
        assert time.monotonic() - begin < 8  # not the clients' patience of ten seconds


def test_status_without_a_cluster(stopped: Cli) -> None:
    assert "kraftctl cluster bootstrap" in stopped.fails(3, "no cluster was made", "cluster", "status")


def test_numbers_of_nodes_that_do_not_go_together(cli: Cli, stopped: Cli) -> None:
    stopped.fails(2, "excludes", "cluster", "bootstrap", "--nodes", "3", "--controllers", "3", "--brokers", "1")
    stopped.fails(2, "go together", "cluster", "bootstrap", "--brokers", "2")
    stopped.fails(2, "would be the same", "cluster", "bootstrap", "--nodes", "3", "-c", "node.id=4")
    assert not (stopped.home / "node-1").exists()
    cli.fails(5, "--nodes is not given", "cluster", "bootstrap", "--controllers", "1", "--brokers", "1")
    cli.fails(4, "no node 7", "cluster", "stop", "--node", "7")


def test_an_unknown_node_config_makes_nothing(stopped: Cli) -> None:
    stopped.fails(6, "did you mean 'num.partitions'", "cluster", "bootstrap", "-c", "num.partition=1")
    assert not (stopped.home / "node-1").exists()


def test_a_port_in_use(stopped: Cli) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stopped.fails(5, f"127.0.0.1:{port}", "cluster", "bootstrap", "--port", str(port))


def test_the_port_of_another_node(cli: Cli, stopped: Cli) -> None:
    """SO_REUSEPORT, gRPC's default, would let two nodes share a port in silence."""
    port = cli.json("cluster", "status")["nodes"][0]["address"].rpartition(":")[2]
    stopped.fails(5, port, "cluster", "bootstrap", "--port", port)


def test_a_log_directory_in_use(cli: Cli, tmp_path: Path) -> None:
    config = (cli.home / "node-1" / "server.properties").read_text()
    other = tmp_path / "server.properties"
    other.write_text(config)
    ended = cli.run("server", "start", "--config", str(other))
    assert ended.returncode == 1
    assert "in use" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_a_log_directory_of_another_cluster(cli: Cli, stopped: Cli) -> None:
    stopped.ok("cluster", "bootstrap", "--port", "0")
    stopped.ok("cluster", "stop")
    stopped.fails(
        5, "belongs to cluster", "cluster", "bootstrap", "--port", "0", "--cluster-id", "anotherClusterOfMine01"
    )


def test_a_log_directory_that_is_not_formatted(stopped: Cli, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n")
    ended = stopped.run("server", "start", "--config", str(config))
    assert ended.returncode == 1
    assert str(tmp_path / "data") in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert stopped.json("storage", "format", "--config", str(config))["formatted"]
    stopped.fails(5, "formatted already", "storage", "format", "--config", str(config))


def test_a_file_of_configuration_that_is_wrong(stopped: Cli, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    stopped.fails(6, "cannot read", "server", "start", "--config", str(config))
    config.write_text("node.idd=1\n")
    stopped.fails(6, "did you mean 'node.id'", "server", "start", "--config", str(config))
    stopped.fails(6, "did you mean 'node.id'", "server", "check", "--config", str(config))


def test_a_node_in_the_foreground_stops_on_sigterm(stopped: Cli, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path / 'data'}\n")
    stopped.ok("storage", "format", "--config", str(config))
    process = stopped.start("server", "start", "--config", str(config))
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert select.select([process.stdout], [], [], 60)[0]
        assert b"ready on 127.0.0.1:" in process.stdout.readline()
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
