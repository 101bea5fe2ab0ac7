"""Rates in bytes a second, as people write and read them."""

import re

import click

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgG][iI]?)?[bB]?(?:/s)?", re.ASCII)


def byte_rate(text: str) -> int:
    """`50000000`, `50MB`, `50MB/s` or `47.7MiB`, as bytes a second; at least one."""
    found = _RATE.fullmatch(text.strip())
    rate = 0 if found is None else int(float(found[1]) * _UNITS[(found[2] or "").upper()])
    if rate < 1:
        raise click.BadParameter(f"{text!r} is no rate: use bytes a second such as 50000000, 50MB or 50MiB")
    return rate


def shown_bytes(count: float) -> str:
    """`999 B`, `1.5 MB`, `150 MB`."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 1000 and len(units) > 1:
        count /= 1000
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 100 else f"{count:.1f} {units[0]}"
