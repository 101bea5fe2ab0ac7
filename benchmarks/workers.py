"""The kraftlog side of the benchmark: one client process per measurement, as with the peers' tools.

    python benchmarks/workers.py produce --bootstrap H:P --topic T --count N --size S --acks all
    python benchmarks/workers.py latency --bootstrap H:P --topic T --count N --size S --acks all --rate 1000
    python benchmarks/workers.py consume|arrow --bootstrap H:P --topic T --count N --size S

Prints one JSON line: {"seconds": ..., "records": ...}, of latency also the percentiles, from `send` to the callback. Checks what it moved: a wrong count is an error, not a figure.
"""

import argparse
import json
import os
import time

from kraftlog.proto import malloc

malloc.tune()  # a client's own choice, as a service that moves much would make it

from kraftlog import Consumer, Producer, TopicPartition  # noqa: E402

BATCH_BYTES = 1_000_000  # like for like with the peers' 1 MiB batches, below the default max.message.bytes


def produce(options: argparse.Namespace) -> float:
    value = os.urandom(options.size)
    with Producer(
        bootstrap_servers=options.bootstrap, acks=options.acks, batch_size=BATCH_BYTES, linger_ms=5
    ) as producer:
        producer.partitions_for(options.topic)
        send, topic = producer.send, options.topic
        started = time.perf_counter()
        for _ in range(options.count):
            send(topic, value)
        producer.flush()
        return time.perf_counter() - started


def latency(options: argparse.Namespace) -> tuple[float, list[float]]:
    """At an even rate, however late the answers are: (seconds, each record's ms in order of size)."""
    value = os.urandom(options.size)
    delays_ms: list[float] = []
    now = time.perf_counter
    with Producer(
        bootstrap_servers=options.bootstrap, acks=options.acks, batch_size=BATCH_BYTES, linger_ms=5
    ) as producer:
        producer.partitions_for(options.topic)
        started = now()
        for number in range(options.count):
            time.sleep(max(0.0, started + number / options.rate - now()))
            sent = now()
            producer.send(options.topic, value).add_callback(
                lambda _, sent=sent: delays_ms.append(1000 * (now() - sent))
            )
        producer.flush()
        elapsed = now() - started
    if len(delays_ms) != options.count:
        raise SystemExit(f"{len(delays_ms)} records of {options.count} were acknowledged")
    return elapsed, sorted(delays_ms)


def consume(options: argparse.Namespace) -> float:
    received = size = 0
    with _assigned(options) as consumer:
        started = time.perf_counter()
        while received < options.count:
            for records in consumer.poll(timeout_ms=1000, max_records=50_000).values():
                received += len(records)
                for record in records:
                    size += len(record.value or b"")
        elapsed = time.perf_counter() - started
    if size != options.count * options.size:
        raise SystemExit(f"received {size} bytes of {options.count * options.size}")
    return elapsed


def arrow(options: argparse.Namespace) -> float:
    import pyarrow  # noqa: F401  its import is not part of the figure

    received = 0
    with _assigned(options) as consumer:
        started = time.perf_counter()
        while received < options.count:
            received += consumer.poll_arrow(timeout_ms=1000).num_rows
        elapsed = time.perf_counter() - started
    if received != options.count:
        raise SystemExit(f"received {received} records of {options.count}")
    return elapsed


def _assigned(options: argparse.Namespace) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=options.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=8 * 1024 * 1024,
    )
    consumer.assign([TopicPartition(options.topic, partition) for partition in range(options.partitions)])
    return consumer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("produce", "latency", "consume", "arrow"))
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--acks", default="all")
    parser.add_argument("--rate", type=int, default=1_000, help="records per second, of latency")
    options = parser.parse_args()
    if options.acks != "all":
        options.acks = int(options.acks)
    if options.what == "latency":
        seconds, delays_ms = latency(options)
        found = {f"p{share}_ms": round(delays_ms[len(delays_ms) * share // 100], 3) for share in (50, 99)}
        print(json.dumps({"seconds": round(seconds, 3), "records": options.count, **found}))
        return
    seconds = {"produce": produce, "consume": consume, "arrow": arrow}[options.what](options)
    print(json.dumps({"seconds": round(seconds, 3), "records": options.count}))


if __name__ == "__main__":
    main()
