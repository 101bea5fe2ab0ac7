"""The five codecs of a record section, with Kafka's framing and a bound on what comes out.

gzip    one or more members (RFC 1952)
snappy  raw, or xerial's framing as Kafka's Java client writes it: 16 bytes of header, then per block its compressed
        size (4 bytes, big-endian) and a raw block of at most 32 KiB
lz4     frames with independent 64 KiB blocks, as Kafka writes them; any frame is read
zstd    one or more frames

Whoever sends a batch chooses its bytes: decompression gives at most `limit` bytes, allocates in proportion to what has
really come out or what the input can hold, never by a claimed size alone, and reads at most `MAX_FRAMES` members or
frames. Whatever is wrong is an `InvalidRecordError`.
"""

import threading
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame
import zstandard

from kraftlog.proto.errors import InvalidRecordError, UnsupportedCompressionTypeError
from kraftlog.proto.records import backend

Buffer = bytes | bytearray | memoryview

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Default bound: 64 times the default max.message.bytes, and small enough for several at a time in one node."""

MAX_FRAMES = 1024  # members or frames of one section; real producers write one
_STEP_BYTES = 256 << 10  # what a decompressor may put out per call
_INPUT_STEP_BYTES = 64 << 10  # what zlib and lz4 see at a time; they copy the rest of their input at a member's end

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2  # version and lowest compatible version
_XERIAL_BLOCK_BYTES = 32 << 10

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 128 << 10
_ZSTD_KEPT_BYTES = 4 << 20  # a thread keeps its context after frames up to this size
_ZSTD_MAX_WINDOW_BYTES = 128 << 20  # zstd's own limit for decoders that were not told otherwise

_LZ4_OPTIONS: dict[str, Any] = {
    "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
    "block_linked": False,
    "content_checksum": False,
    "store_size": False,
}


class _PerThread(threading.local):
    """zstd's contexts, which cost more to make than a small batch to decode. Each serves one thread at a time."""

    def __init__(self) -> None:
        self._compressors: dict[int, zstandard.ZstdCompressor] = {}
        self._decompressor: zstandard.ZstdDecompressor | None = None

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        found = self._compressors.get(level)
        if found is None:
            found = self._compressors[level] = zstandard.ZstdCompressor(level=level)
        return found

    def decompressor(self) -> zstandard.ZstdDecompressor:
        if self._decompressor is None:
            self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
        return self._decompressor

    def forget_decompressor(self) -> None:
        """A context keeps the largest window that it met; after a big frame it is not worth its memory."""
        self._decompressor = None


_per_thread = _PerThread()


