"""The C twin and the Python reference are one codec: the same bytes out, the same values in, and the same class of
error on hostile bytes. The reference is the model; everything here runs each input through both.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kraftlog.proto import records
from kraftlog.proto.errors import InvalidRecordError, KraftlogError
from kraftlog.proto.records import CompressionType, arrow, backend, compaction, compression
from kraftlog.proto.records.builder import PythonBatchBuilder, _Batching
from tests.property import strategies
from tests.property.strategies import Append, Section

try:
    C = backend.load("c")
except ImportError:
    pytest.skip("the C twin is not built", allow_module_level=True)
PYTHON = backend.load("python")
COLLECTED_OFFSETS = 4  # from the base offset on; a section may reach further
FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "serialized_key_size",
    "serialized_value_size",
)


class CBatchBuilder(_Batching, C.RecordAppender):  # type: ignore[misc, name-defined] # the base is chosen at run time
    """The C twin's builder, whichever twin is active."""


def outcome(action: Callable[[], Any]) -> Any:
    """What an action returned, or the class of the error that it raised on purpose."""
    try:
        return action()
    except KraftlogError as error:
        return type(error)


def on_both(action: Callable[[], Any]) -> Any:
    """Run with each twin active, assert that the outcomes are equal, return them."""
    active = backend.current
    outcomes = []
    try:
        for codec in (PYTHON, C):
            backend.current = codec
            outcomes.append(outcome(action))
    finally:
        backend.current = active
    assert outcomes[1] == outcomes[0]
    return outcomes[0]


def contents(found: list[records.Record]) -> list[tuple[Any, ...]]:
    return [(*(getattr(record, name) for name in FIELDS), repr(record), hash(record)) for record in found]


@given(strategies.append_lists, strategies.codecs)
def test_builders_make_the_same_bytes_and_readers_get_them_back(appends: list[Append], codec: CompressionType) -> None:
    """Good input: append, build, validate and decode are inverse, on either twin's bytes."""
    builders = [PythonBatchBuilder(compression_type=codec), CBatchBuilder(compression_type=codec)]
    for record in appends:
        sizes = [builder.append(*record.arguments) for builder in builders]
        assert sizes[0] == sizes[1]
    batches = [builder.build(base_offset=7, leader_epoch=3) for builder in builders]
    assert batches[0] == batches[1] or codec is CompressionType.SNAPPY  # compressors may differ, what they say not
    for batch in batches:
        decoded = on_both(lambda batch=batch: contents(records.decode_batch(batch, topic="t", partition=1)))
        assert [(it[3], it[5], it[6], it[7]) for it in decoded] == [
            (record.timestamp_ms, record.key, record.value, record.headers) for record in appends
        ]
        assert on_both(lambda batch=batch: records.validate_batches(batch, max_batch_bytes=1 << 24))


@given(strategies.hostile_logs, st.integers(0, 3), st.booleans(), st.booleans())
def test_hostile_batches_have_the_same_fate(data: bytes, min_offset: int, full: bool, inside: bool) -> None:
    """Damaged batches: the same values or the same class of error from every reader."""
    limit = 1 << 20

    def validated() -> Any:
        return records.validate_batches(
            data, max_batch_bytes=limit, full=full, allow_control=inside, max_decompressed_bytes=limit
        )

    on_both(validated)
    on_both(lambda: list(records.iter_headers(data)))
    on_both(lambda: contents(records.decode_batch(data, topic="t", partition=1, max_decompressed_bytes=limit)))
    on_both(lambda: contents(records.decode_records(data, min_offset=min_offset, check=full)))

    def columns() -> pa.RecordBatch:
        names = list(arrow.COLUMN_TYPES)
        found = arrow.decode_arrow([data], topic="t", partition=1, min_offset=min_offset, check=full, columns=names)
        found.validate(full=True)
        return found

    on_both(columns)


@example(Section(b"\x0c\x00\x00\x08\x00\x00\x00", 1, (1 << 31) - 1, 0, 0), False, False, None, 0)
@given(strategies.hostile_sections(), st.booleans(), st.booleans(), st.sampled_from([None, 5]), st.integers(0, 3))
def test_hostile_sections_have_the_same_fate(
    section: Section, is_consecutive: bool, require_keys: bool, append_time: int | None, skipped: int
) -> None:
    """Sections near the format, without a header in front: what validation takes, decoding takes."""
    data = memoryview(section.data)
    count, last, offset, stamp = (
        section.record_count,
        section.last_offset_delta,
        section.base_offset,
        section.base_timestamp,
    )
    largest = on_both(lambda: backend.current.validate_records(data, count, last, stamp, is_consecutive, require_keys))
    decoded = on_both(
        lambda: contents(
            list(
                backend.current.decode_records(
                    data, count, last, offset, stamp, append_time, offset + skipped, "t", 1, 0, 2
                )
            )
        )
    )
    collected = on_both(lambda: collect(section, append_time, skipped))
    assert isinstance(decoded, type) == isinstance(collected, type)
    if not isinstance(largest, type):
        assert not isinstance(decoded, type)
    if not isinstance(decoded, type):
        assert collected["count"] == sum(record[2] < offset + COLLECTED_OFFSETS for record in decoded)


