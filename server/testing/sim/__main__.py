"""`python -m kraftlog.testing.sim`: replay one seed, or run many.

Exit code 0: all seeds sound; 1: a seed broke a rule (the first such seed is replayed with its trace's tail).
"""

import argparse
import sys
import time
from collections.abc import Sequence

from kraftlog.testing.sim.simulation import SimulationConfig, SimulationResult, simulate

DEFAULT_DURATION_S = SimulationConfig().duration_ms / 1000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kraftlog.testing.sim", description="Run simulated clusters from seeds.")
    parser.add_argument("--seed", type=int, default=1, help="the (first) seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on")
    parser.add_argument("--duration", type=float, default=DEFAULT_DURATION_S, help="virtual seconds under faults")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parsed = parser.parse_args(arguments)
    config = SimulationConfig(duration_ms=parsed.duration * 1000)
    return _run_many(parsed.seed, parsed.seeds, config, trace=parsed.trace)


def _run_many(first: int, count: int, config: SimulationConfig, *, trace: bool) -> int:
    started = time.perf_counter()
    virtual_seconds = 0.0
    failed: list[int] = []
    for seed in range(first, first + count):
        result = simulate(seed, config, echo=trace)
        virtual_seconds += result.virtual_seconds
        print(result, flush=True)
        if result.violation is not None:
            failed.append(seed)
            _report(result, with_tail=not trace)
    if count > 1:
        seconds = time.perf_counter() - started
        print(
            f"{count} seeds, {len(failed)} failed{': ' if failed else ''}{', '.join(map(str, failed))} | "
            f"{count / seconds:.2f} seeds/s, {virtual_seconds:.0f} virtual seconds in {seconds:.0f} s"
        )
    else:
        print(f"trace hash {result.digest}")
    return 1 if failed else 0


def _report(result: SimulationResult, *, with_tail: bool) -> None:
    if with_tail:
        print("\n".join(f"    {line}" for line in result.lines))
    print(f"{result.violation}\nreplay it: make sim SEED={result.seed} ARGS=--trace", flush=True)


if __name__ == "__main__":
    sys.exit(main())