def compress(codec: int, section: Buffer, level: int | None = None) -> bytes:
    """`section` in the framing of `codec`; `level` None is the codec's default, snappy has none."""
    match codec:
        case 1:
            compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return compressor.compress(section) + compressor.flush()
        case 2:
            return _compress_snappy(section)
        case 3:
            return bytes(lz4.frame.compress(section, compression_level=level or 0, **_LZ4_OPTIONS))
        case 4:
            return _per_thread.compressor(3 if level is None else level).compress(section)
    raise UnsupportedCompressionTypeError(f"unknown codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """The plain section; `data` itself for codec 0. Raises `InvalidRecordError` past `limit` bytes."""
    if codec == 0:
        return data
    decoder = _DECODERS.get(codec)
    if decoder is None:
        raise UnsupportedCompressionTypeError(f"unknown codec {codec}")
    return decoder(data, limit)


def _compress_snappy(section: Buffer) -> bytes:
    raw = backend.current.snappy_compress
    parts = [_XERIAL_HEADER]
    with memoryview(section) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = raw(view[start : start + _XERIAL_BLOCK_BYTES])
            parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    raw = backend.current.snappy_decompress
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return raw(data, limit)
    output = _Output("snappy", limit)
    with memoryview(data) as view:
        position, end = len(_XERIAL_HEADER), len(view)
        if position > end:
            raise InvalidRecordError(f"snappy frame of {end} bytes is shorter than its header")
        while position < end:
            if end - position < 4:
                raise InvalidRecordError("snappy frame ends inside a block size")
            size = int.from_bytes(view[position : position + 4], "big")
            position += 4
            if size > end - position:
                raise InvalidRecordError(f"snappy block of {size} bytes, {end - position} left")
            output.add(raw(view[position : position + size], output.left))
            position += size
    return output.joined()


class _Output:
    """Pieces of plain bytes, and how many more may come."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.left = limit
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        if len(piece) > self.left:
            raise InvalidRecordError(f"{self.name} section exceeds the limit of {self.limit} decompressed bytes")
        self.left -= len(piece)
        self._pieces.append(piece)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    output = _Output("gzip", limit)
    with memoryview(data) as view:
        position = 0
        for _ in range(MAX_FRAMES):
            position = _read_member(view, position, output)
            if position == len(view):
                return output.joined()
    raise InvalidRecordError(f"gzip section of more than {MAX_FRAMES} members")


def _read_member(view: memoryview, position: int, output: _Output) -> int:
    """Decompress one gzip member; return the position after it."""
    member = zlib.decompressobj(wbits=31)
    try:
        while not member.eof:
            if position == len(view):
                raise InvalidRecordError("gzip member is cut")
            pending: Buffer = view[position : position + _INPUT_STEP_BYTES]
            position += len(pending)
            while True:
                piece = member.decompress(pending, min(_STEP_BYTES, output.left + 1))
                output.add(piece)
                pending = member.unconsumed_tail
                if member.eof or (not pending and len(piece) < _STEP_BYTES):
                    break
    except zlib.error as error:
        raise InvalidRecordError(f"gzip: {error}") from None
    return position - len(member.unused_data)


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    output = _Output("lz4", limit)
    with memoryview(data) as view:
        position = 0
        for _ in range(MAX_FRAMES):
            position = _read_lz4_frame(view, position, output)
            if position == len(view):
                return output.joined()
    raise InvalidRecordError(f"lz4 section of more than {MAX_FRAMES} frames")


def _read_lz4_frame(view: memoryview, position: int, output: _Output) -> int:
    """Decompress one lz4 frame; return the position after it."""
    frame = lz4.frame.LZ4FrameDecompressor()
    try:
        while not frame.eof:
            if frame.needs_input:
                if position == len(view):
                    raise InvalidRecordError("lz4 frame is cut")
                pending = bytes(view[position : position + _INPUT_STEP_BYTES])
                position += len(pending)
            else:
                pending = b""
            output.add(frame.decompress(pending, max_length=min(_STEP_BYTES, output.left + 1)))
    except (RuntimeError, ValueError) as error:
        raise InvalidRecordError(f"lz4: {error}") from None
    return position - len(frame.unused_data or b"")


def _decompress_zstd(data: Buffer, limit: int) -> bytes:
    output = _Output("zstd", limit)
    decompressor = _per_thread.decompressor()
    with memoryview(data) as view:
        position = 0
        for _ in range(MAX_FRAMES):
            try:
                size = zstandard.frame_content_size(view[position:])
                if size > output.left:
                    raise InvalidRecordError(f"zstd frame of {size} bytes exceeds the limit of {limit}")
                stop, bound = _zstd_frame_end(view, position)
                if size > bound:
                    raise InvalidRecordError(f"zstd frame claims {size} bytes, its blocks give at most {bound}")
                room = max(min(bound, output.left), 1)
                if bound > _ZSTD_KEPT_BYTES:
                    _per_thread.forget_decompressor()
                output.add(decompressor.decompress(view[position:stop], max_output_size=room))
            except zstandard.ZstdError as error:
                raise InvalidRecordError(f"zstd: {error}") from None
            position = stop
            if position == len(view):
                return output.joined()
    raise InvalidRecordError(f"zstd section of more than {MAX_FRAMES} frames")


def _zstd_frame_end(view: memoryview, position: int) -> tuple[int, int]:
    """(position after the frame, most bytes that its blocks can give), from the block headers alone (RFC 8878).

    zstandard takes one frame a call and does not say where it ended, and a frame without a content size needs a
    bound for its output.
    """
    end = len(view)
    if end - position < 6 or bytes(view[position : position + 4]) != _ZSTD_MAGIC:
        raise InvalidRecordError(f"no zstd frame at byte {position} of the section")
    descriptor = view[position + 4]
    is_single_segment = descriptor >> 5 & 1
    content_size_bytes = (is_single_segment, 2, 4, 8)[descriptor >> 6]
    dictionary_bytes = (0, 1, 2, 4)[descriptor & 3]
    position += 5 + (1 - is_single_segment) + dictionary_bytes + content_size_bytes
    bound = 0
    is_last = False
    while not is_last:
        if end - position < 3:
            raise InvalidRecordError("zstd frame is cut")
        header = int.from_bytes(view[position : position + 3], "little")
        is_last = bool(header & 1)
        kind, size = header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == 1 else size)
        bound += _ZSTD_BLOCK_BYTES if kind == 2 else size
    position += 4 * (descriptor >> 2 & 1)  # content checksum
    if position > end:
        raise InvalidRecordError("zstd frame is cut")
    return position, bound


_DECODERS: dict[int, Callable[[Buffer, int], bytes]] = {
    1: _decompress_gzip,
    2: _decompress_snappy,
    3: _decompress_lz4,
    4: _decompress_zstd,
}