def collect(section: Section, append_time: int | None, skipped: int) -> dict[str, Any]:
    """The buffers of `ArrowColumns` as plain bytes."""
    columns = backend.current.ArrowColumns(True, True, True, True, True, True)
    columns.add(
        section.data,
        section.record_count,
        section.last_offset_delta,
        section.base_offset,
        section.base_timestamp,
        append_time,
        section.base_offset + skipped,
        section.base_offset + COLLECTED_OFFSETS,
        1,
    )
    return {name: plain(part) for name, part in columns.finish().items()}


def plain(part: Any) -> Any:
    if isinstance(part, tuple):
        return tuple(map(plain, part))
    return part if part is None or isinstance(part, int) else bytes(part)


@given(st.lists(strategies.appends, max_size=12), st.integers(200, 20_000))
def test_rows_of_arrow_columns_become_the_batches_of_append(appends: list[Append], max_batch_bytes: int) -> None:
    """encode_arrow equals appending row by row, on both twins, with the same cuts between batches."""
    table = pa.table(
        {
            "key": pa.array([it.key for it in appends], pa.binary()),
            "value": pa.array([it.value for it in appends], pa.binary()),
            "timestamp": pa.array([it.timestamp_ms for it in appends], pa.int64()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in it.headers] for it in appends],
                pa.list_(arrow.HEADER_TYPE),
            ),
        }
    )

    def encoded() -> list[bytes]:
        arrow.BatchBuilder = CBatchBuilder if backend.current is C else PythonBatchBuilder  # type: ignore[misc]
        try:
            builders = arrow.encode_arrow(table, timestamp_ms=0, max_batch_bytes=max_batch_bytes)
        finally:
            arrow.BatchBuilder = records.BatchBuilder  # type: ignore[misc]
        return [builder.build() for builder in builders]

    batches = on_both(encoded)
    if isinstance(batches, type):
        assert any(len(strategies.build([record])) > max_batch_bytes for record in appends)
        return
    decoded = [record for batch in batches for record in records.decode_records(batch)]
    assert [(it.timestamp, it.key, it.value, it.headers) for it in decoded] == [it.arguments for it in appends]
    assert all(len(batch) <= max_batch_bytes for batch in batches)


@given(st.binary(max_size=300) | strategies.blobs, st.integers(0, (1 << 32) - 1))
def test_checksums_and_hashes_are_equal(data: bytes, value: int) -> None:
    assert C.crc32c(data, value) == PYTHON.crc32c(data, value)
    assert C.crc32c(data) == C.crc32c_by_tables(data)  # type: ignore[attr-defined] # only for this test
    assert C.murmur2(data) == PYTHON.murmur2(data)
    assert C.crc32c(data * 200) == PYTHON.crc32c(data * 200)


@given(strategies.blobs | st.binary(max_size=40).map(lambda unit: unit * 50))
def test_each_twin_reads_the_snappy_of_the_other(data: bytes) -> None:
    for writer, reader in ((PYTHON, C), (C, PYTHON), (C, C)):
        assert reader.snappy_decompress(writer.snappy_compress(data), len(data)) == data


@given(strategies.mutants(st.builds(PYTHON.snappy_compress, strategies.blobs)), st.integers(0, 20_000))
def test_hostile_snappy_has_the_same_fate(block: bytes, limit: int) -> None:
    fate = on_both(lambda: backend.current.snappy_decompress(block, limit))
    assert isinstance(fate, bytes) or fate is InvalidRecordError


@given(strategies.codecs, st.data())
def test_hostile_compression_gives_bytes_or_invalid_record(codec: CompressionType, data: st.DataObject) -> None:
    """Nothing else leaves a decoder, and never more than the limit."""
    packed = strategies.blobs.map(lambda plain: compression.compress(codec, plain) if codec else plain)
    mutant = data.draw(strategies.mutants(packed))
    fate = on_both(lambda: bytes(compression.decompress(codec, mutant, 10_000)))
    assert codec is CompressionType.NONE or fate is InvalidRecordError or len(fate) <= 10_000


SIP_KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_the_keyed_hash_is_siphash(size: int, digest: str) -> None:
    """The vectors of its authors' reference implementation: SipHash-2-4-128, key 00..0f, input 00..."""
    for codec in (PYTHON, C):
        assert codec.sip_hash(SIP_KEY, bytes(range(size))).hex() == digest


@given(st.binary(min_size=16, max_size=16), strategies.blobs)
def test_the_keyed_hashes_are_equal(key: bytes, data: bytes) -> None:
    assert C.sip_hash(key, data) == PYTHON.sip_hash(key, data)


