"""Catches kraftlog code that reaches around the seams: real clocks and unseeded randomness during a simulation.

While `only_seams()` is active, a call of `time.time`, `os.urandom`, `uuid.uuid4` and the like *from a module of kraftlog*
raises `NondeterminismError` and names the caller. Other modules (logging stamps its records, say) are not disturbed: what
they read must not, and does not, steer the simulated program.
"""

import contextlib
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from kraftlog.testing.loop import SimulationError

_FORBIDDEN: tuple[tuple[ModuleType, tuple[str, ...]], ...] = (
    (time, ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")),
    (os, ("urandom", "getrandom")),
    (uuid, ("uuid1", "uuid4")),
    (random, ("random", "randrange", "randint", "getrandbits", "choice", "choices", "shuffle", "sample", "uniform")),
)


class NondeterminismError(SimulationError):
    """A component used a clock or a random source that no seed controls."""


@contextlib.contextmanager
def only_seams() -> Iterator[None]:
    """Refuse ambient time and randomness to kraftlog's modules within this block. Not reentrant, one thread."""
    saved: list[tuple[ModuleType, str, Any]] = []
    try:
        for module, names in _FORBIDDEN:
            for name in names:
                original = getattr(module, name, None)
                if original is not None:
                    saved.append((module, name, original))
                    setattr(module, name, _guarded(f"{module.__name__}.{name}", original))
        yield
    finally:
        for module, name, original in saved:
            setattr(module, name, original)


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__", "").startswith("kraftlog."):
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            raise NondeterminismError(f"{place} calls {name}() in a simulation: take a Clock or a Random instead")
        return original(*args, **kwargs)

    return guarded
