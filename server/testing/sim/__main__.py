"""`python -m kraftlog.testing.sim`: replay one seed, or run many.

Exit code 0: all seeds sound; 1: a seed broke a rule (the first such seed is replayed with its trace's tail).
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kraftlog.testing.sim.simulation import SimulationConfig, SimulationResult, simulate
from kraftlog.testing.tally import Outcome, Tally

FIRST_SOAKED_SEED = 10_001
SOAK_GOAL = 100_000  # seeds
DEFAULT_DURATION_S = SimulationConfig().duration_ms / 1000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kraftlog.testing.sim", description="Run simulated clusters from seeds.")
    parser.add_argument("--seed", type=int, default=1, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--nodes", type=int, default=SimulationConfig().nodes, help="how many nodes")
    parser.add_argument("--duration", type=float, default=DEFAULT_DURATION_S, help="virtual seconds under faults")
    parser.add_argument("--tally", type=Path, metavar="FILE", help="go on after the seeds in this file, and add to it")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parsed = parser.parse_args(arguments)
    config = SimulationConfig(nodes=parsed.nodes, duration_ms=parsed.duration * 1000)
    if parsed.tally is not None:
        return _soak(parsed.tally, parsed.seeds, config)
    if parsed.seeds == 1:
        result = _run(parsed.seed, config, trace=parsed.trace)
        print(f"trace hash {result.digest}")
        return 0 if result.violation is None else 1
    return _run_many(range(parsed.seed, parsed.seed + parsed.seeds), config, trace=parsed.trace)


def _run_many(seeds: range, config: SimulationConfig, *, trace: bool) -> int:
    started = time.perf_counter()
    results = [_run(seed, config, trace=trace) for seed in seeds]
    seconds = time.perf_counter() - started
    failed = [result.seed for result in results if result.violation is not None]
    print(
        f"{len(results)} seeds, {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))} | "
        f"{len(results) / seconds:.2f} seeds/s, {sum(result.virtual_seconds for result in results):.0f} virtual seconds "
        f"in {seconds:.0f} s"
    )
    return 1 if failed else 0


def _soak(path: Path, count: int, config: SimulationConfig) -> int:
    tally = Tally(path, first_seed=FIRST_SOAKED_SEED, goal=SOAK_GOAL)
    first = tally.next_seed
    results = (_run(seed, config, trace=False) for seed in range(first, first + count))
    is_good = tally.soak(
        Outcome(result.seed, result.violation is not None, {"virtual_seconds": result.virtual_seconds})
        for result in results
    )
    return 0 if is_good else 1


def _run(seed: int, config: SimulationConfig, *, trace: bool) -> SimulationResult:
    result = simulate(seed, config, echo=trace)
    print(result, flush=True)
    if result.violation is not None:
        _report(result, with_tail=not trace)
    result.lines.clear()
    return result


def _report(result: SimulationResult, *, with_tail: bool) -> None:
    if with_tail:
        print("\n".join(f"    {line}" for line in result.lines))
    print(f"{result.violation}\nreplay it: make sim SEED={result.seed} ARGS=--trace", flush=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs ignore the first
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
