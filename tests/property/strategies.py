"""Hypothesis strategies that several property tests share: records, batches, hostile bytes, hot-path messages.

How many examples a test draws is the profile's business (tests/conftest.py; KRAFTLOG_EXAMPLES).
"""

import struct
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from kraftlog.proto import hotpath
from kraftlog.proto.records import CompressionType, backend
from kraftlog.proto.records.builder import PythonBatchBuilder
from kraftlog.proto.varint import encode_zigzag

MAX_TIMESTAMP = (1 << 63) - 2

# Sizes around the borders of varints and of snappy's literals, and now and then something big.
blobs: SearchStrategy[bytes] = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([59, 60, 61, 63, 64, 127, 128, 255, 256, 257, 8191, 8192]).flatmap(
        lambda size: st.binary(min_size=1, max_size=4).map(lambda unit: (unit * size)[:size])
    ),
)
nullable_blobs: SearchStrategy[bytes | None] = st.none() | blobs
header_lists: SearchStrategy[list[tuple[str, bytes | None]]] = st.lists(
    st.tuples(st.text(max_size=10), nullable_blobs), max_size=4
)
timestamps: SearchStrategy[int] = st.one_of(
    st.just(-1),
    st.integers(0, 5000),
    st.integers(1_700_000_000_000, 1_700_000_100_000),
    st.sampled_from([0, (1 << 62), MAX_TIMESTAMP]),
)
codecs = st.sampled_from(CompressionType)


@dataclass(frozen=True)
class Append:
    """The arguments of one `BatchBuilder.append`."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.timestamp_ms, self.key, self.value, self.headers


appends: SearchStrategy[Append] = st.builds(
    Append, timestamps, nullable_blobs, nullable_blobs, st.just(()) | header_lists.map(tuple)
)
append_lists: SearchStrategy[list[Append]] = st.lists(appends, min_size=1, max_size=8)


def build(records: list[Append], codec: CompressionType = CompressionType.NONE, **options: Any) -> bytes:
    """A batch made by the reference."""
    builder = PythonBatchBuilder(compression_type=codec)
    for record in records:
        builder.append(*record.arguments)
    return builder.build(**options)


batches: SearchStrategy[bytes] = st.builds(
    build,
    append_lists,
    codecs,
    base_offset=st.integers(0, 1 << 40),
    leader_epoch=st.integers(-1, 1000),
    producer_id=st.sampled_from([-1, 0, 77]),
    base_sequence=st.sampled_from([-1, 0, (1 << 31) - 1]),
)


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with its length and CRC made right, so that damage elsewhere is reached."""
    out = bytearray(batch)
    if len(out) >= 61:
        struct.pack_into(">i", out, 8, len(out) - 12)
        struct.pack_into(">I", out, 17, backend.current.crc32c(memoryview(out)[21:]))
    return bytes(out)


@st.composite
def mutants(draw: st.DrawFn, original: SearchStrategy[bytes]) -> bytes:
    """Bytes with a few bytes changed, put in, cut out or doubled."""
    data = bytearray(draw(original))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 5)):
            case 0 if data:
                data[at] = draw(st.integers(0, 255))
            case 1 if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 2:
                data[at:at] = draw(st.binary(min_size=1, max_size=6))
            case 3:
                del data[at : at + draw(st.integers(1, 8))]
            case 4:
                del data[at:]
            case _:
                data[at:at] = data[at : at + draw(st.integers(1, 16))]
    return bytes(data)


hostile_batches: SearchStrategy[bytes] = st.one_of(
    mutants(batches), mutants(batches).map(sealed), st.binary(max_size=200)
)
"""Batches with damage; half of them under a valid length and CRC."""

hostile_logs: SearchStrategy[bytes] = st.lists(batches | hostile_batches, min_size=1, max_size=3).map(b"".join)
"""Good and damaged batches one after the other."""

# Encodings at the borders of what a varint field may hold, right and wrong.
_lengths = st.one_of(
    st.integers(-3, 10).map(encode_zigzag),
    st.sampled_from(
        [
            b"",
            b"\x80",
            b"\x81\x80\x80\x80\x00",
            b"\x80\x80\x80\x80\x10",
            b"\x80\x80\x80\x80\x80\x00",
            b"\xfe\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\x0f",
            b"\x80" * 9 + b"\x01",
            b"\x80" * 9 + b"\x02",
        ]
    ),
)


