"""Which kind of path a `kraftctl log` command was given; what is none gets one clear line."""

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.report import CommandError

_ADVICE = "Name the directory of log.dirs, or a folder <topic>-<partition> in it."
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class PathKind(Enum):
    LOG_DIR = auto()
    PARTITION = auto()
    FILE = auto()


def check_path(path: Path) -> PathKind:
    """Raises `CommandError` for a path that is nothing of a log."""
    from kraftlog.logstore.layout import META_PROPERTIES_FILE, parse_log_directory

    with readable_errors():
        if not path.exists():
            raise CommandError(f"{path}: no such file or directory", exit_code=ExitCode.NOT_FOUND)
        if path.is_file():
            return PathKind.FILE
        if (path / META_PROPERTIES_FILE).exists():
            return PathKind.LOG_DIR
        os.listdir(path)
    if parse_log_directory(path.absolute().name) is not None:
        return PathKind.PARTITION
    raise CommandError(
        f"{path} is neither a log directory (it has no {META_PROPERTIES_FILE}) nor a partition's folder",
        exit_code=ExitCode.INVALID_INPUT,
        advice=_ADVICE,
    )


def check_folder(path: Path) -> PathKind:
    """As `check_path`, for commands that take no single file."""
    kind = check_path(path)
    if kind is PathKind.FILE:
        raise CommandError(f"{path} is a file, not a folder", exit_code=ExitCode.INVALID_INPUT, advice=_ADVICE)
    return kind


@contextmanager
def readable_errors() -> Iterator[None]:
    """What the system refuses, with what to do about it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FORBIDDEN:
            raise
        raise CommandError(
            f"{error.filename or 'the log'}: {os.strerror(error.errno or 0)}",
            exit_code=ExitCode.INVALID_INPUT,
            advice="Run this as the user that runs the node; the files are opened for reading and writing.",
        ) from error


@contextmanager
def quiet_logstore() -> Iterator[None]:
    """What the log store logs while it reads damaged files is in the findings already."""
    logger = logging.getLogger("kraftlog.logstore")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
