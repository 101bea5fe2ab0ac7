"""kraftctl and a node process that asks for certificates: one properties file says all that a command needs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kraftlog.proto.properties import format_properties
from kraftlog.testing.certificates import Authority
from kraftlog.testing.processes import NodeProcess

pytestmark = [pytest.mark.processes, pytest.mark.slow]

OURS = Authority.create("ours")
NODE = OURS.issue("node-1", hosts=("127.0.0.1",))
OPERATOR = OURS.issue("operator")


@dataclass(frozen=True)
class Cli:
    home: Path
    bootstrap_servers: str
    command_config: Path

    def run(
        self, *arguments: str, stdin: bytes = b"", config: Path | None = None
    ) -> "subprocess.CompletedProcess[bytes]":
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("KRAFTLOG_", "GRPC_"))}
        environment |= {
            "KRAFTLOG_HOME": str(self.home),
            "KRAFTLOG_BOOTSTRAP_SERVERS": self.bootstrap_servers,
            "KRAFTLOG_COMMAND_CONFIG": str(config or self.command_config),
        }
        return subprocess.run(
            [sys.executable, "-m", "kraftlog.sdk.cli.main", *arguments],
            input=stdin,
            env=environment,
            capture_output=True,
            check=False,
            timeout=90,
        )

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        ended = self.run(*arguments, stdin=stdin)
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout.decode()


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    home = tmp_path_factory.mktemp("tls")
    certfile, keyfile, cafile = OPERATOR.files(home, "operator")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(NODE.keystore(home / "node.pem")),
        "ssl.truststore.location": str(cafile),
        "ssl.client.auth": "required",
    }
    command_config = home / "client.properties"
    pairs = {
        "security.protocol": "SSL",
        "ssl.cafile": str(cafile),
        "ssl.certfile": str(certfile),
        "ssl.keyfile": str(keyfile),
    }
    command_config.write_text(format_properties(pairs))
    (home / "node").mkdir()
    with NodeProcess(home / "node", config=config) as node:
        yield Cli(home, node.start(), command_config)


def test_every_command_that_asks_a_cluster_takes_the_file(cli: Cli) -> None:
    """Topics, records, groups, brokers and the cluster's state; producing has a configuration of its own beside it."""
    cli.ok("topic", "create", "orders", "-p", "1")
    cli.ok("produce", "orders", "-X", "linger.ms=0", stdin=b"one\ntwo\n")
    assert cli.ok("consume", "orders", "--from-beginning", "-e", "-f", "%v\n") == "one\ntwo\n"
    assert cli.ok("consume", "orders", "-g", "g", "-o", "start", "-n", "2", "-f", "%v\n") == "one\ntwo\n"
    assert "g" in cli.ok("group", "list")
    assert "orders" in cli.ok("topic", "describe", "orders")
    assert "orders" in cli.ok("broker", "log-dirs")
    assert cli.bootstrap_servers.partition(":")[2] in cli.ok("cluster", "status", "-b", cli.bootstrap_servers)


def test_the_command_line_wins_over_the_file(cli: Cli) -> None:
    ended = cli.run("topic", "list", "-X", "ssl.cafile=/none.crt")
    assert ended.returncode == 6
    assert b"config ssl_cafile=/none.crt cannot be read: No such file" in ended.stderr


def test_a_command_that_does_not_get_in_says_why_in_one_line(cli: Cli) -> None:
    """Without a word of gRPC's own."""
    without = cli.home / "without.properties"
    without.write_text(format_properties({"security.protocol": "SSL", "ssl.cafile": str(cli.home / "ca.crt")}))
    plain = cli.home / "plain.properties"
    plain.write_text("")
    for config, words in ((without, "does not accept clients without a certificate"), (plain, "speaks TLS")):
        ended = cli.run("topic", "list", config=config)
        assert ended.returncode == 1
        (line,) = ended.stderr.decode().splitlines()
        assert line.startswith(f"kraftctl: error: the broker at {cli.bootstrap_servers} ")
        assert words in line
        assert "[SSL_AUTHENTICATION_FAILED]" in line
    ended = cli.run("topic", "list", config=cli.home / "missing.properties")
    assert ended.returncode == 6
    assert b"missing.properties: cannot read the configuration: No such file" in ended.stderr


def test_a_servers_configuration_is_checked_with_its_certificates(cli: Cli) -> None:
    """`server check` and `server start` say what a node would say."""
    properties = cli.home / "server.properties"
    good = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(cli.home / "node.pem")}
    properties.write_text(format_properties(good))
    assert "listens on SSL://127.0.0.1:0" in cli.ok("server", "check", "-c", str(properties))
    mixed = cli.home / "mixed.pem"
    mixed.write_bytes(OPERATOR.key + NODE.certificate)
    properties.write_text(format_properties({**good, "ssl.keystore.location": str(mixed)}))
    for verb in ("check", "start"):
        ended = cli.run("server", verb, "-c", str(properties))
        assert ended.returncode == 6
        assert b"the private key does not belong to the first certificate" in ended.stderr
