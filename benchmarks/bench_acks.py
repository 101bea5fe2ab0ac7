"""Acknowledged records per second and their latency with `flush.policy=ack`, by how many partitions are written at once:
`python benchmarks/bench_acks.py`.

Measured at the broker's replica manager, over a real disk and real threads but without a network or a client: append,
group commit, acknowledgment. Each partition has one writer that sends its next batch when the last one is acknowledged,
so as many files wait for the disk as there are partitions.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kraftlog.kraft.image import MetadataDelta, MetadataImage
from kraftlog.logstore import LogDir, RealFileSystem, format_log_dir
from kraftlog.proto import metadata_pb2
from kraftlog.proto.records import BatchBuilder
from kraftlog.replication.replica_manager import ReplicaManager
from kraftlog.server.seams import SystemClock, ThreadExecutor

TOPIC = "t"
TOPIC_ID = bytes(15) + b"\x07"
RECORDS = 10
RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Acks:
    """Of one run."""

    partitions: int
    records_per_second: float
    p50_ms: float
    p99_ms: float


async def measure(directory: Path, partitions: int, seconds: float) -> Acks:
    """Write to so many partitions for a while."""
    fs, clock, executor = RealFileSystem(), SystemClock(), ThreadExecutor()
    path = str(directory)
    format_log_dir(path, fs, cluster_id="c", node_id=1, directory_id="d")
    log_dir = LogDir.open(path, fs=fs, node_id=1, cluster_id="c", now_ms=clock.wall_ms())
    replicas = ReplicaManager(
        node_id=1,
        log_dir=log_dir,
        clock=clock,
        executor=executor,
        random=random.Random(1),
        topic_defaults={},
        high_watermarks={},
        on_leadership=lambda partition: None,
        on_storage_failure=lambda error: None,
    )
    try:
        await _create(replicas, partitions)
        await _write(replicas, partitions, 0)  # one batch each: files are made and preallocated
        began = time.perf_counter()
        latencies = await _write(replicas, partitions, seconds)
        took = time.perf_counter() - began
    finally:
        await replicas.stop()
        log_dir.close()
        executor.close()
    latencies.sort()
    return Acks(
        partitions,
        len(latencies) * RECORDS / took,
        1_000 * statistics.median(latencies),
        1_000 * latencies[int(len(latencies) * 0.99)],
    )


async def _create(replicas: ReplicaManager, partitions: int) -> None:
    records = [metadata_pb2.MetadataRecord(topic=metadata_pb2.TopicRecord(name=TOPIC, topic_id=TOPIC_ID))]
    for number in range(partitions):
        partition = metadata_pb2.PartitionRecord(
            topic_id=TOPIC_ID, partition=number, replicas=[1], in_sync_replicas=[1], leader_id=1
        )
        records.append(metadata_pb2.MetadataRecord(partition=partition))
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    replicas.on_metadata_update(delta, delta.apply(len(records), 0))
    await replicas.wait_applied()


async def _write(replicas: ReplicaManager, partitions: int, seconds: float) -> list[float]:
    """One writer for each partition, until the time is up, each at least once; the latencies in seconds."""
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(replicas.clock.wall_ms(), None, bytes(RECORD_BYTES))
    batch = builder.build()
    latencies: list[float] = []
    until = time.perf_counter() + seconds

    async def write(number: int) -> None:
        partition = replicas.leader(TOPIC, number)
        while True:
            began = time.perf_counter()
            info = replicas.append(partition, batch, acks=-1)
            await replicas.wait_committed(partition, partition.leader_epoch, info.last_offset + 1)
            ended = time.perf_counter()
            latencies.append(ended - began)
            if ended >= until:
                return

    await asyncio.gather(*(write(number) for number in range(partitions)))
    return latencies


def run(scratch: Path, partitions: int, seconds: float) -> Acks:
    """In a directory of its own below `scratch`."""
    with tempfile.TemporaryDirectory(prefix=f"acks-{partitions}-", dir=scratch) as directory:
        return asyncio.run(measure(Path(directory), partitions, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 10, 200, 1_000])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to measure")
    options = parser.parse_args()
    for partitions in options.partitions:
        print(run(options.directory, partitions, options.seconds), flush=True)


if __name__ == "__main__":
    main()