@st.composite
def _odd_records(draw: st.DrawFn) -> bytes:
    """One record whose parts are each mostly right; its own length mostly fits."""
    body = bytearray(b"\0")
    body += draw(st.one_of(st.integers(0, 3).map(encode_zigzag), _lengths))
    body += draw(st.one_of(st.integers(0, 3).map(encode_zigzag), _lengths))
    for _ in range(2):
        blob = draw(st.binary(max_size=5))
        body += draw(st.one_of(st.just(encode_zigzag(len(blob))), _lengths)) + blob
    headers = draw(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=2))
    body += draw(st.one_of(st.just(encode_zigzag(len(headers))), _lengths))
    for key, value in headers:
        body += encode_zigzag(len(key)) + key + draw(st.one_of(st.just(encode_zigzag(len(value))), _lengths)) + value
    return draw(st.one_of(st.just(encode_zigzag(len(body))), _lengths)) + bytes(body)


@dataclass(frozen=True)
class Section:
    """The arguments of a twin's `validate_records` and `decode_records` that describe a section."""

    data: bytes
    record_count: int
    last_offset_delta: int
    base_offset: int
    base_timestamp: int


@st.composite
def hostile_sections(draw: st.DrawFn) -> Section:
    """Record sections near the format, with counts near the truth."""
    parts = draw(st.lists(_odd_records(), max_size=4))
    data = b"".join(parts) + draw(st.sampled_from([b"", b"", b"", b"\0"]))
    count = draw(st.one_of(st.just(len(parts)), st.integers(-2, 6), st.sampled_from([(1 << 31) - 1, -(1 << 31)])))
    last = draw(st.one_of(st.just(max(count, -1) - 1), st.integers(-2, 6), st.just((1 << 31) - 1)))
    return Section(
        data,
        count,
        last,
        draw(st.sampled_from([0, 5, (1 << 63) - (1 << 31)])),
        draw(st.sampled_from([0, -1, 1000, (1 << 63) - 1, -(1 << 63)])),
    )


uint32 = st.integers(0, (1 << 32) - 1) | st.integers(0, 300)
uint64 = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
int32 = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 300)
int64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 300)
texts = st.text(max_size=8)
record_bytes = st.binary(max_size=20) | st.integers(4000, 5000).map(bytes)

topic_partitions = st.builds(hotpath.TopicPartition, texts, int32)
fetch_positions = st.builds(hotpath.FetchPosition, texts, int32, int64, uint32, uint32, int32, int32, int64)
fetch_requests = st.builds(
    hotpath.FetchRequest, uint32, uint32, uint32, st.integers(0, 1), st.lists(fetch_positions, max_size=3)
)
partition_chunks = st.builds(
    hotpath.PartitionChunk,
    texts,
    int32,
    uint32,
    int32,
    texts,
    int64,
    int64,
    int64,
    st.lists(st.builds(hotpath.AbortedTransaction, int64, int64), max_size=3),
    record_bytes,
    int32,
    int64,
    int64,
)
hotpath_messages: SearchStrategy[Any] = st.one_of(
    st.builds(
        hotpath.ProduceRequest,
        uint64,
        int32,
        uint32,
        st.lists(st.builds(hotpath.PartitionRecords, texts, int32, record_bytes), max_size=3),
        texts,
    ),
    st.builds(
        hotpath.ProduceResponse,
        uint64,
        st.lists(st.builds(hotpath.ProduceResult, texts, int32, int32, texts, int64, int64, int64, texts), max_size=3),
        int32,
        uint64,
    ),
    fetch_requests,
    st.builds(
        hotpath.FetchControl,
        st.none() | fetch_requests,
        st.lists(fetch_positions, max_size=3),
        st.lists(topic_partitions, max_size=3),
        uint64,
    ),
    st.builds(hotpath.FetchChunk, st.lists(partition_chunks, max_size=3)),
)
"""Every message that has a decoder of its own."""
