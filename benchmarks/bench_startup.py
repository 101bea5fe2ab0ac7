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

from peers.kafka import SCRIPT

TARGET_MS = 150
VERBS = (["--version"], ["--help"], ["produce", "--help"], ["explain", "19"], ["cluster", "stop"])


def processor_ms(command: list[str], runs: int, environment: dict[str, str]) -> float:
    """Of the process and its children, in user and kernel: the least of `runs`."""
    spent = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two runs")
    runs = 2 if parser.parse_args().quick else 10
    topics = ["bash", str(SCRIPT), "tool", "TopicCommand", "--version"]
    with tempfile.TemporaryDirectory(prefix="kraftlog-bench-") as home:
        environment = {**os.environ, "KRAFTLOG_HOME": home}
        python_ms = processor_ms([sys.executable, "-c", "pass"], runs, environment)
        kafka_ms = processor_ms(topics, runs, environment)
        print("| start-up, processor time | kraftctl | target | met | Kafka's topic tool, --version | ratio |")
        print("|---|---|---|---|---|---|")
        for verb in VERBS:
            ours_ms = processor_ms([sys.executable, "-m", "kraftlog.sdk.cli.main", *verb], runs, environment)
            met = "yes" if ours_ms < TARGET_MS else "no"
            ratio = ours_ms / kafka_ms
            print(
                f"| {' '.join(verb)} | {ours_ms:.0f} ms | {TARGET_MS} ms | {met} | {kafka_ms:,.0f} ms | {ratio:.2f} |"
            )
    print(f"\nBest of {runs}; a bare Python interpreter takes {python_ms:.0f} ms of it.")


if __name__ == "__main__":
    main()
