"""Processes that outlive the command that started them: telling them apart, waiting for them, signalling them.

A pid alone is not a process: it may be recycled. `identity` is a string that a later process with the same pid does not
share (Linux: boot id and start time in clock ticks). On Linux a signal goes through a pidfd that was opened before the
identity was compared, so it cannot hit a successor.
"""

import os
import select
import signal
import subprocess
import time
from pathlib import Path

_POLL_S = 0.05  # only where the kernel has no pidfd


def identity(pid: int) -> str | None:
    """What tells the process apart, or None if there is no such process or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _identity_by_ps(pid)
    fields = stat.rpartition(")")[2].split()  # the name before it may contain anything
    state, start_ticks = fields[0], fields[19]
    if state in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}:{start_ticks}"


def _identity_by_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def is_running(pid: int | None, process: str | None) -> bool:
    """Whether exactly this process still runs."""
    return pid is not None and process is not None and identity(pid) == process


def send_signal(pid: int, process: str, number: signal.Signals) -> bool:
    """Signal exactly this process; returns whether it was there."""
    descriptor = _open_pidfd(pid)
    try:
        if identity(pid) != process:
            return False
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)


def wait_for_exit(pid: int, process: str, timeout_s: float) -> bool:
    """Wait until exactly this process is gone; returns False when `timeout_s` passed first."""
    descriptor = _open_pidfd(pid)
    if descriptor is not None:
        try:
            if identity(pid) != process:
                return True
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            return bool(poller.poll(timeout_s * 1000))
        finally:
            os.close(descriptor)
    deadline = time.monotonic() + timeout_s
    while identity(pid) == process:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _open_pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
