"""The load and the faults of one run, drawn from its seed before it begins.

A cluster of one node is spared what concerns several; all else is drawn in the same order for both.

A plan is data, so that a failing run can be shrunk by leaving faults out.
"""

import random
from dataclasses import dataclass, replace
from enum import StrEnum


class Fault(StrEnum):
    """What the nemesis does."""

    POWER_LOSS = "power-loss"
    """The node dies; what was not synced is lost or torn; a restart follows. With an `amount`, it dies once more at the
    `amount`-th disk operation of that restart."""
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
    """The node's wall clock jumps, to be off by `amount` milliseconds. Jumps do not add up: beyond
    message.timestamp.after.max.ms every record would be refused."""
    DELETE_RECORDS = "delete-records"
    """An operator deletes the first `amount` per cent of what is acknowledged in the `client`-th partition."""
    RETENTION = "retention"
    """The load's topic keeps less for `duration_ms`, by the `amount`-th choice."""
    CLOCK_RATE = "clock-rate"
    """The node's clock, monotonic and wall, runs at `amount` per cent of the true rate for `duration_ms`."""
    SLOW_DISK = "slow-disk"
    """All blocking work of the node takes `amount` times as long for `duration_ms`."""
    CONSUMER_LEAVES = "consumer-leaves"
    """One group member closes; another one joins after `duration_ms`."""
    POWER_LOSS_OF_ALL = "power-loss-of-all"
    """All nodes lose power at once, each comes back after a time of its own up to `duration_ms`."""
    LEADER_POWER_LOSS = "leader-power-loss"
    """As POWER_LOSS, of the node that leads partition `client` at that moment."""
    CUT_OFF = "cut-off"
    """The node and all others do not hear each other for `duration_ms`; clients reach it."""
    CUT_OFF_ONE_WAY = "cut-off-one-way"
    """What the node sends reaches no other node for `duration_ms`; with an `amount`, what the others send to it."""
    CUT_LINK = "cut-link"
    """The node and the `client`-th of the others do not hear each other for `duration_ms`; with an `amount` only one way."""
    REASSIGN = "reassign"
    """The `client`-th partition is given the replicas of the `amount`-th choice: all nodes in another order, or all but one."""
    CONFIG = "config"
    """The `amount`-th change of the configuration of the load's topic."""
    FLUSH_POLICY = "flush-policy"
    """For `duration_ms` acknowledgments come from memory (flush.policy=interval), then from the disk again. When the metadata say
    that this is in effect, with an `amount` all nodes lose power. No other fault begins in between."""
    DISK_LOSS = "disk-loss"
    """The node comes back with an empty disk, gets its vote again, and copies everything; one node at a time."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One event. `client` is an index; its meaning follows from the fault."""

    at_ms: float
    fault: Fault
    duration_ms: float = 0.0
    amount: int = 0
    client: int = 0
    node: int = 0
    """Index of the node that it befalls."""


