"""Apache Kafka beside kraftlog: start and stop of the peer, its own performance tools, parsed.

Everything runs through `peer_kafka.sh`, which fetches Kafka from Maven Central into `$PEERS_HOME`.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("peer_kafka.sh")
_PRODUCED = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)")
_PERCENTILES = re.compile(r"(\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th")


def peer(*args: object, env: Mapping[str, str] | None = None, with_errors: bool = False) -> str:
    """Run one verb of the script; its output. Raises `RuntimeError` with the output on failure.

    `env`: more environment variables than this process has. `with_errors`: what goes to standard error, too.
    """
    command, environment = [SCRIPT, *map(str, args)], os.environ | dict(env or {})
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"peer_kafka.sh {' '.join(map(str, args))}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return f"{done.stdout}{done.stderr if with_errors else ''}".strip()


def tool(name: str, *args: object) -> str:
    """Run one of Kafka's command-line tools by class name."""
    return peer("tool", name, *args)


@dataclass(frozen=True, slots=True)
class Performance:
    records_per_second: float
    p50_ms: float
    p99_ms: float


def performance(
    bootstrap_servers: str, topic: str, count: int, size_bytes: int, acks: str, *, rate: int = -1
) -> Performance:
    """`ProducerPerformance` with 1 MiB batches and linger 5, its best settings; `rate`: records per second, -1: all it can."""
    output = tool("ProducerPerformance", "--bootstrap-server", bootstrap_servers, "--topic", topic,
                  "--num-records", count, "--throughput", rate, "--record-size", size_bytes, "--command-property",
                  f"acks={acks}", "linger.ms=5", "batch.size=1048576")  # fmt: skip
    p50, _, p99 = _PERCENTILES.findall(output)[-1]
    return Performance(float(_PRODUCED.findall(output)[-1][0]), float(p50), float(p99))


class Kafka:
    """A fresh one-node Kafka; use as a context manager."""

    bootstrap_servers: str

    def __enter__(self) -> "Kafka":
        peer("setup")
        peer("stop")
        self.bootstrap_servers = peer("start", 1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        peer("stop")

    @property
    def pid(self) -> int:
        return int(peer("pids").split()[1])

    def create_topic(self, name: str, partitions: int) -> None:
        tool("TopicCommand", "--bootstrap-server", self.bootstrap_servers, "--create", "--topic", name,
             "--partitions", partitions)  # fmt: skip

    def delete_topic(self, name: str) -> None:
        tool("TopicCommand", "--bootstrap-server", self.bootstrap_servers, "--delete", "--topic", name)

    def produce(self, topic: str, count: int, size_bytes: int, acks: str) -> float:
        """Records per second of `ProducerPerformance`."""
        return performance(self.bootstrap_servers, topic, count, size_bytes, acks).records_per_second

    def consume(self, topic: str, count: int) -> float:
        """Records per second of `ConsumerPerformance`, without the group's join."""
        output = tool("ConsumerPerformance", "--bootstrap-server", self.bootstrap_servers, "--topic", topic,
                      "--num-records", count, "--hide-header", "--timeout", 60_000)  # fmt: skip
        return float(output.splitlines()[-1].split(",")[9])


class KafkaAdmin:
    """Kafka's admin client in a process of its own, which tries to reach the servers as long as it takes."""

    def __init__(self, bootstrap_servers: str) -> None:
        command = [SCRIPT, "java", SCRIPT.with_name("AdminClient.java"), bootstrap_servers]
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer("the start")

    def ask(self, command: str) -> str:
        """What one command answers, see `AdminClient.java`. Raises `RuntimeError`."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer(command)

    def _answer(self, command: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ok"):
                return line[2:].strip()
            if line.startswith("!"):
                raise RuntimeError(f"{command}: {line.strip()}")
        raise RuntimeError(f"{command}: the client has ended")  # what else it prints are warnings of its log

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def dump_log(*arguments: object) -> str:
    """What `kafka-dump-log` prints with these arguments, and then what it complains of."""
    return peer("tool", "DumpLogSegments", *arguments, with_errors=True)


def peers_home() -> Path:
    return Path(os.environ.get("PEERS_HOME") or Path.home() / ".cache" / "kraftlog-peers")
