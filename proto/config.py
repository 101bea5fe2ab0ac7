"""Configuration helpers that clients, nodes and tools share: key names, values from strings, unknown keys."""

import difflib
from collections.abc import Iterable

from kraftlog.proto.errors import InvalidConfigError

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def snake(key: str) -> str:
    """`bootstrap.servers` -> `bootstrap_servers`: the one mapping from Kafka's spelling to ours."""
    return key.replace(".", "_").replace("-", "_")


def unknown_key(key: str, known: Iterable[str], where: str = "") -> InvalidConfigError:
    """The error for a key that does not exist, with the nearest name that does."""
    hint = nearest(key, known)
    place = f" ({where})" if where else ""
    return InvalidConfigError(f"unknown config key {key!r}{place}{hint}")


def nearest(name: str, known: Iterable[str]) -> str:
    """`: did you mean 'x'?` for the known name that is like `name`, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": did you mean {near[0]!r}?" if near else ""


def reject_unknown(given: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Raise `InvalidConfigError` for the first key of `given` that is not in `known`."""
    names = list(known)
    for key in given:
        if key not in names:
            raise unknown_key(key, names, where)


def parse_bool(key: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise InvalidConfigError(f"config {key}={value!r} is not a boolean: use true or false")


def parse_int(key: str, value: str, *, minimum: int | None = None, maximum: int | None = None) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        raise InvalidConfigError(f"config {key}={value!r} is not an integer") from None
    return check_range(key, number, minimum=minimum, maximum=maximum)


def check_range(key: str, number: int, *, minimum: int | None = None, maximum: int | None = None) -> int:
    if minimum is not None and number < minimum:
        raise InvalidConfigError(f"config {key}={number} is below the minimum {minimum}")
    if maximum is not None and number > maximum:
        raise InvalidConfigError(f"config {key}={number} exceeds the maximum {maximum}")
    return number