_WEIGHTS = {
    Fault.POWER_LOSS: 6,
    Fault.POWER_LOSS_IN_WRITE: 4,
    Fault.KILL: 3,
    Fault.STOP: 1,
    Fault.BREAK: 6,
    Fault.PARTITION: 3,
    Fault.PARTITION_ONE_WAY: 3,
    Fault.CLOCK_JUMP: 1,
    Fault.SLOW_DISK: 2,
    Fault.CONSUMER_LEAVES: 2,
}
_CLUSTER_WEIGHTS = {
    **_WEIGHTS,
    Fault.STOP: 3,
    Fault.POWER_LOSS_OF_ALL: 1,
    Fault.LEADER_POWER_LOSS: 4,
    Fault.CUT_OFF: 3,
    Fault.CUT_OFF_ONE_WAY: 3,
    Fault.CUT_LINK: 3,
    Fault.DISK_LOSS: 2,
    Fault.REASSIGN: 3,
    Fault.CONFIG: 2,
    Fault.CLOCK_RATE: 3,
    Fault.DELETE_RECORDS: 2,
    Fault.RETENTION: 2,
}
CLOCK_RATES = (
    50,
    90,
    95,
    105,
    110,
    200,
)  # quartz is within 0.01 % of the truth, a badly virtualised clock may be anywhere
_CRASHES = (Fault.POWER_LOSS, Fault.POWER_LOSS_IN_WRITE, Fault.KILL)
CRASHES_MIN = 3
FLUSH_POLICY_SHARE = 0.3  # of the runs
STORM_MS = (2_000.0, 7_000.0)
STORM_GAP_MS = (100.0, 2_500.0)
CALM_MS = (15_000.0, 100_000.0)
CALM_GAP_MS = (5_000.0, 60_000.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """Storms and faults, both in the order of time."""

    storms: tuple[tuple[float, float], ...]
    """(begin, end) in ms: times of heavy load, into which most faults fall. In between, time-outs get their chance."""
    faults: tuple[PlannedFault, ...]
    duration_ms: float


def draw_plan(randomness: random.Random, *, duration_ms: float, nodes: int = 1) -> Plan:
    """Storms with calm between them, faults in both, and at least `CRASHES_MIN` crashes."""
    storms: list[tuple[float, float]] = []
    faults: list[PlannedFault] = []
    at_ms = randomness.uniform(0, 1_000)
    while at_ms < duration_ms:
        end_ms = min(duration_ms, at_ms + randomness.uniform(*STORM_MS))
        storms.append((at_ms, end_ms))
        faults += _draw_between(randomness, at_ms, end_ms, STORM_GAP_MS, nodes)
        calm_end_ms = min(duration_ms, end_ms + randomness.uniform(*CALM_MS))
        faults += _draw_between(randomness, end_ms, calm_end_ms, CALM_GAP_MS, nodes)
        at_ms = calm_end_ms
    while sum(planned.fault in _CRASHES for planned in faults) < CRASHES_MIN:
        at_ms = randomness.uniform(*randomness.choice(storms))
        faults.append(_draw(randomness, at_ms, randomness.choice(_CRASHES), nodes))
    if nodes > 1 and randomness.random() < FLUSH_POLICY_SHARE:
        at_ms = randomness.uniform(0, duration_ms)
        faults.append(
            PlannedFault(at_ms, Fault.FLUSH_POLICY, randomness.uniform(0, 3_000), amount=randomness.randrange(4))
        )
    return Plan(tuple(storms), tuple(sorted(faults, key=lambda planned: planned.at_ms)), duration_ms)


def _draw_between(
    randomness: random.Random, begin_ms: float, end_ms: float, gap_ms: tuple[float, float], nodes: int
) -> list[PlannedFault]:
    weights = _WEIGHTS if nodes == 1 else _CLUSTER_WEIGHTS
    faults: list[PlannedFault] = []
    at_ms = begin_ms + randomness.uniform(*gap_ms)
    while at_ms < end_ms:
        fault = randomness.choices(list(weights), list(weights.values()))[0]
        faults.append(_draw(randomness, at_ms, fault, nodes))
        at_ms += randomness.uniform(*gap_ms)
    return faults


def _draw(randomness: random.Random, at_ms: float, fault: Fault, nodes: int) -> PlannedFault:
    planned = _draw_one(randomness, at_ms, fault)
    return planned if nodes == 1 else replace(planned, node=randomness.randrange(nodes))


def _draw_one(randomness: random.Random, at_ms: float, fault: Fault) -> PlannedFault:
    match fault:
        case Fault.POWER_LOSS | Fault.LEADER_POWER_LOSS:
            client = randomness.randrange(64) if fault is Fault.LEADER_POWER_LOSS else 0
            again_after = randomness.randrange(1, 40) if randomness.random() < 0.25 else 0
            return PlannedFault(at_ms, fault, duration_ms=_down_ms(randomness), amount=again_after, client=client)
        case Fault.KILL | Fault.STOP | Fault.POWER_LOSS_OF_ALL | Fault.DISK_LOSS:
            return PlannedFault(at_ms, fault, duration_ms=_down_ms(randomness))
        case Fault.POWER_LOSS_IN_WRITE:
            return PlannedFault(at_ms, fault, duration_ms=_down_ms(randomness), amount=randomness.randrange(60))
        case Fault.PARTITION | Fault.PARTITION_ONE_WAY | Fault.CONSUMER_LEAVES:
            client = randomness.randrange(64)
            return PlannedFault(at_ms, fault, duration_ms=randomness.uniform(50, 4_000), client=client)
        case Fault.SLOW_DISK:
            amount = randomness.choice((10, 100))
            return PlannedFault(at_ms, fault, duration_ms=randomness.uniform(100, 3_000), amount=amount)
        case Fault.CLOCK_JUMP:
            return PlannedFault(at_ms, fault, amount=randomness.randrange(-3_600_000, 3_600_000))
        case Fault.CLOCK_RATE:
            amount = randomness.choice(CLOCK_RATES)
            return PlannedFault(at_ms, fault, duration_ms=randomness.uniform(1_000, 40_000), amount=amount)
        case Fault.CUT_OFF | Fault.CUT_OFF_ONE_WAY | Fault.CUT_LINK:
            duration_ms = randomness.uniform(50, 15_000)  # up to several session time-outs
            amount, client = randomness.randrange(2), randomness.randrange(64)
            return PlannedFault(at_ms, fault, duration_ms=duration_ms, amount=amount, client=client)
        case Fault.DELETE_RECORDS:
            return PlannedFault(at_ms, fault, amount=randomness.randrange(5, 101), client=randomness.randrange(64))
        case Fault.RETENTION:
            duration_ms = randomness.uniform(1_000, 20_000)
            return PlannedFault(at_ms, fault, duration_ms=duration_ms, amount=randomness.randrange(64))
        case Fault.REASSIGN | Fault.CONFIG:
            return PlannedFault(at_ms, fault, amount=randomness.randrange(64), client=randomness.randrange(64))
        case Fault.BREAK | Fault.FLUSH_POLICY:
            return PlannedFault(at_ms, fault, client=randomness.randrange(64))


def _down_ms(randomness: random.Random) -> float:
    """Mostly a quick restart, sometimes a long outage."""
    return randomness.uniform(5, 200) if randomness.random() < 0.7 else randomness.uniform(200, 5_000)