@given(
    strategies.hostile_sections(),
    st.integers(0, 3),
    st.integers(1, 12),
    st.integers(0, 4),
    st.booleans(),
    st.none() | st.sampled_from([0, 7_000, 1_700_000_050_000, (1 << 63) - 1]),
    st.booleans(),
)
def test_compaction_of_hostile_sections_has_the_same_fate(
    section: Section, skipped: int, slots: int, mapped: int, drop: bool, horizon: int | None, force: bool
) -> None:
    """The offset map's bytes, where it is full, what stays of the section and under which timestamps."""
    data = memoryview(section.data)
    count, last, offset = section.record_count, section.last_offset_delta, section.base_offset
    tables: list[bytearray] = []

    def added() -> tuple[int, int]:
        tables.append(bytearray(24 * slots))
        return backend.current.add_keys(
            tables[-1], SIP_KEY, data, count, last, offset, offset + skipped, 0, max(1, slots - 1)
        )

    fate = on_both(added)
    if isinstance(fate, tuple):
        assert tables[0] == tables[1]
        assert 0 <= fate[0] <= max(1, slots - 1)
    on_both(
        lambda: backend.current.filter_records(
            tables[0], SIP_KEY, data, count, last, offset, section.base_timestamp, offset + mapped, drop, horizon, force
        )
    )


_few_keys = st.sampled_from([None, b"", b"a", b"b", b"c", b"long" * 50])


@given(
    st.lists(st.lists(st.tuples(_few_keys, strategies.nullable_blobs), min_size=1, max_size=6), min_size=1, max_size=5),
    strategies.codecs,
    st.integers(1, 6),
    st.booleans(),
)
def test_compaction_leaves_the_latest_record_of_each_key(
    contents_of: list[list[tuple[bytes | None, bytes | None]]], codec: CompressionType, max_keys: int, is_late: bool
) -> None:
    """Against a dict: latest below the map's end and all from there on; tombstones go when their horizon has passed."""
    batches, offset = [], 5
    for number, pairs in enumerate(contents_of):
        builder = PythonBatchBuilder(compression_type=codec)
        for place, (key, value) in enumerate(pairs):
            builder.append(1000 + 10 * number + place, key, value, [("h", b"x")] if place % 2 else ())
        batches.append(builder.build(base_offset=offset, producer_id=7, producer_epoch=1, base_sequence=3 * number))
        offset += len(pairs)
    everything = [record for batch in batches for record in records.decode_records(batch)]

    def cleaned() -> Any:
        offset_map = compaction.OffsetMap(24 * max_keys, SIP_KEY)
        for batch in batches:
            if not offset_map.add(batch, records.read_header(batch), 0):
                break
        rounds = []
        now, found = 5000, batches
        for _ in range(2):
            outcomes = [
                compaction.clean_batch(
                    batch, records.read_header(batch), offset_map, now_ms=now, delete_retention_ms=100
                )
                for batch in found
            ]
            found = [bytes(outcome.data) for outcome in outcomes if outcome is not None]
            rounds.append(([contents(records.decode_records(batch)) for batch in found], found))
            now += 100 if is_late else 99
        # compressors may differ between the twins' snappy; what they say may not
        return (
            offset_map.end_offset,
            [said for said, _ in rounds],
            [
                [
                    (
                        h.base_offset,
                        h.last_offset_delta,
                        h.base_sequence,
                        h.base_timestamp,
                        h.max_timestamp,
                        h.record_count,
                    )
                ]
                for _, batches_of in rounds
                for h in map(records.read_header, batches_of)
            ],
        )

    end_offset, (first, second), _ = on_both(cleaned)
    latest: dict[bytes | None, int] = {
        it.key: it.offset for it in everything if it.key is not None and it.offset < end_offset
    }
    whole = {
        it.offset
        for batch in batches
        for it in records.decode_records(batch)
        if records.read_header(batch).next_offset <= end_offset
    }
    expected = [it for it in everything if it.offset >= end_offset or latest.get(it.key) == it.offset]
    assert [row[2:8] for rows in first for row in rows] == [
        (it.offset, it.timestamp, it.timestamp_type, it.key, it.value, it.headers) for it in expected
    ]
    later = [it for it in expected if not (is_late and it.value is None and it.offset in whole)]
    assert [row[2] for rows in second for row in rows] == [it.offset for it in later]


@given(st.lists(_few_keys, min_size=15, max_size=60), st.integers(1, 8), st.integers(0, 60), st.integers(0, 60))
def test_compaction_of_long_sections_is_equal(
    keys: list[bytes | None], max_keys: int, skipped: int, mapped: int
) -> None:
    """The C twin looks some records ahead of the one whose turn it is."""
    builder = PythonBatchBuilder()
    for number, key in enumerate(keys):
        builder.append(1000 + number, key, None if number % 7 == 6 else b"v" * number)
    data = memoryview(builder.build())[records.HEADER_BYTES :]
    count, last = len(keys), len(keys) - 1
    tables: list[bytearray] = []

    def compacted() -> Any:
        tables.append(bytearray(24 * 10))
        added = backend.current.add_keys(tables[-1], SIP_KEY, data, count, last, 5, 5 + skipped, 0, max_keys)
        left = backend.current.filter_records(
            tables[-1], SIP_KEY, data, count, last, 5, 1000, 5 + mapped, True, None, False
        )
        return added, left, bytes(tables[-1])

    assert not isinstance(on_both(compacted), type)
