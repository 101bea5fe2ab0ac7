"""One node of a local cluster: its folder, its process, and what it says when it starts.

<home>/node-<id>/server.properties   its configuration, as `kraftctl server run --config` takes it
<home>/node-<id>/data/               its log directory
<home>/node-<id>/server.log          what it prints
"""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalNode
from kraftlog.sdk.cli.report import CommandError
from kraftlog.server.cli import processes

_READY = re.compile(r"^kraftlog node \d+ ready on (\S+)\s*$", re.MULTILINE)
_LOOK_AGAIN_S = 0.02
_FAILURES = {  # how a node's last line says what stands in its way
    "cannot listen": (ExitCode.CONFLICT, "Choose another address with --port or --host; --port 0 takes a free port."),
    "in use": (ExitCode.CONFLICT, ""),
    "belongs to cluster": (ExitCode.CONFLICT, ""),
}


def node_directory(home: Path, node_id: int) -> Path:
    return home / f"node-{node_id}"


def properties_of(home: Path, node_id: int, listeners: str, more: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a node of a local cluster; `more` wins over what is set here."""
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": listeners,
        "log.dirs": str(node_directory(home, node_id) / "data"),
        "group.initial.rebalance.delay.ms": "0",  # as Kafka's own quick start: one user, who does not want to wait
        **more,
    }


def start_node(home: Path, node_id: int, timeout_s: float) -> LocalNode:
    """Start the node in the background and wait until it answers. Raises `CommandError` with its own last words."""
    directory = node_directory(home, node_id)
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
    address = _wait_until_ready(process, log_path, begin, timeout_s)
    process.returncode = 0  # it lives on as somebody else's child: no warning when this object goes
    return LocalNode(
        node_id=node_id,
        directory=str(directory),
        address=address,
        pid=process.pid,
        process=processes.identity(process.pid),
    )


def _wait_until_ready(process: "subprocess.Popen[bytes]", log_path: Path, begin: int, timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            stopped = _has_stopped(process)
            said = _said_since(log_path, begin)
            if ready := _READY.search(said):
                return ready.group(1)
            if stopped:
                raise _start_error(said, process.returncode, log_path)
            if time.monotonic() >= deadline:
                raise CommandError(
                    f"the node did not get ready within {timeout_s:.0f} s and was stopped",
                    exit_code=ExitCode.UNREACHABLE,
                    advice=f"Read {log_path}; give it longer with --timeout.",
                )
    except BaseException:
        process.kill()
        process.wait()
        raise


def _has_stopped(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(_LOOK_AGAIN_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _said_since(log_path: Path, begin: int) -> str:
    with log_path.open("rb") as log:
        log.seek(begin)
        return log.read().decode("utf-8", "replace")


def _start_error(said: str, return_code: int, log_path: Path) -> CommandError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"it said nothing and exited with {return_code}"
    last = re.sub(r"^\S*kraftlog\S*: (error: )?", "", last)
    failures = (failure for phrase, failure in _FAILURES.items() if phrase in last)
    code, advice = next(failures, (ExitCode.FAILED, ""))
    return CommandError(f"the node did not start: {last}", exit_code=code, advice=advice or f"Its log is {log_path}.")
