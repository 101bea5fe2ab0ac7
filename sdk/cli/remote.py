"""Clients as commands use them: configured from the command line, impatient, and always closed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kraftlog.proto.config import snake
from kraftlog.sdk.cli.options import parse_pairs

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin

PATIENCE_MS = 10_000  # somebody waits in front of a terminal; a service would wait for a minute


def client_config(bootstrap_servers: str, extra: tuple[str, ...], **settings: Any) -> dict[str, Any]:
    """The client's configuration: ours, the command's, and `-X` above both."""
    config: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers,
        "client_id": "kraftctl",
        "request_timeout_ms": PATIENCE_MS,
        "default_api_timeout_ms": PATIENCE_MS,
        **{key: value for key, value in settings.items() if value is not None},
    }
    return config | {snake(key): value for key, value in parse_pairs(extra, "-X").items()}


@contextmanager
def admin_client(bootstrap_servers: str, extra: tuple[str, ...] = ()) -> "Iterator[Admin]":
    """An `Admin` for the duration of one command."""
    from kraftlog.sdk.admin import Admin

    with Admin(**client_config(bootstrap_servers, extra)) as admin:
        yield admin


def describe_cluster(bootstrap_servers: str) -> dict[str, Any]:
    """What the cluster says about itself, as plain values."""
    with admin_client(bootstrap_servers) as admin:
        return asdict(admin.describe_cluster())
