"""Partitions with three replicas: throughput, latency, failover, restart and catching up, beside Apache Kafka.

    python benchmarks/bench_replication.py [throughput] [latency] [failover] [restart] [catch_up] [--quick] [--no-kafka]
                                           [--directory DIR]

- throughput: records of 1,000 bytes with acks=all to one topic of three replicas, and what the nodes hold in memory, idle
  and after it. One client process, as with Kafka's tool.
- latency: from `send` to the acknowledgment, at 1,000 records a second and the same linger on both sides.
- failover: kill -9 of a partition's leader until a record that was sent after it is acknowledged; the leader of the quorum
  is among those that die, by chance. Default time-outs.
- restart: all three nodes are killed; until a record is acknowledged again, with 1,000 partitions of three replicas and
  the default `flush.policy`: with `interval` all of them could have lost records, and kraftlog, unlike Kafka, elects none by
  itself.
- catch_up: a follower was away while its partition grew; from the start of its process until it is in sync.

Kafka, with three nodes too, runs in turn with kraftlog where a ratio is given; `--no-kafka` leaves it out. Medians of runs;
the load of the machine is in the last row.
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench_quorum import HEAD, Figure, percentile
from peers.kafka import peer
from quorum_peer import SETTLE_S, KafkaSide, KraftlogSide, Side, resident_mib, seconds_of

from kraftlog import Producer

RECORD_BYTES = 1_000
REPLICAS = 3
PATIENCE_S = 120.0
SEND_EVERY_S = 0.01  # of the failover's producer
CATCH_UP_MB_S = 100.0
FAILOVER_S = 5.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done; tests do little."""

    rounds: int = 3
    records: int = 500_000
    latency_s: int = 20
    failovers: int = 20
    partitions: int = 1_000
    behind_records: int = 1_000_000
    with_kafka: bool = True


QUICK = Sizes(rounds=1, records=100_000, latency_s=5, failovers=3, partitions=1_000, behind_records=200_000)


def compared(
    what: str, ours: Sequence[float], peers: Sequence[float], unit: str, *, at_most: float = 0, at_least: float = 0
) -> Figure:
    """A row of medians; without the peer, there is no ratio and no verdict."""
    own = statistics.median(ours)
    text = f"{own:,.0f} {unit}" if own >= 100 else f"{own:,.2f} {unit}"
    if not peers:
        return Figure(what, text)
    other = statistics.median(peers)
    ratio = own / other
    target = f"at least {at_least}" if at_least else f"at most {at_most}" if at_most else ""
    met = ratio >= at_least if at_least else ratio <= at_most if at_most else True
    return Figure(what, text, f"Kafka {other:,.2f} {unit}", ratio, target, met)


# Throughput and memory.


