"""The five codecs: framing, several frames, damage, and bounds on what comes out."""

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

from kraftlog.proto.errors import InvalidRecordError, UnsupportedCompressionTypeError
from kraftlog.proto.records import CompressionType, _snappy, compression
from kraftlog.proto.varint import encode_unsigned

COMPRESSED = [codec for codec in CompressionType if codec]
SEED = 20

ORACLES: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.GZIP: gzip.decompress,
    CompressionType.LZ4: lambda data: bytes(cramjam.lz4.decompress(data)),
    CompressionType.ZSTD: lambda data: bytes(cramjam.zstd.decompress(data)),
}


def samples() -> dict[str, bytes]:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    words = [rng.randbytes(rng.randrange(1, 12)) for _ in range(50)]
    return {
        "empty": b"",
        "byte": b"x",
        "zeros": bytes(200_000),
        "text": b" ".join(rng.choice(words) for _ in range(30_000)),
        "random": rng.randbytes(150_000),
        "short": b"abcabcabcabcabcabc",
    }


SAMPLES = samples()


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_round_trip(codec: CompressionType, name: str, twin: Any) -> None:
    plain = SAMPLES[name]
    packed = compression.compress(codec, plain)
    assert bytes(compression.decompress(codec, packed)) == plain
    assert bytes(compression.decompress(codec, memoryview(packed), len(plain))) == plain
    if plain:
        with pytest.raises(InvalidRecordError, match="limit"):
            compression.decompress(codec, packed, len(plain) - 1)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("codec", [codec for codec in COMPRESSED if codec in ORACLES])
