"""Ids of clusters and log directories: 22 characters, as Kafka's `kafka-storage random-uuid` prints them."""

import base64
import re
import uuid

from kraftlog.proto.errors import InvalidConfigError

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


def random_uuid() -> str:
    """A fresh id; never with a leading dash, which a shell would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def check_cluster_id(text: str) -> None:
    """Raise `InvalidConfigError` unless `text` can be a cluster id: other systems' longer ids are welcome too."""
    if not _LEGAL.match(text):
        raise InvalidConfigError(f"cluster id {text[:80]!r} is not 1 to 64 characters of A-Z a-z 0-9 _ -")
