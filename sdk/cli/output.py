"""Printing results: aligned tables for people, one JSON document for programs."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click


def print_json(document: Any) -> None:
    """One document, on one line when it is short."""
    line = json.dumps(document, ensure_ascii=False)
    click.echo(line if len(line) <= 120 else json.dumps(document, ensure_ascii=False, indent=2))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Left-aligned text and right-aligned numbers under `headers`, two blanks between columns."""
    rows = [list(row) for row in rows]
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(headers), *cells]) for i in range(len(headers))]
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(headers))]
    lines = []
    for line in [list(headers), *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def _text(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    if cell is None:
        return "-"
    return str(cell)


def note(message: str) -> None:
    """A line for people beside the result, on standard error."""
    click.echo(message, err=True)


def plural(count: int, noun: str) -> str:
    """`1 record`, `2 records`, `336,776 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
