"""Real node processes for tests: start, kill -9, orderly stop, restart on the same port.

    with NodeProcess(tmp_path) as node:
        address = node.start()
        node.kill9()
        assert node.start() == address

A node process leads a process group of its own and is ended by that group's id, so that nothing of it outlives the test;
nobody is ever signalled by name.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kraftlog.logstore import RealFileSystem
from kraftlog.proto.properties import format_properties
from kraftlog.proto.uuids import uuid_to_text
from kraftlog.server.storage import Voters, format_node_directory

READY = re.compile(r"^kraftlog node \d+ ready on (\S+)\s*$", re.MULTILINE)
START_TIMEOUT_S = 30.0  # a busy machine imports slowly; a free one needs less than a second
STOP_TIMEOUT_S = 30.0
_LOOK_AGAIN_S = 0.01


class NodeStartError(RuntimeError):
    """The node ended or stayed silent; the text holds what it printed."""


class NodeProcess:
    """One node in a directory of its own. Used from one thread.

    `<directory>/data` is its log directory, `server.properties` its configuration, `node.log` what it prints.
    """

    def __init__(
        self,
        directory: Path,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        config: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        directory_id: bytes | None = None,
        voters: Voters | None = None,
        address: str = "",
    ) -> None:
        """`launcher`: a command that runs the node's, such as `ip netns exec NAME`. `voters`: the first ones of the cluster, for the first start; empty for a node that joins one; None: this node
        alone. `address`: `host:port` to listen on; empty: a port of the kernel's choice. `directory_id`: of its log directory, where the voters have it; None: a random one."""
        self.directory = directory
        self.node_id = node_id
        self.cluster_id = cluster_id or str(uuid.uuid4())
        self.directory_id = directory_id or os.urandom(16)
        self.log_dir = directory / "data"
        self.output_path = directory / "node.log"
        self.address = address
        """`host:port` of the last start; kept over restarts."""
        self._config = dict(config or {})
        self.environment = dict(environment or {})
        """Of its process at the next start, beside this one's own."""
        self._launcher = tuple(launcher)
        self._voters = voters
        self._said_before = 0
        """Bytes of `node.log` before this start."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def output(self) -> str:
        """All that the node has printed, over all starts."""
        return self.output_path.read_text(encoding="utf-8", errors="replace") if self.output_path.exists() else ""

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the node, wait until it answers, and return its address. Raises `NodeStartError`."""
        self.launch()
        return self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start the node and return: one of several that wait for each other."""
        assert self.pid is None, "the node runs already"
        self._prepare()
        with self.output_path.open("ab") as output:
            self._said_before = output.tell()
            self._process = subprocess.Popen(
                [*self._launcher, sys.executable, "-m", "kraftlog.server.main"]
                + ["--config", str(self.directory / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Wait until the launched node answers, and return its address. Raises `NodeStartError`."""
        assert self._process is not None, "the node was never started"
        try:
            self.address = self._wait_until_ready(self._process, self._said_before, timeout_s)
        except BaseException:
            self.kill9()
            raise
        return self.address

    def kill9(self) -> None:
        """End the node at once, as the kernel's out-of-memory killer would. May be repeated."""
        self._signal(signal.SIGKILL)
        self._reap(STOP_TIMEOUT_S)

    def pause(self) -> None:
        """SIGSTOP: the node hangs and its connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, wait for the orderly end, and return the exit code. Raises `TimeoutError` after killing it."""
        process = self._process
        assert process is not None, "the node was never started"
        self._signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise TimeoutError(f"the node did not stop within {timeout_s} s; it printed:\n{self.output}") from None

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Stop in order and start again."""
        self.stop()
        return self.start(timeout_s)

    def close(self) -> None:
        """Make sure that nothing runs any more. May be repeated."""
        if self.pid is not None:
            self.resume()
            self.kill9()

    def _prepare(self) -> None:
        """Format the log directory at the first start; keep the port at later ones."""
        format_node_directory(
            str(self.log_dir),
            RealFileSystem(),
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            directory_id=uuid_to_text(self.directory_id),
            voters=self._voters,
            timestamp_ms=int(time.time() * 1000),
        )
        pairs = {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{self.address or '127.0.0.1:0'}",
            "log.dirs": str(self.log_dir),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            **self._config,
        }
        (self.directory / "server.properties").write_text(format_properties(pairs), encoding="utf-8")

    def _wait_until_ready(self, process: "subprocess.Popen[bytes]", begin: int, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            ended = _has_ended(process)
            with self.output_path.open("rb") as output:
                output.seek(begin)
                said = output.read().decode("utf-8", "replace")
            ready = READY.search(said)
            if ready:
                return ready.group(1)
            if ended:
                raise NodeStartError(f"the node ended with exit code {process.returncode}; it printed:\n{said}")
            if time.monotonic() >= deadline:
                raise NodeStartError(f"the node was not ready within {timeout_s} s; it printed:\n{said}")

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, number)

    def _reap(self, timeout_s: float) -> None:
        if self._process is not None:
            self._process.wait(timeout_s)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on at the moment, each another one, for nodes that have to know of each
    other before they start."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_LOOK_AGAIN_S)
    except subprocess.TimeoutExpired:
        return False
    return True
