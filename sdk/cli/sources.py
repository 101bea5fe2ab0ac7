"""What `kraftctl produce` reads: files and standard input, line by line or as CSV, as (key, value) pairs.

A source knows where it is (`place`, for errors) and how far (`position_bytes`, for progress).
"""

import csv
import difflib
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from kraftlog.sdk.cli.exit_codes import ExitCode
from kraftlog.sdk.cli.report import CommandError

MAX_LINE_BYTES = 64 << 20  # a line is held in memory; no sensible max.message.bytes is larger

Pair = tuple[bytes | None, bytes]


class Source(Protocol):
    """An input. Iterate it once."""

    @property
    def place(self) -> str:
        """File and line of the pair that came last."""
        ...

    @property
    def position_bytes(self) -> int:
        """About how much of the input has been read."""
        ...

    def __iter__(self) -> Iterator[Pair]: ...


@dataclass(slots=True)
class LineSource:
    """One record a line; with a separator, what stands before its first occurrence is the key."""

    stream: BinaryIO
    name: str
    key_separator: bytes | None = None
    fixed_key: bytes | None = None
    line_number: int = 0
    position_bytes: int = 0

    @property
    def place(self) -> str:
        return f"{self.name} line {self.line_number}"

    def __iter__(self) -> Iterator[Pair]:
        while line := self.stream.readline(MAX_LINE_BYTES + 1):
            self.line_number += 1
            self.position_bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise _bad(f"{self.place} is longer than {MAX_LINE_BYTES} bytes")
            yield self._pair(line.removesuffix(b"\n").removesuffix(b"\r"))

    def _pair(self, line: bytes) -> Pair:
        if self.key_separator is None:
            return self.fixed_key, line
        key, found, value = line.partition(self.key_separator)
        if not found:
            raise _bad(f"{self.place} has no key separator {self.key_separator.decode('utf-8', 'replace')!r}")
        return key, value


class CsvSource:
    """One record a row: the key from one column, the value the row as a JSON object of strings.

    The first row names the columns. An empty field of the key column means no key.
    """

    def __init__(self, stream: BinaryIO, name: str, key_column: str | None) -> None:
        csv.field_size_limit(MAX_LINE_BYTES)
        self._name = name
        self._counted = _CountedReader(stream)
        self._text = io.TextIOWrapper(io.BufferedReader(self._counted), encoding="utf-8-sig", newline="")
        self._reader = csv.reader(self._text, strict=True)
        self._columns = self._header()
        self._key_index = None if key_column is None else self._index_of(key_column)

    @property
    def place(self) -> str:
        return f"{self._name} line {self._reader.line_num}"

    @property
    def position_bytes(self) -> int:
        return self._counted.count

    def __iter__(self) -> Iterator[Pair]:
        while (row := self._next_row()) is not None:
            if not row:
                continue  # an empty line
            if len(row) != len(self._columns):
                raise _bad(f"{self.place} has {len(row)} columns, the header has {len(self._columns)}")
            value = json.dumps(dict(zip(self._columns, row, strict=True)), ensure_ascii=False)
            key = None if self._key_index is None else row[self._key_index].encode() or None
            yield key, value.encode()

    def _header(self) -> list[str]:
        columns = self._next_row()
        if not columns:
            raise _bad(f"{self._name} is empty: the first line of a CSV file names its columns")
        doubled = next((column for column in columns if columns.count(column) > 1), None)
        if doubled is not None:
            raise _bad(f"{self.place} names column {doubled!r} twice")
        return columns

    def _index_of(self, column: str) -> int:
        if column in self._columns:
            return self._columns.index(column)
        near = difflib.get_close_matches(column, self._columns, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        shown = ", ".join(self._columns[:20]) + (", ..." if len(self._columns) > 20 else "")
        raise _bad(f"{self._name} has no key column {column!r}{hint}", f"Its columns are {shown}.")

    def _next_row(self) -> list[str] | None:
        try:
            return next(self._reader, None)
        except UnicodeDecodeError as error:
            raise _bad(f"{self._name}: not UTF-8 after line {self._reader.line_num}: {error.reason}") from error
        except csv.Error as error:
            raise _bad(f"{self.place}: {error}") from error


class _CountedReader(io.RawIOBase):
    """Counts the bytes that went through, since a text wrapper's own `tell` is slow and forbidden while iterating."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # typeshed asks for any buffer
        data = (
            self._stream.read1(len(buffer))
            if isinstance(self._stream, io.BufferedReader)
            else self._stream.read(len(buffer))
        )
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)


@contextmanager
def open_input(path: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The file (or standard input for `-`) and its size, None where it has none. Raises `CommandError`."""
    if path == "-":
        yield sys.stdin.buffer, None
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  # the `with` below must not catch errors of its user
        size = os.fstat(stream.fileno()).st_size
    except FileNotFoundError:
        raise CommandError(f"{path}: no such file", exit_code=ExitCode.NOT_FOUND) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", exit_code=ExitCode.INVALID_INPUT) from error
    with stream:
        yield stream, size or None


def _bad(message: str, advice: str = "") -> CommandError:
    return CommandError(message, exit_code=ExitCode.INVALID_INPUT, advice=advice)
