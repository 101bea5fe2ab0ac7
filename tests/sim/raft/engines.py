"""Engines by name, for the command line."""

from tests.sim.raft.core_engine import CoreEngine
from tests.sim.raft.world import EngineFactory


def engine(name: str) -> EngineFactory:
    """`core`, `core-MUTANT` or `reference` (stock pysyncobj)."""
    if name == "core":
        return CoreEngine
    if name == "reference":
        from tests.sim.raft.reference import ReferenceEngine

        return ReferenceEngine
    from tests.sim.raft.mutants import MUTANTS

    return MUTANTS[name.removeprefix("core-")]
