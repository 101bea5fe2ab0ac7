"""What a waiting request costs, by how many others wait: `python benchmarks/bench_purgatory.py`.

A request is parked under a partition with a deadline of its own and completed by an event, while a constant
number of others waits: processor time for both together. The cost should be flat. Then all that wait expire at once.
"""

import argparse
import itertools
import random
import time

from kraftlog.replication.purgatory import DelayedOperation, Purgatory
from kraftlog.replication.timer import TimerQueue

FEW = 100  # that wait under one partition: an event looks at each of them
MAX_WAIT_MS = 30_000


class Wait(DelayedOperation):
    """Is over when the test says so."""

    is_over = False

    def try_complete(self) -> bool:
        return self.is_over and self.force_complete()

    def on_complete(self) -> None:
        pass

    def on_failure(self, error: Exception) -> None:
        raise AssertionError from error


def measure(waiting: int, count: int, seed: int) -> tuple[float, float]:
    """(microseconds for a request beside `waiting` others, microseconds for each that expires)."""
    rng = random.Random(seed)
    timers = TimerQueue()
    purgatory: Purgatory[int] = Purgatory(timers, max_operations=waiting + 1)
    keys = itertools.count()

    def park() -> tuple[int, Wait]:
        key = next(keys) // FEW  # those that wait are spread thin, as the fetches of many clients are
        operation = Wait(rng.uniform(1, MAX_WAIT_MS))
        purgatory.try_complete_else_watch(operation, (key,))
        return key, operation

    for _ in range(waiting):
        park()
    began = time.process_time()
    for _ in range(count):
        key, operation = park()
        operation.is_over = True
        purgatory.check_and_complete(key)
    request_us = (time.process_time() - began) / count * 1e6
    assert purgatory.waiting == waiting
    began = time.process_time()
    expired = timers.advance(MAX_WAIT_MS)
    expiry_us = (time.process_time() - began) / max(expired, 1) * 1e6
    assert (expired, purgatory.waiting) == (waiting, 0)
    return request_us, expiry_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="*", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.count} requests a line, processor time")
    for waiting in arguments.waiting:
        request_us, expiry_us = measure(waiting, arguments.count, arguments.seed)
        print(f"{waiting:>8,} wait: {request_us:6.1f} us a request, {expiry_us:6.1f} us for each that expires")


if __name__ == "__main__":
    main()
