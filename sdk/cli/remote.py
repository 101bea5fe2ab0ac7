"""Clients as commands use them: configured from the command line, impatient, and always closed."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kraftlog.proto import malloc
from kraftlog.proto.config import snake
from kraftlog.proto.errors import BrokerNotAvailableError
from kraftlog.sdk.cli.options import parse_pairs

if TYPE_CHECKING:
    from kraftlog.sdk.admin import Admin

# This module loads in kraftctl's own process, before its commands import grpc.
malloc.tune()
os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it writes its own lines about handshakes, beside our one line

PATIENCE_MS = 10_000  # somebody waits in front of a terminal; a service would wait for a minute
CONNECT_TIMEOUT_S = 3.0


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


def for_admin(extra: tuple[str, ...]) -> tuple[str, ...]:
    """Those pairs of a producer's or consumer's configuration that every client has."""
    from kraftlog.sdk.config import AdminConfig

    return tuple(pair for pair in extra if AdminConfig.has(pair.partition("=")[0].strip()))


@contextmanager
def admin_client(bootstrap_servers: str, extra: tuple[str, ...] = (), **settings: Any) -> "Iterator[Admin]":
    """An `Admin` for the duration of one command. Raises `BrokerNotAvailableError` at once if nobody listens."""
    from kraftlog.sdk.admin import Admin

    with Admin(**client_config(bootstrap_servers, extra, **settings)) as admin:
        check_listening(admin.config.bootstrap_servers)
        yield admin


def check_listening(addresses: tuple[str, ...]) -> None:
    """Clients keep trying, since a node may be restarting; at a terminal a stopped cluster is told at once."""
    problems = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise BrokerNotAvailableError(f"no broker listens at {'; '.join(problems)}")
