"""What a seed stands for: its mode, how many voters there are at first, and how many nodes besides."""

from random import Random
from typing import NamedTuple


class Plan(NamedTuple):
    mode: str
    voters: int = 3
    spare: int = 0
    """Nodes that observe, or become voters."""


_PLANS = {  # plan -> its share of the seeds, in parts per hundred
    Plan("clean"): 1,
    Plan("tcp"): 3,
    Plan("tcp-compact"): 3,
    Plan("midcrash-compact"): 4,
    Plan("power"): 3,
    Plan("power-compact"): 5,
    Plan("power-compact", 5): 3,
    Plan("power-compact", 1, 1): 3,
    Plan("zombie"): 4,
    Plan("reorder"): 4,
    Plan("duplicate", 5): 3,
    Plan("doomed"): 3,
    Plan("doomed", 5): 1,
    Plan("slow-disks"): 1,
    Plan("slow-disks", 5): 1,
    Plan("replay"): 2,
    Plan("replay", 5): 1,
    Plan("replay-compact"): 2,
    Plan("chaos"): 6,
    Plan("chaos", 5): 4,
    Plan("chaos", 1, 1): 4,
    Plan("voters", 3, 2): 5,
    Plan("voters", 5, 2): 2,
    Plan("voters", 2, 2): 3,
    Plan("observers", 3, 2): 3,
    Plan("observers", 1, 1): 2,
    Plan("observers-chaos", 3, 2): 3,
    Plan("observers-voters", 3, 2): 3,
    Plan("voters-often", 2, 2): 1,
    Plan("voters-often", 3, 2): 1,
    Plan("disks"): 4,
    Plan("disks", 5): 3,
    Plan("disks-chaos", 3, 2): 4,
    Plan("disks-chaos", 5): 2,
    Plan("clocks"): 2,
    Plan("clocks", 5): 1,
}
PLANS = tuple(_PLANS)


def plan_of(seed: int) -> Plan:
    """The plan of a seed, always the same."""
    return Random(f"plan-{seed}").choices(PLANS, tuple(_PLANS.values()))[0]
