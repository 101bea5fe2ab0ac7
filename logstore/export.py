"""The bytes of a partition's batches by offset range, for whoever turns them into something else.

    for run in iter_runs(RealFileSystem(), "/var/kraftlog/orders-0", start_offset=1000, end_offset=None): ...

Works on the files as they lie, of a stopped or a running node: what grows is read as far as it is written, and where a
crash interrupted a compaction, what the next start makes of it.
"""

import os
from collections.abc import Iterator

from kraftlog.logstore import layout
from kraftlog.logstore.batches import walk_headers
from kraftlog.logstore.filesystem import FileSystem
from kraftlog.logstore.scan import InvalidBytes, scan_file
from kraftlog.logstore.swaps import settled_names
from kraftlog.proto.errors import CorruptRecordError

RUN_BYTES = 4 << 20
"""About so many bytes of batches come at a time, or one larger batch."""


def iter_runs(
    fs: FileSystem,
    directory: str,
    *,
    start_offset: int = 0,
    end_offset: int | None = None,
    skip_damage: bool = False,
) -> Iterator[bytes]:
    """Consecutive whole batches whose checksums hold, with offsets from `start_offset` to `end_offset` (exclusive).

    The first and the last batch may hold records outside of the range. Raises `CorruptRecordError` where bytes between
    valid batches are none, unless `skip_damage`; a torn or preallocated tail ends a segment. Raises `OSError`.
    """
    names = settled_names(fs, directory)
    parsed = map(layout.parse_segment_file, names)
    bases = sorted(p[0] for p in parsed if p is not None and p[1] == layout.LOG_SUFFIX)
    for number, base_offset in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start_offset:
            continue
        if end_offset is not None and base_offset >= end_offset:
            return
        path = os.path.join(directory, names[layout.segment_file_name(base_offset, layout.LOG_SUFFIX)])
        yield from _runs_of(fs, path, base_offset, start_offset, end_offset, skip_damage)


def _runs_of(
    fs: FileSystem, path: str, base_offset: int, start_offset: int, end_offset: int | None, skip_damage: bool
) -> Iterator[bytes]:
    file = fs.open(path)
    pieces: list[memoryview] = []
    size_bytes = 0
    try:
        # Headers lead to the start at once; the checksums of what is skipped do not matter.
        position, size = 0, file.size()
        if start_offset > base_offset:
            found = (each for each in walk_headers(file, 0, size, with_control=False))
            position = next((each.position for each in found if each.header.last_offset >= start_offset), 0)
        for batch in scan_file(file, base_offset, position):
            if isinstance(batch, InvalidBytes):
                if batch.is_followed and not skip_damage:
                    raise CorruptRecordError(
                        f"{path}: {batch.size_bytes} bytes at position {batch.position} are no valid batch: {batch.reason}"
                    )
                continue
            if end_offset is not None and batch.header.base_offset >= end_offset:
                break
            if batch.header.last_offset < start_offset:
                continue
            pieces.append(batch.data)
            size_bytes += len(batch.data)
            if size_bytes >= RUN_BYTES:
                yield b"".join(pieces)
                pieces, size_bytes = [], 0
        if pieces:
            yield b"".join(pieces)
    finally:
        file.close()
