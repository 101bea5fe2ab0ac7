"""The nodes of a local cluster: their folders, their processes, and what they say when they start.

<home>/node-<id>/server.properties   a node's configuration, as `kraftctl server run --config` takes it
<home>/node-<id>/data/               its log directory
<home>/node-<id>/server.log          what it prints
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalNode
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli import processes

COMMENT = "Made by kraftctl cluster bootstrap."
_NODE_DIRECTORY = re.compile(r"node-(\d+)")
_READY = re.compile(r"^kraftlog node \d+ ready on (\S+)\s*$", re.MULTILINE)
_LOOK_AGAIN_S = 0.02
_FAILURES = {  # how a node's last line says what stands in its way
    "cannot listen": (ExitCode.CONFLICT, "Choose another address with --port or --host; --port 0 takes a free port."),
    "in use": (ExitCode.CONFLICT, ""),
    "belongs to cluster": (ExitCode.CONFLICT, ""),
}


# files


def node_directory(home: Path, node_id: int) -> Path:
    return home / f"node-{node_id}"


def data_directory(home: Path, node_id: int) -> Path:
    """Where a new node keeps its logs."""
    return node_directory(home, node_id) / "data"


def properties_path(home: Path, node_id: int) -> Path:
    return node_directory(home, node_id) / "server.properties"


def read_pairs(home: Path, node_id: int) -> dict[str, str]:
    """A node's server.properties."""
    from kraftlog.proto.properties import read_properties

    return read_properties(properties_path(home, node_id))


def write_pairs(home: Path, node_id: int, pairs: Mapping[str, str]) -> None:
    """Check and write a node's server.properties; one that says the same is left alone."""
    from kraftlog.proto.properties import format_properties
    from kraftlog.server.config import NodeConfig

    path = properties_path(home, node_id)
    if path.exists() and read_pairs(home, node_id) == pairs:
        return
    NodeConfig.from_properties(pairs)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(format_properties(dict(pairs), COMMENT), encoding="utf-8")


def known_nodes(home: Path) -> list[int]:
    """The ids of the nodes that have a configuration."""
    if not home.is_dir():
        return []
    found = [_NODE_DIRECTORY.fullmatch(entry.name) for entry in home.iterdir()]
    return sorted(int(match[1]) for match in found if match and properties_path(home, int(match[1])).exists())


# processes


def is_running(node: LocalNode) -> bool:
    return processes.is_running(node.pid, node.process)


@dataclass(slots=True)
class _Starting:
    node: LocalNode
    process: "subprocess.Popen[bytes]"
    log_path: Path
    begin: int
    """Where this start's part of the log begins."""

    @property
    def said(self) -> str:
        with self.log_path.open("rb") as log:
            log.seek(self.begin)
            return log.read().decode("utf-8", "replace")


class NodeStarter:
    """Starts nodes in the background and waits for all of them together: the first ones wait for a majority.

    What it has started and not waited for ends with a failure.
    """

    def __init__(self) -> None:
        self._starting: list[_Starting] = []

    def launch(self, node: LocalNode) -> LocalNode:
        """The node with its process."""
        directory = Path(node.directory)
        log_path = directory / "server.log"
        with log_path.open("ab") as log:
            begin = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "kraftlog.server.main", "--config", str(directory / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                start_new_session=True,  # Ctrl-C in this terminal is not for the node
            )
        launched = replace(node, pid=process.pid, process=processes.identity(process.pid))
        self._starting.append(_Starting(launched, process, log_path, begin))
        return launched

    def wait_ready(self, timeout_s: float) -> list[LocalNode]:
        """The launched nodes, once all of them answer. Raises `CommandError` with the last words of the first that fails."""
        deadline = time.monotonic() + timeout_s
        ready: list[LocalNode] = []
        try:
            for starting in self._starting:
                address = _wait_until_ready(starting, deadline, timeout_s)
                ready.append(replace(starting.node, address=address))
        except BaseException:
            self.kill()
            raise
        for starting in self._starting:
            starting.process.returncode = 0  # it lives on as somebody else's child: no warning when this object goes
        self._starting = []
        return ready

    def kill(self) -> None:
        """End what was launched and not waited for."""
        for starting in self._starting:
            starting.process.kill()
        for starting in self._starting:
            starting.process.wait()
        self._starting = []


def _wait_until_ready(starting: _Starting, deadline: float, timeout_s: float) -> str:
    while True:
        stopped = _has_stopped(starting.process)
        said = starting.said
        if ready := _READY.search(said):
            return ready.group(1)
        if stopped:
            raise _start_error(starting, said)
        if time.monotonic() >= deadline:
            raise CommandError(
                f"node {starting.node.node_id} did not get ready within {timeout_s:.0f} s and was stopped",
                exit_code=ExitCode.UNREACHABLE,
                advice=f"Read {starting.log_path}; give it longer with --timeout.",
            )


def _has_stopped(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_LOOK_AGAIN_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _start_error(starting: _Starting, said: str) -> CommandError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"it said nothing and exited with {starting.process.returncode}"
    last = re.sub(r"^\S*kraftlog\S*: (error: )?", "", last)
    failures = (failure for phrase, failure in _FAILURES.items() if phrase in last)
    code, advice = next(failures, (ExitCode.FAILED, ""))
    return CommandError(
        f"node {starting.node.node_id} did not start: {last}",
        exit_code=code,
        advice=advice or f"Its log is {starting.log_path}.",
    )


def stop_nodes(nodes: Sequence[LocalNode], timeout_s: float, *, force: bool) -> list[LocalNode]:
    """Stop nodes at the same time, and return them as stopped. Raises `CommandError` for one that does not stop in time,
    unless it may be killed by `force`."""
    running = [node for node in nodes if is_running(node)]
    for node in running:
        _signal(node, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    for node in running:
        if _wait_for_exit(node, deadline - time.monotonic()):
            continue
        if not force:
            raise CommandError(
                f"node {node.node_id} (pid {node.pid}) did not stop within {timeout_s:.0f} s",
                exit_code=ExitCode.UNREACHABLE,
                advice="Wait longer with --timeout, or use --force.",
            )
        _signal(node, signal.SIGKILL)
        _wait_for_exit(node, timeout_s)
    return [replace(node, pid=None, process=None) for node in nodes]


def _signal(node: LocalNode, number: signal.Signals) -> None:
    assert node.pid is not None
    assert node.process is not None
    processes.send_signal(node.pid, node.process, number)


def _wait_for_exit(node: LocalNode, timeout_s: float) -> bool:
    assert node.pid is not None
    assert node.process is not None
    return processes.wait_for_exit(node.pid, node.process, max(0.0, timeout_s))
