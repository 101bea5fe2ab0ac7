"""The folder of a local cluster: one `kraftctl cluster` verb at a time works on it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from kraftlog.sdk.cli import local
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.local import LocalCluster
from kraftlog.sdk.cli.report import CommandError

dir_option = click.option(
    "--dir", "directory", metavar="DIR", help="Where the cluster lives. [env KRAFTLOG_HOME; ~/.local/share/kraftlog]"
)


@contextmanager
def locked(home: Path, *, create: bool = False) -> Iterator[None]:
    """Raises `CommandError` while another verb is at work."""
    if create:
        home.mkdir(parents=True, exist_ok=True)
    with (home / ".kraftctl.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"another kraftctl starts or stops the cluster in {home}",
                exit_code=ExitCode.CONFLICT,
                advice="Wait for it and try again.",
            ) from None
        yield


def made_cluster(home: Path) -> LocalCluster:
    """The cluster in `home`. Raises `CommandError` if none was ever made there."""
    state = local.read_state(home)
    if state is None:
        raise CommandError(
            f"no cluster was made in {home}",
            exit_code=ExitCode.UNREACHABLE,
            advice="Make and start one with `kraftctl cluster bootstrap`, or name one with -b HOST:PORT.",
        )
    return state
