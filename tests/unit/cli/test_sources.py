"""What `kraftctl produce` makes of its input."""

import io
import json
from pathlib import Path

import pytest

from kraftlog.sdk.cli import sources
from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.report import CommandError
from kraftlog.sdk.cli.sources import CsvSource, LineSource, open_input


def lines(data: bytes, key_separator: bytes | None = None, fixed_key: bytes | None = None) -> LineSource:
    return LineSource(io.BytesIO(data), "input", key_separator, fixed_key)


def test_every_line_is_a_record_without_its_line_end() -> None:
    assert list(lines(b"a\nb\r\n\nlast")) == [(None, b"a"), (None, b"b"), (None, b""), (None, b"last")]


def test_bytes_that_are_not_text_pass_unchanged() -> None:
    assert list(lines(b"\xff\x00\n")) == [(None, b"\xff\x00")]


def test_the_key_ends_at_the_first_separator() -> None:
    assert list(lines(b"k:v:w\n", key_separator=b":")) == [(b"k", b"v:w")]


def test_a_line_without_separator_is_refused_with_its_number() -> None:
    source = lines(b"a:1\nb\n", key_separator=b":")
    with pytest.raises(CommandError, match="input line 2 has no key separator ':'"):
        list(source)


def test_a_fixed_key_serves_all_lines() -> None:
    assert list(lines(b"1\n2\n", fixed_key=b"k")) == [(b"k", b"1"), (b"k", b"2")]


def test_a_line_beyond_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is held in memory, so it has a bound."""
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 4)
    assert list(lines(b"123\n")) == [(None, b"123")]
    with pytest.raises(CommandError, match="longer than 4 bytes"):
        list(lines(b"12345\n"))


def test_position_counts_line_ends() -> None:
    source = lines(b"a\r\nb\n")
    list(source)
    assert source.position_bytes == 5
    assert source.place == "input line 2"


def csv(data: bytes, key_column: str | None = "carrier") -> CsvSource:
    return CsvSource(io.BytesIO(data), "flights.csv", key_column)


def test_a_row_becomes_a_json_object_with_the_key_of_its_column() -> None:
    pairs = list(csv(b'carrier,delay\nUA,"1,5"\n'))
    assert [(key, json.loads(value)) for key, value in pairs] == [(b"UA", {"carrier": "UA", "delay": "1,5"})]


def test_a_byte_order_mark_is_not_part_of_the_first_column() -> None:
    assert [key for key, _ in csv(b"\xef\xbb\xbfcarrier\nUA\n")] == [b"UA"]


def test_an_empty_key_field_means_no_key() -> None:
    assert [key for key, _ in csv(b"carrier,x\n,1\n")] == [None]


def test_rows_may_span_lines_and_empty_lines_are_skipped() -> None:
    pairs = list(csv(b'carrier,note\nUA,"two\nlines"\n\nDL,x\n'))
    assert [json.loads(value)["note"] for _, value in pairs] == ["two\nlines", "x"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"carier,x\n", "no key column 'carrier': did you mean 'carier'"),
        (b"carrier,carrier\n", "names column 'carrier' twice"),
        (b"carrier,x\nUA\n", "line 2 has 1 columns, the header has 2"),
        (b'carrier,x\nUA,"open\n', "unexpected end of data"),
        (b"carrier\n\xff\n", "not UTF-8"),
    ],
)
def test_a_csv_that_cannot_be_right_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        list(csv(data))
    assert caught.value.exit_code is ExitCode.INVALID_INPUT


def test_csv_position_reaches_the_end_of_the_input() -> None:
    data = b"carrier\n" + b"UA\n" * 50_000
    source = csv(data)
    assert sum(1 for _ in source) == 50_000
    assert source.position_bytes == len(data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such file") as caught, open_input(str(tmp_path / "none")):
        pass
    assert caught.value.exit_code is ExitCode.NOT_FOUND


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="directory"), open_input(str(tmp_path)):
        pass


def test_size_is_that_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with open_input(str(tmp_path / "f")) as (stream, size):
        assert (stream.read(), size) == (b"12345", 5)
