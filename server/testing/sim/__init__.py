"""The deterministic simulator: a node, its disk, its network and its clients in one process, from one seed.

    python -m kraftlog.testing.sim --seed 7 [--trace]

`simulate(seed)` runs one seed. Read `simulation` for the phases, `plan` for the faults, `history` and `wire` for the rules.
"""

from kraftlog.testing.sim.history import InvariantViolation
from kraftlog.testing.sim.simulation import SimulationConfig, SimulationResult, simulate

__all__ = ["InvariantViolation", "SimulationConfig", "SimulationResult", "simulate"]
