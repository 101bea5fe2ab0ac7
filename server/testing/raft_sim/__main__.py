"""`python -m kraftlog.testing.raft_sim`: replay one seed, or run many.

Exit code 0: all seeds sound; 1: a seed broke a rule.
"""

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from kraftlog.testing.raft_sim.modes import MODES
from kraftlog.testing.raft_sim.plans import Plan, plan_of
from kraftlog.testing.raft_sim.runs import STEPS, Run, minimise, run_plan, run_seed
from kraftlog.testing.raft_sim.world import EngineFactory
from kraftlog.testing.tally import Outcome, Tally

FIRST_SOAKED_SEED = 20_001
SOAK_GOAL = 100_000  # seeds
CORE = "kraftlog.testing.raft_sim.core_engine:CoreEngine"


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    module, _, name = parsed.engine.partition(":")
    factory: EngineFactory = getattr(import_module(module), name)
    plan = None if parsed.mode is None else Plan(parsed.mode, parsed.voters, parsed.spare)
    if parsed.tally is not None:
        return _soak(factory, plan, parsed.seeds, parsed.tally, parsed.steps)
    if parsed.seeds > 1:
        return 1 if _run_many(factory, plan, range(parsed.seed, parsed.seed + parsed.seeds), parsed.steps) else 0
    return _run_one(factory, plan or plan_of(parsed.seed), parsed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kraftlog.testing.raft_sim", description="Run simulated quorums from seeds. A seed chooses its own faults."
    )
    parser.add_argument("--seed", type=int, default=1, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--mode", choices=sorted(MODES), help="these faults, instead of those that the seed chooses")
    parser.add_argument("--voters", type=int, default=3, help="with --mode: voters at first (default 3)")
    parser.add_argument("--spare", type=int, default=0, help="with --mode: further nodes (default 0)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of 0.1 s under faults (default {STEPS})")
    parser.add_argument("--engine", default=CORE, metavar="MODULE:CLASS", help="another implementation than kraftlog's")
    parser.add_argument("--trace", action="store_true", help="print every event and message")
    parser.add_argument("--minimise", action="store_true", help="look for the fewest faults that break the same rule")
    parser.add_argument("--tally", type=Path, metavar="FILE", help="go on after the seeds in this file, and add to it")
    return parser


def _run_one(factory: EngineFactory, plan: Plan, parsed: argparse.Namespace) -> int:
    run = run_plan(parsed.seed, plan, factory=factory, steps=parsed.steps, trace=True)
    if parsed.minimise and run.is_bad:
        events = minimise(factory, run)
        mode = MODES[plan.mode]
        options = {"nodes": plan.voters, "extra": plan.spare, "steps": parsed.steps}
        run = run_seed(factory, mode, parsed.seed, **options, events=events, trace=True)
    if parsed.trace:
        print("\n".join(run.world.trace_lines))
    print(run.describe())
    print(", ".join(f"{count} {name}" for name, count in run.world.checker.stats.items()))
    print(f"trace hash {run.digest}")
    return int(run.is_bad)


def _runs(factory: EngineFactory, plan: Plan | None, seeds: range, steps: int) -> Iterator[Run]:
    for seed in seeds:
        run = run_plan(seed, plan, factory=factory, steps=steps)
        if run.is_bad:
            print(run.describe(), flush=True)
        yield run


def _run_many(factory: EngineFactory, plan: Plan | None, seeds: range, steps: int) -> int:
    """How many seeds were bad."""
    started = time.process_time()
    kinds: Counter[str] = Counter()
    total: Counter[str] = Counter()
    bad = 0
    for run in _runs(factory, plan, seeds, steps):
        bad += run.is_bad
        total.update(run.world.checker.stats)
        kinds.update([run.violation.kind] if run.violation is not None else [f"{kind} (soft)" for kind in run.soft])
    seconds = time.process_time() - started
    print(f"{len(seeds)} seeds, {bad} bad, {len(seeds) / seconds:.1f} seeds per second of CPU")
    print(", ".join(f"{count} {name}" for name, count in total.items()))
    if kinds:
        print("violations: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    return bad


def _soak(factory: EngineFactory, plan: Plan | None, count: int, path: Path, steps: int) -> int:
    tally = Tally(path, first_seed=FIRST_SOAKED_SEED, goal=SOAK_GOAL)
    first = tally.next_seed
    runs = _runs(factory, plan, range(first, first + count), steps)
    return 0 if tally.soak(Outcome(run.world.seed, run.is_bad) for run in runs) else 1


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
