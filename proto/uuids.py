"""Ids of 16 bytes (topics, directories) and how Kafka spells them: URL-safe base64 without padding, 22 characters."""

import base64

_BYTES = 16


def uuid_to_text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Inverse of `uuid_to_text`; `ValueError` for anything else."""
    value = base64.b64decode(text.encode() + b"==", altchars=b"-_", validate=True)
    if len(value) != _BYTES:
        raise ValueError(f"{text!r} is not a 16-byte id")
    return value
