"""The faults of one run, drawn from its seed before it begins.

A plan is a list of events, so that a failing run can be shrunk by leaving events out.
"""

import random
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What the nemesis does."""

    POWER_LOSS = "power-loss"
    """The node dies; what was not synced is lost or torn; a restart follows."""
    POWER_LOSS_IN_WRITE = "power-loss-in-write"
    """As POWER_LOSS, at the `amount`-th disk operation from here."""
    KILL = "kill"
    """kill -9: the process dies, the page cache lives."""
    STOP = "stop"
    """An orderly stop (SIGTERM); a restart follows."""
    BREAK = "break"
    """Connections between one client and the node break."""
    PARTITION = "partition"
    """One client and the node do not hear each other for `duration_ms`."""
    PARTITION_ONE_WAY = "partition-one-way"
    """The node's answers do not reach one client for `duration_ms`."""
    CLOCK_JUMP = "clock-jump"
    """The node's wall clock jumps by `amount` milliseconds."""
    CONSUMER_LEAVES = "consumer-leaves"
    """One group member closes; another one joins after `duration_ms`."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One event. `client` is an index; its meaning follows from the fault."""

    at_ms: float
    fault: Fault
    duration_ms: float = 0.0
    amount: int = 0
    client: int = 0


_WEIGHTS = {
    Fault.POWER_LOSS: 6,
    Fault.POWER_LOSS_IN_WRITE: 4,
    Fault.KILL: 3,
    Fault.STOP: 1,
    Fault.BREAK: 6,
    Fault.PARTITION: 3,
    Fault.PARTITION_ONE_WAY: 3,
    Fault.CLOCK_JUMP: 1,
    Fault.CONSUMER_LEAVES: 2,
}
NODE_FAULTS = frozenset({Fault.POWER_LOSS, Fault.POWER_LOSS_IN_WRITE, Fault.KILL, Fault.STOP})
_CRASHES = (Fault.POWER_LOSS, Fault.POWER_LOSS_IN_WRITE, Fault.KILL)
CRASHES_MIN = 3


def draw_plan(randomness: random.Random, *, duration_ms: float, gap_ms: tuple[float, float]) -> list[PlannedFault]:
    """Faults over `duration_ms`, `gap_ms` apart, with at least `CRASHES_MIN` crashes among them."""
    plan: list[PlannedFault] = []
    at_ms = randomness.uniform(*gap_ms)
    while at_ms < duration_ms:
        fault = randomness.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        plan.append(_draw(randomness, at_ms, fault))
        at_ms += randomness.uniform(*gap_ms)
    while sum(planned.fault in _CRASHES for planned in plan) < CRASHES_MIN:
        plan.append(_draw(randomness, randomness.uniform(0, duration_ms), randomness.choice(_CRASHES)))
    return sorted(plan, key=lambda planned: planned.at_ms)


def _draw(randomness: random.Random, at_ms: float, fault: Fault) -> PlannedFault:
    match fault:
        case Fault.POWER_LOSS | Fault.KILL | Fault.STOP:
            return PlannedFault(at_ms, fault, duration_ms=_down_ms(randomness))
        case Fault.POWER_LOSS_IN_WRITE:
            return PlannedFault(at_ms, fault, duration_ms=_down_ms(randomness), amount=randomness.randrange(60))
        case Fault.PARTITION | Fault.PARTITION_ONE_WAY | Fault.CONSUMER_LEAVES:
            client = randomness.randrange(64)
            return PlannedFault(at_ms, fault, duration_ms=randomness.uniform(50, 4_000), client=client)
        case Fault.CLOCK_JUMP:
            return PlannedFault(at_ms, fault, amount=randomness.randrange(-3_600_000, 3_600_000))
        case Fault.BREAK:
            return PlannedFault(at_ms, fault, client=randomness.randrange(64))


def _down_ms(randomness: random.Random) -> float:
    """Mostly a quick restart, sometimes a long outage."""
    return randomness.uniform(5, 200) if randomness.random() < 0.7 else randomness.uniform(200, 5_000)
