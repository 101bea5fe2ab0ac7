"""The id of a log directory in 16 bytes, as metadata and voters have it."""

import hashlib

from kraftlog.proto.uuids import uuid_from_text

_ID_BYTES = 16


def directory_id_bytes(text: str) -> bytes:
    """Kafka's spelling is decoded, any other is hashed."""
    try:
        return uuid_from_text(text)
    except ValueError:
        return hashlib.sha256(text.encode()).digest()[:_ID_BYTES]
