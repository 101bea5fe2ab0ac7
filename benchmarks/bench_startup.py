"""What a verb of kraftctl costs before it does anything: `python benchmarks/bench_startup.py [--quick]`.

Processor time of the whole process, the best of some runs, beside Kafka's own tool for topics on its JVM. The target
is for verbs that need no cluster. `make test` watches what they load, which does not move with the machine.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable

from peers.kafka import peer, tool

TARGET_MS = 150
VERBS = (["--version"], ["--help"], ["produce", "--help"], ["explain", "19"], ["cluster", "stop"])


def processor_ms(run: Callable[[], object], runs: int) -> float:
    """Of the processes that `run` waits for, in user and kernel: the least of `runs`."""
    spent = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two runs")
    runs = 2 if parser.parse_args().quick else 10
    peer("setup")
    with tempfile.TemporaryDirectory(prefix="kraftlog-bench-") as home:
        environment = {**os.environ, "KRAFTLOG_HOME": home}

        def python_ms(*arguments: str) -> float:
            command = [sys.executable, *arguments]
            return processor_ms(lambda: subprocess.run(command, capture_output=True, env=environment, check=True), runs)

        bare_ms = python_ms("-c", "pass")
        kafka_ms = processor_ms(lambda: tool("TopicCommand", "--version"), runs)
        print("| start-up, processor time | kraftctl | target | met | Kafka's topic tool, --version | ratio |")
        print("|---|---|---|---|---|---|")
        for verb in VERBS:
            ours_ms = python_ms("-m", "kraftlog.sdk.cli.main", *verb)
            met = "yes" if ours_ms < TARGET_MS else "no"
            ratio = ours_ms / kafka_ms
            print(
                f"| {' '.join(verb)} | {ours_ms:.0f} ms | {TARGET_MS} ms | {met} | {kafka_ms:,.0f} ms | {ratio:.2f} |"
            )
    print(f"\nBest of {runs}; a bare Python interpreter takes {bare_ms:.0f} ms of it.")


if __name__ == "__main__":
    main()
