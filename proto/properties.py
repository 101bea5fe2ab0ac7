"""Kafka-style `.properties` files: `key=value` a line.

The part of Java's format that people use: `=`, `:` or blanks separate key and value, `#` and `!` begin a comment
line, a backslash at the end of a line continues it, and `\\uXXXX`, `\\t`, `\\n`, `\\r`, `\\f` and `\\x` (for any other x)
escape. Two deviations: a key given twice is an error (in Java the last one silently wins, which hides mistakes), and
blanks at the end of a value are dropped (Java keeps them, which nobody sees in an editor).
"""

from collections.abc import Iterator
from pathlib import Path

from kraftlog.proto.errors import InvalidConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANK = " \t\f"


def read_properties(path: Path) -> dict[str, str]:
    """The pairs of a file. Raises `InvalidConfigError` naming file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfigError(f"{path}: not a UTF-8 text file") from None
    except OSError as error:
        raise InvalidConfigError(f"{path}: cannot read the configuration: {error.strerror}") from error
    return parse_properties(text, str(path))


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    """The pairs of a text; `source` names it in errors."""
    pairs: dict[str, str] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line, f"{source}:{number}")
        if key in pairs:
            raise InvalidConfigError(f"{source}:{number}: {key} is set twice: keep one of the lines")
        pairs[key] = value
    return pairs


def format_properties(pairs: dict[str, str], comment: str = "") -> str:
    """The text of a file that `parse_properties` reads back equal, save for blanks at the ends of values."""
    head = [f"# {line}" for line in comment.splitlines()]
    body = [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in pairs.items()]
    return "\n".join([*head, *body, ""])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blanks; with the number of their first line."""
    pending = ""
    start = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip(_BLANK)
        if not pending:
            start = number
            if not line or line[0] in "#!":
                continue
        pending += line
        if _ends_open(pending):
            pending = pending[:-1]
            continue
        yield start, pending
        pending = ""
    if pending:
        yield start, pending


def _ends_open(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str, place: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANK:
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    if not key:
        raise InvalidConfigError(f"{place}: no key before the separator")
    return _unescape(key, place), _unescape(rest, place).rstrip()


def _unescape(text: str, place: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            out.append(_code_point(text[position : position + 4], place))
            position += 4
        else:
            out.append(_ESCAPES.get(escape, escape))
    return "".join(out)


def _code_point(digits: str, place: str) -> str:
    try:
        if len(digits) != 4:
            raise ValueError
        return chr(int(digits, 16))
    except ValueError:
        raise InvalidConfigError(f"{place}: \\u needs four hexadecimal digits") from None


def _escape(text: str, *, key: bool) -> str:
    text = (
        text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    if key:
        for character in "=: ":
            text = text.replace(character, "\\" + character)
    if text[:1] in ("#", "!", " "):
        text = "\\" + text
    return text
