"""The allocator's settings, seen from a process that uses them."""

import platform
import subprocess
import sys

import pytest

PROBE = """
import ctypes, sys, threading
from kraftlog.proto import malloc

assert sys.argv[1] != "tuned" or malloc.tune()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
together = threading.Barrier(4)

def allocate():
    together.wait()
    assert libc.malloc(64 << 10)  # ctypes lets go of the interpreter's lock: the threads meet in the allocator
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""


def _arenas(mode: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROBE, mode], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.count("Arena ")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_threads_share_one_arena() -> None:
    """Untuned, each thread gets an arena of its own and each keeps memory; tuned, there is one."""
    assert _arenas("default") > 1
    assert _arenas("tuned") == 1