def throughput(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    ours: list[tuple[float, float, float]] = []
    peers: list[tuple[float, float, float]] = []
    for number in range(sizes.rounds):
        directory = scratch / str(number)
        with KraftlogSide(directory, 3) as side:
            side.start()
            side.create("first", 1, REPLICAS)
            ours.append(_moved(side, sizes))
        if sizes.with_kafka:
            with KafkaSide(directory, 3) as kafka:
                kafka.start()
                kafka.create("first", 1, REPLICAS)
                peers.append(_moved(kafka, sizes))
    what = "acks=all, three replicas, 1,000-byte records"
    yield compared(what, [each[0] for each in ours], [each[0] for each in peers], "records/s", at_least=1.5)
    for place, when in ((1, "idle"), (2, "after that load")):
        values, others = [each[place] for each in ours], [each[place] for each in peers]
        yield compared(f"resident memory of a node, {when}", values, others, "MiB", at_most=0.5)


def _moved(side: Side, sizes: Sizes) -> tuple[float, float, float]:
    """(records per second, MiB of a node before, after)."""
    time.sleep(SETTLE_S)
    idle = resident_mib(side)
    side.create("measured", 1, REPLICAS)
    side.produce("measured", max(1_000, sizes.records // 10), RECORD_BYTES)  # warms up
    rate = side.produce("measured", sizes.records, RECORD_BYTES)
    return rate, idle, resident_mib(side)


# Latency.


def latency(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    count = 1_000 * sizes.latency_s
    ours: dict[str, list[tuple[float, float]]] = {"interval": [], "ack": []}
    peers: list[tuple[float, float]] = []
    for number in range(sizes.rounds):
        directory = scratch / str(number)
        with KraftlogSide(directory, 3) as side:
            side.start()
            for policy, found in ours.items():
                side.create(policy, 1, REPLICAS, policy)
                side.latency(policy, 2_000, RECORD_BYTES)
                found.append(side.latency(policy, count, RECORD_BYTES))
        if sizes.with_kafka:
            with KafkaSide(directory, 3) as kafka:
                kafka.start()
                kafka.create("measured", 1, REPLICAS)
                kafka.latency("measured", 2_000, RECORD_BYTES)
                peers.append(kafka.latency("measured", count, RECORD_BYTES))
    for policy, found in ours.items():
        for place, (name, target) in enumerate((("p50", 1.5), ("p99", 1.0))):
            yield compared(
                f"latency at 1,000 records/s, {policy}, {name}",
                [each[place] for each in found],
                [each[place] for each in peers],
                "ms",
                at_most=target if policy == "interval" else 0,
            )


# Failover.


def failover(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    with KraftlogSide(scratch, 3) as side:
        side.start()
        side.create("measured", 1, REPLICAS, "ack")
        seconds = [_fail_over(side) for _ in range(sizes.failovers)]
    p95 = percentile(seconds, 0.95)
    yield Figure(
        f"leader kill -9 to the next acknowledged record, {len(seconds)} times, p95",
        f"{p95:.2f} s (p50 {statistics.median(seconds):.2f}, worst {max(seconds):.2f})",
        target=f"below {FAILOVER_S:.0f} s",
        is_met=p95 < FAILOVER_S,
    )


def _fail_over(side: KraftlogSide) -> float:
    """Kill the leader under a steady load, measure, and bring it back into the in-sync replicas."""
    acknowledged = threading.Event()
    ends: list[float] = []
    with Producer(bootstrap_servers=side.servers, acks="all", linger_ms=0) as producer:
        producer.send("measured", bytes(RECORD_BYTES)).result(PATIENCE_S)
        time.sleep(0.5 * random.random())  # anywhere between two heartbeats
        leader = side.node(side.partition("measured").leader_id)
        leader.kill9()
        started = time.perf_counter()

        def note(_: object) -> None:
            ends.append(time.perf_counter())
            acknowledged.set()

        while not acknowledged.wait(SEND_EVERY_S):
            producer.send("measured", bytes(RECORD_BYTES)).add_callback(note)
            if time.perf_counter() - started > PATIENCE_S:
                raise SystemExit("no record was acknowledged any more")
    leader.start(PATIENCE_S)  # a busy disk takes its time
    _wait_in_sync(side)
    return ends[0] - started


# Restart.


def restart(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    ours: list[float] = []
    peers: list[float] = []
    for number in range(sizes.rounds):
        directory = scratch / str(number)
        with KraftlogSide(directory, 3) as side:
            side.start()
            side.create("many", sizes.partitions, REPLICAS, "ack")
            ours.append(_restarted(side, sizes.partitions))
        if sizes.with_kafka:
            with KafkaSide(directory, 3) as kafka:
                kafka.start()
                kafka.create("many", sizes.partitions, REPLICAS)
                peers.append(_restarted(kafka, sizes.partitions))
    what = f"restart of three nodes with {sizes.partitions:,} partitions to the first acknowledged record"
    yield compared(what, ours, peers, "s", at_most=0.2)


def _restarted(side: Side, partitions: int) -> float:
    side.write("many", partitions)
    time.sleep(SETTLE_S)
    side.kill_all()

    def come_back() -> None:
        side.start()
        side.write("many", 1)

    return seconds_of(come_back)


# Catching up.


def catch_up(scratch: Path, sizes: Sizes) -> Iterator[Figure]:
    rates = [_caught_up(scratch / str(number), sizes) for number in range(sizes.rounds)]
    rate = statistics.median(rates)
    yield Figure(
        f"a follower that missed {sizes.behind_records * RECORD_BYTES / 1e6:,.0f} MB catches up",
        f"{rate:,.0f} MB/s",
        target=f"at least {CATCH_UP_MB_S:.0f} MB/s",
        is_met=rate >= CATCH_UP_MB_S,
    )


def _caught_up(directory: Path, sizes: Sizes) -> float:
    with KraftlogSide(directory, 3) as side:
        side.start()
        side.create("measured", 1, REPLICAS)
        side.produce("measured", 1_000, RECORD_BYTES)
        described = side.partition("measured")
        follower = side.node(next(each for each in described.replicas if each != described.leader_id))
        follower.stop()
        side.produce("measured", sizes.behind_records, RECORD_BYTES)

        def come_back() -> None:
            follower.launch()
            _wait_in_sync(side)

        return sizes.behind_records * RECORD_BYTES / 1e6 / seconds_of(come_back)


def _wait_in_sync(side: KraftlogSide) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(side.partition("measured").in_sync_replicas) < REPLICAS:
        if time.monotonic() > deadline:
            raise SystemExit(f"not every replica is in sync after {PATIENCE_S:.0f} s")
        time.sleep(0.02)


PARTS: dict[str, Callable[[Path, Sizes], Iterator[Figure]]] = {
    "throughput": throughput,
    "latency": latency,
    "failover": failover,
    "restart": restart,
    "catch_up": catch_up,
}


def run(parts: Sequence[str], sizes: Sizes, directory: Path | None = None) -> Iterator[Figure]:
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="kraftlog-bench-", dir=directory) as scratch:
            yield from PARTS[part](Path(scratch), sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="little of everything, few runs")
    parser.add_argument("--no-kafka", action="store_true", help="kraftlog alone")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; default: where temporary files go")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    sizes = replace(QUICK if options.quick else Sizes(), with_kafka=not options.no_kafka)
    if sizes.with_kafka:
        peer("setup")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: no node is left behind
    load = os.getloadavg()[0]
    print("\n".join(HEAD), flush=True)
    for figure in run(options.parts or list(PARTS), sizes, options.directory):
        print(figure.row, flush=True)
    print(Figure("load of the machine, at the start and at the end", f"{load:.1f}, {os.getloadavg()[0]:.1f}").row)


if __name__ == "__main__":
    main()
