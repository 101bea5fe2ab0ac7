"""glibc's allocator for a process that moves megabyte buffers.

By default glibc maps and unmaps every block above a threshold (128 KiB at first), and the page faults of fresh
mappings cost more than all else on the data path: raising the thresholds doubles the rate at 1 MiB messages (measured).
The price is memory kept for reuse, bounded by the trim threshold *per arena*; threads get arenas of their own, up to
eight per core. One arena halves a node's memory (165 to 74 MiB after the whole benchmark) at the same rates: most
allocations hold the interpreter's lock anyway. Nodes, `kraftctl` and Spark's workers do this at start; a user's process
does it by its own choice: `kraftlog.proto.malloc.tune()` before it uses a client.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_TRIM_THRESHOLD_BYTES = 64 << 20  # free memory at the top of the heap that is kept
_MMAP_THRESHOLD_BYTES = 32 << 20  # glibc's upper bound (HEAP_MAX / 2 on 64 bit); larger values are refused
_ARENAS = 1

_SETTINGS = (
    (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
    (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES),
    (_M_ARENA_MAX, _ARENAS),
)


def tune() -> bool:
    """Set thresholds and arenas; whether the C library took them (False off glibc). Call before importing grpc."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None or getattr(libc, "gnu_get_libc_version", None) is None:
        return False
    return all(mallopt(parameter, value) for parameter, value in _SETTINGS)
