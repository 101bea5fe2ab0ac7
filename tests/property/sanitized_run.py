"""Feeds mutated batches to a C twin that was built with sanitizers; `test_records_sanitized.py` starts it.

    LD_PRELOAD=libasan.so PYTHONMALLOC=malloc python sanitized_run.py EXTENSION VECTORS SEED ROUNDS

Any read or write out of bounds, use after free or undefined arithmetic aborts the process. What is fed lies in
buffers of exactly its size, so that one byte too far is seen. The last line says how many inputs ran.
"""

import ctypes
import importlib.util
import json
import pickle
import random
import struct
import sys
from pathlib import Path
from typing import Any


def load_extension(path: str) -> Any:
    """Put the sanitized build where the package looks for its twin."""
    name = "kraftlog.proto.records._codec"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    return module


CODEC = load_extension(sys.argv[1])

from kraftlog.proto import records  # noqa: E402 - after the extension
from kraftlog.proto.errors import KraftlogError  # noqa: E402
from kraftlog.proto.records import arrow, backend, compression  # noqa: E402

assert backend.current is CODEC

LIMIT = 1 << 20


def exact(data: bytes) -> memoryview:
    """The bytes in a buffer without a byte to spare."""
    return memoryview((ctypes.c_char * max(len(data), 1)).from_buffer_copy(data or b"\0")).cast("B")[: len(data)]


def mutate(rng: random.Random, data: bytearray) -> bytearray:
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randrange(6):
            case 0 | 1 if data:
                data[at] = rng.choice((0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))
            case 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 3:
                del data[at : at + rng.randrange(1, 6)]
            case 4 if rng.randrange(4) == 0:
                del data[at:]
            case _ if data:
                data[at] ^= 1 << rng.randrange(8)
    return data


def seal(data: bytearray) -> bytearray:
    if len(data) >= 61:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, CODEC.crc32c(memoryview(data)[21:]))
    return data


def attempt(action: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return action(*arguments, **options)
    except KraftlogError:
        return None


def use(found: Any) -> None:
    """Touch everything that points into the buffer."""
    for record in found or ():
        _ = (record.key, record.value, record.headers, repr(record), hash(record))
        assert pickle.loads(pickle.dumps(record)) == record


def feed(data: bytes, rng: random.Random) -> None:
    buffer = exact(data)
    attempt(records.validate_batches, buffer, max_batch_bytes=LIMIT, max_decompressed_bytes=LIMIT)
    attempt(records.validate_batches, buffer, max_batch_bytes=LIMIT, allow_control=True, max_decompressed_bytes=LIMIT)
    use(attempt(records.decode_batch, buffer, max_decompressed_bytes=LIMIT))
    found = attempt(
        records.decode_records, buffer, min_offset=rng.randrange(3), check=False, max_decompressed_bytes=LIMIT
    )
    columns = list(arrow.COLUMN_TYPES)
    table = attempt(
        arrow.decode_arrow, [buffer], topic="t", partition=0, columns=columns, check=False, max_decompressed_bytes=LIMIT
    )
    del buffer
    use(found)
    if table is not None:
        table.validate(full=True)
        builders = attempt(arrow.encode_arrow, table.slice(rng.randrange(2)), timestamp_ms=0, max_batch_bytes=300)
        for builder in builders or ():
            use(records.decode_batch(exact(builder.build())))
    section = exact(data[61:])
    count, last = rng.randrange(-1, 5), rng.randrange(-1, 5)
    attempt(CODEC.validate_records, section, count, last, 0, False, False)
    attempt(CODEC.snappy_decompress, section, LIMIT)
    attempt(compression.decompress, rng.randrange(1, 5), section, LIMIT)
    plain = CODEC.snappy_decompress(exact(CODEC.snappy_compress(section)), len(section))
    assert plain == section
    CODEC.murmur2(section)
    CODEC.crc32c_by_tables(section)


def main(vectors: str, seed: int, rounds: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    seeds = [bytes.fromhex(vector["hex"]) for vector in json.loads(Path(vectors).read_text())["vectors"]]
    for codec in records.CompressionType:
        builder = records.BatchBuilder(compression_type=codec)
        for index in range(6):
            builder.append(
                1000 + index, b"k" * index, None if index == 3 else b"v" * 40 * index, [("h", b"x")] * (index % 3)
            )
        seeds += [builder.build()] * 20  # as often as all vectors of a kind
    for seed_bytes in seeds:
        feed(seed_bytes, rng)
    for _ in range(rounds):
        mutant = mutate(rng, bytearray(rng.choice(seeds)))
        data = bytes(seal(mutant) if rng.randrange(3) else mutant)
        feed(rng.choice(seeds) + data if rng.randrange(4) == 0 else data, rng)
    print(f"{len(seeds) + rounds} inputs")


main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
