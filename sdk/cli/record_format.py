"""How `kraftctl consume` prints a record: a format string for people, a JSON object a line for programs.

Format characters (kcat's and rpk's): %t topic, %p partition, %o offset, %T or %d timestamp in ms, %k key, %v or %s value,
%h headers as name=value with commas, %K and %S (or %V) the sizes of key and value in bytes, -1 for none, %% a percent
sign. Escapes: \\n \\t \\r \\0 \\\\.
"""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Protocol

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.report import CommandError

DEFAULT_FORMAT = "%v\\n"


class PrintableRecord(Protocol):
    """What printing needs of a consumed record."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> Any: ...


Piece = Callable[[PrintableRecord], bytes]


def _literal(text: bytes) -> Piece:
    return lambda record: text


def _number(name: str) -> Piece:
    return lambda record: b"%d" % getattr(record, name)


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: PrintableRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


_FIELDS: dict[str, Piece] = {
    "t": lambda record: record.topic.encode(),
    "p": _number("partition"),
    "o": _number("offset"),
    "T": _number("timestamp"),
    "d": _number("timestamp"),
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",
    "h": _headers,
    "K": lambda record: _size(record.key),
    "S": lambda record: _size(record.value),
    "V": lambda record: _size(record.value),
    "%": _literal(b"%"),
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def compile_format(text: str) -> Piece:
    """A function from a record to the bytes to print. Raises `CommandError` for an unknown character after `%`."""
    pieces: list[Piece] = []
    literal = ""
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        if character == "\\" and following in _ESCAPES and following:
            literal += _ESCAPES[following]
            position += 2
        elif character == "%":
            if following not in _FIELDS or not following:
                raise CommandError(
                    f"format {text!r}: %{following} at position {position} is not known",
                    exit_code=ExitCode.USAGE,
                    advice="Use " + " ".join(f"%{name}" for name in _FIELDS) + ".",
                )
            pieces += [_literal(literal.encode()), _FIELDS[following]]
            literal = ""
            position += 2
        else:
            literal += character
            position += 1
    pieces.append(_literal(literal.encode()))
    return lambda record: b"".join([piece(record) for piece in pieces])


def to_json(record: PrintableRecord) -> bytes:
    """`to_document` on one line."""
    return json.dumps(to_document(record), ensure_ascii=False).encode() + b"\n"


def to_document(record: PrintableRecord) -> dict[str, Any]:
    """A record as JSON types. Keys and values that are not UTF-8 come as `key_base64` and `value_base64`."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_bytes_field("key", record.key),
        **_bytes_field("value", record.value),
        "headers": [{"name": name, **_bytes_field("value", value)} for name, value in record.headers],
    }


def _bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: bytes(data).decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
