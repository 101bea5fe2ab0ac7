"""A pid is not a process: nothing but the process that we started is ever signalled."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kraftlog.server.cli import processes


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_running_process_keeps_its_identity(sleeper: "subprocess.Popen[bytes]") -> None:
    first = processes.identity(sleeper.pid)
    assert first is not None
    assert processes.identity(sleeper.pid) == first
    assert processes.is_running(sleeper.pid, first)


def test_a_zombie_does_not_run(sleeper: "subprocess.Popen[bytes]") -> None:
    """In a container without an init nobody reaps the dead."""
    mine = processes.identity(sleeper.pid)
    assert mine is not None
    assert processes.send_signal(sleeper.pid, mine, signal.SIGKILL)
    assert processes.wait_for_exit(sleeper.pid, mine, 10)
    assert processes.identity(sleeper.pid) is None
    assert not processes.is_running(sleeper.pid, mine)


def test_a_recycled_pid_is_not_signalled(sleeper: "subprocess.Popen[bytes]") -> None:
    assert not processes.send_signal(sleeper.pid, "boot:1", signal.SIGKILL)
    assert sleeper.poll() is None
    assert processes.wait_for_exit(sleeper.pid, "boot:1", 0)


def test_waiting_ends_by_the_timeout(sleeper: "subprocess.Popen[bytes]") -> None:
    mine = processes.identity(sleeper.pid)
    assert mine is not None
    assert not processes.wait_for_exit(sleeper.pid, mine, 0.01)


def test_no_process_has_no_identity() -> None:
    assert processes.identity(2**22 + 1) is None  # above Linux's largest pid
    assert not processes.is_running(None, None)
    assert not processes.send_signal(2**22 + 1, "x", signal.SIGTERM)
