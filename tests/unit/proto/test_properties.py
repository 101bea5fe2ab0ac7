"""Kafka-style .properties files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.proto.errors import InvalidConfigError
from kraftlog.proto.properties import format_properties, parse_properties, read_properties


def test_the_forms_that_people_write() -> None:
    """Separators `=`, `:` and blanks; comments; continuation lines; escapes."""
    text = "\n".join(
        [
            "# a comment",
            "! another",
            "",
            "node.id=1",
            "  listeners = PLAINTEXT://127.0.0.1:9092  ",
            "log.dirs: /var/lib/kraftlog",
            "broker.rack eu-1a",
            "empty=",
            "bare",
            "long=one,\\",
            "    two,\\",
            "    three",
            "escaped\\ key=\\u00e9\\tx\\\\",
        ]
    )
    assert parse_properties(text) == {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": "/var/lib/kraftlog",
        "broker.rack": "eu-1a",
        "empty": "",
        "bare": "",
        "long": "one,two,three",
        "escaped key": "é\tx\\",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=1\na=2", "server.properties:2: a is set twice: keep one of the lines"),
        ("=1", "server.properties:1: no key before the separator"),
        ("a=1\nb=\\u12", "server.properties:2: \\u needs four hexadecimal digits"),
    ],
)
def test_mistakes_name_file_and_line(text: str, message: str) -> None:
    """One clear line: where it is and what is wrong."""
    with pytest.raises(InvalidConfigError) as caught:
        parse_properties(text, "server.properties")
    assert str(caught.value) == message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and a binary one give one line with the path."""
    with pytest.raises(InvalidConfigError, match=r"absent\.properties: cannot read the configuration: No such file"):
        read_properties(tmp_path / "absent.properties")
    binary = tmp_path / "binary.properties"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfigError, match="not a UTF-8 text file"):
        read_properties(binary)


_LINE = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), include_characters="\t\n\r\\=:#! ")).filter(
    lambda text: text == text.rstrip()
)


@given(st.dictionaries(_LINE.filter(bool), _LINE, max_size=5))
def test_what_is_written_is_read_back(pairs: dict[str, str]) -> None:
    """format_properties and parse_properties are inverse."""
    assert parse_properties(format_properties(pairs, "made by a test")) == pairs
