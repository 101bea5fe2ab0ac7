"""The deterministic simulator of the quorum: Raft nodes, their links, disks and clocks in one thread, from one seed.

    python -m kraftlog.testing.raft_sim --seed 7 --trace
    python -m kraftlog.testing.raft_sim --seed 1 --seeds 1000

`run_plan(seed)` runs one seed. It knows no Raft implementation: `CoreEngine` plugs in kraftlog's core with a driver of the
documented order, and another implementation is judged by another `Engine`, here or by `--engine module:Class`. Read
`modes` for the faults, `checker` for the rules, `world` for the loop, and `lab` to play a schedule by hand.

What it is not: a test of the driver, the log store or the transport that kraftlog has (they run under `kraftlog.testing.sim`
and in real processes).
"""

from kraftlog.testing.raft_sim.checker import Violation
from kraftlog.testing.raft_sim.core_engine import CoreEngine
from kraftlog.testing.raft_sim.engine import Engine
from kraftlog.testing.raft_sim.lab import Lab
from kraftlog.testing.raft_sim.modes import MODES, Mode
from kraftlog.testing.raft_sim.plans import Plan, plan_of
from kraftlog.testing.raft_sim.runs import Run, run_plan, run_seed
from kraftlog.testing.raft_sim.world import World

__all__ = [
    "MODES",
    "CoreEngine",
    "Engine",
    "Lab",
    "Mode",
    "Plan",
    "Run",
    "Violation",
    "World",
    "plan_of",
    "run_plan",
    "run_seed",
]
