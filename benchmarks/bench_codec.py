"""The record codec, Python beside C: microseconds of CPU a record, one core, CRC included where a batch is made or read.

    python benchmarks/bench_codec.py [--quick]

A working set of about 1 MiB, so that the figures are the codec's and not those of page faults. Each figure is the best
of several runs: on a busy machine the best is the least disturbed.
"""

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from kraftlog.proto import hotpath, records
from kraftlog.proto.partitioner import partition_for_key
from kraftlog.proto.records import CompressionType, arrow, backend
from kraftlog.proto.records.builder import PythonBatchBuilder

WORKING_SET_BYTES = 1_000_000
T0 = 1_700_000_000_000
KEY = b"0123456789"
HEADERS = [("trace", b"0123456789abcdef")]


def twins() -> list[SimpleNamespace]:
    found = [SimpleNamespace(codec=backend.load("python"), builder=PythonBatchBuilder)]
    if backend.current.NAME == "c":
        found.append(SimpleNamespace(codec=backend.current, builder=records.BatchBuilder))
    return found


def best(work: Callable[[], Any], runs: int) -> float:
    """CPU seconds of the fastest of `runs`: other processes do not count."""
    fastest = float("inf")
    for _ in range(runs):
        start = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - start)
    return fastest


def measures(builder_class: Any, value_size: int) -> dict[str, tuple[Callable[[], Any], int]]:
    """Name -> (work, records that it handles)."""
    count = WORKING_SET_BYTES // value_size
    value = bytes(range(256)) * (value_size // 256 + 1)
    value = value[:value_size]

    def append(key: bytes | None, headers: Any) -> Callable[[], Any]:
        def work() -> Any:
            builder = builder_class()
            add = builder.append
            if headers:
                for _ in range(count):
                    add(T0, key, value, headers)
            else:
                for _ in range(count):
                    add(T0, key, value)
            return builder

        return work

    builder = append(KEY, None)()
    batch = builder.build()
    table = pa.table({"key": [KEY] * count, "value": [value] * count})
    small = builder_class()
    for index in range(10):
        small.append(T0 + index, KEY, value)
    chunk = small.build() * (count // 10)
    compressed = {
        codec: [_filled(builder_class(compression_type=codec), value, count)]
        for codec in CompressionType
        if codec is not CompressionType.NONE
    }
    work: dict[str, tuple[Callable[[], Any], int]] = {
        "append, no key": (append(None, None), count),
        "append, key": (append(KEY, None), count),
        "append, key and header": (append(KEY, HEADERS), count),
        "build": (builder.build, count),
        "validate": (lambda: records.validate_batches(batch, max_batch_bytes=1 << 30), count),
        "decode to lazy records": (lambda: records.decode_records(batch), count),
        "decode and read .value": (lambda: [record.value for record in records.decode_records(batch)], count),
        "decode, 10 records a batch": (lambda: records.decode_records(chunk), count),
        "validate, 10 records a batch": (lambda: records.validate_batches(chunk, max_batch_bytes=1 << 30), count),
        "decode to Arrow": (lambda: arrow.decode_arrow([batch], topic="t", partition=0), count),
        "encode from Arrow": (lambda: arrow.encode_arrow(table, timestamp_ms=T0, max_batch_bytes=1 << 21), count),
        "partition of a key": (lambda: [partition_for_key(KEY, 6) for _ in range(count)], count),
    }
    for codec, (filled,) in compressed.items():
        packed = filled.build()
        work[f"build {codec.label}"] = (filled.build, count)
        work[f"decode {codec.label}"] = (partial(records.decode_records, packed), count)
    return work


def _filled(builder: Any, value: bytes, count: int) -> Any:
    for index in range(count):
        builder.append(T0 + index, KEY, value)
    return builder


def codec_table(runs: int) -> None:
    sizes = (100, 1000)
    columns: dict[str, list[float]] = {}
    names = twins()
    for size in sizes:
        for twin in names:
            backend.current = twin.codec
            arrow.BatchBuilder = twin.builder  # the twin under test
            for name, (work, count) in measures(twin.builder, size).items():
                columns.setdefault(name, []).append(best(work, runs) / count * 1e6)
    heads = [f"{size} B {twin.codec.NAME}" for size in sizes for twin in names]
    print(f"\n| us a record | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for name, figures in columns.items():
        print(f"| {name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |")


def repeat(work: Callable[[Any], Any], argument: Any) -> None:
    for _ in range(1000):
        work(argument)


def hotpath_table(runs: int) -> None:
    print("\n| us a message | encode | decode |\n|---|---|---|")
    for partitions, size in ((1, 100), (1, 1 << 20), (10, 1000)):
        request = hotpath.ProduceRequest(
            correlation_id=5,
            acks=-1,
            timeout_ms=30_000,
            partitions=[hotpath.PartitionRecords("orders", index, bytes(size)) for index in range(partitions)],
        )
        data = b"".join(hotpath.encode(request))
        encode = best(partial(repeat, hotpath.encode, request), runs)
        decode = best(partial(repeat, hotpath.decode_produce_request, data), runs)
        print(f"| produce, {partitions} x {size} B | {encode * 1000:.1f} | {decode * 1000:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    runs = 3 if parser.parse_args().quick else 15
    print(f"Python {platform.python_version()}, {platform.machine()}, active codec: {records.codec}")
    codec_table(runs)
    hotpath_table(runs)


if __name__ == "__main__":
    main()
