"""Running seeds: which seeds a test takes, how a failure is reported and made smaller.

python -m tests.sim.raft.runs ENGINE MODE SEED [--nodes 3] [--extra 0] [--minimise]
"""

import argparse
import os
import time
from dataclasses import dataclass

from tests.sim.raft.checker import Violation
from tests.sim.raft.modes import MODES, Event, Mode
from tests.sim.raft.world import EngineFactory, World

STEPS = 200
MINIMISE_CPU_SECONDS = 8.0


def seed_count(default: int) -> int:
    """How many seeds a test runs: KRAFTLOG_SEEDS asks for more in the deep runs."""
    return int(os.environ.get("KRAFTLOG_SEEDS", default))


@dataclass
class Run:
    world: World
    violation: Violation | None

    @property
    def is_bad(self) -> bool:
        return self.violation is not None or bool(self.world.checker.soft)

    def describe(self) -> str:
        soft = self.world.checker.soft
        found = str(self.violation) if self.violation else f"soft {soft}" if soft else "no violation"
        return f"seed {self.world.seed}, mode {self.world.mode.name}, {len(self.world.ids)} nodes: {found}"


def run_seed(
    factory: EngineFactory,
    mode: Mode,
    seed: int,
    *,
    nodes: int = 3,
    extra: int = 0,
    steps: int = STEPS,
    events: list[Event] | None = None,
    trace: bool = False,
) -> Run:
    world = World(seed, nodes, mode, factory, steps=steps, events=events, extra=extra, trace=trace)
    return Run(world, world.run())


def minimise(factory: EngineFactory, run: Run) -> list[Event]:
    """The fewest events that still give the same violation (ddmin; the network keeps its own random stream)."""
    world, violation = run.world, run.violation
    assert violation is not None
    nodes, extra = len(world.ids), len(world.pool) - len(world.ids)

    def is_bad(events: list[Event]) -> bool:
        again = run_seed(factory, world.mode, world.seed, nodes=nodes, extra=extra, steps=world.steps, events=events)
        return again.violation is not None and again.violation.kind == violation.kind

    events, parts, start = world.events, 2, time.process_time()
    while len(events) >= 2 and time.process_time() - start < MINIMISE_CPU_SECONDS:
        size = max(1, len(events) // parts)
        for at in range(0, len(events), size):
            candidate = events[:at] + events[at + size :]
            if is_bad(candidate):
                events, parts = candidate, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(events), parts * 2)
    return events


def main() -> None:
    from tests.sim.raft.engines import engine  # here, since the reference engine patches pysyncobj

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine")
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("seed", type=int)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--extra", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--minimise", action="store_true")
    arguments = parser.parse_args()
    factory, mode = engine(arguments.engine), MODES[arguments.mode]
    options = {"nodes": arguments.nodes, "extra": arguments.extra, "steps": arguments.steps}
    run = run_seed(factory, mode, arguments.seed, **options)
    events = minimise(factory, run) if arguments.minimise and run.violation else None
    run = run_seed(factory, mode, arguments.seed, **options, events=events, trace=True)
    print("\n".join(run.world.trace_lines))
    print(run.describe(), run.world.checker.stats)


if __name__ == "__main__":
    main()
