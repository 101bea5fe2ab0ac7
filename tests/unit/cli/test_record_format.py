"""How `kraftctl consume` prints records."""

import json
from dataclasses import dataclass

import pytest

from kraftlog.sdk.cli.record_format import compile_format, to_json
from kraftlog.sdk.cli.report import CommandError


@dataclass
class FakeRecord:
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_700_000_000_000
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%v\\n", b"v\n"),
        ("%t-%p@%o", b"orders-3@42"),
        ("%k\\t%s", b"k\tv"),
        ("%T %d", b"1700000000000 1700000000000"),
        ("%h", b"a=1,b="),
        ("%K/%S/%V", b"1/1/1"),
        ("100%%", b"100%"),
        ("\\x \\\\n", b"\\x \\n"),
        ("", b""),
    ],
)
def test_format_characters(text: str, printed: bytes) -> None:
    assert compile_format(text)(FakeRecord()) == printed


def test_a_missing_key_prints_nothing_and_has_size_minus_one() -> None:
    assert compile_format("[%k] %K")(FakeRecord(key=None)) == b"[] -1"


@pytest.mark.parametrize("text", ["%q", "%"])
def test_an_unknown_format_character_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="is not known"):
        compile_format(text)


def test_json_has_text_as_text_and_bytes_as_base64() -> None:
    document = json.loads(to_json(FakeRecord(key=b"\xff", value="schön".encode())))
    assert document == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "key_base64": "/w==",
        "value": "schön",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


def test_json_is_one_line_a_record() -> None:
    assert to_json(FakeRecord(value=b"two\nlines")).count(b"\n") == 1
