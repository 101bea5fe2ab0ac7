"""Walking the batches of a segment file: by header only (fast), or with every byte checked (recovery).

Both stop at the first bytes that are no batch and say where; what that means (end of data, torn tail, damage) is for
the caller to decide.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple, cast

from kraftlog.logstore.filesystem import File
from kraftlog.proto.errors import CorruptRecordError, KraftlogError
from kraftlog.proto.records import HEADER_BYTES, BatchHeader, backend, check_crc, read_header
from kraftlog.proto.records.format import LENGTH_OFFSET, MAGIC, MAGIC_OFFSET

_CHUNK_BYTES = 1 << 20  # one read of a scan; a larger batch is read whole
_HEADER_CHUNK_BYTES = 1 << 16  # one read of a header walk; batches are skipped, not read
_SEEK_CHUNK_BYTES = 1 << 13  # one read of a search: an index interval and a header
_SECTOR_BYTES = 512  # the least that a disk writes as a whole
_OFFSET_BYTES = 8  # of the base offset, with which a batch starts
_LOG_OVERHEAD = 12  # base offset and batch length, which batch length does not count
_MIN_BATCH_LENGTH = HEADER_BYTES - _LOG_OVERHEAD
_OFFSETS = struct.Struct(">qi11xi")  # base offset, batch length, last offset delta


class ScannedBatch(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview
    """The whole batch if it was scanned or is a control batch; else empty."""


def unpack_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader | None:
    """The header of a v2 batch of which only the header need be present; None if these bytes are none."""
    if len(buffer) - position < HEADER_BYTES or buffer[position + MAGIC_OFFSET] != MAGIC:
        return None
    header = cast(BatchHeader, backend.current.parse_header(BatchHeader, buffer, position))
    if header.batch_length < _MIN_BATCH_LENGTH or header.base_offset < 0 or header.last_offset_delta < 0:
        return None
    return header


def walk_headers(file: File, position: int, end: int, *, with_control: bool = True) -> Iterator[ScannedBatch]:
    """Batches from `position` up to the byte `end`, CRCs unchecked; stops at the first that is not whole."""
    chunk, start = b"", position
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > start + len(chunk) or position < start:
            chunk, start = file.pread(min(_HEADER_CHUNK_BYTES, end - position), position), position
        header = unpack_header(chunk, position - start)
        if header is None or position + header.size_bytes > end:
            return
        data = memoryview(b"")
        if with_control and header.is_control:
            data = memoryview(file.pread(header.size_bytes, position))
        yield ScannedBatch(position, header, data)
        position += header.size_bytes


def find_batch(file: File, position: int, end: int, offset: int) -> int:
    """Position of the first batch whose last offset is >= `offset`, or `end` if all end before it.

    `position` is a batch's start, `end` the end of the data; all between is trusted. `CorruptRecordError` where that
    turns out to be wrong.
    """
    chunk, start, at = b"", position, 0
    while position < end:
        if at + _OFFSETS.size > len(chunk):
            chunk, start, at = file.pread(min(_SEEK_CHUNK_BYTES, end - position), position), position, 0
            if len(chunk) < _OFFSETS.size:
                break
        base_offset, length, last_offset_delta = _OFFSETS.unpack_from(chunk, at)
        if base_offset + last_offset_delta >= offset:
            return position
        if length < _MIN_BATCH_LENGTH:
            break
        position += _LOG_OVERHEAD + length
        at = position - start
    if position != end:
        raise CorruptRecordError(f"{file.path}: no valid batch at position {position}")
    return end


def whole_batches(data: bytes, at: int) -> tuple[int, int | None]:
    """(end of the last whole batch in `data`, the offset after it); walks from `at`, where a batch starts.

    (`at`, None) if not even the first is whole.
    """
    size = len(data)
    next_offset = None
    while at + _OFFSETS.size <= size:
        base_offset, length, last_offset_delta = _OFFSETS.unpack_from(data, at)
        if length < _MIN_BATCH_LENGTH or at + _LOG_OVERHEAD + length > size:
            break
        at += _LOG_OVERHEAD + length
        next_offset = base_offset + last_offset_delta + 1
    return at, next_offset


def scan_batches(file: File, position: int, end: int) -> Iterator[ScannedBatch]:
    """Batches whose size, magic and CRC hold, from `position` up to the byte `end`; stops at the first that fails."""
    chunk, start = memoryview(b""), position
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > start + len(chunk):
            chunk, start = memoryview(file.pread(min(_CHUNK_BYTES, end - position), position)), position
        header = unpack_header(chunk, position - start)
        if header is None or position + header.size_bytes > end:
            return
        if position + header.size_bytes > start + len(chunk):
            wanted = min(max(_CHUNK_BYTES, header.size_bytes), end - position)
            chunk, start = memoryview(file.pread(wanted, position)), position
        at = position - start
        try:
            check_crc(chunk, at, read_header(chunk, at))
        except KraftlogError:
            return
        yield ScannedBatch(position, header, chunk[at : at + header.size_bytes])
        position += header.size_bytes


def is_zero(file: File, position: int, end: int) -> bool:
    """Whether there is nothing but zero bytes from `position` up to `end`: preallocated space."""
    while position < end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


def find_unwritten_sector(file: File, position: int, end: int, base_offset: int) -> int | None:
    """Where the first sector is that was never written, of those that hold the invalid batch at `position`.

    None if there is none: then the batch is not one of which a power loss kept only some pages. `end` is where the next
    valid batch starts, `base_offset` the least that the batch can have. A sector that was never written is zero from
    where the data before the batch end, or as a whole; so is no sector of a batch, but for values of many zeros.
    """
    if starts_in_unwritten_sector(file, position, base_offset):
        return position
    header = unpack_header(file.pread(HEADER_BYTES, position))
    if header is not None and header.base_offset >= base_offset:
        end = min(end, position + header.size_bytes)  # what follows it is no part of it
    for sector in range(_next_sector(position), end, _SECTOR_BYTES):
        if is_zero(file, sector, min(sector + _SECTOR_BYTES, file.size())):
            return sector
    return None


def starts_in_unwritten_sector(file: File, position: int, base_offset: int | None = None) -> bool:
    """Whether the sector in which a batch should start was never written from there on.

    `base_offset`: the least that it can have. None: the offset at `position` is known to be wrong.
    """
    size = _next_sector(position) - position
    if file.pread(size, position).strip(b"\0"):
        return False
    # Fewer bytes may be zero by nature: those of a small base offset. A batch length is never zero.
    return size >= _LOG_OVERHEAD or base_offset is None or base_offset >> 8 * max(_OFFSET_BYTES - size, 0) > 0


def _next_sector(position: int) -> int:
    return position - position % _SECTOR_BYTES + _SECTOR_BYTES


def find_valid_batch(file: File, position: int, end: int, min_base_offset: int) -> int | None:
    """Position of the first valid batch at or after `position`, at any byte, with a base offset of at least
    `min_base_offset`; None if there is none."""
    overlap = HEADER_BYTES - 1
    while position + HEADER_BYTES <= end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        at = chunk.find(MAGIC, MAGIC_OFFSET)
        while at >= 0:
            candidate = at - MAGIC_OFFSET
            if _is_valid_batch(file, chunk, candidate, position, end, min_base_offset):
                return position + candidate
            at = chunk.find(MAGIC, at + 1)
        if position + len(chunk) >= end:
            return None
        position += len(chunk) - overlap
    return None


def _is_valid_batch(file: File, chunk: bytes, at: int, start: int, end: int, min_base_offset: int) -> bool:
    length = int.from_bytes(chunk[at + LENGTH_OFFSET : at + LENGTH_OFFSET + 4], "big")
    if not _MIN_BATCH_LENGTH <= length <= end - start - at - _LOG_OVERHEAD:
        return False
    header = unpack_header(chunk, at)
    if header is None or header.base_offset < min_base_offset:
        return False
    data = file.pread(header.size_bytes, start + at)
    try:
        check_crc(data, 0, read_header(data))
    except CorruptRecordError:
        return False
    return True
