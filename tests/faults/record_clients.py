"""A process that produces or consumes verifiable records without pause, or looks at who leads and who is in sync, and says
what it was told: lines of JSON.

    python -m tests.faults.record_clients '{"role": "producer", "name": "p1", ...}'    (the fields of `Plan`)

It works until its standard input ends; a final reader ends by itself. The value of a record names its producer and its
place in what that producer sent, and is filled up with bytes that follow from that, so that a damaged one is seen as such.
"""

import dataclasses
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kraftlog import Admin, Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from kraftlog.proto.errors import KraftlogError
from kraftlog.sdk.types import NewTopic, RecordMetadata

WATCHER, PRODUCER, ASSIGNED, GROUP, FINAL = "watcher", "producer", "assigned", "group", "final"
DAMAGED = "damaged"
POLL_MS = 100
COMMIT_INTERVAL_MS = 300
SENDS_PER_PAUSE = 10
FINAL_PATIENCE_S = 60.0
LOOK_S = 0.1
MADE_UP_S_MAX = 1.0  # of the sends that a busy machine kept from their time
SEGMENT_BYTES = 256 * 1024  # so that logs roll in the middle of a run
REPLICAS = 3
MIN_INSYNC_REPLICAS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    role: str
    name: str
    bootstrap_servers: str
    topic: str
    partitions: int
    rate_per_s: int = 150
    """Records of a producer, at most."""
    configs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Of the topic, which the watcher creates, beside those that every run has."""

    def encode(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def value_of(producer: str, number: int) -> bytes:
    text = f"{producer}-{number}"
    return f"{text} ".ljust(60 + number * 7919 % 200, text[-1]).encode()


def text_of(value: bytes | None) -> str:
    """Who sent it and as which one; `DAMAGED` with the beginning if the rest does not fit."""
    text = (value or b"").split(b" ")[0].decode(errors="replace")
    producer, _, number = text.rpartition("-")
    return text if number.isdecimal() and value == value_of(producer, int(number)) else f"{DAMAGED}:{value!r:.80}"


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def watch(plan: Plan, is_stopping: threading.Event) -> None:
    """Create the topic, then say of each partition who leads it and who is in sync, whenever some broker knows of a change."""
    configs = {
        "min.insync.replicas": str(MIN_INSYNC_REPLICAS),
        "segment.bytes": str(SEGMENT_BYTES),
        **plan.configs,
    }
    topic = NewTopic(plan.topic, plan.partitions, REPLICAS, configs)
    said: dict[int, tuple[int, int]] = {}
    options = {"request_timeout_ms": 1_000, "default_api_timeout_ms": 2_000, "retry_backoff_max_ms": 200}
    with Admin(bootstrap_servers=plan.bootstrap_servers) as admin:
        admin.create_topics([topic])
    with Admin(options, bootstrap_servers=plan.bootstrap_servers) as admin:
        while not is_stopping.wait(LOOK_S):
            try:
                (description,) = admin.describe_topics([plan.topic], allow_stale=True)
            except KraftlogError as error:
                print(f"{time.monotonic():.3f} {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            for each in description.partitions:
                seen = (each.leader_epoch, each.partition_epoch)
                if seen > said.get(each.partition, (-1, -1)):
                    said[each.partition] = seen
                    say(
                        partition=each.partition,
                        leader=each.leader_id,
                        leader_epoch=each.leader_epoch,
                        isr=each.in_sync_replicas,
                        at=time.monotonic(),
                    )


def produce(plan: Plan, is_stopping: threading.Event) -> None:
    """Evenly over the partitions. What fails stays failed: nobody knows whether it is stored."""
    lock = threading.Lock()
    told: list[tuple[int, int, int]] = []
    failed: list[str] = []

    def acknowledged(metadata: RecordMetadata, number: int) -> None:
        with lock:
            told.append((metadata.partition, number, metadata.offset))

    def tell() -> None:
        with lock:
            acknowledgments, told[:] = told[:], []
            failures, failed[:] = failed[:], []
        if acknowledgments or failures:
            say(acknowledged=acknowledgments, failed=failures, at=time.monotonic())

    number = 0
    with Producer(
        bootstrap_servers=plan.bootstrap_servers,
        client_id=plan.name,
        request_timeout_ms=5_000,
        retry_backoff_max_ms=300,
    ) as producer:
        send_at = time.monotonic()
        while not is_stopping.wait(max(0.0, send_at - time.monotonic())):
            send_at = max(send_at + SENDS_PER_PAUSE / plan.rate_per_s, time.monotonic() - MADE_UP_S_MAX)
            for _ in range(SENDS_PER_PAUSE):
                future = producer.send(plan.topic, value_of(plan.name, number), partition=number % plan.partitions)
                future.add_callback(lambda metadata, number=number: acknowledged(metadata, number))
                future.add_errback(lambda error: failed.append(f"{type(error).__name__}: {error}"))
                number += 1
            tell()
        producer.flush()
    tell()
    say(sent=number)


class Sessions(ConsumerRebalanceListener):
    """Tells since when a partition is read in a row, and what was read."""

    def __init__(self) -> None:
        self._count = 0
        self._of: dict[int, int] = {}

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        for each in assigned:
            self.begin(each.partition, None)

    def begin(self, partition: int, offset: int | None) -> None:
        self._count += 1
        self._of[partition] = self._count
        say(session=self._count, partition=partition, begin=offset)

    def poll(self, consumer: Consumer) -> None:
        for where, records in consumer.poll(timeout_ms=POLL_MS).items():
            given = [(record.offset, text_of(record.value)) for record in records]
            say(given=given, session=self._of[where.partition], partition=where.partition)


def consume(plan: Plan, is_stopping: threading.Event) -> None:
    sessions = Sessions()
    partitions = [TopicPartition(plan.topic, number) for number in range(plan.partitions)]
    with Consumer(
        bootstrap_servers=plan.bootstrap_servers,
        group_id=plan.topic if plan.role == GROUP else None,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_INTERVAL_MS,
        request_timeout_ms=5_000,
        retry_backoff_max_ms=300,
        client_id=plan.name,
    ) as consumer:
        if plan.role == GROUP:
            consumer.subscribe([plan.topic], listener=sessions)
        else:
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            for each in partitions:
                sessions.begin(each.partition, 0)
        if plan.role == FINAL:
            ends = consumer.end_offsets(partitions)
            deadline = time.monotonic() + FINAL_PATIENCE_S
            while any(consumer.position(each) < end for each, end in ends.items()):
                assert time.monotonic() < deadline, f"not read to {ends} within {FINAL_PATIENCE_S} s"
                sessions.poll(consumer)
        else:
            while not is_stopping.is_set():
                sessions.poll(consumer)


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    is_stopping = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        is_stopping.set()

    threading.Thread(target=wait_for_the_end, name="stdin", daemon=True).start()
    {WATCHER: watch, PRODUCER: produce}.get(plan.role, consume)(plan, is_stopping)


if __name__ == "__main__":
    main()
