"""How much one request may name: a message of 64 MiB of empty entries would hold the event loop for seconds. And how long it
waits for partitions."""

from collections.abc import Sized

from kraftlog.proto.errors import InvalidRequestError

MAX_ENTRIES = 10_000  # partitions, positions or names of one request: the most partitions that a topic may have

MAKING_WAIT_MS = (
    30_000  # for partitions that are being made, where a request has no time-out: Kafka's request.timeout.ms
)


def check_entries(what: str, entries: Sized) -> None:
    """Raise `InvalidRequestError` if a request names too many things."""
    if len(entries) > MAX_ENTRIES:
        raise InvalidRequestError(f"{len(entries)} {what} in one request exceed the limit {MAX_ENTRIES}: send several")