def test_an_independent_decoder_reads_it(codec: CompressionType, name: str) -> None:
    assert ORACLES[codec](compression.compress(codec, SAMPLES[name])) == SAMPLES[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_snappy_blocks_equal_the_independent_codec(name: str, twin: Any) -> None:
    """What we compress others read, what others compress we read; xerial's frame is blocks with their sizes."""
    plain = SAMPLES[name]
    block = twin.codec.snappy_compress(plain)
    assert bytes(cramjam.snappy.decompress_raw(block)) == plain
    assert twin.codec.snappy_decompress(bytes(cramjam.snappy.compress_raw(plain)), len(plain)) == plain
    framed = compression.compress(CompressionType.SNAPPY, plain)
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    unframed, position = b"", 16
    while position < len(framed):
        (size,) = struct.unpack_from(">i", framed, position)
        unframed += bytes(cramjam.snappy.decompress_raw(framed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert unframed == plain


def test_snappy_without_a_frame_is_read(twin: Any) -> None:
    """librdkafka and Go clients write raw blocks."""
    assert bytes(compression.decompress(2, bytes(cramjam.snappy.compress_raw(SAMPLES["text"])))) == SAMPLES["text"]


def test_repetitive_text_becomes_small(twin: Any) -> None:
    for codec in COMPRESSED:
        assert len(compression.compress(codec, SAMPLES["text"])) < len(SAMPLES["text"]) / 1.5
        assert len(compression.compress(codec, SAMPLES["zeros"])) < 11_000


def test_kafka_lz4_flags() -> None:
    """Version 1, independent 64 KiB blocks, no checksums, no size: what Kafka's own reader takes."""
    frame = compression.compress(CompressionType.LZ4, b"x" * 1000)
    assert frame[:6] == b"\x04\x22\x4d\x18\x60\x40"


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_levels_are_the_codecs_own(codec: CompressionType) -> None:
    fast, best = (compression.compress(codec, SAMPLES["text"], level) for level in (1, 9))
    assert len(best) < len(fast)
    assert bytes(compression.decompress(codec, best)) == SAMPLES["text"]


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_several_frames_are_read_to_the_end(codec: CompressionType, twin: Any) -> None:
    """A reader that stops after the first frame loses records."""
    parts = [SAMPLES["text"], b"", SAMPLES["short"], SAMPLES["random"]]
    packed = b"".join(compression.compress(codec, part) for part in parts)
    assert bytes(compression.decompress(codec, packed)) == b"".join(parts)
    total = sum(map(len, parts))
    assert len(compression.decompress(codec, packed, total)) == total
    with pytest.raises(InvalidRecordError, match="limit"):
        compression.decompress(codec, packed, total - 1)


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_endless_frames_are_refused(codec: CompressionType) -> None:
    """Each frame costs a decoder's setup: a batch full of empty ones would hold a thread for seconds."""
    empty = compression.compress(codec, b"")
    assert compression.decompress(codec, empty * compression.MAX_FRAMES) == b""
    with pytest.raises(InvalidRecordError, match="more than 1024"):
        compression.decompress(codec, empty * (compression.MAX_FRAMES + 1))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_cut_data_is_invalid(codec: CompressionType, twin: Any) -> None:
    """Every proper prefix: no codec may take a cut section for a whole one."""
    packed = compression.compress(codec, SAMPLES["short"] * 3)
    for kept in range(len(packed)):
        if codec is CompressionType.SNAPPY and kept == 16:
            continue  # a frame without blocks is a whole, empty frame
        with pytest.raises(InvalidRecordError):
            compression.decompress(codec, packed[:kept])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_garbage_after_the_data_is_invalid(codec: CompressionType, twin: Any) -> None:
    packed = compression.compress(codec, SAMPLES["short"])
    for tail in (b"\0", b"garbage", packed[:3]):
        with pytest.raises(InvalidRecordError):
            compression.decompress(codec, packed + tail)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_mutated_data_gives_bytes_or_invalid_record(codec: CompressionType, twin: Any) -> None:
    """Nothing but `InvalidRecordError` leaves a decoder, whatever the bytes."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    packed = compression.compress(codec, SAMPLES["text"][:2000])
    for _ in range(300):
        mutant = bytearray(packed)
        for _ in range(rng.randrange(1, 4)):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        try:
            compression.decompress(codec, mutant, 1 << 20)
        except InvalidRecordError:
            continue


def zstd_with_size(claim: int) -> bytes:
    """A zstd frame header that claims `claim` bytes, and one tiny raw block."""
    return b"\x28\xb5\x2f\xfd\xe0" + claim.to_bytes(8, "little") + (1 | 1 << 3).to_bytes(3, "little") + b"x"


BOMBS = {
    "gzip": (CompressionType.GZIP, gzip.compress(bytes(64 << 20), 9)),
    "gzip members": (CompressionType.GZIP, gzip.compress(bytes(1 << 20), 9) * 64),
    "lz4": (CompressionType.LZ4, lz4.frame.compress(bytes(64 << 20), store_size=False)),
    "lz4 with size": (CompressionType.LZ4, lz4.frame.compress(bytes(64 << 20), store_size=True)),
    "zstd": (CompressionType.ZSTD, zstandard.ZstdCompressor().compress(bytes(64 << 20))),
    "zstd without size": (
        CompressionType.ZSTD,
        zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 << 20)),
    ),
    "zstd claim of 8 GiB": (CompressionType.ZSTD, zstd_with_size(8 << 30)),
    "zstd claim of 1 MiB": (CompressionType.ZSTD, zstd_with_size(1 << 20)),
    "snappy": (CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))),
    "snappy claim of 4 GiB": (CompressionType.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00x"),
    "snappy claim of 1 MiB": (CompressionType.SNAPPY, b"\x80\x80\x40" + b"\x00x"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_within_bounded_memory(name: str, twin: Any) -> None:
    """At most the limit and a few steps of output exist at any moment; a claimed size alone allocates nothing big."""
    codec, bomb = BOMBS[name]
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError):
            compression.decompress(codec, bomb, limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@pytest.mark.parametrize(
    ("codec", "block", "reason"),
    [
        (CompressionType.ZSTD, zstd_with_size(32 << 20), "its blocks give at most 1"),
        (CompressionType.SNAPPY, encode_unsigned(32 << 20) + b"\x00x", "claims 33554432 bytes from 6"),
    ],
)
def test_claim_beyond_what_the_input_can_hold_allocates_nothing(
    codec: CompressionType, block: bytes, reason: str, twin: Any
) -> None:
    """A tiny block that claims just less than the limit is refused before there is a buffer of that size."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecordError, match=reason):
            compression.decompress(codec, block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_unknown_codec_is_unsupported() -> None:
    for codec in (5, 7, 99):
        with pytest.raises(UnsupportedCompressionTypeError):
            compression.decompress(codec, b"")
        with pytest.raises(UnsupportedCompressionTypeError):
            compression.compress(codec, b"")


def test_no_codec_is_no_copy() -> None:
    section = memoryview(b"section")
    assert compression.decompress(0, section) is section


def test_gzip_with_a_wrong_checksum_is_invalid() -> None:
    packed = bytearray(compression.compress(CompressionType.GZIP, b"data"))
    packed[-8] ^= 1
    with pytest.raises(InvalidRecordError):
        compression.decompress(CompressionType.GZIP, packed)
    with pytest.raises(InvalidRecordError):
        compression.decompress(CompressionType.GZIP, zlib.compress(b"zlib is not gzip"))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\x1f\x00x",  # a size of more than 32 bits
        b"\x02\x00x",  # one byte of two
        b"\x01\x04xy",  # two bytes of one
        b"\x05\x00x\x01\x02",  # copy from before the start
        b"\x05\x00x\x01\x00",  # copy of offset 0
        b"\x05\x00x\x0d",  # copy without its offset
        b"\x05\x00x\x0e\x01",  # 16-bit offset cut
        b"\x05\x00x\x0f\x01\x00\x00",  # 32-bit offset cut
        b"\x03\x00x\x05\x01",  # copy past the claimed size
        b"\x02\xf0",  # literal length cut
        b"\x02\xfc\xff\xff\xff\xff",  # literal of 4 GiB
    ],
)
def test_bad_snappy_block_is_invalid(block: bytes, twin: Any) -> None:
    with pytest.raises(InvalidRecordError):
        twin.codec.snappy_decompress(block, 1000)


@pytest.mark.parametrize(
    ("block", "plain"),
    [
        (b"\x00", b""),
        (b"\x05\x00x\x01\x01", b"xxxxx"),  # 11-bit offset, overlapping
        (b"\x08\x0cabcd\x0e\x04\x00", b"abcdabcd"),  # 16-bit offset
        (b"\x08\x0cabcd\x0f\x04\x00\x00\x00", b"abcdabcd"),  # 32-bit offset
        (b"\x03\xf0\x02abc", b"abc"),  # literal length in one byte
        (b"\x03\xfc\x02\x00\x00\x00abc", b"abc"),  # in four
    ],
)
def test_snappy_elements(block: bytes, plain: bytes, twin: Any) -> None:
    """Each kind of element, also those that our compressor does not write."""
    assert twin.codec.snappy_decompress(block, 1000) == plain


def test_fallback_compressor_is_used_without_the_c_twin() -> None:
    assert _snappy.decompress(_snappy.compress(SAMPLES["text"]), 1 << 20) == SAMPLES["text"]
