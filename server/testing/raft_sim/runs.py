"""Running seeds, and making a failure smaller."""

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from kraftlog.testing.raft_sim.checker import Violation
from kraftlog.testing.raft_sim.core_engine import CoreEngine
from kraftlog.testing.raft_sim.modes import MODES, Event, Mode
from kraftlog.testing.raft_sim.plans import Plan, plan_of
from kraftlog.testing.raft_sim.world import EngineFactory, World

STEPS = 200
MINIMISE_CPU_SECONDS = 8.0


@dataclass
class Run:
    world: World
    violation: Violation | None

    @property
    def soft(self) -> dict[str, dict[str, Any]]:
        """Rules that were broken and did no harm yet -> where."""
        return self.world.checker.soft

    @property
    def is_bad(self) -> bool:
        return self.violation is not None or bool(self.soft)

    @property
    def plan(self) -> Plan:
        voters = len(self.world.ids)
        return Plan(self.world.mode.name, voters, len(self.world.pool) - voters)

    @property
    def digest(self) -> str:
        """Of the trace: equal digests mean equal runs. Only of runs with a trace."""
        assert self.world.trace_lines, "the run kept no trace"
        return hashlib.sha256("\n".join(self.world.trace_lines).encode()).hexdigest()

    def describe(self) -> str:
        """One line, with all that is needed to run it again."""
        found = str(self.violation) if self.violation else f"soft {self.soft}" if self.soft else "no violation"
        plan = self.plan
        return f"seed {self.world.seed}, mode {plan.mode}, {plan.voters} voters + {plan.spare}: {found}"


def run_plan(
    seed: int, plan: Plan | None = None, *, factory: EngineFactory = CoreEngine, steps: int = STEPS, trace: bool = False
) -> Run:
    """Run one seed, by `plan_of(seed)` if no other plan is given."""
    mode, voters, spare = plan or plan_of(seed)
    return run_seed(factory, MODES[mode], seed, nodes=voters, extra=spare, steps=steps, trace=trace)


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
    """Run one seed of any mode. `events`: instead of those that follow from the seed."""
    world = World(seed, nodes, mode, factory, steps=steps, events=events, extra=extra, trace=trace)
    return Run(world, world.run())


def minimise(factory: EngineFactory, run: Run) -> list[Event]:
    """The fewest events that still give the same violation (ddmin; the network keeps its own random stream)."""
    world, kinds = run.world, _kinds(run)
    assert kinds, "nothing to explain"
    nodes, extra = len(world.ids), len(world.pool) - len(world.ids)

    def is_bad(events: list[Event]) -> bool:
        mode = MODES[world.mode.name]
        again = run_seed(factory, mode, world.seed, nodes=nodes, extra=extra, steps=world.steps, events=events)
        return bool(kinds & _kinds(again))

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


def _kinds(run: Run) -> set[str]:
    """What a smaller run must show: the hard violation, or without one any of the soft ones."""
    return {run.violation.kind} if run.violation is not None else set(run.soft)
