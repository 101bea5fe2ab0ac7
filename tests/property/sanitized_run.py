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
    """The bytes in memory of their own, without a byte to spare behind them."""
    front = bytes(64)  # ctypes keeps what is very small inside of its object, where no overrun is seen
    return memoryview((ctypes.c_char * (len(data) + 64)).from_buffer_copy(front + data)).cast("B")[64:]


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
    compact(section, (count, last), rng)
    if len(data) >= 61:
        last, count = (int.from_bytes(data[at : at + 4], "big", signed=True) for at in (23, 57))
        compact(section, (count, last), rng)
        compact(exact(data[61 : rng.randrange(61, len(data) + 1)]), (count, last), rng)
    compact_with_wrong_sizes(section, rng)
    attempt(CODEC.snappy_decompress, section, LIMIT)
    attempt(compression.decompress, rng.randrange(1, 5), section, LIMIT)
    plain = CODEC.snappy_decompress(exact(CODEC.snappy_compress(section)), len(section))
    assert plain == section
    CODEC.murmur2(section)
    CODEC.crc32c_by_tables(section)


def compact(section: memoryview, claims: tuple[int, int], rng: random.Random) -> None:
    """Add the section's keys to tables of all sizes, also full and strange ones, and filter it under them."""
    table = rng.choice((b"", bytes(24), bytes(24 * rng.randrange(2, 12)), rng.randbytes(24 * rng.randrange(1, 6))))
    slots, sip_key = exact(table), exact(rng.randbytes(16))
    count, last = claims
    used, most = rng.choice(((0, len(table) // 24), (0, 1), (0, 0), (0, 1 << 40), (3, 2), (-1, -1)))
    offset = rng.choice((0, 5, (1 << 31) - 1, (1 << 63) - (1 << 31), (1 << 63) - 1, -1))
    added = attempt(CODEC.add_keys, slots, sip_key, section, count, last, offset, rng.choice((0, 5, 7)), used, most)
    assert added is None or added[1] == -1 or 0 <= added[1] <= last
    if added and added[1] < 0 and rng.randrange(2):
        offset -= rng.randrange(2)  # as if the keys had come again later: records are dropped
    extremes = (0, 1_700_000_000_000, -(1 << 63), (1 << 63) - 1)
    filtered = attempt(
        CODEC.filter_records,
        slots,
        sip_key,
        section,
        count,
        last,
        offset,
        rng.choice(extremes),
        rng.choice((0, 5, 8, (1 << 63) - 1)),
        rng.randrange(2),
        rng.choice((None, *extremes)),
        rng.randrange(2),
    )
    if filtered is not None:
        kept, _, _, left = filtered
        assert 0 <= kept <= count
        if kept and left is not None:  # what is left is a section again
            again = CODEC.filter_records(slots, sip_key, exact(left), kept, last, 0, 0, 0, False, None, False)
            assert again[0] == kept
            assert again[3] is None


def compact_with_wrong_sizes(section: memoryview, rng: random.Random) -> None:
    """A table of no whole slots or a key of another size is refused before a byte of it is read."""
    table, sip_key = rng.choice(((1, 16), (23, 16), (25, 16), (24, 0), (24, 15), (24, 17)))
    for arguments in ((CODEC.add_keys, 0, 0, 1), (CODEC.filter_records, 0, 0, False, None, False)):
        action, *more = arguments
        try:
            action(exact(bytes(table)), exact(bytes(sip_key)), section, 1, 0, 0, *more)
        except ValueError:
            continue
        raise AssertionError(f"{action}: table of {table} bytes, key of {sip_key}")


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
    large = records.BatchBuilder()
    for index in range(8):  # of the last keys only one stays: what is before is copied at once
        large.append(1000 + index, b"k%d" % min(index, 5), None if index == 1 else b"v" * 9000)
    seeds += [large.build()] * 20
    for seed_bytes in seeds:
        feed(seed_bytes, rng)
    for _ in range(rounds):
        mutant = mutate(rng, bytearray(rng.choice(seeds)))
        data = bytes(seal(mutant) if rng.randrange(3) else mutant)
        feed(rng.choice(seeds) + data if rng.randrange(4) == 0 else data, rng)
    print(f"{len(seeds) + rounds} inputs")


main(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
