"""Where `OSError` becomes `StorageError`, once, with the place and the next step in the text."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from kraftlog.proto.errors import StorageError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class DiskFullError(StorageError):
    """No space left: the write did not happen, and the same call may succeed when there is space again."""


class LogDirLockedError(StorageError):
    """Another process owns the log directory."""

    retriable = False


def is_disk_full(error: OSError) -> bool:
    return error.errno in _FULL


def is_out_of_descriptors(error: OSError) -> bool:
    """The process or the system has no more of them: that says nothing of the disk."""
    return error.errno in _NO_DESCRIPTORS


def storage_error(doing: str, path: str, error: OSError) -> StorageError:
    """The `StorageError` for what the system said while `doing` something to `path`."""
    if is_disk_full(error):
        return DiskFullError(f"cannot {doing} {path}: disk full; free space or lower retention, then send again")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(f"cannot {doing} {path}: {reason}; check the disk, then restart the node")


@contextmanager
def storage_errors(doing: str, path: str) -> Iterator[None]:
    """Raise `StorageError` for any `OSError` inside."""
    try:
        yield
    except OSError as e:
        raise storage_error(doing, path, e) from e
