"""glibc's allocator for a process that moves megabyte buffers.

By default glibc maps and unmaps every block above a threshold (128 KiB at first), and the page faults of fresh
mappings cost more than all else on the data path. Measured at 1 MiB messages: raising the thresholds doubles the rate.
The price is memory kept for reuse, bounded by the trim threshold. Nodes, `kraftctl` and Spark's workers do it at
start; a user's process does it by its own choice: `kraftlog.proto.malloc.raise_thresholds()` before it uses a client.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_MMAP_THRESHOLD_BYTES = 32 << 20  # glibc's upper bound (HEAP_MAX / 2 on 64 bit); larger values are refused
_TRIM_THRESHOLD_BYTES = 64 << 20  # free memory at the top of the heap that is kept


def raise_thresholds() -> bool:
    """Set both thresholds; returns whether the C library took them (False off glibc). Call before importing grpc."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None or getattr(libc, "gnu_get_libc_version", None) is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    )
